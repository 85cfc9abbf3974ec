"""Nodes on one database share the work, without a leader."""

from __future__ import annotations

import pytest

from acceptance.harness import until
from acceptance.test_stops import assert_every_second_is_there

pytestmark = pytest.mark.acceptance

SMALL = {"NOONBELL_EXECUTOR__WORKER_POOL_SIZE": "4"}


@pytest.fixture(params=["postgres", "mariadb"])
def server_url(request):
    return str(request.getfixturevalue({"postgres": "postgres_url", "mariadb": "mysql_url"}[request.param]))


def test_two_nodes_share_the_work(nodes, server_url, target):
    first, second = (nodes.start(server_url, env=SMALL) for _ in range(2))
    task_id = first.create(name="many", target_url=target.url("/slow/0.2"), max_concurrency=None)
    batch = {"runs": [{"task": task_id} for _ in range(40)]}
    answer = first.call("POST", "/runs/batch", batch)
    run_ids = (
        [one["run_id"] for one in answer.json["runs"]]
        if answer.status == 200
        else [first.trigger(task_id) for _ in range(40)]
    )
    runs = [second.wait_for_run(run_id, "SUCCESS") for run_id in run_ids]
    assert len({run["worker_id"] for run in runs}) == 2
    assert len(target.at("/slow/0.2")) == 40


def test_a_schedule_goes_on_when_one_of_two_nodes_is_killed(nodes, server_url, target):
    first, second = (nodes.start(server_url) for _ in range(2))
    lease = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}
    task_id = first.create(name="tick", cron_expr="* * * * * *", target_url=target.url("/tick"), **lease)
    target.wait_for("/tick", 3)
    first.kill()
    seen = len(target.at("/tick"))
    target.wait_for("/tick", seen + 3)
    second.ask("PATCH", f"/tasks/{task_id}/disable")
    until(lambda: all(run["final_status"] for run in second.runs_of(task_id)), "every run to end")
    assert_every_second_is_there(second.runs_of(task_id))


def test_a_run_is_canceled_through_the_other_node(nodes, server_url, target):
    first = nodes.start(server_url)
    second = nodes.start(server_url, "--no-worker")
    run_id = first.trigger(first.create(name="a", target_url=target.url("/hold/a"), timeout_seconds=60))
    target.wait_for("/hold/a")
    assert second.ask("POST", f"/runs/{run_id}/cancel")["canceled"] is True
    until(lambda: first.ask("GET", "/readyz")["workers"][0]["running"] == 0, "the worker to let go")
