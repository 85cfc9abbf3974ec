"""Inserting runs: the wide row of history, the narrow row of an active run, its payload, its count at its task's gate; and
the facts that the policies decide by whether a run is to be inserted.

A skipped slot gets a run too, with the reason: the run that blocked it (`blocking_run_id`) or the caller who asked for the
skip (`by`). A policy that looks at the last run names that run; for one that counts, the oldest active run is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.calendar import QuietAction
from noonbell.model.call import CALL, CALL_TYPE, MAX_PER_KEY, RATE_KEY
from noonbell.model.run import (
    Origin,
    RunId,
    RunStatus,
    SkipReason,
    key_of_asked,
    key_of_child,
    key_of_join,
    key_of_part,
    key_of_slot,
    key_of_step,
)
from noonbell.model.sla import SlaWatch
from noonbell.model.task import ConcurrencyPolicy, Task, TaskSpec
from noonbell.policy.account import Facts, needs
from noonbell.policy.quiet import quiet_at
from noonbell.stores.sql import keys, rollups, sla
from noonbell.stores.sql.active_runs import (
    STARTED,
    WAITING,
    GateChanges,
    Live,
    Place,
    RunFlag,
    due_place,
    flags_for,
    gate_counts,
    load_last_runs,
)
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView, json_or_null, to_json
from noonbell.stores.sql.statement import Columns, InsertMany, NewIds, UpdateMany, Work

RUN_COLUMNS = (
    *("id", "task_id", "task_version", "origin", "status", "slot", "scheduled_time", "run_at"),
    *("created_at", "updated_at", "queue", "priority", '"key"', "live_key", "attempt", "retry_count", "lost_count"),
    *("retry_of_run_id", "parent_id", "shard_index", "shard_total", "skip_reason", "trouble", "end_time"),
    *("trace_id", "idempotency_key", "root", "upstream_run_ids", "expires_at"),
    "moved_to",
)
_STEP_COLUMNS = ("step_id", "item_index")
"""What a step of a flow has besides."""
LIVE_COLUMNS = Live._fields[: Live._fields.index("worker_id")]
"""What an active run has before it is claimed."""


class NewRun(msgspec.Struct, kw_only=True):
    """A run about to be written."""

    task: Task
    origin: Origin
    scheduled_time: Instant
    run_at: Instant
    gated: bool = True
    """False: it passes the gate of its task, and only counts there."""
    skip_reason: SkipReason | None = None
    blocking_run_id: int | None = None
    """Why it is skipped, where the decision knows the run."""
    attempt: int = 0
    retry_of_run_id: int | None = None
    key: str | None = None
    priority: int | None = None
    payload: Any = msgspec.UNSET
    overrides: dict[str, Any] | None = None
    workers: tuple[str, ...] | None = None
    parent_id: int | None = None
    shard: tuple[int, int] | None = None
    trace_id: str | None = None
    expires_in_seconds: int | None = None
    """None: as its task says."""
    wanted_by: Instant | None = None
    """The moment at which it expires, where that was named."""
    parent_key: str = ""
    """The idempotency key of the parent, where it is a part or a step."""
    root: str | None = None
    """The slot or the run that it goes back to, where that is not plain from its origin: see `policy.joins.root_of`."""
    upstream_run_ids: tuple[int, ...] | None = None
    join: tuple[str, int, int] | None = None
    """Root, edge version and redrive of the join that makes it."""
    moved_to: Instant | None = None
    """Where a calendar has moved its slot to."""
    step: tuple[str, int | None] | None = None
    """Of a flow: the step, and which item of a `foreach`."""
    child: tuple[int, int] | None = None
    """Of a child that a job spawns: its position, and the job's retry count."""
    payload_json: str | None = None
    """The payload as it is stored, where that is known already."""
    id: RunId = RunId(0)

    @property
    def expires_at(self) -> Instant | None:
        """Parts and steps do not expire: what they belong to has started."""
        given = self.expires_in_seconds
        seconds = self.task.spec.expires_in_seconds if given is None else given
        is_inner = self.parent_id is not None and self.child is None
        if is_inner or self.skip_reason is not None:
            return None
        if self.wanted_by is not None:
            return self.wanted_by
        if seconds is None:
            return None
        return Instant(self.run_at + seconds * SECOND)


