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

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.clock import Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.model.call import CALL_TYPE, spec_of
from noonbell.model.flow import OPEN_STEP, StepReason, StepState, StepStatus
from noonbell.model.run import Origin, RunId, RunStatus, idempotency_key_of, trace_id_of
from noonbell.model.task import ExecType, Step, Task, TaskId, TaskSpec
from noonbell.policy import flows, placeholders
from noonbell.policy.flows import FlowPlan, PlannedStep
from noonbell.policy.value_path import InputError, ValuePath
from noonbell.stores.sql.active_runs import Live, Place, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.rows import FlowVersion, Record, TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, UpdateMany, Work

RETRY: Final = "retry"
"""In `overrides` of a flow's run: the run that it is a retry of, and the step that it starts from, if one is named."""
VALUES: Final = "values"
"""In `overrides` of a step's run: what the texts of its HTTP target read of the flow."""

_STATE = Record(StepState)
_CHANGING = tuple(name for name in _STATE.columns if name not in ("id", "run_id", "step_id", "position", "copied_from"))
_AT_ONCE = 100
"""Items of a `foreach` in one row."""
_NAMED = 10
"""Failed steps that the message of a flow names."""


class FlowEnd(NamedTuple):
    """Every step of the flow has ended."""

    parent: Live
    status: RunStatus
    message: str | None
    details: dict[str, Any] | None
    result: dict[str, int]


@dataclass(slots=True)
class _Flow:
    """A run of a flow, as far as a transaction has looked at it."""

    parent: Live
    version: FlowVersion
    now: Instant
    scheduled_time: Instant
    priority: int
    key: str
    trace_id: str
    payload: Any = msgspec.UNSET
    """Of the flow's run, once a step has come that needs it."""
    states: dict[str, StepState] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """By step: what it came to, or the InputError for whoever reads it."""
    lists: dict[str, Any] = field(default_factory=dict)
    """The same for the items of a `foreach`."""
    items: list[tuple[Any, ...]] = field(default_factory=list)
    """Rows of `flow_items`."""
    new_runs: list[NewRun] = field(default_factory=list)
    alone: dict[str, NewRun] = field(default_factory=dict)
    """By step: the one run of a step without `foreach`, until it has its id."""

    @property
    def task(self) -> Task:
        return self.version.task

    @property
    def plan(self) -> FlowPlan:
        return self.version.plan

    def put(self, state: StepState) -> None:
        self.states[state.step_id] = state
        self.changed[state.step_id] = None

    def scope(self, paths: Collection[ValuePath]) -> dict[str, Any]:
        """What these paths can read. InputError for a result that cannot be read."""
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
        return {"steps": steps, "payload": self.payload, "slot": rfc3339(self.scheduled_time)}


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


def start(q: Dialect, cache: TaskView, now: Instant, parent: Live) -> Work[tuple[FlowEnd | None, set[str]]]:
    """The first steps of a run whose row is about to be taken to PARENT; and the queues where they wait.

    The steps are those of the task as it is now, and stay so until the flow ends.
    """
    known = yield from known_tasks(q, cache, [parent.task_id])
    version = known[parent.task_id].task.version
    yield UpdateMany("runs", "id", ("task_version",), [(parent.run_id, version)])
    flow = yield from _flow(q, cache, now, parent)
    if flow is None:
        return FlowEnd(parent, RunStatus.FAILED, "its task is gone", {"kind": "error"}, {}), set()
    before, keep = yield from _kept(flow)
    ids = yield NewIds(len(flow.plan.steps))
    flow.states = flows.begin(flow.plan, RunId(parent.run_id), ids, before, keep)
    rows = [_STATE.row(state) for state in flow.states.values()]
    yield InsertMany("flow_steps", _STATE.columns, rows)
    ended = [state for state in flow.states.values() if state.status not in OPEN_STEP]
    failed = sum(flows.makes_fail(flow.plan[state.step_id].step, state.status) for state in ended)
    yield InsertMany(
        "flows",
        ("run_id", "version", "steps_open", "steps_failed"),
        [(parent.run_id, version, len(flow.states) - len(ended), failed)],
    )
    ready = [
        step_id for step_id, state in flow.states.items() if state.status is StepStatus.WAITING and not state.needs_open
    ]
    over = yield from _go_on(q, flow, (yield from _take_turns(q, flow, ready)))
    end = yield from _write(q, cache, flow, over)
    return end, {new_run.task.spec.queue for new_run in flow.new_runs}


