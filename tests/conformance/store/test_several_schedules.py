"""A task with several schedules, and with excluded ones: each slot is accounted for once, through edits too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.store.builders import Node, at, born_at, cron, dropped, edit, every, job, normal, reread
from noonbell.clock import ManualClock
from noonbell.model.task import MisfirePolicy, TaskStatus
from noonbell.model.task_schedule import ClockChanges, GapRule, RepeatedTimeRule
from noonbell.ports import Store

TWO, THREE = cron("*/2 * * * *"), cron("*/3 * * * *")


def stored(*schedules: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple(normal(each) or {} for each in schedules)


def minutes(*numbers: int) -> list[int]:
    return [60 * number for number in numbers]


async def test_a_slot_that_two_schedules_name_is_one_run(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedules=stored(TWO, THREE)))
    assert task.next_fire_at == at(120)
    clock.advance(6 * 60)
    await store.plan(10)
    assert await born_at(store, task) == minutes(2, 3, 4, 6)
    assert (await reread(store, task)).next_fire_at == at(8 * 60)


async def test_moments_that_are_excluded_are_nowhere_in_the_account(store: Store, clock: ManualClock):
    spec = job(schedule=TWO, exclude=stored(THREE), misfire_policy=MisfirePolicy.FIRE_ONCE)
    task = await store.create_task(spec)
    clock.advance(10 * 60)
    await store.plan(10)
    assert await born_at(store, task) == minutes(10)
    assert [(each.first, each.last, each.count) for each in await dropped(store, task)] == [(at(120), at(480), 3)]
    assert (await reread(store, task)).fired == 4


async def test_the_repeat_count_is_of_the_slots_that_are_left(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule={**TWO, "repeat": 3}, exclude=stored(THREE)))
    clock.advance(3600)
    await store.plan(10)
    assert await born_at(store, task) == minutes(2, 4, 8)
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


async def test_edits_between_schedule_and_schedules_account_for_each_slot_once(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=TWO))
    clock.advance(4 * 60)
    # The edit accounts for what is due before it, under the old schedule; slots of now are not born again.
    task = await edit(store, task, schedule=None, schedules=stored(TWO, THREE))
    assert (task.next_fire_at, task.version) == (at(6 * 60), 2)
    clock.advance(2 * 60)
    task = await edit(store, task, exclude=stored(cron("8-10 * * * *")))
    assert task.next_fire_at == at(12 * 60)
    clock.advance(6 * 60)
    task = await edit(store, task, schedules=(), exclude=(), schedule=every(60))
    clock.advance(60)
    await store.plan(10)
    assert await born_at(store, task) == minutes(2, 4, 6, 12, 13)


async def test_an_unrelated_edit_keeps_the_cursor(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedules=stored(TWO, THREE), exclude=stored(cron("0 * * * *"))))
    clock.advance(90)
    changed = await edit(store, task, description="new")
    assert changed.next_fire_at == task.next_fire_at == at(120)


async def test_a_change_of_dst_is_a_change_of_the_schedule(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule={**TWO, "repeat": 9}))
    clock.advance(4 * 60)
    await store.plan(10)
    task = await edit(store, task, dst=ClockChanges(gap=GapRule.SKIP, repeat=RepeatedTimeRule.LAST))
    assert (task.fired, task.next_fire_at) == (0, at(6 * 60))
    kept = await reread(store, task)
    assert kept.spec.dst == ClockChanges(gap=GapRule.SKIP, repeat=RepeatedTimeRule.LAST)


async def test_the_fields_come_back_as_they_were_saved(store: Store):
    spec = job(schedules=stored(TWO, every(7)), exclude=stored(THREE), dst=ClockChanges(gap=GapRule.EARLIER))
    task = await store.create_task(spec)
    assert (await reread(store, task)).spec == task.spec
    assert task.spec.schedules == spec.schedules
    (version,) = await store.task_versions(task.id)
    assert version.spec == task.spec


@pytest.mark.parametrize("nodes", [3])
async def test_nodes_that_plan_at_once_make_one_run_of_a_slot_of_two_schedules(
    store: Store, another_node: Node, clock: ManualClock, nodes: int
):
    task = await store.create_task(job(schedules=stored(TWO, THREE, every(60))))
    others = [await another_node() for _ in range(nodes - 1)]
    for _ in range(6):
        clock.advance(60)
        await asyncio.gather(*(each.plan(10) for each in (store, *others)))
    assert sorted(await born_at(store, task)) == minutes(1, 2, 3, 4, 5, 6)
