"""The statements that planning, claiming and settling really send find their rows by an index, at any size."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from integration.conftest import Open
from integration.crew import success
from integration.support import create_many, every_second, execute, job, publish_many
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, Origin, Precondition, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import RateLimit, Task, TaskSpec
from noonbell.model.task import Step as StepOfFlow
from noonbell.model.task_schedule import After, Upstream
from noonbell.stores.blocking import Blocker
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.rows import SPEC
from noonbell.stores.sql.statement import InsertMany, NewIds, Now, Work
from noonbell.stores.sql.store import SqlStore

pytestmark = pytest.mark.own_database

BIG = {"runs", "live", "cursors", "tasks"}
"""Tables that grow with what a user has. The others are small, or nothing hot reads them."""

START = Instant(1_767_261_600 * SECOND)
FILL = 4_000
TASK_COLUMNS = (
    *(*SPEC.columns, "id", "version", "status", "live_name", "live_external_id", "uid"),
    *("created_by", "created_at", "updated_at"),
)
CURSOR_COLUMNS = ("task_id", "version", "next_fire_at", "fired", "skip_next", "accounted_to")

Heard = list[tuple[str, Sequence[Any]]]
Step = tuple[str, Callable[[], Awaitable[Any]]]


# ---- a store in the middle of its life


async def fill(store: SqlStore) -> None:
    """Thousands of tasks, and of runs in every place."""
    plain = await store.create_task(job("plain", worker_timeout_ms=60_000, schedule=every_second(START, every=86_400)))
    gated = await store.create_task(job("gated", max_concurrency=50))
    await copy_task(store, plain.id, FILL)
    await publish_many(store, plain, 3 * FILL)
    await publish_many(store, gated, FILL)
    await publish_many(store, plain, FILL, delay_seconds=3600)
    leases = await claim(store, "old", FILL)
    assert len(leases) == FILL
    await store.settle([success(lease) for lease in leases[: FILL // 2]])
    await claim(store, "elsewhere", FILL // 2)


async def analyse(store: SqlStore) -> None:
    """As the server does by itself from time to time. SQLite does not, and neither do we there."""
    if store.dialect.name == "mysql":
        for table in sorted(BIG):
            await store.fetch(f"analyze table {table}")
    elif store.dialect.name == "postgres":
        await execute(store, "analyze")


async def copy_task(store: SqlStore, task_id: int, count: int) -> None:
    """So many more of it, with cursors that lie far away."""
    task = await rows_like(store, "tasks", TASK_COLUMNS, "id", task_id)
    cursor = await rows_like(store, "cursors", CURSOR_COLUMNS, "task_id", task_id)

    def work(_: Any) -> Work[None]:
        ids = range(1_000_000, 1_000_000 + count)
        yield InsertMany("tasks", TASK_COLUMNS, [task(id=n, live_name=f"copy {n}") for n in ids])
        yield InsertMany("cursors", CURSOR_COLUMNS, [cursor(task_id=n, next_fire_at=START + n * SECOND) for n in ids])

    await store._write(work)


async def rows_like(
    store: SqlStore, table: str, columns: Sequence[str], key: str, value: int
) -> Callable[..., tuple[Any, ...]]:
    (row,) = await store.fetch(f"select {', '.join(columns)} from {table} where {key} = :value", value=value)
    fields = dict(zip(columns, row, strict=True))
    return lambda **changes: tuple((fields | changes).values())


async def claim(store: SqlStore, worker: str, count: int) -> list[Lease]:
    return (await store.claim(ClaimRequest(worker_id=worker, queues=("default",), max=count))).leases


# ---- what is hot


async def hot_steps(store: SqlStore, clock: ManualClock) -> list[Step]:
    """Each with something to do, in an order in which the next finds what the last one left."""
    schedule, mark = every_second(START), clock.now()
    specs = [
        job(f"due 1 {mark}", schedule=schedule),
        job(f"due 2 {mark}", schedule=schedule, max_concurrency=2, priority=9),
        job(f"due 3 {mark}", schedule=schedule, rate_limit=RateLimit(max=2, per_seconds=1), priority=9),
    ]
    tasks = await create_many(store, specs)
    clock.advance(2)
    held: list[Lease] = []

    async def take(count: int) -> None:
        held.extend(await claim(store, "w", count))
        assert held

    async def settle(transition: Transition, status: RunStatus | None, **more: Any) -> None:
        lease = held.pop()
        fields = {"run_id": lease.run_id, "token": lease.token, "worker_id": "w", "plain": lease.plain}
        await store.settle([Settlement(transition=transition, status=status, **(fields | more))])

    async def settle_and_claim() -> None:
        ended = [success(held.pop()) for _ in range(min(2, len(held)))]
        _, claimed = await store.settle_and_claim(ended, ClaimRequest(worker_id="w", queues=("default",), max=5))
        held.extend(claimed.leases)

    async def heartbeat() -> None:
        await store.heartbeat("w", [(lease.run_id, lease.token) for lease in held])

    async def sweep() -> None:
        clock.advance(3 * 3600)
        late = await store.overdue(10)
        assert late
        gone = [
            Settlement(
                run_id=one.run_id, token=one.token, transition=Transition.LOSE, precondition=Precondition.EXPIRED
            )
            for one in late
        ]
        await store.settle(gone)

    async def publish(**fields: Any) -> None:
        await store.publish([Publication(task_id=tasks[0].id, **fields)])

    return [
        ("publish", publish),
        ("publish with a key", lambda: publish(key="k")),
        ("publish the same key", lambda: publish(key="k")),
        ("plan", lambda: store.plan(100)),
        ("claim", lambda: take(12)),
        ("settle and claim", settle_and_claim),
        ("heartbeat", heartbeat),
        ("settle as a success", lambda: settle(Transition.FINISH, RunStatus.SUCCESS)),
        ("settle as a failure", lambda: settle(Transition.FINISH, RunStatus.FAILED, error_message="no")),
        ("settle as a retry", lambda: settle(Transition.RETRY, RunStatus.FAILED, delay_seconds=1)),
        ("settle as accepted", lambda: settle(Transition.PARK, RunStatus.CALLBACK_PENDING, delay_seconds=1)),
        ("settle as released", lambda: settle(Transition.RELEASE, None)),
        ("overdue and sweep", sweep),
        ("promote", lambda: store.promote(20)),
    ]


# ---- listening


@asynccontextmanager
async def listening(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heard]:
    """Every statement that the store sends to its database, with its values."""
    heard: Heard = []
    with monkeypatch.context() as patch:
        if store.dialect.name == "sqlite":
            store._connection._db.set_trace_callback(lambda sql: heard.append((sql, ())))  # type: ignore[attr-defined]
            yield heard
            store._connection._db.set_trace_callback(None)  # type: ignore[attr-defined]
        elif store.dialect.name == "postgres":
            send = asyncpg.Connection._execute

            async def listened(self: Any, query: str, args: Sequence[Any], *rest: Any, **more: Any) -> Any:
                heard.append((query, args))
                return await send(self, query, args, *rest, **more)

            patch.setattr(asyncpg.Connection, "_execute", listened)
            yield heard
        else:
            do = store._do  # type: ignore[attr-defined]
            patch.setattr(store, "_do", lambda cursor, statement: do(ListeningCursor(cursor, heard), statement))
            yield heard


class ListeningCursor:
    def __init__(self, cursor: Any, heard: Heard) -> None:
        self._cursor, self._heard = cursor, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    async def execute(self, sql: str, args: Any = None) -> Any:
        self._heard.append((sql, args))
        return await self._cursor.execute(sql, args)


async def full_scans(store: SqlStore, sql: str, args: Sequence[Any]) -> list[str]:
    """What the database's own plan for a statement says about walking through a whole table."""
    if not sql.lstrip().lower().startswith(("select", "insert", "update", "delete", "with")):
        return []
    if store.dialect.name == "sqlite":
        return sqlite_scans(await store.fetch(f"explain query plan {sql}"))
    if store.dialect.name == "postgres":
        async with store._pool.acquire() as connection:  # type: ignore[attr-defined]
            return postgres_scans(json.loads(await connection.fetchval(f"explain (format json) {sql}", *args)))
    async with store._cursor(Blocker()) as (connection, _):  # type: ignore[attr-defined]
        cursor = connection.cursor()
        await cursor.execute(f"explain {sql}", args)
        return mariadb_scans(await cursor.fetchall())


