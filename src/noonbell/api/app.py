"""The application: endpoints, the edge around them, the description of them all.

Every endpoint is a plain Starlette route that reads and writes JSON with msgspec, so each is on the fast path; what a
body must be is checked once, in the services. `openapi` describes them from the same table that routes them.
"""

from __future__ import annotations

from functools import cache
from urllib.parse import unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse

from noonbell.alerts.service import Alerts
from noonbell.api import jobs, legacy, openapi, responses, workers
from noonbell.api.access import AccessGuard, OwnRunCheck, Session
from noonbell.api.alerts import AlertCalls
from noonbell.api.bulk import BulkCalls
from noonbell.api.calendars import CalendarCalls
from noonbell.api.endpoint import Endpoint, call, endpoints_of, routes
from noonbell.api.events import EventCalls
from noonbell.api.middleware import RequestMiddleware
from noonbell.api.params import MOST_BYTES
from noonbell.api.plans import PlanCalls
from noonbell.api.queues import QueueCalls
from noonbell.api.reports import ReportCalls
from noonbell.api.request_origin import AllowedCallers, AllowedHosts, TrustedProxies
from noonbell.api.runs import CallbackCalls, CallCalls, RunCalls
from noonbell.api.subscriptions import SubscriptionCalls
from noonbell.api.system import Health, InstallationReader, MetricsCalls, MetricsRender, PauseCalls, SystemCalls
from noonbell.api.tasks import TaskCalls
from noonbell.api.tokens import TokenCalls
from noonbell.api.views import ViewCalls
from noonbell.engine.event_hub import Hub
from noonbell.errors import NoonbellError
from noonbell.model.access import Role
from noonbell.ports import Store
from noonbell.service import Services
from noonbell.service.access import Access
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import Translator, language, wanted_language
from noonbell.settings import Settings
from noonbell.subscriptions.service import Subscriptions


def create_app(
    endpoints: list[Endpoint],
    store: Store,
    settings: Settings,
    *,
    access: Access | None = None,
    asks_for_tokens: bool = False,
    session: Session | None = None,
) -> Starlette:
    """Without `access` no token is checked, and nothing is written into the audit log: for tests of something else."""
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
            *([] if asks_for_tokens or access is None else [Middleware(OwnRunCheck, store=store, access=access)]),
        ],
        exception_handlers={NoonbellError: responses.on_error, HTTPException: responses.on_error},
    )
    app.router.redirect_slashes = False
    guard = None if access is None else AccessGuard(access, store, enabled=asks_for_tokens, session=session)
    app.router.routes.extend(routes([*endpoints, *endpoints_of(DescriptionCalls(endpoints), "system", base="")], guard))
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
    """Every endpoint but the description's own. `health` is `Node.health`; `mints`: whether callers may make tokens.

    Without `metrics_render`, an `installation`, a `hub`, `alerts` and `webhooks` there are no `/metrics`, `/installation`,
    `/events`, `/alerts` and `/subscriptions`.
    """
    return [
        *endpoints_of(TaskCalls(services), "tasks"),
        *endpoints_of(ReportCalls(services), "tasks"),
        *endpoints_of(RunCalls(services), "runs"),
        *endpoints_of(CallbackCalls(services), "callbacks"),
        *endpoints_of(BulkCalls(services), "bulk"),
        *endpoints_of(ViewCalls(services), "views"),
        *endpoints_of(CallCalls(services), "calls"),
        *endpoints_of(QueueCalls(services), "queues"),
        *endpoints_of(CalendarCalls(services), "calendars"),
        *workers.endpoints(services),
        *jobs.endpoints(services),
        *endpoints_of(PlanCalls(services), "plans"),
        *(endpoints_of(EventCalls(hub, services.store), "events") if hub is not None else ()),
        *(endpoints_of(SubscriptionCalls(webhooks), "subscriptions") if webhooks is not None else ()),
        *(endpoints_of(AlertCalls(alerts), "alerts") if alerts is not None else ()),
        *(endpoints_of(TokenCalls(access, mints=mints), "access") if access is not None else ()),
        *endpoints_of(PauseCalls(services), "system"),
        *endpoints_of(SystemCalls(health, installation), "system"),
        *endpoints_of(MetricsCalls(metrics_render), "system", base=""),
        *(legacy.endpoints(services, health, metrics_render) if with_legacy else ()),
    ]


class DescriptionCalls:
    """`/openapi.json` and `/docs`: made once, the page once for each language, when the first reader comes."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._document = cache(lambda: openapi.document(endpoints))
        self._page_in = cache(lambda lang: openapi.page(self._document(), Translator(lang)).encode())

    @call("GET", "/openapi.json", "description", "The API's description", Role.VIEWER, scope=ScopeRule.ANYTHING)
    async def document(self) -> object:
        return self._document()

    @call("GET", "/docs", "docs", "The API's description, for people", Role.VIEWER, scope=ScopeRule.ANYTHING)
    async def page(self, request: Request) -> object:
        page = self._page_in(language(wanted_language(request.cookies, request.headers)))
        return HTMLResponse(page, headers={"content-security-policy": openapi.POLICY})
