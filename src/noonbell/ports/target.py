"""What carries out an attempt."""

from __future__ import annotations

from typing import Protocol

from noonbell.model.attempt import Assignment, Outcome


class Target(Protocol):
    """How a run is carried out: an HTTP call, or a job handler."""

    async def execute(self, assignment: Assignment) -> Outcome:
        """Carry out one attempt and say how it ended. Never raises for the attempt's own failure.

        It ends by the task's timeout on its own account. Canceled (asyncio), it lets go of what it has in hand: a
        request
        in flight is dropped, a handler is told; then CancelledError goes on.
        """
