"""The application that a node serves: the API, and the dashboard beside it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from noonbell import sealing
from noonbell.clock import SECOND, Instant
from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.run import Lease, Origin, RunId
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.ports import Store
from noonbell.settings import Settings
from noonbell.targets.guard import Guard
from noonbell.targets.http import HttpTarget
from noonbell.wiring.listening import asks_for_tokens, is_loopback
from noonbell.wiring.parts import Parts
from noonbell.wiring.workers import open_part

if TYPE_CHECKING:
    from fastapi import FastAPI

_NOBODY: Final = "test-call"


@contextlib.asynccontextmanager
async def application(
    parts: Parts, settings: Settings, health: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[FastAPI]:
    """`health` is what the node says of itself."""
    from noonbell.api.app import create_app
    from noonbell.web.mount import routes
    from noonbell.web.session import Sessions
    from noonbell.web.site import Site

    asks = asks_for_tokens(settings)
    sessions = Sessions(parts.access, settings.auth.session_key)
    app = create_app(
        parts.services,
        settings,
        health=health,
        metrics_render=None if parts.readings is None else parts.readings.page,
        hub=parts.hub,
        alerts=parts.alerts,
        access=parts.access,
        asks_for_tokens=asks,
        session=sessions.who,
    )
    async with contextlib.AsyncExitStack() as open_parts:
        target = _target(settings)
        await open_part(target, open_parts)
        site = Site(
            services=parts.services,
            settings=settings,
            health=health,
            sessions=sessions,
            access=parts.access,
            alerts=parts.alerts,
            asks_for_tokens=asks,
            exposed=not is_loopback(settings.server.host),
            try_call=_Caller(target, parts.services.store).call,
        )
        app.router.routes.extend(routes(site))
        yield app


def _target(settings: Settings) -> HttpTarget:
    executor = settings.executor
    return HttpTarget(
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        global_headers=executor.global_headers,
        guard=Guard(executor.allow_networks, executor.deny_networks),
        sealer=sealing.from_file(settings.secrets.key_file),
        own_ports=(settings.server.port,),
    )


class _Caller:
    """Calls a target for somebody who wants to see what it says before the task is saved."""

    def __init__(self, target: HttpTarget, store: Store) -> None:
        self._target, self._store = target, store

    async def call(self, spec: TaskSpec) -> Outcome:
        now = await self._store.now()
        task = Task(id=TaskId(0), version=0, status=TaskStatus.DISABLED, spec=spec, created_at=now, updated_at=now)
        return await self._target.execute(Assignment(lease=_lease(spec, now), task=task))


def _lease(spec: TaskSpec, now: Instant) -> Lease:
    """As if a run were under way. A callback finds none by this token."""
    until = Instant(now + round(spec.timeout_seconds * SECOND))
    return Lease(
        run_id=RunId(0),
        task_id=TaskId(0),
        task_version=0,
        worker_id=_NOBODY,
        token=0,
        attempt=1,
        retry_count=0,
        lost_count=0,
        queue=spec.queue,
        priority=0,
        origin=Origin.TRIGGER,
        scheduled_time=now,
        claimed_at=now,
        expires_at=until,
        deadline_at=until,
        payload=spec.payload,
        callback_token=f"{_NOBODY}-{secrets.token_urlsafe(24)}",
    )
