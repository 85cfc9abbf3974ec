"""What an engine hands to a target, and what the target says of it."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import Lease, RunBodies
from noonbell.model.task import Task


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


class OutcomeKind(enum.StrEnum):
    SUCCESS = "success"
    ACCEPTED = "accepted"
    """ASYNC: the target has taken it on, its callback will follow."""
    FAILURE = "failure"


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
