"""How much of a caller's request is read before there is one: its head has a largest size and a longest time.

A caller who says nothing, or a little at a time, holds a connection and a file descriptor; one whose head never ends
holds memory. Bodies are the edge's: by then there is somebody to answer. Callers together leave a part of the process's
files to its own work: however many come, runs go on.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noonbell.errors import NoonbellError, PayloadTooLarge, StoreUnavailable

MOST_HEAD_BYTES: Final = 64 * 1024
"""Of the request line and the headers together."""
MOST_HEADERS: Final = 100
HEAD_SECONDS: Final = 30.0
"""From the connection, or the end of the answer before, to the end of the head."""


def _answer(status: bytes, error: type[NoonbellError], message: str, more: bytes = b"") -> bytes:
    said = {"code": error.code, "message": message, "request_id": "", "details": {}, "error": error.code}
    body = msgspec.json.encode(said)
    head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


_TOO_LARGE = _answer(
    b"413 Content Too Large",
    PayloadTooLarge,
    f"the headers are larger than the {MOST_HEAD_BYTES} bytes that are taken",
)
_TOO_MANY = _answer(
    b"503 Service Unavailable",
    StoreUnavailable,
    "too many connections are open here; try again",
    b"retry-after: 1\r\n",
)


def most_connections() -> int | None:
    """Three quarters of the files that the process may open: calls to targets and to the store need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(8, soft * 3 // 4)


class PatientProtocol(HttpToolsProtocol):
    _head_bytes = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = most_connections()
        if most is not None and len(self.connections) > most:
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        if self._deadline is None:
            self._wait_for_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()
