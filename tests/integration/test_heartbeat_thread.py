"""The thread of the heartbeats: orders come back from it, and what happens when the loop stands still or the thread dies."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from integration.support import job, until
from noonbell.engine.heartbeat import HeartbeatThread
from noonbell.engine.worker import Worker
from noonbell.model.request import Publication
from noonbell.model.run import Assignment, Outcome, OutcomeKind, RunId, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.stores import make_wakeup, open_store
from noonbell.stores.sql.active_runs import Place
from noonbell.stores.sql.store import SqlStore

LONG = 60.0
"""Seconds that no test waits for when all is well."""


@dataclass
class Handler:
    """Does what it is told with each attempt, until `go`."""

    block: Callable[[RunId], None] | None = None
    started: list[RunId] = field(default_factory=list)
    canceled: list[RunId] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, assignment: Assignment) -> Outcome:
        run_id = assignment.lease.run_id
        self.started.append(run_id)
        try:
            if self.block is not None:
                self.block(run_id)
            await self.go.wait()
        except asyncio.CancelledError:
            self.canceled.append(run_id)
            raise
        return Outcome(kind=OutcomeKind.SUCCESS)


@dataclass
class Parts:
    store: SqlStore
    heartbeat_thread: HeartbeatThread
    worker: Worker
    handler: Handler

    async def publish(self, count: int = 1, **fields: object) -> list[RunId]:
        task = await self.store.create_task(job("a", **fields))
        answers = await self.store.publish([Publication(task_id=task.id)] * count)
        return [answer.run_id for answer in answers if answer.run_id is not None]

    async def is_status(self, run_id: RunId, status: RunStatus) -> bool:
        run = await self.store.run(run_id)
        return run is not None and run.status is status

    async def expiry(self, run_id: RunId) -> int:
        run = await self.store.run(run_id)
        assert run is not None
        return run.lease_expires_at or 0


@contextlib.asynccontextmanager
async def working(url: str, handler: Handler, concurrency: int = 2) -> AsyncIterator[Parts]:
    async with contextlib.AsyncExitStack() as parts:
        store, wakeup, heartbeat_thread = (
            open_store(url),
            make_wakeup(url),
            HeartbeatThread(open_store(url, connections=1)),
        )
        for part in (store, wakeup, heartbeat_thread):
            parts.push_async_callback(part.close)
            await part.open()
        worker = Worker(
            store, wakeup, {ExecType.JOB: handler}, concurrency=concurrency, poll=0.1, heartbeat_thread=heartbeat_thread
        )
        yield Parts(store, heartbeat_thread, worker, handler)
        handler.go.set()
        await worker.stop(LONG)


async def test_leases_are_renewed_and_orders_obeyed_by_way_of_the_thread(sql_url: str):
    async with working(sql_url, handler := Handler()) as parts:
        first, second = await parts.publish(2, worker_timeout_ms=600, ping_interval_ms=50)
        await parts.worker.start()
        await until(lambda: len(handler.started) == 2, LONG, "both to start")
        before = await parts.expiry(first)

        async def is_renewed() -> bool:
            return await parts.expiry(first) > before

        await until(is_renewed, LONG, "the lease to be renewed")
        await parts.store.cancel([first])
        await until(lambda: handler.canceled == [first], LONG, "the handler to be canceled")
        await parts.store.set_worker(parts.worker.id, concurrency=7)
        await until(lambda: parts.worker.in_flight.concurrency == 7, LONG, "the concurrency to change")
        handler.go.set()

        async def is_done() -> bool:
            return await parts.is_status(second, RunStatus.SUCCESS)

        await until(is_done, LONG, "the other run to end")


async def test_a_blocked_loop_keeps_what_it_executes_and_hands_back_what_has_not_begun(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
):
    path = sqlite_url.removeprefix("sqlite:///")
    waited: list[bool] = []

    def block(run_id: RunId) -> None:
        """Until the other run waits again; the first attempt of all does, in the worker's event loop."""
        if waited:
            return
        with contextlib.closing(sqlite3.connect(path)) as file:
            deadline = time.monotonic() + LONG
            while time.monotonic() < deadline:
                if file.execute(
                    "select 1 from live where run_id <> ? and place <> ?", (run_id, Place.LEASED)
                ).fetchone():
                    waited.append(True)
                    return
                time.sleep(0.02)
            waited.append(False)

    handler = Handler(block)
    handler.go.set()
    async with working(sqlite_url, handler) as parts:
        runs = await parts.publish(2, worker_timeout_ms=2000)
        await parts.worker.start()

        async def are_done() -> bool:
            return all([await parts.is_status(run_id, RunStatus.SUCCESS) for run_id in runs])

        await until(are_done, LONG, "both runs to end")
        assert waited == [True]
        assert sorted(handler.started) == sorted(runs), "each of them once"
        blocked = await parts.store.run(handler.started[0])
        other = await parts.store.run(handler.started[1])
        assert blocked is not None
        assert other is not None
        assert (blocked.attempt, blocked.lost_count, other.lost_count) == (1, 0, 0)
    assert any("in block\n" in message and "blocked for over" in message for message in caplog.messages)


async def test_each_block_is_noticed_and_one_that_is_known_costs_no_time(sqlite_url: str):
    heartbeat_thread = HeartbeatThread(open_store(sqlite_url, connections=1))
    await heartbeat_thread.open()
    try:
        assert heartbeat_thread._do(heartbeat_thread.answers()).result(LONG) is False, "this loop waits here"
        since = time.monotonic()
        assert [heartbeat_thread._do(heartbeat_thread.answers()).result(LONG) for _ in range(400)] == [False] * 400
        assert time.monotonic() - since < 60, "a quarter of a second for each would be a hundred"
        await asyncio.sleep(0)
        await heartbeat_thread.do(asyncio.sleep(0))  # it has its answer by then
        assert heartbeat_thread._do(heartbeat_thread.answers()).result(LONG) is False, (
            "the next block, not the answer to an old question"
        )
        await until(lambda: heartbeat_thread.do(heartbeat_thread.answers()), LONG, "the loop to answer")
    finally:
        await heartbeat_thread.close()


async def test_a_worker_whose_thread_died_claims_nothing_more_and_keeps_what_it_has(sqlite_url: str):
    async with working(sqlite_url, handler := Handler()) as parts:
        (run_id,) = await parts.publish(1, worker_timeout_ms=600, ping_interval_ms=50)
        await parts.worker.start()
        await until(lambda: len(handler.started) == 1, LONG, "it to start")
        assert parts.worker.health()["ok"]
        parts.heartbeat_thread.call(sys.exit)
        await until(lambda: not parts.worker.is_well, LONG, "the worker to notice")
        assert not parts.worker.health()["ok"]
        before = await parts.expiry(run_id)

        async def is_renewed() -> bool:
            return await parts.expiry(run_id) > before

        await until(is_renewed, LONG, "the lease to be renewed all the same")
        (more,) = [answer.run_id for answer in await parts.store.publish([Publication(task_id=1)])]  # type: ignore[arg-type]
        assert await parts.worker.tick() > 0
        assert more is not None
        assert await parts.is_status(more, RunStatus.SCHEDULED)
        handler.go.set()

        async def is_done() -> bool:
            return await parts.is_status(run_id, RunStatus.SUCCESS)

        await until(is_done, LONG, "what it had to be settled")