def _flow(q: Dialect, cache: TaskView, now: Instant, parent: Live) -> Work[_Flow | None]:
    rows = yield Fetch(
        "select task_version, scheduled_time, priority, idempotency_key, trace_id from runs where id = :id",
        {"id": parent.run_id},
    )
    version, scheduled_time, priority, stored_key, trace_id = rows[0]
    found = yield from version_of(q, cache, parent.task_id, version)
    if found is None:
        return None
    return _Flow(
        parent=parent,
        version=found,
        now=now,
        scheduled_time=Instant(scheduled_time),
        priority=priority,
        key=idempotency_key_of(parent.run_id, scheduled_time, stored_key),
        trace_id=trace_id_of(parent.run_id, scheduled_time, trace_id),
    )


def _read_payload(flow: _Flow, steps: Iterable[PlannedStep]) -> Work[None]:
    """Not for each batch of items that ends: the list that they come from may be in it."""
    if flow.payload is msgspec.UNSET and any(planned.reads_payload for planned in steps):
        rows = yield Fetch("select payload from inputs where run_id = :id", {"id": flow.parent.run_id})
        stored = rows[0][0] if rows else None
        flow.payload = flow.task.spec.payload if stored is None else from_json(stored)


def _kept(flow: _Flow) -> Work[tuple[dict[str, StepState], set[str]]]:
    """Of a retry: the states in the run before, and the steps whose outcome stays."""
    rows = yield Fetch("select overrides from inputs where run_id = :id", {"id": flow.parent.run_id})
    asked = (from_json(rows[0][0]) if rows else None) or {}
    retry = asked.get(RETRY)
    if not isinstance(retry, dict):
        return {}, set()
    before = {state.step_id: state for state in (yield from states(RunId(retry["run_id"])))}
    return before, flows.kept(flow.plan, before, retry.get("from_step"))


def states(run_id: RunId) -> Work[list[StepState]]:
    """In the order in which the task names the steps; none for a flow that has not started."""
    rows = yield Fetch(f"select {_STATE.select()} from flow_steps where run_id = :id order by position", {"id": run_id})
    return [_STATE.read(row) for row in rows]


def task_as_of(q: Dialect, cache: TaskView, task_id: TaskId, version: int) -> Work[Task | None]:
    """A flow with the spec of one of its versions; None if it was purged."""
    found = yield from version_of(q, cache, task_id, version)
    return None if found is None else found.task


# Go on


def advance(
    q: Dialect, cache: TaskView, now: Instant, parent_id: int, ended: Mapping[int, RunStatus]
) -> Work[FlowEnd | None]:
    """Runs of a flow's steps have become final, in this transaction: start what follows. The end of the flow, if it is over."""
    parent = (yield from load_active(q, [parent_id])).get(parent_id)
    if parent is None or parent.place != Place.PARENT:
        return None  # it was canceled, or ran out of time: nothing follows
    flow = yield from _flow(q, cache, now, parent)
    if flow is None:
        return FlowEnd(parent, RunStatus.FAILED, "its task is gone", {"kind": "error"}, {})
    rows = yield from q.fetch_by("select id, step_id from runs", "id", ended)
    statuses: dict[str, list[RunStatus]] = defaultdict(list)
    for run_id, step_id in rows:
        statuses[step_id].append(ended[run_id])
    yield from _read_states(q, flow, statuses)
    over: list[str] = []
    for step_id, found in statuses.items():
        if flow.states[step_id].status is not StepStatus.RUNNING:
            continue
        state = flows.runs_ended(flow.plan[step_id], flow.states[step_id], found, now)
        flow.put(state)
        if state.status is StepStatus.RUNNING:
            state = yield from _start_items(q, flow, flow.plan[step_id])
        if state.status is not StepStatus.RUNNING:
            over.append(step_id)
    return (yield from _write(q, cache, flow, (yield from _go_on(q, flow, over))))


def _read_states(q: Dialect, flow: _Flow, step_ids: Iterable[str]) -> Work[None]:
    missing = sorted({step_id for step_id in step_ids if step_id not in flow.states})
    if missing:
        rows = yield Fetch(
            f"select {_STATE.select()} from flow_steps where run_id = :id and {q.names('step_id', 'names')}",
            {"id": flow.parent.run_id, "names": q.pack(missing)},
        )
        flow.states.update({state.step_id: state for state in map(_STATE.read, rows)})


