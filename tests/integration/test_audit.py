"""`noonbell audit` on stores that are sound, and on stores that somebody has broken: each kind of flaw is found.

The rows are broken behind the store's back, as a bug or a hand in the database would.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from conformance.store.builders import START, after_each, at, claim, claim_one, done, every, finish, http, job
from integration.conftest import Open
from noonbell.cli import main
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.access import AuditAction
from noonbell.model.account import InconsistencyKind
from noonbell.model.task import MisfirePolicy, Task
from noonbell.service.audit_log import AuditLog
from noonbell.service.consistency import ConsistencyReport, audit, check_log
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.store import SqlStore


async def execute(store: SqlStore, sql: str, **params: Any) -> None:
    def work(_: TaskView) -> Work[None]:
        yield Execute(sql, params)

    await store._write(work)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(opened: Open, sql_url: str, clock: ManualClock) -> SqlStore:
    return await opened(sql_url, clock=clock)


async def lived(store: SqlStore, clock: ManualClock, **fields: Any) -> Task:
    """A task with ten slots behind it, each carried out."""
    task = await store.create_task(job("j", schedule=every(10), **fields))
    for number in range(1, 11):
        clock.set(at(10 * number))
        await store.plan(10)
        for lease in await claim(store):
            await done(store, finish(lease))
    return task


async def flaws(store: SqlStore) -> list[InconsistencyKind]:
    return [flaw.kind for flaw in (await audit(store)).flaws]


async def test_a_sound_store_has_no_flaws(store: SqlStore, clock: ManualClock):
    await lived(store, clock)
    gated = await store.create_task(http("h", schedule=every(5)))
    once_more = await store.create_task(job("d", schedule=after_each(7)))
    clock.set(at(125))
    await store.plan(10)
    await claim(store)
    await store.delete_task(gated.id)
    report = await audit(store)
    assert report.flaws == []
    assert (report.tasks, report.holes, report.doubles, report.others) == (3, 0, 0, 0)
    assert report.slots == 12 + 5 + 1
    assert once_more.id == 3


async def test_a_lost_row_is_a_hole(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    await execute(store, "delete from runs where task_id = :task and slot = :slot", task=task.id, slot=at(50))
    report = await audit(store)
    assert (report.holes, report.doubles, [flaw.kind for flaw in report.flaws]) == (1, 0, [InconsistencyKind.HOLE])
    assert "2026-01-01T10:00:50Z" in report.flaws[0].message


async def test_a_cursor_that_jumped_ahead_leaves_a_hole(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    await execute(store, "update cursors set next_fire_at = :at where task_id = :task", task=task.id, at=at(140))
    clock.set(at(145))
    await store.plan(10)
    report = await audit(store)
    assert (report.holes, report.doubles) == (3, 0)


async def test_a_slot_that_ran_and_was_dropped_is_a_double(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    await execute(
        store,
        "insert into dropped (task_id, first, last, count, reason, at) values (:task, :at, :at, 1, 'misfire', :at)",
        task=task.id,
        at=at(30),
    )
    report = await audit(store)
    assert (report.holes, report.doubles) == (0, 1)


async def test_a_range_that_counts_too_few_is_a_hole(store: SqlStore, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), misfire_policy=MisfirePolicy.FIRE_ONCE))
    clock.set(at(100))
    await store.plan(10)
    assert await flaws(store) == []
    await execute(store, "update dropped set count = count - 2 where task_id = :task", task=task.id)
    assert (await audit(store)).holes == 2


async def test_a_run_of_what_is_no_slot_is_told(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    await execute(
        store, "update runs set slot = :new where task_id = :task and slot = :old", task=task.id, new=at(51), old=at(50)
    )
    assert sorted(await flaws(store)) == [InconsistencyKind.HOLE, InconsistencyKind.STRAY]


async def test_a_run_from_before_the_task_is_told(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    await execute(
        store,
        "update runs set slot = :new where task_id = :task and slot = :old",
        task=task.id,
        new=at(-50),
        old=at(50),
    )
    assert sorted(await flaws(store)) == [InconsistencyKind.HOLE, InconsistencyKind.STRAY]


async def test_what_retention_removed_is_no_hole_and_what_somebody_removed_is(store: SqlStore, clock: ManualClock):
    task = await lived(store, clock)
    assert await store.clean(at(55), 100) == 5
    report = await audit(store)
    assert (report.flaws, report.slots, report.runs, report.cleaned) == ([], 10, 5, 5)
    await execute(store, "update cleaned set count = 4 where task_id = :task", task=task.id)
    assert (await audit(store)).holes == 1


async def test_a_run_that_is_final_and_waits_is_told(store: SqlStore, clock: ManualClock):
    await store.create_task(job(schedule=every(10)))
    clock.set(at(10))
    await store.plan(10)
    lease = await claim_one(store)
    await execute(store, "update runs set status = 'SUCCESS' where id = :run", run=lease.run_id)
    assert await flaws(store) == [InconsistencyKind.PLACE]


async def test_a_run_that_nobody_will_take_up_is_told(store: SqlStore, clock: ManualClock):
    await store.create_task(job(schedule=every(10)))
    clock.set(at(10))
    await store.plan(10)
    await execute(store, "delete from live")
    assert await flaws(store) == [InconsistencyKind.PLACE]


async def test_a_counter_that_is_wrong_is_told_and_not_mended(store: SqlStore, clock: ManualClock):
    await store.create_task(http(schedule=every(10)))
    clock.set(at(10))
    await store.plan(10)
    await claim_one(store)
    await execute(store, "update gates set used = 7")
    assert await flaws(store) == [InconsistencyKind.COUNTER]
    assert await flaws(store) == [InconsistencyKind.COUNTER]
    assert await store.recount() == 1
    assert await flaws(store) == []


async def test_a_repeat_count_that_is_wrong_is_told(store: SqlStore, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=50)))
    clock.set(at(35))
    await store.plan(10)
    assert await flaws(store) == []
    await execute(store, "update cursors set fired = 5 where task_id = :task", task=task.id)
    assert await flaws(store) == [InconsistencyKind.COUNTER]


@pytest.mark.parametrize("schedule", [every(10), after_each(10)])
async def test_a_task_that_waits_for_nothing_is_told(store: SqlStore, clock: ManualClock, schedule: dict[str, Any]):
    task = await store.create_task(job(schedule=schedule))
    await execute(store, "update cursors set next_fire_at = null where task_id = :task", task=task.id)
    assert InconsistencyKind.CURSOR in await flaws(store)


async def test_an_audit_of_a_store_in_use_finds_nothing(opened: Open, sql_url: str):
    """A planner, a worker and a retention go on all the time; the audit looks at them a dozen times."""
    store, other = await opened(sql_url), await opened(sql_url)
    for number in range(20):
        limit = {"max_concurrency": 1} if number % 2 else {}
        await store.create_task(job(f"t{number}", schedule=every(1), **limit))
    busy = True

    async def work() -> None:
        while busy:
            await other.plan(100)
            for lease in await claim(other):
                await done(other, finish(lease))
            await other.clean(Instant(await other.now() - SECOND), 10)
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(work())
        report, looked = ConsistencyReport(), 0
        while looked < 12 or not report.slots:
            report = await audit(store)
            assert report.flaws == []
            looked += 1
        busy = False


# ---- the command


def noonbell(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


async def broken(url: str, *, how: str) -> None:
    from noonbell.stores import open_store

    clock = ManualClock(START)
    store = open_store(url, clock=clock)
    await store.open()
    try:
        task = await lived(store, clock)
        if how:
            await execute(store, how, task=task.id, slot=at(50))
    finally:
        await store.close()


def test_the_command_says_that_all_is_well(sql_url: str, capsys: pytest.CaptureFixture[str]):
    asyncio.run(broken(sql_url, how=""))
    code, out, err = noonbell(capsys, "audit", "--store", sql_url)
    assert (code, err) == (0, "")
    assert out.endswith("\n0 holes, 0 doubles\n")
    assert "1 tasks, 10 slots: 10 runs" in out


def test_the_command_lists_what_is_wrong_and_fails(sqlite_url: str, capsys: pytest.CaptureFixture[str]):
    asyncio.run(broken(sqlite_url, how="delete from runs where task_id = :task and slot = :slot"))
    code, out, _ = noonbell(capsys, "audit", "--store", sqlite_url)
    assert code == 1
    assert out.startswith("hole: task 1 (j): 1 slots from 2026-01-01T10:00:50Z")
    assert out.endswith("1 holes, 0 doubles\n")
    code, out, _ = noonbell(capsys, "audit", "--store", sqlite_url, "-o", "json")
    told = json.loads(out)
    assert (code, told["holes"], told["flaws"][0]["kind"]) == (1, 1, "hole")


def test_the_command_makes_no_store_of_a_slip(tmp_path: Any, capsys: pytest.CaptureFixture[str]):
    code, out, err = noonbell(capsys, "audit", "--store", f"sqlite:///{tmp_path}/slip.db")
    assert (code, out) == (3, "")
    assert "there is no file" in err
    assert list(tmp_path.iterdir()) == []


async def test_a_log_of_changes_that_was_meddled_with_is_a_flaw(store: SqlStore):
    report = ConsistencyReport()
    await store.write_audit([AuditAction(actor="ada", action=f"deed {number}") for number in range(1_500)])
    await check_log(AuditLog(store), report)
    assert report.is_sound
    await execute(store, "update audit set deed = replace(deed, 'ada', 'eve') where id = 1200")
    await check_log(AuditLog(store), report)
    assert [flaw.kind for flaw in report.flaws] == [InconsistencyKind.LOG]
    assert "entry 1200" in report.flaws[0].message
