"""A run: one piece of work, from birth to its one ending; and the table of the changes that are allowed.

The docs' diagram is made from TRANSITIONS (`tools/diagram.py`), and the stores' conformance suite walks it.
"""

from __future__ import annotations

import enum
import hashlib
import re
import uuid
from functools import lru_cache
from typing import Any, Final, NewType

import msgspec

from noonbell.clock import Instant
from noonbell.model.task import TaskId

RunId = NewType("RunId", int)


class RunStatus(enum.StrEnum):
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    CALLBACK_PENDING = "CALLBACK_PENDING"
    SUCCESS = "SUCCESS"
    CALLBACK_SUCCESS = "CALLBACK_SUCCESS"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    FAILED_TIMEOUT = "FAILED_TIMEOUT"
    CANCELED = "CANCELED"
    SKIPPED = "SKIPPED"


_S = RunStatus

TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    _S.SCHEDULED: frozenset({_S.RUNNING, _S.CALLBACK_SUCCESS, _S.CANCELED}),
    _S.RUNNING: frozenset(
        {
            _S.SCHEDULED,
            _S.RETRYING,
            _S.CALLBACK_PENDING,
            _S.SUCCESS,
            _S.CALLBACK_SUCCESS,
            _S.FAILED,
            _S.TIMEOUT,
            _S.CANCELED,
        }
    ),
    _S.RETRYING: frozenset({_S.RUNNING, _S.CALLBACK_SUCCESS, _S.CANCELED}),
    _S.CALLBACK_PENDING: frozenset({_S.RETRYING, _S.CALLBACK_SUCCESS, _S.FAILED, _S.FAILED_TIMEOUT, _S.CANCELED}),
    _S.SUCCESS: frozenset(),
    _S.CALLBACK_SUCCESS: frozenset(),
    _S.FAILED: frozenset(),
    _S.TIMEOUT: frozenset(),
    _S.FAILED_TIMEOUT: frozenset(),
    _S.CANCELED: frozenset(),
    _S.SKIPPED: frozenset(),
}
"""From each status, where a run may go. Nothing leaves a final one.

A run that waits again after an attempt (lost, or to be retried) may still be finished by that attempt's callback.
"""

BORN = frozenset({_S.SCHEDULED, _S.SKIPPED})
FINAL = frozenset(status for status, onward in TRANSITIONS.items() if not onward)
SUCCEEDED = frozenset({_S.SUCCESS, _S.CALLBACK_SUCCESS})
FAILURES = frozenset({_S.FAILED, _S.TIMEOUT, _S.FAILED_TIMEOUT, _S.CANCELED})
"""What the failure policy answers to: an operator's cancel counts."""
OVERLAPPING = frozenset({_S.RUNNING, _S.RETRYING, _S.CALLBACK_PENDING})


def final_status(status: RunStatus) -> str | None:
    """SUCCESS, FAILED, CANCELED or SKIPPED; None while the run is not final."""
    if status not in FINAL:
        return None
    if status in SUCCEEDED:
        return "SUCCESS"
    return "FAILED" if status in (_S.TIMEOUT, _S.FAILED_TIMEOUT) else str(status)


_TRACE_ID = re.compile(r"(?:00-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?")


@lru_cache(maxsize=4096)  # the request asks for it, and the log when its outcome is settled
def trace_id_of(run_id: int, scheduled_time: int, given: str | None) -> str:
    """32 hex digits, the same for every attempt of a run: those it was given, or made of what it has instead."""
    if given and (match := _TRACE_ID.fullmatch(given)) and match[1].strip("0"):
        return match[1]
    source = given or f"run {run_id} of {scheduled_time}"
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:32]


_EXECUTION: Final = 0x6E6F6F6E_6265_8C6C_8 << 60
"""The fixed half of an execution id: `noonbel`, with the version (8, an id of one's own making) and variant of a UUID."""


def execution_id_of(run_id: int) -> uuid.UUID:
    """The run's id for those who know runs by UUIDs. The same for every attempt; unique within one store."""
    return uuid.UUID(int=_EXECUTION | run_id)


