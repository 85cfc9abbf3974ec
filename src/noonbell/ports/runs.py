"""Runs, to be read, and what operators do to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from noonbell.model.request import (
    Input,
    Page,
    RunQuery,
)
from noonbell.model.run import Attempt, Run, RunBodies, RunId
from noonbell.model.task import TaskId


class RunStore(Protocol):
    async def run(self, run_id: RunId) -> Run | None: ...

    async def runs(self, query: RunQuery) -> Page[Run]:
        """A page of them. With `look`, one may be short, or empty, and still have a cursor to the next.

        Each is as it is when it is read, which may be a moment after it was found.
        """

    async def newest_runs(self, task_ids: Sequence[TaskId], count: int) -> dict[TaskId, list[Run]]:
        """The newest `count` runs of each, newest first, parts of a fan-out left out; an empty list where there are none.

        The questions it takes are as many for a hundred tasks as for one.
        """

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Every attempt, oldest first, the one under way included; each as it was recorded when it ended."""

    async def bodies(self, run_id: RunId, attempt: int | None = None) -> RunBodies | None:
        """Of one attempt; None means the newest."""

    async def payload(self, run_id: RunId) -> Any:
        """What the run carries: its own payload, or its task's."""

    async def inputs(self, run_ids: Sequence[RunId]) -> dict[RunId, Input]:
        """What each of them carries, with what was changed for that run alone. Unknown ids are left out."""

    async def promote_run(self, run_id: RunId) -> bool:
        """A delayed or retrying run becomes due now. False if it was not waiting for its time."""
