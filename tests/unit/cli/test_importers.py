"""What other systems name as their next moments, Noonbell names too, and every reader says what it could not carry over.

The files beside this one were recorded with the real systems (`data/record.py`), or are the documents' own examples.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from datetime import date, datetime, time, timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell import when
from noonbell.cli.importers import (
    KINDS,
    apscheduler,
    apscheduler_store,
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
from noonbell.cli.importers.database import rows_of
from noonbell.cli.importers.programs import ProgramOptions
from noonbell.cli.importers.report import Findings, Refused, checked
from noonbell.cli.task_files import as_yaml, check_tasks, tasks_in
from noonbell.clock import slot_of
from noonbell.fields.kinds import read_moment

DATA = Path(__file__).parent / "data"
FROM = slot_of(read_moment("2026-03-01T00:00:00Z"))
COMMANDS = ProgramOptions(commands=True)


def recorded(name: str) -> list[dict]:
    return json.loads((DATA / f"{name}.json").read_text())


def moments(task: dict, count: int, *, after: int = FROM) -> list[str]:
    zone = task.get("timezone", "UTC")
    spec = task.get("schedule") or {
        "type": "cron",
        "expr": task["cron_expr"],
        "dialect": task.get("cron_dialect", "standard"),
    }
    schedule, found = when.parse(spec, zone), []
    while len(found) < count and (slot := schedule.next(after)) is not None:
        found.append(datetime.fromtimestamp(slot, ZoneInfo("UTC")).strftime("%Y-%m-%dT%H:%M:%SZ"))
        after = slot
    return found


def only(entries) -> report.Imported:
    (entry,) = checked(entries)
    return entry


# Moments, beside those of the real systems


@pytest.mark.parametrize("case", recorded("systemd"), ids=lambda case: case["calendar"])
def test_a_calendar_event_names_the_moments_that_systemd_names(case):
    if case["calendar"].startswith("2027"):
        with pytest.raises(Refused, match="start_at"):
            systemd.cron_of_calendar(case["calendar"], "UTC")
        return
    found = systemd.cron_of_calendar(case["calendar"], "UTC")
    assert moments(found, len(case["moments"])) == case["moments"]


@pytest.mark.parametrize("case", recorded("celery"), ids=lambda case: str(case["crontab"]))
def test_a_crontab_of_celery_names_the_moments_that_celery_names(case):
    call = ", ".join(f"{name}={value!r}" for name, value in case["crontab"].items())
    text = f"timezone = 'Europe/Berlin'\nbeat_schedule = {{'a': {{'task': 't', 'schedule': crontab({call})}}}}"
    assert moments(only(celery_beat.read_module(text, None)).task, len(case["moments"])) == case["moments"]


def trigger_of(case: dict):
    if case["kind"] == "IntervalTrigger":
        kind = type("IntervalTrigger", (SimpleNamespace,), {})
        return kind(
            interval=timedelta(seconds=case["seconds"]),
            start_date=datetime.fromisoformat(case["start_date"]),
            timezone=case["timezone"],
        )
    shown = type("Expression", (SimpleNamespace,), {"__str__": lambda self: self.text})
    fields = [
        SimpleNamespace(name=name, expressions=[shown(**one) if isinstance(one, dict) else one for one in each])
        for name, each in case["fields"].items()
    ]
    kind = type("CronTrigger", (SimpleNamespace,), {})
    return kind(fields=fields, timezone=case["timezone"], start_date=None, end_date=None, jitter=None)


@pytest.mark.parametrize("case", recorded("apscheduler"), ids=lambda case: str(case.get("fields", case.get("seconds"))))
def test_a_trigger_of_apscheduler_names_the_moments_that_it_names(case):
    named = next((name for name in ("week", "year") if case.get("fields", {}).get(name, ["*"]) != ["*"]), None)
    if named is not None:
        with pytest.raises(Refused, match=f"names {named}s"):
            apscheduler.schedule_of(trigger_of(case), Findings())
        return
    found = apscheduler.schedule_of(trigger_of(case), Findings())
    assert moments(found, len(case["moments"]), after=FROM - 1) == case["moments"]


# Celery beat


def test_a_module_of_celery_is_read_and_not_executed():
    entries = list(checked(celery_beat.read_module((DATA / "celeryconfig.py").read_text(), None)))
    found = {entry.source.strip("'"): entry for entry in entries}
    assert [name for name, entry in found.items() if entry.refused] == ["fraction", "sunset", "computed", "nothing"]
    assert found["monday-morning"].task == {
        "name": "monday-morning",
        "timezone": "Europe/Berlin",
        "job_type": "tasks.report",
        "cron_expr": "30 7 * * MON",
        "payload": {"kind": "weekly"},
        "queue": "reports",
        "expires_in_seconds": 3600,
        "priority": 3,
        "misfire_policy": "FIRE_ONCE",
        "retry_policy": {"max_retries": 0},
    }
    assert any("compression" in change for change in found["monday-morning"].changes)
    assert found["add-every-30-seconds"].task["payload"] == {"args": [16, 16], "kwargs": {}}
    assert found["add-every-30-seconds"].outcome == "changed"
    assert found["first-sunday"].task["cron_dialect"] == "quartz"
    assert found["five-minutes"].task["schedule"] == {"type": "interval", "every": 5, "unit": "minute"}
    assert found["delta"].task["schedule"] == {"type": "interval", "every": 2, "unit": "hour"}
    assert "app.conf.minute" in found["computed"].refused
    assert found["sunset"].refused == "runs by the sun, which is not known here"


PERIODIC = """
from celery.schedules import crontab
from proj.tasks import add as plus
import proj.mail as mail

