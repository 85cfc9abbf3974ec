"""What other systems name as their next moments, Noonbell names too, and every reader says what it could not carry over.

The files beside this one were recorded with the real systems (`data/record.py`), or are the documents' own examples.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cli.importers import (
    KINDS,
    apscheduler,
    celery_beat,
    cronjob,
    jobs,
    kubernetes,
    mscheduler,
    plans,
    report,
    systemd,
    xxl_job,
)
from noonbell.cli.importers.crontab import read_crontab
from noonbell.cli.importers.programs import ProgramOptions
from noonbell.cli.importers.report import Refused, checked
from noonbell.cli.task_files import as_yaml, check_tasks, tasks_in
from noonbell.clock import slot_of
from noonbell.fields.kinds import read_moment
from unit.cli.entries import COMMANDS, DATA, job_of, moments, only, recorded

# Moments, beside those of the real systems


@pytest.mark.parametrize("case", recorded("systemd"), ids=lambda case: case["calendar"])
def test_a_calendar_event_names_the_moments_that_systemd_names(case):
    if case["calendar"].startswith("2027"):
        with pytest.raises(Refused, match="start_at"):
            systemd.cron_of_calendar(case["calendar"], "UTC")
        return
    found = systemd.cron_of_calendar(case["calendar"], "UTC")
    assert moments(found, len(case["moments"])) == case["moments"]


# Kubernetes


def test_cron_jobs_of_kubernetes_keep_their_policies_and_say_what_they_lose():
    text = (DATA / "cronjobs.yaml").read_text()
    hello, ping, wide, zoned, service = checked(kubernetes.read_kubernetes(text, "Asia/Shanghai", COMMANDS))
    assert hello.task == {
        "name": "shop.hello",
        "timezone": "Etc/UTC",
        "cron_expr": "*/5 * * * *",
        "command": ["/bin/sh", "-c", "date; echo Hello"],
        "env": {"GREETING": "hello"},
        "overlap_action": "SKIP",
        "misfire_policy": "SKIP",
        "misfire_grace_seconds": 120,
        "retry_policy": {"max_retries": 2, "strategy": "exponential", "initial_delay": 10, "max_delay": 360},
        "timeout_seconds": 60,
        "labels": {"app": "shop"},
    }
    assert any("TOKEN" in change for change in hello.changes)
    assert any("busybox" in change for change in hello.changes)
    assert (ping.task["target_url"], ping.task["status"]) == ("http://shop.internal/ping", "DISABLED")
    assert (ping.task["timezone"], ping.task["overlap_action"]) == ("Asia/Shanghai", "CANCEL_PREV")
    assert "parallelism 3" in wide.refused
    assert "timeZone" in zoned.refused
    assert service.outcome == "left out"


def test_a_container_without_an_answer_is_refused_with_the_options_that_take_it():
    text = (DATA / "cronjobs.yaml").read_text().split("---")[0]
    entry = only(kubernetes.read_kubernetes(text, "UTC", ProgramOptions()))
    assert "--commands" in entry.refused
    job = only(kubernetes.read_kubernetes(text, "UTC", ProgramOptions(job_type="container")))
    assert job.task["payload"]["image"] == "busybox:1.28"


@pytest.mark.parametrize("schedule", ["@every 1.5s", "@every 500ms"])
def test_a_part_of_a_second_is_refused(schedule):
    assert "whole numbers of seconds" in only(kubernetes.read_kubernetes(SHELL % schedule, "UTC", COMMANDS)).refused


def test_a_shell_of_an_image_is_the_shell_of_the_worker():
    entry = only(kubernetes.read_kubernetes(SHELL % "0 2 * * *", "UTC", COMMANDS))
    assert entry.task["command"] == ["/bin/sh", "-c", "date"]
    assert any("not in the image busybox" in change for change in entry.changes)


SHELL = """
kind: CronJob
metadata: {name: a}
spec:
  schedule: "%s"
  jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: busybox, command: [sh, -c, date]}]}}}}
