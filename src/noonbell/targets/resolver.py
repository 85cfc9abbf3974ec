"""Names to addresses, in threads of their own: a name server that hangs holds up nobody but those who ask it."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

_THREADS = 32


class ThreadResolver(AbstractResolver):
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="noonbell-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _resolved, host, port, family)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolved(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is not a host name: {error}") from None
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=int(address[1]),
            family=found_family,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found_family, _, proto, _, address in found
    ]
