"""Flows: a claim starts the first steps of a run, and the transaction in which a step's run becomes final starts the next.

The row of the flow's run in `live` (place PARENT) is held first: of two nodes that settle steps of the same flow, one waits
for the other. Then the states of the steps that have ended, and of those that need them, are read and written; no other step is
looked at. No loop looks for flows that could go on.

died before the commit   the step's run is not final either: it is settled again, or its lease runs out
died after it            the next steps wait for their workers; only the signals are missing, and a poll finds the runs
a step ends twice        its run is final once: the second settlement has lost its token, and nothing is counted

Of a `foreach`, as many items as may be under way have runs; each that ends makes room for the next one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from noonbell.clock import Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.model.call import CALL_TYPE, spec_of
from noonbell.model.failure_text import failure_text
from noonbell.model.flow import OPEN_STEP, StepReason, StepState, StepStatus
from noonbell.model.run import Origin, RunId, RunStatus, idempotency_key_of, trace_id_of
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Step, Task, TaskId, TaskSpec
from noonbell.policy import flows, placeholders
from noonbell.policy.flows import FlowPlan, PlannedStep
from noonbell.policy.value_path import InputError, ValuePath
from noonbell.stores.sql.active_runs import Live, Place, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.flow_end import FlowEnd, end_of
from noonbell.stores.sql.flow_states import STATE, changes, insert_states, state_of
from noonbell.stores.sql.insert_runs import NewRun, insert_steps
from noonbell.stores.sql.rows import FlowVersion, TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertEvents,
    InsertMany,
    NewIds,
    Row,
    UpdateMany,
    Work,
    WriteAll,
    inserts_of,
)

RETRY: Final = "retry"
"""In `overrides` of a flow's run: the run that it is a retry of, and the step that it starts from, if one is named."""
VALUES: Final = "values"
"""In `overrides` of a step's run: what the texts of its HTTP target read of the flow."""

ITEMS_AT_ONCE = 100
"""Items of a `foreach` in one row."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """What was read of flows by the statement that has settled their steps and holds their runs."""

    facts: Sequence[Row]
    """As `_FACTS` has them."""
    states: Sequence[StepState]
    """Of the steps that have ended, and of those that need them; what is missing is read where it is asked for."""
    items: Mapping[tuple[int, str], tuple[int, list[Any]]]
    """By flow and step of a `foreach`: the next items, and the number of the first of them."""


@dataclass
class _Flow:
    """A run of a flow, as far as a transaction has looked at it."""

    parent: Live
    version: FlowVersion
    plan: FlowPlan
    now: Instant
    scheduled_time: Instant
    priority: int
    key: str
    trace_id: str
    open: int
    """Steps that have not ended."""
    failed: int
    """Steps because of which it fails."""
    payload: Any = msgspec.UNSET
    """Of the flow's run, once a step has come that needs it."""
    states: dict[str, StepState] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """By step: what it came to, or the InputError for steps that read it."""
    lists: dict[str, Any] = field(default_factory=dict)
    """The same for the items of a `foreach`."""
    items: list[tuple[Any, ...]] = field(default_factory=list)
    """Rows of `flow_items`."""
    new_runs: list[NewRun] = field(default_factory=list)
    alone: dict[str, NewRun] = field(default_factory=dict)
    """By step: the one run of a step without `foreach`, until it has its id."""
    over: list[str] = field(default_factory=list)
    """The steps that have ended in this transaction."""
    ahead: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    """By step: items that were read already, and the number of the first."""

    @property
    def task(self) -> Task:
        return self.version.task

    def put(self, state: StepState) -> None:
        self.states[state.step_id] = state
        self.changed[state.step_id] = None

    @cached_property
    def slot(self) -> str:
        return rfc3339(self.scheduled_time)

    def scope(self, paths: Collection[ValuePath]) -> dict[str, Any]:
        """What these paths can read. InputError for a result that cannot be read."""
        if not paths:
            return {}
        steps: dict[str, dict[str, Any]] = {}
        for path in paths:
            if path.step is None or path.step not in self.states:
                continue
            state = self.states[path.step]
            found = steps.setdefault(path.step, {"status": str(state.status)})
            match path.field:
                case "result" | "results":
                    found[path.field] = _readable((self.results if path.field == "result" else self.lists)[path.step])
                case "total" | "succeeded" | "failed":
                    found[path.field] = getattr(state, path.field)
        return {"steps": steps, "payload": self.payload, "slot": self.slot}


