"""A memory store on the machine's clock, and workers whose target is the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from noonbell.engine.in_flight import AbandonedThreads
from noonbell.engine.worker import Worker
from noonbell.model.request import Publication
from noonbell.model.run import Run, RunId
from noonbell.model.target_kind import ExecType
from noonbell.model.task import TaskSpec
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets.jobs.handler import Handler, HandlerKind, Handlers
from noonbell.targets.jobs.target import JobTarget

DEADLINE = 20.0


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


class Bench:
    """One worker with the handlers of a test."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.handlers, self.abandoned = store, Handlers(), AbandonedThreads()
        self._tasks = 0
        self.target = JobTarget(self.handlers, store, abandoned=self.abandoned)
        self.worker = Worker(
            store,
            LocalWakeup(),
            {ExecType.JOB: self.target},
            worker_id="bench",
            concurrency=2,
            poll=0.02,
            abandoned=self.abandoned,
        )

    def handler(self, kind: HandlerKind, call: Callable[..., Any], **more: Any) -> None:
        self.handlers.add(Handler(job_type="job", kind=kind, call=call, **{"read": lambda payload: payload, **more}))

    async def publish(self, payload: Any = None, **spec: Any) -> RunId:
        """A run of a task of its own."""
        self._tasks += 1
        fields = {"ping_interval_ms": 50, "worker_timeout_ms": 2_000, "job_type": "job", **spec}
        task = await self.store.create_task(TaskSpec(name=f"task {self._tasks}", **fields))
        (published,) = await self.store.publish([Publication(task_id=task.id, payload=payload)])
        assert published.run_id is not None
        return published.run_id

    async def run(self, payload: Any = None, **spec: Any) -> Run:
        """Publish, let the worker carry it out, and wait for the end."""
        return await self.end_of(await self.publish(payload, **spec))

    async def end_of(self, run_id: RunId) -> Run:
        return await self.until(run_id, lambda run: run.final_status is not None)

    async def until(self, run_id: RunId, holds: Callable[[Run], bool]) -> Run:
        async with asyncio.timeout(DEADLINE):
            while True:
                run = await self.store.run(run_id)
                assert run is not None
                if holds(run):
                    return run
                await asyncio.sleep(0.01)

    async def log(self, run_id: RunId) -> list[tuple[str, str]]:
        return [(line.level, line.message) for line in await self.store.log_lines(run_id)]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def bench(store: MemoryStore) -> AsyncIterator[Bench]:
    bench = Bench(store)
    await bench.worker.start()
    yield bench
    await bench.worker.stop(0.0)
    await bench.target.close()
