"""Cancel: at once, from any status that is not final."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    every,
    finish,
    finished,
    http,
    job,
    lose,
    lost,
    newest,
    news,
    park,
    publish,
    publish_many,
    retry,
    run_of,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.failure_text import TEXTS
from noonbell.model.request import Canceled
from noonbell.model.run import RunId
from noonbell.model.task import OverlapAction
from noonbell.ports import Store


@pytest.mark.parametrize("status", ["due", "delayed", "gated", "RUNNING", "RETRYING", "CALLBACK_PENDING"])
async def test_any_status_that_is_not_final_is_canceled_at_once(store: Store, clock: ManualClock, status: str):
    task = await store.create_task(asynchronous(max_concurrency=1) if status == "gated" else job())
    if status == "gated":
        holder = await started(store, task)
        run_id = await publish(store, task)
    elif status in ("due", "delayed"):
        run_id = await publish(store, task, delay_seconds=60 if status == "delayed" else 0)
    else:
        lease = await started(store, task)
        run_id = lease.run_id
        if status == "RETRYING":
            await done(store, retry(lease, delay=60))
        elif status == "CALLBACK_PENDING":
            await done(store, park(lease))
    clock.advance(1)
    assert await store.cancel([run_id], by="ann", reason="not needed") == [Canceled(run_id, S.CANCELED, True)]
    run = await run_of(store, run_id)
    assert (run.status, run.final_status, run.end_time) == (S.CANCELED, "CANCELED", at(1))
    assert run.lease_expires_at is None
    if status == "gated":
        await done(store, finish(holder))
    clock.advance(1000)
    assert await claim_due(store) == []


@pytest.mark.parametrize(
    ("status", "how"),
    [
        *((status, "cancel") for status in ("RUNNING", "RETRYING", "CALLBACK_PENDING", "lost")),
        *((status, "delete") for status in ("RUNNING", "RETRYING", "CALLBACK_PENDING", "lost")),
        *((status, "CANCEL_PREV") for status in ("RUNNING", "RETRYING", "CALLBACK_PENDING")),
    ],
)
async def test_a_canceled_run_keeps_when_it_started(store: Store, clock: ManualClock, status: str, how: str):
    task = await store.create_task(job(schedule=every(60), overlap_action=OverlapAction.CANCEL_PREV))
    clock.advance(60)
    await store.plan(10)
    lease = await claim_one(store)
    match status:
        case "RETRYING":
            await done(store, retry(lease, delay=600))
        case "CALLBACK_PENDING":
            await done(store, park(lease))
        case "lost":
            clock.advance(15)
            await done(store, lose(lease))
    match how:
        case "cancel":
            await store.cancel([lease.run_id])
        case "delete":
            await store.delete_task(task.id, cancel_running=True)
        case "CANCEL_PREV":
            clock.advance(60)
            await store.plan(10)
    run = await run_of(store, lease.run_id)
    assert (run.status, run.start_time) == (S.CANCELED, at(60))
    code = {"cancel": "canceled", "delete": "canceled_deleted", "CANCEL_PREV": "canceled_replaced"}[how]
    assert run.error_message == TEXTS[code], "by which its reason is told in other languages"
    assert await store.overdue(10) == []


async def test_a_final_run_stays_as_it_is_and_is_answered_with_its_status(store: Store):
    task = await store.create_task(job())
    for status in (S.SUCCESS, S.FAILED, S.TIMEOUT):
        run_id = await finished(store, task, status)
        before = await run_of(store, run_id)
        assert await store.cancel([run_id]) == [Canceled(run_id, status, False)]
        assert await run_of(store, run_id) == before


async def test_a_second_cancel_changes_nothing(store: Store, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job()))
    start = await newest(store)
    await store.cancel([run_id])
    before, seq = await run_of(store, run_id), await newest(store)
    clock.advance(1)
    assert await store.cancel([run_id]) == [Canceled(run_id, S.CANCELED, False)]
    assert await run_of(store, run_id) == before
    first = {event.type for event in await news(store, start) if event.seq <= seq}
    assert not first & {event.type for event in await news(store, seq)}


async def test_unknown_ids_are_left_out(store: Store):
    run_id = await publish(store, await store.create_task(job()))
    answers = await store.cancel([RunId(4711), run_id, RunId(4712)])
    assert answers == [Canceled(run_id, S.CANCELED, True)]
    assert await store.cancel([]) == []


async def test_many_runs_are_canceled_in_one_call(store: Store):
    task = await store.create_task(job())
    gated = await store.create_task(http(max_concurrency=2))
    run_ids = await publish_many(store, task, 100) + await publish_many(store, gated, 100)
    leases = await claim(store, count=50)
    await done(store, finish(leases[0]))
    answers = {answer.run_id: answer for answer in await store.cancel(run_ids)}
    assert set(answers) == set(run_ids)
    assert sum(answer.canceled for answer in answers.values()) == 199
    assert answers[leases[0].run_id] == Canceled(leases[0].run_id, S.SUCCESS, False)
    assert await claim(store) == []


async def test_the_token_is_void_from_then_on(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(asynchronous()))
    await store.cancel([lease.run_id])
    for move in (finish(lease), retry(lease), park(lease)):
        await lost(store, move)
    assert await store.log(lease.run_id, lease.token, [("info", "late")]) is False
    assert await store.progress(lease.run_id, lease.token, {"current": 1}) is False
    assert await store.extend(lease.run_id, lease.token, 60) is False
    assert await store.begin([lease]) == set()
    assert await status_of(store, lease.run_id) is S.CANCELED


async def test_the_place_is_free_from_then_on(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    lease = await started(store, task)
    waiting = await publish(store, task)
    await store.cancel([lease.run_id])
    assert claimed_ids(await claim(store)) == [waiting]
    await lost(store, finish(lease))
    await publish(store, task)
    assert await claim(store) == []


async def test_canceling_one_that_waits_lets_the_next_one_go(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    first, second = await publish_many(store, task, 2)
    await store.cancel([first])
    assert (await claim_one(store)).run_id == second


async def test_the_attempt_of_a_canceled_run_is_recorded_as_canceled(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    clock.advance(2)
    await store.cancel([lease.run_id])
    (attempt,) = await store.attempts(lease.run_id)
    assert (attempt.attempt, attempt.status, attempt.start_time, attempt.end_time) == (1, "CANCELED", at(0), at(2))


async def test_who_canceled_and_why_is_written_down(store: Store):
    run_id = await publish(store, await store.create_task(job()))
    before = await newest(store)
    await store.cancel([run_id], by="ann", reason="not needed")
    run = await run_of(store, run_id)
    (event,) = [event for event in await news(store, before) if event.run_id == run_id]
    written = f"{run.error_message} {run.error_details} {event.data}"
    assert "ann" in written
    assert "not needed" in written
