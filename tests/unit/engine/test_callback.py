"""Callbacks: what they settle, what they extend, and what they cannot change."""

from __future__ import annotations

import msgspec
import pytest

from conformance.store.builders import asynchronous, at, claim_one, done, edit, park, retry, run_of, started, trigger
from noonbell.clock import ManualClock
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.callback import HEARD, STALE, CallbackMessage, CallbackStatus, decide, is_stale, receive
from noonbell.model.request import CallbackSubject, IncomingCallback
from noonbell.model.run import Precondition, RunId, RunStatus, Settlement, Transition
from noonbell.model.task import RetryPolicy, RetryStrategy, TaskId, TaskSpec
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import ACCEPTED, Calling, Scripted, worker_on

S = RunStatus
SUCCESS = CallbackMessage(status=CallbackStatus.SUCCESS, data={"rows": 1})
FAILED = CallbackMessage(status=CallbackStatus.FAILED, error_message="no paper")
RUNNING = CallbackMessage(status=CallbackStatus.RUNNING, progress={"current": 3})
AGAIN = RetryPolicy(max_retries=1, strategy=RetryStrategy.FIXED, initial_delay=5, retry_on=("callback_failed",))


async def parked(store: MemoryStore, **fields: object) -> tuple[RunId, str]:
    """A run that waits for its callback, and the token to call back with."""
    run_id = await trigger(store, await store.create_task(asynchronous(callback_timeout_sec=60, **fields)))
    target = Scripted(ACCEPTED)
    await worker_on(store, target).run_until_idle()
    token = target.seen[0].lease.callback_token
    assert token is not None
    return run_id, token


async def call(store: MemoryStore, token: str, message: CallbackMessage, wakeup: LocalWakeup | None = None):
    return await receive(store, wakeup or LocalWakeup(), TaskCache(store), IncomingCallback(token=token), message)


async def test_success_ends_the_run(store: MemoryStore, wakeup: LocalWakeup):
    run_id, token = await parked(store)
    subject, recorded = await call(store, token, SUCCESS, wakeup)
    run = await run_of(store, run_id)
    assert (run.status, run.result) == (S.CALLBACK_SUCCESS, {"rows": 1})
    assert subject is not None
    assert (subject.status, recorded.status) == (S.CALLBACK_SUCCESS, "RECEIVED")
    assert await wakeup.wait(["queue:http"], 0)  # its place is free


async def test_failed_ends_the_run(store: MemoryStore):
    run_id, token = await parked(store)
    await call(store, token, FAILED)
    run = await run_of(store, run_id)
    assert (run.status, run.error_message) == (S.FAILED, "no paper")
    assert run.error_details == {"kind": "callback_failed"}


async def test_failed_is_retried_where_the_policy_says_so(store: MemoryStore):
    run_id, token = await parked(store, retry_policy=AGAIN)
    await call(store, token, FAILED)
    run = await run_of(store, run_id)
    assert (run.status, run.next_retry_time) == (S.RETRYING, at(5))


async def test_an_edited_policy_is_used_once_what_is_known_is_old(store: MemoryStore):
    run_id, token = await parked(store)
    task = await store.task((await run_of(store, run_id)).task_id)
    assert task is not None
    seconds = [0.0]
    tasks = TaskCache(store, monotonic=lambda: seconds[0])
    await tasks.newest(task.id)
    await edit(store, task, retry_policy=AGAIN)
    seconds[0] = 6.0
    await receive(store, LocalWakeup(), tasks, IncomingCallback(token=token), FAILED)
    assert (await run_of(store, run_id)).status is S.RETRYING


async def test_running_moves_the_deadline(store: MemoryStore, clock: ManualClock):
    run_id, token = await parked(store)
    clock.advance(50)
    _, recorded = await call(store, token, RUNNING)
    run = await run_of(store, run_id)
    assert (run.status, run.callback_deadline, recorded.status) == (S.CALLBACK_PENDING, at(110), "RECEIVED")


async def test_a_repeat_is_answered_with_the_standing_status_and_ignored(store: MemoryStore):
    run_id, token = await parked(store)
    await call(store, token, SUCCESS)
    subject, recorded = await call(store, token, FAILED)
    assert subject is not None
    assert (subject.status, recorded.status) == (S.CALLBACK_SUCCESS, "IGNORED")
    assert (await run_of(store, run_id)).status is S.CALLBACK_SUCCESS


