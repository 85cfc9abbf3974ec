"""Rows to models and back."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell import when
from noonbell.errors import ScheduleError
from noonbell.model.run import Origin, Run, RunId, RunStatus, SkipReason
from noonbell.model.task import NEVER, Task, TaskId, TaskSpec, TaskStatus
from noonbell.policy.account import bounds_of
from noonbell.stores.migrations.m0007_keys import EARLIER_UID
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.statement import Row
from noonbell.when.schedule import Schedule

_JSON = frozenset(
    {
        "labels",
        "meta",
        "schedule",
        "headers",
        "payload",
        "retry_policy",
        "circuit",
        "rate_limit",
        "specific_worker_ids",
        "fanout",
    }
)
_NULLABLE_JSON = frozenset({"schedule", "rate_limit", "fanout"})
_BOOLS = frozenset({"follow_redirects", "delete_on_complete"})

SPEC_COLUMNS: tuple[str, ...] = TaskSpec.__struct_fields__
_STATE_COLUMNS = ("id", "version", "status", "created_by", "created_at", "updated_at", "deleted_at", "uid")
TASK_COLUMNS = (*SPEC_COLUMNS, *_STATE_COLUMNS)
TASK_SELECT = (
    "select "
    + ", ".join(f"t.{column}" for column in TASK_COLUMNS)
    + ", c.next_fire_at, c.fired, c.skip_next, c.accounted_to from tasks t left join cursors c on c.task_id = t.id"
)

encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder()


def to_json(value: Any) -> str:
    return encoder.encode(value).decode()


def from_json(text: str | None) -> Any:
    return None if text is None else decoder.decode(text)


def spec_values(spec: TaskSpec) -> list[Any]:
    """The values of SPEC_COLUMNS."""
    values: list[Any] = []
    for column in SPEC_COLUMNS:
        value = getattr(spec, column)
        if column in _JSON:
            value = None if value is None and column in _NULLABLE_JSON else to_json(value)
        elif column in _BOOLS:
            value = int(value)
        values.append(value)
    return values


def spec_from(row: Row) -> TaskSpec:
    fields: dict[str, Any] = {}
    for column, value in zip(SPEC_COLUMNS, row, strict=False):
        if column in _JSON:
            fields[column] = from_json(value)
        elif column in _BOOLS:
            fields[column] = bool(value)
        else:
            fields[column] = value
    return msgspec.convert(fields, TaskSpec)


def task_from(row: Row) -> Task:
    """From the columns of TASK_SELECT."""
    width = len(SPEC_COLUMNS)
    task_id, version, status, created_by, created_at, updated_at, deleted_at, uid = row[width : width + 8]
    next_fire_at, fired, skip_next, accounted_to = row[width + 8 : width + 12]
    return Task(
        id=task_id,
        version=version,
        status=TaskStatus(status),
        spec=spec_from(row[:width]),
        created_at=created_at,
        updated_at=updated_at,
        created_by=created_by,
        deleted_at=deleted_at,
        uid=uid or f"{EARLIER_UID}{task_id}",
        next_fire_at=next_fire_at,
        fired=fired or 0,
        skip_next=skip_next or 0,
        accounted_to=accounted_to or NEVER,
    )


class Known:
    """A task's spec as of one version, with its schedule parsed: what a pass needs, without reading the wide row."""

    __slots__ = ("bounds", "schedule", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.bounds = bounds_of(task.spec)
        self.schedule: Schedule | None = None
        """None without a schedule, and with one that cannot be read: a zone may be gone from the zone data."""
        if task.spec.schedule is not None:
            with contextlib.suppress(ScheduleError):
                self.schedule = when.parse(task.spec.schedule, task.spec.timezone)


class TaskCache:
    """The tasks seen last, by id and version. A committed version never changes its meaning: nothing here is stale."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self.installation = ""
        """The id of the installation, from when the store is open: it goes into the keys of new runs."""
        self._known: OrderedDict[TaskId, Known] = OrderedDict()

    def get(self, task_id: TaskId, version: int) -> Known | None:
        known = self._known.get(task_id)
        return known if known is not None and known.task.version == version else None

    def newest(self, task_id: TaskId) -> Known | None:
        return self._known.get(task_id)

    def add(self, known: Known) -> None:
        there = self._known.get(known.task.id)
        if there is not None and there.task.version > known.task.version:
            return
        self._known[known.task.id] = known
        self._known.move_to_end(known.task.id)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


class TaskView:
    """The cache as one transaction sees it. What it adds is kept only when the transaction has committed.

    A version that was rolled back may be made again by another node, with another meaning.
    """

    def __init__(self, shared: TaskCache) -> None:
        self._shared = shared
        self._own: dict[int, Known] = {}

    def get(self, task_id: TaskId, version: int) -> Known | None:
        own = self._own.get(task_id)
        if own is not None:
            return own if own.task.version == version else None
        return self._shared.get(task_id, version)

    @property
    def installation(self) -> str:
        return self._shared.installation

    def put(self, task: Task) -> Known:
        known = self._own[task.id] = Known(task)
        return known

    def keep(self) -> None:
        """The transaction has committed."""
        for known in self._own.values():
            self._shared.add(known)


RUN_COLUMNS = (
    "id",
    "task_id",
    "task_version",
    "origin",
    "status",
    "scheduled_time",
    "run_at",
    "created_at",
    "updated_at",
    "queue",
    "priority",
    '"key"',
    "attempt",
    "retry_count",
    "lost_count",
    "retry_of_run_id",
    "parent_id",
    "shard_index",
    "shard_total",
    "skip_reason",
    "start_time",
    "end_time",
    "next_retry_time",
    "callback_deadline",
    "worker_id",
    "response_code",
    "result",
    "error_message",
    "error_details",
    "trace_id",
    "idempotency_key",
)
_RUN_FIELDS = tuple(column.strip('"') for column in RUN_COLUMNS)
_LIVE_COLUMNS = ("place", "attempt", "claimed_at", "worker_id", "expires_at")
RUN_SELECT = (
    "select "
    + ", ".join(f"r.{column}" for column in RUN_COLUMNS)
    + ", t.name, "
    + ", ".join(f"l.{column}" for column in _LIVE_COLUMNS)
    + ", p.data from runs r join tasks t on t.id = r.task_id"
    + " left join live l on l.run_id = r.id left join progress p on p.run_id = r.id"
)


def run_from(row: Row) -> Run:
    """From the columns of RUN_SELECT: history, and the narrow row where the run is not final."""
    fields: dict[str, Any] = dict(zip(_RUN_FIELDS, row, strict=False))
    name, place, attempt, claimed_at, worker_id, expires_at, progress = row[len(RUN_COLUMNS) :]
    if place is not None:
        fields["attempt"] = attempt
        if place in (Place.LEASED, Place.PARENT):
            fields["status"] = RunStatus.RUNNING
            fields["start_time"] = claimed_at
            fields["worker_id"] = worker_id
    fields["result"] = from_json(fields["result"])
    fields["error_details"] = from_json(fields["error_details"])
    fields["status"] = RunStatus(fields["status"])
    fields["origin"] = Origin(fields["origin"])
    if fields["skip_reason"] is not None:
        fields["skip_reason"] = SkipReason(fields["skip_reason"])
    return Run(
        task_name=name,
        lease_expires_at=expires_at if place == Place.LEASED else None,
        progress=from_json(progress),
        **fields,
    )


def run_ids(values: Sequence[int]) -> tuple[RunId, ...]:
    return tuple(RunId(value) for value in values)
