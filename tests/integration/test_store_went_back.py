"""A fail-over to a standby that was behind loses the last commits: the next connection notices, before anything is planned or claimed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from conformance.store.builders import START, at, claim, done, every, finish, job, publish, runs_of
from integration.private_servers import PrivateServers, missing, private_servers
from integration.proxy import Proxy
from integration.test_several_hosts import address, caught_up, promote
from noonbell.clock import ManualClock
from noonbell.errors import StoreUnavailable
from noonbell.model.run import Run, RunStatus, SkipReason
from noonbell.model.task import Delivery, Task
from noonbell.stores import open_store
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.store import SqlStore
from services.launch import Unavailable

S = RunStatus
ONCE = {"delivery": Delivery.AT_MOST_ONCE, "on_lost": "FAIL"}


@pytest.fixture
def servers() -> Iterator[PrivateServers]:
    with private_servers() as made:
        yield made


async def carry_out_all(store: SqlStore) -> None:
    await store.plan(100)
    for lease in await claim(store, count=100):
        await done(store, finish(lease))


async def until_it_answers(store: SqlStore) -> None:
    for _ in range(9):
        try:
            await store.plan(100)
        except StoreUnavailable:
            continue
        return
    await store.plan(100)


def keys(runs: list[Run]) -> dict[int, str | None]:
    return {run.scheduled_time: run.idempotency_key for run in runs}


@pytest.mark.parametrize("first_to_come_back", ["planner", "worker"])
async def test_an_asynchronous_standby_repeats_no_slot_that_must_not_be_repeated(
    servers: PrivateServers, first_to_come_back: str, caplog: pytest.LogCaptureFixture
):
    try:
        first = servers.postgres()
        second = servers.standby_of(first)
    except (FileNotFoundError, Unavailable) as error:
        missing(error)
    clock, url = ManualClock(START), address("postgresql", first, second, database="postgres")
    planner, worker = open_store(url, clock=clock), open_store(url, clock=clock)
    await planner.open()
    await worker.open()
    try:
        once = await planner.create_task(job("once", schedule=every(10), **ONCE))
        again = await planner.create_task(job("again", schedule=every(10)))
        by_hand = await planner.create_task(job("by hand", **ONCE))
        await publish(planner, by_hand)
        await planner.pulse("n1")
        await caught_up(first, second)
        second.kill()  # what is committed from here on never reaches it

        clock.set(at(25))
        await carry_out_all(planner)
        await planner.pulse("n1")
        await worker.pulse("w1", writes=False)
        delivered: dict[int, list[Run]] = {task.id: await runs_of(planner, task) for task in (once, again, by_hand)}
        assert {run.status for runs in delivered.values() for run in runs} == {S.SUCCESS}

        first.kill()
        second.start()
        await promote(second)
        clock.set(at(26))
        with caplog.at_level(logging.WARNING, "noonbell.store"):
            await until_it_answers(planner if first_to_come_back == "planner" else worker)
        assert "the store went back" in caplog.text
        await until_it_answers(planner)

        await assert_skipped(planner, once, [at(10), at(20)])
        await assert_skipped(planner, by_hand, [START])
        repeated = await runs_of(planner, again)
        assert keys(repeated) == keys(delivered[again.id]), "the target can tell that it had these"
        assert {lease.task_id for lease in await claim(worker, count=100)} == {again.id}
        (noted,) = await planner.store_returns(START, at(99))
        assert (noted.since, noted.until, noted.skipped) == (START, at(26), 3)
    finally:
        await planner.close()
        await worker.close()


async def assert_skipped(store: SqlStore, task: Task, slots: list[int]) -> None:
    runs = await runs_of(store, task)
    assert [run.scheduled_time for run in runs] == slots
    assert {(run.status, run.skip_reason) for run in runs} == {(S.SKIPPED, SkipReason.STORE_WENT_BACK)}


@pytest.fixture
async def proxied(mysql_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(mysql_url) as proxy:
        yield proxy


async def test_mariadb_is_looked_at_on_each_new_connection(proxied: Proxy):
    clock = ManualClock(START)
    store = open_store(proxied.url, clock=clock)
    await store.open()
    try:
        task = await store.create_task(job("once", schedule=every(10), **ONCE))
        await store.pulse("n1")
        clock.set(at(1))
        await store.pulse("n1")

        def lose() -> Work[None]:
            yield Execute("update pulses set at = :moment", {"moment": START})

        await store._write(lambda _: lose())
        clock.set(at(15))
        await proxied.cut()
        await proxied.restore()
        await until_it_answers(store)
        await assert_skipped(store, task, [at(10)])
    finally:
        await store.close()
