"""Wake-ups by PostgreSQL: LISTEN and NOTIFY on one connection.

It commits outside of the transactions that it tells of, so that they never wait for each other at the lock that
PostgreSQL puts around notifying commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from noonbell.stores.wakeups.pushed import PushedWakeup

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CHANNEL = "noonbell"
_PAYLOAD = 7_500
"""Bytes of topics in one notification; PostgreSQL takes 8,000."""


def channel_of(mark: str) -> str:
    """Each store of a database has a channel of its own; one with plain names has the plain one."""
    return f"{CHANNEL}_{mark}" if mark else CHANNEL


class PostgresWakeup(PushedWakeup):
    by = "PostgreSQL"
    patience = 5

    def __init__(self, url: str, retry_seconds: float = 1.0, *, mark: str = "") -> None:
        super().__init__(url, retry_seconds)
        self._channel = channel_of(mark)
        self._lost = asyncio.Event()

    async def _session(self) -> None:
        import asyncpg

        settings = {"application_name": "noonbell wake-up", "synchronous_commit": "off"}
        connection = await asyncpg.connect(self._url, timeout=10, command_timeout=30, server_settings=settings)
        try:
            self._lost.clear()
            connection.add_termination_listener(self._terminated)
            await connection.add_listener(self._channel, lambda *heard: self._heard(str(heard[-1])))
            self._listens()
            while not self._lost.is_set():
                for payload in payloads(self._name, await self._to_tell()):
                    await connection.execute("select pg_notify($1, $2)", self._channel, payload)
        finally:
            await _hang_up(connection)

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
