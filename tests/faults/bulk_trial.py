"""A bulk retry of three batches whose node dies at a kill point, and which the node after it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acceptance.harness import Nodes, ServerNode, until
from faults.trial import KILLED, NODE, PATIENCE


def retried_once_each(url: str, point: str, folder: Path, count: int = 450) -> None:
    """Three batches, the node dies at `point`, and the node after it ends the operation."""
    nodes = Nodes(folder)
    try:
        arguments = ("--store", url, "--port", "0")
        armed = nodes.launch(*arguments, env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        task = armed.create(name="retried", job_type="nobody-has-it")
        made = armed.ask("POST", "/runs/batch", {"runs": [{"task": task}] * count})["runs"]
        armed.ask("POST", "/runs/cancel", {"filter": {"task": "retried"}})
        chosen = {"kind": "retry_runs", "filter": {"task": "retried"}}
        operation = armed.ask("POST", "/bulk", chosen)["id"]
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch(*arguments, env=NODE).wait_ready(PATIENCE)
        ended = until(lambda: _ended(again, operation), "the operation to end", PATIENCE)
        assert (ended["status"], ended["done"], ended["skipped"]) == ("DONE", count, 0)
        page = again.ask("GET", "/runs?task=retried&origin=retry&page_size=1000")["items"]
        assert sorted(run["retry_of_run_id"] for run in page) == sorted(each["run_id"] for each in made)
    finally:
        nodes.end()


def _ended(node: ServerNode, operation: int) -> dict[str, Any] | None:
    found: dict[str, Any] = node.ask("GET", f"/bulk/{operation}")
    return found if found["status"] != "RUNNING" else None