_Names = tuple[_Flow, Sequence[str]]
"""Steps of a flow."""


def _readable(value: Any) -> Any:
    if isinstance(value, InputError):
        raise value
    return value


def version_of(q: Dialect, cache: TaskView, task_id: int, version: int) -> Work[FlowVersion | None]:
    """The steps of a version of a task; None if it was purged."""
    found = cache.flow(task_id, version)
    if found is None:
        rows = yield Fetch(
            "select spec from task_versions where task_id = :task and version = :version",
            {"task": task_id, "version": version},
        )
        known = yield from known_tasks(q, cache, [task_id])
        if not rows or task_id not in known:
            return None
        spec = msgspec.json.decode(rows[0][0], type=TaskSpec)
        task = msgspec.structs.replace(known[task_id].task, version=version, spec=spec)
        found = cache.put_flow(FlowVersion(task, FlowPlan(spec.steps)))
    return found


def steps_of(
    q: Dialect, cache: TaskView, run_ids: Collection[int]
) -> Work[dict[int, tuple[Task, Step | None, int | None]]]:
    """Of runs that are steps: the task as of its flow's version, the step, and which item."""
    rows = yield from q.fetch_by("select id, task_id, task_version, step_id, item_index from runs", "id", run_ids)
    known: dict[tuple[int, int], FlowVersion | None] = {}
    found: dict[int, tuple[Task, Step | None, int | None]] = {}
    for run_id, task_id, version, step_id, item in rows:
        if (task_id, version) not in known:
            known[task_id, version] = yield from version_of(q, cache, task_id, version)
        flow = known[task_id, version]
        if flow is not None:
            planned = flow.plan.steps.get(step_id)
            found[run_id] = (flow.task, None if planned is None else flow.task_of(planned)[1], item)
    return found


def run_task(q: Dialect, cache: TaskView, run_id: RunId) -> Work[Task | None]:
    """The task of a run, as its attempts see it: of a step, with that step's spec, of a call with the call's."""
    rows = yield Fetch("select task_id, step_id, queue from runs where id = :id", {"id": run_id})
    if not rows:
        return None
    task_id, step_id, queue = rows[0]
    if step_id is None:
        known = yield from known_tasks(q, cache, [task_id])
        if not known:
            return None
        own = known[task_id].task
        return own if own.spec.job_type != CALL_TYPE else (yield from _task_of_call(own, run_id, queue))
    found = yield from steps_of(q, cache, [run_id])
    task, step, _ = found.get(run_id, (None, None, None))
    return None if task is None or step is None else msgspec.structs.replace(task, spec=step)


def _task_of_call(task: Task, run_id: RunId, queue: str) -> Work[Task]:
    rows = yield Fetch("select overrides from inputs where run_id = :id", {"id": run_id})
    spec = spec_of(queue, from_json(rows[0][0])) if rows else None
    return task if spec is None else msgspec.structs.replace(task, spec=spec)


# Start


