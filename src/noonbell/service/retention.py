"""How long history is kept: by age, by count, and as a task's `meta` says otherwise.

`meta.retention_days` and `meta.retention_runs` of a task stand in for what the installation says, each for itself.
Each batch is a transaction of its own: a cleaning that stops half way has lost nothing, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import counted, meta
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store
from noonbell.service.filters import every

DAY: Final = 86_400 * SECOND
LONGEST_DAYS: Final = 36_500
MOST_RUNS: Final = 1_000_000_000
BATCH: Final = 500

_PREFIX: Final = "retention_"


@dataclass(frozen=True, slots=True)
class Keep:
    days: int
    """Final runs that ended longer ago are removed."""
    runs: int | None = None
    """The newest runs of each task that stay, however young the others are. None: all."""

    def describe(self) -> str:
        count = "" if self.runs is None else f" and all but the newest {self.runs} of each task"
        return f"remove runs that ended more than {counted(self.days, 'day')} ago{count}"

    def for_task(self, meta: Mapping[str, Any]) -> Keep:
        """A value that is no number, in a row from before this was checked, is left out."""
        days, runs = (_count(meta.get(name)) for name in ("retention_days", "retention_runs"))
        return Keep(self.days if days is None else days, self.runs if runs is None else runs)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class KeepFields(msgspec.Struct, frozen=True, kw_only=True):
    """How long history is kept: in the payload of the cleaning job, and in a task's `meta`."""

    noun: ClassVar[str] = "the payload of data_cleanup"

    retention_days: Annotated[
        int | None, meta("Final runs that ended longer ago are removed.", ge=0, le=LONGEST_DAYS)
    ] = None
    retention_runs: Annotated[
        int | None, meta("How many of the newest runs of each task are kept.", ge=0, le=MOST_RUNS)
    ] = None

    def over(self, default: Keep) -> Keep:
        return Keep(
            days=default.days if self.retention_days is None else self.retention_days,
            runs=default.runs if self.retention_runs is None else self.retention_runs,
        )


Between = Callable[[int], Awaitable[None]]
"""Called after each batch with how many runs are gone so far. What it raises ends the cleaning."""


Forget = Callable[[Store, Instant], Awaitable[int]]
"""Removes tasks that ended before an instant; how many it was."""


class Retention:
    def __init__(self, store: Store, forget: Sequence[Forget] = ()) -> None:
        """`forget` is called once the old runs are gone."""
        self._store, self._forget = store, forget

    async def clean(self, keep: Keep, between: Between) -> int:
        """Remove what need not be kept; how many runs it was. Never a run that is not final."""
        now = await self._store.now()
        cleaning = _Cleaning(self._store, now, between)
        own = {task.id: keep.for_task(task.spec.meta) async for task in self._tasks(_PREFIX)}
        await cleaning.drop(max([keep.days, *(each.days for each in own.values())]))
        await cleaning.remove(keep.days, besides=tuple(own))
        for task_id, its_own in own.items():
            await cleaning.remove(its_own.days, task_id=task_id)
            await cleaning.cut(task_id, its_own.runs)
            await cleaning.sweep_out(its_own.days, task_id=task_id)
        if keep.runs is not None:
            async for task in self._tasks():
                if task.id not in own:
                    await cleaning.cut(task.id, keep.runs)
        for forget in self._forget:
            await forget(self._store, Instant(now - keep.days * DAY))
        await cleaning.sweep_out(keep.days, besides=tuple(own))
        return cleaning.removed

    def _tasks(self, meta_key: str | None = None) -> AsyncIterator[Task]:
        """All of them: deleted ones have a history too."""
        return every(self._store.tasks, TaskQuery(meta_key=meta_key, include_system=True, include_deleted=True))


class _Cleaning:
    def __init__(self, store: Store, now: Instant, between: Between) -> None:
        self._store, self._now, self._between = store, now, between
        self.removed = 0

    async def drop(self, days: int) -> None:
        """Stretches of history that are older than every retention."""
        if gone := await self._store.drop_history(Instant(self._now - days * DAY)):
            await self._count(gone)

    async def remove(self, days: int, *, task_id: TaskId | None = None, besides: tuple[TaskId, ...] = ()) -> None:
        """Final runs that ended that many days ago, or earlier."""
        before = await self._store.history_cut(Instant(self._now - days * DAY))
        while count := await self._store.clean(before, BATCH, task_id=task_id, besides=besides):
            await self._count(count)

    async def cut(self, task_id: TaskId, runs: int | None) -> None:
        """Final runs of a task that are not among its newest."""
        if runs is None:
            return
        while count := await self._store.clean(self._now, BATCH, task_id=task_id, keep=runs):
            await self._count(count)

    async def sweep_out(self, days: int, *, task_id: TaskId | None = None, besides: tuple[TaskId, ...] = ()) -> None:
        """What belongs to no run. At least a day of it stays, so that `explain` can look back."""
        before = Instant(self._now - max(days, 1) * DAY)
        while await self._store.clean_rest(before, BATCH, task_id=task_id, besides=besides):
            await self._between(self.removed)

    async def _count(self, count: int) -> None:
        self.removed += count
        await self._between(self.removed)
