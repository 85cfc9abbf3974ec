"""The database goes away and comes back: callers are told, nobody waits for ever, and what was done is done once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from integration.conftest import Open
from integration.crew import success
from integration.proxy import Proxy
from integration.support import Crew, facts_of, job, publish_many, until
from noonbell.errors import StoreUnavailable
from noonbell.model.request import ClaimRequest, Publication, PublishOutcome, RunQuery
from noonbell.model.run import Lease, RunStatus, SettleResult
from noonbell.model.task import Task
from noonbell.stores import open_store
from noonbell.stores.mysql import MysqlStore
from noonbell.stores.sql.statement import Fetch, Work
from noonbell.stores.sql.store import SqlStore

pytestmark = pytest.mark.slow

DEADLINE = 20.0
"""A worker whose lease is 15 seconds must know by then, or it works on in vain."""


@pytest.fixture
async def proxy(server_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(server_url) as proxy:
        yield proxy


def ask(count: int = 10) -> ClaimRequest:
    return ClaimRequest(worker_id="w", queues=("default",), max=count)


def calls(store: SqlStore, task: Task, lease: Lease) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "now": store.now,
        "task": lambda: store.task(task.id),
        "runs": lambda: store.runs(RunQuery(task_id=task.id)),
        "publish": lambda: store.publish([Publication(task_id=task.id)]),
        "publish with a key": lambda: store.publish([Publication(task_id=task.id, key="k")]),
        "plan": lambda: store.plan(10),
        "promote": lambda: store.promote(10),
        "claim": lambda: store.claim(ask()),
        "heartbeat": lambda: store.heartbeat("w", [(lease.run_id, lease.token)]),
        "overdue": lambda: store.overdue(10),
        "cancel": lambda: store.cancel([lease.run_id]),
        "create_task": lambda: store.create_task(job("another")),
        "events": lambda: store.events(0),
    }


async def is_unavailable(call: Awaitable[Any]) -> bool:
    """Whether it says so, within the deadline and in no other way."""
    try:
        await asyncio.wait_for(call, DEADLINE)
    except StoreUnavailable:
        return True
    return False


async def prepared(store: SqlStore) -> tuple[Task, Lease]:
    task = await store.create_task(job("t"))
    await publish_many(store, task, 1)
    (lease,) = (await store.claim(ask())).leases
    return task, lease


async def back_soon(store: SqlStore) -> None:
    """Calls may still find the connections of before; then it works."""

    async def answers() -> bool:
        return not await is_unavailable(store.claim(ask()))

    await until(answers, 60, "the store to answer again")


async def test_callers_are_told_while_the_server_is_away_and_served_when_it_is_back(proxy: Proxy, opened: Open):
    store = await opened(proxy.url)
    task, lease = await prepared(store)
    await asyncio.gather(*(store.now() for _ in range(20)))  # several connections in the pool
    await proxy.cut()
    for name, call in calls(store, task, lease).items():
        assert await is_unavailable(call()), name
    crowd = await asyncio.gather(*(is_unavailable(store.claim(ask())) for _ in range(30)))
    assert all(crowd)
    await proxy.restore()
    await back_soon(store)
    for name, call in calls(store, task, lease).items():
        assert not await is_unavailable(call()), name


async def test_calls_under_way_when_the_connection_breaks_are_told(proxy: Proxy, opened: Open):
    store = await opened(proxy.url)
    task, _ = await prepared(store)
    for _ in range(5):
        proxy.pause()
        under_way = [
            asyncio.create_task(is_unavailable(store.publish([Publication(task_id=task.id)]))) for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        await proxy.cut()
        assert all(await asyncio.gather(*under_way))
        proxy.resume()
        await proxy.restore()
        await back_soon(store)


async def test_nobody_waits_for_ever_for_a_server_that_holds_still(proxy: Proxy, opened: Open):
    store = await opened(proxy.url)
    task, lease = await prepared(store)
    some = calls(store, task, lease)
    chosen = ("now", "publish", "claim", "heartbeat", "overdue", "plan")
    proxy.pause()
    began = time.monotonic()
    answers = await asyncio.gather(*(is_unavailable(some[name]()) for name in chosen), return_exceptions=True)
    proxy.resume()
    waited = time.monotonic() - began
    assert dict(zip(chosen, answers, strict=True)) == dict.fromkeys(chosen, True), f"after {waited:.1f} s"
    await back_soon(store)


@pytest.mark.parametrize(
    ("closing", "opening"),
    [
        ("allow_connections false", "allow_connections true"),
        ("set default_transaction_read_only = on", "reset default_transaction_read_only"),
    ],
)
async def test_callers_are_told_while_a_database_takes_nobody_in_or_no_writes(
    postgres_url: str, opened: Open, closing: str, opening: str
):
    store = await opened(postgres_url)
    task = await store.create_task(job("t"))
    server, _, name = postgres_url.partition("?")[0].rpartition("/")
    admin = await asyncpg.connect(f"{server}/postgres")
    try:
        await admin.execute(f'alter database "{name}" {closing}')
        await admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
        assert await is_unavailable(store.publish([Publication(task_id=task.id)]))
        assert await is_unavailable(store.publish([Publication(task_id=task.id)]))
    finally:
        await admin.execute(f'alter database "{name}" {opening}')
        await admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
        await admin.close()
    await back_soon(store)


async def test_a_connection_that_takes_no_writes_any_longer_is_told_of_and_dropped(mysql_url: str):
    store = MysqlStore(mysql_url, connections=1)
    await store.open()
    try:
        task = await store.create_task(job("t"))
        await store.fetch("set session transaction read only")
        assert await is_unavailable(store.publish([Publication(task_id=task.id)]))
        (published,) = await store.publish([Publication(task_id=task.id)])
        assert published.outcome is PublishOutcome.CREATED
    finally:
        await store.close()


async def test_a_server_that_is_not_there_refuses_to_be_opened_in_our_words(proxy: Proxy):
    await proxy.cut()
    store = open_store(proxy.url)
    assert await is_unavailable(store.open())
    await store.close()


@pytest.mark.parametrize("limit", [None, 1], ids=["the short way", "behind a gate"])
@pytest.mark.parametrize("answered", [False, True], ids=["request lost", "answer lost"])
async def test_a_settlement_that_was_cut_anywhere_can_be_repeated(
    proxy: Proxy, server_url: str, opened: Open, limit: int | None, answered: bool
):
    direct = await opened(server_url)
    task = await direct.create_task(job("t", max_concurrency=limit))
    ids, unheard = [], 0
    for message in range(1, 40):
        ids += await publish_many(direct, task, 1)
        (lease,) = (await direct.claim(ask())).leases
        store = await opened(proxy.url)  # a new one has nothing prepared: its messages are the same each time
        proxy.break_at(message, answered=answered)
        cut = await is_unavailable(store.settle([success(lease)]))
        came = proxy.mend()
        assert cut or not came or message > 1
        if not came:
            break
        await back_soon(store)
        again = (await store.settle([success(lease)]))[0]
        await store.close()
        run = await direct.run(lease.run_id)
        assert run is not None
        assert run.status is RunStatus.SUCCESS
        unheard += cut and again is SettleResult.LOST
    else:
        pytest.fail("the settlement never came through whole")
    assert message > 1, "nothing was cut"
    if answered:
        assert unheard >= 1, "the commit whose answer was lost was not among them"
    told = (await facts_of(direct, "run.succeeded"))["run.succeeded"]
    assert dict(told) == dict.fromkeys(ids, 1), "settled once, each of them"
    assert await direct.recount() == 0


# ---- SQLite


async def pragma(store: SqlStore, text: str) -> int:
    def work(_: Any) -> Work[int]:
        rows = yield Fetch(f"pragma {text}")
        return int(rows[0][0])

    return await store._write(work)


async def test_a_full_disk_is_told_and_the_writer_lives_on(sqlite_url: str, opened: Open):
    store = await opened(sqlite_url)
    task = await store.create_task(job("t"))
    ids = await publish_many(store, task, 50)
    await pragma(store, f"max_page_count = {await pragma(store, 'page_count') + 20}")
    refused = 0
    for _ in range(40):
        many = [Publication(task_id=task.id, payload="x" * 5_000) for _ in range(5)]
        answers = await asyncio.gather(*(store.publish(many) for _ in range(3)), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                assert isinstance(answer, StoreUnavailable), answer
                refused += 1
            else:
                ids += [one.run_id for one in answer if one.run_id is not None]
    assert refused > 30
    assert (await store.fetch("select count(*) from runs"))[0][0] == len(ids)
    assert (await store.run(ids[0])) is not None
    await pragma(store, "max_page_count = 1000000")
    ids += await publish_many(store, task, 50)
    assert {row[0] for row in await store.fetch("select id from runs")} == set(ids)
    assert (await store.fetch("pragma integrity_check")) == [("ok",)]


async def test_a_killed_writer_leaves_a_sound_file_with_all_that_was_acknowledged(
    sqlite_url: str, tmp_path: Path, opened: Open, crew: Crew
):
    store = await opened(sqlite_url)
    task = await store.create_task(job("t"))
    await store.close()
    for round_ in range(1, 7):
        before = crew.written()
        (member,) = crew.start("publish", url=sqlite_url, task_id=task.id, at_once=7)
        await until(lambda before=before, round_=round_: crew.written() > before + 2_000 * round_, 60, "some publishes")
        member.kill()
        with sqlite3.connect(tmp_path / "noonbell.db") as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
            there = {row[0] for row in db.execute("select id from runs")}
            waiting = {row[0] for row in db.execute("select run_id from live")}
        db.close()
        acknowledged = {int(line[1]) for line in crew.lines()}
        assert acknowledged <= there
        assert there == waiting
        assert len(there) <= len(acknowledged) + 7 * round_
