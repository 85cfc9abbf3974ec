"""A process that does not plan looks whether another one does."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from noonbell.clock import SECOND
from noonbell.engine.node import SchedulerWatch
from noonbell.engine.planner import Planner
from noonbell.stores.wakeups import LocalWakeup


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noonbell")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    heard = [record.getMessage().partition(":")[0] for record in caplog.records]
    caplog.clear()
    return heard


async def test_what_goes_on_is_said_again_after_a_while_and_once_when_it_is_over(store, clock, wakeup, caplog):
    watch = SchedulerWatch(store, monotonic=lambda: clock.now() / SECOND)
    await watch.tick()
    assert said(caplog) == ["no scheduler is running on this store"]
    for _ in range(3):
        clock.advance(100)
        await watch.tick()
    assert said(caplog) == []
    clock.advance(300)
    await watch.tick()
    assert said(caplog) == ["no scheduler is running on this store"]
    await Planner(store, wakeup).tick()
    await watch.tick()
    await watch.tick()
    assert said(caplog) == ["a scheduler is running on this store now"]


async def test_a_planner_says_that_it_is_alive_every_ten_seconds_however_long_its_poll_is(store, clock, wakeup):
    planner = Planner(store, wakeup, poll=3600, monotonic=lambda: clock.now() / SECOND)
    began = clock.now()
    await planner.tick()
    assert await store.scheduler_seen_at() == began
    clock.advance(3)
    await planner.tick()
    assert await store.scheduler_seen_at() == began
    clock.advance(7)
    await planner.tick()
    assert await store.scheduler_seen_at() == clock.now()


async def test_a_planner_that_died_is_missed_after_half_a_minute(store, clock, wakeup, caplog):
    await Planner(store, wakeup).tick()
    watch = SchedulerWatch(store)
    clock.advance(29)
    await watch.tick()
    assert said(caplog) == []
    clock.advance(2)
    await watch.tick()
    assert said(caplog) == ["no scheduler is running on this store"]


async def test_a_planner_with_nothing_to_do_comes_back_in_time_to_say_so(store):
    class Waits(LocalWakeup):
        async def wait(self, topics: Sequence[str], seconds: float) -> None:
            waited.append(seconds)

    waited: list[float] = []
    planner = Planner(store, Waits(), poll=3600)
    await planner.wait(await planner.tick())
    assert waited == [10.0]
