"""The request that a task and a run make."""

from __future__ import annotations

import json

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook

from noonbell.clock import SECOND, Instant, SystemClock
from noonbell.errors import InvalidArgument
from noonbell.model.run import RunId
from noonbell.model.target_kind import ExecType
from noonbell.targets.http.request import Headers, Request, Unsendable, build, default_headers
from unit.targets.make import TEN, TOKEN, assignment


def made(url: str = "http://target.test/", *, max_body: int = 1 << 20, headers_of_all=None, **fields) -> Request:
    return build(
        assignment(url, **fields), default_headers(headers_of_all or {}), now=SystemClock().now(), max_body=max_body
    )


def lower(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def test_every_request_says_what_it_is():
    headers = lower(made(run_id=RunId(42), attempt=3))
    assert headers["x-noonbell-task"] == "7"
    assert headers["x-noonbell-run"] == "42"
    assert headers["x-noonbell-attempt"] == "3"
    assert headers["x-noonbell-scheduled-time"] == "2026-01-02T10:00:00Z"
    assert headers["idempotency-key"] == "noonbell-42-1767348000"
    assert headers["user-agent"].startswith("noonbell/")


def test_the_key_that_is_stored_with_the_run_is_sent():
    assert lower(made(run_id=RunId(42), idempotency_key="5f0c1d7a"))["idempotency-key"] == "5f0c1d7a"


def test_every_attempt_of_a_run_has_the_same_idempotency_key_and_trace():
    first, second = lower(made(attempt=1)), lower(made(attempt=2))
    assert first["idempotency-key"] == second["idempotency-key"]
    assert first["traceparent"].split("-")[1] == second["traceparent"].split("-")[1]
    assert first["traceparent"] != second["traceparent"]


def test_other_runs_have_other_keys_and_traces():
    runs = [lower(made(run_id=RunId(number))) for number in range(50)]
    assert len({headers["idempotency-key"] for headers in runs}) == 50
    assert len({headers["traceparent"] for headers in runs}) == 50


@pytest.mark.parametrize(
    "given",
    ["4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
)
def test_a_trace_that_the_run_has_is_carried_on(given):
    trace = made(trace_id=given, body_template="{{trace_id}}")
    assert trace.body == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert lower(trace)["traceparent"].startswith(f"00-{trace.body}-")


@pytest.mark.parametrize("given", [None, "order 17", "\ud800", "0" * 32])
def test_traceparent_is_well_formed_whatever_the_run_calls_its_trace(given):
    version, trace, span, flags = lower(made(trace_id=given))["traceparent"].split("-")
    assert (version, flags, len(trace), len(span)) == ("00", "01", 32, 16)
    assert int(trace, 16)
    assert int(span, 16)


def test_headers_of_the_task_stand_above_global_ones_and_ours_above_both():
    request = made(
        headers_of_all={"X-Team": "all", "X-Env": "test", "user-agent": "us"},
        headers={"x-team": "mine", "X-NOONBELL-RUN": "forged", "idempotency-key": "forged"},
    )
    headers = lower(request)
    assert len(headers) == len(request.headers)  # each name once
    assert (headers["x-team"], headers["x-env"], headers["user-agent"]) == ("mine", "test", "us")
    assert (headers["x-noonbell-run"], headers["idempotency-key"]) == ("42", "noonbell-42-1767348000")


def test_placeholders_work_in_body_url_and_headers():
    request = made(
        "http://target.test/{{payload.id}}?run={{run_id}}",
        http_method="POST",
        headers={"X-Name": "{{task_name}}, attempt {{attempt}}"},
        body_template='{"from": {{previous_scheduled_time}}, "to": "{{scheduled_time}}", "p": {{payload}}}',
        payload={"id": "a/../b"},
        previous_scheduled_time=Instant(TEN - 60 * SECOND),
    )
    assert str(request.url) == "http://target.test/a%2F..%2Fb?run=42"
    assert request.headers["X-Name"] == "greet, attempt 1"
    assert json.loads(request.content or b"") == {
        "from": "2026-01-02T09:59:00Z",
        "to": "2026-01-02T10:00:00Z",
        "p": {"id": "a/../b"},
    }
    assert request.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("payload", "body"), [({"x": "of the run"}, '{"x": "of the run"}'), (None, "null")])
def test_the_payload_of_the_run_stands_above_that_of_the_task_be_it_null(payload, body):
    given = assignment(body_template="{{payload}}", payload=payload)
    spec = msgspec.structs.replace(given.task.spec, payload={"x": "of the task"})
    task = msgspec.structs.replace(given.task, spec=spec)
    request = build(
        msgspec.structs.replace(given, task=task), default_headers({}), now=SystemClock().now(), max_body=1 << 20
    )
    assert json.loads(request.content or b"") == json.loads(body)


def test_a_request_without_a_template_has_no_body():
    request = made(http_method="POST", payload={"x": 1})
    assert request.content is None
    assert "content-type" not in lower(request)


@pytest.mark.parametrize(
    ("override", "sent", "content_type"),
    [
        ('{"a": "{{run_id}}"}', '{"a": "{{run_id}}"}', "application/json"),
        ({"a": 1}, '{"a": 1}', "application/json"),
        (0, "0", "application/json"),
        (False, "false", "application/json"),
        ("0", "0", "text/plain; charset=utf-8"),
        ("", "", "text/plain; charset=utf-8"),
    ],
)
def test_override_body_is_sent_as_it_is(override, sent, content_type):
    request = made(http_method="POST", body_template="never", overrides={"override_body": override})
    assert request.body == sent
    assert request.headers["Content-Type"] == content_type


@pytest.mark.parametrize("how", [{"exec_type": ExecType.ASYNC}, {"overrides": {"force_async": True}}])
def test_async_carries_where_to_call_back(how):
    where = f"http://bell.test/api/v1/callbacks/{TOKEN}"
    request = made(callback_url=where, callback_token=TOKEN, **how)
    assert request.headers["X-Callback-Url"] == where
    assert request.headers["X-Callback-Token"] == TOKEN


def test_sync_does_not():
    assert not [name for name in made(callback_token=TOKEN).headers if "callback" in name.lower()]


def test_a_task_with_a_secret_signs_what_it_sends():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    request = made(secret=secret, http_method="POST", body_template='{"name": "{{task_name}} 🔔"}')
    Webhook(secret).verify(request.content or b"", lower(request))
    assert lower(request)["webhook-id"] == "run_42"
    empty = made(secret=secret)
    Webhook(secret).verify(b"", lower(empty), json_parse=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"a\r\nX-Other": "y"}},
        {"headers": {"X-A": "y\r\nX-Other: z"}},
        {"headers": {"X-A": "y\nX-Other: z"}},
        {"headers": {"X-A": "y\0"}},
        {"headers": {"X-A": "{{payload.x}}"}, "payload": {"x": "y\r\nX-Other: z"}},
        {"headers": {"": "y"}},
        {"headers": {"X A": "y"}},
        {"headers": {"Häder": "y"}},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"content-length": "0"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"X-A": "{{nobody}}"}},
        {"callback_token": "x\r\nX-Other: z", "exec_type": ExecType.ASYNC},
        {"http_method": "GET / HTTP/1.1\r\nX-Other: z"},
        {"http_method": "CONNECT"},
        {"http_method": "TRACE"},
        {"url": "http://target.test/{{payload.missing}}"},
        {"url": "http://user:password@target.test/"},
        {"url": "http:///nowhere"},
        {"url": "http://target.test:99999/"},
        {"url": "target.test"},
        {"url": ""},
        {"secret": "whsec_$$$"},
    ],
    ids=lambda fields: json.dumps(fields, ensure_ascii=True)[:60],
)
def test_what_cannot_be_sent_fails_for_good(fields):
    with pytest.raises(Unsendable) as caught:
        made(**fields)
    assert caught.value.kind == "fail"


