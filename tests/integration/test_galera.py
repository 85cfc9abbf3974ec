"""On a Galera cluster with several writers, where locks end at the server that took them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    claim,
    done,
    finish,
    http,
    job,
    park,
    publish,
    run_of,
    started,
)
from conformance.store.test_callback import call
from conformance.store.test_workers_and_queues import set_queue
from integration.private_servers import PrivateServer, missing, private_servers
from noonbell.model.run import SettleResult
from noonbell.model.worker import Order
from noonbell.stores import migrations, open_store
from noonbell.stores.migrations import table_lock
from noonbell.stores.mysql import MysqlStore
from services import probe
from services.launch import Unavailable

pytestmark = (
    pytest.mark.full
)  # a cluster of its own, and a second server that must fall behind: not beside everything else


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[PrivateServer]]:
    with private_servers() as servers:
        try:
            made = servers.galera(2)
        except (FileNotFoundError, Unavailable, TimeoutError) as error:
            missing(error)
        yield made


async def test_nodes_that_start_together_on_an_empty_database_all_come_up(cluster: list[PrivateServer]):
    urls = [url for url in await new_database(cluster, "together") for _ in range(2)]
    stores = [open_store(url, connections=2) for url in urls]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        found = await stores[-1].look_at_schema()
        assert found.step == migrations.LATEST
        assert not found.foreign
        assert not [name for name in found.log if name == table_lock.NAME or name.startswith("waits")]
        await asyncio.gather(*(store.create_task(http(f"t{n}")) for n, store in enumerate(stores)))
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_the_lock_of_a_node_that_died_is_taken_over(
    cluster: list[PrivateServer], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table_lock, "LOST_AFTER", 4)
    first, second = await new_database(cluster, "died")
    await say(
        cluster[0],
        "create table died.schema_log (name varchar(100) primary key, step integer not null, state varchar(10) not null)",
        f"insert into died.schema_log values ('{table_lock.NAME}', -7, 'gone')",
    )
    stores = [open_store(first, connections=2), open_store(second, connections=2)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        assert (await stores[0].look_at_schema()).step == migrations.LATEST
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_database_with_something_foreign_gets_not_even_a_lock(cluster: list[PrivateServer]):
    first, _ = await new_database(cluster, "foreign_one")
    await say(cluster[0], "create table foreign_one.tasks (id int primary key)")
    store = open_store(first, connections=2)
    with pytest.raises(migrations.SchemaMismatch, match="tasks"):
        await store.open()
    await store.close()
    assert await say(cluster[0], "show tables in foreign_one") == [("tasks",)]


async def test_a_callback_that_comes_in_at_a_server_which_is_behind_settles_its_run(cluster: list[PrivateServer]):
    async with both(cluster, "behind") as (first, second):
        task = await first.create_task(asynchronous(max_concurrency=None))
        await let_second_fall_behind(cluster, "behind")
        lease = await started(first, task)
        await done(first, park(lease, delay=300))
        assert not (await call(second, lease)).reason
        assert (await run_of(second, lease.run_id)).status is S.CALLBACK_SUCCESS


async def test_a_settlement_at_a_server_which_is_behind_is_not_lost(cluster: list[PrivateServer]):
    async with both(cluster, "settled") as (first, second):
        task = await first.create_task(job())
        await second.see_all_commits()
        await second.task_named(task.spec.name)
        await let_second_fall_behind(cluster, "settled")
        lease = await started(first, task)
        answer = await second.heartbeat("w1", [(lease.run_id, lease.token)])
        assert [order.order for order in answer.orders] == [Order.CONTINUE]
        assert await second.settle([finish(lease)]) == [SettleResult.DONE]


async def test_claims_on_two_servers_keep_the_limit_of_a_queue(cluster: list[PrivateServer]):
    async with both(cluster, "limited") as (first, second):
        await set_queue(first, "default", concurrency=1)
        for name in ("a", "b"):
            await publish(first, await first.create_task(job(name, job_type=name)))
        await second.see_all_commits()
        await let_second_fall_behind(cluster, "limited")
        assert len(await claim(first, "w1", job_types=("a",))) == 1
        assert await claim(second, "w2", job_types=("b",)) == [], "two runs of a queue for one"


async def let_second_fall_behind(cluster: list[PrivateServer], name: str) -> None:
    """It has to apply a large transaction before it gets to those that follow."""
    await say(
        cluster[0],
        f"create table {name}.large (id int primary key, filler varchar(200))",
        f"insert into {name}.large select seq, repeat('x', 200) from seq_1_to_100000",
    )


@asynccontextmanager
async def both(cluster: list[PrivateServer], name: str) -> AsyncIterator[list[MysqlStore]]:
    """A store on each server, of one database."""
    stores = [MysqlStore(url, connections=4) for url in await new_database(cluster, name)]
    try:
        for store in stores:
            await store.open()
        yield stores
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def new_database(cluster: list[PrivateServer], name: str) -> list[str]:
    await say(cluster[0], f"create database {name} character set utf8mb4")
    return [server.command.url.removesuffix("/mysql") + f"/{name}" for server in cluster]


async def say(server: PrivateServer, *statements: str) -> list[tuple]:
    link = await probe.connect_mysql(server.command.url)
    try:
        async with link.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
            rows = list(await cursor.fetchall()) if cursor.description else []
        await link.commit()
        return rows
    finally:
        await link.ensure_closed()