def gate_limit(spec: TaskSpec) -> tuple[int | None, bool] | None:
    """(limit, has a rate) of the gate that runs of this task wait behind; None if there is none.

    PARALLEL never waits, so its limit is no gate; but 0 admits nothing, under any policy.
    """
    limit = spec.max_concurrency
    if spec.concurrency_policy is ConcurrencyPolicy.PARALLEL and limit != 0:
        limit = None
    rated = spec.rate_limit is not None
    return None if limit is None and not rated else (limit, rated)


def held_until(spec: TaskSpec, at: Instant) -> Instant | None:
    """The end of the quiet hours of its task that hold a run which is due at this moment; None where none do.

    Those that skip do so when the slot is planned, or else when the run would be claimed.
    """
    quiet = quiet_at(spec.quiet, spec.timezone, at)
    return quiet.until if quiet is not None and quiet.action is QuietAction.HOLD else None


def rate_key(spec: TaskSpec, payload: Any, overrides: Mapping[str, Any] | None = None) -> str | None:
    """The value that a keyed rate limit goes by, of the task or, for a call, of its queue; runs without it share one."""
    if spec.job_type == CALL_TYPE:
        named = (overrides or {}).get(RATE_KEY)
        return None if named is None else keys.stored_key(named)
    if spec.rate_limit is None or spec.rate_limit.key is None:
        return None
    value = payload
    for part in spec.rate_limit.key.removeprefix("payload.").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return keys.stored_key(to_json(value))


def load_facts(q: Dialect, tasks: Sequence[Task]) -> Work[dict[int, Facts]]:
    """Only what the policies of these tasks ask for: most ask for nothing, and cost no query."""
    wanted = {task.id: needs(task.spec) for task in tasks}
    previous = yield from load_last_runs(q, [task.id for task in tasks if wanted[task.id].round])
    gated = [task.id for task in tasks if wanted[task.id].occupied and gate_limit(task.spec) is not None]
    free = [task.id for task in tasks if wanted[task.id].occupied and gate_limit(task.spec) is None]
    counts = yield from gate_counts(q, gated)
    rows = yield from q.fetch_by(
        "select round_of, place, count(*) from live", "round_of", free, " group by round_of, place"
    )
    for task_id, place, count in rows:
        used, waiting = counts.get(task_id, (0, 0))
        counts[task_id] = (used + count * (place in STARTED), waiting + count * (place in WAITING))
    facts = {}
    for task_id in {*previous, *counts}:
        used, waiting = counts.get(task_id, (0, 0))
        facts[task_id] = Facts(round=previous.get(task_id), occupied=used + waiting, waiting=waiting)
    return facts


