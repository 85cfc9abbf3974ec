"""Alerts, with real processes: a planner that stands still is noticed by another node; a failing task alerts once."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, Target, until

pytestmark = pytest.mark.acceptance


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def notices(target: Target, path: str) -> list[dict[str, Any]]:
    return [json.loads(arrival.body) for arrival in target.at(path)]


def log(node: ServerNode) -> list[dict[str, Any]]:
    return list(node.ask("GET", "/alerts/deliveries")["items"])


def watch(node: ServerNode, target: Target, path: str, **rule: Any) -> None:
    node.ask("POST", "/alerts/channels", {"name": "hook", "url": target.url(path)}, expect=201)
    node.ask("POST", "/alerts/rules", {"name": "watched", **rule}, expect=201)


def test_a_planner_that_stands_still_is_told_and_so_is_its_return(nodes: Nodes, store_url: str, target: Target):
    planner = nodes.launch("--store", store_url, "--no-api", "--no-worker", name="planner")
    until(lambda: " is ready" in planner.log, "the planner to be ready")
    server = nodes.start(store_url, "--no-scheduler")
    server.create(name="tick", cron_expr="* * * * * *", target_url=target.url("/tick"), misfire_policy="FIRE_ONCE")
    target.wait_for("/tick", 2)
    watch(server, target, "/hook", kind="overdue")

    planner.send(signal.SIGSTOP)
    try:
        (arrival,) = target.wait_for("/hook", 1)
        raised = json.loads(arrival.body)
        assert (raised["type"], raised["kind"], raised["task_name"]) == ("alert.raised", "overdue", "tick")
        assert [alert["kind"] for alert in server.ask("GET", "/alerts")["items"]] == ["overdue"]
    finally:
        planner.send(signal.SIGCONT)
    target.wait_for("/hook", 2)
    assert [notice["type"] for notice in notices(target, "/hook")] == ["alert.raised", "alert.recovered"]
    assert server.ask("GET", "/alerts")["items"] == []
    until(lambda: [one["status"] for one in log(server)] == ["DELIVERED"] * 2, "both to be written down as delivered")
    assert [one["type"] for one in log(server)] == ["alert.recovered", "alert.raised"]


def test_a_failing_task_alerts_once_on_two_nodes_and_says_when_it_is_well(nodes: Nodes, store_url: str, target: Target):
    first = nodes.start(store_url)
    second = nodes.start(store_url)
    watch(first, target, "/hook", kind="failed")
    task_id = second.create(name="sore", cron_expr="* * * * * *", target_url=target.url("/status/500"))
    target.wait_for("/hook")
    failures = len(target.at("/status/500"))
    target.wait_for("/status/500", failures + 4)
    second.ask("PATCH", f"/tasks/{task_id}", {"target_url": target.url("/ok")})
    target.wait_for("/hook", 2)
    told = notices(target, "/hook")
    assert [notice["type"] for notice in told] == ["alert.raised", "alert.recovered"]
    assert told[0]["title"] == "sore failed"
    assert "500" in told[0]["message"]
    assert told[1]["count"] >= 4
