"""Plan: from slots to runs, by misfire, bounds and cursor. What one slot's fate is: `test_slot.py`."""

from __future__ import annotations

import asyncio
import time

import pytest

from conformance.store.builders import (
    Node,
    S,
    after_each,
    at,
    born_at,
    claim,
    claim_due,
    claim_one,
    cron,
    disable,
    done,
    dropped,
    enable,
    every,
    execute,
    fail,
    finish,
    finished,
    http,
    job,
    lose,
    newest,
    news,
    once,
    park,
    publish,
    reread,
    retry,
    runs_of,
    skips,
    started,
    trigger,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.run import DropReason, Origin, SkipReason
from noonbell.model.task import MisfirePolicy, TaskStatus
from noonbell.ports import Store
from noonbell.stores.sql.statement import Conflict

EVERY_SECOND = cron("* * * * * *")


# ---- misfire


@pytest.mark.parametrize(
    ("policy", "more", "born", "left_out"),
    [
        (MisfirePolicy.FIRE_NOW, {}, [1, 2, 3, 4, 5], []),
        (MisfirePolicy.CATCH_UP_LIMITED, {"catchup_limit": 2}, [4, 5], [(1, 3, 3)]),
        (MisfirePolicy.SKIP, {}, [5], [(1, 4, 4)]),
        (MisfirePolicy.FIRE_ONCE, {}, [5], [(1, 4, 4)]),
    ],
)
async def test_the_worked_example_of_each_misfire_policy(
    store: Store,
    clock: ManualClock,
    policy: MisfirePolicy,
    more: dict[str, int],
    born: list[int],
    left_out: list[tuple],
):
    task = await store.create_task(job(schedule=EVERY_SECOND, misfire_policy=policy, **more))
    clock.advance(5)
    planned = await store.plan(10)
    assert await born_at(store, task) == born
    assert [(r.first, r.last, r.count) for r in await dropped(store, task)] == [
        (at(first), at(last), count) for first, last, count in left_out
    ]
    assert (planned.born, planned.dropped) == (len(born), 5 - len(born))
    task = await reread(store, task)
    assert (task.next_fire_at, task.fired) == (at(6), 5)


async def test_fire_now_is_held_to_the_newest_of_the_cap(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    clock.advance(10)
    await store.plan(10, cap=3)
    assert await born_at(store, task) == [8, 9, 10]
    (left,) = await dropped(store, task)
    assert (left.first, left.last, left.count, left.reason) == (at(1), at(7), 7, DropReason.CATCHUP_CAP)
    assert (left.task_id, left.at) == (task.id, at(10))


async def test_a_dropped_range_of_another_policy_is_a_misfire(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), misfire_policy=MisfirePolicy.FIRE_ONCE))
    clock.advance(3)
    await store.plan(10)
    assert [left.reason for left in await dropped(store, task)] == [DropReason.MISFIRE]


@pytest.mark.parametrize(("age", "born"), [(10, [60]), (11, [])])
async def test_skip_minds_the_grace(store: Store, clock: ManualClock, age: int, born: list[int]):
    spec = job(schedule=every(60), misfire_policy=MisfirePolicy.SKIP, misfire_grace_seconds=10)
    task = await store.create_task(spec)
    clock.advance(60 + age)
    await store.plan(10)
    assert await born_at(store, task) == born
    assert sum(left.count for left in await dropped(store, task)) == 1 - len(born)


@pytest.mark.parametrize("policy", [MisfirePolicy.FIRE_NOW, MisfirePolicy.FIRE_ONCE])
async def test_the_other_policies_run_the_newest_slot_however_late(
    store: Store, clock: ManualClock, policy: MisfirePolicy
):
    task = await store.create_task(job(schedule=every(3600), misfire_policy=policy))
    clock.advance(3600 + 3599)
    await store.plan(10)
    assert await born_at(store, task) == [3600]


@pytest.mark.parametrize("schedule", [every(1), EVERY_SECOND], ids=["interval", "cron"])
async def test_a_long_downtime_of_an_every_second_task_is_quick_and_one_range(
    store: Store, clock: ManualClock, schedule: dict[str, object]
):
    task = await store.create_task(job(schedule=schedule))
    days = 30 * 86_400
    clock.advance(days)
    begun = time.process_time()
    passes = 0
    while (await store.plan(10)).tasks:
        passes += 1
        assert passes < 50
    assert time.process_time() - begun < 20
    assert await born_at(store, task) == list(range(days - 99, days + 1))
    (left,) = await dropped(store, task)
    assert (left.first, left.last, left.count) == (at(1), at(days - 100), days - 100)


