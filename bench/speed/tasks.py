"""Tasks by the API: how many a second 8 callers create, one by one and in batches; and `once` tasks that are due together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from statistics import median

import aiohttp

from bench import burst, databases, ours
from bench.http import Served, Sink, call, serving, sinking
from bench.lag import moment, percentile
from bench.rounds import Failed, progress
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.tables import NONE, Spread, rates

CALLERS = 8
BATCH = 1_000
TARGET = "http://127.0.0.1:9/report"

CREATE_LEAST, BATCH_LEAST, ONCE_LEAST = 1_200, 8_000, 3_000
ONCE_LATEST = 7.0
"""Seconds that the last of the `once` calls may be late."""
AHEAD = 15
"""Seconds from now to the second that they are due in: until then, all are in the database."""


def create(scale: Scale, rounds: int) -> Found:
    one, many = scale.of(2_000), scale.of(20_000, BATCH)
    found: dict[str, list[tuple[float, float]]] = {"postgres": [], "sqlite": []}
    for number in range(1, rounds + 1):
        for store, each in found.items():
            progress(f"creating tasks, {databases.TITLES[store]}, round {number} of {rounds}")
            with databases.fresh(store) as database, serving(store, database, "--no-worker") as server:
                each.append(asyncio.run(creating(server, one, many)))
    rows = []
    for store, each in found.items():
        title = databases.TITLES[store]
        singles, batches = (Spread.of(part) for part in zip(*each, strict=True))
        # SQLite has no goal in the table: its rate is there to be seen beside PostgreSQL's.
        goal = store == "postgres"
        rows += [
            least_row(f"`POST /tasks`, {CALLERS} callers, {title}, a second", singles, CREATE_LEAST if goal else None),
            least_row(
                f"`POST /tasks/batch` of {BATCH:,}, {title}, tasks a second", batches, BATCH_LEAST if goal else None
            ),
        ]
    return Found(
        rows, [f"{one:,} tasks one by one, then {many:,} in batches by one caller, to `noonbell serve --no-worker`."]
    )


def least_row(work: str, rate: Spread | None, least: float | None) -> Row:
    wanted = "stated" if least is None else f"≥ {least:,}"
    return Row(work, rates(rate), NONE, NONE, wanted, None if rate is None or least is None else rate.median >= least)


async def creating(server: Served, one: int, many: int) -> tuple[float, float]:
    """Tasks a second, one by one and in batches."""
    async with aiohttp.ClientSession(server.url) as session:
        left = iter(range(one))

        async def one_after_the_other() -> None:
            for number in left:
                await call(session, "POST", "/tasks", fields(f"one-{number}"))

        start = time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(CALLERS)))
        singles = one / (time.perf_counter() - start)
        start = time.perf_counter()
        for first in range(0, many, BATCH):
            tasks = [fields(f"many-{number}") for number in range(first, first + BATCH)]
            await call(session, "POST", "/tasks/batch", {"tasks": tasks})
        return singles, many / (time.perf_counter() - start)


def fields(name: str) -> dict[str, str]:
    return {"name": name, "cron_expr": "0 2 * * *", "target_url": TARGET}


def once(scale: Scale, rounds: int) -> Found:
    """HTTP tasks of the kind `once`, all due in one second of the near future, while the server runs."""
    tasks = scale.of(20_000)
    planned, middles, latest = [], [], []
    rounds = min(rounds, 2)
    for number in range(1, rounds + 1):
        progress(f"{tasks:,} `once` tasks due together, PostgreSQL, round {number}")
        with databases.fresh("postgres") as database, sinking() as sink, serving("postgres", database) as server:
            born, late = asyncio.run(due_together(server, sink, database, tasks))
        planned.append(tasks / born)
        middles.append(percentile(late, 50))
        latest.append(max(late))
    worst = median(latest)
    return Found(
        [
            least_row(
                f"{tasks:,} `once` tasks due together, PostgreSQL, planned a second", Spread.of(planned), ONCE_LEAST
            ),
            Row(
                f"the first {tasks:,} `once` calls are late at their target, PostgreSQL: p50 / max, s",
                f"{median(middles):.1f} / {worst:.1f}",
                NONE,
                NONE,
                f"max ≤ {ONCE_LATEST:g}",
                worst <= ONCE_LATEST,
            ),
        ],
        rounds=rounds,
    )


async def due_together(server: Served, sink: Sink, database: str, tasks: int) -> tuple[float, list[float]]:
    """Seconds until the last was planned, and by how many seconds each call was late."""
    second = int(time.time()) + AHEAD
    async with aiohttp.ClientSession(server.url) as session:
        task = {
            "name": "due",
            "schedule": {"type": "once", "at": moment(second)},
            "target_url": f"{sink.url}/due",
            "max_concurrency": None,
        }
        first = (await call(session, "POST", "/tasks", task))["id"]
    await ours.copy("postgres", database, first, tasks, first=second * 1_000_000, step=0, versions=True)
    await ours.tidy("postgres", database)
    if time.time() > second - 3:
        raise Failed(f"{tasks} tasks were not in the database in time")
    await burst.delivered(sink, server, database, first, tasks, second + burst.PATIENCE)
    arrivals = await asyncio.to_thread(sink.arrivals)
    doubled = [task for task, count in Counter(each.task for each in arrivals).items() if count > 1]
    if len(arrivals) != tasks or doubled:
        raise Failed(f"{len(arrivals)} calls arrived for {tasks} tasks, {len(doubled)} tasks twice")
    born = await ours.scalar("postgres", database, f"select max(created_at) from runs where task_id >= {first}")
    return born / 1_000_000 - second, [each.at / 1_000_000 - second for each in arrivals]
