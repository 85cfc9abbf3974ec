"""Tasks that publish to brokers, over the API: what is refused, what is masked and sealed, and whole runs with their answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration.api.serving import Api, serving
from noonbell import sealing
from noonbell.model import target_kind
from noonbell.model.target_kind import BROKERS, NATS
from noonbell.service import doctor
from noonbell.service.secrets import rotate
from noonbell.settings import SecretSettings
from security.planting import dumped
from services.brokers import Broker, new_name
from services.ports import reserved_port

PATIENCE = 30.0
FINAL = ("SUCCESS", "CALLBACK_SUCCESS", "FAILED", "TIMEOUT", "CANCELED", "FAILED_TIMEOUT")
PASSWORD, HEADER = "canary-password-of-a-broker", "canary-header-of-a-broker"

TASKS: dict[str, dict[str, Any]] = {
    "amqp": {"url": f"amqp://shop:{PASSWORD}@127.0.0.1:9/shop", "routing_key": "a"},
    "nats": {"url": f"nats://{PASSWORD}@127.0.0.1:9", "subject": "a.b"},
    "redis": {"url": f"redis://:{PASSWORD}@127.0.0.1:9/1", "stream": "a"},
    "mqtt": {"url": f"mqtt://shop:{PASSWORD}@127.0.0.1:9", "topic": "a/b"},
}
SHOWN = {
    "amqp": "amqp://shop:***@127.0.0.1:9/shop",
    "nats": "nats://***@127.0.0.1:9",
    "redis": "redis://:***@127.0.0.1:9/1",
    "mqtt": "mqtt://shop:***@127.0.0.1:9",
}
for said in TASKS.values():
    said["headers"] = {"X-Api-Key": HEADER, "Accept-Language": "zh"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as made:
        yield made


@contextlib.asynccontextmanager
async def working(url: str = "memory://", **more: Any) -> AsyncIterator[Api]:
    async with serving(url, **more) as made:
        await made.parts.node.start()
        try:
            yield made
        finally:
            await made.parts.node.stop(1)


async def task(api: Api, kind: str, message: Any, **fields: Any) -> int:
    body = {"name": "publish", kind: message, **fields}
    return int((await api.good("POST", "/tasks", body, 201))["id"])


async def ended(api: Api, run_id: int, *statuses: str) -> dict[str, Any]:
    wanted = statuses or FINAL
    async with asyncio.timeout(PATIENCE):
        while (run := await api.good("GET", f"/runs/{run_id}"))["status"] not in wanted:
            assert run["status"] not in FINAL, run
            await asyncio.sleep(0.02)
    return run


@pytest.mark.parametrize("kind", TASKS)
async def test_the_field_says_the_kind(api: Api, kind: str) -> None:
    made = await task(api, kind, TASKS[kind])
    shown = await api.good("GET", f"/tasks/{made}")
    assert (shown["exec_type"], shown["queue"]) == (kind.upper(), f"target:{kind}")
    assert (shown["timeout_seconds"], shown["retry_policy"]["max_retries"], shown["max_concurrency"]) == (10, 3, None)


@pytest.mark.parametrize(
    ("kind", "more", "field", "problem"),
    [
        ("amqp", {"url": None}, "amqp.url", "amqp://"),
        ("amqp", {"url": 7}, "amqp.url", "a URL"),
        ("amqp", {"url": "http://127.0.0.1/"}, "amqp.url", "amqp://"),
        ("amqp", {"url": "nats://127.0.0.1/"}, "amqp.url", "expected amqp or amqps"),
        ("amqp", {"url": "amqp://u:***@127.0.0.1/"}, "amqp.url", "the password itself"),
        ("amqp", {"url": "amqp://127.0.0.1/?heartbeat=1"}, "amqp.url", "without a query"),
        ("amqp", {"url": f"amqp://u:{PASSWORD}@127.0.0.1:99999/"}, "amqp.url", "a port from 1 to 65535"),
        ("amqp", {"url": f"amqp://u:{PASSWORD}%0d%0aX@127.0.0.1/"}, "amqp.url", "control characters"),
        ("amqp", {"callback": True, "reply": True}, "amqp.reply", "leave one of the two out"),
        ("amqp", {"properties": {"priority": 256}}, "amqp.properties.priority", "0 to 255"),
        ("amqp", {"routing_key": "{{nonsense}}"}, "amqp.routing_key", "nonsense"),
        ("amqp", {"headers": {"X-A": "{{nonsense}}"}}, "amqp.headers.X-A", "nonsense"),
        ("amqp", {"headers": {"X-Secret": "***"}}, "amqp.headers.X-Secret", "the value itself"),
        ("amqp", {"headers": {"a b": "c"}}, "amqp.headers.a b", "not the name of a header"),
        ("amqp", {"surprise": 1}, "amqp.surprise", "not a field"),
        ("nats", {"subject": None}, "nats.subject", "is missing"),
        ("nats", {"subject": "a.*"}, "nats.subject", "wildcard"),
        ("nats", {"subject": "a b"}, "nats.subject", "blanks"),
        ("nats", {"subject": "a..b"}, "nats.subject", "single dots"),
        ("nats", {"jetstream": True, "reply": True}, "nats.reply", "the stream answers"),
        ("nats", {"url": "nats://127.0.0.1/x"}, "nats.url", "path"),
        ("redis", {"stream": None}, "redis.stream", "a stream, or a channel"),
        ("redis", {"channel": "b"}, "redis.channel", "leave one of the two out"),
        ("redis", {"stream": None, "channel": "b", "maxlen": 3}, "redis.maxlen", "streams"),
        ("redis", {"stream": None, "channel": "b", "callback": True, "headers": {}}, "redis.callback", "headers"),
        ("redis", {"stream": None, "channel": "b"}, "redis.headers", "leave them out"),
        ("redis", {"url": "redis://127.0.0.1/x"}, "redis.url", "number"),
        ("mqtt", {"topic": "a/#"}, "mqtt.topic", "wildcard"),
        ("mqtt", {"qos": 3}, "mqtt.qos", "0 to 2"),
        ("mqtt", {"version": "3.1.1"}, "mqtt.headers", "leave them out"),
        ("mqtt", {"version": "3.1.1", "callback": True, "headers": {}}, "mqtt.callback", "headers"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_made(
    api: Api, kind: str, more: dict[str, Any], field: str, problem: str
) -> None:
    told = await api.call("POST", "/tasks", {"name": "publish", kind: {**TASKS[kind], **more}})
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT"), told.text
    assert problem in told.body["details"][field], told.body["details"]
    assert PASSWORD not in told.text
    assert HEADER not in told.text
    assert (await api.good("GET", "/tasks"))["items"] == []


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"exec_type": "NATS"}, "nats"),
        ({"exec_type": "SYNC", "nats": TASKS["nats"], "target_url": "http://127.0.0.1:9/"}, "nats"),
        ({"nats": TASKS["nats"], "target_url": "http://127.0.0.1:9/"}, "target_url"),
        ({"nats": TASKS["nats"], "queue": "mine"}, "queue"),
        ({"job_type": "resize", "queue": "target:nats"}, "queue"),
        ({"nats": "nats://127.0.0.1"}, "nats"),
    ],
)
async def test_fields_of_two_kinds_do_not_go_together(api: Api, fields: dict[str, Any], wrong: str) -> None:
    told = await api.call("POST", "/tasks", {"name": "publish", **fields})
    assert (told.status, wrong in told.body["details"]) == (400, True), told.text


@pytest.mark.parametrize("kind", BROKERS, ids=lambda kind: kind.name)
async def test_a_missing_client_is_named_with_the_command_that_installs_it(
    api: Api, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where the module is not to be found."""
    monkeypatch.setattr(target_kind, "find_spec", lambda name: None if name == kind.client else object())
    told = await api.call("POST", "/tasks", {"name": "publish", kind.named_by: TASKS[kind.named_by]})
    assert told.status == 400
    assert f"pip install 'noonbell[{kind.extra}]'" in told.body["details"][kind.named_by]


