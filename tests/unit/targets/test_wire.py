"""One connection, without a network: how answers are cut out of bytes, and what a connection is good for afterwards."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.engine import failpoint
from noonbell.targets.http.connection import (
    LONGEST_HEAD,
    MOST_MEMBERS,
    BrokenBody,
    Disconnected,
    HttpConnection,
    HttpExchange,
    HttpOrigin,
    NotHttp,
    TooLarge,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
HELLO = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PLACE = HttpOrigin("http", "target.test", 80)


class Line(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol, self.sent, self.is_gone, self.waiting = protocol, [], False, 0

    def write(self, data):
        self.sent.append(bytes(data))

    def is_closing(self):
        return self.is_gone

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def get_write_buffer_size(self):
        return self.waiting

    def abort(self):
        if not self.is_gone:
            self.is_gone = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Call:
    """A connection with a request under way."""

    def __init__(self, wire: HttpConnection | None = None, *, limit: int = 1 << 20, **how) -> None:
        loop = asyncio.get_running_loop()
        if wire is None:
            wire = HttpConnection(PLACE, "192.0.2.1", "192.0.2.1:80", loop, lambda _wire: None)
            wire.connection_made(Line(wire))
        self.wire, self.line, self.exchange = wire, wire._transport, HttpExchange(limit)
        how = {"is_head": False, "follows": False, "content": None} | how
        content = how.pop("content")
        self.done = wire.ask(b"head\r\n\r\n", content, self.exchange, **how)

    def hear(self, *parts: bytes):
        for part in parts:
            if not self.line.is_gone:
                self.wire.data_received(part)
        return self

    def end(self, error: Exception | None = None):
        self.line.is_gone = True
        self.wire.connection_lost(error)
        return self

    @property
    def error(self) -> Exception | None:
        assert self.done.done(), "the answer is not at its end"
        return self.done.result()

    def text(self) -> str:
        """The body of an answer that was well."""
        assert self.error is None
        assert self.exchange.is_whole
        return self.exchange.body.decode()


async def test_an_answer_of_a_length_is_whole_at_its_last_byte():
    call = Call().hear(HELLO[:-1])
    assert not call.done.done()
    assert call.hear(b"o").text() == "hello"
    assert (call.exchange.status, call.exchange.reason) == (200, "OK")
    assert call.exchange.headers == {"Content-Length": "5"}
    assert call.wire.keeps


async def test_a_connection_carries_one_request_after_the_other():
    call = Call().hear(HELLO)
    for _ in range(3):
        assert call.wire.keeps
        call = Call(call.wire).hear(HEAD + b"X-A: b\r\nContent-Length: 2\r\n\r\nyo")
        assert call.text() == "yo"
        assert call.exchange.headers == {"X-A": "b", "Content-Length": "2"}
    assert call.line.sent == [b"head\r\n\r\n"] * 4


WHOLE = {
    "chunks": (CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", True),
    "no chunk but the last": (CHUNKED + b"0\r\n\r\n", "", True),
    "extensions and capital digits": (CHUNKED + b'A;name="v;w"\r\nhellohello\r\n0;x\r\n\r\n', "hellohello", True),
    "sizes with leading zeros": (CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n", "hello", True),
    "a blank behind the size": (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", "hello", True),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", "hello", True),
    "lines that end in LF": (HELLO.replace(b"\r\n", b"\n"), "hello", True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "", True),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, "hello", True),
    "103 with headers first": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3 + HELLO, "hello", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", "", True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", True),
    "connection: close": (HEAD + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", "hello", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", False),
    "HTTP/1.0 that stays": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", "", True),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("by", [1, 7, 1 << 20])
async def test_what_http_allows_is_an_answer(name, by):
    data, body, keeps = WHOLE[name]
    call = Call().hear(*(data[at : at + by] for at in range(0, len(data), by)))
    assert call.text() == body
    assert call.wire.keeps is keeps
    assert "Link" not in call.exchange.headers
    assert call.line.is_gone is not keeps


async def test_trailers_are_not_taken_for_headers_of_this_answer_or_the_next():
    call = Call().hear(WHOLE["trailers"][0])
    assert call.exchange.headers == {"Transfer-Encoding": "chunked"}
    call = Call(call.wire).hear(HELLO)
    assert call.exchange.headers == {"Content-Length": "5"}


@pytest.mark.parametrize("how", [b"\r\n", b"Transfer-Encoding: identity\r\n\r\n", b"Connection: close\r\n\r\n"])
async def test_a_body_without_a_length_ends_with_the_connection(how):
    call = Call().hear(HEAD + how + b"hel", b"lo")
    assert not call.done.done()
    assert call.end().text() == "hello"


async def test_a_reset_is_not_the_end_of_a_body():
    call = Call().hear(HEAD + b"\r\nhello").end(ConnectionResetError())
    assert isinstance(call.error, Disconnected)
    assert (call.exchange.is_whole, bytes(call.exchange.body)) == (False, b"hello")


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 20", HEAD, HELLO[:-1], CHUNKED + b"5\r\nhello\r\n", CHUNKED + b"5\r\nhello\r\n0\r\n"]
)
async def test_a_connection_that_ends_too_early_leaves_no_whole_answer(data):
    call = Call().hear(*([data] if data else [])).end()
    assert isinstance(call.error, Disconnected)
    assert call.wire.has_begun is bool(data)
    assert not call.exchange.is_whole


NOT_HTTP = {
    "HTTP/0.9": b"<html>hello</html>",
    "HTTP/0.9 by number": HELLO.replace(b"1.1", b"0.9"),
    "HTTP/2": HELLO.replace(b"1.1", b"2.0"),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a status of two digits": HELLO.replace(b"200", b"20"),
    "a status below 100": HELLO.replace(b"200", b"099"),
    "a switch that nobody asked for": b"HTTP/1.1 101 Switching\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nfree",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a name with a blank": HEAD + b"X A: b\r\n\r\n",
    "NUL in a value": HEAD + b"X-A: a\0b\r\n\r\n",
    "a long name": HEAD + b"x" * 2000 + b": y\r\n\r\n",
    "a long value": HEAD + b"X-A: " + b"x" * LONGEST_HEAD + b"\r\n\r\n",
    "many headers": HEAD + b"X-A: b\r\n" * 9000 + b"\r\n",
    "many answers before the answer": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5000,
    "a length and no length": HEAD + b"Content-Length: 5\r\nContent-Length: five\r\n\r\nhello",
    "two lengths in one line": HEAD + b"Content-Length: 5, 6\r\n\r\nhello!",
}


def packed(body: bytes, wbits: int = 31) -> bytes:
    pack = zlib.compressobj(wbits=wbits)
    return pack.compress(body) + pack.flush()


def encoded(body: bytes, encoding: str = "gzip") -> bytes:
    """An answer whose body is `body`, as it is on the wire."""
    return HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(body)) + body


def in_chunks(head: bytes, body: bytes) -> bytes:
    return HEAD + head + b"\r\n%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (3, body[:3], len(body) - 3, body[3:])


TWICE = b"Content-Length: 5\r\n"
ENDS_ONCE_WHOLE = {
    "204 with a body": (b"HTTP/1.1 204 No Content\r\n\r\nhello", ""),
    "204 with a body and its length": (b"HTTP/1.1 204 No Content\r\n" + TWICE + b"\r\nhello", ""),
    "204 with chunks": (CHUNKED.replace(b"200 OK", b"204 No Content") + b"5\r\nhello\r\n0\r\n\r\n", ""),
    "304 with a body": (b"HTTP/1.1 304 Not Modified\r\n" + TWICE + b"\r\nhello", ""),
    "garbage behind the answer": (HELLO + b"GARBAGE", "hello"),
    "garbage behind the last chunk": (CHUNKED + b"5\r\nhello\r\n0\r\n\r\nGARBAGE", "hello"),
    "garbage behind an answer that closes": (
        HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"!",
        "hello",
    ),
    "more bytes than the length": (HELLO + b" world", "hello"),
    "another answer": (HELLO + HELLO, "hello"),
    "an answer of HTTP/2": (HELLO + HELLO.replace(b"1.1", b"2.0"), "hello"),
    "the same length twice": (HEAD + TWICE + b"X-A: b\r\n" + TWICE + b"\r\nhello", "hello"),
    "the same length twice behind an interim answer": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HEAD + TWICE * 2 + b"\r\nhello",
        "hello",
    ),
    "the same length three times": (HEAD + TWICE * 2 + b"content-length: 5\r\n\r\nhello", "hello"),
    "the same length twice, lines that end in LF": (
        (HEAD + TWICE * 2 + b"\r\nhello").replace(b"\r\n", b"\n"),
        "hello",
    ),
    "the same length twice in one line": (HEAD + b"Content-Length: 5, 5\r\n\r\nhello", "hello"),
    "gzip": (encoded(packed(b"hello")), "hello"),
    "gzip of two texts": (encoded(packed(b"hello") + packed(b" world")), "hello world"),
    "gzip with zeros behind it": (encoded(packed(b"hello") + bytes(20)), "hello"),
    "gzip with words behind it": (encoded(packed(b"hello") + b"padding"), "hello"),
    "gzip with the start of a magic number behind it": (encoded(packed(b"hello") + b"\x1f"), "hello"),
    "gzip of two texts with zeros behind it": (encoded(packed(b"hello") + packed(b"!") + b"\x1f\0"), "hello!"),
    "deflate with zeros behind it": (encoded(packed(b"hello", 15) + bytes(9), "deflate"), "hello"),
    "bare deflate with zeros behind it": (encoded(packed(b"hello", -15) + bytes(9), "deflate"), "hello"),
    "gzip for the transfer": (in_chunks(b"Transfer-Encoding: gzip, chunked\r\n", packed(b"hello")), "hello"),
    "gzip for the transfer, in two lines": (
        in_chunks(b"Transfer-Encoding: x-gzip\r\nTransfer-Encoding: Chunked\r\n", packed(b"hello")),
        "hello",
    ),
    "gzip in gzip for the transfer": (
        in_chunks(b"Content-Encoding: gzip\r\nTransfer-Encoding: gzip, chunked\r\n", packed(packed(b"hello"))),
        "hello",
    ),
}


def splits(data: bytes) -> list[list[bytes]]:
    """The data whole, cut in two at every place, and byte by byte."""
    pairs = [[data[:at], data[at:]] for at in range(1, len(data))]
    return [[data], *pairs, [data[at : at + 1] for at in range(len(data))]]


@pytest.mark.parametrize("name", ENDS_ONCE_WHOLE)
async def test_an_answer_counts_once_it_is_whole_however_it_is_split(name):
    data, body = ENDS_ONCE_WHOLE[name]
    for parts in splits(data):
        call = Call().hear(*parts)
        assert call.text() == body, parts
        assert call.exchange.status == int(data.partition(HEAD[:9])[2][:3]) or "interim" in name


@pytest.mark.parametrize("name", ["the same length twice", "204 with a body", "garbage behind the answer"])
async def test_after_an_odd_answer_the_connection_is_dropped(name):
    call = Call().hear(ENDS_ONCE_WHOLE[name][0])
    assert call.error is None
    assert call.line.is_gone
    assert not call.wire.keeps


async def test_a_body_for_the_transfer_alone_ends_with_the_connection():
    for parts in splits(HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + packed(b"hello")):
        assert Call().hear(*parts).end().text() == "hello"


CUT_AT_EIGHT = {
    "a body of a length": HEAD + b"Content-Length: 20\r\n\r\n" + b"hellohellohellohello",
    "chunks": in_chunks(b"Transfer-Encoding: chunked\r\n", b"hellohello"),
    "gzip": encoded(packed(b"hellohello")),
    "gzip of two texts": encoded(packed(b"hello") + packed(b"hello")),
    "gzip that is broken further on": encoded(packed(b"hello") + packed(b"hello!")[:-6] + b"broken"),
}


@pytest.mark.parametrize("name", CUT_AT_EIGHT)
async def test_the_cap_cuts_at_the_same_byte_however_the_answer_is_split(name):
    for parts in splits(CUT_AT_EIGHT[name]):
        call = Call(limit=8).hear(*parts)
        assert isinstance(call.error, TooLarge), parts
        assert (bytes(call.exchange.body), call.exchange.is_whole) == (b"hellohel", False)


async def test_an_answer_is_refused_for_the_same_reason_however_it_is_split():
    for data in (NOT_HTTP["two lengths"], NOT_HTTP["two lengths in one line"], NOT_HTTP["length and chunks"]):
        for parts in splits(data):
            assert isinstance(Call().hear(*parts).error, NotHttp), parts
    for data in (
        encoded(packed(b"hello") + packed(b"hello")[:-9]),
        encoded(b"hello"),
        encoded(packed(b"x") + b"\x1f\x8b!"),
    ):
        for parts in splits(data):
            assert isinstance(Call().hear(*parts).error, zlib.error), parts


@pytest.mark.parametrize("by", [1000, 1 << 20])
async def test_trailers_are_too_long_whether_they_come_at_once_or_not(by):
    data = CHUNKED + b"5\r\nhello\r\n0\r\n" + b"X-T: y\r\n" * 20_000 + b"\r\n"
    assert isinstance(Call().hear(*(data[at : at + by] for at in range(0, len(data), by))).error, BrokenBody)


async def test_a_gzip_of_very_many_texts_is_cut():
    call = Call().hear(encoded(packed(b"x") * (MOST_MEMBERS + 1)))
    assert isinstance(call.error, TooLarge)
    assert call.exchange.body == b"x" * MOST_MEMBERS
    assert Call().hear(encoded(packed(b"x") * MOST_MEMBERS)).text() == "x" * MOST_MEMBERS


async def test_compressed_bytes_that_make_nothing_count_against_the_cap():
    nothing = b"\0\0\0\xff\xff" * 40_000  # empty blocks
    call = Call(limit=100).hear(HEAD + b"Content-Encoding: deflate\r\n\r\n" + b"\x78\x9c" + nothing)
    assert isinstance(call.error, TooLarge)
    assert call.exchange.body == b""


async def test_a_raw_deflate_whose_last_bytes_are_made_late_is_whole():
    body = b"a" * (256 * 1024)
    data = encoded(packed(body, -15), "deflate")
    assert Call().hear(data).text() == body.decode()


async def test_after_a_long_read_other_calls_have_their_turn():
    call = Call(limit=1 << 24).hear(HEAD + b"Content-Length: 1000000\r\n\r\n" + bytes(100_000))
    assert call.line.is_paused
    await asyncio.sleep(0)
    assert not call.line.is_paused


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("timeout=5, max=100", 5), ("max=100, timeout=7", 7), ("Timeout=0", 0), ("max=9", None), ("timeout=x", None)],
)
async def test_a_connection_knows_how_long_the_target_keeps_it(said, seconds):
    call = Call().hear(HEAD + f"Keep-Alive: {said}\r\nContent-Length: 0\r\n\r\n".encode())
    assert call.wire.idle_seconds == seconds
    assert Call(call.wire).hear(HELLO).wire.idle_seconds is None


@pytest.mark.parametrize("data", NOT_HTTP.values(), ids=NOT_HTTP.keys())
@pytest.mark.parametrize("by", [1000, 1 << 20])
async def test_what_is_not_http_is_refused_and_the_connection_dropped(data, by):
    call = Call().hear(*(data[at : at + by] for at in range(0, len(data), by)))
    assert isinstance(call.error, NotHttp)
    assert str(call.error)
    assert call.line.is_gone
    assert not call.wire.keeps


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n",
        b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"ffffffffffffffffff\r\nhello",
        b"5\r\nhello\r\n0\r\nX-Endless: " + b"x" * (2 * LONGEST_HEAD),
        b"5;" + b"x" * (2 * LONGEST_HEAD),
        b"5\r\nhello\r\n0\r\n" + b"X-T: y\r\n" * 20_000,
    ],
    ids=lambda data: str(data[:20]),
)
async def test_a_bad_chunk_is_a_broken_body(data):
    call = Call().hear(CHUNKED, *(data[at : at + 1000] for at in range(0, len(data), 1000)))
    assert isinstance(call.error, BrokenBody)
    assert call.line.is_gone


async def test_a_head_of_almost_the_limit_is_well():
    data = HEAD + b"X-A: " + b"x" * (LONGEST_HEAD - 100) + b"\r\nContent-Length: 0\r\n\r\n"
    assert Call().hear(*(data[at : at + 5000] for at in range(0, len(data), 5000))).text() == ""


async def test_many_tiny_chunks_are_no_long_head():
    call = Call().hear(CHUNKED, *[b"1\r\nx\r\n"] * 20_000, b"0\r\n\r\n")
    assert call.text() == "x" * 20_000


@pytest.mark.parametrize("second", [HELLO, HELLO[:5], HEAD])
async def test_a_second_answer_is_not_taken_and_ends_the_connection(second):
    call = Call().hear(HELLO + second)
    assert call.text() == "hello"
    assert call.line.is_gone
    assert not call.wire.keeps


class Socket(Line):
    """A transport with a socket that the loop does not read."""

    def __init__(self, protocol: asyncio.Protocol, held: socket.socket) -> None:
        super().__init__(protocol)
        self.held = held

    def get_extra_info(self, name, default=None):
        return self.held if name == "socket" else default


@pytest.fixture
def idle():
    """An idle connection, and the other end of its socket."""
    here, there = socket.socketpair()
    loop = asyncio.new_event_loop()
    wire = HttpConnection(PLACE, "192.0.2.1", "192.0.2.1:80", loop, lambda _wire: None)
    wire.connection_made(Socket(wire, here))
    with here, there:
        yield wire, there
    loop.close()


@pytest.mark.parametrize("change", [lambda there: there.send(b"!"), lambda there: there.close()], ids=["byte", "end"])
def test_what_has_come_on_an_idle_connection_is_seen_before_the_loop_has_read_it(idle, change):
    wire, there = idle
    assert [wire.is_quiet(), wire.is_quiet()] == [True, True]
    change(there)
    assert not wire.is_quiet()


def test_a_connection_that_is_closing_is_not_quiet(idle):
    wire, _ = idle
    wire._transport.is_gone = True
    assert not wire.is_quiet()


def test_a_look_at_an_idle_connection_lets_no_other_thread_in_between(idle):
    wire, _ = idle
    turns, is_over = [], threading.Event()

    def take_turns():
        while not is_over.wait(0.0001):
            turns.append(len(turns))

    before = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that does not let go of the interpreter keeps it
    thread = threading.Thread(target=take_turns)
    try:
        thread.start()
        seen = len(turns)
        looks = [wire.is_quiet() for _ in range(20_000)]
        turns_meanwhile = len(turns) - seen
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(before)
    assert all(looks)
    assert turns_meanwhile == 0


async def test_bytes_on_an_idle_connection_end_it():
    call = Call().hear(HELLO)
    call.wire.data_received(b"H")
    assert not call.wire.is_open()
    assert not call.wire.keeps
    assert isinstance(Call(call.wire).error, Disconnected)


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"Content-Length: 100\r\n\r\n", True),
        (b"Transfer-Encoding: chunked\r\n\r\n", True),
        (b"Content-Length: 0\r\n\r\n", True),
        (b"\r\n", False),
        (b"Connection: close\r\nContent-Length: 100\r\n\r\n", False),
        (b"Content-Length: 5\r\n\r\nhello", False),
        (b"Transfer-Encoding: chunked\r\n\r\ngarbage", False),
    ],
)
async def test_an_answer_to_head_has_no_body(head, keeps):
    call = Call(is_head=True).hear(HEAD + head)
    assert call.text() == ""
    assert call.wire.keeps is keeps
    if keeps:
        assert Call(call.wire).hear(HELLO).text() == "hello"


@pytest.mark.parametrize(
    ("answer", "keeps"),
    [
        (b"Content-Length: 0\r\n\r\n", True),
        (b"Content-Length: 5\r\n\r\nmoved", True),
        (b"Content-Length: 500\r\n\r\nmoved", False),
        (b"\r\nmoved", False),
    ],
)
async def test_the_body_of_a_redirect_that_is_followed_is_not_waited_for(answer, keeps):
    call = Call(follows=True).hear(b"HTTP/1.1 302 Found\r\nLocation: /z\r\n" + answer)
    assert call.error is None
    assert call.exchange.watched == {"location": "/z"}
    assert call.exchange.body == b""
    assert call.wire.keeps is keeps
    other = Call(follows=True).hear(HELLO)
    assert other.text() == "hello"


async def test_the_cap_stops_the_reading():
    call = Call(limit=8).hear(HEAD + b"Content-Length: 100\r\n\r\nhello", b"hello")
    assert isinstance(call.error, TooLarge)
    assert call.exchange.body == b"hellohel"
    assert call.line.is_gone


async def test_a_compressed_body_that_ends_in_the_middle_is_broken():
    data = zlib.compress(b"hello" * 100)[:-4]
    call = Call().hear(HEAD + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    assert isinstance(call.error, zlib.error)
    assert not call.wire.keeps


async def test_headers_are_joined_and_found_in_any_case():
    call = Call().hear(
        HEAD + "X-A: ä\r\nx-a: b\r\nX-A: c\r\nRETRY-after: 7\r\n".encode() + b"Content-Length: 0\r\n\r\n"
    )
    assert call.exchange.headers == {"X-A": "ä, c", "x-a": "b", "RETRY-after": "7", "Content-Length": "0"}
    assert call.exchange.watched == {"retry-after": "7"}


async def test_a_drop_is_at_once_and_tells_nobody():
    call = Call()
    call.wire.drop()
    assert call.line.is_gone
    await asyncio.sleep(0)
    assert not call.done.done()


def held() -> int:
    gc.collect()
    return sum(issubclass(type(one), HttpConnection) for one in gc.get_objects())


async def test_a_connection_that_has_ended_is_not_held_on_to():
    before = held()
    call = Call().hear(HELLO)
    assert held() == before + 1
    call.end()
    del call
    assert held() == before


async def test_a_short_body_goes_out_with_its_head_in_one_piece():
    assert Call(content=b"body").line.sent == [b"head\r\n\r\nbody"]


async def test_a_long_body_goes_out_piece_by_piece_as_fast_as_it_is_taken(monkeypatch, skip_time):
    hits = []
    monkeypatch.setattr(failpoint, "hit", hits.append)
    content = bytes(range(256)) * 4096
    call = Call(content=content)
    call.wire.pause_writing()
    await skip_time(0)
    assert len(call.line.sent) == 2
    assert hits == []
    assert call.wire.unsent() > 0
    call.wire.resume_writing()
    await skip_time(0)
    assert b"".join(call.line.sent) == b"head\r\n\r\n" + content
    assert hits == ["K5"]
    assert call.hear(HELLO).text() == "hello"
    assert call.wire.keeps


async def test_an_answer_before_the_request_was_sent_ends_the_connection():
    call = Call()
    call.line.waiting = 1
    assert call.hear(HELLO).text() == "hello"
    assert call.line.is_gone


TOKEN = st.text("abcXYZ-", min_size=1, max_size=8).map(lambda name: f"X-{name}")
VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@st.composite
def answers(draw) -> tuple[bytes, bytes, dict[str, str], bool]:
    """The bytes of an answer, its body, its headers, and whether it ends with the connection."""
    body = draw(st.binary(max_size=200))
    fields = draw(st.dictionaries(TOKEN, VALUE, max_size=5))
    how = draw(st.sampled_from(["length", "chunks", "close"]))
    before = draw(
        st.lists(st.sampled_from([b"HTTP/1.1 100 \r\n\r\n", b"HTTP/1.1 103 Hi\r\nLink: x\r\n\r\n"]), max_size=2)
    )
    sent = body
    if how == "length":
        fields["Content-Length"] = str(len(body))
    if how == "chunks":
        fields["Transfer-Encoding"] = "chunked"
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=5)))
        ends = zip([0, *cuts], [*cuts, len(body)], strict=True)
        pieces = [body[start:end] for start, end in ends if body[start:end]]
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        sent += b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: t\r\n"])) + b"\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return b"".join(before) + HEAD + lines.encode() + b"\r\n" + sent, body, fields, how == "close"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_answer_is_the_same_however_it_is_split(data):
    """Two answers on one connection, each in pieces of any size."""

    async def hear() -> None:
        wire = None
        for _ in range(2):
            sent, body, fields, is_closed = data.draw(answers())
            cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=12)))
            parts = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
            call = Call(wire).hear(*parts)
            if is_closed:
                assert not call.done.done()
                call.end()
            assert call.error is None
            assert bytes(call.exchange.body) == body
            assert call.exchange.headers == fields
            assert call.wire.keeps is not is_closed
            wire = None if is_closed else call.wire

    asyncio.run(hear())
