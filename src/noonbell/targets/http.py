"""The HTTP target: one attempt is one call.

The whole call, redirects and body included, ends by the task's timeout; opening a connection has a deadline of its own.
Whatever ends it early (deadline, cap, cancel) drops the connection at once. Every dial passes the guard.

Connections are kept and shared for a short while. A connection that ends after a request was written, and before a byte of
the answer, leaves open whether the target has seen the request: that is `connection_lost`, and the retry policy decides.
Only what changes nothing at the target (GET, HEAD, OPTIONS of a SYNC task) is sent once more on a new connection, where the
lost one was a kept one; the attempt then says `resent`. Every other method takes a kept connection only if it was used a
moment ago, and tasks that are delivered at most once never do.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping

from noonbell.clock import Clock, SystemClock
from noonbell.engine import failpoint
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.task import Delivery
from noonbell.sealing import Sealer
from noonbell.targets import failure, redirect
from noonbell.targets.answer import outcome
from noonbell.targets.exchange import Exchange
from noonbell.targets.guard import SCHEMES, BlockedAddress, Guard
from noonbell.targets.place import place_of
from noonbell.targets.plan import Plans
from noonbell.targets.pool import Pool
from noonbell.targets.request import Request, Unsendable, default_headers, head_of, is_async
from noonbell.targets.resolver import Resolver, ThreadResolver
from noonbell.targets.wire import REDIRECTS, Disconnected, Wire

MAX_BODY_BYTES = 8 * 1024 * 1024
CONNECT_TIMEOUT = 5.0

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing at the target. PUT and DELETE may be repeated by their nature, but they do work."""
FRESH_SECONDS = 1.0
"""How long a connection may have been idle that any other method goes out on."""


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
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        sealer: Sealer | None = None,
        own_ports: Collection[int] = (),
    ) -> None:
        """`own_ports`: where this process listens; no redirect leads there."""
        self._own_ports = frozenset(own_ports)
        self._guard = guard or Guard()
        self._connect_timeout = connect_timeout
        self._max_body_bytes = max_body_bytes
        self._now = (clock or SystemClock()).now
        self._plans = Plans(default_headers(global_headers or {}), max_body_bytes, self._now, sealer)
        self._resolver = resolver
        self._own_resolver: ThreadResolver | None = None
        self._ssl_context = ssl_context
        self._pool: Pool | None = None

    async def open(self) -> None:
        resolver = self._resolver
        if resolver is None:
            resolver = self._own_resolver = ThreadResolver()
        self._pool = Pool(self._guard, resolver, connect_timeout=self._connect_timeout, ssl_context=self._ssl_context)

    async def close(self) -> None:
        """Drop every connection. Attempts that are under way fail."""
        if self._pool is not None:
            await self._pool.close()
        if self._own_resolver is not None:
            await self._own_resolver.close()
        self._pool = None

    async def execute(self, assignment: Assignment) -> Outcome:
        """Call the target once and say what came of it. CancelledError drops the request in flight."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("the HTTP target is not open")
        try:
            request = self._plans.request(assignment)
        except Unsendable as problem:
            details = {"kind": problem.kind}
            message = str(problem)
            return Outcome(kind=OutcomeKind.FAILURE, failure=problem.kind, error_message=message, error_details=details)
        exchange = Exchange(self._max_body_bytes)
        went_wrong: tuple[str, str] | None = None
        spec = assignment.task.spec
        deadline = pool.loop.time() + spec.timeout_seconds
        try:
            await self._send(pool, assignment, request, exchange, deadline)
            if spec.follow_redirects and exchange.status in REDIRECTS:
                await self._follow(pool, assignment, request, exchange, deadline)
        except Exception as error:  # a failure of the attempt, whatever it is, has a name
            went_wrong = failure.of_error(error, exchange, spec.timeout_seconds)
        answer = outcome(assignment, request, exchange, went_wrong, self._now)
        if answer.kind is OutcomeKind.ACCEPTED:
            failpoint.hit("K8")
        return answer

    async def _follow(
        self, pool: Pool, assignment: Assignment, request: Request, exchange: Exchange, deadline: float
    ) -> None:
        """The redirects, until there is an answer at the end of them."""
        for _ in range(redirect.MOST_HOPS):
            status, location = exchange.status or 0, exchange.watched.get("location")
            request = redirect.redirected(request, status, location, assignment.lease.callback_token)
            await self._send(pool, assignment, request, exchange, deadline)
            if exchange.status not in REDIRECTS:
                return
        raise redirect.BadRedirect(f"more than {redirect.MOST_HOPS} redirects")

    def _check_redirect(self, wire: Wire, exchange: Exchange) -> None:
        """BlockedAddress, and the connection dropped, if a redirect leads where none may."""
        origin = exchange.came_from
        try:
            self._guard.check_redirect(origin, wire.dialled)
            if origin is not None and wire.place.port in self._own_ports and wire.is_to_this_machine():
                raise BlockedAddress(f"{wire.address}: a redirect from {origin} may not lead to Noonbell itself")
        except BlockedAddress:
            wire.drop()
            raise

    async def _send(
        self, pool: Pool, assignment: Assignment, request: Request, exchange: Exchange, deadline: float
    ) -> None:
        """One request and its answer."""
        exchange.began()
        if request.url.scheme not in SCHEMES:
            self._guard.check_scheme(request.url.scheme)
        spec = assignment.task.spec
        is_once, is_safe = spec.delivery is Delivery.AT_MOST_ONCE, request.method in SAFE_METHODS
        place = request.place or place_of(request.url)
        head = request.head or head_of(request, closes=is_once)
        content, is_head = request.content, request.method == "HEAD"
        kept = None if is_once else pool.take(place, None if is_safe else FRESH_SECONDS)
        wire = kept or await pool.dial(place, deadline, exchange)
        while True:
            self._check_redirect(wire, exchange)
            exchange.address, exchange.dialled = wire.address, wire.dialled
            try:
                error = await wire.ask(
                    head, content, exchange, deadline, is_head=is_head, follows=spec.follow_redirects
                )
            except BaseException:
                wire.drop()
                raise
            if error is None:
                break
            if wire is not kept or not isinstance(error, Disconnected):
                raise error
            if wire.is_sent:
                if not is_safe or wire.has_begun or exchange.is_resent or is_async(assignment):
                    raise error
                exchange.is_resent = True
            wire = await pool.dial(place, deadline, exchange)
        if is_once:
            wire.drop()
        else:
            pool.give(wire)
