"""The store for tests and simulations: SQLite without a file, driven in the caller's own thread.

It keeps the same laws by the same transitions as the others, so there is no second implementation that could differ.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from noonbell.clock import Clock
from noonbell.errors import StoreUnavailable
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work
from noonbell.stores.sqlite import Connection, SqliteStore

T = TypeVar("T")


class MemoryStore(SqliteStore):
    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(":memory:", clock)
        self._connection: Connection | None = None

    async def open(self) -> None:
        self._connection = Connection(":memory:", self._time)
        await self._bring_up_to_date()

    def save(self, path: str) -> None:
        """All of it, as a file that `SqliteStore` opens. What that file held before is gone."""
        with contextlib.closing(sqlite3.connect(path)) as file:
            self._open_connection()._db.backup(file)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        connection = self._open_connection()
        view = TaskView(self._cache)
        connection.begin()
        try:
            result = connection.run(lambda: work(view))
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        view.keep()
        return result

    async def _read(self, work: Callable[[], Work[T]]) -> T:
        return self._open_connection().run(work)

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise StoreUnavailable("the store is closed")
        return self._connection
