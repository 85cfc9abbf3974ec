"""Wake-ups: how a signal reaches whoever waits, in this process and in others. `make_wakeup` is the table of kinds.

Inside a process it is always direct. Between processes:

    PostgreSQL   LISTEN and NOTIFY on one connection; all signals since the last go out as one notification
    SQLite       the file's `data_version`, looked at while somebody waits
    MySQL        nothing pushes: whoever waits for work or events looks again after a quarter of a second
    Redis        for any store, where `wakeup.url` names one: see wakeup_redis

A signal that gets lost (a connection breaks, a process dies between commit and signal) costs a poll, never a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from noonbell.errors import SettingsError
from noonbell.ports import Wakeup

if TYPE_CHECKING:
    import asyncpg

logger = logging.getLogger("noonbell.wakeup")


class LocalWakeup:
    """Inside one process and one event loop. The others build on it: it is how their signals end."""

    def __init__(self) -> None:
        self._signals: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._seen: WeakKeyDictionary[asyncio.Task[Any], dict[str, int]] = WeakKeyDictionary()
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close: whoever waits goes on to its timeout."""

    def signal(self, topic: str) -> None:
        self._wake(topic)

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self._take(topics):
            await asyncio.sleep(0)
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(waiter)
        timer = loop.call_later(max(0.0, timeout), _resolve, waiter, False)
        try:
            woken = await waiter
            if woken:
                self._take(topics)
            return woken
        finally:
            timer.cancel()
            for topic in topics:
                self._forget(topic, waiter)

    def _wake(self, topic: str) -> None:
        self._signals[topic] = self._signals.get(topic, 0) + 1
        for waiter in self._waiting.get(topic, ()):
            _resolve(waiter, True)

    def _wake_all(self) -> None:
        for topic in list(self._waiting):
            self._wake(topic)

    def _take(self, topics: Sequence[str]) -> bool:
        """Whether one of them was signalled since this asyncio task last waited for it; taken by this.

        A task that never waited before takes what nobody has taken yet.
        """
        task = asyncio.current_task()
        seen = {} if task is None else self._seen.setdefault(task, {})
        found = False
        for topic in topics:
            count = self._signals.get(topic, 0)
            if count != seen.get(topic, self._taken.get(topic, 0)):
                found = True
            seen[topic] = self._taken[topic] = count
        return found

    def _forget(self, topic: str, waiter: asyncio.Future[bool]) -> None:
        waiting = self._waiting[topic]
        waiting.discard(waiter)
        if not waiting:
            del self._waiting[topic]

    @property
    def _somebody_waits(self) -> bool:
        return bool(self._waiting)


def _resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


class PolledWakeup(LocalWakeup):
    """For a store that cannot push: whoever waits on a queue or for events is woken after `poll` seconds at the latest."""

    def __init__(self, poll: float = 0.25) -> None:
        super().__init__()
        self._poll = poll

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        for_news = any(topic.startswith("queue:") or topic == "events" for topic in topics)
        if not for_news or timeout <= self._poll:
            return await super().wait(topics, timeout)
        await super().wait(topics, self._poll)
        return True


_CALM = 0.1
"""Seconds between two wake-ups by the file: commits of this process change it too, and those were told directly."""


