"""Execute: carry out one attempt and say how it ended.

The target ends by the task's timeout on its own account. The belt here catches one that does not; a target that is given
more time (`extend`) has to loosen it with `loosen`.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.ports import Target

GRACE = 0.5
"""Seconds that the belt leaves to a target beyond its timeout: the target's own words are better than the belt's."""


class Belt:
    """Cancels the attempt's task after so many seconds, and knows that it did.

    What `asyncio.timeout` does, without its context manager: this is on the way of every run.
    """

    __slots__ = ("_loop", "_task", "_timer", "canceling", "is_pulled")

    def __init__(self, task: asyncio.Task[Any], seconds: float) -> None:
        self._task, self._loop = task, task.get_loop()
        self.canceling = task.cancelling()
        self.is_pulled = False
        self._timer = self._loop.call_later(seconds, self._pull)

    def loosen(self, seconds: float) -> None:
        if not self.is_pulled:
            self._timer.cancel()
            self._timer = self._loop.call_later(seconds, self._pull)

    def take_off(self) -> None:
        self._timer.cancel()

    def was_it(self) -> bool:
        """Whether a cancellation that arrived was the belt's and nobody else's."""
        return self.is_pulled and self._task.uncancel() <= self.canceling

    def _pull(self) -> None:
        self.is_pulled = True
        self._task.cancel()


_belt: ContextVar[Belt | None] = ContextVar("noonbell_belt", default=None)


async def execute(assignment: Assignment, target: Target) -> Outcome:
    """Never raises for the attempt's own failure. Canceled, it lets the target clean up; then CancelledError goes on."""
    seconds = assignment.task.spec.timeout_seconds
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    belt = Belt(task, seconds + GRACE)
    _belt.set(belt)  # an attempt has a task of its own, so nobody else sees it
    try:
        return await target.execute(assignment)
    except asyncio.CancelledError:
        if belt.was_it():
            return failure("timeout", f"it took longer than {seconds:g} s")
        raise
    except (Exception, SystemExit) as error:  # a target's defect is this attempt's failure, and nobody else's
        return failure("error", described(error))
    finally:
        belt.take_off()


def loosen(seconds: float) -> None:
    """Called by a target in the attempt's own task: it has `seconds` from now."""
    belt = _belt.get()
    if belt is not None:
        belt.loosen(seconds + GRACE)


def failure(kind: str, message: str) -> Outcome:
    return Outcome(kind=OutcomeKind.FAILURE, failure=kind, error_message=message, error_details={"kind": kind})


def described(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
