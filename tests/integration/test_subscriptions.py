"""Webhook subscriptions from end to end inside one process: events in, signed posts at a real receiver out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from conformance.store.builders import START, at, job, publish, publish_many
from noonbell.alerts.alerting import AlertLoop
from noonbell.alerts.channels import ChannelSender
from noonbell.alerts.webhook import WebhookSender
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.alert import Channel, Rule, RuleKind
from noonbell.model.subscription import WINDOW, DeliveryStep, RetryRules, Subscription, WebhookStatus
from noonbell.service import doctor
from noonbell.stores.sqlite import MemoryStore
from noonbell.subscriptions import delivery
from noonbell.subscriptions.delivery import HELD, SubscriptionLoop
from noonbell.subscriptions.sender import WebhookPoster
from noonbell.targets.http.guard import AddressGuard

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Receiver:
    """Checks each signature, notes what it accepts, and answers as it is told."""

    url: str = ""
    answer: Callable[[dict[str, Any]], int] = lambda _: 200
    accepted: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    says: str | None = None
    """What it answers with, where a test says so."""
    at_once: int = 0
    most_at_once: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        text = await request.text()
        body = json.loads(text)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.headers.append(headers)
        Webhook(SECRET).verify(text, {**headers, "webhook-timestamp": headers["webhook-timestamp"]})
        await asyncio.sleep(0)
        self.asked.append(body)
        status = self.answer(body)
        if status == 200:
            self.accepted.append(body)
        self.at_once -= 1
        return web.Response(status=status, text=self.says or f"answer {status}")

    def ids(self) -> list[str]:
        return [body["id"] for body in self.accepted]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield receiver
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


class NoWakeup:
    """Nothing wakes these loops: the tests call `tick`."""

    hears_commits = False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def signal(self, topic: str) -> None: ...

    async def wait(self, topics: Any, seconds: float) -> bool:
        return False


class Scene:
    """A node that delivers, and the time that passes for it and for the store together."""

    def __init__(self, store: MemoryStore, clock: ManualClock, receiver: Receiver, poster: WebhookPoster) -> None:
        self.store, self.clock, self.receiver, self.poster = store, clock, receiver, poster
        self.outcomes: list[tuple[str, str]] = []
        self.loop = self.node("me")

    def node(self, name: str, **rules: Any) -> SubscriptionLoop:
        return SubscriptionLoop(
            self.store,
            NoWakeup(),
            self.poster,
            installation_id=self.store.installation_id,
            rules=RetryRules(**rules),
            name=name,
            monotonic=lambda: self.clock.now() / SECOND,
            observe=lambda name, outcome: self.outcomes.append((name, outcome)),
        )

    async def subscribe(self, name: str = "s", **fields: Any) -> None:
        await self.store.put_subscription(Subscription(name=name, url=self.receiver.url, secret=SECRET, **fields))

    async def pass_(self, seconds: float = 2, loop: SubscriptionLoop | None = None) -> None:
        """Time goes by in steps of at most two seconds, with a tick after each."""
        loop = loop or self.loop
        left = seconds
        while left > 0:
            self.clock.advance(min(2, left))
            left -= 2
            await loop.tick()
            await loop.idle()

    async def wanted(self, *types: str) -> list[str]:
        return [
            event.id
            for event in await self.store.events(0)
            if any(event.type.startswith(each) for each in types or ("run", "task"))
        ]


@pytest.fixture
async def scene(
    store: MemoryStore, clock: ManualClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    poster = WebhookPoster()  # signs by the real clock, as the library that checks it reads that one
    await poster.open()
    scene = Scene(store, clock, receiver, poster)
    yield scene
    await scene.loop.close()
    await poster.close()


async def test_events_arrive_as_signed_cloud_events_in_order(scene: Scene, store: MemoryStore, receiver: Receiver):
    await scene.subscribe(types=("run", "task"))
    task = await store.create_task(job("nightly"))
    run_id = await publish(store, task)
    await scene.pass_()
    assert receiver.ids() == await scene.wanted()
    last = receiver.accepted[-1]
    (event,) = [one for one in await store.events(0) if one.id == last["id"]]
    assert {name: last[name] for name in ("specversion", "type", "subject", "datacontenttype")} == {
        "specversion": "1.0",
        "type": "run.scheduled",
        "subject": f"runs/{run_id}",
        "datacontenttype": "application/json",
    }
    assert last["source"] == f"/installations/{await store.installation_id()}"
    assert last["data"]["run_id"] == run_id
    assert last["data"]["topic"] == "nightly"
    assert receiver.headers[-1]["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert receiver.headers[-1]["webhook-id"] == f"evt_{event.seq}_{event.index}"
    assert set(scene.outcomes) == {("s", "delivered")}
    kept = await store.webhook_deliveries("s")
    assert [one.status for one in kept] == [WebhookStatus.DELIVERED] * len(receiver.accepted)
    whole = await store.webhook_delivery("s", kept[0].id)
    assert whole is not None
    assert json.loads(whole.body) == last
    assert (whole.response_code, whole.response) == (200, "answer 200")
    assert "webhook-signature" not in whole.request_headers
    await scene.pass_(20)
    assert receiver.ids() == await scene.wanted(), "nothing comes twice"


async def test_filters_let_through_what_they_name(scene: Scene, store: MemoryStore, receiver: Receiver):
    await scene.subscribe("label", types=("run.scheduled",), labels={"team": "x"})
    await scene.subscribe("task", types=("run.scheduled",), tasks=("b*",))
    mine = await store.create_task(job("a", labels={"team": "x"}))
    other = await store.create_task(job("b", labels={"team": "y"}))
    runs = [await publish(store, mine), await publish(store, other)]
    await scene.pass_()
    by_name = {
        name: [json.loads((await store.webhook_delivery(name, one.id)).body)["data"]["run_id"] for one in found]
        for name in ("label", "task")
        if (found := await store.webhook_deliveries(name))
    }
    assert by_name == {"label": [runs[0]], "task": [runs[1]]}


async def test_a_receiver_that_is_down_for_ten_minutes_misses_nothing(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    receiver.answer = lambda _: 503
    for _ in range(100):
        await publish(store, task)
        await scene.pass_(6)
    assert receiver.accepted == []
    (held,) = await store.subscriptions()
    assert held.state.failing_since == at(2), "the first try"
    assert len(receiver.asked) < 200, "it is asked with growing pauses, not for each event"
    receiver.answer = lambda _: 200
    await scene.pass_(1_300)
    assert set(receiver.ids()) == set(await scene.wanted("run"))
    assert sorted(receiver.ids(), key=lambda id_: int(id_.partition(".")[0])) == sorted(
        await scene.wanted("run"), key=lambda id_: int(id_.partition(".")[0])
    ), "each once: the receiver was told of none twice"
    (held,) = await store.subscriptions()
    assert (held.state.pending, held.state.failing_since, held.state.failures) == (0, None, 0)
    assert held.subscription.active


async def test_a_failing_event_holds_back_its_own_run_and_no_other(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    bad, good = await publish(store, task), await publish(store, task)
    receiver.answer = lambda body: 500 if body["data"]["run_id"] == bad else 200
    await scene.pass_()
    await store.cancel([bad])
    await store.cancel([good])
    await scene.pass_(30)
    types = {run: [b["type"] for b in receiver.accepted if b["data"]["run_id"] == run] for run in (bad, good)}
    assert types == {bad: [], good: ["run.scheduled", "run.canceled"]}
    asked = [body["type"] for body in receiver.asked if body["data"]["run_id"] == bad]
    assert set(asked) == {"run.scheduled"}, "its later event waits"
    receiver.answer = lambda _: 200
    await scene.pass_(120)
    assert [b["type"] for b in receiver.accepted if b["data"]["run_id"] == bad] == ["run.scheduled", "run.canceled"]


async def test_the_event_after_one_that_failed_waits_in_the_same_pass(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    run = await publish(store, await store.create_task(job("t")))
    await store.cancel([run])
    receiver.answer = lambda body: 500 if body["type"] == "run.scheduled" else 200
    await scene.pass_()
    assert [body["type"] for body in receiver.asked] == ["run.scheduled"]
    receiver.answer = lambda _: 200
    await scene.pass_(30)
    assert [body["type"] for body in receiver.accepted] == ["run.scheduled", "run.canceled"]


async def test_what_a_receiver_repeats_of_the_secret_and_the_address_is_not_kept(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    receiver.url += "/path-that-few-know?key=query-that-few-know"
    receiver.says = f"{SECRET} {receiver.url}"
    await scene.subscribe(types=("run",))
    await publish(store, await store.create_task(job("t")))
    await scene.pass_()
    (done,) = await store.webhook_deliveries("s")
    kept = await store.webhook_delivery("s", done.id)
    assert kept is not None
    assert kept.status is WebhookStatus.DELIVERED
    assert kept.response is not None
    text = msgspec.json.encode(kept).decode()
    for secret in (SECRET, "path-that-few-know", "query-that-few-know"):
        assert secret not in text


async def test_after_the_window_it_is_disabled_with_an_alert_and_goes_on_when_it_is_active_again(
    scene: Scene, store: MemoryStore, receiver: Receiver, clock: ManualClock
):
    await scene.subscribe(types=("run",))
    await store.put_alert_rule(Rule(name="hooks", kind=RuleKind.SUBSCRIPTION))
    await store.put_alert_channel(Channel(name="ops", url="http://127.0.0.1:9/x"))
    sender = WebhookSender()
    await sender.open()
    alerts = AlertLoop(store, ChannelSender({"webhook": sender}), clock=clock, monotonic=lambda: clock.now() / SECOND)
    await alerts.tick()
    task = await store.create_task(job("t"))
    receiver.answer = lambda _: 500
    await publish(store, task)
    day = scene.node("day", window=86_400)
    for _ in range(86_400 // 600 + 3):
        clock.advance(590)
        for _ in range(5):
            await scene.pass_(2, day)
    (held,) = await store.subscriptions()
    assert not held.subscription.active
    assert held.state.disabled_at is not None
    assert held.state.disabled_at - START >= 86_400 * SECOND
    assert "it returned 500" in (held.state.disabled_reason or "")
    await alerts.tick()
    (raised,) = [one for one in await store.alert_states() if one.raised_at is not None]
    assert (raised.subject, raised.rule) == ("subscription:s", "hooks")
    assert "subscription s is disabled" in raised.message
    (notice,) = await store.alert_deliveries()
    assert notice.notice["title"] == "subscription:s is disabled"
    asked = len(receiver.asked)
    await publish(store, task)
    await scene.pass_(60, day)
    assert len(receiver.asked) == asked, "nothing is sent"
    receiver.answer = lambda _: 200
    await scene.subscribe(types=("run",))
    await scene.pass_(60, day)
    assert receiver.ids() == await scene.wanted("run")
    clock.advance(10)
    await alerts.tick()
    assert [one for one in await store.alert_states() if one.raised_at is not None] == []
    await day.close()
    await alerts.close()
    await sender.close()


async def test_a_node_that_dies_before_it_has_written_is_followed_by_one_that_sends_again(
    scene: Scene, store: MemoryStore, receiver: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    class Death(BaseException):
        """As if the process ended."""

    def die(name: str) -> None:
        if name == "K34":
            raise Death

    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    await publish(store, task)
    monkeypatch.setattr(delivery.failpoint, "hit", die)
    first = scene.node("first")
    clock.advance(2)
    await first.tick()
    tasks = [held.task for held in first._held.values() if held.task is not None]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [Death]
    monkeypatch.undo()
    assert receiver.ids() == await scene.wanted("run")
    assert await store.webhook_deliveries("s") == []
    second = scene.node("second")
    await scene.pass_(2, second)
    assert receiver.ids() == await scene.wanted("run"), "the first one's lease stands"
    await scene.pass_(HELD, second)
    assert receiver.ids() == (await scene.wanted("run")) * 2
    assert receiver.headers[0]["webhook-id"] == receiver.headers[1]["webhook-id"], "a receiver can drop the second"
    await second.close()


async def test_events_that_were_removed_before_they_could_be_delivered_are_told_of(
    scene: Scene, store: MemoryStore, receiver: Receiver, clock: ManualClock
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    for _ in range(5):
        await publish(store, task)
    newest = await store.last_event()
    clock.advance(100)
    removed = await store.forget_events(clock.now(), 1_000)
    assert removed >= 5
    await publish(store, task)
    (before,) = await store.subscriptions()
    await scene.pass_()
    (held,) = await store.subscriptions()
    assert held.state.missed == newest - before.state.position
    assert len(receiver.accepted) == 1
    (event,) = [one for one in await store.events(0) if one.type == "subscription.missed"]
    assert event.data["count"] == held.state.missed


async def test_no_more_than_the_window_waits_and_then_nothing_further_is_read(
    scene: Scene, store: MemoryStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "WINDOW", 10)
    await scene.subscribe(types=("run.scheduled",))
    task = await store.create_task(job("t"))
    receiver.answer = lambda _: 500
    for _ in range(30):
        await publish(store, task)
    await scene.pass_(2)
    (held,) = await store.subscriptions()
    assert held.state.pending == 10
    await scene.pass_(200)
    (held,) = await store.subscriptions()
    assert held.state.pending == 10
    receiver.answer = lambda _: 200
    await scene.pass_(200)
    assert receiver.ids() == await scene.wanted("run.scheduled")
    assert WINDOW == 1_000


async def test_an_address_that_the_guard_denies_is_never_dialled(scene: Scene, store: MemoryStore, clock: ManualClock):
    poster = WebhookPoster(guard=AddressGuard(deny_networks=["127.0.0.0/8"]))
    await poster.open()
    await scene.subscribe()
    answer = await poster.post((await store.subscriptions())[0].subscription, "evt_1_0", b"{}")
    assert answer.error is not None
    assert answer.error.startswith("blocked_address")
    assert scene.receiver.asked == []
    await poster.close()


async def test_a_replay_is_posted_once_more_with_the_same_id(scene: Scene, store: MemoryStore, receiver: Receiver):
    await scene.subscribe(types=("run",))
    await publish(store, await store.create_task(job("t")))
    await scene.pass_()
    (done,) = await store.webhook_deliveries("s")
    made = await store.replay_delivery("s", done.id)
    assert made is not None
    await scene.pass_()
    assert receiver.ids() == (await scene.wanted("run")) * 2
    assert receiver.accepted[0] == receiver.accepted[1]
    assert (await store.webhook_delivery("s", made.id)).status is WebhookStatus.DELIVERED  # type: ignore[union-attr]
    await store.move_subscription("s", Instant(START))
    await scene.pass_(4)
    assert receiver.ids() == (await scene.wanted("run")) * 3


async def test_runs_do_not_wait_for_each_other_and_each_is_in_order(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    runs = [await publish(store, task) for _ in range(40)]
    for run in runs:
        await store.cancel([run])
    await scene.pass_()
    for run in runs:
        assert [b["type"] for b in receiver.accepted if b["data"]["run_id"] == run] == ["run.scheduled", "run.canceled"]
    assert 1 < receiver.most_at_once <= 8


async def test_a_change_of_fields_is_used_at_once(scene: Scene, store: MemoryStore, receiver: Receiver):
    await scene.subscribe(types=("task",))
    await scene.pass_()
    (held,) = await store.subscriptions()
    await store.put_subscription(msgspec.structs.replace(held.subscription, types=("run",)))
    await publish(store, await store.create_task(job("t")))
    await scene.pass_(4)
    assert receiver.ids() == await scene.wanted("run")


async def test_a_batch_of_many_runs_is_one_entry_of_the_log_and_is_delivered_in_passes(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    await publish_many(store, task, 350)
    pages: list[int] = []
    read = store.event_page

    async def counted(after: int, *given: Any) -> Any:
        pages.append(after)
        return await read(after, *given)

    store.event_page = counted  # type: ignore[method-assign]
    await scene.pass_()
    assert sorted(receiver.ids()) == sorted(await scene.wanted("run"))
    assert len(receiver.ids()) == 350
    assert len(pages) <= 2, "what was read is not read again for each pass"


async def test_a_node_that_follows_in_the_midst_of_a_batch_goes_on_where_it_was(
    scene: Scene, store: MemoryStore, receiver: Receiver
):
    await scene.subscribe(types=("run",))
    task = await store.create_task(job("t"))
    await publish_many(store, task, 250)
    left = 100

    def answer(_: dict[str, Any]) -> int:
        nonlocal left
        left -= 1
        return 200 if left >= 0 else 503

    receiver.answer = answer
    await scene.pass_()
    assert len(receiver.accepted) == 100
    assert len(receiver.asked) < 120, "the rest of the pass is not tried"
    (held,) = await store.subscriptions()
    assert held.state.position_index < 250, "within the batch"
    receiver.answer = lambda _: 200
    other = scene.node("other")
    await scene.pass_(120, other)
    assert len(receiver.ids()) == len(set(receiver.ids())) == 250
    await other.close()


async def test_the_doctor_names_those_that_fail_are_disabled_or_have_missed_events(
    scene: Scene, store: MemoryStore, receiver: Receiver, clock: ManualClock
):
    async def found(*, sizes: bool = True) -> list[tuple[str, str, str]]:
        looked_at = doctor.look_at_store(store, clock.now, sizes=sizes)
        return [(each.mark, each.says, each.fix) async for each in looked_at if each.check == "subscriptions"]

    node = scene.node("me", window=100)
    await scene.subscribe("well")
    await scene.subscribe("s", types=("task.created",))
    assert await found() == []
    receiver.answer = lambda body: 500 if body["type"] == "task.created" else 200
    await store.remove_subscription("well")
    await store.create_task(job("first"))
    await scene.pass_(4, node)
    ((mark, says, fix),) = await found()
    assert mark == "care"
    assert says == "webhook subscription s has been failing since 2026-01-01T10:00:02Z, and 1 delivery waits"
    assert fix.endswith("noonbell subscription deliveries s --status PENDING")
    await scene.pass_(300, node)
    ((mark, says, fix),) = await found()
    assert mark == "ill"
    assert says.startswith("webhook subscription s was disabled at 2026-01-01T10:")
    assert "and 1 delivery waits: it failed for 100 s; the last error: it returned 500" in says
    assert "noonbell subscription enable s;" in fix

    receiver.answer = lambda _: 200
    (there,) = await store.subscriptions()
    await store.put_subscription(msgspec.structs.replace(there.subscription, active=True))
    await scene.pass_(4, node)
    assert await found() == []
    (lease,) = await store.take_subscriptions("me", 10)
    await store.settle_deliveries(lease, DeliveryStep(read_to=lease.state.read_to, missed=3), RetryRules())
    ((mark, says, fix),) = await found()
    assert mark == "care"
    assert says.startswith("3 entries of the event log were removed before webhook subscription s could")
    assert "events.retention" in fix
    assert await found(sizes=False) == [], "it does not pass, and would stand on the overview for ever"


async def test_one_that_an_operator_switched_off_is_no_finding(scene: Scene, store: MemoryStore, clock: ManualClock):
    scene.receiver.answer = lambda _: 500
    await scene.subscribe()
    await store.create_task(job("first"))
    await scene.pass_(4)
    (there,) = await store.subscriptions()
    assert there.state.failing_since is not None
    await store.put_subscription(msgspec.structs.replace(there.subscription, active=False))
    assert "subscriptions" not in [each.check async for each in doctor.look_at_store(store, clock.now)]
