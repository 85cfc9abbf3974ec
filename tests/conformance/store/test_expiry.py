"""Runs that expire: not started by their time, they end as a skip, and no claim gives them out any more."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    Sizes,
    after_each,
    ask,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    every,
    finish,
    http,
    job,
    lose,
    newest,
    news,
    publish,
    publish_as,
    publish_many,
    release,
    reread,
    retry,
    run_of,
    runs_of,
    seconds,
    status_of,
)
from noonbell.clock import ManualClock
from noonbell.model.request import PublishOutcome
from noonbell.model.run import RunId, SkipReason
from noonbell.model.task import Fanout, RateLimit
from noonbell.model.task_schedule import After, Upstream, UpstreamOutcome
from noonbell.ports import Store
from noonbell.service.explain import Explain

SPECS: dict[str, Any] = {
    "ready": job("ready"),
    "gated": http("gated"),
    "rated": job("rated", rate_limit=RateLimit(max=100, per_seconds=60)),
    "pinned": job("pinned", specific_worker_ids=("w1",)),
    "newer": job("newer", min_worker_version=1),
    "parts": job("parts", fanout=Fanout(workers=1)),
}


async def is_expired(store: Store, run_id: RunId) -> bool:
    run = await run_of(store, run_id)
    return (run.status, run.skip_reason, run.start_time, run.attempt) == (S.SKIPPED, SkipReason.EXPIRED, None, 0)


@pytest.mark.parametrize("way", SPECS)
@pytest.mark.parametrize("of_task", [True, False])
async def test_a_run_that_no_worker_claims_in_time_is_skipped_and_never_given_out(
    store: Store, clock: ManualClock, way: str, of_task: bool
):
    spec = msgspec.structs.replace(SPECS[way], expires_in_seconds=60 if of_task else None)
    task = await store.create_task(spec)
    run_id = await publish(store, task, **({} if of_task else {"expires_in_seconds": 60}))
    assert (await run_of(store, run_id)).expires_at == at(60)
    clock.set(at(60))
    assert await claim(store, version=1) == []
    assert await status_of(store, run_id) is S.SCHEDULED
    since = await newest(store)
    skips = await store.expire(100)
    assert (skips.looked_at, skips.tasks) == (1, (task.id,))
    assert await is_expired(store, run_id)
    run = await run_of(store, run_id)
    assert (run.end_time, run.final_status) == (at(60), "SKIPPED")
    (event,) = await news(store, since)
    assert (event.type, event.run_id, event.data["reason"]) == ("run.skipped", run_id, "expired")
    assert await claim(store, version=1) == []
    assert (await store.expire(100)).looked_at == 0


@pytest.mark.parametrize("way", SPECS)
async def test_one_that_is_claimed_in_time_never_expires(store: Store, clock: ManualClock, way: str):
    task = await store.create_task(msgspec.structs.replace(SPECS[way], expires_in_seconds=60))
    run_id = await publish(store, task)
    clock.set(at(59.9))
    (lease,) = await claim(store, version=1)
    clock.set(at(3600))
    assert (await store.expire(100)).looked_at == 0
    assert await status_of(store, run_id) is S.RUNNING
    await done(store, finish(lease))
    assert await status_of(store, run_id) is S.SUCCESS


@pytest.mark.parametrize("ending", ["retried", "lost", "handed back"])
async def test_what_was_claimed_once_is_carried_out_however_late(store: Store, clock: ManualClock, ending: str):
    task = await store.create_task(job(expires_in_seconds=60, worker_timeout_ms=1000))
    await publish(store, task)
    lease = await claim_one(store)
    clock.set(at(5))
    made = {"retried": retry(lease, 1), "lost": lose(lease), "handed back": release(lease)}
    await done(store, made[ending])
    clock.set(at(600))
    assert (await store.expire(100)).tasks == ()
    assert claimed_ids(await claim_due(store, "w2")) == [lease.run_id]


async def test_it_counts_from_when_the_run_was_due(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(100), expires_in_seconds=30))
    delayed = await publish(store, task, delay_seconds=500)
    own = await publish(store, task, expires_in_seconds=5)
    clock.set(at(105))
    await store.plan(100)
    (slot,) = [run for run in await runs_of(store, task) if run.scheduled_time == at(100)]
    found = [(await run_of(store, run_id)).expires_at for run_id in (delayed, own, slot.id)]
    assert found == [at(530), at(5), at(130)]
    clock.set(at(531))
    await store.expire(100)
    assert [await is_expired(store, run_id) for run_id in (delayed, own, slot.id)] == [True, True, True]


async def test_a_slot_that_is_planned_too_late_is_never_started(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(100), expires_in_seconds=30))
    clock.set(at(250))
    await store.plan(100)
    assert await claim(store) == []
    await store.expire(100)
    found = [(seconds(run), run.status, run.skip_reason) for run in await runs_of(store, task)]
    assert found == [(100, S.SKIPPED, "expired"), (200, S.SKIPPED, "expired")]


async def test_what_has_expired_stands_in_the_way_of_nothing(store: Store, clock: ManualClock):
    old = await store.create_task(job("old", priority=9, expires_in_seconds=10))
    limited = await store.create_task(http("limited", priority=9, expires_in_seconds=10))
    await publish_many(store, old, 5)
    await publish_many(store, limited, 5)
    clock.set(at(20))
    fresh = [await publish(store, await store.create_task(job("fresh"))), await publish(store, limited)]
    assert set(claimed_ids(await claim(store, count=2))) == set(fresh)


async def test_it_expires_although_everything_is_paused(store: Store, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job(expires_in_seconds=10)))
    await store.pause_installation("a test")
    clock.set(at(20))
    await store.expire(100)
    assert await is_expired(store, run_id)


async def test_what_the_limit_of_its_key_holds_back_expires_too(store: Store, clock: ManualClock):
    spec = job(concurrency_key="payload.k", max_per_key=1, expires_in_seconds=10)
    task = await store.create_task(spec)
    first, second, third = [await publish(store, task, payload={"k": "a"}) for _ in range(3)]
    (lease,) = await claim(store)
    assert lease.run_id == first
    clock.set(at(20))
    await store.expire(100)
    assert [await is_expired(store, run_id) for run_id in (second, third)] == [True, True]
    await done(store, finish(lease))
    fresh = await publish(store, task, payload={"k": "a"})
    assert claimed_ids(await claim(store)) == [fresh]


async def test_tasks_that_follow_hear_of_it(store: Store, clock: ManualClock):
    first = await store.create_task(job("first", expires_in_seconds=10))
    after = After(tasks=(Upstream(task=first.id, on=UpstreamOutcome.SKIPPED),))
    second = await store.create_task(job("second", after=after))
    await publish(store, first)
    clock.set(at(20))
    await store.expire(100)
    assert [run.status for run in await runs_of(store, second)] == [S.SCHEDULED]


async def test_a_fixed_delay_goes_on(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10), expires_in_seconds=5))
    clock.set(at(10))
    await store.plan(100)
    assert (await reread(store, task)).next_fire_at is None
    clock.set(at(16))
    await store.expire(100)
    assert (await reread(store, task)).next_fire_at == at(26)


async def test_a_key_whose_run_is_changed_while_it_waits_expires_by_the_new_time(store: Store, clock: ManualClock):
    task = await store.create_task(job(expires_in_seconds=10))
    first = await publish_as(store, task, "k")
    assert first.run_id is not None
    answer = await publish_as(store, task, "k", update_waiting=True, delay_seconds=100)
    assert answer.outcome is PublishOutcome.UPDATED
    assert (await run_of(store, first.run_id)).expires_at == at(110)
    clock.set(at(50))
    assert (await store.expire(100)).looked_at == 0
    await publish_as(store, task, "k", update_waiting=True, expires_in_seconds=5)
    clock.set(at(56))
    await store.expire(100)
    assert await is_expired(store, first.run_id)


async def test_nothing_is_left_of_runs_that_are_canceled_claimed_or_expired(
    store: Store, clock: ManualClock, table_sizes: Sizes
):
    task = await store.create_task(job(expires_in_seconds=10))
    for _ in range(3):
        await publish(store, task)
    await claim(store, count=1)
    (waiting, *_) = await runs_of(store, task, S.SCHEDULED)
    await store.cancel([waiting.id])
    clock.set(at(20))
    await store.expire(100)
    assert (await table_sizes()).get("expiries", 0) == 0


async def test_of_a_claim_and_a_sweep_at_the_same_time_one_has_the_run(
    store: Store, clock: ManualClock, another_node: Node
):
    task = await store.create_task(job(expires_in_seconds=10))
    made = await publish_many(store, task, 40)
    other = await another_node()
    clock.set(at(9.9))

    async def sweep() -> None:
        clock.set(at(10))
        await other.expire(100)

    claimed, _ = await asyncio.gather(store.claim(ask(count=20)), sweep())
    await store.expire(100)
    taken = set(claimed_ids(claimed.leases))
    for run_id in made:
        assert (await is_expired(store, run_id)) is (run_id not in taken)
    assert await claim(store) == []


async def test_explain_names_it(store: Store, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job(expires_in_seconds=90)))
    clock.set(at(90))
    await store.expire(100)
    answer = await Explain(store).of_run(run_id)
    assert (answer["cause"], answer["policy"]) == ("expired", {"expires_in_seconds": 90})
    assert (
        f"no worker had claimed run {run_id} by 2026-01-01 10:01:30+00:00, 1 min 30 s after it was due"
        in answer["message"]
    )
    assert not (await Explain(store).of_run(run_id, "zh"))["message"].isascii()
