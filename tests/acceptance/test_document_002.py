"""What documents 000 and 002 ask for and no other test shows on a real process. The list of what shows the rest: test_requirements.py."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import time
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acceptance.harness import PATIENCE, Nodes, until
from acceptance.test_policies_over_http import HANG, ScriptedTarget, moment
from services import forked

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to/move-from-a-cronjob-service.md"
GLOBAL_HEADERS = {"From": "noonbell@example.test", "Prefer": "everybody"}


@pytest.fixture(scope="module")
def target():
    target = ScriptedTarget()
    yield target
    target.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One for all tests that do not stop it."""
    folder = tmp_path_factory.mktemp("document-002")
    nodes = Nodes(folder)
    env = {
        "NOONBELL_EXECUTOR__GLOBAL_HEADERS": json.dumps(GLOBAL_HEADERS),
        "NOONBELL_LOGGING__JSON": "true",
        "NOONBELL_METRICS__TASK_ID_LIMIT": "1000",
    }
    try:
        yield nodes.start(f"sqlite:///{folder / 'noonbell.db'}", env=env)
    finally:
        nodes.end()


def metric(node, name, **labels):
    """The sum of the series of that name that carry the labels."""
    total = 0.0
    for line in node.call("GET", "/metrics", base="").text.splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
            total += float(value)
    return total


# Creating


def test_the_create_example_of_the_document_is_taken_as_it_is_and_its_trap_is_named(node):
    given = {
        "name": "sync_stats",
        "description": "统计同步",
        "cron_expr": "0 */5 * * *",
        "exec_type": "SYNC",
        "http_method": "POST",
        "target_url": "http://svc.internal/api/sync",
        "headers": {"Content-Type": "application/json"},
        "body_template": '{"run_id": "{{run_id}}"}',
        "timeout_seconds": 10,
        "retry_policy": {"max_retries": 3, "initial_delay": 5, "strategy": "exponential", "max_delay": 60},
        "max_concurrency": 1,
        "concurrency_policy": "QUEUE",
        "misfire_policy": "FIRE_NOW",
        "catchup_limit": 5,
    }
    created = node.ask("POST", "/tasks", given, expect=201)
    assert created["name"] == "sync_stats"
    assert "looks_like_six_fields" in [note["code"] for note in created["notes"]]
    first, second = (datetime.fromisoformat(fire["utc"]) for fire in created["next_fires"][:2])
    assert (second - first).total_seconds() in (4 * 3600, 5 * 3600)  # hours, and not minutes
    task = node.ask("GET", f"/tasks/{created['id']}")
    assert task["cron_expr"] == "0 0 */5 * * *"
    assert task["retry_policy"].items() >= given["retry_policy"].items()
    same = set(given) - {"cron_expr", "retry_policy"}
    assert {name: task[name] for name in same} == {name: given[name] for name in same}
    assert (task["overlap_action"], task["failure_action"], task["timezone"]) == ("ALLOW", "RUN_NEW", "UTC")
    assert (task["callback_method"], task["callback_timeout_sec"]) == ("POST", 300)
    assert (task["status"], task["version"]) == ("ENABLED", 1)


def test_every_field_can_be_changed_and_a_new_cron_is_stored_in_six_fields(node, target):
    task_id = node.create(name="to be changed", cron_expr="@daily", target_url=target.url("/ok"))
    changes = {
        "description": "更新描述",
        "timezone": "+08:00",
        "exec_type": "ASYNC",
        "http_method": "PUT",
        "target_url": target.url("/accept"),
        "headers": {"Accept": "1"},
        "body_template": "{{run_id}}",
        "timeout_seconds": 7,
        "max_concurrency": 2,
        "concurrency_policy": "SKIP",
        "misfire_policy": "CATCH_UP_LIMITED",
        "catchup_limit": 3,
        "overlap_action": "CANCEL_PREV",
        "failure_action": "RETRY",
        "callback_method": "PUT",
        "callback_timeout_sec": 30,
    }
    assert node.ask("PATCH", f"/tasks/{task_id}", {"cron_expr": "*/10 * * * *", **changes})["updated"] is True
    task = node.ask("GET", f"/tasks/{task_id}")
    assert {name: task[name] for name in changes} == changes
    assert (task["cron_expr"], task["version"]) == ("0 */10 * * * *", 2)