"""
REFERENCES = """
kind: CronJob
metadata: {name: a}
spec:
  schedule: "0 2 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: a
            image: b
            command: [/bin/report, --day=$(DAY), $$(DAY), $(NOBODY), $DAY]
            env: [{name: DAY, value: monday}, {name: TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}]
"""


def test_what_kubernetes_itself_fills_in_is_filled_in_and_refused_where_it_is_not_in_the_file():
    known = only(kubernetes.read_kubernetes(REFERENCES, "UTC", COMMANDS))
    assert known.task["command"] == ["/bin/report", "--day=monday", "$(DAY)", "$(NOBODY)", "$DAY"]
    secret = only(kubernetes.read_kubernetes(REFERENCES.replace("$DAY", "$(TOKEN)"), "UTC", COMMANDS))
    assert secret.refused == "uses $(TOKEN), which comes from elsewhere in the cluster; write it out"


POD = """
kind: CronJob
metadata: {name: a}
spec:
  schedule: "0 2 * * *"
  jobTemplate:
    spec:
      podFailurePolicy: {rules: [{action: Ignore}]}
      template:
        spec:
          activeDeadlineSeconds: 30
          dnsPolicy: ClusterFirst
          hostNetwork: true
          restartPolicy: OnFailure
          securityContext: {}
          volumes: [{name: v, emptyDir: {}}]
          containers: [{name: a, image: b, command: [/bin/true], imagePullPolicy: Always, lifecycle: {preStop: {exec: {command: [x]}}}}]
"""


def test_what_a_pod_has_and_a_command_has_not_is_a_named_change():
    entry = only(kubernetes.read_kubernetes(POD, "UTC", COMMANDS))
    assert entry.task["timeout_seconds"] == 30
    assert entry.changes == [
        "runs on the worker's machine, not in the image b",
        *(f"{name} is left out" for name in ("podFailurePolicy", "hostNetwork", "volumes", "lifecycle")),
    ]


# systemd

TIMER = "[Unit]\nDescription=Nightly\n[Timer]\nOnCalendar=daily\nOnCalendar=Mon 12:00\nPersistent=true\nRandomizedDelaySec=5min\n"
SERVICE = (
    "[Service]\nType=oneshot\nUser=backup\nEnvironment=A=1 B=2\nWorkingDirectory=/srv\nExecStart=/opt/backup --full\n"
)


def timer(text: str = TIMER, service: str = SERVICE, options: ProgramOptions = COMMANDS) -> report.Imported:
    return only(systemd.read_timers([("backup.timer", text)], {"backup.service": service}, "Europe/Berlin", options))


def test_a_timer_and_its_service_become_one_task():
    entry = timer()
    assert entry.task == {
        "name": "backup",
        "description": "Nightly",
        "timezone": "Europe/Berlin",
        "schedules": [
            {"type": "cron", "expr": "0 0 * * *", "dialect": "standard"},
            {"type": "cron", "expr": "0 12 * * MON", "dialect": "standard"},
        ],
        "misfire_policy": "FIRE_ONCE",
        "overlap_action": "SKIP",
        "jitter_seconds": 300,
        "command": ["/opt/backup", "--full"],
        "env": {"A": "1", "B": "2"},
        "user": "backup",
        "cwd": "/srv",
    }
    assert any("RandomizedDelaySec" in change for change in entry.changes)


@pytest.mark.parametrize(
    ("text", "service", "reason"),
    [
        ("[Timer]\nOnBootSec=5min\n", SERVICE, "machine's start"),
        ("[Timer]\nOnCalendar=daily\nOnUnitActiveSec=1h\n", SERVICE, "mixes"),
        ("[Timer]\nOnCalendar=nonsense\n", SERVICE, "nonsense"),
        ("[Timer]\nOnCalendar=daily\nUnit=other.service\n", SERVICE, "not beside it"),
        (TIMER, "[Service]\nExecStart=/a\nExecStart=/b\n", "exactly one ExecStart"),
        (TIMER, "[Service]\nExecStart=/a %i\n", "specifier"),
        (TIMER, "[Service]\nExecStart=/a ; /b\n", "several commands"),
        (TIMER, "[Service]\nExecStart=/a --token=${TOKEN}\n", "uses TOKEN"),
        (TIMER, "[Service]\nEnvironmentFile=/etc/a\nExecStart=/a $OPTS\n", "uses OPTS"),
        ("[Timer]\nOnUnitActiveSec=banana\n", SERVICE, "span"),
    ],
)
def test_a_timer_that_cannot_be_said_here_is_refused_by_its_setting(text, service, reason):
    assert reason in timer(text, service).refused


def test_what_systemd_itself_fills_in_is_filled_in():
    service = """[Service]
