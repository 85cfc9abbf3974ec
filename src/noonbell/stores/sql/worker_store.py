"""The part of the port that is about workers at the door, as the SQL stores keep it: one transaction for each method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from noonbell.model.request import Input, Unserved
from noonbell.model.run import RunId
from noonbell.model.worker import Attendance
from noonbell.stores.sql import reading, registry, unserved
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

T = TypeVar("T")


class WorkerMethods(ABC):
    dialect: Dialect

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T: ...

    @abstractmethod
    async def _settled(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    async def attend(self, worker_ids: Sequence[str], incarnation: str) -> dict[str, Attendance]:
        return await self._write(lambda _: registry.attend(self.dialect, worker_ids, incarnation))

    async def held(self, worker_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        return await self._read(lambda: registry.held(self.dialect, worker_ids))

    async def pinned(self, worker_ids: Sequence[str]) -> set[str]:
        return await self._read(lambda: registry.pinned(self.dialect, worker_ids))

    async def unserved(self, grace_seconds: float) -> list[Unserved]:
        return await self._settled(lambda _: unserved.look(self.dialect, grace_seconds))

    async def inputs(self, run_ids: Sequence[RunId]) -> dict[RunId, Input]:
        return await self._read(lambda: reading.inputs(self.dialect, run_ids))
