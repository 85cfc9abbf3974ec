"""The flow of the manual on real processes: HTTP targets, a worker, the API and the command line, on each store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import PATIENCE, Nodes, ServerNode, Target, until
from services import forked

APP = Path(__file__).with_name("flow_app.py")
FILES = ["a.csv", "bb.csv", "ccc.csv"]

FLOW = """
tasks:
  - name: nightly
    cron_expr: "0 2 * * *"
    payload: {{folder: "{folder}"}}
    steps:
      - {{id: extract, target_url: "{target}/extract"}}
      - id: parts
        needs: [extract]
        foreach: "{{{{ steps.extract.result.files }}}}"
        job_type: convert
        payload: {{file: "{{{{ item }}}}", folder: "{{{{ payload.folder }}}}"}}
        max_parallel: 8
        allow_failure: true
        retry_policy: {{max_retries: 0}}
      - id: load
        needs: [parts]
        when: "steps.parts.failed == 0"
        job_type: load
        payload: {{sizes: "{{{{ steps.parts.results }}}}", folder: "{{{{ payload.folder }}}}"}}
        retry_policy: {{max_retries: 3}}
      - {{id: page, needs: [load], on: failure, target_url: "{target}/page?status={{{{ steps.load.status }}}}"}}
"""


class Scene:
    """A node with a worker, a target, and the flow applied from a file."""

    def __init__(self, node: ServerNode, target: Target, folder: Path) -> None:
        self.node, self.target, self.folder = node, target, folder
        (folder / "flows.yaml").write_text(FLOW.format(folder=folder, target=target.url("")))
        self.command("apply", "-f", "flows.yaml")
        self.task = node.ask("GET", "/tasks?name=nightly")["items"][0]

    def command(self, *arguments: str) -> str:
        env = {**os.environ, "NOONBELL_URL": f"http://127.0.0.1:{self.node.port}", "NOONBELL_OUTPUT": "table"}
        done = forked.run(*arguments, cwd=self.folder, env=env, seconds=PATIENCE)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def trigger(self) -> int:
        return self.node.trigger(self.task["id"])

    def graph(self, run_id: int) -> dict[str, Any]:
        return {step["id"]: step for step in self.node.ask("GET", f"/runs/{run_id}/graph")["steps"]}

    def shown(self, run_id: int) -> dict[str, str]:
        return {
            name: f"{step['status']} {step['reason']}" if step["reason"] else step["status"]
            for name, step in self.graph(run_id).items()
        }

    def spoil(self, name: str) -> None:
        (self.folder / f"broken-{name}").touch()

    def mend(self, name: str) -> None:
        (self.folder / f"broken-{name}").unlink()

    def calls(self, path: str) -> int:
        return sum(call.path.startswith(path) for call in self.target.arrivals)


@pytest.fixture
def scene(nodes: Nodes, target: Target, store_url: str, tmp_path: Path) -> Scene:
    target.answers["/extract"] = {"files": FILES}
    return Scene(nodes.start(store_url, "--app", str(APP)), target, tmp_path)


def test_every_step_succeeds(scene: Scene):
    run_id = scene.trigger()
    run = scene.node.wait_for_run(run_id, "SUCCESS")
    assert run["result"] == {"success": 3, "skipped": 1}
    assert scene.shown(run_id) == {
        "extract": "SUCCESS", "parts": "SUCCESS", "load": "SUCCESS", "page": "SKIPPED upstream",
    }  # fmt: skip
    graph = scene.graph(run_id)
    assert scene.node.run(graph["load"]["run_id"])["result"] == sum(map(len, FILES))
    assert (graph["parts"]["total"], graph["parts"]["succeeded"]) == (3, 3)
    parts = scene.node.ask("GET", f"/runs?parent_id={run_id}&sort=id")["items"]
    assert [(part["step_id"], part["item_index"]) for part in parts] == [
        ("extract", None), ("parts", 0), ("parts", 1), ("parts", 2), ("load", None),
    ]  # fmt: skip
    assert len({part["idempotency_key"] for part in parts}) == 5
    told = scene.command("run", "graph", str(run_id))
    assert "✔ parts" in told
    assert "3/3" in told
    assert "needs parts" in told
    assert "run " + str(run_id) in told
    said = scene.node.ask("GET", f"/runs/{run_id}/explain")["message"]
    assert "4 of 4 steps have ended." in said


def test_a_retry_of_a_flow_that_succeeded_carries_it_out_again(scene: Scene):
    run_id = scene.trigger()
    scene.node.wait_for_run(run_id, "SUCCESS")
    again = scene.node.ask("POST", f"/runs/{run_id}/retry")["run_id"]
    scene.node.wait_for_run(again, "SUCCESS")
    assert scene.calls("/extract") == 2
    assert [step["copied_from"] for step in scene.graph(again).values()] == [None] * 4


def test_a_part_that_fails_makes_the_condition_false(scene: Scene):
    scene.spoil("bb.csv")
    run_id = scene.trigger()
    scene.node.wait_for_run(run_id, "SUCCESS")
    assert scene.shown(run_id) == {
        "extract": "SUCCESS", "parts": "SUCCESS", "load": "SKIPPED condition", "page": "SKIPPED upstream",
    }  # fmt: skip
    assert scene.graph(run_id)["parts"]["failed"] == 1
    assert scene.calls("/page") == 0


def test_a_load_that_fails_calls_the_page_and_a_retry_starts_there(scene: Scene):
    scene.spoil("load")
    run_id = scene.trigger()
    run = scene.node.wait_for_run(run_id, "FAILED")
    assert run["error_message"].startswith("step load failed")
    assert scene.shown(run_id) == {
        "extract": "SUCCESS", "parts": "SUCCESS", "load": "FAILED", "page": "SUCCESS",
    }  # fmt: skip
    assert [call.path for call in scene.target.arrivals if call.path.startswith("/page")] == ["/page?status=FAILED"]
    scene.mend("load")
    again = scene.node.ask("POST", f"/runs/{run_id}/retry", {"from_step": "load"})["run_id"]
    scene.node.wait_for_run(again, "SUCCESS")
    assert scene.shown(again) == {
        "extract": "SUCCESS", "parts": "SUCCESS", "load": "SUCCESS", "page": "SKIPPED upstream",
    }  # fmt: skip
    graph = scene.graph(again)
    assert [graph[name]["copied_from"] for name in ("extract", "parts", "load")] == [run_id, run_id, None]
    assert scene.calls("/extract") == 1
    refused = scene.node.ask("POST", f"/runs/{run_id}/retry", {"from_step": "lode"}, expect=400)
    assert "expected one of extract, parts, load, page" in refused["details"]["from_step"]
    assert "kept from run" in scene.command("run", "graph", str(again))


def test_cancel_in_the_middle_ends_all_of_it(scene: Scene):
    (scene.folder / "hold").touch()
    run_id = scene.trigger()
    until(lambda: scene.graph(run_id)["parts"]["status"] == "RUNNING", "the parts to run")
    scene.node.ask("POST", f"/runs/{run_id}/cancel")
    assert scene.node.run(run_id)["status"] == "CANCELED"
    assert scene.shown(run_id) == {
        "extract": "SUCCESS", "parts": "CANCELED", "load": "CANCELED", "page": "CANCELED",
    }  # fmt: skip
    (scene.folder / "hold").unlink()
    again = scene.node.ask("POST", f"/runs/{run_id}/retry")["run_id"]
    scene.node.wait_for_run(again, "SUCCESS")
    assert scene.calls("/extract") == 1


def test_an_edit_does_not_touch_a_flow_that_runs(scene: Scene):
    (scene.folder / "hold").touch()
    run_id = scene.trigger()
    until(lambda: scene.graph(run_id)["parts"]["status"] == "RUNNING", "the parts to run")
    steps = [step for step in scene.task["steps"] if step["id"] != "page"]
    (load,) = [step for step in steps if step["id"] == "load"]
    load["job_type"] = "nobody"
    scene.node.ask("PATCH", f"/tasks/{scene.task['id']}", {"steps": steps})
    (scene.folder / "hold").unlink()
    scene.node.wait_for_run(run_id, "SUCCESS")
    assert scene.shown(run_id)["load"] == "SUCCESS"
    assert "page" in scene.shown(run_id)
    assert scene.node.ask("GET", f"/tasks/{scene.task['id']}")["version"] == 2


def test_what_is_exported_can_be_applied_again(scene: Scene):
    scene.command("export", "--owner", "file:flows", "-f", "exported.yaml")
    assert scene.command("diff", "-f", "exported.yaml", "--set", "flows") == ""
