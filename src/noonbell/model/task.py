"""A task: what to do, when, and under which policies.

`TaskSpec` is what a user writes; `Task` is that spec with the state the store keeps for it. The field names are those
of the API, of the columns and of the command line.
"""

from __future__ import annotations

import enum
import shlex
from typing import Annotated, Any, ClassVar, Final, NewType

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment
from noonbell.fields import meta as described
from noonbell.model.broker import BrokerMessage
from noonbell.model.calendar import LONGEST_SPREAD, MOST_QUIET, CalendarUse, QuietHours
from noonbell.model.sla import Sla
from noonbell.model.target_kind import KIND_OF, TARGET_KINDS, ExecType, TargetedTask, TargetKind
from noonbell.model.task_schedule import NEVER, YEAR, Labels

TaskId = NewType("TaskId", int)

SYSTEM_TASK_IDS = 1 << 52
"""Built-in tasks are numbered from here, so that the first task a user makes is number 1."""


SCHEDULER_ACTOR: Final = "scheduler"
"""Who did it, where the scheduler did by itself what an operator may do: it resumes a task whose pause has ended."""


class TaskStatus(enum.StrEnum):
    ENABLED = "ENABLED"
    DISABLED = "DISABLED"
    COMPLETED = "COMPLETED"
    """The schedule names no further slot."""
    ERROR = "ERROR"
    """The task lost its right to run, until an operator resets it."""


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
INT32 = 2**31 - 1


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Delays are seconds. `max_retries` counts what comes after the first attempt."""

    noun: ClassVar[str] = "a retry policy"

    max_retries: Annotated[
        int,
        described(
            "After the first attempt. Default 0 for HTTP and COMMAND, 3 for JOB and brokers.",
            ge=0,
            le=100_000,
            default=None,
        ),
    ] = 0
    strategy: Annotated[RetryStrategy, described("The delay before each retry: the same, or twice the one before.")] = (
        RetryStrategy.EXPONENTIAL
    )
    local: Annotated[bool, described("The worker that has the run tries again itself, and keeps it meanwhile.")] = False
    initial_delay: Annotated[float, described("Seconds before the first retry.", ge=0, le=YEAR)] = 5
    max_delay: Annotated[float, described("Seconds; no delay is longer.", ge=0, le=YEAR)] = 300
    jitter: Annotated[float, described("The part of each delay that is left to chance.", ge=0, le=1)] = 0
    retry_on: Annotated[
        tuple[Annotated[str, described(choices=RETRY_ON)], ...],
        described("The failures that are retried.", max_length=len(RETRY_ON) * 2),
    ] = RETRY_ON_DEFAULT


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a circuit"

    failures: Annotated[int, described("In a row, before slots are skipped.", ge=1, le=1_000_000)] = 3
    cool_down_seconds: Annotated[int, described("Then one run is tried again after this.", ge=0, le=YEAR)] = 300


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max` starts in any stretch of `per_seconds`; with `key`, for each value of that payload field."""

    noun: ClassVar[str] = "a rate limit"

    max: Annotated[int, described("Starts.", ge=1, le=1_000_000, missing="the number of starts", examples=[100])]
    per_seconds: Annotated[
        float,
        described(
            "In any stretch of this length.",
            ge=0.001,
            le=2_592_000,
            missing="the length of the period in seconds",
            examples=[60.0],
        ),
    ]
    key: Annotated[
        str | None,
        described("Of a task: the field of the payload whose values are limited each for itself.", min_length=1),
    ] = None


MOST_WORKERS = 10_000
_Workers = Annotated[int, described(ge=1, le=MOST_WORKERS)]


