"""A target on loopback that says whatever bytes a test wants it to say, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    header_lines: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.header_lines}


@dataclass
class Line:
    """One connection, in the hands of the test's answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sink: Sink

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_dropped(self) -> None:
        """Wait until the client has let go."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Answer = Callable[[Asked, Line], Awaitable[None]]


class Sink:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.connections = 0
        self.asked: list[Asked] = []
        self.dropped = asyncio.Event()
        """A connection has ended, from the client's side or by the answer."""
        self.reached = asyncio.Event()
        """A request has come in."""
        self.host = ""
        self.port = 0
        self.scheme = "http"

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = Line(reader, writer, self)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing() and (asked := await read_request(reader)):
                self.asked.append(asked)
                self.reached.set()
                await self.answer(asked, line)
        writer.close()
        self.dropped.set()


async def read_request(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Asked(method, path, headers, await reader.readexactly(length))


@contextlib.asynccontextmanager
async def listening(
    answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Sink]:
    sink = Sink(answer)
    server = await asyncio.start_server(sink.serve, host, port, ssl=tls)
    sink.host = host
    sink.port = server.sockets[0].getsockname()[1]
    sink.scheme = "https" if tls else "http"
    try:
        yield sink
    finally:
        server.close()


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer as it should be."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def replies(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Answers every request so, and keeps the connection."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.say(http(status, body, **headers))

    return answer


def says(data: bytes) -> Answer:
    """Says these bytes to every request, and hangs up."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.say(data)
        line.writer.close()

    return answer


def drips(start: bytes, part: bytes, seconds: float) -> Answer:
    """Says `start`, and then `part` again and again until the client lets go."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.say(start)
        gone = asyncio.create_task(line.until_dropped())
        with contextlib.suppress(ConnectionError):
            while not gone.done():
                await line.say(part)
                await asyncio.sleep(seconds)
        await gone
        line.writer.close()

    return answer


async def silence(_asked: Asked, line: Line) -> None:
    """Takes the request, and never says a word."""
    await line.until_dropped()
    line.writer.close()
