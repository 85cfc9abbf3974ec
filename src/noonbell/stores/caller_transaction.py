"""Publishing inside a transaction of the caller: the runs exist when it commits, and never if it does not.

    PostgreSQL   the caller's connection, of asyncpg or psycopg 3, carries the statements and the notification, so workers are signalled by
                 the commit. Ids are taken on a connection of ours. Until the caller ends, others may wait for two things:
                 the gate of a task with a limit, and the row of a key.
    MariaDB,     the caller's connection of asyncmy, in a transaction of READ COMMITTED: under REPEATABLE READ it would neither see
    MySQL        the run of a key that another has just published, nor leave the gaps beside it to others. What our statements expect of
                 a session is set for as long as they run. The App looks for the commit, as on SQLite.
    SQLite       the caller's sqlite3 connection, on the same file and in the thread that calls. The App looks for the
                 commit and signals then. No other process writes while the transaction is open, so it should be short.

A savepoint holds what is written here: where it fails, the caller's own work stands and the error is raised. Only MariaDB and MySQL take back the
whole transaction of one that they choose out of a deadlock; the error says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from noonbell.errors import InvalidArgument
from noonbell.stores.sql import ids
from noonbell.stores.sql.statement import Conflict, Statement, Work, drive
from noonbell.stores.wakeups import payloads

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")

_UNDEFINED_TABLE: Final = "42P01"
_UNIQUE_VIOLATION: Final = "23505"
"""States of SQL, which both drivers give their errors."""
TRIES: Final = 5
"""For a key that two publish at the same time: the second one finds it there."""

FIELD = "transaction"
"""What the caller's connection is called in messages."""


def refuse(connection: object, expected: str) -> InvalidArgument:
    return InvalidArgument.field(FIELD, f"is a {type(connection).__name__}; expected {expected}")


def on_postgres(connection: Any) -> Any:
    """The caller's connection, which has a transaction, in the words of asyncpg."""
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    if is_psycopg(connection):
        connection = PsycopgConnection(connection)
    elif not isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
        expected = "a connection of asyncpg or psycopg 3 to the database of the store"
        raise refuse(connection, f"{expected}; SQLAlchemy has one as `driver_connection` of its raw connection")
    if not connection.is_in_transaction():
        raise InvalidArgument.field(FIELD, "is a connection without a transaction; begin one, or leave the option out")
    return connection


async def run_on_postgres(
    connection: Any,
    work: Callable[[], Work[T]],
    do: Callable[[Statement], Awaitable[Any]],
    topics: Sequence[str],
    channel: str,
) -> T:
    """`connection` is as `on_postgres` gives it, and `do` carries a statement out on it. The topics are signalled on `channel`
    by the commit.
    """
    for left in reversed(range(TRIES)):
        try:
            async with _postgres_savepoint(connection):
                answer = await drive(work, do)
            break
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if state == _UNDEFINED_TABLE:
                raise InvalidArgument.field(
                    FIELD, f"is a connection to another database or schema than the store's: {error}"
                ) from None
            if not left or not (isinstance(error, Conflict) or state == _UNIQUE_VIOLATION):
                raise
    else:
        raise AssertionError("unreachable")
    for payload in payloads("", topics):
        await connection.execute("select pg_notify($1, $2)", channel, payload)
    return answer


def check_installation(expected: str) -> Work[None]:
    """InvalidArgument where the caller's connection leads to tables of ours that belong to another installation."""
    found = yield from ids.read()
    if found != expected:
        raise InvalidArgument.field(
            FIELD, f"is a connection to another installation ({found}) than the store's ({expected})"
        )


@contextlib.asynccontextmanager
async def _postgres_savepoint(connection: Any) -> AsyncIterator[None]:
    """A savepoint made by hand: asyncpg's own refuses a transaction that was begun with a plain `begin`."""
    await connection.execute("savepoint noonbell")
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("rollback to savepoint noonbell; release savepoint noonbell")
        raise
    await connection.execute("release savepoint noonbell")


