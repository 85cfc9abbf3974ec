"""Callers that hold connections: bodies that never end, answers that are not read, too many at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from noonbell.api import connection_limits, middleware
from noonbell.api.connection_limits import ConnectionLimits, limited_protocol, peer_of
from noonbell.settings import ServerSettings, Settings, StoreSettings
from noonbell.wiring import Listening, Stop, assembled, listen
from noonbell.wiring.application import application

PATIENCE = 60.0
UNENDED = b"POST /api/v1/callbacks/n HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
LIVEZ = b"GET /api/v1/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
TASKS = b"GET /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEAT = b"POST /api/v1/workers/w/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def listening(**server) -> AsyncIterator[int]:
    """As `noonbell serve` listens."""
    settings = Settings(store=StoreSettings(url="memory://"), server=ServerSettings(port=0, **server))
    with contextlib.closing(listen(settings)) as listener:
        port = listener.getsockname()[1]
        async with assembled(settings, port) as parts, application(parts, settings, lambda: {"ok": True}) as app:
            async with Listening(app, settings.server).listening(listener, Stop()):
                yield port
            await parts.hub.close()


@contextlib.asynccontextmanager
async def serving(app: Any, **limits) -> AsyncIterator[tuple[int, ServerState]]:
    """An application alone behind the limits, and what the server knows of its connections."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    protocol, state = limited_protocol(ConnectionLimits(**limits)), ServerState()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    server = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), sock=listener)
    try:
        yield listener.getsockname()[1], state
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()


async def plain_ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


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
    monkeypatch.setattr(connection_limits, "most_connections", lambda: 150)
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
    monkeypatch.setattr(connection_limits, "DISCARDED_BYTES", 200_000)
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
    plain = middleware._Room.__init__
    monkeypatch.setattr(middleware._Room, "__init__", lambda room, most: rooms.append(room) or plain(room, most))
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


CHUNKED = b"POST /api/v1/callbacks/n HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "more"),
    [(b"0\r\n", b"a:b\r\n"), (b"0\r\nx: ", b"aaaa"), (b"1;x=", b"aaaa"), (b"1\r\na\r\n0\r\nx: ", b"aaaa")],
    ids=["trailers", "one trailer", "a chunk's extension", "a trailer after a body"],
)
async def test_what_is_neither_head_nor_body_has_an_end(start, more):
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + start)
        reading = asyncio.create_task(rest((reader, writer)))
        sent = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while sent < 4_000_000 and not reading.done():
                    writer.write(more * 4_000)
                    sent += len(more) * 4_000
                    await writer.drain()
                    await asyncio.sleep(0)
        is_cut = reading.done() or writer.transport.is_closing()
        writer.transport.abort()
        await asyncio.wait([reading])
        assert is_cut, sent


async def test_trailers_do_not_become_headers():
    """Neither of the request that they end nor of the next one."""
    seen = []

    async def remembering(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        seen.append([name for name, _ in scope["headers"]])
        await plain_ok(scope, receive, send)

    async with serving(remembering) as (port, _), opened(port, 1, CHUNKED) as ((reader, writer),):
        for data in (b"0\r\nauthorization: Bearer x\r\nlast: y\r\n\r\n", LIVEZ):
            writer.write(data)
            await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE)
    assert seen == [[b"host", b"transfer-encoding"], [b"host"]]


# Answers


async def test_the_rest_of_an_answer_is_watched_after_some_of_it_was_read():
    """A caller reads until the server has written all of it, and then stops: some is still in the server's memory."""

    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"200000")]})
        await send({"type": "http.response.body", "body": b"x" * 200_000})

    loop = asyncio.get_running_loop()
    async with serving(large, body_timeout=2.0, least_rate=5_000) as (port, state):
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_304)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            caller.setblocking(False)
            await loop.sock_connect(caller, ("127.0.0.1", port))
            await loop.sock_sendall(caller, LIVEZ)
            await loop.sock_recv(caller, 1)
            (connection,) = state.connections
            assert connection.flow.write_paused
            async with asyncio.timeout(PATIENCE):
                while connection.flow.write_paused:
                    await loop.sock_recv(caller, 500)
                assert connection.transport.get_write_buffer_size() > 0
                while state.connections:  # noqa: ASYNC110 - nothing tells when it is closed
                    await asyncio.sleep(0.01)


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


async def test_a_head_that_the_server_does_not_read_is_not_late(monkeypatch):
    """The rest of a third request has been sent, while the server reads no more until the first is answered."""
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 1.0)
    asked = []

    async def slow(scope, receive, send):
        asked.append(scope)
        if len(asked) == 1:
            await asyncio.sleep(1.5)
        await plain_ok(scope, receive, send)

    async with serving(slow) as (port, state), opened(port, 1, LIVEZ * 2 + LIVEZ[:10]) as ((reader, writer),):
        async with asyncio.timeout(PATIENCE):
            while not any(each.flow.read_paused for each in state.connections):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            writer.write(LIVEZ[10:])
            for _ in range(3):
                await reader.readuntil(b"ok")


async def test_connections_of_one_address_leave_room_for_others():
    async with serving(plain_ok, most=24, most_per_peer=12) as (port, _), contextlib.AsyncExitStack() as stack:
        connections = []
        for _ in range(28):
            connections.append(await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.66", 0)))
            stack.callback(connections[-1][1].close)
        for each in connections[16:]:
            assert (await rest(each)).startswith(b"HTTP/1.1 503 ")
        for data in (LIVEZ, BEAT, TASKS):
            assert (await answer_to(port, data)).startswith(b"HTTP/1.1 200 "), data


async def test_an_address_beyond_its_limit_does_not_take_what_is_reserved():
    async with serving(plain_ok, most=12, most_per_peer=10) as (port, _), contextlib.AsyncExitStack() as stack:
        for host in ["127.0.0.66"] * 10 + ["127.0.0.67"] * 2:
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            stack.callback(writer.close)
        for _ in range(4):
            connection = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.66", 0))
            stack.callback(connection[1].close)
            assert (await rest(connection)).startswith(b"HTTP/1.1 503 ")
        assert (await answer_to(port, LIVEZ)).startswith(b"HTTP/1.1 200 ")


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
    assert limited_protocol(ConnectionLimits()).limits.peers is not limited_protocol(ConnectionLimits()).limits.peers
