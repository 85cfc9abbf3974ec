"""What hostile and clumsy callers send: always an answer, always ours, always soon."""

from __future__ import annotations

import asyncio
import time

import pytest

from integration.api.serving import HTTP, Api, serving
from noonbell.api.params import MOST_BYTES
from noonbell.errors import StoreUnavailable
from noonbell.settings import MetricsSettings

JSON = {"Content-Type": "application/json"}


async def raw(api: Api, head: str, body: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(65_536), 60)
    writer.close()
    return answer


BOMBS = [
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000,
    b'{"name": ' + b"1" * 200_000 + b"}",
    b'{"name": 1e999999}',
    b'{"name": NaN}',
    b'{"name": "\\ud800"}',
    b'{"name": "\xff\xfe"}',
    b"\x00\x01\x02",
    b'{"name": "a"',
    b'{"name": "a"} trailing',
    b"{'name': 'a'}",
    b"name=a&cron_expr=x",
    b'{"a":' * 200 + b"1" + b"}" * 200,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
@pytest.mark.parametrize("path", ["/tasks", "/runs/batch", "/callbacks", "/schedules/preview"])
async def test_a_bomb_is_no_json_and_costs_milliseconds(quick_api: Api, path, bomb):
    """S16."""
    await quick_api.call("GET", "/livez")
    before = time.process_time()
    assert await quick_api.bad("POST", path, data=bomb, headers=JSON) == (400, "INVALID_JSON")
    assert time.process_time() - before < 2
    assert (await quick_api.call("GET", "/healthz")).body == "ok"


@pytest.mark.parametrize("bomb", BOMBS[:4], ids=range(4))
def test_a_bomb_takes_little_processor_time(bomb):
    from noonbell.errors import InvalidJson
    from noonbell.json_text import decode

    before = time.thread_time()
    with pytest.raises(InvalidJson):
        decode(bomb)
    assert time.thread_time() - before < 0.25


async def test_a_body_that_says_it_is_huge_is_refused_unread(quick_api: Api):
    """F16: the answer comes though not a byte of the body was sent."""
    answer = await raw(quick_api, f"POST /api/v1/tasks HTTP/1.1\nHost: x\nContent-Length: {10**9}")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"PAYLOAD_TOO_LARGE" in answer


async def test_a_body_that_does_not_say_its_size_is_cut_off(quick_api: Api):
    async def chunks():
        for _ in range(MOST_BYTES // 65_536 + 2):
            yield b" " * 65_536

    assert await quick_api.bad("POST", "/tasks", data=chunks(), headers=JSON) == (413, "PAYLOAD_TOO_LARGE")


async def test_a_caller_who_leaves_in_the_middle_is_no_fault_of_ours(quick_api: Api, caplog):
    _, writer = await asyncio.open_connection("127.0.0.1", quick_api.port)
    writer.write(b"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    await quick_api.call("GET", "/livez")
    writer.close()
    await writer.wait_closed()
    assert (await quick_api.call("GET", "/healthz")).body == "ok"
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    "head",
    [
        "POST /api/v1/tasks HTTP/1.1\nHost: x\nContent-Length: -5",
        "POST /api/v1/tasks HTTP/1.1\nHost: x\nContent-Length: 5\nContent-Length: 6",
        "POST /api/v1/tasks HTTP/1.1\nHost: x\nContent-Length: 5\nTransfer-Encoding: chunked, identity",
        "GET /api/v1/tasks HTTP/1.1\nHost: x\nX-A: a\x00b",
        "NONSENSE",
    ],
)
async def test_a_malformed_request_is_refused_by_the_server_itself(quick_api: Api, head):
    answer = await raw(quick_api, head)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await quick_api.call("GET", "/healthz")).body == "ok"


@pytest.mark.parametrize(
    "headers",
    [{"a\r\nX": "y"}, {"X-A": "a\r\nX-B: y"}, {"X-A": "a\nb"}, {"Host": "evil"}, {"content-length": "0"}],
)
async def test_a_header_that_would_make_another_is_refused(quick_api: Api, headers):
    """S21."""
    told = await quick_api.call("POST", "/tasks", {**HTTP, "headers": headers})
    assert (told.status, told.code) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "NOT_FOUND"),
        ("GET", "//nope", 404, "NOT_FOUND"),
        ("GET", "//api/v2/tasks", 404, "NOT_FOUND"),
        ("GET", "/tasks/", 404, "NOT_FOUND"),
        ("DELETE", "/tasks", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/tasks/1", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/tasks/1/trigger", 405, "METHOD_NOT_ALLOWED"),
        ("PROPFIND", "/tasks", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/runs/x", 400, "INVALID_ID"),
        ("GET", "/runs/0", 400, "INVALID_ID"),
        ("GET", "/runs/9007199254740993", 400, "INVALID_ID"),
        ("GET", "/runs/5", 404, "NOT_FOUND"),
        ("PATCH", "/tasks/9", 404, "NOT_FOUND"),
        ("POST", "/tasks", 400, "INVALID_ARGUMENT"),
    ],
)
async def test_every_error_has_one_shape(quick_api: Api, method, path, status, code):
    body = {} if method == "PATCH" else None
    assert await quick_api.bad(method, path, body) == (status, code)


