"""Rolling upgrades: which code may work on a store, nodes that look again, and steps that take their time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from integration.conftest import Open
from integration.support import execute, job, publish_many, until
from integration.test_migrations import works
from noonbell.cli.store import as_it_is
from noonbell.engine import node as schema_watch
from noonbell.errors import SchemaMismatch, StoreUnavailable
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunStatus, Settlement, SettleResult, Transition
from noonbell.settings import load
from noonbell.stores import migrations, open_store, postgres_pool
from noonbell.stores import mysql as mysql_store
from noonbell.stores import postgres as postgres_store
from noonbell.stores import sqlite as sqlite_store
from noonbell.stores.migrations import LATEST, STEPS, MigrationStep
from noonbell.stores.sql import store as sql_store
from noonbell.stores.sql.store import SqlStore
from noonbell.wiring import serve
from services.probe import connect_mysql

pytestmark = pytest.mark.bare_database

ASKED = ClaimRequest(worker_id="w", queues=("default",), max=10)


async def newer_step(store: SqlStore, oldest_code: int | None) -> None:
    """The next release was here, and says which code may go on."""
    oldest = "null" if oldest_code is None else oldest_code
    await execute(
        store, f"insert into schema_steps (number, title, oldest_code) values ({LATEST + 1}, 'next release', {oldest})"
    )


async def test_a_newer_schema_that_allows_this_code_is_worked_on_and_not_taken_back(sql_url: str, opened: Open):
    running = await opened(sql_url)
    await newer_step(running, LATEST)
    await running.check_schema()
    store = await opened(sql_url)
    assert await store.migrate() == []
    with pytest.raises(SchemaMismatch, match="does not know, so it cannot undo it"):
        await store.migrate(to=0)
    await works(store)


async def test_a_step_between_ours_that_this_code_does_not_know_is_not_left_behind(sql_url: str, opened: Open):
    """Numbers need not be taken in their order: an unknown step may be older than the newest one that is known."""
    store = await opened(sql_url)
    await execute(store, "insert into schema_steps (number, title, oldest_code) values (9, 'of another branch', 6)")
    with pytest.raises(SchemaMismatch, match=r"has step 9.*does not know, so it cannot undo it"):
        await store.migrate(to=8)
    assert LATEST in (await store.look_at_schema()).taken


async def test_nodes_go_on_working_while_a_step_that_admits_them_is_taken(
    sql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """A column more in each table that they write to."""
    running = await opened(sql_url)
    task = await running.create_task(job("goes on", max_concurrency=2))

    async def round_trip() -> None:
        await publish_many(running, task, 3)
        leases = (await running.claim(ASKED)).leases
        assert len(leases) == 2
        done = [
            Settlement(run_id=x.run_id, token=x.token, transition=Transition.FINISH, status=RunStatus.SUCCESS)
            for x in leases
        ]
        assert await running.settle(done) == [SettleResult.DONE] * 2
        (late,) = (await running.claim(ASKED)).leases
        retried = Settlement(
            run_id=late.run_id, token=late.token, transition=Transition.FINISH, status=RunStatus.FAILED
        )
        assert await running.settle([retried]) == [SettleResult.DONE]

    await round_trip()
    columns = [
        f"alter table {table} add column later integer" for table in ("tasks", "runs", "live", "gates", "events")
    ]
    with monkeypatch.context() as newer:
        newer.setattr(
            migrations, "STEPS", (*STEPS, MigrationStep(LATEST + 1, "wider", lambda _: columns, lambda _: [], LATEST))
        )
        newer.setattr(migrations, "LATEST", LATEST + 1)
        assert (await (await opened(sql_url)).look_at_schema()).step == LATEST + 1
    await running.check_schema()
    await round_trip()
    await works_again(await opened(sql_url))


async def works_again(store: SqlStore) -> None:
    """On a store that has a task already."""
    task = await store.create_task(job("another"))
    (run_id,) = await publish_many(store, task, 1)
    assert [lease.run_id for lease in (await store.claim(ASKED)).leases] == [run_id]


@pytest.mark.parametrize("oldest_code", [LATEST + 1, None])
async def test_a_newer_schema_that_needs_newer_code_is_refused_at_the_start_and_later(
    sql_url: str, opened: Open, oldest_code: int | None
):
    running = await opened(sql_url)
    await newer_step(running, oldest_code)
    with pytest.raises(SchemaMismatch, match=f"needs code that knows step {LATEST + 1}.*upgrade Noonbell"):
        await running.check_schema()
    other = open_store(sql_url)
    with pytest.raises(SchemaMismatch, match=f"needs code that knows step {LATEST + 1}.*upgrade Noonbell"):
        await other.open()
    await other.close()


async def test_each_step_says_the_oldest_code_that_can_work_with_it(sql_url: str, opened: Open):
    store = await opened(sql_url)
    rows = await store.fetch("select number, oldest_code from schema_steps where number >= 6 order by number")
    assert rows == [(step.number, step.oldest_code or step.number) for step in STEPS if step.number >= 6]


async def test_a_running_node_goes_on_while_it_may_and_stops_with_a_line_when_it_may_not(
    sqlite_url: str,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schema_watch, "SCHEMA_EVERY", 0.05)
    store = await opened(sqlite_url)
    looks = 0

    async def look(self: SqlStore, before=SqlStore.check_schema) -> None:
        nonlocal looks
        await before(self)
        looks += 1

    monkeypatch.setattr(SqlStore, "check_schema", look)
    settings = load((), {}, {"store.url": sqlite_url, "server.port": 0, "server.graceful_timeout": 1}).settings
    with caplog.at_level(logging.INFO, "noonbell"):
        serving = asyncio.create_task(serve(settings))
        await until(lambda: "is ready" in caplog.text or serving.done(), 60, "a node that is ready")
        await newer_step(store, LATEST)
        seen = looks
        await until(lambda: looks > seen + 1 or serving.done(), 60, "a look at the new schema")
        assert not serving.done(), "a schema that admits it does not stop a node"
        await execute(store, f"update schema_steps set oldest_code = {LATEST + 1} where number = {LATEST + 1}")
        with pytest.raises(SchemaMismatch, match="upgrade Noonbell"):
            await asyncio.wait_for(serving, 60)
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("stopping: the store's schema is at step")


SLOW = {"postgres": "select pg_sleep(4)", "mysql": "do sleep(4)", "mariadb": "do sleep(4)"}


@pytest.mark.parametrize("kind", ["postgres_url", "mysql_url"])
async def test_a_step_may_take_longer_than_any_limit_of_time_and_tells_of_it(
    kind: str, request: pytest.FixtureRequest, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """The limits are made shorter than the step, not the step longer than the limits."""
    monkeypatch.setattr(postgres_store, "_PATIENCE", 3.0)
    monkeypatch.setattr(mysql_store, "_PATIENCE", 3.0)
    monkeypatch.setattr(migrations, "_EVERY", 0.5)
    store = await opened(str(request.getfixturevalue(kind)))
    slow = MigrationStep(LATEST + 1, "slow", lambda dialect: [SLOW[dialect]], lambda _: [])
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, slow))
    said: list[str] = []
    assert await store.migrate(LATEST + 1, said.append) == [LATEST + 1]
    assert said[0] == f"step {LATEST + 1} (slow): 1 statements"
    assert f"step {LATEST + 1} (slow), 1 of 1" in said[1]
    assert "so far" in said[1]


async def test_a_step_has_no_limit_of_time_where_the_server_has_one_for_statements(
    mysql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(mysql_url)
    monkeypatch.setattr(mysql_store, "_INIT", f"{mysql_store._INIT} /*M!100300 , max_statement_time = 0.5 */")
    slow = MigrationStep(LATEST + 1, "slow", lambda _: ["create table slow as select sleep(2) as slept"], lambda _: [])
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, slow))
    assert await store.migrate(LATEST + 1) == [LATEST + 1]


async def test_a_step_that_fails_says_why(server_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch):
    store = await opened(server_url)
    wrong = MigrationStep(LATEST + 1, "wrong", lambda _: ["update nowhere set a = 1"], lambda _: [])
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, wrong))
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.migrate(LATEST + 1)
    monkeypatch.undo()
    assert await store.migrate() == [], "it holds no lock"


async def test_a_step_that_the_server_gives_up_for_a_deadlock_is_taken_again(
    postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(postgres_url)
    await execute(store, "create sequence tries")
    given_up = "do $$ begin if nextval('tries') = 1 then raise sqlstate '40P01'; end if; end $$"
    monkeypatch.setattr(
        migrations, "STEPS", (*STEPS, MigrationStep(LATEST + 1, "met", lambda _: [given_up], lambda _: []))
    )
    assert await store.migrate(LATEST + 1) == [LATEST + 1]


@contextlib.asynccontextmanager
async def schema_held(url: str, *, alters: str = "") -> AsyncIterator[None]:
    """As another node holds it that takes a step, on PostgreSQL one that alters a table."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            file.execute("begin immediate")
            yield
    elif url.startswith("postgres"):
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                assert await connection.fetchval("select pg_try_advisory_xact_lock(7031170001)")
                if alters:
                    await connection.execute(f"lock table {alters} in access exclusive mode")
                yield
        finally:
            await connection.close()
    else:
        other = await connect_mysql(url)
        try:
            async with other.cursor() as cursor:
                await cursor.execute("select get_lock(concat('noonbell.', sha1(concat(database(), '/'))), 0)")
                assert await cursor.fetchone() == (1,)
                yield
        finally:
            other.close()


