"""Noonbell itself, through its `Store`: what a worker, a publisher and a planner call, and nothing beside it.

python -m bench.ours postgres --url … --one … --drain … --plan …     one Sample
python -m bench.ours passes postgres --tasks 1000 URL --tasks 1000000 URL    median cost of a pass, per database
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sqlite3
import time
from collections.abc import Coroutine, Sequence
from statistics import median
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bench.peers.sample import BATCH, Handler, Sample, publish_rate
from noonbell import __version__, when
from noonbell.clock import SECOND
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import TaskId, TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store

T = TypeVar("T")

CLAIM = {"postgres": 300, "sqlite": 500, "mariadb": 300}
"""Runs per claim. `--claim` tries another."""
LANES = 2
PLAN_BATCH = 500
PASSES = 200
HOUR = 3600 * SECOND
PAYLOAD = {"data": "x" * 89}
"""100 bytes as JSON."""

STORES = {
    "postgres": ("noonbell.stores.postgres", "PostgresStore"),
    "sqlite": ("noonbell.stores.sqlite", "SqliteStore"),
    "mariadb": ("noonbell.stores.mysql", "MysqlStore"),
}
HOURLY = when.normalise({"type": "cron", "expr": "0 * * * *"})


def build(kind: str, url: str) -> Store:
    module, name = STORES[kind]
    store: Store = getattr(importlib.import_module(module), name)(url)
    return store


async def measure(kind: str, args: argparse.Namespace) -> Sample:
    store = build(kind, args.url)
    await store.open()
    warm = (await store.create_task(TaskSpec(name="warm", job_type="warm", queue="warm"))).id
    noop = (await store.create_task(TaskSpec(name="noop", job_type="noop"))).id

    one = await publish_rate(args.one, 1, lambda _: store.publish([Publication(task_id=warm, payload=PAYLOAD)]))
    batched = await publish_rate(
        args.drain, BATCH, lambda size: store.publish([Publication(task_id=noop, payload=PAYLOAD)] * size)
    )

    await tidy(kind, args.url)
    drained = await drain(store, args.drain, args.claim or CLAIM[kind])
    kept = await scalar(kind, args.url, f"select count(*) from runs where task_id = {noop} and status = 'SUCCESS'")
    if kept != args.drain:
        raise SystemExit(f"bench: {kept} of {args.drain} runs are in the history")

    planned = await plan(kind, store, args.url, args.plan) if args.plan else None
    await store.close()
    settings = f"claim {args.claim or CLAIM[kind]}, {LANES} lanes, plan {PLAN_BATCH}{', uvloop' if uvloop() else ''}"
    return Sample("Noonbell", __version__, one, batched, drained, args.drain, settings, planned)


async def drain(store: Store, expected: int, size: int) -> float:
    """Two lanes: while one waits for the database, the other's handlers run."""
    handler = Handler(expected)

    async def noop(lease: Lease) -> Settlement:
        handler.hit()
        return Settlement(
            run_id=lease.run_id,
            token=lease.token,
            transition=Transition.FINISH,
            status=RunStatus.SUCCESS,
            worker_id=lease.worker_id,
            task_version=lease.task_version,
            plain=lease.plain,
            in_flow=lease.in_flow,
            lease=lease,
        )

    async def lane(number: int) -> None:
        worker = f"bench-{number}"
        await store.register_worker(WorkerInfo(id=worker, incarnation=worker, concurrency=size))
        request = ClaimRequest(worker_id=worker, queues=("default",), max=size)
        leases = (await store.claim(request)).leases
        while leases:
            # A task each, as a worker has it: handlers are somebody else's coroutines and may wait.
            ended = await asyncio.gather(*(asyncio.create_task(noop(lease)) for lease in leases))
            answers, claimed = await store.settle_and_claim(ended, request)
            if answers.count(SettleResult.DONE) != len(ended):
                raise SystemExit("bench: a lease was lost; the measurement is void")
            leases = claimed.leases

    await asyncio.gather(*(lane(number) for number in range(LANES)))
    return handler.rate


async def plan(kind: str, store: Store, url: str, due: int) -> float:
    """Tasks of which each has one slot due, until a pass finds nothing more."""
    spec = TaskSpec(
        name="due", job_type="due", queue="due", schedule=HOURLY, payload=PAYLOAD, misfire_grace_seconds=7200
    )
    task = await store.create_task(spec)
    now = await store.now()
    await copy(kind, url, task.id, due, first=now - now % HOUR, step=0, versions=True)
    await tidy(kind, url)
    born = 0
    start = time.perf_counter()
    while (planned := await store.plan(PLAN_BATCH)).tasks:
        born += planned.born
    elapsed = time.perf_counter() - start
    if born < due:
        raise SystemExit(f"bench: {born} runs were planned for {due} due tasks")
    return due / elapsed


async def passes(kind: str, databases: Sequence[tuple[int, str]], rounds: int) -> list[list[float]]:
    """Milliseconds of a pass with nothing due: per database its median, once per round; the databases take turns."""
    stores = []
    for count, url in databases:
        store = build(kind, url)
        await store.open()
        task = await store.create_task(TaskSpec(name="later", job_type="later", schedule=HOURLY, payload=PAYLOAD))
        now = await store.now()
        await copy(kind, url, task.id, count, first=now + 24 * HOUR, step=SECOND, versions=False)
        await tidy(kind, url)
        # What is due by accident (a system task's first slot) is planned now, and not measured.
        while (await store.plan(PLAN_BATCH)).tasks:
            pass
        stores.append(store)
    medians: list[list[float]] = [[] for _ in stores]
    for _ in range(rounds):
        for store, found in zip(stores, medians, strict=True):
            found.append(median([await one_pass(store) for _ in range(PASSES)]))
    for store in stores:
        await store.close()
    return medians