async def test_dropped_ranges_are_those_that_touch_the_stretch_oldest_first(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), misfire_policy=MisfirePolicy.FIRE_ONCE))
    other = await store.create_task(job("other", schedule=every(1), misfire_policy=MisfirePolicy.FIRE_ONCE))
    for _ in range(3):
        clock.advance(10)
        await store.plan(10)

    async def first_slots(since: float, until: float) -> list[int]:
        found = await store.dropped(task.id, at(since), at(until))
        assert all(left.task_id == task.id for left in found)
        return [(left.first - at(0)) // SECOND for left in found]

    assert await first_slots(0, 100) == [1, 11, 21]
    assert await first_slots(5, 12) == [1, 11]
    assert await first_slots(9, 9.5) == [1]
    assert await first_slots(9.5, 10.5) == []
    assert await first_slots(29, 90) == [21]
    assert len(await dropped(store, other)) == 3


async def test_every_slot_is_accounted_for_once(store: Store, clock: ManualClock):
    specs = [
        job("now", schedule=every(1)),
        job("once", schedule=every(2), misfire_policy=MisfirePolicy.FIRE_ONCE),
        job("skip", schedule=every(3), misfire_policy=MisfirePolicy.SKIP, misfire_grace_seconds=0),
        job("some", schedule=EVERY_SECOND, misfire_policy=MisfirePolicy.CATCH_UP_LIMITED, catchup_limit=3),
    ]
    tasks = [await store.create_task(spec) for spec in specs]
    for pause in (1, 0.5, 7, 2.25, 30, 19.25):
        clock.advance(pause)
        await store.plan(2, cap=5)
        await store.plan(10, cap=5)
    for task, step in zip(tasks, (1, 2, 3, 1), strict=True):
        slots = [run.scheduled_time for run in await runs_of(store, task)]
        assert len(slots) == len(set(slots))
        ranges = await dropped(store, task)
        assert not [slot for slot in slots for left in ranges if left.first <= slot <= left.last]
        assert len(slots) + sum(left.count for left in ranges) == 60 // step
        assert (await reread(store, task)).fired == 60 // step


# ---- one transaction, one run


async def test_a_run_is_born_as_its_task_says(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), queue="q", priority=4))
    clock.advance(12.5)
    planned = await store.plan(10)
    assert (planned.now, planned.tasks, planned.born, planned.skipped, planned.dropped) == (at(12.5), 1, 1, 0, 0)
    assert (planned.canceled, planned.queues, planned.next_at) == ((), ("q",), at(20))
    (run,) = await runs_of(store, task)
    assert (run.status, run.origin, run.task_version, run.task_name) == (S.SCHEDULED, Origin.SCHEDULE, 1, "j")
    assert (run.scheduled_time, run.run_at, run.created_at) == (at(10), at(10), at(12.5))
    assert (run.queue, run.priority, run.attempt, run.retry_count, run.lost_count) == ("q", 4, 0, 0, 0)
    assert (run.start_time, run.end_time, run.skip_reason, run.worker_id) == (None, None, None, None)


async def test_runs_are_born_oldest_slot_first(store: Store, clock: ManualClock):
    await store.create_task(job(schedule=every(1)))
    clock.advance(5)
    await store.plan(10)
    assert [lease.scheduled_time for lease in await claim(store)] == [at(second) for second in (1, 2, 3, 4, 5)]


