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

from noonbell.api import callbacks, docs_page, errors, openapi, runs, schedules, system, tasks
from noonbell.api.answers import json_answer
from noonbell.api.edge import Edge
from noonbell.api.endpoint import Endpoint, routes
from noonbell.api.limits import MOST_BYTES
from noonbell.api.system import Health, MetricsRender
from noonbell.service import Services
from noonbell.settings import Settings
from noonbell.version import __version__


def create_app(
    services: Services, settings: Settings, *, health: Health, metrics_render: MetricsRender | None = None
) -> FastAPI:
    """`health` is `Node.health`; without `metrics_render`, or with metrics switched off, `/metrics` is not there."""
    app = FastAPI(
        title="Noonbell",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Edge, most_bytes=MOST_BYTES)],
    )
    errors.install(app)
    endpoints = [
        *tasks.endpoints(services),
        *runs.endpoints(services),
        *callbacks.endpoints(services),
        *schedules.endpoints(services),
        *system.endpoints(health, metrics_render if settings.metrics.enabled else None),
    ]
    app.router.routes.extend(routes(endpoints))
    _describe(app, endpoints)
    return app


def _describe(app: FastAPI, endpoints: list[Endpoint]) -> None:
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

    app.add_route("/openapi.json", description, include_in_schema=False)
    app.add_route("/docs", page, include_in_schema=False)
