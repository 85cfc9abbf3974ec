"""The doctor: what is well, what is ill, and what to do, on stores in each state."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from acceptance.harness import until
from noonbell.clock import SECOND, SystemClock, rfc3339
from services import forked


def doctor(*arguments: str, cwd: Path | None = None, **env: str) -> tuple[int, dict[str, dict[str, str]]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    done = forked.run("doctor", "-o", "json", *arguments, cwd=cwd, env=clean | env)
    return done.returncode, {finding["check"]: finding for finding in json.loads(done.stdout)}


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url", "mysql_url"])
def test_a_node_that_runs_is_well(nodes, request, store):
    url = request.getfixturevalue(store)
    node = nodes.start(url)
    code, found = doctor("--store", url, NOONBELL_URL=f"http://127.0.0.1:{node.port}")
    assert code == 0
    assert {check for check, finding in found.items() if finding["mark"] == "ill"} == set()
    assert found["server"]["mark"] == "well"
    assert found["schema"]["mark"] == "well"


def test_slots_that_nobody_plans_and_runs_that_nobody_takes_are_ill(nodes, sqlite_url):
    node = nodes.start(sqlite_url, "--no-scheduler", "--no-worker")
    node.create(name="job", job_type="nobody")
    node.create(name="late", target_url="http://127.0.0.1:9/", schedule={"type": "once", "at": "2020-01-01T00:00:00Z"})
    node.trigger(1, key="x")
    code, found = doctor("--store", sqlite_url)
    assert code == 1
    assert found["planner"]["mark"] == "ill"
    assert "late" in found["planner"]["says"]
    assert "noonbell serve" in found["planner"]["fix"]
    assert found["service"]["mark"] == "ill"
    assert "default (1 waiting)" in found["service"]["says"]


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url", "mysql_url"])
def test_a_job_type_that_no_worker_of_its_queue_knows_is_ill(nodes, request, store):
    url = request.getfixturevalue(store)
    node = nodes.start(url)
    for name, job_type in (("mail", "send_mial"), ("mail again", "send_mial"), ("report", "make_report")):
        node.trigger(node.create(name=name, job_type=job_type))
    code, found = doctor("--store", url)
    assert code == 1
    assert found["service"]["mark"] == "ill"
    assert "queue default" in found["service"]["says"]
    assert "make_report (1), send_mial (2)" in found["service"]["says"]
    assert "noonbell worker --app MODULE:APP --queues default" in found["service"]["fix"]


def test_a_store_that_is_away_is_ill(sqlite_url):
    code, found = doctor("--store", "postgresql://root@127.0.0.1:1/nowhere")
    assert code == 1
    assert found["store"]["mark"] == "ill"


def test_looking_for_a_store_makes_none(tmp_path):
    path = tmp_path / "slip.db"
    code, found = doctor("--store", f"sqlite:///{path}")
    assert (code, found["store"]["mark"]) == (0, "care")
    assert str(path) in found["store"]["says"]
    forked.run("migrate", "--status", "--store", f"sqlite:///{path}").check_returncode()
    assert not path.exists()


def test_in_another_folder_it_looks_at_the_store_of_the_server_that_answers(nodes, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    file = tmp_path / "there" / "100 %.db"
    node = nodes.start(f"sqlite:///{str(file).replace('%', '%25')}")
    node.create(name="a", job_type="nobody")
    code, found = doctor(cwd=tmp_path / "here", NOONBELL_URL=f"http://127.0.0.1:{node.port}")
    assert code == 0
    assert found["size"]["says"].startswith("1 task")
    assert "there/100 %25.db" in found["address"]["says"]
    assert f"the server at http://127.0.0.1:{node.port}" in found["address"]["says"]
    assert found["server"]["says"].endswith("on this store")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_store_that_is_not_the_servers_is_told_with_the_servers(nodes, tmp_path, sqlite_url):
    node = nodes.start(sqlite_url)
    url = f"http://127.0.0.1:{node.port}"
    other = f"sqlite:///{tmp_path / 'other.db'}"
    _, found = doctor("--store", other, NOONBELL_URL=url)
    assert found["store"]["mark"] == "care"
    assert "does not exist" in found["store"]["says"]
    assert f"noonbell doctor --store {sqlite_url}" in found["store"]["fix"]
    assert not (tmp_path / "other.db").exists()
    forked.run("migrate", "--store", other).check_returncode()
    code, found = doctor("--store", other, NOONBELL_URL=url)
    assert (code, found["server"]["mark"]) == (0, "care")
    assert f"another store, {sqlite_url}" in found["server"]["says"]
    assert found["address"]["says"] == f"{other} (--store)"


def test_a_database_without_a_store_is_said_to_hold_none(tmp_path):
    (tmp_path / "empty.db").touch(mode=0o600)
    code, found = doctor("--store", f"sqlite:///{tmp_path / 'empty.db'}")
    assert (code, found["schema"]["mark"]) == (0, "care")
    assert "has no Noonbell store" in found["schema"]["says"]


def test_a_server_that_does_not_tell_its_store_is_still_found(nodes, sqlite_url):
    token = forked.run("token", "create", "--role", "viewer", "--name", "v", "--store", sqlite_url).stdout.strip()
    node = nodes.start(sqlite_url, env={"NOONBELL_AUTH__ENABLED": "true"})
    url = f"http://127.0.0.1:{node.port}"
    _, found = doctor("--store", sqlite_url, NOONBELL_URL=url, NOONBELL_TOKEN=token)
    assert found["server"]["mark"] == "well"
    assert "only to an admin's token" in found["server"]["says"]


def test_an_old_schema_is_told_and_left_as_it_is(nodes, sqlite_url):
    forked.run("migrate", "--store", sqlite_url, "--to", "1").check_returncode()
    for _ in range(2):
        _, found = doctor("--store", sqlite_url)
        assert found["schema"]["mark"] == "care"
        assert "noonbell migrate" in found["schema"]["fix"]


def test_a_store_that_every_user_can_read_is_told(tmp_path):
    path = tmp_path / "open.db"
    forked.run("migrate", "--store", f"sqlite:///{path}").check_returncode()
    assert "files" not in doctor("--store", f"sqlite:///{path}")[1]
    path.chmod(0o644)
    _, found = doctor("--store", f"sqlite:///{path}")
    assert (found["files"]["mark"], str(path) in found["files"]["says"]) == ("care", True)


def test_an_open_door_is_ill(sqlite_url):
    code, found = doctor("--store", sqlite_url, NOONBELL_SERVER__HOST="0.0.0.0", NOONBELL_AUTH__ENABLED="false")
    assert code == 1
    assert found["access"]["mark"] == "ill"


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url", "mysql_url"])
def test_tasks_that_fail_are_a_problem_until_they_run_well(nodes, target, request, store):
    url = request.getfixturevalue(store)
    node = nodes.start(url)
    broken = node.create(name="broken", target_url=target.url("/status/500"))
    sound = node.create(name="sound", target_url=target.url("/ok"))
    stopped = node.create(name="stopped", target_url=target.url("/status/500"))
    gone = node.create(name="gone", target_url=target.url("/status/500"))
    for task_id in (broken, sound, stopped, gone):
        node.wait_for_run(node.trigger(task_id))
    node.ask("POST", f"/tasks/{stopped}/disable")
    node.ask("DELETE", f"/tasks/{gone}")
    code, found = doctor("--store", url)
    assert code == 1
    assert (found["tasks"]["mark"], found["tasks"]["says"]) == ("ill", "1 task fails: broken")
    failed = node.runs_of(broken)[0]["id"]
    assert f"noonbell run explain {failed} " in found["tasks"]["fix"]
    assert "noonbell run list --since 24h --status failed --status timeout " in found["tasks"]["fix"]
    assert doctor("--store", url, "--ignore", "tasks")[0] == 0
    assert found["size"]["says"].startswith("3 tasks, 4 runs, ")
    node.ask("PATCH", f"/tasks/{broken}", {"target_url": target.url("/ok")})
    node.wait_for_run(node.trigger(broken))
    code, found = doctor("--store", url)
    assert (code, found["tasks"]["mark"]) == (0, "well")


def test_the_failure_is_explained_and_not_a_run_that_waits(nodes, target, sqlite_url):
    node = nodes.start(sqlite_url)
    broken = node.create(name="broken", target_url=target.url("/status/500"))
    failed = node.trigger(broken)
    node.wait_for_run(failed)
    node.trigger(broken, delay_seconds=3600)
    _, found = doctor("--store", sqlite_url)
    command = re.search(r"noonbell (run explain \d+) ", found["tasks"]["fix"])[1].split()
    env = dict(os.environ) | {"NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    assert "500" in forked.run(*command, env=env).stdout.splitlines()[0]


def test_a_one_shot_that_failed_is_a_problem_in_doctor_list_and_explain(nodes, target, sqlite_url):
    node = nodes.start(sqlite_url)
    once = {"type": "once", "at": rfc3339(SystemClock().now() - 60 * SECOND)}
    task = node.create(name="once", target_url=target.url("/status/500"), schedule=once, misfire_policy="FIRE_ONCE")
    (run,) = until(lambda: node.runs_of(task), "its run")
    node.wait_for_run(run["id"])
    assert node.ask("GET", f"/tasks/{task}")["status"] == "COMPLETED"
    env = dict(os.environ) | {"NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    said = forked.run("task", "explain", "once", env=env).stdout.splitlines()[0]
    assert f"Its last run, {run['id']}, ended FAILED" in said
    assert "500" in said
    listed = forked.run("task", "list", env=env).stdout.splitlines()
    assert listed[0].split("  ")[-1] == "LAST RUN"
    assert listed[1].split()[-1] == "FAILED"
    code, found = doctor("--store", sqlite_url)
    assert (code, found["tasks"]["says"]) == (1, "1 task fails: once")


def test_the_last_line_names_what_is_wrong_and_what_to_look_at(nodes, target, sqlite_url):
    def last_line() -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        env["NOONBELL_URL"] = f"http://127.0.0.1:{node.port}"
        return forked.run("doctor", "--store", sqlite_url, env=env).stderr.splitlines()[-1]

    node = nodes.start(sqlite_url)
    assert "tasks" not in last_line()
    node.wait_for_run(node.trigger(node.create(name="broken", target_url=target.url("/status/500"))))
    assert re.match(r"\d+ problems?: (\S+, )*tasks\b", last_line())
