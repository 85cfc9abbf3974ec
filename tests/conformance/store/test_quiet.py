"""Quiet hours of tasks and queues: what comes due in them is held or skipped, and goes on afterwards in order."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    at,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    edit,
    every,
    finish,
    http,
    job,
    lose,
    publish,
    publish_many,
    release,
    reread,
    retry,
    run_of,
    runs_of,
    skips,
    status_of,
    trigger,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.model.run import RunId, SkipReason
from noonbell.model.task import OverlapAction, RateLimit
from noonbell.ports import Store
from noonbell.service.explain import Explain
from services.size import size

SOON = QuietHours(from_="10:01", to="10:11")
"""From 60 to 660 seconds after the start."""
NOW = QuietHours(from_="09:00", to="10:10")
"""Until 600 seconds after the start."""
SKIPPING = QuietHours(from_="10:01", to="10:11", what=QuietAction.SKIP)

SPECS: dict[str, Any] = {
    "ready": job("ready"),
    "gated": http("gated", max_concurrency=100),
    "rated": job("rated", rate_limit=RateLimit(max=100, per_seconds=60)),
    "pinned": job("pinned", specific_worker_ids=("w1",)),
    "keyed": job("keyed", concurrency_key="payload.tenant", max_per_key=100),
}


def quiet(spec: Any, *hours: QuietHours, **more: Any) -> Any:
    return msgspec.structs.replace(spec, quiet=hours, **more)


@pytest.mark.parametrize("way", SPECS)
async def test_what_is_published_in_quiet_hours_starts_when_they_end(
    store: Store, clock: ManualClock, way: str
) -> None:
    task = await store.create_task(quiet(SPECS[way], NOW))
    runs = await publish_many(store, task, 3)
    assert await claim_due(store) == []
    clock.set(at(599))
    assert await claim_due(store) == []
    clock.set(at(600))
    await store.promote(100)
    assert claimed_ids(await claim_due(store)) == runs


@pytest.mark.parametrize("way", SPECS)
async def test_what_is_due_when_they_begin_is_put_aside_by_the_claim(
    store: Store, clock: ManualClock, way: str
) -> None:
    task = await store.create_task(quiet(SPECS[way], SOON))
    other = await store.create_task(job("other"))
    runs = await publish_many(store, task, 3)
    mine = await publish(store, other)
    clock.set(at(60))
    assert claimed_ids(await claim(store)) == [mine]
    clock.set(at(659))
    assert await claim_due(store) == []
    clock.set(at(660))
    await store.promote(100)
    assert claimed_ids(await claim_due(store)) == runs


async def test_retries_losses_and_releases_are_held_too(store: Store, clock: ManualClock) -> None:
    task = await store.create_task(quiet(job(), SOON))
    await publish_many(store, task, 3)
    first, second, third = await claim(store)
    clock.set(at(61))
    await done(store, retry(first, delay=5))
    await done(store, release(second))
    assert await claim_due(store) == []
    clock.set(at(70))
    await done(store, lose(third))
    assert await claim_due(store) == []
    assert await status_of(store, first.run_id) is S.RETRYING
    clock.set(at(660))
    await store.promote(100)
    again = await claim_due(store)
    assert claimed_ids(again) == [first.run_id, second.run_id, third.run_id]
    assert [lease.attempt for lease in again] == [2, 1, 2]


async def test_a_run_that_is_triggered_by_hand_passes_and_so_do_its_retries(store: Store, clock: ManualClock) -> None:
    task = await store.create_task(quiet(job(), NOW))
    held = await publish(store, task)
    run = await trigger(store, task)
    lease = await claim_one(store)
    assert lease.run_id == run
    await done(store, retry(lease, delay=5))
    clock.set(at(5))
    (lease,) = await claim_due(store)
    assert (lease.run_id, lease.attempt) == (run, 2)
    assert await store.promote_run(held)
    assert (await claim_one(store)).run_id == held


async def test_held_slots_do_not_count_as_due_for_overlap(store: Store, clock: ManualClock) -> None:
    spec = quiet(job(schedule=every(120), overlap_action=OverlapAction.SKIP), SOON)
    task = await store.create_task(spec)
    for slot in range(120, 661, 120):
        clock.set(at(slot))
        await store.plan(100)
        assert await claim_due(store) == []
    assert await skips(store, task) == []
    clock.set(at(661))
    await store.promote(100)
    leases = await claim_due(store)
    assert [round((lease.scheduled_time - at(0)) / SECOND) for lease in leases] == [120, 240, 360, 480, 600]


async def test_slots_of_quiet_hours_that_skip_are_recorded_as_skips(store: Store, clock: ManualClock) -> None:
    task = await store.create_task(quiet(job(schedule=every(50)), SKIPPING))
    for slot in range(0, 701, 50):
        clock.set(at(slot))
        await store.plan(100)
        for lease in await claim_due(store):
            await done(store, finish(lease))
    assert await skips(store, task) == [(float(slot), SkipReason.QUIET) for slot in range(100, 660, 50)]
    ran = [round((run.scheduled_time - at(0)) / SECOND) for run in await runs_of(store, task, S.SUCCESS)]
    assert [slot for slot in ran if slot] == [50, 700]


async def test_what_waits_when_skipping_hours_begin_is_skipped_unless_it_was_claimed_before(
    store: Store, clock: ManualClock
) -> None:
    task = await store.create_task(quiet(job(), SKIPPING))
    tried, never = await publish_many(store, task, 2)
    lease = await claim_one(store, count=1)
    assert lease.run_id == tried
    await done(store, retry(lease, delay=90))
    clock.set(at(100))
    assert await claim_due(store) == []
    run = await run_of(store, never)
    assert (run.status, run.skip_reason, run.attempt) == (S.SKIPPED, SkipReason.QUIET, 0)
    assert await status_of(store, tried) is S.RETRYING
    clock.set(at(660))
    await store.promote(100)
    assert claimed_ids(await claim_due(store)) == [tried]


async def test_expiry_goes_on_while_a_run_is_held(store: Store, clock: ManualClock) -> None:
    task = await store.create_task(quiet(job(), NOW, expires_in_seconds=100))
    run = await publish(store, task)
    clock.set(at(100))
    await store.expire(100)
    assert (await run_of(store, run)).skip_reason is SkipReason.EXPIRED


async def test_an_edit_of_quiet_hours_changes_what_is_held(store: Store, clock: ManualClock) -> None:
    task = await store.create_task(quiet(job(), NOW))
    runs = await publish_many(store, task, 2)
    assert await claim_due(store) == []
    await edit(store, task, quiet=(QuietHours(from_="09:00", to="10:05"),))
    clock.set(at(299))
    assert await claim_due(store) == []
    await edit(store, await reread(store, task), quiet=())
    assert claimed_ids(await claim_due(store)) == runs
    later = await publish(store, task)
    await edit(store, await reread(store, task), quiet=(NOW,))
    assert await claim_due(store) == []
    clock.set(at(600))
    await store.promote(100)
    assert claimed_ids(await claim_due(store)) == [later]


async def test_explain_says_until_when_a_run_is_held_and_why_a_slot_was_skipped(
    store: Store, clock: ManualClock
) -> None:
    task = await store.create_task(quiet(job(), NOW))
    run = await publish(store, task)
    found = await Explain(store).of_run(run)
    assert found["cause"] == "quiet"
    assert "2026-01-01 10:10:00" in found["message"]
    skipping = await store.create_task(quiet(job("skipping", schedule=every(100)), SKIPPING))
    clock.set(at(100))
    await store.plan(100)
    found = await Explain(store).of_task(await reread(store, skipping), at(100))
    assert found["cause"] == "quiet"


async def test_a_quiet_queue_holds_all_but_what_is_triggered_by_hand(store: Store, clock: ManualClock) -> None:
    tasks = [await store.create_task(spec) for name, spec in SPECS.items() if name != "gated"]
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, quiet=(SOON,)))
    runs = [await publish(store, task) for task in tasks]
    clock.set(at(60))
    by_hand = await trigger(store, tasks[0])
    assert claimed_ids(await claim_due(store)) == [by_hand]
    assert (await Explain(store).of_run(runs[0]))["cause"] == "quiet"
    clock.set(at(659))
    assert await claim_due(store) == []
    clock.set(at(660))
    await store.promote(100)
    assert sorted(claimed_ids(await claim_due(store))) == runs


async def test_an_edit_of_a_queues_quiet_hours_lets_go_what_they_held(store: Store) -> None:
    task = await store.create_task(job())
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, quiet=(NOW,)))
    run = await publish(store, task)
    assert await claim_due(store) == []
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, quiet=()))
    assert claimed_ids(await claim_due(store)) == [run]


@pytest.mark.parametrize("of_queue", [False, True], ids=["task", "queue"])
async def test_claims_of_several_nodes_at_once_start_nothing_and_let_all_go_once(
    store: Store, another_node: Node, clock: ManualClock, of_queue: bool
) -> None:
    nodes = [store, await another_node(), await another_node()]
    task = await store.create_task(job() if of_queue else quiet(job(), SOON, spread_seconds=10))
    if of_queue:
        await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, quiet=(SOON,), spread_seconds=10))
    runs = await publish_many(store, task, 400)
    clock.set(at(60))
    for _ in range(3):
        got = await asyncio.gather(*(claim(nodes[number % 3], f"w{number}", 40) for number in range(9)))
        assert [lease for leases in got for lease in leases] == []
    started: list[RunId] = []
    for second in range(660, 672):
        clock.set(at(second))
        for _ in range(3):
            await asyncio.gather(*(node.promote(100) for node in nodes))
        got = await asyncio.gather(*(claim(node, f"w{number}", 500) for number, node in enumerate(nodes)))
        started += [lease.run_id for leases in got for lease in leases]
    assert sorted(started) == runs


MANY = size(2_000, 10_000)


@pytest.mark.longer
@pytest.mark.parametrize("of_queue", [False, True], ids=["task", "queue"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_thousands_of_held_runs_are_let_go_in_order_over_the_time_that_was_asked_for(
    store: Store, clock: ManualClock, of_queue: bool
) -> None:
    spec = job() if of_queue else quiet(job(), NOW, spread_seconds=100)
    task = await store.create_task(spec)
    if of_queue:
        await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, quiet=(NOW,), spread_seconds=100))
    runs = []
    for _ in range(MANY // 1_000):
        runs += await publish_many(store, task, 1_000)
    for _ in range(MANY // 1_000 + 1):
        assert await claim_due(store) == []
    clock.set(at(600))
    started: list[int] = []
    counts = []
    for second in range(100):
        clock.set(at(600 + second))
        while (await store.promote(1_000)).count:
            pass
        while leases := await claim(store, count=1_000):
            started += claimed_ids(leases)
        counts.append(len(started))
    assert started == runs[: len(started)]
    assert counts == [1 + MANY * second // 100 for second in range(100)]
    clock.set(at(700))
    while (await store.promote(1_000)).count:
        pass
    while leases := await claim(store, count=1_000):
        started += claimed_ids(leases)
    assert started == runs
