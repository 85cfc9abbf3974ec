"""An application that only publishes: its jobs as tasks in the store, and what becomes of each publish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from integration.support import until
from noonbell import App, Context
from noonbell.clock import to_datetime
from noonbell.errors import AlreadyExists, ConcurrencyLimit, InvalidArgument, InvalidState, NotFound
from noonbell.model.request import PublishOutcome, TaskChange, TaskQuery
from noonbell.model.task import Task, TaskStatus
from noonbell.stores import open_store


def shop(**more) -> App:
    """An App with two jobs, as each start of a program makes it anew."""
    app = App("shop")

    @app.job(cron="0 */5 * * * *", timezone="Europe/Berlin", max_concurrency=1, timeout=60, payload={"region": "eu"})
    async def sync_stats(ctx: Context, region: str, days: int = 7) -> dict[str, int]:
        return {"rows": days}

    @app.job(**more)
    def send(to: str, copies: int = 1) -> int:
        return copies

    return app


@contextlib.asynccontextmanager
async def looking_at(url: str):
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def task_of(url: str, name: str) -> Task | None:
    async with looking_at(url) as store:
        return await store.task_named(name)


async def test_every_job_has_a_task_that_says_what_the_code_says(sql_url: str):
    async with shop(queue="mail", retries=1).connected(sql_url):
        pass
    scheduled, on_demand = await task_of(sql_url, "sync_stats"), await task_of(sql_url, "send")
    assert scheduled is not None
    assert on_demand is not None
    assert scheduled.spec.managed_by == on_demand.spec.managed_by == "code:shop"
    assert scheduled.spec.schedule is not None
    assert scheduled.spec.schedule["expr"] == "0 */5 * * * *"
    assert (scheduled.spec.timezone, scheduled.spec.timeout_seconds, scheduled.spec.max_concurrency) == (
        *("Europe/Berlin", 60, 1),
    )
    assert scheduled.spec.payload == {"region": "eu"}
    assert scheduled.next_fire_at is not None
    assert (on_demand.spec.schedule, on_demand.next_fire_at, on_demand.spec.queue) == (None, None, "mail")
    assert on_demand.spec.retries.max_retries == 1


async def test_the_same_code_again_changes_nothing_and_other_code_does(sqlite_url: str):
    async with shop().connected(sqlite_url):
        pass
    async with shop().connected(sqlite_url):
        pass
    same = await task_of(sqlite_url, "send")
    assert same is not None
    assert same.version == 1
    async with shop(priority=5).connected(sqlite_url):
        pass
    other = await task_of(sqlite_url, "send")
    assert other is not None
    assert (other.id, other.version, other.spec.priority) == (same.id, 2, 5)


async def test_without_declare_nothing_is_written(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url, declare=False):
        with pytest.raises(NotFound, match="job 'send' has no task"):
            await app.jobs["send"].publish(to="a")
    assert await task_of(sqlite_url, "send") is None


async def test_prune_deletes_what_the_code_no_longer_has_and_nothing_of_others(sqlite_url: str):
    async with shop().connected(sqlite_url):
        pass
    later, other = App("shop"), App("other")
    other.job(_named("theirs"))
    async with other.connected(sqlite_url):
        pass
    async with later.connected(sqlite_url):
        pass
    assert await task_of(sqlite_url, "send") is not None
    async with later.connected(sqlite_url, prune=True):
        pass
    assert await task_of(sqlite_url, "send") is None
    assert await task_of(sqlite_url, "theirs") is not None


async def test_an_app_without_a_name_of_its_own_may_not_prune(sqlite_url: str):
    with pytest.raises(InvalidArgument, match=r"prune: needs an App with a name"):
        async with App().connected(sqlite_url, prune=True):
            pass


def _named(name: str):
    def handler() -> None: ...

    handler.__name__ = name
    return handler


async def test_a_name_that_means_something_else_already_stops_the_start(sqlite_url: str):
    one, two = App("one"), App("two")
    one.job(_named("send"))

    @two.job(name="send")
    def other(to: str) -> None: ...

    async with one.connected(sqlite_url):
        # The same job type under another owner: used as it is.
        pass
    async with two.connected(sqlite_url):
        assert (await other.publish(to="a")).outcome is PublishOutcome.CREATED
    owned = await task_of(sqlite_url, "send")
    assert owned is not None
    assert owned.spec.managed_by == "code:one"

    three = App("three")
    three.job(_named("before"))
    three.job(_named("report"))
    async with looking_at(sqlite_url) as store:
        spec = owned.spec.__class__(name="report", job_type="something_else")
        await store.create_task(spec)
    with pytest.raises(
        AlreadyExists, match=r"'report' already exists and does something else.*: noonbell task delete report$"
    ):
        async with three.connected(sqlite_url):
            pass
    assert await task_of(sqlite_url, "before") is None  # refused as a whole


async def test_a_schedule_that_lacks_its_payload_is_warned_about(sqlite_url: str, caplog: pytest.LogCaptureFixture):
    app = App()

    @app.job(every=60)
    def sync(region: str) -> None: ...

    with caplog.at_level(logging.WARNING, "noonbell.app"):
        async with app.connected(sqlite_url):
            pass
    assert "sync has a schedule but no payload=" in caplog.text
    assert "they lack region" in caplog.text


async def test_a_publish_says_what_became_of_it(sql_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(sql_url):
        first = await send.publish(to="a", key="k", delay=30, priority=5)
        again = await send.publish(to="a", key="k")
        updated = await send.publish(to="b", copies=2, key="k", update_waiting=True, delay=timedelta(minutes=1))
        other = await send.publish(to="a")
        assert [each.outcome for each in (first, again, updated, other)] == ["created", "exists", "updated", "created"]
        assert first.run_id == again.run_id == updated.run_id != other.run_id
        run = await first.run()
        assert (run.key, run.status, run.origin) == ("k", "SCHEDULED", "publish")
        assert 50 < (run.run_at - run.created_at) / 1e6 < 70
    async with looking_at(sql_url) as store:
        assert await store.payload(run.id) == {"to": "b", "copies": 2}


async def test_a_moment_and_workers_can_be_named(sqlite_url: str):
    app = shop()
    moment = datetime(2030, 1, 1, 12, tzinfo=UTC)
    async with app.connected(sqlite_url):
        published = await app.jobs["send"].publish(to="a", run_at=moment, specific_worker_ids=["w1"])
        assert to_datetime((await published.run()).run_at) == moment


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"to": 1}, "to"),
        ({}, "to"),
        ({"to": "a", "kopies": 1}, "kopies"),
        ({"to": "a", "delay": -1}, "delay"),
        ({"to": "a", "delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"to": "a", "run_at": datetime(2030, 1, 1)}, "run_at"),
        ({"to": "a", "priority": "high"}, "priority"),
        ({"to": "a", "if_finished": "rerun"}, "if_finished"),
        ({"to": "a", "key": ""}, "key"),
        ({"to": "a", "transaction": object()}, "transaction"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_published(sqlite_url: str, given, field):
    app = shop()
    async with app.connected(sqlite_url):
        with pytest.raises(InvalidArgument) as refused:
            await app.jobs["send"].publish(**given)
        with pytest.raises(InvalidArgument):
            await app.publish_many(
                [app.jobs["send"].request(to="a"), app.jobs["send"].request(**given)], transaction=None
            )
    assert list(refused.value.details) == [field]
    async with looking_at(sqlite_url) as store:
        assert (await store.counts())["runs"] == 0


async def test_a_payload_is_given_by_keyword(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url):
        with pytest.raises(InvalidArgument, match="publish\\(to=…, copies=…\\)"):
            await app.jobs["send"].publish("a")


async def test_ten_thousand_go_in_one_transaction_and_no_more(sql_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(sql_url):
        answers = await app.publish_many(send.request(to=str(n)) for n in range(10_000))
        assert len({answer.run_id for answer in answers}) == 10_000
        assert {answer.outcome for answer in answers} == {PublishOutcome.CREATED}
        with pytest.raises(InvalidArgument, match="at most 10000"):
            await app.publish_many([send.request(to="a")] * 10_001)
        assert await app.publish_many([]) == []


async def test_a_task_at_its_limit_refuses_one_and_tells_of_many(sqlite_url: str):
    app = shop(max_concurrency=1, concurrency_policy="SKIP")
    send = app.jobs["send"]
    async with app.connected(sqlite_url):
        await send.publish(to="a")
        with pytest.raises(ConcurrencyLimit):
            await send.publish(to="b")
        (refused,) = await app.publish_many([send.request(to="c")])
        assert refused.outcome is PublishOutcome.REFUSED
        with pytest.raises(ConcurrencyLimit):
            _ = refused.run_id


async def test_a_task_that_was_made_anew_is_found(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url), looking_at(sqlite_url) as store:
        await app.jobs["send"].publish(to="a")
        old = await store.task_named("send")
        assert old is not None
        await store.delete_task(old.id)
        with pytest.raises(NotFound):
            await app.jobs["send"].publish(to="a")
        made = await store.create_task(old.spec)
        published = await app.jobs["send"].publish(to="a")
        assert (await published.run()).task_id == made.id


async def test_an_operators_pause_outlives_a_restart(sqlite_url: str):
    async with shop().connected(sqlite_url):
        pass
    async with looking_at(sqlite_url) as store:
        task = await store.task_named("sync_stats")
        assert task is not None
        await store.change_task(task.id, _paused, by="ann")
    async with shop().connected(sqlite_url):
        pass
    after = await task_of(sqlite_url, "sync_stats")
    assert after is not None
    assert after.status is TaskStatus.DISABLED


def _paused(task: Task) -> TaskChange:
    return TaskChange(spec=task.spec, status=TaskStatus.DISABLED)


# Without a connection, from threads and other loops


async def test_publishing_without_a_connection_is_refused_with_what_to_do():
    app = shop()
    with pytest.raises(InvalidState, match=r"app\.connected"):
        await app.jobs["send"].publish(to="a")


async def test_an_app_is_connected_once(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url):
        with pytest.raises(InvalidState, match="already connected"):
            async with app.connected(sqlite_url):
                pass
        await app.jobs["send"].publish(to="a")


def test_a_plain_script_publishes_without_a_loop(sqlite_url: str):
    app = shop()
    with app.connected(sqlite_url):
        published = app.jobs["send"].publish_sync(to="a", key="k")
        many = app.publish_many_sync([app.jobs["send"].request(to=str(n)) for n in range(3)])
        with pytest.raises(TimeoutError, match=f"run {published.run_id} is SCHEDULED"):
            published.result_sync(0.01)
    assert published.outcome is PublishOutcome.CREATED
    assert len(many) == 3
    assert "noonbell app" not in {thread.name for thread in threading.enumerate()}


def test_what_was_published_says_so_when_its_connection_is_gone(sqlite_url: str):
    app = shop()
    with app.connected(sqlite_url):
        published = app.jobs["send"].publish_sync(to="a")
    with pytest.raises(InvalidState, match="no longer connected"):
        published.result_sync(1)
    with pytest.raises(InvalidState, match="no longer connected"):
        asyncio.run(published.result(1))


def test_a_script_that_cannot_connect_hears_why_and_leaves_no_thread(tmp_path):
    app = shop()
    with (
        pytest.raises(Exception, match=r"there is no folder .*/no/such:"),
        app.connected(f"sqlite:///{tmp_path}/no/such/folder.db"),
    ):
        pass
    assert "noonbell app" not in {thread.name for thread in threading.enumerate()}


async def test_the_sync_form_in_the_loop_itself_is_refused(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url):
        with pytest.raises(InvalidState, match="await the async form"):
            app.jobs["send"].publish_sync(to="a")


async def test_threads_and_other_loops_publish_through_the_connections_loop(postgres_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(postgres_url):
        from_thread = await asyncio.to_thread(send.publish_sync, to="a")
        other_loop = await asyncio.to_thread(lambda: asyncio.run(send.publish(to="b")))
        assert from_thread.run_id != other_loop.run_id


# In the caller's own transaction


async def test_on_postgresql_a_run_exists_if_and_only_if_the_caller_commits(postgres_url: str):
    app = shop()
    send = app.jobs["send"]
    connection = await asyncpg.connect(postgres_url)
    try:
        async with app.connected(postgres_url):
            await connection.execute("create table orders (id int)")
            with pytest.raises(ZeroDivisionError):
                async with connection.transaction():
                    await connection.execute("insert into orders values (1)")
                    undone = await send.publish(to="a", key="order-1", transaction=connection)
                    raise ZeroDivisionError
            async with connection.transaction():
                await connection.execute("insert into orders values (1)")
                made = await send.publish(to="a", key="order-1", transaction=connection)
                many = await app.publish_many([send.request(to="b")] * 3, transaction=connection)
                with pytest.raises(NotFound):
                    await made.run()
            assert (made.outcome, len(many)) == (PublishOutcome.CREATED, 3)
            assert (await made.run()).status == "SCHEDULED"
            with pytest.raises(NotFound):
                await undone.run()
    finally:
        await connection.close()


async def test_on_postgresql_a_pooled_connection_will_do(postgres_url: str):
    app = shop()
    async with app.connected(postgres_url), asyncpg.create_pool(postgres_url, min_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            made = await app.jobs["send"].publish(to="a", transaction=connection)
        assert (await made.run()).status == "SCHEDULED"


async def test_two_transactions_with_one_key_make_one_run(postgres_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(postgres_url), asyncpg.create_pool(postgres_url, min_size=2) as pool:
        begun = asyncio.Event()

        async def first() -> int:
            async with pool.acquire() as connection, connection.transaction():
                made = await send.publish(to="a", key="k", transaction=connection)
                begun.set()
                await until(lambda: is_waited_for(pool), 60, "the second to wait for the first")
            return made.run_id

        async def second() -> tuple[int, str]:
            await begun.wait()
            async with pool.acquire() as connection, connection.transaction():
                made = await send.publish(to="a", key="k", transaction=connection)
                return made.run_id, made.outcome

        one, (two, outcome) = await asyncio.gather(first(), second())
        assert (one, "exists") == (two, outcome)


async def is_waited_for(pool: asyncpg.Pool) -> bool:
    """Whether another transaction stands behind ours."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return bool(await pool.fetchval(waiting))


