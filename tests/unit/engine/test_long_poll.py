"""The long_poll: many workers wait, and what comes goes to one of them, at once and at little cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from conformance.store.builders import edit, job, publish, publish_many, run_of
from noonbell.engine.worker_protocol import INCARNATION, LongPoll
from noonbell.errors import RateLimited
from noonbell.model.request import ClaimRequest
from noonbell.model.run import Lease, RunStatus
from noonbell.model.task import Fanout, RateLimit
from noonbell.model.worker import Attendance, WorkerInfo, WorkerState
from noonbell.ports import ORDERS
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody, spin

S = RunStatus
FREE = Attendance(WorkerState.RUNNING, 100)
NET = 3600.0
"""A poll that never comes: what is found without it was signalled."""


@pytest.fixture
async def counted(store: MemoryStore) -> Moody:
    return Moody(store)


@pytest.fixture
async def long_poll(counted: Moody, wakeup: LocalWakeup):
    long_poll = LongPoll(counted, wakeup, poll=NET, refresh=NET)  # type: ignore[arg-type]
    yield long_poll
    await long_poll.close()


async def arrive(
    long_poll: LongPoll, worker: str = "w1", *, attendance: Attendance = FREE, seconds: float = NET, **more
):
    """A worker's long poll, under way."""
    fields = {"queues": ("default",), "max": 10} | more
    request = ClaimRequest(worker_id=worker, **fields)
    known = WorkerInfo(id=worker, incarnation=INCARNATION, state=attendance.state, concurrency=attendance.concurrency)
    await long_poll.store.register_worker(known)
    visit = asyncio.create_task(long_poll.claim(request, attendance, seconds))
    await spin()
    return visit


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)


def news(wakeup: LocalWakeup, queue: str = "default") -> None:
    wakeup.signal(f"queue:{queue}")


async def test_what_is_there_is_had_at_once(store: MemoryStore, long_poll: LongPoll):
    await publish_many(store, await store.create_task(job()), 3)
    leases = await (await arrive(long_poll, max=2))
    assert [lease.worker_id for lease in leases] == ["w1", "w1"]
    assert long_poll.waiting == 0


async def test_who_waits_is_woken_by_the_signal(store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup):
    task = await store.create_task(job())
    visit = await arrive(long_poll)
    assert long_poll.waiting == 1
    run_id = await publish(store, task)
    news(wakeup)
    assert [lease.run_id for lease in await visit] == [run_id]


async def test_a_wait_of_nothing_waits_for_nothing(long_poll: LongPoll):
    assert await (await arrive(long_poll, seconds=0)) == []


async def test_a_wait_ends_with_nothing_when_its_time_is_up(long_poll: LongPoll):
    assert await (await arrive(long_poll, seconds=0.01)) == []
    assert long_poll.waiting == 0


async def test_a_run_for_a_crowd_costs_a_few_claims(
    store: MemoryStore, counted: Moody, long_poll: LongPoll, wakeup: LocalWakeup
):
    task = await store.create_task(job())
    visits = [await arrive(long_poll, f"w{number}") for number in range(200)]
    await publish_many(store, task, 2)
    counted.calls.clear()
    news(wakeup)
    done, _ = await asyncio.wait(visits, return_when=asyncio.FIRST_COMPLETED)
    await spin()
    assert sum(len(visit.result()) for visit in done) == 2
    assert counted.calls.count("claim") < 10
    assert long_poll.waiting == 200 - len(done)


async def test_who_has_waited_longest_is_served_first(store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup):
    task = await store.create_task(job())
    visits = [await arrive(long_poll, f"w{number}", max=1) for number in range(3)]
    for visit in visits:
        await publish(store, task)
        news(wakeup)
        assert len(await visit) == 1


async def test_a_run_that_names_a_worker_finds_it_in_the_crowd(
    store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup
):
    task = await store.create_task(job())
    visits = {f"w{number}": await arrive(long_poll, f"w{number}") for number in range(20)}
    run_id = await publish(store, task, specific_worker_ids=("w17",))
    news(wakeup)
    assert [lease.run_id for lease in await visits["w17"]] == [run_id]
    assert long_poll.waiting == 19


