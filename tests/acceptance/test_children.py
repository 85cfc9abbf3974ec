"""A job that waits for its children on real processes, whose workers are killed: it resumes once, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.harness import PATIENCE, Nodes, ServerNode, until
from acceptance.test_workers import WorkerProcess
from noonbell.engine import failpoint
from services import forked

APP = Path(__file__).with_name("children_app.py")

COUNT = 5

Start = Callable[..., WorkerProcess]


class Armed(WorkerProcess):
    """One that dies at a failpoint."""

    def __init__(self, folder: Path, point: str, *arguments: str) -> None:
        self._log = folder / "worker.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        env = {**clean, failpoint.VARIABLE: point}
        with self._log.open("ab") as log:
            self.process = forked.start("worker", *arguments, cwd=folder, env=env, stdout=log, stderr=log)


@contextlib.contextmanager
def starting_in(folder: Path) -> Iterator[Start]:
    """Starts workers that note in the folder what they do, and leaves none behind."""
    with contextlib.ExitStack() as started:

        def start(store: str, name: str, *queues: str, point: str | None = None) -> WorkerProcess:
            arguments = ("--app", f"{APP}:app", "--store", store, "--worker-id", name, "--concurrency", "1")
            arguments += ("--queues", ",".join(queues))
            worker = WorkerProcess(folder, *arguments) if point is None else Armed(folder, point, *arguments)
            started.callback(worker.process.wait, PATIENCE)
            started.callback(lambda: worker.process.poll() is None and worker.process.kill())
            return worker

        yield start


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Start]:
    with starting_in(tmp_path) as start:
        yield start


def notes(folder: Path) -> Counter[str]:
    file = folder / "notes"
    return Counter(file.read_text().splitlines() if file.exists() else ())


def test_a_hundred_children_are_gathered_once_though_the_worker_is_killed_while_the_job_is_parked(
    nodes: Nodes, store_url: str, workers: Start, tmp_path: Path
):
    node = nodes.start(store_url)
    first = workers(store_url, "first", "parents")
    first.wait_for("is ready")
    run_id = node.trigger("name:sum_of_squares", payload={"folder": str(tmp_path), "count": 100})  # type: ignore[arg-type]
    parked = until(lambda: _parked(node, run_id), "the job to be parked")
    assert (parked["status"], parked["lease_expires_at"]) == ("RUNNING", None)
    said = node.ask("GET", f"/runs/{run_id}/explain")["message"]
    assert "waits for its children: 100 of them have not ended" in said
    first.process.send_signal(signal.SIGKILL)
    assert first.process.wait(PATIENCE) == -signal.SIGKILL
    workers(store_url, "second", "parents", "children").wait_for("is ready")
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["result"], run["attempt"], run["retry_count"], run["lost_count"]) == (328350, 2, 0, 0)
    expected = {f"child {n}": 1 for n in range(100)} | {"begun 1": 1, "begun 2": 1, "gathered 100": 1}
    assert notes(tmp_path) == Counter(expected)
    assert len(node.ask("GET", f"/runs?parent_id={run_id}&page_size=200")["items"]) == 100


def _parked(node: ServerNode, run_id: int) -> dict[str, object] | None:
    """The run, once its first attempt has ended and its children wait."""
    run = node.run(run_id)
    waiting = node.ask("GET", f"/runs?parent_id={run_id}&page_size=200")["items"]
    return run if len(waiting) == 100 and run["status"] == "RUNNING" and run["worker_id"] is None else None


POINTS = {
    "K31": "before the commit of the children",
    "K31:2": "after it",
    "K19": "before the commit of the park",
    "K19:2": "after it",
    "K20": "before the commit that wakes the job",
    f"K21:{COUNT}": "after it",
}


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_around_children_a_park_or_a_wake_loses_nothing(
    point: str, nodes: Nodes, store_url: str, workers: Start, tmp_path: Path
):
    dies_and_loses_nothing(point, nodes, store_url, workers, tmp_path)


def dies_and_loses_nothing(point: str, nodes: Nodes, store_url: str, start: Start, folder: Path) -> None:
    """The worker dies at the point, and another one, started after that, carries the job to its end."""
    node = nodes.start(store_url)
    armed = start(store_url, "armed", "parents", "children", point=point)
    armed.wait_for("is ready")
    run_id = node.trigger("name:sum_of_squares", payload={"folder": str(folder), "count": COUNT})  # type: ignore[arg-type]
    assert armed.process.wait(PATIENCE) == failpoint.STATUS
    start(store_url, "heir", "parents", "children")
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["result"], run["retry_count"]) == (sum(n * n for n in range(COUNT)), 0)
    seen = notes(folder)
    # With K21 the job is awake, and the worker may have begun to resume it before it died: that attempt is lost, and made again.
    most = 1 + run["lost_count"] if point.startswith("K21") else 1
    assert 1 <= seen[f"gathered {COUNT}"] <= most
    children = [seen[f"child {n}"] for n in range(COUNT)]
    if point == "K20":  # what was to be settled with the last child has done its work, and does it again
        assert set(children) <= {1, 2}
        assert 2 in children
    else:
        assert children == [1] * COUNT
    assert len(node.ask("GET", f"/runs?parent_id={run_id}")["items"]) == COUNT
