"""A node dies in the middle of a flow (K16: before the commit; K7: after it), and the flow ends all the same, each step once."""

from __future__ import annotations

import time
from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, until
from faults.sink import Sink
from faults.trial import KILLED, LEASE, NODE, PATIENCE

POINTS = ["K16:1", "K16:2", "K16:4", "K7:1", "K7:3", "K3:2", "K6:2"]
"""K16:1 dies when the flow starts, the others when a step is settled; K3 and K6 with a step in hand."""


def steps(sink: Sink) -> list[dict[str, Any]]:
    lease = {**LEASE, "retry_policy": {"max_retries": 0}}
    return [
        {"id": "first", "target_url": sink.url("/ok"), **lease},
        {
            "id": "each",
            "needs": ["first"],
            "foreach": [1, 2, 3],
            "max_parallel": 2,
            "target_url": sink.url("/ok"),
            **lease,
        },
        {"id": "off", "needs": ["first"], "when": "false", "target_url": sink.url("/ok"), **lease},
        {"id": "last", "needs": ["each", "off"], "on": "any", "target_url": sink.url("/ok"), **lease},
    ]


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_flow_ends_although_a_node_dies_in_it(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
            armed.create(name="trial", steps=steps(sink), schedule={"type": "once", "at": None})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        task = int(again.ask("GET", "/tasks/name:trial")["id"])
        run = until(lambda: final(again, task), "the flow to end", PATIENCE)
        assert run["status"] == "SUCCESS"
        shown = {step["id"]: step["status"] for step in again.ask("GET", f"/runs/{run['id']}/graph")["steps"]}
        assert shown == {"first": "SUCCESS", "each": "SUCCESS", "off": "SKIPPED", "last": "SUCCESS"}
        parts = again.ask("GET", f"/runs?parent_id={run['id']}&sort=id")["items"]
        assert [(part["step_id"], part["item_index"], part["status"]) for part in parts] == [
            ("first", None, "SUCCESS"), ("each", 0, "SUCCESS"), ("each", 1, "SUCCESS"), ("each", 2, "SUCCESS"), ("last", None, "SUCCESS"),
        ]  # fmt: skip
        keys = {delivery.key for delivery in sink.deliveries()}
        assert keys == {part["idempotency_key"] for part in parts}, "a step that is sent twice has the same key"
    finally:
        nodes.end()
        sink.close()


def final(node: Any, task: int) -> Any:
    runs = node.runs_of(task)
    time.sleep(0.05)
    return runs[0] if runs and runs[0]["final_status"] is not None else None
