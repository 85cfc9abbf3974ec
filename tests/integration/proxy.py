"""A TCP proxy between a store and its server: it can cut, hold still, and lose one message at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or {"mysql": 3306}.get(parts.scheme, 5432))
        self._parts = parts
        self._server: asyncio.Server | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._port = 0
        self._cuts = 0
        self._countdown: int | None = None
        self._forward_last = False
        self._losing: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The server's, by way of this proxy."""
        user = f"{self._parts.netloc.rpartition('@')[0]}@" if "@" in self._parts.netloc else ""
        return self._parts._replace(netloc=f"{user}127.0.0.1:{self._port}").geturl()

    async def cut(self) -> None:
        """Every connection breaks, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._cuts += 1
        self._break()
        self._flows.set()

    async def restore(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def pause(self) -> None:
        """Connections stay, new ones are accepted, and nothing comes through."""
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    def break_at(self, message: int, *, answered: bool) -> None:
        """Break all connections at the so manieth message of a client; with `answered`, after the server has acted."""
        self._countdown, self._forward_last, self._losing = message, answered, None

    def mend(self) -> bool:
        """No longer. Whether it came to that."""
        came, self._countdown, self._losing = self._countdown == 0, None, None
        return came

    def _break(self) -> None:
        for writers in self._pairs:
            for writer in writers:
                writer.transport.abort()
        self._pairs.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cuts = self._cuts
        try:
            from_server, to_server = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        if self._server is None or cuts != self._cuts:  # cut while the connection was being made
            writer.transport.abort()
            to_server.transport.abort()
            return
        self._pairs.add((writer, to_server))
        for task in (
            asyncio.create_task(self._pump(reader, to_server, from_client=True)),
            asyncio.create_task(self._pump(from_server, writer, from_client=False)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                if from_client and self._countdown:
                    self._countdown -= 1
                    if self._countdown == 0:
                        if not self._forward_last:
                            self._break()
                            return
                        self._losing = writer
                elif not from_client and self._countdown == 0 and self._losing is not None:
                    self._break()  # the server has acted, and its answer is lost
                    return
                writer.write(data)
                await writer.drain()
            writer.close()
