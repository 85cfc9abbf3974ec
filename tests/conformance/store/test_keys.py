"""Limits per key: of the runs of a task with one key, `max_per_key` are under way at once, over all nodes, in their order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.store.builders import (
    Node,
    S,
    Sizes,
    asynchronous,
    claim,
    claim_due,
    claim_one,
    claimed_ids,
    done,
    edit,
    every,
    execute,
    finish,
    job,
    left_over,
    lose,
    park,
    publish,
    publish_as,
    publish_many,
    release,
    retry,
    status_of,
)
from noonbell.clock import SECOND, ManualClock
from noonbell.model.request import Publication
from noonbell.model.run import Lease, RunId, Settlement
from noonbell.model.task import Fanout, RateLimit, Task, TaskSpec
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore


def keyed(name: str = "keyed", **fields: Any) -> TaskSpec:
    return job(name, **{"concurrency_key": "payload.tenant"} | fields)


def of(tenant: Any, **fields: Any) -> dict[str, Any]:
    return {"payload": {"tenant": tenant}, **fields}


async def publish_to(store: Store, task: Task, *tenants: Any, **fields: Any) -> list[RunId]:
    """A run for each, in one batch."""
    answers = await store.publish([Publication(task_id=task.id, **of(tenant, **fields)) for tenant in tenants])
    return [answer.run_id for answer in answers if answer.run_id is not None]


# ---- how many, and in which order


async def test_one_run_of_a_key_is_under_way_at_a_time_and_the_other_keys_do_not_wait(store: Store):
    task = await store.create_task(keyed())
    first, second, third, other = await publish_to(store, task, "a", "a", "a", "b")
    leases = await claim(store)
    assert claimed_ids(leases) == [first, other]
    assert await claim(store) == []
    await done(store, finish(leases[0]))
    lease = await claim_one(store)
    assert lease.run_id == second
    await done(store, finish(lease, S.FAILED))
    assert (await claim_one(store)).run_id == third
    assert await store.flaws() == []


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_so_many_runs_of_a_key_are_under_way_as_the_task_says(store: Store, limit: int):
    task = await store.create_task(keyed(max_per_key=limit))
    runs = await publish_to(store, task, *["a"] * 7)
    leases = await claim(store)
    assert claimed_ids(leases) == runs[:limit]
    await store.settle([finish(lease) for lease in leases])
    assert claimed_ids(await claim(store)) == runs[limit : 2 * limit]


async def test_the_limit_holds_over_all_nodes(store: Store, another_node: Node):
    task = await store.create_task(keyed())
    other = await another_node()
    tenants = [f"t{number}" for number in range(5)]
    for _ in range(4):
        await publish_to(store, task, *tenants)
        await publish_to(other, task, *tenants)
    running: dict[RunId, str] = {}
    ended: list[RunId] = []

    async def work(node: Store, worker: str) -> None:
        while len(ended) < 40:
            leases = await claim(node, worker, 2)
            for lease in leases:
                assert lease.payload["tenant"] not in running.values()
                running[lease.run_id] = lease.payload["tenant"]
            await asyncio.sleep(0)
            for lease in leases:
                # Another node may start the next run of the key before the answer is here.
                del running[lease.run_id]
                await done(node, finish(lease))
                ended.append(lease.run_id)

    await asyncio.gather(*(work(node, f"w{number}") for number, node in enumerate((store, other, store, other))))
    assert len(ended) == len(set(ended)) == 40
    assert await store.flaws() == []


async def test_the_most_urgent_of_a_key_is_first_even_if_another_was_let_in_before(store: Store):
    task = await store.create_task(keyed())
    running = await publish(store, task, **of("a"))
    lease = await claim_one(store)
    assert lease.run_id == running
    usual = await publish(store, task, **of("a"))
    await done(store, finish(lease))
    urgent = await publish(store, task, **of("a", priority=5))
    lease = await claim_one(store)
    assert lease.run_id == urgent
    await done(store, finish(lease))
    assert (await claim_one(store)).run_id == usual


async def test_a_run_that_has_started_is_not_overtaken(store: Store):
    task = await store.create_task(keyed())
    await publish(store, task, **of("a"))
    await claim_one(store)
    await publish(store, task, **of("a", priority=9))
    assert await claim(store) == []


async def test_a_run_for_later_holds_no_place_and_joins_the_line_when_it_is_due(store: Store, clock: ManualClock):
    task = await store.create_task(keyed())
    later = await publish(store, task, **of("a", delay_seconds=10))
    now = await publish(store, task, **of("a"))
    lease = await claim_one(store)
    assert lease.run_id == now
    clock.advance(11)
    assert await claim_due(store) == []
    await done(store, finish(lease))
    assert (await claim_one(store)).run_id == later


async def test_a_run_that_is_retried_holds_nothing_until_it_is_due_again(store: Store, clock: ManualClock):
    task = await store.create_task(keyed())
    first, second = await publish_to(store, task, "a", "a")
    lease = await claim_one(store)
    await done(store, retry(lease, 5))
    taken = await claim_one(store)
    assert taken.run_id == second
    clock.advance(6)
    assert await claim_due(store) == []
    await done(store, finish(taken))
    assert (await claim_one(store)).run_id == first


async def test_a_run_that_is_released_or_lost_is_the_next_of_its_key_again(store: Store, clock: ManualClock):
    task = await store.create_task(keyed(worker_timeout_ms=1000))
    first, _ = await publish_to(store, task, "a", "a")
    await done(store, release(await claim_one(store)))
    lease = await claim_one(store)
    assert lease.run_id == first
    clock.advance(2)
    await done(store, lose(lease))
    assert (await claim_one(store)).run_id == first


async def test_a_run_that_awaits_its_callback_keeps_its_place(store: Store):
    task = await store.create_task(asynchronous(concurrency_key="payload.tenant", max_concurrency=None))
    _, second = await publish_to(store, task, "a", "a")
    lease = await claim_one(store)
    await done(store, park(lease))
    assert await claim(store) == []
    await store.cancel([lease.run_id])
    assert (await claim_one(store)).run_id == second


@pytest.mark.parametrize("waits", [True, False])
async def test_a_run_that_is_canceled_makes_room(store: Store, waits: bool):
    task = await store.create_task(keyed())
    first, second, third = await publish_to(store, task, "a", "a", "a")
    (lease,) = await claim(store)
    assert lease.run_id == first
    await store.cancel([second if waits else first])
    if waits:
        assert await claim(store) == []
        await done(store, finish(lease))
    assert (await claim_one(store)).run_id == (third if waits else second)


async def test_a_fan_out_holds_one_place_of_its_key_until_all_parts_have_ended(store: Store):
    task = await store.create_task(keyed(fanout=Fanout(workers=2)))
    await publish_to(store, task, "a", "a")
    parts = [*await claim(store, "w1"), *await claim(store, "w2")]
    assert len(parts) == 2
    assert len({part.parent_id for part in parts}) == 1
    assert await claim(store, "w3") == []
    await store.settle([finish(part) for part in parts])
    assert len(await claim(store, "w1")) == 1


async def test_slots_of_a_schedule_have_the_key_of_the_tasks_payload(store: Store, clock: ManualClock):
    task = await store.create_task(keyed(schedule=every(1), payload={"tenant": "a"}))
    clock.advance(3)
    await store.plan(100)
    lease = await claim_one(store)
    assert await claim(store) == []
    await done(store, finish(lease))
    assert len(await claim(store)) == 1
    assert (await store.key_lines(task.id))[0].key == "a"


# ---- what the key is


@pytest.mark.parametrize(
    ("path", "payload", "key"),
    [
        ("payload.tenant", {"tenant": "acme"}, "acme"),
        ("payload.tenant", {"tenant": 7}, "7"),
        ("payload.tenant", {"tenant": {"id": 7}}, '{"id":7}'),
        ("payload.tenant.id", {"tenant": {"id": 7}}, "7"),
        ("payload.tenants[1]", {"tenants": ["a", "b"]}, "b"),
        ('payload["the tenant"]', {"the tenant": "x"}, "x"),
        ("payload.tenant", {"tenant": True}, "true"),
        ("payload.tenant", {"tenant": "Ä "}, "Ä "),
        ("payload.tenant", {}, ""),
        ("payload.tenant", None, ""),
        ("payload.tenant", ["x"], ""),
    ],
)
async def test_a_key_is_what_stands_at_that_path_of_the_payload(store: Store, path: str, payload: Any, key: str):
    task = await store.create_task(keyed(concurrency_key=path))
    await publish_many(store, task, 3, payload=payload)
    assert [(line.key, line.running, line.waiting) for line in await store.key_lines(task.id)] == [(key, 1, 2)]


async def test_keys_that_are_too_long_to_store_are_told_apart(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, "x" * 5000, "x" * 4999 + "y", "x" * 5000)
    assert len(await claim(store)) == 2


async def test_keys_that_differ_in_case_or_blanks_are_others(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "A", "a ", "ä")
    assert len(await claim(store)) == 4


async def test_keys_with_a_nul_are_kept_and_told_apart(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a\0b", "a", "a\0c", "a\0b")
    assert len(await claim(store)) == 3


async def test_tasks_do_not_share_keys(store: Store):
    one, two = await store.create_task(keyed("one")), await store.create_task(keyed("two"))
    await publish_to(store, one, "a", "a")
    await publish_to(store, two, "a", "a")
    assert len(await claim(store)) == 2


@pytest.mark.parametrize("path", ["payload.tenant", None])
async def test_a_publisher_may_name_the_key(store: Store, path: str | None):
    task = await store.create_task(keyed(concurrency_key=path))
    runs = [
        await publish(store, task, **of(tenant, overrides={"concurrency_key": key}))
        for tenant, key in (("x", "a"), ("y", "a"), ("z", "b"))
    ]
    free = await publish(store, task, **of("x"))
    assert claimed_ids(await claim(store)) == [runs[0], runs[2], free]


async def test_a_run_without_a_key_is_in_no_line(store: Store, table_sizes: Sizes):
    task = await store.create_task(job())
    before = await table_sizes()
    await publish_many(store, task, 3)
    assert not {"run_keys", "keyed_runs"} & left_over(before, await table_sizes()).keys()
    assert len(await claim(store)) == 3


# ---- with other limits


async def test_the_limit_of_the_task_holds_besides(store: Store):
    task = await store.create_task(keyed(max_concurrency=2))
    runs = await publish_to(store, task, "a", "a", "b", "c")
    leases = await claim(store)
    assert claimed_ids(leases) == [runs[0], runs[2]]
    await done(store, finish(leases[0]))
    assert claimed_ids(await claim(store)) == [runs[1]]


@pytest.mark.parametrize("named", [False, True])
async def test_what_a_key_holds_back_counts_for_the_queue_depth(store: Store, named: bool):
    spec = job("keyed", max_concurrency=1, queue_depth=2, concurrency_key=None if named else "payload.tenant")
    task = await store.create_task(spec)
    key = {"overrides": {"concurrency_key": "acme"}} if named else {}
    asked = [Publication(task_id=task.id, **of("acme", **key)) for _ in range(4)]
    made = [(await store.publish([each]))[0] for each in asked]
    assert [answer.reason for answer in made] == [None, None, None, "queue_full"]
    await done(store, finish(await claim_one(store)))
    await claim_one(store)
    again = await store.publish([asked[0], asked[1]])
    assert [answer.reason for answer in again] == [None, "queue_full"]


async def test_a_queue_says_how_many_of_the_waiting_are_held_by_their_key(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "a", "a", "b", "b")
    (queue,) = await store.queues()
    assert (queue.waiting, queue.held, queue.running) == (5, 3, 0)
    await claim(store)
    (queue,) = await store.queues()
    assert (queue.waiting, queue.held, queue.running) == (3, 3, 2)


async def test_a_run_that_its_rate_holds_back_gives_the_place_of_its_key_up(store: Store, clock: ManualClock):
    rate = RateLimit(max=1, per_seconds=10, key="user")
    task = await store.create_task(keyed(rate_limit=rate))
    payloads = [{"tenant": "a", "user": "x"}, {"tenant": "b", "user": "x"}, {"tenant": "b", "user": "y"}]
    runs = [await publish(store, task, payload=payload) for payload in payloads]
    found = claimed_ids(await claim(store)) + claimed_ids(await claim(store))
    assert found == [runs[0], runs[2]]
    assert await store.flaws() == []
    clock.advance(20)
    assert await claim_due(store) == []


async def test_pinned_runs_wait_for_their_key_too(store: Store):
    task = await store.create_task(keyed(specific_worker_ids=("w1",)))
    first, second = await publish_to(store, task, "a", "a")
    assert await claim(store, "w2") == []
    lease = await claim_one(store, "w1")
    assert lease.run_id == first
    assert await claim(store, "w1") == []
    await done(store, finish(lease))
    assert (await claim_one(store, "w1")).run_id == second


async def test_who_may_carry_out_held_runs_can_be_changed(store: Store):
    task = await store.create_task(keyed())
    first, second = await publish_to(store, task, "a", "a")
    task = await edit(store, task, specific_worker_ids=("w1",), max_concurrency=3)
    assert await claim(store, "w2") == []
    lease = await claim_one(store, "w1")
    assert (lease.run_id, await claim(store, "w1")) == (first, [])
    await edit(store, task, specific_worker_ids=(), max_concurrency=None)
    await done(store, finish(lease))
    assert (await claim_one(store, "w2")).run_id == second


# ---- changes


async def test_a_higher_limit_lets_more_in_at_once(store: Store):
    task = await store.create_task(keyed())
    runs = await publish_to(store, task, *["a"] * 4)
    await claim_one(store)
    await edit(store, task, max_per_key=3)
    assert claimed_ids(await claim(store)) == runs[1:3]


async def test_a_lower_limit_holds_back_what_has_not_started(store: Store):
    task = await store.create_task(keyed(max_per_key=4))
    runs = await publish_to(store, task, *["a"] * 6)
    leases = await claim(store, count=2)
    await edit(store, task, max_per_key=1)
    assert await claim(store) == []
    await store.settle([finish(lease) for lease in leases])
    assert claimed_ids(await claim(store)) == [runs[2]]
    assert await store.flaws() == []


async def test_a_waiting_run_that_gets_another_payload_joins_the_line_of_its_new_key(store: Store):
    task = await store.create_task(keyed())
    blocker = await publish(store, task, **of("a"))
    waiting = await publish_as(store, task, "k", **of("a"))
    assert claimed_ids(await claim(store)) == [blocker]
    await publish_as(store, task, "k", update_waiting=True, **of("b"))
    assert claimed_ids(await claim(store)) == [waiting.run_id]
    assert [line.key for line in await store.key_lines(task.id)] == []


async def test_a_waiting_run_that_is_put_off_gives_its_place_to_the_next(store: Store, clock: ManualClock):
    task = await store.create_task(keyed(max_concurrency=5))
    first = await publish_as(store, task, "k", **of("a"))
    second = await publish(store, task, **of("a"))
    await publish_as(store, task, "k", update_waiting=True, delay_seconds=5, **of("a"))
    lease = await claim_one(store)
    assert lease.run_id == second
    clock.advance(6)
    await done(store, finish(lease))
    assert claimed_ids(await claim_due(store)) == [first.run_id]


async def test_deleting_the_task_leaves_nothing_of_its_keys(store: Store, table_sizes: Sizes):
    before = await table_sizes()
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "a", "b")
    await claim(store)
    await store.delete_task(task.id, purge=True)
    assert left_over(before, await table_sizes()) == {}


async def test_a_key_without_runs_is_forgotten(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, *(f"t{number}" for number in range(150)))
    leases = await claim(store, count=200)
    assert len(leases) == 150
    await store.settle([finish(lease) for lease in leases])
    assert isinstance(store, SqlStore)
    assert await store.fetch("select count(*) from run_keys") == [(0,)]
    assert await store.fetch("select count(*) from keyed_runs") == [(0,)]


# ---- what is told


async def test_a_held_run_says_what_it_waits_for(store: Store):
    task = await store.create_task(keyed(max_per_key=2))
    runs = await publish_to(store, task, *["a"] * 5)
    await claim(store)
    found = await store.wait(runs[4])
    assert found is not None
    assert (found.key, found.key_limit, found.key_running, found.key_before) == ("a", 2, 2, 2)
    assert found.blocking_run_id == runs[0]
    assert await status_of(store, runs[4]) is S.SCHEDULED


async def test_the_lines_of_a_task_are_told_the_longest_first(store: Store, clock: ManualClock):
    task = await store.create_task(keyed())
    long = await publish_to(store, task, *["long"] * 4)
    clock.advance(5)
    short = await publish_to(store, task, "short", "short", "alone")
    await claim(store)
    lines = await store.key_lines(task.id)
    assert [(line.key, line.running, line.waiting) for line in lines] == [("long", 1, 3), ("short", 1, 1)]
    assert [line.next_run_id for line in lines] == [long[1], short[1]]
    assert [line.blocking_run_id for line in lines] == [long[0], short[0]]
    assert (lines[1].oldest_at or 0) - (lines[0].oldest_at or 0) == 5 * SECOND
    assert await store.held_by_keys() == (2, 4)
    (urgent,) = await publish_to(store, task, "long", priority=5)
    line = (await store.key_lines(task.id))[0]
    assert (line.next_run_id, line.oldest_at) == (urgent, lines[0].oldest_at)


# ---- what must not be is found, and mended


async def test_a_key_that_stands_still_with_room_is_swept(store: Store):
    task = await store.create_task(keyed())
    runs = await publish_to(store, task, "a", "a")
    lease = await claim_one(store)
    await execute(store, "update run_keys set lim = 2")
    assert await store.sweep_keys(10) == 1
    assert claimed_ids(await claim(store)) == [runs[1]]
    assert await store.sweep_keys(10) == 0
    await execute(store, "update run_keys set lim = 1")
    await done(store, finish(lease))


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("update run_keys set used = 0", "counts other runs"),
        ("update run_keys set waiting = 7", "counts other runs"),
        ("update keyed_runs set state = 2 where state = 1", "is not where"),
        ("delete from keyed_runs where state = 1", "is in no line"),
        ("update live set place = 3 where place = 9", "is not where"),
    ],
)
async def test_the_audit_finds_lines_that_are_wrong(store: Store, sql: str, told: str):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "a")
    assert await store.flaws() == []
    await execute(store, sql)
    assert any(told in flaw.message for flaw in await store.flaws()), await store.flaws()
    await store.delete_task(task.id, purge=True)
    await execute(store, "delete from keyed_runs")


async def test_the_audit_finds_a_key_that_has_room_and_lets_none_in(store: Store, clock: ManualClock):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "a")
    await execute(store, "update run_keys set lim = 2")
    clock.advance(3600)
    await store.note_scheduler()
    assert ["has room" in flaw.message for flaw in await store.flaws()] == [True]
    await execute(store, "update run_keys set lim = 1")
    assert task.spec.max_per_key == 1


async def test_counters_of_keys_that_are_wrong_are_set_right(store: Store):
    task = await store.create_task(keyed())
    await publish_to(store, task, "a", "a", "a")
    await execute(store, "update run_keys set used = 0, waiting = 9, active = 1")
    assert await store.recount() == 1
    assert await store.flaws() == []


# ---- a model in plain Python


@dataclass(slots=True)
class Modelled:
    """A run as the limit sees it: its key, its order in the line, and what it is doing."""

    id: int
    key: str
    order: tuple[int, int, int]
    state: str = "due"
    at: int = 0
    lease: Lease | None = None


class Model:
    """The same steps on a store and on a list of runs; a claim must give what the list says."""

    def __init__(self, store: Store, clock: ManualClock, task: Task, seed: int) -> None:
        self.store, self.clock, self.task = store, clock, task
        self.draw = random.Random(seed)
        self.limit = task.spec.max_per_key
        self.runs: dict[int, Modelled] = {}

    async def step(self) -> None:
        moves = {
            self.publish: 5,
            self.claim: 5,
            self.settle: 7,
            self.die: 1,
            self.cancel: 2,
            self.wait: 3,
            self.edit: 1,
        }
        (move,) = self.draw.choices(list(moves), list(moves.values()))
        await move()
        started = Counter(run.key for run in self.runs.values() if run.state == "running")
        assert await self.store.flaws() == [], (move.__name__, started)

    async def publish(self) -> None:
        wanted = [
            (self.draw.choice("aaabc"), self.draw.choice([0, 0, 0, 1, -1]), self.draw.choice([0, 0, 0, 4]))
            for _ in range(self.draw.choice([1, 1, 3]))
        ]
        answers = await self.store.publish(
            [
                Publication(task_id=self.task.id, priority=priority, delay_seconds=delay, **of(key))
                for key, priority, delay in wanted
            ]
        )
        for answer, (key, priority, delay) in zip(answers, wanted, strict=True):
            run_at = int(self.clock.now()) + delay * SECOND
            assert answer.run_id is not None
            order = (-priority, run_at, answer.run_id)
            self.runs[answer.run_id] = Modelled(answer.run_id, key, order, "later" if delay else "due", run_at)

    async def claim(self) -> None:
        count = self.draw.choice([1, 2, 50])
        running = Counter(run.key for run in self.runs.values() if run.state == "running")
        expected: list[Modelled] = []
        for key in "abc":
            line = sorted((r for r in self.runs.values() if r.key == key and r.state == "due"), key=lambda r: r.order)
            expected += line[: max(0, self.limit - running[key])]
        expected = sorted(expected, key=lambda run: run.order)[:count]
        leases = await claim(self.store, self.draw.choice(["w1", "w2"]), count)
        assert claimed_ids(leases) == [run.id for run in expected]
        for lease in leases:
            run = self.runs[lease.run_id]
            run.state, run.lease = "running", lease

    async def settle(self) -> None:
        running = [run for run in self.runs.values() if run.state == "running"]
        batch: list[Settlement] = []
        for run in self.draw.sample(running, min(len(running), self.draw.choice([1, 3]))):
            assert run.lease is not None
            kind = self.draw.choice(["finish", "finish", "finish", "retry", "at once", "release"])
            if kind == "finish":
                batch.append(finish(run.lease, self.draw.choice([S.SUCCESS, S.FAILED])))
                del self.runs[run.id]
            elif kind == "release":
                batch.append(release(run.lease))
                run.state = "due"
            else:
                delay = 3 if kind == "retry" else 0
                batch.append(retry(run.lease, delay))
                run.state, run.at = ("later" if delay else "due"), int(self.clock.now()) + delay * SECOND
        if batch:
            assert {str(answer) for answer in await self.store.settle(batch)} == {"done"}

    async def die(self) -> None:
        """A worker is gone: the sweep finds its leases run out."""
        self.clock.advance(61)
        batch = [lose(run.lease) for run in self.runs.values() if run.state == "running" and run.lease is not None]
        if batch:
            await self.store.settle(batch)
        for run in self.runs.values():
            if run.state == "running":
                run.state = "due"
        await self.promote()

    async def cancel(self) -> None:
        for run in self.draw.sample(list(self.runs.values()), min(len(self.runs), self.draw.choice([1, 2]))):
            await self.store.cancel([RunId(run.id)])
            del self.runs[run.id]

    async def wait(self) -> None:
        self.clock.advance(self.draw.choice([1, 5]))
        await self.promote()

    async def promote(self) -> None:
        await self.store.promote(1000)
        for run in self.runs.values():
            if run.state == "later" and run.at <= self.clock.now():
                run.state = "due"

    async def edit(self) -> None:
        self.limit = self.draw.choice([1, 2, 3])
        await edit(self.store, self.task, max_per_key=self.limit)


@pytest.mark.parametrize("seed", range(6))
async def test_claims_are_what_a_model_says(store: Store, clock: ManualClock, seed: int):
    task = await store.create_task(keyed(max_per_key=1 + seed % 2, worker_timeout_ms=60_000, max_lost=1_000))
    model = Model(store, clock, task, seed)
    for _ in range(60):
        await model.step()
