"""`monthly`: one day of each month, counted from its start or its end, one time of day, in the task's zone."""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.fields import counted, meta
from noonbell.fields.problems import ReadContext
from noonbell.model.task_schedule import ClockChanges
from noonbell.when import describe
from noonbell.when.phrases import clock
from noonbell.when.schedule import ClockTime, Note, Reading, Repeat, clock_text, repeat_of, seconds_of
from noonbell.when.wall_clock import Days, LocalKind, LocalSlots, Wall
from noonbell.when.zones import Zone


class MonthlySpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="monthly"):
    noun: ClassVar[str] = "a monthly schedule"

    day: Annotated[
        int,
        meta(
            "1 to 31; 0: the last day, -1 to -31: days before the last.",
            ge=-31,
            le=31,
            exact=True,
            expected="a day from 1 to 31, 0 for the last day of the month, or -1 to -31 for days before the last",
            examples=[1],
        ),
    ]
    time: ClockTime
    repeat: Repeat = None


@dataclass(frozen=True, slots=True)
class Monthly(LocalKind):
    """`day` 1 to 31, not beyond the month's last; 0 is the last day, -n the day n days before it, not before the 1st."""

    kind: ClassVar[str] = "monthly"
    Spec: ClassVar = MonthlySpec

    day: int
    time: int
    """Seconds since midnight."""
    repeat: int | None
    timezone: str
    changes: ClockChanges | None
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def of(cls, spec: MonthlySpec, at: ReadContext, zone: Zone, reading: Reading) -> Monthly:
        time = seconds_of(spec.time)
        slots = LocalSlots(Wall.daily(time, _days(spec.day)), zone, True, reading.changes)
        return cls(spec.day, time, repeat_of(spec.repeat, at), zone.name, reading.changes, slots)

    def spec(self) -> dict[str, Any]:
        return {"type": "monthly", "day": self.day, "time": clock_text(self.time), "repeat": self.repeat}

    def describe(self, lang: str = "en") -> str:
        sentence = describe.in_language(_SENTENCES, lang)(self.day, self.time)
        return describe.words(lang).in_zone(sentence, self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        found = describe.of_month_day(self.day) + describe.of_clock_changes(self.slots, after)
        return describe.worded(found, lang)


@lru_cache(maxsize=63)
def _days(day: int) -> Days:
    def mask(year: int, month: int) -> int:
        length = monthrange(year, month)[1]
        return 1 << (min(day, length) if day > 0 else max(1, length + day))

    return Days(mask)


def _english(day: int, time: int) -> str:
    if day > 28:
        return f"At {clock(time)} on day {day} of every month, or its last day"
    if day > 0:
        return f"At {clock(time)} on day {day} of every month"
    if day == 0:
        return f"At {clock(time)} on the last day of every month"
    return f"At {clock(time)}, {counted(-day, 'day')} before the last day of every month"


def _chinese(day: int, time: int) -> str:
    if day > 28:
        return f"每月 {day} 日（不足则为最后一天）{clock(time)}"
    if day > 0:
        return f"每月 {day} 日 {clock(time)}"
    if day == 0:
        return f"每月最后一天 {clock(time)}"
    return f"每月最后一天的前 {-day} 天 {clock(time)}"


_SENTENCES: Final = {"en": _english, "zh": _chinese}
