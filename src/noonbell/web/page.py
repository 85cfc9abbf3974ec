"""Between a request and a page: who asks, may they, what went wrong, and a line in the audit log for what they changed.

A form is taken from a page of this very site only: browsers say where a request comes from, and one that does not say is
refused. With the session's cookie, which no other site's request carries, that keeps foreign pages from acting.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from noonbell.errors import Forbidden, NoonbellError, NotFound, Unauthorized
from noonbell.model.access import Deed, Role, Token
from noonbell.web import fault
from noonbell.web.site import Site
from noonbell.web.visit import MOST_ANONYMOUS_BYTES, Visit

log = logging.getLogger("noonbell.web")

Handler = Callable[[Visit], Awaitable[Response]]

_OTHERS: Final = ("/api/", "/static/", "/docs", "/openapi.json", "/metrics")
"""Where something else answers, also for what is not there."""


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    handler: Handler
    method: str = "GET"
    role: Role | None = Role.VIEWER
    """Who may; None: everybody, without a token."""
    deed: str = ""
    """What the audit log calls it: the operation's id in the API. Empty: it changes nothing that is worth a line."""


def page_routes(site: Site, pages: Sequence[Page]) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Page]] = {}
    for page in pages:
        by_path.setdefault(page.path, {})[page.method] = page
    found: list[BaseRoute] = [Route(path, _dispatch(site, here), methods=list(here)) for path, here in by_path.items()]
    return [*found, _Elsewhere(_dispatch(site, {"GET": Page("/", _nothing_here, role=None)}))]


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


async def _nothing_here(visit: Visit) -> Response:
    raise NotFound(visit.words("error.nowhere"))


def _dispatch(site: Site, here: Mapping[str, Page]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        page = here["GET" if request.method == "HEAD" else request.method]
        visit = Visit(request, site)
        try:
            answer = await _answer(visit, page)
        except NoonbellError as error:
            answer = fault.answer(visit, error)
        except Exception:
            log.exception("page %s failed (request %s)", request.url.path, visit.request_id)
            answer = fault.answer(visit, None)
        visit.finish(answer)
        return answer

    return handle


async def _answer(visit: Visit, page: Page) -> Response:
    if page.method != "GET":
        _check_origin(visit.request)
    if page.role is None:
        visit.most_bytes = MOST_ANONYMOUS_BYTES
    visit.token = await _admitted(visit, page)
    if visit.token is None and visit.site.asks_for_tokens and page.role is not None:
        if page.method != "GET" or visit.wants_json:
            raise Unauthorized(visit.words("error.signed_out"))
        return visit.redirect(f"/login?next={quote(visit.here, safe='')}")
    visit.now = await visit.site.services.store.now()
    if page.method == "GET" and page.role is not None and not visit.wants_json:
        visit.counts = await visit.site.counts.at(visit.now, visit.site.services)
    answer = await page.handler(visit)
    if page.deed and answer.status_code < 400:
        await _note(visit, page)
    return answer


async def _admitted(visit: Visit, page: Page) -> Token | None:
    token = await visit.site.sessions.who(visit.request)
    if token is not None and page.role is not None and not token.role.includes(page.role):
        raise Forbidden(visit.words("error.role", needed=page.role, role=token.role))
    return token


def _check_origin(request: Request) -> None:
    headers = request.headers
    host = headers.get("host")
    # Compared as they are written: whoever writes them so that they are misread is not of this site.
    is_ours = bool(host) and headers.get("origin") in (f"http://{host}", f"https://{host}")
    if not is_ours and ("origin" in headers or headers.get("sec-fetch-site") != "same-origin"):
        raise Forbidden("forms are taken from pages of this site only")


async def _note(visit: Visit, page: Page) -> None:
    if visit.site.access is None:
        return
    details: dict[str, Any] = {"through": "dashboard", **visit.details}
    deed = Deed(
        actor=visit.actor,
        action=visit.deed or page.deed,
        subject=visit.subject or visit.path,
        peer=visit.peer,
        request_id=visit.request_id,
        details=details,
    )
    await visit.site.access.note(deed)
