"""Execute: carry out one attempt and say how it ended.

The target ends by the task's timeout on its own account. The belt here catches one that does not; a target that is given
more time (`extend`) has to loosen it with `loosen`.
"""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from typing import Any

from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.ports import Target

GRACE = 0.5
"""Seconds that the belt leaves to a target beyond its timeout: the target's own words are better than the belt's."""

_EARLY = 0.001
"""Seconds by which the loop may call before its time."""
_STEP = 0.05
"""Seconds between two looks at the belts, at least."""


class Belt:
    """Cancels the attempt's task when its time is over, and knows that it did."""

    __slots__ = ("_belts", "canceling", "due", "is_pulled", "task")

    def __init__(self, belts: Belts, task: asyncio.Task[Any], due: float) -> None:
        self._belts, self.task, self.due = belts, task, due
        self.canceling = task.cancelling()
        self.is_pulled = False

    def loosen(self, seconds: float) -> None:
        if not self.is_pulled:
            self.due = self._belts.at(self.task, seconds)

    @property
    def late_by(self) -> float:
        """Seconds since its time was over, where it could not be pulled: the loop was blocked. 0: it is not late."""
        return 0.0 if self.is_pulled else max(0.0, self.task.get_loop().time() - self.due)

    @property
    def is_canceled(self) -> bool:
        """Whether anybody has asked for the attempt's end, the belt or another."""
        return self.task.cancelling() > self.canceling

    def was_it(self) -> bool:
        """Whether a cancellation that arrived was the belt's and nobody else's."""
        return self.is_pulled and self.task.uncancel() <= self.canceling

    def take_back(self) -> None:
        """The attempt has ended in spite of the belt's cancellation: those of others still count."""
        if self.is_pulled:
            self.task.uncancel()

    def pull(self) -> None:
        self.is_pulled = True
        self.task.cancel()


class Belts:
    """The belts of attempts under way. They share one timer: nearly every attempt ends long before its time is over."""

    def __init__(self) -> None:
        self._worn: set[Belt] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = float("inf")

    def put_on(self, task: asyncio.Task[Any], seconds: float) -> Belt:
        belt = Belt(self, task, self.at(task, seconds))
        self._worn.add(belt)
        return belt

    def take_off(self, belt: Belt) -> None:
        self._worn.discard(belt)

    def at(self, task: asyncio.Task[Any], seconds: float) -> float:
        """So many seconds from now; the timer goes off by then."""
        loop = task.get_loop()
        due = loop.time() + seconds
        if due < self._next:
            self._arm(loop, due)
        return due

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = when
        self._timer = loop.call_at(when, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._next = None, float("inf")
        now, soonest = loop.time(), float("inf")
        for belt in list(self._worn):
            if belt.due <= now + _EARLY:
                self._worn.discard(belt)
                belt.pull()
            else:
                soonest = min(soonest, belt.due)
        if self._worn:
            self._arm(loop, max(soonest, now + _STEP))


_belt: ContextVar[Belt | None] = ContextVar("noonbell_belt", default=None)


async def execute(assignment: Assignment, target: Target, task: asyncio.Task[Any], belts: Belts) -> Outcome:
    """Never raises for the attempt's own failure. Canceled, it lets the target clean up; then CancelledError goes on.

    `task` is the one that this runs in, and the attempt's own.
    """
    seconds = assignment.task.spec.timeout_seconds
    belt = belts.put_on(task, seconds + GRACE)
    _belt.set(belt)  # an attempt has a task of its own, so nobody else sees it
    try:
        outcome = await target.execute(assignment)
    except asyncio.CancelledError:
        if belt.was_it():
            return failure("timeout", f"it took longer than {seconds:g} s")
        raise
    except (Exception, SystemExit) as error:  # a target's defect is this attempt's failure, and nobody else's
        outcome = failure("error", described(error))
    finally:
        belts.take_off(belt)
    belt.take_back()
    return outcome


def wearer() -> asyncio.Task[Any]:
    """The attempt's own task. Asking the loop for it, as one must outside of an attempt, asks the system for the process."""
    belt = _belt.get()
    task = asyncio.current_task() if belt is None else belt.task
    assert task is not None  # noqa: S101 - a coroutine that runs has a task
    return task


def task_of(task: asyncio.Task[Any]) -> asyncio.Task[Any]:
    """The attempt's own task, of one that an attempt has started; else the same. For any thread."""
    if sys.version_info < (3, 12):
        return task
    belt = task.get_context().get(_belt)
    return task if belt is None else belt.task


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
