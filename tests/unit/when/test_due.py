"""Accounts of due slots: large ones at once, small ones to the second."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from noonbell.when import normalise, parse
from noonbell.when.due import Bounds, Due, due, first, jitter, shortest_gap

NOW = 1_794_733_200  # 2026-11-15T09:00:00Z
YEAR = 366 * 86_400
ALWAYS = Bounds(None, None)


def cron(expr, tz="UTC"):
    return parse({"type": "cron", "expr": expr}, tz)


def test_the_worked_example_of_the_contract():
    """Last pass 10:00:00, this pass 10:00:05, every second."""
    account = due(cron("* * * * * *"), ALWAYS, NOW + 1, NOW + 5, keep=100, remaining=None)
    assert account == Due((NOW + 1, NOW + 2, NOW + 3, NOW + 4, NOW + 5), 0, None, None, NOW + 6)
    account = due(cron("* * * * * *"), ALWAYS, NOW + 1, NOW + 5, keep=2, remaining=None)
    assert account == Due((NOW + 4, NOW + 5), 3, NOW + 1, NOW + 3, NOW + 6)
    assert account.used == 5


@pytest.mark.parametrize(
    "schedule",
    [
        cron("* * * * * *"),
        cron("* * * * * *", "Europe/Berlin"),
        parse({"type": "interval", "every": 1, "unit": "second"}),
        cron("*/2 5-50 1-22 * * 1-5", "America/New_York"),
    ],
    ids=["every second", "every second in Berlin", "interval", "working seconds"],
)
def test_a_year_of_missed_seconds_is_counted_in_no_time(schedule):
    cursor = schedule.next(NOW)
    due(schedule, ALWAYS, cursor, NOW + YEAR, keep=100, remaining=None)
    started = time.process_time()
    account = due(schedule, ALWAYS, cursor, NOW + YEAR, keep=100, remaining=5_000_000)
    assert time.process_time() - started < 2
    assert account.used == 5_000_000
    assert account.next is None
    assert len(account.newest) == 100
    assert account.first_dropped == cursor
    assert schedule.next(account.last_dropped) == account.newest[0]


def test_every_second_of_a_year_is_accounted_for():
    account = due(cron("* * * * * *", "Europe/Berlin"), ALWAYS, NOW + 1, NOW + YEAR, keep=3, remaining=None)
    assert account.used == YEAR
    assert account.newest == (NOW + YEAR - 2, NOW + YEAR - 1, NOW + YEAR)
    assert account.complete


def test_the_repeat_count_ends_the_schedule():
    account = due(cron("* * * * * *"), ALWAYS, NOW, NOW + 100, keep=2, remaining=5)
    assert account == Due((NOW + 3, NOW + 4), 3, NOW, NOW + 2, None)


def test_a_repeat_count_that_outlives_the_pass_leaves_a_next_slot():
    account = due(cron("* * * * * *"), ALWAYS, NOW, NOW + 3, keep=9, remaining=5)
    assert account.newest == (NOW, NOW + 1, NOW + 2, NOW + 3)
    assert account.next == NOW + 4


def test_nothing_is_left_of_a_spent_repeat_count():
    assert due(cron("* * * * * *"), ALWAYS, NOW, NOW + 100, keep=2, remaining=0) == Due((), 0, None, None, None)


def test_end_at_is_the_last_slot():
    account = due(cron("* * * * * *"), Bounds(None, NOW + 2), NOW, NOW + 100, keep=9, remaining=None)
    assert account.newest == (NOW, NOW + 1, NOW + 2)
    assert account.next is None


def test_slots_before_start_at_do_not_exist():
    account = due(cron("* * * * * *"), Bounds(NOW + 50, None), NOW, NOW + 51, keep=9, remaining=None)
    assert account.newest == (NOW + 50, NOW + 51)
    assert first(cron("@daily"), Bounds(NOW, None), 0) > NOW


def test_a_cursor_in_the_future_has_nothing_due():
    cursor = cron("@daily").next(NOW)
    assert due(cron("@daily"), ALWAYS, cursor, NOW, keep=9, remaining=None) == Due((), 0, None, None, cursor)


def test_a_cursor_that_is_no_longer_a_slot_is_not_due():
    """As when a country changes its clocks by decree after the cursor was stored."""
    account = due(cron("0 * * * *"), ALWAYS, NOW - 1800, NOW - 60, keep=9, remaining=None)
    assert account == Due((), 0, None, None, NOW)
    assert due(cron("0 * * * *"), ALWAYS, NOW - 1800, NOW, keep=9, remaining=None).newest == (NOW,)


def test_a_fixed_delay_has_one_slot_and_no_next_before_its_run_ended():
    schedule = parse(normalise({"type": "interval", "every": 1, "unit": "minute", "mode": "fixed_delay"}, "UTC", NOW))
    assert due(schedule, ALWAYS, NOW + 60, NOW + 9000, keep=9, remaining=None) == Due((NOW + 60,), 0, None, None, None)
    assert due(schedule, ALWAYS, NOW + 60, NOW, keep=9, remaining=None) == Due((), 0, None, None, NOW + 60)
    assert due(schedule, ALWAYS, NOW + 60, NOW + 60, keep=9, remaining=0).newest == ()
    assert due(schedule, Bounds(None, NOW), NOW + 60, NOW + 60, keep=9, remaining=None).newest == ()
    dropped = due(schedule, ALWAYS, NOW + 60, NOW + 60, keep=0, remaining=None)
    assert (dropped.dropped, dropped.first_dropped, dropped.last_dropped) == (1, NOW + 60, NOW + 60)


def test_jitter_is_the_same_in_every_process():
    here = jitter(7, NOW, 60)
    code = f"from noonbell.when.due import jitter; print(jitter(7, {NOW}, 60))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert float(there.stdout) == here


def test_jitter_spreads_tasks_and_slots_over_the_span():
    spread = [jitter(task, NOW + slot, 30) for task in range(50) for slot in range(50)]
    assert min(spread) >= 0
    assert max(spread) < 30
    assert len(set(spread)) == len(spread)
    assert 14 < sum(spread) / len(spread) < 16
    assert jitter(1, NOW, 0) == 0.0


@pytest.mark.parametrize(
    ("expr", "tz", "gap"),
    [
        ("* * * * * *", "UTC", 1),
        ("*/7 * * * *", "UTC", 240),
        ("0 2 * * *", "UTC", 86_400),
        ("0 4 * * *", "Europe/Berlin", 82_800),
        ("30 0-23 * * *", "Europe/Berlin", 1800),
        ("0 0 29 2 *", "UTC", 1461 * 86_400),
    ],
)
def test_the_shortest_gap_sees_uneven_steps_and_clock_changes(expr, tz, gap):
    assert shortest_gap(cron(expr, tz), NOW) == gap


def test_one_slot_has_no_gap():
    assert shortest_gap(parse({"type": "once", "at": "2030-01-01T00:00:00Z"}), NOW) is None


def test_the_gap_of_a_fixed_delay_is_its_step():
    schedule = parse(normalise({"type": "interval", "every": 1, "unit": "minute", "mode": "fixed_delay"}, "UTC", NOW))
    assert shortest_gap(schedule, NOW) == 60
