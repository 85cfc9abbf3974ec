"""The application that a node serves (the API, and the dashboard beside it), its socket, and the server on it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from noonbell.api.connection_limits import ConnectionLimits, limited_protocol
from noonbell.app.embedded import open_part
from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, SettingsError
from noonbell.model.run import Assignment, Lease, Origin, Outcome, RunId
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.ports import Store
from noonbell.service.oidc import SignIn
from noonbell.settings import ServerSettings, Settings
from noonbell.settings.kinds import shown_store_address
from noonbell.targets import guard_of, http_target
from noonbell.targets.http.target import Fetcher, HttpTarget
from noonbell.version import __version__
from noonbell.wiring.assemble import NodeParts
from noonbell.wiring.process import Stop

if TYPE_CHECKING:
    from starlette.applications import Starlette


_NOBODY: Final = "test-call"


@contextlib.asynccontextmanager
async def application(
    parts: NodeParts, settings: Settings, health: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[Starlette]:
    """`health` is what the node says of itself."""
    from noonbell.api.app import all_endpoints, create_app
    from noonbell.api.request_origin import is_same_origin
    from noonbell.api.system import Installation
    from noonbell.web.context import Deps, Sessions
    from noonbell.web.routes import routes

    address = shown_store_address(settings.store.url)

    async def installation() -> Installation:
        return Installation(version=__version__, installation_id=await parts.installation_id(), store=address)

    asks = asks_for_tokens(settings)
    sessions = Sessions(parts.access, settings.auth.session_key)
    endpoints = all_endpoints(
        parts.services,
        health=health,
        metrics_render=None if parts.readings is None else parts.readings.page,
        hub=parts.hub,
        alerts=parts.alerts,
        access=parts.access,
        mints=asks,
        installation=installation,
        webhooks=parts.webhooks,
        with_legacy=settings.server.legacy_api,
    )
    store = parts.services.store
    app = create_app(endpoints, store, settings, access=parts.access, asks_for_tokens=asks, session=sessions.who)
    async with contextlib.AsyncExitStack() as open_parts:
        target = http_target(settings, (settings.server.port,))
        await open_part(target, open_parts)
        site = Deps(
            services=parts.services,
            settings=settings,
            health=health,
            sessions=sessions,
            is_same_origin=is_same_origin,
            access=parts.access,
            alerts=parts.alerts,
            webhooks=parts.webhooks,
            asks_for_tokens=asks,
            exposed=not is_loopback(settings.server.host),
            try_call=_Caller(target, store).call,
            sign_in=_sign_in(settings),
        )
        app.router.routes.extend(routes(site))
        yield app


def _sign_in(settings: Settings) -> SignIn | None:
    if settings.auth.oidc.issuer is None:
        return None
    if find_spec("joserfc") is None:
        raise SettingsError.field("auth.oidc.issuer", "needs a package; pip install 'noonbell[oidc]'")
    return SignIn(settings.auth.oidc, Fetcher(guard_of(settings), connect_timeout=settings.executor.connect_timeout))


class _Caller:
    """Calls a target before its task is saved, so that a user sees what it answers."""

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


STREAMS_END_IN = 2
"""Seconds that requests and event streams get to end when the process stops."""
BACKLOG = 2048


def listen(settings: Settings) -> socket.socket:
    """A socket that listens, so that a taken port is known before anything else has begun."""
    server = settings.server
    try:
        addresses = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        family, *_, address = addresses[0]
        both = server.host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)
        # Accepted sockets inherit it. Without it an answer waits for the caller's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except socket.gaierror:
        raise SettingsError.field("server.host", f"is {server.host!r}, which does not resolve to an address") from None
    except OSError as error:
        raise _cannot_listen(server, error) from None
    return listener


def _cannot_listen(server: ServerSettings, error: OSError) -> Exception:
    place = f"{server.host}:{server.port}"
    if error.errno == errno.EADDRINUSE:
        return AlreadyExists(
            f"cannot listen on {place}: the port is in use; choose another with --port, or stop what listens there"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SettingsError.field(
            "server.port", f"is {server.port}, which this user may not listen on; use 1024 or more"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError.field("server.host", f"is {server.host!r}, which is not an address of this machine")
    return SettingsError.field("server", f"cannot listen on {place}: {error.strerror}")


def asks_for_tokens(settings: Settings) -> bool:
    """Whether callers need a token: on any address but loopback, unless `auth.enabled: false` is written out."""
    if settings.auth.enabled is None:
        return not is_loopback(settings.server.host)
    return settings.auth.enabled


def is_loopback(host: str) -> bool:
    """Whether all that the name stands for is this machine alone."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def _limits(server: ServerSettings) -> ConnectionLimits:
    return ConnectionLimits(
        body_timeout=server.body_timeout,
        least_rate=server.least_rate,
        most_per_peer=server.max_connections_per_peer,
        proxies=server.trusted_proxies,
    )


class Listening(uvicorn.Server):
    """uvicorn inside our event loop: it leaves the signals to us, and tells when it is ready."""

    def __init__(self, app: Any, server: ServerSettings | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=limited_protocol(_limits(server or ServerSettings())),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,  # `server.trusted_proxies` says whose are believed; uvicorn believes loopback
            timeout_graceful_shutdown=STREAMS_END_IN,
        )
        super().__init__(config)
        self._ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    @contextlib.asynccontextmanager
    async def listening(self, listener: socket.socket, stop: Stop) -> AsyncIterator[None]:
        """Answers from entering to leaving. Should the server end by itself, that is a wish to stop."""
        task = asyncio.create_task(self.serve(sockets=[listener]), name="noonbell API")
        task.add_done_callback(lambda _: stop.wanted.set())
        task.add_done_callback(lambda _: self._ready.set())
        await self._ready.wait()
        try:
            yield
        finally:
            self.should_exit = True
            await task


log = logging.getLogger("noonbell")


def warn(settings: Settings) -> None:
    """Of what is allowed, but probably not what was meant."""
    if not asks_for_tokens(settings) and not is_loopback(settings.server.host):
        log.warning(
            "auth.enabled is false and server.host is %s: anyone who can reach the port can do anything;"
            " create one with noonbell token create, and set auth.enabled to true",
            settings.server.host,
        )
    if settings.callback.base_url is None and not is_loopback(settings.server.host):
        log.warning("callback.base_url is not set: targets on other machines cannot call back")
