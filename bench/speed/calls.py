"""Calls without a task: made in batches by the API, delivered beside runs of a task in the same round; and many due together."""

from __future__ import annotations

import asyncio
import time
from statistics import median

import aiohttp

from bench import databases, http, ours
from bench.http import Served, Sink, call, serving, sinking
from bench.lag import moment, percentile
from bench.rounds import Failed, progress
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.speed.tasks import AHEAD, least_row
from bench.tables import Spread, rates, ratio, ratios

BATCH = 10_000
WIDTH = 16
"""Requests under way at a time: `executor.worker_pool_size` as it comes."""
LEAST, LATEST = 0.7, 7.0
"""The share of the rate of tasks; and the seconds that the last of the delayed calls may be late."""


def calls(scale: Scale, rounds: int) -> Found:
    rounds = min(rounds, 2)
    count, delayed = scale.of(100_000), scale.of(20_000)
    made: list[float] = []
    delivered: list[float | None] = []
    beside: list[float | None] = []
    middles, latest = [], []
    for number in range(1, rounds + 1):
        progress(f"{count:,} calls in batches, PostgreSQL, round {number} of {rounds}")
        with databases.fresh("postgres") as database, sinking() as sink:
            with serving("postgres", database, "--no-worker") as server:
                made.append(count / asyncio.run(make(server, f"{sink.url}/run", count)))
            ours.run(ours.tidy("postgres", database))
            delivered.append(deliver(sink, database, count))
        progress(f"{count:,} runs of a task, PostgreSQL, round {number} of {rounds}")
        beside.append(http.drain("postgres", count, WIDTH).rate)
        progress(f"{delayed:,} calls delayed to one second, PostgreSQL, round {number} of {rounds}")
        with databases.fresh("postgres") as database, sinking() as sink, serving("postgres", database) as server:
            late = asyncio.run(due_together(server, sink, delayed))
        middles.append(percentile(late, 50))
        latest.append(max(late))
    share, worst = ratio(delivered, beside), median(latest)
    return Found(
        [
            least_row(
                f"`POST /calls/batch` of {min(count, BATCH):,}, PostgreSQL, calls a second", Spread.of(made), None
            ),
            Row(
                f"{count:,} calls delivered, PostgreSQL, a second",
                rates(Spread.of(delivered)),
                f"HTTP runs of a task {rates(Spread.of(beside))}",
                ratios(share),
                f"≥ {LEAST:g} × the task",
                None if share is None else share.median >= LEAST,
            ),
            Row(
                f"{delayed:,} calls delayed to one second are late at their target, PostgreSQL: p50 / max, s",
                f"{median(middles):.1f} / {worst:.1f}",
                "–",
                "–",
                f"max ≤ {LATEST:g}",
                worst <= LATEST,
            ),
        ],
        [
            f"GET requests, {WIDTH} at a time, answered by 204 from one process; one worker process for calls and for the task."
        ],
        rounds=rounds,
    )


async def make(server: Served, url: str, count: int, **more: object) -> float:
    """Seconds that it took to make them."""
    asked = {"url": url, "method": "GET", **more}
    async with aiohttp.ClientSession(server.url) as session:
        began = time.perf_counter()
        for first in range(0, count, BATCH):
            await call(session, "POST", "/calls/batch", {"calls": [asked] * min(BATCH, count - first)})
        return time.perf_counter() - began


def deliver(sink: Sink, database: str, count: int) -> float:
    with serving("postgres", database, "--no-scheduler", "--no-api", pool=WIDTH):
        sink.wait_for(count, http.PATIENCE)
        ours.run(http.settled("postgres", database, count))
    arrivals = sink.arrivals()
    if len(arrivals) != count or len({each.run for each in arrivals}) != count:
        raise Failed(f"{len(arrivals)} requests arrived for {count} calls")
    return sink.rate()


async def due_together(server: Served, sink: Sink, count: int) -> list[float]:
    """By how many seconds each call was late."""
    second = int(time.time()) + AHEAD
    await make(server, f"{sink.url}/due", count, run_at=moment(second))
    if time.time() > second - 1:
        raise Failed(f"{count} calls were not made in time")
    found = await asyncio.to_thread(sink.wait_for, count, second - time.time() + 60)
    arrivals = await asyncio.to_thread(sink.arrivals)
    if len({each.run for each in arrivals}) != count or len(arrivals) != count:
        raise Failed(f"{found} calls arrived of {count}")
    return [each.at / 1_000_000 - second for each in arrivals]
