"""What retention asks of a store: tasks passed over, leftovers of no run, and how its tasks are found."""

from __future__ import annotations

from conformance.store.builders import (
    FAR,
    Sizes,
    at,
    claim,
    done,
    every,
    finish,
    finished,
    http,
    job,
    left_over,
    once,
    reread,
    runs_of,
    started,
)
from noonbell.clock import ManualClock
from noonbell.model.request import TaskQuery
from noonbell.model.target_kind import ExecType
from noonbell.model.task import MisfirePolicy
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store


async def test_tasks_are_passed_over(store: Store, clock: ManualClock):
    tasks = [await store.create_task(job(f"t{n}")) for n in range(3)]
    for task in tasks:
        await finished(store, task)
    clock.advance(1)
    assert await store.clean(FAR, 100, besides=[tasks[0].id, tasks[2].id]) == 1
    assert [len(await runs_of(store, task)) for task in tasks] == [1, 0, 1]


async def test_of_one_task_all_but_the_newest_go_however_many_there_are(store: Store, clock: ManualClock):
    task, other = await store.create_task(job("t")), await store.create_task(job("o"))
    run_ids = [await finished(store, task) for _ in range(9)]
    await finished(store, other)
    clock.advance(1)
    assert [await store.clean(FAR, 2, task_id=task.id, keep=3) for _ in range(4)] == [2, 2, 2, 0]
    assert [run.id for run in await runs_of(store, task)] == run_ids[-3:]
    assert len(await runs_of(store, other)) == 1


async def test_dropped_slots_are_forgotten_and_stay_counted(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), misfire_policy=MisfirePolicy.FIRE_ONCE))
    clock.advance(10)
    await store.plan(10)
    (kept,) = await store.dropped(task.id, at(0), FAR)
    counted = (await store.cleaned(task.id)).count
    assert await store.clean_rest(kept.last, 10) == 0
    assert await store.clean_rest(at(100), 10) == 1
    assert await store.dropped(task.id, at(0), FAR) == []
    cleaned = await store.cleaned(task.id)
    assert (cleaned.count, cleaned.last) == (counted + kept.count, kept.last)


async def test_dropped_slots_of_some_tasks_may_stay_longer(store: Store, clock: ManualClock):
    late = {"schedule": every(1), "misfire_policy": MisfirePolicy.FIRE_ONCE}
    one, two, three = [await store.create_task(job(f"t{n}", **late)) for n in range(3)]
    clock.advance(10)
    await store.plan(10)
    assert await store.clean_rest(at(100), 10, besides=[one.id, two.id]) == 1
    assert await store.clean_rest(at(100), 10, task_id=two.id) == 1
    left = [len(await store.dropped(task.id, at(0), FAR)) for task in (one, two, three)]
    assert left == [1, 0, 0]


async def test_a_deleted_task_goes_when_its_last_run_has_gone(store: Store, table_sizes: Sizes, clock: ManualClock):
    before = await table_sizes()
    task = await store.create_task(job(labels={"team": "x"}, max_concurrency=2))
    await finished(store, task)
    lease = await started(store, task)
    await store.delete_task(task.id)
    clock.advance(10)
    assert await store.clean_rest(at(100), 10) == 0
    assert await store.clean(FAR, 10) == 1
    assert await store.clean_rest(at(100), 10) == 0, "one of its runs is under way still"
    await store.cancel([lease.run_id])
    clock.advance(1)
    assert await store.clean(FAR, 10) == 1
    assert await store.clean_rest(at(5), 10) == 1
    assert await store.task(task.id) is None
    assert left_over(before, await table_sizes(), "events") == {}


async def test_a_task_that_is_deleted_on_completion_goes_with_its_history(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=once("2026-01-01T10:00:05Z"), delete_on_complete=True))
    clock.advance(6)
    await store.plan(10)
    (lease,) = await claim(store)
    await done(store, finish(lease))
    assert (await reread(store, task)).deleted_at is not None
    clock.advance(10)
    assert await store.clean(FAR, 10) == 1
    assert await store.clean_rest(FAR, 10) == 1
    assert await store.task(task.id) is None


async def test_a_task_that_is_not_deleted_stays(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    young = await store.create_task(job("young"))
    clock.advance(10)
    await store.delete_task(young.id)
    assert await store.clean_rest(at(10), 10) == 0
    assert await store.task(task.id) is not None
    assert await store.task(young.id) is not None


async def test_workers_that_fell_silent_long_ago_are_forgotten(store: Store, clock: ManualClock):
    await store.register_worker(WorkerInfo(id="old", incarnation="a"))
    clock.advance(100)
    await store.register_worker(WorkerInfo(id="new", incarnation="b"))
    assert await store.clean_rest(at(50), 10) == 1
    assert [worker.id for worker in await store.workers()] == ["new"]


async def test_leftovers_go_in_batches(store: Store, clock: ManualClock):
    for name in range(5):
        await store.delete_task((await store.create_task(job(f"t{name}"))).id)
    clock.advance(1)
    assert [await store.clean_rest(FAR, 2) for _ in range(4)] == [2, 2, 1, 0]


async def test_tasks_are_found_by_the_kind_of_their_target_and_by_their_meta(store: Store):
    a = await store.create_task(job("a", job_type="resize", meta={"retention_days": 3}))
    b = await store.create_task(job("b", job_type="mail", meta={"note": "retention_days", "x": {"y": 1}}))
    c = await store.create_task(http("c", meta={"retention_runs": 5}))
    for query, expected in (
        (TaskQuery(exec_type=ExecType.JOB), [a, b]),
        (TaskQuery(exec_type=ExecType.SYNC), [c]),
        (TaskQuery(job_type="mail"), [b]),
        (TaskQuery(meta_key="retention_runs"), [c]),
        (TaskQuery(meta_key="retentionXruns"), []),
        (TaskQuery(meta_key="retention_", exec_type=ExecType.SYNC), [c]),
    ):
        assert (await store.tasks(query)).items == expected, query
    assert {task.id for task in (await store.tasks(TaskQuery(meta_key="retention_"))).items} >= {a.id, c.id}
