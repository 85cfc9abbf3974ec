"""A single moment, and every so often."""

from __future__ import annotations

import pytest

from noonbell.when import LATEST, normalise, parse
from noonbell.when.due import Bounds, initial

NOW = 1_794_733_200  # 2026-11-15T09:00:00Z


def once(**fields):
    return parse(normalise({"type": "once", **fields}, "UTC", NOW))


def interval(every, unit="second", **fields):
    return parse(normalise({"type": "interval", "every": every, "unit": unit, **fields}, "UTC", NOW))


def test_once_has_one_slot():
    schedule = once(at="2026-11-15T09:00:10Z")
    assert schedule.next(NOW) == NOW + 10
    assert schedule.next(NOW + 9) == NOW + 10
    assert schedule.next(NOW + 10) is None
    assert schedule.previous(NOW + 10) is None
    assert schedule.previous(NOW + 11) == NOW + 10
    assert schedule.repeat is None


def test_once_without_a_time_is_the_moment_of_creation():
    assert initial(once(), Bounds(), NOW) == NOW


def test_once_in_the_past_still_has_its_slot_at_creation():
    late = once(at="2026-11-01T00:00:00Z", run_if_late=False)
    assert initial(late, Bounds(), NOW) == 1_793_491_200
    assert not late.run_if_late
    assert initial(late, Bounds(start_at=NOW), NOW) is None


def test_once_that_was_not_normalised_has_no_slot():
    schedule = parse({"type": "once"})
    assert schedule.next(0) is None
    assert schedule.previous(LATEST) is None
    assert schedule.describe() == "Once, now"


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2025-03-30T02:30:00", "2025-03-30T01:00:00Z"),  # in the gap: right after it
        ("2025-10-26T02:30:00", "2025-10-26T00:30:00Z"),  # shown twice: the first time
        ("2025-07-01 12:00", "2025-07-01T10:00:00Z"),
        ("2025-07-01t12:00:00z", "2025-07-01T12:00:00Z"),
        ("2025-07-01T12:00:00-03:30", "2025-07-01T15:30:00Z"),
    ],
)
def test_a_time_without_an_offset_is_local(text, utc):
    assert normalise({"type": "once", "at": text}, "Europe/Berlin", NOW)["at"] == utc


def test_fixed_rate_counts_from_the_anchor():
    schedule = interval(10)
    assert schedule.next(NOW - 5000) == NOW + 10
    assert schedule.next(NOW) == NOW + 10
    assert schedule.next(NOW + 10) == NOW + 20
    assert schedule.next(NOW + 25) == NOW + 30
    assert schedule.previous(NOW + 10) is None
    assert schedule.previous(NOW + 11) == NOW + 10
    assert schedule.previous(NOW + 30) == NOW + 20


@pytest.mark.parametrize(("unit", "seconds"), [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400)])
def test_units_are_elapsed_time(unit, seconds):
    assert interval(3, unit).next(NOW) == NOW + 3 * seconds


def test_a_fixed_delay_is_counted_from_the_end_of_the_run():
    schedule = interval(5, "minute", mode="fixed_delay")
    assert schedule.is_fixed_delay
    assert schedule.after_run(NOW + 1234) == NOW + 1234 + 300


def test_the_first_slot_of_a_fixed_delay_is_a_step_after_the_anchor_or_after_now():
    schedule = interval(5, "minute", mode="fixed_delay")
    assert schedule.next(NOW) == NOW + 300
    assert schedule.next(NOW + 299) == NOW + 300
    assert schedule.next(NOW + 7000) == NOW + 7300
    assert schedule.previous(NOW + 300) is None
    assert schedule.previous(NOW + 301) == NOW + 300
    assert schedule.count(NOW, NOW + 10_000) == 1


def test_a_fixed_rate_has_no_slot_that_depends_on_a_run():
    assert not interval(10).is_fixed_delay
    with pytest.raises(ValueError, match="fixed_delay"):
        interval(10).after_run(NOW)


def test_the_longest_interval_stays_inside_the_calendar():
    schedule = interval(100 * 366, "day")
    slot = schedule.next(LATEST - 10)
    assert slot is None
    assert schedule.previous(10**18) <= LATEST
    assert schedule.next(schedule.previous(10**18)) is None
