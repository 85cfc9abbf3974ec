"""Signing in with a token, and out again."""

from __future__ import annotations

from starlette.responses import Response

from noonbell.errors import RateLimited, Unauthorized
from noonbell.web.page import Page
from noonbell.web.preferences import safe_path
from noonbell.web.session import COOKIE, SECONDS
from noonbell.web.site import Site
from noonbell.web.visit import Visit


async def ask(visit: Visit) -> Response:
    to = safe_path(visit.query.get("next", "/"))
    if visit.token is not None or not visit.site.asks_for_tokens:
        return visit.redirect(to)
    return visit.page("login.html", next=to, problem=None)


async def sign_in(visit: Visit) -> Response:
    given = await visit.fields()
    to = safe_path(given.get("next", "/"))
    access = visit.site.access
    if access is None:
        return visit.redirect(to)
    try:
        token = await access.who(given.get("token", "").strip(), visit.peer)
    except Unauthorized:
        return visit.page("login.html", 401, next=to, problem=visit.words("login.wrong"))
    except RateLimited as error:
        problem = visit.words("login.throttled", n=error.details.get("retry_after", 60))
        return visit.page("login.html", 429, next=to, problem=problem)
    answer = visit.redirect(to)
    visit.keep(answer, COOKIE, visit.site.sessions.begin(token), SECONDS, secret=True)
    return answer


async def sign_out(visit: Visit) -> Response:
    visit.site.sessions.end(visit.request)
    answer = visit.redirect("/login")
    visit.keep(answer, COOKIE, "", 0, secret=True)
    return answer


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/login", ask, role=None),
        Page("/login", sign_in, "POST", role=None),
        Page("/logout", sign_out, "POST", role=None),
    ]
