"""Wake-ups by Redis, for any store: publish and subscribe on one channel, all signals since the last as one message.

Redis holds nothing: what is due and what has happened is in the store. While Redis is away, whoever waits for work or
events looks again after a quarter of a second, as on a store that cannot push; so losing it costs a poll, never a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis

from noonbell.settings.masking import mask_addresses
from noonbell.stores.wakeups import LocalWakeup, PolledWakeup

logger = logging.getLogger("noonbell.wakeup")

_PING_EVERY = 5.0
"""Seconds of silence after which the connection is asked whether it still is one."""


class RedisWakeup(PolledWakeup):
    def __init__(self, url: str, retry_seconds: float = 1.0) -> None:
        super().__init__()
        self._url, self._retry_seconds = url, retry_seconds
        # Redis's channels know no databases: installations that share a server are told apart by the number.
        self._channel = f"noonbell:{urlsplit(url).path.strip('/') or 0}"
        self._name = secrets.token_hex(6)
        self._outbox: set[str] = set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        """Returns when it listens, or after a moment if Redis is away: it goes on trying."""
        self._task = asyncio.create_task(self._run(), name="noonbell redis wake-up")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), 2)

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

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self.is_connected:
            return await LocalWakeup.wait(self, topics, timeout)
        return await super().wait(topics, timeout)

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Exception as error:  # whatever it is: without a connection there is only the poll, so try again
                said = mask_addresses(str(error)) or type(error).__name__
                logger.warning("wake-ups by Redis are interrupted: %s", said)
            self._outbox.clear()  # what was not sent is found by the poll
            if self._connected.is_set():
                self._connected.clear()
                self._wake_all()  # whoever waits begins to look for itself
            await asyncio.sleep(self._retry_seconds)

    async def _session(self) -> None:
        """Listen and publish until the connection breaks."""
        client = Redis.from_url(self._url, socket_connect_timeout=5, socket_timeout=10, client_name="noonbell-wake-up")
        try:
            async with client.pubsub() as pubsub:
                await pubsub.subscribe(self._channel)
                self._connected.set()
                self._wake_all()  # whatever was signalled while nobody listened
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
                self._hear(message["data"])
        sending.result()

    async def _send(self, client: Redis) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            topics, self._outbox = sorted(self._outbox), set()
            if topics:
                await client.publish(self._channel, "\n".join((self._name, *topics)))

    def _hear(self, payload: bytes | str) -> None:
        text = payload.decode() if isinstance(payload, bytes) else payload
        sender, *topics = text.split("\n")
        if sender != self._name:
            for topic in topics:
                self._wake(topic)
