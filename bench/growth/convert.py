"""A long history gets partitions while two nodes fire 50 slots a second: what is lost, doubled, and the longest stall."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from bench.growth.history import DAY, EVENTS_KEPT, KEPT, make_history
from bench.growth.kept import KIND, once
from bench.growth.nodes import LATE, nodes
from bench.growth.sizes import Sizes
from bench.ours import execute, scalar
from bench.rounds import Failed
from noonbell import when
from noonbell.clock import SECOND, slot_of
from noonbell.model.request import NewTask
from noonbell.model.task import TaskSpec
from noonbell.stores.postgres import PostgresStore

FIRED: Final = 50
"""Slots a second."""
_PLAIN: Final = 45
"""The step of the schema before which there are no partitions."""


def prepare(url: str, sizes: Sizes) -> None:
    asyncio.run(_fill(url, sizes))


def measure(url: str, sizes: Sizes) -> list[list[str]]:
    return asyncio.run(_measure(url, sizes))


async def _fill(url: str, sizes: Sizes) -> None:
    async def first() -> tuple[int, int]:
        store = PostgresStore(url)
        await store.open()
        task = await store.create_task(TaskSpec(name="past", job_type="work"))
        now = await store.now()
        await store.migrate(_PLAIN)
        await store.close()
        return task.id, now

    task, now = await once(url, "the task, and tables without partitions", first)
    await make_history(url, task, sizes.convert, now - 29 * DAY, now - DAY)
    await once(url, "tidy", lambda: execute(KIND, url, ["vacuum analyze runs"]))


async def _measure(url: str, sizes: Sizes) -> list[list[str]]:
    await _fill(url, sizes)
    store = PostgresStore(url)
    began = time.monotonic()
    await store.open()
    steps = time.monotonic() - began
    if await _parts(url):
        raise Failed(f"an earlier run has made partitions already: drop {url} and begin anew")
    begin = (await store.now()) // SECOND * SECOND + 3 * SECOND
    every = when.normalise(
        {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}, "UTC", slot_of(begin)
    )
    fired = await store.create_tasks(
        [NewTask(spec=TaskSpec(name=f"fired {n}", job_type="work", schedule=every)) for n in range(FIRED)]
    )
    gaps: list[float] = []
    last = [time.monotonic()]

    def busy() -> None:
        gaps.append(time.monotonic() - last[0])
        last[0] = time.monotonic()

    async with nodes(url, 2, busy):
        await asyncio.sleep(max(5, sizes.seconds // 6))
        before, began = len(gaps), time.monotonic()
        changed = await store.tend_history(KEPT, EVENTS_KEPT)
        took = time.monotonic() - began
        await asyncio.sleep(1)  # a stall that the end of the change ends is one of the change
        after = len(gaps)
        await asyncio.sleep(max(5, sizes.seconds // 6))
        until = (await store.now()) // SECOND * SECOND - 2 * SECOND
    parts = await _parts(url)
    of_slots = (
        f"from runs where task_id between {fired[0].id} and {fired[-1].id} and slot > {begin} and slot <= {until}"
    )
    made = await scalar(
        KIND, url, f"select count(distinct (task_id, slot)) {of_slots} and status = 'SUCCESS' and attempt = 1"
    )
    doubled = await scalar(KIND, url, f"select count(*) - count(distinct (task_id, slot)) {of_slots}")
    rows = await scalar(KIND, url, "select count(*) from runs_before") if parts else 0
    late = (await execute(KIND, url, [LATE.format(since=begin, until=until)]))[0]
    expected = (until - begin) // SECOND * FIRED
    await store.close()
    if not changed or rows < sizes.convert:
        raise Failed(f"{rows:,} runs are in the first partition: nothing was measured")
    runs = f"{sizes.convert:,} runs"
    stall, usual = max(gaps[before:after] or [0.0]), max(gaps[5:before] or [0.0])
    return [
        [
            "a history gets partitions",
            runs,
            f"{took:.1f} s; {parts} partitions; the steps of the schema {steps:.1f} s",
            "–",
        ],
        [
            f"slots meanwhile, {FIRED} a second, two nodes",
            f"{expected:,} slots",
            f"{expected - made} lost, {doubled} doubled",
            "0, 0",
        ],
        [
            "the longest stall",
            runs,
            (
                f"{stall:.2f} s between two batches that were claimed (before: {usual:.2f} s); the latest start"
                f" {late[1][2]:.2f} s after its slot"
            ),
            "–",
        ],
    ]


async def _parts(url: str) -> int:
    found: int = await scalar(KIND, url, "select count(*) from pg_inherits where inhparent = to_regclass('runs')")
    return found
