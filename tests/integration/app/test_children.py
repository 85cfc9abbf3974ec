"""Jobs that spawn and gather, in the event loop, in threads and in sandboxes; what they return, and what fails them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noonbell import App, Context, Fail, RunFailed
from noonbell.errors import InvalidArgument
from noonbell.testing import trial

app = App("children")
calls: list[int] = []
turn = iter(range(1_000_000))


@app.job(retries=0)
def double(n: int) -> int:
    calls.append(n)
    if n < 0:
        raise Fail("n is negative")
    return 2 * n


@app.job
async def in_the_loop(ctx: Context, count: int) -> tuple[int, int]:
    children = await ctx.spawn_many(double.request(n=n) for n in range(count))
    last = await ctx.spawn(double.request(n=100))
    total = sum(await ctx.gather(*children))
    (alone,) = await ctx.gather(last)
    second = await ctx.spawn(double.request(n=total))
    (more,) = await ctx.gather(second)
    return alone, more


@app.job
def in_a_thread(ctx: Context, count: int) -> int:
    children = ctx.spawn_many_sync(double.request(n=n) for n in range(count))
    alone = ctx.spawn_sync(double.request(n=50))
    return sum(ctx.gather_sync(*children, alone))


@app.job(sandbox=True)
def in_a_sandbox(ctx: Context, count: int) -> int:
    children = ctx.spawn_many_sync(double.request(n=n) for n in range(count))
    return sum(ctx.gather_sync(*children))


@app.job(sandbox=True)
async def in_a_sandboxed_loop(ctx: Context, count: int) -> int:
    children = await ctx.spawn_many(double.request(n=n) for n in range(count))
    return sum(await ctx.gather(*children))


@app.job(retries=0)
async def with_a_failure(ctx: Context) -> str:
    good, bad = await ctx.spawn(double.request(n=1)), await ctx.spawn(double.request(n=-1))
    try:
        await ctx.gather(good, bad)
    except RunFailed as error:
        return f"{error.status}: {error.message}, run {error.run_id == bad.run_id}"
    return "no failure"


@app.job(retries=0)
async def restless(ctx: Context) -> int:
    child = await ctx.spawn(double.request(n=next(turn)))
    return (await ctx.gather(child))[0]


@app.job(delivery="at_most_once")
async def only_once(ctx: Context) -> None:
    await ctx.spawn(double.request(n=1))


@app.job(retries=0)
async def stubborn(ctx: Context) -> str:
    child = await ctx.spawn(double.request(n=7))
    try:
        return str(await ctx.gather(child))
    except BaseException:
        return "went on"


@app.job(retries=0)
async def childless(ctx: Context) -> int:
    return len(await ctx.gather(*await ctx.spawn_many([double.request(n=n) for n in ()])))


@app.job(retries=0)
async def keyed(ctx: Context) -> None:
    await ctx.spawn(double.request(n=1, key="k"))


@app.job(retries=0)
async def blocking(ctx: Context) -> None:
    ctx.spawn_sync(double.request(n=1))


@pytest.mark.parametrize(
    ("job", "result", "made"),
    [(in_the_loop, (200, 40), 7), (in_a_thread, 120, 6), (in_a_sandbox, 20, 5), (in_a_sandboxed_loop, 20, 5)],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_a_job_gets_the_results_of_its_children_each_carried_out_once(
    job: Any, result: Any, made: int, sqlite_url: str
):
    calls.clear()
    async with app.running(sqlite_url, concurrency=1):
        published = await job.publish(count=5)
        assert await published.result(60) == result
        run = await published.run()
    assert (len(calls), run.retry_count, run.lost_count) == (made, 0, 0)
    assert run.attempt == (3 if job is in_the_loop else 2)


async def test_gathering_children_of_which_one_failed_raises():
    async with trial(app) as running:
        published = await with_a_failure.publish()
        await running.run_until_idle()
        assert await published.result(1) == "FAILED: n is negative, run True"


async def test_another_payload_at_a_position_fails_the_run_in_words():
    async with trial(app) as running:
        published = await restless.publish()
        await running.run_until_idle()
        run = await published.run()
        assert (run.status, run.error_details) == ("FAILED", {"kind": "fail"})
        assert "spawn 1 is double now, with another payload than before" in (run.error_message or "")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (only_once, "at_most_once cannot spawn"),
        (keyed, "key: cannot be used for what a job spawns"),
        (blocking, "await"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_what_cannot_be_spawned_fails_the_run_in_words(job: Any, words: str):
    async with trial(app) as running:
        published = await job.publish()
        await running.run_until_idle()
        run = await published.run()
        assert run.status == "FAILED"
        assert words in (run.error_message or "")


async def test_gathering_nothing_waits_for_nothing():
    async with trial(app) as running:
        published = await childless.publish()
        await running.run_until_idle()
        assert ((await published.run()).attempt, await published.result(1)) == (1, 0)


async def test_a_handler_that_catches_everything_is_parked_all_the_same():
    async with trial(app) as running:
        published = await stubborn.publish()
        await running.run_until_idle()
        assert (await published.run()).attempt == 2
        assert await published.result(1) == "(14,)"


async def test_a_canceled_job_takes_its_children_with_it(sqlite_url: str):
    held = App("held")
    going = asyncio.Event()

    @held.job
    async def slow() -> None:
        going.set()
        await asyncio.Event().wait()

    @held.job
    async def parent(ctx: Context) -> None:
        await ctx.gather(*await ctx.spawn_many([slow.request(), slow.request()]))

    async with held.running(sqlite_url, concurrency=1) as running:
        published = await parent.publish()
        await asyncio.wait_for(going.wait(), 60)
        assert (await published.run()).status == "RUNNING"
        assert await published.cancel()
        with pytest.raises(RunFailed, match="CANCELED"):
            await published.result(60)
        children = await running.connection._services.runs.page(_children_of(published.run_id))
        assert {run.status for run in children.items} == {"CANCELED"}


def _children_of(run_id: int) -> Any:
    from noonbell.model.request import RunQuery
    from noonbell.model.run import RunId

    return RunQuery(parent_id=RunId(run_id))


def test_a_request_says_what_a_child_cannot_have():
    with pytest.raises(InvalidArgument, match="transaction"):
        double.request(n=1, transaction=object()).as_child(0)
