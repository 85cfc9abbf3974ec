"""Endpoints of tokens and of the audit log: for admins."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint, Param
from noonbell.api.limits import read_object
from noonbell.api.paper import paper, whole
from noonbell.api.schemas import ANY, TEXT, WHOLE, Schema
from noonbell.errors import Forbidden
from noonbell.model.access import Role
from noonbell.service.access import NOT_MINTED, Access, shown
from noonbell.service.reader import Problems, Reader

_EXAMPLE: Final = {
    "id": 1,
    "name": "ci",
    "role": "operator",
    "queues": None,
    "token": "nb_Y1kbhna…",
    "created_at": "2026-11-15T09:00:00Z",
    "created_by": "ada",
    "expires_at": None,
    "revoked_at": None,
    "used_at": "2026-11-15T09:30:00Z",
}
_ENTRY: Final = {
    "id": 1,
    "at": "2026-11-15T09:00:00Z",
    "actor": "ada",
    "action": "create_task",
    "subject": "/api/v1/tasks/1",
    "peer": "10.0.0.7",
    "request_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "details": {},
    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}


class TokenCalls:
    def __init__(self, access: Access, *, mints: bool) -> None:
        """`mints`: whether callers may make tokens; not where they have shown none themselves."""
        self._access, self._mints = access, mints

    async def create(self, request: Request) -> Response:
        if not self._mints:
            raise Forbidden(NOT_MINTED)
        problems = Problems()
        reader = Reader(await read_object(request, required=True), problems)
        name, role = reader.text("name", "", most=100), reader.text("role", "", most=20)
        queues = reader.texts("queues", most=100) if reader.get("queues") is not None else ()
        seconds = reader.get("expires_in")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
            reader.expected("expires_in", "seconds")
        reader.finish("a token")
        problems.finish()
        token, secret = await self._access.create(name, role, seconds=seconds, by=params.actor(request), queues=queues)
        return json_answer({**shown(token), "token": secret}, 201)

    async def all(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._access.tokens()})

    async def revoke(self, request: Request) -> Response:
        token = await self._access.revoke(params.piece(request, "token"))
        return json_answer({"name": token.name, "revoked": True})

    async def audit(self, request: Request) -> Response:
        reader = params.query(request)
        limit = reader.integer("limit", 100, 1, 1_000)
        before = reader.integer("before", 0, 0, 2**53 - 1)
        actor = reader.text("actor", "", most=255)
        reader.problems.finish()
        items = await self._access.log(before or None, limit, actor or None)
        return json_answer({"items": items, "next_before": items[-1]["id"] if len(items) == limit else None})


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    text_or_null = {"anyOf": [TEXT, {"type": "null"}]}
    token = dict.fromkeys(_EXAMPLE, text_or_null) | {
        "id": WHOLE,
        "name": TEXT,
        "role": {"type": "string", "enum": [str(role) for role in Role]},
        "queues": {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}]},
        "token": TEXT,
    }
    entry = dict.fromkeys(_ENTRY, TEXT) | {"id": WHOLE, "actor": text_or_null, "details": {"type": "object"}}
    write = {
        "name": TEXT,
        "role": token["role"],
        "queues": token["queues"],
        "expires_in": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    }
    listed = {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}
    entries = {"type": "array", "items": {"$ref": "#/components/schemas/AuditEntry"}}
    return {
        "Token": _closed(token),
        "TokenWrite": {**_closed(write, ("name", "role")), "additionalProperties": False},
        "TokenList": _closed({"items": listed}),
        "TokenRevoked": _closed({"name": TEXT, "revoked": {"type": "boolean"}}),
        "AuditEntry": _closed(entry),
        "AuditPage": _closed({"items": entries, "next_before": ANY}),
    }


def _closed(properties: Schema, required: tuple[str, ...] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else list(required),
    }


_PAGE: Final = (
    Param("limit", "How many, at most.", whole(1, 1_000, 100), 100),
    Param("before", "The `next_before` of the page before.", whole(0, 2**53 - 1), 100),
    Param("actor", "Only what this one did.", example="ada"),
)


def endpoints(access: Access, *, mints: bool = True) -> list[Endpoint]:
    calls = TokenCalls(access, mints=mints)
    return [
        Endpoint(
            ("POST",),
            "/tokens",
            calls.create,
            **paper(
                "create_token",
                "access",
                "Make a token",
                status=201,
                answer="Token",
                answer_example={**_EXAMPLE, "token": "nb_…, whole: shown here and never again"},
                body="TokenWrite",
                body_example={"name": "ci", "role": "operator"},
                body_required=True,
                errors=("INVALID_JSON", "INVALID_ARGUMENT", "ALREADY_EXISTS"),
                notes="`queues` names what a token of the role worker may claim from. Refused (403) where no token is asked for: `noonbell token create` makes the first one.",
            ),
        ),
        Endpoint(
            ("GET",),
            "/tokens",
            calls.all,
            **paper("list_tokens", "access", "List tokens", answer="TokenList", answer_example={"items": [_EXAMPLE]}),
        ),
        Endpoint(
            ("DELETE",),
            "/tokens/{token}",
            calls.revoke,
            **paper(
                "revoke_token",
                "access",
                "Revoke a token",
                answer="TokenRevoked",
                answer_example={"name": "ci", "revoked": True},
                errors=("NOT_FOUND",),
                notes="It is good for nothing within five seconds, on every node.",
            ),
        ),
        Endpoint(
            ("GET",),
            "/audit",
            calls.audit,
            **paper(
                "audit_log",
                "access",
                "Who changed what, newest first",
                answer="AuditPage",
                answer_example={"items": [_ENTRY], "next_before": None},
                query=_PAGE,
                errors=("INVALID_ARGUMENT",),
                notes="Each entry's hash covers the one before it; `noonbell audit` checks the chain.",
            ),
        ),
    ]
