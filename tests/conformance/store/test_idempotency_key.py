"""What a target knows a run by: one key per run, stored with it; the same again for a slot that is made again."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    Node,
    at,
    claim,
    claim_due,
    claim_one,
    done,
    every,
    execute,
    finish,
    http,
    job,
    lose,
    publish,
    publish_many,
    reread,
    retry,
    run_of,
    runs_of,
    skips,
    trigger,
)
from noonbell.clock import Instant, ManualClock
from noonbell.model.request import RunQuery
from noonbell.model.run import Lease, Origin, Run, RunId, idempotency_key_of, key_of_part, key_of_slot
from noonbell.model.task import Fanout, OverlapAction, Task
from noonbell.ports import Store


async def installation(store: Store) -> str:
    found = await store.installation_id()  # type: ignore[attr-defined]
    assert found
    return str(found)


async def slot_made(store: Store, task: Task, clock: ManualClock, seconds: float) -> Run:
    """The run of the task's slot at this second."""
    clock.set(at(seconds))
    await store.plan(10)
    return next(run for run in await runs_of(store, task) if run.scheduled_time == at(seconds) and not run.parent_id)


async def go_back(store: Store, task: Task, seconds: float) -> None:
    """The store loses its runs, and the task is due at this second again, as a restore or a replica that lags does."""
    apart = ("run_slots",) if store.dialect.has_partitions else ()
    for table in ("live", "inputs", "attempts", "runs", *apart):
        await execute(store, f"delete from {table}")
    await execute(
        store,
        "update cursors set next_fire_at = :slot, accounted_to = :before where task_id = :task",
        slot=at(seconds),
        before=at(seconds - 1),
        task=task.id,
    )


def sent(one: Lease | Run) -> str:
    """The key as a target gets it."""
    run_id = one.id if isinstance(one, Run) else one.run_id
    return idempotency_key_of(run_id, one.scheduled_time, one.idempotency_key)


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "limited"])
async def test_a_slot_that_is_made_again_has_the_key_it_had(store: Store, clock: ManualClock, limit: int | None):
    task = await store.create_task(job(schedule=every(10), max_concurrency=limit))
    first = await slot_made(store, task, clock, 10)
    lease = await claim_one(store)
    assert sent(lease) == first.idempotency_key == key_of_slot(await installation(store), task.uid, at(10))
    await done(store, finish(lease))
    await go_back(store, task, 10)
    clock.set(at(11))
    await store.plan(10)
    again = await claim_one(store)
    assert again.run_id != first.id
    assert again.scheduled_time == first.scheduled_time
    assert sent(again) == first.idempotency_key


async def test_every_slot_of_every_task_has_a_key_of_its_own(store: Store, clock: ManualClock):
    tasks = [await store.create_task(http(name, schedule=every(1), max_concurrency=None)) for name in ("a", "b")]
    clock.set(at(5))
    await store.plan(10)
    runs = [run for task in tasks for run in await runs_of(store, task)]
    assert len({run.idempotency_key for run in runs}) == len(runs) == 10


