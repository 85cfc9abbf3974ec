"""A node dies while a run with a key ends and the next one is let in (K26): the line goes on, in order, one at a time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until
from faults.known_slots import audited
from faults.report import TIMES, Report
from faults.sink import Sink
from faults.trial import KILLED, LEASE, NODE, PATIENCE

POINTS = ["K26:1", "K26:3", "K7:2"]
"""Before the first commit that lets a run in, before the third; after one."""
TENANTS, EACH = ("a", "b"), 4


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path / "sink.jsonl")
    yield sink
    sink.close()


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_line_goes_on_after_the_death_of_the_node_that_let_the_next_run_in(
    store: str, point: str, stores_in_turn, tmp_path: Path, sink: Sink, faults_report: Report
):
    for number, url in enumerate(stores_in_turn(store, TIMES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        nodes = Nodes(folder)
        try:
            one_death(nodes, url, point, sink)
        finally:
            nodes.end()
        assert audited(url).splitlines()[-1] == "0 holes, 0 doubles"
    faults_report.chapters.append(
        f"### Limits per key, {point} on {store}\n\n{TIMES} deaths; each line went on, one run at a time.\n"
    )


def one_death(nodes: Nodes, url: str, point: str, sink: Sink) -> None:
    armed = started(nodes, url, {"NOONBELL_FAILPOINT": point})
    task = {
        "name": "import",
        "target_url": sink.url("/slow/0.05"),
        "http_method": "POST",
        "max_concurrency": None,
        "concurrency_key": "payload.tenant",
        **LEASE,
    }
    armed.ask("POST", "/tasks", task, expect=201)
    runs = [{"task": "import", "payload": {"tenant": tenant}} for _ in range(EACH) for tenant in TENANTS]
    with suppress(ConnectionError, HTTPException):
        armed.ask("POST", "/runs/batch", {"runs": runs})
    assert armed.wait_ended(PATIENCE) == KILLED, armed.log
    again = started(nodes, url, {})
    ended = until(lambda: all_ended(again), "every run to end", PATIENCE)
    assert len(ended) == EACH * len(TENANTS)
    assert {run["status"] for run in ended} == {"SUCCESS"}
    assert again.ask("GET", "/tasks/name:import/keys")["items"] == []
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in sorted(ended, key=lambda run: run["id"]):
        lines[TENANTS[len([other for other in ended if other["id"] < run["id"]]) % len(TENANTS)]].append(run)
    for line in lines.values():
        times = [(datetime.fromisoformat(run["start_time"]), datetime.fromisoformat(run["end_time"])) for run in line]
        ends = [end for _, end in times]
        assert ends == sorted(ends)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))


def started(nodes: Nodes, url: str, env: dict[str, str]) -> ServerNode:
    return nodes.launch("--store", url, "--port", "0", env=NODE | env).wait_ready(PATIENCE)


def all_ended(node: ServerNode) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = node.ask("GET", "/tasks/name:import/runs?page_size=100")["items"]
    return runs if runs and all(run["final_status"] for run in runs) else []
