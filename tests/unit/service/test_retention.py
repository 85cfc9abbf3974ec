"""Retention: by age, by count, and as a task says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.store.builders import finished, runs_of, started
from noonbell.clock import ManualClock
from noonbell.errors import InvalidArgument
from noonbell.model.task import Task
from noonbell.service import Services
from noonbell.service.retention import Keep, Retention
from noonbell.stores.sqlite import MemoryStore

DAY = 86_400


async def nothing(removed: int) -> None:
    del removed


async def make(services: Services, name: str, **meta: Any) -> Task:
    return await services.tasks.create({"name": name, "job_type": "x", "meta": meta})


async def left(store: MemoryStore, *tasks: Task) -> list[int]:
    return [len(await runs_of(store, task)) for task in tasks]


async def test_what_ended_longer_ago_goes_and_what_is_not_final_stays(
    services: Services, store: MemoryStore, clock: ManualClock
):
    task = await make(services, "a")
    await finished(store, task)
    await started(store, task)
    clock.advance(20 * DAY)
    await finished(store, task)
    clock.advance(11 * DAY)
    assert await Retention(store).clean(Keep(days=30), nothing) == 1
    assert await left(store, task) == [2]


async def test_a_task_may_keep_longer_or_shorter_than_the_others(
    services: Services, store: MemoryStore, clock: ManualClock
):
    plain, long, short = (
        await make(services, "plain"),
        await make(services, "long", retention_days=365),
        await make(services, "short", retention_days=1),
    )
    for task in (plain, long, short):
        await finished(store, task)
    clock.advance(2 * DAY)
    assert await Retention(store).clean(Keep(days=30), nothing) == 1
    assert await left(store, plain, long, short) == [1, 1, 0]
    clock.advance(40 * DAY)
    assert await Retention(store).clean(Keep(days=30), nothing) == 1
    assert await left(store, plain, long, short) == [0, 1, 0]


async def test_a_count_cuts_what_is_young_too(services: Services, store: MemoryStore, clock: ManualClock):
    plain, more, less = (
        await make(services, "plain"),
        await make(services, "more", retention_runs=4),
        await make(services, "less", retention_runs=1),
    )
    for task in (plain, more, less):
        for _ in range(5):
            await finished(store, task)
    clock.advance(1)
    assert await Retention(store).clean(Keep(days=30), nothing) == 5
    assert await left(store, plain, more, less) == [5, 4, 1]
    assert await Retention(store).clean(Keep(days=30, runs=2), nothing) == 3
    assert await left(store, plain, more, less) == [2, 4, 1]


async def test_a_deleted_task_goes_with_its_history(services: Services, store: MemoryStore, clock: ManualClock):
    task = await make(services, "a")
    await finished(store, task)
    await services.tasks.delete(task.id)
    clock.advance(10 * DAY)
    await Retention(store).clean(Keep(days=30), nothing)
    assert await store.task(task.id) is not None
    clock.advance(30 * DAY)
    assert await Retention(store).clean(Keep(days=30), nothing) == 1
    assert await store.task(task.id) is None


async def test_leftovers_stay_for_a_day_whatever_the_retention(
    services: Services, store: MemoryStore, clock: ManualClock
):
    task = await make(services, "a")
    await services.tasks.delete(task.id)
    clock.advance(DAY - 1)
    await Retention(store).clean(Keep(days=0), nothing)
    assert await store.task(task.id) is not None
    clock.advance(2)
    await Retention(store).clean(Keep(days=0), nothing)
    assert await store.task(task.id) is None


async def test_whoever_stops_it_loses_nothing(services: Services, store: MemoryStore, clock: ManualClock):
    task = await make(services, "a")
    for _ in range(3):
        await finished(store, task)
    clock.advance(2 * DAY)

    async def stop(removed: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await Retention(store).clean(Keep(days=1), stop)
    await finished(store, task)
    assert await Retention(store).clean(Keep(days=1), nothing) == 0
    assert await left(store, task) == [1]


@pytest.mark.parametrize(
    "meta", [{"retention_days": -1}, {"retention_days": "30"}, {"retention_runs": 1.5}, {"retention_runs": True}]
)
async def test_a_wrong_retention_is_refused_when_the_task_is_saved(services: Services, meta: dict[str, Any]):
    with pytest.raises(InvalidArgument) as refused:
        await make(services, "a", **meta)
    assert set(refused.value.details) == {f"meta.{name}" for name in meta}


def test_a_retention_that_is_no_number_says_nothing():
    keep = Keep(days=30, runs=5)
    assert keep.for_task({"retention_days": "soon", "retention_runs": True}) == keep
    assert keep.for_task({"retention_days": 0, "retention_runs": 0}) == Keep(days=0, runs=0)


async def test_dropped_slots_stay_as_long_as_the_runs_of_their_task(
    services: Services, store: MemoryStore, clock: ManualClock
):
    fields = {"job_type": "x", "cron_expr": "* * * * * *", "misfire_policy": "FIRE_ONCE"}
    plain = await services.tasks.create({**fields, "name": "plain"})
    long = await services.tasks.create({**fields, "name": "long", "meta": {"retention_days": 365}})
    clock.advance(10)
    await store.plan(10)
    for task in (plain, long):
        await services.tasks.disable(task.id)
    clock.advance(40 * DAY)
    await Retention(store).clean(Keep(days=30), nothing)
    since, until = plain.created_at, clock.now()
    assert await store.dropped(plain.id, since, until) == []
    assert len(await store.dropped(long.id, since, until)) == 1


def test_what_is_kept_can_be_said_in_words():
    assert Keep(days=30).describe() == "remove runs that ended more than 30 days ago"
    assert Keep(days=7, runs=100).describe().endswith("and all but the newest 100 of each task")
