"""Children of jobs: spawned under a token, waited for without a lease, and the last of them wakes the run that waits."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    FAR,
    Node,
    S,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    edit,
    fail,
    finish,
    job,
    lose,
    park,
    publish,
    release,
    retry,
    run_of,
    settle,
    settlement,
    started,
    status_of,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.errors import ConcurrencyLimit, InvalidState, LeaseLost, NotFound
from noonbell.model.request import KeptReason, RunQuery
from noonbell.model.run import (
    MOST_CHILDREN,
    ChildRequest,
    Lease,
    Origin,
    RunId,
    Settlement,
    SettleResult,
    Transition,
    idempotency_key_of,
    key_of_child,
)
from noonbell.model.task import ConcurrencyPolicy, Delivery, Fanout, RetryPolicy, Step, TaskSpec
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore


def gather(lease: Lease) -> Settlement:
    return settlement(lease, Transition.GATHER)


def child(position: int, task: str = "child", **fields: Any) -> ChildRequest:
    return ChildRequest(position=position, task=task, **fields)


async def family(store: Store, count: int = 2, **fields: Any) -> tuple[Lease, list[RunId]]:
    """A run of `parent`, held by w1, with children that wait."""
    parent = await store.create_task(job("parent", **fields))
    await store.create_task(job("child", job_type="child"))
    lease = await started(store, parent)
    return lease, await spawn(store, lease, count)


async def spawn(store: Store, lease: Lease, count: int, first: int = 0) -> list[RunId]:
    asked = [child(position) for position in range(first, first + count)]
    return await store.spawn(lease.run_id, lease.token, asked)


async def carry_out(store: Store, worker: str = "w2") -> list[RunId]:
    """Claim what there is and let it succeed, its number as the result."""
    leases = await claim(store, worker, 1000)
    for lease in leases:
        await done(store, finish(lease, result=lease.run_id))
    return claimed_ids(leases)


async def sound(store: Store) -> None:
    assert await store.flaws() == []
    assert await store.recount() == 0


async def test_a_child_is_a_run_of_its_task_that_names_its_parent(store: Store):
    lease, (first, second) = await family(store)
    run = await run_of(store, first)
    assert (run.parent_id, run.origin, run.status, run.task_name) == (lease.run_id, Origin.SPAWN, S.SCHEDULED, "child")
    listed = (await store.runs(RunQuery(parent_id=lease.run_id, sort="id"))).items
    assert [one.id for one in listed] == [first, second]
    parent = await run_of(store, lease.run_id)
    key = idempotency_key_of(parent.id, parent.scheduled_time, parent.idempotency_key)
    assert run.idempotency_key == key_of_child(key, 0, 0)


async def test_a_run_that_gathers_is_running_without_a_lease(store: Store, clock: ManualClock):
    lease, children = await family(store)
    await done(store, gather(lease))
    run = await run_of(store, lease.run_id)
    assert (run.status, run.lease_expires_at, run.worker_id, run.attempt) == (S.RUNNING, None, None, 1)
    assert await store.held() == {}
    clock.advance(10 * 86_400)
    assert await store.overdue(100) == []
    assert [one.id for one in (await store.runs(RunQuery(status=(S.RUNNING,)))).items] == [lease.run_id]
    assert claimed_ids(await claim(store, "w2")) == children
    await sound(store)


async def test_the_end_of_the_last_child_wakes_it_for_a_further_attempt_that_is_no_retry(store: Store):
    lease, children = await family(store, 3)
    await done(store, gather(lease))
    leases = await claim(store, "w2")
    for one in leases[:2]:
        await done(store, finish(one))
        assert (await run_of(store, lease.run_id)).status is S.RUNNING
        assert await claim(store) == []
    await done(store, fail(leases[2]))
    assert (await run_of(store, lease.run_id)).status is S.SCHEDULED
    resumed = await claim_one(store)
    assert (resumed.run_id, resumed.attempt, resumed.retry_count, resumed.lost_count) == (lease.run_id, 2, 0, 0)
    assert resumed.token > lease.token
    assert [one.status for one in await store.attempts(lease.run_id)] == ["PARKED", "RUNNING"]
    states = await store.children(lease.run_id, [2, 0, 1])
    assert [(one.run_id, one.status) for one in states] == [
        (children[2], S.FAILED),
        (children[0], S.SUCCESS),
        (children[1], S.SUCCESS),
    ]
    assert await settle(store, finish(lease)) is SettleResult.LOST
    await done(store, finish(resumed))
    assert await status_of(store, lease.run_id) is S.SUCCESS
    await sound(store)


async def test_a_run_whose_children_have_ended_meanwhile_is_not_parked(store: Store):
    lease, _ = await family(store)
    assert len(await carry_out(store)) == 2
    await done(store, gather(lease))
    assert (await claim_one(store)).run_id == lease.run_id
    await sound(store)


async def test_a_child_that_is_canceled_wakes_it_too(store: Store):
    lease, children = await family(store)
    await done(store, gather(lease))
    await store.cancel(children)
    assert (await claim_one(store)).run_id == lease.run_id


async def test_children_get_their_results_back_in_the_resumed_attempt(store: Store):
    lease, children = await family(store)
    await done(store, gather(lease))
    await carry_out(store)
    resumed = await claim_one(store)
    assert await spawn(store, resumed, 2) == children
    assert [one.result for one in await store.children(lease.run_id, [0, 1])] == children
    assert await claim(store, "w2") == []


async def test_a_run_may_gather_again_and_again(store: Store):
    lease, children = await family(store)
    for number in (1, 2, 3):
        await done(store, gather(lease))
        await carry_out(store)
        lease = await claim_one(store)
        children += await spawn(store, lease, 1, first=1 + number)
    assert (lease.attempt, len(set(children))) == (4, 5)
    await carry_out(store)
    await done(store, finish(lease))
    await sound(store)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"task": "other"}, "spawn 1 is other now, and was a run of another job"),
        ({"payload": {"n": 2}}, "spawn 1 is child now, with another payload than before"),
        ({"payload": msgspec.UNSET}, "with another payload"),
    ],
)
async def test_another_child_at_a_position_is_refused_and_nothing_is_written(
    store: Store, other: dict[str, Any], words: str
):
    parent = await store.create_task(job("parent"))
    await store.create_task(job("child", job_type="child"))
    await store.create_task(job("other", job_type="other"))
    lease = await started(store, parent)
    await store.spawn(lease.run_id, lease.token, [child(0, payload={"n": 1})])
    with pytest.raises(InvalidState, match=words):
        await store.spawn(lease.run_id, lease.token, [child(1), child(0, **({"payload": {"n": 1}} | other))])
    assert len((await store.runs(RunQuery(parent_id=lease.run_id))).items) == 1


async def test_only_the_current_token_can_spawn(store: Store, clock: ManualClock):
    lease, _ = await family(store, 1)
    with pytest.raises(LeaseLost):
        await store.spawn(lease.run_id, lease.token - 1, [child(1)])
    await done(store, gather(lease))
    with pytest.raises(LeaseLost):
        await store.spawn(lease.run_id, lease.token, [child(1)])
    await carry_out(store)
    clock.advance(1)
    await done(store, finish(await claim_one(store)))
    with pytest.raises(LeaseLost):
        await store.spawn(lease.run_id, lease.token, [child(1)])


async def test_what_cannot_be_spawned_is_refused(store: Store):
    parent = await store.create_task(job("parent"))
    once = await store.create_task(job("once", delivery=Delivery.AT_MOST_ONCE))
    await store.create_task(
        job("small", job_type="small", max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP)
    )
    lease = await started(store, parent)
    with pytest.raises(NotFound):
        await store.spawn(lease.run_id, lease.token, [child(0, "nobody")])
    with pytest.raises(ConcurrencyLimit):
        await store.spawn(lease.run_id, lease.token, [child(0, "small"), child(1, "small")])
    with pytest.raises(InvalidState, match="at most"):
        await store.spawn(lease.run_id, lease.token, [child(MOST_CHILDREN, "small")])
    assert (await store.runs(RunQuery(parent_id=lease.run_id))).items == []
    held = await started(store, once)
    with pytest.raises(InvalidState, match="at_most_once"):
        await store.spawn(held.run_id, held.token, [child(0, "small")])


async def test_a_run_without_children_cannot_gather(store: Store):
    lease = await started(store, await store.create_task(job("parent")))
    assert await settle(store, gather(lease)) is SettleResult.LOST
    await done(store, finish(lease))


async def test_the_token_of_before_cannot_park_it_twice(store: Store):
    lease, _ = await family(store)
    await done(store, gather(lease))
    assert await settle(store, gather(lease)) is SettleResult.LOST
    assert await store.settle([finish(lease), release(lease), retry(lease), park(lease)]) == [SettleResult.LOST] * 4


async def test_a_parked_run_has_no_place_at_its_gate_and_takes_one_when_it_resumes(store: Store):
    lease, _ = await family(store, max_concurrency=1)
    parent = await store.task(lease.task_id)
    assert parent is not None
    second = await publish(store, parent)
    assert second not in claimed_ids(await claim(store, "w3", job_types=("work",)))
    await done(store, gather(lease))
    other = await claim_one(store, "w3", job_types=("work",))
    assert other.run_id == second
    await carry_out(store)
    assert await claim(store, "w3", job_types=("work",)) == []
    await sound(store)
    await done(store, finish(other))
    assert (await claim_one(store, "w3", job_types=("work",))).run_id == lease.run_id
    await sound(store)


async def test_children_wait_at_the_gate_of_their_own_task(store: Store):
    parent = await store.create_task(job("parent"))
    await store.create_task(job("child", job_type="child", max_concurrency=2))
    lease = await started(store, parent)
    await spawn(store, lease, 5)
    await done(store, gather(lease))
    seen = []
    for _ in range(10):
        leases = await claim(store, "w2", job_types=("child",))
        assert len(leases) <= 2
        await sound(store)
        for one in leases:
            await done(store, finish(one))
            seen.append(one.run_id)
    assert len(set(seen)) == 5
    assert (await claim_one(store)).run_id == lease.run_id


async def test_a_gate_that_appears_or_goes_counts_children_and_leaves_out_who_gathers(store: Store):
    lease, _ = await family(store, 3)
    await done(store, gather(lease))
    for name, limit in (("parent", 1), ("child", 1), ("child", None), ("parent", None)):
        task = await store.task_named(name)
        assert task is not None
        await edit(store, task, max_concurrency=limit)
        await sound(store)
    assert len(await claim(store, "w2")) == 3


async def test_the_timeout_counts_executing_time_alone(store: Store, clock: ManualClock):
    lease, _ = await family(store, timeout_seconds=60)
    clock.advance(5)
    await done(store, gather(lease))
    clock.advance(3600)
    await carry_out(store)
    clock.advance(3600)
    resumed = await claim_one(store)
    assert (resumed.deadline_at, resumed.executed_us) == (at(7205 + 55), 5 * SECOND)
    await spawn(store, resumed, 1, first=2)
    clock.advance(10)
    await done(store, gather(resumed))
    await carry_out(store)
    last = await claim_one(store)
    assert last.executed_us == 15 * SECOND
    await done(store, retry(last, 0))
    again = await claim_one(store)
    assert (again.retry_count, again.executed_us, again.deadline_at) == (1, 0, at(7215 + 60))


async def test_a_worker_that_is_lost_leaves_the_children_and_the_next_attempt_finds_them(
    store: Store, clock: ManualClock
):
    lease, children = await family(store)
    clock.advance(20)
    await done(store, lose(lease))
    again = next(one for one in await claim(store, "w3") if one.run_id == lease.run_id)
    assert await spawn(store, again, 2) == children
    assert (again.attempt, again.lost_count) == (2, 1)


async def test_a_retry_keeps_what_succeeded_and_makes_anew_what_failed(store: Store):
    lease, children = await family(store, 3, retry_policy=RetryPolicy(max_retries=3))
    leases = await claim(store, "w2")
    await done(store, finish(leases[0]))
    await done(store, fail(leases[1]))
    await done(store, gather(lease))
    await done(store, finish(leases[2]))
    resumed = await claim_one(store)
    assert await spawn(store, resumed, 3) == children
    await done(store, retry(resumed, 0))
    retried = await claim_one(store)
    first, second, third = await spawn(store, retried, 3)
    assert (first, third) == (children[0], children[2])
    assert second not in children
    assert [one.run_id for one in await store.children(lease.run_id, [0, 1, 2])] == [first, second, third]
    await done(store, gather(retried))
    assert await carry_out(store) == [second]
    assert await spawn(store, await claim_one(store), 3) == [first, second, third]


async def test_a_child_that_a_retry_kept_and_that_fails_then_is_not_made_anew_by_the_resumed_attempt(store: Store):
    lease, children = await family(store, 3, retry_policy=RetryPolicy(max_retries=3))
    await done(store, retry(lease, 0))
    held = {one.run_id: one for one in await claim(store)}
    retried = held[lease.run_id]
    assert await spawn(store, retried, 2) == children[:2]
    await done(store, gather(retried))
    for settled in (fail(held[children[0]]), fail(held[children[2]]), finish(held[children[1]])):
        await done(store, settled)
    resumed = await claim_one(store)
    assert await spawn(store, resumed, 2) == children[:2]
    assert (await spawn(store, resumed, 1, first=2))[0] not in children  # this retry asks for it for the first time
    await sound(store)


async def test_canceling_the_parent_cancels_its_children_and_theirs(store: Store):
    lease, children = await family(store)
    inner = (await claim(store, "w2"))[0]
    (grandchild,) = await store.spawn(inner.run_id, inner.token, [child(0)])
    await done(store, gather(inner))
    await done(store, gather(lease))
    await store.cancel([lease.run_id], by="ann")
    for run_id in (lease.run_id, *children, grandchild):
        assert await status_of(store, run_id) is S.CANCELED
    assert (await run_of(store, grandchild)).error_details == {"kind": "canceled", "why": "parent"}
    assert await claim(store, "w3") == []
    await sound(store)


async def test_a_parent_that_ends_without_gathering_leaves_its_children_alone(store: Store):
    lease, children = await family(store)
    await done(store, finish(lease))
    assert await carry_out(store) == children
    assert await status_of(store, lease.run_id) is S.SUCCESS
    await sound(store)


async def test_deleting_a_task_cancels_a_parked_run_of_it_with_its_children(store: Store):
    lease, children = await family(store)
    await done(store, gather(lease))
    await store.delete_task(lease.task_id, cancel_running=True)
    assert {await status_of(store, run_id) for run_id in (lease.run_id, *children)} == {S.CANCELED}
    await sound(store)


async def test_a_step_of_a_flow_may_spawn_and_a_canceled_flow_takes_its_children(store: Store):
    steps = (Step(id="a", job_type="work"), Step(id="b", needs=("a",), job_type="work"))
    flow = await store.create_task(TaskSpec(name="flow", steps=steps))
    await store.create_task(job("child", job_type="child"))
    run_id = await publish(store, flow)
    lease = await claim_one(store)
    await spawn(store, lease, 1)
    await done(store, gather(lease))
    await carry_out(store)
    resumed = await claim_one(store)
    assert (resumed.run_id, resumed.step and resumed.step.id) == (lease.run_id, "a")
    await done(store, finish(resumed))
    second = await claim_one(store)
    (open_child,) = await spawn(store, second, 1)
    await done(store, gather(second))
    await store.cancel([run_id])
    assert {await status_of(store, one) for one in (run_id, second.run_id, open_child)} == {S.CANCELED}
    await sound(store)


async def test_a_child_may_fan_out(store: Store):
    parent = await store.create_task(job("parent"))
    await store.create_task(job("child", job_type="child", fanout=Fanout(workers=2)))
    lease = await started(store, parent)
    await spawn(store, lease, 1)
    await done(store, gather(lease))
    for worker in ("w2", "w3"):
        (part,) = [one for one in await claim(store, worker) if one.shard_total == 2]
        await done(store, finish(part))
    assert (await claim_one(store)).run_id == lease.run_id


async def test_a_delayed_child_is_waited_for(store: Store, clock: ManualClock):
    parent = await store.create_task(job("parent"))
    await store.create_task(job("child", job_type="child"))
    lease = await started(store, parent)
    await store.spawn(lease.run_id, lease.token, [child(0, delay_seconds=60)])
    await done(store, gather(lease))
    assert await claim_due(store) == []
    clock.advance(60)
    (one,) = await claim_due(store, "w2")
    await done(store, finish(one))
    assert (await claim_one(store)).run_id == lease.run_id


async def test_a_family_is_removed_by_the_id_of_its_first_run_alone(store: Store, clock: ManualClock):
    lease, children = await family(store)
    await done(store, finish(lease))
    clock.advance(1)
    assert await store.clean_runs([lease.run_id]) == {lease.run_id: KeptReason.ACTIVE_PARTS}
    await carry_out(store)
    clock.advance(1)
    assert await store.clean_runs(children) == dict.fromkeys(children, KeptReason.PART)
    assert await store.clean_runs([*children, lease.run_id]) == dict.fromkeys(children, KeptReason.PART)
    assert isinstance(store, SqlStore)
    for table in ("runs", "children", "gathers", "live"):
        assert await store.fetch(f"select count(*) from {table}") == [(0,)]


async def test_retention_takes_a_family_together_and_none_of_which_a_member_is_active(store: Store, clock: ManualClock):
    lease, _ = await family(store)
    await done(store, finish(lease))
    clock.advance(3600)
    assert await store.clean(FAR, 100) == 0
    await carry_out(store)
    clock.advance(3600)
    assert await store.clean(FAR, 100) == 1
    assert isinstance(store, SqlStore)
    for table in ("runs", "children", "gathers", "live"):
        assert await store.fetch(f"select count(*) from {table}") == [(0,)]


async def test_purging_the_parents_task_leaves_no_trace(store: Store):
    lease, _ = await family(store)
    await done(store, gather(lease))
    await store.delete_task(lease.task_id, purge=True)
    assert isinstance(store, SqlStore)
    for table in ("children", "gathers", "live"):
        assert await store.fetch(f"select count(*) from {table}") == [(0,)]
    await sound(store)


async def test_two_nodes_that_settle_the_last_two_children_wake_the_parent_once(store: Store, another_node: Node):
    other = await another_node()
    await store.create_task(job("child", job_type="child"))
    parent = await store.create_task(job("parent"))
    for _ in range(10):
        lease = await started(store, parent)
        await spawn(store, lease, 2)
        await done(store, gather(lease))
        first, second = await claim(store, "w2")
        answers = await asyncio.gather(store.settle([finish(first)]), other.settle([finish(second)]))
        assert answers == [[SettleResult.DONE], [SettleResult.DONE]]
        resumed = await claim_one(store)
        assert resumed.attempt == 2
        await done(store, finish(resumed))


async def test_a_park_and_the_end_of_the_last_child_at_the_same_time_lose_nothing(store: Store, another_node: Node):
    other = await another_node()
    await store.create_task(job("child", job_type="child"))
    parent = await store.create_task(job("parent"))
    for _ in range(10):
        lease = await started(store, parent)
        await spawn(store, lease, 1)
        last = await claim_one(store, "w2")
        await asyncio.gather(store.settle([gather(lease)]), other.settle([finish(last)]))
        resumed = await claim_one(store)
        assert (resumed.run_id, resumed.attempt) == (lease.run_id, 2)
        await done(store, finish(resumed))


async def test_what_happens_is_told(store: Store):
    lease, (first,) = await family(store, 1)
    await done(store, gather(lease))
    await carry_out(store)
    page = await store.event_page(0, 500, None)
    told = [(event.type, event.run_id) for event in page.events if event.run_id is not None]
    parent = lease.run_id
    assert told == [
        ("run.scheduled", parent),
        ("run.started", parent),
        ("run.scheduled", first),
        ("run.parked", parent),
        ("run.started", first),
        ("run.succeeded", first),
        ("run.resumed", parent),
    ]
