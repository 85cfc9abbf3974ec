"""Lists of runs walk the index that leads to them, in every database, and pass by what is between."""

from __future__ import annotations

from typing import Any

import pytest

from integration.conftest import Open
from integration.support import job, publish_many
from integration.test_query_plans import analyse, claim, plans_url
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.request import RunQuery
from noonbell.model.run import RunStatus, Settlement, Transition
from noonbell.model.task import TaskId
from noonbell.service.filters import from_the_top
from noonbell.stores.sql import run_search
from noonbell.stores.sql.statement import Fetch
from noonbell.stores.sql.store import SqlStore

__all__ = ["plans_url"]

START = Instant(1_767_261_600 * SECOND)
DAY = 86_400
BATCH = 1_500

QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "what failed": ({"status": (RunStatus.FAILED,)}, "runs_trouble"),
    "what failed on a queue": ({"status": (RunStatus.FAILED,), "queue": "none"}, "runs_trouble"),
    "a task's": ({"task_id": 2}, "runs_task"),
    "what failed of a task": ({"task_id": 2, "status": (RunStatus.FAILED,)}, "runs_task_trouble"),
    "a label's": ({"label": ("team", "few")}, "runs_task"),
    "a stretch, born late": ({"until": Instant(START + DAY * SECOND)}, "runs_stray"),
    "a stretch of failures, born late": (
        {"since": START, "until": Instant(START + DAY * SECOND), "status": (RunStatus.FAILED,)},
        "runs_stray",
    ),
}
"""What is asked, and the index that has to be in the plan."""


async def fill(store: SqlStore, clock: ManualClock) -> None:
    busy = await store.create_task(job("busy"))
    quiet = await store.create_task(job("quiet", labels={"team": "few"}))
    for _ in range(4):
        await publish_many(store, busy, BATCH)
        await publish_many(store, quiet, 5)
        leases = await claim(store, "w", BATCH)
        bad = [lease for number, lease in enumerate(leases) if number % 10 == 0]
        status = RunStatus.FAILED
        await store.settle(
            [
                Settlement(
                    run_id=lease.run_id, token=lease.token, transition=Transition.FINISH, status=status, worker_id="w"
                )
                for lease in bad
            ]
        )
        clock.advance(DAY)


async def plans(store: SqlStore, query: RunQuery) -> str:
    """What the database says of each statement that the list takes."""
    said: list[str] = []
    steps = run_search.runs(store.dialect, query)
    try:
        statement = next(steps)
        while True:
            assert isinstance(statement, Fetch)
            explain = "explain query plan " if store.dialect.name == "sqlite" else "explain "
            said += [str(row) for row in await store.fetch(explain + statement.sql, **statement.params)]
            statement = steps.send(await store.fetch(statement.sql, **statement.params))
    except StopIteration:
        return "\n".join(said)


@pytest.mark.parametrize("look", [None, 50_000], ids=["all", "some"])
@pytest.mark.parametrize("sort", ["-id", "id"], ids=["newest first", "oldest first"])
async def test_a_list_walks_the_index_that_leads_to_it(plans_url: str, opened: Open, look: int | None, sort: str):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store, clock)
    await analyse(store)
    for name, (asked, index) in QUESTIONS.items():
        if index == "runs_stray" and store.dialect.name == "mysql":
            continue  # no partial indexes: it has none
        wanted = index.replace("runs_task_trouble", "runs_task") if store.dialect.name == "mysql" else index
        said = await plans(store, RunQuery(page_size=25, look=look, sort=sort, cursor=from_the_top(sort), **asked))
        # On PostgreSQL runs are in partitions, and each has an index of its own.
        assert wanted in said.replace("runs_before_", "runs_"), f"{name}:\n{said}"
        assert "SCAN r\n" not in said
        assert "Seq Scan on runs" not in said


async def test_the_runs_of_a_task_are_counted_in_its_index_alone(plans_url: str, opened: Open):
    """Of a task whose runs have no parts."""
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store, clock)
    await analyse(store)
    said = await plans(store, RunQuery(task_id=TaskId(2), page_size=15, count_to=10_000, look=50_000))
    said = said.replace("runs_before_", "runs_")
    if store.dialect.name == "mysql":
        assert "runs_task" in said
        return
    assert "runs_task_parts" in said, f"whether there are parts is looked up:\n{said}"
    counting = (
        "Index Only Scan Backward using runs_task "
        if store.dialect.plans_by_statistics
        else "COVERING INDEX runs_task "
    )
    assert counting in said, said
    page = await store.runs(RunQuery(task_id=TaskId(2), page_size=15, count_to=10_000, look=50_000))
    assert (page.total, page.is_least, len(page.items)) == (20, False, 15)
