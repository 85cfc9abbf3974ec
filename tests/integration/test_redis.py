"""Wake-ups by Redis: signals travel between nodes of any store; without Redis there is the poll, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from integration.proxy import Proxy
from integration.support import job, until
from noonbell.engine.event_hub import Hub, signal_events
from noonbell.engine.publish import publish
from noonbell.errors import SettingsError
from noonbell.model.request import Publication
from noonbell.ports import EVENTS
from noonbell.stores import make_wakeup, open_store
from noonbell.stores.wakeups import RedisWakeup

LONG = 60.0
"""Seconds that no test waits for: who is woken is woken long before."""


@contextlib.asynccontextmanager
async def opened(url: str, retry_seconds: float = 0.05) -> AsyncIterator[RedisWakeup]:
    wakeup = RedisWakeup(url, retry_seconds)
    await wakeup.open()
    try:
        yield wakeup
    finally:
        await wakeup.close()


async def test_a_signal_reaches_another_node(redis_url: str):
    async with opened(redis_url) as here, opened(redis_url) as there:
        assert here.is_connected
        waiting = asyncio.create_task(there.wait(["queue:a", "plan"], LONG))
        await asyncio.sleep(0)
        here.signal("queue:a")
        assert await waiting
        assert not await there.wait(["queue:b"], 0.01)


async def test_a_node_does_not_hear_itself_twice(redis_url: str):
    async with opened(redis_url) as here, opened(redis_url) as there:
        here.signal("plan")
        assert await here.wait(["plan"], 0)
        assert await there.wait(["plan"], LONG)
        assert not await here.wait(["plan"], 0.05)


async def test_installations_with_databases_of_their_own_do_not_wake_each_other(redis_url: str):
    other = urlsplit(redis_url)._replace(path="/0").geturl()
    async with opened(redis_url) as here, opened(other) as there, opened(redis_url) as witness:
        here.signal("plan")
        assert await witness.wait(["plan"], LONG)
        assert not await there.wait(["plan"], 0.05)


async def test_while_redis_is_away_whoever_waits_for_work_looks_for_itself(redis_url: str):
    async with Proxy(redis_url) as proxy, opened(proxy.url) as wakeup:
        waiting = asyncio.create_task(wakeup.wait(["queue:a"], LONG))
        await asyncio.sleep(0)
        await proxy.cut()
        assert await waiting, "it goes on at once, to look"
        await until(lambda: not wakeup.is_connected, LONG, "the connection to change")
        assert await wakeup.wait(["queue:a"], LONG), "by the poll"
        assert await wakeup.wait([EVENTS], LONG), "by the poll"
        assert not await wakeup.wait(["plan"], 0.3), "the planner has a net of its own"


async def test_signals_travel_again_when_redis_is_back(redis_url: str):
    async with Proxy(redis_url) as proxy, opened(proxy.url) as here, opened(redis_url) as there:
        await proxy.cut()
        await until(lambda: not here.is_connected, LONG, "the connection to change")
        here.signal("plan")
        assert await here.wait(["plan"], 0), "inside the process a signal needs no Redis"
        await proxy.restore()
        await until(lambda: here.is_connected, LONG, "the connection to change")
        here.signal("orders")
        assert await there.wait(["orders"], LONG)


async def test_a_connection_that_was_killed_is_made_anew(redis_url: str):
    async with opened(redis_url) as here, opened(redis_url) as there, Redis.from_url(redis_url) as operator:
        mine = [
            one["id"]
            for one in await operator.client_list(_type="pubsub")
            if f"/{one['db']}" == urlsplit(redis_url).path and one["name"] == "noonbell-wake-up"
        ]
        assert len(mine) == 2
        for id_ in mine:
            await operator.client_kill_filter(_id=id_)
        await until(lambda: not here.is_connected or not there.is_connected, LONG, "the connection to change")
        await until(lambda: here.is_connected and there.is_connected, LONG, "the connection to change")
        here.signal("plan")
        assert await there.wait(["plan"], LONG)


async def test_a_listener_that_reconnects_wakes_those_who_wait_for_a_topic_that_is_not_polled(redis_url: str):
    async with Proxy(redis_url) as proxy, opened(proxy.url) as wakeup:
        await proxy.cut()
        await until(lambda: not wakeup.is_connected, LONG, "the connection to change")
        waiting = asyncio.create_task(wakeup.wait(["plan"], LONG))
        await asyncio.sleep(0)
        await proxy.restore()
        assert await waiting, "it listens again, and may have missed a signal"
        assert wakeup.is_connected


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_signals_that_are_followed_by_close_reach_other_processes(redis_url: str, turns: int):
    async with opened(redis_url) as there:
        for _ in range(4):
            async with opened(redis_url) as here:
                here.signal("plan")
                for _ in range(turns):
                    await asyncio.sleep(0)
            assert await there.wait(["plan"], LONG)


async def test_a_close_gives_up_on_a_redis_that_is_gone(redis_url: str, caplog: pytest.LogCaptureFixture):
    async with Proxy(redis_url) as proxy:
        async with opened(proxy.url) as wakeup:
            wakeup.last_words = 0.2
            await proxy.cut()
            await until(lambda: not wakeup.is_connected, LONG, "the connection to change")
            wakeup.signal("plan")
        assert len([one for one in caplog.messages if "could not be sent before the close" in one]) == 1


async def test_a_start_without_redis_is_a_start(redis_url: str):
    async with Proxy(redis_url) as proxy:
        await proxy.cut()
        async with opened(proxy.url) as wakeup:
            assert not wakeup.is_connected
            assert await wakeup.wait(["queue:a"], LONG)


@pytest.mark.parametrize("kind", ["sqlite_url", "mysql_url"])
async def test_a_run_published_on_one_node_wakes_a_worker_and_a_listener_on_another(
    redis_url: str, kind: str, request: pytest.FixtureRequest
):
    url = request.getfixturevalue(kind)
    async with contextlib.AsyncExitStack() as parts:
        here, there = [await parts.enter_async_context(opened(redis_url)) for _ in range(2)]
        stores = [open_store(url), open_store(url)]
        for store in stores:
            await store.open()
            parts.push_async_callback(store.close)
        told = stores[0]
        signal_events(told, here)
        hub = Hub(stores[1], there, poll=LONG)
        parts.push_async_callback(hub.close)
        task = await told.create_task(job("a"))
        async with hub.listen() as listener:
            working = asyncio.create_task(there.wait(["queue:default"], LONG))
            await asyncio.sleep(0)
            (answer,) = await publish(told, here, [Publication(task_id=task.id)], {task.id: task})
            assert await working
            batch = await listener.next(LONG)
            assert batch is not None
            assert [event.run_id for event in batch.events] == [answer.run_id]


def test_the_setting_chooses_redis_for_any_store(redis_url: str):
    for store in ("memory://", "sqlite:///x.db", "postgresql://h/d", "mysql://h/d"):
        assert isinstance(make_wakeup(store, redis_url), RedisWakeup)
    with pytest.raises(SettingsError):
        make_wakeup("nonsense://x")