def start(q: Dialect, cache: TaskView, now: Instant, parents: Sequence[Live]) -> Work[tuple[list[FlowEnd], set[str]]]:
    """The first steps of runs whose rows are about to be taken to PARENT: the flows that are over with that, and the queues
    where steps wait.

    The steps are those of the tasks as they are now, and stay so until the flows end.
    """
    if not parents:
        return [], set()
    known = yield from known_tasks(q, cache, [parent.task_id for parent in parents])
    versions = {parent.run_id: known[parent.task_id].task.version for parent in parents}
    yield UpdateMany("runs", "id", ("task_version",), sorted(versions.items()))
    started, gone = yield from _load(q, cache, now, parents)
    kept = yield from _kept(q, started)
    steps: list[StepState] = []
    rows: list[tuple[int, int, int, int]] = []
    turns: list[_Names] = []
    for flow in started:
        ids = yield NewIds(len(flow.plan.steps))
        flow.states = flows.begin(flow.plan, RunId(flow.parent.run_id), ids, *kept[flow.parent.run_id])
        steps += flow.states.values()
        ended = [state for state in flow.states.values() if state.status not in OPEN_STEP]
        flow.failed = sum(flows.makes_fail(flow.plan[state.step_id].step, state.status) for state in ended)
        flow.open = len(flow.states) - len(ended)
        rows.append((flow.parent.run_id, versions[flow.parent.run_id], flow.open, flow.failed))
        waiting = (state for state in flow.states.values() if state.status is StepStatus.WAITING)
        turns.append((flow, [state.step_id for state in waiting if not state.needs_open]))
    if steps:
        yield insert_states(steps)
    if rows:
        yield InsertMany("flows", ("run_id", "version", "steps_open", "steps_failed"), rows)
    yield from _go_on(q, (yield from _take_turns(q, turns)))
    ends = yield from _write(q, cache, now, started)
    return gone + ends, {new_run.task.spec.queue for flow in started for new_run in flow.new_runs}


_FACTS = (
    "select r.id, r.task_version, r.scheduled_time, r.priority, r.idempotency_key, r.trace_id, f.steps_open,"
    " f.steps_failed from runs r left join flows f on f.run_id = r.id"
)


def _load(
    q: Dialect, cache: TaskView, now: Instant, parents: Sequence[Live], rows: Sequence[Row] | None = None
) -> Work[tuple[list[_Flow], list[FlowEnd]]]:
    """The flows of these rows, which are held, in their order; and the ends of those whose task was purged. `rows`: of
    `_FACTS`.
    """
    if rows is None:
        rows = yield from q.fetch_by(_FACTS, "r.id", [parent.run_id for parent in parents])
    facts = {row[0]: row[1:] for row in rows}
    versions: dict[tuple[int, int], FlowVersion | None] = {}
    found: list[_Flow] = []
    gone: list[FlowEnd] = []
    for parent in parents:
        version, scheduled_time, priority, stored_key, trace_id, open_, failed = facts[parent.run_id]
        which = parent.task_id, version
        if which not in versions:
            versions[which] = yield from version_of(q, cache, *which)
        flow_version = versions[which]
        if flow_version is None:
            gone.append(FlowEnd(parent, RunStatus.FAILED, "its task is gone", {"kind": "error"}, {}))
            continue
        found.append(
            _Flow(
                parent=parent,
                version=flow_version,
                plan=flow_version.plan,
                now=now,
                scheduled_time=Instant(scheduled_time),
                priority=priority,
                key=idempotency_key_of(parent.run_id, scheduled_time, stored_key),
                trace_id=trace_id_of(parent.run_id, scheduled_time, trace_id),
                open=open_ or 0,
                failed=failed or 0,
            )
        )
    return found, gone


def _read_payloads(q: Dialect, wanted: Iterable[_Flow]) -> Work[None]:
    """Of the runs of these flows. They may be long: only where a step is given something of them."""
    missing = {flow.parent.run_id: flow for flow in wanted if flow.payload is msgspec.UNSET}
    rows = yield from q.fetch_by("select run_id, payload from inputs", "run_id", missing)
    stored = {row[0]: row[1] for row in rows}
    for run_id, flow in missing.items():
        own = stored.get(run_id)
        flow.payload = flow.task.spec.payload if own is None else from_json(own)