async def test_a_second_pass_makes_no_second_run(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(10)
    assert (await store.plan(10)).born == 1
    planned = await store.plan(10)
    assert (planned.tasks, planned.born, planned.next_at) == (0, 0, at(20))
    assert await born_at(store, task) == [10]


async def test_racing_planners_make_one_run_for_each_slot(store: Store, another_node: Node, clock: ManualClock):
    nodes = [store, await another_node()]
    tasks = [await store.create_task(job(f"t{number}", schedule=every(10))) for number in range(20)]
    clock.advance(30)
    passes = await asyncio.gather(*(node.plan(7) for node in nodes * 4))
    while (planned := await store.plan(100)).tasks:
        passes.append(planned)
    assert sum(planned.born for planned in passes) == 60
    for task in tasks:
        assert await born_at(store, task) == [10, 20, 30]


async def test_a_pass_takes_no_more_than_its_limit(store: Store, clock: ManualClock):
    for number in range(5):
        await store.create_task(job(f"t{number}", schedule=every(10)))
    clock.advance(10)
    assert [(await store.plan(2)).tasks for _ in range(4)] == [2, 2, 1, 0]


async def test_a_task_that_is_far_behind_holds_up_no_other(store: Store, clock: ManualClock):
    behind = await store.create_task(job("behind", schedule=every(1), misfire_policy=MisfirePolicy.FIRE_NOW))
    others = [await store.create_task(job(f"t{number}", schedule=every(3_600))) for number in range(3)]
    clock.advance(3_600)
    assert [(await store.plan(1)).tasks for _ in range(4)] == [1, 1, 1, 1], "one turn each, however many slots it has"
    assert [await born_at(store, task) for task in others] == [[3_600]] * 3
    assert len(await born_at(store, behind)) == 100


async def test_a_pass_says_when_the_next_cursor_is_due(store: Store, clock: ManualClock):
    assert (await store.plan(10)).next_at is None
    await store.create_task(job("late", schedule=every(60)))
    await store.create_task(job("early", schedule=every(25)))
    planned = await store.plan(10)
    assert (planned.tasks, planned.next_at) == (0, at(25))
    clock.advance(25)
    assert (await store.plan(10)).next_at == at(50)


async def test_a_pass_with_nothing_due_writes_nothing(store: Store, clock: ManualClock):
    await store.create_task(job(schedule=every(10)))
    before = await newest(store)
    clock.advance(9.999)
    planned = await store.plan(10)
    assert (planned.now, planned.tasks, planned.queues) == (at(9.999), 0, ())
    assert await news(store, before) == []


async def test_a_slot_and_a_backfill_of_the_same_moment_live_side_by_side(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await publish(store, task, origin=Origin.BACKFILL, scheduled_time=at(10))
    clock.advance(10)
    assert (await store.plan(10)).born == 1
    await publish(store, task, origin=Origin.BACKFILL, scheduled_time=at(10))
    assert await born_at(store, task) == [10, 10, 10]


async def test_each_queue_that_got_something_is_named_once(store: Store, clock: ManualClock):
    for number, queue in enumerate(("a", "b", "a")):
        await store.create_task(job(f"t{number}", schedule=every(10), queue=queue))
    clock.advance(10)
    assert sorted((await store.plan(10)).queues) == ["a", "b"]


# ---- bounds, repeat, once, jitter


async def test_start_at_and_end_at_are_inclusive(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), start_at=at(20), end_at=at(40)))
    assert task.next_fire_at == at(20)
    clock.advance(20)
    await store.plan(10)
    assert await born_at(store, task) == [20]
    clock.advance(1000)
    await store.plan(10)
    assert await born_at(store, task) == [20, 30, 40]
    task = await reread(store, task)
    assert (task.status, task.next_fire_at) == (TaskStatus.COMPLETED, None)


async def test_a_schedule_without_a_further_slot_turns_its_task_completed_with_its_last_one(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job(schedule=every(10, repeat=2)))
    clock.advance(10)
    await store.plan(10)
    assert (await reread(store, task)).status is TaskStatus.ENABLED
    clock.advance(10)
    await store.plan(10)
    task = await reread(store, task)
    assert (task.status, task.next_fire_at, task.fired) == (TaskStatus.COMPLETED, None, 2)
    clock.advance(1000)
    await store.plan(10)
    assert await born_at(store, task) == [10, 20]


async def test_dropped_slots_use_up_repeats(store: Store, clock: ManualClock):
    spec = job(schedule=every(10, repeat=3), misfire_policy=MisfirePolicy.SKIP)
    task = await store.create_task(spec)
    clock.advance(1000)
    await store.plan(10)
    assert await runs_of(store, task) == []
    assert sum(left.count for left in await dropped(store, task)) == 3
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_the_last_slot_of_a_repeat_is_the_newest_there_is(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=3), misfire_policy=MisfirePolicy.SKIP))
    clock.advance(37)
    await store.plan(10)
    assert await born_at(store, task) == [30]


@pytest.mark.parametrize("moment", [None, "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"], ids=["null", "now", "past"])
async def test_once_now_or_in_the_past_runs_at_once(store: Store, moment: str | None):
    task = await store.create_task(job(schedule=once(moment)))
    await store.plan(10)
    (run,) = await runs_of(store, task)
    assert run.status is S.SCHEDULED
    assert (await reread(store, task)).status is TaskStatus.COMPLETED
    assert (await claim_one(store)).run_id == run.id


