"""Runs that are due and that no worker alive could take: told once, and told again when it is over."""

from __future__ import annotations

import asyncio

import pytest

from conformance.store.builders import (
    Node,
    claim,
    claim_one,
    edit,
    http,
    job,
    newest,
    news,
    publish,
    publish_many,
)
from noonbell.clock import ManualClock
from noonbell.model.task import Fanout, RateLimit, TaskId
from noonbell.model.worker import Queue, WorkerInfo, WorkerState
from noonbell.ports import Store

GRACE = 5.0


async def here(store: Store, name: str = "w1", **fields) -> WorkerInfo:
    return await store.register_worker(WorkerInfo(id=name, incarnation="a", **fields))


async def look(store: Store) -> list[tuple[TaskId, bool]]:
    """(task, whether it is over) of what is new."""
    return [(one.task_id, one.is_over) for one in await store.unserved(GRACE)]


async def lacking(store: Store) -> list[tuple[str, str | None, str, int]]:
    return [(one.queue, one.job_type, str(one.lack), one.count) for one in await store.stranded()]


async def told(store: Store, after: int) -> list[tuple[str, int | None]]:
    return [(event.type, event.task_id) for event in await news(store, after) if event.type.endswith("_worker")]


async def test_a_run_that_nobody_could_take_is_told_once(store: Store, clock: ManualClock):
    task = await store.create_task(job(queue="lonely"))
    run_id = await publish(store, task)
    before = await newest(store)
    assert await look(store) == []
    clock.advance(GRACE)
    (found,) = await store.unserved(GRACE)
    assert (found.task_id, found.queue, found.job_type, found.is_over) == (task.id, "lonely", "work", False)
    assert await look(store) == []
    await publish_many(store, task, 3)
    clock.advance(3600)
    assert await look(store) == []
    (event,) = [event for event in await news(store, before) if event.type == "task.no_worker"]
    assert (event.task_id, event.run_id, event.data) == (task.id, run_id, {"queue": "lonely", "job_type": "work"})


async def test_it_is_over_when_a_worker_comes_and_told_anew_when_it_goes(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task)
    before = await newest(store)
    clock.advance(10)
    assert await look(store) == [(task.id, False)]
    await here(store)
    assert await look(store) == [(task.id, True)]
    assert await look(store) == []
    clock.advance(60)
    assert await look(store) == [(task.id, False)]
    assert await told(store, before) == [
        ("task.no_worker", task.id),
        ("task.has_worker", task.id),
        ("task.no_worker", task.id),
    ]