def _kept(q: Dialect, started: Sequence[_Flow]) -> Work[dict[int, tuple[dict[str, StepState], set[str]]]]:
    """By run; of a retry: the states in the run before, and the steps whose outcome stays."""
    found: dict[int, tuple[dict[str, StepState], set[str]]] = {flow.parent.run_id: ({}, set()) for flow in started}
    rows = yield from q.fetch_by("select run_id, overrides from inputs", "run_id", found, " and overrides is not null")
    asked = {row[0]: from_json(row[1]) or {} for row in rows}
    for flow in started:
        retry = asked.get(flow.parent.run_id, {}).get(RETRY)
        if isinstance(retry, dict):
            before = {state.step_id: state for state in (yield from states(RunId(retry["run_id"])))}
            found[flow.parent.run_id] = before, flows.kept(flow.plan, before, retry.get("from_step"))
    return found


def states(run_id: RunId) -> Work[list[StepState]]:
    """In the order in which the task names the steps; none for a flow that has not started."""
    rows = yield Fetch(f"select {STATE.select()} from flow_steps where run_id = :id order by position", {"id": run_id})
    return [state_of(row) for row in rows]


def task_as_of(q: Dialect, cache: TaskView, task_id: TaskId, version: int) -> Work[Task | None]:
    """A flow with the spec of one of its versions; None if it was purged."""
    found = yield from version_of(q, cache, task_id, version)
    return None if found is None else found.task


# Go on


def advance(
    q: Dialect, cache: TaskView, now: Instant, ended: Mapping[int, Mapping[int, RunStatus]]
) -> Work[list[FlowEnd]]:
    """Runs of steps have become final in this transaction, by the run of their flow: start what follows. The flows that
    are over.
    """
    rows = yield from load_active(q, ended)
    # One that is not there was canceled, or ran out of time: nothing follows.
    parents = [rows[run_id] for run_id in sorted(rows) if rows[run_id].place == Place.PARENT]
    run_ids = [run_id for parent in parents for run_id in ended[parent.run_id]]
    found = yield from q.fetch_by("select id, step_id from runs", "id", run_ids)
    names = {row[0]: row[1] for row in found}
    statuses: dict[int, dict[str, list[RunStatus]]] = {}
    for parent in parents:
        by_step = statuses[parent.run_id] = defaultdict(list)
        for run_id, status in ended[parent.run_id].items():
            by_step[names[run_id]].append(status)
    return (yield from go_on(q, cache, now, parents, statuses))


def go_on(
    q: Dialect,
    cache: TaskView,
    now: Instant,
    parents: Sequence[Live],
    statuses: Mapping[int, Mapping[str, Sequence[RunStatus]]],
    take: Take | None = None,
    ahead: ReadAhead | None = None,
    room: int | None = None,
) -> Work[list[FlowEnd]]:
    """The same for flows whose rows are held. `statuses`: by flow and step, how runs have ended. `take` may claim new runs, up to
    `room`.
    """
    under_way, gone = yield from _load(q, cache, now, parents, None if ahead is None else ahead.facts)
    if ahead is not None:
        _know(under_way, ahead)
    yield from _read_states(q, [(flow, flow.plan.with_followers(statuses[flow.parent.run_id])) for flow in under_way])
    over: dict[int, list[str]] = {}
    for flow in under_way:
        share = None if room is None else room // len(under_way)
        over[flow.parent.run_id] = yield from _count_ended(q, flow, statuses[flow.parent.run_id], share)
    yield from _go_on(q, [(flow, over[flow.parent.run_id]) for flow in under_way])
    return gone + (yield from _write(q, cache, now, under_way, take))


def _know(under_way: Sequence[_Flow], ahead: ReadAhead) -> None:
    by_run = {flow.parent.run_id: flow for flow in under_way}
    for state in ahead.states:
        if state.run_id in by_run:
            by_run[state.run_id].states[state.step_id] = state
    for (run_id, step_id), items in ahead.items.items():
        if run_id in by_run:
            by_run[run_id].ahead[step_id] = items


