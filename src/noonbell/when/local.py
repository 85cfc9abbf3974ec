"""From moments on a wall clock to slots: where daylight saving is decided.

Debian cron's rules. A *fixed* rule names times of day: what falls into the hour that the clock skips is done once,
right after the gap; an hour that the clock shows twice counts the first time only. A rule that is not fixed runs every
so often and follows elapsed time: nothing happens for a skipped hour, and a repeated hour is an hour like any other.
Where a cron schedule says `dst: wall`, no rule is fixed.
"""

from __future__ import annotations

from noonbell.when.schedule import EARLIEST, LATEST
from noonbell.when.wall import DAY, Wall
from noonbell.when.zones import Stretch, Zone

_REACH = 2 * DAY
"""More than any local clock differs from UTC, or changes by."""


class LocalSlots:
    """The slots that a wall clock in `zone` gives to `wall`. Moments of one gap become one slot, however many."""

    __slots__ = ("_constant", "_wall", "fixed", "zone")

    def __init__(self, wall: Wall, zone: Zone, fixed: bool) -> None:
        self._wall, self.zone, self.fixed = wall, zone, fixed
        self._constant = zone.constant

    def next(self, after: int) -> int | None:
        at = max(after + 1, EARLIEST)
        if at > LATEST:
            return None
        if self._constant is None:
            found = self._next_among_stretches(at)
        else:
            found = self._wall.at_or_after(at + self._constant)
            if found is not None:
                found -= self._constant
        return found if found is not None and found <= LATEST else None

    def previous(self, before: int) -> int | None:
        at = min(before - 1, LATEST)
        if at < EARLIEST:
            return None
        if self._constant is None:
            found = self._previous_among_stretches(at)
        else:
            found = self._wall.at_or_before(at + self._constant)
            if found is not None:
                found -= self._constant
        return found if found is not None and found >= EARLIEST else None

    def count(self, start: int, stop: int) -> int:
        """The number of slots in start <= slot < stop."""
        at, stop = max(start, EARLIEST), min(stop, LATEST + 1)
        total = 0
        while at < stop:
            held = self.zone.stretch(at)
            if at == held.start and self._gap_is_filled(held):
                begins = held.start + held.offset
                total += self._wall.at_or_after(begins) != begins
            low = at + held.offset
            if self.fixed and held.seen > low:
                low = held.seen
            total += self._wall.count(low, min(held.stop, stop) + held.offset)
            at = held.stop
        return total

    def in_gaps(self, start: int, stop: int) -> tuple[int, int] | None:
        """The first clock change in start <= t < stop whose gap swallows a moment: (that local second, the slot)."""
        for held in self._changes(start, stop):
            if held.seen < held.start + held.offset:
                found = self._wall.at_or_after(held.seen)
                if found is not None and found < held.start + held.offset:
                    return found, held.start
        return None

    def in_overlaps(self, start: int, stop: int) -> tuple[int, int] | None:
        """The first clock change in start <= t < stop that shows a moment twice: (that local second, the change)."""
        for held in self._changes(start, stop):
            begins = held.start + held.offset
            if held.seen > begins:
                found = self._wall.at_or_after(begins)
                if found is not None and found < held.seen:
                    return found, held.start
        return None

    def _changes(self, start: int, stop: int) -> list[Stretch]:
        changes: list[Stretch] = []
        at = max(start, EARLIEST)
        while at < min(stop, LATEST):
            held = self.zone.stretch(at)
            if held.start >= start and held.seen != held.start + held.offset:
                changes.append(held)
            at = held.stop
        return changes

    def _gap_is_filled(self, held: Stretch) -> bool:
        """Whether a fixed rule has a moment in the gap that ends where this stretch begins."""
        begins = held.start + held.offset
        if not self.fixed or held.seen >= begins:
            return False
        found = self._wall.at_or_after(held.seen)
        return found is not None and found < begins

    def _next_among_stretches(self, at: int) -> int | None:
        held = self.zone.stretch(at)
        walked = False
        while True:
            if at == held.start and self._gap_is_filled(held):
                return at
            local = at + held.offset
            if self.fixed and held.seen > local:
                local = held.seen
            found = self._wall.at_or_after(local)
            if found is None:
                return None
            if found < held.stop + held.offset:
                return found - held.offset
            at = held.stop
            # The stretch after this one may repeat local times from before `local`. Any later one cannot show a moment
            # earlier than `found`, so from there on go straight to it.
            if walked:
                at = max(at, found - _REACH)
            walked = True
            if at > LATEST:
                return None
            held = self.zone.stretch(at)

    def _previous_among_stretches(self, at: int) -> int | None:
        held = self.zone.stretch(at)
        walked = False
        while True:
            found = self._wall.at_or_before(at + held.offset)
            begins = held.start + held.offset
            if found is not None and found >= (max(begins, held.seen) if self.fixed else begins):
                return found - held.offset
            if self._gap_is_filled(held):
                return held.start
            if found is None:
                return None
            at = held.start - 1
            if walked:
                at = min(at, found + _REACH)
            walked = True
            if at < EARLIEST:
                return None
            held = self.zone.stretch(at)