async def test_an_unknown_token_is_recorded_and_changes_nothing(store: MemoryStore):
    subject, recorded = await call(store, "nobody's", SUCCESS)
    assert (subject, recorded.status, recorded.reason) == (None, "IGNORED", "unknown token")


async def test_a_callback_may_come_before_the_first_request_has_returned(store: MemoryStore):
    run_id = await trigger(store, await store.create_task(asynchronous()))

    async def call_back(assignment) -> None:
        await call(store, assignment.lease.callback_token, SUCCESS)

    answers: list[object] = []
    worker = worker_on(
        store,
        Calling(call_back, ACCEPTED),
        observe=lambda told: answers.extend(answer for *_, answer, _seconds in told),
    )
    await worker.run_until_idle()
    assert (await run_of(store, run_id)).status is S.CALLBACK_SUCCESS
    assert answers == ["lost"]


async def test_the_callback_of_a_lost_attempt_finishes_the_run(store: MemoryStore, clock: ManualClock):
    run_id = await trigger(store, await store.create_task(asynchronous(timeout_seconds=100)))
    lease = await claim_one(store)
    clock.advance(16)  # its worker died with the 202 in hand
    assert lease.callback_token is not None
    await call(store, lease.callback_token, SUCCESS)
    assert (await run_of(store, run_id)).status is S.CALLBACK_SUCCESS


@pytest.mark.parametrize("status", [S.SCHEDULED, S.RETRYING])
def test_running_says_nothing_to_a_run_that_waits(status):
    assert decide(spec(), subject(status), CallbackStatus.RUNNING, "", None, 0.5) != HEARD


def test_a_decision_is_fenced_by_the_token_that_was_seen():
    answer = decide(spec(), subject(S.RUNNING), CallbackStatus.SUCCESS, "", 1, 0.5)
    assert isinstance(answer, Settlement)
    assert (answer.token, answer.precondition, answer.transition) == (77, Precondition.ANSWERED, Transition.FINISH)


def spec() -> TaskSpec:
    return asynchronous()


def subject(status: RunStatus) -> CallbackSubject:
    return CallbackSubject(
        run_id=RunId(1), task_id=TaskId(1), status=status, token=77, retry_count=0, lost_count=0, worker_id=None
    )


# ---- how long a token is good


@pytest.mark.parametrize(
    ("age", "ttl", "is_too_old"),
    [(3_599, 3_600, False), (3_601, 3_600, True), (200, 60, False), (311, 60, True), (1e9, float("inf"), False)],
)
def test_a_token_of_an_earlier_attempt_is_good_for_its_time_but_never_less_than_it_was_waited_for(age, ttl, is_too_old):
    spec = asynchronous(timeout_seconds=10, callback_timeout_sec=300)
    subject = CallbackSubject(
        run_id=RunId(1),
        task_id=TaskId(1),
        status=S.CALLBACK_PENDING,
        token=1,
        retry_count=1,
        lost_count=0,
        worker_id=None,
        at=at(age),
        token_made_at=at(0),
        attempt_began_at=at(1),
    )
    assert is_stale(spec, subject, ttl) is is_too_old
    waiting = msgspec.structs.replace(subject, attempt_began_at=None, status=S.RETRYING)
    assert is_stale(spec, waiting, ttl) is is_too_old
    assert not is_stale(spec, msgspec.structs.replace(subject, attempt_began_at=at(0)), ttl)
    assert not is_stale(spec, msgspec.structs.replace(subject, token_made_at=None), ttl)


async def test_too_old_a_token_is_ignored_and_recorded_and_the_new_one_is_heard(
    store: MemoryStore, wakeup: LocalWakeup, clock: ManualClock
):
    task = await store.create_task(asynchronous(callback_timeout_sec=60))
    old = await started(store, task)
    await done(store, retry(old, delay=4_000))
    clock.advance(4_000)
    await store.promote(10)
    new = await claim_one(store)
    await done(store, park(new, delay=60))
    tasks = TaskCache(store)

    async def heard(lease, ttl: float):
        given = IncomingCallback(token=lease.callback_token)
        return await receive(store, wakeup, tasks, given, SUCCESS, token_ttl=ttl)

    subject, recorded = await heard(old, 3_600)
    assert subject is not None
    assert (subject.status, recorded.status, recorded.reason) == (S.CALLBACK_PENDING, "IGNORED", STALE)
    subject, recorded = await heard(new, 1)
    assert subject is not None
    assert (subject.status, recorded.status) == (S.CALLBACK_SUCCESS, "RECEIVED")
    assert [one.reason for one in await store.callbacks(old.run_id)] == [None, STALE]
