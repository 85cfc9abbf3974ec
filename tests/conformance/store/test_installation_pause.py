"""One switch for all: while everything is paused nothing is planned, made ready or claimed; afterwards nothing is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    after_each,
    ask,
    asynchronous,
    at,
    claim,
    claim_due,
    claimed_ids,
    done,
    dropped,
    edit,
    every,
    finish,
    http,
    job,
    newest,
    news,
    park,
    publish,
    publish_many,
    reread,
    retry,
    run_of,
    runs_of,
    seconds,
    started,
    status_of,
)
from conformance.store.test_callback import call
from conformance.store.test_plans import plan as plan_of
from noonbell.clock import SECOND, ManualClock
from noonbell.model.account import InstallationPause
from noonbell.model.run import SettleResult
from noonbell.model.task import ConcurrencyPolicy, Fanout, MisfirePolicy, OverlapAction, RateLimit
from noonbell.model.worker import Queue, WorkerInfo
from noonbell.ports import Store


async def pause(store: Store, reason: str = "the database moves", by: str | None = "alice") -> InstallationPause:
    found, is_new = await store.pause_installation(reason, by=by)
    assert is_new
    return found


# ---- the switch


async def test_it_says_who_paused_everything_why_and_since_when(store: Store, clock: ManualClock):
    assert await store.installation_pause() is None
    clock.set(at(3))
    since = await newest(store)
    found = await pause(store)
    assert found == InstallationPause(since=at(3), by="alice", reason="the database moves")
    assert await store.installation_pause() == found
    (event,) = await news(store, since)
    assert (event.type, event.task_id) == ("installation.paused", None)
    assert event.data == {"by": "alice", "reason": "the database moves", "since": at(3)}


async def test_a_pause_that_stands_is_left_as_it_is(store: Store, clock: ManualClock):
    first = await pause(store)
    since = await newest(store)
    clock.set(at(9))
    assert await store.pause_installation("another", by="bob") == (first, False)
    assert await store.installation_pause() == first
    assert await news(store, since) == []


async def test_it_is_ended_once_and_remembered(store: Store, clock: ManualClock):
    await pause(store)
    clock.set(at(60))
    since = await newest(store)
    ended = await store.resume_installation(by="bob")
    expected = InstallationPause(since=at(0), until=at(60), by="alice", resumed_by="bob", reason="the database moves")
    assert ended == expected
    assert await store.resume_installation(by="carol") is None
    assert await store.installation_pause() is None
    assert [event.type for event in await news(store, since)] == ["installation.resumed"]
    assert await store.installation_pauses(at(0), at(10)) == [expected]
    assert await store.installation_pauses(at(61), at(70)) == []


async def test_paused_and_resumed_in_one_moment_and_again(store: Store):
    for _ in range(3):
        await pause(store)
        assert await store.resume_installation() is not None
    assert await store.installation_pause() is None


async def test_of_many_who_pause_at_once_on_two_nodes_one_has_done_it(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    answers = await asyncio.gather(*(nodes[n % 2].pause_installation(f"by {n}", by=str(n)) for n in range(20)))
    assert [is_new for _, is_new in answers].count(True) == 1
    assert len({found for found, _ in answers}) == 1
    ended = await asyncio.gather(*(nodes[n % 2].resume_installation(by=str(n)) for n in range(20)))
    assert len([one for one in ended if one is not None]) == 1


async def test_what_was_paused_long_ago_is_forgotten_and_a_standing_pause_is_not(store: Store, clock: ManualClock):
    await pause(store)
    clock.set(at(5))
    await store.resume_installation()
    clock.set(at(10))
    standing = await pause(store)
    clock.set(at(1000))
    await store.clean_rest(at(500), 100)
    assert await store.installation_pauses(at(0), at(1000)) == [standing]


# ---- no start


async def _one_of_each(store: Store) -> list[int]:
    """Runs that are given out in every way that there is."""
    await store.register_worker(WorkerInfo(id="w1", incarnation="i1", queues=("default", "http")))
    specs = [
        job("ready"),
        http("gated"),
        job("rated", rate_limit=RateLimit(max=5, per_seconds=60)),
        job("careful", min_worker_version=1),
        job("pinned", specific_worker_ids=("w1",)),
        asynchronous("called back"),
        job("parts", fanout=Fanout(workers=1)),
    ]
    return [await publish(store, await store.create_task(spec)) for spec in specs]


async def test_nothing_is_given_out_in_any_way_and_all_of_it_afterwards(store: Store, another_node: Node):
    made = await _one_of_each(store)
    await pause(store)
    for node in (store, await another_node()):
        claimed = await node.claim(ask(version=1))
        assert (claimed.leases, claimed.is_paused) == ([], True)
    assert {await status_of(store, run_id) for run_id in made} == {S.SCHEDULED}  # type: ignore[arg-type]
    await store.resume_installation()
    claimed = await store.claim(ask(version=1))
    assert claimed.is_paused is False
    *plain, parent = made
    assert {lease.parent_id or lease.run_id for lease in claimed.leases} == {*plain, parent}


async def test_a_queue_with_a_limit_gives_nothing_either(store: Store):
    await store.set_queue("default", _limited)
    await publish(store, await store.create_task(job()))
    await pause(store)
    assert (await store.claim(ask())).is_paused
    await store.resume_installation()
    assert len(await claim(store)) == 1


def _limited(queue: Queue) -> Queue:
    return msgspec.structs.replace(queue, concurrency=3)


async def test_what_executes_is_settled_and_nothing_is_claimed_with_it(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task)
    waiting = await publish_many(store, task, 3)
    await pause(store)
    answers, claimed = await store.settle_and_claim([finish(lease)], ask())
    assert answers == [SettleResult.DONE]
    assert (claimed.leases, claimed.is_paused) == ([], True)
    assert await status_of(store, lease.run_id) is S.SUCCESS
    await store.resume_installation()
    assert claimed_ids(await claim(store)) == waiting


async def test_an_attempt_is_renewed_and_a_callback_is_heard(store: Store):
    called = await started(store, await store.create_task(asynchronous()))
    await done(store, park(called))
    held = await started(store, await store.create_task(job()))
    await pause(store)
    answer = await store.heartbeat("w1", [(held.run_id, held.token)])
    assert [order.order for order in answer.orders] == ["continue"]
    await call(store, called)
    assert await status_of(store, called.run_id) is S.CALLBACK_SUCCESS


async def test_delayed_runs_and_retries_wait_beyond_their_time(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    retried = await started(store, task)
    await done(store, retry(retried, 5))
    delayed = await publish(store, task, delay_seconds=5)
    await pause(store)
    clock.set(at(30))
    promoted = await store.promote(100)
    assert (promoted.count, promoted.next_at) == (0, None)
    assert await claim(store) == []
    await store.resume_installation()
    assert set(claimed_ids(await claim_due(store))) == {retried.run_id, delayed}


async def test_a_local_retry_gives_its_lease_up_and_waits(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    await pause(store)
    assert await store.retry_held(retry(lease, 3), 1, 20) is False
    run = await run_of(store, lease.run_id)
    assert (run.status, run.attempt, run.retry_count, run.next_retry_time) == (S.RETRYING, 1, 1, at(3))
    assert await store.retry_held(retry(lease, 3), 1, 20) is False
    await store.resume_installation()
    clock.set(at(3))
    (again,) = await claim_due(store, "w2")
    assert (again.run_id, again.attempt, again.retry_count) == (lease.run_id, 2, 1)


async def test_a_publication_that_needs_no_worker_waits_too(store: Store, clock: ManualClock):
    task = await store.create_task(plan_of("pub"))
    await pause(store)
    now, later = await publish(store, task), await publish(store, task, delay_seconds=60)
    assert await store.promote_run(later)
    clock.set(at(1))
    await store.promote(100)
    assert {await status_of(store, now), await status_of(store, later)} == {S.SCHEDULED}
    assert [event for event in await news(store, 0) if event.type == "run.published"] == []
    await store.resume_installation()
    await store.promote(100)
    assert {await status_of(store, now), await status_of(store, later)} == {S.SUCCESS}


async def test_a_paused_installation_raises_no_alarm(store: Store, clock: ManualClock):
    await store.create_task(job("planned", schedule=every(10)))
    await publish(store, await store.create_task(job("asked")))
    await pause(store)
    clock.set(at(600))
    assert await store.overdue_tasks(30) == []
    assert await store.waiting_tasks(30) == []
    assert await store.unserved(30) == []
    await store.resume_installation()
    assert [late.task_name for late in await store.overdue_tasks(30)] == ["planned"]
    assert [late.task_name for late in await store.waiting_tasks(30)] == ["asked"]
    assert len(await store.unserved(30)) == 1


# ---- no slot lost


async def test_cursors_stand_and_other_tasks_wait_with_them(store: Store, clock: ManualClock):
    tasks = [await store.create_task(job(f"t{n}", schedule=every(10 + n))) for n in range(3)]
    cursors = [(await reread(store, task)).next_fire_at for task in tasks]
    await pause(store)
    clock.set(at(45))
    planned = await store.plan(100)
    assert (planned.tasks, planned.born, planned.dropped) == (0, 0, 0)
    assert [(await reread(store, task)).next_fire_at for task in tasks] == cursors
    assert [await runs_of(store, task) for task in tasks] == [[], [], []]


M = MisfirePolicy
MISFIRES = {
    # Slots every 10 s from 10 to 60; paused from 5 on, resumed at 63 or, for "too late", at 69.5.
    # By misfire policy: its fields, the cap of a pass, when it is resumed, the slots that count.
    "fire now": ({"misfire_policy": M.FIRE_NOW}, 100, 63, [10, 20, 30, 40, 50, 60]),
    "fire now, over the cap": ({"misfire_policy": M.FIRE_NOW}, 4, 63, [30, 40, 50, 60]),
    "fire once": ({"misfire_policy": M.FIRE_ONCE}, 100, 63, [60]),
    "skip": ({"misfire_policy": M.SKIP, "misfire_grace_seconds": 5}, 100, 63, [60]),
    "skip, too late": ({"misfire_policy": M.SKIP, "misfire_grace_seconds": 5}, 100, 69.5, []),
    "catch up 2": ({"misfire_policy": M.CATCH_UP_LIMITED, "catchup_limit": 2}, 100, 63, [50, 60]),
    "catch up 50": ({"misfire_policy": M.CATCH_UP_LIMITED, "catchup_limit": 50}, 100, 63, [10, 20, 30, 40, 50, 60]),
}
OTHERS: dict[str, tuple[dict[str, Any], str | None]] = {
    # The other policies of the task, and why they skip what is decided behind a slot that is waiting already.
    "allow": ({}, None),
    "overlap skip": ({"overlap_action": OverlapAction.SKIP}, "overlap"),
    "cancel previous": ({"overlap_action": OverlapAction.CANCEL_PREV}, None),
    "parallel": ({"overlap_action": OverlapAction.PARALLEL}, None),
    "concurrency skip": ({"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.SKIP}, "concurrency"),
}


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("misfires", MISFIRES)
async def test_every_slot_of_a_pause_is_accounted_for_as_after_a_downtime(
    store: Store, clock: ManualClock, misfires: str, others: str
):
    fields, cap, resumed_at, counted = MISFIRES[misfires]
    more, skipped_as = OTHERS[others]
    task = await store.create_task(job(schedule=every(10), **fields, **more))
    clock.set(at(5))
    await store.plan(100, cap=cap)
    await pause(store)
    for moment in (12, 33, 58):
        clock.set(at(moment))
        assert (await store.plan(100, cap=cap)).tasks == 0
    clock.set(at(resumed_at))
    await store.resume_installation()
    while (await store.plan(100, cap=cap)).tasks:
        pass
    runs = await runs_of(store, task)
    assert [seconds(run) for run in runs] == counted
    first, rest = runs[:1], runs[1:]
    assert [run.status for run in first] == [S.SCHEDULED] * len(first)
    assert {run.skip_reason for run in rest} <= {skipped_as}
    assert {run.status for run in rest} <= {S.SCHEDULED if skipped_as is None else S.SKIPPED}
    left_out = [
        slot
        for gone in await dropped(store, task)
        for slot in range(_in_seconds(gone.first), _in_seconds(gone.last) + 1, 10)
    ]
    assert sorted([*left_out, *counted]) == [10, 20, 30, 40, 50, 60]
    assert (await reread(store, task)).next_fire_at == at(70)


def _in_seconds(instant: int) -> int:
    return (instant - at(0)) // SECOND


async def test_a_fixed_delay_goes_on_from_its_late_slot(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    await pause(store)
    clock.set(at(100))
    assert (await store.plan(100)).tasks == 0
    await store.resume_installation()
    await store.plan(100)
    assert [seconds(run) for run in await runs_of(store, task)] == [10]


async def test_an_edit_accounts_for_the_slots_before_it_although_everything_is_paused(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), misfire_policy=MisfirePolicy.FIRE_NOW))
    await pause(store)
    clock.set(at(25))
    await edit(store, task, schedule=every(100))
    assert [(seconds(run), run.status) for run in await runs_of(store, task)] == [(10, S.SCHEDULED), (20, S.SCHEDULED)]
    assert await claim(store) == []