ALIASES = {"l": "live", "r": "runs", "t": "tasks", "c": "cursors"}


def sqlite_scans(rows: Sequence[Sequence[Any]]) -> list[str]:
    """`SCAN live`; a walk along an index that holds just the rows in question, in order, is none."""
    found = []
    for row in rows:
        words = str(row[3]).split()
        if words[0] == "SCAN" and ALIASES.get(words[1], words[1]) in BIG and "live_" not in row[3]:
            found.append(str(row[3]))
    return found


def postgres_scans(plan: Any) -> list[str]:
    found = []
    if isinstance(plan, list):
        return [scan for part in plan for scan in postgres_scans(part)]
    for value in plan.values():
        if isinstance(value, list | dict):
            found += [scan for part in (value if isinstance(value, list) else [value])
                      if isinstance(part, dict) for scan in postgres_scans(part)]  # fmt: skip
    relation = plan.get("Relation Name", "")
    if plan.get("Node Type") == "Seq Scan" and relation.split("_")[0] in BIG:
        found.append(f"Seq Scan on {relation} ({plan['Plan Rows']} rows)")
    return found


def mariadb_scans(rows: Sequence[Sequence[Any]]) -> list[str]:
    """By what it says, and only where it means many rows: it scans small tables by choice."""
    found = []
    for row in rows:
        table, type_, key, estimate = row[2], row[3], row[5], row[8]
        if type_ in ("ALL", "index") and table != "v" and int(estimate or 0) > FILL // 8:
            found.append(f"{type_} of {table} by {key} ({estimate} rows)")
    return found


