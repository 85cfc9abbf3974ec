"""Flows: whether steps fit together, whose turn has come, how a step and a flow end, and what a retry keeps.

A step waits until every step that it needs has ended, and counts how: so whether its turn has come is read off its own
state, however many steps it needs. `on` is looked at first, then `when`. A step that is allowed to fail counts as a success
for those that need it; one that was canceled counts as a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any, Final, assert_never

import msgspec

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, Sentence
from noonbell.model.broker import destination_field
from noonbell.model.failure_text import failure_text
from noonbell.model.flow import OPEN_STEP, StepReason, StepState, StepStatus
from noonbell.model.run import SUCCEEDED, RunId, RunStatus
from noonbell.model.target_kind import HTTP
from noonbell.model.task import MOST_ITEMS, Step, StepOn
from noonbell.policy import expressions, placeholders, value_path
from noonbell.policy.expressions import Expression
from noonbell.policy.joins import closed_path
from noonbell.policy.value_path import InputError, ValuePath, kind_of

MOST_AT_ONCE: Final = 1_000
"""Items of a `foreach` that are under way at once."""
RESERVE: Final = 100
"""Items of a `foreach` that wait for any worker, beside those that the worker which made them has taken."""
_NAMED: Final = 10
"""Steps that a message names."""


@dataclass(frozen=True)
class PlannedStep:
    """A step, with what is read from it once for all runs."""

    step: Step
    position: int
    followers: tuple[str, ...]
    """The steps that need it."""

    @cached_property
    def condition(self) -> Expression | None:
        return None if self.step.when is None else expressions.parse(self.step.when)

    @cached_property
    def http_texts(self) -> tuple[ValuePath, ...]:
        """What the texts of its HTTP target name."""
        return tuple(path for _, text in http_texts(self.step) for path in _named(text, placeholders.HTTP_ROOTS))

    @cached_property
    def decides_by(self) -> frozenset[ValuePath]:
        """What `when` and `foreach` name."""
        condition = self.condition
        return frozenset(() if condition is None else condition.paths) | frozenset(_named(self.step.foreach))

    @cached_property
    def given(self) -> frozenset[ValuePath]:
        """What each of its runs is given."""
        return frozenset(_named(self.step.payload)) | frozenset(self.http_texts)

    @cached_property
    def reads(self) -> frozenset[ValuePath]:
        """What is read when its turn has come."""
        return self.decides_by | self.given

    @cached_property
    def reads_payload(self) -> bool:
        """Whether its turn cannot be taken without the payload of the flow's run, which may be long."""
        return self.step.payload is None or any(path.root == "payload" for path in self.reads)

    @cached_property
    def gives_payload(self) -> bool:
        """Whether its runs cannot be made without that payload; the list of their items is kept elsewhere by then."""
        return self.step.payload is None or any(path.root == "payload" for path in self.given)

    @cached_property
    def payload_json(self) -> str | None:
        """What each of its runs is given, where that is the same for all."""
        return None if self.step.payload is None or self.given else msgspec.json.encode(self.step.payload).decode()

    @cached_property
    def template(self) -> placeholders.Template:
        """Of what its runs are given."""
        return placeholders.Template(self.step.payload)

    @property
    def at_once(self) -> int:
        return min(self.step.max_parallel or MOST_AT_ONCE, MOST_AT_ONCE)


class FlowPlan:
    """The steps of one version of a task."""

    def __init__(self, steps: Sequence[Step]) -> None:
        followers: dict[str, list[str]] = {step.id: [] for step in steps}
        for step in steps:
            for need in step.needs:
                followers[need].append(step.id)
        self.steps = {
            step.id: PlannedStep(step, position, tuple(followers[step.id])) for position, step in enumerate(steps)
        }

    def __getitem__(self, step_id: str) -> PlannedStep:
        return self.steps[step_id]

    def position(self, step_id: str) -> int:
        return self.steps[step_id].position

    def with_followers(self, step_ids: Iterable[str]) -> set[str]:
        """These steps and those that need one of them."""
        return {name for step_id in step_ids for name in (step_id, *self.steps[step_id].followers)}

    def after(self, step_ids: Iterable[str]) -> set[str]:
        """These steps and all that need one of them, near or far."""
        found, waiting = set[str](), [step_id for step_id in step_ids if step_id in self.steps]
        while waiting:
            step_id = waiting.pop()
            if step_id not in found:
                found.add(step_id)
                waiting += self.steps[step_id].followers
        return found


