"""History in partitions on PostgreSQL: brought there under way, made ahead, dropped by retention; unique over all of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from integration.conftest import Open
from integration.crew import success
from integration.support import create_many, every_second, execute, job, publish_many
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.request import ClaimRequest, IfFinished, Publication, PublishOutcome, RunQuery
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import Task
from noonbell.service.filters import from_the_top
from noonbell.service.retention import Keep, Retention
from noonbell.stores import postgres_history
from noonbell.stores import postgres_partitions as partitions
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.postgres_partitions import HISTORY, SMALL, Part
from noonbell.stores.sql import change_capture, copying, run_search
from noonbell.stores.sql.ids import floor_at
from noonbell.stores.sql.statement import Conflict, Fetch, InsertMany, Work

pytestmark = pytest.mark.bare_database

DAY = 86_400
KEPT, EVENTS_KEPT = 30.0 * DAY, 25 * 3600.0
START = Instant(1_767_261_600 * SECOND)
"""2026-01-01T10:00:00Z."""


async def do(store: PostgresStore, work: Callable[[], Work[Any]]) -> Any:
    return await store._write(lambda _: work())


async def ends(store: PostgresStore, table: str = "runs") -> list[str]:
    """How the names of its partitions end, the oldest first."""
    parts = await do(store, lambda: partitions.parts_of(store.dialect, table))
    return [part.name.removeprefix(f"{table}_") for part in parts]


async def lies_in(store: PostgresStore, run_id: int) -> str:
    ((name,),) = await store.fetch("select tableoid::regclass::text from runs where id = :id", id=run_id)
    return str(name)


async def count(store: PostgresStore, table: str) -> int:
    ((found,),) = await store.fetch(f"select count(*) from {table}")
    return int(found)


async def finish_all(store: PostgresStore) -> None:
    while leases := (await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=500))).leases:
        await store.settle([success(lease) for lease in leases])


async def from_before(opened: Open, url: str, runs: int, **more: Any) -> tuple[PostgresStore, Task]:
    """A store whose tables are not in partitions, with history of yesterday that is too long for one transaction."""
    store = await opened(url, **more)
    assert isinstance(store, PostgresStore)
    task = await store.create_task(job("old", schedule=every_second(START, every=DAY)))
    await store.migrate(45)
    first = floor_at(await store.now() - DAY * SECOND)
    await execute(
        store,
        "insert into runs (id, task_id, task_version, origin, status, slot, scheduled_time, run_at, created_at, updated_at,"
        " queue, priority, attempt, retry_count, lost_count, end_time)"
        f" select {first} + n, {task.id}, 1, 'schedule', 'SUCCESS', n, n, n, n, n, 'default', 0, 1, 0, 0, n"
        f" from generate_series(1, {runs}) n",
    )
    await execute(
        store,
        "insert into attempts (run_id, attempt, status) select id, 1, 'SUCCESS' from runs where id % 3 = 0",
    )
    await store.migrate()
    return store, task


def later(store: PostgresStore, clock: ManualClock, seconds: float) -> None:
    """Ids that were reserved before are not used any longer, as after two seconds of real time."""
    clock.advance(seconds)
    store._ids._block.drop()


# ---- into partitions


async def test_a_new_store_is_in_partitions(opened: Open, postgres_url: str):
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    for table in ("runs", "attempts", "bodies", "events"):
        found = await ends(store, table)
        assert (found[0], found[-1], len(found)) == ("before", "beyond", 3)
    assert not await store.tend_history(KEPT, EVENTS_KEPT)


async def test_a_long_history_is_brought_into_partitions_and_no_row_is_copied(opened: Open, postgres_url: str):
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    ((before,),) = await store.fetch("select pg_relation_filenode('runs')")
    assert await ends(store) == []  # too long for the start of a node
    (early,) = await publish_many(store, task, 1)
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    assert (await ends(store))[0] == "before"
    ((after,),) = await store.fetch("select pg_relation_filenode('runs_before')")
    assert after == before
    assert await count(store, "runs") == SMALL + 2
    assert await count(store, "attempts") in range(SMALL // 3, SMALL // 3 + 2)
    assert not await store.tend_history(KEPT, EVENTS_KEPT)
    await finish_all(store)
    run = await store.run(early)
    assert run is not None
    assert run.status is RunStatus.SUCCESS


@pytest.mark.parametrize("after", ["promised", "validated"])
async def test_a_conversion_that_was_cut_off_goes_on(opened: Open, postgres_url: str, after: str):
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    q, now = store.dialect, await store.now()
    await do(store, lambda: partitions.promise(q, HISTORY, now))
    if after == "validated":
        for table, _ in HISTORY.tables:
            await do(store, lambda table=table: partitions.validate(q, table))
    await publish_many(store, task, 3)
    promised = await do(store, lambda: partitions.look(q, HISTORY))
    assert promised.boundary is not None
    assert promised.is_checked is (after == "validated")
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    parts = await do(store, lambda: partitions.parts_of(q, "runs"))
    assert parts[0].high == promised.boundary


async def test_a_boundary_that_comes_near_is_moved_on(opened: Open, postgres_url: str):
    """Of a conversion that was cut off days ago: ids beyond the boundary would be refused."""
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    q, now = store.dialect, await store.now()
    await do(store, lambda: partitions.promise(q, HISTORY, Instant(now - 7 * DAY * SECOND)))
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    parts = await do(store, lambda: partitions.parts_of(q, "runs"))
    assert parts[0].high >= floor_at(now + 6 * DAY * SECOND)
    await publish_many(store, task, 3)


async def test_ids_that_are_ahead_of_the_clock_stay_below_the_boundary(opened: Open, postgres_url: str):
    """The clock of the database was a month ahead once; ids never go back."""
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    ahead = floor_at(await store.now() + 30 * DAY * SECOND)
    await execute(store, f"update counters set value = {ahead} where name = 'ids'")
    store._ids._block.drop()
    (before,) = await publish_many(store, task, 1)
    assert before > ahead
    await store._change(partitions.promise, HISTORY, await store.now())
    await publish_many(store, task, 1)
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    (after,) = await publish_many(store, task, 1)
    assert await lies_in(store, before) == await lies_in(store, after) == "runs_before"


async def test_a_boundary_is_moved_on_while_a_move_stands_still_for_days(opened: Open, postgres_url: str):
    """The conversion waits for the end of the move, which its operator may have forgotten; runs are born all the same."""
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    now = await store.now()
    await store._change(partitions.promise, HISTORY, Instant(now - 7 * DAY * SECOND))
    await do(store, lambda: change_capture.install(store.dialect, copying.tables()["runs"]))
    assert not await store.tend_history(KEPT, EVENTS_KEPT)
    promised = await do(store, lambda: partitions.look(store.dialect, HISTORY))
    assert promised.boundary >= floor_at(now + 6 * DAY * SECOND)
    await publish_many(store, task, 1)


async def test_a_move_that_begins_during_a_conversion_keeps_the_tables_as_they_are(opened: Open, postgres_url: str):
    """Its triggers are on the tables that would be renamed: what is written to the new ones would not be copied."""
    store, _ = await from_before(opened, postgres_url, SMALL + 10)
    runs = copying.tables()["runs"]
    await store._change(partitions.promise, HISTORY, await store.now())
    for table, _ in HISTORY.tables:
        await store._change(partitions.validate, table)
    await do(store, lambda: change_capture.install(store.dialect, runs))
    assert not await store._change(partitions.attach, HISTORY, await store.now(), round(KEPT) * SECOND)
    assert await ends(store) == []
    await do(store, lambda: change_capture.remove(store.dialect, runs))
    assert await store._change(partitions.attach, HISTORY, await store.now(), round(KEPT) * SECOND)
    assert await ends(store) != []


async def checks(store: PostgresStore) -> list[Any]:
    """Of the tables and their partitions: what a conversion has promised about ids."""
    return list(await store.fetch("select conrelid::regclass::text from pg_constraint where conname like '%_ends'"))


async def test_a_node_that_another_has_overtaken_promises_nothing(opened: Open, postgres_url: str):
    """A promise about tables that are in partitions would never be taken back, and refuse every id beyond the boundary."""
    store, task = await from_before(opened, postgres_url, SMALL + 1)
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    await store._change(partitions.promise, HISTORY, await store.now())
    for table, _ in HISTORY.tables:
        await store._change(partitions.validate, table)
    assert await checks(store) == []
    assert not await store.tend_history(KEPT, EVENTS_KEPT)
    await publish_many(store, task, 1)


async def test_the_way_back_takes_the_promise_of_a_conversion_back(opened: Open, postgres_url: str):
    store, _ = await from_before(opened, postgres_url, SMALL + 1)
    await store._change(partitions.promise, HISTORY, await store.now())
    assert len(await checks(store)) == len(HISTORY.tables)
    await store.migrate(45)
    assert await checks(store) == []


async def test_the_way_back_leaves_the_tables_as_they_were(opened: Open, postgres_url: str):
    store = await opened(postgres_url)
    (task,) = await create_many(store, [job("plain")])
    (run_id,) = await publish_many(store, task, 1, key="k")
    await store.migrate(45)
    kinds = await store.fetch("select relname::text, relkind::text from pg_class where relname in ('runs', 'events')")
    assert sorted(kinds) == [("events", "r"), ("runs", "r")]
    found = await store.fetch("select indexname::text from pg_indexes where tablename in ('runs', 'events')")
    names = {name for (name,) in found}
    assert {"runs_pkey", "runs_task", "runs_slot", "runs_key", "runs_parent", "runs_trouble", "events_seq_key"} <= names
    await store.migrate()
    (again,) = await store.publish([Publication(task_id=task.id, key="k")])
    assert (again.run_id, again.outcome) == (run_id, PublishOutcome.EXISTS)


# ---- what is unique


async def stretches(opened: Open, url: str) -> tuple[PostgresStore, ManualClock, Task]:
    """A store whose clock is at the beginning of its first stretch."""
    clock = ManualClock(START)
    store = await opened(url, clock=clock)
    assert isinstance(store, PostgresStore)
    (task,) = await create_many(store, [job("plain")])
    await store.tend_history(KEPT, EVENTS_KEPT)
    later(store, clock, DAY)
    await store.tend_history(KEPT, EVENTS_KEPT)
    return store, clock, task


@pytest.mark.parametrize("column", ["slot", "live_key"])
async def test_a_slot_and_a_key_have_one_run_over_all_partitions(opened: Open, postgres_url: str, column: str):
    store, clock, task = await stretches(opened, postgres_url)
    value: Any = int(START) if column == "slot" else "k"
    now = int(START)
    columns = ("id", "task_id", column, "task_version", "origin", "status", "scheduled_time", "run_at", "created_at")
    columns = (*columns, "updated_at", "queue", "priority", "attempt", "retry_count", "lost_count")

    def born(run_id: int) -> Work[None]:
        row = (run_id, task.id, value, 1, "schedule", "SCHEDULED", now, now, now, now, "default", 0, 0, 0, 0)
        yield InsertMany("runs", columns, [row])

    old, new = floor_at(START), floor_at(clock.now() + 5 * DAY * SECOND)
    await do(store, lambda: born(old))
    with pytest.raises(Conflict):
        await do(store, lambda: born(new))
    assert await store.fetch(f"select id from runs where {column} is not null") == [(old,)]


async def test_a_key_is_free_for_the_next_run_in_another_partition(opened: Open, postgres_url: str):
    store, clock, task = await stretches(opened, postgres_url)
    (first,) = await store.publish([Publication(task_id=task.id, key="k")])
    await finish_all(store)
    later(store, clock, 8 * DAY)
    await store.tend_history(KEPT, EVENTS_KEPT)
    again = Publication(task_id=task.id, key="k", if_finished=IfFinished.RERUN)
    (second,) = await store.publish([again])
    assert first.run_id is not None
    assert second.run_id is not None
    assert second.outcome is PublishOutcome.CREATED
    assert await lies_in(store, first.run_id) != await lies_in(store, second.run_id)
    assert await store.fetch("select run_id from live_keys") == [(second.run_id,)]


async def test_the_key_of_a_run_that_was_deleted_by_hand_is_free(opened: Open, postgres_url: str):
    store, _, task = await stretches(opened, postgres_url)
    (first,) = await store.publish([Publication(task_id=task.id, key="k")])
    (other,) = await store.publish([Publication(task_id=task.id, key="other")])
    await finish_all(store)
    await execute(store, f"delete from runs where id = {first.run_id}")
    again = [Publication(task_id=task.id, key="k"), Publication(task_id=task.id, key="other")]
    second, same = await store.publish(again)
    assert (second.outcome, same.outcome) == (PublishOutcome.CREATED, PublishOutcome.EXISTS)
    held = await store.fetch("select live_key, run_id from live_keys order by live_key")
    assert held == [("k", second.run_id), ("other", other.run_id)]


async def test_the_slot_of_a_run_that_was_deleted_by_hand_is_free(opened: Open, postgres_url: str):
    """As on the other stores, whose index holds no slot of a run that is gone."""
    store, clock, _ = await stretches(opened, postgres_url)
    task = await store.create_task(job("hourly", schedule=every_second(Instant(clock.now()), every=3600)))
    ((slot, to),) = await store.fetch("select next_fire_at, accounted_to from cursors where task_id = :id", id=task.id)
    later(store, clock, (slot - clock.now()) / SECOND)
    await store.plan(10)
    ((gone,),) = await store.fetch(
        "select id from runs where task_id = :task and slot = :slot", task=task.id, slot=slot
    )
    for sql in (
        f"delete from live where run_id = {gone}",
        f"delete from runs where id = {gone}",
        f"update cursors set next_fire_at = {slot}, accounted_to = {to} where task_id = {task.id}",
    ):
        await execute(store, sql)
    await store.plan(10)
    ((again,),) = await store.fetch(
        "select id from runs where task_id = :task and slot = :slot", task=task.id, slot=slot
    )
    assert again != gone
    held = await store.fetch("select run_id from run_slots where task_id = :task", task=task.id)
    assert held == [(again,)]
    counts = await store.counts()
    assert (counts["run_slots"], counts["live_keys"]) == (await count(store, "run_slots"), 0)


# ---- made ahead


async def test_stretches_are_made_before_the_first_run_falls_into_them(opened: Open, postgres_url: str):
    store, clock, task = await stretches(opened, postgres_url)
    for _ in range(10):
        (run_id,) = await publish_many(store, task, 1)
        assert not (await lies_in(store, run_id)).endswith("beyond")
        later(store, clock, 5 * DAY)
        await store.tend_history(KEPT, EVENTS_KEPT)
    assert len(await ends(store)) == len(await ends(store, "bodies")) > 6


async def test_runs_of_a_time_without_a_stretch_get_one(opened: Open, postgres_url: str):
    """No node that makes them was there for months, and publishers went on."""
    store, clock, task = await stretches(opened, postgres_url)
    later(store, clock, 100 * DAY)
    (run_id,) = await publish_many(store, task, 1)
    assert await lies_in(store, run_id) == "runs_beyond"
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    assert re.fullmatch(r"runs_\d{8}", await lies_in(store, run_id))
    assert await count(store, "runs_beyond") == 0
    await finish_all(store)


async def test_a_reader_that_stays_keeps_no_writer_waiting_for_long(opened: Open, postgres_url: str):
    """A change of partitions waits for it; those who come after the change do not wait behind it."""
    store, clock, task = await stretches(opened, postgres_url)
    later(store, clock, 8 * DAY)
    reads, may_end = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async def use(connection: Any) -> None:
            async with connection.transaction():
                await connection.fetch("select count(*) from runs")
                reads.set()
                await may_end.wait()

        await store._with_connection(use, begins=True)

    reader = asyncio.create_task(read())
    await reads.wait()
    change = asyncio.create_task(store.tend_history(KEPT, EVENTS_KEPT))
    with pytest.raises(partitions.PartitionsBusy):
        await store._change_schema(lambda _: partitions.extend(store.dialect, HISTORY, clock.now(), 30 * DAY * SECOND))
    await publish_many(store, task, 1)
    assert not change.done()
    may_end.set()
    await reader
    assert await change


@contextlib.asynccontextmanager
async def read_by_another(url: str, *tables: str) -> AsyncIterator[None]:
    """As `pg_dump` keeps tables from being changed, for as long as it runs."""
    link = await asyncpg.connect(url)
    try:
        async with link.transaction():
            await link.execute(f"lock table {', '.join(tables)} in access share mode")
            yield
    finally:
        await link.close()


async def test_a_reader_that_does_not_end_is_no_trouble_of_the_store(
    opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A StoreUnavailable from a loop makes a node not ready, and alerts that the store is away."""
    store, clock, _ = await two_months(opened, postgres_url)
    monkeypatch.setattr(partitions, "LOCK", "20ms")
    monkeypatch.setattr(postgres_history, "_TRIES", 2)
    monkeypatch.setattr(postgres_history, "_PAUSE", 0.01)
    later(store, clock, 20 * DAY)
    parts, runs = await ends(store), await count(store, "runs")
    async with read_by_another(postgres_url, "runs", "events"):
        assert not await store.tend_history(KEPT, EVENTS_KEPT)
        assert await store.drop_history(Instant(clock.now() - 30 * DAY * SECOND)) == 0
        await store.forget_events(Instant(clock.now() - 25 * 3600 * SECOND), 1000)
    assert (await ends(store), await count(store, "runs")) == (parts, runs)
    assert "others use them" in caplog.text
    assert await store.tend_history(KEPT, EVENTS_KEPT)
    assert await store.drop_history(Instant(clock.now() - 30 * DAY * SECOND)) > 0


