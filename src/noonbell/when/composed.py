"""A schedule that is made of others: every slot that one of them names, without those that an excluded one names.

It is a schedule like any other, so what plans, counts, shows and explains slots sees one schedule.

Dense schedules are neither searched nor counted slot by slot: a day of slots is a number with 86,400 bits, and union and
difference are `|` and `& ~`. A search that meets nothing but excluded slots gives up after some thousand days that have any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from noonbell.when import describe
from noonbell.when.schedule import CalendarKind, Note, Schedule
from noonbell.when.zones import DAY, YEAR

_MOST_MASKS: Final = 8_000
"""What a search for a slot costs at most, a quarter of a second: the days that it looks at, times the schedules of each."""
_LEAST_DAYS: Final = 400
"""Days with excluded slots and no other that every search passes: more than a year of a daily schedule."""
_STEPS: Final = 64
"""Excluded slots that a search passes one by one, before it goes on day by day."""


@dataclass(frozen=True, slots=True)
class Composed(CalendarKind):
    """`parts` name its slots, `excluded` take slots away. Neither holds a fixed_delay, and `parts` no `once`."""

    kind: ClassVar[str] = "composed"

    parts: tuple[Schedule, ...]
    excluded: tuple[Schedule, ...] = ()

    @property
    def repeat(self) -> int | None:
        """Of a single part: it counts the slots that are left. Several parts have none."""
        return self.parts[0].repeat if len(self.parts) == 1 else None

    @property
    def most_days(self) -> int:
        """How many days with excluded slots, and with no other, a search passes. Beyond them it says that there is none."""
        return max(_LEAST_DAYS, _MOST_MASKS // (len(self.parts) + len(self.excluded)))

    def next(self, after: int) -> int | None:
        at = after
        for _ in range(_STEPS):
            found = self._next_of_parts(at)
            if found is None or not self._is_excluded(found):
                return found
            at = found
        return self._next_by_days(at)

    def previous(self, before: int) -> int | None:
        at = before
        for _ in range(_STEPS):
            found = self._previous_of_parts(at)
            if found is None or not self._is_excluded(found):
                return found
            at = found
        return self._previous_by_days(at)

    def count(self, start: int, stop: int) -> int:
        """The number of slots in start <= slot < stop. Costs a step for each day that has one."""
        total, at = 0, start
        while True:
            found = self.next(at - 1)
            if found is None or found >= stop:
                return total
            at = min(found + DAY, stop)
            total += self.mask(found, at).bit_count()

    def mask(self, start: int, stop: int) -> int:
        """The slots in start <= slot < stop: bit n is start + n. For stretches of some days."""
        found = _union(self.parts, start, stop)
        return found & ~_union(self.excluded, start, stop) if found else 0

    def excludes(self, slot: int) -> bool:
        """Whether it would name this moment, if nothing were excluded."""
        return self._next_of_parts(slot - 1) == slot and self._is_excluded(slot)

    def leaves_out_everything(self, after: int) -> bool:
        """Whether its parts name a slot after that moment, and the search finds none that is not excluded."""
        return self._next_of_parts(after) is not None and self.next(after) is None

    def spec(self) -> dict[str, Any]:
        """No kind of the table: the fields of a task that it is made from."""
        return {
            "schedules": [part.spec() for part in self.parts],
            "exclude": [part.spec() for part in self.excluded],
        }

    def describe(self, lang: str = "en") -> str:
        said = [part.describe(lang) for part in self.parts]
        return describe.words(lang).composed(said, [part.describe(lang) for part in self.excluded])

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        found = dict.fromkeys(note for part in self.parts for note in part.notes(lang, after))
        if after is not None:
            idle = [number for number, part in enumerate(self.excluded) if not self._meets(part, after, after + YEAR)]
            found |= dict.fromkeys(describe.worded([("excludes_nothing", {"index": number}) for number in idle], lang))
        return tuple(found)

    def _meets(self, part: Schedule, after: int, until: int) -> bool:
        """Whether `part` takes away a slot in after < slot <= until."""
        at = part.next(after)
        while at is not None and at <= until:
            end = min(at + DAY, until + 1)
            if _union((part,), at, end) & _union(self.parts, at, end):
                return True
            at = part.next(end - 1)
        return False

    def _next_of_parts(self, after: int) -> int | None:
        found = [slot for part in self.parts if (slot := part.next(after)) is not None]
        return min(found, default=None)

    def _previous_of_parts(self, before: int) -> int | None:
        found = [slot for part in self.parts if (slot := part.previous(before)) is not None]
        return max(found, default=None)

    def _is_excluded(self, slot: int) -> bool:
        return any(part.next(slot - 1) == slot for part in self.excluded)

    def _next_by_days(self, after: int) -> int | None:
        for _ in range(self.most_days):
            first = self._next_of_parts(after)
            if first is None:
                return None
            left = self.mask(first, first + DAY)
            if left:
                return first + (left & -left).bit_length() - 1
            after = first + DAY - 1
        return None

    def _previous_by_days(self, before: int) -> int | None:
        for _ in range(self.most_days):
            last = self._previous_of_parts(before)
            if last is None:
                return None
            first = last - DAY + 1
            left = self.mask(first, last + 1)
            if left:
                return first + left.bit_length() - 1
            before = first
        return None


def _union(parts: tuple[Schedule, ...], start: int, stop: int) -> int:
    found = 0
    for part in parts:
        found |= part.mask(start, stop)
    return found