async def test_on_sqlite_a_run_exists_if_and_only_if_the_caller_commits(sqlite_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(sqlite_url):
        with contextlib.closing(sqlite3.connect(urlsplit(sqlite_url).path)) as file:
            await send.publish(to="a", key="k", transaction=file)
            file.rollback()
            made = await send.publish(to="a", key="k", transaction=file)
            with pytest.raises(NotFound):
                await made.run()
            file.commit()
        assert made.outcome is PublishOutcome.CREATED
        assert (await made.run()).status == "SCHEDULED"


def test_a_script_publishes_in_its_own_sqlite_transaction(sqlite_url: str):
    app = shop()
    with app.connected(sqlite_url), contextlib.closing(sqlite3.connect(urlsplit(sqlite_url).path)) as file:
        with file:
            made = app.jobs["send"].publish_sync(to="a", transaction=file)
        with pytest.raises(TimeoutError, match="SCHEDULED"):
            made.result_sync(0.01)


async def test_a_bad_payload_in_a_transaction_leaves_it_usable(postgres_url: str):
    app = shop()
    connection = await asyncpg.connect(postgres_url)
    try:
        async with app.connected(postgres_url), connection.transaction():
            with pytest.raises(InvalidArgument):
                await app.jobs["send"].publish(to=1, transaction=connection)
            assert await connection.fetchval("select 1") == 1
    finally:
        await connection.close()


async def test_the_names_that_others_manage_are_all_left_alone(sqlite_url: str):
    async with shop().connected(sqlite_url), looking_at(sqlite_url) as store:
        page = await store.tasks(TaskQuery(managed_by="code:shop"))
        assert sorted(task.name for task in page.items) == ["send", "sync_stats"]
