"""The same stores, their tables under a prefix or in a schema of their own. All of it: see `conformance.conftest`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from noonbell.clock import ManualClock
from noonbell.ports import Store
from noonbell.stores import open_store
from services.databases import MysqlDatabases, PostgresDatabases
from services.emptied import Emptied, EmptiedMariadb, EmptiedPostgres

NAMES: dict[str, dict[str, Any]] = {
    "sqlite": {"table_prefix": "nb_"},
    "postgres": {"schema": "bell", "table_prefix": "nb_"},
    "mariadb": {"table_prefix": "nb_"},
}


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest) -> Emptied | str:
    if kind == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: Emptied = request.getfixturevalue(f"apart_{kind}")
    return server


@pytest.fixture
def store_names(kind: str) -> dict[str, Any]:
    return NAMES[kind]


@pytest.fixture
async def store(store_url: str, store_names: dict[str, Any], clock: ManualClock) -> AsyncIterator[Store]:
    store = open_store(store_url, clock=clock, **store_names)
    await store.open()
    try:
        yield store
        assert await store.recount() == 0, "a counter that a limit relies on is wrong"
    finally:
        await store.close()


@pytest.fixture(scope="session")
def apart_postgres_url(postgres_databases: PostgresDatabases) -> Iterator[str]:
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture(scope="session")
def apart_mariadb_url(mysql_databases: MysqlDatabases) -> Iterator[str]:
    url = mysql_databases.create()
    yield url
    mysql_databases.drop(url)


@pytest.fixture(scope="session")
async def apart_postgres(apart_postgres_url: str) -> AsyncIterator[EmptiedPostgres]:
    server = EmptiedPostgres(apart_postgres_url, "bell", "nb_")
    yield server
    await server.close()


@pytest.fixture(scope="session")
async def apart_mariadb(apart_mariadb_url: str) -> AsyncIterator[EmptiedMariadb]:
    server = EmptiedMariadb(apart_mariadb_url, "nb_")
    yield server
    await server.close()
