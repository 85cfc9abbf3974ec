"""The HTTP target: one attempt is one call, and status, body or error make its outcome.

The attempt's deadline ends the whole call, redirects and body included; opening a connection has one of its own.
What ends it early (deadline, cap, cancel) drops the connection at once. Every dial passes the guard.

Connections are kept and shared for a short while. A connection that ends after a request was written, and before a byte of
the answer, leaves open whether the target has seen the request: that is `connection_lost`, and the retry policy decides.
Only what changes nothing at the target (GET, HEAD, OPTIONS of a SYNC task) is sent once more on a new connection, where the
lost one was a kept one; the attempt then says `resent`. Every other method takes a kept connection only if it was used a
moment ago, and tasks that are delivered at most once never do.

`Fetcher` fetches a file for the server itself: every dial passes the guard, the size and the time are bounded. Redirects are
not followed, and each fetch has a connection of its own.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import math
import re
import ssl
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from yarl import URL

from noonbell.clock import SECOND, Clock, Instant, SystemClock, from_datetime
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import Deadlines
from noonbell.errors import NoonbellError
from noonbell.model.access import OWN_RUN
from noonbell.model.failure_text import failure_text, said_by, said_in
from noonbell.model.run import RESENT, Assignment, Outcome, OutcomeKind, RunBodies
from noonbell.model.task import Delivery
from noonbell.sealing import Sealer
from noonbell.targets.http.connection import (
    REDIRECTS,
    BrokenBody,
    Disconnected,
    HttpConnection,
    HttpExchange,
    NotHttp,
    TooLarge,
    origin_of,
)
from noonbell.targets.http.guard import SCHEMES, AddressGuard, BlockedAddress
from noonbell.targets.http.pool import ConnectTimeout, NoSuchHost, Pool, Resolver, ThreadResolver, Undialled
from noonbell.targets.http.request import (
    MOST_HOPS,
    BadRedirect,
    Headers,
    Request,
    RequestTemplates,
    Unsendable,
    conceal,
    default_headers,
    head_of,
    hidden_values,
    is_async,
    masked_headers,
    redirected,
)
from noonbell.version import __version__

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-8|utf-16(-le|-be)?|ascii|iso8859-\d+|cp125\d|cp874|cp866|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|cp932"
    r"|euc_(jp|kr)|cp949|mac-roman|tis-620"
)
"""Python's names of the charsets that a target may name. Not every codec: some take hours over a few megabytes."""

_CACHED = 100
"""Longer content types are read anew each time."""

_LONGEST_MESSAGE = 1000
_HALVES = re.compile("[\ud800-\udfff]")
"""What databases refuse in a text."""


def outcome_of(
    assignment: Assignment,
    request: Request,
    exchange: HttpExchange,
    went_wrong: tuple[str, str] | None,
    now: Callable[[], Instant],
) -> Outcome:
    """What came of the attempt. `went_wrong` is kind and message of what broke the exchange off, if anything did."""
    status = exchange.status
    judged = None if status is None else of_status(status, exchange.reason)
    if judged is not None and status == HTTPStatus.FORBIDDEN and _is_of_own_api(exchange):
        judged = judged[0], failure_text("answered_own_api", status=f"{status} {exchange.reason}".rstrip())
    if went_wrong is None or (status is not None and went_wrong[0] == TOO_LARGE):
        went_wrong = judged  # the status decides, however much is said with it
    hidden = request.hidden
    if hidden is None:
        hidden = hidden_values(request.headers, assignment.lease.callback_token)
    bodies = _bodies(request, exchange, hidden)
    if went_wrong is None:
        kind = OutcomeKind.ACCEPTED if is_async(assignment) else OutcomeKind.SUCCESS
        noted = {RESENT: True} if exchange.is_resent else None
        return Outcome(kind=kind, response_code=status, error_details=noted, bodies=bodies)
    name, said = went_wrong
    message = conceal(storable(said)[:_LONGEST_MESSAGE], hidden)
    details: dict[str, Any] = {"kind": name, **said_by(said, lambda text: conceal(storable(text), hidden))}
    if exchange.address is not None:
        details["address"] = exchange.address
    if bodies.truncated:
        details["truncated"] = True
    if exchange.is_resent:
        details[RESENT] = True
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=name,
        response_code=status,
        retry_after=retry_after(exchange.watched.get("retry-after"), now()) if status in {429, 503} else None,
        error_message=message,
        error_details=details,
        bodies=bodies,
    )


