"""Lists leave out what is long, and say so; each item by itself is whole."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from conformance.store.builders import (
    asynchronous,
    at,
    claim_due,
    claim_one,
    done,
    finish,
    job,
    park,
    publish,
    retry,
    run_of,
    started,
)
from noonbell.clock import ManualClock
from noonbell.model.request import MOST_LISTED, IncomingCallback, RunQuery, share_of
from noonbell.model.run import RunBodies, RunId
from noonbell.model.task import Task
from noonbell.ports import Store

LONG = "é" * (MOST_LISTED // 4 + 1)
"""Too long for a list of two."""
SIZE = len(LONG.encode())


async def ended(store: Store, result: object) -> RunId:
    run_id = await publish(store, await _task(store))
    await done(store, finish(await claim_one(store), result=result))
    return run_id


async def _task(store: Store) -> Task:
    return await store.task_named("j") or await store.create_task(job())


@pytest.mark.parametrize("count", [1, 3])
async def test_a_long_result_is_left_out_of_a_page_of_several_runs(store: Store, count: int):
    long = await ended(store, LONG)
    short = [await ended(store, {"n": number}) for number in range(count - 1)]
    page = await store.runs(RunQuery(sort="id"))
    first, *rest = page.items
    if count == 1:
        assert (first.id, first.result, first.omitted) == (long, LONG, UNSET)
    else:
        assert (first.id, first.result, first.omitted) == (long, None, {"result": SIZE + 2})
    assert [(run.id, run.result, run.omitted) for run in rest] == [
        (run_id, {"n": number}, UNSET) for number, run_id in enumerate(short)
    ]
    assert (await run_of(store, long)).result == LONG
    (newest,) = (await store.newest_runs([first.task_id], 5)).values()
    assert newest == page.items[::-1]


async def test_long_details_of_an_error_are_left_out_too(store: Store):
    runs = [await ended(store, None) for _ in range(2)]
    third = await publish(store, await _task(store))
    await done(store, finish(await claim_one(store), error_details={"kind": "x", "text": LONG}))
    (found, *rest) = (await store.runs(RunQuery())).items
    assert (found.id, found.error_details, list(found.omitted or ())) == (third, None, ["error_details"])
    assert [run.omitted for run in rest] == [UNSET] * len(runs)


async def test_attempts_come_in_pages_and_one_alone_is_whole(store: Store, clock: ManualClock):
    run_id = await publish(store, await store.create_task(job(retry_policy={"max_retries": 9})))
    for number in range(4):
        clock.set(at(10 * number))
        (lease,) = await claim_due(store)
        kept = RunBodies(
            request_headers={"a": "b"}, request_body=f"{number}", response_body=LONG if number == 1 else "ok"
        )
        await done(store, retry(lease, 1, result=LONG if number == 2 else number, bodies=kept))
    clock.set(at(60))
    (lease,) = await claim_due(store)
    await done(store, finish(lease, result="end"))
    found = await store.attempts(run_id, bodies=True)
    assert [attempt.attempt for attempt in found] == [1, 2, 3, 4, 5]
    assert [attempt.result for attempt in found] == [0, 1, None, 3, "end"]
    assert [attempt.omitted for attempt in found] == [UNSET, UNSET, {"result": SIZE + 2}, UNSET, UNSET]
    bodies = [attempt.bodies for attempt in found if attempt.bodies is not None]
    assert [(each.request_headers, each.request_body) for each in bodies] == [({"a": "b"}, f"{n}") for n in range(4)]
    assert [each.response_body for each in bodies] == ["ok", None, "ok", "ok"]
    assert [each.omitted for each in bodies] == [UNSET, {"response_body": SIZE}, UNSET, UNSET]

    assert [attempt.attempt for attempt in await store.attempts(run_id, 1, 2)] == [2, 3]
    assert [attempt.attempt for attempt in await store.attempts(run_id, 3)] == [4, 5]
    assert await store.attempts(run_id, 5) == []
    (second,) = await store.attempts(run_id, 1, 1, bodies=True)
    (third,) = await store.attempts(run_id, 2, 1)
    assert second.bodies is not None
    assert (second.bodies.response_body, second.bodies.omitted) == (LONG, UNSET)
    assert (third.result, third.omitted, third.bodies) == (LONG, UNSET, None)


async def test_callbacks_come_in_pages_and_one_alone_is_whole(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, park(lease))
    for body in ("1", LONG, "3", "4"):
        given = IncomingCallback(token=lease.callback_token, body=body, headers={"x": "y"})
        await store.callback(given, lambda subject: "not now")
    found = await store.callbacks(lease.run_id)
    assert [each.body for each in found] == ["4", "3", "", "1"]
    assert [each.omitted for each in found] == [UNSET, UNSET, {"body": SIZE}, UNSET]
    assert [each.headers for each in found] == [{"x": "y"}] * 4
    (alone,) = await store.callbacks(lease.run_id, 1, before=found[2].id + 1)
    assert (alone.id, alone.body, alone.omitted) == (found[2].id, LONG, UNSET)
    assert [each.id for each in await store.callbacks(lease.run_id, 2, before=found[0].id)] == [
        found[1].id,
        found[2].id,
    ]


def test_the_fields_of_a_list_share_what_it_may_have():
    assert share_of(1) >= 2**30
    assert all(share_of(count) * count <= MOST_LISTED for count in (2, 20, 1_000))
