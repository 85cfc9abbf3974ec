"""Weekly and monthly rules from 2024 to 2032 in six zones, against a reference that is slow, plain and not ours.

It was written from the words of the contract alone. It looks at the clock on the wall every quarter of an hour, by
`zoneinfo`, and knows nothing of offsets: what the clock has not shown yet and shows now is shown for the first time; what
it jumped over happens right after the jump.
"""

from __future__ import annotations

import calendar
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.when import normalise, parse

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
)
"""No change, changes at night, at midnight, by half an hour, and around a month that moves every year."""
OFTEN = ("Europe/Berlin", "Australia/Lord_Howe")
BEGIN, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
TIMES = ("00:00:00", "00:30:00", "01:15:00", "02:00:00", "02:15:07", "02:30:00", "03:00:00", "12:34:56", "23:45:00")
WEEKLY = [{"type": "weekly", "weekday": day, "time": time} for day, time in product(range(7), TIMES)]
MONTHLY = [
    {"type": "monthly", "day": day, "time": time}
    for day, time in product((-31, -30, -2, -1, 0, 1, 2, 15, 28, 29, 30, 31), TIMES)
]


def picks(rule: dict[str, Any], day: datetime) -> bool:
    """Whether the rule names this day of the calendar."""
    if rule["type"] == "weekly":
        return day.isoweekday() % 7 == rule["weekday"]  # Sunday is 0
    last = calendar.monthrange(day.year, day.month)[1]
    wanted = rule["day"]
    return day.day == (min(wanted, last) if wanted > 0 else max(1, last + wanted))


def reference(zone: str, rules: list[dict[str, Any]]) -> list[list[int]]:
    """The slots of each rule, by walking over the nine years."""
    tz = ZoneInfo(zone)
    by_quarter: dict[int, list[tuple[int, timedelta]]] = defaultdict(list)
    for number, rule in enumerate(rules):
        hour, minute, second = map(int, rule["time"].split(":"))
        by_quarter[hour * 4 + minute // 15].append((number, timedelta(minutes=minute % 15, seconds=second)))
    found: list[list[int]] = [[] for _ in rules]

    def named(quarter: datetime) -> list[tuple[int, timedelta]]:
        here = by_quarter[quarter.hour * 4 + quarter.minute // 15]
        return [(number, into) for number, into in here if picks(rules[number], quarter)]

    unseen = BEGIN.astimezone(tz).replace(tzinfo=None)
    now = BEGIN
    while now < END:
        shown = now.astimezone(tz).replace(tzinfo=None)
        while unseen < shown:  # the clock jumped: what it left out happens now
            for number, _ in named(unseen):
                found[number].append(int(now.timestamp()))
            unseen += QUARTER
        if unseen == shown:
            for number, into in named(shown):
                found[number].append(int((now + into).timestamp()))
            unseen += QUARTER
        now += QUARTER
    return found


def ours(zone: str, rule: dict[str, Any]) -> list[int]:
    schedule = parse(normalise(rule, zone, 0), zone)
    slots: list[int] = []
    slot = schedule.next(int(BEGIN.timestamp()) - 1)
    while slot is not None and slot < END.timestamp():
        slots.append(slot)
        slot = schedule.next(slot)
    return slots


@pytest.mark.parametrize(
    "zone", [zone if zone in OFTEN else pytest.param(zone, marks=pytest.mark.full) for zone in ZONES]
)
def test_weekly_and_monthly_rules_agree_with_the_clock_on_the_wall(zone: str) -> None:
    rules = WEEKLY + MONTHLY
    for rule, slots in zip(rules, reference(zone, rules), strict=True):
        assert ours(zone, rule) == slots, rule


def test_the_reference_knows_what_the_contract_says() -> None:
    """Checked by hand: the nights on which Berlin's clocks change, and the ends of February."""
    in_the_gap, repeated = {"type": "weekly", "weekday": 0, "time": "02:30:00"}, MONTHLY[-1]
    (slots, _) = reference("Europe/Berlin", [in_the_gap, repeated])
    spring, autumn = datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    of_2026 = [slot for slot in slots if datetime.fromtimestamp(slot, UTC).year == 2026]
    assert int(spring.timestamp()) in of_2026
    assert int(autumn.timestamp()) in of_2026
    assert len(of_2026) == 52
    (ends,) = reference("UTC", [{"type": "monthly", "day": 31, "time": "00:00:00"}])
    assert [datetime.fromtimestamp(slot, UTC).day for slot in ends[:4]] == [31, 29, 31, 30]
