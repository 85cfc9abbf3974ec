"""What webhook subscriptions are kept as: their position, their lease, their deliveries, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from conformance.store.builders import START, Node, at, job, publish
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.event import WHOLE, Position
from noonbell.model.subscription import (
    DeliveryAttempt,
    DeliveryStep,
    HeldSubscription,
    RetryRules,
    Subscription,
    WebhookAnswer,
    WebhookDelivery,
    WebhookStatus,
)
from noonbell.ports import Store

PENDING, DELIVERED, FAILED = WebhookStatus.PENDING, WebhookStatus.DELIVERED, WebhookStatus.FAILED
RULES = RetryRules(window=100, first_pause=5, longest_pause=20)
GOOD = WebhookAnswer(response_code=200, response="ok", request_headers={"webhook-id": "evt_1_0"})
BAD = WebhookAnswer(error="it returned 500", response_code=500)


def subscription(name: str = "s", **fields: Any) -> Subscription:
    return Subscription(name=name, url="http://127.0.0.1:9/hook", secret="whsec_AAAA", **fields)


def delivery(seq: int, key: str = "run:1", **fields: Any) -> WebhookDelivery:
    return WebhookDelivery(
        subscription="s", event_seq=seq, event_index=0, type="run.failed", order_key=key, body=f"body {seq}", **fields
    )


async def held(store: Store, holder: str = "me", **fields: Any) -> HeldSubscription:
    await store.put_subscription(subscription(**fields))
    (found,) = await store.take_subscriptions(holder, 10)
    return found


async def passed(
    store: Store, lease: HeldSubscription, *attempts: tuple[WebhookDelivery, WebhookAnswer | None], to: int
):
    made = tuple(DeliveryAttempt(delivery=each, answer=answer) for each, answer in attempts)
    state = await store.settle_deliveries(lease, DeliveryStep(read_to=Position(to), attempts=made), RULES)
    return None if state is None else HeldSubscription(subscription=lease.subscription, state=state)


async def told(store: Store) -> list[str]:
    return [event.type for event in await store.events(0) if event.type.startswith("subscription.")]


async def test_a_subscription_is_kept_as_it_was_given_and_begins_at_the_newest_event(store: Store, clock: ManualClock):
    await store.create_task(job("before"))
    newest = await store.last_event()
    given = subscription(types=("run", "task.created"), tasks=("a*", "名"), labels={"team": "x"}, queues=("q",))
    kept = await store.put_subscription(given)
    assert kept.subscription == msgspec.structs.replace(given, created_at=clock.now(), updated_at=clock.now())
    assert kept.state.read_to == Position(newest)
    assert await store.subscriptions() == [kept]
    clock.advance(5)
    changed = await store.put_subscription(msgspec.structs.replace(given, types=()))
    assert (changed.subscription.created_at, changed.subscription.updated_at) == (START, at(5))
    assert changed.state.read_to == Position(newest), "a change moves no position"
    assert await told(store) == ["subscription.created", "subscription.changed"]


async def test_one_holder_has_a_subscription_until_its_time_is_up(store: Store, clock: ManualClock):
    mine = await held(store)
    assert await store.take_subscriptions("you", 10) == []
    clock.advance(5)
    (again,) = await store.take_subscriptions("me", 10)
    assert again.state.token == mine.state.token, "held in time, it is the same"
    clock.advance(9)
    assert await store.take_subscriptions("you", 10) == []
    clock.advance(1)
    (yours,) = await store.take_subscriptions("you", 10)
    assert yours.state.token > mine.state.token
    assert await passed(store, mine, to=9) is None, "its token is old"
    assert await passed(store, yours, to=9) is not None


async def test_of_many_who_reach_for_a_subscription_one_gets_it(store: Store, another_node: Node):
    await store.put_subscription(subscription())
    other = await another_node()
    got = await asyncio.gather(
        *((store, other)[number % 2].take_subscriptions(f"n{number}", 10) for number in range(8))
    )
    assert len([one for one in got if one]) == 1


async def test_one_that_is_left_is_free_and_one_that_is_not_active_is_not_to_be_had(store: Store):
    await held(store)
    await store.leave_subscriptions("you")
    assert await store.take_subscriptions("you", 10) == []
    await store.leave_subscriptions("me")
    assert len(await store.take_subscriptions("you", 10)) == 1
    await store.put_subscription(subscription(active=False))
    assert await store.take_subscriptions("you", 10) == []


async def test_a_pass_writes_deliveries_and_position_together(store: Store, clock: ManualClock):
    lease = await held(store)
    after = await passed(store, lease, (delivery(3), GOOD), (delivery(4), BAD), (delivery(5), None), to=5)
    assert after is not None
    state = after.state
    assert (state.position, state.position_index, state.pending) == (5, WHOLE, 2)
    assert (state.delivered_at, state.failing_since, state.failures) == (START, START, 0)
    assert state.next_at == at(5), "the first of its key; what waits behind it is not due before"
    (kept,) = await store.subscriptions()
    assert kept.state == state
    third, second, first = await store.webhook_deliveries("s")
    assert [one.event_seq for one in (first, second, third)] == [3, 4, 5]
    assert [(one.status, one.attempts) for one in (first, second, third)] == [
        (DELIVERED, 1),
        (PENDING, 1),
        (PENDING, 0),
    ]
    assert (second.next_at, second.error, second.response_code) == (at(5), "it returned 500", 500)
    assert (first.ended_at, first.created_at) == (START, START)
    whole = await store.webhook_delivery("s", first.id)
    assert whole is not None
    assert (whole.body, whole.response, whole.request_headers) == ("body 3", "ok", {"webhook-id": "evt_1_0"})
    waiting = await store.waiting_deliveries("s")
    assert [one.id for one in waiting] == [second.id, third.id]
    assert await store.webhook_bodies([second.id]) == {second.id: "body 4"}
    clock.advance(5)
    assert await passed(store, after, (second, GOOD), (third, GOOD), to=5) is not None
    (kept,) = await store.subscriptions()
    assert (kept.state.pending, kept.state.next_at, kept.state.failing_since) == (0, None, None)


async def test_pauses_between_attempts_double_up_to_the_longest(store: Store, clock: ManualClock):
    lease = await held(store)
    pauses = []
    one = delivery(3)
    for _ in range(4):
        after = await passed(store, lease, (one, BAD), to=3)
        assert after is not None
        lease = after
        (one,) = await store.waiting_deliveries("s")
        assert one.next_at is not None
        pauses.append((one.next_at - clock.now()) // SECOND)
    assert pauses == [5, 10, 20, 20]
    assert lease.state.failures == 4


async def test_what_fails_for_the_whole_window_disables_the_subscription_once(store: Store, clock: ManualClock):
    lease = await held(store)
    lease_after = await passed(store, lease, (delivery(3), BAD), to=3)
    assert lease_after is not None
    clock.advance(99)
    (one,) = await store.waiting_deliveries("s")
    lease_after = await passed(store, lease_after, (one, BAD), to=3)
    assert lease_after is not None
    assert lease_after.state.disabled_at is None
    clock.advance(1)
    (one,) = await store.waiting_deliveries("s")
    last = await passed(store, lease_after, (one, BAD), to=3)
    assert last is not None
    assert last.state.disabled_at == clock.now()
    assert await store.take_subscriptions("me", 10) == []
    assert await passed(store, last, to=9) is None, "it is not active"
    assert (await told(store)).count("subscription.disabled") == 1
    (event,) = [one for one in await store.events(0) if one.type == "subscription.disabled"]
    assert event.data["subscription"] == "s"
    assert "it returned 500" in event.data["reason"]
    # Activated again, it goes on from where it was, with as much time as at first.
    kept = await store.put_subscription(subscription(active=True))
    assert (kept.state.position, kept.state.pending, kept.state.next_at) == (3, 1, clock.now())
    assert (kept.state.disabled_at, kept.state.disabled_reason, kept.state.failures) == (None, None, 0)
    (one,) = await store.waiting_deliveries("s")
    assert one.first_failed_at is None
    assert (await told(store))[-1] == "subscription.enabled"


async def test_a_change_makes_a_pass_that_began_before_void(store: Store):
    lease = await held(store)
    await store.put_subscription(subscription(types=("task",)))
    assert await passed(store, lease, (delivery(3), GOOD), to=3) is None
    assert await store.webhook_deliveries("s") == []


async def test_a_replayed_delivery_is_due_at_once_and_waits_for_no_other(store: Store, clock: ManualClock):
    lease = await held(store)
    after = await passed(store, lease, (delivery(3), GOOD), (delivery(4), BAD), to=4)
    assert after is not None
    clock.advance(1)
    done = (await store.webhook_deliveries("s", status=DELIVERED))[0]
    made = await store.replay_delivery("s", done.id)
    assert made is not None
    assert (made.replay_of, made.body, made.status, made.message_id) == (done.id, "body 3", PENDING, "evt_3_0")
    assert made.order_key != done.order_key
    (kept,) = await store.subscriptions()
    assert (kept.state.pending, kept.state.next_at) == (2, clock.now())
    assert await store.replay_delivery("s", 1) is None
    assert await store.replay_delivery("other", done.id) is None


async def test_a_position_moves_to_an_event_to_a_moment_and_to_now(store: Store, clock: ManualClock):
    await store.put_subscription(subscription())
    numbers = []
    for second in (10, 20, 30):
        clock.set(at(second))
        await store.create_task(job(f"t{second}"))
        numbers.append(await store.last_event())
    lease = (await store.take_subscriptions("me", 100))[0]
    state = await store.move_subscription("s", Position(numbers[0], 0))
    assert state is not None
    assert state.read_to == Position(numbers[0], 0)
    assert await passed(store, lease, to=numbers[2]) is None, "its token is old"
    state = await store.move_subscription("s", at(20))
    assert state is not None
    assert state.read_to == Position(numbers[1] - 1), "the next event is the first of that moment"
    state = await store.move_subscription("s", at(500))
    newest = await store.last_event()
    assert state is not None
    assert state.position in range(numbers[2], newest + 1)
    state = await store.move_subscription("s", None)
    assert state is not None
    assert state.position >= newest - 1
    assert await store.move_subscription("nothing", None) is None


async def test_moving_back_reads_what_waits_anew_and_moving_on_gives_it_up(store: Store):
    for number in range(12):
        await publish(store, await store.create_task(job(f"t{number}")))
    newest = await store.last_event()
    assert newest >= 12
    lease = await held(store)
    assert await passed(store, lease, (delivery(3), BAD), (delivery(6, "run:2"), BAD), to=7) is not None
    state = await store.move_subscription("s", Position(4))
    assert state is not None
    assert [one.event_seq for one in await store.waiting_deliveries("s")] == [3], "6 will be read again"
    assert (state.position, state.pending) == (4, 1)
    state = await store.move_subscription("s", None)
    assert state is not None
    assert (state.pending, state.next_at, state.failing_since) == (0, None, None)
    (given_up,) = await store.webhook_deliveries("s")
    assert given_up.status is FAILED
    assert "passed over" in (given_up.error or "")


async def test_what_was_removed_before_it_was_delivered_is_counted_and_told(store: Store):
    lease = await held(store)
    state = await store.settle_deliveries(lease, DeliveryStep(read_to=Position(40), missed=33), RULES)
    assert state is not None
    assert (state.position, state.missed) == (40, 33)
    (event,) = [one for one in await store.events(0) if one.type == "subscription.missed"]
    assert event.data == {"subscription": "s", "count": 33}
    moved = await store.move_subscription("s", None)
    assert moved is not None
    assert moved.missed == 0, "who says where it goes on has seen it"
    assert [one.state.missed for one in await store.subscriptions()] == [0]


async def test_a_subscription_goes_with_its_deliveries(store: Store):
    lease = await held(store)
    await passed(store, lease, (delivery(3), GOOD), to=3)
    assert await store.remove_subscription("s")
    assert (await store.subscriptions(), await store.webhook_deliveries("s")) == ([], [])
    assert not await store.remove_subscription("s")
    assert (await told(store))[-1] == "subscription.removed"


async def test_old_deliveries_go_by_age_and_by_number_and_those_that_wait_stay(store: Store, clock: ManualClock):
    lease = await held(store)
    state = await passed(store, lease, *((delivery(seq), GOOD) for seq in range(3, 8)), (delivery(8), BAD), to=8)
    assert state is not None
    assert await store.forget_webhooks("s", Instant(START - 1), 100, 50) == 0
    assert await store.forget_webhooks("s", Instant(START - 1), 3, 50) == 3
    assert [one.event_seq for one in await store.webhook_deliveries("s")] == [8, 7, 6]
    clock.advance(10)
    assert await store.forget_webhooks("s", clock.now(), 100, 50) == 2
    assert [one.event_seq for one in await store.webhook_deliveries("s")] == [8]


async def test_a_test_is_in_the_log(store: Store):
    await store.put_subscription(subscription())
    made = await store.note_webhook(delivery(0, "test", status=DELIVERED, attempts=1))
    assert await store.webhook_delivery("s", made.id) == made
    assert (await store.subscriptions())[0].state.pending == 0


async def test_secrets_of_subscriptions_are_sealed_anew(store: Store):
    await store.put_subscription(subscription())

    def reseal(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: f"new {value}".replace("new new", "new") for name, value in fields.items()}

    assert await store.reseal_subscriptions(reseal) == 1
    assert await store.reseal_subscriptions(reseal) == 0
    (kept,) = await store.subscriptions()
    assert (kept.subscription.secret, kept.subscription.url) == ("new whsec_AAAA", "new http://127.0.0.1:9/hook")
