"""Execute: carry out one attempt and say how it ended.

The target ends by the task's timeout on its own account. The belt here catches one that does not; a target that is given
more time (`extend`) has to loosen it with `loosen`.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.ports import Target

GRACE = 0.5
"""Seconds that the belt leaves to a target beyond its timeout: the target's own words are better than the belt's."""

_belt: ContextVar[asyncio.Timeout | None] = ContextVar("noonbell_belt", default=None)


async def execute(assignment: Assignment, target: Target) -> Outcome:
    """Never raises for the attempt's own failure. Canceled, it lets the target clean up; then CancelledError goes on."""
    seconds = assignment.task.spec.timeout_seconds
    belt = asyncio.timeout(seconds + GRACE)
    _belt.set(belt)  # an attempt has a task of its own, so nobody else sees it
    try:
        async with belt:
            return await target.execute(assignment)
    except TimeoutError as error:
        if belt.expired():
            return failure("timeout", f"it took longer than {seconds:g} s")
        return failure("error", described(error))
    except (Exception, SystemExit) as error:  # a target's defect is this attempt's failure, and nobody else's
        return failure("error", described(error))


def loosen(seconds: float) -> None:
    """Called by a target in the attempt's own task: it has `seconds` from now."""
    belt = _belt.get()
    if belt is not None:
        belt.reschedule(asyncio.get_running_loop().time() + seconds + GRACE)


def failure(kind: str, message: str) -> Outcome:
    return Outcome(kind=OutcomeKind.FAILURE, failure=kind, error_message=message, error_details={"kind": kind})


def described(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