# Executing


def test_what_was_sent_and_what_came_back_is_kept_whole(node, target):
    body = "长" * 200_000
    task_id = node.create(
        name="kept",
        http_method="POST",
        target_url=target.url("/kept"),
        headers={"Prefer": "billing", "Accept-Language": "1"},
    )
    run = node.wait_for_run(node.trigger(task_id, override_body=body), "SUCCESS")
    (arrival,) = target.at("/kept")
    assert arrival.body == run["request_body"] == body
    assert run["truncated"] is False
    assert (run["response_code"], run["response_body"]) == (200, '{"ok": true}')
    for headers in (arrival.headers, run["request_headers"]):
        assert headers.items() >= {"From": "noonbell@example.test", "Prefer": "billing", "Accept-Language": "1"}.items()


@pytest.mark.parametrize(("strategy", "delays"), [("fixed", [1, 1]), ("exponential", [1, 2])])
def test_a_failing_call_is_retried_with_its_delays_and_then_succeeds(node, target, strategy, delays):
    policy = {"max_retries": 2, "initial_delay": 1, "strategy": strategy, "max_delay": 60}
    path = target.write(f"flaky-{strategy}", 500, 503, 200)
    task_id = node.create(name=f"flaky {strategy}", target_url=target.url(path), retry_policy=policy)
    run_id = node.trigger(task_id)
    waiting = node.wait_for_run(run_id, "RETRYING")
    assert moment(waiting["next_retry_time"]) > moment(waiting["start_time"])
    run = node.wait_for_run(run_id, "SUCCESS")
    assert (run["attempt"], run["retry_count"], run["next_retry_time"]) == (3, 2, None)
    attempts = node.ask("GET", f"/runs/{run_id}/attempts")["items"]
    assert [attempt["response_code"] for attempt in attempts] == [500, 503, 200]
    for (before, after), delay in zip(itertools.pairwise(attempts), delays, strict=True):
        assert moment(after["start_time"]) - moment(before["end_time"]) >= delay
    assert len({arrival.headers["Idempotency-Key"] for arrival in target.at(path)}) == 1
    until(lambda: metric(node, "cronjob_run_retries_total", task_id=task_id) == 2, "the retries to be counted")


def test_retries_end_with_the_budget_and_a_4xx_is_not_tried_again(node, target):
    policy = {"max_retries": 1, "initial_delay": 0}
    failing = node.create(name="failing", target_url=target.url("/status/500"), retry_policy=policy)
    run = node.wait_for_run(node.trigger(failing), "FAILED")
    assert (run["attempt"], run["retry_count"], run["error_details"]["kind"]) == (2, 1, "http_5xx")
    wrong = node.create(name="wrong", target_url=target.url("/status/404"), retry_policy=policy)
    run = node.wait_for_run(node.trigger(wrong), "FAILED")
    assert (run["attempt"], run["response_code"], run["error_details"]["kind"]) == (1, 404, "http_4xx")


def test_waiting_running_and_pending_runs_are_canceled(node, target):
    task_id = node.create(name="to be canceled", target_url=target.url(target.write("cancel", HANG)))
    running = node.trigger(task_id)
    waiting = node.trigger(task_id)
    target.wait_for("/script/cancel")
    pending = node.trigger(node.create(name="pending", exec_type="ASYNC", target_url=target.url("/accept")))
    node.wait_for_run(pending, "CALLBACK_PENDING")
    for run_id in (waiting, running, pending):
        assert node.ask("POST", f"/runs/{run_id}/cancel") == {"run_id": run_id, "status": "CANCELED", "canceled": True}
        assert node.run(run_id)["end_time"] is not None


