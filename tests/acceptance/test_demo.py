"""`noonbell demo`: a dozen tasks, a week that could have been, and nothing left behind when it is taken away."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, FINAL, PATIENCE, until

pytestmark = pytest.mark.acceptance

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
STORE = "sqlite:///noonbell-demo.db"


def noonbell(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run([COMMAND, *arguments], cwd=folder, env=CLEAN, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


class Demo:
    def __init__(self, folder: Path) -> None:
        self._log = folder / "demo.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "demo", "--port", "0"],
                cwd=folder,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = until(self._address, "the demo to say where it is", 2 * PATIENCE)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def _address(self) -> str | None:
        assert self.process.poll() is None, self.said
        found = re.search(r"dashboard +(http://\S+)/", self.said)
        return found and found[1]

    def ask(self, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1{path}", data, timeout=PATIENCE) as answer:  # noqa: S310
            return json.load(answer)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    noonbell(folder, "demo", "--no-serve")
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    (tmp_path / "noonbell-demo.db").write_bytes((filled / "noonbell-demo.db").read_bytes())
    return tmp_path


@contextlib.contextmanager
def shown(folder: Path):
    demo = Demo(folder)
    try:
        yield demo
    finally:
        demo.process.send_signal(signal.SIGTERM)
        assert demo.process.wait(PATIENCE) == 0, demo.said


def test_a_week_of_history_has_every_colour_and_no_hole(folder):
    said = noonbell(folder, "audit", "--store", STORE, "-q")
    assert said.splitlines()[-1] == "0 holes, 0 doubles"
    with shown(folder) as demo:
        tasks = demo.ask("/tasks?label=demo=true&page_size=100")["items"]
        assert len(tasks) == 12
        assert {task["name"] for task in tasks if task["status"] == "DISABLED"} == {"demo-paused"}
        seen: Counter[str] = Counter()
        for task in tasks:
            for status in sorted(FINAL - {"TIMEOUT", "CANCELED"}):
                page = demo.ask(f"/tasks/{task['id']}/runs?status={status}&page_size=1")
                seen[status] += page["total"]
        assert min(seen.values()) > 20, seen
        slots = demo.ask("/tasks/name:demo-flaky/runs?sort=id&page_size=1")["items"]
        retried = demo.ask("/tasks/name:demo-flaky/runs?status=SUCCESS&page_size=100")["items"]
        assert any(run["retry_count"] for run in retried)
        assert slots[0]["duration_ms"] > 0


def test_the_demo_goes_on_where_its_history_ends(folder):
    with shown(folder) as demo:
        run = demo.ask("/tasks/name:demo-callback/trigger", {})["run_id"]
        until(lambda: demo.ask(f"/runs/{run}")["status"] == "CALLBACK_SUCCESS", "the callback")
        run = demo.ask("/tasks/name:demo-healthy/trigger", {})["run_id"]
        until(lambda: demo.ask(f"/runs/{run}")["status"] == "SUCCESS", "the answer")
    with shown(folder) as demo:  # shown again, it is not filled again
        assert "filling" not in demo.said
        assert demo.ask(f"/runs/{run}")["status"] == "SUCCESS"


def test_cleaning_up_goes_by_the_label_alone(folder):
    with shown(folder) as demo:
        demo.ask("/tasks", {"name": "mine", "cron_expr": "@daily", "target_url": "http://127.0.0.1:9/"})
        demo.ask("/tasks", {"name": "also", "job_type": "x", "labels": {"demo": "false"}})
    assert noonbell(folder, "demo", "--clean") == "deleted 12 tasks with the label demo=true\n"
    assert noonbell(folder, "demo", "--clean") == "deleted 0 tasks with the label demo=true\n"
    refused = noonbell(folder, "demo", "--no-serve", code=5)
    assert refused.startswith("error: the store has 2 tasks of somebody else's; ")
    assert "without a history" in noonbell(folder, "demo", "--no-serve", "--yes")
    with shown(folder) as demo:
        found = demo.ask("/tasks?page_size=100")["items"]
        assert len(found) == 14
        assert demo.ask("/runs?page_size=1&task=name:mine")["total"] == 0


def test_there_is_nothing_to_clean_where_there_is_no_store(tmp_path):
    assert noonbell(tmp_path, "demo", "--clean") == "deleted 0 tasks with the label demo=true\n"
    assert list(tmp_path.iterdir()) == []
