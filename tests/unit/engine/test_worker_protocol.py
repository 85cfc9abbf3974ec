"""Workers that come by the API: settling together, on any node, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from conformance.store.builders import details_of, job, publish, publish_many, run_of
from noonbell.clock import ManualClock
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.worker_protocol import LongPoll, WorkerBackend
from noonbell.errors import LeaseLost, NotFound, StoreUnavailable
from noonbell.model.run import Assignment, Outcome, RunId, RunStatus, Settlement
from noonbell.model.task import Delivery, RetryPolicy
from noonbell.model.worker import WorkerDeclaration, WorkerState
from noonbell.ports import Store
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import DONE, Moody, broken

S = RunStatus
SAID = WorkerDeclaration(queues=("default",))


def node_on(store: Store, wakeup: LocalWakeup) -> WorkerBackend:
    return WorkerBackend(store, wakeup, TaskCache(store), LongPoll(store, wakeup))


@pytest.fixture
def moody(store: MemoryStore) -> Moody:
    return Moody(store)


@pytest.fixture
def protocol(moody: Moody, wakeup: LocalWakeup) -> WorkerBackend:
    return node_on(moody, wakeup)  # type: ignore[arg-type]


async def claim(protocol: WorkerBackend, count: int = 10) -> list[Assignment]:
    assignments, _ = await protocol.claim("w1", SAID, count, 0)
    return assignments


async def settle(protocol: WorkerBackend, one: Assignment, outcome: Outcome | None = DONE) -> RunStatus:
    return await protocol.settle("w1", one.lease.run_id, one.lease.token, outcome)


async def test_what_ends_together_is_written_together(store: MemoryStore, moody: Moody, protocol: WorkerBackend):
    await publish_many(store, await store.create_task(job()), 50)
    taken = await claim(protocol, 50)
    moody.calls.clear()
    assert await asyncio.gather(*(settle(protocol, one) for one in taken)) == [S.SUCCESS] * 50
    assert moody.calls.count("settle") <= 2
    assert "run" not in moody.calls
    assert (await run_of(store, taken[0].lease.run_id)).result == {"rows": 42}


async def test_one_that_cannot_be_written_disturbs_no_other(
    store: MemoryStore, moody: Moody, protocol: WorkerBackend, monkeypatch
):
    await publish_many(store, await store.create_task(job()), 3)
    taken = await claim(protocol)
    bad = taken[1].lease.run_id

    async def picky(settlements: Sequence[Settlement]):
        if any(one.run_id == bad for one in settlements):
            raise ValueError("too odd")
        return await store.settle(settlements)

    monkeypatch.setattr(moody, "settle", picky, raising=False)
    answers = await asyncio.gather(*(settle(protocol, one) for one in taken), return_exceptions=True)
    assert [answer if isinstance(answer, RunStatus) else type(answer) for answer in answers] == [
        S.SUCCESS,
        ValueError,
        S.SUCCESS,
    ]


async def test_while_the_store_is_away_everybody_is_told_and_may_come_again(
    store: MemoryStore, moody: Moody, protocol: WorkerBackend
):
    await publish_many(store, await store.create_task(job()), 3)
    taken = await claim(protocol)
    moody.away = True
    answers = await asyncio.gather(*(settle(protocol, one) for one in taken), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    moody.away = False
    assert [await settle(protocol, one) for one in taken] == [S.SUCCESS] * 3


async def test_any_node_can_settle_what_another_has_handed_out(store: MemoryStore, wakeup: LocalWakeup):
    policy = RetryPolicy(max_retries=1, initial_delay=0)
    await publish(store, await store.create_task(job(retry_policy=policy)))
    here, there = node_on(store, wakeup), node_on(store, wakeup)
    (first,) = await claim(here)
    assert await settle(there, first, broken()) is S.RETRYING
    (second,) = await claim(there)
    assert await settle(here, second, broken()) is S.FAILED


async def test_what_was_handed_out_here_and_taken_over_elsewhere_is_lost(
    store: MemoryStore, wakeup: LocalWakeup, clock: ManualClock
):
    await publish(store, await store.create_task(job(retry_policy=RetryPolicy(max_retries=1, initial_delay=0))))
    here, there = node_on(store, wakeup), node_on(store, wakeup)
    (first,) = await claim(here)
    await settle(there, first, broken())
    with pytest.raises(LeaseLost) as lost:
        await settle(here, first)
    assert lost.value.details == {"order": "lost", "status": "RETRYING"}
    with pytest.raises(NotFound):
        await here.settle("w1", RunId(77), 1, DONE)


async def test_a_freed_place_and_a_retry_are_signalled_and_a_plain_end_is_not(
    store: MemoryStore, protocol: WorkerBackend, wakeup: LocalWakeup
):
    async def heard(topic: str) -> bool:
        return await wakeup.wait([topic], 0)

    for name, fields in (("plain", {}), ("limited", {"max_concurrency": 1})):
        await publish(store, await store.create_task(job(name, **fields)))
        (one,) = await claim(protocol)
        await heard("queue:default")
        await settle(protocol, one)
        assert await heard("queue:default") is (name == "limited")
    await publish(store, await store.create_task(job("again", retry_policy=RetryPolicy(max_retries=1))))
    (one,) = await claim(protocol)
    await heard("plan")
    assert await settle(protocol, one, broken()) is S.RETRYING
    assert await heard("plan")


async def test_at_most_once_cannot_be_handed_back(store: MemoryStore, protocol: WorkerBackend):
    run_id = await publish(store, await store.create_task(job(delivery=Delivery.AT_MOST_ONCE)))
    (one,) = await claim(protocol)
    assert await settle(protocol, one, None) is S.FAILED
    assert details_of(await run_of(store, run_id)) == {"kind": "unknown"}


async def test_a_worker_is_registered_once_and_again_when_it_was_forgotten(
    store: MemoryStore, moody: Moody, protocol: WorkerBackend
):
    for _ in range(3):
        await claim(protocol)
    assert moody.calls.count("register_worker") == 1
    await store.remove_worker("w1", "api")
    await claim(protocol)
    assert moody.calls.count("register_worker") == 2


async def test_an_operators_word_outlives_what_the_worker_says_again(store: MemoryStore, wakeup: LocalWakeup):
    here, there = node_on(store, wakeup), node_on(store, wakeup)
    await claim(here)
    await store.set_worker("w1", state=WorkerState.DRAINING, concurrency=3)
    await claim(there)
    await there.claim("w1", WorkerDeclaration(queues=("other",)), 1, 0)
    (worker,) = await store.workers()
    assert (worker.state, worker.concurrency, worker.queues) == (WorkerState.DRAINING, 3, ("other",))
    await there.claim("w1", WorkerDeclaration(queues=("other",), concurrency=8), 1, 0)
    assert (await store.workers())[0].concurrency == 8
