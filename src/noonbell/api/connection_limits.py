"""Limits of a connection: before its request, while the body arrives, and while the response is read.

A caller that sends nothing, or a little at a time, or does not read, holds a connection, a file descriptor and memory. So the
head has a largest size and a longest time; a body and a response have a time that grows with the bytes that have moved; and
connections are limited, in all and for one address. A part of the process's files is left to its own work: runs go on under any
number of connections.

A connection beyond a limit is not refused at once: it may still bring a probe, or the heartbeat or the result of a worker,
which must get through while others hold all the connections. Its head must arrive within seconds, and it is closed after
the response. There are few of these, and an address beyond its own limit has none of those that are beyond the limit for all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noonbell.errors import InvalidArgument, NoonbellError, PayloadTooLarge, StoreUnavailable

MOST_HEAD_BYTES: Final = 64 * 1024
"""Of the request line and the headers together; and of what comes after them without being a body, such as trailers."""
MOST_HEADERS: Final = 100
HEAD_SECONDS: Final = 30.0
"""From the connection, or the end of the answer before, to the end of the head."""
RESERVED_HEAD_SECONDS: Final = 5.0
"""The same, of a connection beyond a limit."""
DISCARDED_BYTES: Final = 8 * 1024 * 1024
"""Of a body that still comes in after its answer: more than that, and the connection is cut."""

_URGENT: Final = re.compile(
    rb"/api/v1/(?:livez|readyz|healthz|workers/[^/?]+/heartbeat|runs/[^/?]+/(?:settle|progress|log|extend))(?:\?.*)?"
)
"""What comes through while all connections are taken."""


def _answer(status: bytes, error: type[NoonbellError], message: str, more: bytes = b"") -> bytes:
    said = {"code": error.code, "message": message, "request_id": "", "details": {}, "error": error.code}
    body = msgspec.json.encode(said)
    head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


_TOO_LARGE = _answer(
    b"413 Content Too Large",
    PayloadTooLarge,
    f"the headers are larger than {MOST_HEAD_BYTES} bytes, the limit",
)
_MANY: Final = "too many connections are open here; try again"
_TOO_MANY = _answer(b"503 Service Unavailable", StoreUnavailable, _MANY, b"retry-after: 1\r\n")
_TOO_SLOW = _answer(b"408 Request Timeout", InvalidArgument, "the body arrived too slowly, or incomplete")


async def _too_many(scope: Any, receive: Any, send: Any) -> None:
    """As an application: what a request hears that is not urgent enough for a connection beyond a limit."""
    del scope, receive
    head, _, body = _TOO_MANY.partition(b"\r\n\r\n")
    headers = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one server. `docs/reference/settings.md` explains them under `server`."""

    body_timeout: float = 20.0
    """Seconds for a body to come in, and for an answer to be read."""
    least_rate: int = 16 * 1024
    """Bytes that give a body or an answer another second."""
    most: int | None = None
    """Connections at once; None: three quarters of the files that the process may open."""
    most_per_peer: int | None = None
    """Connections at once of one address, or of one IPv6 /64. None: half of `most`, and any number from this machine and
    from `proxies`."""
    proxies: tuple[str, ...] = ()
    """Networks of reverse proxies that are trusted."""
    peers: Counter[str] = field(default_factory=Counter)
    """Connections that are open, by peer."""


def most_connections() -> int | None:
    """Three quarters of the files that the process may open: calls to targets and to the store need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(8, soft * 3 // 4)


def peer_of(address: str, proxies: Iterable[str] = ()) -> tuple[str, bool]:
    """What an address is counted as, and whether many callers may stand behind it: this machine, or a proxy."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address, True  # a socket of the file system
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    found = mapped or found
    is_shared = found.is_loopback or any(found in ipaddress.ip_network(each) for each in proxies)
    if isinstance(found, ipaddress.IPv6Address) and not is_shared:
        return str(ipaddress.ip_network((found, 64), strict=False)), False
    return str(found), is_shared


class _Allowance:
    """Time that something may take: `seconds`, and one more for each `rate` bytes of it that have moved."""

    def __init__(self, began: float, seconds: float, rate: int) -> None:
        self.began, self.seconds, self.rate = began, seconds, rate
        self.moved = 0

    def left(self, now: float) -> float:
        return self.began + self.seconds + self.moved / self.rate - now


