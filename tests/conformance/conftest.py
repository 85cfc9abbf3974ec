"""One fixture, four stores: whoever asks for `store` is run on each of them, empty and with a clock that stands still.

A database server's schema is made once for each test process; between tests its tables are emptied, which is many
times quicker than a new database. After each test that asked for `store`, its counters must be right.

With `NOONBELL_TEST_TABLE_PREFIX` or `NOONBELL_TEST_SCHEMA` in the environment, all of it runs on stores whose tables have that
prefix, or on PostgreSQL are in that schema.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import pytest

from conformance.store.builders import START, Node, Sizes
from noonbell import stores
from noonbell.clock import ManualClock
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore
from services.databases import MysqlDatabases, PostgresDatabases, name_in
from services.probe import connect_mysql

PREFIX, SCHEMA = os.environ.get("NOONBELL_TEST_TABLE_PREFIX", ""), os.environ.get("NOONBELL_TEST_SCHEMA")
_open_plainly = stores.open_store


def open_store(url: str, **more: Any) -> SqlStore:
    names: dict[str, Any] = {"table_prefix": PREFIX}
    if url.startswith("postgres"):
        names["schema"] = SCHEMA
    return _open_plainly(url, **{**names, **more})


if PREFIX or SCHEMA:
    stores.open_store = open_store  # the tests of this folder are read after this, and open theirs by the same name

STORES = ("memory", "sqlite", "postgres", "mariadb")

KEPT = ("schema_steps", "schema_log")
"""The tables that say how new the schema is and what it made: they outlive the emptying."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """Which store the test runs on."""
    return str(request.param)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest) -> Emptied | str:
    """Where the test's store is: an address that nobody has used, or a server that has to be emptied first."""
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return str(request.getfixturevalue("sqlite_url"))
        case _:
            server: Emptied = request.getfixturevalue(f"emptied_{kind}")
            return server


@pytest.fixture
async def store_url(database: Emptied | str) -> str:
    """An empty database for this test."""
    return database if isinstance(database, str) else await database.url_of_empty()


@pytest.fixture
async def store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    store = open_store(store_url, clock=clock)
    await store.open()
    try:
        yield store
        assert await store.recount() == 0, "a counter that a limit relies on is wrong"
    finally:
        await store.close()


@pytest.fixture
async def another_node(kind: str, store: Store, store_url: str, clock: ManualClock) -> AsyncIterator[Node]:
    """For what must hold over all nodes. The memory store has no second node: there it is the same store again."""
    async with contextlib.AsyncExitStack() as cleanup:

        async def open_another() -> Store:
            if kind == "memory":
                return store
            node = open_store(store_url, clock=clock)
            await node.open()
            cleanup.push_async_callback(node.close)
            return node

        yield open_another


@pytest.fixture
def table_sizes(kind: str, store: Store, database: Emptied | str) -> Sizes:
    """Rows by table, so that nothing can be left behind unseen. The memory store tells what it wants to tell."""

    async def sizes() -> dict[str, int]:
        if kind == "memory":
            return dict(await store.counts())
        if isinstance(database, str):
            return sqlite_sizes(database)
        return await database.sizes()

    return sizes


def sqlite_sizes(url: str) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(urlsplit(url).path)) as file:
        tables = [name for (name,) in file.execute("select name from sqlite_master where type = 'table'")]
        return {table: file.execute(f'select count(*) from "{table}"').fetchone()[0] for table in tables}


# ---- servers, one database for each test process


class Emptied(Protocol):
    async def url_of_empty(self) -> str: ...

    async def sizes(self) -> dict[str, int]: ...


class EmptiedPostgres:
    def __init__(self, url: str, schema: str | None = None, prefix: str = "") -> None:
        self._url, self._schema, self._prefix = url, schema, prefix
        self._connection: Any = None
        self._statement = ""

    async def url_of_empty(self) -> str:
        if self._connection is None:
            await migrate(self._url, schema=self._schema, table_prefix=self._prefix)
            self._connection = await asyncpg.connect(self._url)
            await self._connection.execute(f"set search_path = {self._schema or 'public'}")
            # What is tested here is what a store says and does, not what a power cut leaves behind.
            await self._connection.execute(f"alter database {name_in(self._url)} set synchronous_commit = off")
            found = await self._connection.fetch("select tablename from pg_tables where schemaname = current_schema()")
            self._statement = await self._emptying([row[0] for row in found if not row[0].endswith(KEPT)])
        await self._connection.execute(self._statement)
        return self._url

    async def sizes(self) -> dict[str, int]:
        found = await self._connection.fetch("select tablename from pg_tables where schemaname = current_schema()")
        return {name: await self._connection.fetchval(f'select count(*) from "{name}"') for (name,) in found}

    async def _emptying(self, tables: list[str]) -> str:
        """Deletes everything, and puts back what the migrations had written."""
        statements = [f'delete from "{table}"' for table in tables]
        for table in tables:
            if await self._connection.fetchval(f'select count(*) from "{table}"'):
                await self._connection.execute(f'create temporary table "seed_{table}" as select * from "{table}"')
                statements.append(f'insert into "{table}" select * from "seed_{table}"')
        return ";".join(statements)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class EmptiedMariadb:
    def __init__(self, url: str, prefix: str = "") -> None:
        self._url, self._prefix = url, prefix
        self._connection: Any = None
        self._statements: list[str] = []

    async def url_of_empty(self) -> str:
        if self._connection is None:
            await migrate(self._url, table_prefix=self._prefix)
            self._connection = await connect_mysql(self._url)
            found = await self._run("show full tables where table_type = 'BASE TABLE'")
            self._statements = await self._emptying([row[0] for row in found if not row[0].endswith(KEPT)])
        await self._run("begin", *self._statements, "commit")
        return self._url

    async def sizes(self) -> dict[str, int]:
        found = await self._run("show full tables where table_type = 'BASE TABLE'")
        return {name: (await self._run(f"select count(*) from `{name}`"))[0][0] for name, *_ in found}

    async def _emptying(self, tables: list[str]) -> list[str]:
        statements = ["set foreign_key_checks = 0", *(f"delete from `{table}`" for table in tables)]
        for table in tables:
            if (await self._run(f"select count(*) from `{table}`"))[0][0]:
                await self._run(f"create temporary table `seed_{table}` as select * from `{table}`")
                statements.append(f"insert into `{table}` select * from `seed_{table}`")
        return statements

    async def _run(self, *statements: str) -> list[tuple[Any, ...]]:
        async with self._connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
            return list(await cursor.fetchall()) if cursor.description else []

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def migrate(url: str, **names: Any) -> None:
    store = open_store(url, **names)
    await store.open()
    await store.close()


@pytest.fixture(scope="session")
def conformance_postgres_url(postgres_databases: PostgresDatabases) -> Iterator[str]:
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture(scope="session")
def conformance_mariadb_url(mysql_databases: MysqlDatabases) -> Iterator[str]:
    url = mysql_databases.create()
    yield url
    mysql_databases.drop(url)


@pytest.fixture(scope="session")
async def emptied_postgres(conformance_postgres_url: str) -> AsyncIterator[EmptiedPostgres]:
    server = EmptiedPostgres(conformance_postgres_url, SCHEMA, PREFIX)
    yield server
    await server.close()


@pytest.fixture(scope="session")
async def emptied_mariadb(conformance_mariadb_url: str) -> AsyncIterator[EmptiedMariadb]:
    server = EmptiedMariadb(conformance_mariadb_url, PREFIX)
    yield server
    await server.close()
