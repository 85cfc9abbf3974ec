"""A plain function sees in a trial what it sees on a worker, whether its runs are carried out in stretches or one by one."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell import App, Context
from noonbell.clock import ManualClock, from_datetime
from noonbell.model.run import RunStatus
from noonbell.service import Services
from noonbell.service.runs import LogList
from noonbell.testing import trial

NOON = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_it_runs_in_a_thread_of_the_handlers_without_an_event_loop(fast: bool):
    app, seen = App(), []
    here = sqlite3.connect(":memory:")

    @app.job(every="2s")
    def tick() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        with pytest.raises(ValueError, match="main thread"):
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        with pytest.raises(sqlite3.ProgrammingError, match="thread"):
            here.execute("select 1")
        seen.append((threading.current_thread().name, asyncio.run(anything())))

    async def anything() -> int:
        await asyncio.sleep(0)
        return 7

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(6)
        assert [run.status for run in await running.runs(tick)] == [RunStatus.SUCCESS] * 3
    assert seen == [("noonbell handler", 7)] * 3


async def test_a_variable_that_it_sets_is_not_there_in_the_next_run_and_that_of_the_test_is(fast: bool):
    app, seen = App(), []

    @app.job(every="2s")
    def sets() -> None:
        seen.append(variable.get())
        variable.set(7)

    token = variable.set(1)
    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(10)
    assert (seen, variable.get()) == ([1] * 5, 1)
    variable.reset(token)


async def test_one_that_blocks_is_ended_by_its_timeout_and_sees_that_it_is_no_longer_wanted(fast: bool):
    app, seen, go_on = App(), [], threading.Event()

    @app.job(every="2s", timeout_seconds=0.2, retry_policy={"max_retries": 0})
    def blocks(ctx: Context) -> None:
        while not ctx.cancelled and not go_on.is_set():
            time.sleep(0.005)
        seen.append(ctx.cancelled)

    async with trial(app, at=NOON, fast=fast) as running:
        began = time.monotonic()
        await running.advance(3)
        assert 0.15 < time.monotonic() - began < 10
        (run,) = await running.runs(blocks)
        assert run.status is RunStatus.TIMEOUT
        go_on.set()
        await eventually(lambda: seen == [True])


@pytest.mark.parametrize("seconds", [0.003, 0.05], ids=["before the loop looks", "after it"])
async def test_one_that_is_done_when_its_time_was_over_was_late(fast: bool, seconds: float):
    app = App()

    @app.job(every="2s", timeout_seconds=0.001, retry_policy={"max_retries": 0})
    def late() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(3)
        assert [run.status for run in await running.runs(late)] == [RunStatus.TIMEOUT]


async def test_more_time_is_more_time(fast: bool):
    app, given = App(), []

    @app.job(every="2s", timeout_seconds=0.1)
    def extends(ctx: Context) -> None:
        given.append(bool(ctx.extend(60)))
        time.sleep(0.3)

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(3)
        assert [run.status for run in await running.runs(extends)] == [RunStatus.SUCCESS]
    assert given == [True]


async def test_what_it_waits_for_in_the_loop_of_the_test_happens(fast: bool):
    app, answers, loop = App(), [], asyncio.get_running_loop()

    async def answer(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    @app.job(every="2s")
    def asks() -> None:
        answers.append(asyncio.run_coroutine_threadsafe(answer(len(answers)), loop).result(10))

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(20)
        assert len(await running.runs(asks)) == 10
    assert answers == list(range(10))


async def test_what_a_timer_of_the_loop_does_happens_while_it_waits(fast: bool):
    app, is_there = App(), threading.Event()

    @app.job(every="2s")
    def waits() -> bool:
        return is_there.wait(10)

    async with trial(app, at=NOON, fast=fast) as running:
        asyncio.get_running_loop().call_later(0.05, is_there.set)
        await running.advance(4)
        assert [run.result for run in await running.runs(waits)] == [True, True]


async def test_what_it_starts_in_the_loop_happens_at_its_moment(fast: bool):
    app, moments, loop = App(), [], asyncio.get_running_loop()
    now: list[Callable[[], datetime]] = []

    @app.job(every="2s")
    def starts() -> None:
        loop.call_soon_threadsafe(lambda: moments.append(now[0]()))

    async with trial(app, at=NOON, fast=fast) as running:
        now.append(lambda: running.now)
        await running.advance(20)
    assert moments == [NOON + timedelta(seconds=2 * number) for number in range(1, 11)]


async def test_what_it_raises_is_a_failure_even_if_it_would_end_the_process(fast: bool):
    app, raised = App(), iter([SystemExit(3), KeyboardInterrupt(), StopIteration(), ValueError("no")])

    @app.job(every="2s", retry_policy={"max_retries": 0})
    def raises() -> None:
        if (error := next(raised, None)) is not None:
            raise error

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(10)
        runs = await running.runs(raises)
    assert [run.status for run in runs] == [*[RunStatus.FAILED] * 4, RunStatus.SUCCESS]
    types = [run.error_details["type"] for run in runs if run.error_details is not None]
    assert types == ["SystemExit", "KeyboardInterrupt", "StopIteration", "ValueError"]


async def test_it_spawns_gathers_logs_and_publishes(fast: bool):
    app = App()

    @app.job
    def part(number: int) -> int:
        return number * number

    @app.job
    def other() -> None: ...

    @app.job(every="2s")
    def whole(ctx: Context) -> int:
        ctx.log("here")
        ctx.progress(1, 2)
        children = [ctx.spawn_sync(part.request(number=number)) for number in range(3)]
        total = sum(ctx.gather_sync(*children))
        other.publish_sync()
        return total

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(9)
        runs = await running.runs(whole)
        assert [(run.status, run.result) for run in runs] == [(RunStatus.SUCCESS, 5)] * 4
        assert len(await running.runs(other)) == 4
        logs = [await running.services.runs.log(run.id, LogList()) for run in runs]
    assert [len(lines) for lines in logs] == [2] * 4  # once for each attempt


async def test_it_looks_from_an_event_loop_of_its_own(fast: bool):
    app, found = App(), []
    services: list[Services] = []

    @app.job(every="2s")
    def looks(ctx: Context) -> None:
        found.append(asyncio.run(services[0].runs.get(ctx.run_id)).status)

    async with trial(app, at=NOON, fast=fast) as running:
        services.append(running.services)
        await running.advance(10)
        assert [run.status for run in await running.runs(looks)] == [RunStatus.SUCCESS] * 5
    assert found == [RunStatus.RUNNING] * 5


async def test_time_that_it_lets_pass_has_passed(fast: bool):
    app, seen = App(), []
    clocks: list[ManualClock] = []

    @app.job(every="2s", misfire_policy="SKIP", misfire_grace_seconds=0)
    def lasts(ctx: Context) -> None:
        seen.append(ctx.scheduled_time)
        clocks[0].advance(5)

    async with trial(app, at=NOON, fast=fast) as running:
        clocks.append(running.clock)
        await running.advance(20)
        ends = [run.end_time for run in await running.runs(lasts) if run.status is RunStatus.SUCCESS]
    assert seen == [NOON + timedelta(seconds=2 + 6 * number) for number in range(len(seen))]
    assert ends == [from_datetime(moment + timedelta(seconds=5)) for moment in seen]


async def test_functions_of_one_moment_meet(fast: bool):
    app, met = App(), threading.Barrier(2, timeout=10)

    @app.job(every="2s")
    def one() -> None:
        met.wait()

    @app.job(every="2s")
    def two() -> None:
        met.wait()

    async with trial(app, at=NOON, fast=fast) as running:
        await running.advance(6)
        assert [run.status for run in await running.runs()] == [RunStatus.SUCCESS] * 6


async def test_a_test_that_looks_while_it_waits_finds_it_running(fast: bool):
    app, began, go_on = App(), threading.Event(), threading.Event()

    @app.job(every="2s")
    def slow() -> None:
        began.set()
        go_on.wait(10)

    async with trial(app, at=NOON, fast=fast) as running:
        advancing = asyncio.get_running_loop().create_task(running.advance(6))
        await eventually(began.is_set)
        (run,) = await running.runs(slow)
        assert run.status is RunStatus.RUNNING
        go_on.set()
        await advancing
        assert [run.status for run in await running.runs(slow)] == [RunStatus.SUCCESS] * 3


async def test_a_test_that_gives_up_is_not_held_by_one_that_waits(fast: bool):
    app, go_on, ended = App(), threading.Event(), threading.Event()

    @app.job(every="2s")
    def slow() -> None:
        go_on.wait(10)
        ended.set()

    async with trial(app, at=NOON, fast=fast) as running:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running.advance(6), 0.2)
        assert not ended.is_set()
        go_on.set()
        await eventually(ended.is_set)


async def test_the_loop_of_the_test_turns_now_and_then_while_a_day_passes():
    app, turns = App(), 0

    @app.job(every="2s")
    def tick() -> None: ...

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async with trial(app, at=NOON) as running:
        turning = asyncio.get_running_loop().create_task(turn())
        await running.advance(timedelta(hours=4))
        turning.cancel()
        assert len(await running.runs(tick)) == 7_200
    assert turns > 5


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - a thread signals nothing to the loop
            await asyncio.sleep(0.002)