def retry_after(value: str | None, now: Instant) -> float | None:
    """Seconds to wait, from a number of seconds or an HTTP date; None if it says nothing that can be understood."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), 1e9)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, math.ceil((from_datetime(moment) - now) / SECOND))


def storable(text: str) -> str:
    """The text without what no database takes: NUL and halves of characters."""
    text = text.replace("\x00", "\ufffd")  # an answer may be nothing else: by the pattern, each would cost an object
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def text_of(body: bytes | bytearray, content_type: str | None) -> str:
    """The body as text, by its charset where that is a known one."""
    if content_type is None:
        return storable(body.decode("utf-8", "replace"))
    charset = _charset(content_type) if len(content_type) <= _CACHED else _read_charset(content_type)
    return storable(body.decode(charset, "replace"))


def _read_charset(content_type: str) -> str:
    named = _CHARSET.search(content_type)
    try:
        charset = codecs.lookup(named[1] if named else "utf-8").name
    except LookupError:
        return "utf-8"
    return charset if _CHARSETS.fullmatch(charset) else "utf-8"


_charset = lru_cache(maxsize=256)(_read_charset)


def _bodies(request: Request, exchange: HttpExchange, hidden: Sequence[str]) -> RunBodies:
    headers = request.masked
    if headers is None:
        headers = masked_headers(request.headers, hidden)
    asked = request.body
    if asked is not None:
        asked = conceal(storable(asked), hidden)
    if exchange.status is None:
        return RunBodies(request_headers=headers, request_body=asked)
    said = text_of(exchange.body, exchange.watched.get("content-type")) if exchange.body else ""
    return RunBodies(
        request_headers=headers,
        request_body=asked,
        response_headers=masked_headers(exchange.headers, hidden),
        response_body=conceal(said, hidden) if hidden else said,
        truncated=not exchange.is_whole,
    )


TOO_LARGE = "too_large"

_NO_WAY = {
    errno.ENETUNREACH: "network_unreachable",
    errno.ENETDOWN: "network_unreachable",
    errno.EHOSTUNREACH: "host_unreachable",
    errno.EHOSTDOWN: "host_unreachable",
}
"""Kinds of failure, and the codes of their sentences, by what the system says of a connection that was not made."""


def of_error(error: Exception, exchange: HttpExchange, seconds: float) -> tuple[str, str]:
    """Kind and message for what broke an exchange off. `seconds` is the task's timeout."""
    match error:
        case BlockedAddress():
            return "blocked_address", said_in(error)
        case BadRedirect():
            return "http_3xx", said_in(error)
        case TooLarge():
            return TOO_LARGE, failure_text("answer_too_large")
        case ConnectTimeout():
            return "connect_timeout", failure_text("no_connection")
        case NoSuchHost():
            return "dns", said_in(error)
        case Undialled():
            return _of_dial(error, exchange)
        case TimeoutError():
            return "timeout", failure_text("no_whole_answer", seconds=f"{seconds:g}")
        case Disconnected():
            return "connection_lost", _of_loss(exchange)
        case NotHttp():
            return "protocol_error", failure_text("not_http", error=str(error))
        case BrokenBody() | zlib.error():
            return "protocol_error", failure_text("broken_body", error=str(error))
        case _:
            return "error", f"{type(error).__name__}: {error}"


def of_status(status: int, reason: str) -> tuple[str, str] | None:
    """Kind and message for an answer that is not a success; None for 2xx."""
    if 200 <= status < 300:
        return None
    said = failure_text("answered", status=f"{status} {reason}".rstrip())
    if 300 <= status < 600:
        return f"http_{status // 100}xx", said
    return "protocol_error", said


_LONGEST_REFUSAL = 4096


def _is_of_own_api(exchange: HttpExchange) -> bool:
    """Whether the answer says that it comes from there: see `OwnRunCheck` of the API."""
    if len(exchange.body) > _LONGEST_REFUSAL or not exchange.body.startswith(b"{"):
        return False
    try:
        return msgspec.json.decode(exchange.body, type=_Refusal).details.get("reason") == OWN_RUN
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class _Refusal(msgspec.Struct):
    details: dict[str, Any]