def insert_runs(q: Dialect, cache: TaskView, now: Instant, new_runs: Sequence[NewRun]) -> Work[None]:
    """Insert the rows of all these runs. They get their ids here, in order."""
    if not new_runs:
        return
    ids = yield NewIds(len(new_runs))
    runs: list[tuple[Any, ...]] = []
    live: list[tuple[Any, ...]] = []
    inputs: list[tuple[Any, ...]] = []
    pins: list[tuple[int, str]] = []
    gates = GateChanges()
    entries: list[keys.Entry] = []
    expiries: list[tuple[int, int]] = []
    watches: list[SlaWatch] = []
    has_steps = any(new_run.step is not None for new_run in new_runs)
    for id_, new_run in zip(ids, new_runs, strict=True):
        new_run.id = RunId(id_)
        run_row = _run_row(new_run, now, cache.installation)
        runs.append((*run_row, *(new_run.step or (None, None))) if has_steps else run_row)
        if new_run.skip_reason is not None:
            continue
        row = _live_row(new_run, now)
        live.append(row)
        if new_run.payload is not msgspec.UNSET or new_run.overrides is not None:
            inputs.append(_input_row(new_run))
        pins.extend((id_, worker) for worker in _pinned(new_run))
        if new_run.expires_at is not None:
            expiries.append((id_, new_run.expires_at))
        level = None if new_run.parent_id is not None else cache.sla_of(new_run.task.spec)
        if level is not None and (watch := sla.watch(new_run.task, level, id_, new_run.origin, new_run.run_at, now)):
            watches.append(watch)
        place, turn, gate, flags = row[1], row[4], row[8], row[11]
        if flags & RunFlag.KEYED:
            entries.append(_entry(new_run, turn, row[5], is_due=place == Place.HELD))
        elif gate is not None and place != Place.LATER:
            is_urgent = turn < -new_run.task.spec.priority
            gates.arrive(gate, turn, is_passed=bool(flags & RunFlag.PASSED), is_urgent=is_urgent)
    yield _insert("runs", (*RUN_COLUMNS, *_STEP_COLUMNS) if has_steps else RUN_COLUMNS, runs)
    if live:
        yield _insert("live", LIVE_COLUMNS, live)
    if inputs:
        yield _insert("inputs", ("run_id", "payload", "overrides"), inputs)
    if pins:
        yield InsertMany("pins", ("run_id", "worker_id"), pins)
    if expiries:
        yield InsertMany("expiries", ("run_id", "at"), expiries)
    if watches:
        yield from sla.insert_watches(watches)
    skipped = [n for n in new_runs if n.skip_reason is not None]
    yield from rollups.note_skipped(now, [(n.task.id, n.task.spec.queue, n.parent_id) for n in skipped])
    if entries:
        yield from keys.enter(q, cache, entries, gates)
    yield from gates.write()


def insert_steps(q: Dialect, cache: TaskView, now: Instant, new_runs: Sequence[NewRun]) -> Work[None]:
    """As `insert_runs`, for runs of steps. Those of one step are alike, of several items and in several flows: column by column
    they differ in their ids, in what they go back to, and in what they are given.
    """
    if not new_runs:
        return
    places: dict[tuple[Any, ...], int] = {}
    firsts: list[NewRun] = []
    which: list[int] = []
    for new_run in new_runs:
        alike = id(new_run.task), new_run.priority, new_run.run_at
        place = places.get(alike)
        if place is None:
            place = places[alike] = len(firsts)
            firsts.append(new_run)
        which.append(place)
    if any(first.task.spec.rate_limit is not None or first.task.spec.specific_worker_ids for first in firsts):
        yield from insert_runs(q, cache, now, new_runs)  # each has rows of its own beside these
        return
    ids = yield NewIds(len(new_runs))
    for id_, new_run in zip(ids, new_runs, strict=True):
        new_run.id = RunId(id_)
    parents = [new_run.parent_id for new_run in new_runs]
    steps = [new_run.step or ("", None) for new_run in new_runs]
    own: dict[str, Sequence[Any]] = {
        "id": ids,
        "scheduled_time": [new_run.scheduled_time for new_run in new_runs],
        "parent_id": parents,
        "trace_id": [new_run.trace_id for new_run in new_runs],
        "idempotency_key": [
            key_of_step(new_run.parent_key, *step) for new_run, step in zip(new_runs, steps, strict=True)
        ],
        "step_id": [step_id for step_id, _ in steps],
        "item_index": [item for _, item in steps],
    }
    rows = [(*_run_row(first, now, cache.installation), *(first.step or ("", None))) for first in firsts]
    yield _by_column("runs", (*RUN_COLUMNS, *_STEP_COLUMNS), rows, which, own)
    live = [_live_row(first, now) for first in firsts]
    yield _by_column("live", LIVE_COLUMNS, live, which, {"run_id": ids, "parent_id": parents})
    inputs = [n for n in new_runs if n.payload is not msgspec.UNSET or n.overrides is not None]
    if inputs:
        yield _insert("inputs", ("run_id", "payload", "overrides"), list(map(_input_row, inputs)))