async def test_those_who_want_something_else_do_not_stand_in_the_way(
    store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup
):
    task = await store.create_task(job(job_type="rare"))
    for number in range(10):
        await arrive(long_poll, f"w{number}", job_types=("common",))
    visit = await arrive(long_poll, "right", job_types=("rare",))
    await publish(store, task)
    news(wakeup)
    assert len(await visit) == 1


async def test_a_signal_that_comes_while_it_is_looked_for_is_not_lost(
    store: MemoryStore, counted: Moody, long_poll: LongPoll, wakeup: LocalWakeup
):
    """The second of two visitors looks for itself, and finds nothing yet, when the signal comes."""
    task = await store.create_task(job())
    first = await arrive(long_poll, "w1", max=1)
    await publish(store, task)
    request = ClaimRequest(worker_id="w2", queues=("default",), max=1)
    gate, looked = asyncio.Event(), asyncio.Event()

    async def slow(request: ClaimRequest):
        claimed = await store.claim(request)
        looked.set()
        await gate.wait()
        return claimed

    original = counted.claim
    counted.claim = lambda given: slow(given) if given.worker_id == "w2" else original(given)  # type: ignore[method-assign]
    leases = await store.claim(request)
    assert len(leases.leases) == 1  # the run is taken: w2 will find nothing
    second = asyncio.create_task(long_poll.claim(request, FREE, NET))
    await looked.wait()
    await publish_many(store, task, 2)
    news(wakeup)
    assert len(await first) == 1
    gate.set()
    assert len(await second) == 1


async def test_what_was_claimed_for_one_who_left_is_handed_back_and_goes_to_the_next(
    store: MemoryStore, counted: Moody, long_poll: LongPoll, wakeup: LocalWakeup
):
    task = await store.create_task(job())
    gate = asyncio.Event()

    async def slow(request: ClaimRequest):
        claimed = await store.claim(request)
        if request.worker_id == "w1" and claimed.leases:
            await gate.wait()
        return claimed

    counted.claim = slow  # type: ignore[attr-defined]
    first = await arrive(long_poll, "w1")
    run_id = await publish(store, task)
    news(wakeup)
    await spin()
    assert (await run_of(store, run_id)).status is S.RUNNING
    first.cancel()
    await asyncio.wait([first])
    second = await arrive(long_poll, "w2")
    gate.set()
    (lease,) = await second
    assert (lease.run_id, lease.worker_id, lease.attempt) == (run_id, "w2", 1)


async def test_one_who_leaves_during_its_own_claim_leaves_nothing_behind(
    store: MemoryStore, counted: Moody, long_poll: LongPoll, wakeup: LocalWakeup
):
    run_id = await publish(store, await store.create_task(job()))
    gate = asyncio.Event()

    async def slow(request: ClaimRequest):
        claimed = await store.claim(request)
        await gate.wait()
        return claimed

    counted.claim = slow  # type: ignore[attr-defined]
    visit = await arrive(long_poll)
    visit.cancel()
    await asyncio.wait([visit])
    assert (await run_of(store, run_id)).status is S.RUNNING
    gate.set()
    assert await wakeup.wait(["queue:default"], 5)
    run = await run_of(store, run_id)
    assert (run.status, run.attempt) == (S.SCHEDULED, 0)


@pytest.mark.parametrize(
    "attendance",
    [Attendance(WorkerState.DRAINING, 10), Attendance(WorkerState.STOPPING, 10), Attendance(WorkerState.RUNNING, 0)],
)
async def test_one_who_is_to_take_no_more_gets_nothing(
    store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup, attendance: Attendance
):
    task = await store.create_task(job())
    await publish(store, task)
    visit = await arrive(long_poll, attendance=attendance)
    news(wakeup)
    await spin()
    assert not visit.done()
    assert await (await arrive(long_poll, "w2", attendance=attendance, seconds=0)) == []
    assert len(await (await arrive(long_poll, "w3"))) == 1


async def test_one_who_waits_is_told_at_once_what_an_operator_wants(
    store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup
):
    visit, other = await arrive(long_poll), await arrive(long_poll, "w2")
    await store.set_worker("w1", state=WorkerState.DRAINING)
    wakeup.signal(ORDERS)
    assert await visit == []
    await spin()
    assert not other.done()


