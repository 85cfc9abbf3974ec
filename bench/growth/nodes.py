"""Planners, sweepers and workers over stores of their own, in one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.model.request import ClaimRequest
from noonbell.model.run import RunStatus, Settlement, Transition
from noonbell.model.worker import WorkerInfo
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.wakeups import LocalWakeup


@contextlib.asynccontextmanager
async def nodes(url: str, count: int, busy: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Each plans, sweeps and works, with a store of its own."""
    async with contextlib.AsyncExitStack() as going:
        for number in range(count):
            store, wakeup = PostgresStore(url), LocalWakeup()
            await store.open()
            going.push_async_callback(store.close)
            node = Node(planner=Planner(store, wakeup, batch=500), sweeper=Sweeper(store, wakeup))
            await node.start()
            going.push_async_callback(node.stop, 1)
            worker = asyncio.create_task(_work(store, f"w{number}", busy))
            going.push_async_callback(_end, worker)
        yield


async def _end(worker: asyncio.Task[None]) -> None:
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def _work(store: PostgresStore, worker_id: str, busy: Callable[[], None] | None) -> None:
    request = ClaimRequest(worker_id=worker_id, queues=("default",), max=500)
    await store.register_worker(WorkerInfo(id=worker_id, incarnation=worker_id, queues=("default",), concurrency=500))
    settled: list[Settlement] = []
    while True:
        _, claimed = await store.settle_and_claim(settled, request)
        settled = [
            Settlement(
                run_id=lease.run_id,
                token=lease.token,
                transition=Transition.FINISH,
                status=RunStatus.SUCCESS,
                worker_id=worker_id,
                plain=lease.plain,
            )
            for lease in claimed.leases
        ]
        if busy is not None and settled:
            busy()
        if not settled:
            await asyncio.sleep(0.02)


LATE = """select count(*), coalesce(percentile_cont(array[0.5, 0.99, 1]) within group (order by (start_time - slot) / 1e6), array[0, 0, 0])
    from runs where slot is not null and start_time is not null and slot >= {since} and slot < {until}"""
