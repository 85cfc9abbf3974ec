"""More worker processes on one PostgreSQL: the curve of jobs a second, beside what the database itself can do."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

import aiohttp

from bench import databases, ours
from bench.http import call, serving
from bench.jobs import publish
from bench.rounds import Contender, Failed, measure, progress
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.tables import Spread, rates, ratio, ratios
from bench.workers import QUIET, working

WORKERS = (1, 2, 4, 8)
CONNECTIONS = 2
"""Of the raw cycle, for each worker: a worker settles and claims on two."""
LEAST = 0.9
"""No collapse: with more workers, this share of what one of them makes."""
PATIENCE = 60.0


def curve(scale: Scale, rounds: int) -> Found:
    count = scale.of(60_000)
    widths = WORKERS if scale is Scale.FULL else WORKERS[:2]
    drained: dict[int, list[float | None]] = {width: [] for width in widths}
    ceiling: dict[int, list[float | None]] = {width: [] for width in widths}
    rounds = min(rounds, 2)
    for number in range(1, rounds + 1):
        for width in widths:
            progress(f"PostgreSQL, round {number}: {width} worker(s), then the raw cycle")
            drained[width].append(drain(width, count))
            command: tuple[str, ...] = (sys.executable, "-m", "bench.raw", "postgres", "--plan", "0")
            command += ("--connections", str(width * CONNECTIONS))
            ceiling[width].append(measure(Contender("raw", "postgres", command, 0, count)).drain)
    rows = []
    for width in widths:
        share = ratio(drained[width], drained[1])
        rows.append(
            Row(
                f"drain, PostgreSQL, {width} `noonbell worker`, jobs a second",
                rates(Spread.of(drained[width])),
                f"the raw cycle on {width * CONNECTIONS} connections {rates(Spread.of(ceiling[width]))}",
                f"{ratios(ratio(drained[width], ceiling[width]))} the raw cycle, {ratios(share)} one worker",
                "stated" if width == 1 else f"≥ {LEAST:g} × one worker",
                None if width == 1 or share is None else share.median >= LEAST,
            )
        )
    note = f"{count:,} jobs on a paused queue; the time runs from its resumption until the last is settled."
    return Found(rows, [note], rounds)


def drain(workers: int, count: int) -> float:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(databases.fresh("postgres"))
        server = stack.enter_context(serving("postgres", database, "--no-worker", "--no-scheduler"))
        return asyncio.run(drain_paused(stack, server.url, database, workers, count))


async def drain_paused(stack: contextlib.ExitStack, url: str, database: str, workers: int, count: int) -> float:
    """All workers are ready before the first job may start: on few cores a start costs more than a drain."""
    async with aiohttp.ClientSession(url) as session:
        await call(session, "POST", "/queues/default/pause", {})
        await publish("postgres", database, 0, count)
        for _ in range(workers):
            stack.enter_context(working("postgres", database, *QUIET))
        await until_registered(database, workers)
        start = time.time()
        await call(session, "POST", "/queues/default/resume", {})
    deadline, done = start + PATIENCE, 0
    while time.time() < deadline:
        await asyncio.sleep(0.5)  # each look counts every run
        done, last = (await ours.execute("postgres", database, [ENDED]))[0]
        if done == count:
            return float(count / (last / 1_000_000 - start))
    raise Failed(f"{done} of {count} jobs ended in {PATIENCE:g} s with {workers} workers")


async def until_registered(database: str, workers: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while await ours.scalar("postgres", database, "select count(*) from workers") < workers:
        if time.monotonic() > deadline:
            raise Failed(f"{workers} workers did not start in {PATIENCE:g} s")
        await asyncio.sleep(0.1)


ENDED = "select count(*), max(end_time) from runs where status = 'SUCCESS'"
