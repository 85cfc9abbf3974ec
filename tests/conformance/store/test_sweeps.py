"""What the sweep asks before it does anything: which of its steps would find something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from conformance.store.builders import at, claim_one, done, every, execute, finish, http, job, publish
from noonbell.clock import ManualClock
from noonbell.model.request import DueSweeps, TaskChange
from noonbell.model.run import Origin
from noonbell.model.sla import Sla
from noonbell.model.task import TaskPause, TaskStatus
from noonbell.model.task_schedule import After, Upstream
from noonbell.ports import Store

NOTHING = DueSweeps()


async def expiring(store: Store) -> None:
    await publish(store, await store.create_task(job("expiring", expires_in_seconds=60)))


async def paused(store: Store) -> None:
    task = await store.create_task(http("paused", schedule=every(10)))
    pause = TaskPause(until=at(60), by="alice", at=await store.now())
    await store.change_task(
        task.id, lambda now: TaskChange(spec=now.spec, status=TaskStatus.DISABLED, pause=pause), by="alice"
    )


async def joined(store: Store) -> None:
    upstreams = [await store.create_task(job(name)) for name in "ab"]
    follows = After(tasks=tuple(Upstream(task=task.id) for task in upstreams), within_seconds=60)
    await store.create_task(job("joined", after=follows))
    await publish(store, upstreams[0], origin=Origin.BACKFILL, scheduled_time=at(0))
    await done(store, finish(await claim_one(store)))


async def keyed(store: Store) -> None:
    task = await store.create_task(job("keyed", concurrency_key="payload.tenant"))
    for _ in range(2):
        await publish(store, task, payload={"tenant": "a"})
    await execute(store, "update run_keys set lim = 2")


async def watched(store: Store) -> None:
    await publish(store, await store.create_task(job("watched", sla=Sla(start_within_seconds=60))))


STEPS: dict[str, tuple[Callable[[Store], Awaitable[None]], Callable[[Store], Awaitable[Any]]]] = {
    "expiries": (expiring, lambda store: store.expire(10)),
    "pauses": (paused, lambda store: store.resume_due(10)),
    "joins": (joined, lambda store: store.sweep_joins(10)),
    "keys": (keyed, lambda store: store.sweep_keys(10)),
    "service_levels": (watched, lambda store: store.sweep_sla(10)),
}


@pytest.mark.parametrize("name", STEPS)
async def test_a_sweep_is_due_until_it_was_made_and_no_other_is(store: Store, clock: ManualClock, name: str):
    make, sweep = STEPS[name]
    assert await store.due_sweeps() == NOTHING
    await make(store)
    assert await store.due_sweeps() == (DueSweeps(keys=True) if name == "keys" else NOTHING)
    clock.advance(60)
    assert await store.due_sweeps() == msgspec.structs.replace(NOTHING, **{name: True})
    await sweep(store)
    assert await store.due_sweeps() == NOTHING


@pytest.mark.parametrize("name", STEPS)
async def test_a_sweep_that_is_not_due_finds_nothing(store: Store, name: str):
    before = await store.counts()
    await STEPS[name][1](store)
    assert await store.counts() == before


def test_every_sweep_has_a_case():
    assert set(DueSweeps.__struct_fields__) == set(STEPS)
