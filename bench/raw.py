"""The bare driver doing the least SQL that a scheduler can: the limit that a store is measured against.

One wide table of runs (30 columns, 100-byte payload) and one of tasks; no policies, no bodies table, no events, no
handlers. A drain claims a batch and settles it, as fast as each database does it here:
PostgreSQL and MariaDB on two connections, SQLite on one, the settle of a batch and the claim of the next in one commit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from bench.peers.sample import BATCH, PAYLOAD, Sample

CYCLE = {"postgres": 300, "sqlite": 500, "mariadb": 300}
LANES = 2
PLAN_BATCH = 500
DUE = 1_000
NOT_DUE = 10**15

WAITING, RUNNING, DONE = 0, 1, 2

RUN_COLUMNS = (
    "id bigint primary key, task_id bigint not null, task_version int not null, queue varchar(64) not null, "
    "priority int not null, status int not null, origin int not null, slot bigint, run_at bigint not null, "
    "created_at bigint not null, updated_at bigint not null, started_at bigint, ended_at bigint, lease_until bigint, "
    "worker_id bigint, token bigint, attempt int not null, max_attempts int not null, retry_count int not null, "
    "lost_count int not null, timeout_ms bigint, parent_id bigint, live_key varchar(64), trace varchar(64), "
    "outcome int, error_kind varchar(32), error varchar(200), duration_us bigint, http_status int, payload {bytes}"
)
TASK_COLUMNS = (
    "id bigint primary key, name varchar(64) not null, version int not null, status int not null, "
    "queue varchar(64) not null, priority int not null, schedule varchar(200) not null, zone varchar(64) not null, "
    "next_fire_at bigint not null, last_slot bigint, misfire int not null, overlap int not null, created_at bigint not null, "
    "updated_at bigint not null, timeout_ms bigint, max_attempts int not null, target varchar(200) not null, "
    "payload {bytes}"
)
INSERTED = (
    "id, task_id, task_version, queue, priority, status, origin, slot, run_at, created_at, updated_at, attempt, "
    "max_attempts, retry_count, lost_count, payload"
)
TASK_INSERTED = (
    "id, name, version, status, queue, priority, schedule, zone, next_fire_at, misfire, overlap, created_at, "
    "updated_at, max_attempts, target, payload"
)

SETTLED = f"select count(*) from runs where status = {DONE}"


def batches(count: int, size: int = BATCH, first: int = 1) -> Iterator[list[int]]:
    """Ids `first` to `first + count - 1`, cut into lists of at most `size`."""
    for start in range(first, first + count, size):
        yield list(range(start, min(start + size, first + count)))


PG_INSERT = (
    f"insert into runs ({INSERTED}) select id, 1, 1, 'default', 0, {WAITING}, 1, null, at, at, at, 0, 3, 0, 0, payload "
    "from unnest($1::bigint[], $2::bigint[], $3::bytea[]) as new(id, at, payload)"
)
PG_SETTLE = (
    f"update runs set status = {DONE}, ended_at = $2, updated_at = $2, outcome = 1, duration_us = 1 where id = any($1)"
)
PG_CLAIM = (
    "with picked as (select id from runs where queue = 'default' and status = 0 order by priority desc, id "
    "limit $1 for update skip locked) "
    f"update runs set status = {RUNNING}, attempt = attempt + 1, worker_id = 1, token = $2, lease_until = $2, "
    "started_at = $2, updated_at = $2 from picked where runs.id = picked.id returning runs.id, runs.payload"
)
PG_DUE = "select id, payload from tasks where next_fire_at <= $1 order by next_fire_at limit $2 for update skip locked"
PG_PLANNED = (
    f"insert into runs ({INSERTED}) select id, task, 1, 'default', 0, {WAITING}, 0, at, at, at, at, 0, 3, 0, 0, payload "
    "from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) as new(id, task, at, payload)"
)
PG_ADVANCE = (
    "update tasks set next_fire_at = new.at, last_slot = new.at, updated_at = new.at "
    "from unnest($1::bigint[], $2::bigint[]) as new(id, at) where tasks.id = new.id"
)


async def postgres(url: str, one: int, drain: int, due: int, connections: int = LANES) -> Sample:
    import asyncpg

    # A plan made while the tables are empty costs several times the right one, so plan each execution.
    lanes = [
        await asyncpg.connect(url, server_settings={"plan_cache_mode": "force_custom_plan"}) for _ in range(connections)
    ]
    link = lanes[0]
    await link.execute(f"create table runs ({RUN_COLUMNS.format(bytes='bytea')}) with (fillfactor = 50)")
    await link.execute(f"create index on runs (queue, priority desc, id) where status = {WAITING}")
    await link.execute(f"create table tasks ({TASK_COLUMNS.format(bytes='bytea')})")
    await link.execute("create index on tasks (next_fire_at)")

    async def insert(ids: list[int]) -> None:
        await link.execute(PG_INSERT, ids, [time.time_ns() // 1000] * len(ids), [PAYLOAD] * len(ids))

    singles = await rate(one, lambda: publish(insert, one, 1))
    await link.execute("truncate runs")
    batched = await rate(drain, lambda: publish(insert, drain, BATCH))
    await link.execute("vacuum analyze runs")

    async def lane(link: Any) -> int:
        count = 0
        while rows := await link.fetch(PG_CLAIM, CYCLE["postgres"], time.time_ns() // 1000):
            await link.execute(PG_SETTLE, [row["id"] for row in rows], time.time_ns() // 1000)
            count += len(rows)
        return count

    drained = await rate(drain, lambda: gather([lane(link) for link in lanes]))
    settled(drain, await link.fetchval(SETTLED))

    await link.execute(
        f"insert into tasks ({TASK_INSERTED}) select id, 'task-' || id, 1, 1, 'default', 0, '* * * * *', 'UTC', "
        "case when id <= $2 then 1000 else $3::bigint end, 0, 0, 0, 0, 3, 'job:noop', $4 from generate_series(1, $1) id",
        due * 2, due, NOT_DUE, PAYLOAD,
    )  # fmt: skip
    await link.execute("truncate runs")
    await link.execute("vacuum analyze tasks")

    async def plan() -> int:
        count = 0
        while True:
            async with link.transaction():
                rows = await link.fetch(PG_DUE, DUE, PLAN_BATCH)
                tasks = [row["id"] for row in rows]
                at = [NOT_DUE] * len(tasks)
                await link.execute(PG_PLANNED, tasks, tasks, at, [row["payload"] for row in rows])
                await link.execute(PG_ADVANCE, tasks, at)
            count += len(rows)
            if len(rows) < PLAN_BATCH:
                return count

    planned = await rate(due, plan)
    for each in lanes:
        await each.close()
    settings = f"asyncpg, cycle of {CYCLE['postgres']}, {connections} connections"
    return Sample("raw driver", version("asyncpg"), singles, batched, drained, drain, settings, planned)


async def mariadb(url: str, one: int, drain: int, due: int, connections: int = LANES) -> Sample:
    import asyncmy

    parts = urlsplit(url)
    lanes = [
        await asyncmy.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=parts.username or "root",
            password=parts.password or "",
            db=parts.path.lstrip("/"),
            autocommit=False,
            init_command="set session transaction isolation level read committed",
        )
        for _ in range(connections)
    ]
    link = lanes[0]

    async def run(link: Any, sql: str, args: Sequence[object] = ()) -> Sequence[tuple[Any, ...]]:
        async with link.cursor() as cursor:
            await cursor.execute(sql, args)
            return await cursor.fetchall() or ()

    # No partial index here: status leads, so that the claim reads only what waits.
    await run(
        link,
        f"create table runs ({RUN_COLUMNS.format(bytes='varbinary(4000)')}, "
        "index claim (status, queue, priority, id)) engine = innodb",
    )
    await run(
        link,
        f"create table tasks ({TASK_COLUMNS.format(bytes='varbinary(4000)')}, index due (next_fire_at)) engine = innodb",
    )

    row = f"(%s, 1, 1, 'default', 0, {WAITING}, 1, null, %s, %s, %s, 0, 3, 0, 0, %s)"

    async def insert(ids: list[int]) -> None:
        at = time.time_ns() // 1000
        values = [value for each in ids for value in (each, at, at, at, PAYLOAD)]
        await run(link, f"insert into runs ({INSERTED}) values " + ", ".join([row] * len(ids)), values)
        await link.commit()

    singles = await rate(one, lambda: publish(insert, one, 1))
    await run(link, "truncate runs")
    batched = await rate(drain, lambda: publish(insert, drain, BATCH))
    await run(link, "analyze table runs")

    claim = (
        f"select id, payload from runs where status = {WAITING} and queue = 'default' order by priority, id "
        f"limit {CYCLE['mariadb']} for update skip locked"
    )

    async def lane(link: Any) -> int:
        count = 0
        while True:
            rows = await run(link, claim)
            if not rows:
                await link.commit()
                return count
            ids = ", ".join(str(row[0]) for row in rows)
            at = time.time_ns() // 1000
            await run(
                link,
                f"update runs set status = {RUNNING}, attempt = attempt + 1, worker_id = 1, token = {at}, "
                f"lease_until = {at}, started_at = {at}, updated_at = {at} where id in ({ids})",
            )
            await link.commit()
            await run(
                link,
                f"update runs set status = {DONE}, ended_at = {at}, updated_at = {at}, outcome = 1, duration_us = 1 "
                f"where id in ({ids})",
            )
            await link.commit()
            count += len(rows)

    drained = await rate(drain, lambda: gather([lane(link) for link in lanes]))
    settled(drain, (await run(link, SETTLED))[0][0])

    task = "(%s, %s, 1, 1, 'default', 0, '* * * * *', 'UTC', %s, 0, 0, 0, 0, 3, 'job:noop', %s)"
    for ids in batches(due * 2):
        values = [value for each in ids for value in (each, f"task-{each}", 1000 if each <= due else NOT_DUE, PAYLOAD)]
        await run(link, f"insert into tasks ({TASK_INSERTED}) values " + ", ".join([task] * len(ids)), values)
    await link.commit()
    await run(link, "truncate runs")
    await run(link, "analyze table tasks")

    async def plan() -> int:
        count = 0
        planned = f"(%s, %s, 1, 'default', 0, {WAITING}, 0, {NOT_DUE}, {NOT_DUE}, 0, 0, 0, 3, 0, 0, %s)"
        while True:
            rows = await run(
                link,
                f"select id, payload from tasks where next_fire_at <= {DUE} order by next_fire_at "
                f"limit {PLAN_BATCH} for update skip locked",
            )
            if rows:
                values = [value for each, payload in rows for value in (each, each, payload)]
                await run(link, f"insert into runs ({INSERTED}) values " + ", ".join([planned] * len(rows)), values)
                ids = ", ".join(str(row[0]) for row in rows)
                await run(
                    link,
                    f"update tasks set next_fire_at = {NOT_DUE}, last_slot = {NOT_DUE}, updated_at = 0 where id in ({ids})",
                )
            await link.commit()
            count += len(rows)
            if len(rows) < PLAN_BATCH:
                return count

    plans = await rate(due, plan)
    for each in lanes:
        await each.ensure_closed()
    settings = f"asyncmy, READ COMMITTED, cycle of {CYCLE['mariadb']}, {connections} connections"
    return Sample("raw driver", version("asyncmy"), singles, batched, drained, drain, settings, plans)


async def sqlite(url: str, one: int, drain: int, due: int, _connections: int = 1) -> Sample:
    link = sqlite3.connect(url, isolation_level=None)
    link.execute("pragma journal_mode = wal")
    link.execute("pragma synchronous = full")
    link.execute("pragma wal_autocheckpoint = 4000")
    link.execute(
        f"create table runs ({RUN_COLUMNS.format(bytes='blob')})".replace("id bigint primary", "id integer primary", 1)
    )
    link.execute(f"create index claim on runs (queue, priority desc, id) where status = {WAITING}")
    link.execute(
        f"create table tasks ({TASK_COLUMNS.format(bytes='blob')})".replace(
            "id bigint primary", "id integer primary", 1
        )
    )
    link.execute("create index due on tasks (next_fire_at)")
    insertion = (
        f"insert into runs ({INSERTED}) values (?, 1, 1, 'default', 0, {WAITING}, 1, null, ?, ?, ?, 0, 3, 0, 0, ?)"
    )

    async def insert(ids: list[int]) -> None:
        at = time.time_ns() // 1000
        link.execute("begin immediate")
        link.executemany(insertion, [(each, at, at, at, PAYLOAD) for each in ids])
        link.execute("commit")

    singles = await rate(one, lambda: publish(insert, one, 1))
    link.execute("delete from runs")
    batched = await rate(drain, lambda: publish(insert, drain, BATCH))

    async def lane() -> int:
        count = 0
        held: list[int] = []
        while True:
            at = time.time_ns() // 1000
            link.execute("begin immediate")
            link.executemany(
                f"update runs set status = {DONE}, ended_at = ?, updated_at = ?, outcome = 1, duration_us = 1 where id = ?",
                [(at, at, run) for run in held],
            )
            rows = link.execute(
                f"select id, payload from runs where queue = 'default' and status = {WAITING} "
                f"order by priority desc, id limit {CYCLE['sqlite']}"
            ).fetchall()
            held = [row[0] for row in rows]
            link.executemany(
                f"update runs set status = {RUNNING}, attempt = attempt + 1, worker_id = 1, token = ?, lease_until = ?, "
                "started_at = ?, updated_at = ? where id = ?",
                [(at, at, at, at, run) for run in held],
            )
            link.execute("commit")
            count += len(held)
            if not held:
                return count

    drained = await rate(drain, lane)
    settled(drain, link.execute(SETTLED).fetchone()[0])

    link.execute("begin immediate")
    link.executemany(
        f"insert into tasks ({TASK_INSERTED}) "
        "values (?, ?, 1, 1, 'default', 0, '* * * * *', 'UTC', ?, 0, 0, 0, 0, 3, 'job:noop', ?)",
        [(task, f"task-{task}", 1000 if task <= due else NOT_DUE, PAYLOAD) for task in range(1, due * 2 + 1)],
    )
    link.execute("delete from runs")
    link.execute("commit")

    async def plan() -> int:
        count = 0
        while True:
            link.execute("begin immediate")
            rows = link.execute(
                f"select id, payload from tasks where next_fire_at <= {DUE} order by next_fire_at limit {PLAN_BATCH}"
            ).fetchall()
            link.executemany(
                f"insert into runs ({INSERTED}) "
                f"values (?, ?, 1, 'default', 0, {WAITING}, 0, {NOT_DUE}, {NOT_DUE}, 0, 0, 0, 3, 0, 0, ?)",
                [(task, task, payload) for task, payload in rows],
            )
            link.executemany(
                f"update tasks set next_fire_at = {NOT_DUE}, last_slot = {NOT_DUE}, updated_at = 0 where id = ?",
                [(task,) for task, _ in rows],
            )
            link.execute("commit")
            count += len(rows)
            if len(rows) < PLAN_BATCH:
                return count

    planned = await rate(due, plan)
    link.close()
    settings = f"sqlite3, WAL, synchronous FULL, cycle of {CYCLE['sqlite']}, 1 connection"
    return Sample("raw driver", sqlite3.sqlite_version, singles, batched, drained, drain, settings, planned)


async def pick_up(url: str, count: int) -> float:
    """Milliseconds, the median, from an insert over its notification to the end of an update of it, each commit durable.

    Both ends are in this process, and nothing is planned or checked: less than this it cannot be for whoever promises
    that neither a publish nor a claim is forgotten.
    """
    import asyncpg

    async with contextlib.AsyncExitStack() as stack:

        async def link(**settings: str) -> Any:
            opened = await asyncpg.connect(url, server_settings=settings)
            stack.push_async_callback(opened.close)
            return opened

        publisher, worker = await link(), await link()
        notifier, listener = await link(synchronous_commit="off"), await link()
        await publisher.execute("create table pick_up (id int primary key, status int not null)")
        heard, taken = asyncio.Event(), []
        await listener.add_listener("pick_up", lambda *_: heard.set())
        for number in range(count):
            await asyncio.sleep(0.02)
            heard.clear()
            start = time.perf_counter()
            await publisher.execute("insert into pick_up values ($1, 0)", number)
            await notifier.execute("select pg_notify('pick_up', '')")
            await heard.wait()
            await worker.fetch("update pick_up set status = 1 where id = $1 returning id", number)
            taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


async def publish(insert: Callable[[list[int]], Awaitable[None]], count: int, size: int) -> int:
    for ids in batches(count, size):
        await insert(ids)
    return count


async def gather(lanes: Sequence[Awaitable[int]]) -> int:
    """Rows that all lanes took together."""
    return sum(await asyncio.gather(*lanes))


def settled(expected: int, found: int) -> None:
    """A lost row voids the measurement."""
    if found != expected:
        raise SystemExit(f"bench: {found} rows settled instead of {expected}")


async def rate(expected: int, work: Callable[[], Awaitable[int]]) -> float:
    start = time.perf_counter()
    count = await work()
    elapsed = time.perf_counter() - start
    if count != expected:
        raise SystemExit(f"bench: {count} rows instead of {expected}")
    return expected / elapsed


STORES = {"postgres": postgres, "sqlite": sqlite, "mariadb": mariadb}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.raw")
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--url", required=True, help="a fresh database: an address or a file name")
    parser.add_argument("--one", type=int, required=True)
    parser.add_argument("--drain", type=int, required=True)
    parser.add_argument("--plan", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=LANES, help="that drain; SQLite has one")
    args = parser.parse_args()
    run = STORES[args.store](args.url, args.one, args.drain, args.plan, args.connections)
    try:
        import uvloop
    except ImportError:
        sample = asyncio.run(run)
    else:
        sample = uvloop.run(run)
    sample.print()


if __name__ == "__main__":
    main()
