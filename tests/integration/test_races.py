"""Many processes on one database, some of them killed: nothing is lost, nothing is doubled, no limit is passed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from integration.conftest import Open
from integration.crew import success
from integration.support import (
    Crew,
    create_many,
    every_second,
    facts_of,
    job,
    most_at_once,
    publish_many,
    until,
)
from noonbell.clock import SECOND, Instant, ManualClock, SystemClock
from noonbell.model.request import Canceled, ClaimRequest, Publication, PublishOutcome, TaskChange
from noonbell.model.run import Lease, Precondition, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import RateLimit, TaskStatus
from noonbell.stores.sql.store import SqlStore
from services.size import size

pytestmark = pytest.mark.slow

S = RunStatus
RUNS = size(5_000, 20_000)
TASKS, SLOTS, BATCH = size(400, 2_000), 20, size(10, 50)
RACED = size(100, 300)
RATED_SECONDS = size(6, 20)


# ---- claim and settle


@pytest.mark.longer
async def test_killed_workers_lose_no_run_and_double_none(server_url: str, opened: Open, crew: Crew):
    store = await opened(server_url)
    task = await store.create_task(job("work", worker_timeout_ms=1_500, max_lost=100))
    ids = await publish_many(store, task, RUNS)
    members = crew.start("work", 8, url=server_url, batch=60)
    line = len(f"done {ids[0]} {10**15}\n")
    interrupted = 0

    async def leases_of(worker: str) -> int:
        return int((await store.fetch("select count(*) from live where worker_id = :worker", worker=worker))[0][0])

    for part, replaced in ((0.2, True), (0.5, False)):
        await until(lambda part=part: crew.written() > part * line * RUNS, 60, f"{part:.0%} of the runs to be done")
        await asyncio.sleep(random.random() * 0.05)  # any moment of a claim or settle
        victim = members.pop(random.randrange(len(members)))
        victim.kill()
        interrupted += await leases_of(victim.name)
        if replaced:
            members += crew.start("work", 1, url=server_url, batch=60)
    zombie = random.choice(members)
    zombie.freeze()

    async def has_lost_its_leases() -> bool:
        return await leases_of(zombie.name) == 0

    with contextlib.suppress(AssertionError):  # frozen inside a transaction, it keeps its rows until it thaws
        await until(has_lost_its_leases, 3, "its leases to be taken back")
    zombie.thaw()
    await crew.finish(members, 60)

    told = Counter(int(line[1]) for line in crew.lines() if line[0] == SettleResult.DONE)
    assert max(told.values()) == 1, "a run was settled twice"
    assert len(told) >= RUNS - 2 * 60, "more settlements unheard of than two killed processes can have had in hand"
    assert set(told) <= set(ids)
    assert await store.fetch("select status, count(*) from runs group by status") == [(S.SUCCESS, RUNS)]
    assert (await store.fetch("select count(*) from live"))[0][0] == 0
    assert (await store.fetch("select count(*) from runs where attempt <> lost_count + 1"))[0][0] == 0
    swept = sum(line[0] == "swept" for line in crew.lines())
    lost = (await store.fetch("select coalesce(sum(lost_count), 0) from runs"))[0][0]
    assert lost >= swept
    assert lost > 0 or not interrupted, "what the killed ones had in hand was taken back"
    assert (await store.fetch("select count(*) from attempts where status = 'LOST'"))[0][0] == lost
    facts = await facts_of(store, "run.succeeded", "run.scheduled", "run.lost")
    assert facts["run.succeeded"] == facts["run.scheduled"] == Counter(ids)
    assert facts["run.lost"].total() == lost


# ---- planning


async def tasks_in_arrears(store: SqlStore, count: int) -> Instant:
    """So many tasks, each with SLOTS slots that are due and none after; the instant before the first slot."""
    assert isinstance(store._clock, ManualClock)
    since = store._clock.now()
    schedule = every_second(since, repeat=SLOTS)
    await create_many(store, [job(f"t{n}", schedule=schedule) for n in range(count)])
    return since


async def check_slots(store: SqlStore, since: int, tasks: int) -> None:
    rows = await store.fetch(
        "select task_id, count(*), count(distinct slot), min(slot), max(slot) from runs group by task_id"
    )
    assert len(rows) == tasks
    expected = (SLOTS, SLOTS, since + SECOND, since + SLOTS * SECOND)
    assert {tuple(row[1:]) for row in rows} == {expected}, "a slot was lost or doubled"
    completed = (
        "select count(*) from tasks t join cursors c on c.task_id = t.id where c.fired = :fired and status = :status"
    )
    found = await store.fetch(completed, fired=SLOTS, status=str(TaskStatus.COMPLETED))
    assert found[0][0] == tasks
    facts = await facts_of(store, "run.scheduled")
    assert len(facts["run.scheduled"]) == facts["run.scheduled"].total() == tasks * SLOTS
    assert await store.recount() == 0


@pytest.fixture
def long_ago() -> ManualClock:
    now = SystemClock().now()
    return ManualClock(Instant(now - now % SECOND - 3600 * SECOND))


@pytest.mark.longer
async def test_four_planners_make_one_run_of_each_slot(
    server_url: str, opened: Open, crew: Crew, long_ago: ManualClock
):
    store = await opened(server_url, clock=long_ago)
    since = await tasks_in_arrears(store, TASKS)
    planners = crew.start("plan", 4, url=server_url, batch=BATCH)
    await crew.finish(planners, 60)
    assert sum(int(line[1]) for line in crew.lines()) == TASKS * SLOTS
    assert sum(bool(planner.lines()) for planner in planners) > 1, "they did not share the work"
    await check_slots(store, since, TASKS)


@pytest.mark.longer
async def test_a_planner_that_is_killed_loses_no_slot_and_doubles_none(
    server_url: str, opened: Open, crew: Crew, long_ago: ManualClock
):
    store = await opened(server_url, clock=long_ago)
    since = await tasks_in_arrears(store, TASKS)
    planners = crew.start("plan", 4, url=server_url, batch=BATCH)
    line = len(f"born {BATCH * SLOTS}\n")
    for part, replaced in ((0.2, True), (0.5, False)):
        passes = part * TASKS / BATCH
        await until(lambda passes=passes: crew.written() >= passes * line, 60, f"{passes} passes")
        await asyncio.sleep(random.random() * 0.02)
        planners.pop(random.randrange(len(planners))).kill()
        if replaced:
            planners += crew.start("plan", 1, url=server_url, batch=BATCH)
    await crew.finish(planners, 60)
    await check_slots(store, since, TASKS)


# ---- limits


@pytest.mark.longer
@pytest.mark.timeout(450)
async def test_fifty_claimers_never_hold_more_runs_of_a_task_than_it_allows(server_url: str, opened: Open, crew: Crew):
    store = await opened(server_url)
    many, few = size(100, 2_000), size(20, 300)
    three = await store.create_task(job("three", max_concurrency=3))
    one = await store.create_task(job("one", max_concurrency=1))
    ids = {three.id: await publish_many(store, three, many), one.id: await publish_many(store, one, few)}
    members = crew.start("take_turns", 5, url=server_url, claimers=10, connections=10, pause=0.4)
    await crew.finish(members, 400)

    assert {line[0] for line in crew.lines()} == {SettleResult.DONE}
    held: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for _, task_id, _, taken, given in crew.lines():
        held[int(task_id)].append((int(taken), int(given)))
    assert most_at_once(held[three.id]) == 3, "as the claimers saw it"
    assert most_at_once(held[one.id]) == 1, "as the claimers saw it"
    for task, limit in ((three, 3), (one, 1)):
        rows = await store.fetch(
            "select start_time, run_at, id, end_time from runs where task_id = :task order by start_time, run_at, id",
            task=task.id,
        )
        assert most_at_once((row[0], row[3]) for row in rows) == limit, "as the store saw it"
        assert sorted(row[2] for row in rows) == ids[task.id]
        assert [tuple(row[1:3]) for row in rows] == sorted(tuple(row[1:3]) for row in rows), "not first in, first out"
    assert await store.fetch("select status, count(*) from runs group by status") == [(S.SUCCESS, many + few)]
    assert await store.recount() == 0


@pytest.mark.longer
async def test_a_rate_of_a_hundred_a_second_is_kept_and_used_by_four_processes(
    server_url: str, opened: Open, crew: Crew
):
    store = await opened(server_url)
    task = await store.create_task(job("rated", rate_limit=RateLimit(max=100, per_seconds=1)))
    await publish_many(store, task, 100 * RATED_SECONDS + 600)
    members = crew.start("keep_the_rate", 4, url=server_url, seconds=RATED_SECONDS)
    await crew.finish(members, 40)

    rows = await store.fetch("select start_time from runs where start_time is not null order by start_time")
    starts = [int(row[0]) for row in rows]
    most = max(bisect_right(starts, start + SECOND) - place for place, start in enumerate(starts))
    assert most <= 100, f"{most} starts in a second"
    steady = [start for start in starts if starts[0] + SECOND <= start <= starts[-1] - 2 * SECOND]
    assert steady[-1] - steady[0] > (RATED_SECONDS - 5) * SECOND
    sums = [bisect_left(starts, start + SECOND) - bisect_right(starts, start) for start in steady]
    if os.environ.get("NOONBELL_TEST_QUIET"):
        # How much of the limit is used depends on who else wants the processors: `make faults` asks for a quiet machine.
        few = sum(n < 90 for n in sums)
        assert min(sums) >= 90, f"only {min(sums)} starts in a second, {few} of {len(sums)} stretches"
    shared = await store.fetch("select worker_id, count(*) from runs where start_time is not null group by worker_id")
    assert len(shared) > 1


async def test_a_claim_keeps_the_gate_that_its_own_settlement_holds(server_url: str, opened: Open):
    """Another claim that finds the gate held must leave nothing behind that keeps the holder itself away from it."""
    store, other = await opened(server_url), await opened(server_url)
    task = await store.create_task(job("two", max_concurrency=2))
    first, second = await publish_many(store, task, 2)
    (lease,) = (await store.claim(ask("w1", 1))).leases
    assert lease.run_id == first
    counted, looked, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def after_counting(statement: object) -> None:
        if getattr(statement, "table", "") == "gates" and not counted.is_set():
            counted.set()
            await soon(looked)

    async def after_looking(statement: object) -> None:
        sql = getattr(statement, "sql", "")
        if "from gates" in sql and "skip locked" in sql and not looked.is_set():
            looked.set()
            await soon(ended)

    watch(store, after_counting)
    watch(other, after_looking)
    holder = asyncio.create_task(store.settle_and_claim([success(lease)], ask("w1", 1)))
    await soon(counted)
    late = asyncio.create_task(other.claim(ask("w2", 1)))
    late.add_done_callback(lambda _: looked.set())
    answers, claimed = await asyncio.wait_for(holder, 60)
    ended.set()
    leases = claimed.leases + (await asyncio.wait_for(late, 60)).leases
    assert answers == [SettleResult.DONE]
    assert [lease.run_id for lease in leases] == [second], "both went away with nothing, and there is room"


async def soon(event: asyncio.Event) -> None:
    """Wait for it, but not for ever: whether it comes at all is the store's business."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), 2)


