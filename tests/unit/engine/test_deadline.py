"""The deadlines of attempts: one timer for all of them, and each expires at its own time."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.engine.attempt_runner import Deadlines


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
async def test_each_deadline_expires_at_its_time_whichever_was_started_first(hanging, shortest_first):
    deadlines = Deadlines()
    started = {}
    for seconds in sorted([0.01, 0.1, 30.0], reverse=not shortest_first):
        task = hanging()
        started[seconds] = (task, deadlines.start(task, seconds))
    for seconds in (0.01, 0.1):
        task, deadline = started[seconds]
        with pytest.raises(asyncio.CancelledError):
            await task
        assert deadline.has_expired
    task, deadline = started[30.0]
    assert not deadline.has_expired
    assert not task.done()


async def test_a_deadline_that_is_removed_does_not_expire(hanging):
    deadlines = Deadlines()
    off, on = hanging(), hanging()
    deadline = deadlines.start(off, 0.01)
    deadlines.start(on, 0.02)
    deadlines.remove(deadline)
    with pytest.raises(asyncio.CancelledError):
        await on
    assert not deadline.has_expired
    assert not off.done()


async def test_a_deadline_may_be_moved_to_earlier_as_well_as_to_later(hanging):
    deadlines = Deadlines()
    later, sooner = hanging(), hanging()
    later_one, sooner_one = deadlines.start(later, 0.01), deadlines.start(sooner, 30.0)
    later_one.extend(30.0)
    sooner_one.extend(0.05)
    with pytest.raises(asyncio.CancelledError):
        await sooner
    assert not later_one.has_expired


async def test_a_task_that_goes_on_when_its_time_is_over_is_canceled_once_more(monkeypatch):
    monkeypatch.setattr("noonbell.engine.attempt_runner.GRACE", 0.05)
    caught = []

    async def stubborn():
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                caught.append(deadline.has_expired)

    deadlines = Deadlines()
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    deadline = deadlines.start(task, 0.01)
    await task
    assert caught == [True, True]
    deadline.withdraw()
    assert task.cancelling() == 0


async def test_whoever_asks_first_the_answer_is_the_same_for_the_next():
    deadlines, answers = Deadlines(), []

    async def attempt():
        deadline = deadlines.start(asyncio.current_task(), 0.01)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            answers.extend([deadline.expired_alone(), deadline.expired_alone(), deadline.task.cancelling()])

    await attempt()
    assert answers == [True, True, 0]
