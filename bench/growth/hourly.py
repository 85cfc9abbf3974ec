"""Hourly tasks spread evenly over the hour, and a burst in one second among them: how late their runs start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from bench.growth.kept import KIND, copies, fill, once
from bench.growth.nodes import LATE, nodes
from bench.growth.sizes import Sizes
from bench.ours import HOUR, execute, scalar
from bench.rounds import Failed, progress
from noonbell import when
from noonbell.clock import SECOND, slot_of
from noonbell.model.task import TaskSpec
from noonbell.stores.postgres import PostgresStore

_MOVED: Final = 10_000
"""Cursors that are surely brought forward in a second."""


def prepare(url: str, sizes: Sizes) -> None:
    asyncio.run(_fill(url, sizes))


def measure(url: str, sizes: Sizes) -> list[list[str]]:
    return asyncio.run(_measure(url, sizes))


async def _fill(url: str, sizes: Sizes) -> tuple[int, int]:
    """(the first task, the moment of its slot), for the others follow in one hour."""
    store = PostgresStore(url)
    await store.open()

    async def first() -> tuple[int, int]:
        at = (await store.now()) // SECOND * SECOND
        fields = {"type": "interval", "every": 1, "unit": "hour", "mode": "fixed_rate"}
        every = when.normalise(fields, "UTC", slot_of(at))
        task = await store.create_task(TaskSpec(name="hourly", job_type="work", schedule=every))
        return task.id, at

    task, at = await once(url, "the first task", first)
    shift = f"(n::bigint * 3600 / {sizes.hourly})"
    anchor = f"{at // SECOND} - 3600 + {shift}"  # an hour before the first slot: the anchor itself is none
    changed = {
        "next_fire_at": f"{at} + {shift} * {SECOND}",
        "schedule": _anchored("t.schedule", anchor),
        "spec": _anchored("t.spec", anchor),
    }
    await fill(url, f"{sizes.hourly:,} hourly tasks", 1, sizes.hourly, await copies(url, task, changed, versions=True))
    await execute(KIND, url, [f"vacuum analyze {table}" for table in ("tasks", "task_versions", "cursors")])
    await store.close()
    return task, at


def _anchored(text: str, at: str) -> str:
    """A schedule, or what has one in it, that counts from another second."""
    moment = f"""to_char(to_timestamp({at}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""
    return f"""replace({text}, substring({text} from '"anchor":"[^"]*"'), '"anchor":"' || {moment} || '"')"""


async def _measure(url: str, sizes: Sizes) -> list[list[str]]:
    task, _ = await _fill(url, sizes)
    store = PostgresStore(url)
    await store.open()
    at, burst = await _due(store, url, task, sizes)
    progress(f"growth: slots from now on, a burst after {sizes.seconds // 2} s")
    async with nodes(url, 2):
        while await store.now() < at + sizes.seconds * SECOND:  # noqa: ASYNC110 - no signal tells
            await asyncio.sleep(0.5)
    until = at + (sizes.seconds - 2) * SECOND
    behind = burst + min(10, sizes.seconds // 4) * SECOND
    calm, after, all_even, burst_late = [
        (await execute(KIND, url, [LATE.format(since=since, until=to) + more]))[0]
        for since, to, more in (
            (at, until, f" and not slot between {burst} and {behind - 1}"),
            (burst + 1, behind, ""),
            (at, until, f" and slot <> {burst}"),
            (burst, burst + 1, ""),
        )
    ]
    due = await scalar(KIND, url, f"select count(*) from cursors where next_fire_at < {until}")
    await store.close()
    expected = (sizes.seconds - 3) * (sizes.hourly - sizes.burst) // 3600
    if all_even[0] < expected * 0.95:
        raise Failed(f"{all_even[0]:,} runs of {expected:,} slots: nothing was measured")
    tasks, rate = f"{sizes.hourly:,} tasks", all_even[0] / (sizes.seconds - 3)
    return [
        [
            "hourly tasks spread evenly: how late a run starts",
            tasks,
            f"{rate:.0f} slots a second; {_late(calm)}; {due} not made",
            "p99 ≤ 1 s",
        ],
        [f"those due in the {(behind - burst) // SECOND} s after the burst", f"{after[0]:,} slots", _late(after), "–"],
        [f"all of {sizes.seconds} s but the burst", f"{all_even[0]:,} slots", _late(all_even), "–"],
        ["the burst", f"{burst_late[0]:,} slots", _late(burst_late), "–"],
    ]


def _late(row: Sequence[Any]) -> str:
    p50, p99, most = row[1]
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s, most {most:.3f} s"


async def _due(store: PostgresStore, url: str, task: int, sizes: Sizes) -> tuple[int, int]:
    """(when the slots begin, when the burst comes): the slots of the time since the tasks were made are over."""
    past = await scalar(
        KIND, url, f"select count(*) from cursors where next_fire_at < {await store.now() + 60 * SECOND}"
    )
    at = (await store.now()) // SECOND * SECOND + (10 + past // _MOVED) * SECOND
    burst = at + sizes.seconds // 2 * SECOND
    progress(f"growth: {past:,} cursors are brought forward")
    of_burst = f">= {task + sizes.hourly - sizes.burst}"
    anchor = f"{burst // SECOND} - 3600"
    hours = f"(({at} - next_fire_at + {HOUR} - 1) / {HOUR})::bigint * {HOUR}"
    await execute(
        KIND,
        url,
        [
            f"update cursors set accounted_to = {at - SECOND}, next_fire_at = next_fire_at + {hours} where next_fire_at < {at}",
            f"update cursors set accounted_to = {at - SECOND}, next_fire_at = {burst} where task_id {of_burst}",
            f"update tasks t set schedule = {_anchored('schedule', anchor)} where id {of_burst}",
            f"update task_versions t set spec = {_anchored('spec', anchor)} where task_id {of_burst}",
            "vacuum analyze cursors",
        ],
    )
    if await store.now() > at:
        raise Failed("the cursors were not set in time: the first slots are over")
    while await store.now() < at - SECOND:  # noqa: ASYNC110 - no signal tells
        await asyncio.sleep(0.1)
    return at, burst
