"""One switch for all on three nodes under load: no start later than two seconds after the answer, and no slot without an account."""

from __future__ import annotations

import time

import pytest

from acceptance.harness import PATIENCE, until
from services import forked

pytestmark = pytest.mark.acceptance

BOUND = 2.0
"""Seconds after the answer in which an attempt may still start: the promise of `POST /pause`."""
STOOD = 6
"""Seconds that everything stands still, so that slots pass."""
SMALL = {"NOONBELL_EXECUTOR__WORKER_POOL_SIZE": "4"}
POLICIES = {
    "FIRE_NOW": {},
    "FIRE_ONCE": {},
    "SKIP": {},
    "CATCH_UP_LIMITED": {"catchup_limit": 2},
}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def server_url(request):
    return str(
        request.getfixturevalue(
            {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}[request.param]
        )
    )


def test_no_start_on_three_nodes_two_seconds_after_the_answer_and_every_slot_is_accounted_for(
    nodes, server_url, target
):
    first, second, third = (nodes.start(server_url, env=SMALL) for _ in range(3))
    planned = {
        policy: first.create(
            name=policy.lower(),
            cron_expr="* * * * * *",
            target_url=target.url(f"/{policy}"),
            misfire_policy=policy,
            misfire_grace_seconds=3,
            **more,
        )
        for policy, more in POLICIES.items()
    }
    load = first.create(name="load", target_url=target.url("/slow/0.05"), max_concurrency=None)
    held = first.trigger(first.create(name="held", target_url=target.url("/hold/it"), timeout_seconds=120))
    for policy in POLICIES:
        target.wait_for(f"/{policy}", 2)
    target.wait_for("/hold/it")
    first.ask("POST", "/runs/batch", {"runs": [{"task": load} for _ in range(1_500)]})
    target.wait_for("/slow/0.05", 20)

    answer = second.ask("POST", "/pause", {"reason": "the target moves"})
    answered_at = time.monotonic()
    assert answer["changed"] is True
    published = third.trigger(load)
    until(lambda: time.monotonic() > answered_at + STOOD, "slots to pass")
    late = [one for one in target.arrivals if one.at > answered_at + BOUND]
    assert late == []
    waiting = first.ask("GET", f"/runs?task={load}&status=SCHEDULED&page_size=1")["total"]
    assert waiting > 0, "the load was over before the pause: it shows nothing"
    for node in (first, second, third):
        until(lambda node=node: "everything is paused since" in node.log, f"{node.name} to say so in its log")
        assert node.ask("GET", "/pause")["reason"] == "the target moves"
    assert first.ask("GET", f"/runs/{published}/explain")["cause"] == "paused"
    target.release("it")
    first.wait_for_run(held, "SUCCESS")

    before = {policy: len(target.at(f"/{policy}")) for policy in POLICIES}
    third.ask("POST", "/resume")
    for policy, count in before.items():
        target.wait_for(f"/{policy}", count + 3)
    first.wait_for_run(published, "SUCCESS")
    until(
        lambda: first.ask("GET", f"/runs?task={load}&status=SUCCESS&page_size=1")["total"] == 1_501, "all of the load"
    )
    for task_id in planned.values():
        first.ask("PATCH", f"/tasks/{task_id}/disable")
        until(lambda task_id=task_id: all(run["final_status"] for run in first.runs_of(task_id)), "every run to end")
    for node in (first, second, third):
        assert node.stop() == 0
    checked = forked.run("audit", "--store", server_url, seconds=PATIENCE)
    assert checked.returncode == 0, checked.stdout + checked.stderr
