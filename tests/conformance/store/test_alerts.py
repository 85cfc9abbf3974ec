"""What alerts are kept as: rules, channels, the duty, states and deliveries; and what somebody sees who only looks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from conformance.store.builders import (
    START,
    Node,
    claim,
    claim_one,
    disable,
    every,
    finish,
    job,
    publish,
    publish_many,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.alert import (
    AlertDelivery,
    AlertMessage,
    AlertMessageType,
    AlertState,
    AlertStep,
    Channel,
    DeliveryStatus,
    Mute,
    Rule,
    RuleKind,
)
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.model.failure_text import TEXTS
from noonbell.ports import Store

PENDING, DELIVERED, FAILED = DeliveryStatus.PENDING, DeliveryStatus.DELIVERED, DeliveryStatus.FAILED


def notice(title: str = "t") -> AlertMessage:
    return AlertMessage(
        type=AlertMessageType.RAISED, time="now", rule="r", kind="failed", subject="task:1", title=title, message="m"
    )


def state(subject: str = "task:1", **fields: Any) -> AlertState:
    return AlertState(rule="r", subject=subject, since=Instant(1), **fields)


async def stepped(store: Store, **fields: Any) -> bool:
    duty = await store.take_duty("alerts", "me", 60)
    assert duty is not None
    return await store.alert(duty, duty.position, AlertStep(**fields))


# ---- rules and channels


async def test_a_rule_is_kept_as_it_was_given(store: Store, clock: ManualClock):
    rule = Rule(
        name="r", kind=RuleKind.SLOW, tasks=("a*", "名"), channels=("c",), after_seconds=1.5, factor=2.5, count=7
    )
    kept = await store.put_alert_rule(rule)
    assert kept == msgspec.structs.replace(rule, created_at=clock.now(), updated_at=clock.now())
    assert await store.alert_rules() == [kept]
    clock.advance(5)
    changed = await store.put_alert_rule(msgspec.structs.replace(rule, enabled=False))
    assert (changed.created_at, changed.updated_at) == (kept.created_at, clock.now())
    assert await store.alert_rules() == [changed]
    await store.put_alert_rule(Rule(name="a", kind=RuleKind.FAILED))
    assert [one.name for one in await store.alert_rules()] == ["a", "r"]


async def test_a_rule_goes_with_all_that_it_remembers(store: Store):
    await store.put_alert_rule(Rule(name="r", kind=RuleKind.FAILED))
    assert await stepped(store, states=[state()])
    assert await store.remove_alert_rule("r")
    assert (await store.alert_rules(), await store.alert_states()) == ([], [])
    assert not await store.remove_alert_rule("r")


async def test_a_channel_goes_with_what_waits_for_it_but_not_with_its_log(store: Store):
    kept = await store.put_alert_channel(Channel(name="c", url="http://x/", secret="s", headers={"A": "b"}))
    assert await store.alert_channels() == [kept]
    await stepped(store, notices=[("c", notice("sent")), ("c", notice("waits"))])
    (first, _) = await store.claim_deliveries(2, 60)
    await store.settle_delivery(first, DELIVERED)
    assert await store.remove_alert_channel("c")
    assert [one.notice["title"] for one in await store.alert_deliveries()] == ["sent"]
    assert not await store.remove_alert_channel("c")


# ---- the duty


async def test_one_holder_has_the_duty_until_its_time_is_up(store: Store, clock: ManualClock):
    mine = await store.take_duty("alerts", "me", 10)
    assert mine is not None
    assert await store.take_duty("alerts", "you", 10) is None
    clock.advance(5)
    again = await store.take_duty("alerts", "me", 10)
    assert again is not None
    assert again.token == mine.token, "held in time, it is the same"
    clock.advance(9)
    assert await store.take_duty("alerts", "you", 10) is None
    clock.advance(1)
    yours = await store.take_duty("alerts", "you", 10)
    assert yours is not None
    assert yours.token > mine.token


async def test_of_many_who_reach_for_the_duty_one_gets_it(store: Store, another_node: Node):
    other = await another_node()
    got = await asyncio.gather(
        *((store, other)[number % 2].take_duty("alerts", f"n{number}", 10) for number in range(8))
    )
    assert len([duty for duty in got if duty is not None]) == 1


async def test_a_duty_that_is_left_is_free(store: Store):
    await store.take_duty("alerts", "me", 10)
    await store.leave_duty("alerts", "you")
    assert await store.take_duty("alerts", "you", 10) is None
    await store.leave_duty("alerts", "me")
    assert await store.take_duty("alerts", "you", 10) is not None


async def test_a_duty_begins_at_the_newest_event_and_goes_on_where_it_was(store: Store, clock: ManualClock):
    await store.create_task(job("before"))
    last = await store.last_event()
    duty = await store.take_duty("alerts", "me", 10)
    assert duty is not None
    assert duty.position == last
    assert await store.alert(duty, last + 7, AlertStep())
    clock.advance(60)
    next_ = await store.take_duty("alerts", "you", 10)
    assert next_ is not None
    assert next_.position == last + 7


async def test_who_lost_the_duty_writes_nothing(store: Store, clock: ManualClock):
    old = await store.take_duty("alerts", "me", 10)
    assert old is not None
    clock.advance(10)
    step = AlertStep(states=[state()], notices=[("c", notice())], told=[(AlertMessageType.RAISED, state())])
    assert not await store.alert(old, 99, step), "its time is up"
    new = await store.take_duty("alerts", "you", 10)
    assert new is not None
    assert not await store.alert(old, 99, step), "it is another's"
    assert (await store.alert_states(), await store.alert_deliveries()) == ([], [])
    assert new.position != 99
    assert await store.events(0) == []


async def test_a_pass_writes_states_deliveries_and_events_together(store: Store, clock: ManualClock):
    task = await store.create_task(job("sore"))
    before = await store.last_event()
    raised = state(f"task:{task.id}", task_id=task.id, count=2, message="ouch", raised_at=clock.now())
    assert await stepped(
        store, states=[raised], notices=[("c", notice()), ("d", notice())], told=[(AlertMessageType.RAISED, raised)]
    )
    assert await store.alert_states() == [raised]
    assert sorted(one.channel for one in await store.alert_deliveries()) == ["c", "d"]
    (event,) = (await store.event_page(before)).events
    assert (event.type, event.topic, event.data["message"]) == ("alert.raised", "sore", "ouch")
    worse = msgspec.structs.replace(raised, count=3)
    assert await stepped(store, states=[worse])
    assert await store.alert_states() == [worse]
    assert await stepped(store, closed=[("r", raised.subject)])
    assert await store.alert_states() == []


# ---- deliveries


async def claimed(store: Store) -> AlertDelivery:
    (delivery,) = await store.claim_deliveries(10, 60)
    return delivery


async def test_a_delivery_is_claimed_by_one_and_again_when_the_claim_runs_out(
    store: Store, another_node: Node, clock: ManualClock
):
    nodes: list[Any] = [store, await another_node()]
    await stepped(store, notices=[("c", notice(str(number))) for number in range(6)])
    got = await asyncio.gather(*(nodes[number % 2].claim_deliveries(2, 60) for number in range(6)))
    ids = [one.id for each in got for one in each]
    assert len(ids) == len(set(ids))
    rest = await store.claim_deliveries(10, 60)
    assert len(ids) + len(rest) == 6
    assert await store.claim_deliveries(10, 60) == []
    clock.advance(60)
    assert {one.attempts for one in await store.claim_deliveries(10, 60)} == {2}


async def test_a_delivery_ends_once(store: Store, clock: ManualClock):
    await stepped(store, notices=[("c", notice())])
    delivery = await claimed(store)
    assert (delivery.status, delivery.attempts, delivery.notice["title"]) == (PENDING, 1, "t")
    assert await store.settle_delivery(delivery, DELIVERED, response_code=204)
    assert not await store.settle_delivery(delivery, FAILED, error="late")
    (logged,) = await store.alert_deliveries()
    assert (logged.status, logged.response_code, logged.ended_at, logged.next_at) == (DELIVERED, 204, clock.now(), None)
    clock.advance(1000)
    assert await store.next_delivery() is None
    assert await store.claim_deliveries(10, 60) == []


async def test_a_delivery_is_tried_again_after_its_pause(store: Store, clock: ManualClock):
    await stepped(store, notices=[("c", notice())])
    first = await claimed(store)
    assert await store.next_delivery() == 60, "the claim runs out"
    assert await store.settle_delivery(first, PENDING, delay_seconds=5, error="refused", response_code=503)
    clock.advance(4)
    assert await store.next_delivery() == 1
    assert await store.claim_deliveries(10, 60) == []
    clock.advance(1)
    second = await claimed(store)
    assert (second.attempts, second.error, second.response_code) == (2, "refused", 503)
    assert not await store.settle_delivery(first, DELIVERED), "an old claim does not count"
    assert await store.settle_delivery(second, FAILED, error="gone")
    assert [one.status for one in await store.alert_deliveries()] == [FAILED]


NIGHT = QuietHours(from_="09:00", to="12:00")
"""The clock of the tests stands at ten."""


async def test_quiet_hours_as_the_store_has_them_hold_a_delivery_until_they_end(store: Store, clock: ManualClock):
    await store.put_alert_channel(Channel(name="c", url="http://x/", quiet=(NIGHT,)))
    await stepped(store, notices=[("c", notice())])
    delivery = await claimed(store)
    assert await store.rest_delivery(delivery) is PENDING
    assert await store.next_delivery() == 2 * 3600
    (held,) = await store.alert_deliveries()
    assert (held.status, held.attempts, held.error) == (PENDING, 0, TEXTS["alert_quiet_held"])
    await store.put_alert_channel(Channel(name="c", url="http://x/"))
    again = await claimed(store)
    assert await store.rest_delivery(again) is None
    assert (await store.alert_deliveries())[0].attempts == 1, "nothing is written"
    skips = msgspec.structs.replace(NIGHT, what=QuietAction.SKIP)
    await store.put_alert_channel(Channel(name="c", url="http://x/", quiet=(skips,)))
    assert await store.rest_delivery(again) is DeliveryStatus.SKIPPED
    assert (await store.alert_deliveries())[0].ended_at == clock.now()


async def test_a_change_of_quiet_hours_lets_go_what_failed_before_it_was_held(store: Store, clock: ManualClock):
    await store.put_alert_channel(Channel(name="c", url="http://x/", quiet=(NIGHT,)))
    await stepped(store, notices=[("c", notice())])
    assert await store.settle_delivery(await claimed(store), PENDING, delay_seconds=60, error="gone")
    await store.put_alert_channel(Channel(name="c", url="http://x/", quiet=(NIGHT,)))
    assert await store.next_delivery() == 60, "what waits to be tried again is no message that is held"
    clock.advance(60)
    assert await store.rest_delivery(await claimed(store)) is PENDING
    assert await store.next_delivery() > 60
    await store.put_alert_channel(Channel(name="c", url="http://x/"))
    assert await store.next_delivery() == 0
    again = await claimed(store)
    await store.put_alert_channel(Channel(name="c", url="http://x/"))
    assert await store.next_delivery() > 0, "what is on its way is not let go again"
    assert again.attempts == 2


async def test_a_change_of_quiet_hours_lets_go_what_is_being_held(store: Store, another_node: Node):
    """Whichever of the two comes first: no message waits for the end of hours that are no longer there."""
    other: Any = await another_node()
    for number in range(5):
        await store.put_alert_channel(Channel(name="c", url="http://x/", quiet=(NIGHT,)))
        await stepped(store, notices=[("c", notice(str(number)))])
        delivery = await claimed(store)
        status, _ = await asyncio.gather(
            store.rest_delivery(delivery), other.put_alert_channel(Channel(name="c", url="http://x/"))
        )
        if status is PENDING:
            delivery = await claimed(store)
        await store.settle_delivery(delivery, DELIVERED)


async def test_the_log_is_read_newest_first_in_pieces(store: Store):
    await stepped(store, notices=[("a", notice("1")), ("b", notice("2")), ("a", notice("3"))])
    whole = await store.alert_deliveries()
    assert [one.notice["title"] for one in whole] == ["3", "2", "1"]
    assert await store.alert_deliveries(2, before=whole[0].id) == whole[1:]
    assert [one.notice["title"] for one in await store.alert_deliveries(channel="a")] == ["3", "1"]


async def test_what_was_sent_past_the_queue_is_in_the_log_too(store: Store):
    id_ = await store.note_delivery("c", notice(), FAILED, error="no", response_code=404)
    (logged,) = await store.alert_deliveries()
    assert (logged.id, logged.status, logged.error, logged.attempts) == (id_, FAILED, "no", 1)
    assert await store.claim_deliveries(10, 60) == []


async def test_old_deliveries_are_forgotten_but_not_those_that_wait(store: Store, clock: ManualClock):
    await stepped(store, notices=[("c", notice("old")), ("c", notice("waits"))])
    (old, _) = await store.claim_deliveries(2, 60)
    await store.settle_delivery(old, DELIVERED)
    clock.advance(100)
    assert await store.forget_deliveries(Instant(START + 50 * SECOND), 10) == 1
    assert [one.notice["title"] for one in await store.alert_deliveries()] == ["waits"]


# ---- looking


async def test_a_slot_that_nobody_plans_is_seen(store: Store, clock: ManualClock):
    task = await store.create_task(job("late", schedule=every(10)))
    off = await store.create_task(job("off", schedule=every(10)))
    await disable(store, off)
    clock.advance(15)
    assert await store.overdue_tasks(6) == []
    (late,) = await store.overdue_tasks(5)
    assert (late.task_id, late.task_name, late.since) == (task.id, "late", START + 10 * SECOND)
    await store.plan(10)
    assert await store.overdue_tasks(0) == []


async def test_a_run_that_nobody_takes_is_seen(store: Store, clock: ManualClock):
    task = await store.create_task(job("stuck"))
    run_ids = await publish_many(store, task, 2)
    await publish(store, task, delay_seconds=1000)
    clock.advance(30)
    assert await store.waiting_tasks(31) == []
    (late,) = await store.waiting_tasks(30)
    assert (late.task_id, late.count, late.since, late.run_id) == (task.id, 2, START, min(run_ids))
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, paused=True))
    assert await store.waiting_tasks(30) == [], "a paused queue is meant"
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, paused=False))
    await claim(store)
    assert await store.waiting_tasks(0) == []


async def test_a_run_that_takes_longer_than_usual_is_seen(store: Store, clock: ManualClock):
    task = await store.create_task(job("slow", timeout_seconds=3600))
    for _ in range(5):
        await publish(store, task)
        lease = await claim_one(store)
        clock.advance(2)
        await store.settle([finish(lease)])
    run_id = await publish(store, task)
    await claim_one(store)
    clock.advance(6)
    assert await store.slow_tasks(1, 3) == []
    clock.advance(1)
    assert await store.slow_tasks(8, 3) == []
    (late,) = await store.slow_tasks(1, 3)
    assert (late.task_id, late.run_id, late.usual_seconds) == (task.id, run_id, 2.0)


async def test_nobody_knows_what_is_usual_for_a_task_with_hardly_any_runs(store: Store, clock: ManualClock):
    task = await store.create_task(job(timeout_seconds=3600))
    await publish(store, task)
    await claim_one(store)
    clock.advance(1000)
    assert await store.slow_tasks(1, 3) == []


# ---- mutes and acknowledgements


async def test_a_mute_is_kept_until_it_ends(store: Store, clock: ManualClock):
    until = Instant(clock.now() + 60 * SECOND)
    given = Mute(rule="r", tasks=("a*", "名"), labels={"team": "b"}, until=until, reason="moves", by="ann")
    kept = await store.add_alert_mute(given)
    assert kept == msgspec.structs.replace(given, id=kept.id, created_at=clock.now())
    sooner = await store.add_alert_mute(Mute(until=Instant(clock.now() + SECOND)))
    assert await store.alert_mutes() == [sooner, kept]
    clock.advance(1)
    assert await store.alert_mutes() == [kept]
    assert (await store.forget_mutes(), await store.forget_mutes()) == (1, 0)
    assert (await store.remove_alert_mute(kept.id), await store.remove_alert_mute(kept.id)) == (True, False)
    assert await store.alert_mutes() == []


async def test_only_an_open_alert_is_acknowledged_and_the_latest_word_counts(store: Store, clock: ManualClock):
    assert await stepped(store, states=[state(raised_at=Instant(1)), state("task:2")])
    assert await store.acknowledge_alert("r", "task:2") is None, "its bound is not reached"
    assert await store.acknowledge_alert("r", "task:3") is None
    assert await store.acknowledgements() == []
    await store.acknowledge_alert("r", "task:1", by="ann", note="looks")
    clock.advance(1)
    made = await store.acknowledge_alert("r", "task:1", by="bob")
    assert made is not None
    assert (made.at, made.by, made.note) == (clock.now(), "bob", "")
    assert await store.acknowledgements() == [made]
    assert await store.withdraw_acknowledgement("r", "task:1")
    assert not await store.withdraw_acknowledgement("r", "task:1")


async def test_an_acknowledgement_goes_with_its_alert_and_with_its_rule(store: Store):
    open_ones = [state(subject, raised_at=Instant(1)) for subject in ("task:1", "task:2")]
    assert await stepped(store, states=open_ones)
    for one in open_ones:
        await store.acknowledge_alert("r", one.subject)
    assert await stepped(store, states=[state("task:1", raised_at=Instant(1), count=2)])
    assert len(await store.acknowledgements()) == 2, "what goes on stays acknowledged"
    assert await stepped(store, closed=[("r", "task:1")])
    assert [one.subject for one in await store.acknowledgements()] == ["task:2"]
    await store.put_alert_rule(Rule(name="r", kind=RuleKind.FAILED))
    await store.remove_alert_rule("r")
    assert await store.acknowledgements() == []


async def test_labels_of_tasks_are_those_of_the_tasks_asked_for(store: Store):
    one = await store.create_task(job("one", labels={"team": "a", "tier": "1"}))
    two = await store.create_task(job("two"))
    three = await store.create_task(job("three", labels={"team": "b"}))
    assert await store.labels_of_tasks([one.id, two.id]) == {one.id: {"team": "a", "tier": "1"}}
    assert await store.labels_of_tasks([]) == {}
    assert set(await store.labels_of_tasks([one.id, three.id, three.id + 999])) == {one.id, three.id}
