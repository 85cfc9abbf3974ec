"""Holding a run: heartbeat, extend, begin; and what time has run out on."""

from __future__ import annotations

import contextlib

import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    at,
    claim,
    claim_one,
    done,
    edit,
    fail,
    finish,
    http,
    job,
    lose,
    newest,
    news,
    park,
    publish_many,
    release,
    retry,
    run_of,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.errors import NoonbellError
from noonbell.model.run import Lease, Precondition, RunBodies, RunId
from noonbell.model.task import Delivery
from noonbell.model.worker import LeaseOrder, Order, WorkerInfo, WorkerState
from noonbell.ports import Store


async def beat(store: Store, *leases: Lease, worker: str | None = None) -> list[LeaseOrder]:
    """One heartbeat for these leases, by the worker that has them."""
    worker_id = worker or leases[0].worker_id
    return (await store.heartbeat(worker_id, [(lease.run_id, lease.token) for lease in leases])).orders


async def order(store: Store, lease: Lease, worker: str | None = None) -> Order:
    (one,) = await beat(store, lease, worker=worker)
    assert one.run_id == lease.run_id
    return one.order


# ---- heartbeat


async def test_a_heartbeat_renews_what_is_held(store: Store, clock: ManualClock):
    short = await started(store, await store.create_task(job("short", worker_timeout_ms=5_000)))
    long = await started(store, await store.create_task(http("long", worker_timeout_ms=50_000)))
    clock.advance(4)
    orders = {one.run_id: one for one in await beat(store, short, long)}
    assert [orders[lease.run_id].order for lease in (short, long)] == [Order.CONTINUE] * 2
    assert orders[short.run_id].lease_expires_at == at(9)
    assert orders[long.run_id].lease_expires_at == at(54)
    assert (await run_of(store, short.run_id)).lease_expires_at == at(9)
    assert (await run_of(store, long.run_id)).lease_expires_at == at(54)


async def test_a_heartbeat_does_not_move_the_deadline(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job(timeout_seconds=10)))
    clock.advance(9)
    assert await order(store, lease) is Order.CONTINUE
    clock.advance(1.5)
    assert [(one.run_id, one.precondition) for one in await store.overdue(10)] == [
        (lease.run_id, Precondition.OVERTIME)
    ]


async def test_runs_that_are_not_listed_are_not_renewed(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=5_000))
    listed, left_out = await started(store, task), await started(store, task)
    clock.advance(4)
    await beat(store, listed)
    assert (await run_of(store, left_out.run_id)).lease_expires_at == at(5)
    clock.advance(2)
    assert [one.run_id for one in await store.overdue(10)] == [left_out.run_id]


async def test_a_lease_that_ran_out_but_was_not_taken_is_renewed(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job(worker_timeout_ms=5_000)))
    clock.advance(60)
    assert await order(store, lease) is Order.CONTINUE
    assert await store.overdue(10) == []


