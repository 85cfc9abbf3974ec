"""What a caller may send, and from where: over every route there is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import pytest

from integration.api.conftest import url_of
from integration.api.serving import JOB, Api, serving
from noonbell.api import connection_limits
from noonbell.settings import AuthSettings, ServerSettings, Settings, StoreSettings
from noonbell.wiring import Listening, Stop, assembled, listen
from noonbell.wiring.application import application
from security.routes import CAREFUL, routes

EVIL = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://[::1"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        yield api


# S10, S11: browsers


@pytest.mark.parametrize("headers", EVIL, ids=["origin", "null", "odd", "empty", "fetch"])
async def test_no_route_that_changes_something_can_be_called_by_a_page_of_another_site(api: Api, headers):
    """S10."""
    let_in = []
    for route in await routes(api):
        if route.method != "GET":
            told = await api.call(
                route.method, route.address, data="{}", headers={**headers, "Content-Type": "text/plain"}
            )
            if (told.status, told.code) != (403, "FORBIDDEN"):
                let_in.append((route.method, route.path, told.status))
    assert let_in == []


PAGES_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "manifest-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


async def test_every_answer_of_every_route_has_the_careful_headers(api: Api):
    """S11: nothing is cached, framed or sniffed, in errors as in good answers."""
    wrong = []
    for route in await routes(api):
        if route.is_stream:
            continue
        body = None if route.method == "GET" else {"wait_seconds": 0}
        told = await api.call(route.method, route.address, body)
        assert told.status < 500, (route, told.text)
        wrong += [(route.path, name) for name, value in CAREFUL.items() if told.headers.get(name) != value]
    for path in ("//openapi.json", "//nowhere", "/nowhere"):
        headers = (await api.call("GET", path)).headers
        wrong += [(path, name) for name, value in CAREFUL.items() if headers.get(name) != value]
    async with api.session.get(f"{api.root}/api/v1/events") as stream:
        wrong += [("/events", name) for name, value in CAREFUL.items() if stream.headers.get(name) != value]
    assert wrong == []


@pytest.mark.parametrize("path", ["/", "/tasks", "/settings", "/nowhere"])
async def test_every_page_has_the_careful_headers(api: Api, path):
    """S11: a page loads what is of this site and nothing else, and is framed by none."""
    headers = (await api.call("GET", f"/{path}", headers={"Accept": "text/html"})).headers
    expected = {
        **CAREFUL,
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in PAGES_POLICY.items()),
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "same-origin",
    }
    assert {name: headers.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("path", "own"),
    [("/docs", {"content-security-policy"}), ("/static/x/app.js", {"content-security-policy", "cache-control"})],
)
async def test_what_pages_are_made_of_has_the_careful_headers(api: Api, path, own):
    headers = (await api.call("GET", f"/{path}")).headers
    rest = {name: value for name, value in CAREFUL.items() if name not in own}
    assert {name: headers.get(name) for name in rest} == rest
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy or "sandbox" in policy


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "x", "[", "[::1.evil"],
)
async def test_a_name_of_another_site_that_points_here_is_refused(api: Api, host):
    """A page whose own name leads to this machine is no other site to the browser; without tokens, its name tells."""
    await api.create()
    for method, path in (("GET", "/tasks"), ("POST", "/tasks/1/trigger"), ("GET", "//metrics")):
        assert await api.bad(method, path, headers={"Host": host, "Origin": f"http://{host}"}) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "app.localhost", "192.168.1.7:80", "LOCALHOST."]
)
async def test_the_names_of_this_machine_are_taken(api: Api, host):
    assert (await api.good("GET", "/tasks", headers={"Host": host}))["total"] == 0


# S14: workers


@pytest.mark.parametrize("call", ["settle", "progress", "log", "extend"])
async def test_a_worker_cannot_touch_the_run_of_another(api: Api, call):
    """S14: by id it is not enough, and with the right token under another name neither."""
    task = int((await api.good("POST", "/tasks", JOB, 201))["id"])
    await api.trigger(task)
    asked = {"queues": ["default"], "max": 1, "wait_seconds": 0}
    (run,) = (await api.good("POST", "/workers/a/claim", asked))["runs"]
    await api.good("POST", "/workers/b/claim", asked)
    more = {
        "settle": {"outcome": "success"},
        "progress": {"current": 1},
        "log": {"message": "x", "level": "info"},
        "extend": {"seconds": 60},
    }[call]
    for who, token in (("b", run["token"]), ("b", 1), ("a", run["token"] + 1)):
        told = await api.call("POST", f"/runs/{run['run_id']}/{call}", {"worker_id": who, "token": token, **more})
        refused = told.status in (403, 409) or told.body.get("order") == "lost"
        assert refused, (who, token, told.text)
    shown = await api.good("GET", f"/runs/{run['run_id']}")
    assert (shown["status"], shown["worker_id"], shown["progress"]) == ("RUNNING", "a", None)
    assert (await api.good("GET", f"/runs/{run['run_id']}/log"))["items"] == []


# S16: limits


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """As `noonbell serve` listens."""
    settings = Settings(store=StoreSettings(url="memory://"), server=ServerSettings(port=0))
    with contextlib.closing(listen(settings)) as listener:
        port = listener.getsockname()[1]
        async with assembled(settings, port) as parts, application(parts, settings, lambda: {"ok": True}) as app:
            async with Listening(app).listening(listener, Stop()):
                yield port
            await parts.hub.close()


async def said_to(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for start in range(0, len(data), 65_536):
            writer.write(data[start : start + 65_536])
            await writer.drain()
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer
    return b""


HEAD = b"GET /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(200)) + b"\r\n",
        HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        HEAD + b"X: " + b"y" * 5_000_000,
        HEAD + b"X: y\r\n" * 1_000_000,
        HEAD.replace(b"tasks", b"tasks?name=" + b"y" * 5_000_000),
    ],
    ids=["many", "long", "endless", "endlessly many", "long address"],
)
async def test_headers_that_are_too_many_or_too_large_are_413_or_cut_off(data, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 300.0)  # it is their size that ends them
    async with listening() as port:
        answer = await said_to(port, data)
        # A caller who goes on talking may find the line cut before it has heard why.
        assert answer == b"" or answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
        assert (await said_to(port, HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_ninety_headers_of_a_usual_size_are_taken():
    async with listening() as port:
        data = HEAD + b"".join(b"X-%d: %b\r\n" % (number, b"y" * 500) for number in range(90)) + b"\r\n"
        assert (await said_to(port, data)).startswith(b"HTTP/1.1 200 ")


async def test_headers_that_do_not_end_in_time_are_cut_off(monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.2)
    async with listening() as port:
        for start in (b"", b"GET /api", HEAD):
            assert await said_to(port, start) == b""
        slow = HEAD.replace(b"Connection: close", b"X: y") + b"\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):  # a connection that is used again is given its time again
            writer.write(slow)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"}")
        writer.close()


async def test_every_number_of_every_route_has_its_bounds(api: Api):
    """S16: pages of a billion, negative ones, and numbers of a thousand digits."""
    wrong = []
    for route in [each for each in await routes(api) if not each.is_stream]:
        for query in route.queries:
            if "integer" not in json.dumps(query["schema"]):
                continue
            for value in ("1" * 1000, "-1" * 30, "1e400", "NaN", "0x10", "９", str(2**63), "99999999999"):
                told = await api.call(route.method, route.address, params={query["name"]: value})
                if told.status >= 500 or (told.status == 200 and query["name"] in ("page_size", "limit")):
                    wrong.append((route.method, route.path, query["name"], value, told.status))
    assert wrong == []


# S20: what reaches a database

NASTY = ["' OR 1=1 --", "'; drop table tasks; --", "%", "_", "\\", "\\'", '"', "a\\%", "${7*7}", "null", "\ud7ff", "🔔"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
async def test_no_text_in_a_query_is_more_than_a_text(kind, request):
    """S20: nothing is found by it that was not asked for, and nothing breaks."""
    async with serving(url_of(kind, request)) as api:
        for name in ("plain", "other"):
            await api.create(name=name)
        await api.trigger(1)
        found, broken = [], []
        for route in [each for each in await routes(api) if each.method == "GET" and not each.is_stream]:
            for query in route.queries:
                for value in NASTY:
                    told = await api.call("GET", route.address, params={query["name"]: value})
                    if told.status >= 500:
                        broken.append((route.path, query["name"], value, told.text))
                    if told.status == 200 and isinstance(told.body, dict) and told.body.get("items"):
                        found.append((route.path, query["name"], value))
        assert broken == []
        # An empty filter finds all, and so does a page's cursor that is none; a text finds what has it.
        assert found == []
        assert (await api.good("GET", "/tasks"))["total"] == 2


# S22: addresses

STEPS = [
    *("/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/..\\..\\etc\\passwd"),
    *("//etc/passwd", "/%00", "/..%00/", "/%252e%252e/etc/passwd", "/....//etc/passwd", "/c:%5cwindows%5cwin.ini"),
    *("/" + "..%2f" * 20 + "etc%2fpasswd", "/" + "..%5c" * 20 + "etc%5cpasswd", "/%2fetc%2fpasswd", "/..%2fassets.py"),
]
STARTS = [
    *("", "/docs", "/static", "/static/x", "/web/static", "/assets", "/api/v1", "/api/v1/tasks", "/tasks"),
    "/runs/1/download",
]
"""`/static/x` is where files are served from: `x` stands for their hash."""


@pytest.mark.parametrize("start", STARTS)
async def test_no_address_leads_to_a_file_of_the_machine(start):
    """S22."""
    async with listening() as port:
        for step in STEPS:
            answer = await said_to(
                port, f"GET {start}{step} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            status = int(answer.split(b" ")[1])
            assert status in (400, 404, 303, 307), (start, step, answer[:200])
            assert b"root:" not in answer
        page = await said_to(port, b"GET /static/x/app.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert page.startswith(b"HTTP/1.1 200 "), "the address that the others are made of is one that answers"


# S23, S24: what costs time


@pytest.mark.parametrize(
    "expr",
    [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "*/1" + ",*/1" * 5_000 + " * * * *",
        "9" * 10_000,
        "* " * 5_000,
        "0-59/1," * 2_000,
    ],
)
async def test_a_cron_expression_that_never_fires_or_never_ends_is_refused_at_once(api: Api, expr):
    """S24."""
    before = time.process_time()
    assert (await api.bad("POST", "/schedules/preview", {"cron_expr": expr}))[0] == 400
    assert (await api.bad("POST", "/tasks", {"name": "a", "job_type": "x", "cron_expr": expr}))[0] == 400
    assert time.process_time() - before < 3


def test_a_pattern_of_names_costs_little_whatever_it_is():
    """S23: the only patterns that users write are those of alert rules, with * and ? in them."""
    from noonbell.policy.alerts import concerns

    before = time.process_time()
    assert not concerns(rule("*a" * 100 + "b"), "a" * 255)
    assert not concerns(rule("(a+)+$"), "a" * 255 + "b")
    assert concerns(rule("(a+)+$"), "(a+)+$")
    assert time.process_time() - before < 3


def rule(pattern: str):
    from noonbell.model.alert import Rule, RuleKind

    return Rule(name="r", kind=RuleKind.FAILED, tasks=(pattern,))


# S28, S33


async def test_what_is_gone_and_what_never_was_look_the_same(api: Api):
    """S28."""
    await api.create()
    await api.good("DELETE", "/tasks/1")
    answers = []
    for task in ("1", "999", "name:a", "name:zzz"):
        told = await api.call("GET", f"/tasks/{task}")
        answers.append((told.status, {**told.body, "request_id": ""}))
    assert all(each == answers[0] for each in answers)
    assert answers[0][0] == 404


async def test_no_route_answers_with_a_table_that_a_spreadsheet_would_run(api: Api):
    """S33: there is no CSV; what is exported is YAML and JSON."""
    kinds = {
        kind
        for route in await routes(api)
        for answer in route.operation["responses"].values()
        for kind in answer.get("content", {})
    }
    assert kinds <= {"application/json", "text/plain", "text/event-stream", "text/html"}


# S15, S27, S29


async def test_guessing_callback_tokens_is_slowed_down(api: Api):
    """S15: of a thousand guesses of one address, nine hundred are answered with 429."""
    body = {"status": "SUCCESS"}
    statuses = [(await api.call("POST", f"/callbacks/{guess:043}", body)).status for guess in range(1_000)]
    assert set(statuses) == {404, 429}
    assert statuses.count(429) >= 900


async def test_the_audit_log_can_be_read_and_nothing_else(api: Api):
    """S27."""
    paths = {route.path: route.method for route in await routes(api) if "audit" in route.path}
    assert paths == {"/api/v1/audit": "GET", "/api/v1/audit/check": "GET"}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await api.bad(method, "/audit"))[0] == 405
        assert (await api.bad(method, "/audit/check"))[0] == 405


@pytest.mark.parametrize("headers", [each for each in EVIL if "Origin" in each], ids=["origin", "null", "odd", "empty"])
async def test_no_page_of_another_site_listens_to_the_stream(api: Api, headers):
    """S29: a GET, so the rule for changes does not see it."""
    async with api.session.get(f"{api.root}/api/v1/events", headers=headers) as response:
        assert response.status == 403  # the body of a stream has no end


async def test_the_stream_is_closed_to_callers_without_a_token():
    """S29."""
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
        for headers in ({}, {"Authorization": "Bearer nb_wrong"}, {"Cookie": "noonbell_session=1.1." + "0" * 64}):
            async with api.session.get(f"{api.root}/api/v1/events", headers=headers) as response:
                assert response.status == 401


async def test_a_page_of_this_site_listens_to_the_stream(api: Api):
    async with api.session.get(f"{api.root}/api/v1/events", headers={"Origin": api.root}) as response:
        assert response.status == 200


async def test_no_answer_lets_a_page_of_another_site_read_it(api: Api):
    """S29: a page elsewhere may ask, and the browser keeps the answer from it; streams too."""
    for path in ("/tasks", "/events", "//metrics", "//openapi.json"):
        url = api.root + (path[1:] if path.startswith("//") else f"/api/v1{path}")
        async with api.session.get(url, headers={"Origin": "https://evil.example"}) as response:
            assert "access-control-allow-origin" not in response.headers
        async with api.session.options(url, headers={"Origin": "https://evil.example"}) as response:
            assert response.status in (403, 405)
            assert "access-control-allow-origin" not in response.headers
