"""Library mode: an application that carries out its own jobs, in its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import asyncpg
import pydantic
import pytest
from fastapi import FastAPI

from integration.proxy import Proxy
from integration.support import until
from noonbell import App, Context, Fail, RunFailed
from noonbell.errors import InvalidArgument, InvalidState, StoreUnavailable
from noonbell.model.request import Publication
from noonbell.model.task import TaskId
from noonbell.stores import open_store

boxed = App("boxed")


@boxed.job(sandbox=True)
def pid_of_its_own(n: int) -> list[int]:
    return [os.getpid(), n]


@boxed.middleware
def doubling(ctx: Context) -> Generator[None, list[int], None]:
    result = yield
    if ctx.job_type == "pid_of_its_own":
        result.append(result[1] * 2)


class Pool:
    def __init__(self) -> None:
        self.is_open = True


@dataclass
class Report:
    rows: int
    made_at: datetime


class Model(pydantic.BaseModel):
    rows: int


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
def store_url(request: pytest.FixtureRequest) -> str:
    names = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(names[request.param]))


async def test_async_and_sync_handlers_carry_out_what_is_published(store_url: str):
    app = App()

    @app.job
    async def greet(ctx: Context, name: str, times: int = 2) -> str:
        await ctx.progress(1, 2, "half way")
        return f"{name} " * times

    @app.job(queue="other")
    def thread_of(ctx: Context) -> list[object]:
        return [threading.current_thread() is threading.main_thread(), ctx.attempt, ctx.task_name]

    async with app.running(store_url):
        greeting, thread = await greet.publish(name="ann"), await thread_of.publish()
        assert await greeting.result(20) == "ann ann "
        assert await thread.result(20) == [False, 1, "thread_of"]
        assert (await greeting.run()).status == "SUCCESS"


async def test_a_sandboxed_handler_has_a_process_of_its_own(sqlite_url: str):
    async with boxed.running(sqlite_url):
        pid, n, doubled = await (await pid_of_its_own.publish(n=3)).result(30)
    assert (pid != os.getpid(), n) == (True, 3)
    assert doubled == 6, "by the middleware, in the same process"


async def test_a_result_comes_back_in_its_type(sqlite_url: str):
    app = App()
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)

    @app.job
    def dataclass_of(rows: int) -> Report:
        return Report(rows, noon)

    @app.job
    async def models_of(rows: int) -> list[Model]:
        return [Model(rows=rows)]

    async with app.running(sqlite_url):
        assert await (await dataclass_of.publish(rows=3)).result(20) == Report(3, noon)
        assert await (await models_of.publish(rows=3)).result(20) == [Model(rows=3)]


async def test_a_failure_is_told_to_whoever_waits(sqlite_url: str):
    app = App()

    @app.job
    def refuse() -> None:
        raise Fail("no such customer", customer=7)

    async with app.running(sqlite_url):
        published = await refuse.publish()
        with pytest.raises(RunFailed, match="no such customer") as failed:
            await published.result(20)
    assert (failed.value.status, failed.value.details["customer"]) == ("FAILED", 7)
    assert failed.value.run_id == published.run_id


async def test_an_exception_is_retried(sqlite_url: str):
    app = App()

    @app.job(retries=2, retry_policy={"initial_delay": 0})
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    async with app.running(sqlite_url):
        assert await (await flaky.publish()).result(20) == 3


async def test_a_payload_that_came_past_the_sdk_is_checked_when_it_is_run(sqlite_url: str):
    app = App()
    called = []

    @app.job
    def count(n: int) -> None:
        called.append(n)

    async with app.running(sqlite_url):
        published = await count.publish(n=1)
        await published.result(20)
        store = app.connection._store
        task_id = TaskId((await published.run()).task_id)
        (wrong,) = await store.publish([Publication(task_id=task_id, payload={"n": "1", "m": 2})])
        assert wrong.run_id is not None
        await until(lambda: ended(store, wrong.run_id), 60, "the wrong one to end")
        run = await store.run(wrong.run_id)
    assert run.status == "FAILED"
    assert run.error_details["kind"] == "invalid_payload"
    assert set(run.error_details["fields"]) == {"n", "m"}
    assert called == [1]


async def ended(store, run_id) -> bool:
    run = await store.run(run_id)
    return run is not None and run.final_status is not None


async def test_a_schedule_in_code_fires(sqlite_url: str):
    app, fired = App(), asyncio.Event()

    @app.job(every=1, payload={"region": "eu"})
    async def tick(ctx: Context, region: str) -> None:
        assert (ctx.scheduled_time.microsecond, region) == (0, "eu")
        fired.set()

    async with app.running(sqlite_url):
        await asyncio.wait_for(fired.wait(), 60)


async def test_a_cycle_of_jobs_and_flows_in_code_is_named_and_none_of_them_is_written(sqlite_url: str):
    app = App()

    @app.job(after="nightly")
    async def extract() -> int:
        return 1

    @app.job
    async def load() -> int:
        return 1

    app.flow("nightly", app.flow.chain(load.request(), load.request()), after=extract)
    with pytest.raises(InvalidArgument, match=r"makes a cycle: extract → nightly → extract"):
        await app.connect(sqlite_url)
    store = open_store(sqlite_url)
    await store.open()
    assert await store.tasks_named(["extract", "load", "nightly"]) == {}
    await store.close()


async def test_without_the_scheduler_only_what_is_published_runs(sqlite_url: str):
    app = App()

    @app.job(every=1)
    async def tick(ctx: Context) -> str:
        return str(ctx._assignment.lease.origin)

    async with app.running(sqlite_url, scheduler=False):
        assert await (await tick.publish()).result(20) == "publish"
        assert app.connection is not None


async def test_handlers_get_what_is_provided_while_the_app_runs(sqlite_url: str):
    app, told = App(), []

    @app.lifespan
    async def pools() -> AsyncIterator[None]:
        pool = Pool()
        app.provide(pool)
        told.append("opened")
        yield
        pool.is_open = False
        told.append("closed")

    app.provide("eu", name="region")

    @app.job
    async def use(ctx: Context) -> list[object]:
        told.append("used")
        return [ctx.resource(Pool).is_open, ctx.resource("region")]

    @app.job(retries=0)
    async def miss(ctx: Context) -> None:
        ctx.resource(dict)

    async with app.running(sqlite_url):
        assert await (await use.publish()).result(20) == [True, "eu"]
        with pytest.raises(RunFailed, match=r"nothing was provided as dict; call app\.provide"):
            await (await miss.publish()).result(20)
    assert told == ["opened", "used", "closed"]


async def test_publishing_only_opens_nothing_for_handlers(sqlite_url: str):
    app, told = App(), []

    @app.lifespan
    async def pools() -> AsyncIterator[None]:
        told.append("opened")
        yield

    async with app.connected(sqlite_url):
        pass
    assert told == []


async def test_leaving_lets_running_work_end(sqlite_url: str):
    app, begun, may_end = App(), asyncio.Event(), asyncio.Event()

    @app.job
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    @app.lifespan
    async def last() -> AsyncIterator[None]:
        yield
        # After the last run has ended: what it returned is there.
        told.append((await published.run()).result)

    told: list[object] = []
    async with app.running(sqlite_url, graceful_timeout=20):
        published = await slow.publish()
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
    assert told == ["done"]


async def test_leaving_hands_back_what_does_not_end_and_the_next_start_takes_it_up(sqlite_url: str):
    app, begun, patient = App(), asyncio.Event(), True

    @app.job
    async def slow(ctx: Context) -> int:
        begun.set()
        if patient:
            await asyncio.Event().wait()
        return ctx.attempt

    async with app.running(sqlite_url, graceful_timeout=0):
        published = await slow.publish()
        await begun.wait()
    patient = False
    async with app.running(sqlite_url):
        run = await app.connection.run(published.run_id)
        await until(lambda: ended(app.connection._store, run.id), 60, "it to be done")
        assert (await app.connection.run(run.id)).result == 1


async def test_handlers_publish_other_jobs(sqlite_url: str):
    app = App()

    @app.job
    async def leaf(n: int) -> int:
        return n * 10

    @app.job
    async def branch(n: int) -> int:
        return await (await leaf.publish(n=n)).result(20)

    @app.job
    def sync_branch(n: int) -> int:
        return leaf.publish_sync(n=n).result_sync(20)

    async with app.running(sqlite_url):
        assert await (await branch.publish(n=1)).result(20) == 10
        assert await (await sync_branch.publish(n=2)).result(20) == 20


async def test_a_canceled_run_is_told_to_whoever_waits(sqlite_url: str):
    app, begun = App(), asyncio.Event()

    @app.job
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app.running(sqlite_url):
        published = await endless.publish()
        waiting = asyncio.create_task(published.result(20))
        await begun.wait()
        assert await published.cancel() is True
        with pytest.raises(RunFailed) as failed:
            await waiting
        assert failed.value.status == "CANCELED"
        assert await published.cancel() is False


async def test_who_waits_too_short_hears_how_it_stands(sqlite_url: str):
    app = App()

    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    async with app.running(sqlite_url, graceful_timeout=0):
        published = await endless.publish(delay=3600)
        with pytest.raises(TimeoutError, match=f"run {published.run_id} is SCHEDULED after 0.01 s"):
            await published.result(0.01)


async def test_who_waits_goes_on_waiting_while_the_store_is_away(postgres_url: str):
    app, begun, may_end = App(), asyncio.Event(), asyncio.Event()

    @app.job
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    async with Proxy(postgres_url) as proxy, app.running(proxy.url):
        published = await slow.publish()
        waiting = asyncio.create_task(published.result(60))
        await begun.wait()
        await proxy.cut()
        with pytest.raises(StoreUnavailable):
            await slow.publish()
        may_end.set()
        await proxy.restore()
        assert await waiting == "done"


def test_a_plain_script_runs_its_jobs_without_a_loop(sqlite_url: str):
    app = App()

    @app.job
    def double(n: int) -> int:
        return n * 2

    with app.running(sqlite_url):
        assert double.publish_sync(n=4).result_sync(20) == 8


async def test_an_app_inside_fastapi(sqlite_url: str):
    app = App()

    @app.job
    async def double(n: int) -> int:
        return n * 2

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with app.running(sqlite_url):
            yield

    web = FastAPI(lifespan=lifespan)
    async with web.router.lifespan_context(web):
        assert await (await double.publish(n=4)).result(20) == 8


async def test_the_queue_of_http_targets_is_not_for_applications(sqlite_url: str):
    with pytest.raises(InvalidArgument, match="queues: has 'http'"):
        async with App().running(sqlite_url, queues=["http"]):
            pass


# A commit wakes an idle worker: with polls an hour apart, nothing else could.


@pytest.fixture
def without_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOONBELL_SCHEDULER__POLL_INTERVAL", "1h")


@pytest.mark.usefixtures("without_polls")
async def test_on_postgresql_the_callers_commit_wakes_a_worker_elsewhere(postgres_url: str):
    app, elsewhere = App(), App()

    @app.job
    async def double(n: int) -> int:
        return n * 2

    @elsewhere.job(name="double")
    async def same(n: int) -> int:
        return n * 2

    async with elsewhere.running(postgres_url), app.connected(postgres_url):
        await (await same.publish(n=1)).result(20)
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                published = await double.publish(n=4, transaction=connection)
            assert await published.result(20) == 8
        finally:
            await connection.close()


async def test_of_many_transactions_exactly_those_that_commit_are_carried_out(postgres_url: str):
    app, carried_out = App(), []

    @app.job
    async def note(n: int) -> None:
        carried_out.append(n)

    committed = {n for n in range(120) if n % 3}

    async def transact(pool: asyncpg.Pool, n: int) -> None:
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await note.publish(n=n, key=f"k{n // 6}-{n % 6}", transaction=connection)
            await (transaction.commit() if n in committed else transaction.rollback())

    async with app.running(postgres_url), asyncpg.create_pool(postgres_url, min_size=8, max_size=8) as pool:
        await asyncio.gather(*(transact(pool, n) for n in range(120)))
        await until(lambda: len(carried_out) >= len(committed), 60, "all that were committed")
        assert (await app.connection._store.counts())["runs"] == len(committed)
    assert sorted(carried_out) == sorted(committed)


@pytest.mark.usefixtures("without_polls")
async def test_on_sqlite_the_callers_commit_wakes_the_worker(sqlite_url: str):
    app = App()

    @app.job
    async def double(n: int) -> int:
        return n * 2

    async with app.running(sqlite_url):
        await (await double.publish(n=1)).result(20)
        with contextlib.closing(sqlite3.connect(urlsplit(sqlite_url).path)) as file:
            published = await double.publish(n=4, transaction=file)
            file.commit()
        assert await published.result(20) == 8


async def test_a_program_with_plain_logging_reads_what_its_handler_raised(caplog):
    app = App()

    @app.job(retry_policy={"max_retries": 1, "initial_delay": 0.01})
    async def send_mail(to: str) -> None:
        raise ValueError(f"no such address: {to}")

    async with app.running("memory://"):
        ticket = await send_mail.publish(to="a@b")
        with pytest.raises(RunFailed):
            await ticket.result(20)
        run_id = (await ticket.run()).id
    again, record = [one for one in caplog.records if one.name == "noonbell.runs"]
    plain = logging.Formatter(logging.BASIC_FORMAT)
    says = f"send_mail, run {run_id}, attempt"
    assert plain.format(again) == (
        f"WARNING:noonbell.runs:run will be retried: {says} 1, RETRYING: ValueError: no such address: a@b"
    )
    line, *trace = plain.format(record).splitlines()
    assert line == f"WARNING:noonbell.runs:run ended: {says} 2, FAILED: ValueError: no such address: a@b"
    assert "in send_mail" in trace[1]
    assert (record.task_name, record.run_id, record.status) == ("send_mail", run_id, "FAILED")


async def test_connect_and_close_need_no_block_around_the_life_of_an_application(sql_url: str):
    app = App()

    @app.job
    async def work() -> None: ...

    await app.connect(sql_url)
    with pytest.raises(InvalidState, match="connected in an event loop"):
        app.close_sync()
    assert (await work.publish()).outcome == "created"
    await app.close()
    await app.close()
    with pytest.raises(InvalidState, match="is not connected: publish after `await app"):
        await work.publish()

    await asyncio.to_thread(app.connect_sync, sql_url, declare=False)
    with pytest.raises(InvalidState, match="already connected"):
        await app.connect(sql_url)
    assert (await work.publish()).outcome == "created"
    await app.close()

    app.connect_sync(sql_url)
    assert work.publish_sync().outcome == "created"
    app.close_sync()
    app.close_sync()


PROGRAM = """
import logging
from noonbell import App

logging.basicConfig()
app = App("shop")

@app.job(retries=0)
def send(order: int) -> None:
    raise ValueError(f"order {order} is not paid")

with app.running("memory://"):
    published = send.publish_sync(order=7)
    try:
        published.result_sync(timeout=30)
    except Exception:
        print(published.run_id)
"""


def test_a_program_with_basic_config_shows_job_run_error_and_where_it_was_raised():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stderr.splitlines()
    said = f"run ended: send, run {done.stdout.strip()}, attempt 1, FAILED: ValueError: order 7 is not paid"
    first = lines.index(f"WARNING:noonbell.runs:{said}")
    assert lines[first + 1] == "Traceback (most recent call last):"
    assert any(", in send" in line for line in lines[first:])
    assert "ValueError: order 7 is not paid" in lines[first + 2 :]