async def test_a_server_without_a_client_claims_no_such_run_and_explain_and_doctor_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving("memory://") as api:
        made = await task(api, "nats", TASKS["nats"])
        run = await api.trigger(made)
        blocked = await api.good("GET", f"/runs/{run}/explain")
        assert "pip install 'noonbell[nats]'" in json.dumps(blocked)
        found = [each async for each in doctor.look_at_store(api.store, lambda: 0)]
        assert any("NATS" in each.says and "noonbell[nats]" in (each.fix or "") for each in found)
    monkeypatch.setattr(target_kind, "find_spec", lambda name: None if name == "nats" else object())
    async with working() as api:
        queues = [set(worker["queues"]) for worker in (await api.good("GET", "/workers"))["items"]]
        assert all(NATS.queue not in each for each in queues)
        assert any("target:redis" in each for each in queues)


@pytest.mark.parametrize("kind", TASKS)
async def test_credentials_are_masked_wherever_a_task_is_shown_and_kept_when_it_is_sent_back(
    api: Api, kind: str
) -> None:
    made = await task(api, kind, TASKS[kind])
    shown = await api.good("GET", f"/tasks/{made}")
    assert shown[kind]["url"] == SHOWN[kind]
    assert shown[kind]["headers"] == {"X-Api-Key": "***", "Accept-Language": "zh"}
    await api.good("PUT", f"/tasks/{made}", {**shown, "priority": 4})
    await api.good("PATCH", f"/tasks/{made}", {kind: {"headers": {"X-Api-Key": "***"}}})
    exported = await api.call("GET", "/tasks/export")
    changed = {"name": "publish", kind: {**shown[kind], "callback_timeout_sec": 5}}
    applied = await api.good("POST", "/tasks/apply", {"owner": "x", "adopt": True, "tasks": [changed]})
    spec = (await api.services.tasks.get("publish")).spec
    assert spec.message is not None
    assert (spec.message.url, spec.message.callback_timeout_sec) == (TASKS[kind]["url"], 5)
    assert spec.message.headers["X-Api-Key"] == HEADER
    pages = [await api.call("GET", f"//tasks/{made}{page}") for page in ("", "/edit", "/history", "/yaml")]
    texts = [exported.text, json.dumps(applied), *(page.text for page in pages)]
    asked = ("/audit", f"/tasks/{made}/versions", "/tasks")
    texts += [(await api.call("GET", path)).text for path in asked]
    for text in texts:
        assert PASSWORD not in text
        assert HEADER not in text


@pytest.mark.parametrize("kind", TASKS)
async def test_secrets_do_not_go_to_another_broker_unless_they_are_written_anew(api: Api, kind: str) -> None:
    made = await task(api, kind, TASKS[kind])
    shown = (await api.good("GET", f"/tasks/{made}"))[kind]
    elsewhere = shown["url"].replace("127.0.0.1", "evil.example")
    told = await api.call("PATCH", f"/tasks/{made}", {kind: {"url": elsewhere}})
    assert (told.status, list(told.body["details"])) == (400, [f"{kind}.headers.X-Api-Key"]), told.text
    told = await api.call("PATCH", f"/tasks/{made}", {kind: {"url": elsewhere, "headers": {}}})
    assert (told.status, list(told.body["details"])) == (400, [f"{kind}.url"]), told.text
    new = elsewhere.replace("***", "another")
    await api.good("PATCH", f"/tasks/{made}", {kind: {"url": new, "headers": {"X-Api-Key": "another"}}})
    spec = (await api.services.tasks.get("publish")).spec
    assert spec.message is not None
    assert spec.message.url == new


@pytest.mark.parametrize("kind", TASKS)
async def test_credentials_are_sealed_in_the_store_and_rotated(kind: str, sqlite_url: str, tmp_path: Path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text(sealing.new_key_line("k1") + "\n")
    key_file.chmod(0o600)
    async with serving(sqlite_url, secrets=SecretSettings(key_file=str(key_file))) as api:
        made = await task(api, kind, TASKS[kind])
        steps = [{"id": "a", kind: TASKS[kind]}]
        await api.good("POST", "/tasks", {"name": "flow", "steps": steps}, 201)
        await api.good("PATCH", f"/tasks/{made}", {"priority": 3})
        before = await dumped(sqlite_url)
        key_file.write_text(sealing.new_key_line("k2") + "\n" + key_file.read_text())
        done = await rotate(api.store, sealing.from_file(str(key_file)))
        after = await dumped(sqlite_url)
    assert (done.tasks, done.versions) == (2, 3)
    for text in (before, after):
        assert PASSWORD not in text
        assert HEADER not in text
    async with serving(sqlite_url, secrets=SecretSettings(key_file=str(key_file))) as api:
        shown = await api.good("GET", f"/tasks/{made}")
        assert shown[kind]["url"].endswith("***@" + SHOWN[kind].partition("@")[2])
        await api.good("PUT", f"/tasks/{made}", shown)
        spec = api.services.tasks.opened(await api.services.tasks.get("publish")).spec
        assert spec.message is not None
        assert spec.message.url == TASKS[kind]["url"]


async def test_a_run_publishes_its_payload_and_its_result_is_the_brokers_word(broker: Broker) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, working() as api:
        made = await task(api, broker.kind, broker.message(name), payload={"n": 1})
        run = await ended(api, await api.trigger(made, payload={"n": 2}))
        assert run["status"] == "SUCCESS", run
        async with asyncio.timeout(PATIENCE):
            message = await taken.get()
        assert json.loads(message.body) == {"n": 2}
        assert message.headers["X-Noonbell-Run"] == str(run["id"])
        (attempt,) = (await api.good("GET", f"/runs/{run['id']}/attempts"))["items"]
        assert json.loads(attempt["request_body"]) == {"n": 2}


@pytest.mark.parametrize("way", ["callback", "force_async"])
async def test_a_consumer_answers_by_a_callback(broker: Broker, way: str) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, working() as api:
        said = broker.message(name, callback=True) if way == "callback" else broker.message(name)
        made = await task(api, broker.kind, said)
        run_id = await api.trigger(made, **({} if way == "callback" else {"force_async": True}))
        async with asyncio.timeout(PATIENCE):
            headers = (await taken.get()).headers
        token = headers["X-Callback-Token"]
        assert headers["X-Callback-Url"].endswith(f"/api/v1/callbacks/{token}")
        await ended(api, run_id, "CALLBACK_PENDING")
        told = await api.good("POST", f"/callbacks/{token}", {"status": "SUCCESS", "data": {"seen": True}})
        assert told == {"run_id": run_id, "final_status": "SUCCESS"}
        run = await ended(api, run_id)
        assert (run["status"], run["result"]) == ("CALLBACK_SUCCESS", {"seen": True})


async def test_a_callback_that_never_comes_ends_the_run(broker: Broker) -> None:
    name = new_name()
    async with broker.consumer(name), working() as api:
        made = await task(api, broker.kind, broker.message(name, callback=True, callback_timeout_sec=1))
        run = await ended(api, await api.trigger(made))
        assert (run["status"], run["error_message"]) == ("FAILED_TIMEOUT", "no callback within 1 s")


@pytest.mark.parametrize("broker", ["amqp", "nats"], indirect=True)
async def test_a_consumer_answers_by_a_reply(broker: Broker) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, working() as api:
        made = await task(api, broker.kind, broker.message(name, reply=True), payload=2)
        run_id = await api.trigger(made)
        async with asyncio.timeout(PATIENCE):
            message = await taken.get()
        assert message.answer is not None
        assert (await api.good("GET", f"/runs/{run_id}"))["status"] == "RUNNING"
        await message.answer(b'{"sum": 4}')
        run = await ended(api, run_id)
        assert (run["status"], run["result"]) == ("SUCCESS", {"sum": 4})


async def test_a_step_of_a_flow_publishes_what_an_earlier_one_found(broker: Broker) -> None:
    name = new_name()
    async with broker.consumer(name) as taken, working() as api:
        said = broker.message(name, headers={"X-Day": "{{ payload.day }}"})
        steps = [
            {"id": "first", broker.kind: said, "payload": {"day": "{{ payload.day }}"}},
            {"id": "second", "needs": ["first"], broker.kind: said, "payload": {"told": "{{ steps.first.result }}"}},
        ]
        made = await api.good("POST", "/tasks", {"name": "flow", "steps": steps, "payload": {"day": "monday"}}, 201)
        run = await ended(api, await api.trigger(made["id"]))
        assert run["status"] == "SUCCESS", run
        async with asyncio.timeout(PATIENCE):
            first, second = await taken.get(), await taken.get()
        assert (first.headers["X-Day"], json.loads(first.body)) == ("monday", {"day": "monday"})
        assert json.loads(second.body)["told"]


async def test_a_failed_attempt_is_retried_with_the_same_key() -> None:
    with reserved_port() as port:
        async with working() as api:
            policy = {"max_retries": 1, "initial_delay": 0}
            said = {"url": f"nats://127.0.0.1:{port}", "subject": "a"}
            run = await ended(api, await api.trigger(await task(api, "nats", said, retry_policy=policy)))
            attempts = (await api.good("GET", f"/runs/{run['id']}/attempts"))["items"]
    assert (run["status"], run["attempt"], run["error_details"]["kind"]) == ("FAILED", 2, "connection_refused")
    assert len({each["request_headers"]["Idempotency-Key"] for each in attempts}) == 1
