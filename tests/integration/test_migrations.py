"""The schema goes forward and back on every SQL store, by whoever comes first; a newer one is left alone."""

from __future__ import annotations

import asyncio
import logging

import pytest

from integration.conftest import Open
from integration.support import execute, job, publish_many
from noonbell.errors import SchemaMismatch
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunId, RunStatus, Settlement, SettleResult, Transition
from noonbell.service.runs import shown
from noonbell.stores import migrations, open_store
from noonbell.stores.migrations import LATEST, STEPS, WITH_INSTALLATION, MigrationStep
from noonbell.stores.sql.store import SqlStore

pytestmark = pytest.mark.bare_database

UP, DOWN = [step.number for step in STEPS], [-step.number for step in reversed(STEPS)]


async def tables(store: SqlStore) -> set[str]:
    if store.dialect.name == "sqlite":
        rows = await store.fetch("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")
    elif store.dialect.name == "postgres":
        rows = await store.fetch("select tablename::text from pg_tables where schemaname = current_schema()")
    else:
        rows = await store.fetch("select table_name from information_schema.tables where table_schema = database()")
    return {row[0] for row in rows}


async def works(store: SqlStore) -> None:
    """A run from its birth to its end."""
    task = await store.create_task(job("works", max_concurrency=1, labels={"a": "b"}))
    assert task.id == 1
    (run_id,) = await publish_many(store, task, 1)
    (lease,) = (await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=1))).leases
    done = Settlement(run_id=run_id, token=lease.token, transition=Transition.FINISH, status=RunStatus.SUCCESS)
    assert await store.settle([done]) == [SettleResult.DONE]
    assert await store.recount() == 0


async def test_the_schema_goes_forward_and_back_and_forward(sql_url: str, opened: Open):
    store = await opened(sql_url)
    there = await tables(store)
    await works(store)
    assert await store.migrate(to=0) == DOWN
    assert await tables(store) == {"schema_steps", "schema_log"}
    assert await store.migrate() == UP
    assert await tables(store) == there
    await works(store)


async def test_a_schema_that_is_up_to_date_is_left_alone(sql_url: str, opened: Open, caplog: pytest.LogCaptureFixture):
    await works(await opened(sql_url))
    with caplog.at_level(logging.WARNING):
        store = await opened(sql_url)
    assert await store.migrate() == []
    assert not caplog.records, "opening an existing store must not warn anybody"
    assert [row[0] for row in await store.fetch("select number from schema_steps order by number")] == UP


async def test_a_newer_schema_is_refused_and_left_as_it_is(sql_url: str, opened: Open):
    store = await opened(sql_url)
    await execute(store, f"insert into schema_steps (number, title) values ({LATEST + 1}, 'from the future')")
    older = open_store(sql_url)
    try:
        with pytest.raises(SchemaMismatch, match=f"step {LATEST + 1}") as caught:
            await older.open()
        assert caught.value.details == {"found": LATEST + 1, "known": LATEST, "oldest_code": LATEST + 1}
    finally:
        await older.close()
    with pytest.raises(SchemaMismatch):
        await store.migrate(to=0)
    await works(store)


async def test_a_step_that_comes_later_than_one_with_a_higher_number_is_taken(
    sql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(sql_url)
    await execute(store, f"insert into schema_steps (number, title, oldest_code) values ({LATEST + 2}, 'first', 6)")
    first = MigrationStep(LATEST + 2, "first", lambda _: [], lambda _: [])
    late = MigrationStep(
        LATEST + 1, "late", lambda _: ["create table late (id integer primary key)"], lambda _: ["drop table late"]
    )
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, late, first))
    monkeypatch.setattr(migrations, "LATEST", LATEST + 2)
    store = await opened(sql_url)
    assert "late" in await tables(store)
    assert await store.migrate(LATEST) == [-LATEST - 2, -LATEST - 1]


async def test_a_step_that_has_nothing_to_do_is_taken_and_recorded(
    sql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(sql_url)
    idle = MigrationStep(LATEST + 1, "nothing to do", lambda _: [], lambda _: [])
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, idle))
    monkeypatch.setattr(migrations, "LATEST", LATEST + 1)
    assert await store.migrate(to=LATEST + 1) == [LATEST + 1]
    await works(await opened(sql_url))
    assert await store.migrate(to=LATEST) == [-LATEST - 1]


@pytest.mark.parametrize("round_", range(3))
async def test_nodes_that_open_an_empty_database_together_all_succeed(sql_url: str, opened: Open, round_: int):
    stores = await asyncio.gather(*(opened(sql_url) for _ in range(4)))
    rows = await stores[0].fetch("select name, value from counters order by name")
    assert [row[0] for row in rows] == ["audit", "events", "ids", "system_tasks", "tasks", "tokens"]
    assert len({await store.installation_id() for store in stores}) == 1
    assert len({store._cache.installation for store in stores}) == 1
    await works(stores[1])
    await publish_many(stores[2], (await stores[3].task_named("works")), 1)  # type: ignore[arg-type]


async def test_tasks_and_runs_from_before_the_keys_keep_what_they_had(sql_url: str, opened: Open):
    store = await opened(sql_url)
    task = await store.create_task(job("early"))
    await store.migrate(to=WITH_INSTALLATION - 1)
    now = await store.now()
    await execute(
        store,
        "insert into runs (id, task_id, task_version, origin, status, scheduled_time, run_at, created_at, updated_at,"
        " queue, priority, attempt, retry_count, lost_count)"
        f" values (7, {task.id}, 1, 'publish', 'SCHEDULED', {now}, {now}, {now}, {now}, 'default', 0, 0, 0, 0)",
    )
    assert WITH_INSTALLATION in await store.migrate()
    again = await opened(sql_url)
    found, run = await again.task(task.id), await again.run(RunId(7))
    assert found is not None
    assert found.uid == f"task-{task.id}"
    assert run is not None
    assert run.idempotency_key is None
    assert shown(run)["idempotency_key"] == f"noonbell-7-{now // 1_000_000}"
    (born,) = await publish_many(again, found, 1)
    new = await again.run(born)
    assert new is not None
    assert shown(new)["idempotency_key"] == f"{await store.installation_id()}-{born}"


async def test_what_was_written_is_there_when_the_file_is_opened_again(sqlite_url: str):
    first = open_store(sqlite_url)
    await first.open()
    task = await first.create_task(job("kept", labels={"team": "a"}))
    run_ids = await publish_many(first, task, 10)
    await first.close()
    again = open_store(sqlite_url)
    await again.open()
    try:
        assert await again.task(task.id) == task
        found = [await again.run(run_id) for run_id in run_ids]
        assert {run.status for run in found if run is not None} == {RunStatus.SCHEDULED}
        assert len((await again.claim(ClaimRequest(worker_id="w", queues=("default",), max=20))).leases) == 10
        assert min(await publish_many(again, task, 1)) > max(run_ids), "ids go on where they were"
    finally:
        await again.close()
