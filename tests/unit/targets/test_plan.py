"""Plans: what is made once for a task comes to the same request as what is made anew for each run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.model.run import Assignment, RunId
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery
from noonbell.targets.http import request
from noonbell.targets.http.connection import origin_of
from noonbell.targets.http.request import Request, Unsendable, build, default_headers
from unit.targets.make import TEN, TOKEN, assignment

ALL = default_headers({"X-Env": "test", "Accept": "text/plain"})


def plans(max_body: int = 1000) -> request.RequestTemplates:
    return request.RequestTemplates(ALL, max_body, lambda: TEN)


HEADERS = st.dictionaries(
    st.sampled_from(["X-A", "accept", "Authorization", "X-My-Token", "Content-Type", "Idempotency-Key", "Connection"]),
    st.sampled_from(["one", "application/json", "Bearer abcdefgh", "{{task_name}}", "grün", "bad\r\n", "42", "\ud800"]),
    max_size=3,
)
FIELDS = st.fixed_dictionaries(
    {
        "http_method": st.sampled_from(["GET", "post", "HEAD", "DELETE", "TRACE"]),
        "url": st.sampled_from(
            [
                *("http://target.test/", "https://target.test:8443/a%20b?x=y z", "http://[::1]/", "http:///", "x"),
                *("http://target.test/{{payload.n}}", "http://target.test/{{run_id}}", "ftp://target.test/"),
                *("http://user@target.test/", "http://TARGET.test.:80/", "{{payload.n}}://target.test/"),
            ]
        ),
        "headers": HEADERS,
        "body_template": st.sampled_from(
            [None, "", "text", '{"a": "{{attempt}}"}', "{{payload}}", "x" * 1001, "ä" * 501]
        ),
        "secret": st.sampled_from([None, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_$"]),
        "exec_type": st.sampled_from([ExecType.SYNC, ExecType.ASYNC]),
        "delivery": st.sampled_from(list(Delivery)),
        "callback_token": st.sampled_from([None, TOKEN]),
        "callback_url": st.sampled_from([None, "http://bell.test/", "a\nb"]),
        "overrides": st.sampled_from([None, {"override_body": "mine"}, {"force_async": True}]),
        "payload": st.sampled_from([None, {"n": "ftp"}, {"n": 7}]),
    }
)


def long_way(given_one: Assignment) -> Request:
    return build(given_one, ALL, now=TEN, max_body=1000)


def tried(how: Callable[[Assignment], Request], given_one: Assignment) -> Request | str:
    """The request, or why there is none."""
    try:
        return how(given_one)
    except Unsendable as error:
        return f"{error.kind}: {error}"


@settings(max_examples=500, deadline=None)
@given(FIELDS)
def test_a_plan_comes_to_the_same_request_as_the_long_way(fields):
    given_one = assignment(**fields)
    long, short = tried(long_way, given_one), tried(plans().request, given_one)
    if isinstance(long, str) or isinstance(short, str):
        assert short == long
        return
    made = plans()
    for _ in range(2):
        short = made.request(given_one)
        assert (short.method, short.url, short.body, short.content) == (long.method, long.url, long.body, long.content)
        assert short.headers == long.headers
        assert sorted((short.head or b"").split(b"\r\n")) == sorted((long.head or b"").split(b"\r\n"))
        assert short.place is None or short.place == origin_of(long.url)
        hidden = request.hidden_values(long.headers, given_one.lease.callback_token)
        assert short.hidden is None or set(short.hidden) == set(hidden)
        assert short.masked is None or short.masked == request.masked_headers(long.headers, hidden)


def test_runs_of_one_task_share_a_plan_and_nothing_else():
    made = plans()
    one = assignment(body_template='{"run": {{run_id}}}', headers={"X-A": "b"})
    other = msgspec.structs.replace(one, lease=msgspec.structs.replace(one.lease, run_id=RunId(43)))
    first, second = made.request(one), made.request(other)
    assert (first.body, second.body) == ('{"run": 42}', '{"run": 43}')
    assert (first.headers["X-Noonbell-Run"], second.headers["X-Noonbell-Run"]) == ("42", "43")
    assert len(made._plans) == 1


def test_another_task_under_the_same_number_has_another_plan():
    made = plans()
    assert made.request(assignment(headers={"X-A": "1"})).headers["X-A"] == "1"
    assert made.request(assignment(headers={"X-A": "2"})).headers["X-A"] == "2"


def test_plans_do_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(request, "_MOST", 10)
    made = plans(max_body=1 << 20)
    for number in range(50):
        one = assignment()
        made.request(msgspec.structs.replace(one, task=msgspec.structs.replace(one.task, version=number)))
    assert len(made._plans) == 10
    made.request(assignment(body_template="x" * 100_000))
    assert len(made._plans) == 10


def test_a_secret_that_stands_in_another_header_is_masked_there_too():
    request = plans().request(
        assignment(headers={"Authorization": "Bearer noonbell-42", "User-Agent": "is noonbell-42"})
    )
    assert request.masked is not None
    assert request.masked["Authorization"] == "***"
    assert request.masked["User-Agent"] == "is ***"
    assert request.masked["Idempotency-Key"] == "***-1767348000"
    assert request.headers["Idempotency-Key"] == "noonbell-42-1767348000"
