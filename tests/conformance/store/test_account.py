"""What the account is read from: the runs of slots, what retention removed, what a run waits for, outages, pauses."""

from __future__ import annotations

import msgspec

from conformance.store.builders import (
    FAR,
    START,
    at,
    claim,
    claim_due,
    claim_one,
    done,
    edit,
    every,
    finish,
    http,
    job,
    park,
    publish,
    publish_many,
    reread,
    retry,
    run_of,
    runs_of,
    started,
    trigger,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.account import Activity, CleanedSlots, ClockStep, Outage, Pause, Wait
from noonbell.model.run import RunId, RunStatus, SkipReason
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Fanout, OverlapAction, RateLimit, Step, TaskId, TaskSpec, TaskStatus
from noonbell.model.worker import Queue, WorkerInfo
from noonbell.ports import Store

S = RunStatus


# ---- versions


async def test_a_version_knows_where_the_account_stood_when_it_began(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=9)))
    clock.set(at(25))
    await edit(store, task, description="new")
    clock.set(at(35))
    await edit(store, task, schedule=every(20, repeat=9))
    versions = await store.task_versions(task.id)
    assert [(one.accounted_to, one.fired) for one in versions] == [(0, 0), (at(20), 2), (at(30), 0)]


# ---- the runs of slots


async def test_slot_runs_are_what_the_slots_became_and_nothing_else(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    other = await store.create_task(job("other", schedule=every(10)))
    await publish(store, task)
    await trigger(store, task)
    for lease in await claim(store):
        await done(store, finish(lease))
    for seconds in (10, 20, 30):
        clock.set(at(seconds))
        await store.plan(10)
    found = await store.slot_runs(task.id, START, FAR)
    assert [(one.slot, one.status, one.skip_reason) for one in found] == [
        (at(10), S.SCHEDULED, None),
        (at(20), S.SKIPPED, SkipReason.OVERLAP),
        (at(30), S.SKIPPED, SkipReason.OVERLAP),
    ]
    assert [one.created_at for one in found] == [at(10), at(20), at(30)]
    assert [one.end_time for one in found] == [None, at(20), at(30)]
    assert [one.run_id for one in found] == [run.id for run in await runs_of(store, task) if run.origin == "schedule"]
    assert len(await store.slot_runs(other.id, START, FAR)) == 3


async def test_slot_runs_of_a_stretch_include_both_of_its_ends(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(50))
    await store.plan(10)
    assert [one.slot for one in await store.slot_runs(task.id, at(20), at(40))] == [at(20), at(30), at(40)]
    assert [one.slot for one in await store.slot_runs(task.id, at(20), at(40), 2)] == [at(20), at(30)]
    assert await store.slot_runs(task.id, at(21), at(29)) == []


async def test_a_slot_run_that_is_under_way_says_so(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(10))
    await store.plan(10)
    await claim_one(store)
    (one,) = await store.slot_runs(task.id, START, FAR)
    assert one.status is S.RUNNING


async def test_a_skip_names_the_run_in_the_way(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    clock.set(at(10))
    await store.plan(10)
    lease = await claim_one(store)
    clock.set(at(20))
    await store.plan(10)
    skip = (await runs_of(store, task, S.SKIPPED))[0]
    assert skip.error_details == {"blocking_run_id": lease.run_id}


# ---- retention


async def test_what_clean_removes_of_the_runs_of_slots_is_counted(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    assert await store.cleaned(task.id) == CleanedSlots()
    await started(store, task)
    for seconds in (10, 20, 30):
        clock.set(at(seconds))
        await store.plan(10)
        await done(store, finish(await claim_one(store)))
    assert await store.clean(at(15), 100) == 1
    assert await store.cleaned(task.id) == CleanedSlots(at(10), 1)
    assert await store.clean(FAR, 1) == 1
    assert await store.clean(FAR, 100) == 1
    assert await store.cleaned(task.id) == CleanedSlots(at(30), 3)


async def test_runs_that_are_no_slots_outcome_are_not_counted(store: Store):
    task = await store.create_task(job())
    await done(store, finish(await started(store, task)))
    assert await store.clean(FAR, 100) == 1
    assert await store.cleaned(task.id) == CleanedSlots()


# ---- what a run waits for


async def test_nothing_is_in_the_way_of_a_run_that_is_due(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    assert await store.wait(run_id) == Wait(run_id=run_id, job_type="work")


async def test_a_run_that_is_under_way_final_or_unknown_waits_for_nothing(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    assert await store.wait(lease.run_id) is None
    await done(store, park(lease))
    assert await store.wait(lease.run_id) is None
    assert await store.wait(RunId(1)) is None


async def test_a_run_waits_for_its_time(store: Store):
    task = await store.create_task(job())
    delayed = await publish(store, task, delay_seconds=30)
    found = await store.wait(delayed)
    assert found is not None
    assert found.until == at(30)
    lease = await started(store, task)
    await done(store, retry(lease, 45))
    found = await store.wait(lease.run_id)
    assert found is not None
    assert found.until == at(45)


async def test_a_run_waits_behind_the_limit_of_its_task(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task)
    waiting = await publish(store, task)
    found = await store.wait(waiting)
    assert found is not None
    assert (found.limit, found.blocking_run_id) == (1, lease.run_id)
    await done(store, finish(lease))
    found = await store.wait(waiting)
    assert found is not None
    assert (found.limit, found.blocking_run_id) == (None, None)


async def test_a_run_waits_behind_the_limit_of_its_queue(store: Store):
    task = await store.create_task(job())
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, concurrency=1))
    lease = await started(store, task)
    found = await store.wait(await publish(store, task))
    assert found is not None
    assert (found.limit, found.is_of_queue, found.blocking_run_id) == (1, True, lease.run_id)


async def test_a_step_can_have_the_place_of_its_queue_that_another_run_waits_for(store: Store):
    flow = await store.create_task(
        TaskSpec(
            name="flow", exec_type=ExecType.FLOW, queue="flows", steps=(Step(id="a", job_type="a", queue="default"),)
        )
    )
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, concurrency=1))
    await publish(store, flow)
    assert await claim(store, queues=("flows",)) == []
    lease = await claim_one(store)
    assert lease.step is not None
    found = await store.wait(await publish(store, await store.create_task(job())))
    assert found is not None
    assert (found.limit, found.is_of_queue, found.blocking_run_id) == (1, True, lease.run_id)


async def test_a_run_waits_for_the_rate_of_its_task(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=RateLimit(max=1, per_seconds=60)))
    await started(store, task)
    waiting = await publish(store, task)
    found = await store.wait(waiting)
    assert found is not None
    assert found.rated_until is not None
    assert at(60) <= found.rated_until <= at(61)
    clock.set(at(61))
    found = await store.wait(waiting)
    assert found is not None
    assert found.rated_until is None


