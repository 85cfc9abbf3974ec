"""What is posted to a receiver: a CloudEvents body, signed as Standard Webhooks, over connections that pass the guard.

Redirects are not followed. An answer of 2xx is a delivery; anything else is a failure that is tried again.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import msgspec
from yarl import URL

from noonbell.clock import SECOND, Clock, SystemClock, rfc3339
from noonbell.errors import NoonbellError
from noonbell.model.event import Event
from noonbell.model.subscription import Subscription, WebhookAnswer
from noonbell.sealing import Sealer
from noonbell.service.filters import event_json
from noonbell.service.secrets import opened
from noonbell.settings import Settings
from noonbell.targets import guard_of
from noonbell.targets.http import signing, target
from noonbell.targets.http.connection import Disconnected, HttpExchange, origin_of
from noonbell.targets.http.guard import SCHEMES, AddressGuard
from noonbell.targets.http.pool import Pool, PooledClient
from noonbell.targets.http.request import Headers, Request, conceal, head_of, hidden_parts
from noonbell.version import __version__

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_READ: Final = 64 * 1024
"""Bytes of an answer that are read, at most."""
_SHOWN: Final = 2_000
"""Characters of an answer that are kept."""
_FRESH: Final = 1.0
"""Seconds for which a kept connection may have been idle."""

_encode = msgspec.json.Encoder().encode


def cloud_event(event: Event, source: str) -> bytes:
    """CloudEvents 1.0, structured. `data` is the event as `GET /events` has it."""
    told = {
        "specversion": "1.0",
        "id": event.id,
        "source": source,
        "type": event.type,
        **({"subject": _subject(event)} if _subject(event) else {}),
        "time": rfc3339(event.at),
        "datacontenttype": "application/json",
        "data": event_json(event),
    }
    return _encode(told)


def _subject(event: Event) -> str:
    if event.run_id is not None:
        return f"runs/{event.run_id}"
    return f"tasks/{event.task_id}" if event.task_id is not None else ""


class WebhookPoster(PooledClient):
    """Open it inside the event loop that it is used in."""

    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,
        connect_timeout: float = 5.0,
        timeout: float = 10.0,
        sealer: Sealer | None = None,
        clock: Clock | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(guard, connect_timeout, ssl_context)
        self._timeout, self._sealer = timeout, sealer or Sealer()
        self._now = (clock or SystemClock()).now

    @classmethod
    def of(cls, settings: Settings, sealer: Sealer) -> WebhookPoster:
        return cls(
            guard=guard_of(settings),
            connect_timeout=settings.executor.connect_timeout,
            timeout=settings.subscriptions.timeout,
            sealer=sealer,
        )

    async def post(self, subscription: Subscription, message_id: str, body: bytes) -> WebhookAnswer:
        """One attempt. The secrets of the subscription may be sealed; they are opened for this moment."""
        pool = self._opened_pool()
        exchange = HttpExchange(_READ)
        shown: dict[str, str] = {}
        hidden: list[str] = []
        error: str | None = None
        try:
            plain = opened(subscription, self._sealer)
            request = self._request(plain, message_id, body)
            hidden = hidden_parts(request.url, (plain.secret or "").split())
            shown = {name: text for name, text in request.headers.items() if name.lower() != signing.SIGNATURE}
            await self._exchange(pool, request, exchange)
        except (NoonbellError, ValueError) as problem:
            error = str(problem)
        except Exception as problem:  # every failure of an attempt has a name
            kind, said = target.of_error(problem, exchange, self._timeout)
            if kind != target.TOO_LARGE:  # the message has arrived: only the answer to it is too long
                error = f"{kind}: {said}"
        status = exchange.status
        if error is None and not (status is not None and 200 <= status < 300):
            error = f"it returned {status} {exchange.reason}".rstrip()
        text = target.text_of(exchange.body, exchange.watched.get("content-type")) if status else None
        return WebhookAnswer(
            error=None if error is None else conceal(target.storable(error), hidden)[:_SHOWN],
            response_code=status,
            response=None if text is None else conceal(text, hidden)[:_SHOWN],
            request_headers=shown,
        )

    def _request(self, subscription: Subscription, message_id: str, body: bytes) -> Request:
        url = URL(subscription.url)
        if url.scheme not in SCHEMES:
            self._guard.check_scheme(url.scheme)
        headers = Headers({"User-Agent": f"noonbell/{__version__}", "Accept": "*/*"})
        headers.put("Content-Type", CONTENT_TYPE)
        headers.put_own(signing.sign(subscription.secret or "", message_id, self._now() // SECOND, body))
        return Request("POST", url, headers.sent(), None, body)

    async def _exchange(self, pool: Pool, request: Request, exchange: HttpExchange) -> None:
        exchange.began()
        deadline = pool.loop.time() + self._timeout
        place, head = origin_of(request.url), head_of(request, closes=False)
        async with asyncio.timeout_at(deadline):
            kept = pool.take(place, _FRESH)
            wire = kept or await pool.dial(place, deadline, exchange)
            while True:
                exchange.address, exchange.dialled = wire.address, wire.dialled
                try:
                    error = await wire.ask(head, request.content, exchange, is_head=False, follows=False)
                except BaseException:
                    wire.drop()
                    raise
                if error is None:
                    break
                wire.drop()
                if wire is not kept or not isinstance(error, Disconnected):
                    raise error
                wire = await pool.dial(place, deadline, exchange)  # a receiver may get an event twice
        pool.give(wire)