Environment=OPTS="--x --y" NAME=bob
ExecStart=@/opt/a shown-name $OPTS --name=${NAME} pre$NAME $$HOME
"""
    assert timer(service=service).task["command"] == ["/opt/a", "--x", "--y", "--name=bob", "pre$NAME", "$HOME"]


def test_what_a_service_has_and_a_command_has_not_is_a_named_change():
    plain = timer(
        "[Timer]\nOnCalendar=daily\n", "[Unit]\nAfter=network.target\n[Service]\nExecStart=/a\nRuntimeMaxSec=9\n"
    )
    assert plain.changes == []
    unit = "[Unit]\nConditionACPower=true\nOnFailure=mail.service\n"
    service = "[Service]\nExecStart=/a\nRuntimeMaxSec=9\nProtectSystem=strict\nMemoryMax=1G\nRestart=on-failure\n"
    entry = timer(f"{unit}[Timer]\nOnCalendar=daily\n", f"[Unit]\nAssertPathExists=/x\n{service}")
    assert entry.changes == [
        "of backup.timer is left out: ConditionACPower, OnFailure",
        "of backup.service is left out: AssertPathExists, MemoryMax, ProtectSystem, Restart",
    ]


def test_files_that_override_a_unit_are_read_in_their_order(noonbell, tmp_path):
    for name, text in {
        "backup.timer": "[Timer]\nOnCalendar=daily\n",
        "backup.service": "[Service]\nExecStart=/opt/backup\nUser=root\n",
        "backup.timer.d/10-a.conf": "[Timer]\nOnCalendar=\nOnCalendar=weekly\n",
        "backup.timer.d/20-b.conf": "[Timer]\nOnCalendar=\nOnCalendar=hourly\n",
        "service.d/50-all.conf": "[Service]\nEnvironment=A=1\nUser=nobody\n",
        "backup.service.d/60-own.conf": "[Service]\nUser=bob\n",
        "backup.service.d/notes.txt": "[Service]\nUser=nobody\n",
    }.items():
        path = tmp_path / "units" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code, out, _ = noonbell("import", "systemd", "units", "--commands")
    (task,) = tasks_in("stdin", out)
    assert (code, task["cron_expr"], task["user"], task["env"]) == (0, "0 * * * *", "bob", {"A": "1"})


def test_spans_become_intervals():
    assert timer("[Timer]\nOnUnitActiveSec=1h 30min\n").task["schedule"] == {
        "type": "interval",
        "every": 90,
        "unit": "minute",
    }
    assert timer("[Timer]\nOnUnitInactiveSec=90\n").task["schedule"]["mode"] == "fixed_delay"
    assert "every 1.5 seconds" in timer("[Timer]\nOnUnitActiveSec=1.5s\n").refused


# The documents' own examples

CREATE = (
    '{ "name":"sync_stats", "description":"统计同步", "cron_expr":"0 */5 * * *", "exec_type":"SYNC", "http_method":"POST", '
    '"target_url":"http://svc.internal/api/sync", "headers": {"Content-Type":"application/json"}, '
    '"body_template":"{\\"run_id\\": \\"{{run_id}}\\"}", "timeout_seconds":10, "retry_policy": '
    '{"max_retries":3,"initial_delay":5,"strategy":"exponential","max_delay":60}, "max_concurrency":1, '
    '"concurrency_policy":"QUEUE", "misfire_policy":"FIRE_NOW", "catchup_limit":5 }'
)
ANSWER = """{
  "ID": 1,
  "Name": "demo_task",
  "Description": "示例任务",
  "CronExpr": "0 */5 * * * *",
  "Timezone": "UTC",
  "ExecType": "SYNC",
  "HTTPMethod": "GET",
  "TargetURL": "https://httpbin.org/get",
  "HeadersJSON": "",            // 目前创建接口未接收 headers，保持空字符串
  "BodyTemplate": "",            // 同上
  "TimeoutSeconds": 5,
  "RetryPolicyJSON": "",         // 重试尚未实现
  "MaxConcurrency": 1,
  "ConcurrencyPolicy": "QUEUE",
  "MisfirePolicy": "FIRE_NOW",   // 尚未生效的策略字段
  "CatchupLimit": 0,
  "CallbackMethod": "POST",
  "CallbackTimeoutSec": 300,
  "Status": "ENABLED",
  "Version": 1,
  "CreatedAt": "2025-10-14T10:00:00Z",
  "UpdatedAt": "2025-10-14T10:00:00Z"
}
"""
LIST = '[\n  { "ID":1, "Name":"demo_task", "CronExpr":"0 */5 * * * *", "Status":"ENABLED" }\n]'
CONFIG = """
[jobs]
enabled = true
job_timeout = 120