async def test_a_lease_of_somebody_else_is_lost(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    old = await started(store, task)
    clock.advance(60)
    await done(store, lose(old))
    assert await order(store, old) is Order.LOST
    current = await claim_one(store, "w2")
    assert await order(store, old) is Order.LOST
    assert await order(store, current, worker="w1") is Order.LOST
    assert (await run_of(store, current.run_id)).lease_expires_at == current.expires_at


@pytest.mark.parametrize("move", [finish, fail, retry, park, release])
async def test_a_run_that_is_settled_is_lost_to_its_heartbeat(store: Store, move):
    lease = await started(store, await store.create_task(http()))
    await done(store, move(lease))
    assert await order(store, lease) is Order.LOST


async def test_an_unknown_run_is_lost(store: Store):
    lease = await started(store, await store.create_task(job()))
    answer = await store.heartbeat("w1", [(RunId(4711), 1), (lease.run_id, lease.token)])
    assert {one.run_id: one.order for one in answer.orders} == {
        RunId(4711): Order.LOST,
        lease.run_id: Order.CONTINUE,
    }


async def test_a_canceled_run_gets_the_order_to_cancel(store: Store):
    lease = await started(store, await store.create_task(http()))
    await store.cancel([lease.run_id])
    assert await order(store, lease) is Order.CANCEL


async def test_a_worker_that_may_not_have_it_any_longer_gets_the_order_to_cancel(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w1", "w2")))
    stays, goes = await started(store, task, "w1"), await started(store, task, "w2")
    await edit(store, task, specific_worker_ids=("w1", "w3"))
    assert await order(store, stays) is Order.CONTINUE
    assert await order(store, goes) is Order.CANCEL


async def test_naming_workers_where_none_were_named_stops_the_others(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    task = await edit(store, task, specific_worker_ids=("w2",))
    assert await order(store, lease) is Order.CANCEL


async def test_a_worker_that_is_named_again_goes_on(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w1",)))
    lease = await started(store, task)
    task = await edit(store, task, specific_worker_ids=("w2",))
    await edit(store, task, specific_worker_ids=())
    assert await order(store, lease) is Order.CONTINUE


async def test_a_new_ping_interval_comes_with_the_next_heartbeat(store: Store):
    task = await store.create_task(job(ping_interval_ms=5_000))
    lease = await started(store, task)
    await edit(store, task, ping_interval_ms=1_234)
    (one,) = await beat(store, lease)
    assert (one.order, one.ping_interval_ms) == (Order.CONTINUE, 1_234)


async def test_a_heartbeat_of_a_former_process_is_told_to_stop_and_keeps_no_worker_alive(
    store: Store, clock: ManualClock
):
    """A process that was taken for lost wakes up, and another has its name by now."""
    await store.register_worker(WorkerInfo(id="w1", incarnation="former", concurrency=10))
    clock.advance(60)
    await store.register_worker(WorkerInfo(id="w1", incarnation="present", concurrency=10))
    clock.advance(5)
    answer = await store.heartbeat("w1", [], incarnation="former")
    assert (answer.state, answer.concurrency) == (WorkerState.STOPPING, 0)
    assert [worker.heartbeat_at for worker in await store.workers()] == [at(60)]
    answer = await store.heartbeat("w1", [], incarnation="present")
    assert (answer.state, answer.concurrency) == (WorkerState.RUNNING, 10)


async def test_a_heartbeat_without_runs_keeps_the_worker_alive(store: Store, clock: ManualClock):
    await store.register_worker(WorkerInfo(id="w1", incarnation="a"))
    clock.advance(3600)
    assert (await store.heartbeat("w1", [], incarnation="a")).orders == []
    (worker,) = await store.workers()
    assert (worker.state, worker.heartbeat_at) == (WorkerState.RUNNING, at(3600))


async def test_a_heartbeat_brings_what_an_operator_wishes(store: Store):
    await store.register_worker(WorkerInfo(id="w1", incarnation="a", concurrency=10))
    answer = await store.heartbeat("w1", [], incarnation="a")
    assert (answer.state, answer.concurrency) == (WorkerState.RUNNING, 10)
    await store.set_worker("w1", state=WorkerState.DRAINING, concurrency=3)
    answer = await store.heartbeat("w1", [], incarnation="a")
    assert (answer.state, answer.concurrency) == (WorkerState.DRAINING, 3)
    await store.set_worker("w1", state=WorkerState.STOPPING)
    answer = await store.heartbeat("w1", [], incarnation="a")
    assert (answer.state, answer.concurrency) == (WorkerState.STOPPING, 3)


async def test_a_worker_that_nobody_registered_may_hold_runs(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()), "stranger")
    clock.advance(1)
    assert await order(store, lease) is Order.CONTINUE


async def test_many_leases_in_one_heartbeat(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish_many(store, task, 500)
    leases = await claim(store, count=500)
    await done(store, finish(leases[0]))
    clock.advance(1)
    orders = await beat(store, *leases)
    assert [one.order for one in orders].count(Order.CONTINUE) == 499
    assert {one.run_id for one in orders} == {lease.run_id for lease in leases}


# ---- extend


async def test_extend_moves_deadline_and_lease(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job(timeout_seconds=10, worker_timeout_ms=5_000)))
    clock.advance(2)
    assert await store.extend(lease.run_id, lease.token, 60) is True
    assert (await run_of(store, lease.run_id)).lease_expires_at == at(62)
    clock.set(at(61))
    assert await store.overdue(10) == []
    clock.set(at(63))
    assert [one.run_id for one in await store.overdue(10)] == [lease.run_id]


# ---- local retries


async def numbers(store: Store, run_id: RunId) -> list[tuple[int, str, float | None]]:
    """Of each attempt: its number, how it ended, and when it started."""
    found = await store.attempts(run_id)
    return [
        (one.attempt, one.status, None if one.start_time is None else (one.start_time - at(0)) / 1e6) for one in found
    ]


async def test_a_local_retry_is_counted_while_the_lease_is_held(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job(timeout_seconds=10, worker_timeout_ms=5_000)))
    since = await newest(store)
    clock.advance(2)
    error = {"error_message": "no", "error_details": {"kind": "error"}, "bodies": RunBodies(response_body="first")}
    assert await store.retry_held(retry(lease, 3, **error), 1, 20) is True
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count) == (S.RUNNING, 2, 1)
    assert (run.start_time, run.next_retry_time, run.lease_expires_at) == (at(5), at(5), at(22))
    assert await numbers(store, lease.run_id) == [(1, "FAILED", 0), (2, "RUNNING", 5)]
    (told,) = [event for event in await news(store, since) if event.type == "run.retrying"]
    assert told.data == {"retry_count": 1, "next_retry_time": at(5), "local": True}
    clock.set(at(7))
    assert await order(store, lease) is Order.CONTINUE
    await done(store, finish(lease, bodies=RunBodies(response_body="second")))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.start_time) == (S.SUCCESS, 2, 1, at(5))
    assert [(await store.bodies(run.id, number)).response_body for number in (1, 2)] == ["first", "second"]
    assert (await store.attempts(run.id))[0].error_message == "no"


