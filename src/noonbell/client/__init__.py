"""Clients of the REST API: `Client` waits for each answer, `AsyncClient` is awaited. Both have a method for every call,
with the types of what it takes and answers (`noonbell.client.types`).

    client = Client("http://127.0.0.1:8080", token="…")
    task = client.create_task(name="nightly", cron_expr="0 3 * * *", target_url="http://127.0.0.1:9000/run")
    client.trigger_task(task["id"], payload={"region": "eu"})

An error of the server is raised as the error that it was: `NotFound`, `InvalidArgument` with its details, and so on.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Unpack

from noonbell.client.calls import ApiCalls
from noonbell.client.transport import DEFAULT_URL, PATIENCE, ClientRequest, ServerSentEvents, Transport, listening

if TYPE_CHECKING:
    from noonbell.client import types

__all__ = ["AsyncClient", "Client"]


class _ConnectedCalls(ApiCalls):
    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = PATIENCE) -> None:
        address = url or os.environ.get("NOONBELL_URL") or DEFAULT_URL
        self._wire = Transport(address, token or os.environ.get("NOONBELL_TOKEN") or None, timeout)


def _stream_of(filters: types.EventListInput) -> ClientRequest:
    return listening(filters.get("after"), {name: value for name, value in filters.items() if name != "after"})


class Client(_ConnectedCalls):
    """`url` and `token` are by default those of NOONBELL_URL and NOONBELL_TOKEN. Threads may share it."""

    def _carry_out(self, ask: ClientRequest) -> Any:
        return self._wire.call(ask)

    def events(self, **filters: Unpack[types.EventListInput]) -> ServerSentEvents:
        """What happens, as it happens. With the id of the last event seen as `after`, nothing in between is missed."""
        return self._wire.stream(_stream_of(filters))


class AsyncClient(_ConnectedCalls):
    """The same, awaited. Each call is made in a thread."""

    async def _carry_out(self, ask: ClientRequest) -> Any:
        import asyncio  # not at the top: the command line comes through here, and starts without it

        return await asyncio.to_thread(self._wire.call, ask)

    async def events(self, **filters: Unpack[types.EventListInput]) -> AsyncIterator[types.EventJson]:
        import asyncio

        stream = await asyncio.to_thread(self._wire.stream, _stream_of(filters))
        try:
            while (event := await asyncio.to_thread(next, stream, None)) is not None:
                yield event
        finally:
            stream.close()