def run_of_execution(execution_id: uuid.UUID) -> RunId | None:
    """The inverse; None for a UUID that no run has."""
    run_id = execution_id.int ^ _EXECUTION
    return RunId(run_id) if 0 < run_id < 1 << 53 else None


class Origin(enum.StrEnum):
    SCHEDULE = "schedule"
    TRIGGER = "trigger"
    PUBLISH = "publish"
    BACKFILL = "backfill"
    RETRY = "retry"


class SkipReason(enum.StrEnum):
    OVERLAP = "overlap"
    FAILURE = "failure"
    BACKOFF = "backoff"
    CIRCUIT_OPEN = "circuit_open"
    CONCURRENCY = "concurrency"
    QUEUE_FULL = "queue_full"
    OPERATOR = "operator"


class DropReason(enum.StrEnum):
    MISFIRE = "misfire"
    CATCHUP_CAP = "catchup_cap"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    id: RunId
    task_id: TaskId
    task_name: str
    task_version: int
    origin: Origin
    status: RunStatus
    scheduled_time: Instant
    """The slot it was born from, or when it was asked for."""
    run_at: Instant
    """Not before this."""
    created_at: Instant
    updated_at: Instant
    queue: str
    priority: int = 0
    key: str | None = None
    attempt: int = 0
    retry_count: int = 0
    lost_count: int = 0
    retry_of_run_id: RunId | None = None
    parent_id: RunId | None = None
    shard_index: int | None = None
    shard_total: int | None = None
    skip_reason: SkipReason | None = None
    start_time: Instant | None = None
    end_time: Instant | None = None
    next_retry_time: Instant | None = None
    callback_deadline: Instant | None = None
    worker_id: str | None = None
    lease_expires_at: Instant | None = None
    response_code: int | None = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    """As it is stored; None for a run from before keys were stored: see `model.idempotency`."""

    @property
    def final_status(self) -> str | None:
        return final_status(self.status)

    @property
    def duration_ms(self) -> int | None:
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time) // 1000


class RunBodies(msgspec.Struct, frozen=True, kw_only=True):
    """The large texts of one attempt, kept apart from the rows that claims and lists read."""

    request_headers: dict[str, str] | None = None
    request_body: str | None = None
    response_headers: dict[str, str] | None = None
    response_body: str | None = None
    truncated: bool = False


RESENT: Final = "resent"
"""In `error_details`: the request of the attempt was sent a second time, because its first connection was lost."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution inside a run. The newest lives in the run's own row; older ones have rows of their own."""

    run_id: RunId
    attempt: int
    status: str
    """How it ended: a RunStatus, `LOST`, or RUNNING."""
    worker_id: str | None = None
    start_time: Instant | None = None
    end_time: Instant | None = None
    response_code: int | None = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None

    @property
    def is_resent(self) -> bool:
        return bool((self.error_details or {}).get(RESENT))


class DroppedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that the misfire policy left out: `count` of them, from `first` to `last`."""

    task_id: TaskId
    first: Instant
    last: Instant
    count: int
    reason: DropReason
    at: Instant


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed run in the hands of a worker. `token` fences every write that follows."""

    run_id: RunId
    task_id: TaskId
    task_version: int
    worker_id: str
    token: int
    attempt: int
    retry_count: int
    lost_count: int
    queue: str
    priority: int
    origin: Origin
    scheduled_time: Instant
    claimed_at: Instant
    expires_at: Instant
    deadline_at: Instant
    key: str | None = None
    payload: Any = None
    overrides: dict[str, Any] | None = None
    callback_token: str | None = None
    """Readable here and nowhere else; the store keeps its hash."""
    parent_id: RunId | None = None
    shard_index: int | None = None
    shard_total: int | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    """As it is stored: see `model.idempotency`."""
    plain: bool = False
    """No limit, no follow-up: settling it touches no other row."""
    counted: bool = False
    """A limit counts it, and nothing else follows from its end."""
