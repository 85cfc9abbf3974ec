"""An axis of time: where a moment lies, what is written along it, and where the zone's clock changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from noonbell.clock import SECOND, Instant
from noonbell.web.times import offset
from noonbell.when.zones import Zone

WIDTH: Final = 1_000.0
_STEPS: Final = (60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Seconds between two labels."""
_MOST_TICKS: Final = 9


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str
    is_day: bool
    """A new day begins here."""


@dataclass(frozen=True, slots=True)
class Change:
    """The zone's clock goes forward or back."""

    x: float
    at: Instant
    was: str
    will: str


@dataclass(frozen=True, slots=True)
class Axis:
    since: Instant
    until: Instant
    zone: Zone

    @property
    def length(self) -> int:
        return max(1, self.until - self.since)

    def x(self, at: int) -> float:
        """Within the axis: what lies outside is at its end."""
        place = (min(max(at, self.since), self.until) - self.since) / self.length
        return round(place * WIDTH, 2)

    def width(self, start: int, end: int, least: float = 2.0) -> float:
        return round(max(self.x(end) - self.x(start), least), 2)

    def ticks(self) -> list[Tick]:
        """Whole minutes, hours or days of the zone's clock, also across a change of it."""
        seconds = self.length // SECOND
        step = next((size for size in _STEPS if seconds / size <= _MOST_TICKS), _STEPS[-1])
        found: list[Tick] = []
        for start, stop, shift in self._stretches():
            first = -(-(start + shift) // step) * step - shift
            for at in range(first, stop, step):
                local = self.zone.local(at)
                is_day = (local.hour, local.minute) == (0, 0)
                text = f"{local:%m-%d}" if is_day or step >= 86_400 else f"{local:%H:%M}"
                found.append(Tick(self.x(at * SECOND), text, is_day))
        return found

    def changes(self) -> list[Change]:
        edges = [start for start, _, _ in self._stretches()][1:]
        return [
            Change(
                self.x(at * SECOND),
                Instant(at * SECOND),
                offset(self.zone.local(at - 1)),
                offset(self.zone.local(at)),
            )
            for at in edges
        ]

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop and offset of each part in which the clock runs evenly, in seconds."""
        at, end = int(self.since // SECOND), int(self.until // SECOND)
        while at < end:
            shift = self.zone.offset(at)
            stop = self.zone.stretch(at).stop
            while stop < end and self.zone.offset(stop) == shift:  # the zone's own pages meet there, nothing changes
                stop = self.zone.stretch(stop).stop
            yield at, min(stop, end), shift
            at = stop