@pytest.mark.parametrize("keyed", [False, True], ids=["the short way", "with a key"])
async def test_more_callers_than_connections_do_not_wait_for_each_other_for_ever(
    server_url: str, opened: Open, keyed: bool
):
    store = await opened(server_url)
    task = await store.create_task(job("crowd"))
    store._ids._block.drop()  # type: ignore[attr-defined]  # as after two idle seconds: all of them need fresh ids
    wanted = [Publication(task_id=task.id, key=f"k{n}" if keyed else None) for n in range(50)]
    calls = [asyncio.create_task(store.publish([one])) for one in wanted]
    done, waiting = await asyncio.wait(calls, timeout=10)
    for call in waiting:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(done) == 50, f"{len(waiting)} calls wait for a connection that others hold"


def ask(worker: str, count: int = 10) -> ClaimRequest:
    return ClaimRequest(worker_id=worker, queues=("default",), max=count)


def watch(store: SqlStore, after: Callable[[object], Awaitable[None]]) -> None:
    """Call `after` when a statement has been answered, with its transaction still open."""
    do = store._do  # type: ignore[attr-defined]

    async def watched(connection: Any, statement: Any) -> Any:
        answer = await do(connection, statement)
        await after(statement)
        return answer

    store._do = watched  # type: ignore[attr-defined]


