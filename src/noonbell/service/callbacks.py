"""Callbacks: what a target says of a run after it has accepted it.

`receive` reads what was said, has the store record it and settle the run as `judge` decides, and tells the standing
status. The decision needs the task's retry policy, and the store asks for it in the middle of a transaction: where the
task is not at hand yet, that transaction is given up, the task read, and the callback handed in again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from noonbell.errors import Forbidden, InvalidState, NotFound
from noonbell.model.event import Callback
from noonbell.model.request import CallbackIn, CallbackSubject
from noonbell.model.run import FINAL, RunId, RunStatus, final_status
from noonbell.model.settlement import Expect, Move, Settlement
from noonbell.model.task import ExecType, TaskId, TaskSpec
from noonbell.policy import retry
from noonbell.ports import Store, Wakeup
from noonbell.service.reader import Problems, Reader
from noonbell.service.rules import Rules

HEARD: Final = ("SUCCESS", "FAILED", "RUNNING")

_TAKES = (RunStatus.RUNNING, RunStatus.CALLBACK_PENDING)


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a callback."""

    status: str
    """SUCCESS, FAILED, or RUNNING: not done yet, give me more time."""
    data: Any = None
    error_message: str | None = None
    progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    run_id: RunId
    final_status: str | None
    """None while the run is not final."""


class _NeedsTask(Exception):
    def __init__(self, task_id: TaskId) -> None:
        super().__init__(task_id)
        self.task_id = task_id


class Callbacks:
    def __init__(self, store: Store, wakeup: Wakeup, rules: Rules) -> None:
        self._store = store
        self._wakeup = wakeup
        self._rules = rules

    async def by_token(self, token: str, given: Mapping[str, Any], *, headers: Mapping[str, str], body: str) -> Answer:
        """NotFound for a token that nobody was given; it is recorded all the same."""
        came = CallbackIn(token=token, headers=dict(headers), body=body)
        return await self._receive(came, read_said(given))

    async def by_ids(self, given: Mapping[str, Any], *, headers: Mapping[str, str], body: str) -> Answer:
        """NotFound unless the run is one of the task's."""
        if not self._rules.allow_id_mode:
            raise Forbidden("callbacks by task and run are switched off here (callback.allow_id_mode); use the token")
        problems = Problems()
        reader = Reader(given, problems)
        task_id = reader.integer("task_id", None, 1, 2**53 - 1, "the id of the run's task")
        run_id = reader.integer("run_id", None, 1, 2**53 - 1, "the id of the run")
        for name, value in (("task_id", task_id), ("run_id", run_id)):
            if value is None:
                reader.wrong(name, "is missing; expected a number")
        said = _read(reader)
        came = CallbackIn(task_id=TaskId(task_id or 0), run_id=RunId(run_id or 0), headers=dict(headers), body=body)
        return await self._receive(came, said)

    async def of_run(self, run_id: RunId, limit: int = 100) -> list[Callback]:
        """Those of a run, newest first, the ignored ones included."""
        if await self._store.run(run_id) is None:
            raise NotFound("there is no such run")
        return await self._store.callbacks(run_id, limit)

    async def rejected(self, limit: int = 100) -> list[Callback]:
        """Those that found no run, newest first: an unknown token, a run of another task."""
        return await self._store.callbacks(None, limit)

    async def _receive(self, came: CallbackIn, said: Said) -> Answer:
        subject, recorded = await self._hand_in(came, said)
        if subject is None:
            raise NotFound("there is no run for this callback")
        heard = recorded.status == "RECEIVED"
        if not heard and subject.status not in FINAL:
            raise InvalidState(f"the callback was recorded and ignored: {recorded.reason}")
        if heard and said.status == "RUNNING":
            await self._extend(subject, said)
        if heard:
            await self._wake(subject)
        return Answer(subject.run_id, final_status(subject.status))

    async def _hand_in(self, came: CallbackIn, said: Said) -> tuple[CallbackSubject | None, Callback]:
        by_token = came.token is not None
        known: dict[TaskId, TaskSpec] = {}

        def decide(subject: CallbackSubject) -> Settlement | str:
            if subject.status is RunStatus.CALLBACK_PENDING and said.status == "SUCCESS":
                return _success(subject, said)
            spec = known.get(subject.task_id)
            if spec is None:
                raise _NeedsTask(subject.task_id)
            return judge(spec, subject, said, by_token=by_token, unit=random.random())  # noqa: S311 - spreads retries

        while True:
            try:
                return await self._store.callback(came, decide)
            except _NeedsTask as wanted:
                task = await self._store.task(wanted.task_id)
                if task is None:
                    raise NotFound("there is no run for this callback") from None
                known[wanted.task_id] = task.spec

    async def _extend(self, subject: CallbackSubject, said: Said) -> None:
        task = await self._store.task(subject.task_id)
        if task is not None:
            await self._store.extend_callback(subject.run_id, task.spec.callback_timeout_sec)
        if said.progress is not None:
            await self._store.progress(subject.run_id, subject.token, said.progress)

    async def _wake(self, subject: CallbackSubject) -> None:
        """Its place is free, or its retry is planned."""
        run = await self._store.run(subject.run_id)
        if run is not None:
            self._wakeup.signal(f"queue:{run.queue}")
            self._wakeup.signal("plan")


