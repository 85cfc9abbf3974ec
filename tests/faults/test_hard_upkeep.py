"""Death in the middle of upkeep: a migration (K13) and a retention pass (K14) are gone on with, and nothing is orphaned."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from integration.test_cut_off_steps import count_of
from integration.test_migrations import works
from noonbell.engine.failpoint import STATUS, VARIABLE
from noonbell.stores import migrations, open_store
from noonbell.stores.sql.tasks import BELONGINGS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

URLS = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}

OPEN = """
import asyncio, sys
from noonbell.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    await store.close()

asyncio.run(main())
"""

HISTORY = """
import asyncio, sys
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import RunBodies, RunStatus
from noonbell.model.attempt import Transition, Settlement
from noonbell.model.task import TaskSpec
from noonbell.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    task = await store.create_task(TaskSpec(name="t", job_type="x"))
    await store.publish([Publication(task_id=task.id, payload={"n": n}) for n in range(20)])
    leases = (await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=20))).leases
    ended = [
        Settlement(run_id=lease.run_id, token=lease.token, transition=Transition.FINISH, status=RunStatus.SUCCESS,
                   bodies=RunBodies(request_body="asked", response_body="said"))
        for lease in leases
    ]
    await store.settle(ended)
    await store.close()

asyncio.run(main())
"""

CLEAN = """
import asyncio, sys
from noonbell.clock import Instant
from noonbell.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    while await store.clean(Instant(await store.now() + 10**9), 4):
        pass
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(URLS[request.param]))


def python(script: str, url: str, failpoint: str = "") -> int:
    env = {**os.environ, VARIABLE: failpoint}
    return subprocess.run([sys.executable, "-c", script, url], env=env, timeout=60, check=False).returncode


async def opened(url: str):
    store = open_store(url)
    await store.open()
    return store


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("step", migrations.STEPS, ids=lambda step: step.title)
async def test_a_node_that_dies_in_a_step_of_the_schema_is_followed_by_one_that_finishes_it(
    url: str, step, share: float
):
    """K13."""
    assert python(OPEN, url, f"K13:{count_of(url.partition(':')[0], step, share)}") == STATUS
    store = await opened(url)
    try:
        assert await store.migrate() == [], "the start has brought it up to date"
        await works(store)
    finally:
        await store.close()


@pytest.mark.parametrize("batch", [1, 3, 5])
async def test_retention_that_dies_goes_on_where_it_was_and_leaves_no_orphan(url: str, batch: int):
    """K14."""
    assert python(HISTORY, url) == 0
    assert python(CLEAN, url, f"K14:{batch}") == STATUS
    store = await opened(url)
    try:
        (count,) = (await store.fetch("select count(*) from runs"))[0]
        assert count == 20 - 4 * (batch - 1), "the batches before are gone, and the one that was cut off is there whole"
        for table in BELONGINGS:
            orphans = await store.fetch(f"select count(*) from {table} where run_id not in (select id from runs)")
            assert orphans[0][0] == 0, table
        (bodies,) = (await store.fetch("select count(*) from bodies"))[0]
        assert bodies == count
        assert await store.recount() == 0
    finally:
        await store.close()
    assert python(CLEAN, url) == 0
    store = await opened(url)
    try:
        assert (await store.counts())["runs"] == 0
    finally:
        await store.close()
