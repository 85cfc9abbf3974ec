"""Wake-ups: the law of the port on every kind; and how fast a signal travels between processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from integration.support import TESTS, until
from noonbell.engine.event_hub import DebouncedSignal
from noonbell.errors import SettingsError
from noonbell.ports import EVENTS, Wakeup
from noonbell.stores import make_wakeup
from noonbell.stores.wakeups import LocalWakeup, PolledWakeup, PostgresWakeup, PushedWakeup, payloads

LONG = 60.0
"""Seconds that no test waits for: who is woken is woken long before."""

Make = Callable[[], Awaitable[Wakeup]]


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Opens one more wake-up of the same kind on the same store, as another process would; it listens already."""
    kind = request.param
    url = "memory://" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    if kind == "sqlite":
        await create_empty(url)
    opened: list[Wakeup] = []

    async def make_one() -> Wakeup:
        wakeup = make_wakeup(url)
        await wakeup.open()
        opened.append(wakeup)
        if isinstance(wakeup, PushedWakeup):
            await wakeup.wait(["nothing"], 0)  # some listen only when a caller waits
            await until(lambda: wakeup.is_connected, 60, "it to listen")
        return wakeup

    yield make_one
    for wakeup in opened:
        await wakeup.close()


async def create_empty(url: str) -> None:
    """A file without a store: wake-ups read nothing of it."""
    await asyncio.to_thread(Path(url.removeprefix("sqlite:///")).touch)


# ---- the law


async def test_a_signal_wakes_whoever_waits(make: Make):
    wakeup = await make()
    waiting = asyncio.create_task(wakeup.wait(["queue:a", "plan"], 20))
    await asyncio.sleep(0)
    wakeup.signal("plan")
    assert await waiting


async def test_a_signal_before_the_wait_is_not_lost(make: Make):
    wakeup = await make()
    wakeup.signal("plan")
    assert await wakeup.wait(["plan"], 0)


async def test_a_signal_wakes_once(make: Make):
    wakeup = await make()
    wakeup.signal("plan")
    wakeup.signal("plan")
    assert await wakeup.wait(["plan"], 0)
    assert not await wakeup.wait(["plan"], 0)


async def test_other_topics_wake_nobody(make: Make):
    wakeup = await make()
    wakeup.signal("queue:b")
    assert not await wakeup.wait(["queue:a"], 0.01)


async def test_all_who_wait_are_woken(make: Make):
    wakeup = await make()
    waiting = [asyncio.create_task(wakeup.wait(["plan"], 20)) for _ in range(3)]
    await asyncio.sleep(0)
    wakeup.signal("plan")
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_who_was_busy_while_another_was_woken_has_not_missed_it(make: Make):
    wakeup = await make()
    go = asyncio.Event()

    async def busy() -> list[bool]:
        first = await wakeup.wait(["plan"], 20)
        await go.wait()
        return [first, await wakeup.wait(["plan"], 0), await wakeup.wait(["plan"], 0)]

    async def eager() -> list[bool]:
        return [await wakeup.wait(["plan"], 20), await wakeup.wait(["plan"], 20)]

    both = asyncio.create_task(busy()), asyncio.create_task(eager())
    await asyncio.sleep(0)
    wakeup.signal("plan")
    for _ in range(5):
        await asyncio.sleep(0)
    wakeup.signal("plan")
    assert await both[1] == [True, True]
    go.set()
    assert await both[0] == [True, True, False]


async def test_a_signal_reaches_all_other_processes(make: Make):
    here, *others = [await make() for _ in range(4)]
    if isinstance(here, PushedWakeup):
        waiting = [asyncio.create_task(other.wait(["orders"], LONG)) for other in others]
        await asyncio.sleep(0)
        here.signal("orders")
        assert await asyncio.gather(*waiting) == [True, True, True]


async def test_a_topic_that_was_signalled_while_a_listener_looked_is_not_lost(make: Make):
    here, there = await make(), await make()
    if isinstance(here, PushedWakeup):
        assert not await there.wait(["orders"], 0)
        here.signal("orders")
        assert await there.wait(["orders"], LONG)


