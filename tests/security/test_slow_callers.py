"""Callers that hold connections: bodies that never end, answers that are not read, too many at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from noonbell.api import edge, patience
from noonbell.api.patience import ConnectionLimits, patient_protocol, peer_of
from noonbell.settings import Server, Settings
from noonbell.settings import Store as StoreSettings
from noonbell.wiring import Listening, Stop, assembled, listen
from noonbell.wiring.application import application

PATIENCE = 30.0
UNENDED = b"POST /api/v1/callbacks/n HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
LIVEZ = b"GET /api/v1/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
TASKS = b"GET /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEAT = b"POST /api/v1/workers/w/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def listening(**server) -> AsyncIterator[int]:
    """As `noonbell serve` listens."""
    settings = Settings(store=StoreSettings(url="memory://"), server=Server(port=0, **server))
    with contextlib.closing(listen(settings)) as listener:
        port = listener.getsockname()[1]
        async with assembled(settings, port) as parts, application(parts, settings, lambda: {"ok": True}) as app:
            async with Listening(app, settings.server).listening(listener, Stop()):
                yield port
            await parts.hub.close()


@contextlib.asynccontextmanager
async def opened(port: int, count: int, data: bytes) -> AsyncIterator[list[Connection]]:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        for _, writer in connections:
            writer.write(data)
        yield connections
    finally:
        for _, writer in connections:
            writer.close()


async def answer_to(port: int, data: bytes) -> bytes:
    """The head of the answer on a new connection; nothing if it is closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    finally:
        writer.close()


async def rest(connection: Connection) -> bytes:
    """What comes until the server closes it."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(connection[0].read(), PATIENCE)
    return b""


# Bodies


async def test_bodies_that_never_end_are_closed_and_heartbeats_come_through_meanwhile(monkeypatch):
    """150 of them take all the connections that there are."""
    monkeypatch.setattr(patience, "most_connections", lambda: 150)
    async with listening(body_timeout=2) as port, opened(port, 150, UNENDED) as connections:
        for data in (LIVEZ, BEAT) * 3:
            assert (await answer_to(port, data)).startswith(b"HTTP/1.1 200 "), data
        answers = await asyncio.gather(*(rest(each) for each in connections))
        assert {answer[:13] for answer in answers} <= {b"HTTP/1.1 408 ", b"HTTP/1.1 404 ", b""}
        assert (await answer_to(port, TASKS)).startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_trickles_in_is_closed_and_one_that_flows_is_not():
    head = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"
    async with listening(body_timeout=0.5, least_rate=20_000) as port:
        trickle = await asyncio.open_connection("127.0.0.1", port)
        trickle[1].write(head)
        reading = asyncio.create_task(rest(trickle))
        while not reading.done():
            trickle[1].write(b" ")
            await asyncio.wait([reading], timeout=0.05)
        assert reading.result().startswith(b"HTTP/1.1 408 ")
        trickle[1].close()
        # 300,000 bytes are worth fifteen seconds: this body takes longer than the half second that every body has.
        flowing = await asyncio.open_connection("127.0.0.1", port)
        flowing[1].write(head)
        for _ in range(10):
            flowing[1].write(b" " * 30_000)
            await flowing[1].drain()
            await asyncio.sleep(0.1)
        assert (await asyncio.wait_for(flowing[0].readuntil(b"\r\n"), PATIENCE)).startswith(b"HTTP/1.1 400 ")
        flowing[1].close()


async def test_what_comes_after_an_early_answer_has_its_end(monkeypatch):
    """A body that is not wanted is read for a while, so that the caller hears the answer, and then cut off."""
    monkeypatch.setattr(patience, "DISCARDED_BYTES", 200_000)
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /api/v1/callbacks/n HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while not writer.transport.is_closing():
                    writer.write(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)
        assert (await rest((reader, writer)))[:13] in (b"HTTP/1.1 404 ", b"")
        writer.close()


async def test_bodies_together_have_a_limit_and_small_ones_find_room(monkeypatch):
    mib = 1024 * 1024
    large = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (2 * mib)
    rooms = []
    plain = edge._Room.__init__
    monkeypatch.setattr(edge._Room, "__init__", lambda room, most: rooms.append(room) or plain(room, most))
    async with listening(max_bodies_bytes=mib) as port, opened(port, 1, large + b" " * (mib // 2)) as (held,):
        async with asyncio.timeout(PATIENCE):
            while not any(room.used for room in rooms):  # noqa: ASYNC110 - nothing tells when it has been read
                await asyncio.sleep(0.01)
        assert (await answer_to(port, large + b" " * mib)).startswith(b"HTTP/1.1 503 ")
        assert (await answer_to(port, BEAT)).startswith(b"HTTP/1.1 200 ")
        held[1].close()
        await held[1].wait_closed()
        async with asyncio.timeout(PATIENCE):
            while any(room.used for room in rooms):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


# Answers


async def test_an_answer_that_is_not_read_is_given_up():
    """The description is asked for again and again, and none of it is read: the server closes the connection."""
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with listening(body_timeout=0.5, least_rate=1_000_000) as port:
        with socket.socket() as mute:
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            mute.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                mute.connect(("127.0.0.1", port))
            loop = asyncio.get_running_loop()
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(PATIENCE):
                    while True:
                        await loop.sock_sendall(mute, ask)
                        await asyncio.sleep(0.01)


# Connections


async def test_one_address_cannot_take_all_connections():
    async with listening(max_connections_per_peer=5) as port, opened(port, 5, UNENDED):
        assert (await answer_to(port, LIVEZ)).startswith(b"HTTP/1.1 200 ")
        refused = await answer_to(port, TASKS)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in refused
        assert (await answer_to(port, BEAT)).startswith(b"HTTP/1.1 200 ")


async def test_a_request_that_is_refused_for_want_of_connections_changes_nothing():
    body = b'{"name":"a","target_url":"http://127.0.0.1:9/"}'
    make = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with listening(max_connections_per_peer=2) as port:
        async with opened(port, 2, UNENDED):
            assert (await answer_to(port, make)).startswith(b"HTTP/1.1 503 ")
        async with asyncio.timeout(PATIENCE):
            while not (await answer_to(port, TASKS)).startswith(b"HTTP/1.1 200 "):
                pass
        assert (await answer_to(port, make)).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize(
    ("address", "counted", "is_shared"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("", "", True),
        ("192.0.2.7", "192.0.2.7", False),
        ("::ffff:192.0.2.7", "192.0.2.7", False),
        ("2001:db8::1:2", "2001:db8::/64", False),
        ("fe80::1%eth0", "fe80::/64", False),
        ("10.0.0.9", "10.0.0.9", True),
    ],
)
def test_addresses_are_counted_by_who_may_stand_behind_them(address, counted, is_shared):
    assert peer_of(address, ["10.0.0.0/24"]) == (counted, is_shared)


def test_each_server_counts_its_own_peers():
    assert patient_protocol(ConnectionLimits()).limits.peers is not patient_protocol(ConnectionLimits()).limits.peers
