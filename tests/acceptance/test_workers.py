"""A node that serves and a worker process beside it, told what to do over the API and by the command line."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import PATIENCE, until
from services import forked

APP = Path(__file__).with_name("jobs_app.py")


class WorkerProcess:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "worker.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        with self._log.open("ab") as log:
            self.process = forked.start("worker", *arguments, cwd=folder, env=clean, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.log, f"the worker to say {text!r}")


@pytest.fixture
def worker(tmp_path):
    with contextlib.ExitStack() as started:

        def start(*arguments: str) -> WorkerProcess:
            worker = WorkerProcess(tmp_path, *arguments)
            started.callback(worker.process.wait, PATIENCE)
            started.callback(lambda: worker.process.poll() is None and worker.process.kill())
            worker.wait_for("is ready")
            return worker

        yield start


def noonbell(node, *arguments: str) -> str:
    env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{node.port}", "NOONBELL_OUTPUT": ""}
    done = forked.run(*arguments, env=env, seconds=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(folder: Path, name: str) -> bool:
    file = folder / f"{name}.txt"
    return file.exists() and "start" in file.read_text()


def test_a_node_without_the_app_leaves_its_jobs_to_the_worker_process(nodes, sqlite_url, worker, tmp_path):
    node = nodes.start(sqlite_url)
    worker("--app", f"{APP}:app", "--store", sqlite_url, "--worker-id", "w1", "--concurrency", "2")
    (tmp_path / "go").touch()
    run_id = node.trigger("name:held", payload={"folder": str(tmp_path)})
    assert node.wait_for_run(run_id, "SUCCESS")["result"]["worker_id"] == "w1"


def test_workers_are_listed_drained_resized_and_stopped_from_the_command_line(nodes, sqlite_url, worker, tmp_path):
    node = nodes.start(sqlite_url)
    process = worker("--app", f"{APP}:app", "--store", sqlite_url, "--worker-id", "w1", "--concurrency", "2")
    run_id = node.trigger("name:held", payload={"folder": str(tmp_path)})
    until(lambda: started(tmp_path, "held"), "the handler to start")
    assert "w1" in noonbell(node, "worker", "list", "-o", "name").split()
    noonbell(node, "worker", "set", "w1", "--concurrency", "7")
    assert node.ask("GET", "/workers/w1")["concurrency"] == 7
    noonbell(node, "worker", "drain", "w1")
    assert node.ask("GET", "/workers/w1")["state"] == "draining"
    noonbell(node, "worker", "stop", "w1")
    process.wait_for("an operator asked for it")
    (tmp_path / "go").touch()
    assert process.process.wait(PATIENCE) == 0
    assert node.run(run_id)["status"] == "SUCCESS"


def test_a_worker_inside_serve_is_drained_and_never_stopped_alone(nodes, sqlite_url, tmp_path):
    node = nodes.start(sqlite_url, "--app", str(APP))
    workers = node.ask("GET", "/workers")["items"]
    assert {one["part_of"] for one in workers} == {"serve"}
    (jobs,) = [one["id"] for one in workers if "default" in one["queues"]]
    refused = node.ask("POST", f"/workers/{jobs}/stop", expect=409)
    assert refused["code"] == "INVALID_STATE"
    assert "drain it" in refused["message"]
    env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    said = forked.run("worker", "stop", jobs, env=env)
    assert said.returncode != 0
    assert "drain it" in said.stderr
    (tmp_path / "go").touch()
    assert node.wait_for_run(node.trigger("name:held", payload={"folder": str(tmp_path)}), "SUCCESS")
    noonbell(node, "worker", "drain", jobs)
    ready = until(lambda: _ready_with(node, jobs, "draining"), "readyz to show it")
    assert ready["ok"], "somebody wants it so"
    found = forked.run("doctor", "--store", sqlite_url, cwd=tmp_path)
    assert "drained although their node" in found.stdout + found.stderr


def _ready_with(node, worker_id: str, state: str) -> Any:
    ready = node.ask("GET", "/readyz")
    return ready if any((one["id"], one["state"]) == (worker_id, state) for one in ready["workers"]) else None


def test_a_worker_without_a_scheduler_anywhere_says_so_and_when_there_is_one(nodes, sqlite_url, worker, tmp_path):
    process = worker("--app", f"{APP}:app", "--store", sqlite_url)
    process.wait_for("no scheduler is running on this store: schedules do not fire")
    process.wait_for("start one with `noonbell serve`")
    found = forked.run("doctor", "--store", sqlite_url, seconds=PATIENCE)
    assert "! scheduler  no scheduler is running on this store" in found.stdout
    node = nodes.start(sqlite_url, "--no-scheduler")
    assert node.ask("GET", "/workers")["has_scheduler"] is False
    env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    listed = forked.run("worker", "list", env=env, seconds=PATIENCE)
    assert "no scheduler is running on this store" in listed.stderr
    until(lambda: "no scheduler is running" in node.log, "the node that does not plan to say so too")
    nodes.start(sqlite_url)
    process.wait_for("a scheduler is running on this store now")
    assert node.ask("GET", "/workers")["has_scheduler"] is True
    found = forked.run("doctor", "--store", sqlite_url, seconds=PATIENCE)
    assert "✔ scheduler  last seen" in found.stdout


def test_serve_executes_the_jobs_of_an_app_itself(nodes, sqlite_url, tmp_path):
    node = nodes.start(sqlite_url, "--app", str(APP))
    (tmp_path / "go").touch()
    run_id = node.trigger("name:held", payload={"folder": str(tmp_path)})
    assert node.wait_for_run(run_id, "SUCCESS")["result"]["execution_id"]
    failed = node.wait_for_run(node.trigger("name:hopeless"), "FAILED")
    assert failed["error_details"] == {"kind": "fail", "reason": "closed"}
    unfit = node.trigger("name:flaky", payload={"folder": 7})
    assert node.wait_for_run(unfit, "FAILED")["error_details"]["kind"] == "invalid_payload"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "sqlite:///x.db"), "needs --app"),
        (("--app", "no_such_module:app"), "no such module"),
        (("--app", "nowhere.py"), "no such file"),
        (("--app", f"{APP}:nothing"), "no App called 'nothing'"),
        (("--app", str(APP), "--concurrency", "many"), "worker_concurrency"),
    ],
)
def test_a_worker_that_cannot_be_started_says_why_in_one_line(tmp_path, arguments, said):
    done = forked.run("worker", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]


def test_sigterm_while_idle_ends_the_worker(sqlite_url, worker):
    process = worker("--app", str(APP), "--store", sqlite_url)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(PATIENCE) == 0


def test_the_file_of_a_worker_is_named_with_its_path_and_as_new_where_it_was_made(worker, tmp_path):
    file = f"on sqlite:///{tmp_path}/noonbell.db"
    first = worker("--app", str(APP))
    assert f"{file} (newly created; --store names another)\n" in first.log
    first.process.terminate()
    first.process.wait(PATIENCE)
    second = worker("--app", str(APP))
    until(lambda: f"{file}\n" in second.log, "the same file, without a word of its making")
