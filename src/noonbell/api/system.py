"""Endpoints about the service itself: health, version, metrics; and the switch that stops every start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.responses import json_response, text_response
from noonbell.errors import StoreUnavailable
from noonbell.fields import meta, plain
from noonbell.model.access import Role
from noonbell.service import Services
from noonbell.service.pauses import PauseChanged, PauseState, PauseWrite
from noonbell.service.scope import ScopeRule
from noonbell.version import __version__

Health: TypeAlias = Callable[[], Mapping[str, Any]]
"""What a node reports about itself; `ok` is False while it cannot do its work."""

MetricsRender: TypeAlias = Callable[[], bytes | str | Awaitable[bytes | str]]
"""The metrics in Prometheus format."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`ok`, and what stands behind it, part by part."""

    component: ClassVar[str] = "Health"
    example: ClassVar[dict[str, Any]] = {
        "ok": True,
        "reason": None,
        "store": {"ok": True, "since": "2026-11-15T02:00:00Z", "error": None},
        "planner": {"last_at": "2026-11-15T02:30:00Z", "lag_seconds": 0.002},
        "workers": [],
        "stalled": [],
        "errors": {},
    }

    ok: bool


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    version: Annotated[str, meta(examples=["0.1.0"])]
    installation_id: Annotated[
        str | None, meta("The same for every node on this store.", examples=["6b1f0c2ad5e94f7b"])
    ]
    store: Annotated[
        str, meta("The address of the store, without passwords.", examples=["sqlite:////var/lib/noonbell/noonbell.db"])
    ]


InstallationReader: TypeAlias = Callable[[], Awaitable[Installation]]


class SystemCalls:
    def __init__(self, health: Health, installation: InstallationReader | None) -> None:
        self._health, self._installation = health, installation

    @call("GET", "/healthz", "healthz", "Whether the service is healthy: `ok`, or 503", None, answer_example="ok")
    async def healthz(self) -> object:
        health = self._health()
        return text_response("ok") if health.get("ok", True) else text_response("unavailable", 503)

    @call("GET", "/version", "version", "The version", Role.VIEWER, scope=ScopeRule.ANYTHING, answer_example="v0.1.0")
    async def version(self) -> object:
        return text_response(f"v{__version__}")

    @call(
        "GET", "/installation", "installation", "The version, the store and the installation's id", Role.ADMIN,
        answer=Installation,
    )  # fmt: skip
    async def installation(self) -> object:
        if self._installation is None:
            raise HTTPException(404)
        return await self._installation()

    @call("GET", "/livez", "livez", "Whether the process is alive", None, answer_example="ok")
    async def livez(self) -> object:
        return text_response("ok")

    @call(
        "GET", "/readyz", "readyz", "Whether the service can do its work, part by part; 503 if not", None,
        answer=Readiness,
    )  # fmt: skip
    async def readyz(self) -> object:
        """Not ready: the store is not responding, or a loop (planner, sweeper, claim, heartbeat) has made no progress for
        5 s. Then `code` and `message` say why, and `stalled` has each such loop with `since` and its last `error`.
        """
        health = self._health()
        if health.get("ok", True):
            return health
        error = {"code": StoreUnavailable.code, "message": health.get("reason") or "not ready"}
        return json_response({**error, **health}, 503)


class MetricsCalls:
    def __init__(self, metrics_render: MetricsRender | None) -> None:
        self._metrics_render = metrics_render

    @call(
        "GET", "/metrics", "metrics", "Metrics for Prometheus", Role.VIEWER,
        answer_example="cronjob_callback_pending 0.0\n",
    )  # fmt: skip
    async def metrics(self) -> object:
        if self._metrics_render is None:
            raise HTTPException(404)
        rendered = self._metrics_render()
        if isawaitable(rendered):
            rendered = await rendered
        return Response(rendered, media_type=PROMETHEUS)


class PauseCalls:
    def __init__(self, services: Services) -> None:
        self._pauses = services.pauses

    @call("GET", "/pause", "get_pause", "Whether everything is paused", Role.VIEWER, answer=PauseState)
    async def state(self) -> object:
        return plain(await self._pauses.state())

    @call(
        "POST", "/pause", "pause_all", "Pause everything, on all nodes", Role.OPERATOR,
        body=PauseWrite, answer=PauseChanged,
    )  # fmt: skip
    async def pause(self, request: Request, given: Given, by: str | None) -> object:
        """No attempt starts later than two seconds after the response. Planning stops; published runs are accepted
        and wait; running attempts continue, and callbacks are accepted. If everything is already paused, nothing
        changes.
        """
        paused = await self._pauses.pause(given, by=by)
        if given.get("reason"):
            params.add_to_audit(request, reason=given["reason"])
        return plain(paused)

    @call("POST", "/resume", "resume_all", "Resume everything", Role.OPERATOR, answer=PauseChanged)
    async def resume(self, by: str | None) -> object:
        """What came due during the pause is late, as after downtime: the misfire policy of each task decides about
        it.
        """
        return plain(await self._pauses.resume(by=by))