def _go_on(q: Dialect, flow: _Flow, ended: Sequence[str]) -> Work[list[str]]:
    """What follows from the end of these steps; all that have ended in this transaction, these included."""
    over = list(ended)
    wave: Sequence[str] = ended
    while wave:
        followers = {follower for step_id in wave for follower in flow.plan[step_id].followers}
        # A step that ends without a run of its own may end a long row of them: they are read together.
        yield from _read_states(q, flow, followers if wave is ended else flow.plan.after(followers))
        for step_id in wave:
            planned = flow.plan[step_id]
            counted = flows.counts_as(planned.step, flow.states[step_id].status)
            for follower in planned.followers:
                flow.put(flows.need_ended(flow.states[follower], counted))
        ready = [
            step_id
            for step_id in followers
            if not flow.states[step_id].needs_open and flow.states[step_id].status is StepStatus.WAITING
        ]
        wave = yield from _take_turns(q, flow, sorted(ready, key=lambda step_id: flow.plan[step_id].position))
        over += wave
    return over


def _take_turns(q: Dialect, flow: _Flow, ready: Sequence[str]) -> Work[list[str]]:
    """The turn of these steps has come. Those that have ended with that: skipped, failed, or nothing to do."""
    wanted, over = [], []
    for step_id in ready:
        state = flow.states[step_id]
        if flows.is_wanted(flow.plan[step_id].step.on, state):
            wanted.append(flow.plan[step_id])
        else:
            flow.put(flows.skipped(state, StepReason.UPSTREAM, flow.now))
            over.append(step_id)
    yield from _read_payload(flow, wanted)
    yield from _read_results(q, flow, [path for planned in wanted for path in planned.decides_by | planned.given])
    for planned in wanted:
        yield from _take_turn(q, flow, planned)
        if flow.states[planned.step.id].status not in OPEN_STEP:
            over.append(planned.step.id)
    return over


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
        for first in range(0, len(items), _AT_ONCE):
            row = (flow.parent.run_id, step.id, first, to_json(items[first : first + _AT_ONCE]))
            flow.items.append(row)


def _started(state: StepState, now: Instant, total: int, next_item: int) -> StepState:
    return msgspec.structs.replace(state, status=StepStatus.RUNNING, total=total, next_item=next_item, started_at=now)


def _start_items(q: Dialect, flow: _Flow, planned: PlannedStep, items: Sequence[Any] | None = None) -> Work[StepState]:
    """As many further items as may be under way. `items`: all of them, where they are at hand."""
    step_id = planned.step.id
    while count := flows.to_start(planned, flow.states[step_id]):
        state = flow.states[step_id]
        first = state.next_item
        given = (yield from _read_items(flow, step_id, first, count)) if items is None else items[first : first + count]
        if items is None:
            yield from _read_payload(flow, [planned])
            yield from _read_results(q, flow, planned.given)
        flow.put(msgspec.structs.replace(state, next_item=first + count))
        scope: dict[str, Any] | None = None
        for index, item in enumerate(given, first):
            try:
                scope = scope or flow.scope(planned.given)
                _new_run(flow, planned, {**scope, "item": item}, index)
            except InputError as error:
                told = msgspec.structs.replace(
                    flow.states[step_id], reason=error.kind, message=f"item {index}: {error.message}"
                )
                flow.put(flows.runs_ended(planned, told, [RunStatus.FAILED], flow.now))
    return flow.states[step_id]


def _read_items(flow: _Flow, step_id: str, first: int, count: int) -> Work[list[Any]]:
    start = first - first % _AT_ONCE
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
    payload = flow.payload if step.payload is None else placeholders.render(step.payload, scope)
    values = placeholders.gather(planned.http_texts, scope)
    new_run = NewRun(
        task=task,
        origin=Origin.FLOW,
        scheduled_time=flow.scheduled_time,
        run_at=flow.now,
        priority=flow.priority + step.priority,
        payload=payload,
        overrides={VALUES: values} if values else None,
        parent_id=flow.parent.run_id,
        parent_key=flow.key,
        step=(step.id, item),
        trace_id=flow.trace_id,
    )
    flow.new_runs.append(new_run)
    return new_run


# What the steps before came to


def _read_results(q: Dialect, flow: _Flow, paths: Iterable[ValuePath]) -> Work[None]:
    wanted = {(path.step, path.field) for path in paths if path.step is not None and path.step in flow.plan.steps}
    yield from _read_states(q, flow, [step_id for step_id, _ in wanted])
    alone, each = set[str](), set[str]()
    for step_id, name in wanted:
        is_list = flow.plan[step_id].step.foreach is not None
        if name == "result" and step_id not in flow.results:
            flow.results[step_id] = None
            if not is_list:
                alone.add(step_id)
        elif name == "results" and step_id not in flow.lists:
            (each if is_list else alone).add(step_id)
            flow.lists[step_id] = []
    runs: dict[int, str] = {}
    for step_id in alone:
        carried_out = flow.states[step_id].step_run_id
        if carried_out is not None:
            runs[carried_out] = step_id
    rows = yield from q.fetch_by(_RESULTS, "r.id", runs)
    found = {row[0]: row for row in rows}
    for run_id, step_id in runs.items():
        value = _result(flow.plan[step_id].step, found.get(run_id))
        flow.results[step_id] = value
        flow.lists[step_id] = value if isinstance(value, InputError) else [value]
    for step_id in sorted(each):
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
        return InputError(f"the result of step {step.id} is not kept any longer")
    _, _, result, code, body, truncated, _ = row
    if result is not None or step.exec_type is not ExecType.SYNC:
        return from_json(result)
    if truncated:
        return InputError(f"the answer of step {step.id} was too large to be kept whole")
    try:
        return from_json(body or None)
    except msgspec.DecodeError:
        return {"code": code, "text": body}


