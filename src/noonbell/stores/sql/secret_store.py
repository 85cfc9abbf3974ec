"""The port of those who seal secrets anew, as the SQL stores keep it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from noonbell.stores.sql import resealing
from noonbell.stores.sql.resealing import After, Reseal
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

T = TypeVar("T")


class SecretMethods(ABC):
    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    async def reseal_tasks(self, after: int, limit: int, reseal: Reseal) -> tuple[int | None, int]:
        return await self._write(lambda _: resealing.tasks(after, limit, reseal))

    async def reseal_versions(self, after: After, limit: int, reseal: Reseal) -> tuple[After | None, int]:
        return await self._write(lambda _: resealing.versions(after, limit, reseal))

    async def reseal_channels(self, reseal: Reseal) -> int:
        return await self._write(lambda _: resealing.channels(reseal))
