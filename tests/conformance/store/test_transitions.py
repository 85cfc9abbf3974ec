"""The table of allowed changes, walked: each one can be made through the port, and every other is refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    claim,
    claim_one,
    done,
    every,
    finish,
    job,
    lost,
    newest,
    news,
    park,
    publish,
    release,
    retry,
    run_of,
    runs_of,
    settlement,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.errors import NoonbellError
from noonbell.model.request import IncomingCallback
from noonbell.model.run import (
    BORN,
    FINAL,
    TRANSITIONS,
    Lease,
    Precondition,
    RunId,
    Settlement,
    Transition,
    final_status,
)
from noonbell.model.task import OverlapAction, Task
from noonbell.ports import Store

MOVE_TO = {S.SCHEDULED: Transition.RELEASE, S.RETRYING: Transition.RETRY, S.CALLBACK_PENDING: Transition.PARK}


async def reach(store: Store, clock: ManualClock, task: Task, status: S) -> tuple[RunId, Lease | None]:
    """A run in this status, with the lease of its last attempt."""
    if status is S.SKIPPED:
        return await a_skip(store, clock), None
    run_id = await publish(store, task, expires_in_seconds=60)
    lease = await claim_one(store)
    assert lease.run_id == run_id
    if status is S.SCHEDULED:
        # It waits again after a loss: the one way in which its attempt's callback can still speak.
        await done(store, settlement(lease, Transition.LOSE))
    elif status is S.RUNNING:
        pass
    elif status is S.RETRYING:
        await done(store, retry(lease, delay=3600))
    elif status is S.CALLBACK_PENDING:
        await done(store, park(lease, delay=30))
    elif status is S.CANCELED:
        await store.cancel([run_id])
    elif status is S.CALLBACK_SUCCESS:
        await done_by_callback(store, lease, status)
    elif status is S.FAILED_TIMEOUT:
        await done(store, park(lease, delay=0))
        clock.advance(1)
        await done(store, finish(lease, status, precondition=Precondition.UNANSWERED, worker_id=None))
    else:
        await done(store, finish(lease, status))
    assert await status_of(store, run_id) is status
    return run_id, lease


async def a_skip(store: Store, clock: ManualClock) -> RunId:
    task = await store.create_task(
        job(f"skips at {clock.now()}", queue="skips", schedule=every(1), overlap_action=OverlapAction.SKIP)
    )
    clock.advance(2)
    await store.plan(10)
    skipped = await runs_of(store, task, S.SKIPPED)
    await store.delete_task(task.id)
    return skipped[0].id


async def done_by_callback(store: Store, lease: Lease, status: S) -> None:
    await store.callback(
        IncomingCallback(token=lease.callback_token),
        lambda subject: Settlement(
            run_id=subject.run_id, token=subject.token, transition=Transition.FINISH, status=status
        ),
    )


@contextlib.asynccontextmanager
async def refusals_may_raise() -> AsyncIterator[None]:
    """A forbidden change is refused by LOST, or as an error: what counts is that nothing happens."""
    with contextlib.suppress(NoonbellError, ValueError):
        yield


async def try_to_reach(store: Store, clock: ManualClock, run_id: RunId, lease: Lease | None, frm: S, to: S) -> None:
    """Every way through the port that might lead there."""
    if to is S.CANCELED:
        await store.cancel([run_id])
        return
    if to is S.SKIPPED:
        clock.advance(120)
        await store.expire(100)
    if to is S.RUNNING:
        if frm is S.RETRYING:
            await store.promote_run(run_id)
        await claim(store, "w2")
        return
    if lease is None:
        lease = await a_made_up_lease(store, run_id)
    transition = MOVE_TO.get(to, Transition.FINISH)
    expectations = (Precondition.HELD, Precondition.EXPIRED, Precondition.OVERTIME, Precondition.UNANSWERED)
    for precondition in expectations:
        if precondition is Precondition.EXPIRED:
            clock.advance(3600)
        async with refusals_may_raise():
            status = to if transition is Transition.FINISH else S.FAILED
            await store.settle(
                [settlement(lease, transition, status=status, precondition=precondition, worker_id=None)]
            )
        if await status_of(store, run_id) is not frm:
            return
    if lease.callback_token is not None:
        async with refusals_may_raise():
            await store.callback(
                IncomingCallback(token=lease.callback_token),
                lambda subject: Settlement(
                    run_id=subject.run_id,
                    token=subject.token,
                    transition=transition,
                    status=to if transition is Transition.FINISH else S.FAILED,
                ),
            )


async def a_made_up_lease(store: Store, run_id: RunId) -> Lease:
    run = await run_of(store, run_id)
    return Lease(
        run_id=run_id,
        task_id=run.task_id,
        task_version=1,
        worker_id="w1",
        token=0,
        attempt=1,
        retry_count=0,
        lost_count=0,
        queue=run.queue,
        priority=0,
        origin=run.origin,
        scheduled_time=run.scheduled_time,
        claimed_at=run.created_at,
        expires_at=run.created_at,
        deadline_at=run.created_at,
    )


@pytest.mark.parametrize("frm", list(S), ids=str)
async def test_each_allowed_change_can_be_made_and_each_forbidden_one_is_refused(
    store: Store, clock: ManualClock, frm: S
):
    task = await store.create_task(asynchronous(max_concurrency=None))
    for to in S:
        if to is frm:
            continue
        run_id, lease = await reach(store, clock, task, frm)
        if (frm, to) == (S.SCHEDULED, S.SKIPPED):  # only one that was never claimed: see test_expiry
            run_id, lease = await publish(store, task, expires_in_seconds=60), None
        await try_to_reach(store, clock, run_id, lease, frm, to)
        reached = await status_of(store, run_id)
        assert reached is (to if to in TRANSITIONS[frm] else frm), f"{frm} → {to}: {reached}"
        await store.cancel([run_id])
        assert await store.recount() == 0


@pytest.mark.parametrize("status", sorted(FINAL))
async def test_a_final_run_says_so_and_has_an_end(store: Store, clock: ManualClock, status: S):
    task = await store.create_task(asynchronous())
    run_id, _ = await reach(store, clock, task, status)
    run = await run_of(store, run_id)
    assert run.end_time is not None
    assert run.final_status == final_status(status)


async def test_a_run_is_born_scheduled_or_skipped(store: Store, clock: ManualClock):
    assert set(BORN) == {S.SCHEDULED, S.SKIPPED}
    task = await store.create_task(job())
    run_id = await publish(store, task)
    assert await status_of(store, run_id) is S.SCHEDULED
    assert await status_of(store, await a_skip(store, clock)) is S.SKIPPED


@pytest.mark.parametrize(
    ("status", "via"),
    [(S.SUCCESS, S.RUNNING), (S.FAILED, S.RUNNING), (S.SCHEDULED, S.RUNNING), (S.RETRYING, S.CALLBACK_PENDING)],
)
async def test_every_change_of_status_is_told(store: Store, clock: ManualClock, status: S, via: S):
    task = await store.create_task(asynchronous())
    run_id, lease = await reach(store, clock, task, via)
    before = await newest(store)
    await try_to_reach(store, clock, run_id, lease, via, status)
    assert await status_of(store, run_id) is status
    assert [event for event in await news(store, before) if event.run_id == run_id]


async def test_what_was_handed_back_can_be_handed_back_again(store: Store):
    task = await store.create_task(asynchronous())
    await publish(store, task)
    for _ in range(3):
        lease = await claim_one(store)
        assert lease.attempt == 1
        await done(store, release(lease))
        await lost(store, release(lease))
