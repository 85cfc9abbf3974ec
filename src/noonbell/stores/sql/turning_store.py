"""Many tasks at once, as the SQL stores keep that part of the port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from noonbell.model.account import Label, Turn
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.stores.sql import turning
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

T = TypeVar("T")


class TurningMethods(ABC):
    dialect: Dialect

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T: ...

    async def set_status(self, task_ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        return await self._write(lambda cache: turning.set_status(self.dialect, cache, task_ids, status, by))

    async def turns(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Turn]:
        return await self._read(lambda: turning.turns(self.dialect, task_ids)) if task_ids else {}

    async def labels(self, text: str = "", limit: int = 20) -> list[Label]:
        return await self._read(lambda: turning.labels(text, limit))
