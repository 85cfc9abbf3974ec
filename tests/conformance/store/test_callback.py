"""Callbacks: recorded always, heard while the run is not final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
    finish,
    lose,
    lost,
    park,
    publish,
    retry,
    run_of,
    runs_of,
    started,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.event import Callback
from noonbell.model.request import CallbackSubject, IncomingCallback
from noonbell.model.run import Lease, Precondition, RunId, Settlement, Transition
from noonbell.model.task import OnExhausted, TaskId, TaskStatus
from noonbell.ports import Store

Decide = Callable[[CallbackSubject], Settlement | str]


def say(status: S, **more) -> Decide:
    """The callback ends the run."""
    return lambda subject: Settlement(
        run_id=subject.run_id, token=subject.token, transition=Transition.FINISH, status=status, **more
    )


succeed = say(S.CALLBACK_SUCCESS, result={"rows": 3})


async def call(store: Store, lease: Lease, decide: Decide = succeed, body: str = "") -> Callback:
    _, recorded = await store.callback(IncomingCallback(token=lease.callback_token, body=body), decide)
    return recorded


async def parked(store: Store, delay: float = 300, **spec) -> Lease:
    """A run of an ASYNC target that awaits its callback."""
    task = await store.task_named("a") or await store.create_task(asynchronous(max_concurrency=None, **spec))
    lease = await started(store, task)
    await done(store, park(lease, delay=delay))
    return lease


async def test_a_callback_settles_its_run(store: Store, clock: ManualClock):
    lease = await parked(store)
    clock.advance(5)
    seen: list[CallbackSubject] = []

    def decide(subject: CallbackSubject) -> Settlement | str:
        seen.append(subject)
        return succeed(subject)

    arrived = IncomingCallback(token=lease.callback_token, headers={"X-A": "1"}, body='{"status": "SUCCESS"}')
    subject, recorded = await store.callback(arrived, decide)
    assert subject is not None
    assert subject.run_id == lease.run_id
    assert (seen[0].run_id, seen[0].task_id, seen[0].status) == (lease.run_id, lease.task_id, S.CALLBACK_PENDING)
    assert (seen[0].retry_count, seen[0].lost_count) == (0, 0)
    run = await run_of(store, lease.run_id)
    assert (run.status, run.final_status, run.end_time) == (S.CALLBACK_SUCCESS, "SUCCESS", at(5))
    assert run.result == {"rows": 3}
    assert (recorded.run_id, recorded.task_id, recorded.status) == (lease.run_id, lease.task_id, "RECEIVED")
    assert (recorded.received_at, recorded.headers, recorded.body) == (at(5), {"X-A": "1"}, '{"status": "SUCCESS"}')
    assert await store.callbacks(lease.run_id) == [recorded]


async def test_a_callback_may_fail_its_run(store: Store):
    lease = await parked(store)
    await call(store, lease, say(S.FAILED, error_message="the other side broke"))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.error_message) == (S.FAILED, "the other side broke")


async def test_a_callback_may_have_its_run_retried(store: Store, clock: ManualClock):
    lease = await parked(store)
    recorded = await call(
        store,
        lease,
        lambda subject: Settlement(
            run_id=subject.run_id, token=subject.token, transition=Transition.RETRY, status=S.FAILED, delay_seconds=5
        ),
    )
    assert recorded.status == "RECEIVED"
    run = await run_of(store, lease.run_id)
    assert (run.status, run.retry_count, run.next_retry_time) == (S.RETRYING, 1, at(5))
    assert run.callback_deadline is None or run.status is S.RETRYING
    clock.advance(5)
    (again,) = await claim_due(store)
    assert (again.run_id, again.attempt) == (lease.run_id, 2)
    assert again.callback_token not in (None, lease.callback_token)


@pytest.mark.parametrize("end", ["success", "failure", "deadline", "retry", "cancel"])
async def test_the_answer_that_accepted_a_run_stays_however_the_run_ends(store: Store, clock: ManualClock, end: str):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, park(lease, response_code=202))
    match end:
        case "success":
            await call(store, lease)
        case "failure":
            await call(store, lease, say(S.FAILED, error_message="no"))
        case "retry":
            await call(store, lease, lambda _: retry(lease, precondition=Precondition.ANSWERED))
        case "cancel":
            await store.cancel([lease.run_id], by="x")
        case "deadline":
            clock.advance(301)
            await done(store, finish(lease, S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED))
    assert (await run_of(store, lease.run_id)).response_code == 202
    assert (await store.attempts(lease.run_id))[0].response_code == 202


async def test_a_callback_may_come_while_the_run_is_running_still(store: Store):
    task = await store.create_task(asynchronous())
    lease = await started(store, task)
    seen: list[S] = []

    def decide(subject: CallbackSubject) -> Settlement | str:
        seen.append(subject.status)
        return succeed(subject)

    assert (await call(store, lease, decide)).status == "RECEIVED"
    assert seen == [S.RUNNING]
    assert await status_of(store, lease.run_id) is S.CALLBACK_SUCCESS
    await lost(store, park(lease))
    assert await status_of(store, lease.run_id) is S.CALLBACK_SUCCESS


async def test_a_callback_frees_the_place(store: Store):
    task = await store.create_task(asynchronous(max_concurrency=1))
    lease = await started(store, task)
    await done(store, park(lease))
    waiting = await publish(store, task)
    assert await claim(store) == []
    await call(store, lease)
    assert claimed_ids(await claim(store)) == [waiting]


async def test_a_failed_callback_follows_on_exhausted(store: Store):
    lease = await parked(store, on_exhausted=OnExhausted.ERROR)
    await call(store, lease, say(S.FAILED))
    task = await store.task(lease.task_id)
    assert task is not None
    assert task.status is TaskStatus.ERROR


async def test_a_callback_on_a_final_run_is_ignored_whatever_it_says(store: Store, clock: ManualClock):
    lease = await parked(store)
    await call(store, lease, body="first")
    before = await run_of(store, lease.run_id)
    for decide in (say(S.FAILED), succeed):
        clock.advance(1)
        recorded = await call(store, lease, decide, body="again")
        assert (recorded.run_id, recorded.status) == (lease.run_id, "IGNORED")
        assert recorded.reason
    assert await run_of(store, lease.run_id) == before
    assert [one.status for one in await store.callbacks(lease.run_id)] == ["IGNORED", "IGNORED", "RECEIVED"]


@pytest.mark.parametrize("how", ["canceled", "timed out"])
async def test_a_late_callback_is_ignored_and_answered_with_the_run(store: Store, clock: ManualClock, how: str):
    lease = await parked(store, delay=10)
    if how == "canceled":
        await store.cancel([lease.run_id])
    else:
        clock.advance(10)
        await done(store, finish(lease, S.FAILED_TIMEOUT, precondition=Precondition.UNANSWERED, worker_id=None))
    before = await run_of(store, lease.run_id)
    subject, recorded = await store.callback(IncomingCallback(token=lease.callback_token), succeed)
    assert subject is not None
    assert (subject.run_id, subject.status) == (lease.run_id, before.status)
    assert recorded.status == "IGNORED"
    assert await run_of(store, lease.run_id) == before


async def test_a_callback_after_its_deadline_is_heard_while_the_run_is_not_final(store: Store, clock: ManualClock):
    lease = await parked(store, delay=10)
    clock.advance(11)
    assert (await call(store, lease)).status == "RECEIVED"
    assert await store.overdue(10) == []


async def test_decide_may_ignore_a_callback_and_say_why(store: Store):
    lease = await parked(store)
    before = await run_of(store, lease.run_id)
    recorded = await call(store, lease, lambda _: "it makes no sense")
    assert (recorded.status, recorded.reason, recorded.run_id) == ("IGNORED", "it makes no sense", lease.run_id)
    assert await run_of(store, lease.run_id) == before
    assert (await call(store, lease)).status == "RECEIVED"


async def test_a_decision_that_raises_leaves_nothing_behind(store: Store):
    lease = await parked(store)

    def decide(subject: CallbackSubject) -> Settlement | str:
        raise LookupError("bug")

    with pytest.raises(LookupError):
        await call(store, lease, decide)
    assert await status_of(store, lease.run_id) is S.CALLBACK_PENDING
    assert await store.callbacks(lease.run_id) == []
    assert (await call(store, lease)).status == "RECEIVED"


@pytest.mark.parametrize("forgery", ["made up", "empty", "other case", "cut", "padded"])
async def test_a_forged_token_gives_no_subject_and_is_recorded(store: Store, forgery: str):
    lease = await parked(store)
    token = lease.callback_token or ""
    forged = {
        "made up": "x" * len(token),
        "empty": "",
        "other case": token.swapcase(),
        "cut": token[:-1],
        "padded": token + " ",
    }[forgery]
    asked: list[CallbackSubject] = []

    def decide(subject: CallbackSubject) -> Settlement | str:
        asked.append(subject)
        return succeed(subject)

    subject, recorded = await store.callback(IncomingCallback(token=forged, body="evil"), decide)
    assert (subject, asked) == (None, [])
    assert (recorded.run_id, recorded.status, recorded.body) == (None, "IGNORED", "evil")
    assert recorded.reason
    assert await store.callbacks(None) == [recorded]
    assert await store.callbacks(lease.run_id) == []
    assert await status_of(store, lease.run_id) is S.CALLBACK_PENDING


async def test_a_token_speaks_for_its_own_run_only(store: Store):
    one, two = await parked(store), await parked(store)
    await call(store, one)
    assert await status_of(store, one.run_id) is S.CALLBACK_SUCCESS
    assert await status_of(store, two.run_id) is S.CALLBACK_PENDING


async def test_any_attempts_token_speaks_for_the_run(store: Store):
    task = await store.create_task(asynchronous())
    first = await started(store, task)
    await done(store, retry(first, delay=0))
    (second,) = await claim_due(store)
    await done(store, park(second))
    assert (await call(store, first)).status == "RECEIVED"
    assert await status_of(store, first.run_id) is S.CALLBACK_SUCCESS
    assert (await call(store, second)).status == "IGNORED"


async def test_a_callback_may_name_task_and_run(store: Store):
    lease = await parked(store)
    arrived = IncomingCallback(task_id=lease.task_id, run_id=lease.run_id, body="by id")
    subject, recorded = await store.callback(arrived, succeed)
    assert subject is not None
    assert (subject.run_id, recorded.status, recorded.body) == (lease.run_id, "RECEIVED", "by id")
    assert await status_of(store, lease.run_id) is S.CALLBACK_SUCCESS


@pytest.mark.parametrize("wrong", ["task", "run"])
async def test_a_run_that_is_not_the_tasks_gives_no_subject_and_is_recorded(store: Store, wrong: str):
    lease = await parked(store)
    other = await store.create_task(asynchronous("other"))
    arrived = IncomingCallback(
        task_id=other.id if wrong == "task" else lease.task_id,
        run_id=lease.run_id if wrong == "task" else RunId(4711),
    )
    subject, recorded = await store.callback(arrived, succeed)
    assert subject is None
    assert recorded.status == "IGNORED"
    assert await status_of(store, lease.run_id) is S.CALLBACK_PENDING
    assert await store.callbacks(lease.run_id) == []
    assert [one.id for one in await store.callbacks(None)] == [recorded.id]


async def test_an_unknown_task_gives_no_subject(store: Store):
    lease = await parked(store)
    subject, _ = await store.callback(IncomingCallback(task_id=TaskId(99), run_id=lease.run_id), succeed)
    assert subject is None


async def test_of_two_callbacks_at_once_one_is_heard(store: Store):
    for _ in range(3):
        lease = await parked(store)
        recorded = await asyncio.gather(*(call(store, lease) for _ in range(4)))
        assert sorted(one.status for one in recorded) == ["IGNORED"] * 3 + ["RECEIVED"]


async def test_a_callback_and_the_worker_at_once_have_one_winner(store: Store):
    task = await store.create_task(asynchronous(max_concurrency=None))
    for _ in range(3):
        lease = await started(store, task)
        await asyncio.gather(store.settle([park(lease)]), call(store, lease))
        assert await status_of(store, lease.run_id) is S.CALLBACK_SUCCESS


# ---- extending, listing


async def test_a_callbacks_deadline_can_be_moved(store: Store, clock: ManualClock):
    lease = await parked(store, delay=10)
    clock.advance(9)
    assert await store.extend_callback(lease.run_id, 20) is True
    assert (await run_of(store, lease.run_id)).callback_deadline == at(29)
    clock.set(at(28))
    assert await store.overdue(10) == []
    clock.set(at(30))
    assert [one.run_id for one in await store.overdue(10)] == [lease.run_id]


async def test_only_a_run_that_awaits_its_callback_can_be_extended(store: Store):
    task = await store.create_task(asynchronous())
    run_id = await publish(store, task)
    assert await store.extend_callback(run_id, 20) is False
    lease = await claim_one(store)
    assert await store.extend_callback(run_id, 20) is False
    await done(store, finish(lease))
    assert await store.extend_callback(run_id, 20) is False
    assert await store.extend_callback(RunId(4711), 20) is False
    assert (await runs_of(store, task))[0].callback_deadline is None


async def test_callbacks_are_listed_newest_first_and_no_more_than_the_limit(store: Store, clock: ManualClock):
    lease = await parked(store)
    for number in range(5):
        clock.advance(1)
        await call(store, lease, body=str(number))
        await store.callback(IncomingCallback(token=f"nobody's {number}", body=str(number)), succeed)
    assert [one.body for one in await store.callbacks(lease.run_id)] == ["4", "3", "2", "1", "0"]
    assert [one.body for one in await store.callbacks(lease.run_id, limit=2)] == ["4", "3"]
    assert [one.body for one in await store.callbacks(None)] == ["4", "3", "2", "1", "0"]
    assert len({one.id for one in await store.callbacks(lease.run_id)}) == 5


async def test_a_success_finishes_a_run_that_waits_for_its_retry(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, retry(lease, delay=60))
    heard = await call(store, lease)
    assert heard.status == "RECEIVED"
    run = await run_of(store, lease.run_id)
    assert (run.status, run.start_time) == (S.CALLBACK_SUCCESS, lease.claimed_at)


async def test_a_success_finishes_a_run_whose_worker_was_lost(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, lose(lease, precondition=Precondition.HELD))
    assert (await call(store, lease)).status == "RECEIVED"
    run = await run_of(store, lease.run_id)
    assert (run.status, run.start_time) == (S.CALLBACK_SUCCESS, lease.claimed_at)
    assert await claim(store) == []


async def test_a_failure_does_not_end_a_run_that_waits_for_its_retry(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, retry(lease, delay=60))
    heard = await call(store, lease, say(S.FAILED))
    assert heard.status == "IGNORED"
    assert await status_of(store, lease.run_id) is S.RETRYING


async def test_nobody_can_call_back_for_a_run_that_was_never_claimed(store: Store):
    task = await store.create_task(asynchronous())
    run_id = await publish(store, task)
    _, heard = await store.callback(IncomingCallback(task_id=task.id, run_id=run_id), succeed)
    assert heard.status == "IGNORED"
    assert await status_of(store, run_id) is S.SCHEDULED


async def test_a_token_is_known_by_itself_alone(store: Store):
    lease = await parked(store)
    assert lease.callback_token is not None
    assert await store.callback_run(lease.callback_token) == lease.run_id
    for other in ("", "x", lease.callback_token[:-1], lease.callback_token + "x", lease.callback_token.upper()):
        assert await store.callback_run(other) is None
    assert await store.callbacks(None) == []


async def test_of_what_a_final_run_ignores_the_newest_ten_stay(store: Store):
    first, other = await parked(store), await parked(store)
    for number in range(15):
        await store.callback(IncomingCallback(token=first.callback_token, body=str(number)), succeed)
    await store.callback(IncomingCallback(token=other.callback_token, body="other"), succeed)
    kept = await store.callbacks(first.run_id)
    assert [(each.status, each.body) for each in kept] == [
        *(("IGNORED", str(number)) for number in range(14, 4, -1)),
        ("RECEIVED", "0"),
    ]
    assert len(await store.callbacks(other.run_id)) == 1
