"""The store's clock is set while a planner runs: it is said, noted and told, once."""

from __future__ import annotations

import logging

import pytest

from noonbell.clock import SECOND, Instant
from noonbell.engine.planner import Planner

FOREVER = Instant(2**62)


class Watch:
    """A node's own clock, which is not set when that of the store is."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def passes(self, clock, seconds: float) -> None:
        self.seconds += seconds
        clock.advance(seconds)


@pytest.mark.parametrize("step", [30.0, -30.0])
async def test_a_step_of_the_clock_is_noted_once(store, clock, wakeup, caplog, step: float):
    watch = Watch()
    planner = Planner(store, wakeup, monotonic=watch, node="n1")
    await planner.tick()
    watch.passes(clock, 1)
    await planner.tick()
    clock.set(Instant(clock.now() + round(step * SECOND)))
    with caplog.at_level(logging.WARNING, "noonbell"):
        for _ in range(4):
            watch.passes(clock, 1)
            await planner.tick()
    (noted,) = await store.clock_steps(Instant(0), FOREVER)
    assert (noted.node, noted.seconds) == ("n1", pytest.approx(step))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"the store's clock was set by {step:+.1f} s")


async def test_a_step_between_two_measurements_is_noted_too(store, clock, wakeup):
    watch = Watch()
    planner = Planner(store, wakeup, monotonic=watch, node="n1")
    await planner.tick()
    watch.passes(clock, 3_600)  # the offset is too old to be checked: it is measured anew
    clock.set(Instant(clock.now() + 5 * SECOND))
    await planner.tick()
    (noted,) = await store.clock_steps(Instant(0), FOREVER)
    assert noted.seconds == pytest.approx(5)


async def test_what_a_clock_is_set_by_every_day_is_no_news(store, clock, wakeup):
    watch = Watch()
    planner = Planner(store, wakeup, monotonic=watch, node="n1")
    for _ in range(5):
        await planner.tick()
        watch.passes(clock, 1)
        clock.set(Instant(clock.now() + SECOND))
    assert await store.clock_steps(Instant(0), FOREVER) == []


async def test_slow_answers_of_the_store_are_no_step(store, clock, wakeup, monkeypatch):
    watch = Watch()
    planner = Planner(store, wakeup, monotonic=watch, node="n1")
    await planner.tick()
    watch.passes(clock, 3_600)
    now = store.now

    async def slow() -> Instant:
        found = await now()
        watch.passes(clock, 8)
        return found

    monkeypatch.setattr(store, "now", slow)
    await planner.tick()
    monkeypatch.setattr(store, "now", now)
    await planner.tick()
    assert await store.clock_steps(Instant(0), FOREVER) == []
