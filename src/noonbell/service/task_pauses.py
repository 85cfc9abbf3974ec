"""What is said when a task is paused: why, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import Moment, meta, read_into
from noonbell.fields.problems import LocalTime, Problems, ReadContext
from noonbell.model.task import TaskPause
from noonbell.service.pauses import MOST_REASON

LONGEST: Final = 366 * 86_400
"""Seconds that a pause with an end may last."""


class TaskPauseWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task is paused, and until when. Empty: without a reason, until it is resumed."""

    component: ClassVar[str] = "TaskPauseWrite"
    noun: ClassVar[str] = "a pause of a task"
    example: ClassVar[dict[str, Any]] = {"reason": "the vendor mends its API", "for_seconds": 7_200}

    reason: Annotated[
        str, meta("For those who see the task.", max_length=MOST_REASON, examples=["the vendor mends its API"])
    ] = ""
    until: Annotated[
        Moment | None,
        meta(
            "Then it is resumed by itself; within 366 days. Null: it stays paused until it is resumed.",
            examples=["2026-11-15T04:00:00Z"],
        ),
    ] = None
    for_seconds: Annotated[
        int | None, meta("The same as seconds from now, instead of `until`.", ge=1, le=LONGEST, examples=[7_200])
    ] = None


def read_pause(
    given: Mapping[str, Any], now: Instant, *, by: str | None, zone: LocalTime | None = None
) -> TaskPause | None:
    """InvalidArgument names every problem. None: nothing is said of it. `zone`: of a moment without an offset."""
    at = ReadContext(Problems(), zone=zone)
    asked = read_into(TaskPauseWrite, given, at)
    until = asked.until
    if until is not None and asked.for_seconds is not None:
        at.wrong("until", "is given beside for_seconds; expected one of them")
    elif until is not None and not now < until <= now + LONGEST * SECOND:
        at.wrong("until", "is not within the next 366 days; expected a moment that is still to come")
    at.problems.finish()
    if asked.for_seconds is not None:
        until = Instant(now + asked.for_seconds * SECOND)
    reason = asked.reason.strip()
    return TaskPause(reason=reason, until=until, by=by, at=now) if reason or until is not None else None
