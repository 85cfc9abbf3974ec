"""Callbacks: what an ASYNC target says of a run that it has taken on, and what follows from it.

    K9   died before the commit   nothing is recorded; the caller sees a broken connection and repeats; one of them counts
    K10  died after the commit    the repeat finds the run final and gets the standing status

The store records and settles in one transaction, so a callback is never settled without a record of it.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.settle import Subject, failed, failure, written
from noonbell.model.callback_refusal import refused
from noonbell.model.event import Callback
from noonbell.model.failure_text import failure_text
from noonbell.model.request import CallbackSubject, IncomingCallback
from noonbell.model.run import Precondition, RunId, RunStatus, Settlement, Transition
from noonbell.model.task import Task, TaskSpec
from noonbell.policy import retry
from noonbell.policy.retry import Failure
from noonbell.ports import ORDERS, PLAN, Store, Wakeup, queue_topic

_FRESH_ENOUGH = 5.0
"""Seconds for which a task's policies are taken as known."""

HEARD = ""
"""The answer of `decide` to a callback that is recorded as RECEIVED and settles nothing."""

Objection = Callable[[TaskSpec, Instant], str]
"""Why a callback for a run of that task is not to be believed; nothing where it is. The instant is now."""

STALE = refused("stale")
"""Why a callback is ignored that comes too late with too old a token."""


class CallbackStatus(enum.StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    RUNNING = "RUNNING"
    """Not done yet: the deadline moves."""


class CallbackMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A callback's body."""

    status: CallbackStatus
    data: Any = None
    error_message: str = ""
    progress: dict[str, Any] | None = None


def decide(
    spec: TaskSpec, subject: CallbackSubject, status: CallbackStatus, error_message: str, data: Any, unit: float
) -> Settlement | str:
    """The settlement that a callback asks for, or the reason why there is none: HEARD, or why it is ignored."""
    who = Subject(
        run_id=subject.run_id,
        token=subject.token,
        retry_count=subject.retry_count,
        lost_count=subject.lost_count,
        precondition=Precondition.ANSWERED,
    )
    match status:
        case CallbackStatus.SUCCESS:
            return written(who, Transition.FINISH, status=RunStatus.CALLBACK_SUCCESS, result=data)
        case CallbackStatus.FAILED:
            verdict = retry.decide(spec, who.retry_count, who.lost_count, Failure("callback_failed"), unit)
            outcome = failure("callback_failed", error_message or failure_text("callback_said_failed"))
            return failed(who, verdict, msgspec.structs.replace(outcome, result=data))
        case CallbackStatus.RUNNING:
            open_still = subject.status in (RunStatus.RUNNING, RunStatus.CALLBACK_PENDING)
            return HEARD if open_still else refused("not_open", status=subject.status, verb="awaits")
        case _:
            assert_never(status)


def is_stale(spec: TaskSpec, subject: CallbackSubject, token_ttl: float) -> bool:
    """Whether the token is too old to count.

    The token of the attempt that is under way, or awaits its callback, never is: that attempt has a deadline of its own,
    which a callback may move. One of an earlier attempt is good for `token_ttl`, and at least for as long as that attempt
    could have been waited for.
    """
    made_at = subject.token_made_at
    if made_at is None or (subject.attempt_began_at is not None and made_at >= subject.attempt_began_at):
        return False
    return (subject.at - made_at) / SECOND > max(token_ttl, spec.timeout_seconds + spec.callback_seconds)


class _Unknown(Exception):
    """Ends a transaction that lacks the spec of a task, or of a flow's step."""

    def __init__(self, subject: CallbackSubject) -> None:
        super().__init__(subject.run_id)
        self.subject = subject


async def receive(
    store: Store,
    wakeup: Wakeup,
    tasks: TaskCache,
    given: IncomingCallback,
    message: CallbackMessage,
    draw: Callable[[], float] = random.random,
    token_ttl: float = float("inf"),
    objection: Objection | None = None,
) -> tuple[CallbackSubject | None, Callback]:
    """Record a callback and do what it asks for. The subject, as it stands afterwards, is None if there is no such run.

    `token_ttl`: the longest that a token is good for, in seconds, where `is_stale` asks. What meets an `objection` is
    recorded as IGNORED, with the objection as its reason.
    """
    steps: dict[RunId, Task] = {}

    def answer(subject: CallbackSubject) -> Settlement | str:
        recent = tasks.recent(subject.task_id, _FRESH_ENOUGH)
        task = steps.get(subject.run_id) if subject.is_step else recent
        if task is None:
            raise _Unknown(subject)  # nothing is written; it is asked again with the spec at hand
        if is_stale(task.spec, subject, token_ttl):
            return STALE
        if objection is not None and (why := objection(task.spec, subject.at)):
            return why
        said = decide(task.spec, subject, message.status, message.error_message, message.data, draw())
        failpoint.hit("K9")
        return said

    try:
        subject, recorded = await store.callback(given, answer)
    except _Unknown as unknown:
        await tasks.newest(unknown.subject.task_id)
        if unknown.subject.is_step and (found := await store.run_task(unknown.subject.run_id)) is not None:
            steps[unknown.subject.run_id] = found
        subject, recorded = await store.callback(given, answer)
    failpoint.hit("K10")
    if subject is not None and recorded.status == "RECEIVED":
        task = steps.get(subject.run_id) or tasks.recent(subject.task_id, float("inf"))
        await _follow(store, wakeup, task, subject, message)
    return subject, recorded


async def _follow(
    store: Store, wakeup: Wakeup, task: Task | None, subject: CallbackSubject, message: CallbackMessage
) -> None:
    if task is None:
        return
    if message.status is CallbackStatus.RUNNING:
        await store.extend_callback(subject.run_id, task.spec.callback_seconds)
        if message.progress is not None:
            await store.progress(subject.run_id, subject.token, message.progress)
        return
    for topic in (queue_topic(task.spec.queue), PLAN, ORDERS):
        wakeup.signal(topic)
