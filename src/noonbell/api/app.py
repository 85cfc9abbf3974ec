"""The application: endpoints, the edge around them, the description of them all.

Every endpoint is a plain Starlette route that reads and writes JSON with msgspec, so each is on the fast path; what a
body must be is checked once, in the services. `openapi` describes them from the same table that routes them.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from noonbell.alerts.service import Alerts
from noonbell.api import alerts as alert_calls
from noonbell.api import (
    bulk,
    calendars,
    calls,
    events,
    jobs,
    legacy,
    openapi,
    plans,
    queues,
    reports,
    responses,
    runs,
    subscriptions,
    system,
    tasks,
    tokens,
    views,
    workers,
)
from noonbell.api.access import AccessGuard, OwnRunCheck, Session
from noonbell.api.endpoint import Endpoint, routes
from noonbell.api.middleware import RequestMiddleware
from noonbell.api.params import MOST_BYTES
from noonbell.api.request_origin import AllowedCallers, AllowedHosts, TrustedProxies
from noonbell.api.responses import json_response
from noonbell.api.system import Health, InstallationReader, MetricsRender
from noonbell.engine.event_hub import Hub
from noonbell.errors import NoonbellError
from noonbell.model.access import Role
from noonbell.model.run import RunId
from noonbell.service import Services
from noonbell.service.access import Access
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import Translator, language, wanted_language
from noonbell.settings import Settings
from noonbell.subscriptions.service import Subscriptions


def create_app(
    services: Services,
    settings: Settings,
    *,
    health: Health,
    metrics_render: MetricsRender | None = None,
    hub: Hub | None = None,
    alerts: Alerts | None = None,
    access: Access | None = None,
    asks_for_tokens: bool = False,
    session: Session | None = None,
    installation: InstallationReader | None = None,
    webhooks: Subscriptions | None = None,
) -> Starlette:
    """`health` is `Node.health`; without `metrics_render`, or with metrics switched off, `/metrics` is not there.

    Nor are `/installation`, `/events`, `/alerts` and `/subscriptions` without an `installation`, a `hub`, `alerts` and
    `webhooks`. Without `access` no token is checked, and nothing is written into the audit log: for tests of something
    else.
    """

    async def is_ours(run_id: int) -> bool:
        return await services.store.run(RunId(run_id)) is not None

    app = Starlette(
        middleware=[
            Middleware(
                RequestMiddleware,
                most_bytes=MOST_BYTES,
                host_names=None if asks_for_tokens else AllowedHosts.of(settings),
                proxies=TrustedProxies(settings.server.trusted_proxies),
                callers=AllowedCallers(settings.server.allowed_callers),
                bodies_bytes=settings.server.max_bodies_bytes,
                prefix=unquote(urlsplit(settings.server.public_url or "").path),
            ),
            *([] if asks_for_tokens or access is None else [Middleware(OwnRunCheck, is_ours=is_ours, access=access)]),
        ],
        exception_handlers={NoonbellError: responses.on_error, HTTPException: responses.on_error},
    )
    app.router.redirect_slashes = False
    endpoints = all_endpoints(
        services,
        health=health,
        metrics_render=metrics_render if settings.metrics.enabled else None,
        hub=hub,
        alerts=alerts,
        access=access,
        mints=asks_for_tokens,
        installation=installation,
        webhooks=webhooks,
        with_legacy=settings.server.legacy_api,
    )
    guard = None if access is None else AccessGuard(access, services.store, enabled=asks_for_tokens, session=session)
    app.router.routes.extend(routes([*endpoints, *_description(endpoints)], guard))
    return app


def all_endpoints(
    services: Services,
    *,
    health: Health,
    metrics_render: MetricsRender | None = None,
    hub: Hub | None = None,
    alerts: Alerts | None = None,
    access: Access | None = None,
    mints: bool = True,
    installation: InstallationReader | None = None,
    webhooks: Subscriptions | None = None,
    with_legacy: bool = False,
) -> list[Endpoint]:
    """Every endpoint but the description's own. `mints`: whether callers may make tokens."""
    return [
        *tasks.endpoints(services),
        *reports.endpoints(services),
        *runs.endpoints(services),
        *bulk.endpoints(services),
        *views.endpoints(services),
        *calls.endpoints(services),
        *queues.endpoints(services),
        *calendars.endpoints(services),
        *workers.endpoints(services),
        *jobs.endpoints(services),
        *plans.endpoints(services),
        *(events.endpoints(hub, services.store) if hub is not None else ()),
        *(subscriptions.endpoints(webhooks) if webhooks is not None else ()),
        *(alert_calls.endpoints(alerts) if alerts is not None else ()),
        *(tokens.endpoints(access, mints=mints) if access is not None else ()),
        *system.pause_endpoints(services),
        *system.endpoints(health, metrics_render, installation),
        *(legacy.endpoints(services, health, metrics_render) if with_legacy else ()),
    ]


def _description(endpoints: list[Endpoint]) -> list[Endpoint]:
    """`/openapi.json` and `/docs`: made once, the page once for each language, when the first reader comes."""

    @cache
    def document() -> dict[str, Any]:
        return openapi.document(endpoints)

    async def description(request: Request) -> Response:
        del request
        return json_response(document())

    @cache
    def page_in(lang: str) -> bytes:
        return openapi.page(document(), Translator(lang)).encode()

    async def page(request: Request) -> Response:
        lang = language(wanted_language(request.cookies, request.headers))
        return HTMLResponse(page_in(lang), headers={"content-security-policy": openapi.POLICY})

    return [
        Endpoint(
            ("GET",),
            "/openapi.json",
            description,
            "description",
            "The API's description",
            "system",
            Role.VIEWER,
            ScopeRule.ANYTHING,
            base="",
        ),
        Endpoint(
            ("GET",),
            "/docs",
            page,
            "docs",
            "The API's description, for people",
            "system",
            Role.VIEWER,
            ScopeRule.ANYTHING,
            base="",
        ),
    ]
