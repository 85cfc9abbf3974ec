"""gRPC tasks on real processes: a node, a server with reflection, on each store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until

TESTS = Path(__file__).parents[1]


@pytest.fixture
def bell() -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, "-m", "services.grpc_bell", "0"]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture
def node(nodes: Nodes, store_url: str) -> ServerNode:
    return nodes.start(store_url).wait_ready()


def call(port: int, method: str, **more: Any) -> dict[str, Any]:
    return {"address": f"127.0.0.1:{port}", "method": f"bell.v1.Bell/{method}", **more}


def test_a_node_carries_out_grpc_tasks_flows_and_callbacks(node: ServerNode, bell: int) -> None:
    secret = {"authorization": "Bearer canary-token"}
    task = node.create(name="ring", grpc=call(bell, "Echo", metadata=secret), payload={"name": "ding", "times": 3})
    shown = node.ask("GET", f"/tasks/{task}")
    assert (shown["exec_type"], shown["queue"]) == ("GRPC", "target:grpc")
    assert shown["grpc"]["metadata"] == {"authorization": "***"}
    done = node.wait_for_run(node.trigger(task), "SUCCESS")
    assert (done["result"]["name"], done["result"]["times"]) == ("ding", "3")
    assert f"x-noonbell-run={done['id']}" in done["result"]["metadata"]
    assert "canary" not in str(node.ask("GET", f"/runs/{done['id']}")) + str(
        node.ask("GET", f"/runs/{done['id']}/attempts")
    )

    own = node.wait_for_run(node.trigger(task, payload={"name": "of the run"}), "SUCCESS")
    assert own["result"]["name"] == "of the run"

    node.ask("PATCH", f"/tasks/{task}", {"grpc": {**shown["grpc"], "method": "bell.v1.Bell/Ends"}})
    assert node.ask("GET", f"/tasks/{task}")["grpc"]["method"] == "bell.v1.Bell/Ends"
    failed = node.wait_for_run(node.trigger(task, payload={"name": "NOT_FOUND"}), "FAILED")
    details = failed["error_details"]
    assert (details["kind"], details["grpc_status"], details["said"]["code"]) == (
        *("grpc_not_found", "NOT_FOUND"),
        "grpc_answered",
    )

    flow = node.create(
        name="flow",
        steps=[
            {"id": "a", "grpc": call(bell, "Echo"), "payload": {"name": "first", "times": 0}},
            {
                "id": "b",
                "needs": ["a"],
                "when": "steps.a.result.times == '0'",
                "grpc": call(bell, "Echo"),
                "payload": {"name": "after {{ steps.a.result.name }}"},
            },
        ],
    )
    run = node.trigger(flow)
    node.wait_for_run(run, "SUCCESS")
    steps = {step["id"]: step for step in node.ask("GET", f"/runs/{run}/graph")["steps"]}
    assert steps["b"]["calls"] == "bell.v1.Bell/Echo"
    assert node.run(steps["b"]["run_id"])["result"]["name"] == "after first"

    waits = node.create(name="waits", grpc=call(bell, "Echo", callback=True), callback_timeout_sec=600)
    run = node.trigger(waits)
    node.wait_for_run(run, "CALLBACK_PENDING")
    node.ask("POST", "/callbacks", {"task_id": waits, "run_id": run, "status": "SUCCESS", "data": {"rows": 4}})
    ended = node.wait_for_run(run, "CALLBACK_SUCCESS")
    assert ended["result"] == {"rows": 4}


def test_a_run_in_hand_when_its_node_is_killed_is_carried_out_by_the_next(
    nodes: Nodes, store_url: str, bell: int
) -> None:
    node = nodes.start(store_url).wait_ready()
    fields = {"worker_timeout_ms": 1000, "ping_interval_ms": 300, "timeout_seconds": 60}
    task = node.create(name="hangs", grpc=call(bell, "Hangs"), **fields)
    once = node.create(name="once", grpc=call(bell, "Hangs"), delivery="at_most_once", **fields)
    runs = [node.trigger(task), node.trigger(once)]
    for run in runs:
        node.wait_for_run(run, "RUNNING")
    until(lambda: all(node.ask("GET", f"/runs/{run}/attempts")["items"] for run in runs), "the attempts began")
    node.kill()
    again = nodes.start(store_url).wait_ready()
    assert again.wait_for_run(runs[1], "FAILED")["error_details"]["kind"] == "unknown"
    until(lambda: again.run(runs[0])["attempt"] == 2, "the second attempt")
    again.ask("POST", f"/runs/{runs[0]}/cancel")
    again.wait_for_run(runs[0], "CANCELED")
