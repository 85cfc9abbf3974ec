"""What is asked of a store, and what it answers, where an argument or two would not do."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

import msgspec

from noonbell.clock import Instant
from noonbell.fields import meta
from noonbell.model.access import TokenScope
from noonbell.model.run import (
    Lease,
    NewRunOptions,
    Origin,
    Precondition,
    RunBodies,
    RunId,
    RunStatus,
    Settlement,
    SkipReason,
)
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskId, TaskPause, TaskSpec, TaskStatus
from noonbell.model.worker import Lack, LeaseOrder, WorkerState

T = TypeVar("T")


class IfFinished(enum.StrEnum):
    """What a publish does when its key belongs to a run that is final."""

    KEEP = "keep"
    RERUN = "rerun"
    RERUN_FAILED = "rerun_failed"
    RERUN_SUCCEEDED = "rerun_succeeded"


class Publication(NewRunOptions, frozen=True, kw_only=True):
    """One run to be born outside the schedule."""

    task_id: TaskId
    origin: Origin = Origin.PUBLISH
    overrides: dict[str, Any] | None = None
    """`override_body`, `force_async`, `concurrency_key`: what a publish changes for this run alone."""
    key: str | None = None
    if_finished: IfFinished = IfFinished.KEEP
    update_waiting: bool = False
    expires_in_seconds: int | None = None
    """None: as its task says."""
    expires_at: Instant | None = None
    """The moment itself, in place of seconds after it was due."""
    scheduled_time: Instant | None = None
    retry_of_run_id: RunId | None = None
    dedupe: Dedupe | None = None
    """Instead of a key: which of several publishes make a run."""

    @property
    def unique_key(self) -> str | None:
        """At most one run of the task has it at a time."""
        return self.key if self.dedupe is None else self.dedupe.stored_key


class PublishOutcome(enum.StrEnum):
    CREATED = "created"
    EXISTS = "exists"
    RUNNING = "running"
    UPDATED = "updated"
    REFUSED = "refused"
    """The task is at its limit and does not queue; no run was made."""


class PublishResult(msgspec.Struct, frozen=True):
    run_id: RunId | None
    outcome: PublishOutcome
    reason: str | None = None


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    queues: tuple[str, ...]
    max: int
    job_types: tuple[str, ...] | None = None
    """None: any."""
    version: int = 0
    labels: tuple[str, ...] = ()
    """What the worker says of itself, each as `name=value`: see `model.worker.label_pairs`."""


class Claimed(msgspec.Struct, frozen=True):
    leases: list[Lease]
    next_at: Instant | None = None
    """When a limit that held something back may let it go; None = nothing is held back by time."""
    split: tuple[str, ...] = ()
    """The queues of the fan-outs that this claim has split: their other parts wait there for other workers."""
    is_paused: bool = False
    """Everything is paused, so there is nothing."""
    aside_until: Instant | None = None
    """When the first of the runs is due that this claim has put aside: it met the rate of their key."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    now: Instant
    tasks: int = 0
    """Tasks that were due in this pass; a full batch means: come again at once."""
    born: int = 0
    skipped: int = 0
    dropped: int = 0
    skips: tuple[tuple[TaskId, SkipReason], ...] = ()
    """Each slot that was skipped."""
    misfires: tuple[tuple[TaskId, int], ...] = ()
    """Each task of which slots were dropped, and how many."""
    canceled: tuple[RunId, ...] = ()
    event_only: int = 0
    """Runs that needed no worker, and are over already."""
    queues: tuple[str, ...] = ()
    """Queues that something was put on."""
    next_at: Instant | None = None
    """The next cursor that will be due."""


class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    next_at: Instant | None = None


class ExpiredSkips(msgspec.Struct, frozen=True, kw_only=True):
    looked_at: int = 0
    """Runs whose time had run out; a full batch means: come again at once."""
    tasks: tuple[TaskId, ...] = ()
    """The task of each run that was skipped."""


class DueSweeps(msgspec.Struct, frozen=True):
    """Which sweeps would find something at this moment."""

    expiries: bool = False
    pauses: bool = False
    joins: bool = False
    keys: bool = False
    service_levels: bool = False


class JoinsSwept(msgspec.Struct, frozen=True, kw_only=True):
    looked_at: int = 0
    """Joins whose time had run out; a full batch means: come again at once."""
    resumed: int = 0
    """Runs whose followers were too many for one transaction, and that were gone on with."""
    missing: tuple[TaskId, ...] = ()
    """The task of each join that ended as a skip, `upstream_missing`."""
    disabled: int = 0
    """Joins that ended without a run, because their task is off."""


class Canceled(msgspec.Struct, frozen=True):
    run_id: RunId
    status: RunStatus
    canceled: bool


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    orders: list[LeaseOrder]
    state: WorkerState
    concurrency: int | None


class UnsettledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run about whose attempt others than its worker decide: what follows is decided outside and written by `settle`."""

    run_id: RunId
    task_id: TaskId
    token: int
    retry_count: int
    lost_count: int
    worker_id: str | None
    is_step: bool = False
    """Of a flow, or a call: `Store.run_task` has what it carries out."""


class ExpiredRun(UnsettledRun, frozen=True, kw_only=True):
    """Something that time has run out on."""

    precondition: Precondition
    attempt: int
    begun: bool
    """At most once: its attempt was marked as begun."""


class UnservedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task whose due runs no worker alive could take; or, with `is_over`, one that is taken care of again."""

    task_id: TaskId
    queue: str | None = None
    job_type: str | None = None
    is_over: bool = False


class UnclaimableRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a queue that are due and that no worker alive could take, for the same reason."""

    queue: str
    job_type: str | None
    lack: Lack
    count: int
    run_id: RunId
    """The one that has waited longest."""
    task_id: TaskId
    since: Instant
    is_least: bool = False
    """There may be more: the line was not looked at to its end."""


class RunInput(msgspec.Struct, frozen=True):
    """What a run carries."""

    payload: Any
    """Its own, or its task's."""
    overrides: dict[str, Any] | None
    """`override_body`, `force_async`: what was changed for this run alone."""


class IncomingCallback(msgspec.Struct, frozen=True, kw_only=True):
    """A callback at the door: by token, or by task and run."""

    token: str | None = None
    task_id: TaskId | None = None
    run_id: RunId | None = None
    headers: dict[str, str] = {}
    body: str = ""
    keep_unknown: bool = True
    """False: if it finds no run, no record of it is kept."""


class CallbackSubject(UnsettledRun, frozen=True, kw_only=True):
    """The run that a callback speaks of, as it stands."""

    status: RunStatus
    at: Instant = Instant(0)
    """Now."""
    attempt_began_at: Instant | None = None
    """When the newest attempt was claimed, while that is under way or its callback is awaited."""
    token_made_at: Instant | None = None
    """When the callback's token was made; None if it came without one, or with one that does not say."""
    settlement: Settlement | None = None
    """How the callback settled the run; None before it is decided, and where it did not."""


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A final run of another system, to be kept as history of a task of ours."""

    task_id: TaskId
    task_version: int
    queue: str
    key: str
    """What it was called there, with the name of that system: `cronjob:42`. One key of a task is one run."""
    status: RunStatus
    scheduled_time: Instant
    created_at: Instant
    """Not after `end_time`. Its id is made of this moment, so that lists and retention find it where it belongs."""
    end_time: Instant
    start_time: Instant | None = None
    attempt: int = 1
    response_code: int | None = None
    error_message: str | None = None
    trace_id: str | None = None
    bodies: RunBodies | None = None


class PastRunOutcome(enum.StrEnum):
    IMPORTED = "imported"
    KNOWN = "known"
    """It was brought over before."""
    REMOVED = "removed"
    """It ended before a moment up to which history was cleaned up: the figures would count it twice."""
    RECENT = "recent"
    """It ended less than a minute ago: the ids of that moment may still be given to runs of ours."""


class KeptReason(enum.StrEnum):
    """Why a run that was to be removed from history is not."""

    NOT_FOUND = "not_found"
    NOT_FINAL = "not_final"
    PART = "part"
    """A part, step or child of another run: it goes with that."""
    ACTIVE_PARTS = "active_parts"
    """A part, step or child of it is not final."""


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What every page of a list is asked for by."""

    label: tuple[str, str] | None = None
    queue: str | None = None
    scope: TokenScope | None = None
    """Only what it holds."""
    page: int = 1
    page_size: int = 20
    cursor: str | None = None


class TaskQuery(PageQuery, frozen=True, kw_only=True):
    """A page of tasks. `sort` is a key of `stores.sql.read.TASK_ORDERS`; a leading `-` turns it round."""

    status: TaskStatus | None = None
    name: str | None = None
    """A part of the name."""
    managed_by: str | None = None
    exec_type: ExecType | None = None
    job_type: str | None = None
    meta_key: str | None = None
    """How a key in `meta` begins."""
    external_id: str | None = None
    label_in: tuple[str, tuple[str, ...]] | None = None
    """A label and the values of which it has one."""
    status_in: tuple[TaskStatus, ...] = ()
    include_system: bool = False
    include_deleted: bool = False
    sort: str = "id"


MOST_LISTED: Final = 4 * 1024 * 1024
"""Bytes of one long field (results, bodies) over all items of a list."""


def share_of(count: int) -> int:
    """The bytes that a long field of each item may have in a list of `count` items. One item alone is whole."""
    return MOST_LISTED // count if count > 1 else 2**31 - 1


