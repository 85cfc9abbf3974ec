"""Listening: the socket, who may be let in, and the server on it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import AsyncIterator, Generator
from typing import Any

import uvicorn

from noonbell.api.patience import ConnectionLimits, patient_protocol
from noonbell.errors import AlreadyExists, SettingsError
from noonbell.settings import Server, Settings
from noonbell.wiring.stopping import Stop

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
        raise SettingsError.field("server.host", f"is {server.host!r}, which names no address here") from None
    except OSError as error:
        raise _cannot_listen(server, error) from None
    return listener


def _cannot_listen(server: Server, error: OSError) -> Exception:
    place = f"{server.host}:{server.port}"
    if error.errno == errno.EADDRINUSE:
        return AlreadyExists(
            f"cannot listen on {place}: the port is taken; choose another with --port, or stop what listens there"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SettingsError.field(
            "server.port", f"is {server.port}, which this user may not listen on; take 1024 or more"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError.field("server.host", f"is {server.host!r}, which is no address of this machine")
    return SettingsError.field("server", f"cannot listen on {place}: {error.strerror}")


def asks_for_tokens(settings: Settings) -> bool:
    """Whoever lets others in asks who they are: any address but loopback, unless `auth.enabled: false` is written out."""
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


def _limits(server: Server) -> ConnectionLimits:
    return ConnectionLimits(
        body_timeout=server.body_timeout,
        least_rate=server.least_rate,
        most_per_peer=server.max_connections_per_peer,
        proxies=server.trusted_proxies,
    )


class Listening(uvicorn.Server):
    """uvicorn inside our event loop: it leaves the signals to us, and tells when it is ready."""

    def __init__(self, app: Any, server: Server | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=patient_protocol(_limits(server or Server())),
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
