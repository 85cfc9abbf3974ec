"""`once`: a single moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from noonbell.when import describe, notes
from noonbell.when.fields import Fields, rfc3339
from noonbell.when.schedule import CalendarKind, Note
from noonbell.when.zones import Zone, find


@dataclass(frozen=True, slots=True)
class Once(CalendarKind):
    """`at` is None only in a spec that says "now" and was not normalised yet: it has no slot."""

    kind: ClassVar[str] = "once"

    at: int | None
    runs_late: bool
    timezone: str

    @classmethod
    def read(cls, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Once:
        """A time without an offset is local time in the task's zone."""
        del seconds_field
        at = given.moment("at", zone)
        if at is None:
            at = now
        runs_late = given.flag("run_if_late", default=True)
        given.finish(cls.kind)
        return cls(at, runs_late, zone.name)

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

    def spec(self) -> dict[str, Any]:
        at = None if self.at is None else rfc3339(self.at)
        return {"type": "once", "at": at, "run_if_late": self.runs_late}

    def describe(self, lang: str = "en") -> str:
        words = describe.words(lang)
        if self.at is None:
            return words.once(None)
        return words.in_zone(words.once(find(self.timezone).local(self.at)), self.timezone)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        past = after is not None and self.at is not None and self.at < after
        return notes.worded([("in_the_past", {})] if past else [], lang)
