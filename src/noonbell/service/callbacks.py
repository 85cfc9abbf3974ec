"""Callbacks: what a target says of a run after it has accepted it.

Here it is read and answered. What it does to the run is the engine's business (`engine.callback.receive`), which wiring
hands in as `Receive`: a service does not import its neighbour.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from noonbell.errors import Forbidden, InvalidState, NotFound, RateLimited
from noonbell.model.event import Callback
from noonbell.model.request import CallbackIn, CallbackSubject
from noonbell.model.run import FINAL, RunId, RunStatus, final_status
from noonbell.model.task import ExecType, TaskId
from noonbell.ports import Store
from noonbell.service.reader import Problems, Reader
from noonbell.service.rules import Rules
from noonbell.service.strangers import Strangers

LONGEST_MESSAGE: Final = 10_000
"""A longer one is cut: a result must not be lost over it."""

_NO_RUN: Final = "there is no run for this callback"


class Word(enum.StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    RUNNING = "RUNNING"
    """Not done yet: give me more time."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a signature is made of, and stands in: bytes and headers as they came. Looked at once, and kept nowhere."""

    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """What a callback says."""

    status: Word
    data: Any = None
    error_message: str = ""
    progress: dict[str, Any] | None = None
    proof: Proof | None = None


Received: TypeAlias = tuple[CallbackSubject | None, Callback]
Receive: TypeAlias = Callable[[CallbackIn, Said], Awaitable[Received]]
"""Record a callback and do what it asks for. The subject, as it stands afterwards, is None if nobody was found."""


@dataclass(frozen=True, slots=True)
class Answer:
    run_id: RunId
    final_status: str | None
    """None while the run is not final."""


class Callbacks:
    def __init__(self, store: Store, rules: Rules, receive: Receive) -> None:
        self._store = store
        self._rules = rules
        self._receive = receive
        self._strangers = Strangers()

    async def knows(self, token: str) -> bool:
        """Whether the token was given to a run: asked before the body of a callback is read."""
        return await self._store.callback_run(token) is not None

    async def refuse(self, token: str, *, headers: Mapping[str, str], peer: str = "") -> NoReturn:
        """Record a callback whose token belongs to no run, without its body, and raise what `by_token` raises for it."""
        keep = not self._strangers.is_tiresome(peer)
        came = CallbackIn(token=token, headers=dict(headers), keep_unknown=keep)
        _, recorded = await self._store.callback(came, lambda _: "unknown token")
        self._noted(peer, keep, (None, recorded))
        raise NotFound(_NO_RUN)

    async def by_token(
        self,
        token: str,
        given: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        body: str,
        peer: str = "",
        proof: Proof | None = None,
    ) -> Answer:
        """NotFound for a token that nobody was given; it is recorded all the same.

        A `peer` that sends many of those is told RateLimited, and they are no longer recorded.
        """
        problems = Problems()
        said = _read(Reader(given, problems), proof)
        problems.finish()
        keep = not self._strangers.is_tiresome(peer)
        came = CallbackIn(token=token, headers=dict(headers), body=body, keep_unknown=keep)
        return _answer(self._noted(peer, keep, await self._receive(came, said)))

    async def by_ids(
        self,
        given: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        body: str,
        peer: str = "",
        proof: Proof | None = None,
    ) -> Answer:
        """NotFound unless the run is one of the task's."""
        if not self._rules.allow_id_mode:
            raise Forbidden("callbacks by task and run are switched off here (callback.allow_id_mode); use the token")
        problems = Problems()
        reader = Reader(given, problems)
        for name in ("task_id", "run_id"):
            if reader.get(name) is None:
                reader.wrong(name, "is missing; expected a number")
        task_id = TaskId(reader.integer("task_id", 0, 1, 2**53 - 1, "the id of the run's task"))
        run_id = RunId(reader.integer("run_id", 0, 1, 2**53 - 1, "the id of the run"))
        said = _read(reader, proof)
        problems.finish()
        keep = not self._strangers.is_tiresome(peer)
        came = CallbackIn(task_id=task_id, run_id=run_id, headers=dict(headers), body=body, keep_unknown=keep)
        if await self._awaits_none(task_id, run_id):
            reason = "the run awaits no callback: its task is not ASYNC"
            return _answer(await self._store.callback(came, lambda _: reason))
        return _answer(self._noted(peer, keep, await self._receive(came, said)))

    def _noted(self, peer: str, is_kept: bool, received: Received) -> Received:
        """What finds no run is counted for its sender."""
        if received[0] is None:
            self._strangers.note(peer)
            if not is_kept:
                raise RateLimited("too many callbacks from here found no run; wait a minute, and mind the token")
        return received

    async def of_run(self, run_id: RunId, limit: int = 100) -> list[Callback]:
        """Those of a run, newest first, the ignored ones included."""
        if await self._store.run(run_id) is None:
            raise NotFound("there is no such run")
        return await self._store.callbacks(run_id, limit)

    async def rejected(self, limit: int = 100) -> list[Callback]:
        """Those that found no run, newest first: an unknown token, a run of another task."""
        return await self._store.callbacks(None, limit)

    async def _awaits_none(self, task_id: TaskId, run_id: RunId) -> bool:
        """A token proves that the run was sent out to be called back. Two numbers prove nothing: nobody may end a
        job, or a request that is still under way, by guessing them.
        """
        run = await self._store.run(run_id)
        if run is None or run.task_id != task_id or run.status in FINAL or run.status is RunStatus.CALLBACK_PENDING:
            return False
        task = await self._store.task(task_id)
        return task is None or task.spec.exec_type is not ExecType.ASYNC


def _read(reader: Reader, proof: Proof | None) -> Said:
    if reader.get("status") is None:
        reader.wrong("status", f"is missing; expected one of {', '.join(Word)}")
    progress = reader.json("progress")
    # Other fields are let in, and kept with the body: what calls back is somebody else's program, often one that
    # cannot be changed, and to lose its result over a field more would serve nobody.
    return Said(
        status=reader.choice("status", Word, Word.RUNNING),
        data=reader.json("data"),
        error_message=_message(reader.get("error_message")),
        progress=progress if progress is None or isinstance(progress, dict) else {"value": progress},
        proof=proof,
    )


def _message(value: Any) -> str:
    """Whatever it is, as a text that can be kept."""
    text = "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\x00", "")[:LONGEST_MESSAGE]


def _answer(received: Received) -> Answer:
    subject, recorded = received
    if subject is None:
        raise NotFound(_NO_RUN)
    if recorded.status == "IGNORED" and subject.status not in FINAL:
        raise InvalidState(f"the callback was recorded and ignored: {recorded.reason}")
    return Answer(subject.run_id, final_status(subject.status))
