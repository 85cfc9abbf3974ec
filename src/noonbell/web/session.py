"""Who sits before the browser: a token once, then a signed cookie that is bound to it.

The cookie says which token it was and until when it holds; the signature is by `auth.session_key`, or by a key that is
made when the process starts. It opens nothing by itself: each request asks whether that token is still good, so a revoked
one ends its sessions within seconds, on every node. Signing out takes the cookie away, and the node that was asked refuses
a copy of it from then on; the others do so when its time is up.
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

_MOST_ENDED: Final = 10_000
_COOKIE = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    def __init__(self, access: Access | None, key: str | None = None) -> None:
        self._access = access
        self._key = secrets.token_bytes(32) if key is None else hashlib.sha256(key.encode()).digest()
        self._now = SystemClock().now
        self._ended: dict[str, int] = {}
        """The marks of sessions that were ended before their time, and when that would have been; the oldest first."""

    def begin(self, token: Token) -> str:
        """The cookie of somebody who has shown that token; no two are the same."""
        until = self._now() + SECONDS * SECOND
        return f"{token.id}.{until}.{self._sign(token.id, until)}"

    async def who(self, request: HTTPConnection) -> Token | None:
        """Whose session it is; None without one, or where it has ended."""
        known = self._known(request)
        if known is None or self._access is None:
            return None
        return await self._access.by_id(known[0])

    def end(self, request: HTTPConnection) -> None:
        """Whoever comes with the same cookie again is nobody."""
        known = self._known(request)
        if known is None:
            return
        now = self._now()
        self._ended = {mark: until for mark, until in self._ended.items() if until > now}
        while len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[known[2]] = known[1]

    def _known(self, request: HTTPConnection) -> tuple[int, int, str] | None:
        """The token, the end and the mark of a session that goes on."""
        found = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if found is None:
            return None
        token_id, until, mark = int(found[1]), int(found[2]), found[3]
        is_ours = hmac.compare_digest(mark, self._sign(token_id, until))
        return (token_id, until, mark) if is_ours and until > self._now() and mark not in self._ended else None

    def _sign(self, token_id: int, until: int) -> str:
        return hmac.new(self._key, f"session {token_id} {until}".encode(), hashlib.sha256).hexdigest()
