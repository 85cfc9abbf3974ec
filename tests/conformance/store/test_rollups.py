"""Roll-ups: whatever ends a run, the figures are what a scan of history says, at once, after every fold and after counting again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from conformance.store.builders import (
    START,
    S,
    at,
    claim,
    every,
    execute,
    finish,
    http,
    job,
    publish,
    publish_many,
    retry,
)
from conformance.store.rollup_scan import EVER, fold_all, rebuild_all, scanned, told
from conformance.store.test_random_walk import Walk
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.errors import InvalidArgument
from noonbell.model.rollup import DAY, HOUR, MINUTE, RollUp, Scope, Stretch, stretch_of
from noonbell.model.run import FINAL, Lease, RunStatus, Settlement
from noonbell.model.task import MisfirePolicy
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore

_DAY = DAY.length


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.full)])
async def test_figures_equal_a_scan_along_a_random_walk_and_after_counting_again(
    store: Store, clock: ManualClock, seed: int
):
    walk = Walk(store, clock, seed)
    await walk.begin()
    for step in range(60):
        await walk.step()
        if walk.random.random() < 0.2:
            await store.fold_rollups(walk.random.choice([1, 3, 100]))
        if step % 10 == 9:
            clock.advance(walk.random.choice([0, 70, 4000]))
            assert await told(store) == await scanned(store)
    await store.cancel([run.id for run in walk.seen.values() if run.status not in FINAL])
    assert await told(store) == await scanned(store)
    await fold_all(store)
    counted = await told(store)
    assert counted == await scanned(store)
    assert {kind for kind, _ in counted} == set(Scope)
    assert len(counted[Scope.ALL, ""][0]) >= 4, "the walk ends runs in several ways"

    clock.advance(200)
    await store.order_rebuild(None, None)
    await rebuild_all(store, 7)
    assert await told(store) == counted
    assert await told(store, Stretch(START, at(90 * 60))) == await scanned(store, START, at(90 * 60))
    assert {(kind, each.name) for kind in Scope for each in await store.rollups(kind, EVER, step=DAY)} == set(counted)


async def test_every_length_of_rows_says_the_same(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    for minutes in (0, 1, 58, 1, 120, 60 * 24, 3):
        clock.advance(minutes * 60)
        await publish_many(store, task, 3)
        await store.settle([finish(lease) for lease in await claim(store)])
        await fold_all(store)
    now = await store.now()
    for span in (MINUTE, HOUR, DAY):
        rows = await store.rollups(Scope.TASK, stretch_of(START, now + 1, now, span), step=span)
        assert [each.at % span.length for each in rows] == [0] * len(rows)
        assert sum(each.figures.runs for each in rows) == 21
        assert sum(each.figures.duration.count for each in rows) == 21


async def test_a_stretch_is_told_to_the_minute(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    for _ in range(200):  # one a minute, over more than three hours
        run = await publish(store, task)
        (lease,) = await claim(store)
        assert lease.run_id == run
        await store.settle([finish(lease)])
        clock.advance(60)
    await fold_all(store, 37)
    now = await store.now()
    for since, until in ((0, 200), (1, 60), (59, 61), (30, 150), (119, 120), (60, 180), (7, 7)):
        stretch = stretch_of(at(since * 60), at(until * 60), now)
        assert stretch == (at(since * 60), at(until * 60))
        found = await store.rollups(Scope.ALL, stretch)
        assert sum(each.figures.runs for each in found) == until - since


async def test_every_way_to_end_is_counted_once(store: Store, clock: ManualClock):
    """On the way of ordinary runs, behind a limit, after a retry, canceled, skipped, and slots without a run."""
    plain, gated = await store.create_task(job()), await store.create_task(http(max_concurrency=2))
    await publish_many(store, plain, 4)
    await publish_many(store, gated, 3)
    leases = await claim(store)
    clock.advance(2)
    await store.settle([finish(lease, S.SUCCESS if number % 2 else S.FAILED) for number, lease in enumerate(leases)])
    (lease,) = await claim(store)
    await store.settle([retry(lease, delay=5)])
    await store.cancel([lease.run_id])
    late = await store.create_task(job("late", schedule=every(1), misfire_policy=MisfirePolicy.SKIP))
    clock.advance(3600)
    await store.plan(10)
    assert await store.dropped(late.id, Instant(0), Instant(await store.now()))
    counts = (await told(store))[Scope.ALL, ""][0]
    assert (counts["SUCCESS"], counts["FAILED"], counts["CANCELED"]) == (3, 3, 1)
    assert counts["DROPPED"] > 3000
    assert await told(store) == await scanned(store)
    before = await told(store)
    await fold_all(store, 1)
    assert await told(store) == before
    assert await store.fold_rollups(100) == 0


@pytest.mark.parametrize("brings_lease", [True, False, None], ids=["with its lease", "without", "both in a batch"])
async def test_a_batch_counts_the_same_whether_its_leases_come_along_or_are_read_again(
    store: Store, clock: ManualClock, brings_lease: bool | None
):
    """Leases come along from a worker of the same process, and not from one that speaks the worker protocol."""
    asked, planned = await store.create_task(job()), await store.create_task(job("planned", schedule=every(1)))
    await publish_many(store, asked, 6)
    clock.advance(7)
    await store.plan(10)
    await publish_many(store, asked, 2)
    for worker in ("w1", "w2"):
        leases = await claim(store, worker, 5)
        clock.advance(0.5)
        first = [retry(lease, delay=0) for lease in leases[:1]]
        await store.settle(
            [*first, *[_settled(number, lease, brings_lease) for number, lease in enumerate(leases[1:])]]
        )
    while leases := await claim(store, count=4):
        clock.advance(3)
        await store.settle([_settled(number, lease, brings_lease) for number, lease in enumerate(leases)])
    counted = await told(store)
    assert counted == await scanned(store)
    assert set(counted) >= {(Scope.TASK, str(asked.id)), (Scope.TASK, str(planned.id)), (Scope.WORKER, "w2")}
    assert len(counted[Scope.ALL, ""][0]) == 2


def _settled(number: int, lease: Lease, brings_lease: bool | None) -> Settlement:
    brings = number % 2 == 0 if brings_lease is None else brings_lease
    made = finish(lease, S.FAILED if number % 3 == 1 else S.SUCCESS)
    return made if brings else msgspec.structs.replace(made, lease=None)


async def test_two_nodes_that_fold_at_once_add_each_delta_once(store: Store, clock: ManualClock, another_node):
    other = await another_node()
    task = await store.create_task(job())
    await publish_many(store, task, 30)
    leases = await claim(store)
    for lease in leases:
        clock.advance(1)
        await store.settle([finish(lease)])
    counted = await scanned(store)
    await asyncio.gather(*(node.fold_rollups(4) for _ in range(8) for node in (store, other)))
    await fold_all(other)
    assert await told(store) == await told(other) == counted


async def test_figures_outlive_the_history_that_they_were_counted_from(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish_many(store, task, 5)
    await store.settle([finish(lease) for lease in await claim(store)])
    await fold_all(store)
    before = await told(store)
    clock.advance(3 * 86_400)
    await store.clean(Instant(await store.now() - _DAY), 100)
    assert await scanned(store) == {}
    assert await told(store) == before
    with pytest.raises(
        InvalidArgument, match=r"from: is before runs were removed .*; takes \d{4}-\d\d-\d\dT00:00:00Z or later"
    ):
        await store.order_rebuild(START, None)
    await store.order_rebuild(None, None)
    await rebuild_all(store)
    assert await told(store) == before


async def test_a_count_from_history_mends_what_is_wrong_and_leaves_the_present_alone(store: Store, clock: ManualClock):
    assert isinstance(store, SqlStore)
    task = await store.create_task(job())
    for _ in range(3):
        await publish_many(store, task, 4)
        await store.settle([finish(lease) for lease in await claim(store)])
        await store.fold_rollups(100)
        clock.advance(1800)
    await publish_many(store, task, 2)  # too late for the count
    await store.settle([finish(lease) for lease in await claim(store)])
    await store.fold_rollups(100)
    whole = await scanned(store)
    wrong = (await store.rollups(Scope.ALL, EVER))[0]
    assert wrong.figures.runs == 14
    await execute(store, "delete from rollups where at < :at", at=at(5000))
    assert await told(store) != whole
    await store.order_rebuild(None, None)
    assert (await store.rebuild_state()).is_under_way
    await publish_many(store, task, 1)  # and one that ends while it goes on
    await store.rebuild_rollups(2)
    await store.settle([finish(lease) for lease in await claim(store)])
    await store.fold_rollups(100)
    await rebuild_all(store, 2)
    assert not (await store.rebuild_state()).is_under_way
    assert await told(store) == await scanned(store)
    now = await store.now()
    for span in (MINUTE, HOUR, DAY):
        rows: list[RollUp] = await store.rollups(Scope.QUEUE, stretch_of(START, now + 1, now, span), step=span)
        assert sum(each.figures.runs for each in rows) == 15, span


async def test_a_rebuild_names_the_field_that_it_refuses(store: Store):
    with pytest.raises(InvalidArgument, match="to: is not after from"):
        await store.order_rebuild(Instant(2 * _DAY), Instant(_DAY))
    assert not (await store.rebuild_state()).is_under_way


async def test_minutes_go_after_two_days_and_hours_after_ninety(store: Store, clock: ManualClock):
    assert isinstance(store, SqlStore)
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    await store.settle([finish(lease) for lease in await claim(store)])
    await fold_all(store)

    async def lengths() -> set[int]:
        return {row[0] for row in await store.fetch("select distinct seconds from rollups")}

    for days, left in ((1, {60, 3600, 86400}), (2, {3600, 86400}), (90, {86400}), (1200, set())):
        clock.advance(days * 86_400)
        while await store.forget_rollups(3):
            pass
        assert await lengths() == left
    await store.clean(await store.now(), 100)


async def test_rows_of_a_purged_task_go_and_those_of_its_queue_stay(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    await store.settle([finish(lease) for lease in await claim(store)])
    await fold_all(store)
    await store.delete_task(task.id)
    assert (Scope.TASK, str(task.id)) in await told(store)
    now = await store.now()
    await store.clean(Instant(now + SECOND), 100)
    await store.clean_rest(Instant(now + SECOND), 100)
    kept = await told(store)
    assert (Scope.TASK, str(task.id)) not in kept
    assert kept[Scope.QUEUE, "default"][0] == {"SUCCESS": 2}


async def test_the_busiest_come_first(store: Store):
    few, many = await store.create_task(job("few")), await store.create_task(job("many"))
    await publish_many(store, few, 1)
    await publish_many(store, many, 3)
    await store.settle([finish(lease) for lease in await claim(store)])
    await fold_all(store)
    now = await store.now()
    assert await store.busiest(Scope.TASK, now, Instant(now + 1), 5) == [str(many.id), str(few.id)]
    assert await store.busiest(Scope.TASK, now, Instant(now + 1), 1) == [str(many.id)]


async def test_the_busiest_of_a_stretch_whose_hours_are_no_longer_kept_are_known_by_its_days(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    await store.settle([finish(lease) for lease in await claim(store)])
    await fold_all(store)
    then = await store.now()
    clock.advance(100 * 86_400)
    while await store.forget_rollups(100):
        pass
    stretch = stretch_of(then, then + 1, await store.now())
    assert await store.busiest(Scope.TASK, stretch.since, stretch.until, 5) == [str(task.id)]


async def test_tasks_that_failed_are_named_before_and_after_figures_are_added_up(store: Store):
    good, bad, slow = [await store.create_task(job(name)) for name in ("good", "bad", "slow")]
    for task in (good, bad, slow):
        await publish_many(store, task, 1)
    ends = {good.id: RunStatus.SUCCESS, bad.id: RunStatus.FAILED, slow.id: RunStatus.TIMEOUT}
    await store.settle([finish(lease, ends[lease.task_id]) for lease in await claim(store)])
    now = await store.now()
    for _ in range(2):
        assert await store.failed_tasks(now, Instant(now + 1), 5) == [bad.id, slow.id]
        assert await store.failed_tasks(now, Instant(now + 1), 1) == [bad.id]
        assert await store.failed_tasks(Instant(now + DAY.length), Instant(now + 2 * DAY.length), 5) == []
        await fold_all(store)
