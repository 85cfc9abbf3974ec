"""Keeping loops going: a node through outages, defects, orders and its end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from conformance.store.builders import START, every, job, publish, run_of, runs_of
from integration.support import until
from noonbell.clock import SECOND, ManualClock
from noonbell.engine.loop_runner import Backoff, LoopHealth, LoopRunner
from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.errors import AlreadyExists, StoreUnavailable
from noonbell.model.run import RunStatus
from noonbell.model.worker import WorkerState
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody, Patient, Scripted, spin, worker_on


class Counter:
    """A loop whose ticks go as the test says."""

    def __init__(self, *ticks: float | Exception) -> None:
        self._ticks = list(ticks)
        self.count = 0

    async def tick(self) -> float:
        self.count += 1
        what = self._ticks.pop(0) if self._ticks else 3600.0
        if isinstance(what, Exception):
            raise what
        return what

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def test_pauses_grow_to_their_limit_and_start_anew_after_a_success():
    backoff = Backoff(0.2, 10, draw=lambda: 1.0)
    assert [backoff.pause() for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    backoff.reset()
    assert backoff.pause() == 0.2


def test_pauses_are_shortened_at_random_by_up_to_a_half():
    assert Backoff(1, 10, draw=lambda: 0.0).pause() == 0.5


@pytest.mark.parametrize(
    "into_second, pause, waited",
    [
        (0.0, 1.0, 1.2),
        (0.5, 0.5, 0.7),
        (0.25, 0.72, 0.95),
        (0.0, 1.19, 1.2),
        (0.3, 1.0, 1.0),
        (0.3, 0.6, 0.6),
        (0.0, 0.0, 0.0),
    ],
)
async def test_only_a_loop_that_yields_keeps_clear_of_the_moments_at_which_slots_are_due(into_second, pause, waited):
    waits = []

    class Noted(Counter):
        async def wait(self, seconds: float) -> None:
            waits.append(round(seconds, 6))
            await asyncio.sleep(3600)

    health = LoopHealth(ManualClock(START + round(into_second * SECOND)))
    runners = [LoopRunner(f"yields {yields}", Noted(pause), health, yields=yields) for yields in (True, False)]
    for runner in runners:
        runner.start()
    await spin(10)
    assert waits == [waited, pause]
    for runner in runners:
        await runner.stop()


async def test_a_loop_goes_on_after_the_store_was_away():
    back = asyncio.Event()

    class Away(Counter):
        async def tick(self) -> float:
            if self.count == 2:
                await back.wait()
            return await super().tick()

    loop, watch = Away(StoreUnavailable("gone"), StoreUnavailable("gone")), LoopHealth()
    runner = LoopRunner("planner", loop, watch, 0.001, 0.002)
    runner.start()
    await until(lambda: loop.count == 2, 60, "the second tick")
    assert not watch.store_ok
    assert watch.store_error == "gone"
    back.set()
    await until(lambda: watch.store_ok, 60, "the third tick")
    assert loop.count == 3
    await runner.stop()


async def test_any_other_error_is_logged_with_its_traceback_and_the_loop_goes_on(monkeypatch, caplog):
    monkeypatch.setattr("noonbell.engine.loop_runner.AFTER_ERROR", 0.001)
    loop, watch = Counter(ZeroDivisionError("a defect")), LoopHealth()
    runner = LoopRunner("sweeper", loop, watch)
    with caplog.at_level(logging.ERROR):
        runner.start()
        await until(lambda: loop.count == 2, 60, "the second tick")
    assert "ZeroDivisionError: a defect" in caplog.text
    assert "Traceback" in caplog.text
    assert watch.errors == {}
    assert watch.store_ok
    await runner.stop()


async def test_a_stop_cuts_a_wait_short_and_lets_a_tick_end():
    ended = []

    class Slow(Counter):
        async def tick(self) -> float:
            await spin(5)
            ended.append(True)
            return 3600.0

    runner = LoopRunner("slow", Slow(), LoopHealth())
    runner.start()
    await asyncio.sleep(0)
    await runner.stop()
    assert ended == [True]
    runner.start()
    await spin(30)
    await runner.stop()
    assert ended == [True, True]


async def test_a_node_plans_carries_out_and_stops(store: MemoryStore, clock: ManualClock, wakeup: LocalWakeup):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(10)
    worker = worker_on(store, Scripted(), wakeup)
    node = Node(planner=Planner(store, wakeup), sweeper=Sweeper(store, wakeup), workers=[worker], clock=clock)
    assert node.health()["ok"] is False
    await node.start()
    await spin(60)
    health = node.health()
    assert (health["ok"], health["store"]["error"]) == (True, None)
    assert health["planner"]["last_at"] == "2026-01-01T10:00:10Z"
    assert health["workers"][0]["state"] == "running"
    await node.stop(0)
    assert [run.status for run in await runs_of(store, task)] == [RunStatus.SUCCESS]
    assert node.health()["ok"] is False
    assert await store.workers() == []


class Lookout(Counter):
    """A loop that writes down which workers there are when it first looks."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store
        self.seen: list[str] = []

    async def tick(self) -> float:
        self.seen += [str(worker.id) for worker in await self._store.workers()]
        return await super().tick()


