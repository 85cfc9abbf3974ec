"""Services by their names, with real nodes: the settings of a start say where a name leads."""

from __future__ import annotations

import json
import signal

from acceptance.harness import Nodes, Target
from services import forked


def services(**addresses: str) -> dict[str, str]:
    return {"NOONBELL_EXECUTOR__SERVICES": json.dumps(addresses), "NOONBELL_SERVER__GRACEFUL_TIMEOUT": "300ms"}


def test_a_name_leads_where_the_settings_of_this_start_say(nodes: Nodes, target: Target, sqlite_url: str):
    node = nodes.start(sqlite_url, env=services(billing=target.url("/old")))
    made = forked.run(
        *("task", "create", "bill", "--url", "service://billing/run?x=1", "--retries", "5"),
        env={"NOONBELL_URL": f"http://127.0.0.1:{node.port}"},
    )
    assert made.returncode == 0, made.stderr
    node.wait_for_run(node.trigger(1), "SUCCESS")
    assert [one.path for one in target.arrivals] == ["/old/run?x=1"]
    node.send(signal.SIGTERM)
    node.wait_ended()

    node = nodes.start(sqlite_url, env=services(billing=target.url("/new"), mail=target.url("/mail")))
    call = {"url": "service://billing/call", "success_url": "service://mail/told"}
    node.wait_for_run(node.trigger(1), "SUCCESS")
    node.wait_for_run(node.ask("POST", "/calls", call)["run_id"], "SUCCESS")
    assert [json.loads(one.body)["url"] for one in target.wait_for("/mail/told")] == ["service://billing/call"]
    assert [one.path for one in target.arrivals] == ["/old/run?x=1", "/new/run?x=1", "/new/call", "/mail/told"]
    node.send(signal.SIGTERM)
    node.wait_ended()

    node = nodes.start(sqlite_url, env=services(mail=target.url("/mail")))
    run = node.wait_for_run(node.trigger(1), "FAILED")
    assert (run["attempt"], run["error_details"]["kind"]) == (1, "unknown_service")
    assert run["error_message"] == "this node has no service billing: executor.services has mail"
    assert node.call("POST", "/tasks/1/disable").status == 200
    assert len(target.arrivals) == 4
