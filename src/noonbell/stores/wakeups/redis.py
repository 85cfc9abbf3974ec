"""Wake-ups by Redis, for any store: publish and subscribe on one channel.

Redis holds nothing: what is due and what has happened is in the store, so losing Redis costs a poll, never a run.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis

from noonbell.stores.wakeups.pushed import PushedWakeup

_PING_EVERY = 5.0
"""Seconds of silence after which the connection is asked whether it still is one."""


class RedisWakeup(PushedWakeup):
    by = "Redis"
    patience = 2

    def __init__(self, url: str, retry_seconds: float = 1.0, *, mark: str = "") -> None:
        super().__init__(url, retry_seconds)
        # Redis's channels know no databases: installations that share a server are told apart by the number.
        self._channel = f"noonbell:{urlsplit(url).path.strip('/') or 0}{mark and f':{mark}'}"

    async def _session(self) -> None:
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