@app.on_after_configure.connect
def setup(sender, **kwargs):
    sender.add_periodic_task(10.0, hello.s("world"), name="hello every 10")
    sender.add_periodic_task(crontab(hour=7, minute=30, day_of_week=1), plus.s(1, by=2), queue="reports")
    sender.add_periodic_task(60, mail.send.si(to="a@b"), expires=30)
    sender.add_periodic_task(60, named.s())
    sender.add_periodic_task(60, signature_of("x"))

@app.task
def hello(whom): ...

@app.task(name="the.name")
def named(): ...
"""


def test_calls_of_add_periodic_task_are_read_with_the_names_that_celery_gives_their_tasks():
    *tasks, refused = checked(celery_beat.read_module(PERIODIC, None, "shop"))
    assert [(entry.task["name"], entry.task["job_type"]) for entry in tasks] == [
        ("hello every 10", "shop.hello"),
        ("proj.tasks.add", "proj.tasks.add"),
        ("proj.mail.send", "proj.mail.send"),
        ("the.name", "the.name"),
    ]
    assert tasks[0].task["payload"] == {"args": ["world"], "kwargs": {}}
    assert (tasks[1].task["payload"], tasks[1].task["queue"]) == ({"args": [1], "kwargs": {"by": 2}}, "reports")
    assert (tasks[2].task["payload"], tasks[2].task["expires_in_seconds"]) == ({"to": "a@b"}, 30)
    assert "signature_of('x')" in refused.refused


def test_what_is_put_into_a_schedule_of_celery_later_or_from_elsewhere_is_not_lost():
    text = """
