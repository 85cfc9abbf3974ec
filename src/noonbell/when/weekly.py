"""`weekly`: one weekday, one time of day, in the task's zone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from noonbell.when import describe, notes
from noonbell.when.cron_days import weekday_mask
from noonbell.when.fields import Fields, clock_text
from noonbell.when.local import LocalSlots
from noonbell.when.schedule import CalendarKind, Note
from noonbell.when.wall import Days, Wall
from noonbell.when.zones import Zone


@dataclass(frozen=True, slots=True)
class Weekly(CalendarKind):
    kind: ClassVar[str] = "weekly"

    weekday: int
    """Sunday is 0."""
    time: int
    """Seconds since midnight."""
    repeat: int | None
    timezone: str
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def read(cls, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Weekly:
        del now, seconds_field
        weekday = given.integer("weekday", 0, 6, "a weekday from 0 (Sunday) to 6 (Saturday)")
        time = given.clock_time()
        repeat = given.repeat()
        given.finish(cls.kind)
        return cls(weekday, time, repeat, zone.name, LocalSlots(Wall.daily(time, _days(weekday)), zone, fixed=True))

    def next(self, after: int) -> int | None:
        return self.slots.next(after)

    def previous(self, before: int) -> int | None:
        return self.slots.previous(before)

    def count(self, start: int, stop: int) -> int:
        return self.slots.count(start, stop)

    def spec(self) -> dict[str, Any]:
        return {"type": "weekly", "weekday": self.weekday, "time": clock_text(self.time), "repeat": self.repeat}

    def describe(self, lang: str = "en") -> str:
        words = describe.words(lang)
        return words.in_zone(words.weekly(self.weekday, self.time), self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        return notes.worded(notes.of_clock_changes(self.slots, after), lang)


@lru_cache(maxsize=7)
def _days(weekday: int) -> Days:
    return Days(lambda year, month: weekday_mask(weekday, year, month))
