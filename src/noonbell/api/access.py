"""Who may call which endpoint, checked before it runs; and the line in the audit log after a change.

Without `auth` every caller may do everything, and changes are logged all the same.

A task may have this API as its target if it sends a token. Without one, on a server that requires none, a target could make
the node act on itself: the request comes from this machine, and only its `X-Noonbell-Run` shows that a run sent it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, assert_never

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from noonbell.api import params
from noonbell.api.endpoint import BASE, Endpoint
from noonbell.api.params import ACTOR, BOUNDS
from noonbell.api.responses import request_id
from noonbell.errors import Forbidden, Unauthorized
from noonbell.model.access import OWN_RUN, AuditAction, Role, Token, TokenScope
from noonbell.model.run import RunId
from noonbell.ports import Store
from noonbell.service import scope as request_scope
from noonbell.service.access import Access
from noonbell.service.audit_log import expect_commands, noted_commands
from noonbell.service.filters import BY_NAME, ENCODED_SLASH, is_name
from noonbell.service.scope import ScopeRule

Session: TypeAlias = Callable[[Request], Awaitable[Token | None]]
"""Whose session in the dashboard a request belongs to: what a browser may read without a header of its own."""


class AccessGuard:
    def __init__(self, access: Access, store: Store, *, enabled: bool, session: Session | None = None) -> None:
        self._access, self._store, self._enabled, self._session = access, store, enabled, session

    async def admit(self, request: Request, endpoint: Endpoint) -> None:
        """Raises Unauthorized without a good token, RateLimited for one that calls too often, Forbidden where its role or
        its scope does not reach, NotFound for what is outside its scope.
        """
        if _is_change(request):
            expect_commands()
        await self._check(request, endpoint)
        is_ours = endpoint.base == BASE and endpoint.path.startswith(_ONE_TASK)
        if is_ours and endpoint.is_audited and _is_change(request):
            await self._find_named(request)

    async def _check(self, request: Request, endpoint: Endpoint) -> None:
        request_scope.limit_to(None)  # a request that was pipelined begins in the context of the one before it
        if not self._enabled or endpoint.role is None:
            return
        token = await self._who(request)
        if endpoint.is_counted:
            self._access.count(token)
        request.scope[ACTOR] = token.name
        request.scope[BOUNDS] = token.bounds if token.role is Role.WORKER else None
        if not token.role.includes(endpoint.role):
            raise Forbidden(f"this call requires the role {endpoint.role}, and this token has {token.role}")
        request_scope.limit_to(token.scope)
        if token.scope is not None:
            await self._check_scope(request, endpoint.scope, token.scope)

    async def _check_scope(self, request: Request, rule: ScopeRule, scope: TokenScope) -> None:
        """What the address names; what is in a query or a body, the services check."""
        match rule:
            case ScopeRule.NOTHING:
                raise Forbidden(f"this token is limited to tasks with {scope}, and this call concerns more than those")
            case ScopeRule.TASK:
                await request_scope.check_named(self._store, params.task_ref(request))
            case ScopeRule.RUN:
                await request_scope.check_run(self._store, params.run_id(request))
            case ScopeRule.QUEUE:
                request_scope.check_queue(params.piece(request, "name"))
            case ScopeRule.ANYTHING | ScopeRule.LIST | ScopeRule.BODY:
                pass
            case _:
                assert_never(rule)

    async def _find_named(self, request: Request) -> None:
        """A task that is called by its name is called by its id from here on. So the handler changes the very task that the
        audit log names, and the log of a task is found by one address when it has another name later.
        """
        text = params.piece(request, "id")
        name = text.removeprefix(BY_NAME)
        if not text.startswith(BY_NAME) or not is_name(name):
            return
        task_id = await self._access.task_id(name)
        if task_id is not None:  # without one, the handler says that there is no such task
            request.path_params["id"] = str(task_id)
            params.add_to_audit(request, task=name)

    async def _who(self, request: Request) -> Token:
        secret = _bearer(request.headers)
        if secret is not None:
            return await self._access.who(secret, _peer(request))
        # Changes need the header, which no other site can make a browser send.
        reads = request.method in ("GET", "HEAD")
        token = await self._session(request) if reads and self._session is not None else None
        if token is None:
            raise Unauthorized("this call requires a token: Authorization: Bearer …")
        return token

    async def note(self, request: Request, endpoint: Endpoint, answer: Response) -> None:
        """Write a change down, before its answer is sent."""
        if not _is_change(request) or answer.status_code >= 400 or not endpoint.is_audited:
            return
        if request.scope.get(params.NOTHING_CHANGED):
            return
        deed = AuditAction(
            actor=request.scope.get(ACTOR),
            action=endpoint.action,
            subject=_made(request, answer) or _address(request, endpoint),
            peer=_peer(request),
            request_id=request_id(request.scope),
            details={
                **request.scope.get(params.AUDIT_DETAILS, {}),
                **({"query": request.url.query} if request.scope["query_string"] else {}),
                **noted_commands(),
            },
        )
        await self._access.note(deed)


_ONE_TASK: Final = "/tasks/{id}"


def _is_change(request: Request) -> bool:
    return request.method not in ("GET", "HEAD")


def _made(request: Request, answer: Response) -> str | None:
    """The address of what the call made."""
    named: str | None = request.scope.get(params.AUDIT_SUBJECT)
    return named or answer.headers.get("location")


def _address(request: Request, endpoint: Endpoint) -> str:
    """What was called; a slash within a name is written as it was sent."""
    path = endpoint.path
    for name, value in request.path_params.items():
        path = path.replace(f"{{{name}}}", str(value).replace(ENCODED_SLASH, "%2F"), 1)
    return endpoint.base + path


def _bearer(headers: Headers) -> str | None:
    kind, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" and secret.strip() else None


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


_HEADER: Final = "x-noonbell-run"
_OPEN: Final = re.compile(r"(?:/legacy)?/api/v1/(?:healthz|livez|readyz|callbacks(?:/[^/]+)?)")
"""Change nothing, or name the run that they speak for: a target may send a callback with the headers that it was sent."""


class OwnRunCheck:
    """For servers that ask for no token."""

    def __init__(self, app: ASGIApp, store: Store, access: Access) -> None:
        self._app, self._store, self._access = app, store, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _OPEN.fullmatch(scope["path"]):
            await self._check(scope, Headers(scope=scope))
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope, headers: Headers) -> None:
        run_id = headers.get(_HEADER, "")
        if not (run_id.isascii() and run_id.isdigit() and len(run_id) <= 16):
            return
        if await self._store.run(RunId(int(run_id))) is None:
            return
        if (secret := _bearer(headers)) is not None:
            peer = scope.get("client")
            await self._access.who(secret, peer[0] if peer else "")  # Unauthorized, if it is not a good one
            return
        raise Forbidden(
            f"run {run_id} of this installation calls its own API without a token;"
            " create one with noonbell token create, and add it to the task as the header Authorization",
            details={"reason": OWN_RUN},
        )
