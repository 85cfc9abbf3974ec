"""Overlap × failure × concurrency × misfire, every cell, through planner and worker on a store.

What is stored must be what `policy.account` answers when it is given the facts as the test knows them.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from conformance.store.builders import at, every, normal, reread, runs_of
from noonbell import when
from noonbell.clock import SECOND, ManualClock, instant_of
from noonbell.engine.in_flight import StopReason
from noonbell.engine.planner import Planner
from noonbell.model.run import Assignment, Outcome, Run, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.model.task import (
    Circuit,
    ConcurrencyPolicy,
    FailureAction,
    LastRun,
    MisfirePolicy,
    OverlapAction,
    RetryPolicy,
    Task,
    TaskSpec,
)
from noonbell.policy.account import Account, DueRun, Facts, account
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import ACCEPTED, DONE, broken, spin, worker_on

S = RunStatus

WORLDS = ("nothing", "success", "failed", "canceled", "running", "retrying", "parked", "waiting")
"""What became of the task's first slot."""
LIMITS: dict[str, dict[str, Any]] = {
    "no limit": {"max_concurrency": None},
    "queue": {"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.QUEUE},
    "short queue": {"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.QUEUE, "queue_depth": 1},
    "skip": {"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.SKIP},
    "skip at two": {"max_concurrency": 2, "concurrency_policy": ConcurrencyPolicy.SKIP},
    "parallel": {"max_concurrency": 1, "concurrency_policy": ConcurrencyPolicy.PARALLEL},
}
MISFIRES: dict[str, dict[str, Any]] = {
    "fire now": {"misfire_policy": MisfirePolicy.FIRE_NOW},
    "fire once": {"misfire_policy": MisfirePolicy.FIRE_ONCE},
    "skip": {"misfire_policy": MisfirePolicy.SKIP},
    "skip, late": {"misfire_policy": MisfirePolicy.SKIP, "misfire_grace_seconds": 2},
    "catch up two": {"misfire_policy": MisfirePolicy.CATCH_UP_LIMITED, "catchup_limit": 2},
}
CELLS = list(itertools.product(WORLDS, LIMITS, MISFIRES))
NOW = 45
"""Slots are at 10, 20, 30, 40: the first makes the world, the others are due at once."""


class Stage:
    """Lets the first slot of each task end as its world wants it."""

    async def execute(self, assignment: Assignment) -> Outcome:
        match assignment.task.spec.meta["world"]:
            case "running" | "canceled":
                await asyncio.Event().wait()
            case "failed":
                return broken("fail")
            case "retrying":
                return broken("error")
            case "parked":
                return ACCEPTED
        return DONE


def spec_of(name: str, world: str, overlap: OverlapAction, failure: FailureAction, **fields: Any) -> TaskSpec:
    waits = 1000 if world == "retrying" else 15
    target: dict[str, Any] = {"job_type": "work", "queue": "elsewhere" if world == "waiting" else "default"}
    if world == "parked":
        target = {"exec_type": ExecType.ASYNC, "target_url": "http://target.test/"}
    return TaskSpec(
        name=name,
        meta={"world": world},
        schedule=normal(every(10)),
        start_at=at(15) if world == "nothing" else None,
        overlap_action=overlap,
        failure_action=failure,
        circuit=Circuit(failures=1, cool_down_seconds=15),
        retry_policy=RetryPolicy(max_retries=1, initial_delay=waits, max_delay=9999),
        **(target | fields),
    )


def facts_of(world: str, first: Run | None) -> Facts:
    """The facts as the test knows them."""
    if first is None:
        return Facts()
    if world == "waiting":
        return Facts(occupied=1, waiting=1)
    occupied = int(world in ("running", "parked"))
    failures = int(world in ("failed", "canceled"))
    round_ = LastRun(
        task_id=first.task_id,
        run_id=first.id,
        status=first.status,
        attempt=first.attempt,
        end_time=first.end_time,
        failures=failures,
    )
    return Facts(round=round_, occupied=occupied)


EXPECTED_FIRST = {
    "success": S.SUCCESS,
    "failed": S.FAILED,
    "canceled": S.CANCELED,
    "running": S.RUNNING,
    "retrying": S.RETRYING,
    "parked": S.CALLBACK_PENDING,
    "waiting": S.SCHEDULED,
}


async def make_worlds(
    store: MemoryStore, clock: ManualClock, overlap: OverlapAction, failure: FailureAction
) -> dict[tuple[str, str, str], Task]:
    """A task for each cell, its first slot carried out as its world wants it."""
    tasks = {}
    for world, limit, misfire in CELLS:
        name = f"{world} / {limit} / {misfire}"
        spec = spec_of(name, world, overlap, failure, **LIMITS[limit], **MISFIRES[misfire])
        tasks[world, limit, misfire] = await store.create_task(spec)
    clock.set(at(10))
    await Planner(store, LocalWakeup()).tick()
    worker = worker_on(store, Stage(), concurrency=1000)
    for _ in range(4):
        await worker.tick()
        await spin(5)
    for (world, *_), task in tasks.items():
        if world == "canceled":
            await store.cancel([run.id for run in await runs_of(store, task)])
    await worker.tick()
    worker.in_flight.interrupt_all(StopReason.LOST)  # the handlers end; what the store knows of their runs stays
    await spin(5)
    return tasks


@pytest.mark.parametrize("failure", FailureAction)
@pytest.mark.parametrize("overlap", OverlapAction)
async def test_what_is_stored_is_what_the_policies_answer(
    store: MemoryStore, clock: ManualClock, overlap: OverlapAction, failure: FailureAction
):
    tasks = await make_worlds(store, clock, overlap, failure)
    expected: dict[tuple[str, str, str], tuple[Run | None, Account]] = {}
    for cell, task in tasks.items():
        first = next(iter(await runs_of(store, task)), None)
        assert (first and first.status) == EXPECTED_FIRST.get(cell[0]), cell
        schedule = when.parse(task.spec.schedule or {}, "UTC")
        answer = account(await reread(store, task), schedule, facts_of(cell[0], first), at(NOW))
        expected[cell] = first, answer
    clock.set(at(NOW))
    await Planner(store, LocalWakeup()).tick()
    for cell, task in tasks.items():
        first, answer = expected[cell]
        await compare(store, task, first, answer, cell)


async def compare(store: MemoryStore, task: Task, first: Run | None, answer: Account, cell: object) -> None:
    runs = await runs_of(store, task)
    later = [run for run in runs if run.scheduled_time > at(10)]
    stored = [(run.scheduled_time, run.skip_reason, run.attempt, run.retry_of_run_id) for run in later]
    assert stored == [
        (instant_of(one.slot), None, one.attempt_base, one.retry_of_run_id)
        if isinstance(one, DueRun)
        else (instant_of(one.slot), one.reason, 0, None)
        for one in answer.outcomes
    ], cell
    assert all(run.status is (S.SCHEDULED if run.skip_reason is None else S.SKIPPED) for run in later), cell
    gone = await store.dropped(task.id, at(0), at(NOW))
    assert [(one.first, one.last, one.count, one.reason) for one in gone] == [
        (instant_of(one.first), instant_of(one.last), one.count, one.reason) for one in answer.dropped
    ], cell
    assert len(later) + sum(one.count for one in gone) == 3, cell  # 20, 30 and 40, each once
    replaced = any(isinstance(one, DueRun) and one.cancel_previous for one in answer.outcomes)
    if first is not None:
        now = next(run for run in runs if run.id == first.id)
        assert now.status is (S.CANCELED if replaced else first.status), cell
    assert (await reread(store, task)).next_fire_at == answer.next_fire_at == at(50), cell


@pytest.mark.parametrize("policy", ConcurrencyPolicy)
@pytest.mark.parametrize("overlap", [OverlapAction.ALLOW, OverlapAction.PARALLEL])
async def test_a_limit_of_0_admits_nothing(store: MemoryStore, clock: ManualClock, overlap, policy):
    spec = TaskSpec(
        name="shut",
        job_type="work",
        schedule=normal(every(10)),
        max_concurrency=0,
        concurrency_policy=policy,
        overlap_action=overlap,
    )
    task = await store.create_task(spec)
    clock.set(at(NOW))
    await Planner(store, LocalWakeup()).tick()
    worker = worker_on(store, Stage())
    await worker.run_until_idle()
    waits = policy is ConcurrencyPolicy.QUEUE
    assert {run.status for run in await runs_of(store, task)} == {S.SCHEDULED if waits else S.SKIPPED}


async def test_queued_runs_are_carried_out_one_after_the_other_in_order(store: MemoryStore, clock: ManualClock):
    spec = TaskSpec(name="one by one", job_type="work", schedule=normal(every(10)), max_concurrency=1)
    await store.create_task(spec)
    clock.set(at(NOW))
    await Planner(store, LocalWakeup()).tick()
    most, now, order = 0, 0, []

    class Counting:
        async def execute(self, assignment: Assignment) -> Outcome:
            nonlocal most, now
            now += 1
            most = max(most, now)
            order.append((assignment.lease.scheduled_time - at(0)) // SECOND)
            await spin(3)
            now -= 1
            return DONE

    await worker_on(store, Counting()).run_until_idle()
    assert (most, order) == (1, [10, 20, 30, 40])
