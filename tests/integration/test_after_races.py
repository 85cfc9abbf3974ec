"""Tasks that follow others, with several connections at once: one run for each join, no cycle, no run that is not followed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable

import msgspec
import pytest

from integration.conftest import Open
from integration.support import job, publish_many
from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument, NoonbellError
from noonbell.model.request import ClaimRequest, Publication, TaskChange
from noonbell.model.run import Lease, Origin, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import Task
from noonbell.model.task_schedule import After, Upstream
from noonbell.stores.sql.store import SqlStore
from services.size import size

pytestmark = pytest.mark.slow

SLOTS = size(60, 400)
ROUNDS = size(10, 150)


def after(*tasks: Task) -> After:
    return After(tasks=tuple(Upstream(task=task.id) for task in tasks))


def ends(lease: Lease) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id=lease.worker_id,
        transition=Transition.FINISH,
        status=RunStatus.SUCCESS,
        task_version=lease.task_version,
        plain=lease.plain,
        counted=lease.counted,
    )


async def leases_of(store: SqlStore, task: Task, worker: str) -> dict[Instant, Lease]:
    """Of the runs that wait, by slot: each task has a queue of its own."""
    claimed = await store.claim(ClaimRequest(worker_id=worker, queues=(task.spec.queue,), max=1_000))
    return {lease.scheduled_time: lease for lease in claimed.leases}


async def test_upstreams_that_end_at_the_same_moment_make_one_run(server_url: str, opened: Open):
    here, there = [await opened(server_url) for _ in range(2)]
    a, b = [await here.create_task(job(name, queue=name)) for name in "ab"]
    load = await here.create_task(job("load", after=after(a, b)))
    slots = [Instant(n * SECOND) for n in range(1, SLOTS + 1)]
    for task in (a, b):
        publications = [Publication(task_id=task.id, origin=Origin.BACKFILL, scheduled_time=slot) for slot in slots]
        await here.publish(publications)
    mine, yours = await leases_of(here, a, "wa"), await leases_of(there, b, "wb")
    random.shuffle(slots)
    for slot in slots:
        answers = await asyncio.gather(here.settle([ends(mine[slot])]), there.settle([ends(yours[slot])]))
        assert answers == [[SettleResult.DONE]] * 2
    rows = await here.fetch("select scheduled_time from runs where task_id = :task", task=load.id)
    assert Counter(row[0] for row in rows) == Counter(slots)
    assert await here.fetch("select state, count(*) from joins group by state") == [("done", SLOTS)]
    assert await here.flaws() == []


async def test_batches_that_cross_make_one_run_for_each_slot(server_url: str, opened: Open):
    """Each batch ends the same slots in another order, and a third connection ends a redrive of some of them."""
    nodes = [await opened(server_url) for _ in range(2)]
    a, b = [await nodes[0].create_task(job(name, queue=name)) for name in "ab"]
    load = await nodes[0].create_task(job("load", after=after(a, b)))
    slots = [Instant(n * SECOND) for n in range(1, SLOTS + 1)]
    held = []
    for node, task in zip(nodes, (a, b), strict=True):
        publications = [Publication(task_id=task.id, origin=Origin.BACKFILL, scheduled_time=slot) for slot in slots]
        await node.publish(publications)
        leases = list((await leases_of(node, task, task.name)).values())
        random.shuffle(leases)
        held.append(leases)

    async def settle(node: SqlStore, leases: list[Lease]) -> None:
        for start in range(0, len(leases), 7):
            part = leases[start : start + 7]
            assert await node.settle([ends(lease) for lease in part]) == [SettleResult.DONE] * len(part)

    await asyncio.gather(*(settle(node, leases) for node, leases in zip(nodes, held, strict=True)))
    rows = await nodes[0].fetch("select scheduled_time from runs where task_id = :task", task=load.id)
    assert Counter(row[0] for row in rows) == Counter(slots)
    assert await nodes[0].flaws() == []


async def follow(store: SqlStore, task: Task, other: Task) -> bool:
    """Whether it could be saved; if not, because of a cycle."""

    def edit(now: Task) -> TaskChange:
        return TaskChange(spec=msgspec.structs.replace(now.spec, after=after(other)), status=now.status)

    try:
        await store.change_task(task.id, edit)
    except InvalidArgument as error:
        if "makes a cycle" not in error.message:
            raise
        return False
    return True


async def test_two_callers_never_close_a_cycle_together(server_url: str, opened: Open):
    here, there = [await opened(server_url) for _ in range(2)]
    for number in range(ROUNDS):
        a, b = [await here.create_task(job(f"{name}{number}")) for name in "ab"]

        assert sorted(await asyncio.gather(follow(here, a, b), follow(there, b, a))) == [False, True]


async def test_a_run_that_ends_after_an_edge_was_saved_is_always_followed(server_url: str, opened: Open):
    """Whichever of the two commits first: a run that is seen unfinished after the edge was saved has its follower."""
    here, there = [await opened(server_url) for _ in range(2)]
    late = 0
    for number in range(ROUNDS):
        extract = await here.create_task(job(f"extract{number}", queue="q"))
        (run_id,) = await publish_many(here, extract, 1)
        (lease,) = (await here.claim(ClaimRequest(worker_id="w", queues=("q",), max=1))).leases
        seen: list[str] = []

        async def save(
            extract: Task = extract, number: int = number, seen: list[str] = seen, run: int = run_id
        ) -> Task:
            load = await there.create_task(job(f"load{number}", after=after(extract)))
            found = await there.run(run)
            assert found is not None
            seen.append(found.status)
            return load

        async def settle(lease: Lease = lease) -> list[SettleResult]:
            await asyncio.sleep(random.random() * 0.04)  # any moment of the saving
            return await here.settle([ends(lease)])

        load, answer = await asyncio.gather(save(), settle())
        assert answer == [SettleResult.DONE]
        followed = await here.fetch("select count(*) from runs where task_id = :task", task=load.id)
        if seen == [RunStatus.RUNNING]:
            late += 1
            assert followed == [(1,)]
    assert await here.flaws() == []
    assert late > 0, "no run was unfinished when the edge had been saved: this has shown nothing"


async def attempt(call: Awaitable[object]) -> bool:
    try:
        await call
    except NoonbellError:
        return False
    return True


async def test_an_upstream_is_not_deleted_while_a_follower_is_saved(server_url: str, opened: Open):
    here, there = [await opened(server_url) for _ in range(2)]
    for number in range(ROUNDS):
        extract = await here.create_task(job(f"extract{number}"))
        done = await asyncio.gather(
            attempt(here.delete_task(extract.id)),
            attempt(there.create_task(job(f"load{number}", after=after(extract)))),
        )
        assert sorted(done) == [False, True]
