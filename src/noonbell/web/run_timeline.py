"""The timeline of one run: waiting, attempts, backoffs, callbacks, progress. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from noonbell.clock import SECOND
from noonbell.model.event import Callback
from noonbell.model.run import FINAL, Attempt, Run, RunStatus
from noonbell.web.charts import mark_of

WIDTH: Final = 1000.0
BREAK: Final = 60.0
"""What a broken axis has for the time that it leaves out."""
_NARROWEST: Final = 4.0
_MOST_CALLBACKS: Final = 10
"""Rows of them; the others are in their list."""
_MOST_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Point:
    """Something on a bar that has no length."""

    kind: str
    """`beat`: a callback that asked for more time; `deadline`."""
    at: int
    x: float = 0


@dataclass(frozen=True, slots=True)
class RunBar:
    kind: str
    """`planned`, `queue`, `attempt`, `backoff`, `waiting`, `callback`: which sentence goes with it."""
    start: int
    end: int
    mark: str
    number: int = 0
    """Of the attempt, or of the callback."""
    is_open: bool = False
    """Whether it continues."""
    text: str = ""
    """The status that it ended with, or why it was refused."""
    code: int | None = None
    points: tuple[Point, ...] = ()
    x: float = 0
    width: float = 0


def bars(
    run: Run, attempts: Sequence[Attempt], callbacks: Sequence[Callback], now: int, patience: float = 0
) -> list[RunBar]:
    """In the order of time, each with its place on an axis of WIDTH. `patience`: seconds that a callback is waited for."""
    found = list(_bars(run, attempts, callbacks, now, patience))
    first, last = ends(found)
    gap = left_out(found)
    begin, room = (BREAK, WIDTH - BREAK) if gap else (0.0, WIDTH)
    scale = room / max(1, last - first - gap)

    def x_of(at: int) -> float:
        return begin + (at - first - gap) * scale if at >= first + gap else 0.0

    return [
        replace(
            bar,
            x=round(min(x_of(bar.start), WIDTH - _NARROWEST), 1),
            width=round(max(x_of(bar.end) - x_of(bar.start), _NARROWEST), 1),
            points=tuple(replace(point, x=round(x_of(point.at), 1)) for point in bar.points),
        )
        for bar in found
    ]


def left_out(found: Sequence[RunBar]) -> int:
    """Of a run that became due long after its slot, such as a retry of an old one: the time in which nothing happened, which
    the axis leaves out so that the rest has room. 0: the axis is whole.
    """
    first, last = ends(found)
    begins = min((bar.start for bar in found if bar.kind != "planned"), default=first)
    return begins - first if begins - first > 2 * (last - begins) else 0


def ends(found: Sequence[RunBar]) -> tuple[int, int]:
    """When the axis begins and ends."""
    return min(bar.start for bar in found), max(bar.end for bar in found)


def _bars(
    run: Run, attempts: Sequence[Attempt], callbacks: Sequence[Callback], now: int, patience: float
) -> Iterator[RunBar]:
    started = [attempt for attempt in attempts if attempt.start_time is not None]
    begins = (started[0].start_time if started else None) or run.end_time or now
    due = run.run_at if run.run_at <= begins else min(run.scheduled_time, begins)  # delayed: it waits all the time
    yield RunBar("planned", min(run.scheduled_time, due), min(run.scheduled_time, due), "active")
    yield RunBar("queue", due, begins, "idle", is_open=not started and run.end_time is None)
    waits = _waiting(run, started[-1], callbacks, now, patience) if started else None
    before: int | None = None
    for attempt in started[-_MOST_ATTEMPTS:]:
        start = attempt.start_time or 0
        if before is not None and start > before:
            yield RunBar("backoff", before, start, "idle")
        end = attempt.end_time or run.end_time or now
        is_parked = waits is not None and attempt is started[-1]
        yield RunBar(
            "attempt",
            start,
            max(start, waits.start if waits is not None and is_parked else end),
            "ok" if is_parked else mark_of(str(attempt.status)),
            attempt.attempt,
            attempt.end_time is None and not is_parked,
            "" if is_parked else str(attempt.status),
            attempt.response_code,
        )
        before = end
    if run.status is RunStatus.RETRYING and before is not None:
        yield RunBar("backoff", before, max(run.next_retry_time or now, before), "idle", is_open=True)
    if waits is not None:
        yield waits
    yield from _callbacks(callbacks)


def _waiting(run: Run, last: Attempt, callbacks: Sequence[Callback], now: int, patience: float) -> RunBar | None:
    """From the moment that the target had taken it on. Where callbacks moved the deadline, that moment is not known."""
    deadline, start = run.callback_deadline, last.start_time or 0
    if deadline is None or run.status is RunStatus.RUNNING or deadline <= start:
        return None
    beats = [Point("beat", each.received_at) for each in callbacks if says(each) == "RUNNING"]
    end = max(start, run.end_time or now)
    if not beats and patience:
        start = min(max(start, deadline - round(patience * SECOND)), end)
    is_over = run.status is RunStatus.FAILED_TIMEOUT
    points = [*sorted(beats, key=lambda point: point.at), *([Point("deadline", min(deadline, end))] if is_over else [])]
    return RunBar(
        "waiting",
        start,
        end,
        "bad" if is_over else "active",
        is_open=run.status not in FINAL,
        points=tuple(point for point in points if start <= point.at <= end),
    )


def _callbacks(callbacks: Sequence[Callback]) -> Iterator[RunBar]:
    """`callbacks` newest first. Those that only asked for more time are on the bar of the wait."""
    told = [each for each in callbacks if says(each) != "RUNNING" or each.status != "RECEIVED"]
    for callback in reversed(told[:_MOST_CALLBACKS]):
        mark = "ok" if callback.status == "RECEIVED" else "bad"
        yield RunBar(
            "callback", callback.received_at, callback.received_at, mark, callback.id, text=callback.reason or ""
        )


class _Said(msgspec.Struct):
    status: str = ""


def says(callback: Callback) -> str:
    """The status in a callback's body; nothing where it has none that can be read."""
    try:
        return msgspec.json.decode(callback.body, type=_Said).status
    except (msgspec.MsgspecError, RecursionError):
        return ""


@dataclass(frozen=True, slots=True)
class ShownProgress:
    current: float
    total: float | None
    percent: float | None
    left_seconds: float | None
    """Estimated from the speed so far; None where there is no estimate."""
    message: str


def progress(run: Run, now: int) -> ShownProgress | None:
    """How far it says that it has come."""
    told = run.progress
    if not told:
        return None
    current, total = _number(told.get("current")), _number(told.get("total"))
    if current is None or total is None or total <= 0:
        return ShownProgress(current or 0, None, None, None, str(told.get("message") or ""))
    part = min(1.0, max(0.0, current / total))
    left = None
    if run.status not in FINAL and run.start_time is not None and 0 < part < 1:
        left = (now - run.start_time) / SECOND * (1 - part) / part
    return ShownProgress(current, total, round(100 * part, 1), left, str(told.get("message") or ""))


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