def on_mysql(connection: Any) -> Any:
    """The caller's connection, which has a transaction, or begins one with its next statement."""
    from asyncmy.connection import Connection

    if not isinstance(connection, Connection):
        raise refuse(connection, "a connection of asyncmy to the database of the store")
    if connection.get_autocommit() and not connection.get_transaction_status():
        raise InvalidArgument.field(FIELD, "is a connection without a transaction; begin one, or leave the option out")
    return connection


@contextlib.asynccontextmanager
async def mysql_session(connection: Any, mode: str, isolation: str) -> AsyncIterator[Any]:
    """A cursor on the caller's connection, in whose session our statements mean what they mean in ours; as it was, afterwards.

    `mode`: `sql_mode` of our sessions. `isolation`: what the server calls the variable.
    """
    from asyncmy.cursors import Cursor

    cursor = connection.cursor(Cursor)  # rows are tuples, under any setting of the caller
    await cursor.execute(
        f"select @@session.{isolation}, @@session.character_set_client, @@session.sql_mode, @@session.group_concat_max_len"
    )
    level, charset, *before = await cursor.fetchone()
    if level != "READ-COMMITTED":
        raise InvalidArgument.field(
            FIELD,
            f"is a transaction of {level}; expected READ-COMMITTED: SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            " before it begins",
        )
    if charset != "utf8mb4":
        raise InvalidArgument.field(FIELD, f"is a connection of the character set {charset}; expected utf8mb4")
    await cursor.execute(f"set session sql_mode = {mode}, group_concat_max_len = 16777216")
    try:
        yield cursor
    finally:
        if connection.connected:
            await cursor.execute("set session sql_mode = %s, group_concat_max_len = %s", before)


@contextlib.asynccontextmanager
async def mysql_savepoint(cursor: Any) -> AsyncIterator[None]:
    await cursor.execute("savepoint noonbell")
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # a deadlock has taken the savepoint back, and all the rest
            await cursor.execute("rollback to savepoint noonbell")
            await cursor.execute("release savepoint noonbell")
        raise
    await cursor.execute("release savepoint noonbell")


@contextlib.contextmanager
def sqlite_savepoint(connection: Any, path: str) -> Iterator[sqlite3.Cursor]:
    """A cursor on the caller's connection, inside a savepoint of its transaction."""
    if not isinstance(connection, sqlite3.Connection) or path == ":memory:":
        raise refuse(connection, f"a sqlite3 connection to the file of the store ({path})")
    cursor = connection.cursor()
    cursor.row_factory = None  # ours are plain tuples, under any setting of the caller
    _check_file(cursor, path)
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise InvalidArgument.field(
                FIELD, "is a connection without a transaction; begin one, or leave the option out"
            )
        cursor.execute("begin immediate")  # as sqlite3 itself does before the first change
    cursor.execute("savepoint noonbell")
    try:
        yield cursor
    except BaseException:
        if connection.in_transaction:  # a full disk ends the transaction by itself
            cursor.execute("rollback to noonbell")
            cursor.execute("release noonbell")
        raise
    cursor.execute("release noonbell")
    cursor.close()


def _check_file(cursor: sqlite3.Cursor, path: str) -> None:
    files = {name: file for _, name, file in cursor.execute("pragma database_list").fetchall()}
    file = files.get("main") or ""
    if not (file and os.path.exists(path) and os.path.samefile(file, path)):  # noqa: PTH110, PTH121 - a path as SQLite says it
        raise InvalidArgument.field(
            FIELD, f"is a connection to {file or 'no file'}; expected one to the store's file {path}"
        )


_AS_TEXT: Final = ("json", "jsonb")
"""Read as text, as asyncpg does."""


def is_psycopg(connection: object) -> bool:
    """Whether it is a connection of psycopg 3; psycopg is not imported for that."""
    return any(
        kind.__module__.partition(".")[0] == "psycopg" and kind.__name__ in ("Connection", "AsyncConnection")
        for kind in type(connection).__mro__
    )


class PsycopgConnection:
    """A connection of psycopg 3 that belongs to the caller, in the few words of asyncpg that a transition's statements need.

    Both speak the server's own placeholders ($1); psycopg needs its raw cursor for them. A connection without asyncio is asked in
    a thread, so that no event loop stands still while the server thinks; psycopg lets any thread use it, one at a time.
    """

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
