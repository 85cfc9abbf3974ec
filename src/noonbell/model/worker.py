"""A worker: a process that claims runs; and a queue: a named lane of them."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import RunId
from noonbell.model.task import RateLimit


class WorkerState(enum.StrEnum):
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    LOST = "lost"


PART_OF = "part_of"
"""In a worker's `meta`: the command whose process it is a part of, and cannot be stopped without. Missing: it stands alone."""
SERVE = "serve"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    incarnation: str
    """Random, made at start: two processes that call themselves the same are told apart by it."""
    version: int = 0
    queues: tuple[str, ...] = ("default",)
    job_types: tuple[str, ...] | None = None
    concurrency: int = 10
    state: WorkerState = WorkerState.RUNNING
    started_at: Instant = Instant(0)
    heartbeat_at: Instant = Instant(0)
    meta: dict[str, Any] = {}


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker that comes by the API says of itself."""

    queues: tuple[str, ...]
    job_types: tuple[str, ...] | None = None
    version: int = 0
    concurrency: int | None = None
    """None: it does not say."""


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

    run_id: RunId
    order: Order
    lease_expires_at: Instant | None = None
    ping_interval_ms: int | None = None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    concurrency: int | None = None
    rate_limit: RateLimit | None = None
    waiting: int = 0
    """Due and not claimed."""
    delayed: int = 0
    running: int = 0
    oldest_at: Instant | None = None
    """`run_at` of the run that has waited longest."""
