"""Stretches of thousands of years: they cost no more than some hundred, and the answers are those of a walk."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from noonbell.when import EARLIEST, LATEST, parse
from noonbell.when.due import preview
from noonbell.when.zones import DAY, YEAR, find
from services.steps import calls_in

NOW = 1_794_733_200  # 2026-11-15T09:00:00Z
SETTLED, CYCLE = 230 * YEAR, 400 * YEAR
NEAR = SETTLED + 30 * YEAR
MOST_CALLS = 150_000
"""Some 20 ms. A walk over 8,000 years takes more than ten million."""
MOST_AT_FIRST = 1_200_000
"""Where the zone is asked for the first time when its clock changes."""
BERLIN, NEW_YORK, SYDNEY = "Europe/Berlin", "America/New_York", "Australia/Sydney"


def cron(expr, tz="UTC", **more):
    return parse({"type": "cron", "expr": expr, **more}, tz)


SCHEDULES = [
    ("30 2 * * *", BERLIN, {}),
    ("30 2 * * *", BERLIN, {"dst": "wall"}),
    ("*/7 1-3 * * 0", NEW_YORK, {}),
    ("15 */3 LW * 1#2", SYDNEY, {}),
    ("0 0 29 2 *", "UTC", {}),
    ("0 3 * * 5", "+05:30", {}),
]


@pytest.mark.parametrize(("expr", "tz", "more"), SCHEDULES)
def test_counting_the_slots_of_all_years_to_come_takes_no_walk_through_them(expr, tz, more):
    schedule = cron(expr, tz, **more)
    assert calls_in(lambda: schedule.count(NOW, LATEST + 1)) < MOST_AT_FIRST
    assert calls_in(lambda: schedule.count(NOW, LATEST + 1)) < MOST_CALLS


@pytest.mark.parametrize(("expr", "tz", "more"), SCHEDULES)
def test_the_count_over_cycles_is_the_sum_of_its_parts(expr, tz, more):
    """Parts that are shorter than a cycle are counted stretch by stretch."""
    schedule = cron(expr, tz, **more)
    edges = [*range(NOW, LATEST, 300 * YEAR + 12_345), LATEST + 1]
    parts = sum(schedule.count(low, high) for low, high in itertools.pairwise(edges))
    assert schedule.count(NOW, LATEST + 1) == parts


def test_a_count_that_spans_a_cycle_is_the_same_as_listing_the_slots():
    schedule = cron("30 2 * 3,10,11 0", NEW_YORK)
    start, stop = SETTLED - 3 * YEAR, SETTLED + CYCLE + 3 * YEAR
    at, listed = schedule.next(start - 1), 0
    while at < stop:
        at, listed = schedule.next(at), listed + 1
    assert schedule.count(start, stop) == listed


@pytest.mark.parametrize("offset", [0, CYCLE, 7 * CYCLE, 19 * CYCLE])
def test_years_that_are_cycles_apart_have_the_same_slots(offset):
    """Worked out from the rules of the zone for each year, and not from the years before."""
    tz = ZoneInfo(NEW_YORK)
    schedule = cron("30 1,2,3 * * *", NEW_YORK)
    at = NEAR + offset
    stop = at + 2 * YEAR
    day = datetime.fromtimestamp(at, tz).date()
    expected = set()
    while (slot := int(datetime(day.year, day.month, day.day, 3, 30, tzinfo=tz).timestamp())) < stop:
        expected.add(slot)
        day += timedelta(days=1)
    found = set()
    slot = schedule.next(at - 1)
    while slot is not None and slot < stop:
        found.add(slot)
        slot = schedule.next(slot)
    assert {slot for slot in expected if slot >= at} <= found


def test_a_moment_that_only_gaps_have_is_given_up_after_one_cycle():
    """The second Sunday in March at 2:30 is in the gap of New York each year."""
    schedule = cron("30 2 8-14 3 0", NEW_YORK, dialect="cronjob", dst="wall")
    schedule.next(NOW)
    assert calls_in(lambda: schedule.next(NOW)) < MOST_CALLS
    assert schedule.next(NOW) is None
    last = schedule.previous(NOW)
    assert calls_in(lambda: schedule.previous(LATEST)) < MOST_CALLS
    assert schedule.previous(LATEST) == last
    assert datetime.fromtimestamp(last, ZoneInfo(NEW_YORK)).year == 2006


def test_the_slots_of_a_thousand_years_ahead_are_previewed_with_few_looks_at_the_zone():
    spec = {"type": "cron", "expr": "0 0 1 1 *"}
    zone = "Europe/Oslo"
    assert calls_in(lambda: preview(spec, zone, 1_000, EARLIEST)) < MOST_AT_FIRST
    assert calls_in(lambda: preview(spec, zone, 1_000, NOW)) < MOST_AT_FIRST
    assert len(preview(spec, zone, 1_000, NOW).next_fires) == 1_000


def _zones_with_a_rule():
    """One zone for each way to change the clock in the years to come."""
    probes = range(SETTLED, SETTLED + YEAR, 9 * DAY)
    found = {}
    for name in sorted(available_timezones()):
        tz = ZoneInfo(name)
        offsets = tuple(datetime.fromtimestamp(at, tz).utcoffset() for at in probes)
        if len(set(offsets)) > 1:
            found[offsets] = name
    return sorted(found.values())


@pytest.mark.parametrize("name", _zones_with_a_rule())
def test_the_changes_of_settled_years_are_all_found(name):
    """Few probes a year find what a look at each day finds."""
    held, tz = find(name), ZoneInfo(name)
    for at in range(SETTLED, SETTLED + 28 * YEAR, DAY):
        expected = datetime.fromtimestamp(at, tz).utcoffset()
        assert timedelta(seconds=held.stretch(at).offset) == expected
        assert held.stretch(at + 3 * CYCLE) == tuple(
            part if place == 2 else part + 3 * CYCLE for place, part in enumerate(held.stretch(at))
        )


@pytest.mark.parametrize("name", ["Europe/Amsterdam", "America/Juneau", "Asia/Manila", "Africa/Casablanca"])
def test_before_its_first_change_a_zone_is_one_stretch(name):
    held, tz = find(name), ZoneInfo(name)
    for year in (3, 400, 1799, 1800, 1801, 1835, 1868):
        at = int((datetime(year, 6, 1) - datetime(1970, 1, 1)).total_seconds())
        stretch = held.stretch(at)
        assert stretch.start <= at < stretch.stop
        assert datetime.fromtimestamp(at, tz).utcoffset() == timedelta(seconds=stretch.offset)
    assert held.stretch(EARLIEST).stop == held.stretch(EARLIEST + 1_000 * YEAR).stop
