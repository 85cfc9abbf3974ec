"""`interval`: every so many seconds, minutes, hours or days of 86,400 seconds, from an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from noonbell.when import describe, notes
from noonbell.when.fields import Fields, rfc3339
from noonbell.when.schedule import LATEST, Note
from noonbell.when.zones import Zone, find

UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
MODES = ("fixed_rate", "fixed_delay")
LONGEST = 100 * 366 * 86_400
"""A hundred years: more is a mistake."""


@dataclass(frozen=True, slots=True)
class Interval:
    """fixed_rate: anchor + k * step for k >= 1. fixed_delay: each slot is a step after the end of the run before."""

    kind: ClassVar[str] = "interval"

    every: int
    unit: str
    anchor: int | None
    mode: str
    repeat: int | None
    timezone: str

    @classmethod
    def read(cls, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Interval:
        del seconds_field
        unit = given.choice("unit", tuple(UNITS))
        most = LONGEST // UNITS[unit]
        every = given.integer("every", 1, most, f"a whole number of {unit}s from 1 to {most:,} (a hundred years)")
        anchor = given.moment("anchor", zone)
        if anchor is None:
            anchor = now
        mode = given.choice("mode", MODES, MODES[0])
        repeat = given.repeat()
        if anchor is not None and anchor + every * UNITS[unit] > LATEST:
            given.wrong("every", "its first slot would be after the year 9998; expected an earlier anchor")
        given.finish(cls.kind)
        return cls(every, unit, anchor, mode, repeat, zone.name)

    @property
    def step(self) -> int:
        """In seconds."""
        return self.every * UNITS[self.unit]

    @property
    def is_fixed_delay(self) -> bool:
        return self.mode == "fixed_delay"

    @property
    def run_if_late(self) -> bool:
        return True

    def next(self, after: int) -> int | None:
        """With fixed_delay this serves for the first slot: a step after the anchor, or after `after` if that is past."""
        first = self._origin + self.step
        if after < first:
            found = first
        elif self.is_fixed_delay:
            found = after + self.step
        else:
            found = first + ((after - first) // self.step + 1) * self.step
        return found if found <= LATEST else None

    def previous(self, before: int) -> int | None:
        """With fixed_delay only the first slot is known."""
        first = self._origin + self.step
        if before <= first:
            return None
        if self.is_fixed_delay:
            return first
        return first + (min(before, LATEST + 1) - 1 - first) // self.step * self.step

    def count(self, start: int, stop: int) -> int:
        first = self._origin + self.step
        if self.is_fixed_delay:
            return int(start <= first < stop)
        return max(0, self._up_to(stop - 1) - self._up_to(start - 1))

    def after_run(self, end: int) -> int:
        if not self.is_fixed_delay:
            raise ValueError(f"only a fixed_delay interval depends on the end of a run (asked for {end})")
        return end + self.step

    def spec(self) -> dict[str, Any]:
        return {
            "type": "interval",
            "every": self.every,
            "unit": self.unit,
            "anchor": None if self.anchor is None else rfc3339(self.anchor),
            "mode": self.mode,
            "repeat": self.repeat,
        }

    def describe(self, lang: str = "en") -> str:
        return describe.words(lang).interval(self.every, self.unit, self.is_fixed_delay)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        del after
        return notes.worded(notes.of_interval(self.step, self.is_fixed_delay, find(self.timezone)), lang)

    @property
    def _origin(self) -> int:
        """A spec that was not normalised yet has no anchor: count from 1970, so that it can be looked at."""
        return 0 if self.anchor is None else self.anchor

    def _up_to(self, last: int) -> int:
        """How many slots are not after `last`."""
        return max(0, (min(last, LATEST) - self._origin) // self.step)
