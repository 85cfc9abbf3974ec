"""Fan-out: one run, carried out by several workers, each at most once."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    FAR,
    S,
    at,
    claim,
    claim_due,
    done,
    fail,
    finish,
    http,
    job,
    lose,
    lost,
    newest,
    news,
    publish,
    publish_many,
    retry,
    run_of,
    runs_of,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.request import ClaimRequest, RunQuery
from noonbell.model.run import Lease, Run, RunId, Settlement
from noonbell.model.task import Delivery, Fanout, Task
from noonbell.model.worker import Order, WorkerInfo
from noonbell.ports import Store


async def fan(store: Store, workers: int | str = 3, success: int | str = "all", **fields) -> Task:
    return await store.create_task(job("fan", fanout=Fanout(workers=workers, success=success), **fields))


async def take(store: Store, worker: str) -> list[Lease]:
    return await claim_due(store, worker)


async def take_one(store: Store, worker: str) -> Lease:
    (lease,) = await take(store, worker)
    return lease


async def parts_of(store: Store, parent: RunId) -> list[Run]:
    return (await store.runs(RunQuery(parent_id=parent, sort="id", page_size=100))).items


async def register(store: Store, *names: str, **fields) -> None:
    for name in names:
        await store.register_worker(WorkerInfo(id=name, incarnation="a", **fields))


async def test_a_run_is_carried_out_by_so_many_different_workers(store: Store, clock: ManualClock):
    task = await fan(store, 3, payload={"x": 1})
    parent = await publish(store, task, trace_id="t")
    clock.advance(1)
    leases = [await take_one(store, worker) for worker in ("w1", "w2", "w3")]
    assert sorted(lease.shard_index or 0 for lease in leases) == [0, 1, 2]
    assert {(lease.shard_total, lease.parent_id, lease.task_id) for lease in leases} == {(3, parent, task.id)}
    assert len({lease.run_id for lease in leases} | {parent}) == 4
    assert [lease.payload for lease in leases] == [{"x": 1}] * 3
    assert await take(store, "w4") == []
    run = await run_of(store, parent)
    assert (run.status, run.start_time, run.lease_expires_at) == (S.RUNNING, at(1), None)


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "limited"])
async def test_the_claim_that_makes_the_parts_says_where_the_others_wait(store: Store, limit: int | None):
    await publish(store, await fan(store, 2, queue="wide", max_concurrency=limit))
    first, second = [
        await store.claim(ClaimRequest(worker_id=worker, queues=("wide", "other"), max=10)) for worker in ("w1", "w2")
    ]
    assert (len(first.leases), first.split) == (1, ("wide",))
    assert (len(second.leases), second.split) == (1, ())


async def test_a_worker_has_one_part_at_most(store: Store):
    parent = await publish(store, await fan(store, 3))
    first = await take_one(store, "w1")
    assert await take(store, "w1") == []
    await done(store, finish(first))
    assert await take(store, "w1") == []
    assert (await take_one(store, "w2")).parent_id == parent


@pytest.mark.parametrize("allowed", [(), ("w1", "w9")], ids=["anybody", "some"])
async def test_parts_that_wait_for_others_do_not_stand_in_the_way(store: Store, allowed: tuple[str, ...]):
    """Careful and pinned runs are given out by the same kinds of lines as parts are."""
    task = await fan(store, 2, priority=9, specific_worker_ids=allowed)
    for run_id in await publish_many(store, task, 3):
        (lease,) = await claim(store, "w1", 1)
        assert lease.parent_id == run_id
    careful = await publish(store, await store.create_task(job("careful", delivery=Delivery.AT_MOST_ONCE)))
    named = await publish(store, await store.create_task(job("named", specific_worker_ids=("w1",))))
    got = [lease.run_id for _ in range(2) for lease in await claim(store, "w1", 1)]
    assert sorted(got) == sorted([careful, named])


async def test_a_worker_may_have_a_part_of_each_of_two_runs(store: Store):
    task = await fan(store, 2)
    parents = await publish_many(store, task, 2)
    leases = await take(store, "w1") + await take(store, "w1")
    assert sorted(lease.parent_id or 0 for lease in leases) == parents
    assert await take(store, "w1") == []


async def test_the_parent_succeeds_when_all_parts_have(store: Store, clock: ManualClock):
    parent = await publish(store, await fan(store, 3))
    for number, worker in enumerate(("w1", "w2", "w3")):
        assert await status_of(store, parent) in ((S.SCHEDULED, S.RUNNING) if number == 0 else (S.RUNNING,))
        clock.advance(1)
        await done(store, finish(await take_one(store, worker), result={"by": worker}))
    run = await run_of(store, parent)
    assert (run.status, run.end_time) == (S.SUCCESS, at(3))
    parts = await parts_of(store, parent)
    assert sorted(part.result["by"] for part in parts) == ["w1", "w2", "w3"]
    assert [part.status for part in parts] == [S.SUCCESS] * 3


async def test_all_is_decided_by_the_first_failure_and_the_rest_is_canceled(store: Store):
    parent = await publish(store, await fan(store, 3))
    one, two = await take_one(store, "w1"), await take_one(store, "w2")
    await done(store, fail(one))
    assert await status_of(store, parent) is S.FAILED
    assert sorted(part.status for part in await parts_of(store, parent)) == [S.CANCELED, S.CANCELED, S.FAILED]
    await lost(store, finish(two))
    (order,) = (await store.heartbeat("w2", [(two.run_id, two.token)])).orders
    assert order.order is Order.CANCEL
    assert await take(store, "w3") == []


async def test_any_is_decided_by_the_first_success_and_the_rest_is_canceled(store: Store):
    parent = await publish(store, await fan(store, 3, "any"))
    one, two = await take_one(store, "w1"), await take_one(store, "w2")
    await done(store, fail(one))
    assert await status_of(store, parent) is S.RUNNING
    await done(store, finish(two))
    assert await status_of(store, parent) is S.SUCCESS
    assert sorted(part.status for part in await parts_of(store, parent)) == [S.CANCELED, S.FAILED, S.SUCCESS]
    assert await take(store, "w3") == []


async def test_any_fails_when_every_part_has(store: Store):
    parent = await publish(store, await fan(store, 2, "any"))
    for worker in ("w1", "w2"):
        await done(store, fail(await take_one(store, worker)))
    assert await status_of(store, parent) is S.FAILED


@pytest.mark.parametrize(
    ("success", "said"),
    [
        ("all", "1 of 3 parts failed, and all had to succeed"),
        (2, "2 of 3 parts failed, and 2 had to succeed"),
        ("any", "3 of 3 parts failed, and one had to succeed"),
    ],
)
async def test_a_parent_that_failed_says_how_many_parts_did(store: Store, success: int | str, said: str):
    parent = await publish(store, await fan(store, 3, success))
    for worker in ("w1", "w2", "w3")[: int(said[0])]:
        await done(store, fail(await take_one(store, worker)))
    run = await run_of(store, parent)
    assert (run.status, run.error_message, run.error_details) == (S.FAILED, said, {"kind": "parts"})


@pytest.mark.parametrize(
    ("endings", "after", "status"),
    [
        ((finish, finish), 2, S.SUCCESS),
        ((finish, fail, finish), 3, S.SUCCESS),
        ((fail, fail), 2, S.FAILED),
        ((finish, fail, fail), 3, S.FAILED),
    ],
)
async def test_so_many_must_succeed(store: Store, endings, after: int, status: S):
    parent = await publish(store, await fan(store, 3, 2))
    for number, ending in enumerate(endings, 1):
        await done(store, ending(await take_one(store, f"w{number}")))
        assert (await status_of(store, parent) is status) == (number == after)


async def test_settlements_of_several_parts_in_one_batch_decide_once(store: Store):
    parent = await publish(store, await fan(store, 3, "any"))
    leases = [await take_one(store, worker) for worker in ("w1", "w2", "w3")]
    batch: list[Settlement] = [finish(lease) for lease in leases]
    answers = await store.settle(batch)
    assert "done" in answers
    assert await status_of(store, parent) is S.SUCCESS


async def test_all_means_every_worker_that_is_alive_and_allowed_when_it_starts(store: Store, clock: ManualClock):
    await register(store, "gone")
    clock.advance(3600)
    await register(store, "w1", "w2", "w3")
    await register(store, "elsewhere", queues=("other",))
    await register(store, "other-type", job_types=("other",))
    parent = await publish(store, await fan(store, "all"))
    lease = await take_one(store, "w2")
    assert lease.shard_total == 3
    await register(store, "late")
    assert await take(store, "late") == []
    assert await take(store, "elsewhere") == []
    for worker in ("w1", "w3"):
        assert (await take_one(store, worker)).shard_total == 3
    assert len(await parts_of(store, parent)) == 3


async def test_all_with_named_workers_means_those_of_them_that_are_alive(store: Store):
    await register(store, "w1", "w2", "w3")
    await publish(store, await fan(store, "all", specific_worker_ids=("w1", "w3", "w9")))
    assert await take(store, "w2") == []
    assert (await take_one(store, "w1")).shard_total == 2
    assert (await take_one(store, "w3")).shard_total == 2


async def test_a_lost_part_goes_to_another_worker(store: Store, clock: ManualClock):
    parent = await publish(store, await fan(store, 2, worker_timeout_ms=5_000))
    one, two = await take_one(store, "w1"), await take_one(store, "w2")
    clock.advance(6)
    await store.heartbeat("w2", [(two.run_id, two.token)])
    await done(store, lose(one))
    assert await status_of(store, parent) is S.RUNNING
    assert await take(store, "w1") == []
    assert await take(store, "w2") == []
    again = await take_one(store, "w3")
    assert (again.run_id, again.shard_index, again.attempt, again.lost_count) == (one.run_id, one.shard_index, 2, 1)
    await done(store, finish(two))
    await done(store, finish(again))
    assert await status_of(store, parent) is S.SUCCESS


async def test_a_part_that_is_retried_is_not_decided_yet(store: Store, clock: ManualClock):
    parent = await publish(store, await fan(store, 1))
    lease = await take_one(store, "w1")
    await done(store, retry(lease, delay=5))
    assert await status_of(store, parent) is S.RUNNING
    clock.advance(5)
    again = await take_one(store, "w1")
    assert (again.run_id, again.attempt) == (lease.run_id, 2)
    await done(store, finish(again))
    assert await status_of(store, parent) is S.SUCCESS


async def test_canceling_the_parent_cancels_every_part(store: Store):
    parent = await publish(store, await fan(store, 3))
    lease = await take_one(store, "w1")
    (answer,) = await store.cancel([parent])
    assert answer.canceled
    assert await status_of(store, parent) is S.CANCELED
    assert [part.status for part in await parts_of(store, parent)] == [S.CANCELED] * 3
    await lost(store, finish(lease))
    assert await take(store, "w2") == []


async def test_the_parent_holds_one_place_and_parts_hold_none(store: Store):
    task = await fan(store, 2, max_concurrency=1)
    first, second = await publish_many(store, task, 2)
    leases = [await take_one(store, worker) for worker in ("w1", "w2")]
    assert {lease.parent_id for lease in leases} == {first}
    assert await take(store, "w3") == []
    await done(store, finish(leases[0]))
    assert await take(store, "w3") == []
    await done(store, finish(leases[1]))
    assert (await take_one(store, "w3")).parent_id == second
    assert await store.recount() == 0


async def test_parts_stay_out_of_lists_and_counts(store: Store):
    task = await fan(store, 3)
    parent = await publish(store, task)
    await take_one(store, "w1")
    assert [run.id for run in await runs_of(store, task)] == [parent]
    page = await store.runs(RunQuery())
    assert (page.total, [run.id for run in page.items]) == (1, [parent])
    parts = await parts_of(store, parent)
    assert sorted(part.shard_index or 0 for part in parts) == [0, 1, 2]
    assert {(part.parent_id, part.shard_total) for part in parts} == {(parent, 3)}


async def test_the_parent_is_never_overdue(store: Store, clock: ManualClock):
    parent = await publish(store, await fan(store, 1))
    lease = await take_one(store, "w1")
    clock.advance(3600)
    assert [one.run_id for one in await store.overdue(10)] == [lease.run_id]
    assert await status_of(store, parent) is S.RUNNING


async def test_deleting_the_task_cancels_parts_that_wait_only_with_cancel_running(store: Store):
    task = await fan(store, 2)
    parent = await publish(store, task)
    lease = await take_one(store, "w1")
    await store.delete_task(task.id, cancel_running=True)
    assert await status_of(store, parent) is S.CANCELED
    await lost(store, finish(lease))
    assert await take(store, "w2") == []


async def test_cleaning_the_parent_takes_its_parts_along(store: Store, clock: ManualClock):
    parent = await publish(store, await fan(store, 2))
    leases = [await take_one(store, worker) for worker in ("w1", "w2")]
    await store.settle([finish(lease) for lease in leases])
    clock.advance(1)
    assert await store.clean(FAR, 100) >= 1
    assert await store.run(parent) is None
    for lease in leases:
        assert await store.run(lease.run_id) is None


async def test_parent_and_parts_are_told(store: Store):
    before = await newest(store)
    parent = await publish(store, await fan(store, 2))
    leases = [await take_one(store, worker) for worker in ("w1", "w2")]
    await store.settle([finish(lease) for lease in leases])
    told = await news(store, before)
    assert len([event for event in told if event.run_id == parent]) >= 2
    for lease in leases:
        assert [event for event in told if event.run_id == lease.run_id]


async def test_an_http_target_can_fan_out_too(store: Store):
    task = await store.create_task(http("fan", fanout=Fanout(workers=2), max_concurrency=1))
    parent = await publish(store, task)
    for worker in ("w1", "w2"):
        await done(store, finish(await take_one(store, worker)))
    assert await status_of(store, parent) is S.SUCCESS


async def test_all_waits_until_a_worker_comes(store: Store):
    await register(store, "elsewhere", queues=("other",))
    parent = await publish(store, await fan(store, "all"))
    assert await claim_due(store, "elsewhere", queues=("other",)) == []
    assert await status_of(store, parent) is S.SCHEDULED
    await register(store, "w1")
    assert (await take_one(store, "w1")).shard_total == 1
