"""The edge: what happens to every request before and after its endpoint, in one plain ASGI layer.

It gives the request its id, refuses what is too large and pages of other sites, keeps an encoded slash in a task's name
out of the routing, answers what nobody caught, and puts the headers of a careful API on every answer.

Where nobody is asked for a token, because only this machine can come in, the name that the caller came by must be one of
this machine: a page of another site can have its own name point here, and then it is no other site to the browser.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noonbell.api.answers import REQUEST_ID
from noonbell.api.errors import answer_for
from noonbell.api.patience import MOST_HEAD_BYTES, MOST_HEADERS
from noonbell.errors import Forbidden, InvalidArgument, NoonbellError, PayloadTooLarge

ENCODED_SLASH: Final = "\x00"
"""Stands in a path for `%2F`, so that `name:a%2Fb` is one piece of it. `params` turns it back."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_SLASH = re.compile(rb"%2[Ff]")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""On every answer that does not say otherwise: nothing of it is kept, framed, run or taken for something else."""


class Edge:
    def __init__(self, app: ASGIApp, most_bytes: int, *, local_names_only: bool = False) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._local_names_only = local_names_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[REQUEST_ID] = trace_id_of(headers)
        reply = _Reply(send, scope[REQUEST_ID])
        try:
            self._check(scope, headers)
            await self._app(scope, _Counted(receive, self._most_bytes), reply)
        except ClientDisconnect:
            return  # nobody is left to be told
        except Exception as error:  # the last one who can tell the caller
            if reply.started:
                raise
            await answer_for(scope, error)(scope, receive, reply)

    def _check(self, scope: Scope, headers: Headers) -> None:
        problem = _too_large(headers, self._most_bytes) or _from_another_site(scope, headers)
        if problem is None and self._local_names_only:
            problem = _by_another_name(headers)
        if problem is not None:
            raise problem
        _keep_slashes(scope)


class _Counted:
    """`receive`, until a body that did not say its size has passed the limit."""

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive = receive
        self._left = most_bytes
        self._most_bytes = most_bytes

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise _size_error(self._most_bytes)
        return message


class _Reply:
    """`send`, with our headers on the answer."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
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
    return _size_error(most_bytes) if is_large else None


def _size_error(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than the {most_bytes} bytes that are taken")


def _from_another_site(scope: Scope, headers: Headers) -> NoonbellError | None:
    """A page of another site may make a browser send requests here; only browsers send these two headers."""
    if scope["method"] in _SAFE:
        return None
    is_foreign = headers.get("sec-fetch-site") == "cross-site" or (
        "origin" in headers and not _is_of_this_site(headers)
    )
    return Forbidden("a page of another site may not do this") if is_foreign else None


def _is_of_this_site(headers: Headers) -> bool:
    """Whether the page that made a browser send this came from where it is sent to.

    The two are compared as they are written, letter by letter: a header that was made to be misread is no address of ours.
    """
    host = headers.get("host")
    return bool(host) and headers.get("origin") in (f"http://{host}", f"https://{host}")


def _by_another_name(headers: Headers) -> NoonbellError | None:
    host = headers.get("host", "")
    name = _name_in(host)
    if not host or _is_address(name) or name == "localhost" or name.endswith(".localhost"):
        return None
    return Forbidden(
        f"nobody is asked for a token here, so it can be reached as localhost or by its address alone, not as {name[:100]!r};"
        " auth.enabled: true asks for tokens, and auth.enabled: false, written out, says that a proxy does"
    )


def _name_in(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:  # a bracket that is not closed, and the like
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _keep_slashes(scope: Scope) -> None:
    raw: Any = scope.get("raw_path") or b""
    if b"%00" in raw:
        raise InvalidArgument("the address has a NUL in it")
    if _SLASH.search(raw):
        pieces = (unquote_to_bytes(piece).decode("utf-8", "replace") for piece in _SLASH.split(raw))
        scope["path"] = ENCODED_SLASH.join(pieces)
