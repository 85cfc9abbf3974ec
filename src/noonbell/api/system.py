"""Endpoints about the service itself: health, version, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import system_papers as papers
from noonbell.api.answers import json_answer, text_answer
from noonbell.api.endpoint import Endpoint
from noonbell.errors import StoreUnavailable
from noonbell.version import __version__

Health: TypeAlias = Callable[[], Mapping[str, Any]]
"""What a node says of itself; `ok` is False while it cannot do its work."""

MetricsRender: TypeAlias = Callable[[], bytes | str | Awaitable[bytes | str]]
"""The metrics as Prometheus reads them."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class SystemCalls:
    def __init__(self, health: Health, metrics_render: MetricsRender | None) -> None:
        self._health = health
        self._metrics_render = metrics_render

    async def healthz(self, request: Request) -> Response:
        del request
        health = self._health()
        return text_answer("ok") if health.get("ok", True) else text_answer("unavailable", 503)

    async def version(self, request: Request) -> Response:
        del request
        return text_answer(f"v{__version__}")

    async def livez(self, request: Request) -> Response:
        del request
        return text_answer("ok")

    async def readyz(self, request: Request) -> Response:
        del request
        health = self._health()
        if health.get("ok", True):
            return json_answer(health)
        error = {"code": StoreUnavailable.code, "message": health.get("reason") or "not ready"}
        return json_answer({**error, **health}, 503)

    async def metrics(self, request: Request) -> Response:
        del request
        if self._metrics_render is None:
            raise HTTPException(404)
        rendered = self._metrics_render()
        if isawaitable(rendered):
            rendered = await rendered
        return Response(rendered, media_type=PROMETHEUS)


def endpoints(health: Health, metrics_render: MetricsRender | None) -> list[Endpoint]:
    calls = SystemCalls(health, metrics_render)
    return [
        Endpoint(("GET",), "/healthz", calls.healthz, **papers.HEALTHZ),
        Endpoint(("GET",), "/version", calls.version, **papers.VERSION),
        Endpoint(("GET",), "/livez", calls.livez, **papers.LIVEZ),
        Endpoint(("GET",), "/readyz", calls.readyz, **papers.READYZ),
        Endpoint(("GET",), "/metrics", calls.metrics, base="", **papers.METRICS),
    ]
