"""Settings: tokens, alert channels and rules, how long history is kept, diagnosis, versions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from noonbell.clock import SystemClock
from noonbell.errors import InvalidArgument, InvalidState, NoonbellError
from noonbell.model.access import Role
from noonbell.service.doctor import look_at_store
from noonbell.settings.masking import mask_addresses
from noonbell.web.lately import patient
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit


async def show(visit: Visit, *, made: str | None = None, problem: str | None = None) -> Response:
    site = visit.site
    store, settings = site.services.store, site.settings
    alerts = site.alerts
    is_admin = visit.may("admin")
    return visit.page(
        "settings.html",
        400 if problem else 200,
        tokens=await site.access.tokens() if site.access is not None and is_admin else None,
        made=made,
        problem=problem,
        roles=list(Role),
        channels=[] if alerts is None else await alerts.channels(),
        rules=[] if alerts is None else await alerts.rules(),
        deliveries=[] if alerts is None else await alerts.deliveries(limit=20),
        findings=[finding async for finding in look_at_store(patient(site.services), SystemClock().now)],
        counts={name: count for name, count in (await store.counts()).items() if "." not in name},
        health=site.health(),
        retention=settings.jobs.history_retention_days,
        store_url=mask_addresses(settings.store.url),
        asks=site.asks_for_tokens,
    )


async def make_token(visit: Visit) -> Response:
    """The page again, with the token in it: it is shown this once."""
    given = await visit.fields()
    if visit.site.access is None:
        raise InvalidState(visit.words("settings.no_access"))
    try:
        _, secret = await visit.site.access.create(
            given.get("name", "").strip(), given.get("role", ""), seconds=_seconds(given), by=visit.actor
        )
    except NoonbellError as error:
        return await show(visit, problem=error.message)
    visit.subject = f"/tokens/{given.get('name', '').strip()}"
    return await show(visit, made=secret)


def _seconds(given: dict[str, Any]) -> float | None:
    text = str(given.get("days", "")).strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 5:
        raise InvalidArgument.field("days", f"is {text[:20]!r}; expected a whole number of days")
    return int(text) * 86_400.0


async def revoke_token(visit: Visit) -> Response:
    name = visit.piece("name")
    if visit.site.access is None:
        raise InvalidState(visit.words("settings.no_access"))
    await visit.site.access.revoke(name)
    return visit.done(visit.words("settings.revoked", name=name), "/settings")


async def test_channel(visit: Visit) -> Response:
    name = visit.piece("name")
    if visit.site.alerts is None:
        raise InvalidState(visit.words("settings.no_access"))
    told = await visit.site.alerts.test_channel(name)
    if not told["delivered"]:
        raise InvalidState(visit.words("settings.not_delivered", name=name, why=told["error"]))
    return visit.done(visit.words("settings.delivered", name=name), "/settings")


def pages(site: Site) -> list[Page]:
    del site
    admin = Role.ADMIN
    return [
        Page("/settings", show),
        Page("/settings/tokens", make_token, "POST", admin, deed="create_token"),
        Page("/settings/tokens/{name}/revoke", revoke_token, "POST", admin, deed="revoke_token"),
        Page("/settings/channels/{name}/test", test_channel, "POST", admin, deed="test_alert_channel"),
    ]
