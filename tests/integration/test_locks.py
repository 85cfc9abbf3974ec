"""Rows that another transaction holds: who can do without them goes on, and who cannot waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from integration.conftest import Open
from integration.support import every_second, execute, job, publish_many, until
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskSpec
from noonbell.stores.sql.statement import Fetch, InsertMany, Work, WriteAll
from noonbell.stores.sql.store import SqlStore

PATIENCE = 60.0
"""Seconds: many times what a claim takes, and less than the databases let anything wait for a lock."""


def watch(store: SqlStore, after: Callable[[Any], Awaitable[None]]) -> None:
    """Call `after` when a statement has been answered, with its transaction still open."""
    do = store._do  # type: ignore[attr-defined]

    async def watched(connection: Any, statement: Any) -> Any:
        answer = await do(connection, statement)
        await after(statement)
        return answer

    store._do = watched  # type: ignore[attr-defined]


@asynccontextmanager
async def held(store: SqlStore, sql: str, **params: Any) -> AsyncIterator[None]:
    """Another node has these rows in a transaction that is not over yet."""
    has_them, may_end = asyncio.Event(), asyncio.Event()

    def work(_: object) -> Work[None]:
        yield Fetch(sql, params)

    async def keep(_: object) -> None:
        has_them.set()
        await may_end.wait()

    watch(store, keep)
    holding = asyncio.create_task(store._write(work))
    try:
        await asyncio.wait_for(has_them.wait(), 60)
        yield
    finally:
        may_end.set()
        await holding


async def within_patience(work: Awaitable[Any]) -> Any:
    call = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({call}, timeout=PATIENCE)
    if not done:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        pytest.fail("it waits for a row that it could do without")
    return call.result()


@pytest.mark.parametrize("version", [0, 1], ids=["the short way", "the long way"])
async def test_a_claim_leaves_alone_the_run_that_another_node_is_taking(server_url: str, opened: Open, version: int):
    store, other = await opened(server_url), await opened(server_url)
    task = await store.create_task(job("free", min_worker_version=version))
    first, *rest = await publish_many(store, task, 3)
    request = ClaimRequest(worker_id="w", queues=("default",), max=10, version=version)
    async with held(other, "select run_id from live where run_id = :id for update", id=first):
        claimed = await within_patience(store.claim(request))
        assert run_ids(claimed) == rest
    assert run_ids(await store.claim(request)) == [first]


@pytest.mark.parametrize("version", [0, 1], ids=["the short way", "the long way"])
async def test_a_claim_leaves_alone_the_limit_that_another_node_is_taking_from(
    server_url: str, opened: Open, version: int
):
    store, other = await opened(server_url), await opened(server_url)
    tasks = [await store.create_task(job(name, max_concurrency=1, min_worker_version=version)) for name in ("a", "b")]
    first, second = [(await publish_many(store, task, 1))[0] for task in tasks]
    request = ClaimRequest(worker_id="w", queues=("default",), max=10, version=version)
    async with held(other, "select task_id from gates where task_id = :id for update", id=tasks[0].id):
        claimed = await within_patience(store.claim(request))
        assert run_ids(claimed) == [second]
    assert run_ids(await store.claim(request)) == [first]


async def test_a_planner_leaves_alone_the_task_that_another_node_is_planning(server_url: str, opened: Open):
    store, other = await opened(server_url), await opened(server_url)
    now = await store.now()
    tasks = [await store.create_task(job(name, schedule=every_second(now - 5_000_000))) for name in ("a", "b")]
    await execute(store, f"update cursors set next_fire_at = {now // 1_000_000 * 1_000_000}")
    async with held(other, "select task_id from cursors where task_id = :id for update", id=tasks[0].id):
        planned = await within_patience(store.plan(10))
        assert planned.tasks == 1
    rows = await store.fetch("select distinct task_id from runs")
    assert [row[0] for row in rows] == [tasks[1].id]


async def test_two_readers_never_give_an_event_two_numbers(server_url: str, opened: Open):
    """The second waits for the first. It would number what the first has numbered already, in another order."""
    store, other = await opened(server_url), await opened(server_url)
    assert await store.events(0) == []
    await execute(store, "insert into events (id, at, type, data) values (2000, 2, 'first', '[[null,null]]')")
    found, may_go_on, found_too = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def after_the_first_looked(statement: Any) -> None:
        if "select id from events" in getattr(statement, "sql", ""):
            found.set()
            await may_go_on.wait()

    async def after_the_second_looked(statement: Any) -> None:
        if "select id from events" in getattr(statement, "sql", ""):
            found_too.set()

    watch(store, after_the_first_looked)
    watch(other, after_the_second_looked)
    reading = asyncio.create_task(store.events(0))
    await asyncio.wait_for(found.wait(), 60)
    await execute(other, "insert into events (id, at, type, data) values (1000, 1, 'second', '[[null,null]]')")
    reading_too = asyncio.create_task(other.events(0))
    await asyncio.wait({asyncio.create_task(found_too.wait())}, timeout=0.5)  # it comes only if nothing holds it back
    may_go_on.set()
    assert [(event.seq, event.type) for event in await reading] == [(1, "first")]
    await reading_too
    assert [(event.seq, event.type) for event in await other.events(0)] == [(1, "first"), (2, "second")]


async def test_a_claim_that_had_to_wait_is_told_after_what_was_published_meanwhile(postgres_url: str, opened: Open):
    store, other, publisher = [await opened(postgres_url) for _ in range(3)]
    task = await store.create_task(job("free"))
    await publish_many(store, task, 1)
    request = ClaimRequest(worker_id="w", queues=("default",), max=10)
    assert len(run_ids(await store.claim(request))) == 1
    async with held(other, "lock table queues in access exclusive mode"):
        claiming = asyncio.create_task(store.claim(request))
        await until(lambda: waits_for_a_lock(publisher), 60, "the claim waits")
        (run_id,) = await publish_many(publisher, task, 1)
    assert run_ids(await claiming) == [run_id]
    told = [event for event in await store.events(0) if event.run_id == run_id]
    assert [event.type for event in told] == ["run.scheduled", "run.started"]
    assert told[0].at < told[1].at


async def waits_for_a_lock(store: SqlStore) -> bool:
    here = "(select oid from pg_database where datname = current_database())"
    return bool(await store.fetch(f"select 1 from pg_locks where not granted and database = {here}"))


def run_ids(claimed: Any) -> list[RunId]:
    return [lease.run_id for lease in claimed.leases]


async def test_a_create_waits_for_no_other_and_what_commits_late_is_planned(server_url: str, opened: Open):
    clock = ManualClock(Instant(1_800_000_000 * SECOND))
    slow, quick = await opened(server_url, clock=clock), await opened(server_url, clock=clock)
    has_inserted, may_commit = asyncio.Event(), asyncio.Event()

    async def keep(statement: Any) -> None:
        inserts = statement.writes if isinstance(statement, WriteAll) else [statement]
        if any(isinstance(each, InsertMany) and each.table == "tasks" for each in inserts):
            has_inserted.set()
            await may_commit.wait()

    watch(slow, keep)
    # With `skip_next` it is more than one statement on every database.
    creating = asyncio.create_task(slow.create_task(late_job(clock), skip_next=1))
    try:
        await asyncio.wait_for(has_inserted.wait(), 60)
        early = await create_and_plan(quick, clock)
        assert not creating.done()
    finally:
        may_commit.set()
    late = await creating
    assert late.id < early.id
    # The planner has planned a higher id already; the lower one is due all the same, with the slot that it was made for.
    assert (await quick.plan(10)).skipped == 1
    found = await quick.fetch("select task_id, slot from runs order by task_id")
    assert found == [(late.id, clock.now()), (early.id, clock.now())]


@pytest.mark.bare_database
async def test_a_create_in_one_statement_waits_for_no_other_either(postgres_url: str, opened: Open):
    clock = ManualClock(Instant(1_800_000_000 * SECOND))
    slow, quick, other = [await opened(postgres_url, clock=clock) for _ in range(3)]
    await execute(
        other,
        "create function stand_still() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(4711); return null; end'",
    )
    await execute(
        other,
        "create trigger stand_still after insert on tasks for each row when (new.name = 'late')"
        " execute function stand_still()",
    )
    async with held(other, "select pg_advisory_xact_lock(4711)"):
        creating = asyncio.create_task(slow.create_task(late_job(clock)))
        await until(lambda: waits_for_a_lock(quick), 60, "the create stands still")
        early = await create_and_plan(quick, clock)
        assert not creating.done()
    late = await creating
    assert late.id < early.id
    assert (await quick.plan(10)).born == 1
    found = await quick.fetch("select task_id, slot from runs order by task_id")
    assert found == [(late.id, clock.now()), (early.id, clock.now())]


def late_job(clock: ManualClock) -> TaskSpec:
    return job("late", schedule=every_second(clock.now()))


async def create_and_plan(store: SqlStore, clock: ManualClock) -> Task:
    early = await store.create_task(job("early", schedule=every_second(clock.now())))
    clock.advance(1)
    assert (await store.plan(10)).born == 1
    return early
