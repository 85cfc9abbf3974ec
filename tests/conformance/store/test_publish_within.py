"""Publish inside a transaction of the caller's: born by its commit, and never without."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg
import pytest
from asyncmy.cursors import DictCursor
from psycopg.rows import dict_row

from conformance.store.builders import claim, claimed_ids, every, job, publish, publish_as, runs_of, status_of
from noonbell.clock import ManualClock
from noonbell.errors import InvalidArgument, InvalidState, NotFound
from noonbell.model.request import Publication, PublishOutcome
from noonbell.model.task import ConcurrencyPolicy, TaskId, TaskStatus
from noonbell.ports import Store
from noonbell.stores import open_store
from noonbell.stores.wakeups import channel_of

shared = pytest.mark.parametrize(
    ("kind", "driver"),
    [
        ("sqlite", "sqlite3"),
        ("postgres", "asyncpg"),
        ("postgres", "psycopg"),
        ("postgres", "psycopg without asyncio"),
        ("mariadb", "asyncmy"),
    ],
    indirect=True,
)
"""The stores whose connections a caller can bring, and the drivers that the caller may use."""


@pytest.fixture
def driver(request: pytest.FixtureRequest, kind: str) -> str:
    return getattr(request, "param", "asyncpg" if kind == "postgres" else "sqlite3")


class Caller:
    """An application with a table and a connection of its own, in the database of the store."""

    def __init__(self, run: Callable[[str], Any], connection: Any) -> None:
        self.run, self.connection = run, connection

    async def orders(self) -> int:
        rows = await self.run("select count(*) from orders")
        return int(rows[0][0])


@pytest.fixture
async def caller(driver: str, store: Store, store_url: str) -> AsyncIterator[Caller]:
    async with _caller_on(driver, store_url) as caller:
        await caller.run("drop table if exists orders")
        await caller.run("create table orders (id integer)")
        yield caller
        await caller.run("drop table orders")


@contextlib.asynccontextmanager
async def _caller_on(driver: str, url: str) -> AsyncIterator[Caller]:
    if driver == "asyncpg":
        connection = await asyncpg.connect(url)
        try:
            yield Caller(connection.fetch, connection)
        finally:
            await connection.close()
    elif driver == "psycopg":
        # Rows as dicts and JSON as objects are the caller's taste, and must not matter.
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as theirs:

            async def ask(sql: str) -> list[Any]:
                cursor = await theirs.execute(sql)
                return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []

            yield Caller(ask, theirs)
    elif driver == "psycopg without asyncio":
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as ours:

            async def ask_here(sql: str) -> list[Any]:
                cursor = ours.execute(sql)
                return [tuple(row.values()) for row in cursor.fetchall()] if cursor.description else []

            yield Caller(ask_here, ours)
    elif driver == "asyncmy":
        async with _on_mysql(url) as mine:

            async def say(sql: str) -> list[Any]:
                async with mine.cursor() as cursor:
                    await cursor.execute(sql)
                    return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []

            yield Caller(say, mine)
    else:
        with contextlib.closing(sqlite3.connect(urlsplit(url).path, isolation_level=None)) as file:

            async def run(sql: str) -> list[Any]:
                return file.execute(sql).fetchall()

            yield Caller(run, file)


@contextlib.asynccontextmanager
async def _on_mysql(url: str, isolation: str = "read committed") -> AsyncIterator[Any]:
    """With rows as dicts and a mode of SQL that ours is not."""
    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        db=parts.path.lstrip("/"),
        autocommit=True,
        cursor_cls=DictCursor,
        charset="utf8mb4",
        init_command=f"set session transaction isolation level {isolation}",
    )
    try:
        yield connection
    finally:
        await connection.ensure_closed()


@shared
async def test_a_run_is_born_by_the_commit_together_with_what_the_caller_wrote(kind: str, store: Store, caller: Caller):
    task = await store.create_task(job())
    await caller.run("begin")
    await caller.run("insert into orders values (1)")
    (answer,) = await store.publish_within(caller.connection, [Publication(task_id=task.id, payload={"order": 1})])
    assert answer.outcome is PublishOutcome.CREATED
    assert answer.run_id is not None
    assert await store.run(answer.run_id) is None
    if kind != "sqlite":  # there nobody else writes meanwhile, a claim included
        assert await claim(store) == []
    await caller.run("commit")
    (lease,) = await claim(store)
    assert (lease.run_id, lease.payload) == (answer.run_id, {"order": 1})
    assert await caller.orders() == 1


@shared
async def test_a_rollback_leaves_no_run_and_no_trace(store: Store, caller: Caller):
    task = await store.create_task(job(max_concurrency=3))
    before = await store.counts()
    await caller.run("begin")
    await store.publish_within(
        caller.connection, [Publication(task_id=task.id), Publication(task_id=task.id, key="k", delay_seconds=5)]
    )
    await caller.run("rollback")
    assert await runs_of(store, task) == []
    assert await store.counts() == before
    assert (await publish_as(store, task, "k")).outcome is PublishOutcome.CREATED


@shared
async def test_a_key_that_is_taken_makes_no_second_run(store: Store, caller: Caller):
    task = await store.create_task(job())
    first = await publish_as(store, task, "k")
    await caller.run("begin")
    answers = await store.publish_within(
        caller.connection, [Publication(task_id=task.id, key="k"), Publication(task_id=task.id, key="new")]
    )
    await caller.run("commit")
    assert [answer.outcome for answer in answers] == [PublishOutcome.EXISTS, PublishOutcome.CREATED]
    assert answers[0].run_id == first.run_id
    assert len(await runs_of(store, task)) == 2


@shared
async def test_a_refusal_leaves_the_callers_own_work_standing(store: Store, caller: Caller):
    await caller.run("begin")
    await caller.run("insert into orders values (1)")
    with pytest.raises(NotFound):
        await store.publish_within(caller.connection, [Publication(task_id=TaskId(99))])
    await caller.run("insert into orders values (2)")
    await caller.run("commit")
    assert await caller.orders() == 2


@shared
async def test_a_task_in_error_is_refused_as_ever(store: Store, caller: Caller, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)), status=TaskStatus.ERROR)
    await caller.run("begin")
    with pytest.raises(InvalidState):
        await store.publish_within(caller.connection, [Publication(task_id=task.id)])
    await caller.run("rollback")


@shared
async def test_a_task_at_its_limit_refuses_or_queues_as_ever(store: Store, caller: Caller):
    task = await store.create_task(job(max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP))
    running = await publish(store, task)
    assert claimed_ids(await claim(store)) == [running]
    await caller.run("begin")
    (answer,) = await store.publish_within(caller.connection, [Publication(task_id=task.id)])
    await caller.run("commit")
    assert answer.outcome is PublishOutcome.REFUSED
    assert len(await runs_of(store, task)) == 1


@shared
async def test_a_hundred_in_one_transaction_come_in_their_order(store: Store, caller: Caller):
    task = await store.create_task(job())
    await caller.run("begin")
    answers = await store.publish_within(
        caller.connection, [Publication(task_id=task.id, payload=n) for n in range(100)]
    )
    await caller.run("commit")
    leases = await claim(store, count=200)
    assert [lease.payload for lease in leases] == list(range(100))
    assert claimed_ids(leases) == [answer.run_id for answer in answers]


@shared
async def test_a_connection_without_a_transaction_is_refused(store: Store, caller: Caller):
    task = await store.create_task(job())
    with pytest.raises(InvalidArgument, match="without a transaction"):
        await store.publish_within(caller.connection, [Publication(task_id=task.id)])
    assert await runs_of(store, task) == []


async def test_something_else_than_a_connection_is_refused(store: Store, kind: str):
    task = await store.create_task(job())
    with pytest.raises(InvalidArgument) as refused:
        await store.publish_within(object(), [Publication(task_id=task.id)])
    assert list(refused.value.details) == ["transaction"]
    assert (kind == "postgres") is ("`driver_connection`" in refused.value.message)
    assert await runs_of(store, task) == []


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_connection_to_another_file_is_refused(store: Store, tmp_path):
    task = await store.create_task(job())
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
        with pytest.raises(InvalidArgument, match=r"other\.db; expected one to the store's file"):
            await store.publish_within(other, [Publication(task_id=task.id)])
        assert not other.in_transaction


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_sqlite3_connection_begins_by_itself_and_keeps_its_own_rows(store: Store, store_url: str):
    task = await store.create_task(job())
    with contextlib.closing(sqlite3.connect(urlsplit(store_url).path)) as file:
        file.row_factory = lambda cursor, row: dict(zip((c[0] for c in cursor.description), row, strict=True))
        (answer,) = await store.publish_within(file, [Publication(task_id=task.id, key="k")])
        assert file.in_transaction
        file.commit()
        assert file.execute("select 1 as one").fetchone() == {"one": 1}
    assert answer.run_id is not None
    assert await status_of(store, answer.run_id) == "SCHEDULED"


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
async def test_a_transaction_of_mariadb_is_read_committed_and_its_session_stays_as_it_was(store: Store, store_url: str):
    task = await store.create_task(job())
    async with _on_mysql(store_url, "repeatable read") as connection:
        await connection.begin()
        with pytest.raises(InvalidArgument, match="REPEATABLE-READ; expected READ-COMMITTED"):
            await store.publish_within(connection, [Publication(task_id=task.id)])
        await connection.rollback()
        async with connection.cursor() as cursor:
            await cursor.execute("set session transaction isolation level read committed")
            await cursor.execute("set session sql_mode = 'STRICT_ALL_TABLES'")
        await connection.begin()
        with pytest.raises(NotFound):
            await store.publish_within(connection, [Publication(task_id=TaskId(99))])
        await store.publish_within(connection, [Publication(task_id=task.id)])
        async with connection.cursor() as cursor:
            await cursor.execute("select @@session.sql_mode as mode")
            assert (await cursor.fetchone())["mode"] == "STRICT_ALL_TABLES"
        await connection.commit()
    assert len(await runs_of(store, task)) == 1


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
async def test_of_two_that_publish_a_key_at_once_on_mariadb_the_second_finds_it(store: Store, store_url: str):
    task = await store.create_task(job())
    asked = [Publication(task_id=task.id, key="k")]
    async with _on_mysql(store_url) as first, _on_mysql(store_url) as second:
        await first.begin()
        await second.begin()
        (one,) = await store.publish_within(first, asked)
        waiting = asyncio.create_task(store.publish_within(second, asked))
        await asyncio.sleep(0)
        await first.commit()
        (two,) = await waiting
        await second.commit()
    assert (one.outcome, two.outcome) == (PublishOutcome.CREATED, PublishOutcome.EXISTS)
    assert one.run_id == two.run_id


@pytest.mark.bare_database
@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
async def test_a_connection_to_another_database_is_refused(store: Store, postgres_url: str):
    task = await store.create_task(job())
    other = await asyncpg.connect(postgres_url)
    try:
        async with other.transaction():
            with pytest.raises(InvalidArgument, match="another database"):
                await store.publish_within(other, [Publication(task_id=task.id)])
            assert await other.fetchval("select 1") == 1
    finally:
        await other.close()


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
async def test_a_connection_to_another_installation_is_refused(
    store: Store, store_names: dict[str, str], postgres_url: str
):
    """It has tables of the same names, and perhaps a task with the same number."""
    task = await store.create_task(job())
    another = open_store(postgres_url, new=True, **store_names)
    await another.open()
    same_number = await another.create_task(job())
    other = await asyncpg.connect(postgres_url)
    try:
        assert same_number.id == task.id
        async with other.transaction():
            with pytest.raises(InvalidArgument, match="another installation"):
                await store.publish_within(other, [Publication(task_id=task.id)])
            assert await other.fetchval("select 1") == 1
        assert await runs_of(another, same_number) == []
    finally:
        await other.close()
        await another.close()


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
async def test_the_commit_signals_and_nothing_before_it_does(store: Store, store_url: str, caller: Caller):
    heard: list[str] = []
    listener = await asyncpg.connect(store_url)
    try:
        channel = channel_of(store.dialect.naming.mark)  # type: ignore[attr-defined]
        await listener.add_listener(channel, lambda _c, _p, _ch, payload: heard.append(str(payload)))
        task = await store.create_task(job())
        await caller.run("begin")
        await store.publish_within(caller.connection, [Publication(task_id=task.id)], ["queue:default", "plan"])
        await listener.fetchval("select 1")
        assert heard == []
        await caller.run("commit")
        await listener.fetchval("select 1")
        assert heard == ["\nqueue:default\nplan"]
    finally:
        await listener.close()
