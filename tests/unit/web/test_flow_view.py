"""A run of a flow as a page shows it: boxes and lines, the bars of time, the critical path, pages of long flows."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.model.flow import StepInGraph, StepStatus
from noonbell.model.run import RunId
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Step, StepOn
from noonbell.web.flow_view import AT_ONCE, WIDTH, as_written, critical_path, view

START = Instant(1_800_000_000 * SECOND)
NOW = Instant(START + 100 * SECOND)


def at(seconds: float) -> Instant:
    return Instant(START + round(seconds * SECOND))


def step(
    step_id: str, *needs: str, ran: tuple[float, float | None] | None = None, status: str = "SUCCESS", **more: Any
) -> StepInGraph:
    """`ran`: from when to when, in seconds after the start; no end for one that still runs."""
    if ran is None and status == "SUCCESS":
        status = "WAITING"
    return StepInGraph(
        id=step_id,
        needs=list(needs),
        on=StepOn(more.pop("on", "success")),
        exec_type=ExecType.SYNC,
        queue="http",
        status=StepStatus("RUNNING" if ran is not None and ran[1] is None else status),
        started_at=None if ran is None else at(ran[0]),
        ended_at=more.pop("ended_at", None if ran is None or ran[1] is None else at(ran[1])),
        **more,
    )


NIGHTLY = [
    step("extract", ran=(0, 10), run_id=RunId(7)),
    step("parts", "extract", ran=(10, 40), foreach=True, total=8, succeeded=6, failed=1),
    step("check", "extract", ran=(10, 15)),
    step("load", "parts", "check", ran=(41, 50)),
    step("page", "load", status="SKIPPED", on="failure", reason="upstream", ended_at=at(50)),
]


def path_of(steps: list[StepInGraph]) -> list[tuple[str, float]]:
    return [(each.step.id, each.took / SECOND) for each in critical_path(steps, START, NOW)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([step("a"), step("b", "a")], []),
        ([step("a", ran=(2, 5))], [("a", 5)]),
        (NIGHTLY, [("extract", 10), ("parts", 30), ("load", 10)]),
        ([step("a", ran=(0, 9)), step("b", ran=(0, 4)), step("c", "a", "b", ran=(9, 12))], [("a", 9), ("c", 3)]),
        ([step("a", ran=(0, 5)), step("b", "a", ran=(5, None))], [("a", 5), ("b", 95)]),
        ([step("a", ran=(0, 5)), step("b", "a", ran=(5, 90)), step("c", "a", ran=(5, None))], [("a", 5), ("c", 95)]),
        (
            [
                step("a", ran=(0, 5)),
                step("b", "a", status="SKIPPED", ended_at=at(5)),
                step("c", "b", ran=(5, 6), on="any"),
            ],
            [("a", 5), ("c", 1)],
        ),
        ([step("a", ran=(-900, -800), copied_from=RunId(1)), step("b", "a", ran=(1, 3))], [("b", 3)]),
        ([step("b", "gone", ran=(0, 3))], [("b", 3)]),
    ],
)
def test_the_critical_path_is_what_the_flow_waited_for(steps, expected):
    assert path_of(steps) == expected


def test_the_graph_marks_the_critical_path_and_the_lines_that_were_taken():
    found = view(NIGHTLY, START, at(50), NOW)
    assert {box.step.id for box in found.boxes if box.is_critical} == {"extract", "parts", "load"}
    lines = {(line.source, line.target): (line.is_taken, line.is_critical) for line in found.lines}
    assert lines == {
        ("extract", "parts"): (True, True),
        ("extract", "check"): (True, False),
        ("parts", "load"): (True, True),
        ("check", "load"): (True, False),
        ("load", "page"): (False, False),
    }
    assert found.counts == {"SUCCESS": 4, "SKIPPED": 1}
    (parts,) = [box for box in found.boxes if box.step.id == "parts"]
    assert parts.succeeded + parts.failed == 7 / 8


def test_a_long_id_is_cut_in_its_box_and_whole_beside_it():
    (box,) = view([step("x" * 64)], START, None, NOW).boxes
    assert box.label == "x" * 18 + "…"
    assert box.step.id == "x" * 64


def test_bars_stand_where_their_steps_ran():
    found = view(NIGHTLY, START, at(50), NOW, {RunId(7): at(4)})
    bars = {bar.step.id: (bar.x, bar.wait, bar.width) for bar in found.bars}
    assert (found.first, found.last) == (START, at(50))
    assert bars == {
        "extract": (0, 80, 200),
        "parts": (200, 0, 600),
        "check": (200, 0, 100),
        "load": (820, 0, 180),
    }
    assert [bar.is_open for bar in found.bars] == [False] * 4


def test_a_step_that_waits_for_a_worker_has_only_waited():
    (bar,) = view([step("a", ran=(0, None), run_id=RunId(7))], START, None, NOW).bars
    assert bar.is_open
    assert (bar.wait, bar.width) == (WIDTH, WIDTH)
    assert bar.begun == bar.end == NOW


def test_what_a_retry_kept_has_no_bar():
    kept = step("a", ran=(-900, -800), copied_from=RunId(1))
    found = view([kept, step("b", "a", ran=(1, 3))], START, at(3), NOW)
    assert [bar.step.id for bar in found.bars] == ["b"]
    assert found.first == START


def test_a_flow_that_has_not_started_has_no_bars():
    found = view([step("a"), step("b", "a")], None, None, NOW)
    assert (found.bars, found.critical) == ([], [])
    assert len(found.boxes) == 2


def chain(count: int, **at_place: str) -> list[StepInGraph]:
    return [step(f"s{n}", *([f"s{n - 1}"] if n else []), status=at_place.get(f"s{n}", "WAITING")) for n in range(count)]


def test_a_long_flow_comes_in_pages():
    whole = chain(AT_ONCE * 2 + 50)
    first, last = view(whole, START, None, NOW), view(whole, START, None, NOW, begin=AT_ONCE * 2 + 7)
    assert (first.begin, first.previous, first.next, len(first.boxes)) == (0, None, AT_ONCE, AT_ONCE)
    assert (last.begin, last.previous, last.next, len(last.boxes)) == (AT_ONCE * 2, AT_ONCE, None, 50)
    assert last.total == len(whole)
    assert last.counts == {"WAITING": len(whole)}


@pytest.mark.parametrize(("begin", "expected"), [(-5, 0), (10**9, AT_ONCE * 2), (AT_ONCE, AT_ONCE)])
def test_a_page_that_there_is_not_is_the_nearest_that_there_is(begin, expected):
    assert view(chain(AT_ONCE * 2 + 1), START, None, NOW, begin=begin).begin == expected


@pytest.mark.parametrize(
    ("marked", "expected"), [({"s150": "FAILED", "s20": "RUNNING"}, 100), ({"s250": "RUNNING"}, 200), ({}, 0)]
)
def test_a_long_flow_opens_where_it_failed_or_runs(marked, expected):
    assert view(chain(300, **marked), START, None, NOW).begin == expected


def test_no_steps_are_an_empty_graph():
    found = view([], START, None, NOW)
    assert (found.boxes, found.lines, found.bars, found.next, found.previous) == ([], [], [], None, None)


def test_the_steps_of_a_task_are_a_graph_that_has_not_run():
    steps = (
        Step(id="extract", target_url="http://h/x"),
        Step(
            id="parts", needs=("extract",), foreach="{{ steps.extract.result }}", job_type="convert", allow_failure=True
        ),
    )
    first, second = as_written(steps)
    assert (first.calls, first.foreach, first.status) == ("http://h/x", False, StepStatus.WAITING)
    assert (second.calls, second.needs, second.foreach, second.allow_failure) == ("convert", ["extract"], True, True)
    found = view([first, second], None, None, NOW)
    assert [(line.source, line.target, line.is_taken) for line in found.lines] == [("extract", "parts", False)]
