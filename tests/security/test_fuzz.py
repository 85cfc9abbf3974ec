"""Every field of every call, with what does not belong there: an answer of the description, and never a 5xx.

The long form, with values that nobody thought of, is `make fuzz`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from integration.api.serving import JOB, Api, serving
from security.routes import Route, routes

ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**53, -(2**63), 10**30, 1e308),
    *(
        "",
        " ",
        "\x00",
        "\ud7ff",
        "a\r\nb: c",
        "%",
        "'",
        "../..",
        "{{x}}",
        "x" * 5_000,
        "٣",
        "2026-13-45T99:99:99Z",
        "🔔",
    ),
    *([], {}, [None], [[]], {"": None}, {"a": {"b": {}}}, [0] * 1_001),
]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        for name in ("a", "b"):
            await api.good("POST", "/tasks", {**JOB, "name": name}, 201)
        await api.trigger(1)
        yield api


def example_of(route: Route) -> Any:
    content = route.operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = content.get("examples") or {}
    return content.get("example") or next((each["value"] for each in examples.values()), None)


def variants(body: Any) -> Iterator[Any]:
    """The body with one field, at the top or one level down, made odd; a field too many; and no object at all."""
    yield from ODD[:3]
    yield []
    if not isinstance(body, dict):
        return
    yield {**body, "nobody_knows": 1}
    for name, value in body.items():
        yield {other: each for other, each in body.items() if other != name}
        yield from ({**body, name: odd} for odd in ODD)
        if isinstance(value, dict):
            for inner in value:
                yield from ({**body, name: {**value, inner: odd}} for odd in ODD[::3])
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for inner in value[0]:
                yield from ({**body, name: [{**value[0], inner: odd}]} for odd in ODD[::3])


def is_odd(route: Route, told: Any) -> str | None:
    if told.status >= 500:
        return "a fault of ours"
    if str(told.status) not in route.operation["responses"]:
        return "not in the description"
    if told.status >= 400 and set(told.body) != {"code", "message", "request_id", "details", "error"}:
        return "not the shape of an error"
    return None


async def test_whatever_stands_in_a_body_the_answer_is_one_of_the_description(api: Api):
    wrong, count = [], 0
    for route in await routes(api):
        if route.method == "GET" or "/claim" in route.path:
            continue  # a claim waits for work
        for body in variants(example_of(route)):
            told = await api.call(route.method, route.address, body)
            count += 1
            if problem := is_odd(route, told):
                wrong.append((route.method, route.path, body, told.status, problem, told.text[:200]))
    assert wrong == []
    assert count > 1_500


async def test_whatever_stands_in_an_address_the_answer_is_one_of_the_description(api: Api):
    pieces = [
        "0",
        "-1",
        "9" * 30,
        "name:",
        "name:a",
        "name:%2F",
        "a%20b",
        "%F0%9F%94%94",
        "null",
        "1.0",
        "%27",
        "x" * 2_000,
    ]
    wrong = []
    for route in [each for each in await routes(api) if "{" in each.path]:
        for piece in pieces:
            if "/claim" in route.path:
                continue
            path = "/" + re.sub(r"\{\w+\}", piece, route.path)
            told = await api.call(route.method, path)
            if problem := is_odd(route, told):
                wrong.append((route.method, path, told.status, problem, told.text[:200]))
    assert wrong == []


async def test_whatever_stands_in_a_query_the_answer_is_one_of_the_description(api: Api):
    texts = [str(odd) for odd in ODD if not isinstance(odd, list | dict)]
    wrong = []
    for route in [each for each in await routes(api) if not each.is_stream]:
        for query in route.queries:
            for text in texts:
                told = await api.call(route.method, route.address, params={query["name"]: text})
                if problem := is_odd(route, told):
                    wrong.append((route.method, route.path, query["name"], text[:40], told.status, problem))
    assert wrong == []
