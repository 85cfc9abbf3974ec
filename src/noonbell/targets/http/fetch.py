"""Fetching a file over HTTP for the server itself: every dial passes the guard, the size and the time are bounded.

Redirects are not followed. Each fetch has a connection of its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from yarl import URL

from noonbell.errors import NoonbellError
from noonbell.targets.http import target
from noonbell.targets.http.connection import HttpExchange, origin_of
from noonbell.targets.http.guard import SCHEMES, AddressGuard
from noonbell.targets.http.pool import Pool, ThreadResolver
from noonbell.targets.http.request import Headers, Request, head_of
from noonbell.version import __version__

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
            kind, said = target.of_error(error, exchange, TIMEOUT)
            told = f"it is larger than {most_bytes} bytes" if kind == "too_large" else f"{kind}: {said}"
            raise FetchFailed(told) from None
        finally:
            await pool.close()
            await resolver.close()
        if exchange.status != 200:
            raise FetchFailed(f"it answered {exchange.status} {exchange.reason}".rstrip() + "; expected 200")
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
