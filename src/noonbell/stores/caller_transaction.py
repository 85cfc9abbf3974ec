"""Publishing inside a transaction of the caller: the runs exist when it commits, and never if it does not.

    PostgreSQL   the caller's connection, of asyncpg or psycopg 3, carries the statements and the notification, so workers are signalled by
                 the commit. Ids are taken on a connection of ours. Until the caller ends, others may wait for two things:
                 the gate of a task with a limit, and the row of a key.
    SQLite       the caller's sqlite3 connection, on the same file and in the thread that calls. The App looks for the
                 commit and signals then. No other process writes while the transaction is open, so it should be short.

A savepoint holds what is written here: where it fails, the caller's own work stands and the error is raised.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from noonbell.errors import InvalidArgument
from noonbell.stores.psycopg_connection import PsycopgConnection, is_psycopg
from noonbell.stores.sql import ids
from noonbell.stores.sql.statement import Conflict, Statement, Work, drive
from noonbell.stores.wakeups import payloads

T = TypeVar("T")

_UNDEFINED_TABLE: Final = "42P01"
_UNIQUE_VIOLATION: Final = "23505"
"""States of SQL, which both drivers give their errors."""
_TRIES = 5
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
    for left in reversed(range(_TRIES)):
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
    """By hand: asyncpg's own refuses a transaction that was begun with a plain `begin`."""
    await connection.execute("savepoint noonbell")
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("rollback to savepoint noonbell; release savepoint noonbell")
        raise
    await connection.execute("release savepoint noonbell")


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
