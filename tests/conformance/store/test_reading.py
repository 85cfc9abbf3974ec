"""Log, progress, and lists of runs."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.store.builders import (
    S,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    done,
    every,
    fail,
    finish,
    finished,
    http,
    job,
    lose,
    park,
    publish,
    publish_many,
    retry,
    run_of,
    started,
)
from noonbell.clock import Instant, ManualClock
from noonbell.errors import InvalidArgument
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import Origin, RunId
from noonbell.model.task import OverlapAction
from noonbell.ports import Store


async def found(store: Store, **query: Any) -> list[RunId]:
    """The ids of the runs that match, oldest first; the total must agree."""
    fields: dict[str, Any] = {"sort": "id", "page_size": 100}
    page = await store.runs(RunQuery(**(fields | query)))
    assert page.total == len(page.items)
    return [run.id for run in page.items]


# ---- log and progress


async def test_lines_are_appended_in_order(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    assert await store.log(lease.run_id, lease.token, [("info", "one"), ("warning", "zwei 🔔\nlines")]) is True
    clock.advance(1)
    assert await store.log(lease.run_id, lease.token, [("error", "three")]) is True
    lines = await store.log_lines(lease.run_id)
    assert [(line.level, line.message, line.at) for line in lines] == [
        ("info", "one", at(0)),
        ("warning", "zwei 🔔\nlines", at(0)),
        ("error", "three", at(1)),
    ]
    assert {line.run_id for line in lines} == {lease.run_id}
    assert [line.seq for line in lines] == sorted({line.seq for line in lines})
    assert await store.log_lines(lease.run_id, after=lines[0].seq) == lines[1:]
    assert await store.log_lines(lease.run_id, limit=2) == lines[:2]
    assert await store.log_lines(lease.run_id, limit=2, newest=True) == lines[1:]
    assert await store.log_lines(lease.run_id, levels=("warning", "error")) == lines[1:]
    assert await store.log_lines(lease.run_id, text="ZWEI") == [lines[1]]
    assert await store.log_lines(lease.run_id, text="%") == []
    assert await store.log_lines(lease.run_id, levels=("info",), text="three", newest=True) == []


async def test_lines_of_several_attempts_stand_in_one_log(store: Store):
    lease = await started(store, await store.create_task(job()))
    await store.log(lease.run_id, lease.token, [("info", "first")])
    await done(store, retry(lease, delay=0))
    (again,) = await claim_due(store)
    await store.log(again.run_id, again.token, [("info", "second")])
    await done(store, finish(again))
    assert [line.message for line in await store.log_lines(lease.run_id)] == ["first", "second"]


async def test_with_an_old_token_nothing_is_logged_and_no_progress_made(store: Store, clock: ManualClock):
    lease = await started(store, await store.create_task(job()))
    await store.progress(lease.run_id, lease.token, {"current": 1})
    clock.advance(60)
    await done(store, lose(lease))

    async def refused(run_id: RunId, token: int) -> bool:
        logged = await store.log(run_id, token, [("info", "late")])
        return not logged and not await store.progress(run_id, token, {"current": 99})

    assert await refused(lease.run_id, lease.token)
    current = await claim_one(store, "w2")
    assert await refused(lease.run_id, lease.token)
    assert await refused(lease.run_id, current.token + 1)
    await done(store, finish(current))
    assert await refused(lease.run_id, current.token)
    assert await refused(RunId(4711), 1)
    assert await store.log_lines(lease.run_id) == []
    assert (await run_of(store, lease.run_id)).progress in (None, {"current": 1})


async def test_the_newest_progress_replaces_the_last(store: Store):
    lease = await started(store, await store.create_task(job()))
    assert (await run_of(store, lease.run_id)).progress is None
    for step in range(3):
        assert await store.progress(lease.run_id, lease.token, {"current": step, "total": 3, "message": "…"}) is True
        assert (await run_of(store, lease.run_id)).progress == {"current": step, "total": 3, "message": "…"}
    await done(store, finish(lease))
    assert (await run_of(store, lease.run_id)).progress == {"current": 2, "total": 3, "message": "…"}


# ---- lists


async def test_an_unknown_run_is_none(store: Store):
    assert await store.run(RunId(4711)) is None
    assert await store.log_lines(RunId(4711)) == []
    assert (await store.runs(RunQuery())).items == []


async def test_a_run_in_a_list_is_the_run_itself(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(max_concurrency=None))
    leases = [await started(store, task, key=f"k{n}") for n in range(4)]
    await done(store, finish(leases[0], result=[1]))
    await done(store, retry(leases[1], delay=9))
    await done(store, park(leases[2]))
    await store.progress(leases[3].run_id, leases[3].token, {"current": 1})
    await publish(store, task, delay_seconds=5)
    page = await store.runs(RunQuery())
    assert len(page.items) == 5
    for run in page.items:
        assert await store.run(run.id) == run


async def test_runs_come_newest_first(store: Store):
    task = await store.create_task(job())
    run_ids = await publish_many(store, task, 3)
    assert [run.id for run in (await store.runs(RunQuery())).items] == run_ids[::-1]
    assert [run.id for run in (await store.runs(RunQuery(sort="id"))).items] == run_ids


async def test_runs_are_found_by_task_queue_worker_key_and_origin(store: Store):
    a = await store.create_task(job("a"))
    b = await store.create_task(job("b", queue="slow"))
    one = (await started(store, a, "w1", key="k")).run_id
    two = (await started(store, a, "w2", origin=Origin.TRIGGER)).run_id
    three = await publish(store, b, key="k")
    assert await found(store) == [one, two, three]
    assert await found(store, task_id=a.id) == [one, two]
    assert await found(store, queue="slow") == [three]
    assert await found(store, worker_id="w2") == [two]
    assert await found(store, key="k") == [one, three]
    assert await found(store, key="k", task_id=b.id) == [three]
    assert await found(store, origin=Origin.TRIGGER) == [two]
    assert await found(store, key="none") == []


async def test_a_settled_run_is_found_by_the_worker_that_had_it(store: Store):
    task = await store.create_task(job())
    lease = await started(store, task, "w7")
    await done(store, finish(lease))
    assert await found(store, worker_id="w7") == [lease.run_id]


async def test_runs_are_found_by_every_status(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(max_concurrency=None))
    skipping = await store.create_task(job("skips", schedule=every(1), overlap_action=OverlapAction.SKIP, queue="s"))
    by_status: dict[S, RunId] = {}
    for status in (S.SUCCESS, S.CALLBACK_SUCCESS, S.FAILED, S.TIMEOUT):
        by_status[status] = await finished(store, task, status)
    lease = await started(store, task)
    await done(store, retry(lease, delay=3600))
    by_status[S.RETRYING] = lease.run_id
    lease = await started(store, task)
    await done(store, park(lease))
    by_status[S.CALLBACK_PENDING] = lease.run_id
    by_status[S.RUNNING] = (await started(store, task)).run_id
    by_status[S.CANCELED] = await publish(store, task)
    await store.cancel([by_status[S.CANCELED]])
    by_status[S.SCHEDULED] = await publish(store, task)
    for status, run_id in by_status.items():
        assert await found(store, task_id=task.id, status=(status,)) == [run_id], status
    both = await found(store, task_id=task.id, status=(S.RUNNING, S.SUCCESS))
    assert sorted(both) == sorted([by_status[S.RUNNING], by_status[S.SUCCESS]])
    clock.advance(2)
    await store.plan(10)
    assert len(await found(store, task_id=skipping.id, status=(S.SKIPPED,))) == 1


async def test_runs_are_found_by_their_tasks_label(store: Store):
    ops = await store.create_task(job("ops", labels={"team": "ops"}))
    dev = await store.create_task(job("dev", labels={"team": "dev"}))
    one, two = await publish(store, ops), await publish(store, dev)
    assert await found(store, label=("team", "ops")) == [one]
    assert await found(store, label=("team", "dev")) == [two]
    assert await found(store, label=("team", "o")) == []


async def test_runs_are_found_by_a_part_of_name_or_error_taken_literally(store: Store):
    backup = await store.create_task(job("nightly backup"))
    other = await store.create_task(job("other"))
    one = await publish(store, backup)
    await store.cancel([one])
    lease = await started(store, other)
    await done(store, fail(lease, error_message="disk is 100% full_"))
    assert await found(store, text="ly back") == [one]
    assert await found(store, text="100% full_") == [lease.run_id]
    assert await found(store, text="%") == [lease.run_id]
    assert await found(store, text="_") == [lease.run_id]
    assert await found(store, text="nothing") == []


async def test_runs_are_found_by_their_time(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.advance(40)
    await store.plan(10)
    ten, twenty, thirty, forty = await found(store, task_id=task.id)
    assert await found(store, since=at(20)) == [twenty, thirty, forty]
    assert await found(store, since=at(20.5)) == [thirty, forty]
    assert await found(store, until=at(29)) == [ten, twenty]
    assert await found(store, since=at(15), until=at(35)) == [twenty, thirty]
    assert await found(store, task_id=task.id, since=at(35), status=(S.SCHEDULED,)) == [forty]


async def test_pages_are_numbered_and_counted(store: Store):
    task = await store.create_task(job())
    run_ids = (await publish_many(store, task, 7))[::-1]
    pages = [await store.runs(RunQuery(task_id=task.id, page=number, page_size=3)) for number in (1, 2, 3, 4)]
    assert [[run.id for run in page.items] for page in pages] == [run_ids[:3], run_ids[3:6], run_ids[6:], []]
    assert [page.total for page in pages] == [7] * 4


@pytest.mark.parametrize("sort", ["-id", "id"])
async def test_a_cursor_is_stable_under_inserts(store: Store, sort: str):
    task = await store.create_task(job())
    other = await store.create_task(job("other"))
    run_ids = await publish_many(store, task, 7)
    page = await store.runs(RunQuery(task_id=task.id, page_size=3, sort=sort))
    seen = [run.id for run in page.items]
    assert page.next_cursor is not None
    await publish_many(store, other, 2)
    added = await publish_many(store, task, 2)
    while page.next_cursor:
        page = await store.runs(RunQuery(task_id=task.id, page_size=3, sort=sort, cursor=page.next_cursor))
        assert page.total is None
        seen += [run.id for run in page.items]
    assert seen == (run_ids + added if sort == "id" else run_ids[::-1])


async def test_the_last_page_has_no_next_cursor(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 3)
    assert (await store.runs(RunQuery(page_size=3))).next_cursor is None
    page = await store.runs(RunQuery(page_size=2))
    assert page.next_cursor is not None
    assert (await store.runs(RunQuery(page_size=2, cursor=page.next_cursor))).next_cursor is None


async def test_counts_tell_how_much_there_is(store: Store):
    task = await store.create_task(http())
    await publish_many(store, task, 3)
    await claim(store)
    counts = await store.counts()
    assert {type(count) for count in counts.values()} == {int}
    assert any(count >= 1 for count in counts.values())


async def test_the_stores_clock_is_the_one_it_was_built_with(store: Store, clock: ManualClock):
    assert await store.now() == clock.now() == at(0)
    clock.advance(1.000_001)
    assert await store.now() == Instant(at(0) + 1_000_001)


@pytest.mark.parametrize(
    "cursor", ["x", "!!!", "bnVsbA", "WzEsMiwzXQ", "W10", "WyJpZCIsImEiLDFd", "WyJpZCIsMSwtMV0", "WyJuYW1lIiwxLDFd"]
)
async def test_a_cursor_that_was_not_handed_out_is_refused(store: Store, cursor: str):
    with pytest.raises(InvalidArgument):
        await store.runs(RunQuery(cursor=cursor))
    with pytest.raises(InvalidArgument):
        await store.tasks(TaskQuery(cursor=cursor))
