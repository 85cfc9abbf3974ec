"""Samples of queues: one for each minute, whoever calls; hours and days are their sums; a minute without one is left out."""

from __future__ import annotations

import asyncio

from conformance.store.builders import claim, finish, job, publish_many
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.rollup import DAY, HOUR, MINUTE, QueueDepth, Span
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore


async def depths(store: Store, name: str, span: Span = MINUTE, step: int | None = None) -> list[QueueDepth]:
    now = await store.now()
    return await store.queue_depths(name, Instant(0), Instant(now + 1), span, step)


def begin_minute(clock: ManualClock) -> Instant:
    now = clock.now()
    clock.advance((MINUTE.length - now % MINUTE.length) / SECOND)
    return clock.now()


async def test_a_minute_has_one_sample_however_often_it_is_taken(store: Store, clock: ManualClock):
    at = begin_minute(clock)
    task = await store.create_task(job())
    await publish_many(store, task, 3)
    clock.advance(20)
    assert await store.sample_queues() == 40
    await publish_many(store, task, 4)
    assert await asyncio.gather(*(store.sample_queues() for _ in range(4))) == [40] * 4
    assert await depths(store, "default") == [QueueDepth(at, 1, 3, 3, 20 * SECOND)]


async def test_a_queue_without_a_row_was_empty_and_a_minute_without_a_sample_is_left_out(
    store: Store, clock: ManualClock
):
    at = begin_minute(clock)
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    await store.sample_queues()
    clock.advance(60)
    await store.settle([finish(lease) for lease in await claim(store)])
    await store.sample_queues()
    clock.advance(120)
    await store.sample_queues()
    assert [(each.at - at, each.most) for each in await depths(store, "default")] == [
        (0, 2),
        (MINUTE.length, 0),
        (3 * MINUTE.length, 0),
    ]
    assert [each.most for each in await depths(store, "never used")] == [0, 0, 0]


async def test_what_executes_or_is_delayed_does_not_wait(store: Store, clock: ManualClock):
    begin_minute(clock)
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    await claim(store)
    await store.sample_queues()
    assert [each.most for each in await depths(store, "default")] == [0]


async def test_hours_and_days_are_sums_of_the_minutes(store: Store, clock: ManualClock):
    clock.advance((DAY.length - clock.now() % DAY.length) / SECOND)
    began = clock.now()
    task = await store.create_task(job())
    for count in (1, 2, 0, 4):
        if count:
            await publish_many(store, task, count)
        await store.sample_queues()
        clock.advance(30 * 60)
    assert await depths(store, "default", HOUR) == [
        QueueDepth(began, 2, 4, 3, 1800 * SECOND),
        QueueDepth(Instant(began + HOUR.length), 2, 10, 7, 5400 * SECOND),
    ]
    [day] = await depths(store, "default", DAY)
    assert (day.samples, day.waiting, day.most, day.mean) == (4, 14, 7, 3.5)
    both = await depths(store, "default", MINUTE, 2 * HOUR.length)
    assert both == [QueueDepth(began, 4, 14, 7, 5400 * SECOND)]


async def test_samples_of_many_queues_are_kept_apart(store: Store, clock: ManualClock):
    begin_minute(clock)
    for number in range(45):
        task = await store.create_task(job(f"t{number}", queue=f"q{number}"))
        await publish_many(store, task, 1 + number % 3)
    await store.sample_queues()
    assert [(await depths(store, f"q{number}"))[0].most for number in (0, 1, 2, 44)] == [1, 2, 3, 3]


async def test_samples_are_kept_as_long_as_sums_of_the_same_length(store: Store, clock: ManualClock):
    assert isinstance(store, SqlStore)
    task = await store.create_task(job())
    await publish_many(store, task, 2)
    for _ in range(3):
        await store.sample_queues()
        clock.advance(60)

    async def lengths() -> set[int]:
        return {row[0] for row in await store.fetch("select distinct seconds from queue_depths")}

    for days, left in ((1, {60, 3600, 86400}), (2, {3600, 86400}), (90, {86400}), (1200, set())):
        clock.advance(days * 86_400)
        while await store.forget_queue_depths(2):
            pass
        assert await lengths() == left