async def test_a_skipped_slot_has_a_key_too(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    await slot_made(store, task, clock, 10)
    await claim_one(store)
    run = await slot_made(store, task, clock, 20)
    assert [slot for slot, _ in await skips(store, task)] == [20]
    assert run.idempotency_key == key_of_slot(await installation(store), task.uid, at(20))


@pytest.mark.parametrize("origin", [Origin.PUBLISH, Origin.TRIGGER, Origin.BACKFILL, Origin.RETRY], ids=str)
@pytest.mark.parametrize("count", [1, 3], ids=["one", "many"])
@pytest.mark.parametrize("limit", [None, 100], ids=["free", "limited"])
async def test_what_was_asked_for_has_the_key_of_its_run(store: Store, origin: Origin, count: int, limit: int | None):
    task = await store.create_task(job(max_concurrency=limit))
    run_ids = await publish_many(store, task, count, origin=origin)
    ours = await installation(store)
    wanted = {run_id: f"{ours}-{run_id}" for run_id in run_ids}
    assert {run.id: sent(run) for run in await runs_of(store, task)} == wanted
    assert {lease.run_id: sent(lease) for lease in await claim(store)} == wanted


async def test_a_backfill_or_retry_of_a_slot_is_another_piece_of_work(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    slot = await slot_made(store, task, clock, 10)
    again = [
        await publish(store, task, origin=Origin.RETRY, scheduled_time=at(10), retry_of_run_id=slot.id),
        await publish(store, task, origin=Origin.BACKFILL, scheduled_time=at(10), key="backfill:10"),
    ]
    keys = {sent(await run_of(store, run_id)) for run_id in (slot.id, *again)}
    assert len(keys) == 3


async def test_every_attempt_has_the_same_key(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    run = await slot_made(store, task, clock, 10)
    first = await claim_one(store)
    await done(store, retry(first, delay=1))
    clock.advance(1)
    (second,) = await claim_due(store)
    clock.set(Instant(second.expires_at + 1))
    await done(store, lose(second))
    (third,) = await claim_due(store, "w2")
    assert [lease.attempt for lease in (first, second, third)] == [1, 2, 3]
    assert {sent(lease) for lease in (first, second, third)} == {run.idempotency_key}


async def parts(store: Store, parent: RunId) -> dict[int | None, str | None]:
    found = await store.runs(RunQuery(parent_id=parent, sort="id", page_size=100))
    return {run.shard_index: run.idempotency_key for run in found.items}


async def test_the_parts_of_a_fan_out_have_keys_of_their_own_and_the_same_again(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), fanout=Fanout(workers=3)))
    parent = await slot_made(store, task, clock, 10)
    await claim_one(store)
    keys = await parts(store, parent.id)
    assert keys == {index: key_of_part(str(parent.idempotency_key), index, 3) for index in range(3)}
    assert len({*keys.values(), parent.idempotency_key}) == 4
    await go_back(store, task, 10)
    await execute(store, "update gates set used = 0, waiting = 0, passed = 0")
    remade = await slot_made(store, task, clock, 10)
    await claim_one(store)
    assert remade.id != parent.id
    assert await parts(store, remade.id) == keys


async def test_a_triggered_fan_out_has_other_parts_each_time(store: Store):
    task = await store.create_task(job(fanout=Fanout(workers=2)))
    parents = [await trigger(store, task) for _ in range(2)]
    await claim(store, "w1")
    keys = [key for parent in parents for key in (await parts(store, parent)).values()]
    assert len(set(keys)) == 4


async def test_a_run_from_before_keys_were_stored_keeps_the_form_it_had(store: Store):
    free = await store.create_task(job("free"))
    limited = await store.create_task(job("limited", max_concurrency=1))
    fan = await store.create_task(job("fan", fanout=Fanout(workers=1)))
    run_ids = [await publish(store, task) for task in (free, limited, fan)]
    await execute(store, "update runs set idempotency_key = null")
    former = {
        run_id: f"noonbell-{run_id}-{(await run_of(store, run_id)).scheduled_time // 10**6}" for run_id in run_ids
    }
    leases = {lease.task_id: lease for lease in await claim(store)}
    assert sent(leases[free.id]) == former[run_ids[0]]
    assert sent(leases[limited.id]) == former[run_ids[1]]
    assert sent(leases[fan.id]) == key_of_part(former[run_ids[2]], 0, 1)


async def test_all_nodes_know_one_installation(store: Store, another_node: Node):
    other = await another_node()
    assert await installation(store) == await installation(other)
    task = await store.create_task(job())
    for node in (store, other):
        run_id = await publish(node, task)
        assert sent(await run_of(store, run_id)) == f"{await installation(store)}-{run_id}"


async def test_a_new_installation_makes_other_keys_and_leaves_those_that_are_there(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    kept = await publish(store, task)
    before = await installation(store)
    key = sent(await run_of(store, kept))
    made = await store.new_installation()  # type: ignore[attr-defined]
    assert made == await installation(store) != before
    assert sent(await run_of(store, kept)) == key == f"{before}-{kept}"
    slot = await slot_made(store, task, clock, 10)
    assert slot.idempotency_key == key_of_slot(made, task.uid, at(10)) != key_of_slot(before, task.uid, at(10))


async def test_a_task_keeps_its_uid_through_changes_and_no_other_gets_it(store: Store):
    task = await store.create_task(job("a"))
    assert len(task.uid) == 32
    await execute(store, "update tasks set uid = null where id = :id", id=task.id)
    assert (await reread(store, task)).uid == f"task-{task.id}", "made by a node from before the column"
    await store.delete_task(task.id)
    assert (await store.create_task(job("a"))).uid != task.uid
