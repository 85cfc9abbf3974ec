"""Time zones: which names are taken, and where their clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import ScheduleError
from noonbell.when import LATEST, zone
from noonbell.when.zones import DAY, YEAR, find


@pytest.mark.parametrize("name", ["Europe/Berlin", "Asia/Kolkata", "Etc/UTC", "America/Argentina/Ushuaia"])
def test_iana_names_are_zones(name):
    assert zone(name) == ZoneInfo(name)


@pytest.mark.parametrize(
    ("name", "minutes"), [("UTC", 0), ("+08:00", 480), ("-03:30", -210), ("+00:00", 0), ("-23:59", -1439)]
)
def test_fixed_offsets_are_zones(name, minutes):
    assert zone(name).utcoffset(None) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("UTC+8", "+08:00"),
        ("GMT-3:30", "-03:30"),
        ("+8", "+08:00"),
        ("+0545", "+05:45"),
        ("Z-1", "-01:00"),
        ("+24:00", "IANA"),
        ("+08:60", "IANA"),
        ("Mars/Olympus", "Europe/Berlin"),
        ("", "IANA"),
        ("America", "IANA"),
        ("../../etc/passwd", "IANA"),
        ("/etc/localtime", "IANA"),
        ("localtime", "IANA"),
        ("right/UTC", "IANA"),
        ("Europe/Berlin\0", "IANA"),
        ("x" * 5000, "IANA"),
        (None, "IANA"),
        (8, "IANA"),
    ],
)
def test_other_names_are_refused_with_a_hint(name, hint):
    with pytest.raises(ScheduleError) as refused:
        zone(name)
    assert hint in refused.value.details["timezone"]
    assert len(refused.value.message) < 250


def test_a_zone_is_found_once():
    assert find("Asia/Tokyo") is find("Asia/Tokyo")


@pytest.mark.parametrize(
    "name",
    ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "America/Caracas", "Asia/Gaza"],
)
def test_stretches_cover_time_without_a_break_and_tell_the_offset(name):
    held, tz = find(name), ZoneInfo(name)
    at = 30 * YEAR + 5
    while at < 62 * YEAR:
        stretch = held.stretch(at)
        assert stretch.start <= at < stretch.stop
        for probe in (stretch.start, (stretch.start + stretch.stop) // 2, stretch.stop - 1):
            offset = datetime.fromtimestamp(probe, tz).utcoffset()
            assert offset == timedelta(seconds=stretch.offset)
        at = stretch.stop
        assert held.stretch(at).start == at


def test_a_stretch_knows_what_the_clock_showed_before():
    held = find("Europe/Berlin")
    spring = held.stretch(int(datetime(2025, 3, 30, 12, tzinfo=UTC).timestamp()))
    autumn = held.stretch(int(datetime(2025, 10, 26, 12, tzinfo=UTC).timestamp()))
    assert spring.seen - (spring.start + spring.offset) == -3600
    assert autumn.seen - (autumn.start + autumn.offset) == 3600


def test_the_ends_of_the_calendar_have_stretches():
    held = find("Europe/Berlin")
    assert held.stretch(LATEST).stop > LATEST
    assert held.stretch(LATEST + 2 * DAY).offset == 3600


def test_many_years_do_not_fill_the_memory():
    held = find("Europe/Vienna")
    for year in range(600):
        held.stretch(year * YEAR)
    assert len(held._slices) <= 513
