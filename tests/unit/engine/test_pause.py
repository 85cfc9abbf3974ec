"""What a worker does with runs that it claimed before everything was paused; and what each process says of the pause."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from conformance.store.builders import job, publish, publish_many, run_of, status_of
from noonbell.engine.attempt_runner import FRESH, PauseCheck
from noonbell.engine.node import PauseWatch
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import RunStatus
from noonbell.model.task import RetryPolicy, RetryStrategy
from noonbell.ports import PAUSE, Store
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import DONE, Calling, Patient, Scripted, broken, spin, worker_on

S = RunStatus


class Time:
    """A monotonic clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counting:
    """Counts how often the store is asked whether everything is paused."""

    def __init__(self, store: Store) -> None:
        self._store, self.asked = store, 0

    async def installation_pause(self) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return await self._store.installation_pause()


async def test_while_claims_are_quick_the_store_is_not_asked(store: MemoryStore):
    counted, time = Counting(store), Time()
    check = PauseCheck(counted, monotonic=time)  # type: ignore[arg-type]
    check.found_open(time.now)
    time.now += FRESH * 0.9
    assert await check.is_paused() is False
    assert counted.asked == 0


async def test_what_is_to_start_later_asks_the_store_once_for_all(store: MemoryStore):
    counted, time = Counting(store), Time()
    check = PauseCheck(counted, monotonic=time)  # type: ignore[arg-type]
    check.found_open(time.now)
    time.now += FRESH
    assert await asyncio.gather(*(check.is_paused() for _ in range(50))) == [False] * 50
    assert counted.asked == 1
    await store.pause_installation("now")
    time.now += FRESH
    assert await check.is_paused() is True


async def test_a_claim_that_was_sent_off_earlier_takes_nothing_back(store: MemoryStore):
    time = Time()
    check = PauseCheck(store, monotonic=time)
    check.found_open(time.now)
    check.found_open(time.now - 50)
    await store.pause_installation("now")
    assert await check.is_paused() is False


class SlowClaims:
    """A store on which everything is paused while a claim that found it open is on its way back."""

    def __init__(self, store: Store, time: Time) -> None:
        self._store, self._time = store, time

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await self._store.claim(request)
        if claimed.leases:
            await self._store.pause_installation("while it was on its way")
            self._time.now += FRESH
        return claimed


async def test_a_run_whose_claim_took_too_long_is_handed_back_and_not_started(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    time = Time()
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(SlowClaims(store, time), target := Scripted(DONE))  # type: ignore[arg-type]
    check = worker.claim_loops[0]._pause_check
    monkeypatch.setattr(check, "_monotonic", time)
    monkeypatch.setattr("noonbell.engine.claim_loop.read_monotonic", time)
    await worker.run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, target.seen) == (S.SCHEDULED, 0, [])
    await store.resume_installation()
    await worker_on(store, target).run_until_idle()
    assert await status_of(store, run_id) is S.SUCCESS


async def test_what_is_claimed_ahead_is_handed_back_when_a_claim_finds_the_pause(store: MemoryStore):
    task = await store.create_task(job())
    worker = worker_on(store, target := Patient(), concurrency=1)
    worker.in_flight._pace = 0.0001  # attempts have been short, so it claims ahead
    (first, *_) = made = await publish_many(store, task, 3)
    await worker.tick()
    await spin()
    assert len(worker.in_flight.leases) == 3
    await store.pause_installation("now")
    await worker.tick()
    await worker.tick()
    assert [await status_of(store, run_id) for run_id in made] == [S.RUNNING, S.SCHEDULED, S.SCHEDULED]
    target.finish()
    await worker.run_until_idle()
    assert [one.lease.run_id for one in target.started] == [first]
    assert [await status_of(store, run_id) for run_id in made] == [S.SUCCESS, S.SCHEDULED, S.SCHEDULED]


async def test_a_local_retry_does_not_start_while_everything_is_paused(store: MemoryStore):
    policy = RetryPolicy(max_retries=5, strategy=RetryStrategy.FIXED, initial_delay=0, local=True)
    run_id = await publish(store, await store.create_task(job(retry_policy=policy)))

    async def pause(_: Any) -> None:
        await store.pause_installation("now")

    await worker_on(store, Calling(pause, broken())).run_until_idle()
    run = await run_of(store, run_id)
    assert (run.status, run.attempt, run.retry_count) == (S.RETRYING, 1, 1)


async def test_each_process_says_once_that_everything_is_paused_and_that_it_goes_on(
    store: MemoryStore, wakeup: LocalWakeup, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "noonbell")
    watch = PauseWatch(store, wakeup)
    await watch.tick()
    await store.pause_installation("the database moves", by="alice")
    for _ in range(2):
        await watch.tick()
    await store.resume_installation()
    for _ in range(2):
        await watch.tick()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "everything is paused since 2026-01-01T10:00:00Z by alice: the database moves"
    assert second == "everything has been resumed: the pause is over"


async def test_a_signal_wakes_the_watch(store: MemoryStore, wakeup: LocalWakeup):
    watch = PauseWatch(store, wakeup)
    waiting = asyncio.create_task(watch.wait(3600))
    await spin()
    wakeup.signal(PAUSE)
    await asyncio.wait_for(waiting, 60)
