"""How long history is kept: by age, by count, and as a task's `meta` says otherwise.

`meta.retention_days` and `meta.retention_runs` of a task stand in for what the installation says, each for itself.
Everything goes in batches of their own transactions, so whoever stops half way has lost nothing: the next one goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store
from noonbell.service.plan_retention import forget_finished
from noonbell.service.reader import Reader

DAY: Final = 86_400 * SECOND
LONGEST_DAYS: Final = 36_500
MOST_RUNS: Final = 1_000_000_000
BATCH: Final = 500

_PREFIX: Final = "retention_"


@dataclass(frozen=True, slots=True)
class Keep:
    days: int
    """Final runs that ended longer ago go."""
    runs: int | None = None
    """Of each task, only so many of the newest runs stay, however young the others are. None: as many as there are."""

    def describe(self) -> str:
        count = "" if self.runs is None else f" and all but the newest {self.runs} of each task"
        return f"remove runs that ended more than {self.days} days ago{count}"

    def for_task(self, meta: Mapping[str, Any]) -> Keep:
        """What is no number, in a row that was written before anybody checked, says nothing."""
        days, runs = (_count(meta.get(name)) for name in ("retention_days", "retention_runs"))
        return Keep(self.days if days is None else days, self.runs if runs is None else runs)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_keep(reader: Reader, default: Keep) -> Keep:
    """From `retention_days` and `retention_runs`, in the payload of the cleaning job or in a task's `meta`."""
    return Keep(
        days=reader.integer("retention_days", default.days, 0, LONGEST_DAYS),
        runs=reader.integer("retention_runs", default.runs, 0, MOST_RUNS),
    )


Between = Callable[[int], Awaitable[None]]
"""Called after each batch with how many runs are gone so far. What it raises ends the cleaning."""


class Retention:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def clean(self, keep: Keep, between: Between) -> int:
        """Remove what need not be kept; how many runs it was. Never a run that is not final."""
        now = await self._store.now()
        cleaning = _Cleaning(self._store, now, between)
        own = {task.id: keep.for_task(task.spec.meta) async for task in self._tasks(TaskQuery(meta_key=_PREFIX))}
        await cleaning.remove(keep.days, besides=tuple(own))
        for task_id, its_own in own.items():
            await cleaning.remove(its_own.days, task_id=task_id)
            await cleaning.cut(task_id, its_own.runs)
            await cleaning.sweep_out(its_own.days, task_id=task_id)
        if keep.runs is not None:
            async for task in self._tasks(TaskQuery()):
                if task.id not in own:
                    await cleaning.cut(task.id, keep.runs)
        await forget_finished(self._store, Instant(now - keep.days * DAY))
        await cleaning.sweep_out(keep.days, besides=tuple(own))
        return cleaning.removed

    async def _tasks(self, query: TaskQuery) -> AsyncIterator[Task]:
        """All of them: deleted ones have a history too."""
        query = msgspec.structs.replace(query, include_system=True, include_deleted=True, page_size=1_000)
        while True:
            page = await self._store.tasks(query)
            for task in page.items:
                yield task
            if page.next_cursor is None:
                return
            query = msgspec.structs.replace(query, cursor=page.next_cursor)


class _Cleaning:
    def __init__(self, store: Store, now: Instant, between: Between) -> None:
        self._store, self._now, self._between = store, now, between
        self.removed = 0

    async def remove(self, days: int, *, task_id: TaskId | None = None, besides: tuple[TaskId, ...] = ()) -> None:
        """Final runs that ended so many days ago."""
        before = Instant(self._now - days * DAY)
        while count := await self._store.clean(before, BATCH, task_id=task_id, besides=besides):
            await self._count(count)

    async def cut(self, task_id: TaskId, runs: int | None) -> None:
        """Final runs of a task that are not among its newest."""
        if runs is None:
            return
        while count := await self._store.clean(self._now, BATCH, task_id=task_id, keep=runs):
            await self._count(count)

    async def sweep_out(self, days: int, *, task_id: TaskId | None = None, besides: tuple[TaskId, ...] = ()) -> None:
        """What belongs to no run. Whoever asks why something did not run may look back for a day at least."""
        before = Instant(self._now - max(days, 1) * DAY)
        while await self._store.clean_rest(before, BATCH, task_id=task_id, besides=besides):
            await self._between(self.removed)

    async def _count(self, count: int) -> None:
        self.removed += count
        await self._between(self.removed)