def http_texts(step: Step) -> Iterator[tuple[str, str]]:
    """The texts of a step's HTTP target or message in which placeholders may stand, by the names of their fields."""
    if step.target_kind is HTTP:
        yield "target_url", step.target_url or ""
        yield "body_template", step.body_template or ""
        for name, value in step.headers.items():
            yield f"headers.{name}", value
    elif step.message is not None:
        field = step.target_kind.named_by
        yield f"{field}.{destination_field(step.message)}", step.message.destination
        for name, value in step.message.headers.items():
            yield f"{field}.headers.{name}", value


def _named(value: Any, known: Collection[str] = placeholders.ROOTS) -> list[ValuePath]:
    try:
        return list(placeholders.names_in(value, known))
    except InvalidArgument:
        return []  # refused when the task is saved


# When a task is saved


def problems(steps: Sequence[Step]) -> Iterator[tuple[int, str, str]]:
    """What is wrong with the steps of a flow: which step, by its place in the list, which field, and what."""
    known: dict[str, int] = {}
    for index, step in enumerate(steps):
        if step.id in known:
            said = "is {name}, and so is that of steps[{index}]; each step has its own"
            yield index, "id", Sentence(said, name=repr(step.id), index=known[step.id])
        known.setdefault(step.id, index)
    is_sound = len(known) == len(steps)
    for index, step in enumerate(steps):
        for need in step.needs:
            if need not in known:
                is_sound = False
                said = "names {name}, which is not a step; expected one of {known}"
                yield index, "needs", Sentence(said, name=repr(need), known=_listed(known))
        if len(set(step.needs)) < len(step.needs):
            twice = next(need for need, count in Counter(step.needs).items() if count > 1)
            yield index, "needs", Sentence("names {name} more than once; expected each step once", name=repr(twice))
        if not step.needs and step.on not in (StepOn.SUCCESS, StepOn.ANY):
            yield (
                index,
                "on",
                Sentence("is {value}, and the step needs no other; expected `needs` beside it", value=step.on),
            )
    if is_sound and (cycle := closed_path({step.id: step.needs for step in steps}, known)):
        is_sound = False
        yield known[cycle[0]], "needs", Sentence("go round in a circle: {way}", way=" → ".join(cycle))
    # Where it is not known which steps come before which, any may be read: what else is wrong is told all the same.
    befores = _before(steps) if is_sound else [known.keys()] * len(steps)
    lists = {step.id for step in steps if step.foreach is not None}
    for index, (step, before) in enumerate(zip(steps, befores, strict=True)):
        for name, problem in (*_own_problems(step, before), *_results_of_lists(step, lists)):
            yield index, name, problem


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(shown[:_NAMED]) + more


def _before(steps: Sequence[Step]) -> list[Collection[str]]:
    """For each step, those that it needs, near or far. There is no circle."""
    needs = {step.id: step.needs for step in steps}
    found: dict[str, set[str]] = {}
    for step_id in TopologicalSorter(needs).static_order():
        found[step_id] = set(needs[step_id]).union(*(found[need] for need in needs[step_id]))
    return [found[step.id] for step in steps]


def _own_problems(step: Step, before: Collection[str]) -> Iterator[tuple[str, str]]:
    has_item = step.foreach is not None
    if step.when is not None:
        try:
            paths = expressions.parse(step.when).paths
        except InvalidArgument as error:
            yield "when", error.sentence
        else:
            for path in sorted(paths, key=lambda path: path.text):
                problem = placeholders.path_problem(path, steps=before)
                if problem is not None:
                    yield "when", problem
    if has_item:
        yield from _foreach_problems(step.foreach, before)
    elif step.max_parallel is not None:
        yield "max_parallel", "is for a step with foreach, and this one has none"
    yield from placeholders.check(step.payload, "payload", steps=before, has_item=has_item).items()
    for name, text in http_texts(step):
        try:
            placeholders.check_http_text(text, steps=before, has_item=has_item)
        except InvalidArgument as error:
            yield name, error.sentence


