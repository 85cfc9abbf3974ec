"""Reading the account costs what is asked for: rows are found by an index, and a page of tasks takes as many questions as one."""

from __future__ import annotations

import pytest

from integration.conftest import Open
from integration.support import create_many, every_second, job, publish_many
from integration.test_query_plans import PLACES, START, analyse, fill, full_scans, listening
from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.model.run import RunId


@pytest.fixture(params=PLACES)
def plans_url(request: pytest.FixtureRequest) -> str:
    fresh = PLACES[request.param]
    return "memory://" if fresh is None else str(request.getfixturevalue(fresh))


async def test_the_account_is_read_by_index(plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch):
    clock = ManualClock(START)
    store = await opened(plans_url, clock=clock)
    await fill(store)
    (task,) = await create_many(store, [job("seconds", schedule=every_second(START), max_concurrency=1)])
    clock.advance(2_000)
    await store.plan(10, cap=2_000)
    (waiting,) = await store.slot_runs(task.id, clock.now(), clock.now(), 1)
    await analyse(store)
    since, until = Instant(START + 100 * SECOND), Instant(START + 110 * SECOND)
    async with listening(store, monkeypatch) as heard:
        assert len(await store.slot_runs(task.id, since, until)) == 11
        assert await store.dropped(task.id, since, until) == []
        assert await store.wait(RunId(waiting.run_id)) is not None
        await store.cleaned(task.id)
        await store.outages(since, until)
        await store.clock_steps(since, until)
        await store.pauses("default", since, until)
        await store.task_versions(task.id)
    assert len(heard) >= 8
    for sql, args in heard:
        assert await full_scans(store, sql, tuple(args or ())) == [], sql


async def test_the_activity_of_many_tasks_takes_as_many_questions_as_that_of_one(
    plans_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    store = await opened(plans_url)
    tasks = await create_many(store, [job(f"t{number}") for number in range(20)])
    for task in tasks:
        await publish_many(store, task, 2)
    counts = []
    for asked in (tasks[:1], tasks):
        async with listening(store, monkeypatch) as heard:
            found = await store.activity([task.id for task in asked])
        assert len(found) == len(asked)
        counts.append(sum(sql.lstrip().lower().startswith("select") for sql, _ in heard))
    assert counts[0] == counts[1] == 3
