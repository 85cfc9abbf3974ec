"""Notices to a plain webhook: a POST with JSON, signed as Standard Webhooks where the channel has a secret.

Every dial passes the guard, and redirects are not followed. A receiver that says no (4xx) is not asked again.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import msgspec
from yarl import URL

from noonbell.clock import SECOND, Clock, SystemClock
from noonbell.errors import NoonbellError
from noonbell.model.alert import Channel
from noonbell.ports import Undeliverable
from noonbell.targets import failure, signing
from noonbell.targets.exchange import Exchange
from noonbell.targets.guard import SCHEMES, Guard
from noonbell.targets.place import place_of
from noonbell.targets.pool import Pool
from noonbell.targets.request import Headers, Request, head_of
from noonbell.targets.resolver import ThreadResolver
from noonbell.version import __version__

TIMEOUT = 10.0
_KEPT = 64 * 1024
"""Bytes of an answer that are read, at most."""
_TRY_AGAIN = frozenset({408, 425, 429})
_NEVER = frozenset({"blocked_address", "tls"})


class WebhookCourier:
    """Open it inside the event loop that it is used in."""

    def __init__(
        self,
        *,
        guard: Guard | None = None,
        connect_timeout: float = 5.0,
        clock: Clock | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard, self._connect_timeout, self._ssl_context = guard or Guard(), connect_timeout, ssl_context
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

    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        pool = self._pool
        if pool is None:
            raise RuntimeError("the courier is not open")
        exchange = Exchange(_KEPT)
        try:
            request = self._request(channel, msgspec.json.encode(notice), delivery_id)
            await self._exchange(pool, request, exchange)
        except (NoonbellError, ValueError) as error:
            raise Undeliverable(str(error), again=False) from None
        except Exception as error:
            kind, said = failure.of_error(error, exchange, TIMEOUT)
            if kind != "too_large":  # whatever it said at such length, it has heard
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

    async def _exchange(self, pool: Pool, request: Request, exchange: Exchange) -> None:
        """On a connection of its own: notices are few, and a kept connection may have died meanwhile."""
        exchange.began()
        deadline = pool.loop.time() + TIMEOUT
        wire = await pool.dial(place_of(request.url), deadline, exchange)
        exchange.address = wire.address
        try:
            head = head_of(request, closes=True)
            error = await wire.ask(head, request.content, exchange, deadline, is_head=False, follows=False)
            if error is not None:
                raise error
        finally:
            wire.drop()
