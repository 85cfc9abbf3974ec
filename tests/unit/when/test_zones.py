"""Time zones: which names are taken, and where their clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import ScheduleError
from noonbell.when import LATEST, zone
from noonbell.when.wall_clock import Days, LocalSlots, Wall
from noonbell.when.zones import DAY, YEAR, Zone, find


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


@pytest.mark.parametrize("name", ["+25:00", "UTC+99", "-08:60"])
def test_an_offset_that_no_clock_has_is_not_offered_back(name):
    with pytest.raises(ScheduleError) as refused:
        zone(name)
    assert "write" not in refused.value.details["timezone"]


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
    for year in range(-1_900, 8_000):
        held.stretch(year * YEAR)
    assert len(held._slices) <= 630


class Invented(Zone):
    """UTC until `change`, then the offsets that follow, each from so many seconds after it."""

    def __init__(self, change, *offsets):
        super().__init__("Nowhere/Invented", ZoneInfo("Europe/Berlin"))
        self.change, self.offsets = change, offsets

    def offset(self, at):
        return next((offset for since, offset in reversed(self.offsets) if at >= self.change + since), 0)


HOURLY = Wall(1, 1, (1 << 24) - 1, Days(lambda year, month: 0xFFFFFFFE))


def local_hours(zone, start, many):
    """Hours of the slots of a fixed rule that names every hour, as the clock shows them."""
    slots, at, shown = LocalSlots(HOURLY, zone, fixed=True), start, []
    for _ in range(many):
        at = slots.next(at)
        shown.append((at + zone.offset(at)) // 3600 % 24)
    assert slots.count(start + 1, at + 1) == many
    return shown


def test_a_clock_that_changes_twice_in_a_night_repeats_nothing():
    change = 50 * YEAR // DAY * DAY + DAY // 2
    zone = Invented(change, (0, -3 * 3600), (3600, -2 * 3600))
    assert local_hours(zone, change - 3601, 4) == [11, 12, 13, 14]
    assert [zone.stretch(change + after).offset for after in (-1, 0, 3599, 3600, DAY)] == [
        0,
        -10800,
        -10800,
        -7200,
        -7200,
    ]


@pytest.mark.parametrize("lead", [1, 1800, 3599, 3600])
def test_an_overlap_that_runs_over_into_the_next_slice_is_remembered(lead):
    """The clock goes back two hours, less than that before the end of a cached slice."""
    change = 51 * YEAR - lead
    zone = Invented(change, (0, -7200))
    shown = local_hours(zone, change - 3 * 3600, 6)
    assert shown == [(shown[0] + n) % 24 for n in range(6)]
    zone = Invented(change, (0, -7200))
    zone.stretch(51 * YEAR + 5)
    assert local_hours(zone, change - 3 * 3600, 6) == shown
