"""Children: runs that a running job asks for and waits for (`ctx.spawn`, `ctx.gather`)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import RunId, RunStatus

MOST_CHILDREN: Final = 10_000
"""Of one run."""


class ChildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A child that a job asks for: the `position`-th that its attempt does, from 0."""

    position: int
    task: str
    """Its name."""
    payload: Any = msgspec.UNSET
    delay_seconds: float = 0
    run_at: Instant | None = None
    priority: int | None = None
    specific_worker_ids: tuple[str, ...] | None = None
    trace_id: str | None = None


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """How a child stands."""

    position: int
    run_id: RunId
    status: RunStatus
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
