"""How a run is born: its row of history, its narrow row, what it carries, and its count at the gate of its task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.idempotency import key_of_asked, key_of_part, key_of_slot
from noonbell.model.run import Origin, RunId, RunStatus, SkipReason
from noonbell.model.task import ConcurrencyPolicy, Task, TaskSpec
from noonbell.stores.sql.place import Flag, Place, due_place, flags_for
from noonbell.stores.sql.rows import TaskView, to_json
from noonbell.stores.sql.statement import Execute, InsertMany, NewIds, UpdateMany, Work

RUN_COLUMNS = (
    "id",
    "task_id",
    "task_version",
    "origin",
    "status",
    "slot",
    "scheduled_time",
    "run_at",
    "created_at",
    "updated_at",
    "queue",
    "priority",
    '"key"',
    "live_key",
    "attempt",
    "retry_count",
    "lost_count",
    "retry_of_run_id",
    "parent_id",
    "shard_index",
    "shard_total",
    "skip_reason",
    "trouble",
    "end_time",
    "trace_id",
    "idempotency_key",
)
LIVE_COLUMNS = (
    "run_id",
    "place",
    "task_id",
    "queue",
    "turn",
    "run_at",
    "at",
    "job_type",
    "gate",
    "round_of",
    "rate_key",
    "flags",
    "min_version",
    "parent_id",
    "attempt",
    "retry_count",
    "lost_count",
    "token",
)


@dataclass(slots=True, kw_only=True)
class Newborn:
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
    parent_key: str = ""
    """The idempotency key of the parent, where it is a part."""
    id: RunId = RunId(0)


def gate_limit(spec: TaskSpec) -> tuple[int | None, bool] | None:
    """(limit, has a rate) of the gate that runs of this task wait behind; None if there is none.

    PARALLEL never waits, so its limit is no gate; but 0 admits nothing, whatever the policy.
    """
    limit = spec.max_concurrency
    if spec.concurrency_policy is ConcurrencyPolicy.PARALLEL and limit != 0:
        limit = None
    rated = spec.rate_limit is not None
    return None if limit is None and not rated else (limit, rated)


def rate_key(spec: TaskSpec, payload: Any) -> str | None:
    """The value that a keyed rate limit goes by; runs without it share one."""
    if spec.rate_limit is None or spec.rate_limit.key is None:
        return None
    value = payload
    for part in spec.rate_limit.key.removeprefix("payload.").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return to_json(value)[:200]


def bear(cache: TaskView, now: Instant, newborns: Sequence[Newborn]) -> Work[None]:
    """Write them all. Ids are given here, in order."""
    if not newborns:
        return
    ids = yield NewIds(len(newborns))
    runs: list[tuple[Any, ...]] = []
    live: list[tuple[Any, ...]] = []
    inputs: list[tuple[Any, ...]] = []
    pins: list[tuple[int, str]] = []
    waiting: dict[int, int] = defaultdict(int)
    passed: dict[int, int] = defaultdict(int)
    urgent: dict[int, int] = {}
    for id_, newborn in zip(ids, newborns, strict=True):
        newborn.id = RunId(id_)
        runs.append(_run_row(newborn, now, cache.installation))
        if newborn.skip_reason is not None:
            continue
        row = _live_row(newborn, now)
        live.append(row)
        if newborn.payload is not msgspec.UNSET or newborn.overrides is not None:
            inputs.append(_input_row(newborn))
        pins.extend((id_, worker) for worker in _pinned(newborn))
        place, turn, gate, flags = row[1], row[4], row[8], row[11]
        if gate is not None and place != Place.LATER:
            (passed if flags & Flag.PASSED else waiting)[gate] += 1
            if turn < -newborn.task.spec.priority:
                urgent[gate] = min(turn, urgent.get(gate, turn))
    yield InsertMany("runs", RUN_COLUMNS, runs)
    if live:
        yield InsertMany("live", LIVE_COLUMNS, live)
    if inputs:
        yield InsertMany("inputs", ("run_id", "payload", "overrides"), inputs)
    if pins:
        yield InsertMany("pins", ("run_id", "worker_id"), pins)
    yield from count_at_gates(waiting=waiting, passed=passed)
    for gate, turn in sorted(urgent.items()):
        yield Execute(
            "update gates set top = :turn where task_id = :gate and top > :turn", {"turn": turn, "gate": gate}
        )


def count_at_gates(
    *, used: dict[int, int] | None = None, waiting: dict[int, int] | None = None, passed: dict[int, int] | None = None
) -> Work[None]:
    """Add to the counters of gates, in the order of their ids, so that two transactions cannot wait for each other."""
    used, waiting, passed = used or {}, waiting or {}, passed or {}
    rows = [
        (gate, used.get(gate, 0), waiting.get(gate, 0), passed.get(gate, 0))
        for gate in sorted({*used, *waiting, *passed})
    ]
    rows = [row for row in rows if any(row[1:])]
    if rows:
        yield UpdateMany("gates", "task_id", ("used", "waiting", "passed"), rows, add=True)


def _pinned(newborn: Newborn) -> tuple[str, ...]:
    return newborn.task.spec.specific_worker_ids if newborn.workers is None else newborn.workers


def _flags(newborn: Newborn) -> int:
    spec = newborn.task.spec
    force_async = bool((newborn.overrides or {}).get("force_async"))
    flags = flags_for(spec, newborn.origin, pinned=bool(_pinned(newborn)), force_async=force_async)
    if newborn.parent_id is not None:
        flags = (flags & ~(Flag.FANOUT | Flag.FOLLOW | Flag.ROUND)) | Flag.PART
    if not newborn.gated and newborn.parent_id is None and gate_limit(spec) is not None:
        flags |= Flag.PASSED
    return flags


def _idempotency_key(newborn: Newborn, installation: str) -> str:
    if newborn.shard is not None:
        return key_of_part(newborn.parent_key, *newborn.shard)
    if newborn.origin is Origin.SCHEDULE:
        return key_of_slot(installation, newborn.task.uid, newborn.scheduled_time)
    return key_of_asked(installation)


def _run_row(newborn: Newborn, now: Instant, installation: str) -> tuple[Any, ...]:
    spec, skipped = newborn.task.spec, newborn.skip_reason is not None
    status = RunStatus.SKIPPED if skipped else RunStatus.SCHEDULED
    shard = newborn.shard or (None, None)
    return (
        newborn.id,
        newborn.task.id,
        newborn.task.version,
        newborn.origin,
        status,
        newborn.scheduled_time if newborn.origin is Origin.SCHEDULE and newborn.parent_id is None else None,
        newborn.scheduled_time,
        newborn.run_at,
        now,
        now,
        spec.queue,
        spec.priority if newborn.priority is None else newborn.priority,
        newborn.key,
        newborn.key,
        newborn.attempt,
        0,
        0,
        newborn.retry_of_run_id,
        newborn.parent_id,
        *shard,
        newborn.skip_reason,
        status if skipped else None,
        now if skipped else None,
        newborn.trace_id,
        _idempotency_key(newborn, installation),
    )


def _live_row(newborn: Newborn, now: Instant) -> tuple[Any, ...]:
    spec = newborn.task.spec
    flags = _flags(newborn)
    gate = newborn.task.id if gate_limit(spec) is not None and newborn.parent_id is None else None
    payload = spec.payload if newborn.payload is msgspec.UNSET else newborn.payload
    is_later = newborn.run_at > now
    place = Place.LATER if is_later else due_place(flags, gate, spec.min_worker_version)
    return (
        newborn.id,
        int(place),
        newborn.task.id,
        spec.queue,
        -(spec.priority if newborn.priority is None else newborn.priority),
        newborn.run_at,
        newborn.run_at if is_later else None,
        spec.job_type,
        gate,
        newborn.task.id if flags & Flag.ROUND else None,
        rate_key(spec, payload),
        flags,
        spec.min_worker_version,
        newborn.parent_id,
        newborn.attempt,
        0,
        0,
        0,
    )


def _input_row(newborn: Newborn) -> tuple[Any, ...]:
    payload = None if newborn.payload is msgspec.UNSET else to_json(newborn.payload)
    return (newborn.id, payload, None if newborn.overrides is None else to_json(newborn.overrides))
