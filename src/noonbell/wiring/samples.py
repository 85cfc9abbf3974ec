"""Targets to call while one tries things: an echo, and one that accepts and calls back. In this process, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from noonbell.wiring.listening import Listening
from noonbell.wiring.stopping import Stop

CALLS_BACK_IN = 2.0
"""Seconds."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@contextlib.asynccontextmanager
async def targets() -> AsyncIterator[str]:
    """Their address, while they answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        samples = _Samples()
        async with Listening(samples).listening(listener, Stop()):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        await samples.close()


def tasks(url: str) -> Sequence[Mapping[str, Any]]:
    """Declarations of two tasks that call them."""
    return (
        {
            "name": "sample-echo",
            "cron_expr": "*/5 * * * * *",
            "http_method": "POST",
            "target_url": f"{url}/echo",
            "body_template": '{"run": {{run_id}}, "slot": "{{scheduled_time}}"}',
        },
        {
            "name": "sample-async",
            "cron_expr": "*/10 * * * * *",
            "exec_type": "ASYNC",
            "http_method": "POST",
            "target_url": f"{url}/async",
        },
    )


class _Samples:
    """As ASGI has it."""

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _body(receive)
        callback = headers.get("x-callback-url")
        if scope["path"] == "/async" and callback is not None:
            task = asyncio.create_task(_call_back(callback))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
            await _answer(send, 202, {"accepted": True})
            return
        said = {"method": scope["method"], "path": scope["path"], "headers": headers, "body": body}
        await _answer(send, 200, said)

    async def close(self) -> None:
        for task in list(self._calls):
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)


async def _body(receive: Receive) -> str:
    parts = bytearray()
    while True:
        message = await receive()
        parts += message.get("body", b"")
        if not message.get("more_body"):
            return parts.decode("utf-8", "replace")


async def _answer(send: Send, status: int, said: Mapping[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


async def _call_back(url: str) -> None:
    await asyncio.sleep(CALLS_BACK_IN)
    with contextlib.suppress(OSError, http.client.HTTPException):  # the server has gone: so will we
        await asyncio.to_thread(_post, url, {"status": "SUCCESS", "data": {"took_seconds": CALLS_BACK_IN}})


def _post(url: str, said: Mapping[str, Any]) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("POST", parts.path, json.dumps(said), {"content-type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()