def _count_ended(
    q: Dialect, flow: _Flow, statuses: Mapping[str, Sequence[RunStatus]], room: int | None
) -> Work[list[str]]:
    """Runs of these steps have ended so. The steps that have ended with that; others go on with their next items."""
    over = []
    for step_id, found in statuses.items():
        if flow.states[step_id].status is not StepStatus.RUNNING:
            continue
        state = flows.runs_ended(flow.plan[step_id], flow.states[step_id], found, flow.now)
        flow.put(state)
        if state.status is StepStatus.RUNNING:
            state = yield from _start_items(q, flow, flow.plan[step_id], room=room)
        if state.status is not StepStatus.RUNNING:
            over.append(step_id)
    return over


def _read_states(q: Dialect, wanted: Iterable[tuple[_Flow, Iterable[str]]]) -> Work[None]:
    by_run: dict[int, _Flow] = {}
    missing: set[tuple[int, str]] = set()
    for flow, step_ids in wanted:
        for step_id in step_ids:
            if step_id not in flow.states:
                by_run[flow.parent.run_id] = flow
                missing.add((flow.parent.run_id, step_id))
    rows = yield from q.fetch_pairs(STATE.select(), "flow_steps", ("run_id", "step_id"), missing)
    for state in map(state_of, rows):
        by_run[state.run_id].states[state.step_id] = state


def _go_on(q: Dialect, ended: Sequence[_Names]) -> Work[None]:
    """What follows from the end of these steps, wave by wave, until nothing more ends in this transaction."""
    wave = [(flow, step_ids) for flow, step_ids in ended if step_ids]
    is_first = True
    while wave:
        followers = {
            flow.parent.run_id: {follower for step_id in step_ids for follower in flow.plan[step_id].followers}
            for flow, step_ids in wave
        }
        # A step that ends without a run of its own may end a long row of them: they are read together.
        yield from _read_states(
            q,
            [
                (flow, names if is_first else flow.plan.after(names))
                for flow, names in ((flow, followers[flow.parent.run_id]) for flow, _ in wave)
            ],
        )
        turns: list[_Names] = []
        for flow, step_ids in wave:
            flow.over += step_ids
            for step_id in step_ids:
                planned = flow.plan[step_id]
                counted = flows.counts_as(planned.step, flow.states[step_id].status)
                for follower in planned.followers:
                    flow.put(flows.need_ended(flow.states[follower], counted))
            ready = [
                step_id
                for step_id in followers[flow.parent.run_id]
                if not flow.states[step_id].needs_open and flow.states[step_id].status is StepStatus.WAITING
            ]
            turns.append((flow, sorted(ready, key=flow.plan.position) if len(ready) > 1 else ready))
        wave = yield from _take_turns(q, turns)
        is_first = False


def _take_turns(q: Dialect, turns: Sequence[_Names]) -> Work[list[_Names]]:
    """The turn of these steps has come. Those that have ended with that: skipped, failed, or nothing to do."""
    wanted: list[tuple[_Flow, list[PlannedStep], list[str]]] = []
    for flow, ready in turns:
        planned: list[PlannedStep] = []
        over: list[str] = []
        for step_id in ready:
            state = flow.states[step_id]
            if flows.is_wanted(flow.plan[step_id].step.on, state):
                planned.append(flow.plan[step_id])
            else:
                flow.put(flows.skipped(state, StepReason.UPSTREAM, flow.now))
                over.append(step_id)
        if ready:
            wanted.append((flow, planned, over))
    with_payload = [flow for flow, planned, _ in wanted if any([one.reads_payload for one in planned])]  # noqa: C419 - as below
    yield from _read_payloads(q, with_payload)
    reading = [
        (flow, {path for one in planned for path in one.reads})
        for flow, planned, _ in wanted
        if any([one.reads for one in planned])  # noqa: C419 - a list is built faster than asked
    ]
    yield from _read_results(q, reading)
    for flow, planned, over in wanted:
        for one in planned:
            yield from _take_turn(q, flow, one)
            if flow.states[one.step.id].status not in OPEN_STEP:
                over.append(one.step.id)
    return [(flow, over) for flow, _, over in wanted if over]