# Write


def _write(q: Dialect, cache: TaskView, flow: _Flow, over: Sequence[str]) -> Work[FlowEnd | None]:
    yield from insert_runs(q, cache, flow.now, flow.new_runs)
    cache.step_queues |= {new_run.task.spec.queue for new_run in flow.new_runs}
    for step_id, new_run in flow.alone.items():
        flow.put(msgspec.structs.replace(flow.states[step_id], step_run_id=new_run.id))
    if flow.changed:
        changed = [flow.states[step_id] for step_id in flow.changed]
        rows = [dict(zip(_STATE.columns, _STATE.row(state), strict=True)) for state in changed]
        yield UpdateMany(
            "flow_steps", "id", _CHANGING, sorted((row["id"], *(row[name] for name in _CHANGING)) for row in rows)
        )
    if flow.items:
        yield InsertMany("flow_items", ("run_id", "step_id", "first", "items"), flow.items)
    yield from _forget_items(q, flow, over)
    yield from tell_all(
        {
            "run.scheduled": [
                (new_run.task.id, new_run.id, {"status": RunStatus.SCHEDULED, "step_id": (new_run.step or ("",))[0]})
                for new_run in flow.new_runs
            ],
            "run.step": [(flow.task.id, flow.parent.run_id, _told(flow.states[step_id])) for step_id in over],
        }
    )
    failed = sum(flows.makes_fail(flow.plan[step_id].step, flow.states[step_id].status) for step_id in over)
    if over:
        yield Execute(
            "update flows set steps_open = steps_open - :ended, steps_failed = steps_failed + :failed where run_id = :id",
            {"ended": len(over), "failed": failed, "id": flow.parent.run_id},
        )
    rows = yield Fetch("select steps_open, steps_failed from flows where run_id = :id", {"id": flow.parent.run_id})
    failpoint.hit("K16")
    return (yield from _end(flow)) if rows and rows[0][0] <= 0 else None


def _forget_items(q: Dialect, flow: _Flow, over: Sequence[str]) -> Work[None]:
    listed = [step_id for step_id in over if flow.states[step_id].total > flow.plan[step_id].at_once]
    if listed:
        yield Execute(
            f"delete from flow_items where run_id = :id and {q.names('step_id', 'names')}",
            {"id": flow.parent.run_id, "names": q.pack(listed)},
        )


def _told(state: StepState) -> dict[str, Any]:
    told: dict[str, Any] = {"step_id": state.step_id, "status": state.status}
    return told if state.reason is None else {**told, "reason": state.reason}


def _end(flow: _Flow) -> Work[FlowEnd]:
    rows = yield Fetch(
        "select status, count(*) from flow_steps where run_id = :id group by status", {"id": flow.parent.run_id}
    )
    counts = {str(status).lower(): int(count) for status, count in rows}
    found = yield from states(RunId(flow.parent.run_id))
    failed = [s for s in found if flows.makes_fail(flow.plan[s.step_id].step, s.status)]
    if not failed:
        return FlowEnd(flow.parent, RunStatus.SUCCESS, None, None, counts)
    names = ", ".join(state.step_id for state in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    message = f"step {names} failed" if len(failed) == 1 else f"the steps {names}{more} failed"
    if len(failed) == 1 and failed[0].message is not None:
        message += f": {failed[0].message}"
    details = {"kind": "step", "steps": [state.step_id for state in failed[:100]]}
    return FlowEnd(flow.parent, RunStatus.FAILED, message, details, counts)


def close(now: Instant, run_ids: Sequence[int]) -> Work[None]:
    """These flows are over: what has not ended in them never will."""
    for run_id in run_ids:
        yield Execute(
            "update flow_steps set status = 'CANCELED', ended_at = :now where run_id = :id"
            " and status in ('WAITING', 'RUNNING')",
            {"now": now, "id": run_id},
        )
        yield Execute("delete from flow_items where run_id = :id", {"id": run_id})
        yield Execute("update flows set steps_open = 0 where run_id = :id", {"id": run_id})