def judge(spec: TaskSpec, subject: CallbackSubject, said: Said, *, by_token: bool, unit: float) -> Settlement | str:
    """What a callback does to its run: a settlement, "" for heard without one, or why it is ignored."""
    if subject.status not in _TAKES:
        return f"the run is {subject.status} and awaits no callback"
    if subject.status is RunStatus.RUNNING and not by_token and spec.exec_type is not ExecType.ASYNC:
        return "the run awaits no callback: its task is not ASYNC"
    match said.status:
        case "SUCCESS":
            return _success(subject, said)
        case "RUNNING":
            return ""
        case _:
            return _failure(spec, subject, said, unit)


def _success(subject: CallbackSubject, said: Said) -> Settlement:
    return Settlement(
        run_id=subject.run_id,
        token=subject.token,
        move=Move.FINISH,
        status=RunStatus.CALLBACK_SUCCESS,
        expect=Expect.ANSWERED,
        result=said.data,
    )


def _failure(spec: TaskSpec, subject: CallbackSubject, said: Said, unit: float) -> Settlement:
    failure = retry.Failure("callback_failed")
    decision = retry.decide(spec, subject.retry_count, subject.lost_count, failure, unit)
    is_retry = isinstance(decision, retry.Retry)
    return Settlement(
        run_id=subject.run_id,
        token=subject.token,
        move=Move.RETRY if is_retry else Move.FINISH,
        status=RunStatus.FAILED,
        expect=Expect.ANSWERED,
        delay_seconds=decision.delay_seconds if isinstance(decision, retry.Retry) else 0,
        result=said.data,
        error_message=said.error_message or "the callback says that it failed",
        error_details={"kind": "callback_failed"},
    )


def read_said(given: Mapping[str, Any]) -> Said:
    return _read(Reader(given, Problems()))


def _read(reader: Reader) -> Said:
    status = reader.get("status")
    if not isinstance(status, str) or status not in HEARD:
        reader.expected("status", f"one of {', '.join(HEARD)}")
    progress = reader.json("progress")
    if progress is not None and not isinstance(progress, dict):
        progress = {"value": progress}
    said = Said(
        status=str(status),
        data=reader.json("data"),
        error_message=reader.text("error_message", None, most=65_536, lines=True),
        progress=progress,
    )
    # Other fields are let in, and kept with the body: what calls back is somebody else's program, often one that
    # cannot be changed, and losing its result over a field more would serve nobody.
    reader.problems.finish()
    return said
