"""The description of the API is true: a running server refuses what `/openapi.json` forbids, and names the field.

Every case is made from the document that the server hands out: each field of each body and each parameter of a query, below
its minimum, above its maximum, with a word that is none of its words, with a value of another type; then at its bounds.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from integration.api.serving import Api, serving
from noonbell.api.params import USUAL_BYTES
from noonbell.model.access import Role
from noonbell.settings import AuthSettings

WAITS = {"claim_runs": {"wait_seconds": 0}}
"""Calls whose example would wait."""
TOGETHER = {
    ("ping_interval_ms", 28_800_000): "less than worker_timeout_ms",
    ("worker_timeout_ms", 100): "more than ping_interval_ms",
    ("jitter_seconds", 31_536_000): "less than the time between two slots",
    ("older_than_seconds", 0): "not beside older_than_days",
    ("older_than_seconds", 3_153_600_000.0): "not beside older_than_days",
    ("plan_value", -2_147_483_647): "by plan_type",
    ("plan_value", 2_147_483_647): "by plan_type",
    ("repeat", 9_007_199_254_740_991): "of a single schedule",
    ("mode", "fixed_delay"): "of a single schedule",
    ("count", 1_000_000): "fewer than the plan's slots",
    ("all", True): "not beside a filter",
}
"""Values within their bounds that another field forbids: the rules between fields are no part of a schema."""


ENDLESS = {"events"}
"""Calls whose answer does not end."""

SHORT = {"schedule.expr": "cron_expr", "schedule.dialect": "cron_dialect"}
"""A change of `cron_expr` is laid over the schedule that the task has, and complained of there."""


def in_a_list(name: str) -> tuple[str, str]:
    """The place of a task in a list, if it is in one, and its field."""
    place, has_place, field = name.rpartition("tasks[0].")
    return place + has_place, field


@dataclass
class World:
    """A server with one of each thing, and its description."""

    api: Api
    headers: dict[str, str]
    document: dict[str, Any]
    places: dict[str, str]

    def resolved(self, schema: Any) -> dict[str, Any]:
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return schema

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def address(self, path: str) -> str:
        job = {"id": self.places["job"]} if path.startswith("/api/jobs") else {}
        return "/" + re.sub(r"\{(\w+)\}", lambda part: {**self.places, **job}[part[1]], path)

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
        if "body" in more:  # as a file: a client complains of large ones in one piece
            more["data"] = io.BytesIO(json.dumps(more.pop("body")).encode())
        told = await self.api.call(method, self.address(path), headers=self.headers, **more)
        return told.status, told.body if isinstance(told.body, dict) else {}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
        _, secret = await api.parts.access.create("admin", Role.ADMIN)
        headers = {"Authorization": f"Bearer {secret}"}

        async def make(path: str, body: dict[str, Any], status: int = 201) -> Any:
            return await api.good("POST", path, body, status, headers=headers)

        url = "http://127.0.0.1:9/x"
        target = {"target_url": url, "cron_expr": "0 0 * * *"}
        task = (await make("/tasks", {"name": "a", "exec_type": "ASYNC", **target}))["id"]
        await make("/tasks", {"name": "send_mail", "target_url": url})  # the examples publish it
        job = (await make("//api/jobs", {"job_name": "j", "job_type": "t"}))["id"]
        await make("/plans", {"station": "s", "plan_type": "none", "messages": ["x"], "plan_id": "ab"})
        await make("/alerts/rules", {"name": "failed"})
        await make("/alerts/channels", {"name": "ops", "url": url})
        hook = "http://127.0.0.1:8099/hook"
        await make("/subscriptions", {"name": "billing", "url": hook})
        delivery = (await make("/subscriptions/billing/test", {}, 200))["delivery_id"]
        await api.good("PUT", "/calendars/china", {}, headers=headers)
        await make("/workers/w/claim", {"wait_seconds": 0, "queues": ["other"]}, 200)
        run = (await make(f"/tasks/{task}/trigger", {}, 200))["run_id"]
        lease = await api.claim()
        await api.park(lease)
        bulk = (await make("/bulk", {"kind": "retry_runs", "filter": {"status": ["FAILED"]}}, 200))["id"]
        places = {
            "bulk_id": str(bulk),
            "id": str(task),
            "job": str(job),
            "run_id": str(run),
            "plan_id": "ab",
            "worker_id": "w",
            "name": "q",
            "rule": "failed",
            "channel": "ops",
            "subscription": "billing",
            "delivery_id": str(delivery),
            "calendar": "china",
            "token": "nobody",
            "of": "tasks",
            "view": "a view",
            "callback_token": str(lease.callback_token),
        }
        yield World(api, headers, await api.good("GET", "//openapi.json", headers=headers), places)


# ---- from a schema to values


@dataclass
class Part:
    """A place in a body: its schema, and how to put a value there."""

    name: str
    schema: dict[str, Any]
    steps: tuple[str | int, ...]

    def put(self, body: Any, value: Any) -> Any:
        return put(body, self.steps, value)


def put(body: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    if not steps:
        return value
    if isinstance(steps[0], int):
        return [put(body[0] if body else {}, steps[1:], value)]
    return {**(body if isinstance(body, dict) else {}), steps[0]: put((body or {}).get(steps[0]), steps[1:], value)}


def without_null(world: World, schema: dict[str, Any]) -> dict[str, Any]:
    schema = world.resolved(schema)
    ways = [way for way in schema.get("anyOf", []) if way.get("type") != "null"]
    return (
        {**world.resolved(ways[0]), **{k: v for k, v in schema.items() if k != "anyOf"}} if len(ways) == 1 else schema
    )


def parts(world: World, schema: dict[str, Any], path: str = "", steps: tuple[str | int, ...] = ()) -> Iterator[Part]:
    """Every field of a body, with those of inner objects, of each kind of object, of lists and of values under free names."""
    for name, given in world.resolved(schema).get("properties", {}).items():
        inner = without_null(world, given)
        if not inner.get("readOnly") and "const" not in inner:
            here = f"{path}.{name}" if path else name
            yield Part(here, inner, (*steps, name))
            yield from inner_parts(world, inner, here, (*steps, name))


def inner_parts(world: World, schema: dict[str, Any], here: str, steps: tuple[str | int, ...]) -> Iterator[Part]:
    """What is inside of a value of this schema."""
    yield from parts(world, schema, here, steps)
    if isinstance(schema.get("additionalProperties"), dict):
        yield Named(f"{here}.x", schema["additionalProperties"], (*steps, "x"))
    if schema.get("type") == "array":
        items = without_null(world, schema["items"])
        if items.get("type") != "object" and "oneOf" not in items:
            yield Part(f"{here}[0]", items, (*steps, 0))
        yield from inner_parts(world, items, f"{here}[0]", (*steps, 0))
    for way in schema.get("oneOf", ()):
        tag = {n: s["const"] for n, s in world.resolved(way)["properties"].items() if "const" in s}
        for part in parts(world, way, here, steps):
            yield Tagged(part.name, part.schema, part.steps, steps, {**sample(world, way), **tag})


@dataclass
class Tagged(Part):
    """A field of one of several kinds of objects: the others of that kind have to be there."""

    at: tuple[str | int, ...] = ()
    whole: Any = None

    def put(self, body: Any, value: Any) -> Any:
        return put(put(body, self.at, self.whole), self.steps, value)


AROUND: dict[str | int, dict[str, Any]] = {
    "amqp": {"amqp": {"url": "amqp://localhost", "routing_key": "q"}},
    "nats": {"nats": {"url": "nats://localhost", "subject": "s"}},
    "redis": {"redis": {"url": "redis://localhost", "stream": "s"}},
    "mqtt": {"mqtt": {"url": "mqtt://localhost", "topic": "t"}},
    "grpc": {"grpc": {"address": "localhost:1", "method": "a.B/C"}},
    "env": {"command": ["/bin/true"]},
}
"""What a task has to say besides, for the values under free names in such a field to be looked at."""


@dataclass
class Named(Part):
    """A value under a name of the caller's own."""

    def put(self, body: Any, value: Any) -> Any:
        for place in (-3, -2):
            if len(self.steps) >= -place and self.steps[place] in AROUND:
                body = self.around(body, self.steps[:place], AROUND[self.steps[place]])
        return super().put(body, value)

    def around(self, body: Any, owner: tuple[str | int, ...], whole: dict[str, Any]) -> Any:
        if owner[-2:-1] == ("steps",):
            return put(self.around(body, owner[:-2], {}), owner, {"id": "a", **whole})
        task = body["tasks"][0] if owner else body
        return put(body, owner, {**{key: task[key] for key in ("id", "name") if key in task}, **whole})


