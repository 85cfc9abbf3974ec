"""Another session holds a lock, or the server answers with an error that no code expects: callers are told in seconds."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from integration.conftest import Open
from integration.support import job, publish_many
from noonbell.errors import StoreUnavailable
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.task import Task
from noonbell.stores.sql.store import SqlStore
from services.probe import connect_mysql

pytestmark = pytest.mark.slow

SOON = 45.0
"""Seconds: a call waits 6 s for locks. Without a bound it would be minutes."""


@asynccontextmanager
async def held_on_postgres(url: str, sql: str) -> AsyncIterator[int]:
    """A session that holds what `sql` locks; its pid."""
    other = await asyncpg.connect(url, server_settings={"application_name": "night-report"})
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(sql)
        yield other.get_server_pid()
    finally:
        await other.close()


@asynccontextmanager
async def held_on_mariadb(url: str, *statements: str) -> AsyncIterator[int]:
    """As on PostgreSQL; the number of the session."""
    other = await connect_mysql(url)
    try:
        cursor = other.cursor()
        for sql in statements:
            await cursor.execute(sql)
        yield other.thread_id()
    finally:
        other.close()


async def refusal(call: Awaitable[Any]) -> str:
    """What the caller is told, within the deadline."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as told:
        await asyncio.wait_for(call, SOON)
    assert time.monotonic() - began < SOON
    return told.value.message


def calls(store: SqlStore, task: Task) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "runs": lambda: store.fetch("select count(*) from runs"),
        "publish": lambda: store.publish([Publication(task_id=task.id)]),
        "plan": lambda: store.plan(10),
        "claim": lambda: store.claim(ClaimRequest(worker_id="w", queues=("default",), max=1)),
    }


async def prepared(store: SqlStore) -> Task:
    task = await store.create_task(job("t"))
    await publish_many(store, task, 1)
    return task


async def test_callers_hear_who_locks_a_table_of_postgres(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    task = await prepared(store)
    locked = "lock table runs, tasks, live_ready, live_rest, cursors, counters in access exclusive mode"
    async with held_on_postgres(postgres_url, locked) as pid:
        for said in await asyncio.gather(*(refusal(call()) for call in calls(store, task).values())):
            assert f"session {pid} (user " in said
            assert "night-report" in said
    for call in calls(store, task).values():
        await call()


async def test_callers_hear_who_locks_a_row_of_postgres(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    task = await prepared(store)
    async with held_on_postgres(postgres_url, f"select 1 from tasks where id = {task.id} for update") as pid:
        several = await asyncio.gather(*(refusal(store.delete_task(task.id)) for _ in range(3)))
        assert all(f"session {pid} (" in said for said in several), several
    await store.delete_task(task.id)


async def test_more_callers_than_connections_are_told_as_soon(postgres_url: str, opened: Open):
    store = await opened(postgres_url, connections=2)
    task = await store.create_task(job("t"))
    async with held_on_postgres(postgres_url, "lock table runs, counters in access exclusive mode"):
        crowd = await asyncio.gather(*(refusal(store.publish([Publication(task_id=task.id)])) for _ in range(20)))
    assert len(crowd) == 20


async def test_callers_hear_who_locks_a_row_of_mariadb(mysql_url: str, opened: Open):
    store = await opened(mysql_url)
    task = await prepared(store)
    row = f"select 1 from tasks where id = {task.id} for update"
    async with held_on_mariadb(mysql_url, "begin", row) as number:
        assert f"session {number} (user " in await refusal(store.delete_task(task.id))
    await store.delete_task(task.id)


async def test_callers_hear_of_a_locked_table_of_mariadb(mysql_url: str, opened: Open):
    store = await opened(mysql_url)
    task = await prepared(store)
    locked = ("runs", "tasks", "live", "cursors", "counters")
    async with held_on_mariadb(mysql_url, f"lock tables {', '.join(f'{table} write' for table in locked)}") as number:
        for said in await asyncio.gather(*(refusal(call()) for call in calls(store, task).values())):
            assert f"session {number} (" in said
    for call in calls(store, task).values():
        await call()


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin exclusive")
print("held", flush=True)
sys.stdin.read()
"""


async def test_callers_hear_which_process_locks_a_file_of_sqlite(sqlite_url: str, tmp_path: Path, opened: Open):
    store = await opened(sqlite_url)
    task = await prepared(store)
    holder = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", HOLD, str(tmp_path / "noonbell.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
        first = asyncio.create_task(refusal(store.publish([Publication(task_id=task.id)])))
        await asyncio.sleep(0)
        several = [await first, await refusal(store.plan(10))]
        for said in several:
            assert "for the write lock that " in said
            assert f"process {holder.pid} (" in said or not os.access("/proc/locks", os.R_OK)
    finally:
        holder.kill()
        holder.communicate()
    await store.publish([Publication(task_id=task.id)])


async def test_a_table_that_is_gone_and_a_right_that_was_revoked_are_told(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    task = await prepared(store)
    other = await asyncpg.connect(postgres_url)
    try:
        await other.execute("alter table runs rename to runs_of_before")
        assert 'relation "runs" does not exist' in await refusal(store.publish([Publication(task_id=task.id)]))
        await other.execute("alter table runs_of_before rename to runs")
        assert await store.publish([Publication(task_id=task.id)])
    finally:
        await other.close()


async def test_a_table_of_mariadb_that_is_gone_is_told(mysql_url: str, opened: Open):
    store = await opened(mysql_url)
    task = await prepared(store)
    await store.fetch("rename table runs to runs_of_before")
    assert "1146" in await refusal(store.publish([Publication(task_id=task.id)]))
    await store.fetch("rename table runs_of_before to runs")
    assert await store.publish([Publication(task_id=task.id)])


async def test_a_file_of_sqlite_that_is_damaged_is_told(sqlite_url: str, tmp_path: Path, opened: Open):
    store = await opened(sqlite_url)
    task = await prepared(store)
    damage(tmp_path / "noonbell.db")
    told = [await refusal(store.fetch("select * from runs")), await refusal(publish_many(store, task, 500))]
    assert all("malformed" in said or "not a database" in said for said in told), told


def damage(path: Path) -> None:
    """Overwrite every page of a database but the first, after its log is in it."""
    with sqlite3.connect(path) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
