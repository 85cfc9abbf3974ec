"""Many tasks at once: each is enabled or disabled as if alone; since when and by whom; and the labels that tasks have."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from conformance.store.builders import Node, at, disable, edit, every, http, job, newest, news, reread, runs_of
from noonbell.clock import ManualClock
from noonbell.model.task import Task, TaskStatus
from noonbell.ports import Store

ENABLED, DISABLED = TaskStatus.ENABLED, TaskStatus.DISABLED


def alike(one: Task, other: Task) -> bool:
    """The same but for who they are."""
    twin = msgspec.structs.replace(
        other, id=one.id, uid=one.uid, spec=msgspec.structs.replace(other.spec, name=one.name)
    )
    return one == twin


async def test_many_are_changed_as_each_would_be_alone(store: Store, clock: ManualClock):
    alone, first, second = [await store.create_task(http(name, schedule=every(10))) for name in ("a", "b", "c")]
    clock.advance(25)
    alone = await disable(store, alone)
    changed = await store.set_status([first.id, second.id], DISABLED, by="ann")
    assert [alike(alone, task) for task in changed] == [True, True]
    assert [await reread(store, task) for task in changed] == changed
    slots = [[run.scheduled_time for run in await runs_of(store, task)] for task in (alone, first, second)]
    assert slots == [slots[0]] * 3
    assert len(slots[0]) > 0, "the slots that were due are accounted for before the change"
    clock.advance(60)
    alone = await edit(store, alone, status=ENABLED)
    changed = await store.set_status([second.id, first.id], ENABLED)
    assert [alike(alone, task) for task in changed] == [True, True]
    assert [task.next_fire_at for task in changed] == [at(90)] * 2, "from now on, without catching up"
    for task in changed:
        versions = await store.task_versions(task.id)
        assert [(each.version, each.status, each.changed_by) for each in versions] == [
            (1, ENABLED, None),
            (2, DISABLED, "ann"),
            (3, ENABLED, None),
        ]


async def test_only_those_that_the_change_is_for_are_changed_and_told_of(store: Store):
    tasks = {name: await store.create_task(job(name, schedule=every(10))) for name in ("on", "off", "ill", "gone")}
    await disable(store, tasks["off"])
    await edit(store, tasks["ill"], status=TaskStatus.ERROR)
    await store.delete_task(tasks["gone"].id)
    before = {name: await reread(store, task) for name, task in tasks.items()}
    seen = await newest(store)
    changed = await store.set_status([*(task.id for task in tasks.values()), 999], DISABLED, by="ann")
    assert [task.name for task in changed] == ["on"]
    assert [await reread(store, tasks[name]) for name in ("off", "ill", "gone")] == [
        before[name] for name in ("off", "ill", "gone")
    ]
    told = [(event.type, event.task_id, event.data.get("by")) for event in await news(store, seen)]
    assert told == [("task.disabled", tasks["on"].id, "ann")]
    assert await store.set_status([tasks["on"].id], DISABLED) == []
    assert await store.set_status([], DISABLED) == []


async def test_one_without_a_further_slot_is_completed_when_it_is_enabled(store: Store, clock: ManualClock):
    task = await disable(store, await store.create_task(job(schedule=every(10), end_at=at(30))))
    clock.advance(60)
    (changed,) = await store.set_status([task.id], ENABLED)
    assert (changed.status, changed.next_fire_at) == (TaskStatus.COMPLETED, None)


async def test_two_nodes_that_turn_the_same_tasks_change_each_of_them_once(store: Store, another_node: Node):
    other = await another_node()
    ids = [(await store.create_task(job(f"t{number}", schedule=every(10)))).id for number in range(20)]
    answers = await asyncio.gather(
        *(node.set_status(wanted, DISABLED) for node in (store, other) for wanted in (ids, ids[::-1]))
    )
    assert sorted(task.id for answer in answers for task in answer) == ids
    assert {(await store.task(task_id)).version for task_id in ids} == {2}


async def test_since_when_and_by_whom(store: Store, clock: ManualClock):
    paused, never = await store.create_task(job("a"), by="li"), await store.create_task(job("b"), by="li")
    clock.advance(5)
    await store.set_status([paused.id], DISABLED, by="ann")
    clock.advance(5)
    await edit(store, paused, description="another version of the same status")
    turns = await store.turns([paused.id, never.id, 999])
    assert {task_id: (turn.at, turn.by) for task_id, turn in turns.items()} == {
        paused.id: (at(5), "ann"),
        never.id: (at(0), "li"),
    }
    assert await store.turns([]) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["team=billing", "env=prod", "team=ops"]),
        ("team", ["team=billing", "team=ops"]),
        ("PRO", ["env=prod"]),
        ("team=o", ["team=ops"]),
        ("env=ops", []),
        ("%", []),
    ],
)
async def test_labels_are_found_by_a_part_the_most_used_first(store: Store, text: str, found: list[str]):
    for number, labels in enumerate(({"team": "billing"}, {"team": "billing", "env": "prod"}, {"team": "ops"})):
        await store.create_task(job(f"t{number}", labels=labels))
    gone = await store.create_task(job("gone", labels={"team": "gone"}))
    await store.delete_task(gone.id)
    assert [f"{label.name}={label.value}" for label in await store.labels(text)] == found
    if not text:
        assert [label.tasks for label in await store.labels(limit=2)] == [2, 1]