def sample(world: World, schema: dict[str, Any]) -> Any:
    schema = world.resolved(schema)
    if "properties" in schema:
        needed = {name: schema["properties"][name] for name in schema.get("required", ())}
        return {name: given.get("const", (given.get("examples") or [None])[0]) for name, given in needed.items()}
    return (schema.get("examples") or [schema.get("default")])[0]


def forbidden(schema: dict[str, Any]) -> Iterator[Any]:
    """Values that the schema does not allow."""
    if "anyOf" in schema:
        for value in (value for way in schema["anyOf"] for value in forbidden(way)):
            if not any(Draft202012Validator(way).is_valid(value) for way in schema["anyOf"]):
                yield value
        return
    kind = schema.get("type")
    if "enum" in schema:
        yield "no such word"
    if kind in ("integer", "number"):
        yield from (schema["minimum"] - 1, schema["maximum"] + 1, "x", True)
        if kind == "integer":
            yield schema["minimum"] + 0.5
    elif kind == "string":
        if schema.get("minLength"):
            yield "x" * (schema["minLength"] - 1)
        if "maxLength" in schema:
            yield "x" * (schema["maxLength"] + 1)
        if "pattern" in schema:
            assert re.search(schema["pattern"], "§ §") is None
            yield "§ §"
        if schema.get("format") == "date-time":
            yield "tomorrow"
        yield 7
    elif kind == "boolean":
        yield from ("yes", 1)
    elif kind == "array":
        yield "x"
        if "minItems" in schema:
            yield []
        if "maxItems" in schema:
            yield ["x"] * (schema["maxItems"] + 1)
    elif kind == "object" or "oneOf" in schema:
        yield "x"
        if "maxProperties" in schema:
            yield {f"x{number}": "" for number in range(schema["maxProperties"] + 1)}


