"""Deciding one slot: overlap, failure, concurrency, in this order, each slot seeing the one before it."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    FAR,
    S,
    asynchronous,
    at,
    born_at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    edit,
    every,
    fail,
    finish,
    http,
    job,
    lost,
    park,
    publish,
    retry,
    run_of,
    runs_of,
    skips,
    started,
    status_of,
    trigger,
)
from noonbell.clock import ManualClock
from noonbell.model.run import Lease, Origin, Precondition, Run, SkipReason
from noonbell.model.task import Circuit, ConcurrencyPolicy, FailureAction, OverlapAction, RetryPolicy, Task
from noonbell.ports import Store


async def next_slot(store: Store, clock: ManualClock, task: Task, seconds: float = 1) -> Run:
    """Let one slot come, and see what became of it."""
    clock.advance(seconds)
    planned = await store.plan(10)
    assert planned.born + planned.skipped == 1
    return (await runs_of(store, task))[-1]


async def next_round(store: Store, clock: ManualClock, task: Task, seconds: float = 1) -> Lease:
    """Let one slot come, become a run, and be claimed."""
    run = await next_slot(store, clock, task, seconds)
    assert run.status is S.SCHEDULED, run
    lease = await claim_one(store)
    assert lease.run_id == run.id
    return lease


def decided(run: Run) -> SkipReason | None:
    """None: it was born to be carried out."""
    assert (run.status is S.SKIPPED) == (run.skip_reason is not None)
    return run.skip_reason


async def test_a_skip_is_a_final_run_that_never_started(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    await next_round(store, clock, task)
    run = await next_slot(store, clock, task, 1.25)
    assert (run.status, run.skip_reason, run.final_status) == (S.SKIPPED, SkipReason.OVERLAP, "SKIPPED")
    assert (run.start_time, run.end_time, run.scheduled_time, run.attempt) == (None, at(2.25), at(2), 0)
    assert run.origin is Origin.SCHEDULE
    assert await claim(store) == []


# ---- overlap


async def test_allow_goes_on(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    for _ in range(3):
        await next_round(store, clock, task)
    assert [run.status for run in await runs_of(store, task)] == [S.RUNNING] * 3


@pytest.mark.parametrize("status", [S.SCHEDULED, S.RUNNING, S.RETRYING, S.CALLBACK_PENDING])
async def test_overlap_skip_skips_while_the_previous_round_is_not_final(store: Store, clock: ManualClock, status: S):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    run = await next_slot(store, clock, task)
    if status is not S.SCHEDULED:
        lease = await claim_one(store)
        if status is S.RETRYING:
            await done(store, retry(lease, delay=60))
        elif status is S.CALLBACK_PENDING:
            await done(store, park(lease))
    assert await status_of(store, run.id) is status
    assert decided(await next_slot(store, clock, task)) is SkipReason.OVERLAP
    assert decided(await next_slot(store, clock, task)) is SkipReason.OVERLAP
    await store.cancel([run.id])
    assert decided(await next_slot(store, clock, task)) is None


async def test_overlap_skip_runs_again_after_success(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    await done(store, finish(await next_round(store, clock, task)))
    assert decided(await next_slot(store, clock, task)) is None


async def test_overlap_skip_minds_triggers_but_not_what_is_delayed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    await trigger(store, task, delay_seconds=3600)
    await done(store, finish(await next_round(store, clock, task)))
    await trigger(store, task)
    assert decided(await next_slot(store, clock, task)) is SkipReason.OVERLAP


async def test_each_slot_of_a_pass_sees_the_one_before_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    clock.advance(3)
    planned = await store.plan(10)
    assert (planned.born, planned.skipped) == (1, 2)
    assert await born_at(store, task) == [1]
    assert await skips(store, task) == [(2, SkipReason.OVERLAP), (3, SkipReason.OVERLAP)]


@pytest.mark.parametrize("origin", [Origin.BACKFILL, Origin.RETRY, Origin.PUBLISH])
async def test_only_runs_born_of_schedule_or_trigger_are_a_previous_round(
    store: Store, clock: ManualClock, origin: Origin
):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    await started(store, task, origin=origin)
    assert decided(await next_slot(store, clock, task)) is None


@pytest.mark.parametrize("status", [S.RUNNING, S.RETRYING, S.CALLBACK_PENDING])
async def test_cancel_prev_cancels_the_previous_round_and_goes_on(store: Store, clock: ManualClock, status: S):
    task = await store.create_task(http(schedule=every(1), overlap_action=OverlapAction.CANCEL_PREV))
    lease = await next_round(store, clock, task)
    if status is S.RETRYING:
        await done(store, retry(lease, delay=60))
    elif status is S.CALLBACK_PENDING:
        await done(store, park(lease))
    clock.advance(1)
    planned = await store.plan(10)
    assert (planned.born, planned.canceled) == (1, (lease.run_id,))
    canceled = await run_of(store, lease.run_id)
    assert (canceled.status, canceled.end_time) == (S.CANCELED, at(2))
    await lost(store, finish(lease))
    assert (await claim_one(store)).scheduled_time == at(2)


async def test_cancel_prev_cancels_every_started_run_and_none_that_waits(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.CANCEL_PREV))
    first = await started(store, task, origin=Origin.TRIGGER)
    second = await started(store, task, origin=Origin.TRIGGER)
    waiting = await trigger(store, task)
    delayed = await trigger(store, task, delay_seconds=60)
    clock.advance(1)
    planned = await store.plan(10)
    assert sorted(planned.canceled) == sorted([first.run_id, second.run_id])
    assert [await status_of(store, run_id) for run_id in (waiting, delayed)] == [S.SCHEDULED] * 2


async def test_making_room_is_not_a_failure(store: Store, clock: ManualClock):
    spec = job(schedule=every(1), overlap_action=OverlapAction.CANCEL_PREV, failure_action=FailureAction.SKIP)
    task = await store.create_task(spec)
    for _ in range(3):
        await next_round(store, clock, task)
    assert [run.status for run in await runs_of(store, task)] == [S.CANCELED, S.CANCELED, S.RUNNING]


async def test_overlap_parallel_passes_the_limit_while_the_previous_round_is_under_way(
    store: Store, clock: ManualClock
):
    task = await store.create_task(http(schedule=every(1), max_concurrency=1, overlap_action=OverlapAction.PARALLEL))
    for _ in range(3):
        await next_round(store, clock, task)
    assert [run.status for run in await runs_of(store, task)] == [S.RUNNING] * 3


async def test_runs_that_passed_by_parallel_count_for_others(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(1), max_concurrency=1, overlap_action=OverlapAction.PARALLEL))
    first = await next_round(store, clock, task)
    second = await next_round(store, clock, task)
    waiting = await trigger(store, task)
    assert await claim(store) == []
    await done(store, finish(first))
    assert await claim(store) == []
    await done(store, finish(second))
    assert claimed_ids(await claim(store)) == [waiting]


# ---- failure


async def test_run_new_starts_from_attempt_1(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    await done(store, fail(await next_round(store, clock, task)))
    assert (await next_round(store, clock, task)).attempt == 1


@pytest.mark.parametrize("status", [S.FAILED, S.TIMEOUT])
async def test_failure_retry_goes_on_counting_with_a_fresh_budget(store: Store, clock: ManualClock, status: S):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.RETRY))
    first = await next_round(store, clock, task)
    await done(store, retry(first, delay=0))
    (again,) = await claim_due(store)
    assert (again.attempt, again.retry_count) == (2, 1)
    await done(store, finish(again, status))
    third = await next_round(store, clock, task)
    assert (third.attempt, third.retry_count) == (3, 0)
    await done(store, finish(third))
    assert (await next_round(store, clock, task)).attempt == 1


@pytest.mark.parametrize("how", ["FAILED", "TIMEOUT", "CANCELED"])
async def test_failure_skip_skips_exactly_one_slot(store: Store, clock: ManualClock, how: str):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    for _ in range(2):
        lease = await next_round(store, clock, task)
        if how == "CANCELED":
            await store.cancel([lease.run_id])
        else:
            await done(store, finish(lease, S(how)))
        assert decided(await next_slot(store, clock, task)) is SkipReason.FAILURE
    await done(store, finish(await next_round(store, clock, task)))
    assert decided(await next_slot(store, clock, task)) is None


async def test_a_skip_between_two_rounds_hides_no_failure(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.RETRY))
    failed = await next_round(store, clock, task)
    await done(store, fail(failed))
    await store.skip_next(task.id, 1)
    assert decided(await next_slot(store, clock, task)) is SkipReason.OPERATOR
    waiting = [await next_slot(store, clock, task) for _ in range(2)]
    assert [run.retry_of_run_id for run in waiting] == [failed.run_id] * 2, "nor does one that waits"
    assert [lease.attempt for lease in await claim_due(store)] == [2, 2]


async def test_a_callback_that_never_came_is_a_failure(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(schedule=every(1), failure_action=FailureAction.SKIP))
    lease = await next_round(store, clock, task)
    await done(store, park(lease, delay=0.5))
    clock.advance(0.75)
    await done(store, finish(lease, S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED, worker_id=None))
    assert decided(await next_slot(store, clock, task, 0.25)) is SkipReason.FAILURE
    assert decided(await next_slot(store, clock, task)) is None


async def test_each_slot_of_a_pass_sees_the_failure_skip_before_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    await done(store, fail(await next_round(store, clock, task)))
    clock.advance(3)
    await store.plan(10)
    assert await skips(store, task) == [(2, SkipReason.FAILURE)]
    assert await born_at(store, task) == [1, 3, 4]


async def test_a_failure_of_another_origin_or_before_it_started_is_none(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    await done(store, fail(await started(store, task, origin=Origin.BACKFILL)))
    await store.cancel([await trigger(store, task)])
    assert decided(await next_slot(store, clock, task)) is None


async def test_a_failed_trigger_is_a_failed_round(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    await done(store, fail(await started(store, task, origin=Origin.TRIGGER)))
    assert decided(await next_slot(store, clock, task)) is SkipReason.FAILURE


async def test_the_highest_id_is_the_previous_round_whatever_ended_last(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    first = await next_round(store, clock, task)
    await done(store, finish(await next_round(store, clock, task)))
    await done(store, fail(first))
    assert decided(await next_slot(store, clock, task)) is None


async def test_backoff_skips_until_the_delay_has_passed_and_doubles(store: Store, clock: ManualClock):
    policy = RetryPolicy(initial_delay=3, max_delay=5)
    spec = job(schedule=every(1), failure_action=FailureAction.BACKOFF, retry_policy=policy)
    task = await store.create_task(spec)
    for pause in (3, 5, 5):
        lease = await next_round(store, clock, task)
        await done(store, fail(lease))
        for _ in range(pause - 1):
            assert decided(await next_slot(store, clock, task)) is SkipReason.BACKOFF
    await done(store, finish(await next_round(store, clock, task)))
    await done(store, fail(await next_round(store, clock, task)))
    assert [decided(await next_slot(store, clock, task)) for _ in range(3)] == [SkipReason.BACKOFF] * 2 + [None]


async def test_the_circuit_opens_after_so_many_failures_and_lets_one_probe_through(store: Store, clock: ManualClock):
    circuit = Circuit(failures=3, cool_down_seconds=5)
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.HALF_OPEN, circuit=circuit))
    for _ in range(3):
        await done(store, fail(await next_round(store, clock, task)))
    for _ in range(4):
        assert decided(await next_slot(store, clock, task)) is SkipReason.CIRCUIT_OPEN
    probe = await next_round(store, clock, task)
    for _ in range(7):
        assert decided(await next_slot(store, clock, task)) is SkipReason.CIRCUIT_OPEN
    await done(store, fail(probe))
    for _ in range(4):
        assert decided(await next_slot(store, clock, task)) is SkipReason.CIRCUIT_OPEN
    await done(store, finish(await next_round(store, clock, task)))
    for _ in range(2):
        await done(store, fail(await next_round(store, clock, task)))
    assert decided(await next_slot(store, clock, task)) is None


async def test_two_failures_and_a_success_leave_the_circuit_closed(store: Store, clock: ManualClock):
    task = await store.create_task(
        job(schedule=every(1), failure_action=FailureAction.HALF_OPEN, circuit=Circuit(failures=3))
    )
    for ending in (fail, fail, finish, fail, fail):
        await done(store, ending(await next_round(store, clock, task)))
    assert decided(await next_slot(store, clock, task)) is None


async def test_a_probe_that_waits_is_the_only_one(store: Store, clock: ManualClock):
    circuit = Circuit(failures=1, cool_down_seconds=2)
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.HALF_OPEN, circuit=circuit))
    await done(store, fail(await next_round(store, clock, task)))
    clock.advance(5)
    await store.plan(10)
    assert await born_at(store, task) == [1, 3]
    assert {reason for _, reason in await skips(store, task)} == {SkipReason.CIRCUIT_OPEN}


async def test_retention_does_not_erase_a_failure(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), failure_action=FailureAction.SKIP))
    await done(store, fail(await next_round(store, clock, task)))
    clock.advance(0.5)
    assert await store.clean(FAR, 100) == 1
    assert decided(await next_slot(store, clock, task, 0.5)) is SkipReason.FAILURE


async def test_a_failure_before_the_policy_asked_for_it_may_be_forgotten_but_never_breaks_a_pass(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job(schedule=every(1)))
    lease = await next_round(store, clock, task)
    task = await edit(store, task, failure_action=FailureAction.SKIP, overlap_action=OverlapAction.SKIP)
    await done(store, fail(lease))
    await next_slot(store, clock, task)
    await next_slot(store, clock, task)


# ---- concurrency


async def test_queue_waits_for_a_place_first_in_first_out(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(1), max_concurrency=1))
    clock.advance(4)
    await store.plan(10)
    order = []
    while leases := await claim(store):
        assert len(leases) == 1
        order.append(leases[0].scheduled_time)
        assert await claim(store) == []
        await done(store, finish(leases[0]))
    assert order == [at(1), at(2), at(3), at(4)]
    assert await skips(store, task) == []


async def test_over_the_queue_depth_a_slot_is_skipped(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(1), max_concurrency=1, queue_depth=2))
    running = await next_round(store, clock, task)
    assert decided(await next_slot(store, clock, task)) is None
    assert decided(await next_slot(store, clock, task)) is None
    assert decided(await next_slot(store, clock, task)) is SkipReason.QUEUE_FULL
    await done(store, finish(running))
    await claim_one(store)
    assert decided(await next_slot(store, clock, task)) is None


async def test_a_queue_depth_of_none_at_all_never_waits(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(1), max_concurrency=1, queue_depth=0))
    running = await next_round(store, clock, task)
    assert decided(await next_slot(store, clock, task)) is SkipReason.QUEUE_FULL
    await done(store, finish(running))
    assert decided(await next_slot(store, clock, task)) is None


@pytest.mark.parametrize("status", [S.SCHEDULED, S.RUNNING, S.CALLBACK_PENDING])
async def test_concurrency_skip_skips_at_the_limit(store: Store, clock: ManualClock, status: S):
    spec = http(schedule=every(1), max_concurrency=2, concurrency_policy=ConcurrencyPolicy.SKIP)
    task = await store.create_task(spec)
    for _ in range(2):
        await next_slot(store, clock, task)
        if status is not S.SCHEDULED:
            lease = await claim_one(store)
            if status is S.CALLBACK_PENDING:
                await done(store, park(lease))
    holder = (await runs_of(store, task))[-1]
    assert holder.status is status
    assert decided(await next_slot(store, clock, task)) is SkipReason.CONCURRENCY
    await store.cancel([holder.id])
    assert decided(await next_slot(store, clock, task)) is None


async def test_a_retrying_run_holds_no_place(store: Store, clock: ManualClock):
    spec = http(schedule=every(1), max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP)
    task = await store.create_task(spec)
    await done(store, retry(await next_round(store, clock, task), delay=60))
    assert decided(await next_slot(store, clock, task)) is None


async def test_concurrency_parallel_goes_past_the_limit_and_counts_for_others(store: Store, clock: ManualClock):
    spec = http(schedule=every(1), max_concurrency=1, concurrency_policy=ConcurrencyPolicy.PARALLEL)
    task = await store.create_task(spec)
    for _ in range(3):
        await next_round(store, clock, task)
    assert [run.status for run in await runs_of(store, task)] == [S.RUNNING] * 3


@pytest.mark.parametrize("policy", list(ConcurrencyPolicy))
@pytest.mark.parametrize("overlap", [OverlapAction.ALLOW, OverlapAction.PARALLEL])
async def test_a_limit_of_0_admits_nothing(
    store: Store, clock: ManualClock, policy: ConcurrencyPolicy, overlap: OverlapAction
):
    spec = http(schedule=every(1), max_concurrency=0, concurrency_policy=policy, overlap_action=overlap)
    task = await store.create_task(spec)
    run = await next_slot(store, clock, task)
    assert await claim(store) == []
    if policy is ConcurrencyPolicy.SKIP:
        assert decided(run) is SkipReason.CONCURRENCY
    if policy is ConcurrencyPolicy.QUEUE:
        assert decided(run) is None


async def test_what_runs_when_the_limit_becomes_0_goes_on_but_nothing_passes_by_parallel(
    store: Store, clock: ManualClock
):
    task = await store.create_task(http(schedule=every(1), overlap_action=OverlapAction.PARALLEL))
    lease = await next_round(store, clock, task)
    await edit(store, task, max_concurrency=0)
    await next_slot(store, clock, task)
    assert await claim(store) == []
    await done(store, finish(lease))
    assert await claim(store) == []


async def test_publishes_and_slots_share_the_places(store: Store, clock: ManualClock):
    spec = http(schedule=every(1), max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP)
    task = await store.create_task(spec)
    await publish(store, task)
    assert decided(await next_slot(store, clock, task)) is SkipReason.CONCURRENCY


async def test_overlap_comes_before_failure_and_failure_before_concurrency(store: Store, clock: ManualClock):
    spec = http(
        schedule=every(1),
        overlap_action=OverlapAction.SKIP,
        failure_action=FailureAction.SKIP,
        max_concurrency=1,
        concurrency_policy=ConcurrencyPolicy.SKIP,
    )
    task = await store.create_task(spec)
    lease = await next_round(store, clock, task)
    assert decided(await next_slot(store, clock, task)) is SkipReason.OVERLAP
    await done(store, fail(lease))
    backfill = await started(store, task, origin=Origin.BACKFILL)
    assert decided(await next_slot(store, clock, task)) is SkipReason.FAILURE
    assert decided(await next_slot(store, clock, task)) is SkipReason.CONCURRENCY
    await done(store, finish(backfill))
    assert decided(await next_slot(store, clock, task)) is None
