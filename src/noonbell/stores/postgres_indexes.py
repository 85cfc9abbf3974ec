"""Indexes of large tables on PostgreSQL are built while others write, after the step that asks for them.

    1   the step leaves the index out, and writes `index NAME` into `schema_log`
    2   outside of a transaction, `create index concurrently`; one that was cut off is invalid, and made anew
    3   the entry goes

Of a table in partitions each partition gets its index so, then they are put together. Cut off at any point, the next
look goes on: of the node that took the step, or of the history loop of any other. Until then lists that want the index
take longer. An index that another node is building is left to it: a second build would wait for the first one, and
throw away what it made.

An index that has to be unique is built by its step: what relies on it must not begin without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from noonbell.stores import migrations
from noonbell.stores.migrations import ownership
from noonbell.stores.postgres_partitions import LOCK, NOT_GIVEN
from noonbell.stores.sql.server_store import ServerStore
from noonbell.stores.sql.statement import Fetch, Work

logger = logging.getLogger("noonbell.store")

_EVERY: Final = 5.0
"""Seconds between two words about an index."""
_PROGRESS: Final = """select phase, case when blocks_total > 0 then 100 * blocks_done / blocks_total end
    from pg_stat_progress_create_index where pid = $1"""
_IS_VALID: Final = "select indisvalid from pg_index where indexrelid = to_regclass($1)"
_IS_BEING_BUILT: Final = (
    "select exists (select 1 from pg_stat_progress_create_index where index_relid = to_regclass($1))"
)
_PARTS: Final = """select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass($1) order by c.relname"""
_LONGEST: Final = 63
"""Characters of a name."""
_TRIES: Final = 60
"""A second apart."""


class ConcurrentIndexes(ServerStore):
    @abstractmethod
    def _without_limits(self) -> AbstractAsyncContextManager[Any]:
        """A connection of its own, without a transaction: neither a statement nor a wait for a lock has a limit there."""

    async def build_indexes(self, say: Callable[[str], None] | None = None) -> list[str]:
        """Build the indexes that steps have left out, and return their names."""
        waiting = await self._read(ownership.indexes_left_out)
        statements = {
            name: sql
            for step in migrations.STEPS
            for sql in step.up("postgres")
            if (name := migrations.index_made(sql)) is not None
        }
        built = []
        for name in waiting:
            if name in statements:
                if not await self._build(name, self._names.apply(statements[name]), say or logger.info):
                    continue
                built.append(name)
            await self._is_built(name)
        return built

    async def _is_built(self, name: str) -> None:
        await self._write(lambda _: ownership.index_is_built(name))

    async def _build(self, name: str, sql: str, say: Callable[[str], None]) -> bool:
        """False: another node is at it, or the tables are in use all the time. The next look goes on."""
        bare = self._names.bare(name)
        before, _, rest = sql.partition(" on ")
        on, _, columns = rest.partition(" ")
        async with self._without_limits() as connection, _told(connection, bare, self._progress_of, say):
            parts = await connection.fetch(_PARTS, on)
            if not parts:
                making = f"{before.replace('create index', _CONCURRENTLY)} on {rest}"
                return await _build_valid(connection, self._names.table(name), making)
            whole = self._names.table(name)
            missing = await connection.fetchval(_IS_VALID, whole) is None
            if missing and not await _briefly(connection, f"{before} on only {on} {columns}"):
                return False
            schema = f'"{self._names.schema}".' if self._names.schema is not None else ""
            for part in (row[0] for row in parts):
                own = f"{part}_{name}"[:_LONGEST]
                making = f"{_CONCURRENTLY} {own} on {schema}{part} {columns}"
                if not await _build_valid(connection, f"{schema}{own}", making):
                    return False
                if not await _briefly(connection, f"alter index {whole} attach partition {schema}{own}"):
                    return False
        return True

    async def _progress_of(self, pid: int) -> str:
        def work() -> Work[str]:
            rows = yield Fetch(_PROGRESS.replace("$1", ":pid::int"), {"pid": pid})
            if not rows:
                return ""
            phase, percent = rows[0]
            return phase if percent is None else f"{phase}, {percent} %"

        return await self._read(work)


_CONCURRENTLY: Final = "create index concurrently"


async def _build_valid(connection: Any, name: str, sql: str) -> bool:
    """What was cut off is there, and invalid: it is dropped first. False: it is invalid because another session is
    building it.
    """
    is_valid = await connection.fetchval(_IS_VALID, name)
    if is_valid:
        return True
    if is_valid is False:
        if await connection.fetchval(_IS_BEING_BUILT, name):
            return False
        await connection.execute(f"drop index concurrently {name}")
    await connection.execute(sql)
    return True


async def _briefly(connection: Any, sql: str) -> bool:
    """What waits for all who write, while those who come next wait behind it: by moments. False: there was none in
    which it could be done.
    """
    for _ in range(_TRIES):
        try:
            async with connection.transaction():
                await connection.execute(f"set local lock_timeout = '{LOCK}'")
                await connection.execute(sql)
        except Exception as error:
            if getattr(error, "sqlstate", None) not in NOT_GIVEN:
                raise
            await asyncio.sleep(1.0)
        else:
            return True
    return False


@contextlib.asynccontextmanager
async def _told(
    connection: Any, name: str, progress: Callable[[int], Any], say: Callable[[str], None]
) -> AsyncIterator[None]:
    pid = connection.get_server_pid()

    async def tell() -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if said := await progress(pid):
                say(f"index {name}: {said}")

    telling = asyncio.create_task(tell(), name="noonbell index progress")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait({telling})
