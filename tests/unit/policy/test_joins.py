"""Joins, as tables: which endings count, which runs belong together, and what each arrival does."""

from __future__ import annotations

import pytest

from noonbell.clock import Instant
from noonbell.model.run import FINAL, Origin, RunStatus
from noonbell.model.task_schedule import After, Arrival, Join, JoinMode, JoinState, Upstream, UpstreamOutcome
from noonbell.policy import joins
from noonbell.policy.joins import FinalRun

S, ON = RunStatus, UpstreamOutcome
A, B = 1, 2
NOON = Instant(43_200_000_000)


@pytest.mark.parametrize(
    ("status", "counts_as"),
    [
        (S.SUCCESS, ON.SUCCESS),
        (S.CALLBACK_SUCCESS, ON.SUCCESS),
        (S.FAILED, ON.FAILURE),
        (S.TIMEOUT, ON.FAILURE),
        (S.FAILED_TIMEOUT, ON.FAILURE),
        (S.CANCELED, ON.FAILURE),
        (S.SKIPPED, ON.SKIPPED),
    ],
)
def test_each_ending_counts_as_one_outcome_and_as_any(status: RunStatus, counts_as: UpstreamOutcome):
    assert {on for on in ON if joins.matches(on, status)} == {counts_as, ON.ANY}


def test_every_final_status_has_its_row_in_the_table_above():
    assert {status for status in S if len({on for on in ON if joins.matches(on, status)}) == 2} == FINAL


def test_a_run_that_made_room_for_the_next_round_has_not_failed():
    assert {on for on in ON if joins.matches(on, S.CANCELED, replaced=True)} == {ON.ANY}


@pytest.mark.parametrize(
    ("origin", "stored", "root"),
    [
        (Origin.SCHEDULE, None, "slot:43200000000"),
        (Origin.BACKFILL, None, "slot:43200000000"),
        (Origin.TRIGGER, None, "run:7"),
        (Origin.PUBLISH, None, "run:7"),
        (Origin.RETRY, "slot:1", "slot:1"),
        (Origin.RETRY, "run:3", "run:3"),
        (Origin.UPSTREAM, "slot:1", "slot:1"),
        (Origin.UPSTREAM, "run:3", "run:3"),
    ],
)
def test_a_run_goes_back_to_its_slot_or_to_the_run_that_was_asked_for(origin: Origin, stored: str | None, root: str):
    assert joins.root_of(7, origin, NOON, stored) == root


def after(*on: str, join: str = "all", same_slot: bool = True) -> After:
    upstreams = tuple(Upstream(task=id_, on=ON(each)) for id_, each in enumerate(on, A))
    return After(tasks=upstreams, join=JoinMode(join), same_slot=same_slot)


def run(
    task_id: int, status: RunStatus = S.SUCCESS, run_id: int = 0, *, again: bool = False, backfill: bool = False
) -> FinalRun:
    origin = Origin.RETRY if again else Origin.BACKFILL if backfill else Origin.SCHEDULE
    return FinalRun(run_id or task_id * 10, task_id, status, "slot:1", NOON, origin)


def place(task_id: int, *, fills: bool = True, run_id: int = 0, status: RunStatus | None = None) -> Arrival:
    ended = status or (S.SUCCESS if fills else S.FAILED)
    return Arrival(upstream_id=task_id, run_id=run_id or task_id * 10, status=ended, fills=fills)


def join(state: JoinState, *arrivals: Arrival, redrive: int = 0) -> Join:
    return Join(
        id=1,
        task_id=9,
        root="slot:1",
        edge_version=1,
        redrive=redrive,
        state=state,
        first_at=NOON,
        due_at=None,
        scheduled_time=NOON,
        arrivals=arrivals,
    )


OPEN, DONE, MISSING, DISABLED = JoinState
ONE, BOTH, FIRST = after("success"), after("success", "success"), after("success", "success", join="any")
FREE = after("success", "success", join="any", same_slot=False)
NEXT = after("success", "success", same_slot=False)

