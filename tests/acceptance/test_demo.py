"""`noonbell demo`: a dozen tasks, a week that could have been, and nothing left behind when it is taken away."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, FINAL, PATIENCE, until
from services import forked
from services.ports import taken_port

pytestmark = pytest.mark.acceptance

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
STORE = "sqlite:///noonbell-demo.db"


def noonbell(folder: Path, *arguments: str, code: int = 0) -> str:
    done = forked.run(*arguments, cwd=folder, env=CLEAN)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


class Demo:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "demo.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "demo", *arguments],
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
    command = [COMMAND, "demo", "--no-serve"]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        subprocess.run(command, cwd=folder, env=CLEAN, stdout=out, stderr=err, check=True)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    (tmp_path / "noonbell-demo.db").write_bytes((filled / "noonbell-demo.db").read_bytes())
    return tmp_path


@contextlib.contextmanager
def shown(folder: Path, *arguments: str):
    demo = Demo(folder, *(arguments or ("--port", "0")))
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
    assert refused.startswith("error: the store has 2 tasks that the demo did not create; ")
    assert "without history" in noonbell(folder, "demo", "--no-serve", "--yes")
    with shown(folder) as demo:
        found = demo.ask("/tasks?page_size=100")["items"]
        assert len(found) == 14
        assert demo.ask("/runs?page_size=1&task=name:mine")["total"] == 0


def test_beside_a_server_on_the_usual_port_the_demo_takes_a_free_one_and_says_so(folder):
    with taken_port(8080), shown(folder, "--store", STORE) as demo:
        assert "port 8080 is in use: the demo listens on " in demo.said
        assert not demo.url.endswith(":8080")
        assert len(demo.ask("/tasks?page_size=100")["items"]) == 12


def test_a_port_that_is_asked_for_and_taken_is_refused_before_anything_is_filled(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = noonbell(tmp_path, "demo", "--port", str(port), code=5)
    assert refused.startswith(f"error: cannot listen on 127.0.0.1:{port}: the port is in use; ")
    assert list(tmp_path.iterdir()) == []


def test_filling_says_how_far_it_is_in_lines_where_no_terminal_reads_them(filled):
    assert (filled / "stdout").read_text() == "filling noonbell-demo.db with 7 days of history\n"
    assert (filled / "stderr").read_text().splitlines() == ["  25 %", "  50 %", "  75 %", " 100 %"]
    assert (filled / "noonbell-demo.db").stat().st_mode & 0o077 == 0


def test_there_is_nothing_to_clean_where_there_is_no_store(tmp_path):
    assert noonbell(tmp_path, "demo", "--clean") == "deleted 0 tasks with the label demo=true\n"
    assert list(tmp_path.iterdir()) == []


def test_the_last_line_says_that_it_has_stopped(folder):
    with shown(folder) as demo:
        assert f"export NOONBELL_URL={demo.url}\n" in demo.said
        assert f"store      sqlite:///{folder}/noonbell-demo.db\n" in demo.said
    assert demo.said.splitlines()[-1] == "Noonbell has stopped"


def test_ctrl_c_ends_the_demo_while_it_makes_its_history(tmp_path):
    log = tmp_path / "demo.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, "demo", "--port", "0"], cwd=tmp_path, env=CLEAN, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        until(lambda: "25 %" in log.read_text(), "a quarter of the history", 2 * PATIENCE)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
    assert "100 %" not in log.read_text()