def _of_loss(exchange: HttpExchange) -> str:
    if exchange.status is not None:
        return failure_text("lost_in_answer")
    return failure_text("lost_after_sending")


def _of_dial(undialled: Undialled, exchange: HttpExchange) -> tuple[str, str]:
    error, where = undialled.error, exchange.address
    if isinstance(error, ssl.SSLError):
        return "tls", failure_text("tls_failed", error=str(error))
    if isinstance(error, TimeoutError):
        return "connect_timeout", failure_text("no_answer_of", where=where)
    if error.errno == errno.ECONNREFUSED:
        return "connection_refused", failure_text("refused", where=where)
    if error.errno in _NO_WAY:
        return _NO_WAY[error.errno], failure_text(_NO_WAY[error.errno], where=where)
    return "connection_refused", failure_text("unreachable", where=where, error=str(error))


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
        guard: AddressGuard | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        max_body_bytes: int = MAX_BODY_BYTES,
        global_headers: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        sealer: Sealer | None = None,
        own_ports: Collection[int] = (),
        call_secret: str | None = None,
        services: Mapping[str, str] | None = None,
    ) -> None:
        """`own_ports`: where this process listens; no redirect leads there. `call_secret` signs calls without a task.

        `services`: the addresses that stand for names in `service://NAME/PATH`.
        """
        self._own_ports = frozenset(own_ports)
        self._guard = guard or AddressGuard()
        self._connect_timeout = connect_timeout
        self._max_body_bytes = max_body_bytes
        self._now = (clock or SystemClock()).now
        self._plans = RequestTemplates(
            default_headers(global_headers or {}), max_body_bytes, self._now, sealer, call_secret, services
        )
        self._resolver = resolver
        self._own_resolver: ThreadResolver | None = None
        self._ssl_context = ssl_context
        self._pool: Pool | None = None
        self._deadlines = Deadlines()
        """For calls that are no attempt of a worker."""

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
        """Call the target once and say what came of it. CancelledError drops the request in flight; the deadline's is a
        timeout.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError("the HTTP target is not open")
        try:
            request = self._plans.request(assignment)
        except Unsendable as problem:
            message = said_in(problem)
            details = {"kind": problem.kind, **said_by(message)}
            return Outcome(kind=OutcomeKind.FAILURE, failure=problem.kind, error_message=message, error_details=details)
        exchange = HttpExchange(self._max_body_bytes)
        went_wrong: tuple[str, str] | None = None
        spec = assignment.task.spec
        deadline = self._deadlines.of_attempt(spec.timeout_seconds)
        try:
            await self._send(pool, assignment, request, exchange, deadline.due)
            if spec.follow_redirects and exchange.status in REDIRECTS:
                await self._follow(pool, assignment, request, exchange, deadline.due)
        except asyncio.CancelledError:
            if not deadline.expired_alone():
                raise
            went_wrong = of_error(TimeoutError(), exchange, spec.timeout_seconds)
        except Exception as error:  # every failure of an attempt has a name
            went_wrong = of_error(error, exchange, spec.timeout_seconds)
        finally:
            self._deadlines.remove(deadline)
        answer = outcome_of(assignment, request, exchange, went_wrong, self._now)
        if answer.kind is OutcomeKind.ACCEPTED:
            failpoint.hit("K8")
        return answer

    async def _follow(
        self, pool: Pool, assignment: Assignment, request: Request, exchange: HttpExchange, deadline: float
    ) -> None:
        """The redirects, until there is an answer at the end of them."""
        for _ in range(MOST_HOPS):
            status, location = exchange.status or 0, exchange.watched.get("location")
            request = redirected(request, status, location, assignment.lease.callback_token)
            exchange.began()
            await self._send(pool, assignment, request, exchange, deadline)
            if exchange.status not in REDIRECTS:
                return
        raise BadRedirect(failure_text("too_many_redirects", most=MOST_HOPS))

    def _check_redirect(self, wire: HttpConnection, exchange: HttpExchange) -> None:
        """BlockedAddress, and the connection dropped, if a redirect leads where none may."""
        origin = exchange.came_from
        try:
            self._guard.check_redirect(origin, wire.dialled)
            if wire.place.port in self._own_ports and wire.is_to_this_machine():
                raise BlockedAddress(f"{wire.address}: a redirect from {origin} must not lead to Noonbell itself")
        except BlockedAddress:
            wire.drop()
            raise

    async def _send(
        self, pool: Pool, assignment: Assignment, request: Request, exchange: HttpExchange, deadline: float
    ) -> None:
        """One request and its answer."""
        if request.url.scheme not in SCHEMES:
            self._guard.check_scheme(request.url.scheme)
        spec = assignment.task.spec
        is_once, is_safe = spec.delivery is Delivery.AT_MOST_ONCE, request.method in SAFE_METHODS
        place = request.place or origin_of(request.url)
        head = request.head or head_of(request, closes=is_once)
        content, is_head = request.content, request.method == "HEAD"
        kept = None if is_once else pool.take(place, None if is_safe else FRESH_SECONDS)
        wire = kept or await pool.dial(place, deadline, exchange)
        while True:
            if exchange.came_from is not None:
                self._check_redirect(wire, exchange)
            exchange.address, exchange.dialled = wire.address, wire.dialled
            try:
                error = await wire.ask(head, content, exchange, is_head=is_head, follows=spec.follow_redirects)
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


TIMEOUT: Final = 20.0


class FetchFailed(NoonbellError):
    """Why there is no file, in one line."""


class Fetcher:
    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        connect_timeout: float = 5.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard, self._connect_timeout, self._ssl_context = guard or AddressGuard(), connect_timeout, ssl_context

    async def fetch(self, url: str, most_bytes: int) -> bytes:
        """The body of a 200. Raises FetchFailed."""
        return await self._carry_out(url, most_bytes)

    async def post_form(self, url: str, fields: Mapping[str, str], most_bytes: int, authorization: str | None) -> bytes:
        """The body of a 200 that answers a form. Raises FetchFailed."""
        return await self._carry_out(url, most_bytes, urlencode(fields).encode(), authorization)

    async def _carry_out(
        self, url: str, most_bytes: int, form: bytes | None = None, authorization: str | None = None
    ) -> bytes:
        resolver = ThreadResolver()
        pool = Pool(self._guard, resolver, connect_timeout=self._connect_timeout, ssl_context=self._ssl_context)
        exchange = HttpExchange(most_bytes)
        try:
            await self._exchange(pool, self._request(url, form, authorization), exchange)
        except FetchFailed:
            raise
        except (NoonbellError, ValueError) as error:
            raise FetchFailed(str(error)) from None
        except Exception as error:
            kind, said = of_error(error, exchange, TIMEOUT)
            told = failure_text("source_too_large", most=most_bytes) if kind == "too_large" else f"{kind}: {said}"
            raise FetchFailed(told) from None
        finally:
            await pool.close()
            await resolver.close()
        if exchange.status != 200:
            raise FetchFailed(failure_text("source_answered", status=f"{exchange.status} {exchange.reason}".rstrip()))
        return bytes(exchange.body)

    def _request(self, url: str, form: bytes | None, authorization: str | None) -> Request:
        address = URL(url)
        if address.scheme not in SCHEMES:
            self._guard.check_scheme(address.scheme)
        headers = {"User-Agent": f"noonbell/{__version__}", "Accept": "text/calendar, application/json, */*;q=0.1"}
        if form is None:
            return Request("GET", address, Headers(headers).sent(), None, b"")
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        headers |= {} if authorization is None else {"Authorization": authorization}
        return Request("POST", address, Headers(headers).sent(), form.decode(), form)

    async def _exchange(self, pool: Pool, request: Request, exchange: HttpExchange) -> None:
        exchange.began()
        deadline = pool.loop.time() + TIMEOUT
        async with asyncio.timeout_at(deadline):
            wire = await pool.dial(origin_of(request.url), deadline, exchange)
            exchange.address = wire.address
            try:
                error = await wire.ask(
                    head_of(request, closes=True), request.content, exchange, is_head=False, follows=False
                )
                if error is not None:
                    raise error
            finally:
                wire.drop()
