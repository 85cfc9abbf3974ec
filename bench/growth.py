"""What becomes of a PostgreSQL store that grows: many tasks, many slots, a long history, and its way into partitions.

python -m bench.growth [--only PART] [--tasks N] [--hourly N] [--burst N] [--seconds S] [--history N] [--convert N]

    tasks     a planning pass with nothing due, and the memory that it takes, beside those with 1,000 tasks
    hourly    hourly tasks spread evenly over the hour, and a burst in one second: how late their runs start
    history   pages read from a long history: buffers, beside those with a twentieth of it
    convert   a long history gets partitions while two nodes fire 50 slots a second: what is lost, doubled, and the longest stall

Rows are made by statements in the database. Nodes are planners and workers over stores of their own, in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, fields
from statistics import median
from typing import Any, Final

from bench import databases
from bench.ours import HOUR, HOURLY, PASSES, copy, execute, one_pass, scalar
from bench.rounds import Failed, progress
from bench.tables import markdown
from noonbell import when
from noonbell.clock import SECOND, Instant, slot_of
from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.model.attempt import Settlement, Transition
from noonbell.model.request import ClaimRequest, NewTask, RunQuery
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import Task, TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.service.filters import COUNTED, LOOKED_AT
from noonbell.stores import postgres_partitions as partitions
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.statement import Fetch, Statement, Work
from noonbell.stores.wakeups import LocalWakeup

DAY: Final = 24 * HOUR
KIND: Final = "postgres"
KEPT: Final = 30 * 86_400.0
EVENTS_KEPT: Final = 90_000.0
FEW: Final = 1_000
"""Tasks that the many are compared with."""
SHARE: Final = 20
"""A long history is compared with one this many times shorter."""
FIRED: Final = 50
"""Slots a second while a history gets partitions."""
_MADE_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True)
class Sizes:
    tasks: int = 2_000_000
    hourly: int = 1_000_000
    burst: int = 10_000
    seconds: int = 60
    """For how long slots are fired."""
    history: int = 20_000_000
    convert: int = 5_000_000


FULL: Final = Sizes()
QUICK: Final = Sizes(tasks=100_000, hourly=36_000, burst=500, seconds=10, history=200_000, convert=100_000)
Row = list[str]


def table(sizes: Sizes, only: str | None = None) -> str:
    rows: list[Row] = []
    for name, part in PARTS.items():
        if only in (None, name):
            progress(f"growth: {name}")
            with databases.fresh(KIND) as url:
                rows += asyncio.run(part(url, sizes))
    return markdown(["what", "size", "found", "wanted"], rows, right=(1,))


# ---- tasks that are not due


async def tasks_not_due(url: str, sizes: Sizes) -> list[Row]:
    store = PostgresStore(url)
    await store.open()
    task = await store.create_task(TaskSpec(name="later", job_type="later", schedule=HOURLY))
    found = []
    await copy(KIND, url, task.id, FEW, first=await store.now() + DAY, step=SECOND // 10, versions=False)
    for count in (FEW, sizes.tasks):
        if count > FEW:
            await _more(url, task, count)
        await execute(KIND, url, ["vacuum analyze tasks", "vacuum analyze cursors"])
        while (await store.plan(500)).tasks:
            pass
        before = _memory()
        cost = median([await one_pass(store) for _ in range(PASSES)])
        found.append((count, cost, _memory() - before))
    await store.close()
    (_, least, _), (count, cost, memory) = found
    return [
        [
            "a pass with nothing due",
            f"{count:,} tasks",
            f"{cost:.2f} ms; with {FEW:,}: {least:.2f} ms",
            "as with 1,000",
        ],
        ["memory that the passes added", f"{count:,} tasks", f"{memory / 1024:.1f} MiB", "as with 1,000"],
    ]


async def _more(url: str, task: Task, count: int) -> None:
    """Further copies, from 1,000 on."""
    columns = {name: await _columns(url, name) for name in ("tasks", "cursors")}
    for name, listed in columns.items():
        key = "id" if name == "tasks" else "task_id"
        changed = {
            key: "n",
            "name": "'copy-' || n",
            "live_name": "'copy-' || n",
            "next_fire_at": f"next_fire_at + n::bigint * {SECOND // 10}",
        }
        values = ", ".join(changed.get(column, f't."{column}"') for column in listed)
        names = ", ".join(f'"{column}"' for column in listed)
        await execute(
            KIND,
            url,
            [
                (
                    f"insert into {name} ({names}) select {values} from {name} t, generate_series({task.id + FEW}, {task.id + count - 1}) n"
                    f" where t.{key} = {task.id}"
                )
            ],
        )


async def _columns(url: str, name: str) -> list[str]:
    sql = f"select column_name from information_schema.columns where table_schema = 'public' and table_name = '{name}'"
    return [row[0] for row in await execute(KIND, url, [sql])]


def _memory() -> int:
    """The most that the process had so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---- nodes