# 示例 1：每日数据库备份（不允许并行）
[[jobs.jobs]]
job_name = "daily_backup"
cron = "0 2 * * *"
allow_concurrent = false
max_concurrent = null

# 示例 2：定期 API 同步（最多 3 个并行）
[[jobs.jobs]]
job_name = "api_sync"
cron = "0 */10 * * * 2-6"
allow_concurrent = true
max_concurrent = 3

# 示例 3：缓存清理（无限制）
[[jobs.jobs]]
job_name = "cache_cleanup"
cron = "0 0 * * * *"
allow_concurrent = true
max_concurrent = null
"""


def test_the_answers_of_a_cronjob_service_are_read_as_its_document_prints_them(noonbell, tmp_path):
    (tmp_path / "create.json").write_text(CREATE)
    (tmp_path / "answer.json").write_text(ANSWER)
    (tmp_path / "list.json").write_text(LIST)
    code, out, _ = noonbell("import", "cronjob", "create.json")
    (task,) = yaml.safe_load(out)["tasks"]
    assert (code, task["name"], task["retry_policy"]["max_retries"]) == (0, "sync_stats", 3)
    code, out, err = noonbell("import", "cronjob", "answer.json")
    assert code == 0, err
    (task,) = yaml.safe_load(out)["tasks"]
    assert task["schedule"] == {"type": "cron", "expr": "0 */5 * * * *", "dialect": "cronjob"}
    assert (task["http_method"], task["target_url"]) == ("GET", "https://httpbin.org/get")
    (tmp_path / "tasks.yaml").write_text(out)
    assert noonbell("validate", "tasks.yaml")[0] == 0
    code, _, err = noonbell("import", "cronjob", "list.json")
    assert (code, "GET /tasks/{id}" in err) == (1, True)


@pytest.mark.parametrize(
    ("zone", "ours"), [("UTC/+08", "+08:00"), ("UTC+8", "+08:00"), ("+0530", "+05:30"), ("GMT-3", "-03:00")]
)
def test_offsets_in_its_own_words_are_changed_by_name(zone, ours):
    entry = only(cronjob.read_cronjob([json.loads(CREATE) | {"timezone": zone}]))
    assert (entry.task["timezone"], entry.outcome) == (ours, "changed")
    assert any(zone in change for change in entry.changes)
    assert only(cronjob.read_cronjob([json.loads(CREATE) | {"timezone": "Local"}])).refused


def test_a_catch_up_without_a_limit_is_said_in_our_words():
    entry = only(
        cronjob.read_cronjob([json.loads(CREATE) | {"misfire_policy": "CATCH_UP_LIMITED", "catchup_limit": 0}])
    )
    assert entry.task["misfire_policy"] == "FIRE_NOW"
    assert any("catchup_limit" in change for change in entry.changes)


def test_jobs_of_a_configuration_are_read_as_their_crate_reads_them():
    daily, sync, cleanup = checked(jobs.read_config(CONFIG))
    assert (daily.task["cron_dialect"], daily.outcome) == ("standard", "changed")
    assert daily.task["max_concurrency"] == 1
    assert (sync.task["cron_dialect"], sync.task["max_concurrency"]) == ("quartz", 3)
    assert any("1 = Sunday" in note for note in sync.notes)
    assert "Monday" in " ".join(sync.notes)
    assert cleanup.task["max_concurrency"] is None
    assert {entry.task["timeout_seconds"] for entry in (daily, sync, cleanup)} == {120}


def test_jobs_that_were_switched_off_all_together_come_over_disabled_and_that_is_told():
    for entry in checked(jobs.read_config(CONFIG.replace("enabled = true", "enabled = false", 1))):
        assert entry.task["status"] == "DISABLED"
        assert "[jobs] enabled is false there: it is DISABLED" in entry.notes
    assert {entry.task["status"] for entry in checked(jobs.read_config(CONFIG))} == {"ENABLED"}


@pytest.mark.parametrize(
    ("state", "status"), [("queue", None), ("retry", None), ("pause", "DISABLED"), (7, "DISABLED")]
)
def test_a_plan_that_was_paused_or_closed_comes_over_disabled_and_that_is_a_named_change(state, status):
    entry = only(plans.read_plans({"plan:msg:s:1": BASES["plans"] | {"plan_state": state}}, None))
    assert entry.task.get("status") == status
    assert any("plan_state" in change for change in entry.changes) == (status is not None)


def test_slots_that_a_plan_was_to_skip_are_a_named_change():
    entry = only(plans.read_plans({"plan:msg:s:1": BASES["plans"] | {"skip_set": 2, "skip_num": 1}}, None))
    assert "skip_set 2 is left out: skip as many of the task's next slots" in entry.changes
    assert not any("skip" in note for note in entry.notes)


def test_a_plan_keeps_its_next_moment_and_what_is_left_of_it():
    message = {
        "plan_id": 8010,
        "request_id": "r",
        "station": "billing",
        "caller": "shop",
        "description": "settle",
        "plan_type": 3,
        "plan_value": 10,
        "plan_repet": 5,
        "real_repet": 2,
        "no_keep": False,
        "last_state": 0,
        "plan_time": 0,
        "exec_time": 0,
        "messages": ["settle", {"open": True}],
    }
    next_at = slot_of(read_moment("2040-01-01T00:07:00Z"))
    key = "plan:msg:billing:1f4a"
    entry = only(plans.read_plans({key: message}, {key: float(next_at)}))
    assert moments(entry.task, 2, after=next_at - 60) == ["2040-01-01T00:07:00Z", "2040-01-01T00:17:00Z"]
    assert entry.task["schedule"]["repeat"] == 3
    assert (entry.task["queue"], entry.task["payload"]["messages"]) == ("billing", message["messages"])
    stray = only(plans.read_plans({key: message | {"real_repet": 0}}, {}))
    assert (stray.task["status"], stray.outcome) == ("DISABLED", "changed")
    assert "5 times of 5" in only(plans.read_plans({key: message | {"real_repet": 5}}, {key: 1e9})).refused
    assert only(plans.read_plans({key: None}, {})).refused == "is not a JSON object"
    assert only(plans.read_plans({key: message | {"plan_type": 99}}, {})).refused


# XXL-JOB and mscheduler

XXL = {
    "id": 7,
    "job_group": 1,
    "job_desc": "测试任务1",
    "author": "XXL",
    "alarm_email": "",
    "schedule_type": "CRON",
    "schedule_conf": "0 0 0 ? * 2",
    "misfire_strategy": "DO_NOTHING",
    "executor_route_strategy": "FIRST",
    "executor_handler": "demoJobHandler",
    "executor_param": "p",
    "executor_block_strategy": "DISCARD_LATER",
    "executor_timeout": 30,
    "executor_fail_retry_count": 2,
    "glue_type": "BEAN",
    "child_jobid": "",
    "trigger_last_time": 0,
    "trigger_status": 0,
}


def test_a_row_of_xxl_job_keeps_its_quartz_weekdays_and_its_block_strategy():
    entry = only(xxl_job.read_xxl_job([XXL], {1: "xxl-job-executor-sample"}, "Asia/Shanghai"))
    assert entry.task["cron_dialect"] == "quartz"
    assert moments(entry.task, 1) == ["2026-03-01T16:00:00Z"], "Monday 00:00 in Shanghai"
    assert (entry.task["queue"], entry.task["concurrency_policy"]) == ("xxl-job-executor-sample", "SKIP")
    assert (entry.task["status"], entry.task["retry_policy"]["max_retries"]) == ("DISABLED", 2)
    assert entry.task["retry_policy"]["initial_delay"] == 10, "its admin looks for failures every 10 seconds"
    rate = {"schedule_type": "FIX_RATE", "schedule_conf": "90", "trigger_last_time": 1_772_000_007_000}
    on_from_there = only(xxl_job.read_xxl_job([XXL | rate], {}, "UTC")).task["schedule"]
    assert (on_from_there["every"], on_from_there["anchor"]) == (90, "2026-02-25T06:13:27Z")
    for change, reason in (
        ({"glue_type": "GLUE_GROOVY"}, "GLUE_GROOVY"),
        ({"executor_handler": ""}, "executor_handler"),
        ({"schedule_conf": "x"}, "fields"),
        ({"schedule_type": "FIX_RATE", "schedule_conf": "0"}, "FIX_RATE"),
    ):
        assert reason in only(xxl_job.read_xxl_job([XXL | change], {}, "UTC")).refused
    child = only(xxl_job.read_xxl_job([XXL | {"child_jobid": "8", "executor_route_strategy": "ROUND"}], {}, "UTC"))
    assert any("after" in change for change in child.changes)


def test_a_task_of_mscheduler_that_has_not_ended_runs_once():
    document = {
        "_id": {"$oid": "x"},
        "key": "order-1",
        "task_state": {"start_time": {"$date": "2030-01-01T00:00:00.000Z"}, "worker_states": []},
        "task_option": {
            "priority": {"$numberInt": "5"},
            "concurrent_worker_cnt": 2,
            "ping_interval_ms": 5000,
            "worker_timeout_ms": {"$numberLong": "15000"},
            "min_worker_version": 3,
            "specific_worker_ids": ["w1"],
            "max_unexpected_retries": 4,
            "unexpected_retry_delay_ms": 500,
        },
        "params": {"order": 1},
    }
    entry = only(mscheduler.read_mscheduler([document], "settle"))
    assert entry.task["schedule"]["at"] == "2030-01-01T00:00:00Z"
    assert (entry.task["priority"], entry.task["fanout"]) == (5, {"workers": 2})
    assert entry.task["retry_policy"] == {"max_retries": 4, "strategy": "fixed", "initial_delay": 0.5, "local": True}
    done = {**document, "task_state": {"worker_states": [{"success_time": {"$date": 1}}]}}
    assert only(mscheduler.read_mscheduler([done], "settle")).outcome == "left out"
    busy = {**document, "task_state": {"worker_states": [{"worker_id": "w"}]}}
    assert "is at it" in only(mscheduler.read_mscheduler([busy], "settle")).refused


# The report


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        "* * * * *",
        "0 0 2 * * 7",
        "${HOME}",
        "UTC/+08",
        "GET",
        "CATCH_UP_LIMITED",
        "http://h/{{nope}}",
        "http://h/",
        "SYNC",
        "\ud800",
    ]
)


def fuzzed(base: dict):
    """Its own row, with some values in the place of others."""
    return st.dictionaries(st.sampled_from(sorted(base)), ANY | WORDS, max_size=4).map(lambda given: base | given)


READERS = {
    "cronjob": lambda row: cronjob.read_cronjob([row]),
    "jobs": lambda row: jobs.read_jobs([row]),
    "xxl": lambda row: xxl_job.read_xxl_job([row], {1: "q"}, "Asia/Shanghai"),
    "mscheduler": lambda row: mscheduler.read_mscheduler([row], "settle"),
    "plans": lambda row: plans.read_plans({"plan:msg:s:1": row}, {"plan:msg:s:1": 1e10}),
    "apscheduler4": lambda row: apscheduler.read_store([row], [{"id": "a", "func": "m:f", "max_running_jobs": 1}], 0),
    "apscheduler": lambda row: apscheduler.read_scheduler(
        SimpleNamespace(_pending_jobs=[(job_of(**row), "default", False)], _jobstores={})
    ),
    "celery": lambda row: celery_beat.read_tables(
        {
            "tasks": [row],
            "crontabs": [
                {
                    "id": 1,
                    "minute": "5",
                    "hour": "*",
                    "day_of_week": "1",
                    "day_of_month": "*",
                    "month_of_year": "*",
                    "timezone": "UTC",
                }
            ],
            "intervals": [],
            "clocked": [],
        },
        "UTC",
    ),
    "systemd": lambda row: systemd.read_timers(
        [("a.timer", "[Timer]\n" + "".join(f"{name}={value}\n" for name, value in row.items()))],
        {"a.service": "[Service]\nExecStart=/bin/true\n"},
        "UTC",
        COMMANDS,
    ),
    "kubernetes": lambda row: kubernetes.read_kubernetes(
        yaml.safe_dump(
            json.loads(
                json.dumps(
                    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": row},
                    ensure_ascii=False,
                ).replace("\ud800", "x")
            )
        ),
        "UTC",
        COMMANDS,
    ),
}
BASES = {
    "cronjob": json.loads(CREATE)
    | {"timezone": "UTC", "overlap_action": "SKIP", "failure_action": "RETRY", "status": "ENABLED"},
    "jobs": {
        "job_name": "a",
        "job_type": "b",
        "cron_expression": "0 0 2 * * 7",
        "enabled": True,
        "allow_concurrent": True,
        "max_concurrent": 2,
        "max_retries": 1,
        "retry_delay_seconds": 1,
        "timeout_seconds": 1,
        "payload": {},
    },
    "xxl": XXL,
    "apscheduler4": {
        "id": "a",
        "task_id": "a",
        "trigger": '{"_apscheduler_json": ["apscheduler.triggers.date:DateTrigger", {"run_time": "2030-01-01T00:00:00+00:00"}]}',
        "args": "[]",
        "kwargs": "{}",
        "paused": False,
        "coalesce": "latest",
        "misfire_grace_time": None,
        "max_jitter": None,
        "next_fire_time": 1,
        "metadata": "{}",
        "job_executor": "async",
    },
    "apscheduler": {
        "id": "a",
        "name": "a",
        "kwargs": {},
        "args": [],
        "max_instances": 1,
        "misfire_grace_time": 1,
        "coalesce": True,
    },
    "celery": {
        "id": 1,
        "name": "a",
        "task": "t",
        "args": "[]",
        "kwargs": "{}",
        "queue": None,
        "headers": "{}",
        "priority": None,
        "expire_seconds": None,
        "enabled": True,
        "description": "",
        "crontab_id": 1,
        "interval_id": None,
        "clocked_id": None,
        "solar_id": None,
        "one_off": False,
        "total_run_count": 0,
        "last_run_at": None,
        "start_time": None,
        "expires": None,
    },
    "systemd": {"OnCalendar": "daily", "Persistent": "true", "RandomizedDelaySec": "5m", "OnUnitActiveSec": ""},
    "kubernetes": {
        "schedule": "5 4 * * *",
        "timeZone": "UTC",
        "suspend": False,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 100,
        "jobTemplate": {
            "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b", "command": ["/bin/true"]}]}}}
        },
    },
    "mscheduler": {
        "key": "a",
        "params": {},
        "task_state": {"start_time": {"$date": 1}, "worker_states": []},
        "task_option": {"priority": 1, "concurrent_worker_cnt": 1, "max_unexpected_retries": 2},
    },
    "plans": {
        "plan_type": "minute",
        "plan_value": 5,
        "plan_repet": 3,
        "plan_time": 0,
        "no_keep": False,
        "messages": ["x"],
    },
}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=40)
@given(data=st.data())
def test_nothing_is_translated_that_validate_refuses(kind, data):
    row = data.draw(fuzzed(BASES[kind]))
    for entry in checked(READERS[kind](row)):
        if entry.task is None:
            assert entry.refused or entry.notes
            continue
        check_tasks(tasks_in("file", as_yaml([entry.task])))


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_any_line_of_a_crontab_is_translated_or_refused(text):
    for entry in checked(read_crontab(f"0 1 * * * {text}", commands=True)):
        assert entry.outcome in ("translated", "changed", "refused", "left out")
        if entry.task is not None:
            assert report.problem_of(entry.task) is None


def test_a_variable_of_the_shell_is_not_one_of_the_file_of_tasks(noonbell, tmp_path):
    (tmp_path / "crontab").write_text("0 1 * * * /opt/b ${HOME}/x '${HOME}'\n")
    code, out, _ = noonbell("import", "crontab", "crontab", "--commands")
    assert code == 0
    assert tasks_in("stdin", out)[0]["command"] == "/opt/b ${HOME}/x '${HOME}'"


def test_one_report_has_every_outcome_and_the_file_only_what_was_translated(noonbell, tmp_path):
    (tmp_path / "crontab").write_text(
        "SHELL=/bin/bash\n0 1 * * * curl -m 5 http://h/a\n0 2 * * * /opt/b\n@reboot /opt/c\n"
    )
    code, out, err = noonbell("import", "crontab", "crontab", "--commands", "--report", "report.json")
    assert code == 1
    assert "2 translated, 1 of them with a change of meaning, 1 refused, 1 left out" in err
    assert "≈ line 3" in err
    assert "changed: SHELL=/bin/bash" in err
    assert len(yaml.safe_load(out)["tasks"]) == 2
    found = json.loads((tmp_path / "report.json").read_text())
    assert [entry["outcome"] for entry in found["entries"]] == ["left out", "translated", "changed", "refused"]
    code, out, _ = noonbell("import", "crontab", "crontab", "--commands", "--dry-run")
    assert (code, out) == (1, "")
    assert noonbell("import", "crontab", "crontab", "--set", "x")[0] == 2


def test_every_kind_has_its_command_and_its_section_in_the_guide(noonbell):
    guide = (Path(__file__).parents[3] / "docs/how-to/move-in.md").read_text()
    for kind in KINDS:
        assert noonbell("import", kind, "--help")[0] == 0
        assert f"noonbell import {kind} " in guide, kind
