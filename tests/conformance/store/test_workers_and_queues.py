"""Workers: who is there; queues: what waits on them, and what an operator sets."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    at,
    claim,
    claim_one,
    done,
    finish,
    http,
    job,
    newest,
    news,
    park,
    publish,
    publish_many,
    retry,
    started,
)
from noonbell.clock import ManualClock
from noonbell.errors import AlreadyExists, InvalidState, NotFound
from noonbell.model.task import RateLimit
from noonbell.model.worker import Queue, WorkerInfo, WorkerState
from noonbell.ports import Store


def worker(name: str = "w1", incarnation: str = "a", **fields: Any) -> WorkerInfo:
    return WorkerInfo(id=name, incarnation=incarnation, **fields)


async def set_queue(store: Store, name: str, **fields: Any) -> Queue:
    return await store.set_queue(name, lambda queue: msgspec.structs.replace(queue, **fields), by="ann")


async def queue_named(store: Store, name: str) -> Queue:
    (queue,) = [queue for queue in await store.queues() if queue.name == name]
    return queue


# ---- workers


async def test_a_worker_says_who_it_is(store: Store, clock: ManualClock):
    clock.advance(5)
    said = worker(version=3, queues=("a", "b"), job_types=("x",), concurrency=7, meta={"host": "h"})
    registered = await store.register_worker(said)
    assert (registered.id, registered.incarnation, registered.version) == ("w1", "a", 3)
    assert (registered.queues, registered.job_types, registered.concurrency) == (("a", "b"), ("x",), 7)
    assert (registered.state, registered.started_at, registered.heartbeat_at) == (WorkerState.RUNNING, at(5), at(5))
    assert registered.meta == {"host": "h"}
    assert await store.workers() == [registered]


async def test_a_second_process_with_the_same_id_is_refused_while_the_first_lives(store: Store, clock: ManualClock):
    first = await store.register_worker(worker())
    clock.advance(1)
    with pytest.raises(AlreadyExists):
        await store.register_worker(worker(incarnation="b"))
    assert await store.workers() == [first]
    assert (await store.register_worker(worker(concurrency=3))).concurrency == 3


async def test_a_second_process_takes_over_when_the_first_is_gone(store: Store, clock: ManualClock):
    await store.register_worker(worker())
    clock.advance(3600)
    assert (await store.register_worker(worker(incarnation="b"))).incarnation == "b"
    assert [one.incarnation for one in await store.workers()] == ["b"]


async def test_a_race_for_one_id_has_one_winner(store: Store):
    answers = await asyncio.gather(
        *(store.register_worker(worker(incarnation=str(n))) for n in range(4)), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 3 + ["WorkerInfo"]


async def test_workers_are_listed_by_id(store: Store):
    for name in ("b", "c", "a"):
        await store.register_worker(worker(name))
    assert [one.id for one in await store.workers()] == ["a", "b", "c"]


async def test_a_worker_that_is_not_heard_of_is_lost_until_it_is(store: Store, clock: ManualClock):
    await store.register_worker(worker())
    clock.advance(3600)
    assert (await store.workers())[0].state is WorkerState.LOST
    await store.heartbeat("w1", [], incarnation="a")
    assert (await store.workers())[0].state is WorkerState.RUNNING


async def test_a_worker_that_was_heard_of_three_intervals_ago_is_not_lost_yet(store: Store, clock: ManualClock):
    await store.register_worker(worker())
    clock.advance(14.9)
    assert (await store.workers())[0].state is WorkerState.RUNNING
    clock.advance(0.2)
    assert (await store.workers())[0].state is WorkerState.LOST


async def test_an_operators_wish_is_kept(store: Store):
    await store.register_worker(worker())
    changed = await store.set_worker("w1", state=WorkerState.DRAINING)
    assert (changed.state, changed.concurrency) == (WorkerState.DRAINING, 10)
    changed = await store.set_worker("w1", concurrency=0)
    assert (changed.state, changed.concurrency) == (WorkerState.DRAINING, 0)
    assert await store.workers() == [changed]


async def test_a_wish_for_an_unknown_worker_raises_not_found(store: Store):
    with pytest.raises(NotFound):
        await store.set_worker("nobody", concurrency=1)


async def test_a_worker_says_goodbye(store: Store):
    await store.register_worker(worker("w1"))
    await store.register_worker(worker("w2"))
    await store.remove_worker("w1", "another")
    assert [one.id for one in await store.workers()] == ["w1", "w2"]
    await store.remove_worker("w1", "a")
    await store.remove_worker("nobody", "a")
    assert [one.id for one in await store.workers()] == ["w2"]


async def test_goodbye_does_not_touch_what_the_worker_holds(store: Store):
    await store.register_worker(worker())
    lease = await started(store, await store.create_task(job()))
    await store.remove_worker("w1", "a")
    await done(store, finish(lease))


async def test_only_a_lost_worker_that_holds_nothing_is_forgotten(store: Store, clock: ManualClock):
    with pytest.raises(NotFound):
        await store.forget_worker("nobody")
    await store.register_worker(worker())
    lease = await started(store, await store.create_task(job()))
    with pytest.raises(InvalidState, match="is connected"):
        await store.forget_worker("w1")
    clock.advance(16)
    with pytest.raises(InvalidState, match=r"still holds runs \(1\)"):
        await store.forget_worker("w1")
    await done(store, finish(lease))
    before = await newest(store)
    await store.forget_worker("w1")
    assert await store.workers() == []
    told = [(event.type, event.data["worker_id"]) for event in await news(store, before)]
    assert told == [("worker.stopped", "w1")]
    await store.register_worker(worker())
    assert [one.state for one in await store.workers()] == [WorkerState.RUNNING], "it may come back"


async def test_workers_coming_changing_and_going_are_events(store: Store):
    before = await newest(store)
    await store.register_worker(worker())
    await store.set_worker("w1", state=WorkerState.DRAINING)
    await store.remove_worker("w1", "a")
    told = [event for event in await news(store, before) if event.type.startswith("worker.")]
    assert len(told) == 3
    assert all("w1" in event.data.values() for event in told)


# ---- queues


async def test_a_queue_has_the_depth_of_its_runs(store: Store, clock: ManualClock):
    task = await store.create_task(job(queue="q"))
    gated = await store.create_task(http("gated", queue="q", max_concurrency=1))
    await publish_many(store, task, 2)
    first = await claim(store, queues=("q",), count=2)
    await publish_many(store, gated, 3, run_at=at(-7))
    (running,) = await claim(store, queues=("q",), count=1)
    assert running.task_id == gated.id
    await publish_many(store, task, 4, delay_seconds=60)
    await done(store, retry(first[0], delay=60))
    queue = await queue_named(store, "q")
    assert (queue.paused, queue.concurrency, queue.rate_limit) == (False, None, None)
    assert (queue.waiting, queue.delayed, queue.running) == (2, 5, 2)
    assert queue.oldest_at == at(-7)


async def test_final_runs_are_no_depth_and_their_queue_is_forgotten(store: Store):
    task = await store.create_task(job(queue="q"))
    lease_id = await publish(store, task)
    assert [queue.name for queue in await store.queues()] == ["q"]
    lease = await claim_one(store, queues=("q",))
    assert lease.run_id == lease_id
    await done(store, finish(lease))
    assert await store.queues() == []


async def test_a_run_that_awaits_its_callback_keeps_its_queue_in_the_list(store: Store):
    task = await store.create_task(job(queue="q"))
    await publish(store, task)
    await done(store, park(await claim_one(store, queues=("q",))))
    queue = await queue_named(store, "q")
    assert (queue.waiting, queue.delayed, queue.oldest_at) == (0, 0, None)


async def test_queues_are_listed_by_name_also_those_with_a_setting_alone(store: Store):
    await set_queue(store, "b", paused=True)
    await publish(store, await store.create_task(job(queue="c")))
    await set_queue(store, "a", concurrency=2)
    assert [(queue.name, queue.paused, queue.concurrency) for queue in await store.queues()] == [
        ("a", False, 2),
        ("b", True, None),
        ("c", False, None),
    ]


async def test_a_queues_settings_are_kept_and_told(store: Store):
    before = await newest(store)
    limit = RateLimit(max=5, per_seconds=2.5, key="tenant")
    queue = await set_queue(store, "q", paused=True, concurrency=3, rate_limit=limit)
    assert (queue.name, queue.paused, queue.concurrency, queue.rate_limit) == ("q", True, 3, limit)
    kept = await queue_named(store, "q")
    assert (kept.paused, kept.concurrency, kept.rate_limit) == (True, 3, limit)
    assert [event.type for event in await news(store, before) if event.type.startswith("queue.")]
    again = await set_queue(store, "q", paused=False)
    assert (again.paused, again.concurrency, again.rate_limit) == (False, 3, limit)


async def test_a_queue_that_says_nothing_any_more_leaves_the_list(store: Store):
    await set_queue(store, "htpt", paused=True)
    await set_queue(store, "slow", concurrency=1)
    await set_queue(store, "htpt", paused=False)
    await set_queue(store, "slow", concurrency=None)
    assert await store.queues() == []
    await set_queue(store, "htpt", paused=True)
    assert [queue.name for queue in await store.queues()] == ["htpt"]


async def test_a_pause_of_a_queue_keeps_its_reason_and_another_one_takes_its_place(store: Store):
    async def pause(by: str, reason: str | None) -> None:
        await store.set_queue("q", lambda queue: msgspec.structs.replace(queue, paused=True), by=by, reason=reason)

    async def told() -> tuple[str | None, str]:
        now = await store.now()
        (found,) = await store.pauses("q", now, now)
        return found.by, found.reason

    before = await newest(store)
    await pause("ann", "the vendor mends its API")
    assert await told() == ("ann", "the vendor mends its API")
    await pause("bob", None)
    assert await told() == ("ann", "the vendor mends its API")
    await pause("bob", "the vendor mends its API")
    await set_queue(store, "q", concurrency=2)
    await pause("bob", "the database moves")
    assert await told() == ("bob", "the database moves")
    events = [event for event in await news(store, before) if event.type == "queue.paused"]
    assert [event.data["reason"] for event in events] == ["the vendor mends its API", "the database moves"]
    await set_queue(store, "q", paused=False)
    await set_queue(store, "q", paused=True)
    assert await told() == ("ann", "")


async def test_a_change_of_a_queue_that_raises_writes_nothing(store: Store):
    def refuse(queue: Queue) -> Queue:
        raise LookupError("bug")

    with pytest.raises(LookupError):
        await store.set_queue("q", refuse)
    assert await store.queues() == []


async def test_changes_of_one_queue_at_once_are_all_kept(store: Store):
    await set_queue(store, "q", concurrency=0)

    def one_more(queue: Queue) -> Queue:
        return msgspec.structs.replace(queue, concurrency=(queue.concurrency or 0) + 1)

    await asyncio.gather(*(store.set_queue("q", one_more) for _ in range(6)))
    assert (await queue_named(store, "q")).concurrency == 6


async def test_the_runs_of_a_deleted_task_leave_its_queue(store: Store):
    task = await store.create_task(job(queue="q"))
    await publish_many(store, task, 3)
    await store.delete_task(task.id)
    assert await store.queues() == []


async def test_the_store_knows_when_a_scheduler_was_last_alive(store: Store, clock: ManualClock):
    assert await store.scheduler_seen_at() is None
    await store.note_scheduler()
    assert await store.scheduler_seen_at() == clock.now()
    clock.advance(7)
    await store.note_scheduler()
    assert await store.scheduler_seen_at() == clock.now()


async def test_the_queues_that_tasks_name_are_known_while_the_tasks_are_there(store: Store):
    await store.create_task(http())
    first = await store.create_task(job(name="first", queue="mail/out"))
    await store.create_task(job(name="second", queue="mail/out"))
    await store.create_task(job(name="third", queue="Ärger"))
    assert sorted(await store.task_queues()) == ["http", "mail/out", "Ärger"]
    await store.delete_task(first.id)
    assert "mail/out" in await store.task_queues()
    await store.delete_task((await store.task_named("second")).id)
    assert sorted(await store.task_queues()) == ["http", "Ärger"]
