"""The fast path of a trial writes what the transitions of the store would have written, whatever the tasks and their handlers do."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, reject
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noonbell import App, Context, Fail
from noonbell.errors import InvalidArgument
from noonbell.model.run import RunStatus
from noonbell.service import Services
from noonbell.testing import trial
from noonbell.testing.trial import Trial
from services.size import size

NOON = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)

VARYING = (
    *("counters", "schema_log", "schema_steps", "installation", "workers"),
    *("events", "rollups", "rollup_deltas", "rollup_state", "queue_depths"),
)
"""Tables with random ids, times of the machine, or in another grouping: events and figures are compared by what they say."""
RANDOM = {"uid", "idempotency_key", "token"}


def rows_of(running: Trial) -> dict[str, list[dict[str, Any]]]:
    """Every table, with which run it is in place of ids of runs. Threads publish in any order: what a run returned tells them apart."""
    database = running.store._connection._db
    cursor = database.execute("select id from runs order by task_id, scheduled_time, result, id")
    numbers = {row[0]: f"run {number}" for number, row in enumerate(cursor, 1)}
    found = {}
    for (table,) in database.execute("select name from sqlite_master where type = 'table' order by name").fetchall():
        if table in VARYING or table.startswith("sqlite_"):
            continue
        cursor = database.execute(f"select * from {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        rows = [
            {
                k: _in_json(v, numbers) if k == "error_details" else _numbered(v, numbers)
                for k, v in row.items()
                if k not in RANDOM
            }
            for row in rows
        ]
        found[table] = sorted(rows, key=repr)
    events = []
    for at, kind, data in database.execute("select at, type, data from events order by id"):
        told = json.loads(data)
        of_runs = told if kind.startswith("run.") and isinstance(told, list) else [told]
        events += [{"at": at, "type": kind, "said": repr(_numbered(each, numbers))} for each in of_runs]
    found["events"] = sorted(events, key=repr)
    return found


def _in_json(text: str | None, numbers: dict[int, str]) -> Any:
    return None if text is None else _numbered(json.loads(text), numbers)


def _numbered(value: Any, numbers: dict[int, str]) -> Any:
    if isinstance(value, list):
        return [_numbered(each, numbers) for each in value]
    if isinstance(value, dict):
        return {name: _numbered(each, numbers) for name, each in value.items() if name not in RANDOM}
    return numbers.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value


# What a handler does at each call

DEEDS = (
    *("nothing", "return", "wait", "log", "fail", "give up", "publish", "look", "set a variable", "start a task"),
    *("exit", "run a loop", "report", "extend", "be slow"),
)
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


def app_of(
    plans: list[dict[str, Any]], seen: list[Any], services: list[Services], times: list[Callable[[], datetime]]
) -> App:
    """Within an event loop. `services` and `times` are filled when the trial has begun: what it has, and what it says the time is."""
    app, started = App(), set()

    @app.job
    async def published(of: str, number: int) -> list[Any]:
        seen.append(("published", of, number))
        return [of, number]

    def add_plain(name: str, options: dict[str, Any], deeds: list[str]) -> None:
        calls, loop = 0, asyncio.get_running_loop()

        def handler(ctx: Context) -> Any:
            nonlocal calls
            deed, calls = deeds[calls % len(deeds)], calls + 1
            seen.append((name, ctx.scheduled_time, ctx.attempt, ctx.previous_scheduled_time, variable.get()))
            return do_plain(deed, ctx, name, calls, loop)

        handler.__name__ = handler.__qualname__ = name
        app.job(**options)(handler)

    def do_plain(deed: str, ctx: Context, name: str, number: int, loop: asyncio.AbstractEventLoop) -> Any:
        match deed:
            case "publish":
                published.publish_sync(of=name, number=number)
            case "look":
                looked = asyncio.run_coroutine_threadsafe(services[0].runs.get(ctx.run_id), loop)
                seen.append(("found", looked.result(10).status))
            case "start a task":
                loop.call_soon_threadsafe(lambda: seen.append(("started", name, number, times[0]())))
            case "run a loop":
                return asyncio.run(anything())
            case "report":
                ctx.progress(1, 2)
            case "extend":
                seen.append(("extended", bool(ctx.extend(60))))
            case "be slow":
                time.sleep(0.002)
            case _:
                return do_either(deed, ctx, number)
        return None

    async def anything() -> str:
        await asyncio.sleep(0)
        return "anything"

    def add(name: str, options: dict[str, Any], deeds: list[str]) -> None:
        calls = 0

        async def handler(ctx: Context) -> Any:
            nonlocal calls
            deed, calls = deeds[calls % len(deeds)], calls + 1
            seen.append((name, ctx.scheduled_time, ctx.attempt, ctx.previous_scheduled_time, variable.get()))
            return await do(deed, ctx, name, calls)

        handler.__name__ = handler.__qualname__ = name
        app.job(**options)(handler)

    async def later(name: str, number: int) -> None:
        seen.append(("started", name, number, times[0]()))

    async def do(deed: str, ctx: Context, name: str, number: int) -> Any:
        match deed:
            case "wait":
                await asyncio.sleep(0)
            case "publish":
                await published.publish(of=name, number=number)
            case "look":
                seen.append(("found", (await services[0].runs.get(ctx.run_id)).status))
            case "start a task":
                started.add(asyncio.get_running_loop().create_task(later(name, number)))
            case "report":
                await ctx.progress(1, 2)
            case "extend":
                seen.append(("extended", await ctx.extend(60)))
            case _:
                return do_either(deed, ctx, number)
        return None

    def do_either(deed: str, ctx: Context, number: int) -> Any:
        match deed:
            case "return":
                return {"number": number}
            case "log":
                ctx.log("here")
            case "fail":
                raise ValueError("not today")
            case "give up":
                raise Fail("never", code=number)
            case "set a variable":
                variable.set(number)
            case "exit":
                sys.exit(3)
        return None

    for number, plan in enumerate(plans):
        (add_plain if plan["plain"] else add)(f"job{number}", plan["options"], plan["deeds"])
    return app


async def declare(plans: list[dict[str, Any]]) -> None:
    app_of(plans, [], [], [])


async def account_of(plans: list[dict[str, Any]], spans: list[int], *, fast: bool) -> dict[str, Any]:
    seen: list[Any] = []
    services: list[Services] = []
    times: list[Callable[[], datetime]] = []
    async with trial(app_of(plans, seen, services, times), at=NOON, fast=fast) as running:
        services.append(running.services)
        times.append(lambda: running.now)
        for seconds in spans:
            await running.advance(seconds)
        found: dict[str, Any] = rows_of(running)
        figures = await running.services.stats.over()
        return found | {"seen": sorted(seen, key=repr), "now": running.now, "figures": figures}


schedules = st.one_of(
    st.integers(1, 9).map(lambda seconds: {"every": f"{seconds}s"}),
    st.sampled_from(["*/2 * * * * *", "*/5 * * * * *", "0 * * * * *", "30 1 12 * * *"]).map(
        lambda cron: {"cron": cron}
    ),
    st.integers(1, 5).map(
        lambda seconds: {"schedule": {"type": "interval", "every": seconds, "unit": "second", "repeat": 4}}
    ),
    st.just({"schedule": {"type": "interval", "every": 3, "unit": "second", "mode": "fixed_delay"}}),
)
extras = st.one_of(
    st.just({}),
    st.sampled_from(
        [
            {"priority": 5},
            {"jitter_seconds": 2},
            {"queue": "mail"},
            {"max_concurrency": 1},
            {"overlap_action": "SKIP"},
            {"failure_action": "SKIP"},
            {"failure_action": "RETRY"},
            {"retry_policy": {"max_retries": 2, "strategy": "fixed", "initial_delay": 3}},
            {"retry_policy": {"max_retries": 1, "strategy": "fixed", "initial_delay": 0, "local": True}},
            {"delivery": "at_most_once"},
            {"rate_limit": {"limit": 1, "window_seconds": 5}},
            {"end_at": "2026-03-28T12:00:20Z"},
            {"start_at": "2026-03-28T12:00:07Z"},
            {"quiet": [{"from": "12:00", "to": "12:01", "action": "skip"}]},
            {"on_exhausted": "error"},
        ]
    ),
)
plans_of = st.builds(
    lambda schedule, extra, plain, deeds: {"options": schedule | extra, "plain": plain, "deeds": deeds},
    schedules,
    extras,
    st.booleans(),
    st.lists(st.sampled_from(DEEDS), min_size=1, max_size=4),
)


OF_A_FAILURE = {"schedule": {"type": "interval", "every": 3, "unit": "second", "mode": "fixed_delay"}}


@pytest.mark.longer
@example(
    plans=[
        {"options": {"every": "1s"}, "plain": False, "deeds": ["publish"]},
        {"options": OF_A_FAILURE | {"failure_action": "SKIP"}, "plain": False, "deeds": ["give up"]},
    ],
    spans=[6],
)
@example(  # the last run ends with the stretch
    plans=[{"options": {"every": "1s"}, "plain": False, "deeds": ["nothing"]}], spans=[20, 40]
)
@example(plans=[{"options": {"every": "1s"}, "plain": True, "deeds": [*DEEDS, *["nothing"] * 20]}], spans=[20, 60])
@given(plans=st.lists(plans_of, min_size=1, max_size=4), spans=st.lists(st.integers(1, 40), min_size=1, max_size=3))
@hypothesis_settings(max_examples=size(15, 150), deadline=None)
def test_the_fast_path_leaves_what_the_transitions_leave(plans: list[dict[str, Any]], spans: list[int]) -> None:
    try:
        asyncio.run(declare(plans))
    except InvalidArgument:
        reject()  # a pair that contradict each other
    fast = asyncio.run(account_of(plans, spans, fast=True))
    slow = asyncio.run(account_of(plans, spans, fast=False))
    for table in slow:
        assert fast[table] == slow[table], table


async def test_a_day_of_a_job_every_two_seconds_costs_no_transaction_for_each():
    app, seen = App(), []

    @app.job(every="2s")
    async def tick(ctx: Context) -> None:
        seen.append(ctx.run_id)

    async with trial(app, at=NOON) as running:
        calls = Calls()
        running.store.observer = calls
        await running.advance(timedelta(days=1))
        assert len(seen) == 43_200
        assert sum(calls.made.values()) < 100
        runs = await running.runs(tick)
    assert [run.id for run in runs] == seen
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    assert [run.scheduled_time for run in runs] == [
        int((NOON + timedelta(seconds=2 * number)).timestamp()) * 1_000_000 for number in range(1, 43_201)
    ]


class Calls:
    """Counts what is asked of a store."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def called(self, name: str) -> None:
        self.made[name] += 1

    def failed(self, name: str, seconds: float, error: BaseException) -> None: ...

    def answered(self, name: str, seconds: float, answer: Any, given: Any) -> None: ...

    def followed(self, count: int, skipped: int) -> None: ...


