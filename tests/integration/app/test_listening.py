"""An application hears what happens on its store, and waits for runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from integration.support import until
from noonbell import App, Context, Fail
from noonbell.app.listening import EventStream
from noonbell.errors import InvalidArgument, InvalidState, NotFound
from noonbell.model.event import Event

PATIENCE = 60


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def shop() -> App:
    app = App("shop")

    @app.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.job(retries=0)
    async def refuse() -> None:
        raise Fail("no")

    return app


async def collect(events: AsyncIterator[Event] | EventStream, last: str) -> list[Event]:
    """What is told up to the first event of that type."""
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            found.append(event)
            if event.type == last:
                break
    return found


async def test_a_run_is_heard_of_from_birth_to_end(store_url: str):
    app = shop()
    async with app.running(store_url), app.events("run") as events:
        published = await app.jobs["greet"].publish(name="ann")
        told = await collect(events, "run.succeeded")
    assert [event.type for event in told] == ["run.scheduled", "run.started", "run.succeeded"]
    assert {(event.run_id, event.topic) for event in told} == {(published.run_id, "greet")}
    assert told[-1].data == {"status": "SUCCESS"}
    assert abs(told[-1].time - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_listener_hears_only_what_it_asked_for(sqlite_url: str):
    app = shop()
    greet, refuse = app.jobs["greet"], app.jobs["refuse"]
    async with (
        app.running(sqlite_url),
        app.events(["run.failed", "run.succeeded"], job=refuse) as by_job,
        app.events("run.succeeded", job="greet") as by_name,
        app.events("run.started", queue="nowhere") as by_queue,
    ):
        await (await greet.publish(name="ann")).result(PATIENCE)
        refused = await refuse.publish()
        assert [event.run_id for event in await collect(by_job, "run.failed")] == [refused.run_id]
        assert {event.topic for event in await collect(by_name, "run.succeeded")} == {"greet"}
        async with app.events("run.succeeded", run_id=refused.run_id) as by_run:
            other = await greet.publish(name="bob")
            assert (await app.wait_for(other.run_id, PATIENCE)).status == "SUCCESS"
            nothing = [asyncio.ensure_future(anext(aiter(events))) for events in (by_run, by_queue)]
            done, _ = await asyncio.wait(nothing, timeout=0)
            assert not done
            for task in nothing:
                task.cancel()
            await asyncio.gather(*nothing, return_exceptions=True)


async def test_whoever_comes_back_misses_nothing(store_url: str):
    app = shop()
    async with app.running(store_url):
        async with app.events("run.succeeded") as events:
            await app.jobs["greet"].publish(name="first")
            seen = (await collect(events, "run.succeeded"))[-1]
        missed = await app.jobs["greet"].publish(name="second")
        await missed.result(PATIENCE)
        told = await collect(app.events("run.succeeded", after=seen.id), "run.succeeded")
    assert [event.run_id for event in told] == [missed.run_id]


async def test_what_is_no_longer_kept_is_said_to_be_missing(sqlite_url: str):
    app = shop()
    async with app.running(sqlite_url):
        await (await app.jobs["greet"].publish(name="ann")).result(PATIENCE)
        store = app.connection._store
        await store.last_event()
        while await store.forget_events(await store.now() + 1, 100):
            pass
        await app.jobs["greet"].publish(name="bob")
        told = await collect(app.events("run.succeeded", after="1.0"), "run.succeeded")
    assert [event.type for event in told] == ["reset", "run.succeeded"]


async def test_a_listener_ends_with_the_connection(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url):
        hub = app.connection.hub
        listening = asyncio.create_task(collect(app.events(), "never"))
        await until(lambda: len(hub._listeners) == 1, PATIENCE, "it listens")
    assert await listening == []
    with pytest.raises(InvalidState, match="not connected"):
        app.events()


async def test_a_listener_in_another_event_loop_hears_too(sqlite_url: str):
    app = shop()
    heard: list[str] = []
    is_listening = threading.Event()

    async def listen() -> None:
        async with app.events("run.succeeded") as events:
            is_listening.set()
            heard.extend(event.type for event in await collect(events, "run.succeeded"))

    async with app.running(sqlite_url):
        elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, listen()))
        await asyncio.to_thread(is_listening.wait, PATIENCE)
        await app.jobs["greet"].publish(name="ann")
        await elsewhere
    assert heard == ["run.succeeded"]


@pytest.mark.parametrize(
    ("given", "field"), [({"types": "runs"}, "type"), ({"run_id": -1}, "run"), ({"after": "yesterday"}, "after")]
)
async def test_what_cannot_be_asked_for_is_refused(sqlite_url: str, given: dict[str, object], field: str):
    app = shop()
    async with app.connected(sqlite_url):
        with pytest.raises(InvalidArgument) as refused:
            app.events(**given)
    assert set(refused.value.details) == {field}


async def test_a_run_is_waited_for_however_it_ends(store_url: str):
    app = shop()
    async with app.running(store_url):
        greeted, refused = await app.jobs["greet"].publish(name="ann"), await app.jobs["refuse"].publish()
        assert (await app.wait_for(greeted.run_id, PATIENCE)).result == "hello ann"
        assert (await app.wait_for(refused.run_id, PATIENCE)).error_message == "no"
        with pytest.raises(NotFound):
            await app.wait_for(1, PATIENCE)


async def test_a_run_that_another_process_ends_is_heard_of(store_url: str):
    """Two Apps on one store are as far apart as two processes: nothing but the store is between them."""
    publisher, worker = shop(), App("worker")
    gate = asyncio.Event()

    @worker.job(name="greet")
    async def greet(ctx: Context, name: str) -> str:
        await gate.wait()
        return f"worked by {ctx.worker_id}"

    async with publisher.connected(store_url), worker.running(store_url, worker_id="w1", declare=False):
        published = await publisher.jobs["greet"].publish(name="ann")
        waits = [asyncio.create_task(published.result(PATIENCE)) for _ in range(100)]
        endings = publisher.connection._endings
        await until(lambda: len(endings._waiting.get(published.run_id, ())) == 100, PATIENCE, "all wait")
        assert len(publisher.connection.hub._listeners) <= 1
        gate.set()
        assert set(await asyncio.gather(*waits)) == {"worked by w1"}
        await until(lambda: not publisher.connection.hub._listeners, PATIENCE, "nobody listens any more")


async def test_waiting_has_an_end(sqlite_url: str):
    app = shop()
    async with app.connected(sqlite_url):
        published = await app.jobs["greet"].publish(name="ann")
        with pytest.raises(TimeoutError, match=r"is SCHEDULED after 0\.2 s"):
            await app.wait_for(published.run_id, 0.2)
        waiting = asyncio.create_task(app.wait_for(published.run_id))
        await until(lambda: bool(app.connection._endings._waiting), PATIENCE, "somebody waits")
    with pytest.raises(InvalidState, match="no longer connected"):
        await waiting
