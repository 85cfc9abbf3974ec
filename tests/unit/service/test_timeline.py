"""The timeline of many tasks: what is to come is counted within bounds, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio

from noonbell.clock import SECOND, Instant, slot_of
from noonbell.fields.kinds import read_moment
from noonbell.service import Services
from noonbell.service.timeline import Timelines, coming
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