def _results_of_lists(step: Step, lists: Collection[str]) -> Iterator[tuple[str, str]]:
    """Where it reads the `result` of a `foreach`, which would always be null."""
    read = {"when": _named_by(step.when), "foreach": _named(step.foreach), "payload": _named(step.payload)}
    read |= {name: _named(text, placeholders.HTTP_ROOTS) for name, text in http_texts(step)}
    for name, paths in read.items():
        wrong = next((path for path in paths if path.field == "result" and path.step in lists), None)
        if wrong is not None:
            said = "{name} is unknown; step {step} has a foreach: steps.{step}.results has what its items came to"
            yield name, Sentence(said, name=value_path.quoted(wrong), step=wrong.step)


def _named_by(when: str | None) -> Iterable[ValuePath]:
    try:
        return () if when is None else sorted(expressions.parse(when).paths, key=lambda path: path.text)
    except InvalidArgument:
        return ()  # named already


def _foreach_problems(foreach: Any, before: Collection[str]) -> Iterator[tuple[str, str]]:
    yield from placeholders.check(foreach, "foreach", steps=before, has_item=False).items()
    if isinstance(foreach, list | tuple):
        if len(foreach) > MOST_ITEMS:
            yield "foreach", Sentence("has {count} items; expected at most {most}", count=len(foreach), most=MOST_ITEMS)
    elif not isinstance(foreach, str) or not _is_placeholder(foreach):
        yield "foreach", "is neither a list nor one placeholder; expected such as {{ steps.extract.result.files }}"


def _is_placeholder(text: str) -> bool:
    try:
        pieces = placeholders.cut(text, placeholders.ROOTS)
    except InvalidArgument:
        return True  # its problem is named already
    return len(pieces) == 1 and isinstance(pieces[0], ValuePath)


# While a flow runs


def counts_as(step: Step, status: StepStatus) -> StepStatus:
    """How a step that has ended counts for those that need it: SUCCESS, FAILED or SKIPPED."""
    match status:
        case StepStatus.SUCCESS | StepStatus.SKIPPED:
            return status
        case StepStatus.FAILED | StepStatus.CANCELED:
            return StepStatus.SUCCESS if step.allow_failure else StepStatus.FAILED
        case StepStatus.WAITING | StepStatus.RUNNING:
            raise ValueError(f"step {step.id} has not ended: it is {status}")
        case _:
            assert_never(status)


def need_ended(state: StepState, counted: StepStatus) -> StepState:
    """The state of a step, after one that it needs has ended and counts as `counted`."""
    return msgspec.structs.replace(
        state,
        needs_open=state.needs_open - 1,
        needs_failed=state.needs_failed + (counted is StepStatus.FAILED),
        needs_skipped=state.needs_skipped + (counted is StepStatus.SKIPPED),
    )


def is_wanted(on: StepOn, state: StepState) -> bool:
    """Whether the steps that it needs, all of which have ended, ended as `on` says."""
    match on:
        case StepOn.SUCCESS:
            return not state.needs_failed and not state.needs_skipped
        case StepOn.FAILURE:
            return state.needs_failed > 0
        case StepOn.SKIPPED:
            return state.needs_skipped > 0
        case StepOn.ANY:
            return True
        case _:
            assert_never(on)


def skipped(state: StepState, reason: StepReason, now: Instant) -> StepState:
    return msgspec.structs.replace(state, status=StepStatus.SKIPPED, reason=str(reason), ended_at=now)


def failed_before(state: StepState, error: InputError, now: Instant) -> StepState:
    """The step could not be given to a worker."""
    return msgspec.structs.replace(
        state, status=StepStatus.FAILED, reason=error.kind, message=str(error.message), ended_at=now
    )


def items_of(foreach: Any, scope: Mapping[str, Any]) -> list[Any]:
    """The items of a `foreach`; InputError where it is no list, or one that is too long."""
    found = placeholders.render(foreach, scope)
    if not isinstance(found, list):
        raise InputError(failure_text("input_foreach_no_list", found=kind_of(found)))
    if len(found) > MOST_ITEMS:
        raise InputError(failure_text("input_foreach_long", count=len(found), most=MOST_ITEMS))
    return found