class LimitedProtocol(HttpToolsProtocol):
    limits = ConnectionLimits()

    _head_bytes = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None
    _is_reserved = False
    """Beyond a limit: let in for what is urgent only."""
    _peer = ""
    _body: _Allowance | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _bodiless = 0
    """Bytes that came after the head, and since the last of the body."""
    _discarded = 0
    _written: _Allowance | None = None
    _unread = 0
    """Bytes of answers that the caller had not read when it was last looked at."""
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = self.limits.most if self.limits.most is not None else most_connections()
        self._peer, is_shared = peer_of(self.client[0] if self.client else "", self.limits.proxies)
        self.limits.peers[self._peer] += 1
        beyond = 0 if most is None else len(self.connections) - most
        beyond_of_peer = self._beyond_of_peer(most, is_shared=is_shared)
        reserve = max(4, (most or 0) // 12)
        if max(beyond, beyond_of_peer) > reserve or (beyond > 0 and beyond_of_peer > 0):
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._is_reserved = beyond > 0 or beyond_of_peer > 0
        self._wait_for_head()

    def _beyond_of_peer(self, most: int | None, *, is_shared: bool) -> int:
        """How many connections the peer has beyond its limit; 0 or less if it has room."""
        per_peer = self.limits.most_per_peer
        if per_peer is None and most is not None and not is_shared:
            per_peer = max(4, most // 2)
        return 0 if per_peer is None else self.limits.peers[self._peer] - per_peer

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.peers[self._peer] -= 1
        if not self.limits.peers[self._peer]:
            del self.limits.peers[self._peer]
        self._stop_waiting()
        self._stop_body()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._bodiless += len(data)  # `on_body` takes it back
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        if not self._in_head and self._bodiless > MOST_HEAD_BYTES and not self.transport.is_closing():
            if not self.cycle.response_started:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
            self._watch_reader()
        # Most bodies come with their head, and need no timer.
        if self._body is not None and self._body_timer is None and not self.transport.is_closing():
            self._watch_body(self._body.seconds)

    def on_message_begin(self) -> None:
        self._in_head = True
        if self._deadline is None:
            self._wait_for_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are left out: the application may have read the headers already
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._bodiless = False, 0, 0
        self._stop_waiting()
        self._body = _Allowance(self.loop.time(), self.limits.body_timeout, self.limits.least_rate)
        self._discarded = 0
        app = self.app
        if self._is_reserved and not _URGENT.fullmatch(self.url):
            self.app = _too_many
        try:
            super().on_headers_complete()
        finally:
            self.app = app
        if self._is_reserved:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self._body is not None:
            self._body.moved += len(body)
        self._bodiless = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > DISCARDED_BYTES:
                self.transport.abort()

    def on_message_complete(self) -> None:
        self._stop_body()
        super().on_message_complete()
        self._in_head = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is not None:  # some of the next head is here
            self._stop_waiting()
            self._wait_for_head()
        self._stop_writing()
        self._watch_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_writing()
        if self.cycle.response_complete:  # the application writes no more: what is left has to be read
            self._watch_reader()

    def _wait_for_head(self) -> None:
        seconds = min(HEAD_SECONDS, RESERVED_HEAD_SECONDS) if self._is_reserved else HEAD_SECONDS
        self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # the caller cannot send: its requests wait for us
            self._wait_for_head()
            return
        self.transport.abort()

    # The body

    def _watch_body(self, seconds: float) -> None:
        self._body_timer = self.loop.call_later(seconds, self._look_at_body)

    def _look_at_body(self) -> None:
        self._body_timer = None
        body, now = self._body, self.loop.time()
        if body is None:
            return
        if self.flow.read_paused:  # the caller cannot send: its request waits for us
            body.began, body.moved = now, 0
        left = body.left(now)
        if left > 0:
            self._watch_body(left)
            return
        if not self.cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()
        self._watch_reader()

    def _stop_body(self) -> None:
        self._body = None
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    # The answer

    def _watch_reader(self) -> None:
        """As long as the caller has not read all that was written to it."""
        unread = self.transport.get_write_buffer_size()
        if unread and self._write_timer is None:
            self._unread = unread
            self._written = _Allowance(self.loop.time(), self.limits.body_timeout, self.limits.least_rate)
            self._write_timer = self.loop.call_later(self.limits.body_timeout, self._look_at_reader)

    def _look_at_reader(self) -> None:
        self._write_timer = None
        written, unread = self._written, self.transport.get_write_buffer_size()
        if written is None or not unread:
            return
        written.moved += max(0, self._unread - unread)
        self._unread = unread
        left = written.left(self.loop.time())
        if left <= 0:
            self.transport.abort()
            return
        self._write_timer = self.loop.call_later(left, self._look_at_reader)

    def _stop_writing(self) -> None:
        self._written = None
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def limited_protocol(limits: ConnectionLimits) -> type[Any]:
    """The protocol of one server, with its limits."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