async def test_a_local_retry_told_twice_is_counted_once(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    for _ in range(2):
        assert await store.retry_held(retry(lease, 3), 1, 20) is True
    assert await store.retry_held(retry(lease, 3), 2, 20) is True
    run = await run_of(store, lease.run_id)
    assert (run.attempt, run.retry_count) == (3, 2)


async def test_a_local_retry_of_a_lease_that_is_lost_is_refused(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    assert await store.retry_held(retry(lease, token=lease.token + 1), 1, 20) is False
    assert await store.retry_held(retry(lease, worker_id="w2"), 1, 20) is False
    await done(store, finish(lease))
    assert await store.retry_held(retry(lease), 1, 20) is False
    run = await run_of(store, lease.run_id)
    assert (run.attempt, run.retry_count, len(await store.attempts(run.id))) == (1, 0, 1)


async def test_a_worker_that_dies_before_its_local_retry_starts_loses_that_attempt_alone(
    store: Store, clock: ManualClock
):
    lease = await started(store, await store.create_task(job(worker_timeout_ms=5_000)))
    await store.retry_held(retry(lease, 60), 1, 20)
    clock.set(at(21))
    await done(store, lose(lease))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.lost_count) == (S.SCHEDULED, 2, 1, 1)
    assert await numbers(store, run.id) == [(1, "FAILED", 0), (2, "LOST", 21)]
    again = await claim_one(store, "w2")
    assert (again.attempt, again.retry_count) == (3, 1)


async def test_a_run_that_is_handed_back_before_its_local_retry_starts_is_retried_in_time(
    store: Store, clock: ManualClock
):
    lease = await started(store, await store.create_task(job()))
    await store.retry_held(retry(lease, 60), 1, 100)
    clock.advance(10)
    await done(store, release(lease))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.next_retry_time) == (S.RETRYING, 1, 1, at(60))
    await store.promote(10)
    assert await claim(store) == []
    clock.set(at(61))
    await store.promote(10)
    again = await claim_one(store)
    assert (again.attempt, again.retry_count) == (2, 1)
    await done(store, finish(again))
    assert await numbers(store, run.id) == [(1, "FAILED", 0), (2, "SUCCESS", 61)]


async def test_a_run_that_is_canceled_before_its_local_retry_starts_has_no_negative_time(
    store: Store, clock: ManualClock
):
    lease = await started(store, await store.create_task(job()))
    await store.retry_held(retry(lease, 60), 1, 100)
    clock.advance(10)
    await store.cancel([lease.run_id])
    run = await run_of(store, lease.run_id)
    assert (run.status, run.retry_count) == (S.CANCELED, 1)
    assert run.duration_ms is None or run.duration_ms >= 0


