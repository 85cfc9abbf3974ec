"""`once`: a single moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import slot_of
from noonbell.fields import meta
from noonbell.fields.problems import ReadContext
from noonbell.when import describe
from noonbell.when.schedule import CalendarKind, Note, Reading, ScheduleMoment, rfc3339
from noonbell.when.zones import Zone, find


class OnceSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="once"):
    noun: ClassVar[str] = "a once schedule"

    at: Annotated[
        ScheduleMoment, meta("Without an offset, local time in the task's zone; if left out, when it is saved.")
    ] = None
    run_if_late: Annotated[bool, meta("False: do not run it late.")] = True


@dataclass(frozen=True, slots=True)
class Once(CalendarKind):
    """`at` is None only in a spec that says "now" and was not normalised yet: it has no slot."""

    kind: ClassVar[str] = "once"
    is_single: ClassVar[bool] = True
    Spec: ClassVar = OnceSpec

    at: int | None
    runs_late: bool
    timezone: str

    @classmethod
    def of(cls, spec: OnceSpec, at: ReadContext, zone: Zone, reading: Reading) -> Once:
        del at
        return cls(reading.now if spec.at is None else slot_of(spec.at), spec.run_if_late, zone.name)

    @property
    def repeat(self) -> int | None:
        return None

    @property
    def run_if_late(self) -> bool:
        return self.runs_late

    def next(self, after: int) -> int | None:
        return self.at if self.at is not None and self.at > after else None

    def previous(self, before: int) -> int | None:
        return self.at if self.at is not None and self.at < before else None

    def count(self, start: int, stop: int) -> int:
        return int(self.at is not None and start <= self.at < stop)

    def mask(self, start: int, stop: int) -> int:
        return 1 << self.at - start if self.at is not None and start <= self.at < stop else 0

    def spec(self) -> dict[str, Any]:
        at = None if self.at is None else rfc3339(self.at)
        return {"type": "once", "at": at, "run_if_late": self.runs_late}

    def describe(self, lang: str = "en") -> str:
        sentence = describe.in_language(_SENTENCES, lang)
        if self.at is None:
            return sentence(None)
        return describe.words(lang).in_zone(sentence(find(self.timezone).local(self.at)), self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        past = after is not None and self.at is not None and self.at < after
        name = "in_the_past" if self.runs_late else "in_the_past_dropped"
        return describe.worded([(name, {})] if past else [], lang)


def _english(at: datetime | None) -> str:
    return "Once, now" if at is None else f"Once, on {at:%Y-%m-%d} at {at:%H:%M:%S}"


def _chinese(at: datetime | None) -> str:
    return "立即执行一次" if at is None else f"{at:%Y-%m-%d %H:%M:%S} 执行一次"


_SENTENCES: Final = {"en": _english, "zh": _chinese}
