"""Publish and cancel: who is told."""

from __future__ import annotations

import pytest

from conformance.store.builders import at, job, publish, run_of
from noonbell.engine import publish as engine
from noonbell.engine.attempt_runner import TaskCache
from noonbell.model.request import Publication
from noonbell.model.run import RunStatus
from noonbell.model.task import ConcurrencyPolicy
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody, Patient, spin, worker_on


async def test_a_publish_wakes_the_workers_of_its_queue(store: MemoryStore, wakeup: LocalWakeup):
    task = await store.create_task(job(queue="mail"))
    (answer,) = await engine.publish(store, wakeup, [Publication(task_id=task.id)], TaskCache(store))
    assert answer.outcome == "created"
    assert await wakeup.wait(["queue:mail"], 0)
    assert not await wakeup.wait(["plan", "queue:default"], 0)


async def test_a_delayed_publish_wakes_the_planner(store: MemoryStore, wakeup: LocalWakeup):
    task = await store.create_task(job())
    late = [Publication(task_id=task.id, delay_seconds=5), Publication(task_id=task.id, run_at=at(9))]
    await engine.publish(store, wakeup, late, {task.id: task})
    assert await wakeup.wait(["plan"], 0)
    assert not await wakeup.wait(["queue:default"], 0)


@pytest.mark.parametrize("seconds", [-3_600, 0])
async def test_a_publish_for_a_time_that_has_come_wakes_the_workers(
    store: MemoryStore, wakeup: LocalWakeup, seconds: int
):
    task = await store.create_task(job())
    await engine.publish(store, wakeup, [Publication(task_id=task.id, run_at=at(seconds))], {task.id: task})
    assert await wakeup.wait(["queue:default"], 0)


async def test_what_made_no_run_wakes_nobody(store: MemoryStore, wakeup: LocalWakeup):
    task = await store.create_task(job(max_concurrency=0, concurrency_policy=ConcurrencyPolicy.SKIP))
    (answer,) = await engine.publish(store, wakeup, [Publication(task_id=task.id)], TaskCache(store))
    assert answer.outcome == "refused"
    assert not await wakeup.wait(["plan", "queue:default", "queue:*"], 0)


async def test_a_batch_is_one_signal_and_one_look_at_the_task(store: MemoryStore, wakeup: LocalWakeup):
    task = await store.create_task(job())
    moody = Moody(store)
    many = [Publication(task_id=task.id)] * 50
    await engine.publish(moody, wakeup, many, TaskCache(moody))  # type: ignore[arg-type]
    assert moody.calls == ["publish", "task"]
    assert wakeup._signals == {"queue:default": 1}


async def test_a_cancel_reaches_the_handler_without_waiting_for_the_heartbeat(store: MemoryStore, wakeup: LocalWakeup):
    run_id = await publish(store, await store.create_task(job()))
    worker = worker_on(store, target := Patient(), wakeup)
    await worker.start()
    await spin(50)
    assert len(target.started) == 1
    (answer,) = await engine.cancel(store, wakeup, [run_id])
    await spin(50)
    assert (answer.canceled, len(target.interrupted)) == (True, 1)
    assert (await run_of(store, run_id)).status is RunStatus.CANCELED
    await worker.stop(0)
