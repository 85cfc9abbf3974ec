"""A task that is paused with a reason and an end: what was said is kept, the end comes by itself, once, and no slot is unaccounted for."""

from __future__ import annotations

import asyncio

import pytest

from conformance.store.builders import (
    Node,
    at,
    born_at,
    cron,
    disable,
    dropped,
    edit,
    enable,
    every,
    http,
    job,
    newest,
    news,
    once,
    reread,
)
from noonbell.clock import ManualClock, rfc3339
from noonbell.model.request import TaskChange
from noonbell.model.task import SCHEDULER_ACTOR, MisfirePolicy, Task, TaskPause, TaskStatus
from noonbell.ports import Store
from noonbell.sealing import Sealer, new_key_line, read_keys
from noonbell.service.audit_log import AuditLog
from noonbell.service.consistency import audit
from noonbell.service.explain import Explain
from noonbell.stores.sql.store import SqlStore

ENABLED, DISABLED = TaskStatus.ENABLED, TaskStatus.DISABLED


async def pause(store: Store, task: Task, until: float | None = None, reason: str = "the vendor is down") -> Task:
    end = None if until is None else at(until)
    said = TaskPause(reason=reason, until=end, by="alice", at=await store.now())
    return await store.change_task(
        task.id, lambda now: TaskChange(spec=now.spec, status=DISABLED, pause=said), by="alice"
    )


async def due(store: Store) -> int:
    assert isinstance(store, SqlStore)
    return int((await store.fetch("select count(*) from task_pauses where due_at is not null"))[0][0])


# ---- what is said


async def test_what_was_said_of_a_pause_is_read_with_the_task_and_with_its_versions(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10)))
    clock.advance(5)
    before = await newest(store)
    paused = await pause(store, task, until=60)
    said = TaskPause(reason="the vendor is down", until=at(60), by="alice", at=at(5))
    assert (paused.status, paused.pause, paused.next_fire_at) == (DISABLED, said, None)
    assert await reread(store, task) == paused
    assert [version.pause for version in await store.task_versions(task.id)] == [None, said]
    (told,) = await news(store, before)
    assert (told.type, told.data) == (
        "task.disabled",
        {"by": "alice", "version": 2, "reason": "the vendor is down", "until": rfc3339(at(60))},
    )


async def test_a_pause_of_which_nothing_is_said_is_what_it_was_before(store: Store):
    task = await store.create_task(http(schedule=every(10)))
    before = await newest(store)
    paused = await disable(store, task)
    assert paused.pause is None
    assert [(event.type, event.data) for event in await news(store, before)] == [
        ("task.disabled", {"by": None, "version": 2})
    ]
    assert (await store.resume_due(100)).tasks == ()


