"""The store, whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from noonbell.clock import Instant
from noonbell.model.event import Event
from noonbell.model.run import RunStatus
from noonbell.model.task import TaskId
from noonbell.ports.account import AccountStore
from noonbell.ports.running import RunningStore
from noonbell.ports.runs import RunStore
from noonbell.ports.tasks import TaskStore
from noonbell.ports.workers import WorkerStore


class Store(TaskStore, AccountStore, RunningStore, RunStore, WorkerStore, Protocol):
    # Life

    async def open(self) -> None:
        """Connect. The schema is brought up to date; one that needs newer code than this raises SchemaMismatch."""

    async def check_schema(self) -> None:
        """Raises SchemaMismatch when the schema has moved, since `open`, to where this code cannot work with it."""

    def waits_for(self) -> str:
        """Who holds the lock that a call waits for at this moment, in words; empty if no call is known to wait."""

    async def close(self) -> None:
        """Let go of every connection and thread. What was called before has finished or failed."""

    async def now(self) -> Instant:
        """The store's clock."""

    # Upkeep

    async def clean(
        self,
        before: Instant,
        limit: int,
        *,
        task_id: TaskId | None = None,
        queue: str | None = None,
        status: Sequence[RunStatus] = (),
        keep: int | None = None,
        besides: Sequence[TaskId] = (),
    ) -> int:
        """Remove up to `limit` final runs that ended before, with all that belongs to them; how many it was.

        Of one task, of one queue or of some statuses alone, where that is said. Never a run that is not final. With
        `keep`, the newest `keep` runs of each task stay. What it removes of the runs of slots is counted (`cleaned`).
        The
        tasks `besides` are passed over.
        """

    async def clean_rest(
        self, before: Instant, limit: int, *, task_id: TaskId | None = None, besides: Sequence[TaskId] = ()
    ) -> int:
        """Remove what belongs to no run and is older, up to `limit` of each kind; how many it was.

        Ranges of dropped slots that ended before (they stay counted in `cleaned`), but those of the tasks `besides`;
        tasks deleted before that have no run left; workers that were last heard of before; outages and pauses that were
        over before. With `task_id`: the ranges of that task, and nothing else.
        """

    async def recount(self) -> int:
        """Set every counter right that a limit relies on; how many were wrong. A sound store answers 0."""

    async def events(self, after: int, limit: int = 1000) -> list[Event]:
        """What happened after number `after`, in the order of commit. Nothing is ever added behind what was read."""

    async def counts(self) -> Mapping[str, int]:
        """Rows by table and runs by place, for metrics and diagnosis. May be an estimate for large tables."""
