"""`weekly`: one weekday, one time of day, in the task's zone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.fields import meta
from noonbell.fields.problems import ReadContext
from noonbell.model.task_schedule import ClockChanges
from noonbell.when import describe, words_en, words_zh
from noonbell.when.cron import weekday_mask
from noonbell.when.phrases import clock
from noonbell.when.schedule import ClockTime, Note, Reading, Repeat, clock_text, repeat_of, seconds_of
from noonbell.when.wall_clock import Days, LocalKind, LocalSlots, Wall
from noonbell.when.zones import Zone


class WeeklySpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="weekly"):
    noun: ClassVar[str] = "a weekly schedule"

    weekday: Annotated[
        int,
        meta(
            "0 (Sunday) to 6.",
            ge=0,
            le=6,
            exact=True,
            expected="a weekday from 0 (Sunday) to 6 (Saturday)",
            examples=[1],
        ),
    ]
    time: ClockTime
    repeat: Repeat = None


@dataclass(frozen=True, slots=True)
class Weekly(LocalKind):
    kind: ClassVar[str] = "weekly"
    Spec: ClassVar = WeeklySpec

    weekday: int
    """Sunday is 0."""
    time: int
    """Seconds since midnight."""
    repeat: int | None
    timezone: str
    changes: ClockChanges | None
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def of(cls, spec: WeeklySpec, at: ReadContext, zone: Zone, reading: Reading) -> Weekly:
        time = seconds_of(spec.time)
        slots = LocalSlots(Wall.daily(time, _days(spec.weekday)), zone, True, reading.changes)
        return cls(spec.weekday, time, repeat_of(spec.repeat, at), zone.name, reading.changes, slots)

    def spec(self) -> dict[str, Any]:
        return {"type": "weekly", "weekday": self.weekday, "time": clock_text(self.time), "repeat": self.repeat}

    def describe(self, lang: str = "en") -> str:
        sentence = describe.in_language(_SENTENCES, lang)(self.weekday, self.time)
        return describe.words(lang).in_zone(sentence, self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        return describe.worded(describe.of_clock_changes(self.slots, after), lang)


@lru_cache(maxsize=7)
def _days(weekday: int) -> Days:
    return Days(lambda year, month: weekday_mask(weekday, year, month))


def _english(weekday: int, time: int) -> str:
    return f"At {clock(time)} every {words_en.WEEKDAYS[weekday]}"


def _chinese(weekday: int, time: int) -> str:
    return f"每{words_zh.WEEKDAYS[weekday]} {clock(time)}"


_SENTENCES: Final = {"en": _english, "zh": _chinese}
