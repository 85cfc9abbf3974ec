"""Who may call what, asked before an endpoint answers; and a line in the audit log for every change.

An endpoint that the table of roles does not know is for admins: a forgotten line locks too much rather than too little.
Without `auth` everybody may do everything, and changes are written down all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api.answers import request_id
from noonbell.api.endpoint import Endpoint
from noonbell.api.params import ACTOR, QUEUES
from noonbell.api.roles import OPEN, ROLES, UNTOLD
from noonbell.errors import Forbidden, Unauthorized
from noonbell.model.access import Deed, Role, Token
from noonbell.service.access import Access

Session: TypeAlias = Callable[[Request], Awaitable[Token | None]]
"""Whose session in the dashboard a request belongs to: what a browser may read without a header of its own."""


class Guard:
    def __init__(self, access: Access, *, enabled: bool, session: Session | None = None) -> None:
        self._access, self._enabled, self._session = access, enabled, session

    async def admit(self, request: Request, endpoint: Endpoint) -> None:
        """Raises Unauthorized without a good token, Forbidden where its role does not reach."""
        if not self._enabled or endpoint.name in OPEN:
            return
        token = await self._who(request)
        request.scope[ACTOR] = token.name
        request.scope[QUEUES] = token.queues if token.role is Role.WORKER else None
        needed = ROLES.get(endpoint.name, Role.ADMIN)
        if not token.role.includes(needed):
            raise Forbidden(f"this call is for the role {needed}, and this token has {token.role}")

    async def _who(self, request: Request) -> Token:
        secret = _bearer(request)
        if secret is not None:
            return await self._access.who(secret, _peer(request))
        # Changes need the header, which no other site can make a browser send.
        reads = request.method in ("GET", "HEAD")
        token = await self._session(request) if reads and self._session is not None else None
        if token is None:
            raise Unauthorized("this call needs a token: Authorization: Bearer …")
        return token

    async def note(self, request: Request, endpoint: Endpoint, answer: Response) -> None:
        """Write a change down, before its answer is sent."""
        if request.method in ("GET", "HEAD") or answer.status_code >= 400 or endpoint.name in UNTOLD:
            return
        deed = Deed(
            actor=request.scope.get(ACTOR),
            action=endpoint.name,
            subject=answer.headers.get("location") or request.url.path,
            peer=_peer(request),
            request_id=request_id(request.scope),
            details={"query": request.url.query} if request.url.query else {},
        )
        await self._access.note(deed)


def _bearer(request: Request) -> str | None:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""