@pytest.mark.parametrize(
    "fields",
    [
        {"body_template": "x" * 101, "max_body": 100},
        {"body_template": "ä" * 51, "max_body": 100},
        {"body_template": "{{payload}}", "payload": "x" * 99, "max_body": 100},
        {"overrides": {"override_body": "x" * 101}, "max_body": 100},
        {"headers": {"X-A": "x" * 40_000}},
        {"url": "http://target.test/" + "x" * 20_000},
    ],
)
def test_what_is_too_large_is_not_sent(fields):
    with pytest.raises(Unsendable) as caught:
        made(**fields)
    assert caught.value.kind == "too_large"


def test_halves_of_characters_do_not_break_a_request():
    assert made(body_template='{"x": {{payload.x}}}', payload={"x": "\ud800"}).content == b'{"x": "?"}'


def test_a_global_header_that_cannot_be_sent_stops_the_start():
    for headers in ({"Host": "x"}, {"X-A": "a\r\nb"}, {"a b": "c"}):
        with pytest.raises(InvalidArgument):
            default_headers(headers)


@pytest.mark.parametrize("name", ["Connection", "upgrade", "TE", "Expect", "Proxy-Authorization", "Transfer_Encoding"])
def test_headers_of_the_connection_that_a_saved_task_still_has_are_not_sent(name):
    found = Headers({})
    found.update({name: "x", "X-A": "1"})
    assert found.sent() == {"X-A": "1"}