def allowed(schema: dict[str, Any]) -> Iterator[Any]:
    """Values at the bounds."""
    kind = schema.get("type")
    if kind in ("integer", "number"):
        yield from (schema["minimum"], schema["maximum"])
    yield from schema.get("enum", ())
    if kind == "boolean":
        yield from (True, False)


def plainer(example: Any) -> Any:
    """Without the short form of a schedule: a schedule may not stand beside it."""
    if isinstance(example, dict):
        return {name: plainer(value) for name, value in example.items() if name != "cron_expr"}
    return [plainer(each) for each in example] if isinstance(example, list) else example


def bodies(world: World) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any], Any]]:
    for method, path, operation in world.operations():
        if "requestBody" in operation:
            media = operation["requestBody"]["content"]["application/json"]
            example = {**plainer(media["example"]), **WAITS.get(operation["operationId"], {})}
            yield method, path, operation, media["schema"], example


# ---- what is claimed


async def taken_in_bodies(world: World, only: str = "") -> tuple[list[str], int]:
    """What the server takes, or refuses without naming it, though the description forbids it; how many cases there were."""
    wrong, count = [], 0
    for method, path, operation, schema, example in bodies(world):
        if only not in ("", operation["operationId"]):
            continue
        for part in parts(world, schema):
            for value in forbidden(part.schema):
                count += 1
                status, told = await world.call(method, path, body=part.put(example, value))
                named = {re.sub(r"\[[^\]]*\]", "[0]", name) for name in told.get("details", {})}
                named |= {f"{within}{SHORT[name]}" for within, name in map(in_a_list, named) if name in SHORT}
                if status == 413 and len(str(value)) > USUAL_BYTES:
                    continue
                if status != 400 or not named & {part.name, part.name.removesuffix("[0]")}:
                    wrong.append(f"{method} {path} {part.name} = {str(value)[:40]}: {status} {str(told)[:120]}")
    return wrong, count


FREE = {
    *("payload", "body", "messages[0]", "command", "foreach", "meta", "filter"),
    *("data", "result", "message", "error_message", "error_details", "progress", "version"),
}
"""Fields of any JSON, and those that a rule of their own checks, which the description puts into words."""


async def test_every_other_field_has_values_that_are_forbidden(world: World):
    """So that the test below says something about each of them."""
    free = {
        part.name for *_, schema, _ in bodies(world) for part in parts(world, schema) if not [*forbidden(part.schema)]
    }
    assert {name.rpartition("].")[2].rpartition(".")[2] for name in free} <= FREE


async def test_the_server_refuses_what_the_description_forbids_in_a_body(world: World):
    wrong, count = await taken_in_bodies(world)
    assert not wrong, "\n".join(wrong)
    assert count > 500


@pytest.mark.parametrize(
    ("field", "bound", "value"),
    [("delay_seconds", "maximum", 10), ("delay_seconds", "minimum", 5), ("key", "maxLength", 3)],
)
async def test_a_bound_that_is_described_and_not_enforced_is_seen(world: World, field: str, bound: str, value: int):
    schema = world.document["components"]["schemas"]["TriggerWrite"]["properties"][field]
    described = next(way for way in (schema, *schema.get("anyOf", ())) if bound in way)
    assert described[bound] != value
    assert (await taken_in_bodies(world, "trigger_task"))[0] == []
    described[bound] = value
    wrong, _ = await taken_in_bodies(world, "trigger_task")
    assert {each.split()[2] for each in wrong} == {field}