@pytest.mark.parametrize(("age", "born"), [(10, [60]), (11, [])])
async def test_once_that_would_rather_not_run_late_is_a_recorded_misfire(
    store: Store, clock: ManualClock, age: int, born: list[int]
):
    task = await store.create_task(job(schedule=once("2026-01-01T10:01:00Z", run_if_late=False)))
    clock.advance(60 + age)
    await store.plan(10)
    assert await born_at(store, task) == born
    assert [(left.first, left.count, left.reason) for left in await dropped(store, task)] == (
        [] if born else [(at(60), 1, DropReason.MISFIRE)]
    )
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_once_that_is_born_late_and_would_rather_not_run_is_a_recorded_misfire(store: Store):
    task = await store.create_task(job(schedule=once("2026-01-01T09:00:00Z", run_if_late=False)))
    await store.plan(10)
    assert await runs_of(store, task) == []
    assert [(left.count, left.reason) for left in await dropped(store, task)] == [(1, DropReason.MISFIRE)]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_once_ignores_the_misfire_policy(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=once("2026-01-01T10:01:00Z"), misfire_policy=MisfirePolicy.SKIP))
    clock.advance(10_000)
    await store.plan(10)
    assert await born_at(store, task) == [60]


async def test_jitter_moves_run_at_and_nothing_else(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60), jitter_seconds=30))
    offsets = []
    for number in range(1, 9):
        clock.set(at(60 * number))
        planned = await store.plan(10)
        assert (planned.born, planned.next_at) == (1, at(60 * (number + 1)))
        run = (await runs_of(store, task))[-1]
        assert run.scheduled_time == at(60 * number)
        offset = run.run_at - run.scheduled_time
        assert 0 <= offset <= 30 * SECOND
        offsets.append(offset)
        clock.set(Instant(run.run_at - 1))
        if offset > 0:
            assert await claim_due(store) == []
        clock.advance(0.000_001)
        (lease,) = await claim_due(store)
        await done(store, finish(lease))
    assert len(set(offsets)) > 1


async def test_jitter_does_not_make_a_slot_late(store: Store, clock: ManualClock):
    spec = job(schedule=every(60), jitter_seconds=50, misfire_policy=MisfirePolicy.SKIP, misfire_grace_seconds=10)
    task = await store.create_task(spec)
    clock.advance(70)
    await store.plan(10)
    assert await born_at(store, task) == [60]


# ---- fixed delay


async def test_a_fixed_delay_names_no_slot_while_its_run_is_not_final(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    assert task.next_fire_at == at(10)
    clock.advance(10)
    await store.plan(10)
    task = await reread(store, task)
    assert (task.status, task.next_fire_at) == (TaskStatus.ENABLED, None)
    clock.advance(1000)
    assert (await store.plan(10)).tasks == 0
    lease = await claim_one(store)
    clock.advance(7)
    await done(store, finish(lease))
    assert (await reread(store, task)).next_fire_at == at(1027)
    clock.advance(10)
    await store.plan(10)
    assert await born_at(store, task) == [10, 1027]


@pytest.mark.parametrize("status", [S.FAILED, S.TIMEOUT])
async def test_a_fixed_delay_goes_on_after_a_failure(store: Store, clock: ManualClock, status: S):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(12)
    await store.plan(10)
    await done(store, finish(await claim_one(store), status))
    assert (await reread(store, task)).next_fire_at == at(22)


async def test_retries_and_losses_belong_to_the_run_of_a_fixed_delay(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(10)
    await store.plan(10)
    await done(store, retry(await claim_one(store), delay=5))
    assert (await reread(store, task)).next_fire_at is None
    clock.advance(5)
    (lease,) = await claim_due(store)
    clock.advance(60)
    await done(store, lose(lease))
    assert (await reread(store, task)).next_fire_at is None
    await done(store, park(await claim_one(store)))
    assert (await reread(store, task)).next_fire_at is None


async def test_canceling_the_run_of_a_fixed_delay_moves_it_on(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(10)
    await store.plan(10)
    clock.advance(3)
    await store.cancel([(await runs_of(store, task))[0].id])
    assert (await reread(store, task)).next_fire_at == at(23)


async def test_a_skip_of_a_fixed_delay_sets_the_slot_plus_the_step(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    await store.skip_next(task.id, 1)
    clock.advance(14)
    await store.plan(10)
    assert await skips(store, task) == [(10, SkipReason.OPERATOR)]
    assert (await reread(store, task)).next_fire_at == at(20)


async def test_triggers_do_not_move_a_fixed_delay(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(5)
    await finished(store, task, origin=Origin.TRIGGER)
    assert (await reread(store, task)).next_fire_at == at(10)
    clock.advance(5)
    await store.plan(10)
    scheduled = await claim_one(store)
    await trigger(store, task)
    triggered = await claim_one(store)
    clock.advance(1)
    await done(store, finish(triggered))
    assert (await reread(store, task)).next_fire_at is None
    clock.advance(1)
    await done(store, finish(scheduled))
    assert (await reread(store, task)).next_fire_at == at(22)


async def test_the_misfire_policy_of_a_fixed_delay_is_fire_once(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10), misfire_policy=MisfirePolicy.SKIP))
    clock.advance(10_000)
    await store.plan(10)
    assert await born_at(store, task) == [10]


async def test_a_fixed_delay_with_repeat_ends_completed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10, repeat=2)))
    for _ in range(2):
        clock.advance(10)
        await store.plan(10)
        await done(store, finish(await claim_one(store)))
    clock.advance(100)
    await store.plan(10)
    task = await reread(store, task)
    assert (task.status, task.next_fire_at) == (TaskStatus.COMPLETED, None)
    assert await born_at(store, task) == [10, 20]