async def test_an_edit_of_a_paused_task_keeps_what_was_said_and_its_end(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    edited = await edit(store, task, priority=5)
    assert (edited.version, edited.pause) == (3, task.pause)
    clock.advance(60)
    (resumed,) = (await store.resume_due(100)).tasks
    assert (resumed.version, resumed.status, resumed.spec.priority, resumed.pause) == (4, ENABLED, 5, None)


async def test_what_is_said_of_a_pause_can_be_changed_and_the_new_end_counts(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    before = await newest(store)
    longer = await pause(store, task, until=120, reason="it takes longer")
    assert (longer.version, longer.status) == (3, DISABLED)
    assert [event.type for event in await news(store, before)] == ["task.changed"]
    assert await pause(store, longer, until=120, reason="it takes longer") == longer, "nothing new writes nothing"
    clock.advance(60)
    assert (await store.resume_due(100)).tasks == ()
    assert (await reread(store, task)).pause == longer.pause
    clock.advance(60)
    assert [one.id for one in (await store.resume_due(100)).tasks] == [task.id]


async def test_a_pause_whose_end_is_taken_away_lasts(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    await pause(store, task, until=None, reason="")
    clock.advance(3600)
    assert (await store.resume_due(100)).tasks == ()
    assert (await reread(store, task)).status is DISABLED
    assert await due(store) == 0, "the sweep has no more to look at"


@pytest.mark.parametrize("how", ["enabled", "deleted", "error", "purged"])
async def test_nothing_is_left_to_resume_of_a_pause_that_ended_otherwise(store: Store, clock: ManualClock, how: str):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    if how == "enabled":
        await enable(store, task)
    elif how == "error":
        await edit(store, task, status=TaskStatus.ERROR)
    else:
        await store.delete_task(task.id, purge=how == "purged")
    left = await store.task(task.id)
    assert left is None or left.pause is None
    clock.advance(60)
    before = await newest(store)
    assert (await store.resume_due(100)).tasks == ()
    assert await store.task(task.id) == left
    assert await news(store, before) == []
    assert await due(store) == 0


# ---- the end


async def test_the_end_of_a_pause_resumes_the_task_with_one_event_and_one_entry_of_the_audit_log(
    store: Store, clock: ManualClock
):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    clock.set(at(59.999))
    assert (await store.resume_due(100)).tasks == ()
    clock.set(at(60.5))
    before = await newest(store)
    sealer = Sealer(read_keys(new_key_line("k1").encode()))
    resumed = await store.resume_due(100, sealer.sign)
    assert [(one.id, one.status, one.version) for one in resumed.tasks] == [(task.id, ENABLED, 3)]
    assert resumed.tasks == (await reread(store, task),)
    assert [(event.type, event.task_id, event.data) for event in await news(store, before)] == [
        ("task.enabled", task.id, {"by": SCHEDULER_ACTOR, "version": 3, "why": "pause_ended"})
    ]
    (entry,) = await store.audit_log()
    assert (entry.deed.actor, entry.deed.action, entry.deed.subject) == (
        SCHEDULER_ACTOR,
        "resume_task",
        f"/tasks/{task.id}",
    )
    assert entry.key_id == "k1"
    assert (await AuditLog(store, sealer).check()).is_sound
    assert (await store.resume_due(100)).tasks == ()


async def test_two_nodes_that_sweep_at_once_resume_each_task_once(store: Store, another_node: Node, clock: ManualClock):
    other = await another_node()
    ids = set()
    for number in range(30):
        task = await store.create_task(http(f"t{number}", schedule=every(10)))
        ids.add((await pause(store, task, until=60 + number % 3)).id)
    clock.set(at(63))
    before = await newest(store)
    answers = await asyncio.gather(*(node.resume_due(20) for node in (store, other, store, other) for _ in range(2)))
    resumed = [task.id for answer in answers for task in answer.tasks]
    assert sorted(resumed) == sorted(set(resumed))
    while (more := await store.resume_due(20)).looked_at:
        resumed += [task.id for task in more.tasks]
    assert sorted(resumed) == sorted(ids)
    told = [event.task_id for event in await news(store, before) if event.type == "task.enabled"]
    assert sorted(told, key=lambda one: one or 0) == sorted(ids)
    assert sorted(entry.deed.subject for entry in await store.audit_log(limit=100)) == sorted(
        f"/tasks/{id_}" for id_ in ids
    )
    assert await due(store) == 0


async def test_the_end_and_an_operator_who_resumes_at_once_make_one_change(
    store: Store, another_node: Node, clock: ManualClock
):
    other = await another_node()
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    clock.set(at(60))
    swept, turned = await asyncio.gather(store.resume_due(100), other.set_status([task.id], ENABLED, by="bob"))
    assert len(swept.tasks) + len(turned) == 1
    assert (await reread(store, task)).version == 3


async def test_a_batch_takes_those_first_whose_end_is_longest_past(store: Store, clock: ManualClock):
    tasks = [await store.create_task(http(f"t{number}", schedule=every(10))) for number in range(3)]
    for task, until in zip(tasks, (40, 20, 30), strict=True):
        await pause(store, task, until=until)
    clock.set(at(100))
    answers = [await store.resume_due(1) for _ in range(4)]
    assert [[task.id for task in answer.tasks] for answer in answers] == [
        [tasks[1].id],
        [tasks[2].id],
        [tasks[0].id],
        [],
    ]
    assert [answer.looked_at for answer in answers] == [1, 1, 1, 0]


# ---- the slots


async def test_slots_before_the_end_are_left_out_and_one_at_the_end_is_not(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    clock.set(at(60.4))
    (resumed,) = (await store.resume_due(100)).tasks
    assert resumed.next_fire_at == at(60)
    await store.plan(100)
    assert await born_at(store, task) == [60]
    assert (await audit(store)).flaws == []


@pytest.mark.parametrize("late", [0, 0.3, 7, 65])
async def test_a_sweep_that_comes_late_leaves_no_slot_after_the_end_without_an_outcome(
    store: Store, clock: ManualClock, late: float
):
    spec = http(schedule=every(10), misfire_policy=MisfirePolicy.CATCH_UP_LIMITED, misfire_grace_seconds=1)
    task = await pause(store, await store.create_task(spec), until=45.5)
    clock.set(at(45.5 + late))
    await store.resume_due(100)
    clock.set(at(120))
    await store.plan(100)
    born = await born_at(store, task)
    gone = sum(one.count for one in await dropped(store, task))
    assert len(born) + gone == 8, "50, 60, …, 120"
    assert all(slot >= 50 for slot in born)
    assert (await audit(store)).flaws == []


async def test_slots_that_became_due_while_no_node_swept_are_a_misfire_as_after_a_downtime(
    store: Store, clock: ManualClock
):
    spec = http(schedule=every(10), misfire_policy=MisfirePolicy.SKIP, misfire_grace_seconds=1)
    task = await pause(store, await store.create_task(spec), until=60)
    clock.set(at(95))
    await store.resume_due(100)
    await store.plan(100)
    assert [one.count for one in await dropped(store, task)] == [4], "60, 70, 80 and 90"
    assert (await audit(store)).flaws == []


async def test_an_edit_after_the_end_and_before_the_sweep_does_not_lose_a_slot(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(http(schedule=every(10))), until=60)
    clock.set(at(61))
    await edit(store, task, priority=3)
    clock.set(at(62))
    (resumed,) = (await store.resume_due(100)).tasks
    assert resumed.next_fire_at == at(70), "the version that was edited at 61 is paused, and it begins then"
    clock.set(at(80))
    await store.plan(100)
    assert (await audit(store)).flaws == []


@pytest.mark.parametrize("schedule", [cron("0 0 * * * *"), every(3600, repeat=3), once("2026-01-01T10:30:00Z")])
async def test_every_kind_of_schedule_goes_on_after_the_end(
    store: Store, clock: ManualClock, schedule: dict[str, object]
):
    task = await pause(store, await store.create_task(job(schedule=schedule)), until=1200)
    clock.set(at(1201))
    (resumed,) = (await store.resume_due(100)).tasks
    assert resumed.next_fire_at == (at(1800) if schedule["type"] == "once" else at(3600))
    assert (await audit(store)).flaws == []
    assert (await reread(store, task)).status is ENABLED


async def test_a_task_without_a_further_slot_is_completed_at_the_end(store: Store, clock: ManualClock):
    task = await pause(store, await store.create_task(job(schedule=every(10), end_at=at(30))), until=60)
    clock.set(at(60))
    (resumed,) = (await store.resume_due(100)).tasks
    assert (resumed.id, resumed.status) == (task.id, TaskStatus.COMPLETED)
    assert (await store.resume_due(100)).tasks == ()


async def test_explain_says_who_paused_it_why_until_when_and_that_it_was_resumed(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10)))
    clock.set(at(1))
    await pause(store, task, until=60)
    explain = Explain(store)
    now = await explain.of_task(task)
    assert (now["cause"], now["actor"]) == ("disabled", "alice")
    assert "Reason given: the vendor is down." in now["message"]
    assert "It will be resumed at 2026-01-01 10:01:00+00:00." in now["message"]
    clock.set(at(60))
    await store.resume_due(100)
    await store.plan(100)
    clock.set(at(75))
    then = await explain.of_task(task, at(30))
    assert (then["cause"], then["actor"]) == ("disabled", "alice")
    assert "the vendor is down" in then["message"]
    assert "It was paused until 2026-01-01 10:01:00+00:00, when it resumed automatically." in then["message"]
    assert (await explain.of_task(task, at(60)))["cause"] == "no_worker"
    assert "任务被暂停至" in (await explain.of_task(task, at(30), "zh"))["message"]
