"""A secret goes to its target and nowhere else: not into an answer, a log line, an export, a figure or an error (S7)."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from integration.api.serving import Api, serving
from integration.targets.sink import Sink
from noonbell.cli import main
from noonbell.model.access import Role
from noonbell.settings import AuthSettings, ExecutorSettings, LoggingSettings, SecretSettings
from noonbell.telemetry import logs
from security.planting import Planted, ended, found_in, parrots

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:apprise")


@pytest.fixture(params=["lines, sealed", "json, plain"])
def form(request) -> str:
    """How the log is written, and whether there is a key for secrets. Without a key only the mask is in the way."""
    return str(request.param)


@pytest.fixture
def heard(form) -> Iterator[io.StringIO]:
    """What the log says at its most talkative, as it would be written."""
    said, root = io.StringIO(), logging.getLogger()
    level = root.level
    logs.set_up("debug", as_json="json" in form, stream=said)
    yield said
    for handler in [each for each in root.handlers if isinstance(each, logs.LogHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)


class House:
    """A server full of canaries."""

    def __init__(self, api: Api, planted: Planted, sink: Sink, token: str) -> None:
        self.api, self.planted, self.sink, self.token = api, planted, sink, token
        self.auth = {"Authorization": f"Bearer {token}"}
        self.emitted: list[str] = []
        self.ids: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        headers = {**self.auth, **more.pop("headers", {})}
        told = await self.api.call(method, path, body, headers=headers, **more)
        self.emitted.append(f"{method} {told.status} {told.headers} {told.text}")
        return told

    @property
    def canaries(self) -> list[str]:
        tokens = {asked.headers.get("x-callback-token", "") for asked in self.sink.asked} - {""}
        assert tokens
        return [*self.planted.all(), *tokens, self.token]


@pytest.fixture
async def house(sqlite_url, key_file, form, heard) -> AsyncIterator[House]:
    planted = Planted()
    sections = {
        "auth": AuthSettings(enabled=True),
        "executor": ExecutorSettings(global_headers={"X-Secret-Everywhere": planted.everywhere}),
        "secrets": SecretSettings(key_file=str(key_file) if "sealed" in form else None),
        "logging": LoggingSettings(level="debug"),
    }
    async with parrots() as sink, serving(sqlite_url, **sections) as api:
        _, token = await api.parts.access.create("root", Role.ADMIN)
        house = House(api, planted, sink, token)
        await api.parts.node.start()
        try:
            await _live_in(house)
            yield house
        finally:
            await api.parts.node.stop(1)


async def _live_in(house: House) -> None:
    """Runs that succeed, fail, wait for a callback and get one; channels that are told of it."""
    planted, sink = house.planted, house.sink
    made = {}
    for name, path, more in (
        ("good", "/good", {}),
        ("bad", "/fail", {"retry_policy": {"max_retries": 1, "initial_delay": 0}}),
        ("slow", "/slow", {"exec_type": "ASYNC"}),
        ("redirected", "/good", {"follow_redirects": True}),
    ):
        told = await house.call("POST", "/tasks", planted.task(sink.url(path), name=name, **more))
        assert told.status == 201, told.text
        made[name] = told.body["id"]
    for task in planted.others():
        told = await house.call("POST", "/tasks", task)
        assert told.status == 201, told.text
        if task["name"] != "command":  # no worker runs that one
            made[task["name"]] = told.body["id"]
    for channel in planted.channels(sink.url("/fail/hook")):
        assert (await house.call("POST", "/alerts/channels", channel)).status == 201
    await house.call("POST", "/alerts/rules", {"name": "failed"})
    runs = {name: (await house.call("POST", f"/tasks/{id_}/trigger")).body["run_id"] for name, id_ in made.items()}
    for name in ("hook", "mail"):
        await house.call("POST", f"/alerts/channels/{name}/test")
    for run in runs.values():
        await ended(house.api, run, headers=house.auth)
    token = next(a.headers["x-callback-token"] for a in sink.asked if "x-callback-token" in a.headers)
    said = {"status": "SUCCESS", "data": {"x": 1}}
    headers = {"Cookie": f"a={planted.cookie}"}
    assert (await house.call("POST", f"/callbacks/{token}", said, headers=headers)).status == 200
    await house.call("POST", "/callbacks/" + "z" * 43, said, headers=headers)
    house.ids = {
        "id": str(made["good"]),
        "run_id": str(runs["bad"]),
        "name": "hook",
        "worker_id": "w",
        "plan_id": "1",
        "callback_token": "y" * 43,
        "rule": "failed",
        "channel": "hook",
    }


async def every_operation(house: House) -> list[tuple[str, str, dict[str, Any]]]:
    document = (await house.call("GET", "//openapi.json")).body
    found = [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    order = ["GET", "POST", "PATCH", "PUT", "DELETE"]
    return sorted(found, key=lambda each: order.index(each[0]))


def example_of(operation: dict[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = content.get("examples") or {}
    return content.get("example") or next((each["value"] for each in examples.values()), {})


async def walk(house: House) -> int:
    """Call everything there is, with ids that are there and bodies that fit and that do not."""
    count = 0
    for method, path, operation in await every_operation(house):
        if path.endswith("/events"):
            house.emitted.append(await _first_events(house))
            continue
        for ids in (house.ids, {**house.ids, "id": "3", "run_id": "7"}):
            address = re.sub(r"\{(\w+)\}", lambda part, ids=ids: ids.get(part[1], "x"), path)
            bodies = [None] if method == "GET" else [{"wait_seconds": 0}, example_of(operation), {"nonsense": 1}, [1]]
            if "claim" in path:
                bodies = [{"worker_id": "w", "queues": ["default"], "wait_seconds": 0}]
            for body in bodies:
                told = await house.call(method, f"/{address}", body)
                assert told.status < 500, (method, path, told.text)
                count += 1
    return count


async def _first_events(house: House) -> str:
    text = ""
    headers = {**house.auth, "Last-Event-ID": "0"}
    async with house.api.session.get(f"{house.api.root}/api/v1/events", headers=headers) as response:
        with contextlib.suppress(TimeoutError):
            while len(text) < 200_000:
                text += (await asyncio.wait_for(response.content.readany(), 0.5)).decode()
    assert "run." in text
    return text


def bad_tasks(planted: Planted) -> list[dict[str, Any]]:
    """Slips in the very fields that are secret: the complaint must not repeat them."""
    base = planted.task("http://127.0.0.1:9/")
    secret = planted.signing
    return [
        {**base, "secret": [secret]},
        {**base, "secret": {"a": secret}},
        {**base, "secret": secret * 100},
        {**base, "secret": f"{secret}\n"},
        {**base, "headers": [secret]},
        {**base, "headers": secret},
        {**base, "headers": {"Authorization": [planted.authorization]}},
        {**base, "headers": {"Authorization": f"{planted.authorization}\r\nX: y"}},
        {**base, "headers": {"Authorization": planted.authorization + " {{nobody}}"}},
        {**base, "headers": {"Authorization": planted.authorization * 400}},
        {**base, "target_url": f"http://user:{secret}@127.0.0.1/"},
        {**base, "timeout_seconds": "x"},
    ]


def bad_channels(planted: Planted) -> list[dict[str, Any]]:
    hook, mail = planted.channels("http://127.0.0.1:9/")
    return [
        {**hook, "name": "new", "secret": [planted.channel_secret]},
        {**hook, "name": "new", "headers": {"X-Token": [planted.channel_header]}},
        {**hook, "name": "new", "headers": [planted.channel_header]},
        {**mail, "name": "new", "url": [planted.apprise]},
        {**mail, "name": "new", "url": planted.apprise},
        {**mail, "name": "new", "secret": planted.channel_secret},
        {**mail, "name": "new", "headers": planted.apprise},
    ]


async def test_a_canary_in_each_secret_field_is_emitted_nowhere(house: House, heard, monkeypatch):
    planted = house.planted
    await house.call("GET", "/audit")
    assert await walk(house) > 150
    for body in bad_tasks(planted):
        told = await house.call("POST", "/tasks", {**body, "name": "new"})
        assert told.status == 400, told.text
        assert (await house.call("PUT", "/tasks/2", body)).status == 400
    for body in bad_channels(planted):
        assert (await house.call("POST", "/alerts/channels", body)).status == 400, body
    house.emitted.append(await asyncio.to_thread(_exported, house, monkeypatch))
    assert "planted" in "".join(house.emitted) or "good" in "".join(house.emitted)
    leaks = [(canary, line[:200]) for line in house.emitted for canary in found_in(line, house.canaries)]
    assert leaks == []
    assert found_in(heard.getvalue(), house.canaries) == []
    assert len(heard.getvalue().splitlines()) > 5


def _exported(house: House, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NOONBELL_URL", house.api.root)
    monkeypatch.setenv("NOONBELL_TOKEN", house.token)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main(["export"])
    assert "Authorization" in said.getvalue()
    return said.getvalue()


async def test_what_a_target_says_back_is_kept_without_the_secrets_it_heard(house: House):
    run = (await house.call("GET", f"/runs/{house.ids['run_id']}")).body
    said = json.loads(run["response_body"])["headers"]
    assert said["authorization"] == "***" or "***" in said["authorization"]
    assert said["x-api-key"] == "***"
    assert run["request_headers"]["Authorization"] == "***"
    assert run["request_headers"]["Accept-Language"] == house.ids["run_id"], "what is no secret stays"
    attempts = (await house.call("GET", f"/runs/{house.ids['run_id']}/attempts")).text
    assert found_in(run["response_body"] + attempts, house.canaries) == []


def test_a_callback_token_in_an_address_is_not_logged():
    address = "http://127.0.0.1:8080/api/v1/callbacks/6604ff9b60312.6j5SYbzecPZ8dpsZZa9RuHNXelF5uAA7oMFKzpOelcw"
    assert logs.redacted(f"POST {address} failed") == "POST http://127.0.0.1:8080/api/v1/callbacks/*** failed"


async def test_the_secret_itself_did_arrive(house: House):
    heard = house.sink.asked[0].headers
    assert house.planted.authorization in heard["authorization"]
    assert heard["x-secret-everywhere"] == house.planted.everywhere