def _take_turn(q: Dialect, flow: _Flow, planned: PlannedStep) -> Work[None]:
    step, state = planned.step, flow.states[planned.step.id]
    try:
        scope = flow.scope(planned.decides_by)
        if planned.condition is not None and not planned.condition.evaluate(scope):
            flow.put(flows.skipped(state, StepReason.CONDITION, flow.now))
            return
        if step.foreach is None:
            new_run = _new_run(flow, planned, flow.scope(planned.given), None)
            flow.alone[step.id] = new_run
            flow.put(_started(state, flow.now, 1, 1))
            return
        items = flows.items_of(step.foreach, scope)
    except InputError as error:
        flow.put(flows.failed_before(state, error, flow.now))
        return
    flow.put(_started(state, flow.now, len(items), 0))
    if not items:
        flow.put(msgspec.structs.replace(flow.states[step.id], status=StepStatus.SUCCESS, ended_at=flow.now))
        return
    yield from _start_items(q, flow, planned, items)
    if len(items) > planned.at_once and flow.states[step.id].status is StepStatus.RUNNING:
        for first in range(0, len(items), ITEMS_AT_ONCE):
            row = (flow.parent.run_id, step.id, first, to_json(items[first : first + ITEMS_AT_ONCE]))
            flow.items.append(row)


def _started(state: StepState, now: Instant, total: int, next_item: int) -> StepState:
    return msgspec.structs.replace(state, status=StepStatus.RUNNING, total=total, next_item=next_item, started_at=now)


def _start_items(
    q: Dialect, flow: _Flow, planned: PlannedStep, items: Sequence[Any] | None = None, *, room: int | None = None
) -> Work[StepState]:
    """As many further items as `flows.to_start` says. `items`: all of them, where they are at hand."""
    step_id = planned.step.id
    while count := flows.to_start(planned, flow.states[step_id], room):
        room = None if room is None else max(0, room - count)
        state = flow.states[step_id]
        first = state.next_item
        given = (yield from _read_items(flow, step_id, first, count)) if items is None else items[first : first + count]
        if items is None:
            yield from _read_payloads(q, [flow] if planned.gives_payload else [])
            yield from _read_results(q, [(flow, planned.given)])
        flow.put(msgspec.structs.replace(state, next_item=first + count))
        scope: dict[str, Any] | None = None
        for index, item in enumerate(given, first):
            try:
                scope = scope or flow.scope(planned.given)
                _new_run(flow, planned, {**scope, "item": item}, index)
            except InputError as error:
                told = msgspec.structs.replace(
                    flow.states[step_id],
                    reason=error.kind,
                    message=str(failure_text("input_item", index=index, error=error.message)),
                )
                flow.put(flows.runs_ended(planned, told, [RunStatus.FAILED], flow.now))
    return flow.states[step_id]


def _read_items(flow: _Flow, step_id: str, first: int, count: int) -> Work[list[Any]]:
    start, known = flow.ahead.pop(step_id, (0, []))
    if start <= first and first + count <= start + len(known):
        return known[first - start : first - start + count]
    start = first - first % ITEMS_AT_ONCE
    rows = yield Fetch(
        "select items from flow_items where run_id = :id and step_id = :step and first >= :start and first < :end"
        " order by first",
        {"id": flow.parent.run_id, "step": step_id, "start": start, "end": first + count},
    )
    found = [item for row in rows for item in from_json(row[0])]
    return found[first - start : first - start + count]


def _new_run(flow: _Flow, planned: PlannedStep, scope: Mapping[str, Any], item: int | None) -> NewRun:
    """One run of a step, its input rendered. InputError where that cannot be done."""
    task, step = flow.version.task_of(planned)
    payload, written = flow.payload if step.payload is None else step.payload, planned.payload_json
    values = None
    if planned.given:
        if step.payload is not None:
            payload, written = planned.template.rendered(scope)
        values = placeholders.gather(planned.http_texts, scope) if planned.http_texts else None
    new_run = NewRun(
        task=task,
        origin=Origin.FLOW,
        scheduled_time=flow.scheduled_time,
        run_at=flow.now,
        priority=flow.priority + step.priority,
        payload=payload,
        payload_json=written,
        overrides={VALUES: values} if values else None,
        parent_id=flow.parent.run_id,
        parent_key=flow.key,
        step=(step.id, item),
        trace_id=flow.trace_id,
    )
    flow.new_runs.append(new_run)
    return new_run


