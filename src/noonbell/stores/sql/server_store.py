"""A store on a database server: a pool of connections, ids that are reserved ahead, callers that share a statement."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from noonbell.clock import SECOND, Clock, Instant
from noonbell.errors import NoonbellError
from noonbell.model.request import NewTask
from noonbell.model.task import Task
from noonbell.stores import blocking, migrations
from noonbell.stores.sql import ids, reading, rows
from noonbell.stores.sql import tasks as task_changes
from noonbell.stores.sql.gathering import Gathering
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.sql.table import observed

_CLOCK_KEPT = 0.25
"""Seconds that a reading of the database's clock serves; what has passed since is added."""


class ServerStore(SqlStore):
    """On a database server, over a pool of connections."""

    def __init__(self, clock: Clock | None, connections: int, **names: Any) -> None:
        super().__init__(clock, **names)
        self._connections = connections
        self._pool: Any = None
        self._spare: Any = None
        """For new ids: they are needed in the middle of a transaction, which holds a connection already. A second one
        is opened to find out which session holds a lock."""
        self._lock_waits, self._looking = blocking.LockWaits(), asyncio.Lock()
        self._ids = ids.IdSource(functools.partial(self._reserve, ids.IDS))
        self._creations = Gathering(self._create_each)
        self._clock_reads = Gathering(self._read_clock_for)
        self._clock_read = (Instant(0), -_CLOCK_KEPT)
        """What the database's clock said last, and when that came here by the monotonic clock."""
        self._unused: list[int] = []
        """Ids of tasks that were reserved, and in the end not needed."""
        self._types: dict[str, dict[str, str]] = {}
        """Of the columns of each table."""

    @abstractmethod
    async def _reserve(self, counter: str, size: int) -> int:
        """As `ids.reserve`, in a transaction of its own."""

    async def _new_numbers(self, counter: str, count: int) -> Sequence[int]:
        kept = self._kept_numbers(count) if counter == task_changes.COUNTER else []
        count -= len(kept)
        last = await self._reserve(counter, count) if count else 0
        return [*kept, *range(last - count + 1, last + 1)]

    def _kept_numbers(self, count: int) -> list[int]:
        kept, self._unused = self._unused[:count], self._unused[count:]
        return kept

    @observed()
    async def task_named(self, name: str) -> Task | None:
        """It is known from then on: a script that looks up its one task and publishes takes the short way at once."""
        task = await self._read(lambda: reading.task_named(name))
        if task is not None:
            self._cache.add(rows.Known(task))
        return task

    async def _create_task(self, new: NewTask) -> Task | NoonbellError:
        return await self._creations.add(new)

    async def _read_clock(self) -> Instant:
        return await self._clock_reads.add(None)

    async def _read_clock_for(self, callers: Sequence[None]) -> list[Instant]:
        return [self._seen_now(await super()._read_clock())] * len(callers)

    def _seen_now(self, now: Instant) -> Instant:
        """An answer of the database had its clock in it."""
        self._clock_read = (now, time.monotonic())
        return now

    def _recent_now(self) -> Instant | None:
        """The database's clock as it must be by now; None where it was not read in the last moment."""
        if self._clock is not None:
            return self._clock.now()
        read, at = self._clock_read
        passed = time.monotonic() - at
        return Instant(read + int(passed * SECOND)) if passed < _CLOCK_KEPT else None

    async def about_now(self) -> Instant:
        recent = self._recent_now()
        return await self.now() if recent is None else recent

    async def migrate(
        self,
        to: int = migrations.LATEST,
        say: Callable[[str], None] | None = None,
        move: Callable[[float], None] | None = None,
    ) -> list[int]:
        taken = await super().migrate(to, say, move)
        await self._learn_types()
        return taken

    async def _learn_types(self) -> None:
        rows = await self.fetch(self.dialect.types)
        self._types = {}
        for table, column, type_ in rows:
            if (name := self._names.plain(table)) is not None:
                self._types.setdefault(name, {})[column] = type_

    def waits_for(self) -> str:
        return self._lock_waits.holder()
