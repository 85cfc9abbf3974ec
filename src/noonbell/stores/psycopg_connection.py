"""A connection of psycopg 3 that belongs to the caller, in the few words of asyncpg that a transition's statements are carried out in.

Both speak the server's own placeholders ($1); psycopg needs its raw cursor for them. A connection without asyncio is asked in a
thread, so that no event loop stands still while the server thinks; psycopg lets any thread use it, one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

_AS_TEXT: Final = ("json", "jsonb")
"""Read as text, as asyncpg does."""


def is_psycopg(connection: object) -> bool:
    """Whether it is a connection of psycopg 3; psycopg is not imported for that."""
    return any(
        kind.__module__.partition(".")[0] == "psycopg" and kind.__name__ in ("Connection", "AsyncConnection")
        for kind in type(connection).__mro__
    )


class PsycopgConnection:
    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    def is_in_transaction(self) -> bool:
        """Or will be with the next statement, as psycopg does where autocommit is off."""
        from psycopg.pq import TransactionStatus

        return not self._connection.autocommit or self._connection.info.transaction_status is TransactionStatus.INTRANS

    def is_closed(self) -> bool:
        return bool(self._connection.closed)

    async def execute(self, text: str, *values: Any) -> str:
        """The command tag, such as `UPDATE 3`."""
        tag, _ = await self._run(text, values)
        return tag

    async def fetch(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        _, rows = await self._run(text, values)
        return rows

    async def fetchval(self, text: str, *values: Any) -> Any:
        _, rows = await self._run(text, values)
        return rows[0][0] if rows else None

    async def _run(self, text: str, values: Sequence[Any]) -> tuple[str, list[tuple[Any, ...]]]:
        import psycopg
        from psycopg.rows import tuple_row

        # A tuple would be a row of a table; ours are the columns of many rows.
        given = [list(value) if isinstance(value, tuple) else value for value in values] or None
        if isinstance(self._connection, psycopg.AsyncConnection):
            async with psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
                _read_as_text(cursor)
                await cursor.execute(text.encode(), given)
                rows = await cursor.fetchall() if cursor.description is not None else []
                return cursor.statusmessage or "", rows
        return await asyncio.to_thread(_run_here, self._connection, text, given)


def _run_here(
    connection: psycopg.Connection[Any], text: str, given: list[Any] | None
) -> tuple[str, list[tuple[Any, ...]]]:
    import psycopg
    from psycopg.rows import tuple_row

    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        _read_as_text(cursor)
        cursor.execute(text.encode(), given)
        rows = cursor.fetchall() if cursor.description is not None else []
        return cursor.statusmessage or "", rows


def _read_as_text(cursor: Any) -> None:
    from psycopg.types.string import TextLoader

    for name in _AS_TEXT:
        cursor.adapters.register_loader(name, TextLoader)