# Watching


def test_the_metrics_of_both_documents_move(node, target):
    timeouts, retries = metric(node, "task_timeout_total"), metric(node, "task_failure_retry_total")
    hanging = node.create(
        name="hanging",
        target_url=target.url(target.write("hanging", HANG)),
        timeout_seconds=0.2,
        failure_action="RETRY",
    )
    node.wait_for_run(node.trigger(hanging), "TIMEOUT")
    node.ask("PATCH", f"/tasks/{hanging}", {"schedule": {"type": "once"}})
    until(lambda: metric(node, "task_timeout_total") == timeouts + 2, "both timeouts to be counted")
    assert metric(node, "task_failure_retry_total") == retries + 1
    assert metric(node, "runs_total", status="TIMEOUT") == metric(node, "cronjob_run_total", status="TIMEOUT") >= 2
    assert metric(node, "cronjob_http_request_total", method="GET", code="timeout") >= 2
    assert metric(node, "cronjob_run_duration_seconds_count", task_id=hanging) == 2
    assert metric(node, "cronjob_scheduler_scan_latency_count") > 0
    pending = node.create(name="long wait", exec_type="ASYNC", target_url=target.url("/accept"))
    node.wait_for_run(node.trigger(pending), "CALLBACK_PENDING")
    until(lambda: metric(node, "cronjob_callback_pending") == 1, "the pending callback to be counted")


def test_skipped_slots_are_counted_by_their_reason(node, target):
    hang = {"target_url": target.url(target.write("skipping", HANG)), "timeout_seconds": 60}
    counters = {
        "task_overlap_skipped_total": node.create(name="overlapping", overlap_action="SKIP", **hang),
        "concurrency_skipped_total": node.create(name="full", concurrency_policy="SKIP", **hang),
    }
    before = {name: metric(node, name) for name in counters}
    for task_id in counters.values():
        node.wait_for_run(node.trigger(task_id), "RUNNING")
        node.ask("PATCH", f"/tasks/{task_id}", {"schedule": {"type": "once"}})
    for name in counters:
        until(lambda name=name: metric(node, name) == before[name] + 1, f"{name} to count the skip")


def test_a_line_of_the_log_has_the_fields_of_the_document(node, target):
    task_id = node.create(name="logged", target_url=target.url("/status/500"))
    run = node.wait_for_run(node.trigger(task_id), "FAILED")

    def line():
        lines = [json.loads(text) for text in node.log.splitlines() if text.startswith("{")]
        return next((one for one in lines if one.get("run_id") == run["id"]), None)

    logged = until(line, "the line of the run")
    fields = ["ts", "level", "trace_id", "task_id", "run_id", "attempt", "status", "msg", "err", "latency_ms"]
    assert set(logged) >= {*fields, "target_url"}
    assert (logged["task_id"], logged["attempt"], logged["status"]) == (task_id, 1, "FAILED")
    (arrival,) = [one for one in target.at("/status/500") if one.run_id == run["id"]]
    assert logged["trace_id"] == run["trace_id"] == arrival.headers["traceparent"].split("-")[1]


def test_a_scheduled_run_has_one_trace_id_in_its_row_its_log_and_its_request(node, target):
    task_id = node.create(name="traced", target_url=target.url("/traced"), cron_expr="* * * * * *")
    run = until(
        lambda: next(iter(node.ask("GET", f"/tasks/{task_id}/runs?status=SUCCESS")["items"]), None), "a run of a slot"
    )
    node.ask("PATCH", f"/tasks/{task_id}/disable")

    def line():
        lines = [json.loads(text) for text in node.log.splitlines() if text.startswith("{")]
        return next((one for one in lines if one.get("run_id") == run["id"]), None)

    (arrival,) = [one for one in target.at("/traced") if one.run_id == run["id"]]
    logged = until(line, "the line of the run")
    assert run["origin"] == "schedule"
    assert re.fullmatch("[0-9a-f]{32}", run["trace_id"])
    assert run["trace_id"] == logged["trace_id"] == arrival.headers["traceparent"].split("-")[1]


