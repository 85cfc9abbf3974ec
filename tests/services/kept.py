"""Connections to a server that outlive the test: one store after another opens on them.

A new connection costs a database more than most tests do: it starts a process, reads the catalogue, and plans each statement anew. What
a store learns of its schema when it opens is kept as well. How a store opens, closes and finds its schema is tested where it does so by
itself: `conformance/store/test_life.py`, the integration tests, and every process that a test starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.server_store import ServerStore
from noonbell.stores.sql.store import SqlStore


class KeptPool:
    """asyncpg's pool, which ends when the tests do, or when a store leaves a connection of it in use."""

    def __init__(self, pool: Any, forget: Callable[[], object]) -> None:
        self._pool, self._forget = pool, forget

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def close(self) -> None:
        if self._pool.get_size() != self._pool.get_idle_size():
            self._forget()
            await self.end()

    async def end(self) -> None:
        await self._pool.close()


class KeptConnections:
    """Of the stores of one database, which all have the same tables."""

    def __init__(self) -> None:
        self._pools: dict[Any, KeptPool] = {}
        self._columns: list[tuple[Any, ...]] = []

    async def open(self, store: SqlStore) -> None:
        """One store at a time: a second one that is open beside it has connections of its own."""
        if not isinstance(store, ServerStore):
            await store.open()
            return
        fetch, lent = store.fetch, vars(store)

        async def kept(connections: int, greets: bool = False, /, **settings: Any) -> KeptPool:
            del greets  # the next store remembers nothing of what this one has seen
            key = (connections, tuple(settings.items()))
            if key not in self._pools:
                pool = await PostgresStore._connect(store, connections, **settings)  # type: ignore[arg-type]
                self._pools[key] = KeptPool(pool, lambda: self._pools.pop(key, None))
            return self._pools[key]

        async def known(sql: str, **params: Any) -> list[tuple[Any, ...]]:
            return self._columns if sql == store.dialect.types else await fetch(sql, **params)

        if isinstance(store, PostgresStore):  # MariaDB's connections are threads, and cost next to nothing
            lent["_connect"] = kept
        if self._columns:
            lent |= {"_bring_up_to_date": store._know_installation, "fetch": known}
        await store.open()
        for name in ("_bring_up_to_date", "fetch"):
            lent.pop(name, None)
        self._columns = self._columns or await fetch(store.dialect.types)

    async def close(self) -> None:
        while self._pools:
            _, kept = self._pools.popitem()
            await kept.end()
