"""Brokers in tests: what a task says of a message, a consumer that reads it, and a proxy that cuts the connection where a test
wants it cut.

Every destination is a name that was never used before, so that tests may share a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import aiomqtt
import aiormq
import nats
import redis.asyncio

FIELDS = {"amqp": "routing_key", "nats": "subject", "redis": "stream", "mqtt": "topic"}
"""The field that names the destination, by kind."""


@dataclass(frozen=True)
class Taken:
    """A message as a consumer got it."""

    body: bytes
    headers: dict[str, str]
    answer: Callable[[bytes], Any] | None = None
    """Sends a reply, where the message asks for one."""


@dataclass(frozen=True)
class Broker:
    kind: str
    """The name of the task's field: amqp, nats, redis or mqtt."""
    url: str

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def at(self, port: int) -> Broker:
        """The same by way of another port."""
        return Broker(self.kind, self.url.replace(f":{self.port}", f":{port}"))

    def message(self, destination: str, **more: Any) -> dict[str, Any]:
        """The task's field."""
        return {"url": self.url, FIELDS[self.kind]: destination, **more}

    @contextlib.asynccontextmanager
    async def consumer(self, destination: str) -> AsyncIterator[asyncio.Queue[Taken]]:
        """What arrives there from now on."""
        taken: asyncio.Queue[Taken] = asyncio.Queue()
        async with {"amqp": _amqp, "nats": _nats, "redis": _redis, "mqtt": _mqtt}[self.kind](
            self.url, destination, taken
        ):
            yield taken


def new_name(word: str = "nb") -> str:
    return f"{word}-{secrets.token_hex(6)}"


@contextlib.asynccontextmanager
async def _amqp(url: str, queue: str, taken: asyncio.Queue[Taken]) -> AsyncIterator[None]:
    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel()
        await channel.queue_declare(queue, exclusive=True)

        async def got(message: Any) -> None:
            properties = message.header.properties

            async def answer(body: bytes) -> None:
                told = aiormq.spec.Basic.Properties(correlation_id=properties.correlation_id)
                await channel.basic_publish(body, routing_key=properties.reply_to, properties=told)

            await taken.put(Taken(message.body, properties.headers or {}, answer if properties.reply_to else None))

        await channel.basic_consume(queue, got, no_ack=True)
        yield
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _nats(url: str, subject: str, taken: asyncio.Queue[Taken]) -> AsyncIterator[None]:
    client = await nats.connect(url, allow_reconnect=False)
    try:

        async def got(message: Any) -> None:
            await taken.put(Taken(message.data, message.headers or {}, message.respond if message.reply else None))

        await client.subscribe(subject, cb=got)
        await client.flush()  # whose PING may overtake the subscription
        await client.flush()
        yield
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _redis(url: str, stream: str, taken: asyncio.Queue[Taken]) -> AsyncIterator[None]:
    is_over = False

    async def read(client: Any) -> None:
        last = "0"
        while not is_over:
            for _, entries in await client.xread({stream: last}, block=100) or ():
                for last, fields in entries:  # noqa: B007 - read on from there
                    told = {name.decode(): value.decode() for name, value in fields.items()}
                    await taken.put(Taken(told.pop("payload").encode(), told))

    async with redis.asyncio.Redis.from_url(url) as client:
        reading = asyncio.create_task(read(client))
        try:
            yield
        finally:
            is_over = True  # not canceled: the client may swallow that
            await asyncio.gather(reading, return_exceptions=True)
            await client.delete(stream)


@contextlib.asynccontextmanager
async def _mqtt(url: str, topic: str, taken: asyncio.Queue[Taken]) -> AsyncIterator[None]:
    parts = urlsplit(url)
    async with aiomqtt.Client(parts.hostname or "", parts.port or 1883, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe(topic, qos=1)

        async def read() -> None:
            async for message in client.messages:
                told = dict(getattr(message.properties, "UserProperty", []))
                await taken.put(Taken(bytes(message.payload), told))

        reading = asyncio.create_task(read())
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


Cut = Literal["hold", "before", "after"]
"""What becomes of the message: it is held back; the connection is cut before the broker has it; or after, before its answer."""


@dataclass
class CutProxy:
    """Passes bytes between clients and a broker, until a client sends something with a mark in it."""

    broker_port: int
    cuts: dict[bytes, Cut] = field(default_factory=dict)
    port: int = 0
    dials: int = 0
    """Connections so far."""
    seen: int = 0
    """Marked messages so far."""
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    """No connection is open any more."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """A message is held back."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """The client whose message was held back has hung up."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        self.open.add(writer)
        inner, outer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        answers = asyncio.create_task(_pass_on(inner, writer))
        try:
            await self._watch(reader, outer, inner, answers)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for each in (writer, outer):
                each.transport.abort()
            self.open.discard(writer)
            if not self.open:
                self.quiet.set()

    def cut_all(self) -> None:
        """As if the broker had died."""
        for writer in self.open:
            writer.transport.abort()

    async def _watch(
        self,
        reader: asyncio.StreamReader,
        outer: asyncio.StreamWriter,
        inner: asyncio.StreamReader,
        answers: asyncio.Task[None],
    ) -> None:
        while data := await reader.read(65536):
            cut = next((cut for mark, cut in self.cuts.items() if mark in data), None)
            if cut is None:
                outer.write(data)
                await outer.drain()
                continue
            self.seen += 1
            if cut == "hold":
                self.reached.set()
                while await reader.read(65536):
                    pass
                self.released.set()
            elif cut == "after":
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                outer.write(data)
                await inner.read(1)
            return


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def cut_proxy(broker_port: int, cuts: dict[bytes, Cut]) -> AsyncIterator[CutProxy]:
    proxy = CutProxy(broker_port, cuts)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
