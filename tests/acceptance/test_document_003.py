"""What document 003 asks for, on real processes with PostgreSQL as the only infrastructure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until
from noonbell.model.run import execution_id_of
from services.databases import PostgresDatabases

pytestmark = pytest.mark.acceptance

APP = f"{Path(__file__).parent / 'jobs_app.py'}:app"
JOBS = {"NOONBELL_JOBS__WORKER_CONCURRENCY": "16"}
EVERY_SECOND = "* * * * * *"


def ask(node: ServerNode, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
    answer = node.call(method, path, body, base="/api/jobs")
    assert answer.status == expect, f"{method} {path}: {answer.status} {answer.text}\n{node.log[-4000:]}"
    return answer.json


def create(node: ServerNode, name: str, job_type: str, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = ask(node, "POST", "", {"job_name": name, "job_type": job_type, **fields}, expect=201)
    return made


def executions(node: ServerNode, job_id: int, *statuses: str) -> list[dict[str, Any]]:
    """Newest first."""
    query = f"?page_size=1000&status={','.join(statuses)}" if statuses else "?page_size=1000"
    found: list[dict[str, Any]] = ask(node, "GET", f"/{job_id}/executions{query}")["items"]
    return found


def wait_for(node: ServerNode, job_id: int, status: str, count: int = 1) -> list[dict[str, Any]]:
    return until(
        lambda: found if len(found := executions(node, job_id, status)) >= count else None,
        f"{count} executions of job {job_id} to be {status}",
    )


def most_at_once(folder: Path, name: str) -> int:
    """As the handlers themselves wrote it down."""
    now = most = 0
    for line in (folder / f"{name}.txt").read_text().splitlines():
        now += 1 if line.startswith("start") else -1
        most = max(most, now)
    return most


@pytest.fixture(scope="module")
def shared(postgres_databases: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerNode]:
    """One for all tests that neither stop it nor count what others leave behind."""
    url = postgres_databases.create(None, None)
    nodes = Nodes(tmp_path_factory.mktemp("document-003"))
    try:
        yield nodes.start(url, "--app", APP, env=JOBS)
    finally:
        nodes.end()
        postgres_databases.drop(url)


@pytest.fixture
def node(shared: ServerNode) -> Iterator[ServerNode]:
    before = {job["id"] for job in ask(shared, "GET", "?page_size=1000")["items"]}
    yield shared
    for job in ask(shared, "GET", "?page_size=1000")["items"]:
        if job["id"] not in before:
            ask(shared, "DELETE", f"/{job['id']}?cancel_running=true")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "notes"
    folder.mkdir()
    yield folder
    (folder / "go").touch()


def test_a_job_is_made_by_the_api_and_carried_out_by_the_built_in_worker(node: ServerNode, folder: Path):
    (folder / "go").touch()
    job = create(node, "every second", "held", cron_expression=EVERY_SECOND, payload={"folder": str(folder)})
    assert job["notes"] == [], "the worker knows the type"
    (execution, *_) = wait_for(node, job["id"], "success")
    assert execution["execution_id"] == str(execution_id_of(execution["id"]))
    assert execution["result"] == {"execution_id": execution["execution_id"], "worker_id": execution["worker_id"]}
    assert (execution["job_id"], execution["job_name"], execution["retry_count"]) == (job["id"], "every second", 0)
    assert (execution["error_message"], execution["error_details"]) == (None, None)
    assert execution["duration_ms"] >= 0
    assert execution["started_at"] <= execution["completed_at"]
    job = ask(node, "GET", f"/{job['id']}")
    assert job["last_run_at"] >= execution["started_at"]
    assert job["last_run_status"] in ("success", "running", "pending", "skipped")
    assert job["next_run_at"] > execution["started_at"]


def test_the_sample_task_cleans_up(nodes: Nodes, postgres_url: str, folder: Path):
    node = nodes.start(postgres_url, "--app", APP, env=JOBS)
    (folder / "go").touch()
    worked = create(node, "worked", "held", payload={"folder": str(folder)})
    for _ in range(3):
        node.wait_for_run(node.trigger(worked["id"]), "SUCCESS")
    cleaning = create(node, "clean", "data_cleanup", payload={"retention_days": 0})
    assert cleaning["notes"] == []
    run = node.wait_for_run(node.trigger(cleaning["id"]), "SUCCESS")
    assert run["result"]["deleted_count"] == 3
    assert executions(node, worked["id"]) == []
    uuid = execution_id_of(run["id"])
    assert re.search(rf"execution_id={uuid} job_name=clean retention_days=0", node.log)
    assert re.search(rf"execution_id={uuid} deleted_count=3", node.log)
    lines = node.ask("GET", f"/runs/{run['id']}/log")["items"]
    assert "more than 0 days ago" in lines[0]["message"]


def test_the_cleaning_is_scheduled_without_being_asked_for(node: ServerNode):
    assert ask(node, "GET", "?job_type=data_cleanup")["items"] == []
    (job,) = ask(node, "GET", "?job_type=data_cleanup&include_system=true")["items"]
    assert (job["job_name"], job["enabled"]) == ("noonbell-data-cleanup", True)
    assert job["next_run_at"] is not None
    answer = node.call("DELETE", f"/{job['id']}", base="/api/jobs")
    assert (answer.status, answer.json["code"]) == (409, "INVALID_STATE")


def test_a_paused_job_does_not_run_and_a_resumed_one_does(node: ServerNode, folder: Path):
    (folder / "go").touch()
    job = create(node, "p", "held", cron_expression=EVERY_SECOND, payload={"folder": str(folder)})
    other = create(node, "other", "held", cron_expression=EVERY_SECOND, payload={"folder": str(folder)})
    wait_for(node, job["id"], "success")
    assert ask(node, "POST", f"/{job['id']}/pause")["enabled"] is False
    before = len(executions(node, job["id"]))
    seen = len(executions(node, other["id"], "success"))
    wait_for(node, other["id"], "success", seen + 3)
    assert len(executions(node, job["id"])) == before, "three seconds went by for the other one"
    assert ask(node, "POST", f"/{job['id']}/resume")["enabled"] is True
    until(lambda: len(executions(node, job["id"])) > before, "the resumed job to run")


def test_a_job_made_changed_and_deleted_while_the_node_runs(node: ServerNode, folder: Path):
    (folder / "go").touch()
    job = create(node, "d", "held", payload={"folder": str(folder)})
    assert executions(node, job["id"]) == []
    changed = ask(node, "PUT", f"/{job['id']}", {"cron_expression": EVERY_SECOND})
    assert changed["next_run_at"] is not None
    wait_for(node, job["id"], "success")
    assert ask(node, "DELETE", f"/{job['id']}") == {"deleted": True}
    answer = node.call("GET", f"/{job['id']}", base="/api/jobs")
    assert (answer.status, answer.json["details"]["error"]) == (404, "JobNotFound")
    assert create(node, "d", "held", payload={"folder": str(folder)})["id"] != job["id"]


def test_a_failed_execution_is_retried_after_a_fixed_delay(node: ServerNode, folder: Path):
    payload = {"folder": str(folder), "failures": 2}
    job = create(node, "f", "flaky", max_retries=3, retry_delay_seconds=1, payload=payload)
    run_id = node.trigger(job["id"])
    node.wait_for_run(run_id, "SUCCESS")
    (execution,) = executions(node, job["id"])
    assert (execution["status"], execution["retry_count"], execution["result"]) == ("success", 2, {"retries": 2})
    attempts = node.ask("GET", f"/runs/{run_id}/attempts")["items"]
    assert [each["status"] for each in attempts] == ["FAILED", "FAILED", "SUCCESS"]
    for before, after in itertools.pairwise(attempts):
        waited = datetime.fromisoformat(after["start_time"]) - datetime.fromisoformat(before["end_time"])
        assert waited.total_seconds() >= 1


def test_the_delay_is_sixty_seconds_and_there_are_three_retries_unless_the_job_says_otherwise(
    node: ServerNode, folder: Path
):
    job = create(node, "f", "flaky", payload={"folder": str(folder), "failures": 99})
    assert (job["max_retries"], job["retry_delay_seconds"], job["timeout_seconds"]) == (3, 60, 300)
    run_id = node.trigger(job["id"])
    for number in range(1, 4):
        run = node.wait_for_run(run_id, "RETRYING")
        waits_since = max(each["end_time"] for each in node.ask("GET", f"/runs/{run_id}/attempts")["items"])
        delay = datetime.fromisoformat(run["next_retry_time"]) - datetime.fromisoformat(waits_since)
        assert (run["retry_count"], round(delay.total_seconds())) == (number, 60)
        assert executions(node, job["id"])[0]["status"] == "pending"
        node.ask("POST", f"/runs/{run_id}/promote")
        until(lambda n=number: node.run(run_id)["attempt"] > n, "the retry to begin")
    node.wait_for_run(run_id, "FAILED")
    (execution,) = executions(node, job["id"])
    assert (execution["status"], execution["retry_count"]) == ("failed", 3)
    assert (execution["error_message"], execution["error_details"]["kind"]) == ("RuntimeError: failure 4", "error")


def test_a_failure_for_good_is_not_retried_and_its_details_are_kept(node: ServerNode):
    job = create(node, "h", "hopeless")
    node.wait_for_run(node.trigger(job["id"]), "FAILED")
    (execution,) = executions(node, job["id"])
    assert (execution["retry_count"], execution["error_message"]) == (0, "there is no way")
    assert execution["error_details"]["kind"] == "fail"
    assert ask(node, "GET", f"/{job['id']}")["last_run_status"] == "failed"


def test_an_execution_past_its_timeout_ends_as_timeout(node: ServerNode, folder: Path):
    job = create(node, "t", "held", timeout_seconds=1, max_retries=0, payload={"folder": str(folder)})
    node.wait_for_run(node.trigger(job["id"]), "TIMEOUT")
    (execution,) = executions(node, job["id"])
    assert execution["status"] == "timeout"


def test_the_three_modes_of_concurrency(node: ServerNode, folder: Path):
    common = {"cron_expression": EVERY_SECOND, "payload": {"folder": str(folder)}, "timeout_seconds": 120}
    single = create(node, "single", "held", **common)
    limited = create(node, "limited", "held", allow_concurrent=True, max_concurrent=2, **common)
    free = create(node, "free", "held", allow_concurrent=True, **common)
    wait_for(node, free["id"], "running", 4)
    wait_for(node, single["id"], "skipped", 2)
    wait_for(node, limited["id"], "skipped", 1)
    assert len(executions(node, single["id"], "running")) == 1
    assert len(executions(node, limited["id"], "running")) == 2
    for job in (single, limited, free):
        ask(node, "POST", f"/{job['id']}/pause")
    (folder / "go").touch()
    for job in (single, limited, free):
        until(lambda each=job: not executions(node, each["id"], "running", "pending"), "all to end")
    assert most_at_once(folder, "single") == 1
    assert most_at_once(folder, "limited") == 2
    assert most_at_once(folder, "free") >= 4


def test_the_limits_hold_over_two_nodes(nodes: Nodes, postgres_url: str, folder: Path):
    one, two = (nodes.start(postgres_url, "--app", APP, env=JOBS) for _ in range(2))
    common = {"cron_expression": EVERY_SECOND, "payload": {"folder": str(folder)}}
    single = create(one, "single", "held", **common)
    limited = create(two, "limited", "held", allow_concurrent=True, max_concurrent=3, **common)
    wait_for(one, limited["id"], "skipped", 2)
    wait_for(two, single["id"], "skipped", 3)
    assert len(executions(two, limited["id"], "running")) == 3
    slots = [run["scheduled_time"] for run in one.runs_of(single["id"])]
    assert len(slots) == len(set(slots)), "no slot became two executions"
    (folder / "go").touch()
    for job in (single, limited):
        ask(one, "POST", f"/{job['id']}/pause")
        until(lambda each=job: not executions(one, each["id"], "running", "pending"), "all to end")
    assert (most_at_once(folder, "single"), most_at_once(folder, "limited")) == (1, 3)


def test_a_graceful_stop_loses_nothing(nodes: Nodes, postgres_url: str, folder: Path):
    env = {**JOBS, "NOONBELL_SERVER__GRACEFUL_TIMEOUT": "0.5"}
    node = nodes.start(postgres_url, "--app", APP, env=env)
    job = create(node, "g", "held", allow_concurrent=True, payload={"folder": str(folder)})
    run_ids = [node.trigger(job["id"]) for _ in range(20)]
    wait_for(node, job["id"], "running", 16)
    assert node.stop() == 0
    (folder / "go").touch()
    again = nodes.start(postgres_url, "--app", APP, env=env)
    for run_id in run_ids:
        run = again.wait_for_run(run_id, "SUCCESS")
        assert (run["attempt"], run["retry_count"]) == (1, 0), "what was handed back is no attempt"
    assert len(executions(again, job["id"])) == 20


def test_jobs_of_the_settings_files_run_and_the_file_of_an_environment_overrides_the_default(
    nodes: Nodes, postgres_url: str, folder: Path, tmp_path: Path
):
    (folder / "go").touch()
    (tmp_path / "default.toml").write_text("[jobs]\nenabled = false\nworker_concurrency = 4\n")
    declared = f'[[jobs.jobs]]\njob_name = "declared"\njob_type = "held"\ncron = "{EVERY_SECOND}"\n'
    declared += f'payload = {{ folder = "{folder}" }}\n'
    (tmp_path / "development.toml").write_text(f"[jobs]\nenabled = true\nhistory_retention_days = 7\n{declared}")
    files = ("--config", "default.toml", "--config", "development.toml")
    node = nodes.start(postgres_url, *files, "--app", APP)
    (job,) = ask(node, "GET", "?job_name=declared")["items"]
    wait_for(node, job["id"], "success")
    assert node.ask("GET", f"/tasks/{job['id']}")["managed_by"] == "file:development.toml"
    node.stop()
    off = nodes.start(postgres_url, *files, "--app", APP, env={"NOONBELL_JOBS__ENABLED": "false"})
    assert ask(off, "GET", f"/{job['id']}")["enabled"] is False
    assert "jobs.enabled is off" in off.log


def test_a_node_without_a_worker_for_its_jobs_does_not_start(nodes: Nodes, postgres_url: str):
    env = {"NOONBELL_JOBS__ENABLED": "true", "NOONBELL_JOBS__WORKER_CONCURRENCY": "0"}
    node = nodes.launch("--store", postgres_url, "--port", "0", env=env)
    assert node.wait_ended() != 0
    assert "jobs.worker_concurrency" in node.log
    assert "Traceback" not in node.log
