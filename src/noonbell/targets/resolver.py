"""Names to addresses, in threads of their own: a name server that hangs holds up nobody but those who ask it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

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


class Names:
    """Remembers answers for a while, and asks once where many want to know the same."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Another one of them is the first each time, so that all have their share."""
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