# ---- many callers about the same thing


async def test_a_key_published_from_many_connections_at_once_makes_one_run(server_url: str, opened: Open):
    stores = await asyncio.gather(*(opened(server_url) for _ in range(4)))
    task = await stores[0].create_task(job("keyed"))
    for number in range(30):
        same = [Publication(task_id=task.id, key=f"k{number}"), Publication(task_id=task.id, key=f"other{number}")]
        calls = [
            store.publish(random.sample(same, 2) if with_other else same[:1])
            for store in stores
            for with_other in (True, False, True)
        ]
        answers = [one for answer in await asyncio.gather(*calls) for one in answer]
        assert {answer.outcome for answer in answers} == {PublishOutcome.CREATED, PublishOutcome.EXISTS}
        assert sum(answer.outcome is PublishOutcome.CREATED for answer in answers) == 2
        assert len({answer.run_id for answer in answers}) == 2
    rows = await stores[0].fetch('select "key", count(*) from runs group by "key"')
    assert len(rows) == 60
    assert {row[1] for row in rows} == {1}


@pytest.mark.longer
@pytest.mark.parametrize("limit", [None, 400], ids=["free", "gated"])
async def test_of_a_cancel_and_a_settlement_and_a_sweep_exactly_one_ends_the_run(
    server_url: str, opened: Open, limit: int | None
):
    one, two = await opened(server_url), await opened(server_url)
    task = await one.create_task(job("raced", max_concurrency=limit, worker_timeout_ms=1))
    ids = await publish_many(one, task, RACED)
    leases = (await one.claim(ask("w", RACED))).leases
    assert len(leases) == RACED
    turns = asyncio.Semaphore(4)

    async def race(lease: Lease) -> None:
        """The lease has run out already, so the sweep may have it as well."""
        lost = Settlement(
            run_id=lease.run_id, token=lease.token, transition=Transition.LOSE, precondition=Precondition.EXPIRED
        )
        calls: list[Awaitable[Any]] = [
            one.settle([success(lease)]),
            two.cancel([lease.run_id]),
            two.heartbeat("w", [(lease.run_id, lease.token)]),
            one.settle([lost]),
            two.settle([success(lease)]),
        ]
        random.shuffle(calls)
        async with turns:
            answers = await asyncio.gather(*calls)
        flat = [answer[0] for answer in answers if isinstance(answer, list)]
        done = sum(answer is SettleResult.DONE for answer in flat)
        canceled = [answer for answer in flat if isinstance(answer, Canceled)]
        run = await one.run(lease.run_id)
        assert run is not None
        if run.lost_count:  # swept first; then the cancel met a run that waits
            assert done == 1
            assert run.status is S.CANCELED
        else:
            assert done + canceled[0].canceled == 1
            assert run.status is (S.CANCELED if canceled[0].canceled else S.SUCCESS)
        assert canceled[0].status is run.status

    await asyncio.gather(*(race(lease) for lease in leases))
    told = await facts_of(one, "run.succeeded", "run.canceled")
    assert told["run.succeeded"] + told["run.canceled"] == Counter(ids)
    assert await one.recount() == 0
    assert (await one.fetch("select count(*) from live"))[0][0] == 0


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "gated"])
async def test_a_settlement_that_waits_for_a_heartbeat_leaves_nothing_of_the_lease(
    postgres_url: str, opened: Open, limit: int | None
):
    """A renewed lease is another version of its row, which a statement that began before does not see by itself."""
    store = await opened(postgres_url)
    task = await store.create_task(job("renewed", max_concurrency=limit))
    await publish_many(store, task, 1)
    (lease,) = (await store.claim(ask("w", 1))).leases
    renewing = await asyncpg.connect(postgres_url)
    try:
        async with renewing.transaction():
            await renewing.execute("update live set expires_at = expires_at + 1 where run_id = $1", lease.run_id)
            settling = asyncio.create_task(store.settle([success(lease)]))
            waits = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            while not await store.fetch(waits):
                assert not settling.done()
        assert await settling == [SettleResult.DONE]
    finally:
        await renewing.close()
    assert await store.fetch("select run_id from live") == []
    assert await store.recount() == 0


