"""`monthly`: one day of each month, counted from its start or its end, one time of day, in the task's zone."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from noonbell.when import describe, notes
from noonbell.when.fields import Fields, clock_text
from noonbell.when.local import LocalSlots
from noonbell.when.schedule import CalendarKind, Note
from noonbell.when.wall import Days, Wall
from noonbell.when.zones import Zone


@dataclass(frozen=True, slots=True)
class Monthly(CalendarKind):
    """`day` 1 to 31, not beyond the month's last; 0 is the last day, -n the day n days before it, not before the 1st."""

    kind: ClassVar[str] = "monthly"

    day: int
    time: int
    """Seconds since midnight."""
    repeat: int | None
    timezone: str
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def read(cls, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Monthly:
        del now, seconds_field
        what = "a day from 1 to 31, 0 for the last day of the month, or -1 to -31 for days before the last"
        day = given.integer("day", -31, 31, what)
        time = given.clock_time()
        repeat = given.repeat()
        given.finish(cls.kind)
        return cls(day, time, repeat, zone.name, LocalSlots(Wall.daily(time, _days(day)), zone, fixed=True))

    def next(self, after: int) -> int | None:
        return self.slots.next(after)

    def previous(self, before: int) -> int | None:
        return self.slots.previous(before)

    def count(self, start: int, stop: int) -> int:
        return self.slots.count(start, stop)

    def spec(self) -> dict[str, Any]:
        return {"type": "monthly", "day": self.day, "time": clock_text(self.time), "repeat": self.repeat}

    def describe(self, lang: str = "en") -> str:
        words = describe.words(lang)
        return words.in_zone(words.monthly(self.day, self.time), self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        found = notes.of_month_day(self.day) + notes.of_clock_changes(self.slots, after)
        return notes.worded(found, lang)


@lru_cache(maxsize=63)
def _days(day: int) -> Days:
    def mask(year: int, month: int) -> int:
        length = monthrange(year, month)[1]
        return 1 << (min(day, length) if day > 0 else max(1, length + day))

    return Days(mask)