async def test_a_run_waits_for_the_workers_that_it_names(store: Store):
    task = await store.create_task(job(min_worker_version=3))
    run_id = await publish(store, task, specific_worker_ids=("w8", "w7"))
    assert await store.wait(run_id) == Wait(run_id=run_id, job_type="work", min_version=3, workers=("w7", "w8"))


# ---- pauses


async def set_paused(store: Store, by: str | None, *, paused: bool) -> None:
    def change(queue: Queue) -> Queue:
        return msgspec.structs.replace(queue, paused=paused)

    await store.set_queue("default", change, by=by)


async def test_a_run_waits_while_its_queue_is_paused_and_knows_by_whom(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    clock.set(at(5))
    await set_paused(store, "ann", paused=True)
    clock.set(at(9))
    await set_paused(store, "bob", paused=True)  # it was already: nothing new
    found = await store.wait(run_id)
    assert found is not None
    assert found.paused == Pause(queue="default", since=at(5), by="ann")
    await set_paused(store, None, paused=False)
    found = await store.wait(run_id)
    assert found is not None
    assert found.paused is None


async def test_the_pauses_of_a_queue_are_kept(store: Store, clock: ManualClock):
    for begin, end in ((10, 20), (30, 40)):
        clock.set(at(begin))
        await set_paused(store, "ann", paused=True)
        clock.set(at(end))
        await set_paused(store, None, paused=False)
    clock.set(at(50))
    await set_paused(store, "bob", paused=True)
    first, second, third = (
        Pause(queue="default", since=at(10), until=at(20), by="ann"),
        Pause(queue="default", since=at(30), until=at(40), by="ann"),
        Pause(queue="default", since=at(50), by="bob"),
    )
    assert await store.pauses("default", START, FAR) == [first, second, third]
    assert await store.pauses("default", at(20), at(30)) == [first, second]
    assert await store.pauses("default", at(60), FAR) == [third]
    assert await store.pauses("other", START, FAR) == []


async def test_a_pause_at_the_moment_of_the_last_one_is_one_pause(store: Store):
    for paused in (True, False, True):
        await set_paused(store, "ann", paused=paused)
    assert await store.pauses("default", START, FAR) == [Pause(queue="default", since=START, by="ann")]


async def test_slots_are_counted_by_stretches_whatever_became_of_them(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    await store.create_task(job("other", schedule=every(20)))
    await trigger(store, task)
    clock.set(at(60))
    await store.plan(10)
    counted = await store.slot_counts(START, at(60), 30)
    assert sum(counted.values()) == 5 + 2
    assert counted == {at(0): 2 + 1, at(30): 3 + 1}
    assert sum((await store.slot_counts(at(60), FAR, 60)).values()) == 2
    assert await store.slot_counts(at(61), FAR, 60) == {}


# ---- outages


async def test_an_outage_is_noted_as_the_time_before_now(store: Store, clock: ManualClock):
    clock.set(at(100))
    noted = await store.note_outage(12.5, "n1", "x" * 2_000)
    assert noted == Outage(since=at(87.5), until=at(100), node="n1", reason="x" * 500)
    await store.note_outage(2, "n2")
    assert await store.outages(at(95), at(97)) == [noted]
    assert [one.node for one in await store.outages(START, FAR)] == ["n1", "n2"]
    assert await store.outages(START, at(80)) == []
    assert await store.outages(Instant(at(100) + 1), FAR) == []


async def test_outages_and_pauses_that_were_over_before_are_forgotten(store: Store, clock: ManualClock):
    clock.set(at(100))
    await store.note_outage(10, "n1")
    await set_paused(store, "ann", paused=True)
    clock.set(at(200))
    await store.note_outage(10, "n1")
    await store.clean_rest(at(150), 100)
    assert [one.until for one in await store.outages(START, FAR)] == [at(200)]
    assert len(await store.pauses("default", START, FAR)) == 1, "it is not over"


async def test_a_step_of_the_clock_is_noted_once_and_found_for_what_it_passed_over(store: Store, clock: ManualClock):
    clock.set(at(100))
    noted = await store.note_clock_step(30.0, "n1")
    assert noted == ClockStep(since=at(70), until=at(100), step=30 * SECOND, node="n1")
    clock.set(at(101))
    assert await store.note_clock_step(30.2, "n2") is None, "another node has seen the same"
    assert await store.clock_steps(at(85), at(85)) == [noted]
    assert await store.clock_steps(START, at(69)) == []
    clock.set(at(60))
    back = await store.note_clock_step(-41.5, "n1")
    assert back == ClockStep(since=at(60), until=at(101.5), step=-41_500_000, node="n1")
    assert await store.clock_steps(START, FAR) == [noted, back]
    told = await store.events(0)
    assert {one.data["seconds"] for one in told if one.type == "store.clock_stepped"} == {30, -41.5}
    await store.clean_rest(at(101), 100)
    assert await store.clock_steps(START, FAR) == [back]


# ---- activity


async def test_the_activity_of_tasks_is_their_newest_run_and_what_is_under_way_and_waiting(
    store: Store, clock: ManualClock
):
    busy, idle = await store.create_task(job("busy")), await store.create_task(job("idle"))
    over = await store.create_task(job("over", queue="over"))
    await publish_many(store, busy, 3)
    clock.set(at(5))
    (lease,) = await claim(store, count=1)
    await publish(store, busy, delay_seconds=60)
    last = (await runs_of(store, busy))[-1]
    ended = await publish(store, over)
    await done(store, finish(await claim_one(store, queues=("over",)), S.FAILED))
    found = await store.activity([busy.id, idle.id, over.id, TaskId(999)])
    assert found == {
        busy.id: Activity(
            last_run_id=last.id,
            last_run_at=last.scheduled_time,
            last_run_status=S.SCHEDULED,
            active_runs=1,
            queued_runs=3,
        ),
        over.id: Activity(last_run_id=ended, last_run_at=at(5), last_run_status=S.FAILED),
    }
    assert lease.task_id == busy.id
    assert await store.activity([]) == {}


async def test_the_activity_counts_no_parts(store: Store):
    await store.register_worker(WorkerInfo(id="w1", incarnation="i"))
    task = await store.create_task(job(fanout=Fanout(workers="all")))
    run_id = await publish(store, task)
    await claim_due(store)
    found = (await store.activity([task.id]))[task.id]
    assert (found.last_run_id, found.last_run_status) == (run_id, S.RUNNING)
    assert (found.active_runs, found.queued_runs) == (1, 0)


# ---- flaws


async def test_a_store_in_use_has_no_flaws(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10)))
    await store.create_task(job(schedule=every(10)))
    clock.set(at(35))
    await store.plan(10)
    leases = await claim(store)
    await done(store, retry(leases[0], 5))
    await store.cancel([leases[1].run_id])
    assert await store.flaws() == []
    await store.delete_task(task.id)
    assert await store.flaws() == []
    assert (await reread(store, task)).status is TaskStatus.ENABLED
    assert (await run_of(store, leases[1].run_id)).status is S.CANCELED
