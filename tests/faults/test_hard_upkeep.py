"""Death in the middle of upkeep: a migration (K13) and a retention pass (K14) are gone on with, and nothing is orphaned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.test_cut_off_steps import count_of
from integration.test_migrations import works
from noonbell.engine.failpoint import STATUS, VARIABLE
from noonbell.stores import migrations, open_store
from noonbell.stores.sql.cleanup import BELONGINGS
from noonbell.stores.sql.store import SqlStore
from services import forked
from services.emptied import SHAPE_OF_MARIADB

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
from noonbell.model.run import Transition, Settlement
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


SHARES = (0.0, 0.5, 1.0)
SHAPES = {
    "sqlite": ("select type, name, sql from sqlite_master",),
    "postgres": (
        """select table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text
           from information_schema.columns where table_schema = current_schema()""",
        # PostgreSQL names the indexes of partitions itself: by when the index came, before there were partitions or after.
        """select case when c.relispartition then regexp_replace(indexdef, 'INDEX .+ ON', 'INDEX ON') else indexdef end
           from pg_indexes i join pg_class c on c.oid = to_regclass(quote_ident(i.schemaname) || '.' || quote_ident(i.tablename))
           where i.schemaname = current_schema()""",
    ),
    "mysql": SHAPE_OF_MARIADB,
}
"""Everything that steps make."""


async def shape_of(store: SqlStore, kind: str) -> list[list[str]]:
    return [sorted(map(repr, await store.fetch(query))) for query in SHAPES[kind]]


async def shape_in_one_go(kind: str, request: pytest.FixtureRequest, folder: Path) -> list[list[str]]:
    fresh = f"sqlite:///{folder / 'other.db'}" if kind == "sqlite" else request.getfixturevalue(f"fresh_{kind}")()
    store = await opened(fresh)
    try:
        return await shape_of(store, kind)
    finally:
        await store.close()


async def test_every_step_of_the_schema_is_finished_although_it_is_cut_off_again_and_again(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
):
    """K13: the command dies before the first statement of a step, in its middle, and before the step is recorded.

    The store has taken the steps before, as in an upgrade. No death leaves more or less than those recorded; what follows goes on with
    what is there, and in the end the tables are those that one start makes.
    """
    kind = {"postgresql": "postgres"}.get(scheme := url.partition(":")[0], scheme)
    for step in migrations.STEPS:
        before = [each.number for each in migrations.STEPS if each.number < step.number]
        for share in SHARES:
            point = f"K13:{round(share * len(step.up(kind))) + 1}"
            died = forked.run("migrate", "--store", url, cwd=tmp_path, env={**os.environ, VARIABLE: point})
            assert died.returncode == STATUS, f"step {step.number}, {point}: {died.stderr}"
        assert taken(url, tmp_path) == before, (
            f"step {step.number}"
        )  # a record that came too early would still be there
        done = forked.run("migrate", "--to", str(step.number), "--store", url, cwd=tmp_path)
        assert done.returncode == 0, f"step {step.number}: {done.stderr}"
    store = await opened(url)
    try:
        assert await store.migrate() == [], "it is up to date"
        assert await shape_of(store, kind) == await shape_in_one_go(kind, request, tmp_path)
        await works(store)
    finally:
        await store.close()


def taken(url: str, folder: Path) -> list[int]:
    told = forked.run("migrate", "--status", "--store", url, cwd=folder)
    assert told.returncode == 0, told.stderr
    return [int(line.split()[0]) for line in told.stdout.splitlines() if line.split()[1] == "done"]


@pytest.mark.parametrize("share", SHARES)
async def test_a_node_that_dies_in_its_first_start_is_followed_by_one_that_makes_everything(url: str, share: float):
    """K13: all steps are taken at once, and one in the middle is cut off."""
    step = migrations.STEPS[len(migrations.STEPS) // 2]
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