class RunQuery(PageQuery, frozen=True, kw_only=True):
    """A page of runs, newest first unless `sort` says otherwise. Parts of a fan-out only with `parent_id`."""

    task_id: TaskId | None = None
    status: tuple[RunStatus, ...] = ()
    worker_id: str | None = None
    key: str | None = None
    origin: Origin | None = None
    text: str | None = None
    """A part of the task's name, or of what the error message of a run says that did not end well."""
    search: str | None = None
    """A part of the key, the payload, the result, the log, the error message or the task's name. No index leads to it."""
    since: Instant | None = None
    """On `scheduled_time`, inclusive."""
    until: Instant | None = None
    parent_id: RunId | None = None
    step_id: str | None = None
    """Only with `parent_id`: the runs of one step of that flow."""
    sort: str = "-id"
    look: int | None = None
    """How many runs to look at for this page, roughly; if they are not enough, it is short and its cursor leads on. None: all.

    Only in the order of ids.
    """
    count_to: int | None = None
    """Without a cursor: count so far and no further. None: count them all."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    total: int | None
    """None where counting was not asked for (cursor paging)."""
    next_cursor: str | None
    is_least: bool = False
    """There may be more than `total`: counting stopped at `RunQuery.count_to`, or where the search did."""
    looked_to: Instant | None = None
    """When `RunQuery.look` ended the search: about when the oldest run was born that was looked at."""


@dataclass(frozen=True, slots=True)
class TaskEdit:
    """One of many changes: see `Store.change_task`."""

    task_id: TaskId
    change: Callable[[Task], TaskChange]
    expect_version: int | None = None


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be created: see `Store.create_task`."""

    spec: TaskSpec
    status: TaskStatus = TaskStatus.ENABLED
    by: str | None = None
    system: bool = False
    skip_next: int = 0


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new spec and status that an edit asks for."""

    spec: TaskSpec
    status: TaskStatus
    recount: bool = False
    """Start the repeat count anew, even if nothing else changes."""
    skip_next: int | None = None
    """See `Store.skip_next`; None leaves it as it is."""
    pause: TaskPause | msgspec.UnsetType | None = msgspec.UNSET
    """What is said of the pause, where `status` is DISABLED; UNSET: what was said stays, as long as it is paused."""


class ResumedTasks(msgspec.Struct, frozen=True, kw_only=True):
    looked_at: int = 0
    """Pauses whose end had come; a full batch means: come again at once."""
    tasks: tuple[Task, ...] = ()
    """Those that were resumed."""


LONGEST_DEDUPE = 2_592_000
"""Seconds: thirty days."""
DEDUPE_PREFIX: Final = "dedupe:"
"""Of the keys under which runs of a rule are found: no caller names such a `key`."""


class DedupeMode(enum.StrEnum):
    KEY = "key"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"


class DedupeKeep(enum.StrEnum):
    FIRST = "first"
    LAST = "last"


class Dedupe(msgspec.Struct, frozen=True, kw_only=True):
    """Of several publishes with the same key, which make a run. See `policy.dedupe`."""

    noun: ClassVar[str] = "a dedupe"
    example: ClassVar[dict[str, Any]] = {"mode": "debounce", "key": "cart-7", "seconds": 5, "max_wait_seconds": 60}

    mode: Annotated[
        DedupeMode,
        meta(
            "key: none while a run of the key is not final. throttle: one in `seconds`. debounce: one for a burst, when"
            " there was none for `seconds`.",
            missing="key, throttle or debounce",
            examples=["debounce"],
        ),
    ]
    key: Annotated[
        str,
        meta(
            "What they have in common, within the task.",
            min_length=1,
            max_length=200,
            missing="a text",
            examples=["cart-7"],
        ),
    ]
    seconds: Annotated[float | None, meta("Of throttle and debounce.", ge=0.001, le=LONGEST_DEDUPE, examples=[5])] = (
        None
    )
    keep: Annotated[
        DedupeKeep | None, meta("Which of them counts: of debounce the last by default, else the first.")
    ] = None
    max_wait_seconds: Annotated[
        float | None, meta("Of debounce: no burst is longer.", ge=0.001, le=LONGEST_DEDUPE, examples=[60])
    ] = None

    @property
    def keeps(self) -> DedupeKeep:
        return self.keep or (DedupeKeep.LAST if self.mode is DedupeMode.DEBOUNCE else DedupeKeep.FIRST)

    @property
    def is_for_later(self) -> bool:
        """Whether the run that it makes does not start at once."""
        return self.mode is not DedupeMode.KEY and self.keeps is DedupeKeep.LAST

    @property
    def stored_key(self) -> str:
        """Under which its run has it. Each mode is apart from the others, and all from what callers name as `key`."""
        return f"{DEDUPE_PREFIX}{self.mode}:{self.key}"
