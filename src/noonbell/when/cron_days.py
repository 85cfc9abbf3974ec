"""Which days of a month a cron expression picks: its two day fields and its month field, put together."""

from __future__ import annotations

from calendar import monthrange
from functools import lru_cache

from noonbell.when.cron_fields import Field
from noonbell.when.wall import Days

_PROBE_YEARS = range(2000, 2028)
"""28 years without a missing leap day: each kind of year (leap or not, times the weekday it begins with) is there."""


@lru_cache(maxsize=4096)
def days_of(day: Field, month: Field, weekday: Field, both: bool) -> Days:
    """`both`: a day must match both day fields; else either is enough."""

    def mask(year: int, number: int) -> int:
        if not month.mask >> number & 1:
            return 0
        # monthrange counts Monday as 0, cron Sunday.
        first, length = monthrange(year, number)
        by_date = _by_date(day, (first + 1) % 7, length)
        by_weekday = _by_weekday(weekday, (first + 1) % 7, length)
        return by_date & by_weekday if both else by_date | by_weekday

    return Days(mask)


def ever(days: Days) -> bool:
    """Whether there is any day at all. Looks at 336 months at most."""
    months = range(_PROBE_YEARS.start * 12, _PROBE_YEARS.stop * 12)
    return any(days.month(index)[0] for index in months)


def _by_date(field: Field, first: int, length: int) -> int:
    """`first` is the weekday of the 1st, Sunday 0."""
    mask = field.mask
    for back in field.from_last:
        if back < length:
            mask |= 1 << length - back
    if field.last_workday:
        mask |= 1 << _nearest_workday(length, first, length)
    for day in field.nearest:
        if day <= length:
            mask |= 1 << _nearest_workday(day, first, length)
    return mask & ((2 << length) - 2)


def _nearest_workday(day: int, first: int, length: int) -> int:
    """The Monday to Friday nearest to `day`, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(field: Field, first: int, length: int) -> int:
    mask = 0
    for weekday in range(7):
        earliest = (weekday - first) % 7 + 1
        if field.mask >> weekday & 1:
            mask |= _each_week(earliest, length)
        if weekday in field.last_of:
            mask |= 1 << earliest + (length - earliest) // 7 * 7
    for weekday, nth in field.nth:
        day = (weekday - first) % 7 + 1 + (nth - 1) * 7
        if day <= length:
            mask |= 1 << day
    return mask


def _each_week(first: int, length: int) -> int:
    return sum(1 << day for day in range(first, length + 1, 7))


def weekday_mask(weekday: int, year: int, month: int) -> int:
    """All the days of a month that are this weekday, Sunday 0."""
    first, length = monthrange(year, month)
    return _each_week((weekday - first - 1) % 7 + 1, length)
