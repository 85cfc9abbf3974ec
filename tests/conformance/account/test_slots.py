"""The list of a task's slots: every fate that a slot can have, ranges merged, page by page, under the versions of then."""

from __future__ import annotations

from typing import Any

from conformance.store.builders import (
    START,
    after_each,
    at,
    claim,
    claim_one,
    done,
    edit,
    every,
    fail,
    finish,
    job,
)
from noonbell.clock import ManualClock, rfc3339
from noonbell.model.request import TaskChange
from noonbell.model.task import MisfirePolicy, OnExhausted, OverlapAction, Task, TaskStatus
from noonbell.ports import Store
from noonbell.service.account import Slots


async def listed(store: Store, task: Task, until: float, limit: int = 1000) -> list[dict[str, Any]]:
    return (await Slots(store).page(task, START, at(until), limit))["items"]


async def fates(store: Store, task: Task, until: float) -> list[tuple[float, float, int, str]]:
    """(first, last, count, outcome), in seconds after START."""
    named = {rfc3339(at(seconds)): seconds for seconds in range(1000)}
    return [
        (named[item["slot"]], named[item["last"]], item["count"], item["outcome"])
        for item in await listed(store, task, until)
    ]


async def turned(store: Store, task: Task, status: TaskStatus, by: str) -> None:
    await store.change_task(task.id, lambda now: TaskChange(spec=now.spec, status=status), by=by)


async def test_each_slot_is_listed_with_its_outcome(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    clock.set(at(10))
    await store.plan(10)
    first = await claim_one(store)
    await done(store, finish(first))
    clock.set(at(20))
    await store.plan(10)
    second = await claim_one(store)
    clock.set(at(30))
    await store.plan(10)
    clock.set(at(41))
    assert await fates(store, task, 60) == [
        (10, 10, 1, "ran"),
        (20, 20, 1, "running"),
        (30, 30, 1, "skipped"),
        (40, 40, 1, "due"),
        (50, 50, 1, "planned"),
        (60, 60, 1, "planned"),
    ]
    items = await listed(store, task, 60)
    assert [item["run_id"] for item in items[:2]] == [first.run_id, second.run_id]
    assert (items[2]["reason"], items[2]["status"]) == ("overlap", "SKIPPED")
    assert await store.cancel([second.run_id])
    assert (await fates(store, task, 20))[-1] == (20, 20, 1, "canceled")


async def test_dropped_slots_are_one_item_and_only_the_part_that_was_asked_for(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), misfire_policy=MisfirePolicy.FIRE_ONCE))
    clock.set(at(105))
    await store.plan(10)
    assert await fates(store, task, 105) == [(10, 90, 9, "dropped"), (100, 100, 1, "waiting")]
    (part,) = (await Slots(store).page(task, at(35), at(62)))["items"]
    assert (part["slot"], part["last"], part["count"]) == (rfc3339(at(40)), rfc3339(at(60)), 3)
    assert part["reason"] == "misfire"


async def test_slots_that_passed_while_it_was_off_say_who_turned_it_off(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(15))
    await turned(store, task, TaskStatus.DISABLED, "ann")
    clock.set(at(45))
    await turned(store, task, TaskStatus.ENABLED, "bob")
    clock.set(at(60))
    await store.plan(10)
    assert await fates(store, task, 60) == [
        (10, 10, 1, "waiting"),
        (20, 40, 3, "disabled"),
        (50, 50, 1, "waiting"),
        (60, 60, 1, "waiting"),
    ]
    off = (await listed(store, task, 60))[1]
    assert (off["actor"], off["since"], off["task_version"]) == ("ann", rfc3339(at(15)), 2)


async def test_past_slots_are_those_of_the_versions_that_were_in_force(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(25))
    await edit(store, task, schedule=every(20))
    clock.set(at(50))
    await store.plan(10)
    assert [item[0] for item in await fates(store, task, 70)] == [10, 20, 40, 60]
    assert [item["task_version"] for item in await listed(store, task, 70)] == [1, 1, 2, 2]


async def test_completed_deleted_and_failed_tasks_say_so(store: Store, clock: ManualClock):
    used_up = await store.create_task(job("a", schedule=every(10, repeat=1)))
    broken = await store.create_task(job("b", schedule=every(10), on_exhausted=OnExhausted.ERROR))
    gone = await store.create_task(job("c", schedule=every(10)))
    clock.set(at(10))
    await store.plan(10)
    for lease in await claim(store):
        await done(store, fail(lease))
    await store.delete_task(gone.id, by="ann")
    clock.set(at(45))
    assert await fates(store, used_up, 45) == [(10, 10, 1, "ran"), (20, 40, 3, "completed")]
    assert await fates(store, broken, 45) == [(10, 10, 1, "ran"), (20, 40, 3, "error")]
    assert await fates(store, gone, 45) == [(10, 10, 1, "ran"), (20, 40, 3, "deleted")]


async def test_past_its_end_a_task_has_no_slots(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), end_at=at(20)))
    clock.set(at(45))
    await store.plan(10)
    assert await fates(store, task, 60) == [(10, 10, 1, "waiting"), (20, 20, 1, "waiting")]


async def test_what_retention_removed_is_told_apart(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    for seconds in (10, 20, 30):
        clock.set(at(seconds))
        await store.plan(10)
        await done(store, finish(await claim_one(store)))
    await store.clean(at(25), 100)
    assert await fates(store, task, 30) == [(10, 20, 2, "cleaned"), (30, 30, 1, "ran")]


async def test_a_fixed_delay_has_the_slots_that_were_recorded_and_the_next(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    clock.set(at(10))
    await store.plan(10)
    clock.set(at(13))
    await done(store, finish(await claim_one(store)))
    assert await fates(store, task, 60) == [(10, 10, 1, "ran"), (23, 23, 1, "planned")]


async def test_pages_follow_each_other_without_gap_or_repeat(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(100))
    await store.plan(10)
    await turned(store, task, TaskStatus.DISABLED, "ann")
    clock.set(at(200))
    found: list[str] = []
    since = START
    while True:
        page = await Slots(store).page(task, since, at(200), 3)
        found += [item["slot"] for item in page["items"]]
        if page["next_from"] is None:
            break
        since = at((len(found)) * 10 + 1)
        assert page["next_from"] == rfc3339(since)
    assert found == [rfc3339(at(10 * number)) for number in range(1, 11)] + [rfc3339(at(110))]


async def test_left_to_itself_it_lists_the_last_day(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(3600)))
    clock.set(at(40 * 3600))
    await store.plan(10)
    page = await Slots(store).page(task)
    assert (page["from"], page["to"]) == (rfc3339(at(16 * 3600)), rfc3339(at(40 * 3600)))
    assert sum(item["count"] for item in page["items"]) == 25