@contextlib.asynccontextmanager
async def nodes(url: str, count: int, busy: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Each plans, sweeps and works, with a store of its own."""
    async with contextlib.AsyncExitStack() as going:
        for number in range(count):
            store, wakeup = PostgresStore(url), LocalWakeup()
            await store.open()
            going.push_async_callback(store.close)
            node = Node(planner=Planner(store, wakeup, batch=500), sweeper=Sweeper(store, wakeup))
            await node.start()
            going.push_async_callback(node.stop, 1)
            worker = asyncio.create_task(_work(store, f"w{number}", busy))
            going.push_async_callback(_end, worker)
        yield


async def _end(worker: asyncio.Task[None]) -> None:
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


async def _work(store: PostgresStore, worker_id: str, busy: Callable[[], None] | None) -> None:
    request = ClaimRequest(worker_id=worker_id, queues=("default",), max=500)
    await store.register_worker(WorkerInfo(id=worker_id, incarnation=worker_id, queues=("default",), concurrency=500))
    settled: list[Settlement] = []
    while True:
        _, claimed = await store.settle_and_claim(settled, request)
        settled = [
            Settlement(
                run_id=lease.run_id,
                token=lease.token,
                transition=Transition.FINISH,
                status=RunStatus.SUCCESS,
                worker_id=worker_id,
                plain=lease.plain,
            )
            for lease in claimed.leases
        ]
        if busy is not None and settled:
            busy()
        if not settled:
            await asyncio.sleep(0.02)


_LATE = """select count(*), coalesce(percentile_cont(array[0.5, 0.99, 1]) within group (order by (start_time - slot) / 1e6), array[0, 0, 0])
    from runs where slot is not null and start_time is not null and slot >= {since} and slot < {until}"""


# ---- slots spread over the hour


async def hourly(url: str, sizes: Sizes) -> list[Row]:
    store = PostgresStore(url)
    await store.open()
    now = (await store.now()) // SECOND * SECOND
    fields_of = {"type": "interval", "every": 1, "unit": "hour", "mode": "fixed_rate"}
    every = when.normalise(fields_of, "UTC", slot_of(now + HOUR))
    task = await store.create_task(TaskSpec(name="hourly", job_type="work", schedule=every))
    progress(f"{sizes.hourly:,} tasks")
    await copy(KIND, url, task.id, sizes.hourly, first=now + HOUR, step=0, versions=True)
    names = {"task": task.id, "count": sizes.hourly, "few": sizes.burst, "begin": now - DAY}
    await execute(KIND, url, [each.format(**names) for each in _SPREAD])
    at = (await store.now()) // SECOND * SECOND + (15 + sizes.hourly // 20_000) * SECOND
    burst = at + sizes.seconds // 2 * SECOND
    await execute(KIND, url, [each.format(**names, at=at, burst=burst) for each in _DUE])
    if await store.now() > at:
        raise Failed("the cursors were not set in time: the first slots are over")
    while await store.now() < at - 2 * SECOND:  # noqa: ASYNC110 - no signal tells
        await asyncio.sleep(0.1)
    async with nodes(url, 2):
        while await store.now() < at + sizes.seconds * SECOND:  # noqa: ASYNC110 - no signal tells
            await asyncio.sleep(0.5)
    until = at + (sizes.seconds - 2) * SECOND
    rows = await execute(KIND, url, [_LATE.format(since=at, until=until) + f" and slot <> {burst}"])
    bursts = await execute(KIND, url, [_LATE.format(since=burst, until=burst + 1)])
    due = await scalar(KIND, url, f"select count(*) from cursors where next_fire_at < {until}")
    await store.close()
    (count, late), (at_once, burst_late) = rows[0], bursts[0]
    return [
        [
            "hourly tasks spread evenly: how late a run starts",
            f"{sizes.hourly:,} tasks",
            (
                f"{count / (sizes.seconds - 2):.0f} slots a second; p50 {late[0]:.3f} s, p99 {late[1]:.3f} s, most"
                f" {late[2]:.3f} s; {due} not made"
            ),
            "p99 ≤ 1 s",
        ],
        ["the burst among them", f"{at_once:,} slots", f"p50 {burst_late[0]:.2f} s, p99 {burst_late[1]:.2f} s", "–"],
    ]


_ANCHOR: Final = """update {table} t set {column} = replace({column}, substring({column} from '"anchor":"[^"]*"'), '"anchor":"' || to_char(
    to_timestamp({at}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || '"') where t.{key} >= {{task}} {which}"""


def _anchored(at: str, which: str = "") -> tuple[str, str]:
    of_task = {"table": "tasks", "column": "schedule", "key": "id"}
    of_version = {"table": "task_versions", "column": "spec", "key": "task_id"}
    first, second = (
        _ANCHOR.format(**each, at=at.replace("KEY", f"t.{each['key']}"), which=which.replace("KEY", f"t.{each['key']}"))
        for each in (of_task, of_version)
    )
    return first, second


_SPREAD: Final = (*_anchored("{begin} / 1000000 + (KEY - {task}) * 3600 / {count}"), "vacuum analyze tasks")
"""The slots of the n-th of N tasks are n/N of an hour after those of the first."""
_DUE: Final = (
    """update cursors set accounted_to = {at} - 1000000, next_fire_at = {at}
    + (({begin} / 1000000 + (task_id - {task}) * 3600 / {count} - {at} / 1000000) % 3600 + 3600) % 3600 * 1000000 where task_id >= {task}""",
    "update cursors set next_fire_at = {burst} where task_id >= {task} + {count} - {few}",
    *_anchored("{burst} / 1000000 - 3600", "and KEY >= {task} + {count} - {few}"),
    "analyze cursors",
)
"""Each is due at its next slot; the last ones all in one second."""


# ---- a long history


async def make_history(url: str, task: Task, count: int, begin: int, end: int, first: int = 0) -> None:
    """Runs spread evenly over this time, one in a hundred of them failed, a body for one in fifty."""
    step = (end - begin) // count
    for start in range(first, count, _MADE_AT_ONCE):
        last = min(start + _MADE_AT_ONCE, count) - 1
        await execute(
            KIND,
            url,
            [
                _RUNS.format(task=task.id, begin=begin, step=step, first=start, last=last),
                _BODIES.format(task=task.id, begin=begin, step=step, first=start, last=last),
            ],
        )
        progress(f"{last + 1:,} of {count:,} runs made")


_ID = "(((({begin} + n::bigint * {step}) / 1000 - 1735689600000) << 12) + n % 4096)"
_RUNS = (
    """insert into runs (id, task_id, task_version, origin, status, slot, scheduled_time, run_at, created_at, updated_at, queue, priority,
    attempt, retry_count, lost_count, trouble, start_time, end_time, worker_id, response_code, result)
    select """
    + _ID
    + """, {task} + n % 1000, 1, 'schedule', case when n % 100 = 0 then 'FAILED' else 'SUCCESS' end, {begin} + n::bigint * {step}, at, at, at,
    at + 1000, 'default', 0, 1, 0, 0, case when n % 100 = 0 then 'FAILED' end, at, at + 1000, 'w', 200, '"' || repeat('x', 40) || '"'
    from (select n, {begin} + n::bigint * {step} as at from generate_series({first}, {last}) n) made"""
)
_BODIES = (
    "insert into bodies (run_id, attempt, response_body, truncated) select "
    + _ID
    + ", 1, repeat('y', 200), 0 from generate_series({first}, {last}) n where n % 50 = 0"
)


class Counting(PostgresStore):
    """Adds up the buffers that its questions read."""

    buffers = 0

    async def _do(self, connection: Any, statement: Statement) -> Any:
        if (
            isinstance(statement, Fetch)
            and statement.sql.lstrip().startswith(("select", "with"))
            and "for update" not in statement.sql
        ):
            text, names = self._parse(statement.sql)
            plan = await connection.fetch(
                f"explain (analyze, buffers, format json) {text}", *(statement.params[name] for name in names)
            )
            top = json.loads(plan[0][0])[0]["Plan"]
            self.buffers += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return await super()._do(connection, statement)


async def history(url: str, sizes: Sizes) -> list[Row]:
    store = Counting(url)
    await store.open()
    (task, *_) = await store.create_tasks([NewTask(spec=TaskSpec(name=f"t{n}", job_type="work")) for n in range(1000)])
    now = await store.now()
    least = sizes.history // SHARE
    begin = now - 28 * DAY
    await _stretches(store, begin, now)
    found: list[dict[str, int]] = []
    step = (now - begin) // sizes.history
    # The newest part first: what a page shows is the same in both.
    for first, last in ((sizes.history - least, sizes.history), (0, sizes.history - least)):
        await make_history(url, task, last, begin, begin + step * last, first)
        await execute(KIND, url, ["vacuum analyze runs", "vacuum analyze bodies"])
        found.append(await _pages(store, task))
    size = await scalar(KIND, url, "select pg_size_pretty(pg_database_size(current_database()))")
    parts = await scalar(KIND, url, "select count(*) from pg_inherits where inhparent = 'runs'::regclass")
    await store.close()
    few, many = found
    return [
        [
            f"buffers of {name}",
            f"{sizes.history:,} runs",
            f"{many[name]}; with {least:,}: {few[name]}",
            "as with a twentieth",
        ]
        for name in few
    ] + [["the store", f"{sizes.history:,} runs", f"{size}, {parts} partitions", "–"]]


async def _stretches(store: PostgresStore, begin: int, now: int) -> None:
    """As if the store had been there all the time."""

    kept = round(KEPT) * SECOND

    async def change(work: Callable[..., Work[Any]], *given: Any) -> None:
        await store._change_schema(lambda _: work(store.dialect, *given))

    await change(partitions.merge_all)
    await change(partitions.attach, partitions.HISTORY, Instant(begin - DAY), kept)
    await change(partitions.attach, partitions.EVENTS, Instant(now), kept)
    for at in range(begin, now + 8 * DAY, 2 * DAY):
        await change(partitions.extend, partitions.HISTORY, Instant(at), kept)


async def _pages(store: Counting, task: Task) -> dict[str, int]:
    newest = (await store.runs(RunQuery(page_size=1, count_to=1))).items[0]
    asked: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "the newest runs": lambda: store.runs(RunQuery(look=LOOKED_AT, count_to=COUNTED, page_size=50)),
        "the runs of a task": lambda: store.runs(
            RunQuery(look=LOOKED_AT, count_to=COUNTED, page_size=50, task_id=task.id)
        ),
        "the runs that failed": lambda: store.runs(
            RunQuery(look=LOOKED_AT, count_to=COUNTED, page_size=50, status=(RunStatus.FAILED,))
        ),
        "one run": lambda: store.run(RunId(newest.id)),
        "the newest run of 100 tasks": lambda: store.newest_runs([task.id + n for n in range(100)], 1),
    }
    found = {}
    for name, ask in asked.items():
        await ask()
        store.buffers = 0
        await ask()
        found[name] = store.buffers
    return found


# ---- into partitions, under way


async def convert(url: str, sizes: Sizes) -> list[Row]:
    store = PostgresStore(url)
    await store.open()
    await store.migrate(45)
    now = await store.now()
    task = await store.create_task(TaskSpec(name="past", job_type="work"))
    await make_history(url, task, sizes.convert, now - 29 * DAY, now - DAY)
    await execute(KIND, url, ["vacuum analyze runs"])
    await store.migrate()
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
        after = len(gaps)
        await asyncio.sleep(max(5, sizes.seconds // 6))
        until = (await store.now()) // SECOND * SECOND - 2 * SECOND
    parts = await scalar(KIND, url, "select count(*) from pg_inherits where inhparent = to_regclass('runs')")
    first, most = fired[0].id, fired[-1].id
    of_slots = f"from runs where task_id between {first} and {most} and slot > {begin} and slot <= {until}"
    made = await scalar(
        KIND, url, f"select count(distinct (task_id, slot)) {of_slots} and status = 'SUCCESS' and attempt = 1"
    )
    doubled = await scalar(KIND, url, f"select count(*) - count(distinct (task_id, slot)) {of_slots}")
    rows = await scalar(KIND, url, "select count(*) from runs_before") if parts else 0
    late = (await execute(KIND, url, [_LATE.format(since=begin, until=until)]))[0]
    expected = (until - begin) // SECOND * FIRED
    await store.close()
    assert changed and rows >= sizes.convert  # noqa: PT018 - else nothing was measured
    stall = max(gaps[before:after] or [0.0])
    return [
        ["a history gets partitions", f"{sizes.convert:,} runs", f"{took:.1f} s; {parts} partitions", "–"],
        [
            f"slots meanwhile, {FIRED} a second, two nodes",
            f"{expected:,} slots",
            f"{expected - made} lost, {doubled} doubled",
            "0, 0",
        ],
        [
            "the longest stall",
            f"{sizes.convert:,} runs",
            f"{stall:.2f} s between two batches that were claimed (before: {max(gaps[5:before] or [0.0]):.2f} s); the latest start {late[1][2]:.2f} s after its slot",
            "–",
        ],
    ]


PARTS: Final = {"tasks": tasks_not_due, "hourly": hourly, "history": history, "convert": convert}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    parser.add_argument("--only", choices=list(PARTS))
    for each in fields(Sizes):
        parser.add_argument(f"--{each.name}", type=int, default=each.default)
    given = vars(parser.parse_args())
    only = given.pop("only")
    sys.stdout.write(f"{table(Sizes(**given), only)}\n")


if __name__ == "__main__":
    main()
