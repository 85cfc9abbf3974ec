"""The belts of attempts: one timer for all of them, and each is pulled at its own time."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.engine.execute import Belts


@pytest.fixture
async def hanging():
    """Makes tasks that never end by themselves."""
    tasks = []

    def hang():
        tasks.append(asyncio.create_task(asyncio.Event().wait()))
        return tasks[-1]

    yield hang
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("shortest_first", [True, False])
async def test_each_belt_is_pulled_at_its_time_whichever_was_put_on_first(hanging, shortest_first):
    belts = Belts()
    worn = {}
    for seconds in sorted([0.01, 0.1, 30.0], reverse=not shortest_first):
        task = hanging()
        worn[seconds] = (task, belts.put_on(task, seconds))
    for seconds in (0.01, 0.1):
        task, belt = worn[seconds]
        with pytest.raises(asyncio.CancelledError):
            await task
        assert belt.is_pulled
    task, belt = worn[30.0]
    assert not belt.is_pulled
    assert not task.done()


async def test_a_belt_that_is_taken_off_is_not_pulled(hanging):
    belts = Belts()
    off, on = hanging(), hanging()
    belt = belts.put_on(off, 0.01)
    belts.put_on(on, 0.02)
    belts.take_off(belt)
    with pytest.raises(asyncio.CancelledError):
        await on
    assert not belt.is_pulled
    assert not off.done()


async def test_a_belt_may_be_tightened_as_well_as_loosened(hanging):
    belts = Belts()
    later, sooner = hanging(), hanging()
    loosened, tightened = belts.put_on(later, 0.01), belts.put_on(sooner, 30.0)
    loosened.loosen(30.0)
    tightened.loosen(0.05)
    with pytest.raises(asyncio.CancelledError):
        await sooner
    assert not loosened.is_pulled