NOTHING = None
CASES = [
    # what it follows, the newest join, the run that ended → nothing, or (new?, redrive, places filled, complete?)
    ("one upstream that matches", ONE, None, run(A), (True, 0, {A}, True)),
    ("one upstream that does not", ONE, None, run(A, S.FAILED), NOTHING),
    ("its slot done again", ONE, join(DONE, place(A)), run(A, run_id=11, again=True), (True, 1, {A}, True)),
    ("its slot done again, and failed", ONE, join(DONE, place(A)), run(A, S.FAILED, 11, again=True), NOTHING),
    ("the first of two", BOTH, None, run(A), (True, 0, {A}, False)),
    ("the first of two, which does not match", BOTH, None, run(A, S.FAILED), (True, 0, set(), False)),
    ("the second of two", BOTH, join(OPEN, place(A)), run(B), (False, 0, {A, B}, True)),
    ("the second, which does not match", BOTH, join(OPEN, place(A)), run(B, S.FAILED), (False, 0, {A}, False)),
    ("a retry that later succeeds", BOTH, join(OPEN, place(A, fills=False), place(B)), run(A, run_id=11, again=True), (False, 0, {A, B}, True)),
    ("a retry that fails again", BOTH, join(OPEN, place(A, fills=False), place(B)), run(A, S.FAILED, 11, again=True), (False, 0, {B}, False)),
    ("a redrive that fails takes nothing back", BOTH, join(OPEN, place(A)), run(A, S.FAILED, 11, again=True), NOTHING),
    ("a redrive of a joined slot", BOTH, join(DONE, place(A), place(B)), run(A, run_id=11, again=True), (True, 1, {A, B}, True)),
    ("another one", BOTH, join(DONE, place(A), place(B), redrive=1), run(B, run_id=21, again=True), (True, 2, {A, B}, True)),
    ("a redrive of a joined slot that fails", BOTH, join(DONE, place(A), place(B)), run(A, S.FAILED, 11, again=True), NOTHING),
    ("an upstream that was itself redriven", BOTH, join(DONE, place(A), place(B)), run(A, run_id=11), (True, 1, {A, B}, True)),
    ("too late", BOTH, join(MISSING, place(A)), run(B), NOTHING),
    ("a redrive after it was too late", BOTH, join(MISSING, place(A)), run(B, again=True), (True, 1, {A, B}, True)),
    ("a redrive that leaves another missing", BOTH, join(MISSING, place(A)), run(A, run_id=11, again=True), (True, 1, {A}, False)),
    ("a backfill of what was missing", BOTH, join(MISSING, place(A)), run(B, backfill=True), (True, 1, {A, B}, True)),
    ("a backfill of what was joined", BOTH, join(DONE, place(A), place(B)), run(A, run_id=11, backfill=True), (True, 1, {A, B}, True)),
    ("any: a backfill of the second", FIRST, join(DONE, place(A)), run(B, backfill=True), NOTHING),
    ("after it was switched off", BOTH, join(DISABLED, place(A)), run(B), NOTHING),
    ("any: the first match", FIRST, None, run(A), (True, 0, {A}, True)),
    ("any: the first does not match", FIRST, None, run(A, S.FAILED), (True, 0, set(), False)),
    ("any: the second does", FIRST, join(OPEN, place(A, fills=False)), run(B), (False, 0, {B}, True)),
    ("any: a second match of the slot", FIRST, join(DONE, place(A)), run(B), NOTHING),
    ("any: a redrive of the first match", FIRST, join(DONE, place(A)), run(A, run_id=11, again=True), (True, 1, {A}, True)),
    ("any: a redrive of the other", FIRST, join(DONE, place(A)), run(B, again=True), (True, 1, {B}, True)),
    ("any, each run for itself", FREE, None, run(A), (True, 0, {A}, True)),
    ("any, each for itself, no match", FREE, None, run(A, S.FAILED), NOTHING),
    ("one of each: the first", NEXT, None, run(A), (True, 0, {A}, False)),
    ("one of each: the same again", NEXT, join(OPEN, place(A)), run(A, run_id=11), (False, 0, {A}, False)),
    ("one of each: it fails since", NEXT, join(OPEN, place(A)), run(A, S.FAILED, 11), NOTHING),
    ("one of each: the other", NEXT, join(OPEN, place(A)), run(B), (False, 0, {A, B}, True)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "wanted", "newest", "ended", "expected"), CASES, ids=[case[0] for case in CASES])
def test_what_an_arrival_does(what, wanted: After, newest: Join | None, ended: FinalRun, expected):
    step = joins.arrive(wanted, newest, ended)
    if step is None:
        assert expected is None
        return
    filled = {each.upstream_id for each in step.arrivals if each.fills}
    assert (step.is_new, step.redrive, filled, step.is_complete) == expected
    assert ended.run_id in {each.run_id for each in step.arrivals}


def test_a_new_match_takes_the_place_of_an_older_one():
    step = joins.arrive(NEXT, join(OPEN, place(A)), run(A, run_id=11))
    assert step is not None
    assert [each.run_id for each in step.arrivals] == [11]


@pytest.mark.parametrize(
    ("wanted", "root"), [(BOTH, "slot:1"), (ONE, "slot:1"), (NEXT, ""), (FREE, "run:10"), (after("any", same_slot=False), "run:10")]
)  # fmt: skip
def test_the_root_of_a_join(wanted: After, root: str):
    assert joins.join_root(wanted, run(A)) == root


def test_a_join_without_a_root_makes_room_for_the_next_when_it_is_over():
    assert joins.root_when_over(5, "", 7) == "run:7"
    assert joins.root_when_over(5, "", None) == "join:5"
    assert joins.root_when_over(5, "slot:1", 7) == "slot:1"


def test_what_is_missing_says_how_it_ended():
    assert joins.missing(BOTH, (place(A, fills=False),)) == {A: S.FAILED, B: None}
    assert joins.missing(BOTH, (place(A), place(B))) == {}
