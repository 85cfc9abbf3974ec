"""How late a schedule of every second is at its target: a real server, a real sink, the wall clock of one machine."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bench import databases, ours
from bench.http import Arrival, Served, Sink, call, serving, sinking
from bench.rounds import Failed, progress
from bench.tables import NONE, markdown

P50, P99 = 25.0, 150.0
"""The goals, in milliseconds."""
AHEAD = 6
"""Seconds from now to the first slot: until then, all tasks are there."""
GRACE = 10.0
"""Seconds that are waited for what has not arrived after the last slot."""


@dataclass(frozen=True)
class Size:
    seconds: int
    tasks: tuple[int, ...] = (1, 50)
    """Tasks of every second; each is a row."""


FULL = Size(seconds=60)
QUICK = Size(seconds=15)


@dataclass(frozen=True)
class Lateness:
    """Milliseconds after the slot: the clock of the pass that planned it, of the claim, and of the target."""

    expected: int
    arrived: int
    once: int
    """Slots that arrived exactly once, each of each task."""
    born: Sequence[float]
    claimed: Sequence[float]
    arrival: Sequence[float]
    cpu: float | None
    """Processor seconds of the server, for each second of the measurement."""


def table(size: Size) -> str:
    rows: list[list[str]] = []
    for store in ("sqlite", "postgres"):
        title = databases.TITLES[store]
        try:
            databases.server_version(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            rows.append([title, "no server", *[NONE] * 10])
            continue
        for tasks in size.tasks:
            progress(f"lag on {title}: {tasks} task(s), every second for {size.seconds} s")
            try:
                rows.append([title, f"{tasks:,}", *cells(measure(store, tasks, size.seconds))])
            except Failed as failure:
                progress(f"FAILED: {title}: {failure}")
                rows.append([title, f"{tasks:,}", "no result", *[NONE] * 9])
    head = ["store", "fires a second", "runs", "slots exactly once", "at the target: p50, ms", "p99", "max"]
    head += ["planned: p50 / p99", "claimed: p50 / p99", "server CPU", f"p50 ≤ {P50:g} ms", f"p99 ≤ {P99:g} ms"]
    text = markdown(head, rows, right=tuple(range(1, 10)))
    return (
        text
        + "\n\n- all times count from the slot. Planned and claimed are when those transactions began, by the store's clock."
    )


def cells(found: Lateness) -> list[str]:
    p50, p99 = percentile(found.arrival, 50), percentile(found.arrival, 99)
    whole = found.once == found.expected == found.arrived
    return [
        f"{found.arrived:,}",
        f"{found.once:,} of {found.expected:,}" if whole else f"**{found.once:,} of {found.expected:,}**",
        f"{p50:.1f}",
        f"{p99:.1f}",
        f"{max(found.arrival, default=math.nan):.1f}",
        f"{percentile(found.born, 50):.1f} / {percentile(found.born, 99):.1f}",
        f"{percentile(found.claimed, 50):.1f} / {percentile(found.claimed, 99):.1f}",
        NONE if found.cpu is None else f"{found.cpu:.0%}",
        verdict(p50 <= P50),
        verdict(p99 <= P99),
    ]


def measure(store: str, tasks: int, seconds: int) -> Lateness:
    with databases.fresh(store) as database:
        with sinking() as sink, serving(store, database) as server:
            first = asyncio.run(create(server, sink, tasks, seconds))
            cpu = server.cpu_seconds()
            time.sleep(max(0.0, first + seconds - time.time()))
            sink.wait_for(tasks * seconds, GRACE)
            time.sleep(0.5)  # one that is doubled would come now
            spent = None if cpu is None else ((server.cpu_seconds() or cpu) - cpu) / seconds
            arrivals = sink.arrivals()
        times = asyncio.run(run_times(store, database))
    return lateness(arrivals, times, first, tasks, seconds, spent)


async def create(server: Served, sink: Sink, tasks: int, seconds: int) -> int:
    """Tasks whose first slot is the second that is returned, and which have one in each of `seconds` seconds."""
    first = int(time.time()) + AHEAD
    async with aiohttp.ClientSession(server.url) as session:
        for number in range(tasks):
            fields = {
                "name": f"every second {number}",
                "cron_expr": "*/1 * * * * *",
                "start_at": moment(first),
                "end_at": moment(first + seconds - 1),
                "target_url": f"{sink.url}/lag",
            }
            await call(session, "POST", "/tasks", fields)
    if time.time() > first - 1:
        raise Failed(f"{tasks} tasks took more than {AHEAD - 1} s to create")
    return first


async def run_times(store: str, database: str) -> dict[int, tuple[int, int]]:
    """By run: when it was born and when it was claimed, in microseconds."""
    rows = await ours.execute(store, database, ["select id, created_at, start_time from runs where start_time > 0"])
    return {row[0]: (row[1], row[2]) for row in rows}


def lateness(
    arrivals: Sequence[Arrival],
    times: Mapping[int, tuple[int, int]],
    first: int,
    tasks: int,
    seconds: int,
    cpu: float | None,
) -> Lateness:
    slots = [(each, slot_of(each)) for each in arrivals]
    counts = Counter((each.task, slot) for each, slot in slots)
    fit = range(first, first + seconds)
    known = [(times[each.run], slot * 1_000_000) for each, slot in slots if each.run in times]
    return Lateness(
        expected=tasks * seconds,
        arrived=len(arrivals),
        once=sum(count == 1 and slot in fit for (_, slot), count in counts.items()),
        born=[(born - slot) / 1000 for (born, _), slot in known],
        claimed=[(claimed - slot) / 1000 for (_, claimed), slot in known],
        arrival=[each.at / 1000 - slot * 1000 for each, slot in slots],
        cpu=cpu,
    )


def slot_of(arrival: Arrival) -> int:
    return round(datetime.fromisoformat(arrival.slot).timestamp())


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def percentile(values: Iterable[float], part: float) -> float:
    """The value that `part` per cent of them do not exceed; nan if there is none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part / 100) - 1)] if ordered else math.nan


def verdict(met: Any) -> str:
    return "met" if met else "**missed**"