class Fanout(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a fan-out"

    workers: Annotated[
        _Workers | Annotated[str, described(choices=("all",))],
        described(
            'How many different workers, or "all".',
            expected=f'a number from 1 to {MOST_WORKERS}, or "all"',
            missing='a number of workers, or "all"',
            examples=["all"],
        ),
    ]
    success: Annotated[
        _Workers | Annotated[str, described(choices=("all", "any"))],
        described(
            'How many of the parts must succeed, "all" or "any".',
            expected=f'a number from 1 to {MOST_WORKERS}, or "all", "any"',
        ),
    ] = "all"


_NAMED_BY = tuple((kind.named_by, kind.exec_types[0]) for kind in TARGET_KINDS[:-1])
"""A task with such a field is of its kind. The last kind has those of a task that names nothing."""
_BY_KIND = -1

MOST_STEPS: Final = 1_000
MOST_ITEMS: Final = 10_000
"""Of one `foreach`."""


class TaskSpec(TargetedTask, frozen=True, kw_only=True):
    """What a task is asked to do, complete: a default that depends on the kind of target is filled in on construction.

    Checked where it comes in (`service.task_fields`); the store takes it as it is. What `meta` says here is what the API
    enforces and describes, what files of tasks are checked by, and what the form and `App.job` take.
    """

    noun: ClassVar[str] = "a task"

    timeout_seconds: Annotated[
        float,
        described(
            "Timeout of one attempt. 0 and below: the default, 10 for HTTP and brokers, 300 for JOB, 3600 for COMMAND.",
            ge=-YEAR,
            le=2_592_000,
            expected="seconds, at most 2592000 (30 days)",
            default=None,
            examples=[10],
        ),
    ] = 0
    retry_policy: Annotated[
        RetryPolicy | None,
        described("Retries after the first attempt: 3 for JOB and brokers by default, else none.", default=None),
    ] = None
    max_concurrency: Annotated[
        int | None,
        described(
            "Runs at once. Null: no limit; 0: none. Default 1 for HTTP and COMMAND, null for JOB and brokers.",
            ge=0,
            le=1_000_000,
            expected="0 to 1000000, or null for no limit",
            default=None,
            examples=[1],
        ),
    ] = _BY_KIND
    concurrency_policy: Annotated[ConcurrencyPolicy, described("At the limit: wait, skip, or run anyway.")] = (
        ConcurrencyPolicy.QUEUE
    )
    queue_depth: Annotated[
        int | None,
        described(
            "How many runs may wait at the limit; null: no limit.",
            ge=0,
            le=INT32,
            expected="0 or more, or null for no limit",
        ),
    ] = None
    overlap_action: Annotated[
        OverlapAction, described("What to do with a slot while the previous run is still running.")
    ] = OverlapAction.ALLOW
    failure_action: Annotated[FailureAction, described("What to do with a slot after a failed run.")] = (
        FailureAction.RUN_NEW
    )
    circuit: Annotated[Circuit, described("For HALF_OPEN.")] = Circuit()
    misfire_policy: Annotated[MisfirePolicy, described("What to do with late slots.")] = MisfirePolicy.FIRE_NOW
    catchup_limit: Annotated[
        int, described("With CATCH_UP_LIMITED: how many late slots run, 1 or more.", ge=0, le=100_000)
    ] = 0
    misfire_grace_seconds: Annotated[int, described("A slot older than this is late.", ge=0, le=YEAR)] = 10

    priority: Annotated[int, described("Higher runs first.", ge=-1_000_000_000, le=1_000_000_000)] = 0
    rate_limit: Annotated[RateLimit | None, described("At most `max` starts in any period of `per_seconds`.")] = None
    concurrency_key: Annotated[
        str | None,
        described(
            "The field of the payload whose values are the keys of runs: at most `max_per_key` runs with the same key run at once.",
            min_length=1,
            examples=["payload.tenant"],
        ),
    ] = None
    max_per_key: Annotated[
        int,
        described(
            "Runs with the same `concurrency_key` that run at once, across all nodes; the others wait.",
            ge=1,
            le=1_000_000,
        ),
    ] = 1
    worker_timeout_ms: Annotated[int, described("The lease.", ge=100, le=86_400_000)] = 15_000
    ping_interval_ms: Annotated[
        int, described("The heartbeat: 5000 by default, or a third of a shorter lease.", ge=10, le=28_800_000)
    ] = 5_000
    expires_in_seconds: Annotated[
        int | None,
        described(
            "A run that no worker has claimed this long after it was due is skipped as `expired`; null: it waits forever.",
            ge=1,
            le=YEAR,
        ),
    ] = None
    quiet: Annotated[
        tuple[QuietHours, ...],
        described(
            "Times of the day in which its runs do not start: they wait for the end, or their slots are skipped. Manually triggered runs start anyway.",
            max_length=MOST_QUIET,
        ),
    ] = ()
    spread_seconds: Annotated[
        int,
        described("After quiet hours, the runs that waited start evenly within this time.", ge=0, le=LONGEST_SPREAD),
    ] = 0
    sla: Annotated[
        Sla | None,
        described(
            "What is promised about its runs: when they start and end, and how many succeed. Null: the settings for its labels apply; an empty object: nothing."
        ),
    ] = None
    specific_worker_ids: Annotated[tuple[str, ...], described("Only these workers; empty: any.", max_length=1_000)] = ()
    min_worker_version: Annotated[int, described("Only workers of this version or newer.", ge=0, le=INT32)] = 0
    worker_labels: Annotated[
        Labels,
        described("Only workers that have all of these labels (`--label NAME=VALUE`); empty: any.", max_length=50),
    ] = msgspec.field(default_factory=dict)
    fanout: Annotated[Fanout | None, described("Each run is executed by several workers.")] = None
    delivery: Annotated[Delivery, described("at_most_once: an attempt that may have started is never repeated.")] = (
        Delivery.AT_LEAST_ONCE
    )
    on_lost: Annotated[
        OnLost,
        described("When a worker dies: run it again, or fail. Default `recovery.orphaned_runs`: RETRY.", default=None),
    ] = OnLost.RETRY
    max_lost: Annotated[int, described("How many times it may be lost before it fails.", ge=0, le=1_000_000)] = 3
    on_exhausted: Annotated[OnExhausted, described("What happens to the task when a run fails for good.")] = (
        OnExhausted.KEEP
    )
    delete_on_complete: Annotated[bool, described("Delete the task after its last slot.")] = False
    steps: Annotated[
        tuple[Step, ...],
        described(
            "FLOW: the steps, in the order that `needs` sets.",
            anything=True,
            max_length=MOST_STEPS,
            expected=f"a list of 1 to {MOST_STEPS} steps",
        ),
    ] = ()

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        for name, exec_type in _NAMED_BY:
            if getattr(self, name) not in (None, ()):
                put(self, "exec_type", exec_type)
        kind = self.target_kind
        if not self.queue:
            put(self, "queue", kind.queue)
        if self.timeout_seconds <= 0:
            put(self, "timeout_seconds", kind.timeout_seconds)
        if self.retry_policy is None:
            put(self, "retry_policy", RetryPolicy(max_retries=kind.max_retries))
        if self.max_concurrency == _BY_KIND:
            put(self, "max_concurrency", kind.max_concurrency)

    @property
    def target_kind(self) -> TargetKind:
        return KIND_OF[self.exec_type]

    @property
    def is_scheduled(self) -> bool:
        """Whether it has a schedule, or several. False: it runs on demand, or after others."""
        return self.schedule is not None or bool(self.schedules)

    @property
    def claim_type(self) -> str | None:
        """The job type that its runs wait under; None: any worker of the queue may claim them."""
        return self.target_kind.claimed_as or self.job_type

    @property
    def message(self) -> BrokerMessage | None:
        """What is published, where it is a broker's task."""
        return self.amqp or self.nats or self.redis or self.mqtt

    @property
    def awaits_callback(self) -> bool:
        """Whether an attempt that went well leaves the run waiting for a callback."""
        message = self.message or self.grpc
        return self.exec_type is ExecType.ASYNC if message is None else message.callback

    @property
    def callback_seconds(self) -> int:
        """How long the run waits for it."""
        message = self.message
        return self.callback_timeout_sec if message is None else message.callback_timeout_sec

    @property
    def command_line(self) -> str:
        """The command in one text, as a shell would read it; empty where there is none."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command or ())

    @property
    def called(self) -> str:
        """What it calls, in one line: a URL, a gRPC method, where a message goes, a job type or a command."""
        if self.message is not None:
            return self.message.destination
        if self.grpc is not None:
            return self.grpc.method
        return self.job_type or self.target_url or self.command_line

    @property
    def retries(self) -> RetryPolicy:
        """The retry policy; at most once means no retry, against the policy."""
        assert self.retry_policy is not None  # noqa: S101 - filled in on construction
        if self.delivery is Delivery.AT_MOST_ONCE:
            return msgspec.structs.replace(self.retry_policy, max_retries=0)
        return self.retry_policy


class StepOn(enum.StrEnum):
    """How the steps that a step needs must have ended for it to run."""

    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"
    ANY = "any"


class Step(TaskSpec, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a flow: what a task says of its target, and when its turn comes.

    It is a TaskSpec, so that a step's run is carried out as that of any other task.
    """

    noun: ClassVar[str] = "a step"
    without: ClassVar[tuple[str, ...]] = (
        *("name", "description", "labels", "managed_by", "external_id", "meta", "schedule", "timezone", "start_at"),
        *(
            "schedules",
            "exclude",
            "dst",
            "end_at",
            "jitter_seconds",
            "calendar",
            "after",
            "max_concurrency",
            "concurrency_policy",
            "queue_depth",
            "overlap_action",
        ),
        *("failure_action", "circuit", "misfire_policy", "catchup_limit", "misfire_grace_seconds", "rate_limit"),
        *("concurrency_key", "max_per_key", "worker_labels"),
        *("quiet", "spread_seconds", "sla"),
        *("fanout", "on_exhausted", "delete_on_complete", "steps"),
    )

    name: str = ""
    max_concurrency: int | None = None

    id: Annotated[
        str,
        described(
            "What the other steps call it: letters, digits, _ and -, no digit or - first.",
            min_length=1,
            max_length=64,
            pattern="[A-Za-z_][A-Za-z0-9_-]{0,63}",
            expected="1 to 64 letters, digits, _ and -, the first a letter or _",
            missing="a name that is unique among the steps",
            examples=["extract"],
        ),
    ]
    needs: Annotated[
        tuple[Annotated[str, described(max_length=64)], ...],
        described("The steps that must have ended before its turn comes.", max_length=MOST_STEPS),
    ] = ()
    on: Annotated[
        StepOn,
        described(
            "It runs if all of its needs succeeded; or if one of them failed, or was skipped; or however they ended."
        ),
    ] = StepOn.SUCCESS
    when: Annotated[
        str | None,
        described(
            "A condition over steps, payload and slot; if it is false, the step is skipped.",
            max_length=1_000,
            examples=["steps.parts.failed == 0"],
        ),
    ] = None
    foreach: Annotated[
        Any,
        described(
            f"A list, or a placeholder for one, of up to {MOST_ITEMS} items: a run for each of them.",
            examples=["{{ steps.extract.result.files }}"],
        ),
    ] = None
    max_parallel: Annotated[
        int | None, described("Items of `foreach` under way at once; 1,000 by default and at most.", ge=1, le=1_000)
    ] = None
    allow_failure: Annotated[
        bool, described("If it fails, the flow does not, and for the steps that need it, it counts as a success.")
    ] = False


class TaskPause(msgspec.Struct, frozen=True, kw_only=True):
    """What was said when a task was paused. A pause of which nothing was said has none."""

    component: ClassVar[str] = "TaskPause"

    reason: Annotated[str, described("Empty: none was given.", examples=["the vendor mends its API"])] = ""
    until: Annotated[
        Moment | None,
        described("Then it is resumed by itself; null: by hand alone.", examples=["2026-11-15T04:00:00Z"]),
    ] = None
    by: Annotated[
        str | None, described("Who paused it, or changed the reason or the end last.", examples=["alice"])
    ] = None
    at: Annotated[Moment, described("When that was.", examples=["2026-11-15T02:30:00Z"])] = NEVER


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
    """The last slot that is accounted for: no cursor goes back to it, even if the clock does. Under a calendar, the last
    effective time."""
    calendar_use: CalendarUse | None = None
    """Which revision of its calendar this version keeps to, and what it leaves out."""
    pause: TaskPause | None = None
    """Only while it is DISABLED."""

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
    calendar_use: CalendarUse | None = None
    pause: TaskPause | None = None


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
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