def _by_column(
    table: str,
    columns: tuple[str, ...],
    firsts: Sequence[tuple[Any, ...]],
    which: Sequence[int],
    own: Mapping[str, Sequence[Any]],
) -> InsertMany:
    """Rows that are as one of `firsts` each, `which` says which, but for the columns of `own`."""
    filled: list[str] = []
    arrays: list[Sequence[Any]] = []
    count = len(which)
    for name, values in zip(columns, zip(*firsts, strict=True), strict=True):
        array = own.get(name)
        if array is None:
            is_one = values.count(values[0]) == len(values)
            array = [values[0]] * count if is_one else [values[place] for place in which]
        if count < _MANY or array.count(None) < count:
            filled.append(name)
            arrays.append(array)
    return InsertMany(table, tuple(filled), Columns(arrays))


def _entry(new_run: NewRun, turn: int, run_at: int, *, is_due: bool) -> keys.Entry:
    key = _key(new_run) or ""
    limit = (new_run.overrides or {}).get(MAX_PER_KEY, new_run.task.spec.max_per_key)
    return keys.Entry(new_run.id, new_run.task.id, key, limit, turn, run_at, is_due)


def _key(new_run: NewRun) -> str | None:
    """Parts and steps have none: their parent has it."""
    if new_run.parent_id is not None and new_run.child is None:
        return None
    spec = new_run.task.spec
    if spec.concurrency_key is None and not new_run.overrides:
        return None
    payload = spec.payload if new_run.payload is msgspec.UNSET else new_run.payload
    return keys.key_of(spec, payload, new_run.overrides)


_MANY = 50
"""Rows from which on it pays to look which columns they need."""


