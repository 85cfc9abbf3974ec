"""How an attempt ended, as a value: what a worker, the sweep or a callback hands to the store's `settle`."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from noonbell.model.run import RunBodies, RunId, RunStatus


class Move(enum.StrEnum):
    """Where a run goes when its attempt has ended."""

    FINISH = "finish"
    """To a final status."""
    RETRY = "retry"
    """RETRYING, until `delay_seconds` from now."""
    PARK = "park"
    """CALLBACK_PENDING: accepted, the deadline is `delay_seconds` from now."""
    RELEASE = "release"
    """Back to SCHEDULED, handed back before it did anything: not counted as an attempt."""
    LOSE = "lose"
    """Back to SCHEDULED after its worker was lost: counted as an attempt and as a loss."""


class Expect(enum.StrEnum):
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
    move: Move
    status: RunStatus | None = None
    """The final status with FINISH; else how the attempt that ends here is recorded."""
    worker_id: str | None = None
    """Checked against the lease where given."""
    expect: Expect = Expect.HELD
    delay_seconds: float = 0
    task_version: int | None = None
    """The version that the attempt used."""
    response_code: int | None = None
    result: Any = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None
    bodies: RunBodies | None = None
    plain: bool = False
    """Taken over from the lease, as the next one: see there."""
    counted: bool = False


class Settled(enum.StrEnum):
    """What became of a settlement."""

    DONE = "done"
    """This call made the change."""
    LOST = "lost"
    """The token is no longer current, or what was expected no longer holds: nothing was written but a note of it."""