def test_a_run_says_when_it_was_made_and_when_it_last_changed(node, target):
    task_id = node.create(name="dated", target_url=target.url("/ok"))
    run_id = node.trigger(task_id)
    run = node.wait_for_run(run_id, "SUCCESS")
    assert moment(run["created_at"]) <= moment(run["start_time"]) <= moment(run["end_time"])
    assert run["created_at"] < run["updated_at"] == run["end_time"]


# Starting, and starting again


def test_with_misfire_on_start_skip_nothing_from_before_the_start_is_due(nodes, sqlite_url, target):
    first = nodes.start(sqlite_url)
    task_id = first.create(name="a", target_url=target.url("/ok"), cron_expr="* * * * * *", misfire_grace_seconds=0)
    until(lambda: first.ask("GET", f"/tasks/{task_id}/runs")["items"], "a run")
    first.stop()
    stopped = time.time()
    until(lambda: time.time() > stopped + 3, "some slots to pass")
    started = time.time()
    again = nodes.start(sqlite_url, env={"NOONBELL_SCHEDULER__MISFIRE_ON_START": "skip"})
    until(
        lambda: re.search(r"dropped \d+ slots from before the start", again.log),
        "the slots of the downtime to be dropped",
    )

    def slots():
        runs = again.ask("GET", f"/tasks/{task_id}/runs?page_size=100")["items"]
        return [moment(run["scheduled_time"]) for run in runs]

    until(lambda: max(slots()) > started, "a run after the start")
    assert [slot for slot in slots() if stopped < slot < started] == []


def test_a_configuration_of_the_document_starts_a_node_on_mysql(nodes, mysql_url, target, tmp_path):
    url = urlsplit(mysql_url)
    login = f"{url.username}:{url.password or ''}"
    (tmp_path / "config.yaml").write_text(f"""\
server:
  port: 0
  graceful_timeout: 10s
mysql:
  dsn: "{login}@tcp({url.hostname}:{url.port}){url.path}?charset=utf8mb4&parseTime=True&loc=Local"
  max_open_conns: 50
  max_idle_conns: 10
  conn_max_lifetime: 300s
scheduler:
  poll_interval: 1s
  ahead_seconds: 30
  batch_limit: 200
  enable_seconds_field: true
executor:
  worker_pool_size: 16
  request_timeout: 15s
  default_retry:
    max_retries: 0
callback:
  base_url: "http://cronjob.internal/api/v1/callbacks"
  token_ttl: 3600s
metrics:
  enabled: true
logging:
  level: info
""")
    node = nodes.launch("-config=config.yaml").wait_ready()
    task_id = node.create(name="a", target_url=target.url("/ok"))
    assert node.ask("GET", f"/tasks/{task_id}")["timeout_seconds"] == 15
    node.wait_for_run(node.trigger(task_id), "SUCCESS")


@pytest.mark.parametrize(("setting", "status"), [("fail", "FAILED"), ("retry", "SUCCESS")])
def test_what_ran_when_the_process_died_is_failed_or_run_again_as_configured(
    nodes, sqlite_url, target, setting, status
):
    env = {"NOONBELL_RECOVERY__ORPHANED_RUNS": setting}
    node = nodes.start(sqlite_url, env=env)
    path = target.write(f"orphan-{setting}", HANG, 200)
    lease = {"worker_timeout_ms": 1500, "ping_interval_ms": 500}
    run_id = node.trigger(node.create(name="a", target_url=target.url(path), timeout_seconds=60, **lease))
    target.wait_for(path)
    node.kill()
    run = nodes.start(sqlite_url, env=env).wait_for_run(run_id, status)
    assert (run["error_details"] or {}).get("kind") == ("lost" if setting == "fail" else None)
    assert run["attempt"] == (1 if setting == "fail" else 2)


