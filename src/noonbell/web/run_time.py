"""A run on the axis of time: what it waited for, its attempts, the callbacks that came. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.model.event import Callback
from noonbell.model.run import Attempt, Run, RunStatus
from noonbell.web.badges import mark_of

WIDTH: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    kind: str
    """`queue`, `attempt`, `backoff`, `waiting`, `callback`: which sentence goes with it."""
    start: int
    end: int
    mark: str
    number: int = 0
    """Of the attempt."""
    is_open: bool = False
    """It is not over."""
    text: str = ""
    x: float = 0
    width: float = 0


def bars(run: Run, attempts: Sequence[Attempt], callbacks: Sequence[Callback], now: int) -> list[Bar]:
    """In the order of time, each with its place on an axis of WIDTH."""
    found = list(_bars(run, attempts, callbacks, now))
    if not found:
        return []
    first, last = min(bar.start for bar in found), max(bar.end for bar in found)
    scale = WIDTH / max(1, last - first)
    return [
        Bar(
            bar.kind,
            bar.start,
            bar.end,
            bar.mark,
            bar.number,
            bar.is_open,
            bar.text,
            x=min((bar.start - first) * scale, WIDTH - 4),
            width=max((bar.end - bar.start) * scale, 4.0),
        )
        for bar in found
    ]


def _bars(run: Run, attempts: Sequence[Attempt], callbacks: Sequence[Callback], now: int) -> Iterator[Bar]:
    started = [attempt for attempt in attempts if attempt.start_time is not None]
    begins = started[0].start_time if started else run.end_time or now
    due = min(run.run_at, begins or now)
    yield Bar("queue", due, begins or now, "idle", is_open=not started and run.end_time is None)
    before: int | None = None
    for attempt in started:
        start = attempt.start_time or 0
        if before is not None and start > before:
            yield Bar("backoff", before, start, "idle")
        end = attempt.end_time or run.end_time or now
        is_parked = attempt.status == RunStatus.CALLBACK_PENDING or (
            run.status is RunStatus.CALLBACK_PENDING and attempt is started[-1]
        )
        mark = "ok" if is_parked else mark_of(str(attempt.status))
        yield Bar(
            "attempt", start, max(start, end), mark, attempt.attempt, attempt.end_time is None, str(attempt.status)
        )
        before = end
    if run.status is RunStatus.RETRYING and before is not None:
        yield Bar("backoff", before, max(run.next_retry_time or now, before), "idle", is_open=True)
    if run.callback_deadline is not None and run.status is RunStatus.CALLBACK_PENDING and started:
        yield Bar("waiting", started[-1].start_time or 0, now, "active", is_open=True)
    for callback in reversed(callbacks):
        mark = "ok" if callback.status == "RECEIVED" else "bad"
        yield Bar("callback", callback.received_at, callback.received_at, mark, text=callback.reason or "")
