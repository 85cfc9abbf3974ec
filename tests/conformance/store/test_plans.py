"""What a plan asks of a store: runs that need no worker, results that are told, and finding it again."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.store.builders import (
    S,
    after_each,
    at,
    born_at,
    claim,
    claim_one,
    disable,
    done,
    edit,
    every,
    fail,
    finish,
    job,
    newest,
    news,
    once,
    publish,
    reread,
    retry,
    run_of,
    runs_of,
    started,
    status_of,
    trigger,
)
from noonbell.clock import ManualClock
from noonbell.model.event import Event
from noonbell.model.request import TaskChange, TaskQuery
from noonbell.model.task import Fanout, OnExhausted, Task, TaskSpec, TaskStatus
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store

MESSAGES = ["settle", {"open": True}]


def plan(target: str = "api", **fields: Any) -> TaskSpec:
    """A task that is a plan, for the station `default`."""
    own: dict[str, Any] = {
        "external_id": "1f4a",
        "meta": {"plan": {"target": target}},
        "payload": {"plan": {}, "messages": MESSAGES},
    }
    return job("plan:default:1f4a", **(own | fields))


async def told(store: Store, type_: str) -> list[Event]:
    return [event for event in await news(store, 0) if event.type == type_]


# ---- runs that need no worker


async def test_a_published_run_is_over_at_its_slot_and_nobody_can_claim_it(store: Store, clock: ManualClock):
    task = await store.create_task(plan("pub", schedule=every(10, repeat=2)))
    clock.advance(10)
    planned = await store.plan(100)
    assert (planned.born, planned.event_only) == (1, 1)
    assert await claim(store) == []
    (run,) = await runs_of(store, task)
    assert (run.status, run.start_time, run.end_time, run.worker_id) == (S.SUCCESS, at(10), at(10), None)
    (event,) = await told(store, "run.published")
    assert (event.topic, event.run_id) == ("default", run.id)
    assert (event.data["subject"], event.data["messages"]) == ("1f4a", MESSAGES)

    clock.advance(10)
    await store.plan(100)
    assert await born_at(store, task) == [10, 20]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED
    assert len(await told(store, "run.published")) == 2


async def test_a_published_run_counts_and_frees_its_place_like_any_other(store: Store, clock: ManualClock):
    task = await store.create_task(plan("pub", schedule=every(1), max_concurrency=1))
    clock.advance(5)
    await store.plan(100)
    assert [run.status for run in await runs_of(store, task)] == [S.SUCCESS] * 5


async def test_a_published_run_of_a_fixed_delay_names_the_next_slot_at_once(store: Store, clock: ManualClock):
    task = await store.create_task(plan("pub", schedule=after_each(10)))
    clock.advance(12)
    planned = await store.plan(100)
    assert (await reread(store, task)).next_fire_at == at(22)
    assert planned.next_at == at(22)


async def test_a_triggered_publication_carries_its_own_payload(store: Store):
    task = await store.create_task(plan("pub"))
    run_id = await trigger(store, task, payload={"messages": ["now"]})
    assert await status_of(store, run_id) is S.SUCCESS
    (event,) = await told(store, "run.published")
    assert event.data["messages"] == ["now"]
    assert await claim(store) == []


async def test_a_delayed_publication_is_told_when_its_time_comes(store: Store, clock: ManualClock):
    task = await store.create_task(plan("pub"))
    run_id = await publish(store, task, delay_seconds=30)
    await store.promote(100)
    assert await status_of(store, run_id) is S.SCHEDULED
    clock.advance(30)
    await store.promote(100)
    assert await status_of(store, run_id) is S.SUCCESS
    assert len(await told(store, "run.published")) == 1
    assert await claim(store) == []


async def test_a_delayed_publication_that_is_promoted_is_told_now(store: Store):
    task = await store.create_task(plan("pub"))
    run_id = await publish(store, task, delay_seconds=30)
    assert await store.promote_run(run_id)
    assert await status_of(store, run_id) is S.SUCCESS
    assert len(await told(store, "run.published")) == 1


async def test_a_published_plan_that_asks_for_it_is_gone_when_it_is_complete(store: Store, clock: ManualClock):
    task = await store.create_task(plan("pub", schedule=once("2026-01-01T10:00:05Z"), delete_on_complete=True))
    clock.advance(5)
    await store.plan(100)
    assert (await reread(store, task)).deleted_at == at(5)
    assert len(await told(store, "run.published")) == 1


# ---- results that are told


async def test_a_result_is_told_on_the_tasks_topic_when_the_run_is_over(store: Store):
    task = await store.create_task(plan())
    lease = await started(store, task)
    assert await told(store, "run.result") == []
    await done(store, finish(lease, result={"settled": 12}))
    (event,) = await told(store, "run.result")
    assert (event.topic, event.run_id, event.task_id) == (task.name, lease.run_id, task.id)
    assert {name: event.data[name] for name in ("subject", "status", "worker_id", "result")} == {
        "subject": "1f4a",
        "status": S.SUCCESS,
        "worker_id": "w1",
        "result": {"settled": 12},
    }


async def test_an_attempt_that_is_tried_again_is_no_result(store: Store, clock: ManualClock):
    task = await store.create_task(plan())
    lease = await started(store, task)
    await done(store, retry(lease, 5))
    assert await told(store, "run.result") == []
    clock.advance(5)
    await store.promote(10)
    await done(store, fail(await claim_one(store)))
    (event,) = await told(store, "run.result")
    assert (event.data["status"], event.data["error_message"]) == (S.FAILED, "it broke")


async def test_a_cancel_is_told_as_a_result(store: Store):
    task = await store.create_task(plan())
    run_id = await publish(store, task)
    await store.cancel([run_id], by="ann")
    (event,) = await told(store, "run.result")
    assert event.data["status"] == S.CANCELED


async def test_of_a_result_that_is_too_long_the_event_says_only_that(store: Store):
    task = await store.create_task(plan())
    lease = await started(store, task)
    await done(store, finish(lease, result="x" * 20_000))
    (event,) = await told(store, "run.result")
    assert (event.data["result"], event.data["truncated"]) == (None, True)
    assert (await run_of(store, lease.run_id)).result == "x" * 20_000


async def test_the_result_of_a_vote_names_everyone_who_took_part(store: Store):
    for name in ("w1", "w2"):
        await store.register_worker(WorkerInfo(id=name, incarnation="a"))
    task = await store.create_task(plan("vote", fanout=Fanout(workers="all")))
    parent = await publish(store, task)
    for name in ("w1", "w2"):
        await done(store, finish(await claim_one(store, name), result=f"{name} says yes"))
    (event,) = await told(store, "run.result")
    assert (event.run_id, event.data["status"]) == (parent, S.SUCCESS)
    assert event.data["participants"] == [
        {"worker_id": name, "status": S.SUCCESS, "result": f"{name} says yes"} for name in ("w1", "w2")
    ]


@pytest.mark.parametrize("meta", [{}, {"plan": None}, {"plan": "pub"}, {"plan": {"target": "moon"}}, {"plan": {}}])
async def test_a_task_that_is_no_plan_tells_no_result_and_waits_for_its_worker(store: Store, meta: dict[str, Any]):
    task = await store.create_task(job("t", meta=meta, on_exhausted=OnExhausted.ERROR))
    lease = await started(store, task)
    before = await newest(store)
    await done(store, finish(lease, result=1))
    assert [event.type for event in await news(store, before)] == ["run.succeeded"]


# ---- a count that starts anew


async def recount(store: Store, task: Task) -> Task:
    def change(now: Task) -> TaskChange:
        return TaskChange(spec=now.spec, status=TaskStatus.ENABLED, recount=True)

    return await store.change_task(task.id, change)


@pytest.mark.parametrize("paused", [False, True])
async def test_recount_starts_the_repeat_count_anew(store: Store, clock: ManualClock, paused: bool):
    task = await store.create_task(job(schedule=every(10, repeat=3)))
    clock.advance(20)
    await store.plan(100)
    if paused:
        await disable(store, task)
    task = await recount(store, task)
    assert (task.status, task.fired, task.next_fire_at) == (TaskStatus.ENABLED, 0, at(30))
    for _ in range(5):
        clock.advance(10)
        await store.plan(100)
    assert await born_at(store, task) == [10, 20, 30, 40, 50]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED


# ---- finding it again


async def test_a_task_is_found_by_its_external_id_unless_it_is_deleted(store: Store):
    task = await store.create_task(plan())
    await store.create_task(job("other", external_id="1f4b"))

    async def found(**more: Any) -> list[int]:
        return [each.id for each in (await store.tasks(TaskQuery(external_id="1f4a", **more))).items]

    assert await found() == [task.id]
    await store.delete_task(task.id)
    assert await found() == []
    assert await found(include_deleted=True) == [task.id]
    again = await store.create_task(plan())
    assert await found() == [again.id]


async def test_tasks_are_found_by_one_of_several_labels_and_one_of_several_statuses(store: Store):
    for number, kind in enumerate(("day", "week", "month")):
        await store.create_task(job(f"t{number}", labels={"plan": kind}))
    third = await store.task_named("t2")
    assert third is not None
    await edit(store, third, status=TaskStatus.DISABLED)

    async def found(**query: Any) -> list[str]:
        return [each.name for each in (await store.tasks(TaskQuery(**query))).items]

    assert await found(label_in=("plan", ("day", "month"))) == ["t0", "t2"]
    assert await found(label_in=("plan", ())) == []
    assert await found(label_in=("other", ("day",))) == []
    assert await found(status_in=(TaskStatus.DISABLED, TaskStatus.ERROR)) == ["t2"]
    assert await found(label_in=("plan", ("day", "month")), status_in=(TaskStatus.ENABLED,)) == ["t0"]
