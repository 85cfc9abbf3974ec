"""Figures of the overview: the last day, the day before it, and the lines from hour to hour."""

from __future__ import annotations

from noonbell.clock import Instant
from noonbell.model import rollup
from noonbell.model.account import PendingCallbacks
from noonbell.web import charts, overview

NOW = 500_000 * overview.HOUR + overview.HOUR // 2


def sums(**counts: int) -> rollup.Figures:
    return rollup.Figures(counts={status.upper(): count for status, count in counts.items()})


def figures(today: rollup.Figures | None = None, before: rollup.Figures | None = None) -> overview.OverviewFigures:
    nothing = rollup.Figures()
    day = overview.LastDay(Instant(NOW - overview.DAY), today or nothing, before or nothing, [(NOW, today or nothing)])
    return overview.figures(day, PendingCallbacks())


def test_success_is_of_what_was_decided_in_the_last_day():
    found = figures(sums(success=2, failed=1, skipped=1), sums(failed=1))
    assert (found.success, found.failed, found.runs) == (66.7, 1, 4)


def test_the_change_is_against_the_day_before_and_unknown_where_nothing_was_decided_then():
    assert figures(sums(success=1), sums(success=1, timeout=1)).change == 50.0
    assert figures(sums(success=1), sums(skipped=3)).change is None


def test_a_day_without_runs_has_no_figures_and_no_lines():
    found = figures()
    assert (found.success, found.lag_p95_ms, found.success_line.path, found.lag_line.path) == (None, None, "", "")


def test_lateness_is_the_delay_that_one_in_twenty_exceeds():
    today = sums(success=100)
    today.start_delay.add(40_000, 95)
    today.start_delay.add(90_000_000, 5)
    assert figures(today).lag_p95_ms in range(39, 42)


def test_what_executes_and_waits_is_in_the_present_hour_of_the_chart():
    hours = [(0, sums(success=2, canceled=1)), (overview.HOUR, sums(timeout=1, skipped=4))]
    assert charts.hours(hours, {"active": 3, "waiting": 0}) == [
        (0, {"ok": 2, "idle": 1}),
        (overview.HOUR, {"bad": 1, "idle": 4, "active": 3}),
    ]


def test_a_line_leaves_out_what_is_not_known_and_stays_in_its_box():
    line = overview.spark([100, None, 90, 95], 90, 100, limit=95)
    assert line.path == "M0.0 2.0 L66.7 26.0 L100.0 14.0"
    assert line.limit == 14.0
