"""Moments that a wall clock names, and the slots that they become: where daylight saving is decided.

Here a *local second* is the reading of a wall clock, counted as seconds since 1970-01-01 00:00 on that same clock.
Hours, minutes and seconds are bit masks; so are the days of each month, computed once per month and kept.

`LocalSlots` follows Debian cron's rules. A *fixed* rule names times of day: what falls into the hour that the clock skips is
done once, right after the gap; an hour that the clock shows twice counts the first time only. A rule that is not fixed runs
at a regular distance and follows elapsed time: nothing happens for a skipped hour, and a repeated hour is an hour like any
other. Where a cron schedule says `dst: wall`, no rule is fixed. What a task says of clock changes (`ClockChanges`) comes before
either: a moment of the gap can also be *moved*, to before the change, and a repeated one can count the last time.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Callable, Iterator
from datetime import date
from functools import lru_cache

from noonbell.clock import EARLIEST, LATEST
from noonbell.model.task_schedule import ClockChanges, GapRule, RepeatedTimeRule
from noonbell.when.schedule import CalendarKind
from noonbell.when.zones import CYCLE, SETTLED, OffsetSpan, Zone

DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_MONTH, _LAST_MONTH = 1 * 12, 9999 * 12 + 11
_CYCLE = 400 * 12
"""Months after which the calendar is the same again: 146,097 days, which are whole weeks."""
_KEPT = 4096

DayMask = Callable[[int, int], int]
"""(year, month) → the days of that month, bit 1 for the 1st. Months that begin on the same weekday have the same, in
leap years and in others.
"""


@lru_cache(maxsize=4096)
def _upward(mask: int, size: int) -> tuple[int, ...]:
    """For each n in 0..size the lowest bit at or above it, or -1."""
    table = [-1] * (size + 1)
    for n in range(size - 1, -1, -1):
        table[n] = n if mask >> n & 1 else table[n + 1]
    return tuple(table)


@lru_cache(maxsize=4096)
def _downward(mask: int, size: int) -> tuple[int, ...]:
    """For each n in 0..size-1 the highest bit at or below it, or -1; and -1 at index -1."""
    table = [-1] * (size + 1)
    for n in range(size):
        table[n] = n if mask >> n & 1 else table[n - 1]
    return tuple(table)


class Days:
    """The days that a rule picks, found month by month and kept. Shared by all schedules with the same rule."""

    __slots__ = ("_later", "_mask", "_masks", "_months", "_per_cycle")

    def __init__(self, mask: DayMask) -> None:
        self._mask = mask
        self._masks: dict[tuple[int, int, bool], int] = {}
        self._months: dict[int, tuple[int, int]] = {}
        self._later: dict[int, int] = {}
        self._per_cycle: int | None = None

    def month(self, index: int) -> tuple[int, int]:
        """The day mask of month `index` (year * 12 + month - 1), and the day number of its day 0."""
        held = self._months.get(index)
        if held is None:
            if len(self._months) > _KEPT:
                self._months.clear()
            year, month = divmod(index, 12)
            origin = date(year, month + 1, 1).toordinal() - _EPOCH - 1
            alike = (month, origin % 7, isleap(year))
            mask = self._masks.get(alike)
            if mask is None:
                mask = self._masks[alike] = self._mask(year, month + 1)
            held = self._months[index] = (mask, origin)
        return held

    def at_or_after(self, day: int) -> int | None:
        """The first picked day that is not before day number `day` (1970-01-01 is 0)."""
        when = date.fromordinal(day + _EPOCH)
        index = when.year * 12 + when.month - 1
        mask, origin = self.month(index)
        rest = mask >> when.day
        if rest:
            return day + (rest & -rest).bit_length() - 1
        later = self._later.get(index)
        if later is None:
            later = self._next_month(index)
        if later > _LAST_MONTH:
            return None
        mask, origin = self.month(later)
        return origin + (mask & -mask).bit_length() - 1

    def at_or_before(self, day: int) -> int | None:
        when = date.fromordinal(day + _EPOCH)
        index = when.year * 12 + when.month - 1
        mask, origin = self.month(index)
        mask &= (2 << when.day) - 1
        while not mask:
            index -= 1
            if index < _FIRST_MONTH:
                return None
            mask, origin = self.month(index)
        return origin + mask.bit_length() - 1

    def has(self, day: int) -> bool:
        when = date.fromordinal(day + _EPOCH)
        return bool(self.month(when.year * 12 + when.month - 1)[0] >> when.day & 1)

    def count(self, start: int, stop: int) -> int:
        """How many picked days there are in start <= day < stop."""
        if stop <= start:
            return 0
        first, last = date.fromordinal(start + _EPOCH), date.fromordinal(stop + _EPOCH)
        low, high = first.year * 12 + first.month - 1, last.year * 12 + last.month - 1
        total = -(self.month(low)[0] & ((1 << first.day) - 1)).bit_count()
        cycles = (high - low) // _CYCLE
        if cycles:
            total += cycles * self._in_a_cycle()
        for index in range(low + cycles * _CYCLE, high):
            total += self.month(index)[0].bit_count()
        return total + (self.month(high)[0] & ((1 << last.day) - 1)).bit_count()

    def _in_a_cycle(self) -> int:
        """How many picked days there are in any 400 years on end."""
        if self._per_cycle is None:
            self._per_cycle = sum(self.month(index)[0].bit_count() for index in range(2000 * 12, 2000 * 12 + _CYCLE))
        return self._per_cycle

    def _next_month(self, index: int) -> int:
        """The first month after `index` that has a picked day: remembered, because leap days are far apart.

        Beyond the last month if there is none.
        """
        later, last = index + 1, min(_LAST_MONTH, index + _CYCLE)
        while later <= last and not self.month(later)[0]:
            later += 1
        if last < later:
            later = _LAST_MONTH + 1
        if len(self._later) > _KEPT:
            self._later.clear()
        self._later[index] = later
        return later


class Wall:
    """Every local second whose day is in `days` and whose hour, minute and second are in their masks."""

    __slots__ = (
        "_hour_down",
        "_hour_up",
        "_minute_down",
        "_minute_up",
        "_of_day",
        "_per_day",
        "_second_down",
        "_second_up",
        "days",
        "first",
        "hours",
        "last",
        "minutes",
        "seconds",
    )

    def __init__(self, seconds: int, minutes: int, hours: int, days: Days) -> None:
        self.seconds, self.minutes, self.hours, self.days = seconds, minutes, hours, days
        self._second_up, self._second_down = _upward(seconds, 60), _downward(seconds, 60)
        self._minute_up, self._minute_down = _upward(minutes, 60), _downward(minutes, 60)
        self._hour_up, self._hour_down = _upward(hours, 24), _downward(hours, 24)
        self.first = self._hour_up[0] * 3600 + self._minute_up[0] * 60 + self._second_up[0]
        self.last = self._hour_down[23] * 3600 + self._minute_down[59] * 60 + self._second_down[59]
        self._per_day = hours.bit_count() * minutes.bit_count() * seconds.bit_count()
        self._of_day: int | None = None

    @classmethod
    def daily(cls, time: int, days: Days) -> Wall:
        """One time of day, in seconds since midnight."""
        return cls(1 << time % 60, 1 << time // 60 % 60, 1 << time // 3600, days)

    def at_or_after(self, local: int) -> int | None:
        day, time = divmod(local, DAY)
        found = self.days.at_or_after(day)
        if found is None:
            return None
        if found > day:
            return found * DAY + self.first
        if time <= self.last:
            return day * DAY + self._time_at_or_after(time)
        found = self.days.at_or_after(day + 1)
        return None if found is None else found * DAY + self.first

    def at_or_before(self, local: int) -> int | None:
        day, time = divmod(local, DAY)
        found = self.days.at_or_before(day)
        if found is None:
            return None
        if found < day:
            return found * DAY + self.last
        if time >= self.first:
            return day * DAY + self._time_at_or_before(time)
        found = self.days.at_or_before(day - 1)
        return None if found is None else found * DAY + self.last

    def count(self, start: int, stop: int) -> int:
        """How many there are in start <= local second < stop. Costs a step per month of at most 800 years, not one per moment."""
        if stop <= start:
            return 0
        first_day, first_time = divmod(start, DAY)
        last_day, last_time = divmod(stop, DAY)
        total = self.days.count(first_day, last_day) * self._per_day
        if first_time and self.days.has(first_day):
            total -= self._earlier_the_same_day(first_time)
        if last_time and self.days.has(last_day):
            total += self._earlier_the_same_day(last_time)
        return total

    def mask(self, start: int, stop: int) -> int:
        """Those in start <= local second < stop: bit n is start + n. For stretches of some days."""
        found = 0
        for day in range(start // DAY, (stop - 1) // DAY + 1):
            if self.days.has(day):
                shift = day * DAY - start
                found |= self._times() << shift if shift >= 0 else self._times() >> -shift
        return found & ((1 << max(0, stop - start)) - 1)

    def _times(self) -> int:
        """The times of a day, bit n for its second n. Made when it is first asked for."""
        if self._of_day is None:
            hour = sum(self.seconds << 60 * minute for minute in range(60) if self.minutes >> minute & 1)
            self._of_day = sum(hour << 3600 * number for number in range(24) if self.hours >> number & 1)
        return self._of_day

    def _time_at_or_after(self, time: int) -> int:
        """`time` is not later than the last time of a day."""
        hour, rest = divmod(time, 3600)
        if self._hour_up[hour] == hour:
            minute, second = divmod(rest, 60)
            if self._minute_up[minute] == minute:
                found = self._second_up[second]
                if found >= 0:
                    return time - second + found
            found = self._minute_up[minute + 1]
            if found >= 0:
                return hour * 3600 + found * 60 + self._second_up[0]
        return self._hour_up[hour + 1] * 3600 + self.first % 3600

    def _time_at_or_before(self, time: int) -> int:
        """`time` is not earlier than the first time of a day."""
        hour, rest = divmod(time, 3600)
        if self._hour_down[hour] == hour:
            minute, second = divmod(rest, 60)
            if self._minute_down[minute] == minute:
                found = self._second_down[second]
                if found >= 0:
                    return time - second + found
            found = self._minute_down[minute - 1]
            if found >= 0:
                return hour * 3600 + found * 60 + self._second_down[59]
        return self._hour_down[hour - 1] * 3600 + self.last % 3600

    def _earlier_the_same_day(self, time: int) -> int:
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        per_minute = self.seconds.bit_count()
        total = _below(self.hours, hour) * self.minutes.bit_count() * per_minute
        if self.hours >> hour & 1:
            total += _below(self.minutes, minute) * per_minute
            if self.minutes >> minute & 1:
                total += _below(self.seconds, second)
        return total


def _below(mask: int, bit: int) -> int:
    return (mask & ((1 << bit) - 1)).bit_count()


_REACH = 2 * DAY
"""More than any local clock differs from UTC, or changes by."""


class LocalSlots:
    """The slots that a wall clock in `zone` gives to `wall`.

    With `gap` NEXT, moments of one gap become one slot, however many. With EARLIER, each is moved to before the change, where
    it may meet a moment that is there already: then both are one slot.
    """

    __slots__ = ("_constant", "_per_cycle", "_wall", "fixed", "gap", "repeat", "zone")

    def __init__(self, wall: Wall, zone: Zone, fixed: bool, changes: ClockChanges | None = None) -> None:
        self._wall, self.zone, self.fixed = wall, zone, fixed
        usual = (GapRule.NEXT, RepeatedTimeRule.FIRST) if fixed else (GapRule.SKIP, RepeatedTimeRule.BOTH)
        self.gap = usual[0] if changes is None or changes.gap is None else changes.gap
        self.repeat = usual[1] if changes is None or changes.repeat is None else changes.repeat
        self._constant = zone.constant
        self._per_cycle: int | None = None

    def next(self, after: int) -> int | None:
        at = max(after + 1, EARLIEST)
        if at > LATEST:
            return None
        if self._constant is None:
            found = self._next_among_stretches(at)
            if self.gap is GapRule.EARLIER:
                found = self._next_moved(at, found)
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
            if self.gap is GapRule.EARLIER:
                found = self._previous_moved(at, found)
        else:
            found = self._wall.at_or_before(at + self._constant)
            if found is not None:
                found -= self._constant
        return found if found is not None and found >= EARLIEST else None

    def count(self, start: int, stop: int) -> int:
        """The number of slots in start <= slot < stop. Costs no more for 8,000 years than for some 800."""
        start, stop = max(start, EARLIEST), min(stop, LATEST + 1)
        cycles = 0 if self._constant is not None else max(0, stop - max(start, SETTLED)) // CYCLE
        if not cycles:
            return self._counted(start, stop)
        if self._per_cycle is None:
            self._per_cycle = self._counted(SETTLED, SETTLED + CYCLE)
        return self._counted(start, stop - cycles * CYCLE) + cycles * self._per_cycle

    def mask(self, start: int, stop: int) -> int:
        """The slots in start <= slot < stop: bit n is start + n. For stretches of some days."""
        begin, end = max(start, EARLIEST), min(stop, LATEST + 1)
        found = 0
        for low, high, offset, opens in self._pieces(begin, end):
            found |= self._wall.mask(low, high) << low - offset - start
            if opens is not None:
                found |= 1 << opens - start
        for slot in self._moved(begin, end):
            found |= 1 << slot - start
        return found

    def _counted(self, start: int, stop: int) -> int:
        """Stretch by stretch."""
        total = 0
        for low, high, _, opens in self._pieces(start, stop):
            total += self._wall.count(low, high) + (opens is not None)
        for slot in self._moved(start, stop):
            total += self._next_among_stretches(slot) != slot
        return total

    def _pieces(self, at: int, stop: int) -> Iterator[tuple[int, int, int, int | None]]:
        """(low, high, offset, opens) for each stretch in at <= t < stop: the local seconds low <= l < high count there.
        `opens` is the slot that a gap left at its beginning, where no moment of its own is.
        """
        while at < stop:
            held = self.zone.stretch(at)
            opens = None
            if at == held.start and self._gap_is_filled(held):
                begins = held.start + held.offset
                opens = held.start if self._wall.at_or_after(begins) != begins else None
            low = at + held.offset
            if self.repeat is RepeatedTimeRule.FIRST and held.seen > low:
                low = held.seen
            yield low, min(min(held.stop, stop) + held.offset, self._last_shown(held)), held.offset, opens
            at = held.stop

    def in_gaps(self, start: int, stop: int) -> tuple[int, int] | None:
        """The first clock change in start <= t < stop whose gap swallows a moment: (that local second, the slot).

        Where no slot comes of it, the second is that of the change.
        """
        for held in self.changes(start, stop):
            if held.seen < held.start + held.offset:
                found = self._wall.at_or_after(held.seen)
                if found is not None and found < held.start + held.offset:
                    return found, found - held.offset if self.gap is GapRule.EARLIER else held.start
        return None

    def in_overlaps(self, start: int, stop: int) -> tuple[int, int] | None:
        """The first clock change in start <= t < stop that shows a moment twice: (that local second, the change)."""
        for held in self.changes(start, stop):
            begins = held.start + held.offset
            if held.seen > begins:
                found = self._wall.at_or_after(begins)
                if found is not None and found < held.seen:
                    return found, held.start
        return None

    def changes(self, start: int, stop: int) -> list[OffsetSpan]:
        """The stretches that begin with a change of the clock in start <= t < stop."""
        changes: list[OffsetSpan] = []
        at = max(start, EARLIEST)
        while at < min(stop, LATEST):
            held = self.zone.stretch(at)
            if held.start >= start and held.seen != held.start + held.offset:
                changes.append(held)
            at = held.stop
        return changes

    def _gap_is_filled(self, held: OffsetSpan) -> bool:
        """Whether a moment of the gap that ends where this stretch begins is done there."""
        begins = held.start + held.offset
        if self.gap is not GapRule.NEXT or held.seen >= begins:
            return False
        found = self._wall.at_or_after(held.seen)
        return found is not None and found < begins

    def _last_shown(self, held: OffsetSpan) -> int:
        """The end of this stretch's local seconds; with `repeat` LAST, of those that no later stretch shows again."""
        ends = held.stop + held.offset
        if self.repeat is not RepeatedTimeRule.LAST:
            return ends
        later = self.zone.stretch(held.stop)
        while later.start < held.stop + _REACH:
            ends = min(ends, later.start + later.offset)
            later = self.zone.stretch(later.stop)
        return ends

    def _moved(self, start: int, stop: int) -> Iterator[int]:
        """The slots in start <= slot < stop that moments of gaps are moved to, ascending. Some are regular slots as well."""
        if self.gap is not GapRule.EARLIER or self._constant is not None:
            return
        for held in self.changes(start + 1, stop + _REACH):
            at = max(held.seen, start + held.offset)
            end = min(held.start, stop) + held.offset
            found = self._wall.at_or_after(at)
            while found is not None and found < end:
                yield found - held.offset
                found = self._wall.at_or_after(found + 1)

    def _next_moved(self, at: int, regular: int | None) -> int | None:
        """The first slot from `at` on, where `regular` is the first that no gap was the reason for."""
        end = max(at, SETTLED) + CYCLE if regular is None else regular
        return next(self._moved(at, end), regular)

    def _previous_moved(self, at: int, regular: int | None) -> int | None:
        """The last slot up to `at`, where `regular` is the last that no gap was the reason for."""
        least = EARLIEST if regular is None else regular
        held = self.zone.stretch(at + _REACH)
        while held.start > least:
            if held.seen < held.start + held.offset:
                found = self._wall.at_or_before(min(at, held.start - 1) + held.offset)
                if found is not None and found >= held.seen:
                    return found - held.offset if regular is None else max(regular, found - held.offset)
            held = self.zone.stretch(held.start - 1)
        return regular

    def _next_among_stretches(self, at: int) -> int | None:
        held = self.zone.stretch(at)
        walked = False
        # Where a whole cycle of the calendar has no slot, none has: a rule may name a moment that only gaps have.
        end = min(LATEST + 1, max(at, SETTLED) + CYCLE)
        while True:
            if at == held.start and self._gap_is_filled(held):
                return at
            local = at + held.offset
            if self.repeat is RepeatedTimeRule.FIRST and held.seen > local:
                local = held.seen
            found = self._wall.at_or_after(local)
            if found is None:
                return None
            if found < self._last_shown(held):
                return found - held.offset
            at = held.stop
            # The stretch after this one may repeat local times from before `local`. Any later one cannot show a moment
            # earlier than `found`, so from there on go straight to it.
            if walked:
                at = max(at, found - _REACH)
            walked = True
            if at >= end:
                return None
            held = self.zone.stretch(at)

    def _previous_among_stretches(self, at: int) -> int | None:
        held = self.zone.stretch(at)
        walked = False
        cycle_before = at - CYCLE
        is_first = self.repeat is RepeatedTimeRule.FIRST
        while True:
            found = self._wall.at_or_before(min(at + held.offset, self._last_shown(held) - 1))
            begins = held.start + held.offset
            if found is not None and found >= (max(begins, held.seen) if is_first else begins):
                return found - held.offset
            if self._gap_is_filled(held):
                return held.start
            if found is None:
                return None
            at = held.start - 1
            if walked:
                at = min(at, found + _REACH)
            walked = True
            if SETTLED <= at < cycle_before:
                at = SETTLED - 1  # no slot in a whole cycle, and so none in any since then
            if at < EARLIEST:
                return None
            held = self.zone.stretch(at)


class LocalKind(CalendarKind):
    """What cron, weekly and monthly share: their slots are times that the local clock shows."""

    __slots__ = ()

    slots: LocalSlots

    def next(self, after: int) -> int | None:
        return self.slots.next(after)

    def previous(self, before: int) -> int | None:
        return self.slots.previous(before)

    def count(self, start: int, stop: int) -> int:
        return self.slots.count(start, stop)

    def mask(self, start: int, stop: int) -> int:
        return self.slots.mask(start, stop)
