"""A step of the schema that is cut off, before any of its statements or before it is recorded (K13), is finished later.

Where a change of the schema is undone with its transaction, nothing of it is there; MariaDB keeps each statement as soon
as it is done, and the next start goes on behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest

from integration.conftest import FRESH, Open
from integration.test_migrations import tables, works
from noonbell.engine import failpoint
from noonbell.errors import SchemaMismatch
from noonbell.stores import migrations, open_store
from noonbell.stores.migrations import STEPS, MigrationStep

pytestmark = pytest.mark.bare_database

OPEN = """
import asyncio, sys
from noonbell.stores import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    await store.close()

asyncio.run(main())
"""


def count_of(scheme: str, step: MigrationStep, share: float) -> int:
    """How often K13 is reached from an empty database to this share of the step; 1.0 is before it is recorded."""
    kind = "postgres" if scheme == "postgresql" else scheme
    sizes = [len(each.up(kind)) for each in STEPS if each.number <= step.number]
    return sum(size + 1 for size in sizes[:-1]) + round(share * sizes[-1]) + 1


CASES = sorted({(count_of("mysql", step, share), step.number, share) for step in STEPS for share in (0.0, 0.4, 1.0)})
NEWEST = STEPS[-2].number


def case(count: int, step: int, share: float) -> Any:
    """A step that has landed is never edited: of the old ones, `make test` cuts off every fifth, in its middle."""
    often = step >= NEWEST or (share == 0.4 and step % 5 == 1)
    return pytest.param(count, step, share, marks=() if often else pytest.mark.full)


class CutOff(Exception):
    """The process is gone."""


@pytest.mark.parametrize(("count", "step", "share"), [case(*each) for each in CASES], ids=str)
async def test_on_a_database_that_cannot_take_a_table_back_half_a_step_is_finished(
    mysql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch, count: int, step: int, share: float
):
    def die(_status: int) -> None:
        raise CutOff

    cut_off = open_store(mysql_url)
    with monkeypatch.context() as patched:
        patched.setattr(failpoint, "hit", failpoint.armed({"K13": count}, die))
        with pytest.raises(CutOff):
            await cut_off.open()
    found = await cut_off.look_at_schema()
    await cut_off.close()
    before = [each.number for each in STEPS if each.number < step]
    assert sorted(found.taken) == before, "a step is recorded when it is done, and not before"
    store = await opened(mysql_url)
    made = migrations.names("mysql")[0]
    assert await tables(store) == made
    assert await store.migrate() == [], "the start has brought it up to date"
    await works(store)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.full)])
async def test_a_way_back_that_was_cut_off_is_refused_until_it_is_finished(
    mysql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch, count: int
):
    """Before the column is dropped, and before the record of the step is."""

    def die(_status: int) -> None:
        raise CutOff

    running = await opened(mysql_url)
    await running.migrate(to=11)
    with monkeypatch.context() as patched:
        patched.setattr(failpoint, "hit", failpoint.armed({"K13": count}, die))
        with pytest.raises(CutOff):
            await running.migrate(to=8)
    other = open_store(mysql_url)
    for refused in (running.check_schema, running.migrate, other.open):
        with pytest.raises(SchemaMismatch, match=r"was interrupted.*noonbell migrate --to 8"):
            await refused()
    await other.close()
    assert await running.migrate(to=8) == [-11]
    await works(await opened(mysql_url))


@pytest.mark.parametrize("kind", FRESH)
async def test_a_node_that_is_killed_in_a_step_is_followed_by_one_that_finishes_it(
    kind: str, request: pytest.FixtureRequest, opened: Open
):
    url = str(request.getfixturevalue(FRESH[kind]))
    env = {**os.environ, failpoint.VARIABLE: f"K13:{count_of(url.partition(':')[0], STEPS[0], 0.5)}"}
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, url, env=env)
    assert await asyncio.wait_for(killed.wait(), 60) == failpoint.STATUS
    store = await opened(url)
    assert await store.migrate() == [], "the start has brought it up to date"
    await works(store)
