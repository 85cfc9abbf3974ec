"""Runs of another system in history: written once, in their place, in the figures; and nothing follows from them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from conformance.store.builders import START, Node, S, claim, every, finish, http, publish, run_of, runs_of
from conformance.store.rollup_scan import fold_all, rebuild_all, scanned, told
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.errors import InvalidState
from noonbell.model.request import ClaimRequest, PastRun, PastRunOutcome
from noonbell.model.run import Origin, RunBodies, SkipReason
from noonbell.model.task import Task
from noonbell.ports import Store
from noonbell.service.consistency import audit

O = PastRunOutcome  # noqa: E741 - as S for statuses
DAY = 86_400


def past(task: Task, number: int, *, ago: float = DAY, took: float = 2, **more) -> PastRun:
    begin = Instant(START - int(ago * SECOND))
    end = Instant(begin + int(took * SECOND))
    usual = {"status": S.SUCCESS, "scheduled_time": begin, "created_at": begin, "start_time": begin, "end_time": end}
    return PastRun(
        task_id=task.id, task_version=task.version, queue=task.spec.queue, key=f"cronjob:{number}", **{**usual, **more}
    )


async def test_they_are_kept_as_they_were_and_marked(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    bodies = RunBodies(request_headers={"Accept": "1"}, request_body="sent", response_body="came", truncated=True)
    given = past(
        task, 42, status=S.FAILED, attempt=3, response_code=500, error_message="no", trace_id="abc", bodies=bodies
    )
    assert await store.import_runs([given]) == [O.IMPORTED]
    (run,) = await runs_of(store, task)
    assert (run.origin, run.status, run.key, run.attempt, run.retry_count) == (
        Origin.IMPORT,
        S.FAILED,
        "cronjob:42",
        3,
        2,
    )
    assert (run.scheduled_time, run.start_time, run.end_time) == (
        given.scheduled_time,
        given.start_time,
        given.end_time,
    )
    assert (run.created_at, run.response_code, run.error_message, run.trace_id) == (given.created_at, 500, "no", "abc")
    assert await store.bodies(run.id) == bodies
    assert [(each.attempt, each.status) for each in await store.attempts(run.id)][-1] == (3, S.FAILED)


async def test_the_same_runs_again_are_known_and_change_nothing(store: Store, clock: ManualClock):
    task, other = await store.create_task(http("a")), await store.create_task(http("b"))
    runs = [past(task, number, ago=DAY + number % 3) for number in range(1, 40)]
    runs.append(past(other, 1))
    assert await store.import_runs([*runs, runs[0]]) == [O.IMPORTED] * 40 + [O.KNOWN]
    before, figures = await runs_of(store, task), await told(store)
    assert await store.import_runs(list(reversed(runs))) == [O.KNOWN] * 40
    assert await runs_of(store, task) == before
    assert await told(store) == figures == await scanned(store)


async def test_they_lie_in_lists_before_the_runs_of_this_store(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    own = await publish(store, task)
    await store.import_runs([past(task, 7, ago=60 * DAY), past(task, 9, ago=3 * DAY), past(task, 8, ago=40 * DAY)])
    assert [run.key for run in await runs_of(store, task)] == ["cronjob:7", "cronjob:8", "cronjob:9", None]
    assert (await runs_of(store, task))[-1].id == own


async def test_an_id_that_a_run_of_this_store_has_is_passed_over_each_time(store: Store, clock: ManualClock):
    """While both systems run, a run of ours may have been given the id that this one would get."""
    task = await store.create_task(http())
    own = await run_of(store, await publish(store, task))
    await store.settle([finish(lease) for lease in await claim(store)])
    clock.advance(3600)
    second = own.created_at - own.created_at % SECOND
    begin = Instant(second)
    number = (own.id - _floor(begin)) % (1000 << 12)
    run = past(task, number, created_at=begin, scheduled_time=begin, start_time=begin, end_time=begin)
    assert await store.import_runs([run]) == [O.IMPORTED]
    assert await store.import_runs([run]) == [O.KNOWN]
    found = await runs_of(store, task)
    assert [each.origin for each in found] == [Origin.PUBLISH, Origin.IMPORT]
    assert found[1].id == found[0].id + 1


def _floor(instant: Instant) -> int:
    from noonbell.stores.sql.ids import floor_at

    return floor_at(instant)


async def test_the_figures_have_them_at_once_and_when_they_are_counted_again(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    statuses = [S.SUCCESS, S.FAILED, S.TIMEOUT, S.CANCELED, S.SKIPPED, S.CALLBACK_SUCCESS, S.FAILED_TIMEOUT]
    runs = [past(task, n, ago=n * 4000, status=status) for n, status in enumerate(statuses, 1)]
    await store.import_runs(runs)
    assert await told(store) == await scanned(store)
    await fold_all(store)
    counted = await told(store)
    assert counted == await scanned(store)
    clock.advance(300)
    await store.order_rebuild(None, None)
    with pytest.raises(InvalidState, match="being rebuilt"):
        await store.import_runs([past(task, 99)])
    await rebuild_all(store, 3)
    assert await told(store) == counted
    (skipped,) = await runs_of(store, task, S.SKIPPED)
    assert skipped.skip_reason is SkipReason.CONCURRENCY


async def test_nothing_follows_from_them_and_the_account_stays_sound(store: Store, clock: ManualClock):
    """No claim, no event, no slot: the schedule of the task named these very moments."""
    task = await store.create_task(http(schedule=every(60)))
    clock.advance(3600)
    await store.plan(100)
    events = await store.events(0, 10_000)
    await store.import_runs([past(task, n, ago=-60 * n, status=S.FAILED) for n in range(2, 30)])
    assert await store.events(0, 10_000) == events
    claimed = await store.claim(ClaimRequest(worker_id="w", queues=("http",), max=100))
    assert {lease.origin for lease in claimed.leases} <= {Origin.SCHEDULE}
    report = await audit(store)
    assert report.is_sound, report.flaws


async def test_runs_from_before_history_was_cleaned_up_do_not_come_back(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    old, young = past(task, 1, ago=40 * DAY), past(task, 2, ago=10 * DAY)
    assert await store.import_runs([old, young]) == [O.IMPORTED, O.IMPORTED]
    await fold_all(store)
    figures = await told(store)
    assert await store.clean(Instant(START - 30 * DAY * SECOND), 100) == 1
    assert await store.import_runs([old, young]) == [O.REMOVED, O.KNOWN]
    assert [run.key for run in await runs_of(store, task)] == ["cronjob:2"]
    assert await told(store) == figures


async def test_what_has_only_just_ended_waits(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    assert await store.import_runs([past(task, 1, ago=30)]) == [O.RECENT]
    clock.advance(120)
    assert await store.import_runs([past(task, 1, ago=30)]) == [O.IMPORTED]


async def test_two_imports_at_once_write_each_run_once(store: Store, another_node: Node, clock: ManualClock):
    task = await store.create_task(http())
    second = await another_node()
    runs = [past(task, number) for number in range(200)]
    for begin in range(0, 200, 50):
        part = runs[begin : begin + 50]
        told_first, told_second = await asyncio.gather(store.import_runs(part), second.import_runs(part[::-1]))
        assert sorted([*told_first, *told_second]) == [O.IMPORTED] * 50 + [O.KNOWN] * 50
    assert len({run.key for run in await runs_of(store, task)}) == len(await runs_of(store, task)) == 200
    assert await told(store) == await scanned(store)


async def test_history_from_before_2025_keeps_its_order(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    years = [past(task, number, ago=(800 - number) * DAY) for number in (3, 1, 2)]
    assert await store.import_runs(years) == [O.IMPORTED] * 3
    assert await store.import_runs([msgspec.structs.replace(each) for each in years]) == [O.KNOWN] * 3
    assert [run.key for run in await runs_of(store, task)] == ["cronjob:1", "cronjob:2", "cronjob:3"]
