"""How a queue or a worker did hour by hour, over the last day: from the roll-ups, which count a run in the hour in
which it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.clock import Instant
from noonbell.model.rollup import HOUR, Figures, RollUp, Scope, Stretch, stretch_of
from noonbell.ports import Store
from noonbell.service.time_series import busy_share, seconds_at_work

HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour; the last one is not over."""

    at: Instant
    seconds: float
    """How much of it has passed."""
    figures: Figures

    def share_of(self, places: int) -> float:
        """How much of the time of `places` places was spent on runs that ended in this hour; over 1 where they began before."""
        return busy_share(self.figures, places, self.seconds)


@dataclass(frozen=True, slots=True)
class HourlyFigures:
    stretch: Stretch
    hours: list[Hour]
    """The newest first; also those without runs."""
    total: Figures

    def share_of(self, places: int) -> float:
        return busy_share(self.total, places, sum(hour.seconds for hour in self.hours))


async def last_day(
    store: Store, kind: Scope, name: str, now: Instant, since: Instant = Instant(0), places: int = 0
) -> HourlyFigures:
    """`since`, `places`: of a worker, when it started, and how many runs it may execute at once."""
    stretch = stretch_of(now - (HOURS - 1) * HOUR.length, now + 1, now, HOUR)
    rows = await store.rollups(kind, stretch, names=[name], step=HOUR)
    first = min([since, *(row.at for row in rows)])  # a worker may have worked under its name before
    if first > stretch.since:
        stretch = stretch_of(first, now + 1, now, HOUR)
    return day_of(rows, stretch, now, since, places)


def day_of(
    rows: Sequence[RollUp], stretch: Stretch, now: Instant, since: Instant = Instant(0), places: int = 0
) -> HourlyFigures:
    found = {row.at: row.figures for row in rows}
    total = Figures()
    for figures in found.values():
        total.merge(figures)
    steps = range(stretch.since, min(stretch.until, now + 1), HOUR.length)
    figures_of = {at: found.get(at, Figures()) for at in map(Instant, steps)}
    seconds = seconds_at_work(figures_of, HOUR.length, now, places, since)
    hours = [Hour(at, seconds[at], figures) for at, figures in figures_of.items()]
    return HourlyFigures(stretch, hours[::-1], total)
