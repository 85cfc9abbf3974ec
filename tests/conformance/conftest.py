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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from conformance.store.builders import START, Node, Sizes
from conformance.store.rollup_scan import uncounted
from noonbell import stores
from noonbell.clock import ManualClock
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore
from services import prepared
from services.databases import MysqlDatabases, PostgresDatabases
from services.emptied import Emptied, EmptiedMariadb, EmptiedPostgres
from services.kept import KeptConnections

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

ON_A_FILE = (
    "test_life",
    "test_claim",
    "test_settle",
    "test_plan",
    "test_publish",
    "test_publish_within",
    "test_dedupe",
    "test_installation_pause",
    "test_histories",
    "test_rollups",
)
"""What `make test` runs on SQLite too: life, locks, what commits, what races. The rest goes the same way as in memory: `make test-full`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.stem not in ON_A_FILE:
            stores = getattr(item, "callspec", None)
            if stores and stores.params.get("kind") == "sqlite" and _runs_in_memory(item):
                item.add_marker(pytest.mark.full)


def _runs_in_memory(item: pytest.Item) -> bool:
    """Unless a test names its stores itself, or a folder has stores of its own."""
    (*_, nearest) = item._fixtureinfo.name2fixturedefs["kind"]
    return nearest.params == STORES


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
async def store(
    kind: str, store_url: str, clock: ManualClock, kept_connections: dict[str, KeptConnections]
) -> AsyncIterator[Store]:
    if kind == "sqlite" and not PREFIX:
        prepared.fill(store_url)
    store = open_store(store_url, clock=clock)
    await kept_connections[kind].open(store)
    try:
        yield store
        assert await store.recount() == 0, "a counter that a limit relies on is wrong"
        assert await uncounted(store) == {}, "runs ended that the roll-ups do not know of"
    finally:
        await store.close()


@pytest.fixture
def store_names() -> dict[str, Any]:
    """The schema and the prefix of the store's tables, where it has some."""
    return {}


@pytest.fixture
async def another_node(
    kind: str, store: Store, store_url: str, store_names: dict[str, Any], clock: ManualClock
) -> AsyncIterator[Node]:
    """For what must hold over all nodes. The memory store has no second node: there it is the same store again."""
    async with contextlib.AsyncExitStack() as cleanup:

        async def open_another() -> Store:
            if kind == "memory":
                return store
            node = open_store(store_url, clock=clock, **store_names)
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


@pytest.fixture(scope="session")
async def kept_connections() -> AsyncIterator[dict[str, KeptConnections]]:
    """By the kind of store."""
    kept = {kind: KeptConnections() for kind in STORES}
    yield kept
    for each in kept.values():
        await each.close()
