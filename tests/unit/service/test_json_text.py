"""JSON texts of callers: how many values, how deep, and how much of them is looked at."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell import fields, json_text
from noonbell.errors import InvalidArgument, InvalidJson, PayloadTooLarge
from noonbell.fields.kinds import unfit_json
from noonbell.fields.problems import MOST_PROBLEMS, SHOWN, Problems, ReadContext, shown
from noonbell.json_text import DEEPEST, MOST_VALUES, aside, decode, is_too_deep
from noonbell.service.workers import HeartbeatWrite

FULL = MOST_VALUES - 2


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"0," * MOST_VALUES + b"0]",
        b'{"data":[' + b"[]," * MOST_VALUES + b"[]]}",
        b"[" + b'"",' * MOST_VALUES + b'""]',
        b"{" + b",".join(b'"%d":0' % number for number in range(MOST_VALUES + 2)) + b"}",
        b"[" + b'"[",' * 3 * MOST_VALUES + b'""]',
    ],
    ids=["zeros", "lists", "strings", "fields", "brackets in strings"],
)
def test_a_text_of_too_many_values_is_refused(body):
    with pytest.raises(PayloadTooLarge, match="values"):
        decode(body)


@pytest.mark.parametrize(
    "value",
    [[0] * FULL, {"text": ",[{" * MOST_VALUES}, {"text": '\\",["' * MOST_VALUES}, [{"a": "\\"}] * 1_000],
    ids=["values", "commas in a string", "escapes", "backslashes"],
)
def test_as_many_as_are_taken_are_and_strings_do_not_count(value):
    assert decode(json.dumps(value).encode()) == value


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def test_depth_is_counted_outside_strings_and_per_branch():
    assert decode(nested(DEEPEST))
    with pytest.raises(InvalidJson, match="deeper"):
        decode(nested(DEEPEST + 2))
    assert decode(b"[" + b"[[]]," * 1_000 + b"[]]")
    assert decode(json.dumps({"a": "[" * 1_000, "b": '\\"[' * 1_000, "c": "\\" * 999}).encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(st.sampled_from('[]{}",\\a'), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[]"\\a', max_size=3), inner, max_size=4),
    max_leaves=30,
)


@given(VALUES, st.integers(0, 70))
def test_the_depth_that_brackets_show_is_the_depth_of_the_value(value, wrapped):
    for _ in range(wrapped):
        value = [value]
    assert is_too_deep(msgspec.json.encode(value)) == (depth(value) > DEEPEST)


def depth(value) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


async def test_a_large_text_is_decoded_in_a_thread():
    import threading

    here = threading.get_ident()
    assert await aside(threading.get_ident, size=json_text.ASIDE_FROM) == here
    assert await aside(threading.get_ident, size=json_text.ASIDE_FROM + 1) != here


def test_no_more_unknown_fields_are_compared_than_are_named(monkeypatch):
    compared = []
    monkeypatch.setattr(fields, "get_close_matches", lambda *given: compared.append(given) or [])
    problems = Problems()
    fields.read_into(HeartbeatWrite, {f"a{number}": 0 for number in range(10_000)}, ReadContext(problems))
    with pytest.raises(InvalidArgument):
        problems.finish()
    assert len(compared) == MOST_PROBLEMS


class Counted(list):
    """A list that counts how many of its items were looked at."""

    seen = 0

    def __iter__(self):
        for each in super().__iter__():
            Counted.seen += 1
            yield each


@pytest.mark.parametrize("value", [Counted([[]] * 100_000), [Counted([0] * 100_000)] * 1_000], ids=["flat", "nested"])
def test_a_large_value_is_quoted_by_its_beginning(value):
    Counted.seen = 0
    text = shown(value)
    assert len(text) <= SHOWN
    assert text.startswith("[")
    assert text.endswith("…")
    assert Counted.seen <= 2 * SHOWN


@pytest.mark.parametrize("value", ["a", 1, None, [1, {"a": (2, 3)}], {"b": []}, "é" * 50, b"x"])
def test_a_small_value_is_quoted_whole(value):
    assert shown(value) == repr(value)


def test_reading_stops_where_no_further_problem_can_be_named(monkeypatch):
    """A heartbeat of 10,000 wrong runs costs what a hundred do."""
    made = []
    whole = fields.read_into

    def counted(struct, *given, **more):
        made.append(struct)
        return whole(struct, *given, **more)

    monkeypatch.setattr(fields, "read_into", counted)
    at = ReadContext(Problems())
    whole(HeartbeatWrite, {"runs": [{"run_id": "x", "token": "y"}] * 10_000}, at)
    assert at.problems.are_enough
    assert 0 < len(made) <= MOST_PROBLEMS


@pytest.mark.parametrize(
    ("value", "is_fit"),
    [
        ({"a": None, "b": [1.5, None]}, True),
        ({"a": float("nan")}, False),
        ([None, float("inf")], False),
        ((None, 1.0), True),
        ((None, float("-inf")), False),
    ],
)
def test_a_number_that_json_cannot_write_is_found_beside_nulls(value, is_fit):
    assert (unfit_json(value) is None) == is_fit
