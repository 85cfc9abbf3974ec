"""The sweep: what time has run out on comes back, by the policy of its task."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    ask,
    asynchronous,
    at,
    claim_one,
    details_of,
    done,
    every,
    http,
    job,
    newest,
    news,
    park,
    publish,
    reread,
    run_of,
    started,
    trigger,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.engine.in_flight import StopReason
from noonbell.engine.sweeper import Sweeper, decide
from noonbell.model.request import ExpiredRun, TaskChange
from noonbell.model.rollup import MINUTE
from noonbell.model.run import Precondition, RunId, RunStatus
from noonbell.model.task import Delivery, OnLost, RetryPolicy, TaskId, TaskPause, TaskStatus
from noonbell.model.worker import WorkerInfo
from noonbell.ports import PLAN
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody, Patient, Scripted, spin, worker_on

S = RunStatus
ON_TIMEOUT = RetryPolicy(max_retries=1, initial_delay=5, retry_on=("timeout", "callback_timeout"))


@pytest.fixture
def sweeper(store: MemoryStore, wakeup: LocalWakeup) -> Sweeper:
    return Sweeper(store, wakeup)


async def test_a_lost_run_goes_to_another_worker(store: MemoryStore, clock: ManualClock, sweeper, wakeup):
    lease = await started(store, await store.create_task(job()))
    clock.advance(15)
    await sweeper.tick()
    run = await run_of(store, lease.run_id)
    assert (run.status, run.lost_count) == (S.SCHEDULED, 1)
    assert await wakeup.wait(["queue:default"], 0)
    await worker_on(store, Scripted(), worker_id="w2").run_until_idle()
    run = await run_of(store, lease.run_id)
    assert (run.status, run.worker_id, run.attempt) == (S.SUCCESS, "w2", 2)


async def test_a_lease_that_is_held_is_left_alone(store: MemoryStore, clock: ManualClock, sweeper):
    lease = await started(store, await store.create_task(job()))
    clock.advance(14.9)
    await sweeper.tick()
    assert (await run_of(store, lease.run_id)).status is S.RUNNING


async def test_a_run_that_kills_its_workers_is_given_up(store: MemoryStore, clock: ManualClock, sweeper):
    run_id = await publish(store, await store.create_task(job(max_lost=2)))
    for _ in range(3):
        await claim_one(store)
        clock.advance(16)
        await sweeper.tick()
    run = await run_of(store, run_id)
    assert (run.status, details_of(run), run.attempt) == (S.FAILED, {"kind": "lost"}, 3)


async def test_on_lost_fail_ends_the_run(store: MemoryStore, clock: ManualClock, sweeper):
    lease = await started(store, await store.create_task(job(on_lost=OnLost.FAIL)))
    clock.advance(16)
    await sweeper.tick()
    run = await run_of(store, lease.run_id)
    assert (run.status, details_of(run)) == (S.FAILED, {"kind": "lost"})
    assert run.error_message == "worker w1 was lost: its lease expired"


@pytest.mark.parametrize(("begun", "status"), [(False, S.SCHEDULED), (True, S.FAILED)])
async def test_at_most_once_is_sent_again_only_if_it_never_began(
    store: MemoryStore, clock: ManualClock, sweeper, begun, status
):
    lease = await started(store, await store.create_task(job(delivery=Delivery.AT_MOST_ONCE)))
    if begun:
        await store.begin([lease])
    clock.advance(16)
    await sweeper.tick()
    run = await run_of(store, lease.run_id)
    assert run.status is status
    assert (run.error_details or {}).get("kind") == ("unknown" if begun else None)


@pytest.mark.parametrize(("policy", "status"), [(RetryPolicy(), S.TIMEOUT), (ON_TIMEOUT, S.RETRYING)])
async def test_an_attempt_of_a_protocol_worker_ends_at_its_deadline(
    store: MemoryStore, clock: ManualClock, sweeper, policy, status
):
    lease = await started(store, await store.create_task(job(timeout_seconds=3, retry_policy=policy)))
    clock.advance(3)
    await sweeper.tick()
    run = await run_of(store, lease.run_id)
    assert (run.status, details_of(run)) == (status, {"kind": "timeout"})
    assert run.error_message == "it took longer than 3 s"


async def test_a_hanging_attempt_of_a_worker_that_lives_is_a_timeout(store: MemoryStore, clock: ManualClock, sweeper):
    run_id = await trigger(store, await store.create_task(http(timeout_seconds=3)))
    worker = worker_on(store, target := Patient())
    await worker.register()
    await worker.tick()
    await spin()
    clock.advance(3)
    await sweeper.tick()
    assert (await run_of(store, run_id)).status is S.RUNNING  # it may be about to say so itself
    clock.advance(2)
    await worker.beat()
    await sweeper.tick()
    assert (await run_of(store, run_id)).status is S.TIMEOUT
    await worker.beat()
    await spin()
    assert len(target.interrupted) == 1


async def test_a_hanging_attempt_with_a_retry_left_stays_with_its_worker_until_that_is_gone(
    store: MemoryStore, clock: ManualClock, sweeper
):
    run_id = await trigger(store, await store.create_task(http(timeout_seconds=3, retry_policy=ON_TIMEOUT)))
    worker = worker_on(store, Patient())
    await worker.register()
    await worker.tick()
    await spin()
    for _ in range(20):  # its lease has 15 seconds
        clock.advance(2)
        await worker.beat()
        await sweeper.tick()
    assert (await run_of(store, run_id)).status is S.RUNNING, "a retry would overlap with it"
    for _ in range(16):  # kill -9: no heartbeat any more
        clock.advance(1)
        await sweeper.tick()
    run = await run_of(store, run_id)
    assert (run.status, run.lost_count) == (S.SCHEDULED, 1)


async def test_an_attempt_of_a_worker_that_died_is_lost_even_if_its_deadline_passed_first(
    store: MemoryStore, clock: ManualClock, sweeper
):
    run_id = await trigger(store, await store.create_task(http(timeout_seconds=3)))
    worker = worker_on(store, Patient())
    await worker.register()
    await worker.tick()
    await spin()
    for _ in range(14):  # kill -9: no heartbeat any more
        clock.advance(1)
        await sweeper.tick()
        assert (await run_of(store, run_id)).status is S.RUNNING
    clock.advance(1)
    await sweeper.tick()
    run = await run_of(store, run_id)
    assert (run.status, run.lost_count) == (S.SCHEDULED, 1)
    worker.in_flight.interrupt_all(StopReason.LOST)
    await spin()


@pytest.mark.parametrize(("policy", "status"), [(RetryPolicy(), S.FAILED_TIMEOUT), (ON_TIMEOUT, S.RETRYING)])
async def test_a_callback_that_never_comes(store: MemoryStore, clock: ManualClock, sweeper, policy, status):
    task = await store.create_task(asynchronous(callback_timeout_sec=60, retry_policy=policy))
    run_id = await trigger(store, task)
    lease = await claim_one(store)
    await done(store, park(lease, 60))
    clock.advance(59)
    await sweeper.tick()
    assert (await run_of(store, run_id)).status is S.CALLBACK_PENDING
    clock.advance(1)
    await sweeper.tick()
    run = await run_of(store, run_id)
    assert (run.status, details_of(run)) == (status, {"kind": "callback_timeout"})


async def test_a_full_batch_is_followed_by_the_next_at_once(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job())
    for _ in range(5):
        await publish(store, task)
    await store.claim(ask())
    clock.advance(16)
    sweeper = Sweeper(store, wakeup, batch=2)
    assert [await sweeper.tick(), await sweeper.tick()] == [0.0, 0.0]
    assert await sweeper.tick() > 0
    assert await store.overdue(10) == []


async def test_two_sweeps_at_once_count_one_loss(store: MemoryStore, clock: ManualClock, wakeup):
    lease = await started(store, await store.create_task(job()))
    clock.advance(16)
    late = await store.overdue(10)
    await Sweeper(store, wakeup).tick()
    slow = Sweeper(store, wakeup)
    task = await store.task(lease.task_id)
    assert task is not None
    answers = await store.settle([decide(task.spec, late[0], late[0].precondition, 0.5)])
    await slow.tick()
    assert answers == ["lost"]
    assert (await run_of(store, lease.run_id)).lost_count == 1


async def test_workers_long_gone_are_forgotten_now_and_then(store: MemoryStore, clock: ManualClock, wakeup):
    await store.register_worker(WorkerInfo(id="old", incarnation="x"))
    clock.advance(25 * 3600)
    await store.register_worker(WorkerInfo(id="new", incarnation="y"))
    seconds = [0.0]
    moody = Moody(store)
    sweeper = Sweeper(moody, wakeup, upkeep=100, monotonic=lambda: seconds[0])  # type: ignore[arg-type]
    await sweeper.tick()
    assert "recount" not in moody.calls
    seconds[0] = 101
    await sweeper.tick()
    assert [worker.id for worker in await store.workers()] == ["new"]
    assert "recount" in moody.calls


async def test_queues_are_sampled_when_a_minute_of_the_store_begins(store: MemoryStore, clock: ManualClock, wakeup):
    clock.advance(60 - clock.now() // SECOND % 60)
    began, passed = clock.now(), 0.0
    sweeper = Sweeper(store, wakeup, monotonic=lambda: passed)
    for _ in range(9):  # 20 seconds apart: 0, 20, 40, 60, …
        await sweeper.tick()
        clock.advance(20)
        passed += 20
    taken = await store.queue_depths("default", began, clock.now(), MINUTE)
    assert [(each.at - began) // SECOND for each in taken] == [0, 60, 120]
    assert [each.samples for each in taken] == [1, 1, 1]


def test_the_sweep_speaks_only_for_what_is_overdue():
    one = ExpiredRun(
        run_id=RunId(1),
        task_id=TaskId(1),
        token=1,
        precondition=Precondition.HELD,
        attempt=1,
        retry_count=0,
        lost_count=0,
        worker_id=None,
        begun=False,
    )
    with pytest.raises(ValueError, match="held"):
        decide(job(), one, Precondition.HELD, 0.5)


async def test_runs_that_no_worker_could_take_are_told_of_once(store: MemoryStore, clock: ManualClock, wakeup):
    passed = 0.0
    sweeper = Sweeper(store, wakeup, monotonic=lambda: passed, look=5.0, grace=5.0)
    task = await store.create_task(job())
    await publish(store, task)
    before = await newest(store)
    clock.advance(10)
    for passed in (1.0, 6.0, 7.0, 12.0):  # noqa: B007 - the sweeper's clock
        await sweeper.tick()
    told = [event for event in await news(store, before) if event.type == "task.no_worker"]
    assert [event.task_id for event in told] == [task.id]


async def test_the_look_for_workers_comes_every_few_seconds_and_no_more(store: MemoryStore, wakeup):
    moody, passed = Moody(store), 0.0
    sweeper = Sweeper(moody, wakeup, monotonic=lambda: passed, look=5.0)
    for passed in range(100):  # noqa: B007 - the sweeper's clock
        await sweeper.tick()
    assert 18 <= moody.calls.count("unserved") <= 20


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
async def test_the_sweep_looks_about_twice_a_second(store: MemoryStore, wakeup: LocalWakeup, draw: float):
    """A lost run waits for it: what it waits at most is part of how quickly others take over."""
    pause = await Sweeper(store, wakeup, draw=lambda: draw).tick()
    assert 0.3 <= pause <= 0.7
    assert await Sweeper(store, wakeup, poll=2.0, draw=lambda: draw).tick() == 4 * pause


async def test_a_sweep_that_found_a_full_batch_looks_again_at_once(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job())
    for _ in range(2):
        await started(store, task)
    clock.advance(60)
    sweeper = Sweeper(store, wakeup, batch=1)
    assert [await sweeper.tick(), await sweeper.tick()] == [0.0, 0.0]
    assert await sweeper.tick() > 0


async def test_a_task_whose_pause_ends_is_resumed_and_the_planner_is_woken(
    store: MemoryStore, clock: ManualClock, sweeper, wakeup
):
    task = await store.create_task(job(schedule=every(10)))
    pause = TaskPause(until=at(60), at=at(0))
    await store.change_task(task.id, lambda now: TaskChange(spec=now.spec, status=TaskStatus.DISABLED, pause=pause))
    elsewhere = Sweeper(store, wakeup, sign=None)
    clock.advance(60)
    await elsewhere.tick()
    assert (await reread(store, task)).status is TaskStatus.DISABLED, "a node that does not plan leaves it to others"
    await sweeper.tick()
    assert (await reread(store, task)).status is TaskStatus.ENABLED
    assert await wakeup.wait([PLAN], 0)


async def test_a_full_batch_of_ended_pauses_asks_for_the_next_at_once(store: MemoryStore, clock: ManualClock, wakeup):
    for number in range(3):
        task = await store.create_task(job(f"t{number}"))
        pause = TaskPause(until=at(1), at=at(0))
        await store.change_task(
            task.id,
            lambda now, pause=pause: TaskChange(spec=now.spec, status=TaskStatus.DISABLED, pause=pause),
        )
    clock.advance(1)
    sweeper = Sweeper(store, wakeup, batch=2)
    assert await sweeper.tick() == 0
    assert await sweeper.tick() > 0
