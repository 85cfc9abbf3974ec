"""Channels of kind `webhook`: a POST with JSON, signed as Standard Webhooks where the channel has a secret.

Every dial passes the guard, and redirects are not followed. A receiver that answers 4xx is not asked again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from yarl import URL

from noonbell.alerts.channel_kind import AlertSender, ChannelKind, Undeliverable
from noonbell.clock import SECOND, Clock, SystemClock
from noonbell.errors import NoonbellError
from noonbell.fields.problems import ReadContext
from noonbell.masking import origin_alone
from noonbell.model.alert import Channel
from noonbell.settings import Settings
from noonbell.targets.http import signing, target
from noonbell.targets.http.connection import HttpExchange, origin_of
from noonbell.targets.http.guard import SCHEMES, AddressGuard
from noonbell.targets.http.pool import Pool, ThreadResolver
from noonbell.targets.http.request import Headers, Request, head_of
from noonbell.version import __version__

TIMEOUT = 10.0
_KEPT = 64 * 1024
"""Bytes of an answer that are read, at most."""
_TRY_AGAIN = frozenset({408, 425, 429})
_NEVER = frozenset({"blocked_address", "tls"})


class WebhookSender(AlertSender):
    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,
        connect_timeout: float = 5.0,
        clock: Clock | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard, self._connect_timeout, self._ssl_context = guard or AddressGuard(), connect_timeout, ssl_context
        self._now = (clock or SystemClock()).now
        self._resolver: ThreadResolver | None = None
        self._pool: Pool | None = None

    async def open(self) -> None:
        self._resolver = ThreadResolver()
        self._pool = Pool(
            self._guard, self._resolver, connect_timeout=self._connect_timeout, ssl_context=self._ssl_context
        )

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        if self._resolver is not None:
            await self._resolver.close()
        self._pool = self._resolver = None

    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        pool = self._pool
        if pool is None:
            raise RuntimeError("the sender is not open")
        exchange = HttpExchange(_KEPT)
        try:
            request = self._request(channel, msgspec.json.encode(message), delivery_id)
            await self._exchange(pool, request, exchange)
        except (NoonbellError, ValueError) as error:
            raise Undeliverable(str(error), again=False) from None
        except Exception as error:
            kind, said = target.of_error(error, exchange, TIMEOUT)
            if kind != "too_large":  # the message has arrived: only the answer to it is too long
                raise Undeliverable(f"{kind}: {said}", again=kind not in _NEVER) from None
        status = exchange.status or 0
        if not 200 <= status < 300:
            raise Undeliverable(
                f"it answered {status} {exchange.reason}".rstrip(),
                again=status in _TRY_AGAIN or status >= 500,
                response_code=status,
            )
        return status

    def _request(self, channel: Channel, content: bytes, delivery_id: str) -> Request:
        url = URL(channel.url)
        if url.scheme not in SCHEMES:
            self._guard.check_scheme(url.scheme)
        headers = Headers({"User-Agent": f"noonbell/{__version__}", "Accept": "*/*"})
        headers.put("Content-Type", "application/json")
        headers.update(channel.headers)
        headers.put_own({"webhook-id": delivery_id})
        if channel.secret:
            headers.put_own(signing.sign(channel.secret, delivery_id, self._now() // SECOND, content))
        return Request("POST", url, headers.sent(), None, content)

    async def _exchange(self, pool: Pool, request: Request, exchange: HttpExchange) -> None:
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


def make_sender(settings: Settings) -> WebhookSender:
    executor = settings.executor
    guard = AddressGuard(executor.allow_networks, executor.deny_networks)
    return WebhookSender(guard=guard, connect_timeout=executor.connect_timeout)


def check(channel: Channel, at: ReadContext) -> None:
    if not _is_web_address(channel.url):
        at.wrong("url", "is missing or wrong; expected http://HOST/… or https://HOST/…")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError for one out of range
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


KIND: Final = ChannelKind(
    name="webhook",
    make_sender=make_sender,
    check=check,
    shown_url=origin_alone,
    credential="signs as Standard Webhooks",
)
