"""The smoke script of document 002: create, list, trigger, runs, run, cancel, disable, enable, change cron, delete."""

from __future__ import annotations

import pytest

from acceptance.harness import until

pytestmark = pytest.mark.acceptance


def test_the_ten_steps_of_the_smoke_script(nodes, store_url, target):
    node = nodes.start(store_url)

    # 1. Create, with the script's own body, but for the address
    fields = {
        "name": "t1",
        "description": "d",
        "cron_expr": "*/20 * * * * *",
        "exec_type": "SYNC",
        "http_method": "GET",
        "target_url": target.url("/get"),
        "timeout_seconds": 5,
    }
    created = node.ask("POST", "/tasks", fields, expect=201)
    assert (created["id"], created["name"]) == (1, "t1")
    assert created["next_fires"]

    # 2. List
    listed = node.ask("GET", "/tasks")
    assert (listed["total"], listed["page"]) == (1, 1)
    assert [(task["id"], task["name"], task["status"]) for task in listed["items"]] == [(1, "t1", "ENABLED")]

    # 3. Trigger
    run_id = node.ask("POST", "/tasks/1/trigger")["run_id"]

    # 4. The runs of the task
    found = node.ask("GET", "/tasks/1/runs")
    assert run_id in [run["id"] for run in found["items"]]

    # 5. The run itself
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["task_id"], run["attempt"], run["response_code"], run["origin"]) == (1, 1, 200, "trigger")
    assert run["response_body"] == '{"ok": true}'
    (arrival,) = [one for one in target.at("/get") if one.run_id == run_id]
    assert arrival.method == "GET"
    assert arrival.headers["X-Noonbell-Task"]
    assert arrival.headers["Idempotency-Key"]

    # 6. Cancel: it is over already, and what is told is what stands
    canceled = node.ask("POST", f"/runs/{run_id}/cancel")
    assert canceled == {"run_id": run_id, "status": "SUCCESS", "canceled": False}

    # 7. and 8. Disable and enable
    assert node.ask("PATCH", "/tasks/1/disable")["status"] == "DISABLED"
    assert node.ask("GET", "/tasks/1")["next_fire_at"] is None
    assert node.ask("PATCH", "/tasks/1/enable")["status"] == "ENABLED"

    # 9. Change the cron expression
    changed = node.ask("PATCH", "/tasks/1", {"cron_expr": "*/10 * * * * *"})
    assert changed["updated"] is True
    task = node.ask("GET", "/tasks/1")
    assert (task["cron_expr"], task["version"]) == ("*/10 * * * * *", changed["version"])

    # 10. Delete
    assert node.ask("DELETE", "/tasks/1") == {"deleted": True}
    assert node.call("GET", "/tasks/1").status == 404
    assert node.ask("GET", "/tasks")["total"] == 0
    assert node.run(run_id)["status"] == "SUCCESS"  # history stays


def test_a_cron_of_seconds_fires_by_itself(nodes, store_url, target):
    node = nodes.start(store_url)
    task_id = node.create(name="tick", cron_expr="* * * * * *", target_url=target.url("/tick"))
    target.wait_for("/tick", 3)
    node.ask("PATCH", f"/tasks/{task_id}/disable")
    until(lambda: all(run["final_status"] for run in node.runs_of(task_id)), "every run to end")
    runs = node.runs_of(task_id)
    slots = [run["scheduled_time"] for run in runs]
    assert len(slots) == len(set(slots)) >= 3
    assert {run["status"] for run in runs} == {"SUCCESS"}


def test_a_slow_call_is_canceled_at_once(nodes, store_url, target):
    node = nodes.start(store_url)
    task_id = node.create(name="slow", target_url=target.url("/hold/slow"), timeout_seconds=60)
    run_id = node.trigger(task_id)
    target.wait_for("/hold/slow")
    assert node.ask("POST", f"/runs/{run_id}/cancel") == {"run_id": run_id, "status": "CANCELED", "canceled": True}
    assert node.run(run_id)["final_status"] == "CANCELED"


def test_a_trigger_at_the_limit_is_refused(nodes, store_url, target):
    node = nodes.start(store_url)
    task_id = node.create(name="closed", target_url=target.url("/ok"), max_concurrency=0, concurrency_policy="SKIP")
    answer = node.call("POST", f"/tasks/{task_id}/trigger")
    assert (answer.status, answer.json["error"]) == (409, "CONCURRENCY_LIMIT")
    assert node.runs_of(task_id) == []


def test_an_async_task_ends_with_its_callback(nodes, store_url, target):
    node = nodes.start(store_url)
    task_id = node.create(name="later", exec_type="ASYNC", http_method="POST", target_url=target.url("/accept"))
    run_id = node.trigger(task_id)
    node.wait_for_run(run_id, "CALLBACK_PENDING")
    (arrival,) = target.wait_for("/accept")
    base = f"http://127.0.0.1:{node.port}/api/v1"
    token = arrival.headers["X-Callback-Token"]
    assert arrival.headers["X-Callback-Url"] == f"{base}/callbacks/{token}"
    answer = node.ask("POST", f"/callbacks/{token}", {"status": "SUCCESS", "data": {"rows": 3}, "error_message": ""})
    assert answer == {"run_id": run_id, "final_status": "SUCCESS"}
    assert node.run(run_id)["status"] == "CALLBACK_SUCCESS"
    assert token not in node.log


def test_the_metrics_tell_what_happened(nodes, store_url, target):
    node = nodes.start(store_url)
    task_id = node.create(name="counted", target_url=target.url("/ok"))
    node.wait_for_run(node.trigger(task_id), "SUCCESS")

    def told():
        answer = node.call("GET", "/metrics", base="")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        wanted = [
            'cronjob_run_total{status="SUCCESS"} 1.0',
            'runs_total{status="SUCCESS"} 1.0',
            'cronjob_http_request_total{code="200",method="GET"} 1.0',
            'cronjob_task_total{status="ENABLED"} 1.0',
            f'cronjob_run_duration_seconds_count{{task_id="{task_id}"}} 1.0',
        ]
        return all(line in lines for line in wanted)

    until(told, "the metrics to tell of the run")
