"""Many tasks in one transaction: created, changed and deleted, refused as a whole, and completed together."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import Sizes, at, every, job, news, once, reread, runs_of
from noonbell.clock import ManualClock
from noonbell.errors import AlreadyExists, NotFound, VersionConflict
from noonbell.model.request import NewTask, TaskChange, TaskEdit, TaskQuery
from noonbell.model.run import RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.ports import Store

SOON = "2026-01-01T10:00:05Z"


async def test_many_are_created_in_the_order_of_the_list(store: Store):
    made = await store.create_tasks(
        [
            NewTask(spec=job("a", schedule=every(10), labels={"team": "x"}), by="ann"),
            NewTask(spec=job("b", max_concurrency=2, external_id="e-1"), status=TaskStatus.DISABLED, by="bob"),
            NewTask(spec=job("c", schedule=every(5)), skip_next=2, by="ann"),
        ]
    )
    assert [(task.id, task.name, task.status, task.created_by) for task in made] == [
        (1, "a", TaskStatus.ENABLED, "ann"),
        (2, "b", TaskStatus.DISABLED, "bob"),
        (3, "c", TaskStatus.ENABLED, "ann"),
    ]
    assert [task.next_fire_at for task in made] == [at(10), None, at(5)]
    assert [await reread(store, task) for task in made] == made
    assert [(await store.task_versions(task.id))[0].changed_by for task in made] == ["ann", "bob", "ann"]
    assert [label.value for label in await store.labels()] == ["x"]
    assert {event.task_id for event in await news(store, 0) if event.type == "task.created"} == {1, 2, 3}


async def test_more_than_one_statement_takes_are_one_transaction(store: Store):
    made = await store.create_tasks([NewTask(spec=job(f"t{number}")) for number in range(1_201)])
    assert [task.id for task in made] == list(range(1, 1_202))
    assert (await store.tasks(TaskQuery())).total == 1_201


async def test_none_is_created_where_one_name_is_taken(store: Store):
    taken = await store.create_task(job("taken", external_id="x"))
    with pytest.raises(AlreadyExists) as refused:
        await store.create_tasks(
            [NewTask(spec=job("new")), NewTask(spec=job("taken")), NewTask(spec=job("other", external_id="x"))]
        )
    assert refused.value.details == {
        "tasks[1].name": f"is 'taken', which task {taken.id} has already",
        "tasks[2].external_id": f"is 'x', which task {taken.id} has already",
    }
    assert (await store.tasks(TaskQuery())).items == [taken]
    assert (await store.create_tasks([NewTask(spec=job("new"))]))[0].id == 2


async def test_none_is_created_where_two_of_the_list_want_one_name(store: Store):
    with pytest.raises(AlreadyExists) as refused:
        await store.create_tasks([NewTask(spec=job("a")), NewTask(spec=job("b")), NewTask(spec=job("a"))])
    assert refused.value.details == {"tasks[2].name": "is 'a', as that of tasks[0]; expected one task for each name"}
    assert (await store.tasks(TaskQuery())).total == 0


async def test_callers_who_create_at_once_each_get_their_own_answer(store: Store):
    names = [f"t{number}" for number in range(20)]
    answers = await asyncio.gather(
        *(store.create_task(job(name), by=name) for name in names),
        *(store.create_task(job("t3")) for _ in range(3)),
        return_exceptions=True,
    )
    made, refused = answers[:20], answers[20:]
    assert [task.created_by for task in made if isinstance(task, Task)] == names
    assert len({task.id for task in made if isinstance(task, Task)}) == 20
    third = made[3]
    assert isinstance(third, Task)
    for answer in refused:
        assert isinstance(answer, AlreadyExists)
        assert answer.details == {"name": "is taken", "id": third.id}
    assert (await store.tasks(TaskQuery())).total == 20


async def test_once_tasks_that_are_due_together_each_complete_with_their_run(store: Store, clock: ManualClock):
    made = await store.create_tasks([NewTask(spec=job(f"t{n}", schedule=once(SOON))) for n in range(30)])
    lasting = await store.create_task(job("lasting", schedule=every(5)))
    clock.advance(5)
    planned = await store.plan(100)
    assert (planned.tasks, planned.born) == (31, 31)
    for task in made:
        ended = await reread(store, task)
        assert (ended.status, ended.version, ended.next_fire_at, ended.fired) == (TaskStatus.COMPLETED, 2, None, 1)
        assert ended.accounted_to == at(5)
        assert [run.task_version for run in await runs_of(store, task)] == [1]
        assert [each.status for each in await store.task_versions(task.id)] == [
            TaskStatus.ENABLED,
            TaskStatus.COMPLETED,
        ]
    assert (await reread(store, lasting)).status is TaskStatus.ENABLED
    told = sorted(event.task_id or 0 for event in await news(store, 0) if event.type == "task.completed")
    assert told == [task.id for task in made]
    assert (await store.plan(100)).tasks == 0


async def test_of_those_that_complete_with_nothing_to_run_the_ones_that_ask_for_it_are_deleted(
    store: Store, clock: ManualClock
):
    gone, kept = await store.create_tasks(
        [
            NewTask(spec=job("gone", schedule=once(SOON), delete_on_complete=True), skip_next=1),
            NewTask(spec=job("kept", schedule=once(SOON)), skip_next=1),
        ]
    )
    clock.advance(5)
    assert (await store.plan(100)).skipped == 2
    found = await store.task(gone.id)
    assert found is not None
    assert (found.deleted_at, found.version) == (at(5), 3)
    assert (await reread(store, kept)).status is TaskStatus.COMPLETED


# ---- changed and deleted together


def to(task: Task, expect_version: int | None = None, **fields: Any) -> TaskEdit:
    def change(found: Task) -> TaskChange:
        return TaskChange(spec=msgspec.structs.replace(found.spec, **fields), status=found.status)

    return TaskEdit(task.id, change, expect_version)


async def test_many_are_changed_each_in_its_own_way(store: Store, clock: ManualClock):
    a, b, c = await store.create_tasks(
        [
            NewTask(spec=job("a", schedule=every(10), labels={"team": "x"})),
            NewTask(spec=job("b", schedule=every(10))),
            NewTask(spec=job("c")),
        ]
    )
    clock.advance(10)
    changed = await store.change_tasks(
        [to(c, priority=7), to(a, labels={"team": "y"}, max_concurrency=3), to(b, 1, name="bee", schedule=every(60))],
        by="ann",
    )
    assert [(task.name, task.version) for task in changed] == [("c", 2), ("a", 2), ("bee", 2)]
    assert [await reread(store, task) for task in changed] == changed
    assert [label.value for label in await store.labels()] == ["y"]
    # The slot that was due is accounted for under the old version, and the new schedule starts from now.
    assert [run.task_version for run in await runs_of(store, b)] == [1]
    assert (changed[2].next_fire_at, changed[1].next_fire_at) == (at(60), at(20))
    assert await store.task_named("b") is None
    assert [version.changed_by for version in await store.task_versions(a.id)] == [None, "ann"]


async def test_what_changes_nothing_writes_no_version(store: Store):
    a, b = await store.create_tasks([NewTask(spec=job("a")), NewTask(spec=job("b"))])
    changed = await store.change_tasks([to(a, priority=a.spec.priority), to(b, priority=9)])
    assert [task.version for task in changed] == [1, 2]


async def test_none_is_changed_where_one_cannot_be(store: Store):
    a, b = await store.create_tasks([NewTask(spec=job("a")), NewTask(spec=job("b"))])
    gone = await store.create_task(job("gone"))
    await store.delete_task(gone.id)
    with pytest.raises(NotFound) as missing:
        await store.change_tasks([to(a, priority=9), to(gone, priority=9), to(b, 4, priority=9)])
    assert set(missing.value.details) == {"tasks[1]", "tasks[2]"}
    with pytest.raises(AlreadyExists) as taken:
        await store.change_tasks([to(a, priority=9), to(b, name="a")])
    assert set(taken.value.details) == {"tasks[1].name"}
    with pytest.raises(AlreadyExists) as twice:
        await store.change_tasks([to(a, name="z"), to(b, name="z")])
    assert set(twice.value.details) == {"tasks[1].name"}
    assert [await reread(store, task) for task in (a, b)] == [a, b]


async def test_many_are_deleted_with_the_runs_that_wait(store: Store, clock: ManualClock):
    made = await store.create_tasks([NewTask(spec=job(name, schedule=every(10))) for name in ("a", "b", "kept")])
    clock.advance(10)
    deleted = await store.delete_tasks({made[1].id: 1, made[0].id: None}, by="ann")
    assert [(task.name, task.version, task.deleted_at) for task in deleted] == [("b", 2, at(10)), ("a", 2, at(10))]
    for task in made[:2]:
        assert [run.status for run in await runs_of(store, task)] == [RunStatus.CANCELED]
        assert [version.deleted for version in await store.task_versions(task.id)] == [False, True]
    assert (await store.create_task(job("a"))).id == 4
    assert [task.name for task in (await store.tasks(TaskQuery())).items] == ["kept", "a"]
    assert (await store.plan(10)).tasks == 1


async def test_none_is_deleted_where_one_cannot_be(store: Store):
    a, b = await store.create_tasks([NewTask(spec=job("a")), NewTask(spec=job("b"))])
    system = await store.create_task(job("built-in"), system=True)
    with pytest.raises(VersionConflict) as refused:
        await store.delete_tasks({a.id: None, b.id: 7, system.id: None})
    assert set(refused.value.details) == {"tasks[1]", "tasks[2]"}
    assert [await reread(store, task) for task in (a, b, system)] == [a, b, system]


async def test_a_purge_of_many_leaves_no_row(store: Store, table_sizes: Sizes, clock: ManualClock):
    kept = await store.create_task(job("kept"))
    before = await table_sizes()
    made = await store.create_tasks([NewTask(spec=job(name, schedule=every(10), labels={"a": "b"})) for name in "xyz"])
    clock.advance(10)
    await store.plan(10)
    await store.delete_tasks({task.id: None for task in made}, purge=True)
    after = await table_sizes()
    stays = ("events", "rollup_deltas")  # that runs ended stays in the figures of all runs and of their queue
    assert {name: size for name, size in after.items() if name not in stays} == {
        name: size for name, size in before.items() if name not in stays
    }
    assert (await reread(store, kept)) == kept


async def test_tasks_are_found_by_many_names(store: Store):
    a, b = await store.create_tasks([NewTask(spec=job("a")), NewTask(spec=job("b"))])
    await store.delete_task(b.id)
    assert await store.tasks_named({"a", "b", "A"}) == {"a": a}
    assert await store.tasks_named(()) == {}