async def test_a_wait_that_is_canceled_leaves_nothing_behind(make: Make):
    wakeup = await make()
    waiting = asyncio.create_task(wakeup.wait(["plan"], 20))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(wakeup, LocalWakeup)
    assert wakeup._waiting == {}


# ---- PostgreSQL


async def two(url: str) -> tuple[PostgresWakeup, PostgresWakeup]:
    here, there = PostgresWakeup(url, retry_seconds=0.02), PostgresWakeup(url, retry_seconds=0.02)
    await here.open()
    await there.open()
    return here, there


async def test_a_signal_travels_to_other_processes(postgres_url: str):
    here, there = await two(postgres_url)
    waiting = asyncio.create_task(there.wait(["queue:a"], 20))
    await asyncio.sleep(0)
    here.signal("queue:a")
    assert await waiting
    await here.close()
    await there.close()


async def test_a_topic_is_not_heard_under_another_name(postgres_url: str):
    here, there = await two(postgres_url)
    here.signal("queue:a b\tc")
    assert await there.wait(["queue:a b\tc"], 20)
    assert not await there.wait(["queue:a"], 0.05)
    await here.close()
    await there.close()


async def test_signals_that_come_together_are_one_notification(postgres_url: str):
    here = PostgresWakeup(postgres_url)
    await here.open()
    listener = await asyncpg.connect(postgres_url)
    heard: list[str] = []
    await listener.add_listener("noonbell", lambda *told: heard.append(told[3]))
    for _ in range(100):
        here.signal("queue:a")
        here.signal("queue:b")
    here.signal("plan")
    await until(lambda: bool(heard), 60, "the notification")
    here.signal("last")
    await until(lambda: heard[-1].endswith("last"), 60, "the last notification")
    assert [note.split("\n")[1:] for note in heard] == [["plan", "queue:a", "queue:b"], ["last"]]
    await listener.close()
    await here.close()


async def test_a_broken_connection_is_made_anew_and_waiters_look_again(postgres_url: str):
    here, there = await two(postgres_url)
    admin = await asyncpg.connect(postgres_url)
    waiting = asyncio.create_task(there.wait(["queue:a"], 20))
    await asyncio.sleep(0)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'noonbell wake-up' and datname = current_database()"
    )
    assert await waiting  # something may have been signalled while nobody listened
    await until(lambda: here._connected.is_set() and there._connected.is_set(), 60, "both to be connected again")
    here.signal("queue:a")
    assert await there.wait(["queue:a"], 20)
    for one in (here, there):
        await one.close()
    await admin.close()


async def test_a_listener_that_reconnects_wakes_those_who_wait_for_a_topic_that_is_not_polled(postgres_url: str):
    here = PostgresWakeup(postgres_url, retry_seconds=0.2)
    await here.open()
    admin = await asyncpg.connect(postgres_url)
    waiting = asyncio.create_task(here.wait(["plan"], LONG))
    await asyncio.sleep(0)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'noonbell wake-up' and datname = current_database()"
    )
    assert await waiting, "the connection broke"
    assert not here.is_connected
    # Another process may signal now, and this one cannot hear it: it has to look again once it listens.
    assert await here.wait(["plan"], LONG), "it listens again"
    assert here.is_connected
    assert not await here.wait(["plan"], 0.05), "once"
    await here.close()
    await admin.close()


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_signals_that_are_followed_by_close_reach_other_processes(postgres_url: str, turns: int):
    there = PostgresWakeup(postgres_url)
    await there.open()
    for _ in range(4):
        here = PostgresWakeup(postgres_url)
        await here.open()
        here.signal("plan")
        for _ in range(turns):
            await asyncio.sleep(0)
        await here.close()
        assert await there.wait(["plan"], LONG)
    await there.close()


