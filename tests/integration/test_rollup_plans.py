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
from noonbell.model.sla import Sla
from noonbell.stores.sql import rollups
from noonbell.stores.sql.statement import InsertMany, Work
from noonbell.stores.sql.store import SqlStore

pytestmark = pytest.mark.own_database

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
        "failed": lambda: store.failed_tasks(a_day_ago, START, 10),
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


async def test_samples_of_queues_are_added_read_and_removed_by_an_index(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(plans_url, clock=ManualClock(START))
    columns = ("name", "seconds", "at", "samples", "waiting", "most", "longest_wait")
    rows = [
        (
            "" if queue == 0 else f"q{queue}",
            span.length // 1_000_000,
            span.begin(START - back * span.length),
            1,
            2,
            2,
            5,
        )
        for queue in range(TASKS)
        for span in SPANS
        for back in range(1, ROWS)
    ]

    def work(_: Any) -> Work[None]:
        for first in range(0, len(rows), 2_000):
            yield InsertMany("queue_depths", columns, rows[first : first + 2_000])

    await store._write(work)
    monkeypatch.setattr(plans, "BIG", {"queue_depths"})
    await plans.analyse(store)
    await publish_many(store, await store.create_task(job("plain")), 5)
    steps = {
        "sample": store.sample_queues,
        "again": store.sample_queues,
        "read": lambda: store.queue_depths("q7", Instant(START - DAY.length), Instant(START + 1), MINUTE, HOUR.length),
        "forget": lambda: store.forget_queue_depths(10),
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


async def test_a_sweep_of_service_levels_finds_what_is_due_by_an_index(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)

    def work(_: Any) -> Work[None]:
        later = Instant(START + DAY.length)
        rows = [(n, 1, later, START, later, "alert") for n in range(1, 5_000)]
        yield InsertMany("sla_watches", ("run_id", "task_id", "at", "due_at", "finish_by", "on_breach"), rows)
        told = [(n, 1 + n % 50, n, "finish_by", START, START) for n in range(1, 5_000)]
        yield InsertMany("sla_breaches", ("id", "task_id", "run_id", "rule", "deadline", "breached_at"), told)

    await store._write(work)
    task = await store.create_task(job("late", sla=Sla(start_within_seconds=1, finish_within_seconds=2)))
    runs = await publish_many(store, task, 3)
    monkeypatch.setattr(plans, "BIG", {"sla_watches", "sla_breaches"})
    await plans.analyse(store)
    clock.advance(10)
    steps = {
        "sweep": lambda: store.sweep_sla(100),
        "counts": lambda: store.breach_counts([task.id, 7], Instant(0), Instant(START + 1)),
        "of a run": lambda: store.sla_breaches(10, run_id=runs[0]),
        "idle": lambda: store.sweep_sla(100),
        "due": store.due_sweeps,
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
    assert len(await store.sla_breaches(10, run_id=runs[0])) == 2


async def test_a_delta_too_long_for_one_text_is_written_by_the_client(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rollups, "_IN_ONE_PIECE", 19)
    store = await opened(plans_url, clock=ManualClock(START))
    tasks = [await store.create_task(job(f"t{number}")) for number in range(10)]
    for task in tasks:
        await publish_many(store, task, 2)
    await store.settle([success(lease) for lease in await claim(store, "w", 20)])
    figures = await store.rollups(
        Scope.TASK, stretch_of(Instant(START - DAY.length), Instant(START + 1), START, MINUTE)
    )
    assert {each.name: each.figures.runs for each in figures} == {str(task.id): 2 for task in tasks}
