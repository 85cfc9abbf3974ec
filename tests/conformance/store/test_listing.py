"""Lists of runs, whichever way they are found: every filter finds just what it says, in order, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    at,
    done,
    every,
    fail,
    finish,
    finished,
    job,
    park,
    publish,
    publish_many,
    retry,
    started,
)
from noonbell.clock import ManualClock
from noonbell.model.request import RunQuery
from noonbell.model.run import Origin, Run
from noonbell.model.task import OverlapAction, Task
from noonbell.ports import Store
from services.size import FULL, size

DAY = 86_400.0

Fits = Callable[[Run], bool]


async def live_through(store: Store, clock: ManualClock) -> dict[str, Task]:
    """Runs of every status over some days, on two queues, by two workers; some born long after their time."""
    tasks = {
        "mail": await store.create_task(asynchronous("send mail", labels={"team": "ops"}, max_concurrency=None)),
        "move": await store.create_task(job("move mailboxes", labels={"team": "ops", "tier": "gold"})),
        "skip": await store.create_task(
            job("skips", schedule=every(3600), overlap_action=OverlapAction.SKIP, queue="slow")
        ),
    }
    for day in range(4):
        worker = f"w{day % 2}"
        for name in ("mail", "move"):
            for status in (S.SUCCESS, S.FAILED, S.TIMEOUT, S.CALLBACK_SUCCESS):
                await finished(store, tasks[name], status, key=f"{name} {status} {day}")
            await done(store, fail(await started(store, tasks[name], worker), error_message=f"disk {day} is full"))
            await done(store, finish(await started(store, tasks[name], worker)))
        late = await publish(store, tasks["move"], origin=Origin.BACKFILL, scheduled_time=at(-3 * DAY))
        await store.cancel([late])
        await done(
            store, retry(await started(store, tasks["move"], worker), delay=DAY * 30, error_message="disk is slow")
        )
        clock.advance(DAY)
        await store.plan(10)
    await done(store, park(await started(store, tasks["mail"], "w1"), delay=DAY))
    await started(store, tasks["mail"], "w0")
    await publish(store, tasks["move"], delay_seconds=60)
    return tasks


async def everything(store: Store) -> list[Run]:
    """Newest first, each read on its own."""
    page = await store.runs(RunQuery(page_size=1000))
    assert page.total == len(page.items) > 50
    found = [await store.run(run.id) for run in page.items]
    return [run for run in found if run is not None]


async def paged(store: Store, query: RunQuery) -> AsyncIterator[Run]:
    """All that it finds, along its cursors: some pages may be short, none is for nothing."""
    seen = None
    while True:
        page = await store.runs(query)
        assert len(page.items) <= query.page_size
        for run in page.items:
            yield run
        if page.next_cursor is None:
            return
        assert page.next_cursor != seen, "it does not get on"
        assert page.items or page.looked_to is not None
        seen = page.next_cursor
        query = msgspec.structs.replace(query, cursor=seen)


def questions(tasks: dict[str, Task]) -> dict[str, tuple[dict[str, Any], Fits]]:
    """What is asked, and what answers it."""
    move, mail = tasks["move"].id, tasks["mail"].id
    bad = (S.FAILED, S.TIMEOUT, S.FAILED_TIMEOUT)
    of_ops = (move, mail)
    return {
        "everything": ({}, lambda run: True),
        **{str(s): ({"status": (s,)}, lambda run, s=s: run.status is s) for s in S},
        "several": ({"status": bad}, lambda run: run.status in bad),
        "of all kinds": (
            {"status": (S.SUCCESS, S.FAILED, S.RUNNING, S.SCHEDULED)},
            lambda run: run.status in (S.SUCCESS, S.FAILED, S.RUNNING, S.SCHEDULED),
        ),
        "task": ({"task_id": move}, lambda run: run.task_id == move),
        "no task": ({"task_id": 0}, lambda run: False),
        "task and status": (
            {"task_id": move, "status": (S.FAILED, S.RETRYING, S.SUCCESS)},
            lambda run: run.task_id == move and run.status in (S.FAILED, S.RETRYING, S.SUCCESS),
        ),
        "queue": ({"queue": "default"}, lambda run: run.queue == "default"),
        "queue and status": (
            {"queue": "default", "status": bad},
            lambda run: run.queue == "default" and run.status in bad,
        ),
        "worker": ({"worker_id": "w1"}, lambda run: run.worker_id == "w1"),
        "worker and status": (
            {"worker_id": "w0", "status": (S.RUNNING, S.FAILED, S.SUCCESS)},
            lambda run: run.worker_id == "w0" and run.status in (S.RUNNING, S.FAILED, S.SUCCESS),
        ),
        "key": ({"key": "mail FAILED 2"}, lambda run: run.key == "mail FAILED 2"),
        "origin": ({"origin": Origin.BACKFILL}, lambda run: run.origin is Origin.BACKFILL),
        "label": ({"label": ("tier", "gold")}, lambda run: run.task_id == move),
        "label and status": (
            {"label": ("team", "ops"), "status": (S.TIMEOUT,)},
            lambda run: run.task_id in of_ops and run.status is S.TIMEOUT,
        ),
        "no such label": ({"label": ("tier", "tin")}, lambda run: False),
        "part of a name": ({"text": "MAIL"}, lambda run: run.task_id in of_ops),
        "part of an error": ({"text": "disk"}, lambda run: "disk" in (run.error_message or "")),
        "error and label": (
            {"text": "disk", "label": ("tier", "gold"), "queue": "default"},
            lambda run: "disk" in (run.error_message or "") and run.task_id == move,
        ),
        "error and status": (
            {"text": "full", "status": (S.FAILED, S.SUCCESS)},
            lambda run: "full" in (run.error_message or "") and run.status is S.FAILED,
        ),
        "no such text": ({"text": "nobody says this"}, lambda run: False),
        "part of a key": ({"search": "Mail Failed"}, lambda run: (run.key or "").startswith("mail FAILED")),
        "part of an error or a name": (
            {"search": "disk", "status": (S.FAILED, S.RETRYING)},
            lambda run: "disk" in (run.error_message or ""),
        ),
        "a name, a task and a stretch": (
            {"search": "mailboxes", "task_id": move, "since": at(DAY)},
            lambda run: run.task_id == move and run.scheduled_time >= at(DAY),
        ),
        "since": ({"since": at(1.5 * DAY)}, lambda run: run.scheduled_time >= at(1.5 * DAY)),
        "until": ({"until": at(0.5 * DAY)}, lambda run: run.scheduled_time <= at(0.5 * DAY)),
        "before all but what came late": ({"until": at(-DAY)}, lambda run: run.scheduled_time <= at(-DAY)),
        "a stretch and a status": (
            {"since": at(-4 * DAY), "until": at(2 * DAY), "status": (S.CANCELED, S.FAILED)},
            lambda run: run.scheduled_time <= at(2 * DAY) and run.status in (S.CANCELED, S.FAILED),
        ),
        "a stretch of a task": (
            {"since": at(-4 * DAY), "until": at(DAY), "task_id": move},
            lambda run: run.task_id == move and run.scheduled_time <= at(DAY),
        ),
        "a stretch and a text": (
            {"since": at(DAY), "text": "disk"},
            lambda run: run.scheduled_time >= at(DAY) and "disk" in (run.error_message or ""),
        ),
    }


@pytest.mark.longer
async def test_every_filter_finds_just_what_it_says_however_little_is_looked_at(store: Store, clock: ManualClock):
    tasks = await live_through(store, clock)
    runs = await everything(store)
    assert {run.status for run in runs} >= set(S) - {S.FAILED_TIMEOUT}, "else nothing is shown"
    for name, (asked, fits) in questions(tasks).items():
        expected = [run for run in runs if fits(run)]
        whole = await store.runs(RunQuery(page_size=1000, **asked))
        assert (whole.items, whole.total) == (expected, len(expected)), name
        for look in (None, 8) if FULL else (8,):
            for sort in ("-id", "id"):
                query = RunQuery(page_size=size(7, 4), sort=sort, look=look, cursor=_start(sort), **asked)
                found = [run async for run in paged(store, query)]
                assert found == (expected if sort == "-id" else expected[::-1]), (name, look, sort)


async def test_a_text_is_found_in_payload_result_log_and_key_and_its_wildcards_are_letters(store: Store):
    task = await store.create_task(job("invoices"))
    by_key = await finished(store, task, key="inv_77")
    other = await finished(store, task, key="invX77", payload={"customer": "Müller & 100%"})
    told = await started(store, task, payload={"n": 1})
    await store.log(
        told.run_id, told.token, [("info", "begins"), ("error", "ACME-4711 is not there"), ("info", "ACME-4711 again")]
    )
    await done(store, finish(told, result={"file": "report-9.pdf"}))

    async def found(text: str) -> list[int]:
        return [run.id for run in (await store.runs(RunQuery(search=text, look=100))).items]

    assert await found("inv_77") == [by_key]
    assert await found("100%") == [other]
    assert await found("Müller") == [other]
    assert await found("acme-4711") == [told.run_id]
    assert await found("REPORT-9") == [told.run_id]
    assert await found("invoices") == [told.run_id, other, by_key]
    assert await found("acme-4712") == []


def _start(sort: str) -> str:
    from noonbell.service.filters import cursor_at, from_the_top

    return from_the_top(sort) if sort == "-id" else cursor_at(sort, 0, 0)


@pytest.mark.parametrize("sort", ["scheduled_time", "-scheduled_time", "created_at"])
async def test_other_orders_find_the_same(store: Store, clock: ManualClock, sort: str):
    tasks = await live_through(store, clock)
    runs, field = await everything(store), sort.removeprefix("-")
    for name in ("everything", "several", "task", "until", "part of an error"):
        asked, fits = questions(tasks)[name]
        expected = sorted((run for run in runs if fits(run)), key=lambda run: (getattr(run, field), run.id))
        found = [run async for run in paged(store, RunQuery(page_size=7, sort=sort, **asked))]
        assert found == (expected[::-1] if sort.startswith("-") else expected), name


async def test_a_search_that_ends_early_says_how_far_it_came(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    old = await publish(store, task, key="the one")
    clock.advance(3600)
    await publish_many(store, task, 30)
    page = await store.runs(RunQuery(key="the one", look=10, count_to=100))
    assert (page.items, page.total, page.is_least) == ([], 0, True)
    assert page.next_cursor is not None
    assert page.looked_to is not None
    found = [run async for run in paged(store, RunQuery(key="the one", look=10, cursor=page.next_cursor))]
    assert [run.id for run in found] == [old]
    page = await store.runs(RunQuery(key="the one", look=100, count_to=100))
    assert (page.total, page.is_least, page.next_cursor, page.looked_to) == (1, False, None, None)


async def test_counting_stops_where_it_is_told_to(store: Store):
    task = await store.create_task(job())
    run_ids = (await publish_many(store, task, 12))[::-1]
    page = await store.runs(RunQuery(page_size=3, count_to=5))
    assert ([run.id for run in page.items], page.total, page.is_least) == (run_ids[:3], 5, True)
    page = await store.runs(RunQuery(page_size=3, page=3, count_to=5))
    assert ([run.id for run in page.items], page.total, page.is_least) == (run_ids[6:9], 9, True)
    page = await store.runs(RunQuery(page_size=3, count_to=12))
    assert (page.total, page.is_least) == (12, False)
    assert (await store.runs(RunQuery(page_size=3))).total == 12


async def test_the_newest_runs_of_many_tasks_are_those_of_each(store: Store, clock: ManualClock):
    tasks = list((await live_through(store, clock)).values())
    idle = await store.create_task(job("idle"))
    for count in (1, 4, 1000):
        found = await store.newest_runs([*(task.id for task in tasks), idle.id], count)
        assert list(found) == [*(task.id for task in tasks), idle.id]
        for task in tasks:
            page = await store.runs(RunQuery(task_id=task.id, page_size=count))
            assert found[task.id] == page.items, (task.name, count)
        assert found[idle.id] == []
    assert await store.newest_runs([], 5) == {}