async def test_the_server_refuses_what_the_description_forbids_in_a_query(world: World):
    wrong, count = [], 0
    for method, path, operation in world.operations():
        for parameter in operation.get("parameters", []):
            if parameter["in"] != "query":
                continue
            schema = without_null(world, parameter["schema"])
            schema = schema["items"] if schema.get("type") == "array" else schema
            for value in forbidden(schema):
                if value == "" or value is True or (schema.get("type") == "boolean" and value == 1):
                    continue  # in a query everything is a text, and an empty one is none
                if Draft202012Validator(schema).is_valid(str(value)):
                    continue  # what is wrong in JSON may be right as a text
                count += 1
                status, told = await world.call(method, path, params={parameter["name"]: str(value)})
                if status != 400 or parameter["name"] not in told.get("details", {}):
                    wrong.append(f"{method} {path}?{parameter['name']}={str(value)[:40]}: {status} {str(told)[:120]}")
    assert not wrong, "\n".join(wrong)
    assert count > 100


async def test_a_query_at_its_bounds_is_taken(world: World):
    wrong, count = [], 0
    for method, path, operation in world.operations():
        for parameter in operation.get("parameters", []):
            schema = without_null(world, parameter["schema"])
            schema = schema["items"] if schema.get("type") == "array" else schema
            for value in allowed(schema) if parameter["in"] == "query" and method == "GET" else ():
                if operation["operationId"] in ENDLESS:
                    continue
                count += 1
                _, told = await world.call(method, path, params={parameter["name"]: json.dumps(value).strip('"')})
                said = told.get("details", {}).get(parameter["name"], "")
                if "expected" in said and (parameter["name"], value) not in TOGETHER:
                    wrong.append(f"{method} {path}?{parameter['name']}={value}: {said}")
    assert not wrong, "\n".join(wrong)
    assert count > 100


async def test_the_server_takes_what_the_description_allows(world: World):
    """At the bounds no field is complained of, but for rules between fields."""
    wrong, count = [], 0
    for method, path, operation, schema, example in bodies(world):
        for part in parts(world, schema):
            for value in allowed(part.schema):
                if (operation["operationId"], part.name) == ("claim_runs", "wait_seconds"):
                    continue  # it would be waited for
                count += 1
                status, told = await world.call(method, path, body=part.put(example, value))
                said = told.get("details", {}).get(part.name) if status == 400 else None
                if said is not None and "expected" in said and (part.name.rpartition("[0].")[2], value) not in TOGETHER:
                    wrong.append(f"{method} {path} {part.name} = {str(value)[:40]}: {said}")
    assert not wrong, "\n".join(wrong)
    assert count > 200


async def test_the_server_refuses_fields_that_the_description_does_not_have(world: World):
    wrong = []
    for method, path, _, schema, example in bodies(world):
        if world.resolved(schema).get("additionalProperties") is False:
            status, told = await world.call(method, path, body={**example, "no_such_field": 1})
            if status != 400 or "no_such_field" not in told["details"]:
                wrong.append(f"{method} {path}: {status} {told}")
    assert not wrong, "\n".join(wrong)


