"""Calls that a run of this installation makes to this very API.

A task may have our own API as its target if it brings a token. Without one, on a server that asks for none, a target could
make the node act on itself: the request comes from this machine, and only its `X-Noonbell-Run` says who sent it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from noonbell.errors import Forbidden
from noonbell.service.access import Access

_HEADER: Final = "x-noonbell-run"
_OPEN: Final = re.compile(r"/api/v1/(?:healthz|livez|readyz|callbacks(?:/[^/]+)?)")
"""Change nothing, or name the run that they speak for: a target may send a callback with the headers that it was sent."""


class OwnRuns:
    """For servers that ask for no token."""

    def __init__(self, app: ASGIApp, is_ours: Callable[[int], Awaitable[bool]], access: Access) -> None:
        """`is_ours` says whether there is a run of that id."""
        self._app, self._is_ours, self._access = app, is_ours, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _OPEN.fullmatch(scope["path"]):
            await self._check(scope, Headers(scope=scope))
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope, headers: Headers) -> None:
        run_id = headers.get(_HEADER, "")
        if not (run_id.isascii() and run_id.isdigit() and len(run_id) <= 16 and await self._is_ours(int(run_id))):
            return
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and secret.strip():
            peer = scope.get("client")
            await self._access.who(secret.strip(), peer[0] if peer else "")  # Unauthorized, if it is not a good one
            return
        raise Forbidden(
            f"run {run_id} of this installation calls its own API without a token;"
            " noonbell token create makes one, and the header Authorization of the task carries it"
        )
