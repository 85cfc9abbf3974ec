"""The timeline of many tasks: what is to come is counted within bounds, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio

from noonbell.clock import SECOND, Instant, ManualClock, rfc3339, slot_of
from noonbell.fields.kinds import read_moment
from noonbell.model.request import TaskQuery
from noonbell.service import Services
from noonbell.service.timeline import MOST_RUNS, Timelines, coming
from noonbell.stores.sqlite import MemoryStore
from services.steps import calls_while

NOW = read_moment("2026-11-15T09:00:00Z")
DAY = 86_400


async def made(services: Services, name: str, **more: object) -> None:
    await services.tasks.create({"name": name, "target_url": "http://127.0.0.1:9/", **more})


def edges(days: int, since: Instant = NOW) -> list[int]:
    first = int(slot_of(since))
    return [first + day * DAY for day in range(days + 1)]


async def test_bounds_and_the_repeat_count_limit_what_is_counted_by_day(services: Services, store: MemoryStore):
    daily = {"type": "cron", "expr": "0 0 12 * * *"}
    await made(services, "three", schedule={**daily, "repeat": 3})
    await made(services, "until", schedule=daily, end_at="2026-11-16T12:00:00Z")
    await made(services, "from", schedule=daily, start_at="2026-11-18T12:00:00Z")
    await made(
        services, "delay", schedule={"type": "interval", "every": 1, "unit": "day", "mode": "fixed_delay", "repeat": 9}
    )
    sums, counted, total = await Timelines(store).planned_by_day(edges(6))
    #       three until from delay, by day
    assert sums == [1 + 1 + 0 + 0, 1 + 1 + 0 + 1, 1, 1, 1, 1]
    assert (counted, total) == (4, 4)


async def test_after_the_last_of_its_repeats_nothing_of_a_task_is_planned(services: Services, store: MemoryStore):
    await made(services, "three", schedule={"type": "cron", "expr": "0 0 12 * * *", "repeat": 3})
    task = await services.tasks.get("three")
    later = Instant(NOW + 40 * DAY * SECOND)
    assert coming(task, later, Instant(later + 9 * DAY * SECOND), 100) == []
    assert (await Timelines(store).planned_by_day(edges(9, later)))[0] == [0] * 9


async def test_a_month_of_a_task_that_ends_costs_the_same_however_often_it_fires(
    services: Services, store: MemoryStore
):
    schedule = {"type": "cron", "expr": "0 0 12 * * *"}
    await made(services, "a", schedule=schedule, end_at="2030-01-01T00:00:00Z")
    seldom = await calls_while(lambda: Timelines(store).planned_by_day(edges(42)))
    await services.tasks.change("a", {"schedule": {**schedule, "expr": "* * * * * *"}}, partial=True)
    often = await calls_while(lambda: Timelines(store).planned_by_day(edges(42)))
    assert often < 2 * seldom


async def test_others_have_their_turn_between_two_tasks(services: Services, store: MemoryStore):
    """Each task of a page and of the load may take milliseconds, and there may be a thousand."""
    for number in range(30):
        await made(services, f"t{number}", cron_expr=f"{number} * * * *", timezone="Europe/Rome")
    timelines, turns = Timelines(store), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turn())
    try:
        until = Instant(NOW + 10 * DAY * SECOND)
        for work in (lambda: timelines.planned_by_day(edges(6)), lambda: timelines.load(NOW, until)):
            turns = 0
            await work()
            assert turns >= 30
    finally:
        other.cancel()


async def test_a_slot_that_was_repeated_lately_hides_none_of_those_after_it(
    services: Services, store: MemoryStore, clock: ManualClock
):
    """Of the newest runs one is of a slot of long ago: what lies between it and the others is still shown."""
    await made(services, "a", cron_expr="* * * * *", max_concurrency=None)
    task = await services.tasks.get("a")
    for _ in range(MOST_RUNS + 20):
        clock.advance(60)
        await store.plan(1)
    begin = Instant(NOW + 120 * SECOND)
    filled = await services.backfills.fill(task.id, {"from": rfc3339(begin), "to": rfc3339(Instant(begin + 1))})
    assert filled["created"] == 1
    (lane,), _ = await Timelines(store).lanes(TaskQuery(name="a"), NOW, clock.now(), clock.now())
    shown = [run.scheduled_time for run in lane.runs] + [slot.slot for slot in lane.before]
    slots = [NOW + minute * 60 * SECOND for minute in range(1, MOST_RUNS + 21)]
    assert sorted(shown) == sorted([*slots, begin])  # the repeated one has two runs, every other one
