"""The `rate_key` of calls: the rate limit of a queue counts calls of the same key together, and those of others apart."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from conformance.store.builders import Node, S, ask, at, claim, done, finish, job, publish, retry, runs_of
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.call import CALL_TYPE, CONCURRENCY_KEY, MAX_PER_KEY, RATE_KEY, Call, stored, task_spec
from noonbell.model.request import Claimed, Publication
from noonbell.model.run import Lease, Origin, RunId
from noonbell.model.task import RateLimit, Task
from noonbell.ports import Store

A_MOMENT = 0.001
Asked = tuple[str | None, dict[str, Any]]


async def calls_of(store: Store, queue: str = "http") -> Task:
    return await store.create_task(task_spec(queue), by="system", system=True)


async def limited(store: Store, max_: int | None, seconds: float = 10, queue: str = "http", **more: Any) -> None:
    limit = None if max_ is None else RateLimit(max=max_, per_seconds=seconds)
    await store.set_queue(queue, lambda there: msgspec.structs.replace(there, rate_limit=limit, **more))


def publication(task: Task, key: str | None, **fields: Any) -> Publication:
    call = Call(url="http://target.test/", success_url=fields.pop("success_url", None))
    overrides = stored(call, None, fields.pop("concurrency_key", None), rate_key=key)
    return Publication(task_id=task.id, origin=Origin.CALL, overrides=overrides, **fields)


async def call(store: Store, task: Task, *keys: str | None, **fields: Any) -> list[RunId]:
    answers = await store.publish([publication(task, key, **dict(fields)) for key in keys])
    return [RunId(answer.run_id or 0) for answer in answers]


async def asked(store: Store, count: int = 100, queue: str = "http") -> Claimed:
    while (await store.promote(1_000)).count:
        pass
    return await store.claim(ask(count=count, queues=(queue,), job_types=(CALL_TYPE,)))


async def given(store: Store, count: int = 100, queue: str = "http") -> list[Lease]:
    return (await asked(store, count, queue)).leases


def keys_of(leases: Sequence[Lease]) -> list[str | None]:
    return sorted(((lease.overrides or {}).get(RATE_KEY) for lease in leases), key=str)


async def test_calls_of_one_key_share_the_rate_of_their_queue_and_others_have_their_own(
    store: Store, clock: ManualClock
):
    task = await calls_of(store)
    await limited(store, 2)
    await call(store, task, "a", "a", "a", "b", "b", "b", None, None, None)
    first = await asked(store)
    assert keys_of(first.leases) == [None, None, "a", "a", "b", "b"]
    assert first.next_at is not None
    assert at(10) <= first.next_at <= at(10 + A_MOMENT)
    assert first.aside_until == first.next_at
    clock.advance(9.99)
    assert await given(store) == []
    clock.advance(0.01 + A_MOMENT)
    assert keys_of(await given(store)) == [None, "a", "b"]


async def test_without_a_rate_limit_of_the_queue_a_key_holds_nothing_back(store: Store):
    task = await calls_of(store)
    made = await call(store, task, *["a"] * 20)
    assert [lease.run_id for lease in await given(store)] == made


async def test_the_same_key_on_another_queue_is_another_key(store: Store):
    here, there = await calls_of(store), await calls_of(store, "http:a")
    await limited(store, 1)
    await limited(store, 1, queue="http:a")
    await call(store, here, "a", "a:a")
    await call(store, there, "a", "a")
    assert keys_of(await given(store)) == ["a", "a:a"]
    assert keys_of(await given(store, queue="http:a")) == ["a"]


async def test_a_key_with_a_long_line_stands_in_no_other_ones_way(store: Store):
    task = await calls_of(store)
    await limited(store, 1)
    await call(store, task, *["heavy"] * 300, priority=5)
    await call(store, task, "light", None)
    assert keys_of(await given(store, count=20)) == [None, "heavy", "light"]


async def test_who_comes_behind_a_very_long_line_is_found_by_one_of_the_next_claims(store: Store):
    task = await calls_of(store)
    await limited(store, 1)
    for _ in range(6):
        await call(store, task, *["heavy"] * 1_000, priority=5)
    await call(store, task, "light")
    seen: list[str | None] = []
    for _ in range(5):
        claimed = await store.claim(ask(count=1, queues=("http",), job_types=(CALL_TYPE,)))
        seen += keys_of(claimed.leases)
        if claimed.leases == [] and claimed.next_at is not None and claimed.next_at > at(1):
            break
    assert seen == ["heavy", "light"]


async def test_a_long_line_starts_one_after_the_other_and_no_call_is_lost(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 3, 1)
    made = await call(store, task, *["a"] * 40)
    seen: list[tuple[Instant, RunId]] = []
    for _ in range(160):
        seen += [(clock.now(), lease.run_id) for lease in await given(store, count=10)]
        clock.advance(0.25)
    assert [run_id for _, run_id in seen] == made
    for first, _ in seen:
        assert sum(first <= when < first + SECOND for when, _ in seen) <= 3
    assert seen[-1][0] <= at(17), "a line is not held back much longer than its rate says"


@pytest.mark.parametrize("success_url", [None, "http://target.test/told"])
async def test_runs_without_a_key_that_must_wait_do_not_hide_calls_that_need_not(store: Store, success_url: str | None):
    task = await calls_of(store)
    await limited(store, 1)
    await call(store, task, *[None] * 30, success_url=success_url, priority=1)
    assert keys_of(await given(store, count=5)) == [None]
    await call(store, task, "a", success_url=success_url)
    assert keys_of(await given(store, count=5)) == ["a"]


async def test_jobs_on_the_queue_are_counted_with_calls_without_a_key(store: Store):
    task = await calls_of(store, "mixed")
    jobs = await store.create_task(job("work", queue="mixed", payload={"rate_key": "a"}))
    await limited(store, 1, queue="mixed")
    await publish(store, jobs)
    await call(store, task, None, "a")
    leases = await claim(store, queues=("mixed",), job_types=("work", CALL_TYPE))
    assert Counter(lease.task_id for lease in leases) == Counter([jobs.id, task.id])
    assert keys_of([lease for lease in leases if lease.task_id == task.id]) == ["a"]


async def test_the_places_of_a_queue_are_counted_over_all_keys(store: Store):
    task = await calls_of(store)
    await limited(store, 5, concurrency=2)
    await call(store, task, "a", "b", "c", None)
    assert len(await given(store)) == 2
    assert await given(store) == []


async def test_each_attempt_is_a_start_and_a_retry_keeps_its_key(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1)
    (run_id,) = await call(store, task, "a")
    (lease,) = await given(store)
    await done(store, retry(lease, delay=1))
    clock.advance(2)
    assert await given(store) == []
    assert [run.id for run in await runs_of(store, task, S.RETRYING)] == [run_id]
    await call(store, task, "b")
    assert keys_of(await given(store)) == ["b"]
    clock.advance(8 + A_MOMENT)
    (again,) = await given(store)
    assert (again.run_id, again.retry_count) == (run_id, 1)


async def test_a_rate_by_key_holds_over_all_nodes(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    task = await calls_of(store)
    await limited(store, 3)
    await call(store, task, *["a"] * 20, *["b"] * 20)
    claims = await asyncio.gather(
        *(nodes[n % 2].claim(ask(f"w{n}", 4, queues=("http",), job_types=(CALL_TYPE,))) for n in range(8))
    )
    leases = [lease for one in claims for lease in one.leases] + await given(nodes[1])
    assert keys_of(leases) == ["a"] * 3 + ["b"] * 3


async def test_another_limit_is_in_force_at_once(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1, 3_600)
    await call(store, task, *["a"] * 10)
    assert len(await given(store)) == 1
    assert await given(store) == []
    await limited(store, 4, 3_600)
    assert len(await given(store)) == 3
    await limited(store, None)
    assert len(await given(store)) == 6


async def test_a_line_that_was_canceled_does_not_hold_up_who_comes_after_it(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1, 60)
    made = await call(store, task, *["a"] * 50)
    assert len(await given(store)) == 1
    await store.cancel(made[1:])
    (late,) = await call(store, task, "a")
    assert await given(store) == []
    clock.advance(60 + A_MOMENT)
    assert [lease.run_id for lease in await given(store)] == [late]


async def test_a_call_may_have_a_key_for_its_rate_and_one_for_its_places(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1)
    first, second, third = await call(store, task, "a", "a", "b", concurrency_key="one at a time")
    (lease,) = await given(store)
    assert lease.run_id == first
    await done(store, finish(lease))
    # The second has the place of the key now, but not the rate: it gives the place up, and the third gets both.
    taken = await given(store) or await given(store)
    assert [one.run_id for one in taken] == [third]
    clock.advance(10 + A_MOMENT)
    assert await given(store) == []
    await done(store, finish(taken[0]))
    assert [one.run_id for one in await given(store)] == [second]
    assert (taken[0].overrides or {})[CONCURRENCY_KEY] == "one at a time"
    assert (taken[0].overrides or {})[MAX_PER_KEY] == 1


HOSTILE = (
    *("a", "a ", " a", "A", "ä", "a\u0308", "a\t", "%", "_", "'; drop table rates; --", '"', "\\", "null", "0"),
    *("\U0001f512", "\u202ea", "{{ key }}", "x" * 200, "x" * 201, "x" * 300 + "1", "x" * 300 + "2", "k" * 10_000),
)


async def test_keys_that_differ_in_anything_are_different_keys(store: Store):
    task = await calls_of(store)
    await limited(store, 1)
    await call(store, task, *HOSTILE, *HOSTILE)
    leases = await given(store)
    assert keys_of(leases) == sorted(HOSTILE)
    assert await given(store) == []


async def test_a_wait_names_the_key_and_when_its_rate_lets_go(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1)
    _, second, third, other = await call(store, task, "a", "a", "a", "b")
    (later,) = await call(store, task, "a", delay_seconds=3_600)
    assert len(await given(store)) == 2
    found = await store.wait(second)
    assert found is not None
    assert (found.rate_key, found.rated_until is not None and at(10) <= found.rated_until <= at(11)) == ("a", True)
    behind = await store.wait(third)
    assert behind is not None
    assert behind.rated_until is not None
    assert at(20) <= behind.rated_until <= at(21)
    assert other in [run.id for run in await runs_of(store, task, S.RUNNING)]
    delayed = await store.wait(later)
    assert delayed is not None
    assert (delayed.rated_until, delayed.until) == (None, at(3_600))


async def test_what_is_kept_of_a_key_goes_when_it_weighs_nothing_any_more(store: Store, clock: ManualClock):
    task = await calls_of(store)
    await limited(store, 1, 60)
    await call(store, task, *(f"key {n}" for n in range(30)))
    assert len(await given(store)) == 30
    clock.advance(59)
    assert await store.clean_rest(at(-1_000), 1_000) == 1, "that of the queue, under which nothing has started"
    await call(store, task, "key 7")
    assert await given(store) == [], "its start is still within the stretch"
    clock.advance(2)
    removed = 0
    while count := await store.clean_rest(at(-1_000), 10):
        removed += count
    assert removed == 31
    assert keys_of(await given(store)) == ["key 7"]
