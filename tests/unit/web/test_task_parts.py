"""What the pages of a task are told from: coming slots, health, reasons, versions, charts. No server."""

from __future__ import annotations

import pytest

from noonbell import when
from noonbell.clock import Instant
from noonbell.model.rollup import Figures
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.web import charts, recent, task_form_page, task_page, task_versions
from noonbell.web.explanation import upcoming
from noonbell.when import zones

T0 = 1_800_000_000_000_000
DAY = 86_400_000_000
DAILY = {"type": "cron", "expr": "0 0 2 * * *"}


def run(number: int, status: str = "SUCCESS", ms: int = 100, at: int | None = None, **more) -> Run:
    start = Instant(T0 + number * 1_000_000 if at is None else at)
    more = {"task_version": 1, "run_at": start, "start_time": start, "attempt": 1, **more}
    return Run(
        id=RunId(number),
        task_id=TaskId(1),
        task_name="t",
        origin=Origin.SCHEDULE,
        status=RunStatus(status),
        scheduled_time=start,
        created_at=start,
        updated_at=start,
        queue="http",
        end_time=Instant(more["start_time"] + ms * 1000),
        **more,
    )


def made(schedule=DAILY, status="ENABLED", **more) -> Task:
    spec = {name: more.pop(name) for name in ("start_at", "end_at") if name in more}
    return Task(
        id=TaskId(1),
        version=1,
        status=TaskStatus(status),
        spec=TaskSpec(name="t", schedule=schedule, **spec),
        created_at=Instant(T0),
        updated_at=Instant(T0),
        **more,
    )


