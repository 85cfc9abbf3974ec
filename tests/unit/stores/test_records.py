"""How the fields of a Struct are stored: it follows from their types, whatever name, note or alternative stands around them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, NewType

import msgspec
import pytest

from noonbell.stores.sql.rows import Record

Number = NewType("Number", int)
Words = NewType("Words", str)


class Colour(enum.StrEnum):
    RED = "red"


class Part(msgspec.Struct, frozen=True):
    size: int = 0


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    named: Words = Words("-")
    number: Annotated[Number | None, msgspec.Meta(ge=0)] = None
    colour: Annotated[Colour, "a note"] = Colour.RED
    perhaps_colour: Colour | None = None
    is_so: bool = False
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    words: tuple[Annotated[str, msgspec.Meta(max_length=9)], ...] | None = None
    by_name: Mapping[str, str] = {}
    anything: Any = None


RECORD = Record(Whole)
FULL = Whole(
    text="a",
    named=Words("b"),
    number=Number(7),
    perhaps_colour=Colour.RED,
    is_so=True,
    part=Part(1),
    parts=(Part(2), Part(3)),
    words=("c", "d"),
    by_name={"e": "f"},
    anything=[1, None],
)


@pytest.mark.parametrize("value", [FULL, Whole(text="")], ids=["full", "bare"])
def test_what_is_written_is_read_again(value: Whole):
    assert RECORD.read(RECORD.row(value)) == value


def test_columns_hold_what_databases_know():
    stored = dict(zip(RECORD.fields, RECORD.row(FULL), strict=True))
    assert stored == {
        "text": "a",
        "named": "b",
        "number": 7,
        "colour": "red",
        "perhaps_colour": "red",
        "is_so": 1,
        "part": '{"size":1}',
        "parts": '[{"size":2},{"size":3}]',
        "words": '["c","d"]',
        "by_name": '{"e":"f"}',
        "anything": "[1,null]",
    }
    assert [type(stored[name]) for name in ("colour", "is_so")] == [Colour, int]


def test_a_null_where_none_may_be_is_the_default_or_empty():
    assert RECORD.read([None] * len(RECORD.fields)) == Whole(text="")
