"""Pauses: of everything, by one switch (by whom, why and since when); and what is said when a task is paused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.fields import Moment, meta, read, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.account import InstallationPause
from noonbell.model.task import TaskPause
from noonbell.ports import ANY_QUEUE, PAUSE, PLAN, Store, Wakeup

MOST_REASON: Final = 500
"""Characters of a reason."""


class PauseWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Why everything is paused."""

    noun: ClassVar[str] = "a pause"

    reason: Annotated[
        str, meta("The reason, shown in the banner.", max_length=MOST_REASON, examples=["the database moves"])
    ] = ""


class PauseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is paused; then by whom, why and since when."""

    component: ClassVar[str] = "Pause"

    paused: Annotated[bool, meta(examples=[True])]
    reason: Annotated[
        str | None, meta("Empty: none was given. Null: nothing is paused.", examples=["the database moves"])
    ]
    by: Annotated[str | None, meta("The name of the token, if one was used.", examples=["alice"])]
    since: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:00Z"])]


class PauseChanged(PauseState, frozen=True, kw_only=True):
    changed: Annotated[bool, meta("False: it was already so; nothing changed.", examples=[True])]


class Pauses:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store, self._wakeup = store, wakeup

    async def now(self) -> InstallationPause | None:
        """The pause that stands; None: nothing is paused as a whole."""
        return await self._store.installation_pause()

    async def state(self) -> PauseState:
        return PauseState(**_facts(await self.now()))

    async def pause(self, given: Mapping[str, Any], *, by: str | None = None) -> PauseChanged:
        """Let nothing more start, on any node, from two seconds after this has returned; what executes goes on."""
        asked = read(PauseWrite, given)
        pause, is_new = await self._store.pause_installation(asked.reason.strip(), by=by)
        failpoint.hit("K23")
        self._wakeup.signal(PAUSE)
        return PauseChanged(**_facts(pause), changed=is_new)

    async def resume(self, *, by: str | None = None) -> PauseChanged:
        """Planning goes on where it stood: what became due meanwhile is late, and each misfire policy decides about it."""
        ended = await self._store.resume_installation(by=by)
        failpoint.hit("K23")
        for topic in (PAUSE, PLAN, ANY_QUEUE):
            self._wakeup.signal(topic)
        return PauseChanged(**_facts(None), changed=ended is not None)


def _facts(pause: InstallationPause | None) -> dict[str, Any]:
    if pause is None:
        return {"paused": False, "reason": None, "by": None, "since": None}
    return {"paused": True, "reason": pause.reason, "by": pause.by, "since": pause.since}


LONGEST: Final = 366 * 86_400
"""Seconds that a pause with an end may last."""


class QueuePauseWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queue is paused."""

    noun: ClassVar[str] = "a pause of a queue"

    reason: Annotated[
        str, meta("The reason, shown with the queue.", max_length=MOST_REASON, examples=["the vendor mends its API"])
    ] = ""


class TaskPauseWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task is paused, and until when. Empty: without a reason, until it is resumed."""

    noun: ClassVar[str] = "a pause of a task"
    example: ClassVar[dict[str, Any]] = {"reason": "the vendor mends its API", "for_seconds": 7_200}

    reason: Annotated[
        str, meta("The reason, shown with the task.", max_length=MOST_REASON, examples=["the vendor mends its API"])
    ] = ""
    until: Annotated[
        Moment | None,
        meta(
            "When it resumes automatically; within 366 days. Null: it stays paused until it is resumed.",
            examples=["2026-11-15T04:00:00Z"],
        ),
    ] = None
    for_seconds: Annotated[
        int | None, meta("The same, in seconds from now, instead of `until`.", ge=1, le=LONGEST, examples=[7_200])
    ] = None


def read_pause(given: Mapping[str, Any], now: Instant, *, by: str | None) -> TaskPause | None:
    """InvalidArgument names every problem. None: nothing is said of it."""
    at = ReadContext(Problems())
    asked = read_into(TaskPauseWrite, given, at)
    until = asked.until
    if until is not None and asked.for_seconds is not None:
        at.wrong("until", "cannot be combined with for_seconds; expected one of them")
    elif until is not None and not now < until <= now + LONGEST * SECOND:
        at.wrong("until", "is not within the next 366 days; expected a time in the future")
    at.problems.finish()
    if asked.for_seconds is not None:
        until = Instant(now + asked.for_seconds * SECOND)
    reason = asked.reason.strip()
    return TaskPause(reason=reason, until=until, by=by, at=now) if reason or until is not None else None