async def test_a_wrong_method_is_told_the_right_ones(quick_api: Api):
    told = await quick_api.call("DELETE", "/tasks")
    assert set(told.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


async def test_what_nobody_foresaw_is_internal_and_tells_nothing(quick_api: Api, monkeypatch, caplog):
    async def broken(*_):
        raise RuntimeError("secret of the house")

    monkeypatch.setattr(type(quick_api.services.tasks), "get", broken)
    told = await quick_api.call("GET", "/tasks/1")
    assert (told.status, told.code) == (500, "INTERNAL")
    assert "secret of the house" not in told.text
    assert told.body["request_id"] in caplog.text


async def test_a_store_that_is_away_is_told_as_such(quick_api: Api, monkeypatch):
    async def away(*_):
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(type(quick_api.services.tasks), "get", away)
    told = await quick_api.call("GET", "/tasks/1")
    assert (told.status, told.code, told.headers["retry-after"]) == (503, "UNAVAILABLE", "1")


async def test_the_request_id_is_the_trace_id(quick_api: Api):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    told = await quick_api.call("GET", "/tasks/9", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert told.body["request_id"] == told.headers["x-request-id"] == trace
    for bad in ("nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{trace}\t-x"):
        told = await quick_api.call("GET", "/tasks/9", headers={"traceparent": bad})
        assert len(told.body["request_id"]) == 32
        assert told.body["request_id"] != trace


async def test_every_answer_has_the_careful_headers(quick_api: Api):
    for path in ("/tasks", "/nope", "/healthz", "//openapi.json", "//docs", "//metrics"):
        told = await quick_api.call("GET", path)
        assert told.headers["cache-control"] == "no-store", path
        assert told.headers["x-content-type-options"] == "nosniff", path


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
async def test_a_page_of_another_site_can_do_nothing(quick_api: Api, headers):
    """S10: a browser on the same machine is no way in."""
    await quick_api.create()
    plain = {**headers, "Content-Type": "text/plain"}
    assert await quick_api.bad("POST", "/tasks", data="{}", headers=plain) == (403, "FORBIDDEN")
    assert await quick_api.bad("POST", "/tasks/1/trigger", headers=headers) == (403, "FORBIDDEN")
    assert await quick_api.bad("DELETE", "/tasks/1", headers=headers) == (403, "FORBIDDEN")


async def test_our_own_pages_can(quick_api: Api):
    await quick_api.create()
    headers = {"Origin": quick_api.root, "Sec-Fetch-Site": "same-origin"}
    assert (await quick_api.good("POST", "/tasks/1/trigger", headers=headers))["run_id"]


async def test_a_body_without_a_content_type_is_read_all_the_same(quick_api: Api):
    """What `curl -d` sends when nobody says otherwise."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    made = await quick_api.good("POST", "/tasks", data=b'{"name": "a", "job_type": "x"}', status=201, headers=headers)
    assert made["id"] == 1


async def test_health_version_and_metrics(api: Api):
    for path, text in (("/healthz", "ok"), ("/livez", "ok"), ("/version", "v0.1.0")):
        told = await api.call("GET", path)
        assert (told.status, told.text) == (200, text)
        assert told.headers["content-type"].startswith("text/plain")
    assert (await api.good("GET", "/readyz"))["ok"] is True
    told = await api.call("GET", "//metrics")
    assert told.status == 200
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE" in told.text
    assert (await api.session.head(f"{api.root}/api/v1/healthz")).status == 200


async def test_health_says_when_the_work_cannot_be_done():
    from noonbell.api.system import SystemCalls

    calls = SystemCalls(lambda: {"ok": False, "store": {"ok": False}}, None)
    assert (await calls.healthz()).status_code == 503
    assert (await calls.readyz()).status_code == 503
    assert (await calls.livez()).status_code == 200


async def test_metrics_can_be_switched_off():
    async with serving("memory://", metrics=MetricsSettings(enabled=False)) as api:
        assert await api.bad("GET", "//metrics") == (404, "NOT_FOUND")