async def test_extend_with_a_token_that_is_lost_is_false(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    old = await started(store, task)
    assert await store.extend(old.run_id, old.token + 1, 60) is False
    clock.advance(60)
    await done(store, lose(old))
    assert await store.extend(old.run_id, old.token, 60) is False
    current = await claim_one(store, "w2")
    assert await store.extend(old.run_id, old.token, 600) is False
    assert (await run_of(store, old.run_id)).lease_expires_at == current.expires_at
    await done(store, finish(current))
    assert await store.extend(current.run_id, current.token, 60) is False
    assert await store.extend(RunId(4711), 1, 60) is False


# ---- begin


async def test_begin_returns_those_that_are_still_held(store: Store, clock: ManualClock):
    task = await store.create_task(job(delivery=Delivery.AT_MOST_ONCE))
    held, gone, taken = [await started(store, task) for _ in range(3)]
    await store.cancel([gone.run_id])
    clock.advance(60)
    await done(store, lose(taken))
    await claim_one(store, "w2")
    assert await store.begin([held, gone, taken]) == {held.run_id}
    assert await store.begin([]) == set()


async def test_a_begun_run_is_never_handed_to_another_worker(store: Store, clock: ManualClock):
    task = await store.create_task(job(delivery=Delivery.AT_MOST_ONCE))
    lease = await started(store, task)
    assert await store.begin([lease]) == {lease.run_id}
    clock.advance(3600)
    (one,) = await store.overdue(10)
    assert (one.run_id, one.begun) == (lease.run_id, True)
    for move in (lose(lease), release(lease)):
        with contextlib.suppress(NoonbellError):
            await store.settle([move])
        assert await claim(store, "w2") == []
        assert await status_of(store, lease.run_id) is S.RUNNING
    await done(store, fail(lease, precondition=Precondition.EXPIRED, error_details={"kind": "unknown"}))


async def test_an_at_most_once_run_that_was_not_begun_may_be_handed_on(store: Store, clock: ManualClock):
    task = await store.create_task(job(delivery=Delivery.AT_MOST_ONCE))
    lease = await started(store, task)
    clock.advance(3600)
    (one,) = await store.overdue(10)
    assert one.begun is False
    await done(store, lose(lease))
    again = await claim_one(store, "w2")
    assert again.run_id == lease.run_id
    assert await store.begin([again]) == {lease.run_id}


# ---- overdue


async def test_overdue_tells_what_is_known_of_the_attempt(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=10_000, timeout_seconds=1000))
    lease = await started(store, task)
    clock.set(at(9.999))
    assert await store.overdue(10) == []
    clock.set(at(10.001))
    (one,) = await store.overdue(10)
    assert (one.run_id, one.task_id, one.token, one.precondition) == (
        lease.run_id,
        task.id,
        lease.token,
        Precondition.EXPIRED,
    )
    assert (one.attempt, one.retry_count, one.lost_count, one.worker_id) == (1, 0, 0, "w1")
    assert one.begun is False


async def test_overdue_only_reads(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    clock.advance(60)
    before = await run_of(store, lease.run_id)
    assert await store.overdue(10) == await store.overdue(10) != []
    assert await run_of(store, lease.run_id) == before


async def test_an_attempt_past_its_deadline_is_overtime(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job(worker_timeout_ms=100_000, timeout_seconds=10)))
    clock.set(at(9.999))
    assert await store.overdue(10) == []
    clock.set(at(10.001))
    (one,) = await store.overdue(10)
    assert (one.run_id, one.token, one.precondition) == (lease.run_id, lease.token, Precondition.OVERTIME)


async def test_a_callback_that_never_came_is_unanswered(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, park(lease, delay=30))
    clock.set(at(29.999))
    assert await store.overdue(10) == []
    clock.set(at(30.001))
    (one,) = await store.overdue(10)
    assert (one.run_id, one.precondition) == (lease.run_id, Precondition.UNANSWERED)
    await done(store, finish(lease, S.FAILED_TIMEOUT, precondition=one.precondition, token=one.token, worker_id=None))
    assert await store.overdue(10) == []


async def test_what_overdue_says_can_be_settled_as_it_says(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=1_000, timeout_seconds=5))
    lease = await started(store, task)
    clock.advance(60)
    (one,) = await store.overdue(10)
    await done(store, fail(lease, token=one.token, precondition=one.precondition, worker_id=one.worker_id))
    assert await store.overdue(10) == []


async def test_the_oldest_overdue_comes_first_and_no_more_than_the_limit(store: Store, clock: ManualClock):
    tasks = [
        await store.create_task(job("late", worker_timeout_ms=30_000)),
        await store.create_task(job("early", worker_timeout_ms=10_000)),
        await store.create_task(asynchronous("parked")),
        await store.create_task(job("slow", worker_timeout_ms=90_000, timeout_seconds=15)),
    ]
    leases = [await started(store, task) for task in tasks]
    await done(store, park(leases[2], delay=20))
    clock.advance(60)
    expected = [leases[1].run_id, leases[3].run_id, leases[2].run_id, leases[0].run_id]
    assert [one.run_id for one in await store.overdue(10)] == expected
    assert [one.run_id for one in await store.overdue(2)] == expected[:2]


async def test_runs_that_wait_are_never_overdue(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    await done(store, retry(await started(store, task), delay=1))
    await publish_many(store, task, 2)
    await publish_many(store, task, 2, delay_seconds=5)
    clock.advance(10_000)
    assert await store.overdue(10) == []


async def test_progress_is_told_while_a_callback_is_awaited(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, park(lease))
    assert await store.progress(lease.run_id, lease.token, {"percent": 40})
    assert (await run_of(store, lease.run_id)).progress == {"percent": 40}
    assert not await store.progress(lease.run_id, lease.token - 1, {"percent": 10})