more = {"b": {"task": "t.b", "schedule": 2}}
app.conf.beat_schedule = {"a": {"task": "t.a", "schedule": 1}, **more}
app.conf.beat_schedule["c"] = {"task": "t.c", "schedule": 3}
app.conf.beat_schedule.update({"d": {"task": "t.d", "schedule": 4}})
"""
    found = list(checked(celery_beat.read_module(text, None)))
    assert [(entry.task["name"], entry.task["schedule"]["every"]) for entry in found] == [
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("d", 4),
    ]


@pytest.mark.parametrize("text", ["x = 1", "beat_schedule = load()", "timezone = f()\nbeat_schedule = {}"])
def test_a_module_whose_schedule_is_not_written_out_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"beat_schedule|not written out"):
        celery_beat.read_module(text, None)


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
    assert "whole number of seconds" in only(kubernetes.read_kubernetes(SHELL % schedule, "UTC", COMMANDS)).refused


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


def test_spans_become_intervals():
    assert timer("[Timer]\nOnUnitActiveSec=1h 30min\n").task["schedule"] == {
        "type": "interval",
        "every": 90,
        "unit": "minute",
    }
    assert timer("[Timer]\nOnUnitInactiveSec=90\n").task["schedule"]["mode"] == "fixed_delay"
    assert "every 1.5 seconds" in timer("[Timer]\nOnUnitActiveSec=1.5s\n").refused


# APScheduler


def job_of(**more):
    kind = type("DateTrigger", (SimpleNamespace,), {"__str__": lambda self: "date"})
    usual = {
        "id": "report",
        "name": "report",
        "func_ref": "shop.tasks:report",
        "trigger": kind(run_date=datetime(2027, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        "args": (),
        "kwargs": {"kind": "yearly"},
        "max_instances": 2,
        "misfire_grace_time": 30,
        "coalesce": True,
        "executor": "default",
    }
    return SimpleNamespace(**(usual | more))


def test_jobs_in_memory_are_read_and_pickled_ones_never():
    class SQLAlchemyJobStore:
        def get_all_jobs(self):
            pytest.fail("a pickle was read")

    scheduler = SimpleNamespace(
        _pending_jobs=[(job_of(), "default", False), (job_of(id="b", args=(object(),)), "default", False)],
        _jobstores={"sql": SQLAlchemyJobStore()},
    )
    pickled, report_job, odd = checked(apscheduler.read_scheduler(scheduler))
    assert "never read" in pickled.refused
    assert report_job.task == {
        "name": "report",
        "job_type": "shop.tasks:report",
        "schedule": {"type": "once", "at": "2026-12-31T23:00:00Z"},
        "payload": {"kind": "yearly"},
        "retry_policy": {"max_retries": 0},
        "max_concurrency": 2,
        "concurrency_policy": "SKIP",
        "misfire_grace_seconds": 30,
        "misfire_policy": "SKIP",
    }
    assert "no JSON" in odd.refused


def of_job(**more) -> report.Imported:
    return only(apscheduler.read_scheduler(SimpleNamespace(_pending_jobs=[(job_of(**more), "default", False)])))


def trigger_named(kind: str, **fields):
    return type(kind, (SimpleNamespace,), {})(**fields)


def test_an_interval_of_apscheduler_goes_on_from_its_next_run():
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))
    every = trigger_named("IntervalTrigger", interval=timedelta(minutes=10), start_date=start)
    moved = of_job(trigger=every, next_run_time=datetime(2026, 3, 1, 0, 3, tzinfo=ZoneInfo("UTC")))
    assert moments(moved.task, 2) == ["2026-03-01T00:03:00Z", "2026-03-01T00:13:00Z"]
    assert of_job(trigger=every, next_run_time=None).task["status"] == "DISABLED"


def test_late_slots_that_apscheduler_would_run_one_by_one_are_a_change():
    assert not any("coalesce" in change for change in of_job().changes)
    assert any("coalesce" in change for change in of_job(coalesce=False).changes)


def test_arguments_of_apscheduler_are_json_or_refused():
    assert of_job(args=(1, (2, 3))).task["payload"]["args"] == [1, [2, 3]]
    assert "no JSON" in of_job(kwargs={"by_id": {1: "a"}}).refused
    text = "${HOME} stays"
    assert tasks_in("file", as_yaml([of_job(kwargs={"a": text}).task]))[0]["payload"] == {"a": text}


def test_a_fixed_offset_is_written_as_one():
    fields = [SimpleNamespace(name=name, expressions=["*"]) for name in ("year", "month", "day", "week", "day_of_week")]
    fields += [SimpleNamespace(name=name, expressions=["0"]) for name in ("hour", "minute", "second")]
    east = trigger_named("CronTrigger", fields=fields, timezone="UTC+08:00", start_date=None, end_date=None)
    assert of_job(trigger=east).task["timezone"] == "+08:00"


def test_a_calendar_interval_of_apscheduler_3_begins_on_its_first_day_in_its_zone():
    monthly = {"years": 0, "months": 1, "weeks": 0, "days": 0, "end_date": None, "timezone": "Asia/Shanghai"}
    trigger = trigger_named(
        "CalendarIntervalTrigger", **monthly, _time=time(3, 30), start_date=date(2026, 5, 31), jitter=None
    )
    task = of_job(trigger=trigger).task
    assert task["start_at"] == "2026-05-30T16:00:00Z"
    assert moments(task, 2, after=slot_of(read_moment(task["start_at"]))) == [
        "2026-05-30T19:30:00Z",
        "2026-07-30T19:30:00Z",
    ], "months without a 31st are passed over, as there"


def database_of(name: str, folder: Path) -> str:
    """A database as the real system left it."""
    with sqlite3.connect(folder / f"{name}.db") as link:
        link.executescript((DATA / f"{name}.sql").read_text())
    link.close()
    return f"sqlite:///{folder}/{name}.db"


def test_schedules_of_apscheduler_4_name_the_moments_that_it_names(tmp_path):
    rows = rows_of(database_of("apscheduler4_json", tmp_path), apscheduler_store.QUERIES)
    now = read_moment("2026-03-02T00:00:00Z")
    entries = {
        entry.source: entry for entry in checked(apscheduler_store.read_store(rows["schedules"], rows["tasks"], now))
    }
    known = recorded("apscheduler4")
    assert set(entries) == set(known)
    refused = {name: entry.refused for name, entry in entries.items() if entry.task is None}
    assert set(refused) == {"both", "fortnight"}
    assert "AndTrigger" in refused["both"]
    assert "(0, 0, 2, 0)" in refused["fortnight"]
    for name, told in known.items():
        task = entries[name].task
        if task is None:
            continue
        specs = [{"schedule": each} for each in task.get("schedules", ())] or [task]
        found = sorted(
            moment
            for spec in specs
            for moment in moments({"timezone": task.get("timezone", "UTC"), **spec}, len(told), after=FROM - 1)
        )
        assert found[: len(told)] == told, name


def test_what_a_schedule_of_apscheduler_4_says_besides_comes_along(noonbell, tmp_path):
    code, out, err = noonbell("import", "apscheduler", database_of("apscheduler4_json", tmp_path))
    assert code == 1
    assert "12 translated, 12 of them with a change of meaning, 2 refused, 0 left out" in err
    tasks = {task["name"]: task for task in yaml.safe_load(out)["tasks"]}
    daily = tasks["weekdays"]
    assert (daily["payload"], daily["misfire_policy"], daily["misfire_grace_seconds"]) == (
        {"kind": "daily"},
        "SKIP",
        60,
    )
    assert daily["job_type"].endswith(":report")
    assert (tasks["ping"]["status"], tasks["ping"]["payload"]["args"]) == ("DISABLED", ["x"])
    assert tasks["either"]["jitter_seconds"] == 5
    assert tasks["last"]["misfire_policy"] == "FIRE_ONCE"
    assert "the earliest was run there" in err


def test_metadata_of_apscheduler_4_comes_along_and_another_executor_is_named():
    row = BASES["apscheduler4"] | {"metadata": '{"team": "a"}', "job_executor": "processpool"}
    entry = only(READERS["apscheduler4"](row))
    assert entry.task["meta"] == {"team": "a"}
    assert any("processpool" in change for change in entry.changes)
    plain = only(READERS["apscheduler4"](row | {"metadata": "{}", "job_executor": "threadpool"}))
    assert "meta" not in plain.task
    assert not any("threadpool" in change for change in plain.changes)


@pytest.mark.parametrize(("name", "reason"), [("pickle", "is a pickle, which is never read"), ("cbor", "is no JSON")])
def test_pickles_and_cbor_of_apscheduler_4_are_refused(noonbell, tmp_path, name, reason):
    code, out, err = noonbell("import", "apscheduler", database_of(f"apscheduler4_{name}", tmp_path))
    assert (code, yaml.safe_load(out)) == (1, {"tasks": []})
    assert reason in err


def test_tables_that_django_celery_beat_made_are_read(noonbell, tmp_path):
    code, out, err = noonbell("import", "celery", database_of("django_celery_beat", tmp_path))
    tasks = {task["name"]: task for task in yaml.safe_load(out)["tasks"]}
    assert (code, list(tasks)) == (1, ["report", "ping", "once", "hourly", "first", "tonight"])
    assert tasks["report"]["cron_expr"] == "30 2 * * MON,TUE,WED,THU,FRI"
    assert (tasks["report"]["queue"], tasks["report"]["expires_in_seconds"]) == ("reports", 60)
    assert (tasks["ping"]["status"], tasks["once"]["schedule"]["at"]) == ("DISABLED", "2030-01-01T00:00:00Z")
    assert "1 refused, 1 left out" in err
    assert tasks["hourly"]["schedule"]["anchor"] == "2026-03-01T00:00:00Z", "it goes on from its last run"
    assert (tasks["hourly"]["start_at"], tasks["hourly"]["end_at"]) == ("2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z")
    assert [tasks[name]["schedule"]["repeat"] for name in ("first", "tonight")] == [1, 1], "each was to run once"
    assert moments(tasks["tonight"], 1) == ["2026-03-02T01:30:00Z"]
    assert "was to run once and has" in err


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
    assert only(plans.read_plans({key: None}, {})).refused == "holds no JSON object"
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
    "apscheduler4": lambda row: apscheduler_store.read_store(
        [row], [{"id": "a", "func": "m:f", "max_running_jobs": 1}], 0
    ),
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
    },
    "apscheduler": {"id": "a", "name": "a", "kwargs": {}, "args": [], "max_instances": 1, "misfire_grace_time": 1},
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


def test_the_recorded_module_would_fail_if_it_were_executed():
    tree = ast.parse((DATA / "celeryconfig.py").read_text())
    assert any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) for node in ast.walk(tree))
