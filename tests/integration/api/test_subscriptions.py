"""Webhook subscriptions over HTTP, on the command line and on the pages; what is refused, and what is never shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from integration.api.serving import JOB, Api, serving
from integration.app.test_pages import DOCS, blocks
from integration.web.asking import get, post
from noonbell.subscriptions.delivery import SubscriptionLoop

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATH = "/subscriptions"


@dataclass
class Hook:
    url: str = ""
    status: int = 200
    bodies: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.text())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(status=self.status, text="thanks")


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", hook.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook/secret-part"
    yield hook
    await runner.cleanup()


async def delivered(api: Api) -> None:
    """What a node would do: the loop is there, and no node is."""
    loop = api.parts.node._others["subscriptions"]
    assert isinstance(loop, SubscriptionLoop)
    await loop.tick()
    await loop.idle()


async def test_one_is_made_shown_changed_and_removed(api: Api, hook: Hook):
    made = await api.good("POST", PATH, {"name": "s", "url": hook.url, "types": ["run"]}, 201)
    assert made["secret"].startswith("whsec_")
    assert made["url"] == f"{hook.url.removesuffix('/hook/secret-part')}/***"
    shown = await api.good("GET", f"{PATH}/s")
    assert shown == {**made, "secret": "***", "behind": shown["behind"]}
    assert (await api.good("GET", PATH))["items"] == [shown]
    (kept,) = await api.store.subscriptions()
    assert (kept.subscription.url, kept.subscription.secret) == (hook.url, made["secret"])
    changed = await api.good("PATCH", f"{PATH}/s", {"types": ["task.created"], "url": shown["url"], "secret": "***"})
    assert (changed["types"], changed["active"]) == (["task.created"], True)
    (kept,) = await api.store.subscriptions()
    assert (kept.subscription.url, kept.subscription.secret) == (hook.url, made["secret"]), (
        "masks keep what they stand for"
    )
    assert (await api.good("PATCH", f"{PATH}/s", {"active": False}))["active"] is False
    moved = await api.good("PATCH", f"{PATH}/s", {"active": True, "from": "oldest"})
    assert (moved["active"], moved["position"]) == (True, "0")
    assert await api.bad("POST", PATH, {"name": "s", "url": hook.url}) == (409, "ALREADY_EXISTS")
    assert await api.good("DELETE", f"{PATH}/s") == {"deleted": True}
    assert await api.bad("GET", f"{PATH}/s") == (404, "NOT_FOUND")
    assert await api.bad("DELETE", f"{PATH}/s") == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": None}, "name"),
        ({"url": "ftp://127.0.0.1/x"}, "url"),
        ({"url": "http://user@127.0.0.1/"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"url": "http://127.0.0.1:22/"}, "url"),
        ({"url": "not a url"}, "url"),
        ({"url": "sealed:v1:k:xx"}, "url"),
        ({"url": 3}, "url"),
        ({"url": None}, "url"),
        ({"types": ["nonsense"]}, "types"),
        ({"types": ["run.failed", "run failed"]}, "types"),
        ({"types": "run"}, "types"),
        ({"types": ["run"] * 101}, "types"),
        ({"tasks": [""]}, "tasks[0]"),
        ({"tasks": [f"{number}*" for number in range(101)]}, "tasks"),
        ({"labels": ["x"]}, "labels"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"queues": [3]}, "queues[0]"),
        ({"secret": ""}, "secret"),
        ({"secret": "whsec_%%%"}, "secret"),
        ({"secret": "sealed:v1:k:xx"}, "secret"),
        ({"active": "yes"}, "active"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_is_wrong_is_said_by_field_and_nothing_is_kept(quick_api: Api, given: dict[str, Any], name: str):
    body = {
        key: value
        for key, value in {"name": "s", "url": "http://127.0.0.1:8999/x", **given}.items()
        if value is not None
    }
    told = await quick_api.call("POST", PATH, body)
    assert (told.status, told.body["code"]) == (400, "INVALID_ARGUMENT"), told.text
    assert name in told.body["details"], told.text
    assert await quick_api.store.subscriptions() == []


@pytest.mark.parametrize(
    "given", [{"url": "x"}, {"types": ["x"]}, {"secret": None}, {"from": "yesterday"}, {"from": "2026-13-45T00:00:00Z"}]
)
async def test_a_change_that_is_wrong_changes_nothing(quick_api: Api, given: dict[str, Any]):
    await quick_api.good("POST", PATH, {"name": "s", "url": "http://127.0.0.1:8999/x", "secret": SECRET}, 201)
    before = await quick_api.store.subscriptions()
    told = await quick_api.call("PATCH", f"{PATH}/s", {"active": False, **given})
    assert (told.status, told.body["code"]) == (400, "INVALID_ARGUMENT")
    assert next(iter(given)) in told.body["details"]
    assert await quick_api.store.subscriptions() == before


async def test_a_test_is_posted_signed_and_logged(api: Api, hook: Hook):
    await api.good("POST", PATH, {"name": "s", "url": hook.url, "secret": SECRET}, 201)
    told = await api.good("POST", f"{PATH}/s/test")
    assert (told["delivered"], told["response_code"], told["error"]) == (True, 200, None)
    event = Webhook(SECRET).verify(hook.bodies[0], hook.headers[0])
    assert (event["type"], event["specversion"]) == ("subscription.test", "1.0")
    kept = await api.good("GET", f"{PATH}/s/deliveries/{told['delivery_id']}")
    assert (kept["status"], kept["response"], json.loads(kept["body"])) == ("DELIVERED", "thanks", event)
    assert "webhook-signature" not in kept["request_headers"]
    hook.status = 500
    told = await api.good("POST", f"{PATH}/s/test")
    assert (told["delivered"], told["error"]) == (False, "it returned 500 Internal Server Error")
    items = (await api.good("GET", f"{PATH}/s/deliveries"))["items"]
    assert [one["status"] for one in items] == ["FAILED", "DELIVERED"]
    assert "body" not in items[0]


async def test_events_are_delivered_looked_at_and_replayed(api_everywhere: Api, hook: Hook):
    api = api_everywhere
    await api.good("POST", PATH, {"name": "s", "url": hook.url, "secret": SECRET, "types": ["run"]}, 201)
    task = (await api.good("POST", "/tasks", JOB, 201))["id"]
    await api.trigger(task)
    await delivered(api)
    (one,) = (await api.good("GET", f"{PATH}/s/deliveries"))["items"]
    assert (one["type"], one["status"], one["attempts"]) == ("run.scheduled", "DELIVERED", 1)
    assert Webhook(SECRET).verify(hook.bodies[0], hook.headers[0])["id"] == one["event_id"]
    kept = (await api.good("GET", f"{PATH}/s/deliveries/{one['id']}"))["request_headers"]
    assert kept["webhook-id"] == hook.headers[0]["webhook-id"]
    assert "webhook-signature" not in {name.lower() for name in kept}, "who reads deliveries could send one again"
    made = await api.good("POST", f"{PATH}/s/deliveries/{one['id']}/replay", status=201)
    assert (made["replay_of"], made["status"]) == (one["id"], "PENDING")
    await delivered(api)
    assert hook.bodies == [hook.bodies[0]] * 2
    assert hook.headers[0]["webhook-id"] == hook.headers[1]["webhook-id"]
    answer = await api.good("POST", f"{PATH}/s/replay", {"from": "oldest"})
    assert answer["position"] == "0"
    await delivered(api)
    assert hook.bodies == [hook.bodies[0]] * 3
    assert (await api.good("GET", f"{PATH}/s"))["behind"] == 0
    assert await api.bad("POST", f"{PATH}/s/deliveries/1/replay") == (404, "NOT_FOUND")
    assert await api.bad("POST", f"{PATH}/s/deliveries/x/replay") == (400, "INVALID_ID")
    await api.good("PATCH", f"{PATH}/s", {"active": False})
    assert await api.bad("POST", f"{PATH}/s/deliveries/{one['id']}/replay") == (409, "INVALID_STATE")
    assert 'noonbell_webhook_pending{subscription="s"} 0.0' in (await api.call("GET", "//metrics")).text


async def test_no_page_and_no_answer_shows_the_secret_again(quick_api: Api, hook: Hook):
    await quick_api.good("POST", PATH, {"name": "s", "url": hook.url, "secret": SECRET}, 201)
    told = await quick_api.good("POST", f"{PATH}/s/test")
    answers = [
        (await quick_api.call("GET", path)).text
        for path in (PATH, f"{PATH}/s", f"{PATH}/s/deliveries", f"{PATH}/s/deliveries/{told['delivery_id']}", "/audit")
    ]
    settings = "/settings/subscriptions"
    pages = [
        await get(quick_api, path)
        for path in (settings, f"{settings}/s", f"{settings}/s/edit", f"{settings}/s/deliveries/{told['delivery_id']}")
    ]
    for text in (*answers, *pages):
        assert SECRET not in text
        assert "secret-part" not in text


async def test_the_pages_make_change_switch_move_replay_and_remove_one(hook: Hook):
    settings = "/settings/subscriptions"
    async with serving("memory://") as api:
        fields = {"name": "s", "url": hook.url, "types": "run\ntask.created", "labels": "team: x", "active": "on"}
        status, _, text = await post(api, "/settings/new/subscription", fields)
        assert status == 200
        (kept,) = await api.store.subscriptions()
        assert kept.subscription.secret is not None
        assert kept.subscription.secret in text, "shown this once"
        assert (kept.subscription.types, kept.subscription.labels) == (("run", "task.created"), {"team": "x"})
        assert kept.subscription.secret not in await get(api, f"{settings}/s")
        status, _, text = await post(api, "/settings/new/subscription", {**fields, "name": "t", "url": "ftp://x"})
        assert (status, "expected http://HOST/" in text) == (400, True)
        changed = {"url": f"{hook.url.removesuffix('/hook/secret-part')}/***", "types": "run", "active": "on"}
        assert (await post(api, f"{settings}/s/edit", changed))[:2] == (303, f"{settings}/s")
        (now,) = await api.store.subscriptions()
        assert (now.subscription.url, now.subscription.secret) == (hook.url, kept.subscription.secret)
        assert (now.subscription.types, now.subscription.labels) == (("run",), {})
        assert (await post(api, f"{settings}/s/test"))[0] == 303
        assert (await post(api, f"{settings}/s/switch", {"active": ""}))[0] == 303
        assert not (await api.store.subscriptions())[0].subscription.active
        assert (await post(api, f"{settings}/s/switch", {"active": "on"}))[0] == 303
        assert (await post(api, f"{settings}/s/replay", {"place": "oldest"}))[0] == 303
        assert (await api.store.subscriptions())[0].state.position == 0
        assert (await post(api, f"{settings}/s/replay", {"place": "never"}))[0] == 400
        (tested,) = await api.store.webhook_deliveries("s")
        assert "thanks" in await get(api, f"{settings}/s/deliveries/{tested.id}")
        assert (await post(api, f"{settings}/s/deliveries/{tested.id}/replay"))[0] == 303
        assert len(await api.store.waiting_deliveries("s")) == 1
        assert (await post(api, f"{settings}/s/remove", {"typed": "x"}))[0] == 400
        assert (await post(api, f"{settings}/s/remove", {"typed": "s"}))[:2] == (303, settings)
        assert await api.store.subscriptions() == []


async def test_the_receiver_of_the_page_takes_what_is_signed_and_nothing_else(quick_api: Api, hook: Hook):
    (block,) = blocks(DOCS / "how-to/webhooks.md")
    names: dict[str, Any] = {}
    exec(compile(block.code, "webhooks.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    receive, said = names["receive"], []
    names["print"] = lambda *words: said.append(words)
    await quick_api.good("POST", PATH, {"name": "s", "url": hook.url, "secret": names["SECRET"], "types": ["run"]}, 201)
    await quick_api.trigger((await quick_api.good("POST", "/tasks", JOB, 201))["id"])
    await delivered(quick_api)
    body = hook.bodies[0].encode()
    assert receive(hook.headers[0], body) == 204
    assert receive(hook.headers[0], body.replace(b"run.scheduled", b"run.succeeded")) == 401
    assert [words[0] for words in said] == ["run.scheduled"]
