"""A store in the middle of its life: thousands of tasks, and a month of runs in every status, written past the store.

Tasks, workers and the audit log are made by the store's own calls; runs and what belongs to them (`bench.month`) are poured
in, because to live through a month would take one.

python -m bench.filling sqlite --url FILE --runs 50000 --tasks 5000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from bench import ours
from bench.month import BUSY_EVERY, COLUMNS, DAY, DAYS, WORKERS, Month
from bench.rounds import progress
from noonbell import when
from noonbell.clock import SECOND, SystemClock
from noonbell.model.access import AuditAction
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store

BUSY: Final = "sensors poll"
RARE_LABEL: Final = ("tier", "gold")
RARE_QUEUE: Final = "archive"
_TEAMS: Final = ("billing", "search", "growth", "ops", "data", "mobile", "risk", "support")
_VERBS: Final = ("sync", "export", "check", "rotate", "import", "mail", "rebuild", "purge", "poll", "report")
_NOUNS: Final = ("invoices", "users", "index", "backups", "prices", "sessions", "orders", "certificates", "ledgers")
_QUEUES: Final = ("default", "reports", "mail", "import")

Write = Callable[[str, Sequence[str], Sequence[tuple[Any, ...]]], Awaitable[None]]


# Tasks and the rest, by the store's own calls


def specs(count: int, draw: random.Random) -> Iterator[tuple[TaskSpec, TaskStatus]]:
    yield TaskSpec(name=BUSY, job_type="poll", schedule=_cron(f"*/{BUSY_EVERY} * * * * *")), TaskStatus.ENABLED
    for number in range(1, count):
        labels = {"team": draw.choice(_TEAMS), "env": draw.choice(("prod", "prod", "prod", "staging"))}
        if number % 400 == 7:
            labels[RARE_LABEL[0]] = RARE_LABEL[1]
        kind = draw.choices((ExecType.SYNC, ExecType.ASYNC, ExecType.JOB), (5, 2, 3))[0]
        fields: dict[str, Any] = {"job_type": draw.choice(_VERBS), "queue": draw.choice(_QUEUES)}
        if kind is not ExecType.JOB:
            fields = {"exec_type": kind, "target_url": "http://127.0.0.1:9/run"}
        elif number % 1_000 < 3:
            fields["queue"] = RARE_QUEUE
        spec = TaskSpec(
            name=f"{draw.choice(_VERBS)} {draw.choice(_NOUNS)} {number}",
            description="What it is for, in a sentence that somebody wrote once.",
            labels=labels,
            schedule=_schedule(number, draw),
            **fields,
        )
        statuses = (TaskStatus.ENABLED, TaskStatus.DISABLED, TaskStatus.COMPLETED, TaskStatus.ERROR)
        yield spec, draw.choices(statuses, (90, 7, 2, 1))[0]


def _cron(expression: str) -> dict[str, Any]:
    return when.normalise({"type": "cron", "expr": expression})


def _schedule(number: int, draw: random.Random) -> dict[str, Any] | None:
    """Most once a day, some by the hour, a few every minute; a fifth only when somebody asks."""
    minute, hour = draw.randrange(60), draw.randrange(24)
    if number % 100 == 0:
        return _cron("* * * * *")
    if number % 10 == 1:
        return _cron(f"{minute} * * * *")
    return None if number % 5 == 0 else _cron(f"{minute} {hour} * * *")


async def make_tasks(store: Store, count: int) -> list[Task]:
    draw, found = random.Random(5), []
    wanted = list(specs(count, draw))
    for start in range(0, count, 200):
        batch = wanted[start : start + 200]
        found += await asyncio.gather(*(store.create_task(spec, status=status) for spec, status in batch))
    return found


async def make_rest(store: Store) -> None:
    for number in range(WORKERS):
        queues = ("http", *_QUEUES)
        await store.register_worker(
            WorkerInfo(id=f"worker-{number}", incarnation=f"{number}", queues=queues, concurrency=100)
        )
    deeds = [
        AuditAction(
            actor=f"user-{number % 23}", action="trigger_task", subject=f"/tasks/{number % 5_000}", peer="10.0.0.1"
        )
        for number in range(1_000)
    ]
    for _ in range(20):
        await store.write_audit(deeds)  # type: ignore[attr-defined]


# Into the database


async def pour(kind: str, url: str, month: Month, total: int) -> None:
    written = 0
    async with writer(kind, url) as write:
        for poured in month.batches():
            for table, rows in poured.rows.items():
                if rows:
                    await write(table, COLUMNS[table], rows)
            written += len(poured.rows["runs"])
            progress(f"{written:,} of {total:,} runs")
    statements = [
        f"update counters set value = {month.events} where name = 'events'",
        f"update workers set heartbeat_at = heartbeat_at + {DAY}",
        f"update tasks set created_at = created_at - {DAYS * DAY}, updated_at = updated_at - id * {SECOND}",
        f"update task_versions set valid_from = valid_from - {DAYS * DAY} where task_id = 1",
    ]
    await ours.execute(kind, url, statements)


@contextlib.asynccontextmanager
async def writer(kind: str, url: str) -> AsyncIterator[Write]:
    """Pours rows into the tables of a fresh store, past all transitions."""
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(url, isolation_level=None)) as link:
            # A file that is thrown away if this fails needs no journal.
            for pragma in ("journal_mode = off", "synchronous = off", "cache_size = -524288"):
                link.execute(f"pragma {pragma}").fetchall()
            link.execute("begin")

            async def insert(table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
                marks = ", ".join("?" * len(columns))
                link.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", rows)

            yield insert
            link.execute("commit")
        return
    import asyncpg

    connection = await asyncpg.connect(url)

    async def copy(table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        await connection.copy_records_to_table(table, records=rows, columns=columns)

    yield copy
    await connection.close()


async def fill(kind: str, url: str, tasks: int, runs: int) -> None:
    store = ours.build(kind, url)
    await store.open()
    made = await make_tasks(store, tasks)
    await make_rest(store)
    progress(f"{len(made):,} tasks")
    await store.close()
    await pour(kind, url, Month(made, runs, SystemClock().now()), runs)
    store = ours.build(kind, url)
    await store.open()
    await store.recount()
    await store.close()
    await ours.tidy(kind, url)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.filling")
    parser.add_argument("store", choices=["postgres", "sqlite"])
    parser.add_argument("--url", required=True, help="a fresh database: an address or a file name")
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=1_000_000)
    args = parser.parse_args()
    ours.run(fill(args.store, args.url, args.tasks, args.runs))
    print(json.dumps({"runs": args.runs}), flush=True)


if __name__ == "__main__":
    main()
