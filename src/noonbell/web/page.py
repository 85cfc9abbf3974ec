"""From a request to a page: authentication, the role check, error pages, and the audit log entry of a change.

A form is accepted only from a page of this site: browsers send the origin, and a request without one is refused.
Together with the session cookie, which requests from other sites do not carry, this keeps foreign pages from acting.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from noonbell.errors import HTTP_STATUS, Forbidden, NoonbellError, NotFound, RateLimited, Unauthorized
from noonbell.model.access import Role, Token, TokenScope
from noonbell.service import filters, scope
from noonbell.service.audit_log import expect_commands, noted_commands
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import error_words, problem_words
from noonbell.web.context import MOST_ANONYMOUS_BYTES, Deps, PageContext
from noonbell.web.render import sent

log = logging.getLogger("noonbell.web")

Handler = Callable[[PageContext], Awaitable[Response]]

_OTHERS: Final = ("/api/", "/static/", "/docs", "/openapi.json", "/metrics")
"""Where something else answers, also for what is not there."""


@dataclass(frozen=True, slots=True)
class PageRoute:
    path: str
    handler: Handler
    method: str = "GET"
    role: Role | None = Role.VIEWER
    """Who may; None: everybody, without a token."""
    action: str = ""
    """What the audit log calls it: the operation's id in the API. Empty: it changes nothing that is worth a line."""
    scope: ScopeRule = ScopeRule.NOTHING
    """What of it is there for a token with a scope."""


def get(
    path: str, handler: Handler, role: Role | None = Role.VIEWER, *, scope: ScopeRule = ScopeRule.NOTHING
) -> PageRoute:
    return PageRoute(path, handler, "GET", role, scope=scope)


def post(
    path: str,
    handler: Handler,
    action: str = "",
    *,
    role: Role | None = Role.OPERATOR,
    scope: ScopeRule = ScopeRule.NOTHING,
) -> PageRoute:
    return PageRoute(path, handler, "POST", role, action, scope)


def page_routes(deps: Deps, pages: Sequence[PageRoute]) -> list[BaseRoute]:
    by_path: dict[str, dict[str, PageRoute]] = {}
    for page in pages:
        by_path.setdefault(page.path, {})[page.method] = page
    found: list[BaseRoute] = [Route(path, _dispatch(deps, here), methods=list(here)) for path, here in by_path.items()]
    return [*found, _Elsewhere(_dispatch(deps, {"GET": PageRoute("/", _nothing_here, role=None)}))]


class _Elsewhere(Route):
    """Any address that a person may have typed: a page that says that nothing is there."""

    def __init__(self, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__("/{rest:path}", endpoint, methods=["GET"])

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        wants_page = any(name == b"accept" and b"text/html" in value for name, value in scope.get("headers", ()))
        rest = f"/{child.get('path_params', {}).get('rest', '')}"
        if match is not Match.FULL or not wants_page or rest.startswith(_OTHERS):
            return Match.NONE, {}
        return match, child


async def _nothing_here(ctx: PageContext) -> Response:
    raise NotFound(ctx.words("error.nowhere"))


def _dispatch(deps: Deps, here: Mapping[str, PageRoute]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        page = here["GET" if request.method == "HEAD" else request.method]
        ctx = PageContext(request, deps)
        try:
            answer = await _answer(ctx, page)
        except NoonbellError as error:
            answer = error_page(ctx, error)
        except Exception:
            log.exception("page %s failed (request %s)", request.url.path, ctx.request_id)
            answer = error_page(ctx, None)
        ctx.finish(answer)
        return sent(request, answer)

    return handle


async def _answer(ctx: PageContext, page: PageRoute) -> Response:
    scope.limit_to(None)  # a request that was pipelined begins in the context of the one before it
    if page.method != "GET":
        _check_origin(ctx)
        expect_commands()
    if page.role is None:
        ctx.most_bytes = MOST_ANONYMOUS_BYTES
    ctx.token = await _admitted(ctx, page)
    if ctx.token is None and ctx.deps.asks_for_tokens and page.role is not None:
        if page.method != "GET" or ctx.wants_json:
            raise Unauthorized(ctx.words("error.signed_out"))
        return ctx.redirect(f"/login?next={quote(ctx.here, safe='')}")
    ctx.now = await ctx.services.store.now()
    if page.method == "GET" and page.role is not None and not ctx.wants_json:
        if ctx.sees_all:
            ctx.counts = await ctx.deps.counts.at(ctx.now, ctx.services)
        ctx.pause = await ctx.services.pauses.now()
    answer = await page.handler(ctx)
    if page.action and answer.status_code < 400 and not ctx.nothing_changed:
        details = {"through": "dashboard", **ctx.details, **noted_commands()}
        await ctx.note(ctx.actor, ctx.action or page.action, ctx.subject or ctx.path, details)
    return answer


async def _admitted(ctx: PageContext, page: PageRoute) -> Token | None:
    token = await ctx.deps.sessions.who(ctx.request)
    if token is not None and ctx.deps.access is not None:
        try:
            ctx.deps.access.count(token)
        except RateLimited as error:
            said = ctx.words("error.too_often", n=error.details["retry_after"])
            raise RateLimited(said, details=error.details) from None
    if token is not None and page.role is not None and not token.role.includes(page.role):
        raise Forbidden(ctx.words("error.role", needed=page.role, role=token.role))
    if token is not None and page.role is not None and token.scope is not None:
        await _limit(ctx, page.scope, token.scope)
    return token


async def _limit(ctx: PageContext, rule: ScopeRule, to: TokenScope) -> None:
    """What the address names must be in the scope; from here on the services see nothing else."""
    scope.limit_to(to)
    store = ctx.services.store
    match rule:
        case ScopeRule.NOTHING | ScopeRule.QUEUE | ScopeRule.BODY:
            raise Forbidden(ctx.words("error.scope", scope=to))
        case ScopeRule.TASK:
            await scope.check_named(store, filters.task_ref(ctx.piece("id")))
        case ScopeRule.RUN:
            await scope.check_run(store, filters.run_id(ctx.piece("run_id")))
        case ScopeRule.ANYTHING | ScopeRule.LIST:
            pass
        case _:
            assert_never(rule)


def _check_origin(ctx: PageContext) -> None:
    headers = ctx.request.headers
    is_ours = ctx.deps.is_same_origin(headers)
    if not is_ours and ("origin" in headers or headers.get("sec-fetch-site") != "same-origin"):
        raise Forbidden("forms are accepted from pages of this site only")


def error_page(ctx: PageContext, error: NoonbellError | None) -> Response:
    """`error` None: an unexpected exception; the page names the request, the log has the details."""
    code = "INTERNAL" if error is None or error.code not in HTTP_STATUS else error.code
    message = ctx.words("error.internal") if code == "INTERNAL" or error is None else error_words(error, ctx.words)
    problems = {} if error is None else error.sentences
    status = 404 if code == "INVALID_ID" else HTTP_STATUS[code]  # an address that names nothing
    if ctx.wants_json:
        return JSONResponse({"error": message, "code": code, "request_id": ctx.request_id}, status)
    return ctx.page(
        "error.html",
        status,
        code=code,
        message=message,
        details={name: problem_words(each, ctx.words) for name, each in problems.items()},
        is_missing=status == 404,
        title=ctx.words("error.missing" if status == 404 else "error.title"),
    )
