"""A store on a database server: a pool of connections, ids that are reserved ahead, callers that share a statement."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from noonbell.clock import SECOND, Clock, Instant
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model.request import NewTask
from noonbell.model.task import Task
from noonbell.stores import blocking, migrations
from noonbell.stores.sql import ids, reading, rows
from noonbell.stores.sql import tasks as task_changes
from noonbell.stores.sql.statement import StillLocked
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.sql.table import observed

A = TypeVar("A")
B = TypeVar("B")

_MOST = 200
_LANES = 4
"""Batches at a time."""
_PATIENCE = 0.05
"""Seconds that calls wait for a batch under way: one that waits for a lock does not hold up the others."""


class Gathering(Generic[A, B]):
    """Group commit: calls that come while others are under way wait for them, and then go together in one transaction.

    A caller alone goes at once. Each caller gets an answer of its own. Where a batch fails, its calls are repeated each
    alone, so that one which the database does not take fails alone; a store that is away fails all of them. For the
    tasks of one event loop.

    A process that dies meanwhile: what had committed stands, as after a lost answer to a single call.
    """

    def __init__(self, do: Callable[[Sequence[A]], Awaitable[Sequence[B]]]) -> None:
        """`do` carries out a batch in one transaction, and answers in its order."""
        self._do = do
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._lanes: set[asyncio.Task[None]] = set()

    async def add(self, call: A) -> B:
        """Carried out even if its caller is canceled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[B] = loop.create_future()
        self._waiting.append((call, answer))
        if not self._lanes:
            self._open_lane()
        elif len(self._waiting) == 1:
            loop.call_later(_PATIENCE, self._open_lane)
        return await answer

    def _open_lane(self) -> None:
        if self._waiting and len(self._lanes) < _LANES:
            lane = asyncio.get_running_loop().create_task(self._carry_out(), name="noonbell group commit")
            self._lanes.add(lane)
            # Canceled before its first step, it does not come to `_carry_out`.
            lane.add_done_callback(self._lanes.discard)

    async def _carry_out(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                try:
                    await self._together(batch)
                except BaseException:
                    for _, answer in batch:
                        answer.cancel()
                    raise
        finally:
            # Now, and not when the event loop has noticed the end: callers that have just had their answer call again before
            # that, and would wait for a lane that does nothing any more.
            self._lanes.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _together(self, batch: Sequence[tuple[A, asyncio.Future[B]]]) -> None:
        try:
            answers = await self._do([call for call, _ in batch])
        except Exception as error:
            is_away = isinstance(error, StoreUnavailable) and not isinstance(error, StillLocked)
            if len(batch) > 1 and not is_away:
                await asyncio.gather(*(self._together([one]) for one in batch))
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(_again(error))
        else:
            for (_, answer), found in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(found)


def _again(error: Exception) -> Exception:
    """For each caller an error of its own: raising one adds to its traceback."""
    return type(error)(error.message) if isinstance(error, StoreUnavailable) else error


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
