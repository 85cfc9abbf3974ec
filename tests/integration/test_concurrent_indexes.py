"""Indexes of large tables are built while others write: on PostgreSQL after their step, on MariaDB by their statement."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from integration.conftest import Open
from integration.support import execute, job, publish_many, until
from noonbell.stores import postgres_history
from noonbell.stores.migrations import LARGE, ownership
from noonbell.stores.postgres import PostgresStore

pytestmark = pytest.mark.bare_database

BEFORE = 16
"""Step 17 makes an index on `join_runs`."""
INDEX = "join_runs_run"


async def with_many_joins(opened: Open, url: str, **more: Any) -> PostgresStore:
    """A store from before step 17."""
    store = await opened(url, **more)
    assert isinstance(store, PostgresStore)
    await store.migrate(BEFORE)
    await execute(
        store,
        "insert into join_runs (join_id, upstream_id, run_id, status, fills)"
        f" select n, 1, n, 'SUCCESS', 1 from generate_series(1, {LARGE + 1}) n",
    )
    return store


async def is_valid(store: PostgresStore, name: str) -> bool | None:
    rows = await store.fetch(
        "select i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid where c.relname = :name", name=name
    )
    return rows[0][0] if rows else None


async def left_out(store: PostgresStore) -> list[str]:
    return await store._read(ownership.indexes_left_out)


@pytest.mark.parametrize("names", [{}, {"schema": "bell", "table_prefix": "nb_"}], ids=["plain", "apart"])
async def test_an_index_of_a_large_table_is_built_after_its_step(
    opened: Open, postgres_url: str, names: dict[str, str]
):
    store = await with_many_joins(opened, postgres_url, **names)
    said: list[str] = []
    await store.migrate(say=said.append)
    assert await is_valid(store, f"{names.get('table_prefix', '')}{INDEX}") is True
    assert await left_out(store) == []
    await store.check_schema()


async def build_that_waits(
    store: PostgresStore, **more: Any
) -> tuple[asyncio.Task[Any], asyncio.Event, asyncio.Task[None]]:
    """A build that waits for a transaction that is open: the build, what ends the transaction, and its holder."""
    may_end, is_open = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async def use(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("update join_runs set fills = 0 where join_id = 1")
                is_open.set()
                await may_end.wait()

        await store._with_connection(use, begins=True)

    async def is_under_way() -> bool:
        return await is_valid(store, INDEX) is False

    holder = asyncio.create_task(hold())
    await is_open.wait()
    steps = asyncio.create_task(store.migrate(**more))
    await until(is_under_way, 30, "the build of the index")
    return steps, may_end, holder


async def test_writers_go_on_while_an_index_is_built(opened: Open, postgres_url: str):
    """The build waits for a transaction that is open; who writes to the table does not wait for the build."""
    store = await with_many_joins(opened, postgres_url)
    steps, may_end, holder = await build_that_waits(store)
    await execute(store, "update join_runs set fills = 0 where join_id = 2")
    assert not steps.done()
    may_end.set()
    await holder
    await steps
    assert await is_valid(store, INDEX) is True


async def test_a_build_says_what_it_is_at(opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(postgres_history, "_EVERY", 0.05)
    store = await with_many_joins(opened, postgres_url)
    said: list[str] = []
    steps, may_end, holder = await build_that_waits(store, say=said.append)
    line = f"index {INDEX}: waiting for writers before build"

    async def is_told() -> bool:
        return line in said

    await until(is_told, 30, "a word about the build")
    may_end.set()
    await holder
    await steps


async def test_an_index_that_one_node_builds_is_not_built_by_another(opened: Open, postgres_url: str):
    """It would wait for the first build, drop the index that came of it, and build it again."""
    store = await with_many_joins(opened, postgres_url)
    steps, may_end, holder = await build_that_waits(store)
    another = await opened(postgres_url)
    assert isinstance(another, PostgresStore)
    second = asyncio.create_task(another.build_indexes())
    done, _ = await asyncio.wait({second, steps}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    may_end.set()
    await holder
    await steps
    assert done == {second}, "it does not wait for the first one"
    assert await second == []
    assert await is_valid(store, INDEX) is True
    assert await left_out(store) == []


async def test_an_index_that_was_cut_off_is_made_anew(opened: Open, postgres_url: str):
    store = await with_many_joins(opened, postgres_url)
    await store.migrate()
    await execute(store, f"update pg_index set indisvalid = false where indexrelid = '{INDEX}'::regclass")
    await execute(store, f"insert into schema_log (name, step, state) values ('index {INDEX}', 17, 'begun')")
    another = await opened(postgres_url)
    assert await another.tend_history(86_400.0, 86_400.0)
    assert await is_valid(store, INDEX) is True
    assert await left_out(store) == []


async def test_an_index_of_a_table_in_partitions_is_built_in_each(opened: Open, postgres_url: str):
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    task = await store.create_task(job("plain"))
    await publish_many(store, task, 10)
    await execute(store, "drop index runs_task")
    await execute(store, "insert into schema_log (name, step, state) values ('index runs_task', 1, 'begun')")
    assert await store.build_indexes() == ["runs_task"]
    assert await is_valid(store, "runs_task") is True
    assert await is_valid(store, "runs_before_runs_task") is True
    assert await store.build_indexes() == []


async def test_writers_do_not_queue_behind_the_index_of_the_whole_table(opened: Open, postgres_url: str):
    """The index above those of the partitions waits for all who write, and whoever comes next would wait behind it."""
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    task = await store.create_task(job("plain"))
    await execute(store, "drop index runs_task")
    await execute(store, "insert into schema_log (name, step, state) values ('index runs_task', 1, 'begun')")
    writer = await asyncpg.connect(postgres_url)

    async def is_waiting() -> bool:
        rows = await store.fetch("select 1 from pg_locks where not granted and relation = to_regclass('runs')")
        return bool(rows)

    try:
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("lock table runs in row exclusive mode")
        build = asyncio.create_task(store.build_indexes())
        await until(is_waiting, 30, "the build to wait for the writer")
        await publish_many(store, task, 1)
        assert not build.done()
        await transaction.rollback()
    finally:
        await writer.close()
    assert await build == ["runs_task"]
    assert await is_valid(store, "runs_task") is True


async def test_a_step_whose_index_is_not_built_yet_can_be_taken_back(opened: Open, postgres_url: str):
    store = await with_many_joins(opened, postgres_url)
    await store.migrate()
    await execute(store, f"drop index {INDEX}")
    await execute(store, f"insert into schema_log (name, step, state) values ('index {INDEX}', 17, 'begun')")
    await store.migrate(BEFORE)
    assert await left_out(store) == []
    await store.migrate()
    assert await is_valid(store, INDEX) is True


async def test_an_index_of_a_step_that_only_newer_code_knows_is_left_to_it(opened: Open, postgres_url: str):
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    await execute(store, "insert into schema_log (name, step, state) values ('index of_tomorrow', 9999, 'begun')")
    assert await store.build_indexes() == []
    assert await left_out(store) == ["of_tomorrow"]


async def test_a_small_table_gets_its_index_with_the_step(opened: Open, postgres_url: str):
    store = await opened(postgres_url)
    await store.migrate(BEFORE)
    await store.migrate(17)
    assert await is_valid(store, INDEX) is True


async def test_mariadb_refuses_to_lock_a_table_for_an_index(opened: Open, mysql_url: str):
    """Its statement says so: where writers would have to wait, it fails instead."""
    store = await opened(mysql_url)
    assert store.dialect.while_others_write == " algorithm = inplace lock = none"
    await store.migrate(BEFORE)
    await store.migrate()
    rows = await store.fetch("select 1 from information_schema.statistics where index_name = :name", name=INDEX)
    assert rows