async def test_a_fixed_delay_of_a_disabled_task_stays_off_when_its_run_ends(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.advance(10)
    await store.plan(10)
    lease = await claim_one(store)
    await disable(store, task)
    await done(store, finish(lease))
    clock.advance(100)
    assert (await store.plan(10)).tasks == 0
    assert (await reread(store, task)).status is TaskStatus.DISABLED
    await enable(store, task)
    clock.advance(10)
    assert (await store.plan(10)).born == 1


async def test_a_gated_fixed_delay_goes_round(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=after_each(10)))
    for _ in range(3):
        clock.advance(10)
        await store.plan(10)
        await done(store, fail(await claim_one(store)))
    assert await born_at(store, task) == [10, 20, 30]
    await started(store, task)


async def test_with_skip_what_is_due_is_dropped_whatever_the_policy(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    delayed = await store.create_task(job("delayed", schedule=after_each(1)))
    clock.advance(5)
    planned = await store.plan(10, skip=True)
    assert (planned.dropped, planned.born) == (5, 1)
    assert await born_at(store, task) == []
    assert [(gone.count, gone.reason) for gone in await dropped(store, task)] == [(5, DropReason.MISFIRE)]
    assert await born_at(store, delayed) == [1]
    clock.advance(1)
    await store.plan(10)
    assert await born_at(store, task) == [6]


async def test_a_cursor_that_was_set_back_makes_no_second_run_of_a_slot(store: Store, clock: ManualClock):
    """As after a restore of part of the tables: the slot has its run, though the cursor says otherwise."""
    task = await store.create_task(job("set back", schedule=every(1)))
    other = await store.create_task(job("other", schedule=every(1)))
    clock.set(at(3))
    await store.plan(10)
    before = await runs_of(store, task)
    await execute(store, "update cursors set next_fire_at = :slot where task_id = :task", slot=at(2), task=task.id)
    clock.set(at(4))
    planned = await store.plan(10)
    assert (planned.tasks, planned.born) == (2, 2)
    assert [run.id for run in await runs_of(store, task)][: len(before)] == [run.id for run in before]
    assert await born_at(store, task) == await born_at(store, other) == [1, 2, 3, 4]
    assert (await reread(store, task)).next_fire_at == at(5)


async def test_the_store_itself_refuses_a_second_run_of_a_slot(store: Store, clock: ManualClock):
    """The last line of defence, whatever the code above it believes."""
    task = await store.create_task(job(schedule=every(1)))
    clock.set(at(1))
    await store.plan(10)
    (run,) = await runs_of(store, task)
    with pytest.raises(Conflict):
        await execute(
            store,
            "insert into runs (id, task_id, task_version, origin, status, slot, scheduled_time, run_at, created_at,"
            " updated_at, queue, priority, attempt, retry_count, lost_count) values (:id, :task, 1, 'schedule', 'SUCCESS',"
            " :slot, :slot, :slot, :slot, :slot, 'default', 0, 0, 0, 0)",
            id=run.id + 1_000_000,
            task=task.id,
            slot=at(1),
        )
    assert await runs_of(store, task) == [run]
