"""Connections to brokers: a name is resolved, each address passes the guard, and the socket that was dialled so is what the
client of the broker gets. No client resolves a name or dials by itself. `BrokerFailure` says why a message was not published.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import Final

from noonbell.model.broker import BrokerAddress
from noonbell.model.failure_text import failure_text, said_in
from noonbell.targets.http.guard import SERVICE_PORTS, AddressGuard, BlockedAddress
from noonbell.targets.http.pool import NameCache

OTHER_PORTS: Final = SERVICE_PORTS - {5672, 6379, 6380}
"""Ports of protocols that are none of a broker's."""


class BrokerFailure(Exception):
    """`kind` is what `error_details.kind` shows.

    connection_refused, dns, connect_timeout, connection_lost, tls   class network: retried
    nacked, no_responders, error                                     class error: retried
    authentication, refused, unroutable, blocked_address, too_large  never retried: it would end in the same way
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def lost(error: object = None) -> BrokerFailure:
    """The failure of a connection that ended before the broker had confirmed: the broker may have the message."""
    if error is not None and str(error):
        return BrokerFailure("connection_lost", failure_text("lost_before_broker_why", error=str(error)))
    return BrokerFailure("connection_lost", failure_text("lost_before_broker"))


class Link:
    """An open socket to a broker. `where` is the address that was dialled, for messages."""

    def __init__(self, sock: socket.socket, address: BrokerAddress, where: str, context: ssl.SSLContext | None) -> None:
        self.sock, self.address, self.where, self.context = sock, address, where, context
        self._writer: asyncio.StreamWriter | None = None
        self.is_dropped = False

    async def streams(self, *, starts_tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The socket as streams, TLS included where the address asks for it; `starts_tls`: False where that comes later."""
        is_tls = self.address.is_tls and starts_tls
        reader, writer = await asyncio.open_connection(
            sock=self.sock, ssl=self.context if is_tls else None, server_hostname=self.name if is_tls else None
        )
        self._writer = writer
        return reader, writer

    @property
    def name(self) -> str:
        """What the broker's certificate must be for."""
        return self.address.host.rstrip(".")

    def drop(self) -> None:
        """Close the socket at once: nothing that is still to be sent is sent."""
        self.is_dropped = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self._writer is not None:
            self._writer.transport.abort()

    def close(self) -> None:
        """Release the socket, where no client has taken it over."""
        self.drop()
        if self._writer is None:
            self.sock.close()


class Dialler:
    """Make it inside the event loop that it is used in."""

    def __init__(self, guard: AddressGuard, names: NameCache, ssl_context: ssl.SSLContext | None = None) -> None:
        self._guard, self._names, self._ssl_context = guard, names, ssl_context

    async def dial(self, address: BrokerAddress) -> Link:
        """Raises BrokerFailure. Not for longer than the caller lets it."""
        wrong = BrokerFailure("dns", f"{address.host} cannot be resolved: it has no address")
        for each in await self._addresses(address.host):
            where = f"[{each}]:{address.port}" if ":" in each else f"{each}:{address.port}"
            try:
                self._guard.check(each, address.port)
                sock = await _connected(each, address.port)
                return Link(sock, address, where, self._tls() if address.is_tls else None)
            except BlockedAddress as error:
                wrong = BrokerFailure("blocked_address", said_in(error))
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
                wrong = BrokerFailure("connection_refused", f"{where}: {reason}")
        raise wrong

    async def _addresses(self, host: str) -> list[str]:
        try:
            return await self._names.addresses(host)
        except OSError as error:
            raise BrokerFailure(
                "dns", failure_text("no_such_host", host=host, error=str(error.strerror or error))
            ) from None

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context


async def _connected(address: str, port: int) -> socket.socket:
    """To this numeric address: what the guard has seen is what is dialled."""
    loop = asyncio.get_running_loop()
    ((family, kind, protocol, _, place), *_) = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    )
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock
