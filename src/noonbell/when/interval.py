"""`interval`: every N seconds, minutes, hours or days of 86,400 seconds, from an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from noonbell.clock import LATEST, slot_of
from noonbell.fields import counted, meta
from noonbell.fields.problems import ReadContext
from noonbell.when import describe, words_en, words_zh
from noonbell.when.schedule import Note, Reading, Repeat, ScheduleMoment, repeat_of, rfc3339
from noonbell.when.zones import Zone, find

_SHORT = {"s": "second", "m": "minute", "h": "hour", "d": "day"}
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
LONGEST = 100 * 366 * 86_400
"""A hundred years: more is a mistake."""


def from_short(text: str) -> dict[str, Any] | None:
    """`10s`, `5m`, `2h`, `1d` as a schedule; None for any other text."""
    number, unit = text[:-1], _SHORT.get(text[-1:])
    if unit is None or not (number.isascii() and number.isdecimal()) or len(number) > 10:
        return None
    return {"type": "interval", "every": int(number), "unit": unit}


class IntervalSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="interval"):
    noun: ClassVar[str] = "an interval schedule"

    unit: Annotated[
        Literal["second", "minute", "hour", "day"], meta("A day is 86,400 seconds.", choices=UNITS, examples=["second"])
    ]
    every: Annotated[
        int,
        meta(
            "The number of units; at most a hundred years.",
            ge=0,
            le=LONGEST,
            exact=True,
            expected="a whole number of units, 1 or more",
            examples=[30],
            schema={"minimum": 1},
        ),
    ]
    anchor: Annotated[ScheduleMoment, meta("When it starts counting; if left out, when it is saved.")] = None
    mode: Annotated[
        Literal["fixed_rate", "fixed_delay"],
        meta("From the previous slot, or from the end of the previous run.", choices=("fixed_rate", "fixed_delay")),
    ] = "fixed_rate"
    repeat: Repeat = None


@dataclass(frozen=True, slots=True)
class Interval:
    """fixed_rate: anchor + k * step for k >= 1. fixed_delay: each slot is a step after the end of the run before."""

    kind: ClassVar[str] = "interval"
    is_single: ClassVar[bool] = False
    Spec: ClassVar = IntervalSpec

    every: int
    unit: str
    anchor: int | None
    mode: str
    repeat: int | None
    timezone: str

    @classmethod
    def of(cls, spec: IntervalSpec, at: ReadContext, zone: Zone, reading: Reading) -> Interval:
        most = LONGEST // UNITS[spec.unit]
        what = f"a whole number of {spec.unit}s from 1 to {most:,} (a hundred years)"
        if not 1 <= spec.every <= most:
            at.expected("every", spec.every, what)
        anchor = reading.now if spec.anchor is None else slot_of(spec.anchor)
        if anchor is not None and anchor + spec.every * UNITS[spec.unit] > LATEST:
            at.wrong("every", "its first slot would be after the year 9998; expected an earlier anchor")
        return cls(spec.every, spec.unit, anchor, spec.mode, repeat_of(spec.repeat, at), zone.name)

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
        step = self.step
        first = self._origin + step
        if after < first:
            found = first
        elif self.is_fixed_delay:
            found = after + step
        else:
            found = first + ((after - first) // step + 1) * step
        return found if found <= LATEST else None

    def previous(self, before: int) -> int | None:
        """With fixed_delay only the first slot is known."""
        step = self.step
        first = self._origin + step
        if before <= first:
            return None
        if self.is_fixed_delay:
            return first
        return first + (min(before, LATEST + 1) - 1 - first) // step * step

    def count(self, start: int, stop: int) -> int:
        first = self._origin + self.step
        if self.is_fixed_delay:
            return int(start <= first < stop)
        return max(0, self._up_to(stop - 1) - self._up_to(start - 1))

    def mask(self, start: int, stop: int) -> int:
        """The slots in start <= slot < stop: bit n is start + n. For stretches of some days."""
        number = self.count(start, stop)
        if number == 0:
            return 0
        found, there = 1, 1
        while there < number:
            more = min(there, number - there)
            found |= found << more * self.step
            there += more
        first = self.next(start - 1)
        return found << (start if first is None else first) - start

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
        return describe.in_language(_SENTENCES, lang)(self.every, self.unit, self.is_fixed_delay)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        del after
        return describe.worded(describe.of_interval(self.step, self.is_fixed_delay, find(self.timezone)), lang)

    @property
    def _origin(self) -> int:
        """A spec that was not normalised yet has no anchor: count from 1970, so that it can be looked at."""
        return 0 if self.anchor is None else self.anchor

    def _up_to(self, last: int) -> int:
        """How many slots are not after `last`."""
        return max(0, (min(last, LATEST) - self._origin) // self.step)


def _english(every: int, unit: str, fixed_delay: bool) -> str:
    if fixed_delay:
        return f"{counted(every, unit)} after the end of the run before"
    return f"Every {words_en.span(every, unit)}"


def _chinese(every: int, unit: str, fixed_delay: bool) -> str:
    if fixed_delay:
        return f"上一次执行结束后 {every} {words_zh.UNITS[unit]}"
    return words_zh.every(every, unit)


_SENTENCES: Final = {"en": _english, "zh": _chinese}
