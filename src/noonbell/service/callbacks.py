"""Callbacks: what a target says of a run after it has accepted it. Here it is read and answered.

What it does to the run is decided by `engine.callback.receive`. Callbacks that belong to no run are counted by sender:
forged ones must fill neither a table nor a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.callback import CallbackMessage, CallbackStatus, receive
from noonbell.errors import Forbidden, InvalidState, NotFound, RateLimited
from noonbell.fields import list_of, meta, read
from noonbell.model.callback_refusal import refused
from noonbell.model.event import Callback
from noonbell.model.request import CallbackSubject, IncomingCallback
from noonbell.model.run import FINAL, FinalStatus, RunId, RunStatus, final_status
from noonbell.model.task import TaskId
from noonbell.ports import Store, Wakeup
from noonbell.service.access import PeerLimit
from noonbell.service.task_fields import Proof, Rules

LONGEST_MESSAGE: Final = 10_000
"""A longer one is cut: a result must not be lost over it."""

_FREE_UNKNOWN: Final = 60
"""Forged callbacks of a peer in a minute that are answered as what they are; the rest get RATE_LIMITED."""
_NO_RUN: Final = "there is no run for this callback"


class CallbackWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What a target says of its run.

    Other fields are let in, and kept with the body: what calls back is often a program that cannot be changed, and its
    result must not be lost over a field more.
    """

    noun: ClassVar[str] = "a callback"
    takes_more: ClassVar[bool] = True

    status: Annotated[CallbackStatus, meta("RUNNING: not done yet; this moves the deadline.")]
    data: Annotated[Any, meta("The result.", examples=[{"rows": 42}])] = None
    error_message: Annotated[
        Any, meta(f"A text; what is longer than {LONGEST_MESSAGE} characters is cut.", anything=True)
    ] = None
    progress: Annotated[Any, meta("With RUNNING: the progress.")] = None


class CallbackByIdsWrite(CallbackWrite, frozen=True, kw_only=True):
    task_id: Annotated[
        TaskId, meta("The run's task.", ge=1, le=2**53 - 1, expected="the id of the run's task", examples=[1])
    ]
    run_id: Annotated[RunId, meta("The run.", ge=1, le=2**53 - 1, expected="the id of the run", examples=[7340033])]


