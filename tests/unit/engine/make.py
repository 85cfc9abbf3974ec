"""Targets that do as they are told, and workers on the memory store, for the tests of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from conformance.store.builders import QUEUES
from noonbell.engine.worker import Worker
from noonbell.errors import StoreUnavailable
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.ports import Store, Target
from noonbell.stores.wakeups import LocalWakeup

DONE = Outcome(kind=OutcomeKind.SUCCESS, result={"rows": 42})
ACCEPTED = Outcome(kind=OutcomeKind.ACCEPTED, response_code=202)


def broken(kind: str = "error", **more: Any) -> Outcome:
    return Outcome(kind=OutcomeKind.FAILURE, failure=kind, error_message="it broke", **more)


class Scripted:
    """Answers with one outcome after the other; the last one for ever. An exception is raised."""

    def __init__(self, *outcomes: Outcome | BaseException) -> None:
        self._outcomes = list(outcomes) or [DONE]
        self.seen: list[Assignment] = []

    async def execute(self, assignment: Assignment) -> Outcome:
        self.seen.append(assignment)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Patient:
    """Executes until it is told to finish; notes who was interrupted."""

    def __init__(self) -> None:
        self.started: list[Assignment] = []
        self.interrupted: list[Assignment] = []
        self._go = asyncio.Event()
        self._outcome = DONE

    async def execute(self, assignment: Assignment) -> Outcome:
        self.started.append(assignment)
        try:
            await self._go.wait()
        except asyncio.CancelledError:
            self.interrupted.append(assignment)
            raise
        return self._outcome

    def finish(self, outcome: Outcome = DONE) -> None:
        self._outcome = outcome
        self._go.set()


class Calling:
    """Does something of the test's while it executes."""

    def __init__(self, act: Callable[[Assignment], Any], outcome: Outcome = DONE) -> None:
        self._act, self._outcome = act, outcome

    async def execute(self, assignment: Assignment) -> Outcome:
        await self._act(assignment)
        return self._outcome


def everywhere(target: Target) -> dict[ExecType, Target]:
    return dict.fromkeys(ExecType, target)


def worker_on(store: Store, target: Target, wakeup: LocalWakeup | None = None, **more: Any) -> Worker:
    fields: dict[str, Any] = {"worker_id": "w1", "queues": QUEUES}
    return Worker(store, wakeup or LocalWakeup(), everywhere(target), **(fields | more))


async def spin(times: int = 20) -> None:
    """Let everything go on that does not wait for time."""
    for _ in range(times):
        await asyncio.sleep(0)


class Moody:
    """A store that is away while `away` is set; and a count of its trips."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **more: Any) -> Any:
            self.calls.append(name)
            if self.away:
                raise StoreUnavailable("the store is away")
            return await method(*args, **more)

        return call