async def scans_by_step(store: SqlStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, step in await hot_steps(store, clock):
        async with listening(store, monkeypatch) as heard:
            await step()
        assert heard, f"{name} was not heard"
        for sql, args in dict.fromkeys((sql, tuple(args or ())) for sql, args in heard if hashable(args)) or heard:
            for scan in await full_scans(store, sql, args):
                found.setdefault(name, []).append(f"{scan}: {' '.join(sql.split())[:300]}")
    return found


def hashable(args: Any) -> bool:
    try:
        hash(tuple(args or ()))
    except TypeError:
        return False
    return True


# ---- the tests


PLACES = {"sqlite": None, "postgres": "postgres_url", "mariadb": "mysql_url"}


@pytest.fixture(params=PLACES)
def plans_url(request: pytest.FixtureRequest) -> str:
    """SQLite without a file: the same connection can be listened to and asked for its plans."""
    fresh = PLACES[request.param]
    return "memory://" if fresh is None else str(request.getfixturevalue(fresh))


async def test_hot_statements_walk_through_no_table_that_is_full(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store)
    await analyse(store)
    found = await scans_by_step(store, clock, monkeypatch)
    assert not found, "\n".join(f"{name}: {scan}" for name, scans in found.items() for scan in scans)


async def test_figures_from_when_the_tables_were_empty_mislead_no_hot_statement(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """Empty is what a queue usually is when the database counts its rows; then the burst comes."""
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    for _, step in await hot_steps(store, clock):
        await step()
    await analyse(store)
    await fill(store)
    found = await scans_by_step(store, clock, monkeypatch)
    assert not found, "\n".join(f"{name}: {scan}" for name, scans in found.items() for scan in scans)


async def test_the_switch_that_stops_every_start_costs_no_statement(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """Claims, planning and promotion look at it inside the statement with which they look for work."""
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    looked: set[str] = set()
    for name, step in await hot_steps(store, clock):
        async with listening(store, monkeypatch) as heard:
            await step()
        texts = [" ".join(sql.split()) for sql, _ in heard]
        with_switch = [text for text in texts if "installation_pauses" in text]
        assert [text for text in with_switch if not re.search(r"\b(queues|cursors|live)\b", text)] == [], name
        looked |= {name} if with_switch else set()
    assert any("claim" in name for name in looked)
    assert any("plan" in name for name in looked)


FOLLOWING = {"edges", "joins", "join_runs"}


async def fill_joins(store: SqlStore, followed: int, follower: int) -> None:
    """Thousands of edges of other tasks, and of joins that are over and that are open."""

    def work(_: Any) -> Work[None]:
        numbers = range(1, FILL + 1)
        edges = [(10_000_000 + n, 20_000_000 + n, "success", 1, START) for n in numbers]
        yield InsertMany("edges", ("upstream_id", "task_id", "outcome", "version", "saved_at"), edges)
        columns = ("id", "task_id", "root", "edge_version", "redrive", "state", "first_at", "due_at", "scheduled_time")
        far = START + 10**12
        joins = [(n, follower, f"slot:{n}", 1, 0, "open" if n % 2 else "done", START, far if n % 2 else None, START)
                 for n in numbers]  # fmt: skip
        yield InsertMany("joins", columns, joins)
        arrivals = [(n, followed, n, "SUCCESS", 1) for n in numbers]
        yield InsertMany("join_runs", ("join_id", "upstream_id", "run_id", "status", "fills"), arrivals)

    await store._write(work)


async def test_what_follows_a_run_is_found_by_indexes(plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.BIG", BIG | FOLLOWING)
    monkeypatch.setattr(f"{__name__}.ALIASES", {**ALIASES, "e": "edges", "j": "joins", "a": "join_runs"})
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store)
    a, b = await create_many(store, [job(name, queue="ours") for name in "ab"])
    after = After(tasks=(Upstream(task=a.id), Upstream(task=b.id)), within_seconds=60)
    load = await store.create_task(job("load", after=after))
    await fill_joins(store, a.id, load.id)
    await analyse(store)
    for task in (a, b, a):
        await store.publish([Publication(task_id=task.id, origin=Origin.BACKFILL, scheduled_time=START)])
    leases = (await store.claim(ClaimRequest(worker_id="w", queues=("ours",), max=10))).leases
    found: list[str] = []
    async with listening(store, monkeypatch) as heard:
        for lease in leases:
            await store.settle([success(lease)])
        clock.advance(61)
        await store.due_sweeps()
        await store.sweep_joins(10)
        await store.joins(load.id, f"slot:{START}")
        await store.joins_of_run(leases[0].run_id)
        await store.followers(a.id)
        await store.runs_by_id([lease.run_id for lease in leases])
    for sql, args in heard:
        found += [f"{scan}: {' '.join(sql.split())[:300]}" for scan in await full_scans(store, sql, args)]
    assert len(await store.joins(load.id, f"slot:{START}")) == 2
    assert found == []


KEYED = {"run_keys", "keyed_runs"}


async def fill_keys(store: SqlStore) -> tuple[Task, list[Lease]]:
    """Thousands of keys with a run each, and thousands of runs behind one more."""
    (task,) = await create_many(store, [job("keyed", queue="ours", concurrency_key="payload.tenant")])
    tenants = ["heavy"] * FILL + [f"t{number}" for number in range(FILL)]
    for start in range(0, len(tenants), 1_000):
        part = tenants[start : start + 1_000]
        await store.publish([Publication(task_id=task.id, payload={"tenant": tenant}) for tenant in part])
    return task, (await store.claim(ClaimRequest(worker_id="w", queues=("ours",), max=5))).leases


async def test_runs_with_keys_are_published_claimed_and_settled_by_indexes(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"{__name__}.BIG", BIG | KEYED | {"run", "keyed"})
    monkeypatch.setattr(f"{__name__}.ALIASES", {**ALIASES, "k": "run_keys"})
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store)
    task, leases = await fill_keys(store)
    await analyse(store)
    later = Publication(task_id=task.id, payload={"tenant": "heavy"}, delay_seconds=1)
    async with listening(store, monkeypatch) as heard:
        await store.publish([Publication(task_id=task.id, payload={"tenant": "heavy"}, priority=1), later])
        await store.settle([success(lease) for lease in leases[:3]])
        await store.settle([retried(lease) for lease in leases[3:]])
        await store.claim(ClaimRequest(worker_id="w", queues=("ours",), max=5))
        clock.advance(2)
        await store.promote(10)
        await store.due_sweeps()
        await store.sweep_keys(10)
        lines = await store.key_lines(task.id)
    assert [line.key for line in lines] == ["heavy"]
    found = []
    for sql, args in heard:
        found += [f"{scan}: {' '.join(sql.split())[:300]}" for scan in await full_scans(store, sql, args)]
    assert found == []


def retried(lease: Lease) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id=lease.worker_id,
        transition=Transition.RETRY,
        status=RunStatus.FAILED,
        delay_seconds=1,
    )


async def test_a_run_without_a_key_costs_no_statement_about_keys(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    for _, step in await hot_steps(store, clock):
        async with listening(store, monkeypatch) as heard:
            await step()
        assert not [sql for sql, _ in heard if any(table in sql for table in KEYED)]


@pytest.mark.parametrize("behind", [5, 5_000])
async def test_a_claim_is_as_many_statements_however_many_wait_behind_a_key(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch, behind: int
):
    store = await opened(plans_url, clock=ManualClock(START))
    (task,) = await create_many(store, [job("keyed", concurrency_key="payload.tenant")])
    wanted = [Publication(task_id=task.id, payload={"tenant": "heavy"}) for _ in range(behind)]
    for start in range(0, behind, 1_000):
        await store.publish(wanted[start : start + 1_000])
    await store.publish([Publication(task_id=task.id, payload={"tenant": f"t{number}"}) for number in range(20)])
    await claim(store, "w", 1)
    async with listening(store, monkeypatch) as heard:
        leases = await claim(store, "w", 10)
    assert len(leases) == 10
    about_keys = [sql for sql, _ in heard if any(table in sql for table in KEYED)]
    assert about_keys == []


async def test_postgres_claims_and_settles_runs_behind_limits_by_one_statement_each(
    postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(postgres_url)
    tasks = await create_many(store, [job(f"limited {n}", max_concurrency=1) for n in range(3)])
    tasks += await create_many(store, [job("free")])
    for is_first in (True, False):
        for task in tasks:
            await publish_many(store, task, 2)
        async with listening(store, monkeypatch) as heard:
            leases = await claim(store, "w", 4)
        assert [lease.counted for lease in leases].count(True) == 3
        assert is_first or len(heard) == 1, heard  # the first one has to find the gates, and to learn the tasks
        async with listening(store, monkeypatch) as heard:
            await store.settle([success(lease) for lease in leases])
        assert len(heard) == 1, heard
    assert await store.recount() == 0


async def test_connections_to_postgres_plan_every_statement_anew(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    for _ in range(10):
        assert await store.fetch("show plan_cache_mode") == [("force_custom_plan",)]


async def test_a_plan_that_postgres_keeps_from_an_empty_queue_suits_a_full_one(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    (task,) = await create_many(store, [job("work")])
    await publish_many(store, task, 1)
    for _ in range(5):
        await claim(store, "w", 4)
    await publish_many(store, task, 4_000)
    assert isinstance(store, PostgresStore)
    assert store._keeping_plans is not None
    async with store._keeping_plans.acquire() as connection:
        kept = await connection.fetch(
            "select name from pg_prepared_statements where statement like '%delete from live_ready%' and generic_plans > 1"
        )
        assert len(kept) == 1
        arguments = "array['default'], 4, 'w', null, null, 1"
        lines = await connection.fetch(f"explain (costs off) execute {kept[0][0]} ({arguments})")
    plan = "\n".join(str(line[0]) for line in lines)
    assert "Index Scan using live_ready_order on live_ready" in plan, plan
    assert "Bitmap" not in plan, plan


async def test_the_plan_of_a_settle_with_a_claim_that_is_kept_finds_each_row_by_its_key(
    postgres_url: str, opened: Open
):
    store = await opened(postgres_url)
    (task,) = await create_many(store, [job("work")])
    await execute(store, "analyze")
    for _ in range(3):
        await publish_many(store, task, 2)
        request = ClaimRequest(worker_id="w", queues=("default",), max=1)
        (lease,) = (await store.claim(request)).leases
        answers, claimed = await store.settle_and_claim([success(lease)], request)
        assert answers == [SettleResult.DONE]
        await store.settle([success(one) for one in claimed.leases])
    assert isinstance(store, PostgresStore)
    assert store._keeping_plans is not None
    async with store._keeping_plans.acquire() as connection:
        (kept,) = await connection.fetch(
            "select name, cardinality(parameter_types) from pg_prepared_statements"
            " where statement like 'with now%delete from live_leased%delete from live_ready%'"
        )
        # Statistics say that all of these tables are empty, or nearly so: no plan is better by them than any other.
        arguments = ["array['default']", "4", "'w'", *["null"] * (kept[1] - 3)]
        lines = await connection.fetch(f"explain (costs off) execute {kept[0]} ({', '.join(arguments)})")
    plan = "\n".join(str(line[0]) for line in lines)
    for scan in ("live_leased_run on live_leased", "inputs_pkey on inputs"):
        assert f"Index Scan using {scan}" in plan, plan
    # Of a settlement and of a claim: in each partition by the primary key, also in those that are still empty.
    scans = re.findall(r"Index Scan using (\w+) on runs_(\w+)", plan)
    assert len(scans) == 2 * len({part for _, part in scans}) >= 6, plan
    assert all(index == f"runs_{part}_pkey" for index, part in scans), plan
    for scan in ("Seq Scan", "Bitmap", "Hash Join", "Merge Join", "Materialize"):
        assert scan not in plan, plan


async def test_what_is_written_by_a_plan_that_is_kept_is_as_durable_as_the_rest(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    assert store._keeping_plans is not None
    async with store._keeping_plans.acquire() as connection:
        kept = await connection.fetchval("show synchronous_commit")
    assert [(kept,)] == await store.fetch("show synchronous_commit")


def chain(length: int) -> tuple[StepOfFlow, ...]:
    needs: list[tuple[str, ...]] = [(), *((f"s{number}",) for number in range(length - 1))]
    return tuple(
        StepOfFlow(id=f"s{number}", needs=need, job_type="work", payload={}) for number, need in enumerate(needs)
    )


async def test_every_plan_that_is_kept_for_steps_of_flows_finds_each_row_by_its_key(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    await execute(store, "analyze")
    task = await store.create_task(TaskSpec(name="flow", steps=chain(6), queue="default"))
    await store.publish([Publication(task_id=task.id)])
    request = ClaimRequest(worker_id="w", queues=("default",), max=10)
    leases = (await store.claim(request)).leases
    while leases:
        answers, claimed = await store.settle_and_claim([success(lease) for lease in leases], request)
        assert answers == [SettleResult.DONE]
        leases = claimed.leases
    await expect_kept_plans_by_key(store, ("flow_steps", "live_leased", "live_rest"), 2)


async def expect_kept_plans_by_key(store: SqlStore, tables: Sequence[str], least: int) -> None:
    """`least` of the statements about `tables`, or more, have a plan that is kept, and none of them walks through a table."""
    assert isinstance(store, PostgresStore)
    assert store._keeping_plans is not None
    looked_at = 0
    async with store._keeping_plans.acquire() as connection:
        kept = await connection.fetch(
            "select name, statement, cardinality(parameter_types) from pg_prepared_statements where generic_plans > 1"
        )
        for name, statement, count in kept:
            arguments = f"({', '.join(['null'] * count)})" if count else ""
            lines = await connection.fetch(f"explain (costs off) execute {name}{arguments}")
            plan = "\n".join(str(line[0]) for line in lines)
            looked_at += any(table in statement for table in tables)
            for scan in ("Seq Scan", "Bitmap", "Hash Join", "Merge Join"):
                assert scan not in plan, f"{statement}\n{plan}"
    assert looked_at >= least


async def test_every_plan_that_is_kept_for_runs_with_a_key_finds_each_row_by_its_key(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    await execute(store, "analyze")
    (task,) = await create_many(store, [job("keyed", concurrency_key="payload.tenant")])
    tenants = ["heavy"] * 60 + [f"t{number % 3}" for number in range(12)]
    await store.publish([Publication(task_id=task.id, payload={"tenant": tenant}) for tenant in tenants])
    request = ClaimRequest(worker_id="w", queues=("default",), max=10)
    leases = (await store.claim(request)).leases
    rounds = []
    while leases:
        rounds.append(len(leases))
        assert all(lease.keyed for lease in leases)
        answers, claimed = await store.settle_and_claim([success(lease) for lease in leases], request)
        assert set(answers) == {SettleResult.DONE}
        leases = claimed.leases
    assert rounds == [4] * 4 + [1] * 56  # what a settlement lets in is claimed with it
    await expect_kept_plans_by_key(store, ("keyed_runs", "run_keys", "live_leased", "live_rest"), 8)


async def test_runs_with_a_key_are_settled_and_the_next_ones_claimed_by_few_statements(
    postgres_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(postgres_url)
    (task,) = await create_many(store, [job("keyed", concurrency_key="payload.tenant")])
    request = ClaimRequest(worker_id="w", queues=("default",), max=100)
    most = []
    for keys in (1, 20):
        tenants = [f"t{number % keys}" for number in range(keys * 5)]
        await store.publish([Publication(task_id=task.id, payload={"tenant": tenant}) for tenant in tenants])
        leases = (await store.claim(request)).leases
        trips = []
        while leases:
            assert len(leases) == keys
            async with listening(store, monkeypatch) as heard:
                answers, claimed = await store.settle_and_claim([success(lease) for lease in leases], request)
            assert set(answers) == {SettleResult.DONE}
            leases = claimed.leases
            trips.append(len(heard))
        most.append(max(trips[1:-1]))  # the first learns the task, the last ends the lines
    assert most == [12, 12]


async def test_a_step_of_a_chain_costs_few_statements_and_many_chains_cost_no_more(postgres_url: str, opened: Open):
    store = await opened(postgres_url)
    assert isinstance(store, PostgresStore)
    sent: list[str] = []
    do = store._do

    async def counted(connection: Any, statement: Any) -> Any:
        if not isinstance(statement, NewIds | Now):
            sent.append(type(statement).__name__)
        return await do(connection, statement)

    store._do = counted  # type: ignore[method-assign]
    task = await store.create_task(TaskSpec(name="flow", steps=chain(5), queue="default", max_concurrency=None))
    request = ClaimRequest(worker_id="w", queues=("default",), max=100)
    most = []
    for flows in (1, 40):
        await store.publish([Publication(task_id=task.id)] * flows)
        leases = (await store.claim(request)).leases
        trips = []
        while leases:
            assert len(leases) == flows
            sent.clear()
            answers, claimed = await store.settle_and_claim([success(lease) for lease in leases], request)
            assert set(answers) == {SettleResult.DONE}
            leases = claimed.leases
            trips.append(len(sent))
        most.append(max(trips[1:-1]))  # the first learns the version, the last ends the flows
    assert most == [2, 2]
