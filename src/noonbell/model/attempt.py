"""One attempt: what a target is given, the outcome it reports, and the settlement that is written for it.

A worker, the sweep or a callback hands a `Settlement` to the store's `settle`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.run import FlowStep, Lease, RunBodies, RunId, RunStatus
from noonbell.model.task import Task

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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, before anybody decides what follows from it."""

    kind: OutcomeKind
    failure: str | None = None
    """With FAILURE: what `error_details.kind` shows, such as `timeout`, `http_5xx` or `error`."""
    response_code: int | None = None
    retry_after: float | None = None
    """Seconds, as the target asked."""
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None


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


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
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
    response_code: int | None = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None
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