class CallbackAnswer(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    final_status: Annotated[FinalStatus | None, meta("Null while the run is not final.", examples=["SUCCESS"])]


CallbackRecords = list_of("CallbackRecords", Callback)


class CallbackList(msgspec.Struct, frozen=True):
    limit: Annotated[int, meta("The most to return.", ge=1, le=1_000)] = 100
    before: Annotated[int | None, meta("Only callbacks with an id below this one.", ge=1, le=2**53 - 1)] = None


Received: TypeAlias = tuple[CallbackSubject | None, Callback]


@dataclass(frozen=True, slots=True)
class CallbackSource:
    """Where a callback comes from, and what is recorded of it: headers without their secrets, the body as it came."""

    headers: dict[str, str]
    peer: str
    body: str = ""
    proof: Proof | None = None


class Callbacks:
    def __init__(self, store: Store, wakeup: Wakeup, rules: Rules, tasks: TaskCache) -> None:
        self._store, self._wakeup, self._rules, self._tasks = store, wakeup, rules, tasks
        self._unknown = PeerLimit(_FREE_UNKNOWN)

    async def knows(self, token: str) -> bool:
        """Whether the token was given to a run: asked before the body of a callback is read."""
        return await self._store.callback_run(token) is not None

    async def refuse(self, token: str, source: CallbackSource) -> NoReturn:
        """Record a callback whose token belongs to no run, without its body, and raise what `by_token` raises for it."""
        came = self._incoming(source, token=token)
        self._noted(source, came, await self._store.callback(came, lambda _: refused("unknown")))
        raise NotFound(_NO_RUN)

    async def by_token(self, token: str, given: Mapping[str, Any], source: CallbackSource) -> CallbackAnswer:
        """Receive a callback by the token of its run. Raises NotFound for a token that was given to no run; that is
        recorded all the same. A peer that sends many of those gets RateLimited, and they are no longer recorded.
        """
        message = _message_of(read(CallbackWrite, given))
        return _answer(await self._receive(self._incoming(source, token=token), message, source))

    async def by_ids(self, given: Mapping[str, Any], source: CallbackSource) -> CallbackAnswer:
        """Receive a callback by task and run. Raises NotFound unless the run is one of the task's."""
        if not self._rules.allow_id_mode:
            raise Forbidden(
                "callbacks by task ID and run ID are turned off here (callback.allow_id_mode); use the token"
            )
        asked = read(CallbackByIdsWrite, given)
        came = self._incoming(source, task_id=asked.task_id, run_id=asked.run_id)
        if await self._awaits_none(asked.task_id, asked.run_id):
            return _answer(await self._store.callback(came, lambda _: refused("not_async")))
        return _answer(await self._receive(came, _message_of(asked), source))

    def _incoming(self, source: CallbackSource, **names: Any) -> IncomingCallback:
        """`names` the run. One that finds none is not kept where its sender has sent too many of those."""
        keep = not self._unknown.seconds_left(source.peer)
        return IncomingCallback(headers=source.headers, body=source.body, keep_unknown=keep, **names)

    async def _receive(self, came: IncomingCallback, message: CallbackMessage, source: CallbackSource) -> Received:
        objection = partial(self._rules.callback_objection, source.proof)
        ttl = self._rules.callback_token_ttl
        store, wakeup, tasks = self._store, self._wakeup, self._tasks
        received = await receive(store, wakeup, tasks, came, message, token_ttl=ttl, objection=objection)
        return self._noted(source, came, received)

    def _noted(self, source: CallbackSource, came: IncomingCallback, received: Received) -> Received:
        """What finds no run is counted for its sender."""
        if received[0] is None:
            self._unknown.note(source.peer)
            if not came.keep_unknown:
                raise RateLimited(
                    "too many callbacks from this address matched no run; wait a minute, and check the token"
                )
        return received

    async def of_run(self, run_id: RunId, limit: int = 100, before: int | None = None) -> list[Callback]:
        """The callbacks of a run, newest first, the ignored ones included; only those with a lower id than `before`."""
        if await self._store.run(run_id) is None:
            raise NotFound("there is no such run")
        return await self._store.callbacks(run_id, limit, before)

    async def rejected(self, limit: int = 100, before: int | None = None) -> list[Callback]:
        """The callbacks that found no run, newest first: an unknown token, or a run of another task."""
        return await self._store.callbacks(None, limit, before)

    async def _awaits_none(self, task_id: TaskId, run_id: RunId) -> bool:
        """A token proves that the run was sent out to be called back. Two numbers prove nothing: a caller must not end a
        job, or a request that is still under way, by guessing them.
        """
        run = await self._store.run(run_id)
        if run is None or run.task_id != task_id or run.status in FINAL or run.status is RunStatus.CALLBACK_PENDING:
            return False
        task = await self._store.run_task(run_id)
        return task is None or not task.spec.awaits_callback


def _message_of(body: CallbackWrite) -> CallbackMessage:
    progress = body.progress
    return CallbackMessage(
        status=body.status,
        data=body.data,
        error_message=_message(body.error_message),
        progress=progress if progress is None or isinstance(progress, dict) else {"value": progress},
    )


def _message(value: Any) -> str:
    """Any value, as a text that can be kept."""
    text = "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\x00", "")[:LONGEST_MESSAGE]


def _answer(received: Received) -> CallbackAnswer:
    subject, recorded = received
    if subject is None:
        raise NotFound(_NO_RUN)
    if recorded.status == "IGNORED" and subject.status not in FINAL:
        raise InvalidState(f"the callback was recorded and ignored: {recorded.reason}")
    return CallbackAnswer(subject.run_id, final_status(subject.status))
