"""A schedule that could be read when it was saved, and cannot be read now: the zone data has changed."""

from __future__ import annotations

from conformance.store.builders import at, every, job
from noonbell.clock import ManualClock
from noonbell.model.request import TaskChange
from noonbell.model.task import Task, TaskPause, TaskStatus
from noonbell.stores.sql.statement import Execute
from noonbell.stores.sql.store import SqlStore


async def test_a_task_that_cannot_be_read_any_longer_stops_no_other(store: SqlStore, clock: ManualClock) -> None:
    lost = await store.create_task(job("lost", schedule=every(1)))
    sound = await store.create_task(job("sound", schedule=every(1)))

    def forget(_: object):
        yield Execute("update tasks set timezone = 'Mars/Olympus', version = 2 where id = :id", {"id": lost.id})
        yield Execute("update cursors set version = 2 where task_id = :id", {"id": lost.id})

    await store._write(forget)
    clock.advance(1)
    planned = await store.plan(10)
    assert planned.born == 1
    assert (await store.plan(10)).tasks == 0
    after = await store.task(lost.id)
    assert after is not None
    assert after.status is TaskStatus.ERROR
    assert (await store.task(sound.id)).next_fire_at is not None


async def test_a_paused_task_that_cannot_be_read_any_longer_keeps_no_other_paused(
    store: SqlStore, clock: ManualClock
) -> None:
    async def paused(name: str) -> Task:
        task = await store.create_task(job(name, schedule=every(10)))
        pause = TaskPause(until=at(60), at=await store.now())
        change = TaskChange(spec=task.spec, status=TaskStatus.DISABLED, pause=pause)
        return await store.change_task(task.id, lambda _: change)

    lost, sound = await paused("lost"), await paused("sound")

    def forget(_: object):
        yield Execute("update tasks set timezone = 'Mars/Olympus' where id = :id", {"id": lost.id})

    await store._write(forget)
    clock.advance(60)
    resumed = await store.resume_due(100)
    assert [task.id for task in resumed.tasks] == [sound.id]
    found = {task.name: task.status for task in await store.tasks_by_id([lost.id, sound.id])}
    assert found == {"lost": TaskStatus.ERROR, "sound": TaskStatus.ENABLED}
    assert await store.fetch("select count(*) from task_pauses where due_at is not null") == [(0,)]