async def one_pass(store: Store) -> float:
    start = time.perf_counter()
    await store.plan(PLAN_BATCH)
    return (time.perf_counter() - start) * 1000


# Straight to the database, past the store: loading, tidying and checking are not what is measured.


async def copy(kind: str, url: str, task: TaskId, count: int, *, first: int, step: int, versions: bool) -> None:
    """Make `count` tasks out of the one, by doubling, inside the database: a million calls would take all day.

    The cursor of the n-th is `first + n * step`. Every column that is not unique is the same in all of them.
    """
    tables = ("tasks", "cursors", "task_versions") if versions else ("tasks", "cursors")
    columns = {table: await columns_of(kind, url, table) for table in tables}
    statements = [f"update cursors set next_fire_at = {first} where task_id = {task}"]
    have = 1
    while have < count:
        take = min(have, count - have)
        for table, names in columns.items():
            key = "id" if table == "tasks" else "task_id"
            changed = {
                key: f"{key} + {have}",
                "name": copied_name(kind, have),
                "live_name": copied_name(kind, have),
                "next_fire_at": f"next_fire_at + {have * step}",
            }
            values = ", ".join(changed.get(name, name) for name in names)
            statements.append(
                f"insert into {table} ({', '.join(names)}) select {values} from {table} "
                f"where {key} >= {task} and {key} < {task + take}"
            )
        have += take
    await execute(kind, url, statements)


def copied_name(kind: str, have: int) -> str:
    return f"concat('copy-', id + {have})" if kind == "mariadb" else f"'copy-' || (id + {have})"


async def columns_of(kind: str, url: str, table: str) -> list[str]:
    catalog = {
        "postgres": "information_schema.columns where table_schema = current_schema()",
        "mariadb": "information_schema.columns where table_schema = database()",
        "sqlite": f"(select name as column_name, '{table}' as table_name from pragma_table_info('{table}')) where true",
    }
    return [
        row[0]
        for row in await execute(kind, url, [f"select column_name from {catalog[kind]} and table_name = '{table}'"])
    ]


async def tidy(kind: str, url: str) -> None:
    """What the server's own upkeep would have done by then; every contender on the same server gets it."""
    if kind == "postgres":
        await execute(kind, url, ["vacuum analyze"])
    if kind == "mariadb":
        tables = "select table_name from information_schema.tables where table_schema = database()"
        await execute(kind, url, [f"analyze table {row[0]}" for row in await execute(kind, url, [tables])])


async def scalar(kind: str, url: str, sql: str) -> Any:
    return (await execute(kind, url, [sql]))[0][0]


async def execute(kind: str, url: str, statements: Sequence[str]) -> Sequence[Sequence[Any]]:
    """Rows of the last statement. Each is committed on its own."""
    rows: Sequence[Sequence[Any]] = ()
    if kind == "sqlite":
        link = sqlite3.connect(url, isolation_level=None, timeout=60)
        for statement in statements:
            rows = link.execute(statement).fetchall()
        link.close()
    elif kind == "postgres":
        import asyncpg

        connection = await asyncpg.connect(url)
        for statement in statements:
            rows = [tuple(row) for row in await connection.fetch(statement)]
        await connection.close()
    else:
        rows = await _execute_mysql(url, statements)
    return rows


async def _execute_mysql(url: str, statements: Sequence[str]) -> Sequence[Sequence[Any]]:
    import asyncmy

    parts = urlsplit(url)
    link = await asyncmy.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=parts.username or "root",
        password=parts.password or "",
        db=parts.path.lstrip("/"),
        autocommit=True,
    )
    rows: Sequence[Sequence[Any]] = ()
    async with link.cursor() as cursor:
        for statement in statements:
            await cursor.execute(statement)
            rows = await cursor.fetchall() or ()
    await link.ensure_closed()
    return rows


def uvloop() -> Any:
    """The module, or None: it is an extra that may not be installed."""
    try:
        return importlib.import_module("uvloop")
    except ImportError:
        return None


def run(work: Coroutine[Any, Any, T]) -> T:
    loop = uvloop()
    result: T = loop.run(work) if loop else asyncio.run(work)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ours")
    parser.add_argument("what", choices=[*STORES, "passes"])
    parser.add_argument("store", nargs="?", choices=STORES, help="with `passes`")
    parser.add_argument("--url", help="a fresh database: an address or a file name")
    parser.add_argument("--one", type=int, default=500)
    parser.add_argument("--drain", type=int, default=20_000)
    parser.add_argument("--plan", type=int, default=10_000)
    parser.add_argument("--claim", type=int, help="runs per claim, to look for the best")
    parser.add_argument("--tasks", nargs=2, action="append", metavar=("COUNT", "URL"))
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    if args.what == "passes":
        databases = [(int(count), url) for count, url in args.tasks]
        print(json.dumps({"medians": run(passes(args.store, databases, args.rounds))}))
    else:
        run(measure(args.what, args)).print()


if __name__ == "__main__":
    main()
