"""A run: one piece of work, from birth to its one ending; its attempts; and the table of the changes that are allowed.

The docs' diagram is made from TRANSITIONS (`tools/diagram.py`), and the stores' conformance suite walks it.

Idempotency keys are how a target recognises one piece of work, even after the store was restored. A run's key is made when
the run is created, is stored with it, and is the same for all its attempts. The key of a run that a slot made depends on
the installation, the task and the slot alone: a slot that is run again, because the store was restored or a replica without
the newest writes took over, reaches its target under the same key. The key of a run that was asked for is the
installation's id and the run's; the row holds the first half, and the run's id is in the row already. What is hashed, and
how, never changes: a key must be the same in every version.

One attempt: what a target is given (`Assignment`), the `Outcome` it reports, and the `Settlement` that is written for it.
A worker, the sweep or a callback hands a `Settlement` to the store's `settle`.
"""

from __future__ import annotations

import enum
import hashlib
import re
import uuid
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, NewType

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import Moment, meta
from noonbell.model.task import Task, TaskId, TaskSpec

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
    _S.SCHEDULED: frozenset({_S.RUNNING, _S.CALLBACK_SUCCESS, _S.CANCELED, _S.SKIPPED}),
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


FinalStatus = Literal["SUCCESS", "FAILED", "CANCELED", "SKIPPED"]
_FINAL_STATUSES: Final[dict[RunStatus, FinalStatus]] = {
    **dict.fromkeys(SUCCEEDED, "SUCCESS"),
    **dict.fromkeys((_S.FAILED, _S.TIMEOUT, _S.FAILED_TIMEOUT), "FAILED"),
    _S.CANCELED: "CANCELED",
    _S.SKIPPED: "SKIPPED",
}


def final_status(status: RunStatus) -> FinalStatus | None:
    """None while the run is not final."""
    return _FINAL_STATUSES.get(status)


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
    UPSTREAM = "upstream"
    """Runs of the tasks that it follows have ended."""
    FLOW = "flow"
    """A step of a flow."""
    SPAWN = "spawn"
    """A child of a running job, which asked for it."""
    CALL = "call"
    """An HTTP request without a task, or the telling of the outcome of one."""
    IMPORT = "import"
    """It ran in another system, and its record was brought over. No slot, no claim and no event of ours belongs to it."""


class SkipReason(enum.StrEnum):
    OVERLAP = "overlap"
    FAILURE = "failure"
    BACKOFF = "backoff"
    CIRCUIT_OPEN = "circuit_open"
    CONCURRENCY = "concurrency"
    QUEUE_FULL = "queue_full"
    OPERATOR = "operator"
    UPSTREAM_MISSING = "upstream_missing"
    """The tasks that it follows did not all end as they had to, within the time that it waits for them."""
    EXPIRED = "expired"
    """No worker had claimed it by its `expires_at`."""
    CALENDAR = "calendar"
    """Its day is closed."""
    QUIET = "quiet"
    """It came due in quiet hours that skip."""
    STORE_WENT_BACK = "store_went_back"
    """The store lost its last commits, and it may have been delivered in that time; it must not be twice."""


class DropReason(enum.StrEnum):
    MISFIRE = "misfire"
    CATCHUP_CAP = "catchup_cap"
    CALENDAR = "calendar"
    """Their days are closed, and they are too many for a skip each."""


