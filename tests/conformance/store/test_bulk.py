"""Bulk operations on every store: leased to one node at a time, moved on with what they change, frozen at their start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.store.builders import (
    Node,
    S,
    cron,
    disable,
    done,
    edit,
    fail,
    finished,
    http,
    job,
    publish_many,
    runs_of,
    started,
    status_of,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.engine.attempt_runner import TaskCache
from noonbell.errors import InvalidArgument, InvalidState
from noonbell.model.bulk import BulkBatch, BulkKind, BulkLease, BulkOperation, BulkStatus, NewBulk
from noonbell.model.request import TaskQuery
from noonbell.model.run import RunId
from noonbell.model.task import ConcurrencyPolicy, Task, TaskStatus
from noonbell.ports import Store
from noonbell.service import Rules, Services
from noonbell.service.bulk_operations import BatchReader, BulkLoop
from noonbell.stores.wakeups import LocalWakeup


def services_of(store: Store) -> Services:
    return Services(store, LocalWakeup(), Rules())


def loop_of(store: Store, holder: str = "me", size: int = 2) -> BulkLoop:
    services = services_of(store)
    reader = BatchReader(store, services.runs, services.tasks, size)
    return BulkLoop(store, services.wakeup, TaskCache(store), reader, holder=holder)


async def start(store: Store, kind: str, **more: Any) -> BulkOperation:
    if not more.keys() & {"filter", "ids"}:
        more["all"] = True
    return await services_of(store).bulk.start({"kind": kind, **more}, by="alice")


async def found(store: Store, operation: BulkOperation) -> BulkOperation:
    return await services_of(store).bulk.get(operation.id)


async def carried_out(store: Store, operation: BulkOperation, size: int = 2) -> BulkOperation:
    loop = loop_of(store, size=size)
    while (await found(store, operation)).status is BulkStatus.RUNNING:
        await loop.tick()
    return await found(store, operation)


async def failed_runs(store: Store, count: int, **fields: Any) -> tuple[Task, list[RunId]]:
    task = await store.create_task(job("a", **fields))
    return task, [await finished(store, task, S.FAILED) for _ in range(count)]


async def retried(store: Store, task: Task) -> list[int | None]:
    return sorted(run.retry_of_run_id or 0 for run in await runs_of(store, task) if run.retry_of_run_id)


async def taken(store: Store, holder: str = "me", seconds: float = 10) -> BulkLease:
    lease = await store.take_bulk(holder, seconds)
    assert lease is not None
    return lease


async def test_every_run_that_failed_before_the_start_is_retried_once_and_no_other(store: Store, clock: ManualClock):
    task, runs = await failed_runs(store, 5)
    under_way = await started(store, task)
    operation = await start(store, "retry_runs", filter={"status": ["FAILED"], "task": "a"})
    assert (operation.total, operation.total_is_least, operation.status) == (5, False, "RUNNING")
    clock.advance(1)
    await done(store, fail(under_way))
    assert await status_of(store, under_way.run_id) is S.FAILED
    ended = await carried_out(store, operation)
    assert (ended.status, ended.total, ended.done, ended.skipped, ended.reasons) == ("DONE", 5, 5, 0, {})
    assert await retried(store, task) == sorted(runs)
    assert ended.ended_at == clock.now()
    told = [event for event in await store.events(0) if event.type.startswith("bulk.")]
    assert (told[0].type, told[-1].type) == ("bulk.started", "bulk.ended")
    assert told[-1].data["done"] == 5


async def test_a_batch_is_carried_out_with_the_place_or_not_at_all(store: Store):
    task, runs = await failed_runs(store, 3)
    operation = await start(store, "retry_runs", filter={"status": ["FAILED"]})
    services = services_of(store)
    reader = BatchReader(store, services.runs, services.tasks, 2)
    lease = await taken(store)
    batch = await reader.read(lease)
    advanced = await store.advance_bulk(lease, batch, 10)
    assert advanced is not None
    assert (advanced.lease.operation.done, advanced.lease.place) == (2, batch.next)
    again = await taken(store)
    assert again.place == batch.next
    assert await store.advance_bulk(lease, batch, 10) is None, "that lease is over: nothing is done twice"
    assert await retried(store, task) == sorted(runs)[1:]
    assert (await found(store, operation)).done == 2


async def test_two_nodes_race_for_an_operation_and_one_has_it(store: Store, another_node: Node):
    other = await another_node()
    await failed_runs(store, 1)
    await start(store, "retry_runs", filter={"status": ["FAILED"]})
    leases = await asyncio.gather(store.take_bulk("me", 10), other.take_bulk("you", 10))
    assert sum(lease is not None for lease in leases) == 1


async def test_two_nodes_carry_operations_out_without_loss_or_double(store: Store, another_node: Node):
    other = await another_node()
    task, runs = await failed_runs(store, 9)
    operations = [await start(store, "retry_runs", ids=list(part)) for part in (runs[:5], runs[5:])]
    loops = loop_of(store, "me"), loop_of(other, "you")
    while await store.bulk_under_way():
        await asyncio.gather(*(loop.tick() for loop in loops))
    assert await retried(store, task) == sorted(runs)
    assert [(await found(store, one)).done for one in operations] == [5, 4]


async def test_when_a_lease_has_run_out_another_node_goes_on_and_the_first_one_changes_nothing(
    store: Store, clock: ManualClock, another_node: Node
):
    other = await another_node()
    task, runs = await failed_runs(store, 3)
    operation = await start(store, "retry_runs", filter={"status": ["FAILED"]})
    services = services_of(store)
    lease = await taken(store)
    batch = await BatchReader(store, services.runs, services.tasks, 2).read(lease)
    assert await other.take_bulk("you", 10) is None
    clock.advance(10)
    ended = await carried_out(other, operation)
    assert (ended.status, ended.done) == ("DONE", 3)
    assert await store.advance_bulk(lease, batch, 10) is None
    assert await store.fail_bulk(lease, "too late") is None
    assert await retried(store, task) == sorted(runs)


async def test_a_node_that_stops_leaves_its_operations_to_the_others(store: Store):
    await start(store, "enable_tasks")
    assert await store.take_bulk("me", 10) is not None
    assert await store.take_bulk("you", 10) is None
    await store.leave_bulk("me")
    assert await store.take_bulk("you", 10) is not None


async def test_one_that_is_canceled_in_the_middle_keeps_what_it_did_and_does_no_more(store: Store):
    task, _ = await failed_runs(store, 5)
    operation = await start(store, "retry_runs", filter={"status": ["FAILED"]})
    await loop_of(store).tick()
    lease = await taken(store)
    services = services_of(store)
    batch = await BatchReader(store, services.runs, services.tasks, 2).read(lease)
    ended = await services.bulk.cancel(operation.id, by="bob")
    assert (ended.status, ended.canceled_by, ended.done, ended.total) == ("CANCELED", "bob", 2, 2)
    assert await store.advance_bulk(lease, batch, 10) is None
    assert await store.take_bulk("me", 10) is None
    assert len(await retried(store, task)) == 2
    assert await services.bulk.cancel(operation.id, by="carol") == ended, "it stays as it is"


async def test_one_that_fails_says_why_and_keeps_what_it_did(store: Store):
    await failed_runs(store, 3)
    operation = await start(store, "retry_runs", filter={"status": ["FAILED"]})
    await loop_of(store).tick()
    ended = await store.fail_bulk(await taken(store), "no such thing")
    assert ended is not None
    assert (ended.status, ended.error, ended.done) == ("FAILED", "no such thing", 2)
    assert await found(store, operation) == ended


async def test_operations_have_their_batches_in_turn(store: Store, clock: ManualClock):
    _, runs = await failed_runs(store, 6)
    long, short = await start(store, "retry_runs", ids=list(runs[:5])), await start(store, "retry_runs", ids=[runs[5]])
    loop = loop_of(store)
    await loop.tick()
    clock.advance(1)
    await loop.tick()
    assert ((await found(store, long)).done, (await found(store, short)).status) == (2, "DONE")


async def test_what_cannot_be_retried_is_skipped_with_its_reason(store: Store):
    gone, runs = await failed_runs(store, 1)
    await store.delete_task(gone.id)
    limited = await store.create_task(http("limited", concurrency_policy=ConcurrencyPolicy.SKIP, max_concurrency=1))
    held = [await finished(store, limited, S.FAILED) for _ in range(2)]
    (waiting,) = await publish_many(store, await store.create_task(job("b")), 1)
    operation = await start(store, "retry_runs", ids=[*runs, *held, waiting, 999])
    ended = await carried_out(store, operation, 10)
    assert (ended.done, ended.skipped) == (1, 4)
    assert ended.reasons == {"gone": 2, "limit": 1, "going": 1}
    items = await store.bulk_items(operation.id, 10)
    assert {item.id: item.why for item in items if item.why != "limit"} == {
        999: "gone",
        runs[0]: "gone",
        waiting: "going",
    }
    assert await store.bulk_items(operation.id, 1, after=items[0].id) == [items[1]]


async def test_dead_runs_are_redriven_once_however_often_it_is_asked_for(store: Store):
    task, runs = await failed_runs(store, 3)
    first = await carried_out(store, await start(store, "redrive_runs", filter={"task": "a"}))
    assert first.done == 3
    second = await carried_out(store, await start(store, "redrive_runs", ids=list(runs)))
    assert (second.done, second.reasons) == (0, {"exists": 3})
    assert await retried(store, task) == sorted(runs)


async def test_runs_that_are_made_after_the_start_are_not_canceled(store: Store, clock: ManualClock):
    task = await store.create_task(job("a"))
    before = await publish_many(store, task, 3)
    operation = await start(store, "cancel_runs", filter={"task": "a"})
    clock.advance(1)
    (later,) = await publish_many(store, task, 1)
    ended = await carried_out(store, operation)
    assert (ended.done, ended.skipped) == (3, 0)
    assert {await status_of(store, run) for run in before} == {S.CANCELED}
    assert await status_of(store, later) is S.SCHEDULED


async def test_tasks_are_paused_and_that_is_undone_for_those_that_were_changed(store: Store):
    tasks = [await store.create_task(job(f"t{number}", schedule=cron("0 2 * * *"))) for number in range(5)]
    await disable(store, tasks[1])
    operation = await carried_out(store, await start(store, "disable_tasks", filter={"name": "t"}))
    assert (operation.done, operation.reasons) == (4, {"already": 1})
    page = await store.tasks(TaskQuery())
    assert {task.status for task in page.items} == {TaskStatus.DISABLED}
    undone = await services_of(store).bulk.undo(operation.id, by="bob")
    assert (undone.kind, undone.undo_of, undone.total) == (BulkKind.ENABLE_TASKS, operation.id, 4)
    assert (await carried_out(store, undone)).done == 4
    page = await store.tasks(TaskQuery(status=TaskStatus.DISABLED))
    assert [task.id for task in page.items] == [tasks[1].id]


async def test_tasks_that_were_made_or_changed_after_the_start_stay_as_they_are(store: Store, clock: ManualClock):
    kept, changed = await store.create_task(job("a")), await store.create_task(job("b"))
    operation = await start(store, "delete_tasks")
    clock.advance(1)
    await edit(store, changed, priority=3)
    await store.create_task(job("c"))
    ended = await carried_out(store, operation)
    assert (ended.done, ended.reasons) == (1, {"later": 1})
    assert [task.name for task in (await store.tasks(TaskQuery(sort="name"))).items] == ["b", "c"]
    assert (await store.task(kept.id)).deleted_at is not None  # type: ignore[union-attr]


async def test_tasks_that_follow_each_other_are_deleted_batch_by_batch(store: Store):
    services = services_of(store)
    for number in range(5):
        after = {"after": {"tasks": [{"task": f"n{number - 1}"}]}} if number else {}
        await services.tasks.create({"name": f"n{number}", "job_type": "x", **after})
    ended = await carried_out(store, await start(store, "delete_tasks"))
    assert (ended.done, ended.skipped) == (5, 0)


async def test_tasks_are_changed_but_those_of_files_and_those_that_it_does_not_fit(store: Store):
    services = services_of(store)
    plain = await services.tasks.create({"name": "plain", "job_type": "x", "labels": {"team": "a"}})
    await services.tasks.create({"name": "filed", "job_type": "x", "managed_by": "file:x"})
    await services.tasks.create({"name": "there", "job_type": "x", "queue": "slow", "labels": {"team": "b"}})
    operation = await start(store, "change_tasks", change={"queue": "slow", "labels": {"team": "b"}})
    ended = await carried_out(store, operation)
    assert (ended.done, ended.reasons) == (1, {"managed": 1, "already": 1})
    task = await services.tasks.get(plain.id)
    assert (task.spec.queue, task.spec.labels, task.version) == ("slow", {"team": "b"}, 2)
    versions = await store.task_versions(plain.id)
    assert versions[-1].changed_by == "alice"
    assert ended.change == {"queue": "slow", "labels": {"team": "b"}}


async def test_tasks_are_triggered_each_once(store: Store):
    tasks = [await store.create_task(job(f"t{number}")) for number in range(5)]
    ended = await carried_out(store, await start(store, "trigger_tasks"))
    assert ended.done == 5
    assert [len(await runs_of(store, task)) for task in tasks] == [1] * 5


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "nonsense", "all": True}, "kind"),
        ({"kind": "retry_runs"}, "filter"),
        ({"kind": "retry_runs", "filter": {}}, "filter"),
        ({"kind": "retry_runs", "filter": {"status": ["NO"]}}, "filter.status"),
        ({"kind": "enable_tasks", "filter": {"task": "a"}}, "filter.task"),
        ({"kind": "retry_runs", "ids": []}, "ids"),
        ({"kind": "retry_runs", "ids": [1], "all": True}, "ids"),
        ({"kind": "change_tasks", "all": True}, "change"),
        ({"kind": "change_tasks", "all": True, "change": {}}, "change"),
        ({"kind": "enable_tasks", "all": True, "change": {"queue": "x"}}, "change"),
        ({"kind": "change_tasks", "all": True, "change": {"timeout_seconds": -1}}, "change.timeout_seconds"),
    ],
)
async def test_what_makes_no_sense_starts_nothing_and_names_the_field(store: Store, given, field):
    with pytest.raises(InvalidArgument) as refused:
        await services_of(store).bulk.start(given)
    assert any(name.startswith(field) for name in refused.value.details), refused.value.details
    assert await store.bulk_operations(10) == []


async def test_what_cannot_be_undone_says_so(store: Store):
    operation = await start(store, "trigger_tasks")
    with pytest.raises(InvalidState):
        await services_of(store).bulk.undo(operation.id)
    paused = await start(store, "disable_tasks")
    with pytest.raises(InvalidState):
        await services_of(store).bulk.undo(paused.id)


async def test_operations_are_listed_newest_first_and_forgotten_with_their_items(store: Store, clock: ManualClock):
    await store.create_task(job("a"))
    first = await carried_out(store, await start(store, "disable_tasks"))
    clock.advance(1)
    second = await store.start_bulk(NewBulk(kind=BulkKind.ENABLE_TASKS, query={}, total=1))
    assert [one.id for one in await store.bulk_operations(10)] == [second.id, first.id]
    assert [one.id for one in await store.bulk_operations(1, before=second.id)] == [first.id]
    clock.advance(100)
    assert await store.clean_rest(clock.now(), 100) == 1
    assert [one.id for one in await store.bulk_operations(10)] == [second.id], "what is under way stays"
    assert await store.bulk_items(first.id, 10, changed=True) == []


async def test_an_empty_batch_without_a_next_ends_an_operation(store: Store):
    operation = await store.start_bulk(NewBulk(kind=BulkKind.CANCEL_RUNS, total=0))
    assert await store.advance_bulk(await taken(store), BulkBatch(None), 10) is not None
    assert (await found(store, operation)).status is BulkStatus.DONE


class SlowReader(BatchReader):
    """Takes six seconds for a batch; meanwhile another node takes what is free."""

    clock: ManualClock

    async def read(self, lease: BulkLease) -> BulkBatch:
        batch = await super().read(lease)
        self.clock.advance(6)
        await self._store.take_bulk("another", 5)
        return batch


async def test_nodes_whose_batches_take_longer_than_a_lease_do_not_take_them_from_each_other_for_ever(
    store: Store, clock: ManualClock
):
    await failed_runs(store, 3)
    operation = await start(store, "retry_runs")
    services = services_of(store)
    reader = SlowReader(store, services.runs, services.tasks, 2)
    reader.clock = clock
    cache = TaskCache(store)
    loop = BulkLoop(store, services.wakeup, cache, reader, holder="me", monotonic=lambda: clock.now() / SECOND)
    for _ in range(4):
        await loop.tick()
        clock.advance(6)
    ended = await found(store, operation)
    assert (ended.status, ended.done) == (BulkStatus.DONE, 3)
