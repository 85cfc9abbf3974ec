"""A store that takes over the rows of another: as the demo's week, lived in memory, comes to any database."""

from __future__ import annotations

from conformance.store.builders import claim, claimed_ids, done, every, finish, job, publish_many, started
from noonbell.clock import ManualClock
from noonbell.model.task import Task
from noonbell.ports import Store
from noonbell.stores import migrations
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.sqlite import MemoryStore


async def everything(store: SqlStore) -> dict[str, list[str]]:
    """Every row of every table, but for the counters: nodes take blocks of ids."""
    found = await store._read(migrations.read_rows)
    return {
        table: sorted(str(sorted(zip(columns, row, strict=True))) for row in rows)
        for table, (columns, rows) in found.items()
        if table != "counters"
    }


async def lived_through(clock: ManualClock) -> tuple[MemoryStore, Task]:
    memory = MemoryStore(clock)
    await memory.open()
    task = await memory.create_task(job(schedule=every(10), labels={"demo": "true"}, max_concurrency=1))
    await done(memory, finish(await started(memory, task)))
    await publish_many(memory, task, 3)
    return memory, task


async def test_a_store_without_rows_takes_over_those_of_another(store: Store, clock: ManualClock):
    assert isinstance(store, SqlStore)
    memory, task = await lived_through(clock)
    before = await everything(memory)
    assert await store.copy_from(memory)
    assert await everything(store) == before
    assert {"tasks", "task_labels", "cursors", "runs", "live", "gates", "events"} <= before.keys()
    made = await store.create_task(job(name="next"))
    assert made.id > task.id
    assert claimed_ids(await claim(store)) == claimed_ids(await claim(memory))
    await memory.close()


async def test_a_store_with_rows_of_its_own_stays_as_it_is(store: Store, clock: ManualClock):
    assert isinstance(store, SqlStore)
    await store.create_task(job(name="mine"))
    before = await everything(store)
    memory, _ = await lived_through(clock)
    assert not await store.copy_from(memory)
    assert await everything(store) == before
    await memory.close()
