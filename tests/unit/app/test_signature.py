"""What a handler's signature makes of a payload, when it is published and when it is run."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from noonbell.app.job import OPTIONS
from noonbell.app.signature import Signature, as_json, signature_of
from noonbell.errors import InvalidArgument
from noonbell.targets.jobs.handler import Context


@dataclass
class Address:
    street: str
    zip: int


class Line(TypedDict):
    article: str
    count: int


class Tree(msgspec.Struct):
    name: str
    leaves: list[Tree] = []


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Order(pydantic.BaseModel):
    number: int
    placed_at: datetime


class Pool:
    pass


def of(function) -> Signature:
    return signature_of(function, {}, OPTIONS)


def taking(type_: Any) -> Signature:
    def handler(value):
        pass

    handler.__annotations__["value"] = type_
    return of(handler)


NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SOME_ID = UUID("7f1c6bd0-5f3c-4f4f-9a11-2a0a8a6d9c11")


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        (str, "eu", "eu"),
        (int, 7, 7),
        (float, 1, 1),
        (bool, True, True),
        (Any, {"a": [1, None]}, {"a": [1, None]}),
        (object, [1, "a"], [1, "a"]),
        (Optional[int], None, None),  # noqa: UP045 - what users write
        (int | None, 3, 3),
        (Literal["now", "later"], "later", "later"),
        (Colour, Colour.BLUE, "blue"),
        (datetime, NOON, "2026-11-15T12:00:00Z"),
        (date, date(2026, 11, 15), "2026-11-15"),
        (timedelta, timedelta(hours=1), "PT3600S"),
        (UUID, SOME_ID, str(SOME_ID)),
        (Decimal, Decimal("1.50"), "1.50"),
        (bytes, b"\x00\xff", "AP8="),
        (list[int], [1, 2], [1, 2]),
        (set[str], {"a"}, ["a"]),
        (dict[int, str], {1: "a"}, {"1": "a"}),
        (Address, Address("Main", 1), {"street": "Main", "zip": 1}),
        (list[Address], [Address("Main", 1)], [{"street": "Main", "zip": 1}]),
        (Line, {"article": "x", "count": 2}, {"article": "x", "count": 2}),
        (Point, Point(1, 2), [1, 2]),
        (Tree, Tree("a", [Tree("b")]), {"name": "a", "leaves": [{"name": "b", "leaves": []}]}),
        (Annotated[int, msgspec.Meta(ge=1)], 1, 1),
        (Order, Order(number=1, placed_at=NOON), {"number": 1, "placed_at": "2026-11-15T12:00:00Z"}),
    ],
)
def test_what_is_published_arrives_as_it_was(type_, value, stored):
    signature = taking(type_)
    payload = signature.write({"value": value})
    assert msgspec.json.decode(msgspec.json.encode(payload)) == {"value": stored}
    assert signature.read(payload) == {"value": value}


@pytest.mark.parametrize(
    ("type_", "value", "field", "problem"),
    [
        (str, 1, "value", "is 1; expected str, got int"),
        (int, "1", "value", "is '1'; expected int, got str"),
        (int, True, "value", "is True; expected int, got bool"),
        (int | None, "x", "value", "is 'x'; expected int | null, got str"),
        (Literal["now", "later"], "never", "value", "is 'never'; invalid enum value 'never'"),
        (datetime, "noon", "value", "is 'noon'; invalid RFC3339 encoded datetime"),
        (UUID, "7", "value", "is '7'; invalid UUID"),
        (list[int], [1, "2"], "value[1]", "expected int, got str"),
        (Address, {"street": "Main"}, "value", "object missing required field zip"),
        (Address, {"street": "Main", "zip": "x"}, "value.zip", "expected int, got str"),
        (list[Line], [{"article": "x"}], "value[0]", "object missing required field count"),
        (dict[int, str], {"a": "b"}, "value", "expected int, got str"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "value", "is 0; expected int >= 1"),
        (Order, {"number": "one", "placed_at": "2026-11-15T12:00:00Z"}, "value.number", "Input should be a valid"),
        (str, object(), "value", "which JSON cannot represent"),
        (Any, float("nan"), "value", "has a number that JSON cannot represent"),
        (str, "\ud800", "value", "lone surrogate"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(type_, value, field, problem):
    with pytest.raises(InvalidArgument) as refused:
        taking(type_).write({"value": value})
    assert list(refused.value.details) == [field]
    assert problem in refused.value.details[field]


def test_every_wrong_field_is_named_at_once():
    def handler(region: str, days: int, since: date):
        pass

    with pytest.raises(InvalidArgument) as refused:
        of(handler).write({"region": 1, "days": "7", "dayz": 7})
    assert set(refused.value.details) == {"region", "days", "since", "dayz"}
    assert refused.value.details["since"] == "is missing"
    assert "it takes region, days, since" in refused.value.details["dayz"]


def test_a_run_is_checked_as_a_publish_is():
    def handler(region: str):
        pass

    for payload in ({"region": 1}, {}, {"region": "eu", "more": 1}, None, [], "eu"):
        with pytest.raises(InvalidArgument):
            of(handler).read(payload)


def test_defaults_are_left_to_the_handler():
    def handler(region: str, days: int = 7, tags: list[str] = ["a"]):  # noqa: B006 - what users write
        pass

    assert of(handler).read({"region": "eu"}) == {"region": "eu"}
    assert of(handler).required == {"region"}


def test_a_payload_of_none_is_an_empty_one():
    def handler(days: int = 7):
        pass

    assert of(handler).read(None) == {}


def test_a_context_is_no_part_of_the_payload():
    def annotated(context: Context, region: str):
        pass

    def by_name(ctx, region: str):
        pass

    def without(region: str):
        pass

    assert [of(f).wants_context for f in (annotated, by_name, without)] == [True, True, False]
    assert [list(of(f).types) for f in (annotated, by_name, without)] == [["region"]] * 3


def test_only_the_first_parameter_can_be_the_context():
    def handler(region: str, ctx: Context):
        pass

    with pytest.raises(InvalidArgument, match="a payload cannot carry"):
        of(handler)


def test_keywords_that_the_handler_collects_are_let_through():
    def handler(region: str, **more):
        pass

    assert of(handler).read({"region": "eu", "days": 7}) == {"region": "eu", "days": 7}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_a_parameter_called_like_an_option_of_publish_is_refused(name):
    namespace: dict[str, Any] = {}
    exec(f"def handler({name}: str): pass", namespace)  # noqa: S102 - a parameter of any name
    with pytest.raises(InvalidArgument, match=f"{name}: is an option of publish"):
        of(namespace["handler"])


def test_a_dependency_among_the_parameters_is_refused_with_what_to_do():
    def handler(region: str, pool: Pool):
        pass

    with pytest.raises(InvalidArgument, match=r"pool: is a Pool, .* ctx.resource\(Pool\)"):
        of(handler)


def test_a_type_that_nobody_can_check_is_refused():
    with pytest.raises(InvalidArgument, match="cannot be checked"):
        taking(Order | Address)


def test_parameters_without_a_name_are_refused():
    def positional(region: str, /):
        pass

    def collected(*regions: str):
        pass

    for handler in (positional, collected):
        with pytest.raises(InvalidArgument, match="by keyword"):
            of(handler)


def test_a_name_that_only_a_type_checker_knows_is_told():
    def handler(when: Moment):  # noqa: F821 - the slip itself
        pass

    with pytest.raises(InvalidArgument, match="'Moment', which is not known when the job is declared"):
        of(handler)


def test_a_result_comes_back_in_its_type():
    def handler() -> Address:
        return Address("Main", 1)

    assert of(handler).result(as_json(handler())) == Address("Main", 1)


def test_a_result_that_is_not_what_the_handler_says_comes_back_as_it_was_stored():
    def handler() -> Address: ...

    def strange() -> Pool: ...

    assert of(handler).result({"street": 1}) == {"street": 1}
    assert of(strange).result({"a": 1}) == {"a": 1}


def test_a_result_without_a_type_comes_back_as_it_was_stored():
    def handler():
        pass

    assert of(handler).result({"rows": [1]}) == {"rows": [1]}