def cursor(days: int = 1) -> Instant:
    """Two o'clock in the morning."""
    return Instant((T0 // DAY + days) * DAY + 7_200_000_000)


def version(number: int, at: int = T0, status: str = "ENABLED", **spec) -> TaskVersion:
    fields = {"name": "t", **spec}
    return TaskVersion(
        task_id=TaskId(1),
        version=number,
        valid_from=Instant(at),
        status=TaskStatus(status),
        deleted=False,
        changed_by="ada",
        spec=TaskSpec(**fields),
    )


# What comes


def test_slots_that_an_operator_skips_are_shown_with_the_reason():
    found = upcoming(made(next_fire_at=cursor(), skip_next=2), Instant(T0), 4)
    assert [slot.why for slot in found.slots] == ["operator", "operator", "", ""]
    assert found.slots[0].at == cursor()
    assert upcoming(made(next_fire_at=cursor(), skip_next=-1), Instant(T0), 3).slots[2].why == "operator"


@pytest.mark.parametrize(("status", "why"), [("DISABLED", "paused"), ("ERROR", "error")])
def test_a_task_that_is_off_shows_the_slots_that_it_lets_pass(status, why):
    found = upcoming(made(status=status), Instant(T0), 3)
    assert [(slot.at, slot.why) for slot in found.slots] == [(cursor(n), why) for n in (1, 2, 3)]


def test_it_is_said_why_there_are_no_more():
    assert upcoming(made(schedule=None), Instant(T0), 3).ends == "demand"
    assert upcoming(made(status="COMPLETED"), Instant(T0), 3).ends == "completed"
    assert upcoming(made(deleted_at=Instant(T0)), Instant(T0), 3).ends == "deleted"
    bounded = upcoming(made(next_fire_at=cursor(), end_at=Instant(cursor(2) + 1)), Instant(T0), 5)
    assert (len(bounded.slots), bounded.ends) == (2, "end_at")
    counted = upcoming(made({**DAILY, "repeat": 3}, next_fire_at=cursor(), fired=1), Instant(T0), 5)
    assert (len(counted.slots), counted.ends) == (2, "repeat")


def test_after_a_run_that_is_under_way_no_moment_is_known_yet():
    chained = when.normalise(
        {"type": "interval", "every": 60, "unit": "second", "mode": "fixed_delay"}, "UTC", T0 // 1_000_000
    )
    found = upcoming(made(chained, next_fire_at=cursor()), Instant(T0), 5)
    assert ([slot.at for slot in found.slots], found.ends) == ([cursor()], "after_run")
    assert upcoming(made(chained), Instant(T0), 5).slots == []


# How it went


def test_delay_is_from_when_a_run_could_start_and_retries_are_no_delay():
    late = run(1, run_at=Instant(T0), start_time=Instant(T0 + 400_000))
    assert recent.start_delay(late) == 400
    assert recent.start_delay(run(2, attempt=2)) is None
    figures = recent.health([late, run(3)])
    assert (figures.ended, figures.lag_ms, figures.lag_p95_ms) == (2, 400, 400)


def test_health_counts_what_succeeded_or_failed_and_nothing_else():
    figures = recent.health([run(1, ms=10), run(2, "FAILED", ms=30), run(3, "CANCELED"), run(4, "SKIPPED")])
    assert (figures.ended, figures.failed, figures.success, figures.median_ms) == (2, 1, 50.0, 30)
    assert recent.health([]).success is None


def test_where_all_runs_take_the_same_none_is_slow():
    figures = recent.health([run(n, ms=100) for n in range(20)])
    assert not any(task_page.is_slow(run(n, ms=100), figures) for n in range(20))
    mixed = [run(n, ms=100) for n in range(40)] + [run(41, ms=900)]
    assert [each.id for each in mixed if task_page.is_slow(each, recent.health(mixed))] == [41]


def test_only_the_last_thirty_days_count():
    old, young = run(1, at=T0 - 31 * DAY), run(2, at=T0 - 29 * DAY)
    assert task_page.recent([young, old], T0) == [young]


# Why it fails


def failed(number: int, message: str, **more) -> Run:
    return run(number, "FAILED", error_message=message, error_details={"kind": "http_5xx"}, **more)


def test_a_reason_names_the_change_that_it_began_with():
    runs = [
        failed(5, "answered 503 in 9 ms", task_version=2),
        failed(4, "answered 503 in 7 ms", task_version=2),
        run(3),
        run(2),
    ]
    every = [version(1), version(2, T0 + 3_500_000), version(3, T0 + 9_000_000)]
    (reason,) = recent.reasons(runs, every)
    assert (reason.count, reason.first.id, reason.newest.id, reason.kind) == (2, 4, 5, "http_5xx")
    assert (reason.change.version, reason.is_new) == (2, True)


def test_a_change_that_succeeded_first_is_only_the_last_one_before():
    runs = [failed(5, "x", task_version=2), run(4, task_version=2), run(3)]
    (reason,) = recent.reasons(runs, [version(1), version(2, T0 + 3_500_000)])
    assert (reason.change.version, reason.is_new) == (2, False)
    (alone,) = recent.reasons(runs[:1], [version(1)])
    assert (alone.change, alone.before) == (None, None)


def test_the_commonest_reason_comes_first_and_other_kinds_are_others():
    runs = [failed(4, "a"), failed(3, "b"), failed(2, "b"), run(1, "TIMEOUT", error_message="b")]
    assert [(reason.count, reason.text) for reason in recent.reasons(runs, [])] == [(2, "b"), (1, "a"), (1, "b")]


# What was changed


def test_a_version_shows_the_fields_that_differ_one_by_one():
    every = [
        version(1, headers={"Accept": "1", "Authorization": "Bearer one"}, timeout_seconds=10),
        version(2, headers={"Accept": "2", "Authorization": "Bearer two"}, timeout_seconds=20),
    ]
    newest, first = task_versions.changes(every)
    told = {field.name: (field.before, field.after) for field in newest.fields}
    assert told == {
        "headers.Accept": ("1", "2"),
        "timeout_seconds": ("10", "20"),
        "headers.Authorization": ("***", "***"),
    }
    assert (newest.kind, first.kind, first.fields) == ("changed", "created", [])


@pytest.mark.parametrize(
    ("status", "deed"), [("DISABLED", "paused"), ("COMPLETED", "completed"), ("ERROR", "error"), ("ENABLED", "same")]
)
def test_a_version_that_only_turns_the_task_says_so(status, deed):
    assert task_versions.changes([version(1), version(2, status=status)])[0].kind == deed
    assert task_versions.changes([version(1, status="DISABLED"), version(2)])[0].kind == "resumed"


# Charts


def test_every_dot_is_inside_its_chart_and_failures_are_told_apart():
    runs = [run(n, "FAILED" if n % 3 == 0 else "SUCCESS", ms=n * 100) for n in range(20, 0, -1)]
    chart = charts.dots(runs, [(2, T0 + 5_000_000), (3, T0 + 99_000_000)], 1900)
    assert all(0 < dot.x < chart.width and 0 < dot.y < chart.height for dot in chart.dots)
    assert {dot.mark for dot in chart.dots if dot.run.id % 3 == 0} == {"bad"}
    assert [line.version for line in chart.changes] == [2]
    assert 3 <= len(chart.grid) <= 5
    assert chart.grid[0][1] == 0
    assert charts.dots([run(1, "SKIPPED")], [], None).dots == []
    assert charts.dots([run(1, ms=0)], [], None).dots[0].x == chart.width / 2


@pytest.mark.parametrize("longest", [0, 1, 7, 99, 412, 60_000, 10**9])
def test_lines_across_are_few_and_reach_the_longest(longest):
    grid = charts.grid_of(longest)
    assert 1 <= len(grid) <= 4
    assert grid[-1] >= longest


def test_heat_lies_on_the_clock_of_the_zone():
    monday = (1_800_000_000 - 1_800_000_000 % 604_800 + 4 * 86_400) * 1_000_000
    counts = {"SUCCESS": 1, "FAILED": 1, "SKIPPED": 1}
    hours = [(monday, Figures(counts={"SKIPPED": 1})), (monday + 3_600_000_000, Figures(counts=counts))]
    utc, shanghai = (charts.heat(hours, zones.find(name)) for name in ("UTC", "Asia/Shanghai"))
    assert (utc[0][1].runs, utc[0][1].failed) == (shanghai[0][9].runs, shanghai[0][9].failed) == (2, 1)
    assert sum(cell.runs for day in utc for cell in day) == 2
    assert charts.heat([], zones.find("UTC"))[0][0].level == 0


@pytest.mark.parametrize(("seconds", "crowd", "jitter"), [(10, 3, 0), (60, 3, 30), (59, 3, 0), (3600, 50, 250)])
def test_a_jitter_is_proposed_only_where_it_is_at_most_half_of_the_time_between_two_slots(seconds, crowd, jitter):
    fires = [{"utc": f"2030-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"} for at in (0, seconds)]
    assert task_form_page.proposed_jitter(crowd, fires) == jitter
