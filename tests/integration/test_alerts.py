"""Alerts from end to end inside one process: events and readings in, notices at a real webhook out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from conformance.store.builders import START, claim_one, every, job, publish
from integration.api.serving import Api, serving
from integration.conftest import Open
from integration.support import until
from integration.web.asking import get, post
from noonbell.alerts.alerting import MOST_ATTEMPTS, AlertLoop, pause_after
from noonbell.alerts.apprise import body_of
from noonbell.alerts.channels import ChannelSender, links
from noonbell.alerts.service import Alerts, read_declared
from noonbell.alerts.webhook import WebhookSender
from noonbell.clock import SECOND, Instant, ManualClock, SystemClock, rfc3339
from noonbell.errors import SettingsError, StoreUnavailable
from noonbell.model.alert import AlertState, AlertStep, Channel, DeliveryStatus, Rule, RuleKind
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.model.run import RunStatus, Settlement, Transition
from noonbell.model.task import Task
from noonbell.service.doctor import look_at_store
from noonbell.settings import ServerSettings, Settings
from noonbell.stores import open_store
from noonbell.stores.sqlite import MemoryStore
from noonbell.targets.http.guard import AddressGuard

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Hook:
    """A webhook that notes what it gets, and answers as it is told."""

    url: str = ""
    status: int = 200
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.raw.append(await request.text())
        self.bodies.append(json.loads(self.raw[-1]))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(status=self.status)

    @property
    def types(self) -> list[str]:
        return [body["type"] for body in self.bodies]


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", hook.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    hook.url = f"http://127.0.0.1:{port}/hook"
    yield hook
    await runner.cleanup()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def sender() -> AsyncIterator[WebhookSender]:
    sender = WebhookSender()
    await sender.open()
    yield sender
    await sender.close()


class Night:
    """An alert loop, and the time that passes for it and for the store together."""

    def __init__(self, store: Any, sender: WebhookSender, clock: ManualClock, name: str = "me") -> None:
        self.store, self.clock = store, clock
        self.outcomes: list[str] = []
        self.loop = AlertLoop(
            store,
            ChannelSender({"webhook": sender}),
            name=name,
            clock=clock,
            monotonic=lambda: clock.now() / 1_000_000,
            observe=self.outcomes.append,
        )

    async def pass_(self, seconds: float = 1) -> None:
        """Time passes, the loop ticks, and what it sends has arrived."""
        self.clock.advance(seconds)
        await self.loop.tick()
        while (sending := self.loop.deliveries._sending) is not None and not sending.done():
            await sending
        await self.loop.deliveries.send()
        if (sending := self.loop.deliveries._sending) is not None:
            await sending


@pytest.fixture
async def night(store: MemoryStore, sender: WebhookSender, clock: ManualClock) -> Night:
    night = Night(store, sender, clock)
    await night.pass_(0)
    return night


async def watched(store: Any, hook: Hook, kind: RuleKind, **rule: Any) -> None:
    await store.put_alert_channel(Channel(name="hook", url=hook.url, secret=rule.pop("secret", None)))
    await store.put_alert_rule(Rule(name="rule", kind=kind, **rule))


async def end(store: Any, task: Task, status: RunStatus = RunStatus.FAILED) -> None:
    await publish(store, task)
    lease = await claim_one(store)
    ended = Settlement(
        run_id=lease.run_id,
        token=lease.token,
        transition=Transition.FINISH,
        status=status,
        error_message="the target returned 503" if status is RunStatus.FAILED else None,
    )
    await store.settle([ended])


async def test_a_failing_task_is_told_once_with_what_went_wrong_and_then_that_it_is_well(
    store: MemoryStore, night: Night, hook: Hook
):
    await watched(store, hook, RuleKind.FAILED)
    task = await store.create_task(job("sore"))
    for _ in range(5):
        await end(store, task)
        await night.pass_()
    await end(store, task, RunStatus.SUCCESS)
    await night.pass_()
    assert hook.types == ["alert.raised", "alert.recovered"]
    assert hook.bodies[0]["title"] == "sore failed"
    assert hook.bodies[0]["message"].endswith("ended FAILED: the target returned 503")
    assert hook.bodies[1]["count"] == 5
    told = [event.type for event in await store.events(0) if event.type.startswith("alert.")]
    assert told == ["alert.raised", "alert.recovered"]


async def test_what_happened_before_the_rule_was_made_is_not_told(store: MemoryStore, night: Night, hook: Hook):
    task = await store.create_task(job("old"))
    await end(store, task)
    await night.pass_(31)  # past an upkeep
    await watched(store, hook, RuleKind.FAILED)
    await night.pass_()
    assert hook.types == []


async def test_a_notice_is_signed_and_has_an_id_of_its_own(store: MemoryStore, sender: WebhookSender, hook: Hook):
    channel = Channel(name="hook", url=hook.url, secret=SECRET, headers={"X-Team": "ops"})
    assert await sender.send(channel, {"type": "alert.test"}, "alert_7") == 200
    assert Webhook(SECRET).verify(hook.raw[0], hook.headers[0]) == {"type": "alert.test"}
    assert (hook.headers[0]["webhook-id"], hook.headers[0]["x-team"]) == ("alert_7", "ops")
    assert hook.headers[0]["content-type"] == "application/json"


NOW_QUIET = QuietHours(from_="09:00", to="10:10")
"""Until 600 seconds after the start."""


async def test_messages_of_quiet_hours_are_held_until_they_end_and_sent_in_order(
    store: MemoryStore, night: Night, hook: Hook
):
    await watched(store, hook, RuleKind.FAILED)
    await store.put_alert_channel(Channel(name="hook", url=hook.url, quiet=(NOW_QUIET,), spread_seconds=70))
    for name in ("first", "second", "third"):
        await end(store, await store.create_task(job(name)))
        await night.pass_(60)
    await night.pass_(419)
    assert hook.types == []
    assert {one.attempts for one in await store.alert_deliveries()} == {0}
    for _ in range(71):
        await night.pass_(1)
    assert [body["title"] for body in hook.bodies] == ["first failed", "second failed", "third failed"]
    assert {one.status for one in await store.alert_deliveries()} == {DeliveryStatus.DELIVERED}


async def test_a_change_of_quiet_hours_holds_for_messages_that_wait(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    await store.put_alert_channel(Channel(name="hook", url=hook.url, quiet=(NOW_QUIET,)))
    await end(store, await store.create_task(job("sore")))
    await night.pass_(60)
    later = QuietHours(from_="09:00", to="10:30")
    await store.put_alert_channel(Channel(name="hook", url=hook.url, quiet=(later,)))
    for _ in range(30):
        await night.pass_(31)  # past the old end
    assert hook.types == []
    await store.put_alert_channel(Channel(name="hook", url=hook.url))
    for _ in range(2):
        await night.pass_(31)
    assert hook.types == ["alert.raised"]


async def test_a_change_of_quiet_hours_while_a_tick_is_under_way_holds_too(
    store: MemoryStore, night: Night, hook: Hook
):
    """The tick has read the channels, and then sends: what the change let go is not held by the old hours again."""
    await watched(store, hook, RuleKind.FAILED)
    await store.put_alert_channel(Channel(name="hook", url=hook.url, quiet=(NOW_QUIET,)))
    await end(store, await store.create_task(job("sore")))
    await night.pass_(60)
    await store.put_alert_channel(Channel(name="hook", url=hook.url))
    night.loop.deliveries.soon()
    await night.loop.deliveries.send()
    sending = night.loop.deliveries._sending
    assert sending is not None
    await sending
    for _ in range(2):
        await night.pass_(31)
    assert hook.types == ["alert.raised"]


async def test_messages_of_quiet_hours_that_skip_are_not_sent(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    skips = QuietHours(from_="09:00", to="10:10", what=QuietAction.SKIP)
    await store.put_alert_channel(Channel(name="hook", url=hook.url, quiet=(skips,)))
    await end(store, await store.create_task(job("sore")))
    await night.pass_(1)
    await night.pass_(700)
    assert hook.types == []
    (delivery,) = await store.alert_deliveries()
    assert (delivery.status, delivery.error) == (DeliveryStatus.SKIPPED, "quiet hours")
    assert night.outcomes == ["skipped"]


async def test_a_receiver_that_is_down_is_asked_again_with_growing_pauses(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    hook.status = 503
    await end(store, await store.create_task(job("sore")))
    await night.pass_()
    assert len(hook.bodies) == 1
    for attempt in range(1, 4):
        await night.pass_(pause_after(attempt) - 1)
        assert len(hook.bodies) == attempt, "not before its time"
        await night.pass_(1)
        assert len(hook.bodies) == attempt + 1
    hook.status = 200
    await night.pass_(pause_after(4))
    (logged,) = await store.alert_deliveries()
    assert (logged.status, logged.attempts) == (DeliveryStatus.DELIVERED, 5)
    assert len({headers["webhook-id"] for headers in hook.headers}) == 1, "a receiver can tell a repeat"
    assert night.outcomes == ["retried"] * 4 + ["delivered"]


async def test_a_receiver_that_says_no_is_not_asked_again(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    hook.status = 410
    await end(store, await store.create_task(job("sore")))
    await night.pass_()
    await night.pass_(3600)
    assert len(hook.bodies) == 1
    (logged,) = await store.alert_deliveries()
    assert (logged.status, logged.response_code, logged.error) == (DeliveryStatus.FAILED, 410, "it returned 410 Gone")


async def test_a_receiver_that_never_comes_back_is_given_up(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    hook.status = 500
    await end(store, await store.create_task(job("sore")))
    for _ in range(MOST_ATTEMPTS + 2):
        await night.pass_(700)
    assert len(hook.bodies) == MOST_ATTEMPTS
    assert [one.status for one in await store.alert_deliveries()] == [DeliveryStatus.FAILED]


class FaultySender(WebhookSender):
    """Fails in a way that no sender is written to fail in."""

    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        raise ValueError("not foreseen")


async def test_a_delivery_that_fails_by_a_fault_of_ours_is_given_up(store: MemoryStore, clock: ManualClock, hook: Hook):
    night = Night(store, FaultySender(), clock)
    await night.pass_(0)
    await watched(store, hook, RuleKind.FAILED)
    await end(store, await store.create_task(job("sore")))
    for _ in range(MOST_ATTEMPTS + 2):
        await night.pass_(700)
    (logged,) = await store.alert_deliveries()
    assert (logged.status, logged.attempts) == (DeliveryStatus.FAILED, MOST_ATTEMPTS)
    assert logged.error == "ValueError; see the node's log"
    assert night.outcomes == ["retried"] * (MOST_ATTEMPTS - 1) + ["failed"]


async def test_the_outbound_guard_holds_for_webhooks(store: MemoryStore, clock: ManualClock, hook: Hook):
    guarded = WebhookSender(guard=AddressGuard((), ("127.0.0.0/8",)))
    await guarded.open()
    night = Night(store, guarded, clock)
    await night.pass_(0)
    await watched(store, hook, RuleKind.FAILED)
    await end(store, await store.create_task(job("sore")))
    await night.pass_()
    await guarded.close()
    assert hook.bodies == []
    (logged,) = await store.alert_deliveries()
    assert logged.status is DeliveryStatus.FAILED
    assert (logged.error or "").startswith("127.0.0.1: denied by executor.deny_networks")


async def test_two_alert_loops_tell_once(store: MemoryStore, sender: WebhookSender, clock: ManualClock, hook: Hook):
    await watched(store, hook, RuleKind.FAILED)
    one, two = Night(store, sender, clock, "one"), Night(store, sender, clock, "two")
    await asyncio.gather(one.pass_(0), two.pass_(0))
    task = await store.create_task(job("sore"))
    for _ in range(4):
        await end(store, task)
        await asyncio.gather(one.pass_(), two.pass_())
    assert hook.types == ["alert.raised"]


async def test_another_watchman_goes_on_where_one_fell_asleep(
    store: MemoryStore, sender: WebhookSender, clock: ManualClock, hook: Hook
):
    await watched(store, hook, RuleKind.FAILED)
    one, two = Night(store, sender, clock, "one"), Night(store, sender, clock, "two")
    await one.pass_(0)
    await end(store, await store.create_task(job("sore")))
    await two.pass_(1)
    assert hook.types == [], "it is another's duty still"
    await two.pass_(6)
    assert hook.types == ["alert.raised"]
    await one.pass_(0)
    await one.pass_(1)
    assert hook.types == ["alert.raised"], "who wakes up finds it done"


async def test_late_things_are_found_by_looking(store: MemoryStore, night: Night, hook: Hook):
    await watched(store, hook, RuleKind.OVERDUE)
    await store.put_alert_rule(Rule(name="waits", kind=RuleKind.LATE_START, after_seconds=30))
    task = await store.create_task(job("ticks", schedule=every(60)))
    for _ in range(69):
        await night.pass_()
    assert hook.types == []
    await night.pass_()
    assert [(body["kind"], body["type"]) for body in hook.bodies] == [("overdue", "alert.raised")]
    await store.plan(10)
    await night.pass_()
    assert [(body["kind"], body["type"]) for body in hook.bodies[1:]] == [("overdue", "alert.recovered")]
    for _ in range(40):
        await night.pass_()
    assert (hook.bodies[2]["kind"], hook.bodies[2]["task_id"]) == ("late_start", task.id)
    await claim_one(store)
    for _ in range(6):
        await night.pass_()
    assert (hook.bodies[3]["kind"], hook.types[3]) == ("late_start", "alert.recovered")


async def test_a_store_that_does_not_answer_is_told_from_memory(
    store: MemoryStore, sender: WebhookSender, clock: ManualClock, hook: Hook
):
    class Away:
        is_away = False

        def __getattr__(self, name: str) -> Any:
            if self.is_away:
                raise StoreUnavailable("the connection was refused")
            return getattr(store, name)

    shaky = Away()
    night = Night(shaky, sender, clock)
    await watched(store, hook, RuleKind.STORE)
    await night.pass_(0)
    shaky.is_away = True
    for _ in range(5):
        await night.loop.tick()
        clock.advance(1)
    assert hook.types == []
    for _ in range(5):
        await night.loop.tick()
        clock.advance(1)
    assert hook.types == ["alert.raised"], "once"
    assert "the connection was refused" in hook.bodies[0]["message"]
    shaky.is_away = False
    await night.pass_()
    assert hook.types == ["alert.raised", "alert.recovered"]


async def test_old_events_go_in_upkeep_and_young_ones_stay(store: MemoryStore, night: Night, clock: ManualClock):
    await store.create_task(job("old"))
    clock.advance(90_001)
    await store.create_task(job("young"))
    await night.pass_(31)
    assert [event.topic for event in await store.events(0)] == ["young"]


# ---- by API and by settings


@contextlib.asynccontextmanager
async def at_work(url: str, **sections: Any) -> AsyncIterator[Api]:
    async with serving(url, **sections) as api:
        await api.parts.node.start()
        try:
            yield api
        finally:
            await api.parts.node.stop(1)


async def test_a_rule_has_at_most_a_hundred_patterns_and_a_thousand_names(quick: Api):
    rule = {"name": "many", "kind": "failed"}
    names = [f"task{number}" for number in range(900)]
    patterns = [f"team{number}-*" for number in range(101)]
    told = await quick.call("POST", "/alerts/rules", {**rule, "tasks": [*patterns, *names[:5]]})
    assert (told.status, list(told.body["details"])) == (400, ["tasks"])
    assert "has 101 patterns; expected at most 100" in told.body["details"]["tasks"]
    assert (await quick.bad("POST", "/alerts/rules", {**rule, "tasks": [*names, *names, "a"]}))[0] == 400
    await quick.good("POST", "/alerts/rules", {**rule, "tasks": [*patterns[1:], *names]}, 201)
    with pytest.raises(SettingsError, match="101 patterns"):
        read_declared({"rules": {"many": {"kind": "failed", "tasks": patterns}}})


async def test_there_are_at_most_a_hundred_rules_and_channels(quick: Api, hook: Hook):
    for number in range(100):
        await quick.good("POST", "/alerts/rules", {"name": f"r{number}", "kind": "failed"}, 201)
        await quick.good("POST", "/alerts/channels", {"name": f"c{number}", "url": hook.url}, 201)
    assert await quick.bad("POST", "/alerts/rules", {"name": "r", "kind": "failed"}) == (409, "INVALID_STATE")
    assert await quick.bad("POST", "/alerts/channels", {"name": "c", "url": hook.url}) == (409, "INVALID_STATE")
    await quick.good("PUT", "/alerts/rules/r7", {"kind": "lost"})
    await quick.good("DELETE", "/alerts/rules/r7")
    await quick.good("POST", "/alerts/rules", {"name": "r", "kind": "failed"}, 201)


async def test_rules_and_channels_are_made_changed_and_removed(quick: Api, hook: Hook):
    rule = await quick.good("POST", "/alerts/rules", {"name": "r", "kind": "failures", "count": 5}, 201)
    assert (rule["count"], rule["enabled"], rule["managed_by"]) == (5, True, "api")
    assert await quick.bad("POST", "/alerts/rules", {"name": "r", "kind": "failed"}) == (409, "ALREADY_EXISTS")
    changed = await quick.good("PUT", "/alerts/rules/r", {**rule, "enabled": False})
    assert (changed["enabled"], changed["count"]) == (False, 5)
    assert (await quick.good("GET", "/alerts/rules"))["items"] == [changed]
    assert await quick.good("DELETE", "/alerts/rules/r") == {"deleted": True}
    assert await quick.bad("GET", "/alerts/rules/r") == (404, "NOT_FOUND")

    await quick.good("POST", "/alerts/channels", {"name": "c", "url": hook.url}, 201)
    assert (await quick.good("GET", "/alerts/channels/c"))["url"] == f"{hook.url.removesuffix('/hook')}/***"
    assert await quick.good("DELETE", "/alerts/channels/c") == {"deleted": True}
    assert (await quick.good("GET", "/alerts/channels"))["items"] == []


async def test_a_rule_names_channels_that_are_there(quick: Api, hook: Hook):
    rule = {"name": "r", "kind": "failed", "channels": ["nope"]}
    refused = await quick.call("POST", "/alerts/rules", rule)
    assert refused.body["details"] == {"channels": "there is no channel 'nope'; there are none yet; make one first"}
    for name in ("ops", "dead"):
        await quick.good("POST", "/alerts/channels", {"name": name, "url": hook.url}, 201)
    refused = await quick.call("POST", "/alerts/rules", rule)
    assert refused.body["details"] == {"channels": "there is no channel 'nope'; there are dead, ops"}
    assert (await quick.good("GET", "/alerts/rules"))["items"] == []
    await quick.good("POST", "/alerts/rules", {**rule, "channels": ["ops"]}, 201)
    assert await quick.bad("PUT", "/alerts/rules/r", rule) == (400, "INVALID_ARGUMENT")
    assert (await quick.good("GET", "/alerts/rules/r"))["channels"] == ["ops"]


async def test_the_doctor_names_rules_whose_channels_are_gone(quick: Api, hook: Hook):
    for name in ("ops", "dead"):
        await quick.good("POST", "/alerts/channels", {"name": name, "url": hook.url}, 201)
    await quick.good("POST", "/alerts/rules", {"name": "r", "kind": "failed", "channels": ["ops"]}, 201)
    await quick.good("POST", "/alerts/rules", {"name": "both", "kind": "lost", "channels": ["ops", "dead"]}, 201)

    async def said() -> list[str]:
        return [found.says async for found in look_at_store(quick.store, SystemClock().now) if found.check == "alerts"]

    assert await said() == []
    await quick.good("DELETE", "/alerts/channels/ops")
    assert await said() == ["1 alert rule names only channels that are missing or disabled, so it sends nothing: r"]
    await quick.good("PUT", "/alerts/channels/dead", {"url": hook.url, "enabled": False})
    (both,) = await said()
    assert both.endswith("both, r")


async def test_a_channels_secrets_are_masked_and_what_is_written_back_keeps_them(quick: Api, hook: Hook):
    given = {"name": "c", "url": f"{hook.url}?token=abc", "secret": SECRET, "headers": {"Authorization": "Bearer x"}}
    shown = await quick.good("POST", "/alerts/channels", given, 201)
    assert (shown["secret"], shown["headers"]) == ("***", {"Authorization": "***"})
    assert "abc" not in json.dumps(shown)
    assert "hook" not in shown["url"], "the path of a webhook is its secret"
    await quick.good("PUT", "/alerts/channels/c", shown)
    store: Any = quick.store
    (kept,) = await store.alert_channels()
    assert (kept.url, kept.secret, kept.headers) == (given["url"], SECRET, {"Authorization": "Bearer x"})
    hidden = {"name": "chat", "kind": "apprise", "url": "slack://T1/T2/T3"}
    assert (await quick.good("POST", "/alerts/channels", hidden, 201))["url"] == "slack://***"
    await quick.good("PUT", "/alerts/channels/chat", {"kind": "apprise", "url": "slack://***", "enabled": False})
    assert [one.url for one in await store.alert_channels() if one.name == "chat"] == ["slack://T1/T2/T3"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("rules", {"name": "r"}, "kind"),
        ("rules", {"name": "r", "kind": "nonsense"}, "kind"),
        ("rules", {"name": "no way", "kind": "failed"}, "name"),
        ("rules", {"name": "failed", "after_seconds": 5}, "after_seconds"),
        ("rules", {"name": "failures", "count": 0}, "count"),
        ("rules", {"name": "failed", "tusks": []}, "tusks"),
        ("channels", {"name": "c"}, "url"),
        ("channels", {"name": "c", "url": "ftp://x/"}, "url"),
        ("channels", {"name": "c", "url": "http://u:p@x/"}, "url"),
        ("channels", {"name": "c", "url": "http://x/", "kind": "pigeon"}, "kind"),
        ("channels", {"name": "c", "url": "http://x/", "headers": {"Host": "y"}}, "headers.Host"),
        ("channels", {"name": "c", "url": "http://x/", "headers": {"A": "b\r\nc"}}, "headers.A"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_kept(quick: Api, path: str, body: Any, field: str):
    told = await quick.call("POST", f"/alerts/{path}", body)
    assert (told.status, list(told.body["details"])) == (400, [field])
    assert (await quick.good("GET", f"/alerts/{path}"))["items"] == []


async def test_a_channel_can_be_tried(quick: Api, hook: Hook):
    await quick.good("POST", "/alerts/channels", {"name": "c", "url": hook.url, "secret": SECRET}, 201)
    assert await quick.good("POST", "/alerts/channels/c/test") == {
        "delivered": True,
        "response_code": 200,
        "error": None,
    }
    assert hook.types == ["alert.test"]
    hook.status = 404
    told = await quick.good("POST", "/alerts/channels/c/test")
    assert (told["delivered"], told["response_code"]) == (False, 404)
    log = (await quick.good("GET", "/alerts/deliveries?channel=c"))["items"]
    assert [(one["type"], one["status"]) for one in log] == [("alert.test", "FAILED"), ("alert.test", "DELIVERED")]
    assert (await quick.good("GET", f"/alerts/deliveries?before={log[0]['id']}&limit=5"))["items"] == log[1:]


@pytest.mark.parametrize("public", [None, "https://bell.example.com/x/"])
async def test_a_notice_leads_to_its_task_and_its_run(hook: Hook, public: str | None):
    async with serving("memory://", server=ServerSettings(public_url=public)) as api:
        await api.good("POST", "/alerts/channels", {"name": "c", "url": hook.url}, 201)
        await api.good("POST", "/alerts/channels/c/test")
        at = public or f"http://127.0.0.1:{api.port}/"
        assert hook.bodies[0]["links"] == {"dashboard": at}
    found = links(at.rstrip("/"), {"task_id": 7, "run_id": 9})
    assert found == {"dashboard": at, "task": f"{at}tasks/7", "run": f"{at}runs/9"}


@pytest.mark.parametrize(
    ("server", "port", "address"),
    [
        (ServerSettings(), None, None),
        (ServerSettings(), 81, "http://127.0.0.1:81"),
        (ServerSettings(host="::1"), 81, "http://[::1]:81"),
        (ServerSettings(host="0.0.0.0"), 81, None),
        (ServerSettings(host="0.0.0.0", public_url="https://bell.example.com/"), 81, "https://bell.example.com"),
    ],
)
def test_who_listens_on_all_addresses_is_linked_to_only_by_name(
    server: ServerSettings, port: int | None, address: str | None
):
    assert Settings(server=server).dashboard_url(port) == address


def test_a_notice_in_words_ends_with_the_link_that_shows_the_most():
    notice = {"message": "run 9 ended FAILED", "title": "t"}
    assert body_of(notice) == "run 9 ended FAILED"
    assert body_of({**notice, "links": {"dashboard": "d", "task": "t", "run": "r"}}) == "run 9 ended FAILED\nr"


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise looks for it itself
async def test_apprise_brings_what_webhooks_cannot(quick: Api, hook: Hook):
    url = hook.url.replace("http://", "json://")
    await quick.good("POST", "/alerts/channels", {"name": "c", "kind": "apprise", "url": url}, 201)
    assert (await quick.good("POST", "/alerts/channels/c/test"))["delivered"] is True
    assert [body["title"] for body in hook.bodies] == ["Noonbell: test alert"]
    await quick.good("POST", "/alerts/channels", {"name": "d", "kind": "apprise", "url": "nonsense://x"}, 201)
    told = await quick.good("POST", "/alerts/channels/d/test")
    assert (told["delivered"], told["error"]) == (False, "Apprise does not support this kind of URL")


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_addresses_of_mail_dingtalk_and_feishu_are_taken():
    import apprise

    for url in (
        "mailto://ops:secret@mail.example.com?to=team@example.com",
        f"dingtalk://{'a' * 64}/",
        f"feishu://{'a' * 36}/",
    ):
        assert apprise.Apprise().add(url), url


@pytest.fixture
async def quick() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        yield api


@pytest.mark.parametrize("kind", ["sqlite_url", "postgres_url", "mysql_url"])
async def test_what_the_settings_declare_is_watched_from_the_start(
    kind: str, hook: Hook, request: pytest.FixtureRequest
):
    url = request.getfixturevalue(kind)
    alerts = {"channels": {"ops": {"url": hook.url, "secret": SECRET}}}
    async with at_work(url, alerts=alerts) as api:
        assert [rule["name"] for rule in (await api.good("GET", "/alerts/rules"))["items"]] == [
            *("failed", "no_worker", "overdue", "store_unreachable", "subscription_disabled"),
        ]
        assert await api.bad("DELETE", "/alerts/channels/ops") == (409, "INVALID_STATE")
        task_id = await api.create(target_url="http://127.0.0.1:9/")
        await api.trigger(task_id)
        await until(lambda: bool(hook.bodies), 60, "the alert to arrive")
        assert (hook.bodies[0]["type"], hook.bodies[0]["task_id"]) == ("alert.raised", task_id)
        assert (await api.good("GET", "/alerts"))["items"][0]["rule"] == "failed"
        page = str(await api.good("GET", "//metrics"))
        assert 'noonbell_alert_deliveries_total{outcome="delivered"} 1.0' in page
    async with serving(url, alerts={"channels": {"other": {"url": hook.url}}, "rules": {"lost": {}}}) as api:
        assert [one["name"] for one in (await api.good("GET", "/alerts/channels"))["items"]] == ["other"]
        assert [one["name"] for one in (await api.good("GET", "/alerts/rules"))["items"]] == ["lost"]
    async with serving(url) as api:
        assert len((await api.good("GET", "/alerts/rules"))["items"]) == 1, "silence leaves them to the others"


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ({"chanels": {}}, "alerts.chanels"),
        ({"channels": []}, "alerts.channels"),
        ({"channels": {"c": {"url": "x"}}}, "alerts.channels.c.url"),
        ({"rules": {"r": {"kind": "x"}}}, "alerts.rules.r.kind"),
        ({"rules": {"failed": {"channels": ["none"]}}}, "alerts.rules.failed.channels"),
    ],
)
def test_a_wrong_setting_is_named_by_its_path(declared: Any, path: str):
    with pytest.raises(SettingsError) as caught:
        read_declared(declared)
    assert list(caught.value.details) == [path]


async def test_a_name_that_was_made_by_api_is_not_taken_over_by_the_settings(store: MemoryStore, hook: Hook):
    alerts = Alerts(store, ChannelSender({}))
    await alerts.create_channel({"name": "ops", "url": hook.url})
    with pytest.raises(SettingsError, match=r"alerts.channels.ops"):
        await alerts.declare({"channels": {"ops": {"url": "http://other/"}}})
    assert [channel.url for channel in await store.alert_channels()] == [hook.url]


def test_a_store_is_what_the_watchman_needs():
    assert open_store("memory://").take_duty


# ---- labels, mutes, acknowledgements


async def test_a_rule_is_for_the_tasks_with_its_label(night: Night, hook: Hook):
    await watched(night.store, hook, RuleKind.FAILED, labels={"team": "billing"})
    ours = await night.store.create_task(job("ours", labels={"team": "billing"}))
    other = await night.store.create_task(job("other", labels={"team": "web"}))
    await end(night.store, other)
    await end(night.store, ours)
    await night.pass_()
    assert [body["task_name"] for body in hook.bodies] == ["ours"]


async def test_a_muted_alert_is_shown_and_sent_when_the_mute_is_over(night: Night, hook: Hook):
    await watched(night.store, hook, RuleKind.FAILED)
    alerts = Alerts(night.store, ChannelSender({}))
    until = rfc3339(Instant(night.clock.now() + 60 * SECOND))
    given = {"tasks": ["a*"], "until": until, "reason": "the database moves"}
    made = await alerts.mute(given, by="ann")
    assert (made["by"], made["until"], made["tasks"]) == ("ann", until, ("a*",))
    await end(night.store, await night.store.create_task(job("a")))
    await night.pass_()
    [shown] = await alerts.open_alerts()
    assert (shown["muted_until"], shown["mute_reason"]) == (until, "the database moves")
    assert hook.bodies == []
    await night.pass_(61)
    assert hook.types == ["alert.raised"]
    [shown] = await alerts.open_alerts()
    assert shown["muted_until"] is None


async def test_an_acknowledged_alert_is_not_repeated(night: Night, hook: Hook):
    await watched(night.store, hook, RuleKind.FAILED, repeat_seconds=60)
    alerts = Alerts(night.store, ChannelSender({}))
    task = await night.store.create_task(job("a"))
    await end(night.store, task)
    await night.pass_()
    key = {"rule": "rule", "subject": f"task:{task.id}"}
    await alerts.acknowledge({**key, "note": "the vendor looks into it"}, by="ann")
    night.clock.advance(100)
    await end(night.store, task)
    await night.pass_()
    [shown] = await alerts.open_alerts()
    assert (shown["acknowledged_by"], shown["note"], shown["count"]) == ("ann", "the vendor looks into it", 2)
    await end(night.store, task, RunStatus.SUCCESS)
    await night.pass_()
    assert hook.types == ["alert.raised", "alert.recovered"]
    await end(night.store, task)
    await night.pass_()
    [shown] = await alerts.open_alerts()
    assert shown["acknowledged_at"] is None, "the next alert is a new one"


async def test_the_api_mutes_and_acknowledges_and_refuses_by_name():
    async with serving("memory://") as api:
        no = (await api.call("POST", "/alerts/mutes", {"until": "2001-01-01T00:00:00Z", "rule": "none"})).body
        assert set(no["details"]) == {"until", "rule"}
        no = (await api.call("POST", "/alerts/mutes", {})).body
        assert set(no["details"]) == {"until"}
        made = await api.good(
            "POST", "/alerts/mutes", {"until": rfc3339(Instant(await api.store.now() + 60 * SECOND))}, 201
        )
        assert (await api.good("GET", "/alerts/mutes"))["items"] == [made]
        assert (await api.bad("DELETE", "/alerts/mutes/x"))[0] == 404
        await api.good("DELETE", f"/alerts/mutes/{made['id']}")
        assert (await api.good("GET", "/alerts/mutes"))["items"] == []
        key = {"rule": "r", "subject": "task:1"}
        assert (await api.bad("POST", "/alerts/acknowledge", key))[0] == 404
        assert (await api.bad("POST", "/alerts/unacknowledge", key))[0] == 404
        assert (await api.bad("POST", "/alerts/acknowledge", {"rule": "r"}))[0] == 400


async def test_an_alert_that_a_pass_is_writing_anew_is_acknowledged(opened: Open, postgres_url: str):
    """The old row is gone when the pass has committed; the look must not take that for the end of the alert."""
    store = await opened(postgres_url)
    duty = await store.take_duty("alerts", "me", 60)
    assert duty is not None
    raised = AlertState(rule="rule", subject="task:1", count=1, since=START, raised_at=START, message="failed")
    assert await store.alert(duty, 0, AlertStep(states=[raised], closed=[], notices=[], told=[]))
    pass_ = await asyncpg.connect(postgres_url)
    try:
        transaction = pass_.transaction()
        await transaction.start()
        rows = await pass_.fetch("delete from alert_states returning rule, subject, state")
        await pass_.execute("insert into alert_states (rule, subject, state) values ($1, $2, $3)", *rows[0])
        seen = asyncio.create_task(store.acknowledge_alert("rule", "task:1", by="ann"))

        async def is_waiting() -> bool:
            waits = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            )
            return bool(await pass_.fetchval(waits))

        await until(is_waiting, 10, "the acknowledgement behind the pass")
        await transaction.commit()
        assert await seen is not None
    finally:
        await pass_.close()


async def test_the_audit_log_names_what_was_muted_and_acknowledged():
    async with serving("memory://") as api:
        store = api.store
        await store.put_alert_rule(Rule(name="rule", kind=RuleKind.FAILED))
        now = await store.now()
        duty = await store.take_duty("a test", "me", 60)
        assert duty is not None
        raised = AlertState(rule="rule", subject="task:1", count=1, since=now, raised_at=now, message="failed")
        assert await store.alert(duty, 0, AlertStep(states=[raised], closed=[], notices=[], told=[]))
        key = {"rule": "rule", "subject": "task:1"}
        await api.good("POST", "/alerts/acknowledge", {**key, "note": "seen"})
        await api.good("POST", "/alerts/unacknowledge", key)
        until = rfc3339(Instant(await store.now() + 60 * SECOND))
        mute = await api.good("POST", "/alerts/mutes", {"until": until, "tasks": ["sore"], "reason": "known"}, 201)
        await api.good("DELETE", f"/alerts/mutes/{mute['id']}")
        entries = (await api.good("GET", "/audit"))["items"][::-1]
    assert [(one["action"], one["subject"], one["details"]) for one in entries] == [
        ("acknowledge_alert", "/api/v1/alerts/acknowledge", key),
        ("unacknowledge_alert", "/api/v1/alerts/unacknowledge", key),
        (
            "mute_alerts",
            f"/api/v1/alerts/mutes/{mute['id']}",
            {"until": until, "reason": "known", "tasks": ["sore"]},
        ),
        ("unmute_alerts", f"/api/v1/alerts/mutes/{mute['id']}", {}),
    ]


async def test_the_page_mutes_acknowledges_and_ends_both():
    async with serving("memory://") as api:
        await api.store.put_alert_rule(Rule(name="r", kind=RuleKind.FAILED))
        duty = await api.store.take_duty("alerts", "me", 60)
        assert duty is not None
        raised = AlertState(rule="r", subject="task:1", since=Instant(1), raised_at=Instant(2), task_name="nightly")
        assert await api.store.alert(duty, duty.position, AlertStep(states=[raised]))
        key = {"rule": "r", "subject": "task:1"}
        assert (await post(api, "/alerts/acknowledge", key))[0] == 303
        assert "Acknowledged" in await get(api, "/settings/alerts")
        assert (await post(api, "/alerts/unacknowledge", key))[0] == 303
        form = await get(api, "/settings/new/mute?rule=r&tasks=nightly")
        assert "nightly</textarea>" in form
        sent = {"rule": "r", "tasks": "nightly", "labels": "", "span": "4h", "reason": "the database moves"}
        assert (await post(api, "/settings/new/mute", {**sent, "labels": "no pair"}))[0] == 400
        assert (await post(api, "/settings/new/mute", sent))[0] == 303
        [mute] = await api.store.alert_mutes()
        assert round((mute.until - mute.created_at) / SECOND) == 4 * 3_600
        page = await get(api, "/settings/alerts")
        assert page.count("the database moves") == 2, "at the alert, and among the mutes"
        assert (await post(api, f"/settings/mutes/{mute.id}/end", {}))[0] == 303
        assert await api.store.alert_mutes() == []
