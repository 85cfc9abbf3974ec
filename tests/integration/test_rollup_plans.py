"""Folding and reading figures, and removing old ones, find their rows by an index, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from integration import test_query_plans as plans
from integration.conftest import Open
from integration.crew import success
from integration.support import job, publish_many
from integration.test_query_plans import PLACES, START, claim, full_scans, hashable, listening
from noonbell.clock import Instant, ManualClock
from noonbell.model.rollup import DAY, HOUR, MINUTE, SPANS, Scope, stretch_of
from noonbell.stores.sql.statement import InsertMany, Work
from noonbell.stores.sql.store import SqlStore

pytestmark = pytest.mark.bare_database

TASKS, ROWS = 40, 200


@pytest.fixture(params=PLACES)
def plans_url(request: pytest.FixtureRequest) -> str:
    fresh = PLACES[request.param]
    return "memory://" if fresh is None else str(request.getfixturevalue(fresh))


async def fill(store: SqlStore) -> None:
    """Sums of many tasks, over as many minutes, hours and days."""
    rows = [
        ("task", str(task), span.length // 1_000_000, START - back * span.length, 1, '{"counts":{"SUCCESS":1}}')
        for task in range(1_000, 1_000 + TASKS)
        for span in SPANS
        for back in range(ROWS)
    ]

    def work(_: Any) -> Work[None]:
        columns = ("id", "kind", "name", "seconds", "at", "runs", "data")
        for first in range(0, len(rows), 2_000):
            part = rows[first : first + 2_000]
            yield InsertMany("rollups", columns, [(first + n, *row) for n, row in enumerate(part)])

    await store._write(work)


async def test_figures_are_added_and_read_without_walking_through_all_of_them(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store)
    monkeypatch.setattr(plans, "BIG", {"rollups"})
    await plans.analyse(store)
    task = await store.create_task(job("plain"))
    await publish_many(store, task, 5)
    await store.settle([success(lease) for lease in await claim(store, "w", 5)])
    a_day_ago = Instant(START - DAY.length)
    steps = {
        "fold": lambda: store.fold_rollups(100),
        "read": lambda: store.rollups(Scope.TASK, stretch_of(a_day_ago, START, START), names=["1003"]),
        "read by the minute": lambda: store.rollups(
            Scope.TASK, stretch_of(START - HOUR.length, START, START, MINUTE), names=["1003"], step=MINUTE
        ),
        "busiest": lambda: store.busiest(Scope.TASK, Instant(START - 2 * HOUR.length), START, 10),
        "forget": lambda: store.forget_rollups(10),
    }
    found = []
    for name, step in steps.items():
        async with listening(store, monkeypatch) as heard:
            await step()
        assert heard, name
        for sql, args in heard:
            if hashable(args):
                found += [f"{name}: {scan}: {sql[:200]}" for scan in await full_scans(store, sql, args or ())]
    assert found == []
