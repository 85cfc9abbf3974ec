"""What was told is kept, whole: a change and its events are one transaction, and the connections are set up for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from integration.conftest import Open
from integration.support import execute, job, publish_many
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus, Settlement, Transition
from noonbell.model.task import Task
from noonbell.stores.sql.statement import Fetch, Work
from noonbell.stores.sql.store import SqlStore

REQUEST = ClaimRequest(worker_id="w", queues=("default",), max=1)
LEASE_SECONDS = 15
"""The usual lease: what a frozen process holds is others' after this."""


def settled(lease: Lease, transition: Transition) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id="w",
        transition=transition,
        status=RunStatus.SUCCESS if transition is Transition.FINISH else RunStatus.FAILED,
        delay_seconds=0 if transition is Transition.FINISH else 5,
        task_version=1,
        plain=lease.plain,
    )


CHANGES: dict[str, Callable[[SqlStore, Task, Lease], Awaitable[Any]]] = {
    "publish": lambda store, task, _: store.publish([Publication(task_id=task.id)]),
    "publish with a key": lambda store, task, _: store.publish([Publication(task_id=task.id, key="k")]),
    "claim": lambda store, _task, _lease: store.claim(REQUEST),
    "settle": lambda store, _, lease: store.settle([settled(lease, Transition.FINISH)]),
    "retry": lambda store, _, lease: store.settle([settled(lease, Transition.RETRY)]),
    "cancel": lambda store, _, lease: store.cancel([lease.run_id]),
    "delete": lambda store, task, _: store.delete_task(task.id),
    "plan": lambda store, _task, _lease: store.plan(10),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_whose_event_cannot_be_written_has_not_happened(sql_url: str, opened: Open, change: str):
    """One transaction: who listens to events hears of every change, and of none that was undone."""
    store = await opened(sql_url)
    task = await store.create_task(job("a"))
    due = await store.create_task(job("due", schedule={"type": "once", "at": None}))
    await execute(store, f"update cursors set next_fire_at = 1000000 where task_id = {due.id}")
    await publish_many(store, task, 2)
    (lease,) = (await store.claim(REQUEST)).leases
    before = await everything(store)
    await execute(store, "alter table events rename to events_away")
    try:
        with pytest.raises(Exception, match="events"):
            await CHANGES[change](store, task, lease)
    finally:
        await execute(store, "alter table events_away rename to events")
    assert await everything(store) == before
    await CHANGES[change](store, task, lease)
    assert await everything(store) != before


async def everything(store: SqlStore) -> list[list[tuple[Any, ...]]]:
    """What the changes write to, but for the events."""
    tables = {"tasks": "id", "cursors": "task_id", "runs": "id", "live": "run_id"}
    return [await store.fetch(f"select * from {table} order by {key}") for table, key in tables.items()]


async def test_a_commit_of_sqlite_is_on_the_disk_when_it_is_told(sqlite_url: str, opened: Open):
    """A power cut cannot be had in a test: the writer's connection is asked what it was set to."""
    store = await opened(sqlite_url)
    full, wal = 2, "wal"
    assert await asked(store, "pragma synchronous") == full
    assert await asked(store, "pragma journal_mode") == wal


async def test_a_process_that_is_frozen_in_a_transaction_holds_its_rows_no_longer_than_a_lease(
    server_url: str, opened: Open
):
    """The server ends it. Fifteen seconds would be long for a test: each connection is asked what it was set to."""
    store = await opened(server_url)
    if store.dialect.name == "postgres":
        limit = "select extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval)::int"
    else:
        limit = "select @@idle_transaction_timeout"
    assert 0 < await asked(store, limit) <= LEASE_SECONDS
    rows = await store.fetch(limit)
    assert 0 < rows[0][0] <= LEASE_SECONDS


async def asked(store: SqlStore, question: str) -> Any:
    """By the connection that writes."""

    def work(_: object) -> Work[Any]:
        rows = yield Fetch(question)
        return rows[0][0]

    return await store._write(work)
