"""An address with several hosts: the writable one is found, found again after a fail-over, and never one of two."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import asyncpg
import pytest

from conformance.store.builders import http as task
from integration.private_servers import PrivateServer, PrivateServers, missing, private_servers
from noonbell.errors import StoreUnavailable
from noonbell.model.task import TaskSpec
from noonbell.stores import make_wakeup, open_store
from noonbell.stores.sql.store import SqlStore
from services import probe
from services.launch import Unavailable


@pytest.fixture
def servers() -> Iterator[PrivateServers]:
    with private_servers() as made:
        yield made


def address(scheme: str, *servers: PrivateServer, database: str) -> str:
    user = "postgres" if scheme == "postgresql" else "root"
    return f"{scheme}://{user}@{','.join(server.host for server in servers)}/{database}"


async def test_postgres_is_found_again_after_a_fail_over_and_an_old_primary_is_not_taken(
    servers: PrivateServers, caplog: pytest.LogCaptureFixture
):
    try:
        first = servers.postgres()
        second = servers.standby_of(first)
    except (FileNotFoundError, Unavailable) as error:
        missing(error)
    url = address("postgresql", second, first, database="postgres")
    store = open_store(url)
    await store.open()
    try:
        await store.create_task(task("before"))
        wakeup = make_wakeup(url)
        await wakeup.open()
        assert wakeup.is_connected  # type: ignore[attr-defined]
        await wakeup.close()

        await caught_up(first, second)
        first.kill()
        await promote(second)
        await until_it_writes(store, task("after"))
        assert await both_tasks(store)

        first.start()  # by itself, as a primary: nothing has fenced it
        listed_first = open_store(address("postgresql", first, second, database="postgres"))
        with caplog.at_level(logging.WARNING, "noonbell.store"):
            await listed_first.open()
        assert await both_tasks(listed_first)
        assert f"{first.host} takes writes on timeline 1" in caplog.text
        await listed_first.close()

        second.kill()
        with pytest.raises(StoreUnavailable, match="has worked on timeline 2: it is an old primary"):
            await until_it_writes(store, task("lost"))
    finally:
        await store.close()


async def test_two_primaries_of_postgres_are_refused(servers: PrivateServers):
    try:
        first, second = servers.postgres(), servers.postgres()
    except (FileNotFoundError, Unavailable) as error:
        missing(error)
    store = open_store(address("postgresql", first, second, database="postgres"))
    with pytest.raises(StoreUnavailable, match=f"two hosts accept writes: {first.host} and {second.host}"):
        await store.open()
    await store.close()


async def test_mariadb_is_found_where_it_takes_writes_and_two_of_them_are_refused(servers: PrivateServers):
    try:
        first, second = servers.mariadb(read_only="ON"), servers.mariadb()
    except (FileNotFoundError, Unavailable) as error:
        missing(error)
    for server in (first, second):
        await say(server, "create database nb")
    # root may write on a read-only server
    for server in (first, second):
        await say(server, "create user app@'127.0.0.1'", "grant all on nb.* to app@'127.0.0.1'")
    url = address("mysql", first, second, database="nb").replace("root@", "app@")
    store = open_store(url)
    await store.open()
    try:
        await store.create_task(task("on the second"))
        assert await count(second) == 1
        await say(second, "set global read_only = 1")
        await say(first, "set global read_only = 0")
        other = open_store(url)
        await other.open()  # makes the schema there
        await other.close()
        await until_it_writes(store, task("on the first"))
        assert await count(first) == 1

        await say(second, "set global read_only = 0")
        both = open_store(url)
        with pytest.raises(StoreUnavailable, match=f"two hosts accept writes: {first.host} and {second.host}"):
            await both.open()
        await both.close()

        first.kill()
        await until_it_writes(store, task("on the second again"))
        assert await count(second) == 2
    finally:
        await store.close()


async def both_tasks(store: SqlStore) -> bool:
    return None not in [await store.task_named(name) for name in ("before", "after")]


async def until_it_writes(store: SqlStore, spec: TaskSpec) -> None:
    for _ in range(5):
        try:
            await store.create_task(spec)
        except StoreUnavailable:
            continue
        return
    await store.create_task(spec)


async def caught_up(primary: PrivateServer, standby: PrivateServer) -> None:
    leading = await asyncpg.connect(primary.command.url)
    try:
        position = await leading.fetchval("select pg_current_wal_lsn()::text")
    finally:
        await leading.close()
    following = await asyncpg.connect(standby.command.url)
    try:
        while not await following.fetchval("select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", position):
            await following.fetchval("select pg_sleep(0.02)")
    finally:
        await following.close()


async def promote(standby: PrivateServer) -> None:
    connection = await asyncpg.connect(standby.command.url)
    try:
        # A statement that waits until the standby leads would be in the way of what it has yet to replay.
        await connection.fetchval("select pg_promote(wait => false)")
        while await connection.fetchval("select pg_is_in_recovery()"):
            await connection.fetchval("select pg_sleep(0.02)")
    finally:
        await connection.close()


async def say(server: PrivateServer, *statements: str) -> list[tuple]:
    link = await probe.connect_mysql(server.command.url)
    try:
        async with link.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
            return list(await cursor.fetchall()) if cursor.description else []
    finally:
        await link.ensure_closed()


async def count(server: PrivateServer) -> int:
    return int((await say(server, "select count(*) from nb.tasks"))[0][0])
