"""A worker: a process that claims runs; and a queue: a named lane of them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import Moment, meta
from noonbell.model.calendar import LONGEST_SPREAD, MOST_QUIET, QuietHours
from noonbell.model.call import NAMED_TYPES
from noonbell.model.run import RunId
from noonbell.model.task import RateLimit


class WorkerState(enum.StrEnum):
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    LOST = "lost"


class Lack(enum.StrEnum):
    """What no worker has of what a run asks for."""

    QUEUE = "queue"
    """No worker that takes runs listens to its queue."""
    JOB_TYPE = "job_type"
    VERSION = "version"
    """Those that know the job type are too old."""
    NAMED = "named"
    """It names workers, and none of them could take it."""
    LABELS = "labels"
    """None has all the labels that the task asks for."""
    PART = "part"
    """A part of a fan-out: each worker has had another part of it."""


PART_OF = "part_of"
"""In a worker's `meta`: the command whose process it is a part of, and cannot be stopped without. Missing: it stands alone."""
SERVE = "serve"

SCHEDULER_SILENCE: Final = 30 * SECOND
"""A node that plans says so every ten seconds. After this long without a word, no scheduler is running."""


def is_scheduler_alive(seen_at: Instant | None, now: Instant) -> bool:
    """`seen_at`: when a node last said that it plans, on any machine."""
    return seen_at is not None and seen_at > now - SCHEDULER_SILENCE


def label_pairs(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Each label as `name=value`: how claims compare them. A name has no `=`."""
    return tuple(sorted(f"{name}={value}" for name, value in labels.items()))


def knows_type(job_types: Collection[str] | None, job_type: str | None) -> bool:
    """Whether a worker of these job types, None for any, carries out runs that wait under `job_type`."""
    if job_type is None:
        return True
    return job_type not in NAMED_TYPES if job_types is None else job_type in job_types


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    incarnation: str
    """Random, made at start: it distinguishes two processes of the same name."""
    version: int = 0
    queues: tuple[str, ...] = ("default",)
    job_types: tuple[str, ...] | None = None
    concurrency: int = 10
    state: WorkerState = WorkerState.RUNNING
    started_at: Instant = Instant(0)
    heartbeat_at: Instant = Instant(0)
    meta: dict[str, Any] = {}
    labels: dict[str, str] = {}

    def serves(self, queue: str, job_type: str | None) -> bool:
        """Whether it claims from the queue, and knows the type."""
        return queue in self.queues and knows_type(self.job_types, job_type)


class WorkerDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker that comes by the API says of itself."""

    queues: tuple[str, ...]
    job_types: tuple[str, ...] | None = None
    version: int = 0
    concurrency: int | None = None
    """None: it does not say."""
    labels: tuple[tuple[str, str], ...] = ()


class Attendance(msgspec.Struct, frozen=True):
    """What an operator wants of a worker that is waiting for runs."""

    state: WorkerState
    concurrency: int


class Order(enum.StrEnum):
    CONTINUE = "continue"
    CANCEL = "cancel"
    LOST = "lost"


class LeaseOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat brings back for one run."""

    component: ClassVar[str] = "OrderAnswer"

    run_id: Annotated[RunId, meta(examples=[7340033])]
    order: Annotated[Order, meta("`cancel`: stop it; `lost`: another worker has it, or it has ended.")]
    lease_expires_at: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:15Z"])] = None
    ping_interval_ms: Annotated[int | None, meta(examples=[5000])] = None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, meta(examples=["default"])]
    paused: bool = False
    concurrency: Annotated[int | None, meta("Runs at once; null: no limit.", examples=[20])] = None
    rate_limit: Annotated[RateLimit | None, meta(examples=[{"max": 100, "per_seconds": 60.0, "key": None}])] = None
    quiet: Annotated[tuple[QuietHours, ...], meta("When nothing starts.")] = ()
    spread_seconds: Annotated[int, meta("After quiet hours, held runs start within this time.")] = 0
    waiting: Annotated[int, meta("Due and not claimed.", examples=[12])] = 0
    held: Annotated[int, meta("Of these, the runs that wait because their key is full.", examples=[4])] = 0
    delayed: Annotated[int, meta("Not due yet.", examples=[3])] = 0
    running: Annotated[int, meta(examples=[20])] = 0
    oldest_at: Annotated[
        Moment | None, meta("`run_at` of the run that has waited longest.", examples=["2026-11-15T02:29:58Z"])
    ] = None


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the starts of a queue. What is left out is no limit."""

    component: ClassVar[str] = "QueueWrite"
    noun: ClassVar[str] = "a queue"

    rate_limit: Annotated[RateLimit | None, meta(examples=[{"max": 100, "per_seconds": 60}])] = None
    concurrency: Annotated[
        int | None,
        meta(
            "Runs at once; null: no limit.",
            ge=0,
            le=2**31 - 1,
            expected="0 or more, or null for no limit",
            examples=[20],
        ),
    ] = None
    quiet: Annotated[
        tuple[QuietHours, ...],
        meta("Times of the day in which only manually triggered runs start.", max_length=MOST_QUIET),
    ] = ()
    spread_seconds: Annotated[
        int, meta("After quiet hours, the runs that waited start evenly within this time.", ge=0, le=LONGEST_SPREAD)
    ] = 0
