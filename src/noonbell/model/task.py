"""A task: what to do, when, and under which policies.

`TaskSpec` is what somebody writes; `Task` is that spec with the state the store keeps for it. The field names are those
of the API, of the columns and of the command line.
"""

from __future__ import annotations

import enum
from typing import Any, NewType

import msgspec

from noonbell.clock import Instant

TaskId = NewType("TaskId", int)

HTTP_QUEUE = "http"
"""Runs with an HTTP target live here; only built-in workers claim from it."""

SYSTEM_TASK_IDS = 1 << 52
"""Built-in tasks are numbered from here, so that the first task a user makes is number 1."""


class TaskStatus(enum.StrEnum):
    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    COMPLETED = "COMPLETED"
    """The schedule names no further slot."""
    ERROR = "ERROR"
    """The task lost its right to run, until somebody resets it."""


class ExecType(enum.StrEnum):
    SYNC = "SYNC"
    ASYNC = "ASYNC"
    JOB = "JOB"


class OverlapAction(enum.StrEnum):
    ALLOW = "ALLOW"
    SKIP = "SKIP"
    CANCEL_PREV = "CANCEL_PREV"
    PARALLEL = "PARALLEL"


class FailureAction(enum.StrEnum):
    RUN_NEW = "RUN_NEW"
    SKIP = "SKIP"
    RETRY = "RETRY"
    BACKOFF = "BACKOFF"
    HALF_OPEN = "HALF_OPEN"


class ConcurrencyPolicy(enum.StrEnum):
    QUEUE = "QUEUE"
    SKIP = "SKIP"
    PARALLEL = "PARALLEL"


class MisfirePolicy(enum.StrEnum):
    FIRE_NOW = "FIRE_NOW"
    FIRE_ONCE = "FIRE_ONCE"
    SKIP = "SKIP"
    CATCH_UP_LIMITED = "CATCH_UP_LIMITED"