async def test_it_is_over_when_what_waited_is_gone(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_id = await publish(store, task)
    clock.advance(10)
    assert await look(store) == [(task.id, False)]
    second = await publish(store, task)
    clock.advance(10)
    await store.cancel([run_id])
    assert await look(store) == []  # the second is in the same plight
    await store.cancel([second])
    assert await look(store) == [(task.id, True)]


async def test_a_purged_task_is_forgotten(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task)
    clock.advance(10)
    assert await look(store) == [(task.id, False)]
    await store.delete_task(task.id, purge=True)
    assert await look(store) == [(task.id, True)]
    assert await look(store) == []


@pytest.mark.parametrize(
    ("worker", "fields"),
    [
        ({"queues": ("other",)}, {}),
        ({"job_types": ("another",)}, {}),
        ({"version": 1}, {"min_worker_version": 2}),
        ({}, {"specific_worker_ids": ("w2",)}),
        ({"concurrency": 0}, {}),
        ({"state": WorkerState.DRAINING}, {}),
        ({"job_types": ("another",)}, {"max_concurrency": 3}),
        ({"queues": ("other",)}, {"rate_limit": RateLimit(max=1, per_seconds=60)}),
        ({"version": 1}, {"min_worker_version": 2, "max_concurrency": 3}),
        ({}, {"specific_worker_ids": ("w2",), "max_concurrency": 3}),
        ({"queues": ("other",)}, {"fanout": Fanout(workers="all")}),
    ],
)
async def test_a_worker_that_could_not_take_it_does_not_count(store: Store, clock: ManualClock, worker, fields):
    task = await store.create_task(job(**fields))
    await publish(store, task)
    clock.advance(10)
    await here(store, **worker)
    assert await look(store) == [(task.id, False)]


@pytest.mark.parametrize(
    ("worker", "fields"),
    [
        ({}, {}),
        ({"job_types": ("other", "work")}, {}),
        ({"version": 2}, {"min_worker_version": 2}),
        ({}, {"specific_worker_ids": ("w1", "w2")}),
        ({}, {"max_concurrency": 3}),
        ({}, {"max_concurrency": 0}),
        ({}, {"specific_worker_ids": ("w1",), "max_concurrency": 3}),
        ({}, {"fanout": Fanout(workers="all")}),
    ],
)
async def test_a_worker_that_could_take_it_is_enough(store: Store, clock: ManualClock, worker, fields):
    task = await store.create_task(job(**fields))
    await publish(store, task)
    clock.advance(10)
    await here(store, **worker)
    assert await look(store) == []


async def test_what_is_paused_or_held_back_by_a_limit_is_not_meant(store: Store, clock: ManualClock):
    paused = await store.create_task(job("paused", queue="p"))
    full = await store.create_task(job("full", queue="f", max_concurrency=1))
    await publish(store, paused)
    await publish_many(store, full, 2)
    await claim_one(store, queues=("f",))
    await store.set_queue("p", lambda queue: Queue(name=queue.name, paused=True))
    clock.advance(10)
    assert await look(store) == []
    await store.set_queue("p", lambda queue: Queue(name=queue.name))
    assert await look(store) == [(paused.id, False)]


async def test_what_is_delayed_or_under_way_is_not_meant(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task)
    await claim_one(store)
    await publish(store, task, delay_seconds=600)
    clock.advance(10)
    assert await look(store) == []


async def test_http_runs_want_a_worker_too(store: Store, clock: ManualClock):
    task = await store.create_task(http())
    await publish(store, task)
    clock.advance(10)
    await here(store)
    assert await look(store) == [(task.id, False)]
    await here(store, "w2", queues=("http",))
    assert await look(store) == [(task.id, True)]


async def test_a_part_wants_a_worker_that_has_had_no_other_part(store: Store, clock: ManualClock):
    task = await store.create_task(job(fanout=Fanout(workers=2), worker_timeout_ms=3_600_000, timeout_seconds=7200))
    await publish(store, task)
    await here(store)
    assert len(await claim(store)) == 1
    clock.advance(10)
    assert await look(store) == [(task.id, False)]
    await here(store, "w2")
    assert await look(store) == [(task.id, True)]


async def test_each_task_of_a_queue_is_told(store: Store, clock: ManualClock):
    tasks = [await store.create_task(job(f"j{number}", queue=f"q{number % 2}")) for number in range(4)]
    for task in tasks:
        await publish(store, task)
    clock.advance(10)
    assert await look(store) == [(task.id, False) for task in tasks]


async def test_what_others_can_take_does_not_hide_what_nobody_can(store: Store, clock: ManualClock):
    common = await store.create_task(job("common", priority=5))
    rare = await store.create_task(job("rare", job_type="rare"))
    await publish(store, rare)
    await publish_many(store, common, 60)
    await here(store, job_types=("work",))
    clock.advance(10)
    assert await look(store) == [(rare.id, False)]


async def test_several_nodes_tell_it_once(store: Store, another_node: Node, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task)
    other = await another_node()
    before = await newest(store)
    clock.advance(10)
    await asyncio.gather(*(node.unserved(GRACE) for node in (store, other, store, other)))
    assert await told(store, before) == [("task.no_worker", task.id)]
    before = await newest(store)
    await here(store)
    await asyncio.gather(*(node.unserved(GRACE) for node in (store, other, store, other)))
    assert await told(store, before) == [("task.has_worker", task.id)]


async def test_a_new_pin_is_seen(store: Store, clock: ManualClock):
    task = await store.create_task(job(specific_worker_ids=("w1",)))
    await publish(store, task)
    await here(store)
    clock.advance(10)
    assert await look(store) == []
    await edit(store, task, specific_worker_ids=("w2",))
    assert await look(store) == [(task.id, False)]


# What waits for a worker that is not there, as of now


async def test_a_job_type_that_no_worker_of_its_queue_knows_is_named(store: Store, clock: ManualClock):
    known, unknown = await store.create_task(job(name="k", job_type="known")), await store.create_task(job(name="u"))
    other = await store.create_task(job(name="o", queue="other", job_type="known"))
    await here(store, job_types=("known",))
    first = await publish(store, unknown)
    clock.advance(1)
    await publish_many(store, unknown, 2)
    await publish(store, known)
    await publish(store, other)
    assert await lacking(store) == [("default", "work", "job_type", 3), ("other", "known", "queue", 1)]
    found, _ = await store.stranded()
    assert (found.run_id, found.task_id, found.since) == (first, unknown.id, clock.now() - 1_000_000)
    await here(store, "w2", queues=("default", "other"))
    assert await lacking(store) == []


async def test_what_is_paused_or_has_a_worker_is_not_stranded(store: Store):
    task = await store.create_task(job())
    await publish(store, task)
    await store.set_queue("default", lambda queue: Queue(name=queue.name, paused=True))
    assert await lacking(store) == []
    await store.set_queue("default", lambda queue: Queue(name=queue.name, paused=False))
    assert await lacking(store) == [("default", "work", "queue", 1)]
    await here(store, job_types=("work",))
    assert await lacking(store) == []
    await store.set_worker("w1", state=WorkerState.DRAINING)
    assert await lacking(store) == [("default", "work", "queue", 1)]


async def test_versions_and_names_that_no_worker_has(store: Store):
    await here(store, version=1, job_types=("work",))
    await publish(store, await store.create_task(job(name="new", min_worker_version=2)))
    await publish(store, await store.create_task(job(name="pinned", specific_worker_ids=("w7",))))
    assert await lacking(store) == [("default", "work", "named", 1), ("default", "work", "version", 1)]
    await here(store, "w7", version=2)
    assert await lacking(store) == []


async def test_all_that_wait_behind_a_limit_are_stranded_and_of_a_long_line_it_is_said_that_there_are_more(
    store: Store,
):
    limited = await store.create_task(job("limited", queue="limited", max_concurrency=1))
    await publish_many(store, limited, 7)
    free = await store.create_task(job("free", queue="free", max_concurrency=None))
    await publish_many(store, free, 60)
    few = await store.create_task(job("few", queue="few", max_concurrency=None))
    await publish_many(store, few, 3)
    found = {one.queue: (one.count, one.is_least) for one in await store.stranded()}
    assert found == {"limited": (7, False), "free": (50, True), "few": (3, False)}


async def test_asking_what_is_stranded_tells_nothing_and_marks_nothing(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task)
    clock.advance(10)
    before = await newest(store)
    await store.stranded()
    assert await told(store, before) == []
    assert await look(store) == [(task.id, False)]
    assert await lacking(store) == [("default", "work", "queue", 1)], "also when it was told of"
