"""Targets that misbehave: each call ends in time, in little memory, under its name, and the next one is well."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import ssl
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from integration.targets.sink import Answer, drips, http, listening, replies, says, silence
from noonbell.model.run import Outcome, OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.targets.http.target import HttpTarget
from services.ports import make_deaf
from unit.targets.make import assignment

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CAP = 256 * 1024
TIMEOUT = 0.4


async def call(target: HttpTarget, answer: Answer, **fields: object) -> Outcome:
    """One call, which must end long before the longest deadline; and then another, which must be well."""
    fields.setdefault("timeout_seconds", TIMEOUT)
    async with listening(answer) as sink:
        began = time.monotonic()
        outcome = await target.execute(assignment(sink.url(), **fields))
        assert time.monotonic() - began < 15
        await asyncio.wait_for(sink.dropped.wait(), 60)
    async with listening(replies(200, b"well")) as sink:
        after = await target.execute(assignment(sink.url()))
    assert after.kind is OutcomeKind.SUCCESS
    assert after.bodies.response_body == "well"
    return outcome


NOT_HTTP = {
    "garbage": os.urandom(4096),
    "garbage lines": b"\r\n".join([os.urandom(16).hex().encode()] * 50) + b"\r\n\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a TLS record": b"\x15\x03\x01\x00\x02\x02\x28",
    "a status that is no number": b"HTTP/1.1 abc OK\r\n\r\n",
    "a length that is no number": HEAD + b"Content-Length: many\r\n\r\nhello",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\nhello",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a chunk size that is no number": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
    "a chunk without an end": CHUNKED + b"5\r\nhelloworld\r\n0\r\n\r\n",
    "a header line of a megabyte": HEAD + b"X-Long: " + b"x" * (1 << 20) + b"\r\n\r\n",
    "ten thousand headers": HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
    "a NUL in a header": HEAD + b"X-Nul: a\0b\r\nContent-Length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nfree text",
    "gzip that is none": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    "half a gzip": http(200, gzip.compress(os.urandom(1000))[:500], Content_Encoding="gzip"),
}

ENDS_TOO_EARLY = {
    "nothing at all": b"",
    "half a status line": b"HTTP/1.1 20",
    "half the headers": HEAD + b"Content-Length: 5\r\nX-",
    "less than the length": HEAD + b"Content-Length: 100\r\n\r\nhello",
    "a chunk that is too short": CHUNKED + b"ff\r\nhello\r\n0\r\n\r\n",
    "chunks without a last one": CHUNKED + b"5\r\nhello\r\n",
}


@pytest.mark.parametrize("data", NOT_HTTP.values(), ids=NOT_HTTP.keys())
async def test_an_answer_that_is_not_http_is_a_protocol_error(target, data):
    outcome = await call(target, says(data))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "protocol_error")
    assert outcome.error_message
    assert "\n" not in outcome.error_message


async def test_a_target_that_resets_the_connection_is_a_lost_connection(target):
    async def reset(_asked, line):
        line.writer.transport.abort()

    assert (await call(target, reset)).failure == "connection_lost"


@pytest.mark.parametrize("data", ENDS_TOO_EARLY.values(), ids=ENDS_TOO_EARLY.keys())
async def test_an_answer_that_breaks_off_is_a_lost_connection(target, data):
    outcome = await call(target, says(data))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILURE, "connection_lost")


ENDLESS = {
    "silence": silence,
    "one byte of the head at a time": drips(b"", b"H", 0.02),
    "one header at a time": drips(HEAD, b"X-Drip: 1\r\n", 0.02),
    "one byte of the body at a time": drips(HEAD + b"Content-Length: 100000\r\n\r\n", b"x", 0.02),
    "chunks for ever": drips(CHUNKED, b"1\r\nx\r\n", 0.02),
    "a body without a length": drips(HEAD + b"\r\n", b"x", 0.02),
    "server-sent events": drips(HEAD + b"Content-Type: text/event-stream\r\n\r\n", b"data: tick\n\n", 0.02),
    "continue, continue": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
    "early hints for ever": drips(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.001),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_answer_that_never_ends_is_cut_at_the_deadline(target, name):
    outcome = await call(target, ENDLESS[name])
    # A trickle of letters is no status line: the parser may be quicker than the deadline.
    assert outcome.failure in (
        {"timeout", "protocol_error"} if name.startswith("one byte of the head") else {"timeout"}
    )


async def test_what_came_before_the_deadline_is_kept_and_flagged(target):
    outcome = await call(target, drips(HEAD + b"Content-Length: 1000\r\n\r\nthe start", b"", 0.02))
    assert (outcome.failure, outcome.response_code) == ("timeout", 200)
    assert outcome.bodies.response_body == "the start"
    assert outcome.bodies.truncated


def flood(part: bytes, start: bytes = HEAD + b"\r\n") -> Answer:
    """As much as the client will take."""

    async def answer(_asked, line):
        with contextlib.suppress(ConnectionError):
            await line.say(start)
            while True:
                await line.say(part)
        line.writer.close()

    return answer


FLOODS = {
    "a body without an end": flood(b"x" * 65536),
    "a body of 10 GB": flood(b"x" * 65536, HEAD + b"Content-Length: 10000000000\r\n\r\n"),
    "chunks without an end": flood(b"10000\r\n" + b"x" * 65536 + b"\r\n", CHUNKED),
}


@pytest.mark.parametrize("answer", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_is_cut_at_the_cap(opened, answer):
    target = await opened(max_body_bytes=CAP)
    tracemalloc.start()
    try:
        outcome = await call(target, answer, timeout_seconds=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (outcome.kind, outcome.failure, outcome.response_code) == (OutcomeKind.SUCCESS, None, 200)
    assert outcome.bodies.response_body == "x" * CAP
    assert outcome.bodies.truncated
    assert peak < 20 * CAP


async def test_a_body_of_just_the_cap_is_whole(opened):
    target = await opened(max_body_bytes=CAP)
    async with listening(replies(200, b"x" * CAP)) as sink:
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.kind is OutcomeKind.SUCCESS
    assert not outcome.bodies.truncated


async def test_an_error_page_that_is_too_long_is_still_that_error(opened):
    target = await opened(max_body_bytes=CAP)
    outcome = await call(
        target, flood(b"x" * 65536, b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n\r\n"), timeout_seconds=20
    )
    assert (outcome.failure, outcome.response_code, outcome.retry_after) == ("http_5xx", 503, 3)
    assert outcome.bodies.truncated


def bomb(megabytes: int, *, gzipped: bool) -> bytes:
    """Zeros, a thousand times smaller than they become."""
    pack = zlib.compressobj(9, wbits=31 if gzipped else 15)
    return b"".join(pack.compress(bytes(1 << 20)) for _ in range(megabytes)) + pack.flush()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_decompression_bomb_is_cut_at_the_cap_in_little_memory(opened, encoding):
    target = await opened(max_body_bytes=CAP)
    body = bomb(300, gzipped=encoding == "gzip")
    tracemalloc.start()
    try:
        outcome = await call(target, says(http(200, body, Content_Encoding=encoding)), timeout_seconds=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.kind is OutcomeKind.SUCCESS
    assert len(outcome.bodies.response_body) == CAP
    assert outcome.bodies.truncated
    assert peak < 20 * CAP


async def test_a_gzip_of_many_empty_ones_ends_at_the_deadline_or_before(target):
    outcome = await call(
        target, says(http(200, gzip.compress(b"") * 20_000, Content_Encoding="gzip")), timeout_seconds=5
    )
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.bodies.truncated


async def test_an_accepted_answer_above_the_cap_is_accepted(opened):
    target = await opened(max_body_bytes=CAP)
    outcome = await call(
        target, flood(b"x" * 65536, b"HTTP/1.1 202 Accepted\r\n\r\n"), timeout_seconds=20, exec_type=ExecType.ASYNC
    )
    assert (outcome.kind, outcome.bodies.truncated) == (OutcomeKind.ACCEPTED, True)


async def test_a_connection_that_is_never_made_ends_at_the_connect_deadline(opened):
    """A listener whose queue is full: the system takes no further connection, and says nothing."""
    target = await opened(connect_timeout=0.3)
    with contextlib.ExitStack() as held:
        port = full_listener(held)
        began = time.monotonic()
        outcome = await target.execute(assignment(f"http://127.0.0.1:{port}/", timeout_seconds=30))
    assert outcome.failure == "connect_timeout"
    assert time.monotonic() - began < 20


def full_listener(held: contextlib.ExitStack) -> int:
    server = held.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    make_deaf(server, held)
    return int(server.getsockname()[1])


class StuckResolver:
    async def resolve(self, host):
        await asyncio.sleep(60)
        raise AssertionError

    async def close(self):
        pass


async def test_a_name_server_that_hangs_ends_at_the_connect_deadline_and_blocks_nobody(opened):
    target = await opened(connect_timeout=2, resolver=StuckResolver())
    async with listening(replies(200, b"well")) as sink:
        began = time.monotonic()
        stuck = asyncio.create_task(target.execute(assignment("http://slow.test/", timeout_seconds=30)))
        other = await target.execute(assignment(sink.url()))
        assert not stuck.done()
        outcome = await stuck
    assert other.kind is OutcomeKind.SUCCESS
    assert outcome.failure == "connect_timeout"
    assert time.monotonic() - began < 20


async def test_name_lookups_do_not_use_the_threads_of_others(target, monkeypatch):
    """A hundred hanging lookups leave the loop's own threads free."""
    hang = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stuck(*_args, **_more):
        asyncio.run_coroutine_threadsafe(hang.wait(), loop).result(10)
        raise OSError("no such name")

    monkeypatch.setattr("noonbell.targets.http.pool.socket.getaddrinfo", stuck)
    calls = [asyncio.create_task(target.execute(assignment(f"http://h{n}.test/"))) for n in range(100)]
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 60) == "free"
    hang.set()
    assert {outcome.failure for outcome in await asyncio.gather(*calls)} == {"dns"}


