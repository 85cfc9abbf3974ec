"""What the account of a task is read from: the runs of its slots, what retention removed, pauses, outages, flaws."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import Moment, meta
from noonbell.model.run import RunId, RunStatus, SkipReason
from noonbell.model.task import TaskId


class SlotRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a slot became: the little that a list or a check of many needs."""

    slot: Instant
    run_id: RunId
    status: RunStatus
    skip_reason: SkipReason | None = None
    created_at: Instant
    end_time: Instant | None = None


class CleanedSlots(msgspec.Struct, frozen=True):
    """`count` runs of slots that retention has removed, none of them later than `last`."""

    last: Instant = Instant(0)
    count: int = 0


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue was paused; `until` is None while it is."""

    queue: str
    since: Instant
    until: Instant | None = None
    by: str | None = None
    reason: str = ""


class InstallationPause(msgspec.Struct, frozen=True, kw_only=True):
    """Everything was paused; `until` is None while it is."""

    since: Instant
    until: Instant | None = None
    by: str | None = None
    resumed_by: str | None = None
    reason: str = ""


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a task has the status that it has, and who gave it."""

    at: Instant
    by: str | None = None


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A label, and the number of tasks that have it."""

    name: str
    value: str
    tasks: int


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A node could not reach the store, or a loop of it was stalled."""

    since: Instant
    until: Instant
    node: str
    reason: str | None = None


class ClockStep(msgspec.Struct, frozen=True, kw_only=True):
    """The store's clock was set. It showed `since` and `until`, the earlier moment first; `step`: microseconds, below
    zero if back.
    """

    since: Instant
    until: Instant
    step: int
    node: str

    @property
    def seconds(self) -> float:
        return self.step / SECOND


class StoreReturn(msgspec.Struct, frozen=True, kw_only=True):
    """The store went back to an earlier state: what was committed from `since` on is gone, and `node` noticed it at `until`."""

    since: Instant
    until: Instant
    node: str
    skipped: int
    """Runs and slots of at-most-once tasks that were skipped: they may have been delivered."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a run that is not under way and its start, as of now. Left at rest where nothing does."""

    run_id: RunId
    until: Instant | None = None
    """It waits for its time: delayed, moved by jitter, or to be retried."""
    is_quiet: bool = False
    """`until` is the end of quiet hours, of its task or of its queue."""
    all_paused: InstallationPause | None = None
    """Everything is."""
    paused: Pause | None = None
    """Its queue is."""
    limit: int | None = None
    """Of its task or queue, where every place is taken."""
    is_of_queue: bool = False
    """The limit is that of its queue."""
    blocking_run_id: RunId | None = None
    """The oldest run that has one of those places."""
    rated_until: Instant | None = None
    """A rate limit lets the next one go then."""
    rate_key: str | None = None
    """Of a call: the key under which the rate limit of its queue counts it, where there is one."""
    key: str | None = None
    """Its own, where every place of that key is taken."""
    key_limit: int = 0
    key_running: int = 0
    key_before: int = 0
    """Runs of its key that come before it."""
    job_type: str | None = None
    min_version: int = 0
    workers: tuple[str, ...] = ()
    """Only these may have it; empty = any."""
    labels: tuple[str, ...] = ()
    """Only workers that have all of these, each as `name=value`."""
    had: tuple[str, ...] = ()
    """A part of a fan-out: these have had another part of it, and may not have this one."""


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a task that wait because as many of their key as may be are let in."""

    key: Annotated[str, meta("The value of the key; empty if the payload has none.", examples=["acme"])]
    max_per_key: Annotated[int, meta("How many of its runs may run at once.", examples=[1])]
    running: Annotated[int, meta("Runs that count: running, or claimed by a worker.", examples=[1])]
    waiting: Annotated[int, meta("Runs that wait.", examples=[12])]
    next_run_id: Annotated[RunId | None, meta("The run that is next.", examples=[7340034])] = None
    oldest_at: Annotated[Moment | None, meta("Since when the one that has waited longest has been due.")] = None
    blocking_run_id: Annotated[RunId | None, meta("The oldest run that counts.", examples=[7340033])] = None


class Activity(msgspec.Struct, frozen=True):
    """What the runs of a task are doing."""

    last_run_id: RunId | None = None
    last_run_at: Instant | None = None
    """When it started; its slot while it has not."""
    last_run_status: RunStatus | None = None
    active_runs: int = 0
    queued_runs: int = 0


class PendingCallbacks(msgspec.Struct, frozen=True):
    """Runs that wait for their callback, but for parts of others."""

    count: int = 0
    overdue: int = 0
    """Those whose deadline has passed."""
    next_deadline: Instant | None = None
    """Of the others."""


class InconsistencyKind(enum.StrEnum):
    """What may be wrong in a store. None of it may ever be found."""

    HOLE = "hole"
    """A slot without an outcome."""
    DOUBLE = "double"
    """A slot with two."""
    STRAY = "stray"
    """A run of what is no slot of its task."""
    COUNTER = "counter"
    """A number that a limit or a repeat count relies on is not what the rows say."""
    PLACE = "place"
    """A run that is in two places, in none, or final and still waiting."""
    CURSOR = "cursor"
    """A task that should be waiting for its next slot, and waits for nothing."""
    JOIN = "join"
    """A join that made two runs or none, or is open although it is complete or its time has run out."""
    FLOW = "flow"
    """A flow that does not end although its steps have, or cannot go on; a step that was started twice."""
    KEY = "key"
    """A limit per key that lets too many in, or none although there is room."""
    LOG = "log"
    """An entry of the audit log was changed, or taken out."""


class Inconsistency(msgspec.Struct, frozen=True, kw_only=True):
    kind: InconsistencyKind
    message: str
    task_id: TaskId | None = None
    run_id: RunId | None = None
