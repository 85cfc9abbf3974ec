"""The application: endpoints, the edge around them, the description of them all.

Every endpoint is a plain Starlette route that reads and writes JSON with msgspec, so each is on the fast path; what a
body must be is checked once, in the services. `openapi` describes them from the same table that routes them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import alerts as alert_calls
from noonbell.api import (
    applying,
    callbacks,
    docs_page,
    errors,
    events,
    explain,
    jobs,
    openapi,
    plans,
    protocol,
    queues,
    runs,
    schedules,
    system,
    tasks,
    timeline,
    tokens,
    workers,
)
from noonbell.api.access import Guard, Session
from noonbell.api.answers import json_answer
from noonbell.api.edge import Edge
from noonbell.api.endpoint import Endpoint, routes
from noonbell.api.host_names import HostNames
from noonbell.api.limits import MOST_BYTES
from noonbell.api.own_runs import OwnRuns
from noonbell.api.proxies import TrustedProxies
from noonbell.api.system import Health, MetricsRender
from noonbell.engine.listen import Hub
from noonbell.model.run import RunId
from noonbell.service import Services
from noonbell.service.access import Access
from noonbell.service.alerts import Alerts
from noonbell.service.worker_bounds import WorkerBounds
from noonbell.settings import Settings
from noonbell.version import __version__


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
) -> FastAPI:
    """`health` is `Node.health`; without `metrics_render`, or with metrics switched off, `/metrics` is not there.

    Nor are `/events` and `/alerts` without a `hub` and `alerts`. Without `access` nobody is asked who they are, and nothing
    is written into the audit log: for tests of something else.
    """

    async def is_ours(run_id: int) -> bool:
        return await services.store.run(RunId(run_id)) is not None

    app = FastAPI(
        title="Noonbell",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(
                Edge,
                most_bytes=MOST_BYTES,
                host_names=None if asks_for_tokens else HostNames.of(settings),
                proxies=TrustedProxies(settings.server.trusted_proxies),
                bodies_bytes=settings.server.max_bodies_bytes,
            ),
            *([] if asks_for_tokens or access is None else [Middleware(OwnRuns, is_ours=is_ours, access=access)]),
        ],
    )
    errors.install(app)
    endpoints = [
        *applying.endpoints(services),
        *tasks.endpoints(services),
        *explain.endpoints(services),
        *timeline.endpoints(services),
        *runs.endpoints(services),
        *callbacks.endpoints(services),
        *queues.endpoints(services),
        *workers.endpoints(services),
        *(protocol.endpoints(services.protocol, WorkerBounds(services.store)) if services.protocol is not None else ()),
        *schedules.endpoints(services),
        *jobs.endpoints(services),
        *plans.endpoints(services),
        *(events.endpoints(hub) if hub is not None else ()),
        *(alert_calls.endpoints(alerts) if alerts is not None else ()),
        *(tokens.endpoints(access, mints=asks_for_tokens) if access is not None else ()),
        *system.endpoints(health, metrics_render if settings.metrics.enabled else None),
    ]
    guard = None if access is None else Guard(access, enabled=asks_for_tokens, session=session)
    app.router.routes.extend(routes([*endpoints, *_description(endpoints)], guard))
    return app


def _description(endpoints: list[Endpoint]) -> list[Endpoint]:
    """`/openapi.json` and `/docs`: made once, when the first reader comes."""

    @cache
    def document() -> dict[str, Any]:
        return openapi.document(endpoints)

    async def description(request: Request) -> Response:
        del request
        return json_answer(document())

    async def page(request: Request) -> Response:
        del request
        return docs_page.answer(document())

    return [
        Endpoint(("GET",), "/openapi.json", description, "description", "The API's description", "system", base=""),
        Endpoint(("GET",), "/docs", page, "docs", "The API's description, for people", "system", base=""),
    ]
