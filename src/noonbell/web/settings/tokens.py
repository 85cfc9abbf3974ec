"""Tokens: who may come in, as what, and until when. A new one is shown once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, Forbidden, InvalidArgument, InvalidState
from noonbell.model.access import Role
from noonbell.service.access import Access
from noonbell.web.page import Page
from noonbell.web.settings.frame import problems_of, section
from noonbell.web.site import Site
from noonbell.web.times import instant_from
from noonbell.web.visit import Visit

_FIELDS: Final = ("name", "role", "queues", "days")
_NOTHING: Final = {"name": "", "role": "viewer", "queues": "", "days": "90"}
PATH: Final = "/settings/tokens"


async def show(
    visit: Visit,
    *,
    made: tuple[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    """`made`: the name and the secret of a token that was made just now."""
    access = visit.site.access
    tokens = [] if access is None else await access.tokens()
    return section(
        visit,
        "tokens",
        "settings_tokens.html",
        400 if problems else 200,
        tokens=sorted(tokens, key=lambda token: (is_over(token, visit.now), -token["id"])),
        is_over=lambda token: is_over(token, visit.now),
        made=made,
        fields={**_NOTHING, **(given or {})},
        problems=problems or {},
        roles=list(Role),
        asks=visit.site.asks_for_tokens,
    )


def is_over(token: Mapping[str, Any], now: int) -> bool:
    """Whether it opens nothing any more."""
    expires = token["expires_at"]
    return token["revoked_at"] is not None or (expires is not None and instant_from(expires) <= now)


async def make(visit: Visit) -> Response:
    """The page again, with the token in it: it is shown this once. None is made where no token is asked for."""
    if not visit.site.asks_for_tokens:
        raise Forbidden(visit.words("settings.not_minted"))
    given = await visit.fields()
    name = given.get("name", "").strip()
    try:
        queues = [part.strip() for part in given.get("queues", "").split(",") if part.strip()]
        _, secret = await _access(visit).create(
            name, given.get("role", ""), seconds=_seconds(given), by=visit.actor, queues=queues
        )
    except (InvalidArgument, AlreadyExists) as error:
        names = {"expires_in": "days"}
        found = {
            names.get(field, field): problem for field, problem in problems_of(error, (*_FIELDS, "expires_in")).items()
        }
        return await show(visit, given={field: given.get(field, "") for field in _FIELDS}, problems=found)
    visit.subject, visit.details = f"/tokens/{name}", {"role": given["role"], **({"queues": queues} if queues else {})}
    return await show(visit, made=(name, secret))


def _seconds(given: Mapping[str, str]) -> float | None:
    text = given.get("days", "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 5:
        raise InvalidArgument.field("days", f"is {text[:20]!r}; expected a whole number of days")
    return int(text) * 86_400.0


async def revoke(visit: Visit) -> Response:
    name = visit.piece("name")
    await _access(visit).revoke(name)
    visit.subject = f"/tokens/{name}"
    return visit.done(visit.words("settings.revoked", name=name), PATH)


def _access(visit: Visit) -> Access:
    if visit.site.access is None:
        raise InvalidState(visit.words("settings.no_access"))
    return visit.site.access


def pages(site: Site) -> list[Page]:
    del site
    admin = Role.ADMIN
    return [
        Page(PATH, show, role=admin),
        Page(PATH, make, "POST", admin, deed="create_token"),
        Page(f"{PATH}/{{name}}/revoke", revoke, "POST", admin, deed="revoke_token"),
    ]