class SqliteWakeup(LocalWakeup):
    """Any commit by another connection to the file wakes everybody who waits, of whichever process it was."""

    def __init__(self, path: str, poll: float = 0.025) -> None:
        super().__init__()
        self._path, self._poll = path, poll
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self._watcher is None or self._watcher.done():
            self._changed()  # what happened before anybody waited is what the waiter has just looked at
            self._watcher = asyncio.create_task(self._watch(), name="noonbell sqlite wake-up")
        return await super().wait(topics, timeout)

    async def _watch(self) -> None:
        """Ends by itself soon after the last waiter has gone."""
        idle = 0
        while idle < 3:
            await asyncio.sleep(self._poll)
            idle = 0 if self._somebody_waits else idle + 1
            if self._changed():
                self._wake_all()
                await asyncio.sleep(_CALM)

    def _changed(self) -> bool:
        """A few microseconds: the answer is in the shared memory of the write-ahead log."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
            version: int = self._connection.execute("pragma data_version").fetchone()[0]
        except sqlite3.Error:
            return False
        changed = self._version is not None and version != self._version
        self._version = version
        return changed


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CHANNEL = "noonbell"
_PAYLOAD = 7_500
"""Bytes of topics in one notification; PostgreSQL takes 8,000."""


class PostgresWakeup(LocalWakeup):
    """One connection that listens and notifies.

    Signals are gathered while a notification is on its way, and go out together with the next one: a hundred publishes a
    millisecond are one notification a millisecond. It commits outside of the transactions that it tells of, so that
    they never wait for each other at the lock that PostgreSQL puts around notifying commits.
    """

    def __init__(self, url: str, retry_seconds: float = 1.0) -> None:
        super().__init__()
        self._url, self._retry_seconds = url, retry_seconds
        self._name = secrets.token_hex(6)
        self._outbox: set[str] = set()
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()

    async def open(self) -> None:
        """Returns when it listens, or after a moment if the database is away: it goes on trying."""
        self._task = asyncio.create_task(self._run(), name="noonbell postgres wake-up")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), 5)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def signal(self, topic: str) -> None:
        self._wake(topic)
        self._outbox.add(topic)
        self._news.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Exception as error:  # whatever it is: without a connection there is only the poll, so try again
                logger.warning("wake-ups by PostgreSQL are interrupted: %s", str(error) or type(error).__name__)
            self._connected.clear()
            await asyncio.sleep(self._retry_seconds)

    async def _session(self) -> None:
        """Listen and notify until the connection breaks."""
        import asyncpg

        settings = {"application_name": "noonbell wake-up", "synchronous_commit": "off"}
        connection = await asyncpg.connect(self._url, timeout=10, command_timeout=30, server_settings=settings)
        try:
            self._lost.clear()
            connection.add_termination_listener(self._terminated)
            await connection.add_listener(CHANNEL, self._hear)
            self._connected.set()
            self._wake_all()  # whatever was signalled while nobody listened
            while not self._lost.is_set():
                await self._news.wait()
                self._news.clear()
                if not self._lost.is_set():
                    await self._send(connection)
        finally:
            await _hang_up(connection)

    async def _send(self, connection: Connection) -> None:
        topics, self._outbox = sorted(self._outbox), set()
        for payload in payloads(self._name, topics):
            await connection.execute("select pg_notify($1, $2)", CHANNEL, payload)

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split("\n")
        if sender != self._name:
            for topic in topics:
                self._wake(topic)

    def _terminated(self, _connection: Any) -> None:
        self._lost.set()
        self._news.set()


async def _hang_up(connection: Connection) -> None:
    try:
        await connection.close(timeout=2)
    except Exception:  # it is broken or slow: either way it is not ours any longer
        connection.terminate()


def payloads(sender: str, topics: Sequence[str]) -> list[str]:
    """The sender and the topics, line by line, in as few notifications as will hold them."""
    found: list[str] = []
    current, size = [sender], len(sender)
    for topic in topics:
        length = len(topic.encode()) + 1
        if size + length > _PAYLOAD and len(current) > 1:
            found.append("\n".join(current))
            current, size = [sender], len(sender)
        current.append(topic)
        size += length
    if len(current) > 1:
        found.append("\n".join(current))
    return found


def _sqlite(url: str) -> Wakeup:
    return SqliteWakeup(unquote(url.removeprefix("sqlite://").removeprefix("/")))


_KINDS: dict[str, Callable[[str], Wakeup]] = {
    "memory": lambda _url: LocalWakeup(),
    "sqlite": _sqlite,
    "postgresql": PostgresWakeup,
    "postgres": PostgresWakeup,
    "mysql": lambda _url: PolledWakeup(),
    "mariadb": lambda _url: PolledWakeup(),
}
"""By scheme. A new kind is a class and a line here."""


def make_wakeup(store_url: str, wakeup_url: str | None = None) -> Wakeup:
    """The wake-up that goes with a store, or the Redis at `wakeup_url`; not opened yet."""
    if wakeup_url is not None:
        try:
            from noonbell.stores.wakeup_redis import RedisWakeup
        except ModuleNotFoundError:
            raise SettingsError.field(
                "wakeup.url", "needs the package redis, which is not installed: pip install 'noonbell[redis]'"
            ) from None
        return RedisWakeup(wakeup_url)
    scheme = urlsplit(store_url).scheme
    kind = _KINDS.get(scheme)
    if kind is None:
        raise SettingsError.field("store.url", f"is {store_url!r}; no wake-up is known for {scheme!r}")
    return kind(store_url)
