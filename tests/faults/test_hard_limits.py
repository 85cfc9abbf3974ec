"""A node at the end of something: of the disk (F27), of its files (F28); and two processes under one name (F36)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, PATIENCE, ServerNode, Target, until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

APP = Path(__file__).parents[1] / "acceptance" / "jobs_app.py"
EVERY_SECOND = {"cron_expr": "* * * * * *", "max_concurrency": None}


class NodeUnder(ServerNode):
    """A node that a shell starts, after having set its limits."""

    def __init__(self, folder: Path, before: str, store: str) -> None:
        self.name = "node"
        self._log = folder / "node.log"
        self._begins = 0
        self.port = 0
        clean = {key: value for key, value in os.environ.items() if not key.startswith("NOONBELL_")}
        script = f"{before} && exec {COMMAND} serve --port 0 --store {store}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script] if "mount" in before else ["sh", "-c", script],
                cwd=folder,
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@contextlib.contextmanager
def running(folder: Path, before: str, store: str) -> Iterator[NodeUnder]:
    node = NodeUnder(folder, before, store)
    try:
        node.wait_ready()
        yield node
    finally:
        node.kill()


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def seconds_of(runs: list[dict]) -> list[int]:
    """The slots of the runs, oldest first, as seconds of the day."""
    moments = sorted(run["scheduled_time"] for run in runs)
    return [
        sum(int(part) * by for part, by in zip(text[11:19].split(":"), (3600, 60, 1), strict=True)) for text in moments
    ]


def without_a_hole(runs: list[dict]) -> bool:
    seconds = seconds_of(runs)
    return seconds == list(range(seconds[0], seconds[0] + len(seconds)))


class Disk:
    """A disk of a few megabytes that only the node has; seen from here through the node's own eyes."""

    def __init__(self, node: NodeUnder, folder: Path) -> None:
        self.folder = Path(f"/proc/{node.pid}/root{folder}")
        self._ballast = self.folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (65_536, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(b"x" * size)

    def free(self) -> None:
        self._ballast.unlink()

    def copy_to(self, folder: Path) -> None:
        folder.mkdir()
        for file in self.folder.glob("n.db*"):
            if file.is_file():
                shutil.copy(file, folder)


@pytest.mark.skipif(not may_mount(), reason="a small disk takes the right to mount one")
def test_a_full_disk_refuses_writes_and_work_goes_on_by_itself_when_there_is_room(tmp_path: Path, target: Target):
    """F27: 503, not ready, alive; afterwards no slot is missing, no result is lost, and nothing ran twice."""
    place = tmp_path / "disk"
    place.mkdir()
    with running(tmp_path, f"mount -t tmpfs -o size=8m tmpfs {place}", f"sqlite:///{place}/n.db") as node:
        disk = Disk(node, place)
        ticking = node.create(name="ticking", target_url=target.url("/ok"), **EVERY_SECOND)
        held = node.trigger(node.create(name="held", target_url=target.url("/hold/a"), timeout_seconds=60))
        until(lambda: any(arrival.path == "/hold/a" for arrival in target.arrivals), "the held call")
        until(lambda: sum(arrival.path == "/ok" for arrival in target.arrivals) >= 2, "the first slots")

        disk.fill()
        until(lambda: node.call("GET", "/readyz").status == 503, "it to say that it is not ready")
        refused = node.call("POST", "/tasks", {"name": "more", "job_type": "x"})
        assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
        assert int(refused.headers["retry-after"]) >= 1
        assert node.call("GET", "/livez").status == 200
        assert node.ask("GET", f"/tasks/{ticking}")["name"] == "ticking", "what is there can be read"
        target.release("a")
        full_at = len(node.log)
        pass_by(4)
        assert node.is_running
        assert len(node.log) - full_at < 20_000, "it does not fill the log instead"

        disk.free()
        until(lambda: node.call("GET", "/readyz").status == 200, "it to be ready by itself", 10)
        assert node.wait_for_run(held, "SUCCESS")["attempt"] == 1
        done = len(node.runs_of(ticking, status="SUCCESS"))
        until(lambda: len(node.runs_of(ticking, status="SUCCESS")) > done + 6, "what was missed, and more")
        node.ask("POST", f"/tasks/{ticking}/disable")
        until(lambda: all(run["final_status"] for run in node.runs_of(ticking)), "the rest to end")
        runs = node.runs_of(ticking)
        assert without_a_hole(runs)
        keys = [arrival.headers["Idempotency-Key"] for arrival in target.arrivals]
        assert len(keys) == len(set(keys))
        node.send(signal.SIGSTOP)  # so that the copy is of one moment
        disk.copy_to(tmp_path / "copy")
    with contextlib.closing(sqlite3.connect(tmp_path / "copy" / "n.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def pass_by(seconds: float) -> None:
    """Let slots pass while nothing can be done."""
    moment = time.monotonic() + seconds
    until(lambda: time.monotonic() > moment, "slots to pass")


def crowd(port: int, size: int) -> list[socket.socket]:
    """Callers who come and say nothing."""
    found = []
    for _ in range(size):
        with contextlib.suppress(OSError):
            found.append(socket.create_connection(("127.0.0.1", port), timeout=5))
    return found


def test_a_crowd_that_says_nothing_does_not_take_the_files_that_runs_need(
    tmp_path: Path, sqlite_url: str, target: Target
):
    """F28: callers are turned away before the process has no file left for its own work."""
    with running(tmp_path, "ulimit -n 256", sqlite_url) as node:
        # A new connection for each call: the work needs files all the time.
        task = node.create(name="t", target_url=target.url("/ok"), delivery="at_most_once", **EVERY_SECOND)
        people = crowd(node.port, 400)
        try:
            before = len(target.arrivals)
            until(lambda: len(target.arrivals) >= before + 5, "five slots amid the crowd")
            turned_away = sum(_heard(each).startswith(b"HTTP/1.1 503 ") for each in people)
            assert turned_away >= 400 - 256
        finally:
            for each in people:
                each.close()
        until(lambda: _answers(node), "it to answer again")
        assert {run["status"] for run in node.runs_of(task)} <= {"SUCCESS", "RUNNING", "SCHEDULED"}


def _heard(caller: socket.socket) -> bytes:
    caller.setblocking(False)
    with contextlib.suppress(OSError):
        return caller.recv(100)
    return b""


def _answers(node: ServerNode) -> bool:
    with contextlib.suppress(OSError):
        return node.call("GET", "/readyz").status == 200
    return False


def test_without_a_single_file_left_every_slot_is_still_accounted_for(tmp_path: Path, sqlite_url: str, target: Target):
    """F28: what cannot be called fails and says why; nothing is lost, and it goes on by itself."""
    with running(tmp_path, "ulimit -n 48", sqlite_url) as node:
        task = node.create(name="t", target_url=target.url("/ok"), delivery="at_most_once", **EVERY_SECOND)
        until(lambda: target.arrivals, "the first slot")
        people = crowd(node.port, 100)
        files = Path(f"/proc/{node.pid}/fd")
        try:
            until(lambda: len(list(files.iterdir())) >= 47, "the last file to be taken")
            pass_by(5)
            assert node.is_running
        finally:
            for each in people:
                each.close()
        until(lambda: _answers(node), "it to answer again")
        good = len(node.runs_of(task, status="SUCCESS"))
        until(lambda: len(node.runs_of(task, status="SUCCESS")) > good + 2, "runs to succeed again")
        node.ask("POST", f"/tasks/{task}/disable")
        until(lambda: all(run["final_status"] for run in node.runs_of(task)), "the rest to end")
        runs = node.runs_of(task)
        assert without_a_hole(runs)
        assert all(run["error_message"] for run in runs if run["status"] == "FAILED")
        assert node.stop() == 0


def worker(folder: Path, store: str) -> subprocess.Popen[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    arguments = [COMMAND, "worker", "--app", f"{APP}:app", "--store", store, "--worker-id", "w1"]
    with (folder / "workers.log").open("ab") as log:
        return subprocess.Popen(arguments, cwd=folder, env=clean, stdout=log, stderr=log)


@pytest.mark.parametrize("kind", ["sqlite_url", "postgres_url", "mysql_url"])
def test_a_second_process_of_the_same_name_is_refused_and_the_first_goes_on(tmp_path: Path, kind: str, request):
    """F36."""
    store, log = str(request.getfixturevalue(kind)), tmp_path / "workers.log"
    first = worker(tmp_path, store)
    try:
        until(lambda: log.exists() and "is ready" in log.read_text(), "the first to be ready")
        second = worker(tmp_path, store)
        assert second.wait(PATIENCE) not in (0, None)
        assert "another process works as 'w1'; give this one a different ID" in log.read_text()
        assert "Traceback" not in log.read_text()
        assert first.poll() is None
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE) == 0
        third = worker(tmp_path, store)
        until(lambda: log.read_text().count("is ready") == 2, "the name to be free again")
        third.send_signal(signal.SIGTERM)
        assert third.wait(PATIENCE) == 0
    finally:
        first.kill()
        first.wait()