# What the steps before came to


def _read_results(q: Dialect, paths: Sequence[tuple[_Flow, Collection[ValuePath]]]) -> Work[None]:
    wanted = [
        (flow, {(path.step, path.field) for path in named if path.step is not None and path.step in flow.plan.steps})
        for flow, named in paths
    ]
    yield from _read_states(q, [(flow, [step_id for step_id, _ in named]) for flow, named in wanted])
    runs: dict[int, list[tuple[_Flow, str]]] = defaultdict(list)
    lists: list[tuple[_Flow, str]] = []
    for flow, named in wanted:
        for step_id, name in sorted(named):
            if flow.plan[step_id].step.foreach is not None:
                if name == "result":
                    flow.results.setdefault(step_id, None)
                elif name == "results" and step_id not in flow.lists:
                    flow.lists[step_id] = []
                    lists.append((flow, step_id))
            elif name in ("result", "results") and step_id not in flow.results:
                flow.results[step_id], flow.lists[step_id] = None, []
                carried_out = flow.states[step_id].step_run_id
                if carried_out is not None:
                    runs[carried_out].append((flow, step_id))
    rows = yield from q.fetch_by(_RESULTS, "r.id", runs)
    found = {row[0]: row for row in rows}
    for run_id, readers in runs.items():
        for flow, step_id in readers:
            value = _result(flow.plan[step_id].step, found.get(run_id))
            flow.results[step_id] = value
            flow.lists[step_id] = value if isinstance(value, InputError) else [value]
    for flow, step_id in lists:
        flow.lists[step_id] = yield from _results_of_items(flow, step_id)


_RESULTS = (
    "select r.id, r.status, r.result, r.response_code, b.response_body, b.truncated, r.item_index from runs r"
    " left join bodies b on b.run_id = r.id and b.attempt = r.attempt"
)


def _results_of_items(flow: _Flow, step_id: str) -> Work[Any]:
    state = flow.states[step_id]
    rows = yield Fetch(
        f"{_RESULTS} where r.parent_id = :flow and r.step_id = :step",
        {"flow": state.copied_from or state.run_id, "step": step_id},
    )
    found: list[Any] = [None] * state.total
    for row in rows:
        value = _result(flow.plan[step_id].step, row)
        if isinstance(value, InputError):
            return value
        if row[6] is not None and row[6] < len(found):
            found[row[6]] = value
    return found


def _result(step: Step, row: Sequence[Any] | None) -> Any:
    """What a job returned, the JSON that an HTTP target answered, or its code and text; an InputError if that is not known."""
    if row is None:
        return InputError(failure_text("input_result_gone", step=step.id))
    _, _, result, code, body, truncated, _ = row
    if result is not None or step.exec_type is not ExecType.SYNC:
        return from_json(result)
    if truncated:
        return InputError(failure_text("input_answer_cut", step=step.id))
    if code is None:
        return None  # nothing has answered
    try:
        return from_json(body or "")
    except msgspec.DecodeError:
        return {"code": code, "text": body or ""}


# Write


Inserts = Sequence[InsertMany | InsertEvents]
Take = Callable[[Sequence[NewRun], Inserts], Work[Inserts]]
"""Claims some of these runs, before they are written: what is to be inserted then, in place of what was."""