READ_WITH = {"POST /api/v1/tasks": "/api/v1/tasks/{id}"}
"""What is made is not shown by the answer: where it is read."""
MADE = {
    "POST /api/v1/tasks": (
        {"name": "d", "target_url": "http://127.0.0.1:9/"},
        {"name": "e", "job_type": "t", "fanout": {"workers": 1}, "sla": {}, "retry_policy": {}, "circuit": {}},
        {"name": "f", "command": ["/bin/true"], "rate_limit": {"max": 1, "per_seconds": 1}, "dst": {}},
        {"name": "g", "steps": [{"id": "a", "job_type": "t", "retry_policy": {}}]},
        {"name": "h", "job_type": "t", "after": {"tasks": [{"task": "a"}]}},
        {
            "name": "i",
            "job_type": "t",
            "quiet": [{"from": "22:00", "to": "06:00"}],
            "schedules": [{"type": "cron", "expr": "@daily"}],
        },
        {
            "name": "n",
            "job_type": "t",
            "schedule": {"type": "interval", "unit": "day", "every": 1},
            "calendar": {"name": "china"},
        },
        {"name": "k", "job_type": "t", "schedule": {"type": "weekly", "weekday": 1, "time": "08:00"}},
        {"name": "l", "job_type": "t", "schedule": {"type": "monthly", "day": 1, "time": "08:00"}},
        {"name": "m", "job_type": "t", "schedule": {"type": "once", "at": "2099-01-01T00:00:00Z"}},
        *({"name": name, **AROUND[name]} for name in ("amqp", "nats", "redis", "mqtt", "grpc")),
    ),
    "POST /api/jobs": ({"job_name": "d2", "job_type": "t"},),
    "POST /api/v1/plans": ({"station": "s", "plan_type": "none", "messages": [1]},),
    "POST /api/v1/alerts/rules": ({"name": "misfire"},),
    "POST /api/v1/alerts/channels": ({"name": "c2", "url": "http://127.0.0.1:9/"},),
    "POST /api/v1/tokens": ({"name": "t2", "role": "viewer"},),
    "PUT /api/v1/queues/{name}": ({},),
    "POST /api/v1/subscriptions": ({"name": "s2", "url": "http://127.0.0.1:8099/hook"},),
    "PUT /api/v1/calendars/{calendar}": ({},),
}
"""The least that a new one says."""
CHOSEN = {
    "secret": "of a subscription: without one, one is made and shown",
    "schedule.anchor": "null: the time of the change, which is shown",
    "schedules[0].source": "null where the expression is written as it is shown",
    "ical_days": "of a calendar: null: those that it has; a new one has none",
}
"""Defaults that stand for what the server chooses."""


def other_defaults(
    world: World, schema: dict[str, Any], given: Any, told: Any, path: str
) -> Iterator[tuple[str, bool]]:
    """Each field with a default that was not given and is shown, and whether something else is shown; inside of objects too."""
    schema = without_null(world, schema)
    if isinstance(told, list) and schema.get("type") == "array":
        for before, after in zip(given, told, strict=True):
            yield from other_defaults(world, schema["items"], before, after, f"{path}[0]")
    if isinstance(told, dict) and "oneOf" in schema:
        ways = [world.resolved(way) for way in schema["oneOf"]]
        schema = next(way for way in ways if way["properties"]["type"]["const"] == told["type"])
    for name, inner in schema.get("properties", {}).items() if isinstance(told, dict) else ():
        here = f"{path}.{name}" if path else name
        if inner.get("readOnly") or name not in told or here in CHOSEN:
            continue
        if name in given:
            yield from other_defaults(world, inner, given[name], told[name], here)
        elif "default" in inner:
            yield (
                f"{here}: {told[name]!r}, and the description says {inner['default']!r}",
                told[name] != inner["default"],
            )


async def test_a_default_is_what_a_read_shows(world: World):
    found = []
    for call, least in MADE.items():
        method, _, path = call.partition(" ")
        schema = world.document["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
        for body in least:
            status, told = await world.call(method, path, body=body)
            assert status in (200, 201), (body, told)
            if call in READ_WITH:
                told = await world.api.good("GET", f"/tasks/{told['id']}", headers=world.headers)
            found += [(f"{call} {said}", is_other) for said, is_other in other_defaults(world, schema, body, told, "")]
    wrong = [said for said, is_other in found if is_other]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 700


async def test_a_default_of_a_query_is_what_the_answer_shows(world: World):
    wrong, count = [], 0
    for method, path, operation in world.operations():
        if method == "GET" and operation["operationId"] not in ENDLESS:
            status, told = await world.call(method, path)
            for parameter in operation.get("parameters", []) if status == 200 else ():
                name, default = parameter["name"], parameter["schema"].get("default")
                if parameter["in"] == "query" and default is not None and name in told:
                    count += 1
                    if told[name] != default:
                        wrong.append(f"{path}?{name}: {told[name]!r}, and the description says {default!r}")
    assert not wrong, "\n".join(wrong)
    assert count > 10


async def test_every_field_and_parameter_is_described(world: World):
    missing = []
    for method, path, _, schema, _ in bodies(world):
        missing += [f"{method} {path} {part.name}" for part in parts(world, schema) if not has_words(world, part)]
    for method, path, operation in world.operations():
        missing += [
            f"{method} {path}?{each['name']}" for each in operation.get("parameters", ()) if not each["description"]
        ]
    assert not missing, "\n".join(missing)


def has_words(world: World, part: Part) -> bool:
    return (
        part.name.endswith("]")
        or isinstance(part, Named)
        or bool(part.schema.get("description"))
        or "properties" in part.schema
    )
