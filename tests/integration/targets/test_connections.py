"""Connections on the wire: when they are shared, when they end, and when a request is sent a second time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import time

import pytest

from integration.targets.sink import Sink, http, listening, replies, says, silence
from noonbell.engine import failpoint
from noonbell.model.run import OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery
from noonbell.targets.http import pool
from noonbell.targets.http.guard import AddressGuard
from services.ports import bound_to_one_port, make_deaf
from unit.targets.make import assignment


class Names:
    """A name server that knows one name, and counts how often it is asked."""

    def __init__(self, *addresses: str, seconds: float = 0) -> None:
        self.addresses, self.seconds, self.asked = addresses, seconds, 0

    async def resolve(self, host):
        self.asked += 1
        await asyncio.sleep(self.seconds)
        return self.addresses

    async def close(self):
        pass


def open_now(target) -> list[object]:
    return [wire for wire in target._pool._open if wire.is_open()]


async def gone(target, seconds: float = 60) -> bool:
    """Whether all connections of the target end in this time."""
    until = time.monotonic() + seconds
    while open_now(target) and time.monotonic() < until:  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.01)
    return not open_now(target)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
async def test_every_method_leaves_a_connection_that_can_be_used_again(target, method):
    async def answer(asked, line):
        whole = http(200, b"hello")
        await line.say(whole.removesuffix(b"hello") if asked.method == "HEAD" else whole)

    async with listening(answer) as sink:
        for _ in range(3):
            assert (await target.execute(assignment(sink.url(), http_method=method))).kind is OutcomeKind.SUCCESS
    assert (sink.connections, len(sink.asked)) == (1, 3)


async def test_calls_at_the_same_time_have_a_connection_each_and_share_them_later(target):
    async def answer(_asked, line):
        await asyncio.sleep(0.05)
        await line.say(http(200, b"x"))

    async with listening(answer) as sink:
        for _ in range(3):
            await asyncio.gather(*(target.execute(assignment(sink.url())) for _ in range(8)))
    assert (sink.connections, len(sink.asked)) == (8, 24)


async def test_hosts_and_ports_do_not_share_connections(opened):
    target = await opened(resolver=Names("127.0.0.1"))
    async with listening(replies()) as sink, listening(replies()) as other:
        for url in (sink.url(), other.url(), sink.url(host="one.test"), sink.url(host="two.test"), sink.url()):
            await target.execute(assignment(url))
    assert (sink.connections, other.connections) == (3, 1)
    assert [asked.headers["host"].split(":")[0] for asked in sink.asked] == [
        "127.0.0.1",
        "one.test",
        "two.test",
        "127.0.0.1",
    ]


async def test_an_idle_connection_is_dropped_after_a_while(opened, monkeypatch):
    monkeypatch.setattr(pool, "KEEP_SECONDS", 0.2)
    monkeypatch.setattr(pool, "_SWEEP", 0.05)
    target = await opened()
    async with listening(replies()) as sink:
        await target.execute(assignment(sink.url()))
        assert open_now(target)
        assert await gone(target)
        await asyncio.wait_for(sink.dropped.wait(), 60)
        await target.execute(assignment(sink.url()))
    assert sink.connections == 2


async def test_a_connection_that_has_been_idle_for_too_long_is_not_taken(opened, monkeypatch):
    target = await opened()
    async with listening(replies()) as sink:
        monkeypatch.setattr(pool, "KEEP_SECONDS", -1.0)  # over at once, and nobody sweeps so soon
        await target.execute(assignment(sink.url()))
        await target.execute(assignment(sink.url()))
    assert sink.connections == 2


async def test_a_connection_that_the_target_closes_while_idle_is_noticed(target):
    async def answer(_asked, line):
        await line.say(http(200, b"x"))
        await asyncio.sleep(0.02)
        line.writer.close()

    async with listening(answer) as sink:
        for _ in range(3):
            outcome = await target.execute(assignment(sink.url()))
            assert outcome.kind is OutcomeKind.SUCCESS
            assert await gone(target)
    assert (sink.connections, len(sink.asked)) == (3, 3)  # none was sent in vain


def tired(first: bytes, last: bytes = b"", *, resets: bool = False):
    """Answers the first request of the first connection; to the second it says `last`, and hangs up."""

    async def answer(asked, line):
        if line.sink.connections > 1:
            await line.say(http(200, b"again"))
        elif len(line.sink.asked) == 1:
            await line.say(first)
        else:
            await line.say(last)
            line.writer.transport.abort() if resets else line.writer.close()

    return answer


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_a_safe_request_is_sent_again_if_a_kept_connection_dies_without_a_byte(target, method, resets):
    async with listening(tired(http(200, b"first"), resets=resets)) as sink:
        first = await target.execute(assignment(sink.url()))
        outcome = await target.execute(assignment(sink.url(), http_method=method))
    assert outcome.bodies.response_body == "again"
    assert sink.connections == 2
    _, second, third = sink.asked
    assert (second.method, second.headers) == (third.method, third.headers)
    assert (first.error_details, outcome.error_details) == (None, {"resent": True})


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_does_work_is_sent_once_even_if_a_kept_connection_dies_without_a_byte(target, method, resets):
    """The target may have seen it, and died over it."""
    async with listening(tired(http(200, b"first"), resets=resets)) as sink:
        await target.execute(assignment(sink.url()))
        outcome = await target.execute(assignment(sink.url(), http_method=method, body_template="x"))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "connection_lost")
    assert [asked.method for asked in sink.asked] == ["GET", method]
    assert "resent" not in outcome.error_details


async def test_a_request_that_starts_asynchronous_work_is_sent_once(target):
    async with listening(tired(http(200))) as sink:
        await target.execute(assignment(sink.url()))
        outcome = await target.execute(assignment(sink.url(), exec_type=ExecType.ASYNC, http_method="GET"))
    assert outcome.failure == "connection_lost"
    assert len(sink.asked) == 2


async def test_what_does_work_takes_a_connection_only_if_it_was_used_a_moment_ago(target, monkeypatch):
    async with listening(replies()) as sink:
        for method in ("POST", "POST"):
            await target.execute(assignment(sink.url(), http_method=method))
        assert sink.connections == 1
        monkeypatch.setattr("noonbell.targets.http.target.FRESH_SECONDS", -1.0)  # that was longer ago
        await target.execute(assignment(sink.url(), http_method="POST"))
        assert sink.connections == 2
        await target.execute(assignment(sink.url()))  # what changes nothing may still have the old one
        assert sink.connections == 2


@pytest.mark.parametrize(("said", "connections"), [("timeout=0", 3), ("timeout=60", 1)])
async def test_a_connection_is_kept_no_longer_than_the_target_says(target, said, connections):
    async with listening(replies(200, Keep_Alive=said)) as sink:
        for method in ("GET", "POST", "GET"):
            await target.execute(assignment(sink.url(), http_method=method))
    assert sink.connections == connections


@pytest.mark.parametrize("how", ["ends", "speaks"])
async def test_an_end_that_the_loop_has_not_heard_of_is_seen_before_a_request_goes_out(target, how):
    """The end, or a byte, is in the socket; the loop has had no turn to read it."""

    def turned(reader, writer):
        sockets.append(writer.get_extra_info("socket"))
        return well(reader, writer)

    sockets = []
    well = Sink(replies()).serve
    server = await asyncio.start_server(turned, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        await target.execute(assignment(url))
        wire = open_now(target)[0]
        other = socket.socket(fileno=os.dup(sockets[0].fileno()))
        with other:
            other.shutdown(socket.SHUT_WR) if how == "ends" else other.send(b"!")
            until = time.monotonic() + 60
            while not select.select([wire._transport.get_extra_info("socket").fileno()], [], [], 0.01)[0]:
                assert time.monotonic() < until
        assert wire.is_open()
        outcome = await target.execute(assignment(url, http_method="POST"))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert len(sockets) == 2


@pytest.mark.parametrize("last", [b"H", b"HTTP/1.1 200 OK\r\nContent-Le", http(200, b"half")[:-2]])
async def test_a_request_is_not_sent_again_once_an_answer_has_begun(target, last):
    async with listening(tired(http(200, b"first"), last)) as sink:
        await target.execute(assignment(sink.url()))
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.failure == "connection_lost"
    assert (sink.connections, len(sink.asked)) == (1, 2)
    assert outcome.error_details["address"] == f"127.0.0.1:{sink.port}"


async def test_a_request_is_sent_again_only_once(target):
    async def answer(_asked, line):
        if len(line.sink.asked) == 1:
            await line.say(http(200))
        else:
            line.writer.close()

    async with listening(answer) as sink:
        await target.execute(assignment(sink.url()))
        outcome = await target.execute(assignment(sink.url()))
    assert (outcome.failure, outcome.error_details["resent"]) == ("connection_lost", True)
    assert len(sink.asked) == 3


async def test_at_most_once_is_never_sent_again_and_leaves_nothing_to_share(target):
    async with listening(tired(http(200))) as sink:
        await target.execute(assignment(sink.url()))  # leaves a connection
        outcome = await target.execute(assignment(sink.url(), delivery=Delivery.AT_MOST_ONCE))
        assert outcome.kind is OutcomeKind.SUCCESS
        assert len(open_now(target)) == 1
    assert (sink.connections, len(sink.asked)) == (2, 2)
    assert [asked.headers.get("connection") for asked in sink.asked] == [None, "close"]


async def test_the_deadline_holds_for_both_sendings_together(target):
    async def answer(asked, line):
        if len(line.sink.asked) == 1:
            await line.say(http(200))
        elif line.sink.connections == 1:
            await asyncio.sleep(3)
            line.writer.close()
        else:
            await line.until_dropped()

    async with listening(answer) as sink:
        await target.execute(assignment(sink.url()))
        began = time.monotonic()
        outcome = await target.execute(assignment(sink.url(), timeout_seconds=3.5))
    assert outcome.failure == "timeout"
    assert time.monotonic() - began < 6, "3.5 s for each sending would be 6.5"
    assert len(sink.asked) == 3


async def test_the_deadline_of_the_call_holds_while_connecting(opened):
    target = await opened(connect_timeout=60, resolver=Names("127.0.0.1", seconds=60))
    began = time.monotonic()
    outcome = await target.execute(assignment("http://slow.test/", timeout_seconds=0.2))
    assert outcome.failure == "timeout"
    assert time.monotonic() - began < 30


async def test_if_an_address_refuses_the_next_one_is_tried(opened):
    target = await opened(resolver=Names("127.0.0.3", "127.0.0.2", "127.0.0.1"))
    async with listening(replies(200, b"well")) as sink:
        outcome = await target.execute(assignment(sink.url(host="three.test")))
    assert outcome.bodies.response_body == "well"


async def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(opened):
    target = await opened(connect_timeout=1.0, resolver=Names("127.0.0.2", "127.0.0.1"))
    with contextlib.ExitStack() as held:
        deaf, well = map(held.enter_context, bound_to_one_port("127.0.0.2", "127.0.0.1"))
        make_deaf(deaf, held)
        sink = await asyncio.start_server(_well, sock=well)
        outcome = await target.execute(assignment(f"http://two.test:{deaf.getsockname()[1]}/"))
        sink.close()
    assert outcome.kind is OutcomeKind.SUCCESS


async def _well(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(http(200, Connection="close"))
    writer.close()


async def test_every_address_passes_the_guard_before_it_is_dialled(opened):
    seen = []

    class Watching(AddressGuard):
        def check(self, address, port=None):
            seen.append((address, port))
            super().check(address, port)

    target = await opened(guard=Watching(deny_networks=["127.0.0.2/32"]), resolver=Names("127.0.0.3", "127.0.0.2"))
    async with listening(replies()) as sink:
        outcome = await target.execute(assignment(sink.url(host="two.test")))
    assert seen == [("127.0.0.3", sink.port), ("127.0.0.2", sink.port)]
    assert outcome.failure == "connection_refused"
    assert outcome.error_details["address"] == f"127.0.0.3:{sink.port}"


async def test_a_name_is_looked_up_once_for_many_calls(opened):
    names = Names("127.0.0.1", seconds=0.05)
    target = await opened(resolver=names)
    async with listening(replies()) as sink:
        url = sink.url(host="many.test")
        outcomes = await asyncio.gather(
            *(target.execute(assignment(url, delivery=Delivery.AT_MOST_ONCE)) for _ in range(10))
        )
        await target.execute(assignment(url, delivery=Delivery.AT_MOST_ONCE))
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SUCCESS}
    assert names.asked == 1


async def test_the_addresses_of_a_name_share_the_calls(opened):
    target = await opened(resolver=Names("127.0.0.1", "127.0.0.2"))
    server = await asyncio.start_server(_well, "0.0.0.0", 0)
    url = f"http://two.test:{server.sockets[0].getsockname()[1]}/"
    dialled = set()
    for _ in range(2):
        await target.execute(assignment(url))
        dialled.add(tuple(target._pool.names._known["two.test"][1]))
    server.close()
    assert dialled == {("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")}


async def test_a_cancel_while_connecting_leaves_nothing(opened):
    target = await opened(resolver=Names("127.0.0.1", seconds=0.1))
    async with listening(silence) as sink:
        for seconds in (0.0, 0.05, 0.1, 0.101, 0.105):
            target._pool.names.forget()
            call = asyncio.create_task(target.execute(assignment(sink.url(host="slow.test"))))
            await asyncio.sleep(seconds)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await gone(target)


async def test_to_close_the_target_ends_what_is_under_way(opened):
    target = await opened()
    async with listening(silence) as sink:
        call = asyncio.create_task(target.execute(assignment(sink.url(), timeout_seconds=60)))
        await asyncio.wait_for(sink.reached.wait(), 60)
        await target.close()
        outcome = await asyncio.wait_for(call, 60)
        await asyncio.wait_for(sink.dropped.wait(), 60)
    assert outcome.failure == "connection_lost"


async def test_to_close_the_target_does_not_make_half_an_answer_whole(opened):
    target = await opened()

    async def answer(_asked, line):
        await line.say(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await line.until_dropped()

    async with listening(answer) as sink:
        call = asyncio.create_task(target.execute(assignment(sink.url(), timeout_seconds=60)))
        await asyncio.wait_for(sink.reached.wait(), 60)
        await asyncio.sleep(0.05)
        await target.close()
        outcome = await asyncio.wait_for(call, 60)
    assert outcome.failure == "connection_lost"
    assert outcome.bodies.truncated


async def test_a_body_that_ends_with_the_connection_is_whole(target):
    async with listening(says(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end")) as sink:
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.bodies.response_body == "to the end"
    assert not outcome.bodies.truncated


async def test_interim_answers_are_passed_over(target):
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with listening(says(interim + http(200, b"end"))) as sink:
        outcome = await target.execute(assignment(sink.url(), headers={"Expect": "100-continue"}))
    assert (outcome.response_code, outcome.bodies.response_body) == (200, "end")
    assert "Link" not in outcome.bodies.response_headers


async def test_a_long_body_arrives_as_it_was_sent(target, monkeypatch):
    hits = []
    monkeypatch.setattr(failpoint, "hit", hits.append)
    body = "".join(f"{number:07x}\n" for number in range(900_000))
    async with listening(replies(200, b"got it")) as sink:
        outcome = await target.execute(
            assignment(sink.url(), http_method="POST", body_template=body, timeout_seconds=30)
        )
    assert outcome.bodies.response_body == "got it"
    assert sink.asked[0].body == body.encode()
    assert hits == ["K5"]


async def test_the_name_in_the_url_is_what_tls_asks_for(opened, certificate):
    """SNI, and the certificate that is checked, are those of the URL's host; the address is the one that was looked up."""
    asked_for = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    trusting = ssl.create_default_context(cafile=f"{certificate}.crt")
    target = await opened(ssl_context=trusting, resolver=Names("127.0.0.1"))
    async with listening(replies(200, b"well"), tls) as sink:
        named = await target.execute(assignment(sink.url(host="secure.test")))
        other = await target.execute(assignment(sink.url(host="other.test")))
        again = await target.execute(assignment(sink.url(host="secure.test")))
    assert named.kind is again.kind is OutcomeKind.SUCCESS
    assert other.failure == "tls"
    assert asked_for == ["secure.test", "other.test"]
    assert len(sink.asked) == 2
