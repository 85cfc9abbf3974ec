"""Schedules that are made of others, and every rule for clock changes, against models that list every moment."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.schedules.expressions import random_expression
from conformance.schedules.test_laws import (
    CHANGES,
    compositions,
    law,
    random_start,
    schedule_of,
    seeds,
    specs,
    walk,
    zones,
)
from noonbell.model.task_schedule import ClockChanges, GapRule, RepeatedTimeRule
from noonbell.when import LATEST, Composed, compose, normalise, parse
from noonbell.when.zones import DAY, YEAR
from services.size import size

pytestmark = pytest.mark.longer


def listed(spec: dict[str, Any], tz: str, changes: ClockChanges | None, start: int, stop: int) -> set[int]:
    schedule = parse(spec, tz, changes=changes)
    return set(walk(schedule, start - 1, stop - 1, 10**6))


@settings(parent=law, max_examples=size(30, 300))
@given(compositions, zones, seeds)
def test_a_composition_has_the_slots_of_its_parts_without_the_excluded_ones(
    spec: dict[str, Any], tz: str, seed: int
) -> None:
    start = random_start(Random(seed), CHANGES[tz])
    stop = start + 4 * 3600
    changes = None if spec["dst"] is None else ClockChanges(**spec["dst"])
    schedule_of(spec, tz)  # leaves out those with a part that never fires
    parts = [normalise(each, tz, start - YEAR, changes=changes) for each in (*spec["schedules"], *spec["exclude"])]
    named, taken = parts[: len(spec["schedules"])], parts[len(spec["schedules"]) :]
    schedule = compose(named, taken, tz, changes)
    expected: set[int] = set()
    for each in named:
        expected |= listed(each, tz, changes, start, stop)
    for each in taken:
        expected -= listed(each, tz, changes, start, stop)
    assert walk(schedule, start - 1, stop - 1, 10**6) == sorted(expected)
    assert schedule.mask(start, stop).bit_count() == len(expected)
    assert schedule.count(start, stop) == len(expected)  # type: ignore[attr-defined]


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")


class ByTheClock:
    """What a rule makes of local moments, told by asking `zoneinfo` for the clock of each second."""

    def __init__(self, tz: str, change: int, gap: GapRule, repeat: RepeatedTimeRule) -> None:
        self._zone, self._gap, self._repeat = ZoneInfo(tz), gap, repeat
        self._shifts = {at - self._local(at) for at in (change - 1, change)}

    def _local(self, instant: int) -> int:
        shown = datetime.fromtimestamp(instant, self._zone).replace(tzinfo=UTC)
        return int(shown.timestamp())

    def slots(self, local: int) -> list[int]:
        shown = sorted(local + shift for shift in self._shifts if self._local(local + shift) == local)
        if not shown:
            return self._in_gap(local)
        if self._repeat is RepeatedTimeRule.BOTH:
            return shown
        return [shown[0] if self._repeat is RepeatedTimeRule.FIRST else shown[-1]]

    def _in_gap(self, local: int) -> list[int]:
        if self._gap is GapRule.SKIP:
            return []
        low, high = local - 30 * 3600, local + 30 * 3600
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._local(middle) > local else (middle, high)
        return [high if self._gap is GapRule.NEXT else local - (self._local(high) - high)]


@settings(parent=law, max_examples=size(20, 400))
@given(
    st.integers(0, 10**9),
    st.sampled_from(ZONES),
    st.sampled_from(tuple(GapRule)),
    st.sampled_from(tuple(RepeatedTimeRule)),
    seeds,
)
def test_every_rule_for_clock_changes_is_what_the_clock_says(
    expression: int, tz: str, gap: GapRule, repeat: RepeatedTimeRule, seed: int
) -> None:
    random = Random(seed)
    minute, hour, *_ = random_expression(Random(expression)).split()
    spec = {"type": "cron", "expr": f"{minute} {hour} * * *"}
    change = random.choice(CHANGES[tz]).start
    start, stop = change - 4 * 3600, change + 4 * 3600
    readings = walk(parse(spec, "UTC"), start - DAY, stop + DAY, 10**6)
    model = ByTheClock(tz, change, gap, repeat)
    expected = sorted({slot for each in readings for slot in model.slots(each) if start <= slot < stop})
    schedule = parse(spec, tz, changes=ClockChanges(gap=gap, repeat=repeat))
    assert walk(schedule, start - 1, stop - 1, 10**6) == expected
    assert schedule.count(start, stop) == len(expected)  # type: ignore[attr-defined]


@settings(parent=law, max_examples=size(8, 100))
@given(specs, zones, seeds)
def test_what_excludes_itself_has_no_slot_and_says_so_soon(spec: dict[str, Any], tz: str, seed: int) -> None:
    if spec["type"] == "once":
        return
    start = random_start(Random(seed), CHANGES[tz])
    schedule = Composed((schedule_of(spec, tz),), (schedule_of(spec, tz),))
    assert schedule.next(start) is None
    assert schedule.previous(start) is None
    assert schedule.count(start, start + YEAR) == 0
    assert schedule.leaves_out_everything(start) is (schedule.parts[0].next(start) is not None)


def test_a_slot_behind_years_of_excluded_ones_is_found() -> None:
    every_day = {"type": "cron", "expr": "0 9 * * *"}
    but_leap_days = [{"type": "cron", "expr": "0 9 * 1,3-12 *"}, {"type": "cron", "expr": "0 9 1-28 2 *"}]
    schedule = compose([every_day], but_leap_days, "Europe/Berlin")
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    assert schedule.next(start) == int(datetime(2028, 2, 29, 8, tzinfo=UTC).timestamp())
    assert schedule.previous(start) == int(datetime(2024, 2, 29, 8, tzinfo=UTC).timestamp())
    assert schedule.next(LATEST) is None
