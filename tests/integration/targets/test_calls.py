"""Calls to a target that behaves: what it is asked, and what becomes of its answer."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook

from integration.targets.sink import http, listening, replies, says, silence
from noonbell.model.run import OutcomeKind, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery, RetryPolicy
from noonbell.policy import retry
from noonbell.targets.http.target import HttpTarget
from unit.targets.make import TOKEN, assignment

WHERE = f"http://bell.test/api/v1/callbacks/{TOKEN}"


async def test_a_call_carries_method_path_headers_and_body(target):
    async with listening(replies(200, b'{"ok":true}', Content_Type="application/json")) as sink:
        outcome = await target.execute(
            assignment(
                sink.url("/greet/{{payload.who}}?n={{run_id}}"),
                http_method="PUT",
                headers={"X-Task": "{{task_name}}", "Accept-Language": "{{task_name}}"},
                body_template='{"at": "{{scheduled_time}}"}',
                payload={"who": "Ann/Bo?"},
            )
        )
    (asked,) = sink.asked
    assert (asked.method, asked.path) == ("PUT", "/greet/Ann%2FBo%3F?n=42")
    assert asked.body == b'{"at": "2026-01-02T10:00:00Z"}'
    assert asked.headers["x-task"] == "greet"
    assert asked.headers["x-noonbell-run"] == "42"
    assert len(asked.headers) == len(asked.header_lines)
    assert outcome.kind is OutcomeKind.SUCCESS
    assert outcome.response_code == 200
    assert outcome.bodies.response_body == '{"ok":true}'
    assert outcome.bodies.response_headers["Content-Type"] == "application/json"
    assert outcome.bodies.request_body == '{"at": "2026-01-02T10:00:00Z"}'
    assert outcome.bodies.request_headers["Accept-Language"] == "greet"
    assert outcome.bodies.request_headers["X-Task"] == "***"
    assert not outcome.bodies.truncated


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_success_and_for_async_accepted(target, status):
    async with listening(replies(status)) as sink:
        assert (await target.execute(assignment(sink.url()))).kind is OutcomeKind.SUCCESS
        accepted = await target.execute(assignment(sink.url(), exec_type=ExecType.ASYNC))
        forced = await target.execute(assignment(sink.url(), overrides={"force_async": True}))
    assert accepted.kind is forced.kind is OutcomeKind.ACCEPTED
    assert accepted.response_code == status


async def test_a_failure_that_only_the_body_of_a_2xx_names_is_a_success(target):
    async with listening(replies(200, b'{"code": 500, "message": "no stock"}')) as sink:
        outcome = await target.execute(assignment(sink.url()))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.SUCCESS, None)
    assert "no stock" in outcome.bodies.response_body


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (300, "http_3xx"),
        (302, "http_3xx"),
        (304, "http_3xx"),
        (400, "http_4xx"),
        (404, "http_4xx"),
        (429, "http_4xx"),
        (500, "http_5xx"),
        (503, "http_5xx"),
        (999, "protocol_error"),
    ],
)
async def test_other_statuses_are_failures_named_by_their_hundred(target, status, kind):
    async with listening(replies(status, b"" if status == 304 else b"why")) as sink:
        outcome = await target.execute(assignment(sink.url(), exec_type=ExecType.ASYNC))
    assert (outcome.kind, outcome.failure, outcome.response_code) == (OutcomeKind.FAILURE, kind, status)
    assert outcome.error_details["kind"] == kind
    assert str(status) in outcome.error_message
    if status != 304:
        assert outcome.bodies.response_body == "why"


@pytest.mark.parametrize(("status", "heard"), [(429, 7.0), (503, 7.0), (500, None), (404, None)])
async def test_retry_after_is_heard_where_it_means_something(target, status, heard):
    async with listening(replies(status, retry_after="7")) as sink:  # the name in lower case, as many servers send it
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.retry_after == heard


@pytest.mark.parametrize(
    ("status", "follows"), [(429, retry.Retry(60)), (503, retry.Retry(60)), (500, retry.Retry(5)), (404, None)]
)
async def test_retry_rules_hold_from_the_wire_to_the_decision(target, status, follows):
    async with listening(replies(status, Retry_After="60")) as sink:
        given = assignment(sink.url(), retry_policy=RetryPolicy(max_retries=1))
        outcome = await target.execute(given)
    failure = retry.Failure(outcome.failure, outcome.response_code, outcome.retry_after)
    decision = retry.decide(given.task.spec, 0, 0, failure, 0.5)
    assert decision == (follows or retry.Final(RunStatus.FAILED, "http_4xx"))


async def test_async_hands_out_where_to_call_back_and_stores_it_nowhere(target):
    async with listening(replies(202, TOKEN.encode(), X_Echo=TOKEN)) as sink:
        outcome = await target.execute(
            assignment(
                sink.url("/{{callback_token}}"),
                exec_type=ExecType.ASYNC,
                http_method="POST",
                callback_url=WHERE,
                callback_token=TOKEN,
                headers={"X-Mine": "{{callback_token}}", "Authorization": "Bearer {{callback_token}}"},
                body_template='{"to": "{{callback_url}}", "token": "{{callback_token}}"}',
            )
        )
    (asked,) = sink.asked
    assert asked.headers["x-callback-url"] == WHERE
    assert asked.headers["x-callback-token"] == asked.headers["x-mine"] == TOKEN
    assert asked.body == f'{{"to": "{WHERE}", "token": "{TOKEN}"}}'.encode()
    assert TOKEN.encode() not in msgspec.json.encode(outcome)
    assert outcome.bodies.request_body == '{"to": "http://bell.test/api/v1/callbacks/***", "token": "***"}'


async def test_secret_headers_and_their_echo_are_masked_in_what_is_kept(target):
    async def echo(asked, line):
        await line.say(http(500, repr(asked.headers).encode(), X_Back=asked.headers["authorization"]))

    async with listening(echo) as sink:
        headers = {"Authorization": "Bearer canary-one", "X-Api-Key": "canary-two", "Cookie": "s=canary-three"}
        outcome = await target.execute(assignment(sink.url(), headers=headers))
    assert "canary-one" in sink.asked[0].headers["authorization"]
    assert b"canary" not in msgspec.json.encode(outcome)
    assert outcome.bodies.request_headers["Authorization"] == "***"


async def test_a_signed_call_is_accepted_by_the_reference_library(target):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    async with listening(replies()) as sink:
        await target.execute(assignment(sink.url(), http_method="POST", body_template='{"n": 1}', secret=secret))
    assert Webhook(secret).verify(sink.asked[0].body, sink.asked[0].headers) == {"n": 1}


async def test_connections_are_kept_and_shared(target):
    async with listening(replies(200, b"x")) as sink:
        for _ in range(5):
            await target.execute(assignment(sink.url()))
    assert (sink.connections, len(sink.asked)) == (1, 5)


async def test_at_most_once_takes_a_new_connection_each_time(target):
    async with listening(replies(200, b"x")) as sink:
        for _ in range(3):
            await target.execute(assignment(sink.url(), delivery=Delivery.AT_MOST_ONCE))
    assert sink.connections == 3


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize("delivery", list(Delivery))
async def test_one_attempt_on_a_new_connection_is_one_request(target, method, delivery):
    async with listening(says(b"")) as sink:
        outcome = await target.execute(assignment(sink.url(), http_method=method, delivery=delivery))
    assert outcome.failure == "connection_lost"
    assert len(sink.asked) == 1


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_a_kept_connection_that_the_target_closes_costs_a_safe_method_no_attempt(target, method):
    async def once_per_line(asked, line):
        if len(sink.asked) % 2 == 1 and line.sink.connections == 1:
            await line.say(http(200, b"first"))
        elif line.sink.connections == 1:
            line.writer.close()  # as a server does that grew tired of waiting
        else:
            await line.say(http(200, b"again"))

    async with listening(once_per_line) as sink:
        first = await target.execute(assignment(sink.url(), http_method=method))
        second = await target.execute(assignment(sink.url(), http_method=method))
    assert (first.bodies.response_body, second.bodies.response_body) == ("first", "again")
    assert sink.connections == 2


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(target):
    async def twice(_asked, line):
        await line.say(http(200, b"true"))
        if line.sink.connections == 1:
            await asyncio.sleep(0.05)
            await line.say(http(200, b"poison"))
            poisoned.set()

    poisoned = asyncio.Event()
    async with listening(twice) as sink:
        await target.execute(assignment(sink.url()))
        await poisoned.wait()
        await asyncio.sleep(0.05)
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.bodies.response_body == "true"


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress(b"hello " * 1000)),
        ("GZIP", gzip.compress(b"hello " * 500) + gzip.compress(b"hello " * 500)),
        ("x-gzip", gzip.compress(b"hello " * 1000)),
        ("deflate", zlib.compress(b"hello " * 1000)),
        ("deflate", zlib.compress(b"hello " * 1000)[2:-4]),
        ("identity", b"hello " * 1000),
    ],
    ids=["gzip", "two gzips", "x-gzip", "deflate", "bare deflate", "identity"],
)
async def test_a_compressed_body_is_kept_as_its_text(target, encoding, encoded):
    async with listening(replies(200, encoded, Content_Encoding=encoding)) as sink:
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.bodies.response_body == "hello " * 1000
    assert "gzip" in sink.asked[0].headers["accept-encoding"]


async def test_cookies_are_not_carried_from_call_to_call(target):
    async with listening(replies(200, b"x", Set_Cookie="session=abc; Path=/")) as sink:
        for _ in range(2):
            outcome = await target.execute(assignment(sink.url()))
    assert [asked.headers.get("cookie") for asked in sink.asked] == [None, None]
    assert outcome.bodies.response_headers["Set-Cookie"] == "***"


async def test_the_proxy_of_the_environment_is_not_used(opened, monkeypatch):
    async with listening(replies(200, b"proxy")) as proxy, listening(replies(200, b"target")) as sink:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        target = await opened()
        outcome = await target.execute(assignment(sink.url()))
    assert outcome.bodies.response_body == "target"
    assert proxy.connections == 0


async def test_a_port_that_nobody_listens_on_is_refused(target):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        outcome = await target.execute(assignment(f"http://127.0.0.1:{held.getsockname()[1]}/"))
    assert outcome.failure == "connection_refused"
    assert outcome.bodies.response_body is None


async def test_a_cancel_drops_the_request_in_flight_at_once(target):
    async with listening(silence) as sink:
        call = asyncio.create_task(target.execute(assignment(sink.url(), timeout_seconds=60)))
        await asyncio.wait_for(sink.reached.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(sink.dropped.wait(), 60)


async def test_a_cancel_drops_a_request_that_the_target_does_not_read(target):
    """The system's buffers are full and ours is not empty: a polite close would wait for the target for ever."""
    connected, gone = asyncio.Event(), asyncio.Event()

    async def never_read(reader, writer):
        writer.transport.pause_reading()
        connected.set()
        await gone.wait()
        writer.transport.resume_reading()
        while await reader.read(1 << 20):
            pass
        writer.close()

    server = await asyncio.start_server(never_read, "127.0.0.1", 0)
    body = "x" * (7 << 20)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    call = asyncio.create_task(
        target.execute(assignment(url, http_method="POST", body_template=body, timeout_seconds=60))
    )
    await connected.wait()
    await asyncio.sleep(0.1)
    (held,) = target._pool._open
    assert held._transport.get_write_buffer_size() > 0
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.05)  # a dropped connection says goodbye in the loop's next rounds
    assert not target._pool._open
    gone.set()
    server.close()


async def test_a_target_that_is_not_open_says_so():
    with pytest.raises(RuntimeError, match="not open"):
        await HttpTarget().execute(assignment())
