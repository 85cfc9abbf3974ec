"""A handler that blocks the event loop of its worker for longer than its lease is executed once, on every store."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import PATIENCE, ServerNode, until
from services import forked

Started = subprocess.Popen[bytes] | forked.Forked
APP = Path(__file__).with_name("blocking_app.py")
LEASE = timedelta(seconds=2)
"""Of the handlers."""


class Workers:
    """Two processes that execute the handlers, in any of the three ways."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = contextlib.ExitStack()
        self.logs: dict[str, Path] = {}

    def start(self, how: str, url: str, **env: str) -> list[Started]:
        started: list[Started] = []
        for name in ("w1", "w2"):
            clean = {key: value for key, value in os.environ.items() if not key.startswith("NOONBELL_")}
            log = self.logs[name] = self._folder / f"{name}.log"
            with log.open("ab") as file:
                where: dict[str, Any] = {"cwd": self._folder, "env": clean | env, "stdout": file, "stderr": file}
                process: Started
                if how == "running":
                    process = subprocess.Popen([sys.executable, str(APP), url, name], **where)
                else:
                    more = ["--worker-id", name] if how == "worker" else ["--port", "0"]
                    process = forked.start(how, "--app", f"{APP}:app", "--store", url, *more, **where)
            self._started.callback(process.wait, PATIENCE)
            self._started.callback(process.kill)
            started.append(process)
        until(lambda: all("is ready" in log.read_text() for log in self.logs.values()), "both to be ready")
        return started

    @property
    def said(self) -> str:
        return "".join(log.read_text() for log in self.logs.values())

    def end(self) -> None:
        self._started.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path)
    yield workers
    workers.end()


def done(folder: Path, name: str) -> list[str]:
    file = folder / f"{name}.txt"
    return file.read_text().splitlines() if file.exists() else []


def trigger(node: ServerNode, name: str, folder: Path) -> int:
    return node.trigger(f"name:{name}", payload={"folder": str(folder)})


def until_renewed(node: ServerNode, run_id: int) -> None:
    """Until the lease has lasted for more than twice its time."""

    def is_renewed() -> bool:
        run = node.run(run_id)
        if run["lease_expires_at"] is None:
            return False
        return datetime.fromisoformat(run["lease_expires_at"]) > datetime.fromisoformat(run["start_time"]) + 3 * LEASE

    until(is_renewed, "the lease to be renewed")


def executed_once(node: ServerNode, workers: Workers, folder: Path) -> None:
    run_id = trigger(node, "blocks", folder)
    until_renewed(node, run_id)
    assert done(folder, "blocks") == ["start 1"], workers.said
    (folder / "go").touch()
    node.wait_for_run(run_id, "SUCCESS")
    assert done(folder, "blocks") == ["start 1", "end 1"], workers.said
    (line,) = node.ask("GET", f"/runs/{run_id}/log")["items"]
    assert line["level"] == "warning"
    assert "the handler has blocked the event loop for over" in line["message"]
    assert "in blocks\n    block(folder)" in line["message"]
    until(lambda: "the event loop is running again" in workers.said, "the worker to say so")
    assert f"by the handler of job 'blocks', run {run_id}" in workers.said


def test_it_is_executed_once_though_its_lease_is_shorter(nodes, store_url: str, workers: Workers, tmp_path: Path):
    node = nodes.start(store_url)
    workers.start("worker", store_url)
    executed_once(node, workers, tmp_path)


@pytest.mark.parametrize("how", ["serve", "running"])
def test_it_is_executed_once_wherever_it_runs(nodes, sqlite_url: str, workers: Workers, tmp_path: Path, how: str):
    node = nodes.start(sqlite_url)
    workers.start(how, sqlite_url)
    executed_once(node, workers, tmp_path)


def test_beyond_its_timeout_it_is_over_and_a_retry_waits_until_it_has_returned(
    nodes, postgres_url: str, workers: Workers, tmp_path: Path
):
    node = nodes.start(postgres_url)
    workers.start("worker", postgres_url)
    final = trigger(node, "too_long", tmp_path)
    until(lambda: done(tmp_path, "too_long"), "the handler to start")
    again = trigger(node, "too_long_at_first", tmp_path)
    run = node.wait_for_run(final, "TIMEOUT")
    assert "its worker could not end it" in run["error_message"]
    until_renewed(node, again)
    assert node.run(again)["status"] == "RUNNING", "its retry waits"
    assert (done(tmp_path, "too_long"), done(tmp_path, "too_long_at_first")) == (["start 1"], ["start 1"])
    (tmp_path / "go").touch()
    node.wait_for_run(again, "SUCCESS")
    assert done(tmp_path, "too_long_at_first") == ["start 1", "end 1", "start 2", "end 2"]
    first = node.ask("GET", f"/runs/{again}/attempts")["items"][0]
    assert first["error_details"]["kind"] == "timeout"
    assert "the event loop was blocked" in first["error_message"]
    until(lambda: len(done(tmp_path, "too_long")) == 2, "the handler to return")
    assert node.run(final)["status"] == "TIMEOUT"


@pytest.mark.parametrize("how", ["worker", "serve"])
def test_a_process_that_is_told_to_stop_does_not_wait_for_a_handler_that_ignores_it(
    nodes, sqlite_url: str, workers: Workers, tmp_path: Path, how: str
):
    node = nodes.start(sqlite_url)
    first, second = workers.start(how, sqlite_url, NOONBELL_SERVER__GRACEFUL_TIMEOUT="0.2")
    second.kill()
    second.wait(PATIENCE)
    trigger(node, "deaf", tmp_path)
    until(lambda: done(tmp_path, "deaf") == ["start 1"], "the handler to start")
    first.terminate()
    assert first.wait(PATIENCE) == 1, workers.said
    assert "1 runs do not stop: the process exits" in workers.said
