"""The worker protocol against a real server: from curl alone, and by the worker of `examples/`."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import playwright
import pytest

from acceptance.conftest import FRESH
from acceptance.harness import PATIENCE, Nodes, ServerNode, until

pytestmark = pytest.mark.acceptance

EXAMPLE = Path(__file__).parents[2] / "examples/plain_worker.py"
QUICK = {"worker_timeout_ms": 1500, "ping_interval_ms": 300}


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.full) for name in ("postgres", "mariadb"))])
def store_url(request: pytest.FixtureRequest) -> str:
    """The servers in `make test-full`: `integration/api/test_protocol.py` speaks the protocol on them in every run."""
    return str(request.getfixturevalue(FRESH[request.param]))


def curl(node: ServerNode, path: str, body: Any = None, *, method: str = "POST") -> tuple[int, Any]:
    """What a person would type; the status and the answer."""
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", "-X", method]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{node.port}/api/v1{path}"], capture_output=True, text=True, check=True
    )
    text, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(text)


def good(node: ServerNode, path: str, body: Any = None, *, method: str = "POST") -> Any:
    status, answer = curl(node, path, body, method=method)
    assert status in (200, 201), answer
    return answer


def a_job(node: ServerNode, **fields: Any) -> int:
    return int(good(node, "/tasks", {"name": "a", "job_type": "work", **fields})["id"])


def trigger(node: ServerNode, task_id: int, **fields: Any) -> int:
    return int(good(node, f"/tasks/{task_id}/trigger", fields)["run_id"])


def claim(node: ServerNode, worker: str = "w1", **fields: Any) -> list[Any]:
    body = {"queues": ["default"], "job_types": ["work"], "max": 10, "wait_seconds": 0, "version": 0, **fields}
    return list(good(node, f"/workers/{worker}/claim", body)["runs"])


def settle(node: ServerNode, run: Any, outcome: str, worker: str = "w1", **more: Any) -> tuple[int, Any]:
    body = {"worker_id": worker, "token": run["token"], "outcome": outcome, **more}
    return curl(node, f"/runs/{run['run_id']}/settle", body)


def beat(node: ServerNode, *runs: Any, worker: str = "w1") -> Any:
    held = [{"run_id": run["run_id"], "token": run["token"]} for run in runs]
    return good(node, f"/workers/{worker}/heartbeat", {"runs": held})


def status(node: ServerNode, run: Any) -> Any:
    return good(node, f"/runs/{run['run_id']}", method="GET")["status"]


# ---- curl alone


def test_the_life_of_a_run_in_the_hands_of_curl(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    run_id = trigger(node, a_job(node), payload={"n": 1})
    (run,) = claim(node, wait_seconds=20)
    assert (run["run_id"], run["payload"], run["attempt"], run["job_type"]) == (run_id, {"n": 1}, 1, "work")
    told = beat(node, run)
    assert (told["runs"][0]["order"], told["worker"]["state"]) == ("continue", "running")
    assert told["runs"][0]["lease_expires_at"] > run["lease_expires_at"]
    held = {"worker_id": "w1", "token": run["token"]}
    good(node, f"/runs/{run_id}/progress", {**held, "current": 1, "total": 2, "message": "half"})
    good(node, f"/runs/{run_id}/log", {**held, "level": "info", "message": "starting"})
    good(node, f"/runs/{run_id}/extend", {**held, "seconds": 600})
    assert settle(node, run, "success", result={"rows": 42}) == (200, {"run_id": run_id, "status": "SUCCESS"})
    stored = good(node, f"/runs/{run_id}", method="GET")
    assert (stored["status"], stored["result"], stored["worker_id"]) == ("SUCCESS", {"rows": 42}, "w1")
    assert stored["progress"] == {"current": 1, "total": 2, "message": "half"}
    assert [line["message"] for line in good(node, f"/runs/{run_id}/log", method="GET")["items"]] == ["starting"]
    refused, answer = settle(node, run, "success")
    assert (refused, answer["code"]) == (409, "LEASE_LOST")


def test_a_long_poll_of_curl_is_woken_by_a_trigger(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    task_id = a_job(node)
    address = f"http://127.0.0.1:{node.port}/api/v1/workers/w1/claim"
    body = json.dumps({"queues": ["default"], "wait_seconds": 30})
    command = ["curl", "--silent", "-X", "POST", "-H", "Content-Type: application/json", "-d", body, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        until(lambda: [one for one in _workers(node) if one["id"] == "w1"], "the worker to be there")
        run_id = trigger(node, task_id)
        said, _ = waiting.communicate(timeout=PATIENCE)
    assert [run["run_id"] for run in json.loads(said)["runs"]] == [run_id]


def _workers(node: ServerNode) -> list[Any]:
    return list(good(node, "/workers", method="GET")["items"])


def test_another_worker_takes_over_after_the_lease_and_the_first_is_refused(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    trigger(node, a_job(node, **QUICK))
    (dead,) = claim(node, "dead")
    (alive,) = until(lambda: claim(node, "alive", wait_seconds=2), "the lease to run out")
    assert (alive["run_id"], alive["attempt"]) == (dead["run_id"], 2)
    refused, answer = settle(node, dead, "success", "dead")
    assert (refused, answer["code"]) == (409, "LEASE_LOST")
    assert beat(node, dead, worker="dead")["runs"][0]["order"] == "lost"
    assert settle(node, alive, "success", "alive")[0] == 200


def test_a_heartbeat_keeps_a_run_for_longer_than_its_lease(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    trigger(node, a_job(node, **QUICK))
    (run,) = claim(node)
    ends = run["lease_expires_at"]
    now = until(
        lambda: told if (told := beat(node, run)["runs"][0])["lease_expires_at"] > _later(ends) else None,
        "three leases to pass",
    )
    assert now["order"] == "continue"
    assert claim(node, "thief") == []
    assert settle(node, run, "success")[1]["status"] == "SUCCESS"


def _later(moment: str) -> str:
    return (datetime.fromisoformat(moment) + timedelta(seconds=4.5)).isoformat().replace("+00:00", "Z")


def test_a_canceled_run_is_ordered_to_stop_and_its_result_refused(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    trigger(node, a_job(node))
    (run,) = claim(node)
    assert good(node, f"/runs/{run['run_id']}/cancel")["canceled"] is True
    assert beat(node, run)["runs"][0]["order"] == "cancel"
    refused, answer = settle(node, run, "success")
    assert (refused, answer["code"], answer["details"]["status"]) == (409, "LEASE_LOST", "CANCELED")


def test_fail_is_final_and_error_is_retried(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    task_id = a_job(node, retry_policy={"max_retries": 1, "initial_delay": 0.1, "strategy": "fixed"})
    trigger(node, task_id)
    (first,) = claim(node)
    assert settle(node, first, "error", error_message="no network")[1]["status"] == "RETRYING"
    (second,) = claim(node, wait_seconds=20)
    assert (second["run_id"], second["attempt"]) == (first["run_id"], 2)
    assert settle(node, second, "error")[1]["status"] == "FAILED"
    trigger(node, task_id)
    (third,) = claim(node, wait_seconds=20)
    assert settle(node, third, "fail", error_message="no such image")[1]["status"] == "FAILED"
    stored = good(node, f"/runs/{third['run_id']}", method="GET")
    assert (stored["retry_count"], stored["error_details"]["kind"]) == (0, "fail")


def test_a_worker_that_is_drained_gets_no_more(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    task_id = a_job(node)
    trigger(node, task_id)
    (run,) = claim(node)
    assert good(node, "/workers/w1/drain") == {"worker_id": "w1", "state": "draining"}
    trigger(node, task_id)
    assert claim(node) == []
    assert beat(node, run)["worker"]["state"] == "draining"
    assert settle(node, run, "success")[1]["status"] == "SUCCESS"
    assert [other["attempt"] for other in claim(node, "w2", wait_seconds=5)] == [1]
    good(node, "/workers/w1/stop")
    assert beat(node)["worker"]["state"] == "stopping"


def test_http_runs_are_refused_to_workers_of_the_protocol(nodes: Nodes, sqlite_url: str):
    node = nodes.start(sqlite_url)
    refused, answer = curl(node, "/workers/w1/claim", {"queues": ["http"]})
    assert (refused, answer["code"], list(answer["details"])) == (400, "INVALID_ARGUMENT", ["queues"])


def test_a_long_poll_does_not_hold_up_the_end_of_the_server(nodes: Nodes, store_url: str):
    node = nodes.start(store_url)
    address = f"http://127.0.0.1:{node.port}/api/v1/workers/w1/claim"
    command = ["curl", "--silent", "-X", "POST", "-d", '{"wait_seconds": 30}', address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        until(lambda: [one for one in _workers(node) if one["id"] == "w1"], "the worker to be there")
        assert node.stop() == 0
        said, _ = waiting.communicate(timeout=PATIENCE)
    assert json.loads(said)["runs"] == []


def test_a_task_that_no_worker_could_take_is_told_of(nodes: Nodes, sqlite_url: str):
    node = nodes.start(sqlite_url)
    trigger(node, a_job(node, queue="lonely"))
    until(lambda: "no worker could take the runs of task 1" in node.log, "the warning")


# ---- the worker of the examples


class Example:
    """One `python examples/plain_worker.py`, or another program that does the same."""

    def __init__(
        self,
        folder: Path,
        node: ServerNode,
        name: str,
        *queues: str,
        command: Sequence[str] = (sys.executable, str(EXAMPLE)),
    ) -> None:
        env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
        self.name = name
        self._log = (folder / f"{name}.log").open("ab")
        self.process = subprocess.Popen([*command, name, *queues], env=env, stdout=self._log, stderr=self._log)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._log.close()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Any]:
    started: list[Example] = []

    def start(node: ServerNode, name: str, *queues: str, **options: Any) -> Example:
        started.append(Example(tmp_path, node, name, *queues, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


WORKERS = EXAMPLE.with_name("workers")


Program = Callable[[str, str], str]


def shell_worker(_: Path, program: Program) -> list[str]:
    for tool in ("bash", "curl", "jq"):
        program(tool, tool)
    return ["bash", str(WORKERS / "worker.sh")]


def typescript_worker(_: Path, __: Program) -> list[str]:
    """By the Node of this machine, else by the one that comes with Playwright."""
    own, brought = shutil.which("node"), Path(playwright.__file__).parent / "driver/node"
    for node in (own, str(brought) if brought.exists() else None):
        if node is not None and _node_version(node) >= (22, 18):
            return [node, str(WORKERS / "worker.ts")]
    pytest.skip("worker.ts needs Node 22.18 or newer, which runs TypeScript as it is")


def _node_version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said[1:].split(".")[:2])


def go_worker(folder: Path, program: Program) -> list[str]:
    go = program("go", "golang-go")
    subprocess.run([go, "build", "-o", str(folder / "worker"), str(WORKERS / "worker.go")], check=True)
    return [str(folder / "worker")]


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(shell_worker, id="shell"),
        pytest.param(typescript_worker, id="typescript"),
        pytest.param(go_worker, id="go", marks=pytest.mark.full),  # Go compiles its standard library first
    ],
)
def test_the_examples_in_other_languages_carry_out_runs_and_stop_when_asked(
    built: Callable[[Path, Program], list[str]],
    nodes: Nodes,
    sqlite_url: str,
    tmp_path: Path,
    crew: Any,
    program: Program,
):
    command = built(tmp_path, program)
    node = nodes.start(sqlite_url)
    divide = a_job(node, name="divide", job_type="divide", **QUICK)
    sleep = a_job(node, name="sleep", job_type="sleep", **QUICK)
    worker = crew(node, "w1", command=command)
    half, none = (
        trigger(node, divide, payload={"number": 1, "by": 2}),
        trigger(node, divide, payload={"number": 1, "by": 0}),
    )
    found = ended(node, half), ended(node, none)
    assert [run["status"] for run in found] == ["SUCCESS", "FAILED"]
    assert (found[0]["result"], "division by zero" in found[1]["error_message"]) == (0.5, True)
    long = ended(node, trigger(node, sleep, payload={"seconds": 2.5}))
    assert (long["status"], long["attempt"], long["result"]) == ("SUCCESS", 1, {"slept": True}), "it outlasts its lease"
    # So that no other process of this machine is taken for it, and below the 24 days that a timer of Node can wait.
    seconds = 600_000 + os.getpid() % 1_000_000
    endless = trigger(node, sleep, payload={"seconds": seconds})
    until(lambda: run_of(node, endless)["status"] == "RUNNING", "the start of the long run")
    if built is shell_worker:
        until(lambda: is_there(f"sleep {seconds}"), "the program of the handler")
    good(node, f"/runs/{endless}/cancel")
    after = ended(node, trigger(node, divide, payload={"number": 9, "by": 3}))
    assert (after["result"], run_of(node, endless)["status"]) == (3, "CANCELED"), "a canceled run leaves its place"
    until(lambda: not is_there(f"sleep {seconds}"), "what a canceled handler started to end")
    worker.process.terminate()
    assert worker.process.wait(PATIENCE) == 0


def is_there(command: str) -> bool:
    return subprocess.run(["pgrep", "-xf", command], check=False, capture_output=True).returncode == 0


def run_of(node: ServerNode, run_id: int) -> Any:
    return good(node, f"/runs/{run_id}", method="GET")


def ended(node: ServerNode, run_id: int) -> Any:
    until(lambda: run_of(node, run_id)["final_status"] is not None, f"the end of run {run_id}")
    return run_of(node, run_id)


def test_the_example_is_short_and_needs_nothing_but_python():
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) < 100
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_the_example_carries_runs_out(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    crew(node, "plain")
    task_id = a_job(node, job_type="divide", retry_policy={"max_retries": 1, "initial_delay": 0})
    good_one = trigger(node, task_id, payload={"number": 10, "by": 4})
    final = trigger(node, task_id, payload={"number": 1, "by": 0})
    broken = trigger(node, task_id, payload={})
    assert node.wait_for_run(good_one, "SUCCESS")["result"] == 2.5
    failed = node.wait_for_run(final, "FAILED")
    assert (failed["attempt"], failed["error_message"]) == (1, "Fail: nobody can divide by zero")
    erred = node.wait_for_run(broken, "FAILED")
    assert (erred["attempt"], erred["error_message"]) == (2, "KeyError: 'by'")


def test_the_example_obeys_a_cancel(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    crew(node, "plain")
    task_id = a_job(node, job_type="sleep", **QUICK)
    run_id = trigger(node, task_id, payload={"seconds": 600})
    node.wait_for_run(run_id, "RUNNING")
    node.ask("POST", f"/runs/{run_id}/cancel")
    after = trigger(node, task_id, payload={"seconds": 0})
    assert node.wait_for_run(after, "SUCCESS")["result"] == {"slept": True}
    assert node.run(run_id)["status"] == "CANCELED"


def test_what_a_killed_example_held_is_done_by_another(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    first = crew(node, "first")
    run_id = trigger(node, a_job(node, job_type="sleep", **QUICK), payload={"seconds": 3})
    assert node.wait_for_run(run_id, "RUNNING")["worker_id"] == "first"
    first.process.kill()
    crew(node, "second")
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["worker_id"], run["attempt"], run["lost_count"]) == ("second", 2, 1)


def test_the_example_ends_gracefully_on_a_signal_and_on_an_operators_word(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    task_id = a_job(node, job_type="sleep", **QUICK)
    for name in ("by-signal", "by-operator"):
        worker = crew(node, name)
        run_id = trigger(node, task_id, payload={"seconds": 2})
        assert node.wait_for_run(run_id, "RUNNING")["worker_id"] == name
        if name == "by-signal":
            worker.process.send_signal(signal.SIGTERM)
        else:
            node.ask("POST", f"/workers/{name}/stop")
        assert worker.process.wait(PATIENCE) == 0
        assert node.run(run_id)["status"] == "SUCCESS"


def test_a_task_that_is_pinned_anew_moves_to_the_worker_it_names(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    crew(node, "first")
    crew(node, "second")
    task_id = a_job(node, job_type="sleep", specific_worker_ids=["first"], **QUICK)
    run_id = trigger(node, task_id, payload={"seconds": 4})
    assert node.wait_for_run(run_id, "RUNNING")["worker_id"] == "first"
    node.ask("PATCH", f"/tasks/{task_id}", {"specific_worker_ids": ["second"]})
    later = trigger(node, task_id, payload={"seconds": 0})
    assert node.wait_for_run(later, "SUCCESS")["worker_id"] == "second"
    moved = node.wait_for_run(run_id, "SUCCESS")
    assert (moved["worker_id"], moved["attempt"], moved["lost_count"]) == ("second", 1, 0)


def test_a_fan_out_reaches_every_worker_once(nodes: Nodes, store_url: str, crew):
    node = nodes.start(store_url)
    names = ["one", "three", "two"]
    for name in names:
        crew(node, name)
    until(lambda: {one["id"] for one in _workers(node)} >= set(names), "the workers to be there")
    for number, fanout in enumerate(({"workers": 3}, {"workers": "all"})):
        task_id = a_job(node, name=f"fan-{number}", job_type="sleep", fanout=fanout, **QUICK)
        parent = trigger(node, task_id, payload={"seconds": 0.2})
        node.wait_for_run(parent, "SUCCESS")
        parts = node.ask("GET", f"/runs?parent_id={parent}")["items"]
        assert sorted(part["worker_id"] for part in parts) == names
        assert sorted(part["shard_index"] for part in parts) == [0, 1, 2]


@pytest.mark.parametrize("url", ["postgres_url", "mysql_url"])
def test_a_worker_that_waits_at_one_node_gets_what_comes_in_at_another(nodes: Nodes, request, url: str):
    store = str(request.getfixturevalue(url))
    here, there = nodes.start(store), nodes.start(store, "--no-worker")
    task_id = a_job(here)
    address = f"http://127.0.0.1:{there.port}/api/v1/workers/w1/claim"
    command = ["curl", "--silent", "-X", "POST", "-d", '{"wait_seconds": 30}', address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        until(lambda: [one for one in _workers(here) if one["id"] == "w1"], "the worker to be there")
        run_id = trigger(here, task_id)
        said, _ = waiting.communicate(timeout=PATIENCE)
    (run,) = json.loads(said)["runs"]
    assert run["run_id"] == run_id
    assert beat(here, run)["runs"][0]["order"] == "continue"
    assert settle(here, run, "success")[1]["status"] == "SUCCESS"
