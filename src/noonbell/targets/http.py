"""The HTTP target: one attempt is one call.

The whole call, redirects and body included, ends by the task's timeout; opening a connection has a deadline of its own.
Whatever ends it early (deadline, cap, cancel) drops the connection at once. Every dial passes the guard.

Connections are kept and shared for a short while. One that the target closed in the meantime cannot be told from a
target that fails; so a request that got no answer on a kept connection is sent once more on a new one. Tasks that are
delivered at most once never take a kept connection, and so never need that.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter

from noonbell.clock import Clock, SystemClock
from noonbell.engine import failpoint
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.task import Delivery
from noonbell.targets import failure, redirect
from noonbell.targets.answer import outcome
from noonbell.targets.exchange import Exchange, current
from noonbell.targets.guard import BlockedAddress, Guard
from noonbell.targets.request import Request, Unsendable, build, default_headers
from noonbell.targets.resolver import ThreadResolver

MAX_BODY_BYTES = 8 * 1024 * 1024
CONNECT_TIMEOUT = 5.0

KEEP_SECONDS = 4.0
"""How long an idle connection is kept. Common servers close theirs after five seconds; we are to be the first."""

_PIECE = 256 * 1024
_NEVER_ROUND_UP = 1e9
"""aiohttp rounds timeouts above its threshold up to whole seconds. Ours are meant as they are written."""


class HttpTarget:
    """Carries out SYNC and ASYNC tasks. Open it inside the event loop that it is used in."""

    def __init__(
        self,
        *,
        guard: Guard | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        max_body_bytes: int = MAX_BODY_BYTES,
        global_headers: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        resolver: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard or Guard()
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout, ceil_threshold=_NEVER_ROUND_UP)
        self._max_body_bytes = max_body_bytes
        self._headers = default_headers(global_headers or {})
        self._clock = clock or SystemClock()
        self._resolver = resolver
        self._own_resolver: ThreadResolver | None = None
        self._ssl_context = ssl_context
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        resolver = self._resolver
        if resolver is None:
            resolver = self._own_resolver = ThreadResolver()
        self._kept = self._session(resolver, keepalive_timeout=KEEP_SECONDS)
        self._fresh = self._session(resolver, force_close=True)

    async def close(self) -> None:
        """Drop every connection. Attempts that are under way fail."""
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()
        if self._own_resolver is not None:
            await self._own_resolver.close()
        self._kept = self._fresh = None

    async def execute(self, assignment: Assignment) -> Outcome:
        """Call the target once and say what came of it. CancelledError drops the request in flight."""
        if self._kept is None:
            raise RuntimeError("the HTTP target is not open")
        try:
            request = build(assignment, self._headers, now=self._clock.now(), max_body=self._max_body_bytes)
        except Unsendable as problem:
            details = {"kind": problem.kind}
            message = str(problem)
            return Outcome(kind=OutcomeKind.FAILURE, failure=problem.kind, error_message=message, error_details=details)
        exchange = Exchange()
        mark = current.set(exchange)
        went_wrong: tuple[str, str] | None = None
        seconds = assignment.task.spec.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._call(assignment, request, exchange)
            exchange.drop_if_stuck()
        except Exception as error:
            exchange.drop()
            went_wrong = failure.of_error(error, exchange, seconds)
        except BaseException:
            exchange.drop()
            raise
        finally:
            current.reset(mark)
        answer = outcome(assignment, request, exchange, went_wrong, self._clock.now())
        if answer.kind is OutcomeKind.ACCEPTED:
            failpoint.hit("K8")
        return answer

    async def _call(self, assignment: Assignment, request: Request, exchange: Exchange) -> None:
        """The request, the redirects that the task wants followed, and the answer at the end of them."""
        spec = assignment.task.spec
        for hop in range(redirect.MOST_HOPS + 1):
            self._guard.check_scheme(request.url.scheme)
            response = await self._send(request, exchange, once=spec.delivery is Delivery.AT_MOST_ONCE)
            try:
                exchange.answered(response)
                if not (spec.follow_redirects and response.status in redirect.STATUSES):
                    await exchange.read(response, self._max_body_bytes)
                    return
            finally:
                response.close()  # after the last byte of the body, the connection is back in the pool already
            if hop == redirect.MOST_HOPS:
                break
            location = response.headers.get("Location")
            request = redirect.redirected(request, response.status, location, assignment.lease.callback_token)
        raise redirect.BadRedirect(f"more than {redirect.MOST_HOPS} redirects")

    async def _send(self, request: Request, exchange: Exchange, *, once: bool) -> aiohttp.ClientResponse:
        if once:
            return await self._request(self._fresh, request, exchange)
        try:
            return await self._request(self._kept, request, exchange)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError):
            if exchange.dials:
                raise
            return await self._request(self._fresh, request, exchange)

    async def _request(
        self, session: aiohttp.ClientSession | None, request: Request, exchange: Exchange
    ) -> aiohttp.ClientResponse:
        assert session is not None  # noqa: S101 - execute has looked
        exchange.began()
        return await session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=_in_pieces(request.content),
            allow_redirects=False,
        )

    def _session(self, resolver: AbstractResolver, **connections: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # how many calls run at a time is the executor's business
            resolver=resolver,
            socket_factory=self._dial,
            ssl=self._ssl_context or True,
            **connections,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
            request_class=_Request,
        )
        # aiohttp would send idempotent methods again on its own, also where a task allows one delivery at most.
        session._retry_connection = False
        return session

    def _dial(self, info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        """A socket for an address that a name stands for, if the guard lets it."""
        family, kind, protocol, _, address = info
        exchange = current.get()
        try:
            self._guard.check(address[0], address[1])
        except BlockedAddress as blocked:
            if exchange is not None:
                exchange.blocked = blocked
            raise
        if exchange is not None:
            exchange.address = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            exchange.dials += 1
        return socket.socket(family, kind, protocol)


def _in_pieces(content: bytes | None) -> bytes | io.BytesIO | None:
    """A long body is sent piece by piece, so that other calls have their turn in between."""
    return content if content is None or len(content) <= _PIECE else io.BytesIO(content)


class _Request(aiohttp.ClientRequest):
    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        exchange = current.get()
        if exchange is not None and isinstance(conn.transport, asyncio.WriteTransport):
            exchange.transport = conn.transport
        if conn.protocol is not None and conn.protocol.should_close:
            # Bytes came in while the connection lay idle: they would be taken for the answer to this request.
            raise aiohttp.ServerDisconnectedError
        response = await super().send(conn)
        if not self._body:
            failpoint.hit("K5")
        return response

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: aiohttp.connector.Connection, content_length: int | None = None
    ) -> None:
        await super().write_bytes(writer, conn, content_length)
        failpoint.hit("K5")