async def test_a_close_gives_up_on_a_server_that_is_gone_and_says_so_once(caplog: pytest.LogCaptureFixture):
    wakeup = PostgresWakeup("postgresql://nobody@127.0.0.1:1/none", retry_seconds=0.01)
    wakeup.patience = 0.05
    wakeup.last_words = 0.2
    await wakeup.open()
    wakeup.signal("plan")
    await asyncio.wait_for(wakeup.close(), LONG)
    assert len([one for one in caplog.messages if "could not be sent before the close" in one]) == 1
    await wakeup.close()  # a second time does nothing


async def test_a_publisher_that_ends_right_after_its_commit_wakes_a_worker_at_once(postgres_url: str):
    worker = PostgresWakeup(postgres_url)
    await worker.open()
    for ending in ("async", "sync", "without leaving"):
        waiting = asyncio.create_task(worker.wait(["queue:default"], LONG))
        await run_script(PUBLISHER, postgres_url, ending)
        assert await waiting, ending
    await worker.close()


async def test_a_listener_for_events_is_told_of_the_last_one_before_the_close(postgres_url: str):
    here, there = await two(postgres_url)
    nudge = DebouncedSignal(here, apart=LONG)
    nudge()
    assert await there.wait([EVENTS], LONG)
    nudge()  # too soon after the first: it is put off
    nudge.close()
    await here.close()
    assert await there.wait([EVENTS], LONG)
    await there.close()


async def test_without_a_database_signals_still_travel_inside_the_process(monkeypatch):
    wakeup = PostgresWakeup("postgresql://nobody@127.0.0.1:1/none", retry_seconds=0.01)
    opening = asyncio.create_task(wakeup.open())
    await asyncio.sleep(0.05)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    wakeup.signal("plan")
    assert await wakeup.wait(["plan"], 1)
    await wakeup.close()


def test_a_notification_stays_below_the_limit_of_the_server():
    topics = [f"queue:{number:04d}-{'ü' * 100}" for number in range(200)]
    found = payloads("me", topics)
    assert [topic for note in found for topic in note.split("\n")[1:]] == topics
    assert max(len(note.encode()) for note in found) < 8000
    assert payloads("me", []) == []


PUBLISHER = """
import asyncio, sys
from noonbell import App

app = App("publisher")

@app.job
async def work() -> None: ...

async def within() -> None:
    async with app.connected(sys.argv[1]):
        await work.publish()

match sys.argv[2]:
    case "async":
        asyncio.run(within())
    case "sync":
        with app.connected(sys.argv[1]):
            work.publish_sync()
    case "without leaving":
        app.connected(sys.argv[1]).__enter__()
        work.publish_sync()
"""


async def run_script(script: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, env=os.environ | {"PYTHONPATH": str(TESTS)}, stderr=subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()[-2000:]


# ---- the rest


async def test_what_cannot_be_pushed_is_polled_for_work_and_for_nothing_else():
    wakeup = PolledWakeup(poll=0.01)
    assert await wakeup.wait(["queue:a"], 20)
    assert not await wakeup.wait(["plan"], 0.02)


async def test_a_close_ends_although_a_driver_swallows_the_cancellation():
    class Swallowing(PushedWakeup):
        by, patience = "a driver", 0.0
        swallowed = 0

        async def _session(self) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.swallowed += 1
                if self.swallowed == 1:
                    raise ConnectionRefusedError from None
                raise

    wakeup = Swallowing(retry_seconds=0.01)
    await wakeup.open()
    await asyncio.sleep(0)
    await asyncio.wait_for(wakeup.close(), LONG)


def test_an_unknown_store_is_refused():
    with pytest.raises(SettingsError, match="ftp"):
        make_wakeup("ftp://here")


async def test_a_timeout_is_kept_to_the_millisecond():
    wakeup = LocalWakeup()
    late = []
    for _ in range(20):
        asked = time.monotonic()
        await wakeup.wait(["plan"], 0.01)
        late.append(time.monotonic() - asked - 0.01)
    assert -0.001 < min(late) < 0.005  # a busy machine adds to it, and never takes away
