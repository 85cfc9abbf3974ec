"""How a queue or a worker did hour by hour, over the last day: from the roll-ups, which count a run in the hour in
which it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.clock import SECOND, Instant
from noonbell.model.rollup import HOUR, Figures, RollUp, Scope, Stretch, stretch_of
from noonbell.ports import Store
from noonbell.service.time_series import busy_share

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


async def last_day(store: Store, kind: Scope, name: str, now: Instant, since: Instant = Instant(0)) -> HourlyFigures:
    """`since`: when it began to work, if that is later."""
    begin = max(now - (HOURS - 1) * HOUR.length, since)
    stretch = stretch_of(begin, now + 1, now, HOUR)
    return day_of(await store.rollups(kind, stretch, names=[name], step=HOUR), stretch, now, since)


def day_of(rows: Sequence[RollUp], stretch: Stretch, now: Instant, since: Instant = Instant(0)) -> HourlyFigures:
    found = {row.at: row.figures for row in rows}
    total = Figures()
    for figures in found.values():
        total.merge(figures)
    hours = [
        Hour(
            Instant(at),
            (min(now, at + HOUR.length) - max(at, since)) / SECOND,
            found.get(Instant(at), Figures()),
        )
        for at in range(stretch.since, min(stretch.until, now + 1), HOUR.length)
    ]
    return HourlyFigures(stretch, hours[::-1], total)