def _write(
    q: Dialect, cache: TaskView, now: Instant, changed: Sequence[_Flow], take: Take | None = None
) -> Work[list[FlowEnd]]:
    """What has become of these flows. Those that are over."""
    if not changed:
        return []
    new_runs = [new_run for flow in changed for new_run in flow.new_runs]
    inserts = yield from inserts_of(insert_steps(q, cache, now, new_runs))
    cache.new_steps |= {new_run.id: new_run.task.spec.queue for new_run in new_runs}
    for flow in changed:
        for step_id, new_run in flow.alone.items():
            flow.put(msgspec.structs.replace(flow.states[step_id], step_run_id=new_run.id))
    items = [row for flow in changed for row in flow.items]
    if items:
        inserts.append(InsertMany("flow_items", ("run_id", "step_id", "first", "items"), items))
    inserts += yield from inserts_of(_tell(changed))
    writes: list[InsertMany | InsertEvents | UpdateMany] = [
        *(inserts if take is None or not new_runs else (yield from take(new_runs, inserts)))
    ]
    states = [flow.states[step_id] for flow in changed for step_id in flow.changed]
    writes += changes(states)
    counts = [_count(flow) for flow in changed if flow.over]
    if counts:
        writes.append(UpdateMany("flows", "run_id", ("steps_open", "steps_failed"), sorted(counts)))
    if writes:
        yield WriteAll(writes)
    for flow in changed:
        yield from _forget_items(q, flow)
    failpoint.hit("K16")
    return (yield from _ends(q, [flow for flow in changed if flow.open <= 0]))


def _count(flow: _Flow) -> tuple[int, int, int]:
    """No other transaction writes the row of the flow: this one holds its run."""
    flow.open -= len(flow.over)
    flow.failed += sum(flows.makes_fail(flow.plan[step_id].step, flow.states[step_id].status) for step_id in flow.over)
    return flow.parent.run_id, flow.open, flow.failed


def _tell(changed: Sequence[_Flow]) -> Work[None]:
    yield from tell_all(
        {
            "run.scheduled": [
                (new_run.task.id, new_run.id, {"status": RunStatus.SCHEDULED, "step_id": (new_run.step or ("",))[0]})
                for flow in changed
                for new_run in flow.new_runs
            ],
            "run.step": [
                (flow.task.id, flow.parent.run_id, _told(flow.states[step_id]))
                for flow in changed
                for step_id in flow.over
            ],
        }
    )


def _forget_items(q: Dialect, flow: _Flow) -> Work[None]:
    listed = [step_id for step_id in flow.over if flow.states[step_id].total > flow.plan[step_id].at_once]
    if listed:
        yield Execute(
            f"delete from flow_items where run_id = :id and {q.names('step_id', 'names')}",
            {"id": flow.parent.run_id, "names": q.pack(listed)},
        )


def _told(state: StepState) -> dict[str, Any]:
    told: dict[str, Any] = {"step_id": state.step_id, "status": state.status}
    return told if state.reason is None else {**told, "reason": state.reason}


def _ends(q: Dialect, over: Sequence[_Flow]) -> Work[list[FlowEnd]]:
    """Every step of these flows has ended."""
    by_run: dict[int, list[StepState]] = {flow.parent.run_id: [] for flow in over}
    rows = yield from q.fetch_by(f"select {STATE.select()} from flow_steps", "run_id", by_run, " order by position")
    for state in map(state_of, rows):
        by_run[state.run_id].append(state)
    ends: list[FlowEnd] = []
    for flow in over:
        found = by_run[flow.parent.run_id]
        failed = [s for s in found if flows.makes_fail(flow.plan[s.step_id].step, s.status)]
        counts = dict(sorted(Counter(str(state.status).lower() for state in found).items()))
        ends.append((yield from end_of(flow.parent, failed, counts)))
    return ends


def close(q: Dialect, now: Instant, run_ids: Sequence[int]) -> Work[None]:
    """End what is still open in these flows: they are over."""
    if not run_ids:
        return
    listed = {"ids": q.pack(sorted(run_ids))}
    here = q.ids("run_id", "ids")
    yield Execute(
        f"update flow_steps set status = 'CANCELED', ended_at = :now where {here} and status in ('WAITING', 'RUNNING')",
        {"now": now, **listed},
    )
    yield Execute(f"delete from flow_items where {here}", listed)
    yield Execute(f"update flows set steps_open = 0 where {here}", listed)