async def test_who_waits_is_alive(store: MemoryStore, wakeup: LocalWakeup, clock):
    long_poll = LongPoll(store, wakeup, poll=NET, refresh=0.01)
    await store.register_worker(WorkerInfo(id="w1", incarnation=INCARNATION, concurrency=100))
    visit = asyncio.create_task(long_poll.claim(ClaimRequest(worker_id="w1", queues=("default",), max=1), FREE, NET))

    async def heard() -> bool:
        return (await store.workers())[0].heartbeat_at == clock.now()

    for _ in range(3):
        clock.advance(14)
        await until(heard)
    assert (await store.workers())[0].state is WorkerState.RUNNING
    assert not visit.done()
    await long_poll.close()
    assert await visit == []


async def test_a_worker_never_holds_more_than_its_concurrency(
    store: MemoryStore, long_poll: LongPoll, wakeup: LocalWakeup
):
    task = await store.create_task(job())
    await publish_many(store, task, 5)
    three = Attendance(WorkerState.RUNNING, 3)
    assert len(await (await arrive(long_poll, max=2, attendance=three))) == 2
    assert len(await (await arrive(long_poll, max=2, attendance=three))) == 1
    full = await arrive(long_poll, max=2, attendance=three)
    news(wakeup)
    await spin()
    assert not full.done()


async def test_a_limit_of_time_wakes_who_waits(store: MemoryStore, wakeup: LocalWakeup, clock):
    """No signal comes when a rate limit has room again: the claim has said when that will be."""
    long_poll = LongPoll(store, wakeup, poll=NET, refresh=NET)
    task = await store.create_task(job(rate_limit=RateLimit(max=1, per_seconds=0.05)))
    await publish_many(store, task, 2)
    got: list[Lease] = await (await arrive(long_poll, max=5))
    assert len(got) == 1
    visit = await arrive(long_poll, max=5)
    clock.advance(1)
    news(wakeup)
    assert len(await visit) == 1
    await long_poll.close()


async def test_nobody_waits_at_a_closed_door(store: MemoryStore, long_poll: LongPoll):
    visit = await arrive(long_poll)
    await long_poll.close()
    assert await visit == []
    assert await (await arrive(long_poll, "w2")) == []
    await publish(store, await store.create_task(job()))
    assert len(await (await arrive(long_poll, "w3"))) == 1  # but what is there is had


async def test_a_crowd_has_a_limit(counted: Moody, wakeup: LocalWakeup):
    long_poll = LongPoll(counted, wakeup, poll=NET, refresh=NET, most=2)  # type: ignore[arg-type]
    for number in range(2):
        await arrive(long_poll, f"w{number}")
    with pytest.raises(RateLimited):
        await (await arrive(long_poll, "w3"))
    assert await (await arrive(long_poll, "w4", seconds=0)) == []
    await long_poll.close()


async def test_a_store_that_is_away_ends_nobodys_wait(store: MemoryStore, counted: Moody, wakeup: LocalWakeup):
    long_poll = LongPoll(counted, wakeup, poll=0.01, refresh=NET)  # type: ignore[arg-type]
    task = await store.create_task(job())
    visit = await arrive(long_poll)
    counted.away = True
    news(wakeup)
    counted.calls.clear()

    async def tried_again() -> bool:
        return counted.calls.count("held") >= 3

    await until(tried_again)
    assert not visit.done()
    await publish(store, task)
    counted.away = False
    assert len(await visit) == 1
    await long_poll.close()


async def test_a_poll_is_the_net_for_a_lost_signal(store: MemoryStore, wakeup: LocalWakeup):
    long_poll = LongPoll(store, wakeup, poll=0.01, refresh=NET)
    task = await store.create_task(job())
    visit = await arrive(long_poll)
    await edit(store, task, description="x")
    await publish(store, task)
    assert len(await visit) == 1
    await long_poll.close()


async def test_whoever_splits_a_fan_out_wakes_those_that_the_other_parts_wait_for(
    store: MemoryStore, long_poll: LongPoll
):
    task = await store.create_task(job(fanout=Fanout(workers=2)))
    first = await arrive(long_poll, "w1", job_types=("work",))
    await publish(store, task)
    second = await arrive(long_poll, "w2")
    async with asyncio.timeout(60):
        (one,), (other,) = await second, await first
    assert (one.worker_id, other.worker_id, one.parent_id) == ("w2", "w1", other.parent_id)
