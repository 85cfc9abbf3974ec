"""Connections: new ones, every address of which passes the guard, idle ones kept for reuse; and name resolution."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from noonbell.model.failure_text import failure_text
from noonbell.targets.http.connection import Disconnected, HttpConnection, HttpExchange, HttpOrigin
from noonbell.targets.http.guard import AddressGuard, BlockedAddress

KEEP_SECONDS = 4.0
"""How long an idle connection is kept. Common servers close theirs after five seconds; we are to be the first."""

_SWEEP = KEEP_SECONDS / 8


class ConnectTimeout(Exception):
    """No connection within the time that one may take."""


class NoSuchHost(Exception):
    def __init__(self, host: str, error: OSError) -> None:
        super().__init__(failure_text("no_such_host", host=host, error=str(error.strerror or error)))


class Undialled(Exception):
    """No address of a host took the connection; `error` is what the last one said."""

    def __init__(self, place: HttpOrigin, error: OSError) -> None:
        super().__init__(str(error))
        self.place, self.error = place, error


class Pool:
    """Make it inside the event loop that it is used in."""

    def __init__(
        self,
        guard: AddressGuard,
        resolver: Resolver,
        *,
        connect_timeout: float,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard, self._connect_timeout, self._ssl_context = guard, connect_timeout, ssl_context
        self.names = NameCache(resolver)
        self.loop = asyncio.get_running_loop()
        self._idle: dict[HttpOrigin, deque[HttpConnection]] = {}
        self._open: set[HttpConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Drop every connection. Requests that are under way end as if the target had hung up."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._idle.clear()
        for wire in self._open:
            wire.hang_up()
        await self.names.close()
        await asyncio.sleep(0)  # a transport says goodbye in the loop's next round

    def take(self, place: HttpOrigin, most_seconds: float | None = None) -> HttpConnection | None:
        """An idle connection, the one that was used last; None if there is none that was idle for at most `most_seconds`.

        The target may have closed it, or said something on it, without the loop having heard of it yet: then it is not
        taken.
        """
        idle = self._idle.get(place)
        if not idle:
            return None
        now = self.loop.time()
        while idle:
            wire = idle[-1]
            if now >= wire.idle_until or not wire.is_quiet():
                idle.pop()
                wire.drop()
            elif most_seconds is not None and now - wire.idle_since > most_seconds:
                return None
            else:
                idle.pop()
                return wire
        return None

    def give(self, wire: HttpConnection) -> None:
        """Keep a connection for the next request, if one can follow."""
        seconds = KEEP_SECONDS if wire.idle_seconds is None else _kept_seconds(wire.idle_seconds)
        if not wire.keeps or self._is_closed or seconds == 0:
            wire.drop()
            return
        wire.idle_since = now = self.loop.time()
        wire.idle_until = now + seconds
        idle = self._idle.get(wire.place)
        if idle is None:
            idle = self._idle[wire.place] = deque()
        idle.append(wire)
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(_SWEEP, self._sweep)

    async def dial(self, place: HttpOrigin, deadline: float, exchange: HttpExchange) -> HttpConnection:
        """A new connection, or ConnectTimeout. The caller ends it at `deadline`, in the loop's time: addresses share
        that time.
        """
        mine = self.loop.time() + self._connect_timeout
        try:
            async with asyncio.timeout_at(mine):
                wire = await self._dialled(place, min(mine, deadline), exchange)
        except TimeoutError:
            raise ConnectTimeout from None
        if self._is_closed:
            wire.drop()
            raise Disconnected
        return wire

    async def _dialled(self, place: HttpOrigin, deadline: float, exchange: HttpExchange) -> HttpConnection:
        addresses = await self._addresses(place.host)
        denied: BlockedAddress | None = None
        refused: OSError | None = None
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                self._guard.check(address, place.port)
                self._guard.check_redirect(exchange.came_from, address)
                exchange.dialled = address
                exchange.address = f"[{address}]:{place.port}" if ":" in address else f"{address}:{place.port}"
                # The last one may take all the time that is left; one before it, its share.
                now = self.loop.time()
                async with asyncio.timeout_at(now + (deadline - now) / left if left > 1 else None):
                    return await self._connected(place, address, exchange.address)
            except BlockedAddress as error:
                denied = error
            except OSError as error:
                refused = error
        if refused is not None:
            raise Undialled(place, refused)
        raise denied or NoSuchHost(place.host, OSError("it has no address"))

    async def _connected(self, place: HttpOrigin, address: str, written: str) -> HttpConnection:
        is_tls = place.scheme == "https"
        _, wire = await self.loop.create_connection(
            lambda: HttpConnection(place, address, written, self.loop, self._forget),
            address,
            place.port,
            ssl=self._tls() if is_tls else None,
            server_hostname=place.host.rstrip(".") if is_tls else None,
            flags=socket.AI_NUMERICHOST,  # what the guard has seen is what is dialled: no name is looked up here
        )
        self._open.add(wire)
        if not wire.is_open():  # gone before it was known
            self._open.discard(wire)
        return wire

    async def _addresses(self, host: str) -> list[str]:
        try:
            return await self.names.addresses(host)
        except OSError as error:
            raise NoSuchHost(host, error) from None

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context

    def _forget(self, wire: HttpConnection) -> None:
        """The connection has ended."""
        self._open.discard(wire)
        idle = self._idle.get(wire.place)
        if idle and wire in idle:
            idle.remove(wire)

    def _sweep(self) -> None:
        """Drop what has been idle for too long. The one that has waited longest stands first."""
        now = self.loop.time()
        for place, idle in list(self._idle.items()):
            while idle and (now >= idle[0].idle_until or not idle[0].is_open()):
                idle.popleft().drop()
            if not idle:
                del self._idle[place]
        self._sweeping = self.loop.call_later(_SWEEP, self._sweep) if self._idle else None


def _kept_seconds(granted: float) -> float:
    """How long a connection is kept idle: half of what the target grants, for its clock began earlier than ours."""
    return min(KEEP_SECONDS, granted / 2)


KNOWN_SECONDS = 10.0
"""How long an answer is good for."""

_THREADS = 32
_MOST = 10_000


class Resolver(Protocol):
    async def resolve(self, host: str) -> Sequence[str]:
        """The numeric addresses of a name. OSError, if there are none."""
        ...

    async def close(self) -> None: ...


class ThreadResolver:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="noonbell-dns")

    async def resolve(self, host: str) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _resolved, host)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class PooledClient:
    """Has a pool and a resolver of its own from `open` to `close`, in the event loop that it is opened in."""

    def __init__(
        self, guard: AddressGuard | None, connect_timeout: float, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._guard, self._connect_timeout, self._ssl_context = guard or AddressGuard(), connect_timeout, ssl_context
        self._resolver: ThreadResolver | None = None
        self._pool: Pool | None = None

    async def open(self) -> None:
        self._resolver = ThreadResolver()
        self._pool = Pool(
            self._guard, self._resolver, connect_timeout=self._connect_timeout, ssl_context=self._ssl_context
        )

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        if self._resolver is not None:
            await self._resolver.close()
        self._pool = self._resolver = None

    def _opened_pool(self) -> Pool:
        if self._pool is None:
            raise RuntimeError(f"{type(self).__name__} is not open")
        return self._pool


class NameCache:
    """Remembers answers for a while, and asks once where many want to know the same."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        """Without a resolver, it has one of its own until it is closed."""
        self._own: ThreadResolver | None = None
        if resolver is None:
            resolver = self._own = ThreadResolver()
        self._resolver = resolver
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Another one of them is the first each time, so that all have their share. Of an address, itself."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return [host]
        now = asyncio.get_running_loop().time()
        known = self._known.get(host)
        if known is None or known[0] <= now:
            known = (now + KNOWN_SECONDS, list(await self._ask(host)))
            if len(self._known) >= _MOST:
                self.forget()
            self._known[host] = known
        addresses = known[1]
        found = addresses.copy()
        if len(addresses) > 1:
            addresses.append(addresses.pop(0))
        return found

    def forget(self) -> None:
        self._known.clear()

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        for task in asking:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        if self._own is not None:
            await self._own.close()

    async def _ask(self, host: str) -> Sequence[str]:
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.get_running_loop().create_task(self._resolve(host))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its askers may have gone
        return await asyncio.shield(task)

    async def _resolve(self, host: str) -> Sequence[str]:
        try:
            return await self._resolver.resolve(host)
        finally:
            del self._asking[host]


def _resolved(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is not a host name: {error}") from None
    return list(dict.fromkeys(_written(address) for _, _, _, _, address in found))


def _written(address: tuple[Any, ...]) -> str:
    """The address, and the interface that a link-local one belongs to."""
    scope = f"%{address[3]}" if len(address) == 4 and address[3] else ""
    return f"{address[0]}{scope}"