async def test_jobs_that_wait_for_each_other_at_one_moment_meet():
    app, met = App(), []
    here = asyncio.Event()

    @app.job(every="2s")
    async def waits(ctx: Context) -> None:
        await here.wait()
        met.append(ctx.scheduled_time)

    @app.job(every="2s")
    async def comes() -> None:
        here.set()

    async with trial(app, at=NOON) as running:
        await running.advance(4)
    assert met == [NOON + timedelta(seconds=2), NOON + timedelta(seconds=4)]


async def test_a_test_that_looks_while_a_handler_waits_finds_it_running():
    app, go_on, began = App(), asyncio.Event(), asyncio.Event()

    @app.job(every="2s")
    async def slow() -> None:
        began.set()
        await go_on.wait()

    async with trial(app, at=NOON) as running:
        advancing = asyncio.get_running_loop().create_task(running.advance(6))
        await began.wait()
        (run,) = await running.runs(slow)
        assert run.status is RunStatus.RUNNING
        go_on.set()
        await advancing
        assert [run.status for run in await running.runs(slow)] == [RunStatus.SUCCESS] * 3


async def test_a_variable_that_a_handler_sets_is_not_there_in_the_next_run_nor_in_the_test():
    app, seen = App(), []

    @app.job(every="2s")
    async def sets() -> None:
        seen.append(variable.get())
        variable.set(7)

    async with trial(app, at=NOON) as running:
        await running.advance(10)
    assert (seen, variable.get()) == ([0] * 5, 0)


async def test_more_time_is_more_time():
    app = App()

    @app.job(every="2s", timeout_seconds=0.1)
    async def extends(ctx: Context) -> None:
        await ctx.extend(60)
        await asyncio.sleep(0.3)

    async with trial(app, at=NOON) as running:
        await running.advance(3)
        assert [run.status for run in await running.runs(extends)] == [RunStatus.SUCCESS]


async def test_a_paused_installation_stops_the_fast_path_too():
    app, seen = App(), []

    @app.job(every="2s")
    async def tick(ctx: Context) -> None:
        seen.append(ctx.scheduled_time)

    async with trial(app, at=NOON) as running:
        await running.advance(4)
        await running.services.pauses.pause({"reason": "a test"}, by="test")
        await running.advance(4)
        assert len(seen) == 2
