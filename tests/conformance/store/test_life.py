"""Open, close, and open again: what was written is there, and a newer schema is refused."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from urllib.parse import urlsplit

import asyncpg
import pytest

from conformance.store.builders import (
    Node,
    S,
    at,
    born_at,
    claim,
    done,
    every,
    finish,
    job,
    publish_many,
    run_of,
    runs_of,
    started,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.errors import SchemaMismatch, StoreUnavailable
from noonbell.model.request import Publication
from noonbell.model.run import RunId
from noonbell.ports import Store
from noonbell.stores import open_store
from noonbell.stores.sql.statement import NewIds, Work
from noonbell.stores.sql.store import SqlStore
from services.probe import connect_mysql

NEWER = "insert into {steps} (number, title) values (9999, 'from the future')"


lasting = pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"], indirect=True)
"""The memory store lives as long as it is open, and has no second node."""


@lasting
async def test_what_was_written_is_there_after_closing_and_opening(store_url: str, clock: ManualClock):
    first = open_store(store_url, clock=clock)
    await first.open()
    task = await first.create_task(job(schedule=every(10)))
    lease = await started(first, task)
    waiting = await publish_many(first, task, 2)
    await first.close()
    clock.advance(25)
    second = open_store(store_url, clock=clock)
    await second.open()
    try:
        assert await second.task(task.id) == task
        assert (await run_of(second, lease.run_id)).status is S.RUNNING
        await done(second, finish(lease))
        await second.plan(10)
        assert await born_at(second, task) == [0, 0, 0, 10, 20]
        leases = await claim(second)
        assert [lease.run_id for lease in leases][:2] == waiting
        assert await second.recount() == 0
    finally:
        await second.close()


@lasting
async def test_ids_and_tokens_never_come_twice(store_url: str, clock: ManualClock):
    seen: set[int] = set()
    for _ in range(3):
        store = open_store(store_url, clock=clock)
        await store.open()
        task = await store.task_named("j") or await store.create_task(job())
        run_ids = await publish_many(store, task, 3)
        assert not seen & set(run_ids)
        seen |= set(run_ids)
        await store.close()


@lasting
async def test_opening_twice_changes_nothing(store: Store, store_url: str, clock: ManualClock):
    task = await store.create_task(job())
    node = open_store(store_url, clock=clock)
    await node.open()
    assert await node.task(task.id) == task
    await node.close()
    assert await store.task(task.id) == task


@lasting
async def test_a_schema_that_is_newer_than_the_code_is_refused(kind: str, request: pytest.FixtureRequest):
    url = own_database(kind, request)
    store = open_store(url)
    await store.open()
    await store.close()
    await execute(kind, url, NEWER.format(steps=store.dialect.naming.table("schema_steps")))
    store = open_store(url)
    with pytest.raises(SchemaMismatch):
        await store.open()
    await store.close()


@lasting
async def test_nodes_that_open_an_empty_database_at_once_agree(kind: str, request: pytest.FixtureRequest):
    nodes = [open_store(own_database(kind, request)) for _ in range(3)]
    try:
        await asyncio.gather(*(node.open() for node in nodes))
        task = await nodes[0].create_task(job())
        assert task.id == 1
        assert [await node.task(task.id) for node in nodes] == [task] * 3
    finally:
        for node in nodes:
            await node.close()


def own_database(kind: str, request: pytest.FixtureRequest) -> str:
    """One that was never opened, and that nobody else uses."""
    name = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}[kind]
    return str(request.getfixturevalue(name))


async def test_ids_that_a_transaction_took_and_gave_back_are_not_given_out_twice(store: Store, another_node: Node):
    """What a rolled back transaction took from the counter is not ours, and another node takes it next."""
    assert isinstance(store, SqlStore)
    other = await another_node()
    task = await store.create_task(job())

    def takes_ids_and_fails(_: object) -> Work[None]:
        yield NewIds(1)
        raise LookupError("after it took ids")

    run_ids: list[RunId] = []
    for _ in range(3):
        with pytest.raises(LookupError):
            await store._write(takes_ids_and_fails)
        for node in (other, store):
            run_ids += await publish_many(node, task, 600)
    assert len(set(run_ids)) == len(run_ids) == 3600


async def test_what_was_called_before_the_close_has_finished_or_failed(store_url: str, clock: ManualClock):
    store = open_store(store_url, clock=clock)
    await store.open()
    task = await store.create_task(job())
    calls = [asyncio.ensure_future(store.publish([Publication(task_id=task.id)])) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 60)
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    assert [answer for answer in answers if not isinstance(answer, list | Exception)] == []


@pytest.mark.parametrize("call", [lambda store: store.last_event(), lambda store: store.create_task(job())])
async def test_what_is_called_while_the_store_closes_is_answered(
    store_url: str, clock: ManualClock, call: Callable[[Store], Awaitable[object]]
):
    store = open_store(store_url, clock=clock)
    await store.open()
    closing_it = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    answers = await asyncio.wait_for(asyncio.gather(call(store), return_exceptions=True), 60)
    assert [
        answer for answer in answers if isinstance(answer, Exception) and not isinstance(answer, StoreUnavailable)
    ] == []
    await asyncio.wait_for(closing_it, 60)


async def execute(kind: str, url: str, statement: str) -> None:
    if kind == "sqlite":
        with closing(sqlite3.connect(urlsplit(url).path)) as file:
            file.execute(statement)
            file.commit()
    elif kind == "postgres":
        server = await asyncpg.connect(url)
        await server.execute(statement)
        await server.close()
    else:
        connection = await connect_mysql(url)
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
        connection.close()


async def test_without_a_clock_of_its_own_a_store_goes_by_the_databases(store_url: str):
    store = open_store(store_url)
    await store.open()
    try:
        first, second = await store.now(), await store.now()
        assert first <= second
        assert abs(first - time.time() * SECOND) < 60 * SECOND
        task = await store.create_task(job(schedule=every(3600)))
        assert abs(task.created_at - first) < 60 * SECOND
        assert task.next_fire_at is not None
        assert first < task.next_fire_at <= first + 3700 * SECOND
        lease = await started(store, task)
        assert first <= lease.claimed_at < lease.expires_at
        await done(store, finish(lease))
        (run,) = await runs_of(store, task)
        assert run.end_time is not None
        assert run.end_time >= first
    finally:
        await store.close()


async def test_closing_twice_is_harmless(store_url: str, clock: ManualClock):
    store = open_store(store_url, clock=clock)
    await store.open()
    assert await store.now() == at(0)
    await store.close()
    await store.close()
