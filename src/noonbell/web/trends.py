"""How it goes: the figures of the last day beside those of the day before, and how they moved from hour to hour. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.clock import SECOND
from noonbell.model.run import SUCCEEDED, Run, RunStatus
from noonbell.web.lately import DAY, FAILURES

HOUR: Final = 3_600 * SECOND
AIM_MS: Final = 2_000
"""How late a start may be and still be called in time."""
_WIDTH, _HEIGHT, _EDGE = 100.0, 28.0, 2.0
_LOWEST: Final = 90.0
"""Where the line of success begins, unless it falls below: one failure in a hundred is to be seen."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A line without axes."""

    path: str
    """As SVG has it; hours without a value are left out of the line."""
    limit: float | None = None
    """The height of the line that it should stay below."""
    width: float = _WIDTH
    height: float = _HEIGHT


def spark(values: Sequence[float | None], low: float, high: float, limit: float | None = None) -> Spark:
    """`values` from the left to the right, each between `low` and `high`."""
    step, scale = _WIDTH / max(1, len(values) - 1), (_HEIGHT - 2 * _EDGE) / ((high - low) or 1)

    def y_of(value: float) -> float:
        return round(_HEIGHT - _EDGE - (value - low) * scale, 1)

    points = [(round(place * step, 1), y_of(value)) for place, value in enumerate(values) if value is not None]
    path = " ".join(f"{'L' if place else 'M'}{x} {y}" for place, (x, y) in enumerate(points)) if len(points) > 1 else ""
    return Spark(path, None if limit is None else y_of(limit))


@dataclass(frozen=True, slots=True)
class Figures:
    runs: int
    success: float | None
    """In per cent of what succeeded or failed."""
    change: float | None
    """Of the success, in points against the day before; None where that day is not known as a whole."""
    failed: int
    lag_p95_ms: int | None
    """From when a run was due to its start."""
    success_line: Spark
    lag_line: Spark
    callbacks: int
    overdue: int
    """Callbacks whose deadline has passed."""
    next_deadline: int | None
    last_failed: Run | None


def figures(runs: Sequence[Run], now: int, *, is_whole: bool) -> Figures:
    """`runs` of two days, newest first. `is_whole`: they are all there were."""
    today = [run for run in runs if run.scheduled_time >= now - DAY]
    before = success_of([run for run in runs if run.scheduled_time < now - DAY])
    success, lag = success_of(today), late_p95(today)
    deadlines = [run.callback_deadline for run in today if run.status is RunStatus.CALLBACK_PENDING]
    known = [deadline for deadline in deadlines if deadline is not None]
    hours = by_hour(today, now)
    rates, lags = [success_of(hour) for hour in hours], [late_p95(hour) for hour in hours]
    return Figures(
        runs=len(today),
        success=success,
        change=round(success - before, 1) if is_whole and success is not None and before is not None else None,
        failed=sum(run.status in FAILURES for run in today),
        lag_p95_ms=lag,
        success_line=spark(rates, min([_LOWEST, *(rate for rate in rates if rate is not None)]), 100),
        lag_line=spark(lags, 0, max([AIM_MS, *(each for each in lags if each is not None)]), AIM_MS),
        callbacks=len(deadlines),
        overdue=sum(deadline < now for deadline in known),
        next_deadline=min((deadline for deadline in known if deadline >= now), default=None),
        last_failed=next((run for run in runs if run.status in FAILURES), None),
    )


def by_hour(runs: Sequence[Run], now: int, count: int = 24) -> list[list[Run]]:
    """The oldest hour first, the present one last."""
    found: list[list[Run]] = [[] for _ in range(count)]
    for run in runs:
        back = now // HOUR - run.scheduled_time // HOUR
        if 0 <= back < count:
            found[count - 1 - back].append(run)
    return found


def success_of(runs: Sequence[Run]) -> float | None:
    good, bad = sum(run.status in SUCCEEDED for run in runs), sum(run.status in FAILURES for run in runs)
    return round(100 * good / (good + bad), 1) if good + bad else None


def late_p95(runs: Sequence[Run]) -> int | None:
    lags = sorted(
        max(0, run.start_time - run.run_at) // 1000 for run in runs if run.start_time is not None and run.attempt <= 1
    )
    return lags[min(len(lags) - 1, int(len(lags) * 0.95))] if lags else None
