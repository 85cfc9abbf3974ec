"""Calls without a task, by real nodes: sent as they are, on any queue, signed, told of, and kept when a node dies."""

from __future__ import annotations

import json
from contextlib import suppress
from http.client import RemoteDisconnected

import pytest

from acceptance.harness import Nodes, Target, until
from noonbell.targets.http import signing
from services.ports import reserved_port

SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
SIGNED = {"NOONBELL_EXECUTOR__CALL_SECRET": SECRET, "NOONBELL_SERVER__GRACEFUL_TIMEOUT": "300ms"}


def is_signed(arrival) -> bool:  # type: ignore[no-untyped-def]
    headers = {name.lower(): value for name, value in arrival.headers.items()}
    now = int(headers["webhook-timestamp"])
    return signing.objection(SECRET, headers, arrival.body.encode(), now) == ""


def test_a_call_is_sent_as_it_is_and_its_outcome_is_told(nodes: Nodes, target: Target, store_url: str):
    node = nodes.start(store_url, env=SIGNED)
    text = '{"text": "{{run_id}} stays"}'
    call = {
        "url": target.url("/ok?a={{x}}"),
        "headers": {"X-Mine": "{{payload.y}}", "Authorization": "Bearer hush-hush"},
        "body": text,
        "queue": "mails",
        "success_url": target.url("/good"),
        "failure_url": target.url("/bad"),
    }
    run_id = node.ask("POST", "/calls", call)["run_id"]
    run = node.wait_for_run(run_id, "SUCCESS")
    (arrival,) = until(lambda: [one for one in target.arrivals if one.path.startswith("/ok")] or None, "the call")
    assert (arrival.method, arrival.body, arrival.headers["X-Mine"]) == ("POST", text, "{{payload.y}}")
    assert arrival.headers["Authorization"] == "Bearer hush-hush"
    assert (arrival.run_id, arrival.headers["Idempotency-Key"]) == (run_id, run["idempotency_key"])
    assert is_signed(arrival)
    assert (run["queue"], run["response_code"], run["request_body"]) == ("mails", 200, text)
    assert "hush-hush" not in json.dumps(run)
    (told,) = target.wait_for("/good")
    assert is_signed(told)
    outcome = json.loads(told.body)
    assert (outcome["run_id"], outcome["final_status"], outcome["response_code"]) == (run_id, "SUCCESS", 200)
    assert json.loads(outcome["response_body"]) == {"ok": True}
    assert target.at("/bad") == []


def test_a_failed_call_is_retried_and_then_told_as_a_failure(nodes: Nodes, target: Target, sqlite_url: str):
    node = nodes.start(sqlite_url)
    policy = {"max_retries": 2, "initial_delay": 0.01}
    call = {"url": target.url("/status/503"), "retry_policy": policy, "failure_url": target.url("/bad")}
    run_id = node.ask("POST", "/calls", call)["run_id"]
    node.wait_for_run(run_id, "FAILED")
    assert [one.attempt for one in target.at("/status/503")] == [1, 2, 3]
    (told,) = target.wait_for("/bad")
    outcome = json.loads(told.body)
    assert (outcome["status"], outcome["attempts"], outcome["error_details"]["kind"]) == ("FAILED", 3, "http_5xx")


@pytest.mark.parametrize("point", ["K6", "K28", "K7"])
def test_a_call_and_its_outcome_outlive_a_node(point: str, nodes: Nodes, target: Target, store_url: str):
    """K6: the answer is in hand and not settled. K28: before the commit that settles it and makes the telling; K7: after it."""
    armed = nodes.start(store_url, env={**SIGNED, "NOONBELL_FAILPOINT": point})
    call = {"url": target.url("/ok"), "success_url": target.url("/good"), "key": "only"}
    with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
        armed.ask("POST", "/calls", call)
    armed.wait_ended()
    again = nodes.start(store_url, env=SIGNED)
    run_id = again.ask("POST", "/calls", call)["run_id"]  # the key: whether it was answered or not, there is one call
    again.wait_for_run(run_id, "SUCCESS")
    told = target.wait_for("/good")
    assert {json.loads(one.body)["run_id"] for one in told} == {run_id}
    assert len({one.headers["Idempotency-Key"] for one in told}) == 1
    assert all(map(is_signed, told))
    sent = target.at("/ok")
    assert len(sent) == (1 if point == "K7" else 2)
    assert {one.run_id for one in sent} == {run_id}


def test_the_outcome_is_told_when_its_receiver_was_away(nodes: Nodes, target: Target, sqlite_url: str):
    receiver = Target()
    away = receiver.url("/good")
    receiver.close()
    node = nodes.start(sqlite_url)
    run_id = node.ask("POST", "/calls", {"url": target.url("/ok"), "success_url": away})["run_id"]
    node.wait_for_run(run_id, "SUCCESS")
    waiting = until(
        lambda: node.ask("GET", "/runs?origin=call&status=RETRYING")["items"] or None, "a telling that is retried"
    )
    assert [one["upstream_run_ids"] for one in waiting] == [[run_id]]
    assert waiting[0]["error_details"]["kind"] == "connection_refused"


def test_a_target_that_is_down_when_a_run_is_canceled_gets_the_notice_later(
    nodes: Nodes, target: Target, store_url: str
):
    node = nodes.start(store_url, env=SIGNED)
    with reserved_port() as port:
        fields = {"name": "t", "target_url": target.url("/hold/t"), "cancel_url": f"http://127.0.0.1:{port}/stop"}
        task_id = node.create(**fields, timeout_seconds=50)
        run_id = node.trigger(task_id)
        (arrival,) = target.wait_for("/hold/t")
        assert node.call("POST", f"/runs/{run_id}/cancel", {"reason": "wrong day"}).status == 200

        def waiting() -> int | None:
            found = node.ask("GET", "/runs?origin=call&status=RETRYING")["items"]
            return found[0]["id"] if found else None

        notice_id = until(waiting, "a first attempt that nothing listens to")
    late = Target(port=port)
    try:
        node.ask("POST", f"/runs/{notice_id}/promote")
        (told,) = late.wait_for("/stop")
        node.wait_for_run(notice_id, "SUCCESS")
    finally:
        late.close()
        target.release("t")
    assert is_signed(told)
    notice = json.loads(told.body)
    assert (notice["run_id"], notice["task"], notice["attempt"], notice["reason"]) == (run_id, "t", 1, "wrong day")
    assert notice["idempotency_key"] == arrival.headers["Idempotency-Key"]
    assert node.ask("GET", f"/runs/{notice_id}")["upstream_run_ids"] == [run_id]