def _insert(table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> InsertMany:
    """Of many rows, without the columns that all of them leave null: databases pay for each value."""
    if len(rows) < _MANY:
        return InsertMany(table, columns, rows)
    filled = [
        (name, values)
        for name, values in zip(columns, zip(*rows, strict=True), strict=True)
        if values.count(None) < len(values)
    ]
    return InsertMany(
        table, tuple(name for name, _ in filled), list(zip(*(values for _, values in filled), strict=True))
    )


def _pinned(new_run: NewRun) -> tuple[str, ...]:
    return new_run.task.spec.specific_worker_ids if new_run.workers is None else new_run.workers


def _flags(new_run: NewRun) -> int:
    spec = new_run.task.spec
    force_async = bool((new_run.overrides or {}).get("force_async"))
    flags = flags_for(spec, new_run.origin, pinned=bool(_pinned(new_run)), force_async=force_async)
    call = (new_run.overrides or {}).get(CALL)
    if call is not None and ("success_url" in call or "failure_url" in call):
        flags |= RunFlag.TELLS
    if call is not None and RATE_KEY in (new_run.overrides or {}):
        flags |= RunFlag.RATED
    if new_run.expires_at is not None:
        flags |= RunFlag.EXPIRES
    if new_run.child is not None:
        flags |= RunFlag.CHILD
    elif new_run.parent_id is not None:
        own = RunFlag.PART if new_run.step is None else RunFlag.STEP
        flags = (flags & ~(RunFlag.FANOUT | RunFlag.FOLLOW | RunFlag.ROUND | RunFlag.QUIET)) | own
    if not new_run.gated and (new_run.parent_id is None or new_run.child is not None) and gate_limit(spec) is not None:
        flags |= RunFlag.PASSED
    if _key(new_run) is not None:
        flags |= RunFlag.KEYED
    return flags


def _idempotency_key(new_run: NewRun, installation: str) -> str:
    if new_run.shard is not None:
        return key_of_part(new_run.parent_key, *new_run.shard)
    if new_run.join is not None:
        return key_of_join(installation, new_run.task.uid, *new_run.join)
    if new_run.step is not None:
        return key_of_step(new_run.parent_key, *new_run.step)
    if new_run.child is not None:
        return key_of_child(new_run.parent_key, *new_run.child)
    if new_run.origin is Origin.SCHEDULE:
        return key_of_slot(installation, new_run.task.uid, new_run.scheduled_time)
    return key_of_asked(installation)


def _run_row(new_run: NewRun, now: Instant, installation: str) -> tuple[Any, ...]:
    spec, skipped = new_run.task.spec, new_run.skip_reason is not None
    status = RunStatus.SKIPPED if skipped else RunStatus.SCHEDULED
    shard = new_run.shard or (None, None)
    return (
        new_run.id,
        new_run.task.id,
        new_run.task.version,
        new_run.origin,
        status,
        new_run.scheduled_time if new_run.origin is Origin.SCHEDULE and new_run.parent_id is None else None,
        new_run.scheduled_time,
        new_run.run_at,
        now,
        now,
        spec.queue,
        spec.priority if new_run.priority is None else new_run.priority,
        new_run.key,
        new_run.key,
        new_run.attempt,
        0,
        0,
        new_run.retry_of_run_id,
        new_run.parent_id,
        *shard,
        new_run.skip_reason,
        status if skipped else None,
        now if skipped else None,
        new_run.trace_id,
        _idempotency_key(new_run, installation),
        new_run.root,
        json_or_null(new_run.upstream_run_ids),
        new_run.expires_at,
        new_run.moved_to,
    )


def _live_row(new_run: NewRun, now: Instant) -> tuple[Any, ...]:
    spec = new_run.task.spec
    flags = _flags(new_run)
    has_gate = gate_limit(spec) is not None and (new_run.parent_id is None or new_run.child is not None)
    gate = new_run.task.id if has_gate else None
    payload = spec.payload if new_run.payload is msgspec.UNSET else new_run.payload
    is_later, at = new_run.run_at > now, new_run.run_at
    if flags & RunFlag.QUIET and (until := held_until(spec, Instant(max(now, at)))) is not None:
        is_later, at, flags = True, until, flags | RunFlag.AT_REST
    place = Place.LATER if is_later else due_place(flags, gate, spec.min_worker_version)
    return (
        new_run.id,
        int(place),
        new_run.task.id,
        spec.queue,
        -(spec.priority if new_run.priority is None else new_run.priority),
        new_run.run_at,
        at if is_later else None,
        spec.claim_type,
        gate,
        new_run.task.id if flags & RunFlag.ROUND else None,
        rate_key(spec, payload, new_run.overrides),
        flags,
        spec.min_worker_version,
        new_run.parent_id,
        new_run.attempt,
        0,
        0,
        0,
    )


def _input_row(new_run: NewRun) -> tuple[Any, ...]:
    payload = new_run.payload_json
    if payload is None and new_run.payload is not msgspec.UNSET:
        payload = to_json(new_run.payload)
    return (new_run.id, payload, json_or_null(new_run.overrides))


_BY_COUNT = (SkipReason.OVERLAP, SkipReason.CONCURRENCY, SkipReason.QUEUE_FULL)


def add_skip_reasons(q: Dialect, new_runs: Sequence[NewRun]) -> Work[None]:
    skipped = [new_run for new_run in new_runs if new_run.skip_reason is not None]
    if not skipped:
        return
    asked = yield from _asked_by(q, {n.task.id for n in skipped if n.skip_reason is SkipReason.OPERATOR})
    counted = {n.task.id for n in skipped if n.skip_reason in _BY_COUNT and n.blocking_run_id is None}
    oldest = yield from _oldest(q, counted)
    rows: list[tuple[object, ...]] = []
    for new_run in skipped:
        details: dict[str, object] = {}
        if new_run.skip_reason is SkipReason.OPERATOR:
            details = {"by": asked.get(new_run.task.id)}
        else:
            blocking = new_run.blocking_run_id or oldest.get(new_run.task.id)
            details = {"blocking_run_id": blocking} if blocking else {}
        if details:
            rows.append((new_run.id, to_json(details)))
    if rows:
        yield UpdateMany("runs", "id", ("error_details",), rows)


def _asked_by(q: Dialect, task_ids: AbstractSet[int]) -> Work[dict[int, str | None]]:
    rows = yield from q.fetch_by("select task_id, asked_by from skip_orders", "task_id", task_ids)
    return {row[0]: row[1] for row in rows}


def _oldest(q: Dialect, task_ids: AbstractSet[int]) -> Work[dict[int, int]]:
    """The oldest run of each task that is under way or due; those born in this pass count too."""
    more = f" and parent_id is null and place <> {int(Place.LATER)} group by task_id"
    rows = yield from q.fetch_by("select task_id, min(run_id) from live", "task_id", task_ids, more)
    return {row[0]: row[1] for row in rows}
