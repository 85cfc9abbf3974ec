"""Tasks that are not due: what a planning pass costs, and what a node takes, beside those with 1,000 tasks."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Final

from bench import databases
from bench.growth.kept import KIND, copies, fill, once
from bench.growth.sizes import Sizes
from bench.http import serving
from bench.ours import HOUR, HOURLY, PASSES, execute, one_pass
from bench.rounds import progress
from noonbell.clock import SECOND
from noonbell.model.task import TaskSpec
from noonbell.stores.postgres import PostgresStore

FEW: Final = 1_000
"""Tasks that the many are compared with."""
ROUNDS: Final = 3
WATCHED: Final = 30
"""Seconds that a node is left alone with them."""


def prepare(url: str, sizes: Sizes) -> None:
    asyncio.run(_filled(url, sizes.tasks))


async def _filled(url: str, count: int) -> None:
    store = PostgresStore(url)
    await store.open()

    async def first() -> tuple[int, int]:
        task = await store.create_task(TaskSpec(name="later", job_type="later", schedule=HOURLY))
        at = await store.now() + 24 * HOUR
        await execute(KIND, url, [f"update cursors set next_fire_at = {at} where task_id = {task.id}"])
        return task.id, at

    task, at = await once(url, "the first task", first)
    changed = {"next_fire_at": f"{at} + n::bigint * {SECOND // 10}"}
    await fill(url, f"{count:,} tasks", 1, count, await copies(url, task, changed, versions=False))
    await execute(KIND, url, ["vacuum analyze tasks", "vacuum analyze cursors"])
    await store.close()


def measure(url: str, sizes: Sizes) -> list[list[str]]:
    with databases.fresh(KIND) as with_few:
        asyncio.run(_filled(with_few, FEW))
        costs = asyncio.run(_passes([with_few, url]))
        nodes = [_node(each) for each in (with_few, url)]
    (few_cpu, few_memory), (cpu, memory) = nodes
    size, wanted = f"{sizes.tasks:,} tasks", f"as with {FEW:,}"
    return [
        ["a pass with nothing due", size, f"{costs[1]:.2f} ms; with {FEW:,}: {costs[0]:.2f} ms", wanted],
        ["memory of a node, at its peak", size, f"{memory:.0f} MiB; with {FEW:,}: {few_memory:.0f} MiB", wanted],
        [
            f"processor time of a node in {WATCHED} s",
            size,
            f"{cpu:.2f} s; with {FEW:,}: {few_cpu:.2f} s",
            wanted,
        ],
    ]


async def _passes(urls: list[str]) -> list[float]:
    """Milliseconds, by database: they take turns."""
    stores = [PostgresStore(url) for url in urls]
    for store in stores:
        await store.open()
        while (await store.plan(500)).tasks:
            pass
    found: list[list[float]] = [[] for _ in stores]
    for _ in range(ROUNDS):
        for store, each in zip(stores, found, strict=True):
            each += [await one_pass(store) for _ in range(PASSES)]
    for store in stores:
        await store.close()
    return [median(each) for each in found]


def _node(url: str) -> tuple[float, float]:
    """Processor seconds of a `noonbell serve` that has nothing to do, and MiB at its peak."""
    progress("growth: a node with nothing due")
    with serving(KIND, url) as node:
        before = node.cpu_seconds() or 0
        time.sleep(WATCHED)
        return (node.cpu_seconds() or 0) - before, node.megabytes(peak=True) or 0
