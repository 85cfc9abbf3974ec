"""What channels that are reached by HTTP share: a POST through the outbound guard, and what an address must be.

Every dial passes the guard, and redirects are not followed. A receiver that answers 4xx is not asked again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from yarl import URL

from noonbell.alerts.channel_kind import AlertSender, Undeliverable
from noonbell.clock import Clock, SystemClock
from noonbell.errors import NoonbellError
from noonbell.fields.problems import ReadContext
from noonbell.model.alert import Channel
from noonbell.model.failure_text import FailureText, failure_text, said_in
from noonbell.service.target_fields import is_web_address
from noonbell.settings import Settings
from noonbell.targets.http import target
from noonbell.targets.http.connection import HttpExchange, origin_of
from noonbell.targets.http.guard import SCHEMES, AddressGuard
from noonbell.targets.http.pool import Pool, PooledClient
from noonbell.targets.http.request import Headers, Request, head_of
from noonbell.version import __version__

TIMEOUT = 10.0
_KEPT = 64 * 1024
"""Bytes of an answer that are read, at most."""
_TRY_AGAIN = frozenset({408, 425, 429})
_NEVER = frozenset({"blocked_address", "tls"})
SHOWN = 300
"""Characters of an answer that a problem repeats."""


class Answer(NamedTuple):
    status: int
    reason: str
    body: bytes


class PostSender(PooledClient, AlertSender):
    """Sends to channels by one POST for each message."""

    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,
        connect_timeout: float = 5.0,
        clock: Clock | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(guard, connect_timeout, ssl_context)
        self._now = (clock or SystemClock()).now

    async def post(self, url: URL, content: bytes, headers: Mapping[str, str], own: Mapping[str, str]) -> Answer:
        """What was answered, with any status. Undeliverable, if no answer came. `own` headers win over `headers`."""
        pool = self._opened_pool()
        exchange = HttpExchange(_KEPT)
        try:
            await _exchange(pool, self._request(url, content, headers, own), exchange)
        except (NoonbellError, ValueError) as error:
            raise Undeliverable(said_in(error), again=False) from None
        except Exception as error:
            kind, said = target.of_error(error, exchange, TIMEOUT)
            if kind != "too_large":  # the message has arrived: only the answer to it is too long
                raise Undeliverable(
                    said if isinstance(said, FailureText) else f"{kind}: {said}", again=kind not in _NEVER
                ) from None
        return Answer(exchange.status or 0, exchange.reason, bytes(exchange.body))

    def _request(self, url: URL, content: bytes, headers: Mapping[str, str], own: Mapping[str, str]) -> Request:
        if url.scheme not in SCHEMES:
            self._guard.check_scheme(url.scheme)
        sent = Headers({"User-Agent": f"noonbell/{__version__}", "Accept": "*/*"})
        sent.put("Content-Type", "application/json")
        sent.update(headers)
        sent.put_own(own)
        return Request("POST", url, sent.sent(), None, content)


async def _exchange(pool: Pool, request: Request, exchange: HttpExchange) -> None:
    """On a connection of its own: messages are few, and a kept connection may have died meanwhile."""
    exchange.began()
    deadline = pool.loop.time() + TIMEOUT
    async with asyncio.timeout_at(deadline):
        wire = await pool.dial(origin_of(request.url), deadline, exchange)
        exchange.address = wire.address
        try:
            head = head_of(request, closes=True)
            error = await wire.ask(head, request.content, exchange, is_head=False, follows=False)
            if error is not None:
                raise error
        finally:
            wire.drop()


def refused(answer: Answer, why: str = "") -> Undeliverable:
    """The problem of an answer that is no 2xx; `why`: in the words of the service."""
    status = f"{answer.status} {answer.reason}".rstrip()
    said = (
        failure_text("alert_answered_why", status=status, error=why[:SHOWN])
        if why
        else failure_text("alert_answered", status=status)
    )
    return Undeliverable(said, again=answer.status in _TRY_AGAIN or answer.status >= 500, response_code=answer.status)


def is_success(answer: Answer) -> bool:
    return 200 <= answer.status < 300


Sender = TypeVar("Sender", bound=PostSender)


def maker(sender: Callable[..., Sender]) -> Callable[[Settings], Sender]:
    """What makes such a sender from the settings."""

    def make(settings: Settings) -> Sender:
        executor = settings.executor
        guard = AddressGuard(executor.allow_networks, executor.deny_networks)
        return sender(guard=guard, connect_timeout=executor.connect_timeout)

    return make


def check_web_address(channel: Channel, at: ReadContext) -> None:
    if not is_web_address(channel.url):
        at.wrong("url", "is missing or wrong; expected http://HOST/… or https://HOST/…")
