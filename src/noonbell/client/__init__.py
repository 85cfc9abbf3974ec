"""Clients of the REST API: `Client` waits for each answer, `AsyncClient` is awaited. Both have a method for every call.

    client = Client("http://127.0.0.1:8080", token="…")
    task = client.create_task(name="nightly", cron_expr="0 3 * * *", target_url="http://127.0.0.1:9000/run")
    client.trigger_task(task["id"], payload={"region": "eu"})

An error of the server is raised as the error that it was: `NotFound`, `InvalidArgument` with its details, and so on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from noonbell.client.calls import Calls
from noonbell.client.wire import BASE, Ask, Stream, Wire

__all__ = ["AsyncClient", "Client"]

DEFAULT_URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 60.0
"""Seconds that an answer may take."""


def _wire(url: str | None, token: str | None, timeout: float) -> Wire:
    address = url or os.environ.get("NOONBELL_URL") or DEFAULT_URL
    return Wire(address, token or os.environ.get("NOONBELL_TOKEN") or None, timeout)


def _listening(after: str | None, filters: Mapping[str, Any]) -> Ask:
    headers = {"accept": "text/event-stream", **({"last-event-id": after} if after else {})}
    return Ask("GET", f"{BASE}/events", filters, headers=headers)


class Client(Calls):
    """`url` and `token` are by default those of NOONBELL_URL and NOONBELL_TOKEN. Threads may share it."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = PATIENCE) -> None:
        self._wire = _wire(url, token, timeout)

    def _carry_out(self, ask: Ask) -> Any:
        return self._wire.call(ask)

    def events(self, *, after: str | None = None, **filters: Any) -> Stream:
        """What happens, as it happens. With the id of the last event seen as `after`, nothing in between is missed."""
        return self._wire.stream(_listening(after, filters))


class AsyncClient(Calls):
    """The same, awaited. Each call is made in a thread."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = PATIENCE) -> None:
        self._wire = _wire(url, token, timeout)

    async def _carry_out(self, ask: Ask) -> Any:
        return await asyncio.to_thread(self._wire.call, ask)

    async def events(self, *, after: str | None = None, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        stream = await asyncio.to_thread(self._wire.stream, _listening(after, filters))
        try:
            while (event := await asyncio.to_thread(next, stream, None)) is not None:
                yield event
        finally:
            stream.close()
