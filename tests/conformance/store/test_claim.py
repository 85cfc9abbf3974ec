"""Claim: who gets what, in which order, and what the limits hold back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    Node,
    S,
    ask,
    asynchronous,
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
    park,
    publish,
    publish_many,
    release,
    retry,
    run_of,
    runs_of,
    started,
    status_of,
)
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.request import Publication
from noonbell.model.run import Origin
from noonbell.model.task import ConcurrencyPolicy, OverlapAction, RateLimit
from noonbell.model.worker import Queue
from noonbell.ports import Store


async def set_queue(store: Store, name: str, **fields: Any) -> Queue:
    return await store.set_queue(name, lambda queue: msgspec.structs.replace(queue, **fields))


# ---- what a claim gives


async def test_a_claimed_run_is_running_and_leased_to_this_worker_from_now_on(store: Store, clock: ManualClock):
    task = await store.create_task(job(timeout_seconds=60, worker_timeout_ms=12_500, payload={"a": 1}))
    run_id = await publish(store, task, key="k", trace_id="t")
    clock.advance(2.5)
    lease = await claim_one(store)
    assert (lease.run_id, lease.task_id, lease.task_version) == (run_id, task.id, 1)
    assert (lease.worker_id, lease.attempt, lease.retry_count, lease.lost_count) == ("w1", 1, 0, 0)
    assert (lease.claimed_at, lease.expires_at, lease.deadline_at) == (at(2.5), at(15), at(62.5))
    assert (lease.queue, lease.priority, lease.origin, lease.key) == ("default", 0, Origin.PUBLISH, "k")
    assert (lease.scheduled_time, lease.payload, lease.trace_id) == (at(0), {"a": 1}, "t")
    assert (lease.parent_id, lease.shard_index, lease.shard_total, lease.callback_token) == (None, None, None, None)
    run = await run_of(store, run_id)
    assert (run.status, run.worker_id, run.attempt) == (S.RUNNING, "w1", 1)
    assert (run.start_time, run.lease_expires_at, run.end_time) == (at(2.5), at(15), None)


async def test_lease_and_deadline_are_those_of_each_task(store: Store):
    short = await store.create_task(job("short", timeout_seconds=1, worker_timeout_ms=500))
    web = await store.create_task(http())
    work = await store.create_task(job("work"))
    for task in (short, web, work):
        await publish(store, task)
    leases = {lease.task_id: (lease.expires_at, lease.deadline_at) for lease in await claim(store)}
    assert leases == {short.id: (at(0.5), at(1)), web.id: (at(15), at(10)), work.id: (at(15), at(300))}


async def test_each_claim_has_a_larger_token_and_counts_one_attempt(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    lease = await started(store, task)
    tokens, attempts = [lease.token], [lease.attempt]
    for move in (lose, retry, lose):
        clock.advance(60)
        await done(store, move(lease))
        clock.advance(60)
        (lease,) = await claim_due(store)
        tokens.append(lease.token)
        attempts.append(lease.attempt)
    assert tokens == sorted(set(tokens))
    assert attempts == [1, 2, 3, 4]


async def test_a_run_handed_back_gets_a_larger_token_all_the_same(store: Store):
    task = await store.create_task(job())
    first = await started(store, task)
    await done(store, release(first))
    second = await claim_one(store)
    assert second.token > first.token
    assert second.attempt == 1


async def test_a_claim_gives_no_more_than_its_maximum(store: Store):
    task = await store.create_task(job())
    run_ids = await publish_many(store, task, 5)
    assert claimed_ids(await claim(store, count=2)) == run_ids[:2]
    assert claimed_ids(await claim(store, count=2)) == run_ids[2:4]
    assert claimed_ids(await claim(store, count=2)) == run_ids[4:]
    assert await claim(store, count=2) == []


async def test_a_claim_of_nothing_gives_nothing(store: Store):
    task = await store.create_task(job())
    await publish(store, task)
    assert await claim(store, count=0) == []
    assert await claim(store, queues=()) == []
    claimed = await store.claim(ask("w9", queues=("empty",)))
    assert (claimed.leases, claimed.next_at) == ([], None)


async def test_no_two_claims_get_the_same_run(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    free = await store.create_task(job("free"))
    gated = await store.create_task(http("gated", max_concurrency=7))
    named = await store.create_task(job("named", specific_worker_ids=tuple(f"w{n}" for n in range(8))))
    await publish_many(store, free, 40)
    await publish_many(store, gated, 10)
    await publish_many(store, named, 10)
    got: list[int] = []
    for _ in range(8):
        claims = await asyncio.gather(*(claim(nodes[n % 2], f"w{n}", 5) for n in range(8)))
        round_ids = [run_id for leases in claims for run_id in claimed_ids(leases)]
        if not round_ids:
            break
        got += round_ids
    assert len(got) == len(set(got)) == 57


async def test_only_runs_that_are_due_are_given(store: Store):
    task = await store.create_task(job())
    await publish(store, task, delay_seconds=0.001)
    assert await claim_due(store) == []


# ---- order


async def test_the_order_is_priority_then_named_then_run_at_then_id(store: Store):
    task = await store.create_task(job())
    late = await publish(store, task)
    early = await publish(store, task, run_at=at(-10))
    early_too = await publish(store, task, run_at=at(-10))
    named = await publish(store, task, specific_worker_ids=("w1", "w2"))
    urgent = await publish(store, task, priority=1)
    low = await publish(store, task, priority=-1, run_at=at(-99), specific_worker_ids=("w1",))
    assert claimed_ids(await claim(store)) == [urgent, named, early, early_too, late, low]


async def test_the_order_holds_one_by_one(store: Store):
    task = await store.create_task(job())
    late = await publish(store, task)
    early = await publish(store, task, run_at=at(-10))
    named = await publish(store, task, specific_worker_ids=("w1",))
    urgent = await publish(store, task, priority=1)
    order = [claimed_ids(await claim(store, count=1)) for _ in range(4)]
    assert order == [[urgent], [named], [early], [late]]


async def test_the_order_holds_across_queues_and_limits(store: Store):
    free = await store.create_task(job("free", queue="a"))
    gated = await store.create_task(http("gated", queue="b", max_concurrency=10))
    rated = await store.create_task(job("rated", queue="a", rate_limit=RateLimit(max=10, per_seconds=1)))
    order = []
    for priority in range(9):
        task = (free, gated, rated)[priority % 3]
        order.append(await publish(store, task, priority=priority))
    got = [claimed_ids(await claim(store, count=1, queues=("a", "b"))) for _ in range(9)]
    assert [run_id for batch in got for run_id in batch] == order[::-1]


async def test_neither_limited_nor_free_runs_starve_the_others(store: Store):
    free = await store.create_task(job("free"))
    gated = await store.create_task(http("gated", max_concurrency=100))
    run_ids = [await publish(store, (free, gated)[number % 2], run_at=at(number - 100)) for number in range(10)]
    assert claimed_ids(await claim(store, count=4)) == run_ids[:4]


# ---- who may have it


async def test_a_worker_gets_only_from_the_queues_it_names(store: Store):
    a = await store.create_task(job("a", queue="a"))
    b = await store.create_task(job("b", queue="b"))
    first, second = await publish(store, a), await publish(store, b)
    assert claimed_ids(await claim(store, queues=("b", "c"))) == [second]
    assert claimed_ids(await claim(store, queues=("a",))) == [first]


async def test_a_queue_name_is_taken_exactly(store: Store):
    task = await store.create_task(job(queue="Mail"))
    run_id = await publish(store, task)
    assert await claim(store, queues=("mail", "MAIL", "Mail ")) == []
    assert claimed_ids(await claim(store, queues=("Mail",))) == [run_id]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(store: Store, another_node: Node):
    task = await store.create_task(job())
    other = await store.create_task(job("other", queue="b"))
    run_id, open_one = await publish(store, task), await publish(store, other)
    await set_queue(store, "default", paused=True)
    node = await another_node()
    assert claimed_ids(await claim(node, queues=("default", "b"))) == [open_one]
    await set_queue(node, "default", paused=False)
    assert claimed_ids(await claim(store)) == [run_id]


async def test_a_paused_queue_holds_limited_and_named_runs_too(store: Store):
    gated = await store.create_task(job("gated", max_concurrency=1))
    named = await store.create_task(job("named", specific_worker_ids=("w1",)))
    await publish(store, gated)
    await publish(store, named)
    await set_queue(store, "default", paused=True)
    assert await claim(store) == []
    await set_queue(store, "default", paused=False)
    assert len(await claim(store)) == 2


async def test_a_worker_gets_only_the_job_types_it_names(store: Store):
    mail = await store.create_task(job("mail", job_type="mail"))
    sync = await store.create_task(job("sync", job_type="sync", max_concurrency=1))
    first, second = await publish(store, mail), await publish(store, sync)
    assert await claim(store, job_types=("other",)) == []
    assert await claim(store, job_types=()) == []
    assert claimed_ids(await claim(store, job_types=("sync", "other"))) == [second]
    assert claimed_ids(await claim(store, job_types=None)) == [first]


async def test_a_run_that_asks_for_a_newer_worker_is_left(store: Store):
    task = await store.create_task(job(min_worker_version=3))
    gated = await store.create_task(job("gated", min_worker_version=3, max_concurrency=1))
    run_ids = [await publish(store, task), await publish(store, gated)]
    assert await claim(store, version=2) == []
    assert claimed_ids(await claim(store, version=3)) == run_ids


async def test_a_run_pinned_to_other_workers_is_left(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w2", "w3")))
    gated = await store.create_task(job("gated", specific_worker_ids=("w2",), max_concurrency=1))
    run_ids = [await publish(store, task), await publish(store, gated)]
    assert await claim(store, "w1") == []
    assert claimed_ids(await claim(store, "w2")) == run_ids


async def test_pinned_runs_of_others_do_not_stand_in_the_way(store: Store):
    pinned = await store.create_task(job("pinned", specific_worker_ids=("w2",), priority=9))
    gated = await store.create_task(job("gated", specific_worker_ids=("w2",), priority=9, max_concurrency=50))
    await publish_many(store, pinned, 50)
    await publish_many(store, gated, 50)
    free = await publish(store, await store.create_task(job("free")))
    assert claimed_ids(await claim(store, "w1", 1)) == [free]


async def test_pinned_runs_at_the_head_of_a_limited_task_do_not_stand_in_the_way(store: Store):
    task = await store.create_task(job(max_concurrency=2))
    await publish_many(store, task, 30, specific_worker_ids=("w2",))
    free = await publish(store, task)
    assert claimed_ids(await claim(store, "w1")) == [free]


async def test_runs_for_newer_workers_do_not_stand_in_the_way(store: Store):
    newer = await store.create_task(job("newer", min_worker_version=9, priority=9))
    other = await store.create_task(job("type", job_type="other", priority=9))
    await publish_many(store, newer, 50)
    await publish_many(store, other, 50)
    free = await publish(store, await store.create_task(job("free")))
    assert claimed_ids(await claim(store, count=1, job_types=("work",))) == [free]


async def test_a_change_of_the_tasks_workers_is_used_at_the_next_claim(store: Store):
    task = await store.create_task(job(specific_worker_ids=("w1",)))
    run_id = await publish(store, task)
    await edit(store, task, specific_worker_ids=("w2",))
    assert await claim(store, "w1") == []
    assert claimed_ids(await claim(store, "w2")) == [run_id]


@pytest.mark.parametrize("limit", [None, 1], ids=["free", "limited"])
async def test_a_change_of_the_version_that_a_task_asks_for_is_used_at_the_next_claim(store: Store, limit: int | None):
    task = await store.create_task(job(min_worker_version=4, max_concurrency=limit))
    run_id = await publish(store, task)
    assert await claim(store, version=3) == []
    task = await edit(store, task, min_worker_version=0)
    await edit(store, task, min_worker_version=3)
    assert await claim(store, version=2) == []
    (lease,) = await claim(store, version=3)
    await edit(store, task, min_worker_version=0)
    await done(store, release(lease))
    assert claimed_ids(await claim(store, version=0)) == [run_id]


async def test_only_async_targets_get_a_callback_token_and_each_attempt_its_own(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(max_concurrency=None))
    first = await started(store, task)
    second = await started(store, task)
    await done(store, retry(first, delay=0))
    (again,) = await claim_due(store)
    tokens = {first.callback_token, second.callback_token, again.callback_token}
    assert len(tokens) == 3
    assert all(token is not None and len(token) >= 32 for token in tokens)
    plain = await store.create_task(http())
    assert (await started(store, plain)).callback_token is None


async def test_a_trigger_may_ask_for_a_callback(store: Store):
    task = await store.create_task(http())
    lease = await started(store, task, origin=Origin.TRIGGER, overrides={"force_async": True})
    assert lease.callback_token is not None


# ---- concurrency


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_task_never_has_more_runs_than_its_limit(store: Store, another_node: Node, limit: int):
    nodes = [store, await another_node()]
    task = await store.create_task(http(max_concurrency=limit))
    run_ids = await publish_many(store, task, 12)
    seen = []
    while True:
        claims = await asyncio.gather(*(claim(nodes[n % 2], f"w{n}", 5) for n in range(4)))
        leases = [lease for batch in claims for lease in batch]
        if not leases:
            break
        assert len(leases) <= limit
        seen += claimed_ids(leases)
        for lease in leases:
            await done(store, finish(lease))
    assert sorted(seen) == run_ids
    if limit == 1:
        assert seen == run_ids


async def test_a_run_that_awaits_its_callback_keeps_its_place(store: Store):
    task = await store.create_task(asynchronous(max_concurrency=1))
    lease = await started(store, task)
    await publish(store, task)
    await done(store, park(lease))
    assert await claim(store) == []
    await store.cancel([lease.run_id])
    assert len(await claim(store)) == 1


async def test_a_retrying_run_rejoins_the_queue_at_its_time(store: Store, clock: ManualClock):
    task = await store.create_task(http(max_concurrency=1))
    first = await started(store, task)
    second = await publish(store, task)
    await done(store, retry(first, delay=5))
    running = await claim_one(store)
    assert running.run_id == second
    clock.advance(5)
    assert await claim_due(store) == []
    await done(store, finish(running))
    (again,) = await claim_due(store)
    assert (again.run_id, again.attempt) == (first.run_id, 2)


async def test_raising_a_limit_lets_waiting_runs_be_claimed_at_once(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    run_ids = await publish_many(store, task, 5)
    assert claimed_ids(await claim(store)) == run_ids[:1]
    task = await edit(store, task, max_concurrency=3)
    assert claimed_ids(await claim(store)) == run_ids[1:3]
    await edit(store, task, max_concurrency=None)
    assert claimed_ids(await claim(store)) == run_ids[3:]


async def test_lowering_a_limit_waits_for_places(store: Store):
    task = await store.create_task(http(max_concurrency=3))
    await publish_many(store, task, 5)
    leases = await claim(store)
    await edit(store, task, max_concurrency=1)
    for lease in leases:
        assert await claim(store) == []
        await done(store, finish(lease))
    assert len(await claim(store)) == 1


async def test_a_first_limit_counts_what_runs_and_waits_already(store: Store):
    task = await store.create_task(job())
    first = await started(store, task)
    waiting = await publish_many(store, task, 2)
    task = await edit(store, task, max_concurrency=1)
    assert await claim(store) == []
    await done(store, finish(first))
    (lease,) = await claim(store)
    assert lease.run_id == waiting[0]
    assert await claim(store) == []
    await done(store, finish(lease))
    assert claimed_ids(await claim(store)) == waiting[1:]


async def test_what_a_limit_holds_back_does_not_stand_in_the_way(store: Store):
    gated = await store.create_task(http("gated", max_concurrency=1, priority=9, queue="default"))
    closed = await store.create_task(http("closed", max_concurrency=0, priority=9, queue="default"))
    rated = await store.create_task(job("rated", rate_limit=RateLimit(max=1, per_seconds=60), priority=9))
    for task in (gated, closed, rated):
        await publish_many(store, task, 60)
    free = await publish(store, await store.create_task(job("free")))
    leases = await claim(store, count=3)
    assert sorted(lease.task_id for lease in leases)[:2] == [gated.id, rated.id]
    assert free in claimed_ids(leases)


async def test_many_tasks_at_their_limit_do_not_stand_in_the_way(store: Store):
    tasks = [await store.create_task(http(f"t{n}", max_concurrency=1, priority=1)) for n in range(30)]
    await store.publish([Publication(task_id=task.id) for task in tasks for _ in range(3)])
    assert len(await claim(store)) == 30
    free = await publish(store, await store.create_task(http("last", max_concurrency=1)))
    assert claimed_ids(await claim(store, count=1)) == [free]


async def test_a_queue_never_has_more_runs_than_its_limit(store: Store):
    one = await store.create_task(job("one"))
    two = await store.create_task(http("two", queue="default", max_concurrency=5))
    other = await store.create_task(job("other", queue="b"))
    await set_queue(store, "default", concurrency=3)
    await publish_many(store, one, 4)
    await publish_many(store, two, 4)
    beside = await publish(store, other)
    leases = await claim(store, queues=("default", "b"))
    assert len(leases) == 4
    assert beside in claimed_ids(leases)
    held = [lease for lease in leases if lease.queue == "default"]
    assert await claim(store) == []
    await done(store, park(held[0]))
    assert await claim(store) == []
    await done(store, finish(held[1]))
    assert len(await claim(store)) == 1
    await set_queue(store, "default", concurrency=None)
    assert len(await claim(store)) == 4


async def test_a_queue_with_a_limit_of_0_gives_nothing(store: Store):
    task = await store.create_task(job())
    await publish(store, task)
    await set_queue(store, "default", concurrency=0)
    assert await claim(store) == []


async def test_racing_claims_do_not_pass_a_queues_limit(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    task = await store.create_task(job())
    await set_queue(store, "default", concurrency=3)
    await publish_many(store, task, 20)
    claims = await asyncio.gather(*(claim(nodes[n % 2], f"w{n}", 2) for n in range(8)))
    first = sum(len(leases) for leases in claims)
    assert first <= 3
    assert first + len(await claim(store)) == 3


# ---- rate


A_MOMENT = 0.001
"""Whether a stretch includes both of its ends is left to the store; a millisecond later there is room for certain."""


def limits(max_: int, seconds: float, key: str | None = None) -> RateLimit:
    return RateLimit(max=max_, per_seconds=seconds, key=key)


def about(seconds: float, instant: Instant | None) -> bool:
    """Not before, and at most a moment after."""
    return instant is not None and at(seconds) <= instant <= at(seconds + A_MOMENT)


async def starts_over_time(store: Store, clock: ManualClock, until: float, step: float) -> list[tuple[Instant, int]]:
    """Claim again and again; when it was given how many."""
    seen = []
    while clock.now() < at(until):
        if leases := await claim(store):
            seen.append((clock.now(), len(leases)))
        clock.advance(step)
    return seen


def most_in_a_stretch(seen: list[tuple[Instant, int]], seconds: float) -> int:
    width = round(seconds * SECOND)
    return max(sum(count for when, count in seen if first <= when < first + width) for first, _ in seen)


async def test_no_stretch_sees_more_starts_than_a_tasks_rate_allows(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(3, 1)))
    await publish_many(store, task, 40)
    clock.advance(0.4)
    seen = await starts_over_time(store, clock, until=5, step=0.15)
    assert most_in_a_stretch(seen, 1) <= 3
    assert sum(count for _, count in seen) >= 12


async def test_a_rate_slides_with_each_start(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(2, 10)))
    await publish_many(store, task, 6)
    assert len(await claim(store, count=1)) == 1
    clock.advance(6)
    claimed = await store.claim(ask())
    assert len(claimed.leases) == 1
    assert about(10, claimed.next_at)
    clock.set(at(9.999))
    claimed = await store.claim(ask())
    assert claimed.leases == []
    assert about(10, claimed.next_at)
    clock.set(claimed.next_at or at(0))
    claimed = await store.claim(ask())
    assert len(claimed.leases) == 1
    assert about(16, claimed.next_at)
    clock.set(claimed.next_at or at(0))
    assert len(await claim(store)) == 1


async def test_next_at_is_none_when_no_time_holds_anything_back(store: Store):
    rated = await store.create_task(job("rated", rate_limit=limits(2, 10)))
    gated = await store.create_task(http("gated", max_concurrency=1))
    await publish_many(store, rated, 2)
    await publish_many(store, gated, 2)
    claimed = await store.claim(ask())
    assert (len(claimed.leases), claimed.next_at) == (3, None)


async def test_long_values_of_a_keyed_rate_are_told_apart(store: Store):
    task = await store.create_task(job(rate_limit=limits(1, 60, "tenant")))
    for tenant in ("x" * 300, "x" * 299 + "y", "x" * 300):
        await publish(store, task, payload={"tenant": tenant})
    assert len(await claim(store)) == 2


async def test_each_attempt_is_a_start(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(1, 10)))
    lease = await started(store, task)
    await done(store, retry(lease, delay=1))
    clock.advance(9.9)
    assert await claim_due(store) == []
    clock.advance(0.1 + A_MOMENT)
    assert claimed_ids(await claim_due(store)) == [lease.run_id]


async def test_a_rate_holds_over_all_nodes(store: Store, another_node: Node, clock: ManualClock):
    nodes = [store, await another_node()]
    task = await store.create_task(job(rate_limit=limits(3, 10)))
    await publish_many(store, task, 20)
    claims = await asyncio.gather(*(claim(nodes[n % 2], f"w{n}", 2) for n in range(8)))
    first = sum(len(leases) for leases in claims)
    assert first <= 3
    assert first + len(await claim(store)) == 3
    assert await claim(nodes[1]) == []
    clock.advance(10 + A_MOMENT)
    assert len(await claim(nodes[1])) == 3


async def test_a_rate_by_key_holds_for_each_value(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(2, 10, key="tenant")))
    for tenant in ("a", "a", "a", "b", "b", "b"):
        await publish(store, task, payload={"tenant": tenant})
    leases = await claim(store)
    assert sorted(lease.payload["tenant"] for lease in leases) == ["a", "a", "b", "b"]
    assert await claim(store) == []
    clock.advance(10 + A_MOMENT)
    assert sorted(lease.payload["tenant"] for lease in await claim_due(store)) == ["a", "b"]


async def test_a_claim_says_until_when_it_has_put_runs_aside(store: Store):
    task = await store.create_task(job(rate_limit=limits(1, 10, key="tenant")))
    for tenant in ("a", "b", "b"):
        await publish(store, task, payload={"tenant": tenant})
    first = await store.claim(ask(count=1))
    assert [lease.payload["tenant"] for lease in first.leases] == ["a"]
    second = await store.claim(ask())
    assert [lease.payload["tenant"] for lease in second.leases] == ["b"]
    assert about(10, min(filter(None, (first.aside_until, second.aside_until))))
    assert (await store.claim(ask())).aside_until is None


async def test_one_value_at_its_rate_does_not_stand_in_the_way_of_another(store: Store):
    task = await store.create_task(job(rate_limit=limits(1, 10, key="tenant")))
    await publish_many(store, task, 60, payload={"tenant": "busy"}, priority=5)
    quiet = await publish(store, task, payload={"tenant": "quiet"})
    leases = await claim(store, count=2)
    assert [lease.payload["tenant"] for lease in leases] == ["busy", "quiet"]
    assert leases[1].run_id == quiet


async def test_a_retry_that_its_rate_holds_back_is_still_a_retry(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(1, 10, key="tenant")))
    lease = await started(store, task, payload={"tenant": "a"})
    await done(store, retry(lease, delay=1))
    clock.advance(2)
    assert await claim_due(store) == []
    assert await status_of(store, lease.run_id) is S.RETRYING
    assert [run.id for run in await runs_of(store, task, S.RETRYING)] == [lease.run_id]
    clock.advance(8 + A_MOMENT)
    again = (await claim_due(store))[0]
    assert (again.run_id, again.attempt, again.retry_count) == (lease.run_id, 2, 1)


async def test_a_retry_that_its_rate_holds_back_is_canceled_by_the_next_round(store: Store, clock: ManualClock):
    spec = job(
        schedule=every(5), rate_limit=limits(1, 60, key="tenant"), overlap_action=OverlapAction.CANCEL_PREV, payload={}
    )
    task = await store.create_task(spec)
    clock.advance(5)
    await store.plan(10)
    (lease,) = await claim_due(store)
    await done(store, retry(lease, delay=1))
    clock.advance(2)
    assert await claim_due(store) == []
    clock.advance(3)
    await store.plan(10)
    assert await status_of(store, lease.run_id) is S.CANCELED, task


async def test_a_payload_without_the_key_has_a_rate_of_its_own(store: Store):
    task = await store.create_task(job(rate_limit=limits(1, 10, key="tenant")))
    await publish_many(store, task, 2, payload={"other": 1})
    await publish_many(store, task, 2, payload="text")
    await publish_many(store, task, 2, payload={"tenant": "a"})
    leases = await claim(store)
    assert sum(lease.payload == {"tenant": "a"} for lease in leases) == 1
    assert 1 <= sum(lease.payload != {"tenant": "a"} for lease in leases) <= 2


async def test_a_queues_rate_holds_over_all_its_tasks(store: Store, clock: ManualClock):
    one = await store.create_task(job("one"))
    two = await store.create_task(http("two", queue="default", max_concurrency=9))
    other = await store.create_task(job("other", queue="b"))
    await set_queue(store, "default", rate_limit=limits(3, 10))
    await publish_many(store, one, 3)
    await publish_many(store, two, 3)
    beside = await publish(store, other)
    claimed = await store.claim(ask(queues=("default", "b")))
    assert len(claimed.leases) == 4
    assert beside in claimed_ids(claimed.leases)
    clock.advance(9.999)
    held = await store.claim(ask())
    assert held.leases == []
    assert about(10, held.next_at)
    assert about(10, claimed.next_at)
    clock.advance(0.001 + A_MOMENT)
    assert len(await claim(store)) == 3


async def test_rate_and_concurrency_hold_together(store: Store, clock: ManualClock):
    task = await store.create_task(job(max_concurrency=2, rate_limit=limits(3, 10)))
    await publish_many(store, task, 9)
    first = await claim(store)
    assert len(first) == 2
    for lease in first:
        await done(store, finish(lease))
    assert len(await claim(store)) == 1
    clock.advance(10 + A_MOMENT)
    assert len(await claim(store)) == 1


async def test_a_limited_run_is_never_lost(store: Store, clock: ManualClock):
    task = await store.create_task(job(rate_limit=limits(2, 1)))
    run_ids = await publish_many(store, task, 9)
    seen: list[int] = []
    for _ in range(6):
        leases = await claim(store)
        seen += claimed_ids(leases)
        for lease in leases:
            await done(store, finish(lease))
        clock.advance(1 + A_MOMENT)
    assert seen == run_ids


async def test_taking_a_rate_away_lets_everything_go(store: Store):
    task = await store.create_task(job(rate_limit=limits(1, 3600)))
    await publish_many(store, task, 5)
    assert len(await claim(store)) == 1
    await edit(store, task, rate_limit=None)
    assert len(await claim(store)) == 4


async def test_parallel_runs_are_claimed_past_the_limit_but_never_at_0(store: Store):
    task = await store.create_task(http(max_concurrency=1, concurrency_policy=ConcurrencyPolicy.PARALLEL))
    await publish_many(store, task, 2)
    await edit(store, task, max_concurrency=0)
    assert await claim(store) == []