async def test_workers_are_there_before_the_loops_begin(store: MemoryStore, wakeup: LocalWakeup):
    lookout = Lookout(store)
    node = Node(workers=[worker_on(store, Scripted(), wakeup)], others={"lookout": lookout})
    await node.start()
    await until(lambda: lookout.count == 1, 60, "the first tick")
    await node.stop(0)
    assert lookout.seen == ["w1"]


async def test_no_loop_begins_where_a_worker_cannot(store: MemoryStore, wakeup: LocalWakeup):
    first = worker_on(store, Scripted(), wakeup)
    await first.start(LoopHealth())
    lookout = Lookout(store)
    node = Node(workers=[worker_on(store, Scripted(), wakeup)], others={"lookout": lookout})
    with pytest.raises(AlreadyExists):
        await node.start()
    await spin(20)
    assert (lookout.count, node.health()["ok"]) == (0, False)
    await first.stop(0)


async def test_a_node_says_that_the_store_is_away_and_catches_up_afterwards(
    store: MemoryStore, clock: ManualClock, wakeup: LocalWakeup, monkeypatch
):
    monkeypatch.setattr("noonbell.engine.loop_runner.Backoff.pause", lambda self: 0.001)
    task = await store.create_task(job(schedule=every(10)))
    moody = Moody(store)
    worker = worker_on(moody, Scripted(), wakeup, poll=0.001)  # type: ignore[arg-type]
    planner = Planner(moody, wakeup, poll=0.001)  # type: ignore[arg-type]
    node = Node(planner=planner, workers=[worker], clock=clock)
    await node.start()
    moody.away = True
    clock.advance(20)
    await until(lambda: not node.health()["ok"], 60, "the outage to be seen")
    assert node.health()["store"]["error"] == "the store is away"
    assert node.health()["store"]["since"] == "2026-01-01T10:00:20Z"
    moody.away = False

    async def caught_up() -> bool:
        return [run.status for run in await runs_of(store, task)] == [RunStatus.SUCCESS] * 2

    await until(caught_up, 60, "both slots to be carried out")
    await until(lambda: bool(node.health()["ok"]), 60, "the node to be well")
    await node.stop(0)


async def test_an_operator_stops_a_worker_and_its_work_is_handed_back(store: MemoryStore, wakeup: LocalWakeup):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, target := Patient(), wakeup)
    node = Node(workers=[worker])
    await node.start(graceful_timeout=0)
    await spin(50)
    assert len(target.started) == 1
    await store.set_worker("w1", state=WorkerState.STOPPING)
    wakeup.signal("orders")

    async def has_gone() -> bool:
        return await store.workers() == []

    await until(has_gone, 60, "the worker to go")
    assert (await run_of(store, run_id)).status is RunStatus.SCHEDULED
    await node.stop(0)


async def test_a_node_that_cannot_start_leaves_nothing_running(store: MemoryStore, wakeup: LocalWakeup):
    await worker_on(store, Scripted(), worker_id="taken").register()
    workers = [worker_on(store, Scripted(), worker_id=name) for name in ("free", "taken")]
    before = asyncio.all_tasks()
    with pytest.raises(AlreadyExists):
        await Node(workers=workers).start()
    assert asyncio.all_tasks() <= before
    assert [worker.id for worker in await store.workers()] == ["taken"]
