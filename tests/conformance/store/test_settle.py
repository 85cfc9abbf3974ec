"""Settle: how an attempt ends, and who may say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    ask,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    edit,
    fail,
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
    release,
    reread,
    retry,
    run_of,
    settle,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.account import PendingCallbacks
from noonbell.model.run import Lease, Precondition, RunBodies, RunId, Settlement, SettleResult, Transition
from noonbell.model.task import OnExhausted, RateLimit, Task, TaskStatus
from noonbell.ports import Store

# ---- each move


async def test_finish_writes_the_end_and_all_that_came_with_it(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    clock.advance(1.25)
    details = {"kind": "http_5xx", "deep": {"list": [1, None]}}
    await done(
        store,
        finish(
            lease,
            S.FAILED,
            response_code=503,
            result={"rows": [1, 2]},
            error_message="kaputt 🔔",
            error_details=details,
        ),
    )
    run = await run_of(store, lease.run_id)
    assert (run.status, run.final_status, run.end_time, run.start_time) == (S.FAILED, "FAILED", at(1.25), at(0))
    assert (run.response_code, run.result, run.error_message) == (503, {"rows": [1, 2]}, "kaputt 🔔")
    assert (run.error_details, run.duration_ms, run.updated_at) == (details, 1250, at(1.25))
    assert (run.worker_id, run.lease_expires_at, run.attempt) == ("w1", None, 1)
    assert (run.retry_count, run.lost_count) == (0, 0)


async def test_a_result_may_be_any_json(store: Store):
    task = await store.create_task(job())
    for result in (None, 0, "", "text", [], {}, {"deep": [{"x": None}]}, False):
        lease = await started(store, task)
        await done(store, finish(lease, result=result))
        assert (await run_of(store, lease.run_id)).result == result


async def test_long_texts_are_kept_whole(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    text = "long — " * 20_000
    await done(store, fail(lease, error_message=text, error_details={"trace": text}, result={"text": text}))
    run = await run_of(store, lease.run_id)
    assert (run.error_message, run.error_details, run.result) == (text, {"trace": text}, {"text": text})


async def test_retry_waits_for_its_time_and_counts_one_retry(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    clock.advance(1)
    await done(store, retry(lease, delay=7.5))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.next_retry_time, run.final_status) == (S.RETRYING, at(8.5), None)
    assert (run.attempt, run.retry_count, run.lost_count, run.end_time) == (1, 1, 0, None)
    assert run.lease_expires_at is None
    clock.set(at(8.499))
    assert await claim_due(store) == []
    assert (await store.promote(10)).next_at == at(8.5)
    clock.set(at(8.5))
    (again,) = await claim_due(store, "w2")
    assert (again.run_id, again.attempt, again.retry_count, again.lost_count) == (lease.run_id, 2, 1, 0)
    run = await run_of(store, lease.run_id)
    assert (run.status, run.worker_id, run.start_time) == (S.RUNNING, "w2", at(8.5))


async def test_a_retry_that_is_promoted_is_retrying_until_it_is_claimed(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    await done(store, retry(lease, delay=1))
    clock.advance(1)
    await store.promote(10)
    assert await status_of(store, lease.run_id) is S.RETRYING


async def test_a_retry_without_delay_is_due_at_once(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    await done(store, retry(lease, delay=0))
    (again,) = await claim_due(store)
    assert again.attempt == 2


async def test_park_waits_for_the_callback_until_its_deadline(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    clock.advance(1)
    await done(store, park(lease, delay=30, response_code=202))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.callback_deadline, run.end_time) == (S.CALLBACK_PENDING, at(31), None)
    assert (run.attempt, run.retry_count, run.lease_expires_at) == (1, 0, None)
    assert run.response_code == 202
    clock.advance(1000)
    assert await claim_due(store) == []


async def test_callbacks_that_are_waited_for_are_counted_with_the_next_deadline(store: Store, clock: ManualClock):
    assert await store.pending_callbacks() == PendingCallbacks()
    for number, delay in enumerate((10, 30, 60)):
        task = await store.create_task(asynchronous(f"t{number}"))
        await done(store, park(await started(store, task), delay=delay))
    await started(store, await store.create_task(job("executes")))
    assert await store.pending_callbacks() == PendingCallbacks(count=3, overdue=0, next_deadline=at(10))
    clock.advance(11)
    assert await store.pending_callbacks() == PendingCallbacks(count=3, overdue=1, next_deadline=at(30))
    clock.advance(100)
    assert await store.pending_callbacks() == PendingCallbacks(count=3, overdue=3)


async def test_release_takes_the_attempt_back(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    await done(store, release(lease))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.lost_count) == (S.SCHEDULED, 0, 0, 0)
    assert (run.worker_id, run.start_time, run.lease_expires_at) == (None, None, None)
    assert await store.attempts(lease.run_id) == []
    again = await claim_one(store, "w2")
    assert (again.run_id, again.attempt) == (lease.run_id, 1)


async def test_release_after_the_clock_was_set_back_is_due_at_once(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    clock.set(at(-5))
    await done(store, release(lease))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.next_retry_time) == (S.SCHEDULED, 0, None)
    assert (await claim_one(store)).run_id == lease.run_id


async def test_lose_counts_an_attempt_and_a_loss_but_no_retry(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=1000))
    lease = await started(store, task)
    clock.advance(1.5)
    await done(store, lose(lease, worker_id=None))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.lost_count) == (S.SCHEDULED, 1, 0, 1)
    again = await claim_one(store, "w2")
    assert (again.run_id, again.attempt, again.retry_count, again.lost_count) == (lease.run_id, 2, 0, 1)


async def test_a_lost_run_keeps_its_turn(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    clock.advance(60)
    younger = await publish(store, task)
    await done(store, lose(lease))
    assert claimed_ids(await claim(store)) == [lease.run_id, younger]


async def test_a_run_remembers_the_version_that_its_attempt_used(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    await edit(store, task, description="new")
    lease = await claim_one(store)
    assert lease.task_version == 2
    await done(store, finish(lease))
    assert (await run_of(store, run_id)).task_version == 2


# ---- fencing


async def unchanged(store: Store, refused: Settlement) -> None:
    """The settlement is LOST, nothing of the run changes, and the refusal is recorded."""
    before = await run_of(store, refused.run_id)
    attempts = await store.attempts(refused.run_id)
    seq = await newest(store)
    await lost(store, refused)
    assert await run_of(store, refused.run_id) == before
    assert await store.attempts(refused.run_id) == attempts
    assert [event for event in await news(store, seq) if event.run_id == refused.run_id]


MOVES: list[Callable[[Lease], Settlement]] = [finish, fail, retry, park, release]


@pytest.mark.parametrize("move", MOVES)
async def test_a_lost_lease_cannot_settle(store: Store, clock: ManualClock, move: Callable[[Lease], Settlement]):
    task = await store.create_task(http())
    old = await started(store, task)
    clock.advance(60)
    await done(store, lose(old))
    await unchanged(store, move(old))
    current = await claim_one(store, "w2")
    await unchanged(store, move(old))
    await done(store, finish(current))
    await unchanged(store, move(old))


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "limited"])
async def test_the_same_worker_with_an_old_token_cannot_settle(store: Store, limit: int | None):
    """The token alone tells the two apart: neither the run nor the worker does."""
    task = await store.create_task(job(max_concurrency=limit))
    old = await started(store, task)
    await done(store, release(old))
    current = await claim_one(store)
    await unchanged(store, finish(old))
    await done(store, finish(current))


async def test_another_worker_cannot_settle(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    await unchanged(store, finish(lease, worker_id="w2"))
    await done(store, finish(lease, worker_id=None))


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_token_that_was_never_given_cannot_settle(store: Store, change: int):
    task = await store.create_task(job())
    lease = await started(store, task)
    await unchanged(store, finish(lease, token=lease.token + change))


@pytest.mark.parametrize("move", MOVES)
async def test_repeating_a_settlement_is_lost(store: Store, move: Callable[[Lease], Settlement]):
    task = await store.create_task(http())
    lease = await started(store, task)
    await done(store, move(lease))
    await unchanged(store, move(lease))


async def test_final_is_final(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    await done(store, finish(lease, result=1))
    for move in MOVES:
        await unchanged(store, move(lease))
    (canceled,) = await store.cancel([lease.run_id])
    assert (canceled.status, canceled.canceled) == (S.SUCCESS, False)


async def test_settling_an_unknown_run_is_lost(store: Store):
    lease = await started(store, await store.create_task(job()))
    assert await settle(store, finish(lease, run_id=RunId(4711))) is SettleResult.LOST


async def test_settling_a_run_that_was_never_claimed_is_lost(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    for token in (0, 1):
        for move in (Transition.FINISH, Transition.RETRY, Transition.RELEASE):
            one = Settlement(run_id=run_id, token=token, transition=move, status=S.SUCCESS)
            assert await settle(store, one) is SettleResult.LOST
    assert await status_of(store, run_id) is S.SCHEDULED


async def test_of_two_that_settle_at_once_one_is_heard(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    task = await store.create_task(http())
    lease = await started(store, task)
    answers = await asyncio.gather(
        *(settle(nodes[n % 2], finish(lease, S.SUCCESS if n % 2 else S.FAILED)) for n in range(6))
    )
    assert sorted(answers) == [SettleResult.DONE] + [SettleResult.LOST] * 5
    winner = answers.index(SettleResult.DONE)
    assert await status_of(store, lease.run_id) is (S.SUCCESS if winner % 2 else S.FAILED)


async def test_cancel_and_result_at_once_have_one_winner(store: Store):
    task = await store.create_task(http())
    for _ in range(5):
        lease = await started(store, task)
        settled, (canceled,) = await asyncio.gather(settle(store, finish(lease)), store.cancel([lease.run_id]))
        assert canceled.canceled is (settled is SettleResult.LOST)
        assert await status_of(store, lease.run_id) is (S.CANCELED if canceled.canceled else S.SUCCESS)


# ---- what is expected


async def test_a_result_after_the_lease_ran_out_is_heard_while_nobody_took_it_away(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    clock.advance(60)
    await done(store, finish(lease))


async def test_expired_holds_only_once_the_lease_has_run_out(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=10_000))
    lease = await started(store, task)
    clock.set(at(9.999))
    await unchanged(store, lose(lease))
    await store.heartbeat("w1", [(lease.run_id, lease.token)])
    clock.set(at(15))
    await unchanged(store, lose(lease))
    clock.set(at(20))
    await done(store, lose(lease))


async def test_expired_may_end_the_run_as_well(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=10_000))
    lease = await started(store, task)
    await unchanged(store, fail(lease, precondition=Precondition.EXPIRED))
    clock.advance(11)
    await done(store, fail(lease, precondition=Precondition.EXPIRED, worker_id=None, error_details={"kind": "lost"}))
    assert (await run_of(store, lease.run_id)).error_details == {"kind": "lost"}


async def test_overtime_holds_only_past_the_deadline(store: Store, clock: ManualClock):
    task = await store.create_task(job(timeout_seconds=10))
    lease = await started(store, task)
    clock.set(at(9.999))
    await unchanged(store, finish(lease, S.TIMEOUT, precondition=Precondition.OVERTIME))
    assert await store.extend(lease.run_id, lease.token, 20)
    clock.set(at(20))
    await unchanged(store, finish(lease, S.TIMEOUT, precondition=Precondition.OVERTIME))
    clock.set(at(30))
    await done(store, finish(lease, S.TIMEOUT, precondition=Precondition.OVERTIME, worker_id=None))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.final_status) == (S.TIMEOUT, "FAILED")


async def test_overtime_may_be_retried(store: Store, clock: ManualClock):
    task = await store.create_task(job(timeout_seconds=10))
    lease = await started(store, task)
    clock.set(at(10.5))
    await done(store, retry(lease, status=S.TIMEOUT, precondition=Precondition.OVERTIME))
    assert (await store.attempts(lease.run_id))[0].status == S.TIMEOUT


async def test_unanswered_holds_only_past_the_callbacks_deadline(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    late = finish(lease, S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED, worker_id=None)
    clock.advance(1000)
    await unchanged(store, late)
    await done(store, park(lease, delay=10))
    clock.advance(9)
    await unchanged(store, late)
    assert await store.extend_callback(lease.run_id, 10)
    clock.advance(9)
    await unchanged(store, late)
    clock.advance(1)
    await done(store, late)
    run = await run_of(store, lease.run_id)
    assert (run.status, run.final_status) == (S.FAILED_TIMEOUT, "FAILED")


async def test_unanswered_may_be_retried(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    await done(store, park(lease, delay=10))
    clock.advance(10)
    await done(store, retry(lease, status=S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED, worker_id=None))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.retry_count) == (S.RETRYING, 1)
    assert await store.overdue(10) == []


async def test_a_parked_run_has_no_lease_to_run_out(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    await done(store, park(lease, delay=10_000))
    clock.advance(5000)
    await unchanged(store, lose(lease))
    await unchanged(store, finish(lease, S.TIMEOUT, precondition=Precondition.OVERTIME))


# ---- batches


async def test_answers_come_in_the_order_of_the_requests_and_a_lost_one_disturbs_no_other(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job())
    gated = await store.create_task(http(max_concurrency=9))
    await publish_many(store, task, 3)
    await publish_many(store, gated, 3)
    a, b, c, d, e, f = await claim(store)
    await done(store, finish(b))
    answers = await store.settle(
        [finish(a), finish(b, S.FAILED), fail(c), finish(d, worker_id="w9"), retry(e), finish(f, token=f.token + 1)]
    )
    assert [answer.value for answer in answers] == ["done", "lost", "done", "lost", "done", "lost"]
    statuses = [await status_of(store, lease.run_id) for lease in (a, b, c, d, e, f)]
    assert statuses == [S.SUCCESS, S.SUCCESS, S.FAILED, S.RUNNING, S.RETRYING, S.RUNNING]


@pytest.mark.parametrize("spec", [job(), http()], ids=["plain", "gated"])
async def test_two_settlements_of_one_run_in_a_batch_are_one_done_and_one_lost(store: Store, spec):
    lease = await started(store, await store.create_task(spec))
    answers = await store.settle([finish(lease, S.SUCCESS), finish(lease, S.FAILED)])
    assert answers == [SettleResult.DONE, SettleResult.LOST]
    assert await status_of(store, lease.run_id) is S.SUCCESS


async def test_an_empty_batch_is_answered_with_nothing(store: Store):
    assert await store.settle([]) == []


async def test_a_thousand_in_one_call(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 1000)
    leases = await claim(store, count=1000)
    answers = await store.settle([finish(lease, result=lease.run_id) for lease in leases])
    assert answers == [SettleResult.DONE] * 1000
    assert (await run_of(store, leases[-1].run_id)).result == leases[-1].run_id
    assert (await store.queues()) == [] or (await store.queues())[0].running == 0


async def test_settle_and_claim_does_both(store: Store):
    task = await store.create_task(job())
    run_ids = await publish_many(store, task, 4)
    first = await claim(store, count=2)
    settled, claimed = await store.settle_and_claim([finish(first[0]), finish(first[1], worker_id="w9")], ask(count=5))
    assert settled == [SettleResult.DONE, SettleResult.LOST]
    assert claimed_ids(claimed.leases) == run_ids[2:]
    assert await status_of(store, run_ids[0]) is S.SUCCESS


async def test_settle_and_claim_gives_away_the_places_that_it_freed(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    run_ids = await publish_many(store, task, 4)
    (lease,) = await claim(store)
    for following in run_ids[1:]:
        settled, claimed = await store.settle_and_claim([finish(lease)], ask())
        assert settled == [SettleResult.DONE]
        (lease,) = claimed.leases
        assert lease.run_id == following
    settled, claimed = await store.settle_and_claim([finish(lease)], ask())
    assert (settled, claimed.leases) == ([SettleResult.DONE], [])


async def test_settle_and_claim_says_when_a_rate_lets_go(store: Store):
    task = await store.create_task(job(rate_limit=RateLimit(max=1, per_seconds=10)))
    await publish_many(store, task, 2)
    (lease,) = await claim(store)
    settled, claimed = await store.settle_and_claim([finish(lease)], ask())
    assert (settled, claimed.leases) == ([SettleResult.DONE], [])
    assert claimed.next_at is not None
    assert at(10) <= claimed.next_at <= at(10.001)


async def test_settle_and_claim_of_nothing_is_a_claim(store: Store):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    settled, claimed = await store.settle_and_claim([], ask())
    assert (settled, claimed_ids(claimed.leases)) == ([], [run_id])


# ---- attempts and bodies


async def test_every_attempt_is_recorded_oldest_first_as_it_was_when_it_ended(store: Store, clock: ManualClock):
    task = await store.create_task(job(worker_timeout_ms=10_000))
    run_id = await publish(store, task)
    first = await claim_one(store, "w1")
    assert [(a.attempt, a.status, a.worker_id) for a in await store.attempts(run_id)] == [(1, "RUNNING", "w1")]
    clock.advance(1)
    await done(store, retry(first, response_code=500, error_message="first", error_details={"n": 1}, result=[1]))
    assert [(a.attempt, a.status) for a in await store.attempts(run_id)] == [(1, "FAILED")]
    clock.set(at(10))
    (second,) = await claim_due(store, "w2")
    clock.set(at(30))
    await done(store, lose(second, worker_id=None))
    third = await claim_one(store, "w3")
    assert [a.status for a in await store.attempts(run_id)] == ["FAILED", "LOST", "RUNNING"]
    clock.set(at(31))
    await done(store, finish(third, response_code=200, result={"ok": True}))
    one, two, three = await store.attempts(run_id)
    assert (one.run_id, one.attempt, one.status, one.worker_id) == (run_id, 1, "FAILED", "w1")
    assert (one.start_time, one.end_time, one.response_code) == (at(0), at(1), 500)
    assert (one.error_message, one.error_details, one.result) == ("first", {"n": 1}, [1])
    assert (two.attempt, two.status, two.worker_id) == (2, "LOST", "w2")
    assert (two.start_time, two.end_time) == (at(10), at(30))
    assert (three.attempt, three.status, three.worker_id) == (3, "SUCCESS", "w3")
    assert (three.start_time, three.end_time, three.response_code) == (at(30), at(31), 200)
    assert (three.error_message, three.result) == (None, {"ok": True})
    run = await run_of(store, run_id)
    assert (run.start_time, run.end_time, run.error_message, run.result) == (at(30), at(31), None, {"ok": True})


async def test_a_parked_attempt_is_one_attempt_until_its_callback(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    await done(store, park(lease, response_code=202))
    (attempt,) = await store.attempts(lease.run_id)
    assert (attempt.attempt, attempt.worker_id, attempt.response_code) == (1, "w1", 202)


async def test_attempts_of_an_unknown_run_are_none(store: Store):
    assert await store.attempts(RunId(4711)) == []
    assert await store.bodies(RunId(4711)) is None


async def test_bodies_are_kept_for_each_attempt_and_the_newest_is_the_default(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task)
    one = RunBodies(
        request_headers={"A": "1"}, request_body="q1", response_headers={"B": "2"}, response_body="r1", truncated=True
    )
    two = RunBodies(request_body="q2", response_body="ünïcødé " * 50_000)
    await done(store, retry(lease, delay=0, bodies=one))
    assert await store.bodies(lease.run_id) == one
    (again,) = await claim_due(store)
    await done(store, finish(again, bodies=two))
    assert await store.bodies(lease.run_id) == two
    assert await store.bodies(lease.run_id, 1) == one
    assert await store.bodies(lease.run_id, 2) == two
    assert await store.bodies(lease.run_id, 3) is None


@pytest.mark.parametrize("size", [10, 700_000])
async def test_bodies_of_a_batch_go_to_their_runs(store: Store, size: int):
    """Behind a limit or not, with bodies or not, small ones and those that do not fit into one statement together."""
    tasks = [await store.create_task(spec) for spec in (http("one"), http("two"), http("free", max_concurrency=None))]
    for task in tasks:
        await publish_many(store, task, 2)
    leases = await claim(store)
    assert len(leases) == 4
    kept = [
        None if index == 1 else RunBodies(request_headers={"N": str(index)}, response_body=chr(0x61 + index) * size)
        for index in range(4)
    ]
    ended = [finish(lease, bodies=bodies) for lease, bodies in zip(leases, kept, strict=True)]
    settled, _ = await store.settle_and_claim(ended, ask(count=0))
    assert settled == [SettleResult.DONE] * 4
    assert [await store.bodies(lease.run_id) for lease in leases] == kept
    assert await store.recount() == 0


async def test_a_run_without_bodies_has_none(store: Store):
    assert await store.bodies(await finished(store, await store.create_task(job()))) is None


async def test_a_refused_settlement_leaves_no_bodies(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task)
    await lost(store, finish(lease, worker_id="w9", bodies=RunBodies(response_body="no")))
    assert await store.bodies(lease.run_id) is None


# ---- places


@pytest.mark.parametrize("how", ["finish", "fail", "retry", "release", "lose", "cancel"])
async def test_the_end_of_an_attempt_frees_its_place(store: Store, clock: ManualClock, how: str):
    task = await store.create_task(http(max_concurrency=1))
    lease = await started(store, task)
    waiting = await publish(store, task, priority=5)
    assert await claim(store) == []
    if how == "lose":
        clock.advance(60)
    moves = {"finish": finish, "fail": fail, "retry": retry, "release": release, "lose": lose}
    if how == "cancel":
        await store.cancel([lease.run_id])
    else:
        await done(store, moves[how](lease))
    assert await store.recount() == 0
    assert claimed_ids(await claim(store)) == [waiting]
    assert await claim(store) == []


async def test_a_place_is_freed_once(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    lease = await started(store, task)
    await publish_many(store, task, 3)
    await done(store, finish(lease))
    await lost(store, finish(lease))
    await store.cancel([lease.run_id])
    assert len(await claim(store)) == 1


# ---- the task behind it


@pytest.mark.parametrize("status", [S.FAILED, S.TIMEOUT])
async def test_a_run_that_fails_for_good_puts_its_task_in_error_if_it_says_so(store: Store, status: S):
    task = await store.create_task(http(on_exhausted=OnExhausted.ERROR))
    lease = await started(store, task)
    waiting = await publish(store, task)
    await done(store, finish(lease, status))
    task = await reread(store, task)
    assert task.status is TaskStatus.ERROR
    assert task.version == 2
    assert await status_of(store, waiting) is S.CANCELED


async def test_a_refused_failure_does_not_put_the_task_in_error(store: Store):
    task = await store.create_task(http(on_exhausted=OnExhausted.ERROR))
    lease = await started(store, task)
    await lost(store, fail(lease, worker_id="w9"))
    assert (await reread(store, task)).status is TaskStatus.ENABLED


async def test_the_plain_flag_is_taken_over_from_the_lease(store: Store):
    plain = await started(store, await store.create_task(job()))
    bound = await started(store, await store.create_task(http()))
    assert not bound.plain
    await done(store, msgspec.structs.replace(finish(plain), plain=False))
    await done(store, finish(bound))


@pytest.mark.parametrize("is_counted", [True, False])
async def test_a_lease_behind_a_limit_says_so_and_gives_its_place_back_in_any_case(store: Store, is_counted: bool):
    task = await store.create_task(http())
    followed = await started(store, await store.create_task(http("followed", on_exhausted=OnExhausted.ERROR)))
    first, second = await publish_many(store, task, 2)
    lease = await claim_one(store)
    assert (lease.run_id, lease.plain, lease.counted, followed.counted) == (first, False, True, False)
    failed = msgspec.structs.replace(fail(followed), counted=is_counted)
    ended = [msgspec.structs.replace(finish(lease), counted=is_counted), failed]
    assert await store.settle(ended) == [SettleResult.DONE] * 2
    assert await store.recount() == 0
    assert (await reread_named(store, "followed")).status is TaskStatus.ERROR
    assert claimed_ids(await claim(store)) == [second]


async def reread_named(store: Store, name: str) -> Task:
    found = await store.task_named(name)
    assert found is not None
    return found
