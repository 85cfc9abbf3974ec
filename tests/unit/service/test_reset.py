"""A reset: the repeat count starts anew, whatever the task was."""

from __future__ import annotations

import pytest

from noonbell.clock import ManualClock
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.service import Services

TWICE = {"type": "interval", "every": 10, "unit": "second", "repeat": 2}


async def one_slot_later(services: Services, clock: ManualClock) -> Task:
    clock.advance(10)
    await services.store.plan(10)
    return await services.tasks.get(TaskId(1))


@pytest.fixture
async def task(services: Services, clock: ManualClock) -> Task:
    await services.tasks.create({"name": "t", "job_type": "x", "schedule": TWICE})
    return await one_slot_later(services, clock)


async def test_of_a_task_that_is_enabled(services: Services, clock: ManualClock, task: Task):
    assert task.fired == 1
    task = await services.tasks.reset(task.id)
    assert (task.status, task.fired) == (TaskStatus.ENABLED, 0)
    assert (await one_slot_later(services, clock)).status is TaskStatus.ENABLED
    assert (await one_slot_later(services, clock)).status is TaskStatus.COMPLETED


async def test_of_a_task_that_is_disabled(services: Services, task: Task):
    await services.tasks.disable(task.id)
    task = await services.tasks.reset(task.id)
    assert (task.status, task.fired) == (TaskStatus.ENABLED, 0)


async def test_of_a_task_that_has_not_begun_to_count_nothing_is_written(services: Services):
    await services.tasks.create({"name": "t", "job_type": "x", "schedule": TWICE})
    assert (await services.tasks.reset(TaskId(1))).version == 1