async def test_a_node_that_starts_while_another_takes_a_step_waits_for_it(
    sql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    await (await opened(sql_url)).migrate(to=LATEST - 1)
    monkeypatch.setattr(sqlite_store, "_PATIENCE", 0.3)
    with caplog.at_level(logging.INFO, "noonbell.store"):
        async with schema_held(sql_url):
            opening = asyncio.create_task(opened(sql_url))
            await until(lambda: "another node is changing it; waiting" in caplog.text, 60, "a word about the wait")
            assert not opening.done()
        store = await asyncio.wait_for(opening, 60)
    await works(store)


@pytest.mark.parametrize("how", ["a node", "a command"])
async def test_tables_that_another_node_alters_are_waited_for(
    how: str, postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A look at them waits for the end of its steps, which have no limit of time."""
    await opened(postgres_url)
    monkeypatch.setitem(postgres_pool.SETTINGS, "lock_timeout", "200ms")
    monkeypatch.setattr(sql_store, "WAIT_AT_MOST", 0.5)

    async def command() -> None:
        async with as_it_is(load((), {}, {"store.url": postgres_url}).settings) as store:
            assert await store.migrate() == []

    with caplog.at_level(logging.DEBUG, "noonbell.store"):
        async with schema_held(postgres_url, alters="schema_steps"):
            opening = asyncio.ensure_future(opened(postgres_url) if how == "a node" else command())
            waits = "another node is changing it; waiting"
            await until(lambda: waits in caplog.text or opening.done(), 60, "a word about the wait")
            assert not opening.done(), opening.exception()
        await asyncio.wait_for(opening, 60)


async def test_a_store_that_is_up_to_date_opens_while_another_holds_the_schema(sql_url: str, opened: Open):
    await opened(sql_url)
    async with schema_held(sql_url):
        await asyncio.wait_for(opened(sql_url), 60)