def runs_ended(planned: PlannedStep, state: StepState, statuses: Sequence[RunStatus], now: Instant) -> StepState:
    """The state of a step after some of its runs have become final; it has ended with its last one."""
    good = len([status for status in statuses if status in SUCCEEDED])
    succeeded, failed = state.succeeded + good, state.failed + len(statuses) - good
    if succeeded + failed < state.total:
        return msgspec.structs.replace(state, succeeded=succeeded, failed=failed)
    status = _status_of(planned.step, failed, statuses)
    return msgspec.structs.replace(state, succeeded=succeeded, failed=failed, status=status, ended_at=now)


def _status_of(step: Step, failed: int, statuses: Sequence[RunStatus]) -> StepStatus:
    if not failed or (step.foreach is not None and step.allow_failure):
        return StepStatus.SUCCESS
    is_alone = step.foreach is None
    return StepStatus.CANCELED if is_alone and statuses[-1] is RunStatus.CANCELED else StepStatus.FAILED


def to_start(planned: PlannedStep, state: StepState, room: int | None = None) -> int:
    """How many more items get a run now: as many as may be under way. `room`: of the worker that has ended some and
    asks for more.

    It gets new ones without a detour, as far as it has room, and RESERVE wait for other workers. While it has none
    because enough waits, no more are made: to wait costs a run two writes.
    """
    under_way = state.next_item - state.succeeded - state.failed
    most = min(planned.at_once - under_way, state.total - state.next_item)
    if room is not None:
        most = min(most, room + RESERVE if room else RESERVE - under_way)
    return max(0, most)


def makes_fail(step: Step, status: StepStatus) -> bool:
    """Whether the flow fails because of how this step ended."""
    return status not in OPEN_STEP and counts_as(step, status) is StepStatus.FAILED


# Again


def kept(plan: FlowPlan, states: Mapping[str, StepState], from_step: str | None = None) -> set[str]:
    """The steps whose outcome a retry keeps: none that failed or did not end, not `from_step`, none that follows one of
    these, and only such as the plan still has. What has become a `foreach`, or is none any longer, runs again.
    """
    again = {step_id for step_id in plan.steps if step_id not in states}
    again |= {
        step_id
        for step_id, state in states.items()
        if step_id in plan.steps
        and (
            state.status in OPEN_STEP
            or state.status is StepStatus.CANCELED
            or makes_fail(plan[step_id].step, state.status)
            or not _is_result_of(plan[step_id].step, state)
        )
    }
    if from_step is not None:
        again.add(from_step)
    return set(plan.steps) - plan.after(again)


def _is_result_of(step: Step, state: StepState) -> bool:
    """Whether what there is of the step is of the kind that it has now: of one run, or of the items of a `foreach`."""
    if step.foreach is not None:
        return state.step_run_id is None
    was_foreach = state.step_run_id is None and (state.total > 0 or state.status is StepStatus.SUCCESS)
    return not was_foreach


def begin(
    plan: FlowPlan, run_id: RunId, ids: Sequence[int], before: Mapping[str, StepState], keep: Collection[str]
) -> dict[str, StepState]:
    """The states with which a run of a flow starts; those of `keep` are as they ended in the run before."""
    states: dict[str, StepState] = {}
    for id_, (step_id, planned) in zip(ids, plan.steps.items(), strict=True):
        state = StepState(
            id=id_,
            run_id=run_id,
            step_id=step_id,
            position=planned.position,
            needs_open=len(planned.step.needs),
        )
        if step_id in keep:
            was = before[step_id]
            state = msgspec.structs.replace(
                was, id=id_, run_id=run_id, position=planned.position, copied_from=was.copied_from or was.run_id
            )
        states[step_id] = state
    for step_id in keep:
        counted = counts_as(plan[step_id].step, states[step_id].status)
        for follower in plan[step_id].followers:
            if follower not in keep:
                states[follower] = need_ended(states[follower], counted)
    return states
