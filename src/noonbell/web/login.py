"""Signing in with a token and out again; language, theme, zone, density and start page, kept in cookies."""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from noonbell.errors import HTTP_STATUS, Forbidden, NotFound, RateLimited, StoreUnavailable, Unauthorized
from noonbell.service.oidc import SECONDS as SIGN_IN_SECONDS
from noonbell.service.translation import LANGUAGES
from noonbell.web.context import COOKIE, ROOMS, SECONDS, THEMES, PageContext, one_of
from noonbell.web.lists import DENSITIES
from noonbell.web.page import get, post
from noonbell.when import zones

log = logging.getLogger("noonbell.web")


async def ask(ctx: PageContext) -> Response:
    to = safe_path(ctx.query.get("next", "/"))
    if ctx.token is not None or not ctx.deps.asks_for_tokens:
        return ctx.redirect(to)
    return ctx.page("login.html", next=to, problem=None)


ATTEMPT: Final = "noonbell_sign_in"
CALLBACK: Final = "/oidc-callback"


async def go_to_provider(ctx: PageContext) -> Response:
    """To the provider's page, with a cookie that is needed on the way back."""
    if ctx.deps.sign_in is None:
        raise NotFound(ctx.words("error.nowhere"))
    address, attempt = await ctx.deps.sign_in.begin(_way_back(ctx), safe_path(ctx.query.get("next", "/")))
    answer = RedirectResponse(address, 303)
    ctx.keep(answer, ATTEMPT, ctx.deps.sessions.seal(attempt), SIGN_IN_SECONDS, secret=True, from_elsewhere=True)
    return answer


async def come_from_provider(ctx: PageContext) -> Response:
    """The way back: a session, or the login page with the reason.

    The page leads on by itself: a browser does not send the session's cookie along a redirect that another site began.
    """
    access, sign_in = ctx.deps.access, ctx.deps.sign_in
    if access is None or sign_in is None:
        raise NotFound(ctx.words("error.nowhere"))
    attempt = ctx.deps.sessions.opened(ctx.request.cookies.get(ATTEMPT, ""))
    try:
        access.check_peer(ctx.peer)
        person = await sign_in.finish(attempt, ctx.query, _way_back(ctx))
    except RateLimited as error:
        answer = _throttled(ctx, error, "/")
    except (Unauthorized, Forbidden, StoreUnavailable) as error:
        access.guessed(ctx.peer)
        log.warning("a sign-in with the provider failed: %s", error.message)
        words = {Unauthorized: "login.refused", Forbidden: "login.no_role"}.get(type(error), "login.no_provider")
        answer = ctx.page("login.html", HTTP_STATUS[error.code], next="/", problem=ctx.words(words))
    else:
        token = await access.signed_in(person.name, person.role, SECONDS)
        details = {"through": "oidc", "role": person.role}
        await ctx.note(token.name, "sign_in", "/oidc", details)
        to = ctx.root + (attempt.to if attempt is not None else "/").removeprefix("/")
        answer = ctx.page("signed_in.html", to=to or "./", refresh=f"0;url={to or './'}")
        ctx.keep(answer, COOKIE, ctx.deps.sessions.begin(token), SECONDS, secret=True)
    ctx.keep(answer, ATTEMPT, "", 0, secret=True, from_elsewhere=True)
    return answer


def _throttled(ctx: PageContext, error: RateLimited, to: str) -> Response:
    problem = ctx.words("login.throttled", n=error.details.get("retry_after", 60))
    return ctx.page("login.html", 429, next=to, problem=problem)


def _way_back(ctx: PageContext) -> str:
    """The address that the provider was told of."""
    public = ctx.deps.settings.server.public_url
    return f"{(public or str(ctx.request.base_url)).rstrip('/')}{CALLBACK}"


async def sign_in(ctx: PageContext) -> Response:
    given = await ctx.fields()
    to = safe_path(given.get("next", "/"))
    access = ctx.deps.access
    if access is None:
        return ctx.redirect(to)
    try:
        token = await access.who(given.get("token", "").strip(), ctx.peer)
    except Unauthorized:
        return ctx.page("login.html", 401, next=to, problem=ctx.words("login.wrong"))
    except RateLimited as error:
        return _throttled(ctx, error, to)
    answer = ctx.redirect(to)
    ctx.keep(answer, COOKIE, ctx.deps.sessions.begin(token), SECONDS, secret=True)
    return answer


async def sign_out(ctx: PageContext) -> Response:
    ctx.deps.sessions.end(ctx.request)
    answer = ctx.redirect("/login")
    ctx.keep(answer, COOKIE, "", 0, secret=True)
    return answer


_YEAR: Final = 365 * 86_400
LANDINGS: Final = tuple(name for name in ROOMS if name != "settings")
"""The start pages to choose from."""


async def choose(ctx: PageContext) -> Response:
    chosen = await ctx.fields()
    answer = ctx.redirect(safe_path(chosen.get("next", "/")))
    for name, value in checked(chosen).items():
        ctx.keep(answer, f"noonbell_{name}", quote(value), _YEAR, secret=False)
    return answer


def checked(chosen: dict[str, str]) -> dict[str, str]:
    known = {"lang": LANGUAGES, "theme": THEMES, "density": DENSITIES, "landing": LANDINGS}
    found = {name: one_of(name, chosen[name], choices) for name, choices in known.items() if name in chosen}
    if "zone" in chosen:
        found["zone"] = zones.find(chosen["zone"].strip()).name
    return found


def landing_of(ctx: PageContext) -> str:
    chosen = ctx.request.cookies.get("noonbell_landing", "")
    return chosen if chosen in LANDINGS and chosen in ctx.rooms else "overview"


def begins_elsewhere(ctx: PageContext) -> str | None:
    """The start page for a browser that opens the root; None for the overview, and for links from our own pages."""
    chosen = landing_of(ctx)
    return f"/{chosen}" if chosen != "overview" and "referer" not in ctx.request.headers else None


def safe_path(path: str) -> str:
    """Where to go back to: an address of the dashboard, never another site's."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_ours and path.isprintable() else "/"


PAGES: Final = [
    get("/login", ask, role=None),
    get("/oidc", go_to_provider, role=None),
    get(CALLBACK, come_from_provider, role=None),
    post("/login", sign_in, role=None),
    post("/logout", sign_out, role=None),
    post("/preferences", choose, role=None),
]
