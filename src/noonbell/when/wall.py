"""Moments that a wall clock names: days of the calendar, and times of those days.

Here a *local second* is the reading of a wall clock, counted as seconds since 1970-01-01 00:00 on that same clock.
Hours, minutes and seconds are bit masks; so are the days of each month, computed once per month and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import lru_cache

DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_MONTH, _LAST_MONTH = 1 * 12, 9999 * 12 + 11
_KEPT = 4096

DayMask = Callable[[int, int], int]
"""(year, month) → the days of that month, bit 1 for the 1st."""


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

    __slots__ = ("_later", "_mask", "_months")

    def __init__(self, mask: DayMask) -> None:
        self._mask = mask
        self._months: dict[int, tuple[int, int]] = {}
        self._later: dict[int, int] = {}

    def month(self, index: int) -> tuple[int, int]:
        """The day mask of month `index` (year * 12 + month - 1), and the day number of its day 0."""
        held = self._months.get(index)
        if held is None:
            if len(self._months) > _KEPT:
                self._months.clear()
            year, month = divmod(index, 12)
            held = (self._mask(year, month + 1), date(year, month + 1, 1).toordinal() - _EPOCH - 1)
            self._months[index] = held
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

    def count(self, start: int, stop: int) -> int:
        """How many picked days there are in start <= day < stop."""
        if stop <= start:
            return 0
        first, last = date.fromordinal(start + _EPOCH), date.fromordinal(stop + _EPOCH)
        low, high = first.year * 12 + first.month - 1, last.year * 12 + last.month - 1
        total = -(self.month(low)[0] & ((1 << first.day) - 1)).bit_count()
        for index in range(low, high):
            total += self.month(index)[0].bit_count()
        return total + (self.month(high)[0] & ((1 << last.day) - 1)).bit_count()

    def _next_month(self, index: int) -> int:
        """The first month after `index` that has a picked day: remembered, because leap days are far apart.

        Beyond the last month if there is none.
        """
        later = index + 1
        while later <= _LAST_MONTH and not self.month(later)[0]:
            later += 1
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
        """How many there are in start <= local second < stop. Costs a step per month, not one per moment."""
        if stop <= start:
            return 0
        first_day, first_time = divmod(start, DAY)
        last_day, last_time = divmod(stop, DAY)
        total = self.days.count(first_day, last_day) * self._per_day
        if self.days.count(first_day, first_day + 1):
            total -= self._earlier_the_same_day(first_time)
        if self.days.count(last_day, last_day + 1):
            total += self._earlier_the_same_day(last_time)
        return total

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
