"""Wake-ups: how a signal reaches waiters, in this process and in others.

Inside a process it is always direct: every signal ends in `LocalWakeup`, wherever it came from. Between processes:

    PostgreSQL   LISTEN and NOTIFY on one connection; all signals since the last go out as one notification
    SQLite       a datagram to the socket of each listener, beside the file (`datagram_wakeups`)
    MySQL        a datagram to the address of each listener, which a table of the store names (`datagram_wakeups`)
    Redis        publish and subscribe, for any store, where `wakeup.url` names one

Signals are gathered while a message is on its way, and for a moment after it (`GAP`); they go out together with the
next one. So a lone publish signals at once, and a thousand in a row send a message every few milliseconds. While
nothing can be heard, waiters for work and events poll: after 50 ms at first, then less and less often, down to every
quarter of a second. `close` sends what is still to be sent first, for a second at most, so that a publisher that ends
right after its commit has signalled. PostgreSQL's notifications are committed outside of the transactions that they are
about, so that these never wait for each other at the lock that PostgreSQL puts around notifying commits.

A signal that gets lost (a connection breaks, a process dies between commit and signal) costs a poll, never a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from noonbell.masking import mask_addresses
from noonbell.ports import EVENTS, queue_topic

if TYPE_CHECKING:
    import asyncpg
    from redis.asyncio import Redis

    from noonbell.stores.postgres_pool import PostgresHosts

logger = logging.getLogger("noonbell.wakeup")


class LocalWakeup:
    """Inside one process and one event loop. The others build on it."""

    hears_commits = False

    def __init__(self) -> None:
        self._signals: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._seen: WeakKeyDictionary[asyncio.Task[Any], dict[str, int]] = WeakKeyDictionary()
        self._waiting: dict[str, dict[asyncio.Future[bool], None]] = {}
        """In the order in which they came, and are woken."""

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close: waiters go on to their timeout."""

    def signal(self, topic: str) -> None:
        self._wake(topic)

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self._take(topics):
            await asyncio.sleep(0)
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        for topic in topics:
            self._waiting.setdefault(topic, {})[waiter] = None
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
        """Wake all waiters; also those who look at the store just now, and wait for one of the topics again
        afterwards.
        """
        for topic in {*self._waiting, *self._taken}:
            self._wake(topic)

    def _take(self, topics: Sequence[str]) -> bool:
        """Whether one of them was signalled since this asyncio task last waited for it; taken by this.

        A task that never waited before takes the signals that no task has taken yet.
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
        waiting.pop(waiter, None)
        if not waiting:
            del self._waiting[topic]


def _resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


_SOON = 0.05
"""Seconds from the last signal to the first poll."""


class PolledWakeup(LocalWakeup):
    """While nothing can be pushed: a waiter on a queue or for events is woken after `poll` seconds at the latest."""

    def __init__(self, poll: float = 0.25) -> None:
        super().__init__()
        self._poll = poll
        self._pause = min(_SOON, poll)

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        for_news = any(topic.startswith(queue_topic("")) or topic == EVENTS for topic in topics)
        if not for_news or timeout <= self._pause:
            return await super().wait(topics, timeout)
        is_signalled = await super().wait(topics, self._pause)
        self._pause = min(_SOON if is_signalled else self._pause * 1.5, self._poll)
        return True


GAP = 0.002
"""Seconds from one message to the next, at the least: who is woken has as much to look for as it takes to look."""


class PushedWakeup(PolledWakeup, ABC):
    by: str
    """What carries the signals, for people."""
    patience: float
    """Seconds that `open` waits for the first connection."""
    last_words: float = 1.0
    """Seconds that `close` waits for signals that are still to be sent."""

    def __init__(self, retry_seconds: float = 1.0) -> None:
        super().__init__()
        self._retry_seconds = retry_seconds
        self._name = secrets.token_hex(6)
        self._outbox: set[str] = set()
        self._under_way: set[str] = set()
        """Taken from the outbox, and not yet known to be sent."""
        self._told_at = float("-inf")
        """When (monotonic) the last message went out."""
        self._all_told = asyncio.Event()
        self._all_told.set()
        self._news = asyncio.Event()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    @abstractmethod
    async def _session(self) -> None:
        """Connect, say `_listens`, then hear and tell until the connection breaks."""

    @property
    def is_connected(self) -> bool:
        """Whether signals of other processes arrive."""
        return self._connected.is_set()

    @property
    def hears_everybody(self) -> bool:
        """Whether every process of the installation is in reach: while it is connected, nothing has to be polled for."""
        return True

    async def open(self) -> None:
        """Returns when it listens, or after a moment if the other side is away: it goes on trying."""
        self._task = asyncio.create_task(self._run(), name=f"noonbell wake-up by {self.by}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), self.patience)

    async def close(self) -> None:
        """Sends what is still to be sent, for `last_words` seconds at most."""
        task, self._task = self._task, None
        if task is None:
            return
        self._is_closing = True
        if not task.done():
            await self._tell_the_rest()
        while not task.done():  # `asyncio.wait_for`, in a driver, may swallow a cancellation that comes with the answer
            task.cancel()
            await asyncio.wait([task], timeout=1)

    async def _tell_the_rest(self) -> None:
        try:
            await asyncio.wait_for(self._all_told.wait(), self.last_words)
        except TimeoutError:
            logger.warning(
                "%d wake-up signals by %s could not be sent before the close: who waits for them finds the work by polling",
                *(len(self._outbox | self._under_way), self.by),
            )

    def signal(self, topic: str) -> None:
        self._wake(topic)
        self._outbox.add(topic)
        self._all_told.clear()
        self._news.set()

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self.is_connected and self.hears_everybody:
            return await LocalWakeup.wait(self, topics, timeout)
        return await super().wait(topics, timeout)

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Exception as error:  # any error: without a connection there is only the poll, so try again
                said = mask_addresses(str(error)) or type(error).__name__
                logger.warning("wake-ups by %s are interrupted: %s", self.by, said)
            self._send_again()
            if self.is_connected:
                self._connected.clear()
                self._wake_all()  # waiters begin to poll
            await asyncio.sleep(self._retry_seconds)

    def _listens(self) -> None:
        self._connected.set()
        self._wake_all()  # signals may have been lost while no connection listened

    async def _to_tell(self) -> list[str]:
        """The topics since the last time, as soon as there are any or the connection is known to be broken.

        To ask again is to say that the last ones were sent.
        """
        self._under_way = set()
        if self._has_told_all():
            self._all_told.set()
        await self._news.wait()
        gap = self._told_at + GAP - time.monotonic()
        if gap > 0 and not self._is_closing:
            await asyncio.sleep(gap)
        self._news.clear()
        self._told_at = time.monotonic()
        self._under_way, self._outbox = self._outbox, set()
        return sorted(self._under_way)

    def _has_told_all(self) -> bool:
        return not self._outbox

    def _send_again(self) -> None:
        """Keep what was under way for the next connection: this one is gone, and perhaps that with it."""
        self._outbox |= self._under_way
        self._under_way = set()
        if self._outbox:
            self._news.set()

    def _heard(self, message: str) -> None:
        sender, *topics = message.split("\n")
        if sender != self._name:
            for topic in topics:
                self._wake(topic)


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CHANNEL = "noonbell"
_OWN_CALL = 2.0
"""Seconds that a notification to oneself has."""
_PAYLOAD = 7_500
"""Bytes of topics in one notification; PostgreSQL takes 8,000."""


def channel_of(mark: str) -> str:
    """Each store of a database has a channel of its own; one with plain names has the plain one."""
    return f"{CHANNEL}_{mark}" if mark else CHANNEL


class PostgresWakeup(PushedWakeup):
    by = "PostgreSQL"
    patience = 5
    hears_commits = True

    def __init__(self, url: str, retry_seconds: float = 1.0, *, mark: str = "", pooled: bool = False) -> None:
        """`pooled`: a pooler in transaction mode answers at the address. It may take LISTEN and hear nothing."""
        super().__init__(retry_seconds)
        self._url, self._pooled = url, pooled
        self._own_call = asyncio.Event()
        self._has_warned = False
        self._hosts: PostgresHosts | None = None
        self._channel = channel_of(mark)
        self._lost = asyncio.Event()

    async def _session(self) -> None:
        connection = await self._connect()
        try:
            self._lost.clear()
            connection.add_termination_listener(self._terminated)
            await connection.add_listener(self._channel, lambda *heard: self._hear(str(heard[-1])))
            if await self._hears_itself():
                self._listens()
            while not self._lost.is_set():
                for payload in payloads(self._name, await self._to_tell()):
                    await self._notify(connection, payload)
        finally:
            await _hang_up(connection)

    async def _connect(self) -> Connection:
        from noonbell.stores.postgres_pool import PostgresHosts

        settings = {"application_name": "noonbell wake-up"} | ({} if self._pooled else {"synchronous_commit": "off"})
        self._hosts = self._hosts or PostgresHosts(self._url)
        return await self._hosts.connect(
            timeout=10, command_timeout=30, server_settings=settings, statement_cache_size=0 if self._pooled else 100
        )

    async def _hears_itself(self) -> bool:
        """Whether a notification that another connection sends comes through. Without a pooler it does."""
        if not self._pooled:
            return True
        self._own_call.clear()
        other = await self._connect()
        try:
            await self._notify(other, self._name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._own_call.wait(), _OWN_CALL)
                return True
        finally:
            await _hang_up(other)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "PostgreSQL notifications do not pass through the pooler of store.url: work is found by polling;"
                " wakeup.url: postgresql://… of the server itself brings them"
            )
        return False

    def _hear(self, message: str) -> None:
        if message == self._name:
            self._own_call.set()
        else:
            self._heard(message)

    async def _notify(self, connection: Connection, payload: str) -> None:
        async with connection.transaction() if self._pooled else contextlib.nullcontext():
            await connection.execute("select pg_notify($1, $2)", self._channel, payload)

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


_PING_EVERY = 5.0
"""Seconds of silence after which the connection is asked whether it still is one."""


class RedisWakeup(PushedWakeup):
    by = "Redis"
    patience = 2

    def __init__(self, url: str, retry_seconds: float = 1.0, *, mark: str = "") -> None:
        super().__init__(retry_seconds)
        self._url = url
        # Redis's channels know no databases: installations that share a server differ by the number.
        self._channel = f"noonbell:{urlsplit(url).path.strip('/') or 0}{mark and f':{mark}'}"

    async def _session(self) -> None:
        from redis.asyncio import Redis

        client = Redis.from_url(self._url, socket_connect_timeout=5, socket_timeout=10, client_name="noonbell-wake-up")
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(self._channel)
                self._listens()
                sending = asyncio.create_task(self._send(client))
                try:
                    await self._listen(pubsub, sending)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        finally:
            await client.aclose()

    async def _listen(self, pubsub: Any, sending: asyncio.Task[None]) -> None:
        while not sending.done():
            async with asyncio.timeout(2 * _PING_EVERY):
                message = await pubsub.get_message(timeout=_PING_EVERY)
                if message is None:
                    await pubsub.ping()
            if message is not None and message["type"] == "message":
                data = message["data"]
                self._heard(data.decode() if isinstance(data, bytes) else data)
        sending.result()

    async def _send(self, client: Redis) -> None:
        while True:
            topics = await self._to_tell()
            if topics:
                await client.publish(self._channel, "\n".join((self._name, *topics)))
