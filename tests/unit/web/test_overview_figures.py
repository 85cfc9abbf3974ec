"""Figures of the overview: the last day, the day before it, and the lines from hour to hour."""

from __future__ import annotations

from typing import Any

from noonbell.clock import Instant
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.web import overview

NOW = 500_000 * overview.HOUR + overview.HOUR // 2


def run(hours_ago: float, status: str = "SUCCESS", late_ms: int = 0, **more: Any) -> Run:
    due = Instant(NOW - round(hours_ago * overview.HOUR))
    return Run(
        id=RunId(1),
        task_id=TaskId(1),
        task_name="t",
        task_version=1,
        origin=Origin.SCHEDULE,
        status=RunStatus(status),
        scheduled_time=due,
        run_at=due,
        created_at=due,
        updated_at=due,
        queue="http",
        start_time=Instant(due + late_ms * 1000),
        **more,
    )


def figures(*runs: Run, is_whole: bool = True) -> overview.Figures:
    return overview.figures(runs, NOW, is_whole=is_whole)


def test_success_is_of_what_was_decided_in_the_last_day():
    found = figures(run(1), run(2), run(3, "FAILED"), run(4, "SKIPPED"), run(30, "FAILED"))
    assert (found.success, found.failed, found.runs) == (66.7, 1, 4)


def test_the_change_is_against_the_day_before_and_unknown_where_that_is_cut_off():
    runs = [run(1), run(25), run(26, "FAILED")]
    assert figures(*runs).change == 50.0
    assert figures(*runs, is_whole=False).change is None
    assert figures(run(1)).change is None


def test_a_day_without_runs_has_no_figures_and_no_lines():
    found = figures()
    assert (found.success, found.lag_p95_ms, found.success_line.path, found.lag_line.path) == (None, None, "", "")


def test_lateness_counts_first_attempts_only():
    assert figures(run(1, late_ms=40), run(2, late_ms=90_000, attempt=2)).lag_p95_ms == 40


def test_callbacks_are_overdue_once_their_deadline_has_passed():
    waiting = [run(1, "CALLBACK_PENDING", callback_deadline=Instant(NOW + step)) for step in (-1, 5, 9)]
    found = figures(*waiting)
    assert (found.callbacks, found.overdue, found.next_deadline) == (3, 1, NOW + 5)


def test_an_hour_is_where_its_runs_were_due_and_the_present_one_is_last():
    hours = overview.by_hour([run(0), run(1), run(23), run(24)], NOW)
    assert [len(hour) for hour in hours] == [1, *[0] * 21, 1, 1]


def test_a_line_leaves_out_what_is_not_known_and_stays_in_its_box():
    line = overview.spark([100, None, 90, 95], 90, 100, limit=95)
    assert line.path == "M0.0 2.0 L66.7 26.0 L100.0 14.0"
    assert line.limit == 14.0
