"""How often a target is called, and what the run says of it: a worker, a store and a target on the wire."""

from __future__ import annotations

import contextlib

import pytest

from conformance.store.builders import http as http_task
from conformance.store.builders import publish, run_of
from integration.targets.sink import http, listening
from noonbell.model.run import RunStatus
from noonbell.model.task import RetryPolicy
from noonbell.service.runs import shown_attempt
from noonbell.stores.sqlite import MemoryStore
from unit.engine.make import worker_on


@pytest.fixture
async def store():
    async with contextlib.AsyncExitStack() as cleanup:
        store = MemoryStore()
        await store.open()
        cleanup.push_async_callback(store.close)
        yield store


async def carry_out(store, target, **fields):
    task = await store.create_task(http_task(f"t{fields}", **fields))
    run_id = await publish(store, task)
    await worker_on(store, target).run_until_idle()
    return await run_of(store, run_id), [shown_attempt(one) for one in await store.attempts(run_id)]


async def dies_while_it_works(asked, line):
    """Answers warm-ups; everything else it reads, and resets the connection over it."""
    if asked.path == "/warm":
        await line.say(http(200))
    else:
        line.writer.transport.abort()


async def test_a_target_that_dies_while_it_works_gets_one_request_for_each_attempt(store, target):
    policy = RetryPolicy(max_retries=1, initial_delay=0, retry_on=("network",))
    async with listening(dies_while_it_works) as sink:
        await carry_out(store, target, target_url=sink.url("/warm"))  # leaves a connection
        run, attempts = await carry_out(
            store, target, target_url=sink.url("/work"), http_method="POST", retry_policy=policy
        )
    assert (run.status, run.attempt, run.retry_count) == (RunStatus.FAILED, 2, 1)
    assert [(one["error_details"]["kind"], one["resent"]) for one in attempts] == [("connection_lost", False)] * 2
    assert [asked.headers["x-noonbell-attempt"] for asked in sink.asked if asked.path == "/work"] == ["1", "2"]


async def test_an_attempt_says_that_its_request_was_sent_twice(store, target):
    async def dies_once(asked, line):
        if asked.path == "/read" and line.sink.connections == 1:
            line.writer.transport.abort()
        else:
            await line.say(http(200, b"said"))

    async with listening(dies_once) as sink:
        _, (warm,) = await carry_out(store, target, target_url=sink.url("/warm"))
        run, (attempt,) = await carry_out(store, target, target_url=sink.url("/read"))
    assert (run.status, run.attempt, run.error_details) == (RunStatus.SUCCESS, 1, {"resent": True})
    assert (warm["resent"], attempt["resent"]) == (False, True)
    assert len([asked for asked in sink.asked if asked.path == "/read"]) == 2


async def test_local_retries_reach_the_target_under_the_numbers_that_the_run_shows(store, target):
    async def slow_to_wake(_asked, line):
        await line.say(http(503 if len(line.sink.asked) < 3 else 200, b"%d" % len(line.sink.asked)))

    policy = RetryPolicy(max_retries=3, initial_delay=0, local=True)
    async with listening(slow_to_wake) as sink:
        run, attempts = await carry_out(store, target, target_url=sink.url(), http_method="POST", retry_policy=policy)
    assert (run.status, run.attempt, run.retry_count) == (RunStatus.SUCCESS, 3, 2)
    assert [(one["attempt"], one["status"], one["response_code"]) for one in attempts] == [
        (1, "FAILED", 503),
        (2, "FAILED", 503),
        (3, "SUCCESS", 200),
    ]
    assert [asked.headers["x-noonbell-attempt"] for asked in sink.asked] == ["1", "2", "3"]
    assert len({asked.headers["idempotency-key"] for asked in sink.asked}) == 1
    assert (await store.bodies(run.id, 2)).response_body == "2"
