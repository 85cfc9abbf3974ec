"""The HTTP target: one attempt is one call.

The whole call, redirects and body included, ends by the task's timeout; opening a connection has a deadline of its own.
Whatever ends it early (deadline, cap, cancel) drops the connection at once. Every dial passes the guard.

Connections are kept and shared for a short while. One that the target closed in the meantime cannot be told from a
target that fails; so a request that got not a byte of an answer on a kept connection is sent once more on a new one. Tasks
that are delivered at most once never take a kept connection, and so never need that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from noonbell.clock import Clock, SystemClock
from noonbell.engine import failpoint
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.task import Delivery
from noonbell.sealing import Sealer
from noonbell.targets import failure, redirect
from noonbell.targets.answer import outcome
from noonbell.targets.exchange import Exchange
from noonbell.targets.guard import SCHEMES, Guard
from noonbell.targets.place import place_of
from noonbell.targets.plan import Plans
from noonbell.targets.pool import Pool
from noonbell.targets.request import Request, Unsendable, default_headers, head_of
from noonbell.targets.resolver import Resolver, ThreadResolver
from noonbell.targets.wire import REDIRECTS, Disconnected

MAX_BODY_BYTES = 8 * 1024 * 1024
CONNECT_TIMEOUT = 5.0


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
    ) -> None:
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
        is_once = spec.delivery is Delivery.AT_MOST_ONCE
        try:
            await self._send(pool, request, exchange, deadline, is_once=is_once, follows=spec.follow_redirects)
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
        is_once = assignment.task.spec.delivery is Delivery.AT_MOST_ONCE
        for _ in range(redirect.MOST_HOPS):
            status, location = exchange.status or 0, exchange.watched.get("location")
            request = redirect.redirected(request, status, location, assignment.lease.callback_token)
            await self._send(pool, request, exchange, deadline, is_once=is_once, follows=True)
            if exchange.status not in REDIRECTS:
                return
        raise redirect.BadRedirect(f"more than {redirect.MOST_HOPS} redirects")

    async def _send(
        self, pool: Pool, request: Request, exchange: Exchange, deadline: float, *, is_once: bool, follows: bool
    ) -> None:
        """One request and its answer."""
        exchange.began()
        if request.url.scheme not in SCHEMES:
            self._guard.check_scheme(request.url.scheme)
        place = request.place or place_of(request.url)
        head = request.head or head_of(request, closes=is_once)
        content, is_head = request.content, request.method == "HEAD"
        kept = None if is_once else pool.take(place)
        wire = kept or await pool.dial(place, deadline, exchange)
        while True:
            exchange.address = wire.address
            try:
                error = await wire.ask(head, content, exchange, deadline, is_head=is_head, follows=follows)
            except BaseException:
                wire.drop()
                raise
            if error is None:
                break
            if wire is not kept or wire.has_begun or not isinstance(error, Disconnected):
                raise error
            wire = await pool.dial(place, deadline, exchange)
        if is_once:
            wire.drop()
        else:
            pool.give(wire)
