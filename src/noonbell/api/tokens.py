"""Endpoints of tokens and of the audit log: for admins."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import call
from noonbell.errors import Forbidden
from noonbell.model.access import Role
from noonbell.service.access import (
    NOT_MINTED,
    Access,
    ShownToken,
    TokenList,
    TokenRevoked,
    TokenWrite,
    scope_of,
    shown,
)
from noonbell.service.audit_log import AuditCheck, AuditList, AuditPage, AuditState, expected_heads, shown_state


class TokenCalls:
    def __init__(self, access: Access, *, mints: bool) -> None:
        """`mints`: whether callers may make tokens; not where they have shown none themselves."""
        self._access, self._mints = access, mints

    @call(
        "POST", "/tokens", "create_token", "Create a token", Role.ADMIN,
        status=201, body=TokenWrite, body_required=True, answer=ShownToken, errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def create(self, request: Request, by: str | None) -> object:
        """`token` is shown here in full, and never again. `labels`, `queues` and `job_types` are its scope: it sees
        and changes tasks that have all of them, and their runs; it sees nothing else. A worker's token needs its
        `queues`. Rejected (403) if the server requires no token: create the first one with `noonbell token
        create`.
        """
        if not self._mints:
            raise Forbidden(NOT_MINTED)
        asked = await params.read_body(request, TokenWrite, required=True)
        token, secret = await self._access.create(
            asked.name,
            asked.role,
            seconds=asked.expires_in,
            by=by,
            queues=asked.queues or (),
            labels=asked.labels,
            job_types=asked.job_types or (),
        )
        params.add_to_audit(request, name=token.name, **scope_of(token))
        return {**shown(token), "token": secret}

    @call("GET", "/tokens", "list_tokens", "List tokens", Role.ADMIN, answer=TokenList)
    async def all(self) -> object:
        return {"items": await self._access.tokens()}

    @call("DELETE", "/tokens/{token}", "revoke_token", "Revoke a token", Role.ADMIN, answer=TokenRevoked)
    async def revoke(self, token: str) -> object:
        """Within five seconds, every node rejects the token."""
        return TokenRevoked((await self._access.revoke(token)).name, True)

    @call("GET", "/audit", "audit_log", "Who changed what, newest first", Role.ADMIN, query=AuditList, answer=AuditPage)
    async def audit(self, asked: AuditList) -> object:
        """Each entry's hash covers the one before it; `key` is the key that signed it, or null."""
        items = await self._access.log(asked.before or None, asked.limit, asked.actor or None)
        return {"items": items, "next_before": items[-1]["id"] if len(items) == asked.limit else None}

    @call(
        "GET", "/audit/check", "check_audit_log", "Check that the audit log is intact", Role.ADMIN,
        query=AuditCheck, answer=AuditState,
    )  # fmt: skip
    async def check_audit(self, asked: AuditCheck) -> object:
        """Checks the newest entries, from `since` to `head`; `noonbell audit` checks all of them.

        `key` signs new entries; null: there is none, and signatures are not checked.
        """
        log = self._access.audit_log
        expected = expected_heads([asked.expect_head] if asked.expect_head else [], "expect_head")
        return shown_state(await log.check(expected, asked.limit), log.key_id)
