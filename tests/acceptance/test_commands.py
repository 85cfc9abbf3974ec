"""A worker process with a file of allowed programs beside a node that has none: a task's command is run, logged and explained."""

from __future__ import annotations

from pathlib import Path

from acceptance.harness import until
from acceptance.test_workers import noonbell, worker  # noqa: F401 - a fixture

ALLOWED = "programs: [/bin/sh]\ncwd: [/]\n"


def test_a_command_of_a_crontab_is_run_by_a_worker_that_allows_it(nodes, sqlite_url, worker, tmp_path: Path):  # noqa: F811
    node = nodes.start(sqlite_url)
    table, tasks, allowed = tmp_path / "crontab", tmp_path / "tasks.yaml", tmp_path / "allow.yaml"
    table.write_text(
        'GREETING=hello\n0 3 * * * echo "$GREETING $NOONBELL_TASK"; cat >&2; echo \'{"rows": 3}\'%from stdin\n'
    )
    tasks.write_text(noonbell(node, "import", "crontab", str(table), "--commands"))
    noonbell(node, "apply", "-o", "json", "-f", str(tasks))
    (task,) = node.ask("GET", "/tasks")["items"]
    run_id = node.trigger(task["id"])
    waits = node.ask("GET", f"/runs/{run_id}/explain")
    assert (waits["cause"], "runs commands" in waits["message"]) == ("no_worker", True)
    allowed.write_text(ALLOWED)
    allowed.chmod(0o600)
    worker("--commands", str(allowed), "--store", sqlite_url, "--worker-id", "runs-commands")
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["result"], run["worker_id"]) == ({"rows": 3}, "runs-commands")
    lines = node.ask("GET", f"/runs/{run_id}/log")["items"]
    assert sorted((line["level"], line["message"]) for line in lines) == [
        ("info", f"hello {task['name']}"),
        ("info", '{"rows": 3}'),
        ("warning", "from stdin"),
    ]
    assert "runs-commands" in noonbell(node, "worker", "list", "-o", "json")
    assert "noonbell.command" in noonbell(node, "worker", "list", "-o", "json")
    refused = node.ask("POST", "/tasks", {"name": "other", "command": ["/bin/cat", "/etc/hostname"]}, expect=201)
    ended = node.wait_for_run(node.trigger(refused["id"]), "FAILED")
    assert ended["error_details"]["kind"] == "command_not_allowed"
    assert str(allowed) in ended["error_message"]
    until(lambda: "this worker runs commands" in (tmp_path / "worker.log").read_text() or None, "the warning")
