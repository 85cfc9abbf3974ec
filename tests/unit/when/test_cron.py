"""Cron expressions: which moments they name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from noonbell.errors import ScheduleError
from noonbell.when import EARLIEST, LATEST, parse


def cron(expr, tz="UTC", **fields):
    return parse({"type": "cron", "expr": expr, **fields}, tz)


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def moment(text):
    return int(datetime.fromisoformat(text).timestamp())


def days(expr, start, many, **fields):
    """The days of the next slots, as MM-DD."""
    schedule, slot = cron(expr, **fields), at(start) - 1
    found = []
    for _ in range(many):
        slot = schedule.next(slot)
        found.append(f"{datetime.fromtimestamp(slot, UTC):%m-%d}")
    return found


@pytest.mark.parametrize(
    ("expr", "start", "expected"),
    [
        ("0 0 L * *", "2024-01-01", ["01-31", "02-29", "03-31", "04-30"]),
        ("0 0 L-2 * *", "2023-01-01", ["01-29", "02-26", "03-29"]),
        ("0 0 L-30 * *", "2023-01-01", ["01-01", "03-01", "05-01"]),
        ("0 0 LW * *", "2024-01-01", ["01-31", "02-29", "03-29", "04-30", "05-31", "06-28"]),
        ("0 0 1W * *", "2024-06-01", ["06-03", "07-01", "08-01", "09-02"]),
        ("0 0 31W * *", "2024-03-01", ["03-29", "05-31", "07-31"]),
        ("0 0 15W * *", "2024-06-01", ["06-14", "07-15", "08-15", "09-16"]),
        ("0 0 * * 5L", "2024-01-01", ["01-26", "02-23", "03-29"]),
        ("0 0 * * MON#1", "2024-01-01", ["01-01", "02-05", "03-04"]),
        ("0 0 * * 1#5", "2024-01-01", ["01-29", "04-29", "07-29"]),
        ("0 0 * * SUNL,2#2", "2024-01-01", ["01-09", "01-28", "02-13", "02-25"]),
        ("0 0 1,L * *", "2024-01-15", ["01-31", "02-01", "02-29"]),
        ("0 0 29 2 *", "2096-03-01", ["02-29"]),
        ("0 0 * * 7", "2024-01-01", ["01-07", "01-14"]),
        ("0 0 * * SAT-MON", "2024-01-01", ["01-01", "01-06", "01-07", "01-08"]),
        ("0 0 * * 6-1", "2024-01-02", ["01-06", "01-07", "01-08", "01-13"]),
        ("0 0 * * 7-2", "2024-01-03", ["01-07", "01-08", "01-09", "01-14"]),
        ("0 0 1 DEC-FEB *", "2024-01-02", ["02-01", "12-01", "01-01"]),
        ("0 0 1 NOV-MAR/2 *", "2024-01-02", ["03-01", "11-01", "01-01"]),
        ("0 0 30-2 * *", "2024-01-03", ["01-30", "01-31", "02-01", "02-02"]),
        ("0 0 ? * MON", "2024-01-01", ["01-01", "01-08"]),
        ("0 0 1 * ?", "2024-01-02", ["02-01", "03-01"]),
        ("0 0 10-10/5 * *", "2024-01-01", ["01-10", "02-10"]),
        ("0 0 20/5 * *", "2024-01-01", ["01-20", "01-25", "01-30"]),
    ],
)
def test_the_days_of_an_expression(expr, start, expected):
    assert days(expr, start, len(expected)) == expected


def test_either_day_field_is_enough_when_neither_starts_with_a_star():
    assert days("0 0 13 * FRI", "2024-09-01", 5) == ["09-06", "09-13", "09-20", "09-27", "10-04"]
    assert days("0 0 10 * FRI", "2024-09-01", 3) == ["09-06", "09-10", "09-13"]


def test_both_day_fields_must_match_when_one_starts_with_a_star():
    assert days("0 0 */2 * FRI", "2024-09-01", 3) == ["09-13", "09-27", "10-11"]
    assert days("0 0 1-7 * */5", "2024-09-01", 3) == ["09-01", "09-06", "10-04"]


def test_the_cronjob_dialect_wants_both_day_fields():
    assert days("0 0 13 * 5", "2024-01-01", 3, dialect="cronjob") == ["09-13", "12-13", "06-13"]


def test_the_cronjob_dialect_steps_by_division():
    assert days("0 0 */10 * *", "2024-01-01", 4) == ["01-01", "01-11", "01-21", "01-31"]
    assert days("0 0 */10 * *", "2024-01-01", 4, dialect="cronjob") == ["01-10", "01-20", "01-30", "02-10"]
    assert days("0 0 1 */5 *", "2024-01-01", 3, dialect="cronjob") == ["05-01", "10-01", "05-01"]
    assert cron("*/20 * * * *", dialect="cronjob").next(0) == 1200


def test_a_range_of_hours_may_wrap():
    schedule, slot, hours = cron("0 22-2 * * *"), at("2024-01-01T12:00"), []
    for _ in range(6):
        slot = schedule.next(slot)
        hours.append(slot // 3600 % 24)
    assert hours == [22, 23, 0, 1, 2, 22]


@pytest.mark.parametrize(
    ("nickname", "expr"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @HOURLY ", "0 * * * *"),
    ],
)
def test_a_nickname_is_its_expression(nickname, expr):
    assert cron(nickname).spec()["expr"] == cron(expr).spec()["expr"]


@pytest.mark.parametrize(
    ("expr", "hint"),
    [
        ("@reboot", "no single moment of reboot"),
        ("@every 5m", "interval"),
        ("@fortnightly", "@daily"),
        ("? 0 * * *", "day fields only"),
        ("* * * * * * *", "7 fields"),
        ("L * * * *", "minute 'L'"),
        ("* * * * L", "day of week 'L'"),
        ("* * L/2 * *", "day of month 'L/2'"),
        ("* * 1-5W * *", "day of month '1-5W'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("1,,2 * * * *", "minute ''"),
        ("٣ * * * *", "minute"),
    ],
)
def test_what_is_not_cron_is_refused_with_a_hint(expr, hint):
    with pytest.raises(ScheduleError) as refused:
        cron(expr)
    assert hint in refused.value.details["schedule.expr"]


def test_seconds_are_first():
    schedule = cron("15,45 30 2 * * *")
    assert schedule.next(0) == 2 * 3600 + 30 * 60 + 15
    assert schedule.next(9015) == 9045
    assert schedule.next(9045) == 86_400 + 9015


def test_next_never_returns_the_moment_it_is_asked_about():
    schedule = cron("* * * * * *", "Europe/Berlin")
    for start in range(moment("2024-10-27T00:59:58+00:00"), moment("2024-10-27T01:00:03+00:00")):
        assert schedule.next(start) == start + 1
        assert schedule.previous(start) == start - 1


@pytest.mark.parametrize("expr", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_in_the_gap_fires_once_right_after_it(expr):
    schedule = cron(expr, "Europe/Berlin")
    slots = [schedule.next(moment("2025-03-29T12:00:00+01:00"))]
    slots.append(schedule.next(slots[0]))
    assert slots == [moment("2025-03-30T03:00:00+02:00"), moment("2025-03-31T02:30:00+02:00")]
    assert schedule.previous(slots[1]) == slots[0]


@pytest.mark.parametrize("expr", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_in_the_overlap_fires_the_first_time_only(expr):
    schedule = cron(expr, "Europe/Berlin")
    first = schedule.next(moment("2025-10-25T12:00:00+02:00"))
    assert first == moment("2025-10-26T02:30:00+02:00")
    assert schedule.next(first) == moment("2025-10-27T02:30:00+01:00")
    assert schedule.next(moment("2025-10-26T02:10:00+01:00")) == moment("2025-10-27T02:30:00+01:00")
    assert schedule.previous(moment("2025-10-26T02:59:00+01:00")) == first


@pytest.mark.parametrize("expr", ["30 2 * * *", "0 30 2 * * *"])
def test_by_the_wall_a_time_in_the_gap_does_not_occur(expr):
    schedule = cron(expr, "Europe/Berlin", dst="wall")
    before, after = moment("2025-03-29T02:30:00+01:00"), moment("2025-03-31T02:30:00+02:00")
    assert schedule.next(before) == after
    assert schedule.previous(after) == before
    assert schedule.count(before, after + 1) == 2


@pytest.mark.parametrize("expr", ["30 2 * * *", "0 30 2 * * *"])
def test_by_the_wall_a_repeated_time_occurs_in_both_passes(expr):
    schedule = cron(expr, "Europe/Berlin", dst="wall")
    first, second = moment("2025-10-26T02:30:00+02:00"), moment("2025-10-26T02:30:00+01:00")
    after = moment("2025-10-27T02:30:00+01:00")
    assert [schedule.next(slot) for slot in (first - 1, first, second)] == [first, second, after]
    assert [schedule.previous(slot) for slot in (after, second)] == [second, first]
    assert schedule.count(first, after) == 2


def test_a_rule_with_a_star_goes_by_the_wall_anyway():
    for expr in ("30 * * * *", "0 */2 * * *", "*/5 2 * * *"):
        wall, debian = cron(expr, "Europe/Berlin", dst="wall"), cron(expr, "Europe/Berlin", dst="debian")
        slot = moment("2025-03-29T20:00:00+01:00")
        for _ in range(40):
            assert wall.next(slot) == debian.next(slot)
            slot = wall.next(slot)


def test_all_the_seconds_of_one_gap_are_one_slot():
    schedule = cron("*/10 15,45 2,3 * * *", "Europe/Berlin")
    start = moment("2025-03-30T01:59:59+01:00")
    assert schedule.next(start) == moment("2025-03-30T03:00:00+02:00")
    assert schedule.next(schedule.next(start)) == moment("2025-03-30T03:15:00+02:00")
    assert schedule.count(start, moment("2025-03-30T04:00:00+02:00")) == 1 + 12


def test_a_time_in_the_gap_and_one_at_its_end_are_one_slot():
    schedule = cron("0 2,3 * * *", "Europe/Berlin")
    slot = schedule.next(moment("2025-03-30T01:30:00+01:00"))
    assert slot == moment("2025-03-30T03:00:00+02:00")
    assert schedule.next(slot) == moment("2025-03-31T02:00:00+02:00")
    assert schedule.count(moment("2025-03-30T00:00:00+01:00"), moment("2025-03-31T00:00:00+02:00")) == 1


def test_a_rule_with_a_star_follows_elapsed_time():
    hourly = cron("30 * * * *", "Europe/Berlin")
    slot = moment("2025-10-26T01:30:00+02:00")
    for _ in range(4):
        assert hourly.next(slot) == slot + 3600
        slot += 3600
    every_other = cron("0 */2 * * *", "Europe/Berlin")
    assert every_other.next(moment("2025-03-30T00:00:00+01:00")) == moment("2025-03-30T04:00:00+02:00")


def test_a_day_without_midnight_starts_where_the_clock_does():
    schedule = cron("0 0 * * *", "America/Sao_Paulo")
    assert schedule.next(moment("2018-11-03T12:00:00-03:00")) == moment("2018-11-04T01:00:00-02:00")


def test_a_date_that_a_country_left_out_fires_at_the_start_of_the_next():
    schedule = cron("0 12 30 12 *", "Pacific/Apia")
    assert schedule.next(moment("2011-01-01T00:00:00-10:00")) == moment("2011-12-31T00:00:00+14:00")


def test_a_fixed_offset_has_no_daylight_saving():
    schedule = cron("30 2 * * *", "+05:45")
    assert schedule.next(moment("2025-03-30T00:00:00+05:45")) == moment("2025-03-30T02:30:00+05:45")


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "-23:59", "+23:59"])
@pytest.mark.parametrize("expr", ["* * * * * *", "0 0 1 1 *", "0 0 29 2 *"])
def test_slots_end_with_the_calendar(expr, tz):
    schedule = cron(expr, tz)
    assert schedule.next(LATEST) is None
    assert schedule.next(10**18) is None
    assert schedule.previous(EARLIEST) is None
    assert schedule.previous(-(10**18)) is None
    first, last = schedule.next(-(10**18)), schedule.previous(10**18)
    assert first >= EARLIEST
    assert last <= LATEST
    assert schedule.next(last) is None
    assert schedule.previous(first) is None
    assert schedule.count(last, 10**18) == 1


def test_a_cron_schedule_waits_for_no_run():
    assert not cron("@daily").is_fixed_delay
    assert cron("@daily").run_if_late
    with pytest.raises(ValueError, match="fixed_delay"):
        cron("@daily").after_run(0)


def test_repeat_says_how_often():
    assert cron("@daily").repeat is None
    assert cron("@daily", repeat=-1).repeat is None
    assert cron("@daily", repeat=3).repeat == 3
