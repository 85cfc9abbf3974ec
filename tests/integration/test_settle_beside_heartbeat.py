"""A settle on PostgreSQL that meets a heartbeat: whoever comes second sees what the first has written."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.stores import open_store

REQUEST = ClaimRequest(worker_id="w", queues=("default",), max=1)


@pytest.fixture
async def store(postgres_url):
    store = open_store(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("max_concurrency", [None, 1], ids=["plain", "gated"])
@pytest.mark.parametrize("claims_too", [False, True], ids=["settle", "settle and claim"])
async def test_a_settle_that_had_to_wait_for_a_heartbeat_ends_the_run_for_good(
    store, postgres_url, max_concurrency, claims_too
):
    task = await store.create_task(TaskSpec(name="a", job_type="a", max_concurrency=max_concurrency))
    await store.publish([Publication(task_id=task.id)])
    await store.register_worker(WorkerInfo(id="w", incarnation="w"))
    (lease,) = (await store.claim(REQUEST)).leases
    settlement = Settlement(
        run_id=lease.run_id,
        token=lease.token,
        transition=Transition.FINISH,
        status=RunStatus.SUCCESS,
        worker_id="w",
        task_version=1,
        plain=lease.plain,
    )
    other = await asyncpg.connect(postgres_url)
    try:
        async with other.transaction():
            # What a heartbeat does, and is not done with yet.
            await other.execute("update live set expires_at = expires_at + 1 where run_id = $1", lease.run_id)
            work = store.settle_and_claim([settlement], REQUEST) if claims_too else store.settle([settlement])
            settling = asyncio.create_task(work)
            await _waits_for_a_lock(postgres_url)
        answer = await asyncio.wait_for(settling, 60)
    finally:
        await other.close()
    assert (answer[0] if claims_too else answer) == [SettleResult.DONE]
    assert (await store.run(lease.run_id)).status is RunStatus.SUCCESS
    assert await store.flaws() == []
    assert await store.held() == {}


async def _waits_for_a_lock(url: str) -> None:
    watcher = await asyncpg.connect(url)
    question = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    try:
        async with asyncio.timeout(60):
            while True:
                if await watcher.fetchval(question):
                    return
                await asyncio.sleep(0.01)
    finally:
        await watcher.close()