class NoSuchName(StuckResolver):
    async def resolve(self, host):
        raise OSError(-2, "Name or service not known")


async def test_a_name_that_does_not_exist_is_named_dns(opened):
    target = await opened(resolver=NoSuchName())
    outcome = await target.execute(assignment("http://nowhere.test/"))
    assert outcome.failure == "dns"
    assert "nowhere.test" in outcome.error_message


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "a..b"])
async def test_what_cannot_be_a_name_is_no_reason_to_fall_over(target, host):
    outcome = await target.execute(assignment(f"http://{host}/", timeout_seconds=5))
    assert outcome.failure in {"dns", "fail"}


async def test_a_certificate_that_nobody_trusts_is_refused_before_anything_is_sent(target, opened, certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with listening(replies(200, b"well"), tls) as sink:
        outcome = await target.execute(assignment(sink.url()))
        assert outcome.failure == "tls"
        assert sink.asked == []
        trusting = await opened(ssl_context=ssl.create_default_context(cafile=f"{certificate}.crt"))
        assert (await trusting.execute(assignment(sink.url()))).kind is OutcomeKind.SUCCESS
        outcome = await trusting.execute(assignment(sink.url(host="localhost")))
        assert outcome.failure == "tls"


async def test_https_to_a_plain_server_is_a_tls_error(target):
    async with listening(says(b"HTTP/1.1 400 Bad\r\n\r\n")) as sink:
        outcome = await target.execute(assignment(sink.url().replace("http:", "https:"), timeout_seconds=2))
    assert outcome.failure in {"tls", "connection_refused", "connect_timeout", "timeout"}


async def test_an_early_answer_leaves_no_stuck_connection_behind(target):
    """413 before the body was read, and then silence: what is left of the request is dropped."""

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        writer.write(http(413, b"too much"))
        await done.wait()
        writer.transport.abort()

    done = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    outcome = await target.execute(
        assignment(url, http_method="POST", body_template="x" * (7 << 20), timeout_seconds=5)
    )
    assert (outcome.failure, outcome.response_code) == ("http_4xx", 413)
    await asyncio.sleep(0.05)  # a dropped connection says goodbye in the loop's next rounds
    assert [wire for wire in target._pool._open if wire.is_open()] == []
    done.set()
    server.close()


def open_files() -> int:
    """Of this process; 0 where the system does not say."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.slow
async def test_many_hostile_calls_at_once_leave_nothing_behind(opened):
    target = await opened(max_body_bytes=CAP)
    broken = [*list(NOT_HTTP.values())[:10], *ENDS_TOO_EARLY.values()]
    answers = [*ENDLESS.values(), *FLOODS.values(), *(says(data) for data in broken)]
    before = open_files()
    async with contextlib.AsyncExitStack() as held:
        sinks = [await held.enter_async_context(listening(answer)) for answer in answers]
        began = time.monotonic()
        calls = [target.execute(assignment(sink.url(), timeout_seconds=2)) for sink in sinks for _ in range(5)]
        outcomes = await asyncio.gather(*calls)
        assert time.monotonic() - began < 60
    well = [outcome for outcome in outcomes if outcome.kind is OutcomeKind.SUCCESS]
    assert len(well) == 5 * len(FLOODS)
    assert all(outcome.bodies.truncated for outcome in well)
    await target.close()
    await asyncio.sleep(0.2)
    assert open_files() <= before + 2