# ---- dropped


PAUSE = 3 * DAY


async def two_months(opened: Open, url: str) -> tuple[PostgresStore, ManualClock, Task]:
    """Of history, a slot and a keyed run every three days, all done."""
    store, clock, task = await stretches(opened, url)
    spec = job("regular", schedule=every_second(clock.now(), every=PAUSE))
    (regular,) = await create_many(store, [spec])
    for day in range(0, 60, PAUSE // DAY):
        later(store, clock, PAUSE)
        await store.tend_history(KEPT, EVENTS_KEPT)
        await store.plan(100)
        await store.publish([Publication(task_id=task.id, key=f"k{day}", payload={"day": day})])
        await finish_all(store)
    return store, clock, regular


async def clean(store: PostgresStore, days: int) -> int:
    async def between(_: int) -> None: ...

    return await Retention(store).clean(Keep(days), between)


async def test_retention_drops_what_is_older_than_every_retention(opened: Open, postgres_url: str):
    store, clock, daily = await two_months(opened, postgres_url)
    before, parts = await count(store, "runs"), await ends(store)
    removed = await clean(store, 30)
    left = await count(store, "runs")
    assert removed == before - left
    kept = (before - left) / 2
    assert (60 - 30 - 8) / 3 <= kept <= 30 / 3  # of the stretch that is partly younger, all stay
    assert len(await ends(store)) < len(parts)
    assert (await ends(store))[0] == "before"
    assert await count(store, "run_slots") == await count(store, "live_keys") == left / 2
    assert await count(store, "inputs") == left / 2
    ((last, gone),) = await store.fetch("select last, count from cleaned where task_id = :task", task=daily.id)
    ((oldest,),) = await store.fetch("select min(slot) from runs where task_id = :task", task=daily.id)
    assert (gone, last) == (kept, oldest - PAUSE * SECOND)
    page = await store.runs(RunQuery(page_size=200))
    assert len(page.items) == left
    assert await clean(store, 30) == 0
    later(store, clock, 3600)
    (again,) = await store.publish([Publication(task_id=daily.id)])
    assert again.run_id is not None


async def test_runs_are_removed_by_their_ids_from_every_partition(opened: Open, postgres_url: str):
    store, _, daily = await two_months(opened, postgres_url)
    rows = await store.fetch("select id, slot from runs where task_id = :task order by id", task=daily.id)
    ids, runs = [RunId(row[0]) for row in rows], await count(store, "runs")
    assert len({await lies_in(store, run_id) for run_id in ids[:-1]}) > 3
    assert await store.clean_runs(ids[:-1]) == {}
    assert await count(store, "runs") == runs - len(ids) + 1
    assert await count(store, "run_slots") == 1
    ((last, gone),) = await store.fetch("select last, count from cleaned where task_id = :task", task=daily.id)
    assert (last, gone) == (rows[-2][1], len(ids) - 1)
    await store.plan(100)
    assert await store.fetch("select id from runs where task_id = :task", task=daily.id) == [(ids[-1],)]


async def test_a_partition_with_a_live_run_stays_and_the_rest_of_it_goes(opened: Open, postgres_url: str):
    store, _, daily = await two_months(opened, postgres_url)
    parts = await do(store, lambda: partitions.parts_of(store.dialect, "runs"))
    stretch = parts[1]
    ((run_id,),) = await store.fetch(
        "select min(id) from runs where id >= :low and task_id = :task", low=stretch.low, task=daily.id
    )
    await execute(store, f"update runs set status = 'SCHEDULED', end_time = null where id = {run_id}")
    await clean(store, 30)
    assert stretch.name in [part.name for part in await do(store, lambda: partitions.parts_of(store.dialect, "runs"))]
    assert await store.fetch(f"select id from {stretch.name}") == [(run_id,)]
    assert await store.run(RunId(run_id)) is not None


async def test_slots_that_another_cleaning_removes_meanwhile_are_counted_once(opened: Open, postgres_url: str):
    store, clock, daily = await two_months(opened, postgres_url)
    before, slots = Instant(clock.now() - 30 * DAY * SECOND), await count(store, "run_slots")
    empty, hit = store._empty_belongings, list[str]()

    async def clean_meanwhile(part: Part) -> None:
        await empty(part)
        if part.low is not None and not hit:
            hit.append(part.name)
            await store.clean_runs([RunId(row[0]) for row in await store.fetch(f"select id from {part.name}")])

    store._empty_belongings = clean_meanwhile  # type: ignore[method-assign]
    await store.drop_history(before)
    assert hit
    ((gone,),) = await store.fetch("select count from cleaned where task_id = :task", task=daily.id)
    assert gone == slots - await count(store, "run_slots")
    await store.drop_history(before)
    assert hit[0] not in [part.name for part in await do(store, lambda: partitions.parts_of(store.dialect, "runs"))]


async def test_two_cleanings_at_once_count_each_slot_once(opened: Open, postgres_url: str):
    store, clock, daily = await two_months(opened, postgres_url)
    other = await opened(postgres_url, clock=clock)
    assert isinstance(other, PostgresStore)
    before, slots = Instant(clock.now() - 30 * DAY * SECOND), await count(store, "run_slots")
    empty, met = other._empty_belongings, list[Part]()

    async def drop_meanwhile(part: Part) -> None:
        if not met:
            met.append(part)
            await store.drop_history(before)
        await empty(part)

    other._empty_belongings = drop_meanwhile  # type: ignore[method-assign]
    assert await other.drop_history(before) == 0
    ((gone,),) = await store.fetch("select count from cleaned where task_id = :task", task=daily.id)
    assert gone == slots - await count(store, "run_slots") > 0


async def test_a_family_goes_together(opened: Open, postgres_url: str):
    store, clock, daily = await two_months(opened, postgres_url)
    parts = await do(store, lambda: partitions.parts_of(store.dialect, "runs"))
    ((parent,),) = await store.fetch("select min(id) from runs where id >= :low", low=parts[1].low)
    lay_in = await lies_in(store, parent)
    ((child,),) = await store.fetch("select max(id) from runs where task_id = :task", task=daily.id)
    await execute(store, f"update runs set parent_id = {parent} where id = {child}")
    await store.drop_history(Instant(clock.now() - 30 * DAY * SECOND))
    assert await lies_in(store, parent) == lay_in
    assert lay_in in [part.name for part in parts]


async def test_a_task_that_keeps_its_history_longer_keeps_the_partitions(opened: Open, postgres_url: str):
    store, _, daily = await two_months(opened, postgres_url)
    spec_meta = {"retention_days": 365}
    await execute(
        store,
        f"""update tasks set meta = '{{"retention_days": {spec_meta["retention_days"]}}}' where id = {daily.id}""",
    )
    slots = await count(store, "run_slots")
    assert await clean(store, 30) > 0
    assert await count(store, "run_slots") == slots


async def test_old_events_go_with_their_partition(opened: Open, postgres_url: str):
    store, clock, _ = await two_months(opened, postgres_url)
    assert await store.events(0, 1000)
    before, parts = await count(store, "events"), len(await ends(store, "events"))
    await store.forget_events(Instant(clock.now() - 25 * 3600 * SECOND), 1000)
    assert 0 < await count(store, "events") < before
    assert len(await ends(store, "events")) <= 8 < parts


# ---- read


async def plan_of(store: PostgresStore, sql: str, **params: Any) -> str:
    def work() -> Work[str]:
        rows = yield Fetch(f"explain (analyze, costs off, timing off, summary off) {sql}", params)
        return "\n".join(row[0] for row in rows)

    return str(await do(store, work))


async def test_reads_look_into_the_partitions_that_they_need(opened: Open, postgres_url: str):
    store, _, daily = await two_months(opened, postgres_url)
    ((newest,),) = await store.fetch("select max(id) from runs")
    by_id = await plan_of(store, "select status from runs where id = :id", id=newest)
    assert len(re.findall(r"on runs_\w+", by_id)) == 1
    of_task = "select id from runs where task_id = :task order by id desc limit 5"
    listed = await plan_of(store, of_task, task=daily.id)
    assert "Sort" not in listed
    assert "Seq Scan" not in listed
    assert listed.count("never executed") >= 4
    assert len(await store.fetch(of_task, task=daily.id)) == 5


async def test_the_newest_runs_of_some_tasks_are_found_without_those_of_the_others(opened: Open, postgres_url: str):
    store, clock, _ = await two_months(opened, postgres_url)
    few = {"team": "few"}
    tasks = [
        task.id for task in await create_many(store, [job(f"t{n}", labels=few if n < 25 else {}) for n in range(300)])
    ]
    end, share = int(clock.now()), 60 * DAY * SECOND // 12_000
    await execute(
        store,
        "insert into runs (id, task_id, task_version, origin, status, scheduled_time, run_at, created_at, updated_at, queue,"
        " priority, attempt, retry_count, lost_count, end_time)"
        f" select {floor_at(Instant(end - 60 * DAY * SECOND))} + n * ({share} / 1000 << 12), {tasks[0]} + n % 300, 1, 'publish',"
        " 'SUCCESS', n, n, n, n, 'default', 0, 1, 0, 0, n from generate_series(1::bigint, 12000) n",
    )
    await execute(store, "analyze")
    of_each = run_search.newest_runs(store.dialect, tasks[:25], 40)
    of_all = run_search.runs(store.dialect, RunQuery(page_size=30, label=("team", "few"), cursor=from_the_top("-id")))
    for search in (of_each, of_all):
        statement = next(search)
        while "order by k.id desc limit" not in statement.sql:
            statement = search.send(await store.fetch(statement.sql, **statement.params))
        said = await plan_of(store, statement.sql, **statement.params)
        read = [int(rows) * int(loops) for rows, loops in re.findall(r"rows=(\d+) loops=(\d+)", said)]
        assert max(read) <= 25 * 40, said
