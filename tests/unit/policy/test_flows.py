"""Flows, as tables: which steps fit together, whose turn has come, how steps and flows end, what a retry keeps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noonbell.clock import Instant
from noonbell.model.flow import StepState, StepStatus
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import Step, StepOn
from noonbell.policy import flows
from noonbell.policy.flows import FlowPlan
from noonbell.policy.value_path import InputError

NOW = Instant(1_000_000)
S = StepStatus


def step(id_: str, *needs: str, **fields: Any) -> Step:
    return Step(id=id_, needs=needs, **({"job_type": "j"} | fields if "target_url" not in fields else fields))


def state(id_: str, status: StepStatus = S.WAITING, **fields: Any) -> StepState:
    return StepState(id=1, run_id=RunId(1), step_id=id_, position=0, status=status, **fields)


def with_run(id_: str, status: StepStatus) -> StepState:
    """Of a step without `foreach`: only one that was skipped has ended without a run."""
    run = None if status is S.SKIPPED else RunId(5)
    return state(id_, status, step_run_id=run, total=0 if run is None else 1)


def problems(*steps: Step) -> list[str]:
    return [f"{index}.{name} {problem}" for index, name, problem in flows.problems(steps)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("a"), step("b", "a")], []),
        ([step("a"), step("a")], ["1.id is 'a', and so is that of steps[0]; each step has its own"]),
        ([step("a", "x")], ["0.needs names 'x', which is not a step; expected one of a"]),
        ([step("a"), step("b", "a", "a")], ["1.needs names 'a' more than once; expected each step once"]),
        ([step("a", "b"), step("b", "a")], ["0.needs go round in a circle: a → b → a"]),
        ([step("a", "a")], ["0.needs go round in a circle: a → a"]),
        (
            [step("a"), step("b", "a", "d"), step("c", "b"), step("d", "c")],
            ["1.needs go round in a circle: b → c → d → b"],
        ),
        ([step("a", on=StepOn.FAILURE)], ["0.on is failure, and the step needs no other; expected `needs` beside it"]),
        ([step("a", max_parallel=3)], ["0.max_parallel is for a step with foreach, and this one has none"]),
        (
            [step("a", "x"), step("b", when="1 = 1"), step("c", payload={"p": "{{ steps.y.result }}"})],
            [
                "0.needs names 'x', which is not a step; expected one of a, b, c",
                "1.when '=' is unknown; expected == (at position 2)",
                "2.payload.p steps.y.result reads the step 'y', which is none of those before it: a, b, c",
            ],
        ),
        (
            [step("a", "b", when="steps.c.failed == 0 and steps.y.failed"), step("b", "a"), step("c", when="1 =")],
            [
                "0.needs go round in a circle: a → b → a",
                "0.when steps.y.failed reads the step 'y', which is none of those before it: a, b, c",
                "2.when '=' is unknown; expected == (at position 2)",
            ],
        ),
    ],
)
def test_what_does_not_fit_together_is_named(steps: list[Step], expected: list[str]):
    found = problems(*steps)
    if expected and "circle" in expected[0]:
        assert found[1:] == expected[1:]
        # Where a circle is entered is a matter of taste; the steps in it, and their order, are not.
        said = found[0].partition(": ")[2].split(" → ")
        wanted = expected[0].partition(": ")[2].split(" → ")
        assert said[0] == said[-1]
        ring = said[:-1]
        assert wanted[:-1] in [ring[n:] + ring[:n] for n in range(len(ring))]
    else:
        assert found == expected


def test_a_foreach_has_results_and_no_result():
    readers = [
        step("b", "a", when="steps.a.result == 1"),
        step("c", "a", foreach="{{ steps.a.result }}"),
        step("d", "a", payload={"x": ["{{ steps.a.result.files }}", "{{ item }}"]}, foreach=[1]),
        step("e", "a", target_url="http://svc/{{ steps.a.result }}", headers={"X-A": "{{ steps.a.result }}"}),
        step("f", "a", payload=["{{ steps.a.results }}", "{{ steps.a.total }}", "{{ steps.a.status }}"]),
    ]
    said = "is unknown; step a has a foreach: steps.a.results has what its items came to"
    assert problems(step("a", foreach=[1]), *readers) == [
        f"1.when steps.a.result {said}",
        f"2.foreach steps.a.result {said}",
        f"3.payload steps.a.result.files {said}",
        f"4.target_url steps.a.result {said}",
        f"4.headers.X-A steps.a.result {said}",
    ]
    assert problems(step("a"), *readers) == []


@pytest.mark.parametrize(
    ("fields", "name", "part"),
    [
        ({"when": "steps.a.result =="}, "when", "(at position"),
        ({"when": "1 +"}, "when", "(at position 3)"),
        ({"when": "steps.z.result"}, "when", "which is none of those before it: a"),
        ({"payload": {"x": ["{{ steps.z.result }}"]}}, "payload.x[0]", "which is none of those before it: a"),
        ({"payload": "{{ steps.b.result }}"}, "payload", "which is none of those before it: a"),
        ({"payload": "{{ item }}"}, "payload", "only a step with foreach has an item"),
        ({"payload": "{{ unknown }}"}, "payload", "unknown placeholder"),
        ({"foreach": "{{ steps.a.nothing }}"}, "foreach", "a step has status, result"),
        ({"foreach": "text"}, "foreach", "neither a list nor one placeholder"),
        ({"foreach": {"x": 1}}, "foreach", "neither a list nor one placeholder"),
        ({"foreach": [0] * 10_001}, "foreach", "has 10001 items; expected at most 10000"),
        ({"target_url": "http://t/{{ steps.z.result }}"}, "target_url", "which is none of those before it: a"),
        ({"target_url": "http://t/", "headers": {"X-A": "{{ nope }}"}}, "headers.X-A", "unknown placeholder"),
        ({"target_url": "http://t/", "body_template": "{{ item.x }}"}, "body_template", "only a step with foreach"),
    ],
)
def test_what_a_step_reads_must_be_there(fields: dict[str, Any], name: str, part: str):
    ((index, field, problem),) = flows.problems([step("a"), step("b", "a", **fields), step("c", "b")])
    assert (index, field) == (1, name)
    assert part in problem


def test_a_step_reads_what_comes_long_before_it():
    assert problems(step("a"), step("b", "a"), step("c", "b", payload="{{ steps.a.result }}")) == []


def test_a_thousand_steps_in_a_row_are_checked():
    steps = [step("s0"), *(step(f"s{n}", f"s{n - 1}", when=f"steps.s{n - 1}.failed == 0") for n in range(1, 1000))]
    assert problems(*steps) == []
    assert problems(*steps[1:], step("s0", "s999")) != []


@pytest.mark.parametrize(
    ("on", "failed", "skipped", "expected"),
    [
        (StepOn.SUCCESS, 0, 0, True),
        (StepOn.SUCCESS, 1, 0, False),
        (StepOn.SUCCESS, 0, 1, False),
        (StepOn.FAILURE, 0, 0, False),
        (StepOn.FAILURE, 1, 1, True),
        (StepOn.SKIPPED, 1, 0, False),
        (StepOn.SKIPPED, 1, 1, True),
        (StepOn.ANY, 1, 1, True),
    ],
)
def test_on_is_about_all_needs_together(on: StepOn, failed: int, skipped: int, expected: bool):
    assert flows.is_wanted(on, state("a", needs_failed=failed, needs_skipped=skipped)) is expected


@pytest.mark.parametrize(
    ("fields", "before", "ended", "expected"),
    [
        ({}, {"total": 1}, ["SUCCESS"], S.SUCCESS),
        ({}, {"total": 1}, ["CALLBACK_SUCCESS"], S.SUCCESS),
        ({}, {"total": 1}, ["TIMEOUT"], S.FAILED),
        ({}, {"total": 1}, ["CANCELED"], S.CANCELED),
        ({"allow_failure": True}, {"total": 1}, ["FAILED"], S.FAILED),
        ({"foreach": []}, {"total": 3, "succeeded": 1}, ["SUCCESS"], S.RUNNING),
        ({"foreach": []}, {"total": 3, "succeeded": 1}, ["SUCCESS", "FAILED"], S.FAILED),
        ({"foreach": [], "allow_failure": True}, {"total": 3, "failed": 2}, ["FAILED"], S.SUCCESS),
        ({"foreach": []}, {"total": 2, "succeeded": 1}, ["CANCELED"], S.FAILED),
    ],
)
def test_a_step_ends_with_its_last_run(
    fields: dict[str, Any], before: dict[str, int], ended: list[str], expected: StepStatus
):
    plan = FlowPlan([step("a", **fields)])
    found = flows.runs_ended(plan["a"], state("a", S.RUNNING, **before), [RunStatus(one) for one in ended], NOW)
    assert found.status is expected
    assert (found.ended_at == NOW) is (expected is not S.RUNNING)


@pytest.mark.parametrize(
    ("parallel", "total", "next_item", "over", "expected"),
    [
        (None, 5, 0, 0, 5),
        (2, 5, 0, 0, 2),
        (2, 5, 2, 0, 0),
        (2, 5, 2, 1, 1),
        (2, 5, 5, 4, 0),
        (None, 10_000, 0, 0, 1_000),
    ],
)
def test_items_start_as_others_end(parallel: int | None, total: int, next_item: int, over: int, expected: int):
    plan = FlowPlan([step("a", foreach=[], max_parallel=parallel)])
    assert flows.to_start(plan["a"], state("a", total=total, next_item=next_item, succeeded=over)) == expected


@pytest.mark.parametrize(
    ("parallel", "next_item", "over", "room", "expected"),
    [
        (None, 1_000, 300, 0, 0),  # enough waits: the worker has no room for what it would make
        (None, 1_000, 300, 50, 150),
        (None, 1_000, 300, 300, 300),  # no more than may be under way
        (None, 1_000, 950, 0, 50),  # others wait, and few of these: RESERVE is kept up
        (None, 1_000, 1_000, 0, 100),  # none is under way, so nobody else would go on
        (None, 9_990, 9_900, 500, 10),
        (8, 40, 35, 0, 3),
        (8, 40, 35, 500, 3),
    ],
)
def test_a_worker_gets_as_many_items_as_it_has_room_for_and_some_wait_for_others(
    parallel: int | None, next_item: int, over: int, room: int, expected: int
):
    plan = FlowPlan([step("a", foreach=[], max_parallel=parallel)])
    found = flows.to_start(plan["a"], state("a", total=10_000, next_item=next_item, succeeded=over), room)
    assert found == expected


@pytest.mark.parametrize(
    ("value", "part"), [("x", "a text"), ({}, "an object"), (None, "null"), ([0] * 10_001, "10001")]
)
def test_items_are_a_list_that_is_not_too_long(value: Any, part: str):
    with pytest.raises(InputError) as caught:
        flows.items_of("{{ payload }}", {"payload": value})
    assert part in caught.value.message


DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e"))


@pytest.mark.parametrize(
    ("ended", "from_step", "expected"),
    [
        ({"b": S.FAILED, "d": S.SKIPPED}, None, "ace"),
        ({"a": S.FAILED, "b": S.SKIPPED, "c": S.SKIPPED, "d": S.SKIPPED}, None, "e"),
        ({"e": S.CANCELED}, None, "abcd"),
        ({"d": S.RUNNING}, None, "abce"),
        ({}, None, "abcde"),
        ({}, "b", "ace"),
        ({"e": S.FAILED}, "c", "ab"),
        ({"c": S.SKIPPED, "d": S.SKIPPED}, None, "abcde"),
    ],
)
def test_a_retry_keeps_what_nothing_that_runs_again_comes_before(
    ended: dict[str, StepStatus], from_step: str | None, expected: str
):
    plan = FlowPlan(DIAMOND)
    states = {one.id: with_run(one.id, ended.get(one.id, S.SUCCESS)) for one in DIAMOND}
    assert flows.kept(plan, states, from_step) == set(expected)


def test_a_retry_keeps_a_failure_that_is_allowed():
    plan = FlowPlan([step("a", allow_failure=True), step("b", "a"), step("c")])
    states = {"a": state("a", S.FAILED), "b": with_run("b", S.SUCCESS), "c": with_run("c", S.FAILED)}
    assert flows.kept(plan, states) == {"a", "b"}


def test_a_retry_does_not_keep_what_the_task_has_no_longer_or_has_not_yet():
    plan = FlowPlan([step("a"), step("new", "a"), step("b", "new")])
    states = {one: with_run(one, S.SUCCESS) for one in ("a", "old", "b")}
    assert flows.kept(plan, states) == {"a"}


@pytest.mark.parametrize(
    ("now", "was", "is_kept"),
    [
        (step("a"), with_run("a", S.SUCCESS), True),
        (step("a"), state("a", S.SUCCESS, total=2, succeeded=2), False),
        (step("a"), state("a", S.SUCCESS), False),  # of an empty list
        (step("a"), with_run("a", S.SKIPPED), True),
        (step("a", allow_failure=True), state("a", S.FAILED), True),  # it could not be given its input
        (step("a", foreach=[1]), state("a", S.SUCCESS, total=2, succeeded=2), True),
        (step("a", foreach=[1]), state("a", S.SUCCESS), True),
        (step("a", foreach=[1]), with_run("a", S.SUCCESS), False),
        (step("a", foreach=[1]), with_run("a", S.SKIPPED), True),
    ],
)
def test_a_retry_keeps_no_result_of_one_run_for_a_foreach_nor_the_other_way_round(
    now: Step, was: StepState, is_kept: bool
):
    assert flows.kept(FlowPlan([now]), {"a": was}) == ({"a"} if is_kept else set())


def test_what_is_kept_counts_for_the_steps_that_need_it():
    plan = FlowPlan(DIAMOND)
    before = {one.id: state(one.id, S.SUCCESS, total=1, succeeded=1) for one in DIAMOND}
    begun = flows.begin(plan, RunId(9), range(1, 6), before, {"a", "c", "e"})
    assert {one: each.needs_open for one, each in begun.items()} == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 0}
    assert (begun["a"].copied_from, begun["a"].run_id, begun["b"].copied_from) == (1, 9, None)
    again = flows.begin(plan, RunId(10), range(1, 6), begun, {"a"})
    assert again["a"].copied_from == 1


def test_a_step_that_has_not_ended_counts_as_nothing():
    with pytest.raises(ValueError, match="has not ended"):
        flows.counts_as(step("a"), S.RUNNING)
    assert msgspec.structs.asdict(state("a"))["needs_open"] == 0
