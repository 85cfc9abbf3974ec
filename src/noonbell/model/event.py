"""An event: one fact that happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from noonbell.clock import Instant, to_datetime
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
    topic: str | None = None
    """The task's name as it is when the event is read; None for what is about no task, or a purged one."""
    queue: str | None = None
    """The queue that it is about: its own, or its task's."""

    @property
    def id(self) -> str:
        """`SEQ.INDEX`: where a reader goes on who has read this one."""
        return f"{self.seq}.{self.index}"

    @property
    def time(self) -> datetime:
        """`at`, for those who think in datetimes; it has its zone, UTC."""
        return to_datetime(self.at)


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the stream, in the order of commit."""

    events: list[Event]
    upto: int
    """The number up to which the stream has been looked through; what was not wanted has been passed over."""
    newest: int
    """The highest number that was given by then."""
    is_full: bool
    """There may be more at once."""
    has_gap: bool
    """Events after the asked number have been removed already: whoever asked has missed something."""


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
