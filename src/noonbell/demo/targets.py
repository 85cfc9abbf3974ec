"""What answers the demo's tasks, on loopback, while the demo runs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from noonbell.demo.tasks import act
from noonbell.wiring.listening import Listening
from noonbell.wiring.stopping import Stop

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def place(wanted: int) -> socket.socket:
    """A socket on that port of loopback, so that tasks keep their address from one time to the next; else on a free one."""
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def answering(listener: socket.socket) -> AsyncIterator[None]:
    targets = _Targets()
    async with Listening(targets).listening(listener, Stop()):
        try:
            yield
        finally:
            await targets.close()


class _Targets:
    """As ASGI has it. The path names the task; its slot and attempt are in the headers that every request has."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_over = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await _read(receive)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        name, slot = scope["path"].strip("/"), _slot(headers.get("x-noonbell-scheduled-time", ""))
        does = act(name, slot, _number(headers.get("x-noonbell-attempt", "")))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), does.seconds)
            await _answer(send, 503, {"error": "the demo is over"})
            return
        await _answer(send, does.status, {"task": name, "took": round(does.seconds, 3)})
        callback = headers.get("x-callback-url")
        if callback is not None and does.calls_back_after is not None:
            task = asyncio.create_task(_call_back(callback, does.calls_back_after))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Whoever still waits for an answer gets one."""
        self._is_over.set()
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


def _slot(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 1


async def _read(receive: Receive) -> None:
    while (await receive()).get("more_body"):
        pass


async def _answer(send: Send, status: int, said: Mapping[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


async def _call_back(url: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    with contextlib.suppress(OSError, http.client.HTTPException):  # the server has gone: so will we
        await asyncio.to_thread(_post, url, {"status": "SUCCESS", "data": {"took_seconds": round(seconds, 1)}})


def _post(url: str, said: Mapping[str, Any]) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("POST", parts.path, json.dumps(said), {"content-type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()