async def test_edits_in_the_middle_of_planning_lose_no_slot_and_double_none(
    server_url: str, opened: Open, long_ago: ManualClock
):
    """Each node plans while others change, disable and enable the same tasks."""
    nodes = [await opened(server_url, clock=long_ago) for _ in range(3)]
    began = long_ago.now()
    tasks = await create_many(nodes[0], [job(f"t{n}", schedule=every_second(began)) for n in range(20)])
    over = False

    async def plan(store: SqlStore) -> None:
        while not over:
            await store.plan(random.randint(1, 30), cap=1_000)
            await asyncio.sleep(0)

    async def change(store: SqlStore, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            task = chance.choice(tasks)
            priority = chance.randint(1, 10**6)
            await store.change_task(
                task.id,
                lambda now, priority=priority: TaskChange(spec=replace(now.spec, priority=priority), status=now.status),
            )
            long_ago.advance(chance.random())

    planners = [asyncio.create_task(plan(store)) for store in nodes]
    await asyncio.gather(*(change(store, seed) for seed, store in enumerate(nodes)))
    over = True
    await asyncio.gather(*planners)
    while (await nodes[0].plan(100, cap=1_000)).tasks:
        pass
    seconds = (long_ago.now() - began) // SECOND
    rows = await nodes[0].fetch("select task_id, count(*), min(slot), max(slot) from runs group by task_id")
    assert {tuple(row[1:]) for row in rows} == {(seconds, began + SECOND, began + seconds * SECOND)}
    assert len(rows) == len(tasks)
    assert sum([task.version - 1 for task in [await nodes[1].task(task.id) for task in tasks] if task]) == 120


async def test_a_call_that_is_canceled_midway_disturbs_no_other(server_url: str, opened: Open):
    """An answer that nobody waits for any longer must not reach the next user of its connection."""
    store = await opened(server_url)
    task = await store.create_task(job("canceled"))
    others = await create_many(store, [job(f"o{n}") for n in range(20)])
    chance = random.Random(7)

    async def call(number: int) -> None:
        kind = number % 4
        if kind == 0:
            wanted = chance.choice(others)
            found = await store.task(wanted.id)
            assert found is not None
            assert found.name == wanted.name, "somebody else's answer"
        elif kind == 1:
            echo = f"echo {number}"
            assert await store.fetch(f"select '{echo}'") == [(echo,)], "somebody else's answer"
        elif kind == 2:
            (answer,) = await store.publish([Publication(task_id=task.id, key=f"key {number}")])
            run = await store.run(answer.run_id)  # type: ignore[arg-type]
            assert run is not None
            assert run.key == f"key {number}", "somebody else's answer"
        else:
            for lease in (await store.claim(ask(f"w{number}", 2))).leases:
                assert lease.worker_id == f"w{number}", "somebody else's answer"
                assert await store.settle([success(lease)]) == [SettleResult.DONE]

    async def one(number: int) -> str:
        work = asyncio.create_task(call(number))
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.06)
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            return "canceled"
        return "answered"

    outcomes: Counter[str] = Counter()
    for start in range(0, 400, 40):
        outcomes += Counter(await asyncio.wait_for(asyncio.gather(*(one(start + n) for n in range(40))), 60))
    assert min(outcomes["canceled"], outcomes["answered"]) > 40, outcomes
    echoes = await asyncio.wait_for(asyncio.gather(*(store.fetch(f"select {n}") for n in range(50))), 60)
    assert echoes == [[(n,)] for n in range(50)], "the pool survives"
    rows = await store.fetch('select "key", count(*) from runs group by "key" having count(*) > 1')
    assert rows == []
    assert await store.recount() == 0
