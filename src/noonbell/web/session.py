"""Who sits before the browser: a token once, then a signed cookie that is bound to it.

The cookie says which token it was and until when it holds; the signature is by `auth.session_key`, or by a key that is
made when the process starts. It opens nothing by itself: each request asks whether that token is still good, so a revoked
one ends its sessions within seconds, on every node.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from starlette.requests import HTTPConnection

from noonbell.clock import SECOND, SystemClock
from noonbell.model.access import Token
from noonbell.service.access import Access

COOKIE: Final = "noonbell_session"
SECONDS: Final = 12 * 3600
"""A session ends after so long, whatever happens."""

_COOKIE = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    def __init__(self, access: Access | None, key: str | None = None) -> None:
        self._access = access
        self._key = secrets.token_bytes(32) if key is None else hashlib.sha256(key.encode()).digest()
        self._now = SystemClock().now

    def begin(self, token: Token) -> str:
        """The cookie of somebody who has shown that token."""
        until = self._now() // SECOND + SECONDS
        return f"{token.id}.{until}.{self._sign(token.id, until)}"

    async def who(self, request: HTTPConnection) -> Token | None:
        """Whose session it is; None without one, or where it has ended."""
        found = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if found is None or self._access is None:
            return None
        token_id, until = int(found[1]), int(found[2])
        if not hmac.compare_digest(found[3], self._sign(token_id, until)) or until <= self._now() // SECOND:
            return None
        return await self._access.by_id(token_id)

    def _sign(self, token_id: int, until: int) -> str:
        return hmac.new(self._key, f"session {token_id} {until}".encode(), hashlib.sha256).hexdigest()
