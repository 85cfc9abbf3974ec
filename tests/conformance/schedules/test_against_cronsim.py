"""Debian's rules as cronsim has them: the same slots for random expressions, in zones that change their clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim, CronSimError

from conformance.schedules.expressions import (
    SINCE,
    ZONES,
    clock_changes,
    random_expression,
    random_field,
    random_start,
)
from noonbell.errors import ScheduleError
from noonbell.when import Schedule, parse
from noonbell.when.zones import DAY, YEAR, OffsetSpan
from services.size import size

EXPRESSIONS = size(1000, 5000)
BY_THE_WALL = size(900, 3000)
SMALL_HOURS = ("1", "2", "3", "1-3", "0-4/2", "2,3", "1,2", "*", "22-23")
SLOTS = 4

ODD_CHANGES = (
    ("Australia/Lord_Howe", 2025),  # half an hour
    ("America/Sao_Paulo", 2016),  # at midnight
    ("Pacific/Apia", 2011),  # a whole day left out
    ("Africa/Casablanca", 2025),  # for a month each year
    ("Europe/Dublin", 2025),  # summer is the standard time
    ("America/St_Johns", 2009),  # a minute after midnight
    ("Asia/Pyongyang", 2015),  # half an hour, for good
    ("Antarctica/Troll", 2025),  # two hours
)


def theirs(expr: str, tz: str, start: int) -> list[int] | None:
    """The next slots by cronsim; None if it refuses or gives up."""
    zone = UTC if tz == "UTC" else ZoneInfo(tz)
    try:
        found = CronSim(expr, datetime.fromtimestamp(start, zone))
        return [int(next(found).timestamp()) for _ in range(SLOTS)]
    except (CronSimError, StopIteration):
        return None


def cron(expr: str, tz: str, dst: str = "debian") -> Schedule | None:
    try:
        return parse({"type": "cron", "expr": expr, "dst": dst}, tz)
    except ScheduleError:
        return None


def ours(expr: str, tz: str, start: int, dst: str = "debian") -> list[int] | None:
    schedule = cron(expr, tz, dst)
    if schedule is None:
        return None
    slots: list[int] = []
    at: int | None = start
    while at is not None and len(slots) < SLOTS:
        at = schedule.next(at)
        if at is not None:
            slots.append(at)
    return slots


def stepped(expr: str, tz: str, start: int, stop: int) -> list[int]:
    """Every minute asked in turn, with the fields as cronsim reads them: slow, and right for whatever the clock does."""
    zone = ZoneInfo(tz)
    rule = CronSim(expr, datetime.fromtimestamp(start, UTC))
    found = []
    for minute in range(start // 60 + 1, stop // 60 + 1):
        local = datetime.fromtimestamp(minute * 60, zone)
        if (
            local.minute in rule.minutes
            and local.hour in rule.hours
            and local.month in rule.months
            and rule.match_day(local.date())
        ):
            found.append(minute * 60)
    return found


def is_fixed(expr: str) -> bool:
    minute, hour = expr.split()[:2]
    return not (minute.startswith("*") or hour.startswith("*"))


def between(schedule: Schedule, start: int, stop: int) -> list[int]:
    """Slots in start < slot <= stop."""
    found = []
    at = schedule.next(start)
    while at is not None and at <= stop:
        found.append(at)
        at = schedule.next(at)
    return found


def meets_a_change(start: int, slots: list[int] | None, changes: list[OffsetSpan]) -> bool:
    """Whether the clock changes within a day of `start` or of a slot."""
    return any(abs(slot - held.start) < DAY for slot in (start, *(slots or ())) for held in changes)


@pytest.mark.longer
@pytest.mark.parametrize("tz", ZONES)
def test_random_expressions_agree_with_cronsim(tz: str) -> None:
    """With five fields and with six.

    Left to the test below: cronsim moves a rule with a star by whole hours, and so misses the second showing when Lord
    Howe's clock goes back by half an hour.
    """
    random = Random(f"cronsim {tz}")
    changes = clock_changes(tz, SINCE, SINCE + 8 * YEAR)
    differences = []
    compared = 0
    for _ in range(EXPRESSIONS):
        expr, start = random_expression(random), random_start(random, changes)
        expected = theirs(expr, tz, start)
        if tz == "Australia/Lord_Howe" and not is_fixed(expr) and meets_a_change(start, expected, changes):
            continue
        compared += 1
        answers = {text: ours(text, tz, start) for text in (expr, f"0 {expr}")}
        differences += [(text, start, expected, found) for text, found in answers.items() if found != expected]
    assert differences == []
    assert compared > EXPRESSIONS * 0.6


@pytest.mark.longer
@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Jerusalem"])
def test_by_the_wall_six_fields_agree_with_cronsim(tz: str) -> None:
    """cronsim's six fields have no rules for daylight saving: what the clock shows, happens, as often as it shows it.

    Half of the expressions are about the small hours, just before a clock change, where the two options differ.
    """
    random = Random(f"wall {tz}")
    changes = clock_changes(tz, SINCE, SINCE + 8 * YEAR)
    differences = []
    decided = 0
    for number in range(BY_THE_WALL):
        expr, start = random_expression(random), random_start(random, changes)
        if number % 2:
            expr = f"{random_field(random, 'minute', 0.1)} {random.choice(SMALL_HOURS)} * * *"
            start = random.choice(changes).start - random.randrange(2 * DAY)
        expr = f"{random_field(random, 'second', 0.1)} {expr}"
        expected, found = theirs(expr, tz, start), ours(expr, tz, start, "wall")
        if found != expected:
            differences.append((expr, start, expected, found))
        decided += found != ours(expr, tz, start)
    assert differences == []
    assert decided > BY_THE_WALL / 30


@pytest.mark.parametrize(("tz", "year"), ODD_CHANGES)
def test_by_the_wall_every_rule_follows_the_clock_through_odd_changes(tz: str, year: int) -> None:
    random = Random(f"wall {tz} {year}")
    changes = clock_changes(tz, SINCE + (year - 2024) * YEAR, SINCE + (year - 2023) * YEAR)
    for _ in range(25):
        expr, start = random_expression(random), random.choice(changes).start - random.randrange(DAY)
        schedule = cron(expr, tz, "wall")
        if schedule is not None:
            stop = start + 2 * DAY
            assert between(schedule, start, stop) == stepped(expr, tz, start, stop), (expr, start)


@pytest.mark.parametrize(("tz", "year"), ODD_CHANGES)
def test_fixed_times_around_odd_clock_changes_agree_with_cronsim(tz: str, year: int) -> None:
    random = Random(f"fixed {tz} {year}")
    changes = clock_changes(tz, SINCE + (year - 2024) * YEAR, SINCE + (year - 2023) * YEAR)
    assert changes
    for _ in range(300):
        expr, start = random_expression(random), random.choice(changes).start - random.randrange(DAY, 2 * DAY)
        if is_fixed(expr):
            assert ours(expr, tz, start) == theirs(expr, tz, start), (expr, start)


@pytest.mark.parametrize(("tz", "year"), ODD_CHANGES)
def test_rules_with_a_star_follow_the_clock_through_odd_changes(tz: str, year: int) -> None:
    random = Random(f"star {tz} {year}")
    changes = clock_changes(tz, SINCE + (year - 2024) * YEAR, SINCE + (year - 2023) * YEAR)
    for _ in range(25):
        expr, start = random_expression(random), random.choice(changes).start - random.randrange(DAY)
        schedule = cron(expr, tz)
        if schedule is not None and not is_fixed(expr):
            stop = start + 2 * DAY
            assert between(schedule, start, stop) == stepped(expr, tz, start, stop), (expr, start)


@pytest.mark.longer
def test_every_zone_agrees_with_cronsim() -> None:
    """Some expressions before a clock change of each zone there is, and any time where there is none."""
    random = Random("every zone")
    expressions = [random_expression(random) for _ in range(size(2, 12))]
    zones = sorted(available_timezones() - {"Factory", "localtime", "GMT+0", "GMT-0"})
    for tz in zones:
        changes = clock_changes(tz, SINCE, SINCE + 7 * YEAR)
        for expr in expressions:
            start = random.choice(changes).start - DAY if changes else SINCE + random.randrange(7 * YEAR)
            if ours(expr, tz, start) != theirs(expr, tz, start):
                schedule = cron(expr, tz)
                assert schedule is not None
                assert not is_fixed(expr), (tz, expr, start)
                stop = start + 2 * DAY
                assert between(schedule, start, stop) == stepped(expr, tz, start, stop), (tz, expr, start)
    assert len(zones) > 400
