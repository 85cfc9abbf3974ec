"""An event: one fact that happened."""

from __future__ import annotations

from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import RunId
from noonbell.model.task import TaskId


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered in the order of commit: whoever has read up to `seq` has missed nothing before it.

    A batch of runs that changed together shares one `seq` and is told apart by `index`.
    """

    seq: int
    index: int
    at: Instant
    type: str
    task_id: TaskId | None = None
    run_id: RunId | None = None
    data: dict[str, Any] = {}


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A callback as it came in, accepted or not."""

    id: int
    run_id: RunId | None
    task_id: TaskId | None
    received_at: Instant
    status: str
    """RECEIVED or IGNORED."""
    reason: str | None
    headers: dict[str, str]
    body: str


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    run_id: RunId
    seq: int
    at: Instant
    level: str
    message: str
