"""What happens to every request before and after its endpoint, in one plain ASGI layer.

It gives the request its id, refuses bodies that are too large and pages of other sites, keeps an encoded slash in a task's name
out of the routing, answers errors that no endpoint caught, and sets the security headers of every response.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noonbell.api.connection_limits import MOST_HEAD_BYTES, MOST_HEADERS
from noonbell.api.request_origin import AllowedCallers, AllowedHosts, TrustedProxies, from_another_site
from noonbell.api.responses import response_for
from noonbell.errors import InvalidArgument, NoonbellError, PayloadTooLarge, StoreUnavailable
from noonbell.json_text import too_large
from noonbell.service.filters import ENCODED_SLASH, REQUEST_ID

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_SLASH = re.compile(rb"%2[Ff]")
_FREE_BYTES: Final = 64 * 1024
"""Of each body, which count for nothing: a heartbeat finds room however much others send."""


HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""On every answer that does not say otherwise: nothing of it is kept, framed, run or taken for something else."""


_HEADERS: Final = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class RequestMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        *,
        host_names: AllowedHosts | None,
        proxies: TrustedProxies,
        callers: AllowedCallers,
        bodies_bytes: int,
        prefix: str,
    ) -> None:
        """`host_names` is None where every caller is asked for a token: then any name will do. `prefix`: of addresses that a
        proxy passes on as they came, such as `/cron`; without it they are taken as well.
        """
        self._app = app
        self._most_bytes = most_bytes
        self._host_names = host_names
        self._proxies = proxies
        self._callers = callers
        self._room = _Room(bodies_bytes)
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[REQUEST_ID] = trace_id_of(headers)
        reply = _Reply(send, scope[REQUEST_ID])
        counted = _Counted(receive, self._most_bytes, self._room)
        try:
            if self._prefix and scope["path"] == self._prefix:  # addresses on the page count from the slash behind it
                await RedirectResponse(f"{self._prefix}/", 308)(scope, receive, reply)
                return
            _take_off(scope, self._prefix)
            self._check(scope, headers)
            await self._app(scope, counted, reply)
        except ClientDisconnect:
            return  # the caller has gone
        except Exception as error:  # the last one who can tell the caller
            if reply.started:
                raise
            await response_for(scope, error)(scope, receive, reply)
        finally:
            counted.let_go()

    def _check(self, scope: Scope, headers: Headers) -> None:
        problem = _too_large(headers, self._most_bytes) or from_another_site(scope, headers)
        if problem is None and self._host_names is not None:
            problem = self._host_names.problem(scope, headers)
        if problem is not None:
            raise problem
        self._proxies.apply(scope, headers)
        if (refused := self._callers.problem(scope)) is not None:
            raise refused
        _keep_slashes(scope)


class _Room:
    """Memory for the bodies of all requests that are under way."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used = 0


class _Counted:
    """`receive`, until a body that did not say its size has passed the limit, or all bodies together theirs."""

    def __init__(self, receive: Receive, most_bytes: int, room: _Room) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._room = room
        self._read = 0
        self._taken = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most_bytes:
                raise too_large(self._most_bytes)
            self._take(self._read - _FREE_BYTES - self._taken)
        return message

    def _take(self, more: int) -> None:
        if more <= 0:
            return
        if self._room.used + more > self._room.most_bytes:
            raise StoreUnavailable("too many large request bodies at once; try again")
        self._room.used += more
        self._taken += more

    def let_go(self) -> None:
        """The request is over."""
        self._room.used -= self._taken
        self._taken = 0


class _Reply:
    """`send`, with our headers on the answer."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            there = {name for name, _ in headers}
            headers.append((b"x-request-id", self._request_id.encode()))
            message["headers"] = headers + [header for header in _HEADERS if header[0] not in there]
        await self._send(message)


def trace_id_of(headers: Headers) -> str:
    """The trace that the caller is part of, or a new one."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if found is not None and found.group(1) != "0" * 32:
        return found.group(1)
    return secrets.token_hex(16)


def _too_large(headers: Headers, most_bytes: int) -> NoonbellError | None:
    if len(headers.raw) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.raw) > MOST_HEAD_BYTES:
        return PayloadTooLarge(
            f"there are more than {MOST_HEADERS} headers, or more than {MOST_HEAD_BYTES} bytes of them"
        )
    length = headers.get("content-length", "")
    is_large = length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most_bytes)
    return too_large(most_bytes) if is_large else None


def _take_off(scope: Scope, prefix: str) -> None:
    if prefix and scope["path"].startswith(f"{prefix}/"):
        scope["path"] = scope["path"].removeprefix(prefix)
        scope["raw_path"] = (scope.get("raw_path") or b"").removeprefix(quote(prefix).encode())


def _keep_slashes(scope: Scope) -> None:
    raw: Any = scope.get("raw_path") or b""
    if b"%00" in raw:
        raise InvalidArgument("the address has a NUL in it")
    if _SLASH.search(raw):
        pieces = (unquote_to_bytes(piece).decode("utf-8", "replace") for piece in _SLASH.split(raw))
        scope["path"] = ENCODED_SLASH.join(pieces)
