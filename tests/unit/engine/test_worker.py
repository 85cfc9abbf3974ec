"""The worker, from claim to settlement, by single steps."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import time

import pytest

from conformance.store.builders import (
    asynchronous,
    at,
    claim_one,
    details_of,
    edit,
    every,
    http,
    job,
    publish,
    run_of,
    trigger,
)
from noonbell.clock import ManualClock
from noonbell.engine.attempt_runner import extend
from noonbell.engine.in_flight import InFlight, LeaseState, StopReason
from noonbell.engine.planner import Planner
from noonbell.engine.settle import settlement_of
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.errors import AlreadyExists, StoreUnavailable
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Outcome, OutcomeKind, RunStatus
from noonbell.model.task import Delivery, Fanout, RateLimit, RetryPolicy, RetryStrategy
from noonbell.model.worker import WorkerState
from noonbell.ports import PLAN
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import ACCEPTED, DONE, Calling, Moody, Patient, Scripted, broken, everywhere, spin, worker_on

S = RunStatus
FIXED = RetryPolicy(max_retries=2, strategy=RetryStrategy.FIXED, initial_delay=7)


async def test_planners_are_told_of_runs_that_a_claim_puts_aside(store: MemoryStore, wakeup: LocalWakeup):
    """They step aside for less than the time that a planner waits between two looks."""
    keyed = RateLimit(max=1, per_seconds=0.5, key="tenant")
    task = await store.create_task(job(rate_limit=keyed))
    for _ in range(3):
        await publish(store, task, payload={"tenant": "a"})
    planner, worker = Planner(store, wakeup, poll=1000), worker_on(store, Scripted(DONE), wakeup)
    assert await planner.tick() == 1000
    assert not await wakeup.wait([PLAN], 0)
    await worker.run_until_idle()
    assert await wakeup.wait([PLAN], 0)
    assert 0 < await planner.tick() <= 0.51


# ---- outcomes


async def test_a_success_is_settled_with_its_result(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job()))
    await worker_on(store, Scripted(DONE)).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.result, run.attempt, run.worker_id) == (S.SUCCESS, {"rows": 42}, 1, "w1")
    assert run.error_details is None


@pytest.mark.parametrize(
    ("outcome", "status", "kind"),
    [
        (broken("error"), S.FAILED, "error"),
        (broken("http_4xx", response_code=404), S.FAILED, "http_4xx"),
        (broken("timeout"), S.TIMEOUT, "timeout"),
        (broken("canceled"), S.CANCELED, "canceled"),
        (broken("something new"), S.FAILED, "something new"),
    ],
)
async def test_a_failure_for_good_names_its_kind(store: MemoryStore, outcome: Outcome, status: RunStatus, kind: str):
    run_id = await trigger(store, await store.create_task(http()))
    await worker_on(store, Scripted(outcome)).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.error_message) == (status, "it broke")
    assert run.error_details == {"kind": kind}


async def test_details_of_the_target_stay_beside_the_kind(store: MemoryStore):
    run_id = await trigger(store, await store.create_task(http()))
    await worker_on(store, Scripted(broken("tls", error_details={"certificate": "expired"}))).run_until_idle()
    assert (await run_of(store, run_id)).error_details == {"kind": "tls", "certificate": "expired"}


async def test_a_failure_is_retried_after_its_delay_until_the_budget_is_used_up(store: MemoryStore, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job(retry_policy=FIXED)))
    worker = worker_on(store, target := Scripted(broken()))
    for attempt in (1, 2):
        await worker.run_until_idle()
        run = await run_of(store, run_id)
        assert (run.status, run.retry_count, run.next_retry_time) == (S.RETRYING, attempt, at(7 * attempt))
        clock.advance(7)
        await store.promote(10)
    await worker.run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, run.retry_count) == (S.FAILED, 3, 2)
    assert [one.lease.attempt for one in target.seen] == [1, 2, 3]


async def test_an_accepted_call_waits_for_its_callback(store: MemoryStore):
    run_id = await trigger(store, await store.create_task(asynchronous(callback_timeout_sec=60)))
    target = Scripted(ACCEPTED)
    worker = worker_on(store, target, callback_url=lambda token: f"http://here/{token}")
    await worker.run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.callback_deadline, run.response_code) == (S.CALLBACK_PENDING, at(60), 202)
    (assignment,) = target.seen
    assert assignment.callback_url == f"http://here/{assignment.lease.callback_token}"


async def test_a_target_that_raises_fails_its_attempt_and_nothing_else(store: MemoryStore):
    task = await store.create_task(job(retry_policy=RetryPolicy()))
    first, second = await publish(store, task), await publish(store, task)
    worker = worker_on(store, Scripted(RuntimeError("a defect"), DONE), concurrency=1)
    await worker.run_until_idle()
    run = await run_of(store, first)
    assert (run.status, run.error_message) == (S.FAILED, "RuntimeError: a defect")
    assert (await run_of(store, second)).status is S.SUCCESS


async def test_a_handler_that_calls_exit_does_not_take_the_worker_with_it(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job(retry_policy=RetryPolicy())))
    await worker_on(store, Scripted(SystemExit(3))).run_until_idle()
    assert (await run_of(store, run_id)).error_message == "SystemExit: 3"


async def test_a_worker_without_a_target_for_the_task_says_so(store: MemoryStore, wakeup: LocalWakeup):
    run_id = await trigger(store, await store.create_task(http()))
    await Worker(store, wakeup, {}, queues=("http",)).run_until_idle()
    run = await run_of(store, run_id)
    assert run.status is S.FAILED
    assert run.error_message == "this worker has no target for SYNC tasks"


async def test_a_worker_that_is_given_no_id_is_host_process_and_a_part_that_no_other_has(store: MemoryStore):
    ids = {worker_on(store, Scripted(), worker_id="").id for _ in range(20)}
    assert len(ids) == 20, "also in one process"
    assert {each.rpartition("-")[0] for each in ids} == {f"{socket.gethostname()}-{os.getpid()}"}
    assert worker_on(store, Scripted(), worker_id="kept").id == "kept"


async def test_an_outcome_that_cannot_be_stored_fails_its_run_and_lets_the_others_be_settled(store: MemoryStore):
    task = await store.create_task(job())
    first, second = await publish(store, task), await publish(store, task)
    odd = Outcome(kind=OutcomeKind.SUCCESS, result=object())
    await worker_on(store, Scripted(odd, DONE)).run_until_idle()
    run = await run_of(store, first)
    assert (run.status, details_of(run)) == (S.FAILED, {"kind": "error"})
    assert (run.error_message or "").startswith("the outcome could not be stored")
    assert (await run_of(store, second)).status is S.SUCCESS


async def test_a_callback_that_came_first_is_no_error(store: MemoryStore):
    task = await store.create_task(asynchronous())
    run_id = await trigger(store, task)

    async def cancel_meanwhile(_: object) -> None:
        await store.cancel([run_id])

    answers = []
    worker = worker_on(
        store,
        Calling(cancel_meanwhile, ACCEPTED),
        observe=lambda told: answers.extend(answer for *_, answer, _seconds in told),
    )
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.CANCELED
    assert answers == ["lost"]


async def test_an_attempt_that_takes_too_long_is_ended_by_its_deadline(store: MemoryStore):
    run_id = await trigger(store, await store.create_task(http(timeout_seconds=0.01)))
    target = Patient()
    await worker_on(store, target).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, details_of(run)) == (S.TIMEOUT, {"kind": "timeout"})
    assert len(target.interrupted) == 1


async def test_a_target_that_is_given_more_time_extends_the_deadline(store: MemoryStore):
    run_id = await trigger(store, await store.create_task(http(timeout_seconds=0.02)))

    async def take_longer(_: object) -> None:
        extend(10)
        await asyncio.sleep(0.05)

    await worker_on(store, Calling(take_longer)).run_until_idle()
    assert (await run_of(store, run_id)).status is S.SUCCESS


async def test_a_cancel_that_comes_with_the_deadline_is_a_cancel(store: MemoryStore):
    task = await store.create_task(http(timeout_seconds=0.01))
    await trigger(store, task)

    async def hang(_: object) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            worker.in_flight.interrupt(next(iter(worker.in_flight.leases.values())), StopReason.CANCELED)

    worker = worker_on(store, Calling(hang))
    await worker.run_until_idle()
    assert worker.in_flight.leases == {}


# ---- what a target is told


async def test_a_scheduled_run_knows_the_slot_before_it(store: MemoryStore, clock: ManualClock, wakeup: LocalWakeup):
    await store.create_task(job(schedule=every(60)))
    clock.advance(120)
    await Planner(store, wakeup).tick()
    target = Scripted()
    await worker_on(store, target).run_until_idle()
    told = [(one.previous_scheduled_time, one.lease.scheduled_time) for one in target.seen]
    assert told == [(None, at(60)), (at(60), at(120))]


async def test_a_triggered_run_has_no_slot_before_it(store: MemoryStore):
    await trigger(store, await store.create_task(job(schedule=every(60))))
    target = Scripted()
    await worker_on(store, target).run_until_idle()
    assert target.seen[0].previous_scheduled_time is None


async def test_an_edit_is_used_at_the_next_claim(store: MemoryStore):
    task = await store.create_task(job(payload=1))
    target = Scripted()
    worker = worker_on(store, target)
    await publish(store, task)
    await worker.run_until_idle()
    await edit(store, task, payload=2)
    await publish(store, task)
    await worker.run_until_idle()
    assert [(one.task.version, one.lease.payload) for one in target.seen] == [(1, 1), (2, 2)]


# ---- at most once


async def test_at_most_once_is_marked_as_begun_before_the_target_hears_of_it(store: MemoryStore):
    await store.create_task(job("once", delivery=Delivery.AT_MOST_ONCE))
    task = await store.task_named("once")
    assert task is not None
    run_id = await publish(store, task)
    marks = []

    async def look(_: object) -> None:
        marks.extend(await store.fetch("select flags & 128 from live where run_id = :id", id=run_id))

    await worker_on(store, Calling(look)).run_until_idle()
    assert marks == [(128,)]


async def test_at_most_once_is_not_carried_out_if_the_lease_was_lost_before_it_began(
    store: MemoryStore, clock: ManualClock
):
    run_id = await publish(store, await store.create_task(job(delivery=Delivery.AT_MOST_ONCE)))
    target = Scripted()
    moody = Moody(store)
    worker = worker_on(moody, target)  # type: ignore[arg-type]
    await worker.tick()
    await store.cancel([run_id])
    await worker.run_until_idle()
    assert target.seen == []


async def test_a_begun_attempt_that_has_to_stop_is_never_handed_back(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job(delivery=Delivery.AT_MOST_ONCE)))
    worker = worker_on(store, Patient())
    await worker.tick()
    await spin()
    await worker.stop(0)
    run = await run_of(store, run_id)
    assert (run.status, details_of(run)) == (S.FAILED, {"kind": "unknown"})


# ---- local retry


async def test_a_local_retry_keeps_the_lease_and_is_counted(store: MemoryStore):
    policy = RetryPolicy(max_retries=3, local=True, strategy=RetryStrategy.FIXED, initial_delay=0)
    run_id = await publish(store, await store.create_task(job(retry_policy=policy)))
    target = Scripted(broken(), broken(), DONE)
    await worker_on(store, target).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, run.retry_count) == (S.SUCCESS, 3, 2)
    assert [(one.attempt, one.status) for one in await store.attempts(run_id)] == [
        (1, "FAILED"),
        (2, "FAILED"),
        (3, "SUCCESS"),
    ]
    assert [(one.lease.attempt, one.lease.retry_count) for one in target.seen] == [(1, 0), (2, 1), (3, 2)]
    assert len({one.lease.token for one in target.seen}) == 1


async def test_local_retries_use_up_the_budget(store: MemoryStore):
    policy = RetryPolicy(max_retries=2, local=True, strategy=RetryStrategy.FIXED, initial_delay=0)
    run_id = await publish(store, await store.create_task(job(retry_policy=policy)))
    target = Scripted(broken())
    await worker_on(store, target).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, run.retry_count, len(target.seen)) == (S.FAILED, 3, 2, 3)
    assert details_of(run) == {"kind": "error"}


async def test_a_worker_that_stops_between_local_retries_leaves_the_next_one_to_the_store(store: MemoryStore):
    policy = RetryPolicy(max_retries=2, local=True, strategy=RetryStrategy.FIXED, initial_delay=3600)
    run_id = await publish(store, await store.create_task(job(retry_policy=policy)))
    worker = worker_on(store, Scripted(broken()))
    await worker.tick()
    await spin()
    await worker.stop(0)
    run = await run_of(store, run_id)
    assert (run.status, run.retry_count, run.attempt) == (S.RETRYING, 1, 1)


# ---- orders


async def test_a_canceled_run_interrupts_its_handler_at_the_next_heartbeat(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job()))
    target = Patient()
    worker = worker_on(store, target)
    await worker.tick()
    await spin()
    await store.cancel([run_id])
    await worker.beat()
    await spin()
    assert [one.lease.run_id for one in target.interrupted] == [run_id]
    assert worker.in_flight.leases == {}
    assert (await run_of(store, run_id)).status is S.CANCELED


async def test_a_run_that_this_worker_may_not_have_any_longer_is_handed_back(store: MemoryStore):
    task = await store.create_task(job(specific_worker_ids=("w1", "w2")))
    run_id = await publish(store, task)
    target = Patient()
    worker = worker_on(store, target)
    await worker.tick()
    await spin()
    await edit(store, task, specific_worker_ids=("w2",))
    await worker.beat()
    await spin()
    await worker.tick()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, len(target.interrupted)) == (S.SCHEDULED, 0, 1)


async def test_a_lost_lease_stops_its_handler_and_settles_nothing(store: MemoryStore, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job()))
    target = Patient()
    worker = worker_on(store, target)
    await worker.tick()
    await spin()
    clock.advance(16)
    await Sweeper(store, LocalWakeup()).tick()
    other = await claim_one(store, "w2")
    await worker.beat()
    await spin()
    await worker.run_until_idle()
    assert len(target.interrupted) == 1
    run = await run_of(store, run_id)
    assert (run.status, run.worker_id, run.attempt) == (S.RUNNING, "w2", 2)
    assert other.run_id == run_id


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_lease_that_ran_out_while_its_claim_was_answered_is_started_only_if_it_is_still_ours(
    store: MemoryStore, clock: ManualClock, is_lost: bool
):
    run_id = await publish(store, await store.create_task(job(worker_timeout_ms=900)))
    moody = Moody(store)
    worker = worker_on(moody, target := Scripted())  # type: ignore[arg-type]

    async def claim_slowly(request: ClaimRequest) -> Claimed:
        found = await store.claim(request)
        if found.leases:
            time.sleep(0.35)  # noqa: ASYNC251 - a handler of the same worker blocks the loop
            clock.advance(1)
        if found.leases and is_lost:
            await Sweeper(store, LocalWakeup()).tick()
            await claim_one(store, "w2")
        return found

    moody.claim = claim_slowly  # type: ignore[attr-defined]
    await worker.run_until_idle()
    run = await run_of(store, run_id)
    assert (len(target.seen), run.status) == ((0, S.RUNNING) if is_lost else (1, S.SUCCESS))


async def test_heartbeats_keep_leases_alive(store: MemoryStore, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, target := Patient())
    await worker.tick()
    await spin()
    for _ in range(5):
        clock.advance(10)
        assert await worker.beat() == 5.0
    assert (await run_of(store, run_id)).lease_expires_at == at(65)
    assert await store.overdue(10) == []
    target.finish()
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.SUCCESS


async def test_heartbeats_that_fail_and_come_back_within_the_lease_stop_nothing(store: MemoryStore, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job()))
    moody = Moody(store)
    worker = worker_on(moody, target := Patient())  # type: ignore[arg-type]
    await worker.tick()
    await spin()
    moody.away = True
    for _ in range(2):
        clock.advance(5)
        with pytest.raises(StoreUnavailable):
            await worker.beat()
    moody.away = False
    clock.advance(4)
    await worker.beat()
    await spin()
    assert target.interrupted == []
    assert (await run_of(store, run_id)).lease_expires_at == at(29)
    target.finish()
    await worker.run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt) == (S.SUCCESS, 1)


async def test_short_leases_are_renewed_more_often(store: MemoryStore):
    await publish(store, await store.create_task(job(worker_timeout_ms=900, ping_interval_ms=5000)))
    await publish(store, await store.create_task(job("k", worker_timeout_ms=9000, ping_interval_ms=250)))
    worker = worker_on(store, target := Patient())
    await worker.tick()
    await spin()
    assert await worker.beat() == 0.25
    target.finish()
    await worker.run_until_idle()
    assert await worker.beat() == 5.0


async def test_a_lease_that_is_taken_while_a_heartbeat_ends_is_not_left_for_the_pause_after_it(
    store: MemoryStore, monkeypatch
):
    worker = worker_on(store, Scripted())
    await worker.register()
    known = worker.in_flight.ping_seconds

    def ping_seconds(default: float) -> float:
        seconds = known(default)
        worker.heartbeat.expect(0.1)  # by the worker's loop, between two lines of the heart's thread
        return seconds

    monkeypatch.setattr(worker.in_flight, "ping_seconds", ping_seconds)
    assert await worker.beat() == 5.0
    async with asyncio.timeout(60):
        await worker.heartbeat.wait(60)


async def test_a_draining_worker_takes_no_more_and_goes_on_when_it_may(store: MemoryStore):
    task = await store.create_task(job())
    worker = worker_on(store, Scripted())
    await worker.register()
    await store.set_worker("w1", state=WorkerState.DRAINING)
    await worker.beat()
    run_id = await publish(store, task)
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.SCHEDULED
    await store.set_worker("w1", state=WorkerState.RUNNING)
    await worker.beat()
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.SUCCESS


async def test_an_operator_changes_the_concurrency(store: MemoryStore):
    task = await store.create_task(job())
    worker = worker_on(store, target := Patient(), concurrency=1)
    await worker.register()
    for _ in range(5):
        await publish(store, task)
    await worker.tick()
    await spin()
    assert len(target.started) == 1
    await store.set_worker("w1", concurrency=3)
    await worker.beat()
    await worker.tick()
    await spin()
    assert len(target.started) == 3
    await store.set_worker("w1", concurrency=0)
    await worker.beat()
    target.finish()
    await spin()
    await worker.tick()
    assert len(target.started) == 3


async def test_an_operators_stop_is_passed_on(store: MemoryStore):
    worker = worker_on(store, Scripted())
    await worker.register()
    await store.set_worker("w1", state=WorkerState.STOPPING)
    await worker.beat()
    assert worker.stop_wanted.is_set()


async def test_a_worker_that_the_store_has_forgotten_registers_again(store: MemoryStore):
    worker = worker_on(store, Scripted())
    await worker.register()
    await store.remove_worker("w1", worker.incarnation)
    await worker.beat()
    assert [one.id for one in await store.workers()] == ["w1"]


async def test_two_processes_cannot_be_the_same_worker(store: MemoryStore):
    await worker_on(store, Scripted()).register()
    with pytest.raises(AlreadyExists):
        await worker_on(store, Scripted()).start()


# ---- stop


async def test_a_graceful_stop_lets_work_end_and_says_goodbye(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, target := Patient())
    await worker.start()
    await spin(50)
    assert len(target.started) == 1
    stopping = asyncio.create_task(worker.stop(10))
    await spin()
    target.finish()
    await stopping
    assert (await run_of(store, run_id)).status is S.SUCCESS
    assert await store.workers() == []


async def test_a_graceful_stop_hands_back_what_does_not_end_in_time(store: MemoryStore):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, target := Patient())
    await worker.start()
    await spin(50)
    await worker.stop(0)
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, run.lost_count) == (S.SCHEDULED, 0, 0)
    assert len(target.interrupted) == 1


async def test_a_stopping_worker_claims_nothing(store: MemoryStore):
    task = await store.create_task(job())
    await publish(store, task)
    worker = worker_on(store, target := Patient())
    await worker.start()
    await spin(50)
    stopping = asyncio.create_task(worker.stop(10))
    await spin()
    late = await publish(store, task)
    target.finish()
    await stopping
    assert (await run_of(store, late)).status is S.SCHEDULED


# ---- an outage


async def test_outcomes_are_kept_while_the_store_is_away(store: MemoryStore):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    moody = Moody(store)
    worker = worker_on(moody, target := Patient())  # type: ignore[arg-type]
    await worker.tick()
    await spin()
    moody.away = True
    target.finish()
    await spin()
    for _ in range(3):
        with pytest.raises(Exception, match="away"):
            await worker.tick()
    assert len(worker.in_flight.leases) == 1
    moody.away = False
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.SUCCESS
    assert worker.in_flight.leases == {}


# ---- batches


async def test_what_ended_together_is_settled_together_with_the_next_claim(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(30):
        await publish(store, task)
    moody = Moody(store)
    worker = worker_on(moody, target := Patient(), concurrency=20, ahead=0)  # type: ignore[arg-type]
    await worker.tick()
    await spin()
    target.finish()
    await spin()
    moody.calls.clear()
    await worker.tick()
    assert moody.calls == ["settle_and_claim"]
    assert len(worker.in_flight.leases) == 10
    await worker.run_until_idle()


async def test_a_signal_that_comes_while_another_lane_claims_is_not_lost(store: MemoryStore):
    task = await store.create_task(job())
    moody = Moody(store)
    worker = worker_on(moody, Scripted())  # type: ignore[arg-type]
    first, second = worker.claim_loops
    late: list[object] = []

    async def claim_slowly(request):
        found = await store.claim(request)
        if not late:
            late.append(await publish(store, task))
            assert await second.tick() > 0  # woken by the signal, but the first lane has asked for all the room
        return found

    moody.claim = claim_slowly  # type: ignore[attr-defined]
    assert await first.tick() == 0.0
    await first.tick()
    assert len(worker.in_flight.leases) == 1
    await worker.run_until_idle()


async def test_short_runs_are_claimed_ahead_and_long_ones_are_not(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(100):
        await publish(store, task)
    worker = worker_on(store, Scripted(), concurrency=2, ahead=50)
    await worker.tick()
    assert len(worker.in_flight.leases) == 2
    await spin()
    await worker.tick()
    assert len(worker.in_flight.leases) > 10
    await worker.run_until_idle()
    worker.in_flight._note_pace(10)
    assert worker.in_flight.reserve(100) == 2
    worker.in_flight.unreserve(2)


async def test_attempts_that_wait_for_nothing_share_a_task_and_see_no_context_of_each_other(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(200):
        await publish(store, task)
    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)
    seen, tasks = [], set()

    async def note(_: object) -> None:
        seen.append(mark.get())
        tasks.add(asyncio.current_task())
        if len(seen) % 50 == 0:
            mark.set(len(seen))

    await worker_on(store, Calling(note, DONE), concurrency=3, ahead=500).run_until_idle()
    assert seen == [0] * 200
    assert len(tasks) < 100


async def test_attempts_that_wait_for_nothing_and_take_long_let_the_event_loop_have_its_turns(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(20):
        await publish(store, task)
    turns, seen = 0, []

    async def block(_: object) -> None:
        seen.append(turns)
        time.sleep(0.003)  # noqa: ASYNC251 - a handler that computes

    worker = worker_on(store, Calling(block, DONE), concurrency=1, ahead=50)
    worker.in_flight._note_pace(0.0001)
    await worker.tick()
    while worker.in_flight.running:
        turns += 1
        await asyncio.sleep(0)
    assert len(set(seen)) == 20
    await worker.run_until_idle()


async def test_an_order_for_an_attempt_that_has_ended_does_not_stop_the_next_one_in_its_task(store: MemoryStore):
    task = await store.create_task(job())
    ids = [await publish(store, task) for _ in range(3)]
    worker = worker_on(store, target := Patient(), concurrency=1, ahead=5)
    worker.in_flight._note_pace(0.001)
    await worker.tick()
    await spin()
    (first,) = [state for state in worker.in_flight.leases.values() if state.task is not None]
    carrier = first.task
    target.finish()
    # The order comes when the attempt's end is on its way: its task goes on with the next one before the order is obeyed.
    asyncio.get_running_loop().call_soon(lambda: worker.in_flight.interrupt(first, StopReason.CANCELED))
    await spin()
    assert carrier is not None and not carrier.cancelled()  # noqa: PT018
    await worker.run_until_idle()
    found = [(await run_of(store, run_id)).status for run_id in ids[1:]]
    assert found == [S.SUCCESS] * 2


async def test_runs_that_were_handed_back_do_not_count_as_short_ones(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(3):
        await publish(store, task)
    worker = worker_on(store, Scripted(), concurrency=3, ahead=500)
    worker.in_flight._note_pace(10)
    leases = (await store.claim(ClaimRequest(worker_id="w1", queues=("default",), max=3))).leases
    worker.in_flight.add(leases)
    pace = worker.in_flight._pace
    assert len(worker.in_flight.abandon_idle()) == 3
    await spin()
    assert (worker.in_flight.leases, worker.in_flight._pace) == ({}, pace)


async def test_what_was_claimed_ahead_goes_back_if_it_cannot_be_started_soon(store: MemoryStore, monkeypatch):
    monkeypatch.setattr("noonbell.engine.claim_loop.STALE", 0.0)
    task = await store.create_task(job())
    worker = worker_on(store, target := Patient(), concurrency=1, ahead=5)
    worker.in_flight._note_pace(0.001)
    ids = [await publish(store, task) for _ in range(4)]
    await worker.tick()
    await spin()
    assert (worker.in_flight.running, worker.in_flight.waiting) == (1, 3)
    await worker.tick()
    found = [(await run_of(store, run_id)) for run_id in ids]
    assert [(run.status, run.attempt) for run in found] == [(S.RUNNING, 1)] + [(S.SCHEDULED, 0)] * 3
    target.finish()
    await worker.run_until_idle()


async def test_a_run_that_waits_for_its_start_is_as_old_as_its_own_claim(store: MemoryStore):
    task = await store.create_task(job())
    for _ in range(3):
        await publish(store, task)
    leases = (await store.claim(ClaimRequest(worker_id="w1", queues=("default",), max=3))).leases
    now, ends = [0.0], asyncio.Semaphore(0)

    async def attempt(_state: LeaseState) -> None:
        await ends.acquire()

    in_flight = InFlight(1, attempt, ahead=5, monotonic=lambda: now[0])
    in_flight.add(leases[:2])
    now[0] = 0.75
    in_flight.add(leases[2:])
    assert (in_flight.waiting, in_flight.hand_back_waiting(1.0)) == (2, 0)
    ends.release()
    await spin()
    now[0] = 1.5  # the first of those that waited has begun
    assert (in_flight.waiting, in_flight.hand_back_waiting(1.0)) == (1, 0)
    now[0] = 1.75
    assert in_flight.hand_back_waiting(1.0) == 1
    ends.release()
    await spin()


async def test_the_same_outcome_gives_the_same_settlement_for_every_kind_of_worker(store: MemoryStore):
    await publish(store, await store.create_task(job()))
    target = Scripted()
    await worker_on(store, target).run_until_idle()
    (assignment,) = target.seen
    settlement = settlement_of(assignment, DONE, 0.5)
    assert (settlement.worker_id, settlement.task_version, settlement.plain) == ("w1", 1, True)
    assert everywhere(target)


async def test_a_worker_that_splits_a_fan_out_wakes_the_others_for_their_parts(store: MemoryStore):
    wakeup = LocalWakeup()
    heard = asyncio.create_task(wakeup.wait(("queue:default",), 3600))
    await spin()
    await publish(store, await store.create_task(job(fanout=Fanout(workers=2))))
    await worker_on(store, Scripted(DONE), wakeup=wakeup).tick()
    assert await asyncio.wait_for(heard, 60)


@pytest.mark.parametrize(("reason", "status"), [(StopReason.STOPPED, S.SCHEDULED), (StopReason.LOST, S.RUNNING)])
async def test_a_run_that_is_interrupted_before_its_first_step_leaves_its_place(
    store: MemoryStore, reason: StopReason, status: RunStatus
):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, Patient(), concurrency=1)
    (lease,) = (await store.claim(ClaimRequest(worker_id="w1", queues=("default",), max=1))).leases
    worker.in_flight.add([lease])
    (held,) = worker.in_flight.leases.values()
    worker.in_flight.interrupt(held, reason)
    await spin()
    worker.in_flight.is_open = False
    await worker.tick()
    assert (worker.in_flight.running, worker.in_flight.leases) == (0, {})
    assert (await run_of(store, run_id)).status is status
