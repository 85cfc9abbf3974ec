"""Many HTTP tasks due in one second, on PostgreSQL: whether each arrives, once; how soon; and whether the API still answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bench import databases, ours
from bench.http import Arrival, Served, Sink, call, serving, sinking
from bench.lag import percentile, verdict
from bench.rounds import Failed, progress
from bench.tables import NONE, markdown

STORE = "postgres"
P95 = 500.0
"""The goal: milliseconds of an API call while the burst is on."""
AHEAD = 25
"""Seconds from now to the second that all are due in: until then, all tasks are there."""
PATIENCE = 90.0
"""Seconds after that second, at most."""
EVERY = 0.1
"""Seconds between two reads, and between two triggers: 20 calls a second."""
DUE = "/due"


@dataclass(frozen=True)
class Size:
    tasks: int
    cases: tuple[tuple[int | None, int], ...]
    """`max_concurrency` of the tasks, and `executor.worker_pool_size`; each is a row."""


FULL = Size(tasks=20_000, cases=((1, 16), (None, 16), (None, 64)))
QUICK = Size(tasks=2_000, cases=((1, 16), (None, 64)))


@dataclass
class Calls:
    """Milliseconds of each call of the API, from the moment that it was sent."""

    reads: list[float] = field(default_factory=list)
    triggers: list[float] = field(default_factory=list)
    errors: int = 0


@dataclass(frozen=True)
class Burst:
    tasks: int
    arrivals: Sequence[Arrival]
    second: int
    last_born: float
    last_start: float
    last_end: float
    """Seconds after the second that all were due in, by the store; nan if there was none."""
    calls: Calls
    before: float | None
    peak: float | None
    """Megabytes of the server before the burst, and the most that it ever had."""
    cpu: float | None


def table(size: Size) -> str:
    rows: list[list[str]] = []
    try:
        databases.server_version(STORE)
    except Exception as problem:
        progress(f"SKIPPED: PostgreSQL does not answer: {problem}")
        return "Skipped: no server answered."
    for limit, pool in size.cases:
        named = "none" if limit is None else str(limit)
        progress(f"burst: {size.tasks:,} tasks in one second, max_concurrency {named}, {pool} at a time")
        try:
            rows.append([named, str(pool), *cells(measure(size.tasks, limit, pool))])
        except Failed as failure:
            progress(f"FAILED: {failure}")
            rows.append([named, str(pool), "no result", *[NONE] * 10])
    head = [
        "limit of each task",
        "at a time",
        "delivered",
        "doubled",
        "last planned, s",
        "last started",
        "last delivered",
    ]
    head += ["last settled", "API p50 / p95 / max, ms", "read p95 / trigger p95", "CPU s", "memory before / peak, MB"]
    text = markdown([*head, f"API p95 < {P95:g} ms"], rows, right=tuple(range(1, 12)))
    text += f"\n\n- {size.tasks:,} HTTP tasks due in the same second; all times count from that second."
    text += (
        f"\n- API: {2 / EVERY:.0f} calls a second from that second to the last delivery, half of them `GET /tasks/ID`, "
    )
    return text + "half `POST /tasks/ID/trigger` of another task."


def cells(found: Burst) -> list[str]:
    runs = Counter(each.task for each in found.arrivals)
    doubled = sum(count > 1 for count in runs.values())
    last = max((each.at for each in found.arrivals), default=0) / 1_000_000 - found.second
    every = found.calls.reads + found.calls.triggers
    p95 = percentile(every, 95)
    whole = len(runs) == found.tasks
    api = f"{percentile(every, 50):.0f} / {p95:.0f} / {max(every, default=0):.0f}"
    return [
        f"{len(runs):,}" if whole else f"**{len(runs):,} of {found.tasks:,}**",
        str(doubled) if not doubled else f"**{doubled}**",
        f"{found.last_born:.1f}",
        f"{found.last_start:.1f}",
        f"{last:.1f}",
        f"{found.last_end:.1f}",
        api + (f", **{found.calls.errors} errors**" if found.calls.errors else ""),
        f"{percentile(found.calls.reads, 95):.0f} / {percentile(found.calls.triggers, 95):.0f}",
        NONE if found.cpu is None else f"{found.cpu:.1f}",
        NONE if found.before is None or found.peak is None else f"{found.before:.0f} / {found.peak:.0f}",
        verdict(p95 < P95 and not found.calls.errors),
    ]


def measure(tasks: int, limit: int | None, pool: int) -> Burst:
    with databases.fresh(STORE) as database, sinking() as sink, serving(STORE, database, pool=pool) as server:
        return asyncio.run(burst(server, sink, database, tasks, limit))


async def burst(server: Served, sink: Sink, database: str, tasks: int, limit: int | None) -> Burst:
    second = int(time.time()) + AHEAD
    async with aiohttp.ClientSession(server.url) as session:
        first, other = await create(session, sink, database, second, tasks, limit)
        before, cpu = server.megabytes(), server.cpu_seconds()
        await asyncio.sleep(second - time.time())
        calls = Calls()
        polling = asyncio.create_task(poll(session, first, other, calls))
        await delivered(sink, server, database, first, tasks, second + PATIENCE)
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
    spent = None if cpu is None else (server.cpu_seconds() or cpu) - cpu
    ends = f"max(created_at), max(start_time), max(end_time) from runs where task_id between {first} and {first + tasks - 1}"
    times = (await ours.execute(STORE, database, [f"select {ends}"]))[0]
    born, start, end = (float("nan") if at is None else at / 1_000_000 - second for at in times)
    arrivals = [each for each in await asyncio.to_thread(sink.arrivals) if each.path == DUE]
    return Burst(tasks, arrivals, second, born, start, end, calls, before, server.megabytes(peak=True), spent)


async def create(
    session: aiohttp.ClientSession, sink: Sink, database: str, second: int, tasks: int, limit: int | None
) -> tuple[int, int]:
    """The first of the due tasks, and one that is there to be triggered. All but these two are copied in the database."""
    at = datetime.fromtimestamp(second, UTC)
    # The one to be triggered comes first: ids after the due one are for its copies.
    asked = {"name": "asked for", "target_url": f"{sink.url}/asked", "max_concurrency": None}
    other = await call(session, "POST", "/tasks", asked)
    due = {
        "name": "due",
        "cron_expr": f"{at.second} {at.minute} {at.hour} * * *",
        "target_url": sink.url + DUE,
        "max_concurrency": limit,
    }
    first = await call(session, "POST", "/tasks", due)
    await ours.copy(STORE, database, first["id"], tasks, first=second * 1_000_000, step=0, versions=True)
    await copy_gates(database, first["id"], tasks)
    await ours.tidy(STORE, database)
    if time.time() > second - 3:
        raise Failed(f"{tasks} tasks were not in the database {AHEAD - 3} s after the first")
    return first["id"], other["id"]


async def copy_gates(database: str, task: int, count: int) -> None:
    """A task with a limit has a row where its places are counted; a generated column is not copied."""
    generated = (
        "select column_name from information_schema.columns where table_name = 'gates' and is_generated = 'ALWAYS'"
    )
    left_out = {row[0] for row in await ours.execute(STORE, database, [generated])}
    names = [name for name in await ours.columns_of(STORE, database, "gates") if name not in left_out]
    values = ", ".join("task_id + n" if name == "task_id" else name for name in names)
    insert = f"insert into gates ({', '.join(names)}) select {values} from gates, generate_series(1, {count - 1}) as n"
    await ours.execute(STORE, database, [f"{insert} where task_id = {task}"])


async def poll(session: aiohttp.ClientSession, read: int, trigger: int, calls: Calls) -> None:
    """By the clock, whether the calls before have been answered or not. Canceled, it takes the open ones with it."""
    async with asyncio.TaskGroup() as group:
        start = asyncio.get_running_loop().time()
        number = 0
        while True:
            group.create_task(timed(session, "GET", f"/tasks/{read}", calls, calls.reads))
            group.create_task(timed(session, "POST", f"/tasks/{trigger}/trigger", calls, calls.triggers))
            number += 1
            await asyncio.sleep(start + number * EVERY - asyncio.get_running_loop().time())


async def timed(session: aiohttp.ClientSession, method: str, path: str, calls: Calls, taken: list[float]) -> None:
    start = time.perf_counter()
    try:
        await call(session, method, path, {} if method == "POST" else None)
    except (Failed, aiohttp.ClientError) as problem:
        calls.errors += 1
        progress(f"API: {problem}")
    taken.append((time.perf_counter() - start) * 1000)


async def delivered(sink: Sink, server: Served, database: str, first: int, tasks: int, deadline: float) -> None:
    """Until the history has them all, or the deadline: by then a doubled one has come as well."""
    await asyncio.to_thread(sink.wait_for, tasks, deadline - time.time(), 0.2)
    ended = f"select count(*) from runs where status = 'SUCCESS' and task_id between {first} and {first + tasks - 1}"
    while time.time() < deadline and server.alive():
        done: Any = await ours.scalar(STORE, database, ended)
        if done >= tasks:
            return
        await asyncio.sleep(0.2)