class RetryStrategy(enum.StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Delivery(enum.StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class OnLost(enum.StrEnum):
    RETRY = "RETRY"
    FAIL = "FAIL"


class OnExhausted(enum.StrEnum):
    KEEP = "KEEP"
    ERROR = "ERROR"


RETRY_ON_DEFAULT = ("network", "timeout", "5xx", "429", "error")
RETRY_ON = (*RETRY_ON_DEFAULT, "callback_failed", "callback_timeout")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Delays are seconds. `max_retries` counts what comes after the first attempt."""

    max_retries: int = 0
    strategy: RetryStrategy = RetryStrategy.EXPONENTIAL
    local: bool = False
    initial_delay: float = 5
    max_delay: float = 300
    jitter: float = 0
    retry_on: tuple[str, ...] = RETRY_ON_DEFAULT


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    failures: int = 3
    cool_down_seconds: int = 300


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` starts in any stretch of `per_seconds`; with `key`, for each value of that payload field."""

    max: int
    per_seconds: float
    key: str | None = None


class Fanout(msgspec.Struct, frozen=True, kw_only=True):
    workers: int | str
    """How many different workers, or "all"."""
    success: int | str = "all"
    """How many of the parts must succeed, "all" or "any"."""


NEVER = Instant(0)

_BY_KIND = -1


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wrote, complete: a default that depends on the kind of target is filled in on construction.

    Checked where it comes in (`service.tasks`); the store takes it as it is.
    """

    name: str
    description: str = ""
    labels: dict[str, str] = {}
    managed_by: str = "api"
    external_id: str | None = None
    meta: dict[str, Any] = {}

    schedule: dict[str, Any] | None = None
    """In the normal form of `when.normalise`; None = on demand only."""
    timezone: str = "UTC"
    start_at: Instant | None = None
    end_at: Instant | None = None
    jitter_seconds: int = 0

    exec_type: ExecType = ExecType.SYNC
    http_method: str = "GET"
    target_url: str | None = None
    headers: dict[str, str] = {}
    body_template: str | None = None
    follow_redirects: bool = False
    secret: str | None = None
    callback_method: str = "POST"
    callback_timeout_sec: int = 300
    job_type: str | None = None
    payload: Any = None
    queue: str = ""
    """Filled in: `http` for HTTP targets, `default` for jobs."""

    timeout_seconds: float = 0
    """Zero and below mean the default of the kind: 10 for HTTP, 300 for jobs."""
    retry_policy: RetryPolicy | None = None
    """Filled in: no retry for HTTP targets, 3 for jobs."""
    max_concurrency: int | None = _BY_KIND
    """None = no limit, 0 = admit nothing. Filled in: 1 for HTTP targets, none for jobs."""
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.QUEUE
    queue_depth: int | None = None
    overlap_action: OverlapAction = OverlapAction.ALLOW
    failure_action: FailureAction = FailureAction.RUN_NEW
    circuit: Circuit = Circuit()
    misfire_policy: MisfirePolicy = MisfirePolicy.FIRE_NOW
    catchup_limit: int = 0
    misfire_grace_seconds: int = 10

    priority: int = 0
    rate_limit: RateLimit | None = None
    worker_timeout_ms: int = 15_000
    ping_interval_ms: int = 5_000
    specific_worker_ids: tuple[str, ...] = ()
    min_worker_version: int = 0
    fanout: Fanout | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    on_lost: OnLost = OnLost.RETRY
    max_lost: int = 3
    on_exhausted: OnExhausted = OnExhausted.KEEP
    delete_on_complete: bool = False

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        if self.job_type is not None and self.exec_type is not ExecType.JOB:
            put(self, "exec_type", ExecType.JOB)
        is_job = self.exec_type is ExecType.JOB
        if not self.queue:
            put(self, "queue", "default" if is_job else HTTP_QUEUE)
        if self.timeout_seconds <= 0:
            put(self, "timeout_seconds", 300 if is_job else 10)
        if self.retry_policy is None:
            put(self, "retry_policy", RetryPolicy(max_retries=3 if is_job else 0))
        if self.max_concurrency == _BY_KIND:
            put(self, "max_concurrency", None if is_job else 1)

    @property
    def retries(self) -> RetryPolicy:
        """The retry policy; at most once means no retry, whatever the policy says."""
        assert self.retry_policy is not None  # noqa: S101 - filled in on construction
        if self.delivery is Delivery.AT_MOST_ONCE:
            return msgspec.structs.replace(self.retry_policy, max_retries=0)
        return self.retry_policy


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: TaskId
    version: int
    status: TaskStatus
    spec: TaskSpec
    created_at: Instant
    updated_at: Instant
    created_by: str | None = None
    deleted_at: Instant | None = None
    uid: str = ""
    """Its name in idempotency keys: random, never given twice, and the same wherever the store is moved to."""

    next_fire_at: Instant | None = None
    """The cursor: the first slot that is not accounted for yet."""
    fired: int = 0
    """Slots accounted for since creation, change of schedule or reset: what `repeat` counts."""
    skip_next: int = 0
    """How many of the coming slots an operator wants skipped."""
    accounted_to: Instant = NEVER
    """The last slot that is accounted for: no cursor goes back to it, whatever the clock does."""

    @property
    def name(self) -> str:
        return self.spec.name


class TaskVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it was from `valid_from` on, until the next version or for ever."""

    task_id: TaskId
    version: int
    valid_from: Instant
    status: TaskStatus
    deleted: bool
    changed_by: str | None
    spec: TaskSpec
    accounted_to: Instant = NEVER
    """The last slot that was accounted for when it began."""
    fired: int = 0
    """What the repeat count stood at."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """How the last started round of a task went, and the row of failures behind it.

    Kept with the task, and only where a policy asks for it, so that retention cannot erase it.
    """

    task_id: TaskId
    run_id: int
    status: str
    attempt: int
    end_time: Instant | None = None
    failures: int = 0
    """Rounds that failed in a row, this one included if it did."""
    replaced: bool = False
    """Canceled to make room for the next round: not a failure."""
    skipped_run_id: int | None = None
    """The round whose failure has been answered with a skip already."""
