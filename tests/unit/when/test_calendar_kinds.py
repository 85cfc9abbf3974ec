"""Weekly and monthly, against a reference that asks the calendar day by day."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from noonbell.when import parse

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata")
FIRST, LAST = date(2024, 1, 1), date(2032, 12, 31)
TIMES = ("00:00:00", "00:30:00", "01:30:00", "02:15:30", "02:45:00", "03:00:00", "12:00:00", "23:59:59")


def slot_of(day, clock_time, zone):
    """The first instant at which the clock shows this or, in a gap, something later."""
    local = datetime.combine(day, time.fromisoformat(clock_time))
    while True:
        instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == local:
            return int(instant.timestamp())
        local = local.replace(second=0) + timedelta(minutes=1)


@cache
def all_days():
    return [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)]


def monthly_days(day):
    found = []
    for year in range(FIRST.year, LAST.year + 1):
        for month in range(1, 13):
            length = monthrange(year, month)[1]
            number = min(day, length) if day > 0 else max(length + day, 1)
            found.append(date(year, month, number))
    return found


def walked(schedule, expected):
    slots, slot = [], expected[0] - 1
    while len(slots) < len(expected):
        slot = schedule.next(slot)
        slots.append(slot)
    return slots


@pytest.mark.parametrize("tz", ZONES)
def test_weekly_is_right_for_nine_years(tz):
    zone = ZoneInfo(tz)
    for index, clock_time in enumerate(TIMES):
        for weekday in {0, index % 7}:
            schedule = parse({"type": "weekly", "weekday": weekday, "time": clock_time}, tz)
            expected = [slot_of(day, clock_time, zone) for day in all_days() if day.isoweekday() % 7 == weekday]
            assert walked(schedule, expected) == expected
            assert schedule.count(expected[0], expected[-1] + 1) == len(expected)


@pytest.mark.parametrize("tz", ZONES)
@pytest.mark.parametrize("day", [1, 28, 29, 30, 31, 0, -1, -5, -27, -28, -30, -31])
def test_monthly_is_right_for_nine_years(tz, day):
    zone = ZoneInfo(tz)
    for clock_time in TIMES[::2]:
        schedule = parse({"type": "monthly", "day": day, "time": clock_time}, tz)
        expected = [slot_of(each, clock_time, zone) for each in monthly_days(day)]
        assert walked(schedule, expected) == expected


def test_sunday_is_0():
    schedule = parse({"type": "weekly", "weekday": 0, "time": "00:00"})
    assert datetime.fromtimestamp(schedule.next(0), UTC).strftime("%A") == "Sunday"


def test_a_weekly_time_of_today_that_has_passed_is_next_week():
    schedule = parse({"type": "weekly", "weekday": 4, "time": "00:00:01"})  # 1970-01-01 was a Thursday
    assert schedule.next(0) == 1
    assert schedule.next(1) == 7 * 86_400 + 1


def test_a_clamped_day_is_clamped_anew_each_month():
    schedule = parse({"type": "monthly", "day": 31, "time": "00:00"})
    slot, found = int(datetime(2023, 1, 31, tzinfo=UTC).timestamp()), []
    for _ in range(4):
        slot = schedule.next(slot)
        found.append(datetime.fromtimestamp(slot, UTC).day)
    assert found == [28, 31, 30, 31]