def test_a_thousand_tasks_of_one_second_all_run_once_among_thousands(nodes, sqlite_url, target, tmp_path):
    slot = "2020-01-01T00:00:00Z"
    tasks = [
        {
            "name": f"task {number}",
            "schedule": {"type": "once", "at": slot if number % 3 == 0 else "2099-01-01T00:00:00Z"},
            "http_method": "POST",
            "target_url": target.url("/thousand"),
        }
        for number in range(3000)
    ]
    (tmp_path / "many.yaml").write_text(json.dumps({"tasks": tasks}))
    node = nodes.launch("--store", sqlite_url, "--port", "0", "--config", "many.yaml").wait_ready(60)
    target.wait_for("/thousand", 1000, seconds=60)
    until(lambda: node.ask("GET", "/runs?status=SUCCESS&page_size=1")["total"] == 1000, "every run to be settled")
    assert len(target.at("/thousand")) == 1000
    assert len({arrival.headers["X-Noonbell-Task"] for arrival in target.at("/thousand")}) == 1000
    assert node.ask("GET", "/tasks?status=ENABLED&page_size=1")["total"] == 2000
    assert node.call("GET", "/healthz").text == "ok"


# The papers


def noonbell(*arguments, cwd):
    done = forked.run(*arguments, cwd=cwd, seconds=PATIENCE)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.bare_database
def test_the_steps_of_the_how_to_work(nodes, mysql_url, target, tmp_path):
    """The database is the fixture's; tables, file and start are as the page has them."""
    url = urlsplit(mysql_url)
    dsn = f"{url.username}:{url.password or ''}@tcp({url.hostname}:{url.port}){url.path}?charset=utf8mb4&parseTime=True"
    (tmp_path / "config.yaml").write_text(f'server: {{port: 0}}\nmysql: {{dsn: "{dsn}"}}\n')
    assert noonbell("config", "check", "--config", "config.yaml", cwd=tmp_path)[0] == 0
    code, told = noonbell("migrate", "--config", "config.yaml", cwd=tmp_path)
    assert (code, told.splitlines()[0]) == (0, "forward 1")
    for command in (
        "noonbell migrate",
        "noonbell config check --config noonbell.yaml",
        "noonbell serve -config=noonbell.yaml",
    ):
        assert command in HOW_TO.read_text()
    node = nodes.launch("-config=config.yaml").wait_ready()
    lines = [
        line
        for block in re.findall(r"^```bash\n(.*?)^```", HOW_TO.read_text(), re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(lines) >= 4
    run_id = 0
    for line in lines:
        words = shlex.split(
            line.replace("http://127.0.0.1:9000/get", target.url("/get")).replace("$RUN_ID", str(run_id))
        )
        assert words[0] == "curl"
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        (address,) = [word for word in words if word.startswith("http://localhost:8080/api/v1")]
        answer = node.call(method, address.removeprefix("http://localhost:8080/api/v1"), body)
        assert answer.status in (200, 201), f"{line}: {answer.text}"
        if "/trigger" in address:
            run_id = answer.json["run_id"]
    assert run_id


def table(heading):
    """The rows under a heading of the page, without the table's own head."""
    section = HOW_TO.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines() if row.startswith("|")]
    return rows[2:]


def test_the_how_to_tells_design_from_reality_and_has_the_documents_words():
    designed = " ".join(row[0] for row in table("What was only designed, and works now"))
    for item in ("callbacks", "retry policy", "misfire policies", "QUEUE", "structured errors", "several instances"):
        assert item in designed
    assert len(table("What is different")) >= 10
    here = " ".join(row[0] for row in table("Words")) + (ROOT / "docs/glossary.md").read_text()
    for word in ("task", "scheduling", "run", "sync", "async", "callback", "misfire"):
        assert re.search(rf"\b{word}\b", here), word
