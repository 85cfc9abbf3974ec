"""A worker dies around a command: before it starts (K29), after its exit and before settlement (K30), and by kill -9 while it runs.

Nothing that it started lives on, and its run is attempted again, or not, as the rules of leases say.
"""

from __future__ import annotations

from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until
from conformance.target.scenes import is_running
from faults.trial import KILLED, LEASE, NODE, PATIENCE

STORES = ["sqlite", "postgres", "mariadb"]
DELIVERIES = ["at_least_once", "at_most_once"]
BEFORE, AFTER = "K29", "K30"
LINES = {
    (BEFORE, "at_least_once"): ["2"],
    (BEFORE, "at_most_once"): [],
    (AFTER, "at_least_once"): ["1", "2"],
    (AFTER, "at_most_once"): ["1"],
}
"""The attempts that the program saw, by where its worker died."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a node that runs commands."""
    file = tmp_path / "allow.yaml"
    file.write_text("programs: [/bin/sh]\n")
    file.chmod(0o600)
    return {**NODE, "NOONBELL_JOBS__COMMANDS_FILE": str(file)}


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def trigger_new(node: ServerNode, command: str, delivery: str) -> int:
    """A task whose run is lost soon after its worker; it is triggered."""
    fields: dict[str, Any] = {"name": "a", "command": command, "shell": True, "delivery": delivery, **LEASE}
    task_id = int(node.ask("POST", "/tasks", fields, expect=201)["id"])
    with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
        node.trigger(task_id)
    return task_id


def check_ending(node: ServerNode, task_id: int, delivery: str) -> None:
    (run,) = node.runs_of(task_id)
    ended = node.wait_for_run(run["id"], "SUCCESS", "FAILED", seconds=PATIENCE)
    if delivery == "at_least_once":
        assert (ended["status"], ended["attempt"], ended["lost_count"]) == ("SUCCESS", 2, 1)
    else:
        assert (ended["status"], ended["attempt"], ended["error_details"]["kind"]) == ("FAILED", 1, "unknown")


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("point", [BEFORE, AFTER])
@pytest.mark.parametrize("store", STORES)
def test_a_worker_that_dies_around_a_command_repeats_it_as_its_delivery_says(
    store: str, point: str, delivery: str, store_urls, tmp_path: Path, environment: dict[str, str]
):
    (url,) = store_urls(store, 1)
    nodes, file = Nodes(tmp_path), tmp_path / "attempts"
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**environment, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        task_id = trigger_new(armed, f"echo $NOONBELL_ATTEMPT >> {file}", delivery)
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=environment).wait_ready(PATIENCE)
        check_ending(again, task_id, delivery)
        assert lines(file) == LINES[point, delivery]
    finally:
        nodes.end()


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("store", STORES)
def test_nothing_of_a_command_outlives_a_worker_that_is_killed(
    store: str, delivery: str, store_urls, tmp_path: Path, environment: dict[str, str]
):
    (url,) = store_urls(store, 1)
    nodes, file = Nodes(tmp_path), tmp_path / "pids"
    hangs = f"trap '' TERM; echo $$ >> {file}; setsid sh -c \"trap '' TERM; echo \\$\\$ >> {file}; sleep 1000\" & sleep 1000"
    try:
        node = nodes.launch("--store", url, "--port", "0", env=environment).wait_ready(PATIENCE)
        task_id = trigger_new(node, f'if [ "$NOONBELL_ATTEMPT" = 1 ]; then {hangs}; fi', delivery)
        until(lambda: len(lines(file)) == 2 or None, "the command and its daemon", PATIENCE)
        pids = [int(line) for line in lines(file)]
        assert all(map(is_running, pids))
        node.kill()
        until(lambda: not any(map(is_running, pids)) or None, "the end of all processes", PATIENCE)
        again = nodes.launch("--store", url, "--port", "0", env=environment).wait_ready(PATIENCE)
        check_ending(again, task_id, delivery)
        assert len(lines(file)) == 2
    finally:
        nodes.end()
