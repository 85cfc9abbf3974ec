"""Open connections to brokers, by address and credential. An attempt has a connection to itself, so that what ends it early
(deadline, cancel, an error) can drop the connection, and no answer can be taken for that of another message.

A name is resolved, each address passes the guard, and the socket that was dialled so is what the client of the broker gets. No
client resolves a name or dials by itself. `BrokerFailure` says why a message was not published.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from noonbell.engine import failpoint
from noonbell.model.broker import BrokerAddress
from noonbell.model.failure_text import failure_text, said_in
from noonbell.targets.brokers.message import Outgoing
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


def credentials_refused(address: BrokerAddress, error: object) -> BrokerFailure:
    return BrokerFailure("authentication", failure_text("credentials_refused", where=address.shown, error=str(error)))


def connection_not_taken(kind: str, address: BrokerAddress, error: object) -> BrokerFailure:
    return BrokerFailure(kind, failure_text("connection_not_taken", where=address.shown, error=str(error)))


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


KEEP_SECONDS: Final = 4.0
"""How long an idle connection is kept."""
MOST: Final = 100
"""Connections to one address with one credential; further attempts wait for one of them."""
_CLOSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class BrokerReceipt:
    """`result` is what the broker said of the message, `reply` the consumer's answer, `problem` why that is a failure."""

    result: Any = None
    reply: bytes | None = None
    problem: str | None = None


class BrokerConnection(Protocol):
    """One client of a broker."""

    async def open(self) -> None:
        """Greet the broker at the other end of the link. Raises BrokerFailure."""
        ...

    async def publish(self, message: Outgoing) -> BrokerReceipt:
        """Send it once, and wait for the broker's word. Raises BrokerFailure."""
        ...

    @property
    def is_open(self) -> bool: ...

    async def close(self) -> None:
        """Say goodbye, unless the link was dropped before, and release what the client holds."""
        ...


LoadClient = Callable[[], Callable[[Link, Outgoing], BrokerConnection]]
"""Imports the client of a kind of broker. Called when a connection is needed, in a thread: the clients together take
half as long as all else that a server imports, and few installations publish to any broker.
"""


_LEAVE: Final = 0.05
"""Seconds that a message gets to leave before a failpoint strikes."""


async def sent(publishing: asyncio.Future[Any] | None = None) -> None:
    """Called by each kind when the message has left, before it waits for the broker's word. `publishing` may still send it."""
    if publishing is not None and failpoint.is_armed:
        await asyncio.wait({publishing}, timeout=_LEAVE)
    failpoint.hit("K32")


async def done_before(waiting: asyncio.Future[Any], ended: asyncio.Future[Any]) -> bool:
    """Whether `waiting` is done before the connection has ended, else it is canceled: clients leave it waiting then."""
    try:
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        if not waiting.done():
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await waiting


class _Held:
    __slots__ = ("connection", "idle_since", "link")

    def __init__(self, link: Link, connection: BrokerConnection) -> None:
        self.link, self.connection, self.idle_since = link, connection, 0.0


class _Place:
    """The connections of one address and credential."""

    def __init__(self) -> None:
        self.idle: deque[_Held] = deque()
        self.free = asyncio.Semaphore(MOST)
        self.users = 0


class BrokerPool:
    """Make it inside the event loop that it is used in."""

    def __init__(self, client: LoadClient, dialler: Dialler, connect_timeout: float) -> None:
        self._client, self._dialler, self._connect_timeout = client, dialler, connect_timeout
        self._places: dict[Hashable, _Place] = {}
        self._open: set[_Held] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Drop every connection. Attempts that are under way fail."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for held in [held for place in self._places.values() for held in place.idle]:
            self._end(held)
        for held in list(self._open):
            self._drop(held)
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=_CLOSE_SECONDS)

    @contextlib.asynccontextmanager
    async def connection(self, message: Outgoing, dialled: list[str], *, anew: bool) -> AsyncIterator[BrokerConnection]:
        """A connection to the message's broker; `anew`: none that was used before, and it is not kept.

        It is kept where the block ends without an exception, else dropped. `dialled` gets the address.
        """
        key = message.pool_key
        place = self._places.setdefault(key, _Place())
        place.users += 1
        try:
            async with place.free:
                held = None if anew else self._idle(place)
                if held is None:
                    held = await self._dial(message)
                dialled.append(held.link.where)
                try:
                    yield held.connection
                except BaseException:
                    self._drop(held)
                    raise
                if anew or self._is_closed or not held.connection.is_open:
                    self._drop(held)
                else:
                    held.idle_since = self._loop.time()
                    place.idle.append(held)
                    if self._sweeping is None:
                        self._sweeping = self._loop.call_later(KEEP_SECONDS / 4, self._sweep)
        finally:
            place.users -= 1
            self._forget(key, place)

    def _idle(self, place: _Place) -> _Held | None:
        """The one that was used last, if the broker has not closed it meanwhile."""
        now = self._loop.time()
        while place.idle:
            held = place.idle.pop()
            if held.connection.is_open and now - held.idle_since < KEEP_SECONDS:
                return held
            self._drop(held)
        return None

    async def _dial(self, message: Outgoing) -> _Held:
        """Both the dial and the greeting, within the time that opening a connection may take."""
        link: Link | None = None
        make_connection = await asyncio.to_thread(self._client)
        try:
            async with asyncio.timeout(self._connect_timeout):
                link = await self._dialler.dial(message.address)
                connection = make_connection(link, message)
                await connection.open()
        except BaseException as error:
            if link is not None:
                link.close()
            if isinstance(error, TimeoutError):
                raise BrokerFailure("connect_timeout", failure_text("no_connection")) from None
            if isinstance(error, ssl.SSLError):
                raise BrokerFailure("tls", failure_text("tls_failed", error=str(error))) from None
            if isinstance(error, OSError):
                raise BrokerFailure(
                    "connection_lost", f"the broker closed the connection during the handshake: {error}"
                ) from None
            raise
        held = _Held(link, connection)
        self._open.add(held)
        if self._is_closed:
            self._drop(held)
            raise BrokerFailure("connection_lost", "the target was closed")
        return held

    def _drop(self, held: _Held) -> None:
        """At once; what the client holds is released in the background."""
        held.link.drop()
        self._end(held)

    def _end(self, held: _Held) -> None:
        self._open.discard(held)
        ending = self._loop.create_task(_closed(held))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _forget(self, key: Hashable, place: _Place) -> None:
        if not place.users and not place.idle and self._places.get(key) is place:
            del self._places[key]

    def _sweep(self) -> None:
        """Close what has been idle for too long. The one that has waited longest stands first."""
        now = self._loop.time()
        is_any = False
        for key, place in list(self._places.items()):
            while place.idle and (
                now - place.idle[0].idle_since >= KEEP_SECONDS or not place.idle[0].connection.is_open
            ):
                self._end(place.idle.popleft())
            is_any = is_any or bool(place.idle)
            self._forget(key, place)
        self._sweeping = self._loop.call_later(KEEP_SECONDS / 4, self._sweep) if is_any else None


async def _closed(held: _Held) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await held.connection.close()
    held.link.close()