Omitted = Annotated[
    dict[str, int] | msgspec.UnsetType,
    meta("Where a list left out long fields: their names, each with its size in bytes.", examples=[{}]),
]
"""Unset where nothing was left out. Each item by itself is whole."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[RunId, meta("Below 2^53, roughly in the order of time.", examples=[7340033])]
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["sync_stats"])]
    task_version: Annotated[int, meta(examples=[1])]
    origin: Annotated[Origin, meta("What created it.")]
    status: Annotated[RunStatus, meta(examples=["SUCCESS"])]
    scheduled_time: Annotated[Moment, meta("The slot, or when it was asked for.")]
    run_at: Annotated[Moment, meta("It does not start before this.")]
    created_at: Moment
    updated_at: Moment
    queue: Annotated[str, meta(examples=["http"])]
    moved_to: Annotated[
        Moment | None,
        meta("The slot's day is closed: the calendar has moved it here from `scheduled_time`.", examples=[None]),
    ] = None
    priority: int = 0
    key: str | None = None
    attempt: Annotated[int, meta("The number of attempts, including the current one.", examples=[1])] = 0
    retry_count: Annotated[int, meta("Retries so far.")] = 0
    lost_count: Annotated[int, meta("How many times its worker was lost.")] = 0
    retry_of_run_id: Annotated[RunId | None, meta("The run that this one retries.")] = None
    upstream_run_ids: Annotated[
        tuple[int, ...] | None, meta("The runs whose end started it, of the tasks that it follows.")
    ] = None
    parent_id: Annotated[RunId | None, meta("The fan-out or flow that it is part of, or the run that spawned it.")] = (
        None
    )
    shard_index: int | None = None
    shard_total: int | None = None
    step_id: Annotated[str | None, meta("The step of the flow that it executes.", examples=[None])] = None
    item_index: Annotated[int | None, meta("For a step with `foreach`: which item, counted from 0.")] = None
    skip_reason: Annotated[SkipReason | None, meta("Why a policy skipped it.")] = None
    expires_at: Annotated[
        Moment | None, meta("If no worker has claimed it by then, it is skipped as `expired`.", examples=[None])
    ] = None
    start_time: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:00.004Z"])] = None
    end_time: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:00.184Z"])] = None
    next_retry_time: Moment | None = None
    callback_deadline: Annotated[Moment | None, meta("The deadline for the callback.")] = None
    worker_id: Annotated[str | None, meta(examples=["host-1-4711-a3f0"])] = None
    lease_expires_at: Moment | None = None
    response_code: Annotated[int | None, meta("The HTTP status of the response.", examples=[200])] = None
    result: Annotated[Any, meta("What the handler returned, or the callback's data.")] = None
    error_message: str | None = None
    error_details: Annotated[dict[str, Any] | None, meta("`kind` is the kind of error.")] = None
    progress: dict[str, Any] | None = None
    trace_id: Annotated[
        str | None,
        meta(
            "The same from the trigger's request_id to the target's traceparent.",
            examples=["4bf92f3577b34da6a3ce929d0e0e4736"],
        ),
    ] = None
    idempotency_key: Annotated[
        str | None,
        meta(
            "The idempotency key that the target gets: the same for every attempt, and for a slot that is run again.",
            examples=["5f0c1d7ab3e94c28a6d1e0f27b84c935"],
        ),
    ] = None
    """As it is stored; None for a run from before keys were stored: see `idempotency_key_of`."""
    omitted: Omitted = msgspec.UNSET

    @property
    def final_status(self) -> FinalStatus | None:
        return final_status(self.status)

    @property
    def duration_ms(self) -> int | None:
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time) // 1000


class RunBodies(msgspec.Struct, frozen=True, kw_only=True):
    """The large texts of one attempt, kept apart from the rows that claims and lists read."""

    without: ClassVar[tuple[str, ...]] = ("omitted",)
    """Answers show it with that of the attempt."""

    request_headers: Annotated[dict[str, str] | None, meta(examples=[{"Content-Type": "application/json"}])] = None
    request_body: Annotated[str | None, meta(examples=['{"run_id": "7340033"}'])] = None
    response_headers: Annotated[dict[str, str] | None, meta(examples=[{"Content-Type": "application/json"}])] = None
    response_body: Annotated[str | None, meta(examples=['{"rows": 42}'])] = None
    truncated: bool = False
    omitted: Omitted = msgspec.UNSET


RESENT: Final = "resent"
"""In `error_details`: the request of the attempt was sent a second time, because its first connection was lost."""


MOST_ATTEMPTS: Final = 1_000
"""In one list."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution inside a run. The newest lives in the run's own row; older ones have rows of their own."""

    run_id: Annotated[RunId, meta(examples=[7340033])]
    attempt: Annotated[int, meta("From 1 on.", examples=[1])]
    status: Annotated[str, meta("How it ended: a status of a run, `LOST`, or RUNNING.", examples=["SUCCESS"])]
    worker_id: Annotated[str | None, meta(examples=["host-1-4711-a3f0"])] = None
    start_time: Moment | None = None
    end_time: Moment | None = None
    response_code: Annotated[int | None, meta(examples=[200])] = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None
    omitted: Omitted = msgspec.UNSET
    """Without what was left out of `bodies`, which has its own."""

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


class FlowStep(NamedTuple):
    """A step of one run of a flow."""

    run_id: RunId
    """Of the flow."""
    task_id: TaskId
    step_id: str


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
    run_at: Instant | None = None
    """When it was due: a calendar or jitter may have moved it from `scheduled_time`. None: where no run is behind it."""
    created_at: Instant | None = None
    """None: the claim did not read it."""
    key: str | None = None
    payload: Any = None
    overrides: dict[str, Any] | None = None
    callback_token: str | None = None
    """Readable here and nowhere else; the store keeps its hash."""
    parent_id: RunId | None = None
    shard_index: int | None = None
    shard_total: int | None = None
    step: TaskSpec | None = None
    """Of a step of a flow, and of a call: what it does, in place of what its task says."""
    item_index: int | None = None
    executed_us: int = 0
    """Microseconds that attempts before this one executed until they were parked: its timeout counts them too."""
    trace_id: str | None = None
    idempotency_key: str | None = None
    """As it is stored: see `idempotency_key_of`."""
    plain: bool = False
    """No limit, no follow-up: settling it touches no other row."""
    counted: bool = False
    """A limit counts it, and nothing else follows from its end."""
    in_flow: FlowStep | None = None
    """The step that it is: its flow goes on when it ends, and nothing else follows."""
    keyed: bool = False
    """A key limits it: the next run of that key is let in when it ends, and nothing else follows."""


def key_of_slot(installation: str, task_uid: str, slot: int) -> str:
    """Of the run that a slot makes; `slot` in microseconds since 1970."""
    return _digest(f"slot {installation} {task_uid} {slot}")


def key_of_part(parent_key: str, shard_index: int, shard_total: int) -> str:
    """Of one part of a fan-out. The parent's key stands for all that the parent's is made of."""
    return _digest(f"part {parent_key} {shard_index} {shard_total}")


def key_of_join(installation: str, task_uid: str, root: str, edge_version: int, redrive: int) -> str:
    """Of the run that a join makes. The root is the slot or the run that all its upstream runs go back to."""
    return _digest(f"join {installation} {task_uid} {root} {edge_version} {redrive}")


def key_of_step(parent_key: str, step_id: str, item_index: int | None) -> str:
    """Of the run of a step of a flow, or of one item of it."""
    return _digest(f"step {parent_key} {'-' if item_index is None else item_index} {step_id}")


def key_of_child(parent_key: str, position: int, retry_count: int) -> str:
    """Of the run that a job spawned at this position; `retry_count` is the job's when it did."""
    return _digest(f"child {parent_key} {position} {retry_count}")


def key_of_asked(installation: str) -> str:
    """Of a run that was asked for (a trigger, a publish, a backfill, a run done again), as far as it is stored."""
    return f"{installation}-"


def idempotency_key_of(run_id: int, scheduled_time: int, stored: str | None) -> str:
    """The key of a run, from what is stored of it.

    A run from before keys were stored keeps the form that its target may have seen already.
    """
    if not stored:
        return f"noonbell-{run_id}-{scheduled_time // SECOND}"
    return f"{stored}{run_id}" if stored.endswith("-") else stored


def _digest(text: str) -> str:
    """32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


MOST_CHILDREN: Final = 10_000
"""Of one run."""


class NewRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of a run that is asked for."""

    payload: Any = msgspec.UNSET
    """UNSET: the task's own payload."""
    delay_seconds: float = 0
    run_at: Instant | None = None
    priority: int | None = None
    specific_worker_ids: tuple[str, ...] | None = None
    trace_id: str | None = None


class ChildRequest(NewRunOptions, frozen=True, kw_only=True):
    """A child that a job asks for: the `position`-th that its attempt does, from 0."""

    position: int
    task: str
    """Its name."""


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """How a child stands."""

    position: int
    run_id: RunId
    status: RunStatus
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None


_LEAST = 0.001
"""Seconds that an attempt has at least: enough to be ended by its deadline."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to be carried out."""

    lease: Lease
    task: Task
    previous_scheduled_time: Instant | None = None
    """The slot before this one: with `lease.scheduled_time`, the data interval."""
    callback_url: str | None = None
    """Complete, its token included."""
    traceparent: str | None = None
    """The span of this attempt, where spans are recorded; else the target makes one up."""

    @property
    def timeout_seconds(self) -> float:
        """What is left of the task's timeout: attempts that were parked have used up a part of it."""
        seconds = self.task.spec.timeout_seconds
        executed = self.lease.executed_us
        return max(seconds - executed / SECOND, _LEAST) if executed else seconds


class OutcomeKind(enum.StrEnum):
    SUCCESS = "success"
    ACCEPTED = "accepted"
    """ASYNC: the target has taken it on, its callback will follow."""
    FAILURE = "failure"
    GATHERING = "gathering"
    """The handler waits for its children: the run is parked until they have ended, and then attempted again."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of how an attempt ended."""

    response_code: int | None = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None


class Outcome(AttemptReport, frozen=True, kw_only=True):
    """How an attempt ended, before anybody decides what follows from it."""

    kind: OutcomeKind
    failure: str | None = None
    """With FAILURE: what `error_details.kind` shows, such as `timeout`, `http_5xx` or `error`."""
    retry_after: float | None = None
    """Seconds, as the target asked."""


class Transition(enum.StrEnum):
    """Where a run goes when its attempt has ended."""

    FINISH = "finish"
    """To a final status."""
    RETRY = "retry"
    """RETRYING, until `delay_seconds` from now."""
    PARK = "park"
    """CALLBACK_PENDING: accepted, the deadline is `delay_seconds` from now."""
    GATHER = "gather"
    """RUNNING without a lease, until every child of the run is final; then a further attempt, which is no retry."""
    RELEASE = "release"
    """Back to SCHEDULED, handed back before it did anything: not counted as an attempt."""
    LOSE = "lose"
    """Back to SCHEDULED after its worker was lost: counted as an attempt and as a loss."""


class Precondition(enum.StrEnum):
    """What must still be true of the run when the settlement is written, besides its token."""

    HELD = "held"
    """The lease is the current one: a worker speaks."""
    EXPIRED = "expired"
    """The lease has run out: the sweep speaks."""
    OVERTIME = "overtime"
    """The attempt ran past its deadline: the sweep speaks."""
    ANSWERED = "answered"
    """An attempt was made and the run is not final: a callback speaks."""
    UNANSWERED = "unanswered"
    """CALLBACK_PENDING and past the callback's deadline: the sweep speaks."""


class Settlement(AttemptReport, frozen=True, kw_only=True):
    run_id: RunId
    token: int
    transition: Transition
    status: RunStatus | None = None
    """The final status with FINISH; else how the attempt that ends here is recorded."""
    worker_id: str | None = None
    """Checked against the lease where given."""
    precondition: Precondition = Precondition.HELD
    delay_seconds: float = 0
    task_version: int | None = None
    """The version that the attempt used."""
    plain: bool = False
    """Taken over from the lease, as the next three: see there."""
    counted: bool = False
    in_flow: FlowStep | None = None
    keyed: bool = False
    lease: Lease | None = None
    """As the claim gave it, from a worker of this process: what the figures need of the run is not read again."""


class SettleResult(enum.StrEnum):
    """What became of a settlement."""

    DONE = "done"
    """This call made the change."""
    LOST = "lost"
    """The token is no longer current, or what was expected no longer holds: nothing was written but a note of it."""
