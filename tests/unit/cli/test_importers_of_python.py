"""Celery beat, django-celery-beat and APScheduler: their next moments are named here too, and nothing is lost without a word.

The files beside this one were recorded with the real systems (`data/record.py`).
"""

from __future__ import annotations

import ast
import sqlite3
from datetime import date, datetime, time, timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
import yaml

from noonbell.cli.importers import apscheduler, celery_beat, report
from noonbell.cli.importers.report import Findings, Refused, checked
from noonbell.cli.importers.sources import rows_of
from noonbell.cli.task_files import as_yaml, tasks_in
from noonbell.clock import slot_of
from noonbell.fields.kinds import read_moment
from unit.cli.entries import DATA, FROM, job_of, moments, only, recorded

# Moments, beside those of the real systems


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
    assert found["sunset"].refused == "runs by the sun, which is not supported"


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


@pytest.mark.parametrize(
    "text",
    [
        "app.conf['timezone'] = 'Europe/Rome'\napp.conf.beat_schedule = {%s}",
        "app.conf.update({'beat_schedule': {%s}, 'timezone': 'Europe/Rome'})",
        "app.conf.update(timezone='Europe/Rome', enable_utc=False)\napp.conf['beat_schedule'] = {%s}",
        "class Config:\n    timezone = 'Europe/Rome'\n    beat_schedule = {%s}",
    ],
)
def test_settings_of_celery_are_found_however_they_are_set(text):
    entry = only(celery_beat.read_module(text % "'a': {'task': 't', 'schedule': 60}", None))
    assert (entry.task["name"], entry.task["timezone"]) == ("a", "Europe/Rome")


SETTINGS = """
from celery import Celery
app = Celery("shop")
app.conf.task_default_queue = "mail"
app.conf.task_time_limit = 60
app.conf.task_routes = {"shop.b": {"queue": "reports"}, "pay.*": "cards", "odd.*": {"exchange": "x"}}
app.conf.beat_schedule = {
    "a": {"task": "shop.a", "schedule": 30},
    "b": {"task": "shop.b", "schedule": 30},
    "c": {"task": "pay.c", "schedule": 30, "options": {"time_limit": 5}},
    "d": {"task": "shop.b", "schedule": 30, "options": {"queue": "x", "soft_time_limit": 5}},
    "e": {"task": "odd.e", "schedule": 30},
}
"""


def test_queues_and_time_limits_of_a_module_of_celery_hold_for_entries_without_their_own():
    entries = list(checked(celery_beat.read_module(SETTINGS, None)))
    assert [(one.task["queue"], one.task["timeout_seconds"]) for one in entries] == [
        *(("mail", 60), ("reports", 60), ("cards", 5), ("x", 60), ("mail", 60))
    ]
    assert [entry.changes for entry in entries] == [
        *([], [], [], ["the option soft_time_limit is left out"]),
        ["its route in task_routes is left out: exchange"],
    ]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("task_routes = [route]", "task_routes"),
        ("CELERY_TASK_ROUTES = settings.ROUTES", "CELERY_TASK_ROUTES"),
        ("task_default_queue = queue_of(env)", "task_default_queue"),
        ("task_time_limit = LIMIT", "task_time_limit"),
        ("task_annotations = {'t': {'rate_limit': '10/s'}}", "task_annotations"),
        ("CELERYD_TASK_SOFT_TIME_LIMIT = 50", "CELERYD_TASK_SOFT_TIME_LIMIT"),
    ],
)
def test_a_setting_of_celery_that_is_not_carried_over_is_named(line, named):
    entry = only(celery_beat.read_module(f"beat_schedule = {{'a': {{'task': 't', 'schedule': 30}}}}\n{line}\n", "UTC"))
    assert any(change.startswith(f"{named} is ") for change in entry.changes), entry.changes


def test_the_zone_of_a_machine_has_to_be_named():
    text = "enable_utc = False\nbeat_schedule = {'a': {'task': 't', 'schedule': 60}}"
    with pytest.raises(ValueError, match="give --tz"):
        celery_beat.read_module(text, None)
    assert only(celery_beat.read_module(text, "Asia/Shanghai")).task["timezone"] == "Asia/Shanghai"


@pytest.mark.parametrize("text", ["x = 1", "beat_schedule = load()", "timezone = f()\nbeat_schedule = {}"])
def test_a_module_whose_schedule_is_not_written_out_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"beat_schedule|not written out"):
        celery_beat.read_module(text, None)


# APScheduler


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
    assert "not JSON" in odd.refused


def of_job(**more) -> report.Imported:
    return only(apscheduler.read_scheduler(SimpleNamespace(_pending_jobs=[(job_of(**more), "default", False)])))


def test_what_a_job_leaves_to_its_scheduler_is_the_schedulers():
    """A job that waits for the start of its scheduler has not been given the defaults of it yet."""
    job = job_of()
    for name in ("max_instances", "misfire_grace_time", "coalesce"):
        delattr(job, name)

    def of_scheduler(**defaults) -> report.Imported:
        pending = [(job, "default", False)]
        return only(apscheduler.read_scheduler(SimpleNamespace(_pending_jobs=pending, _job_defaults=defaults)))

    given = of_scheduler(max_instances=3, misfire_grace_time=60, coalesce=False)
    assert (given.task["max_concurrency"], given.task["misfire_grace_seconds"]) == (3, 60)
    assert any("coalesce" in change for change in given.changes)
    unlimited = of_scheduler(misfire_grace_time=None, coalesce=True)
    assert (unlimited.task["max_concurrency"], unlimited.task["misfire_policy"]) == (1, "FIRE_ONCE")
    assert of_scheduler().task["misfire_grace_seconds"] == 1, "what APScheduler itself has"


def test_a_method_of_an_object_comes_over_without_its_object_and_that_is_named():
    assert any("object" in change for change in of_job(func=SimpleNamespace().__repr__).changes)
    assert not any("object" in change for change in of_job(func=checked).changes)


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
    assert "not JSON" in of_job(kwargs={"by_id": {1: "a"}}).refused
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
    rows = rows_of(database_of("apscheduler4_json", tmp_path), apscheduler.QUERIES)
    now = read_moment("2026-03-02T00:00:00Z")
    entries = {entry.source: entry for entry in checked(apscheduler.read_store(rows["schedules"], rows["tasks"], now))}
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


ROW = {
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
}


def test_metadata_of_apscheduler_4_comes_along_and_another_executor_is_named():
    def of_row(**more) -> report.Imported:
        return only(apscheduler.read_store([ROW | more], [], 0))

    entry = of_row(metadata='{"team": "a"}', job_executor="processpool")
    assert entry.task["meta"] == {"team": "a"}
    assert any("processpool" in change for change in entry.changes)
    plain = of_row(metadata="{}", job_executor="threadpool")
    assert "meta" not in plain.task
    assert not any("threadpool" in change for change in plain.changes)


@pytest.mark.parametrize(("name", "reason"), [("pickle", "is a pickle, which is never read"), ("cbor", "is not JSON")])
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


def test_the_recorded_module_would_fail_if_it_were_executed():
    tree = ast.parse((DATA / "celeryconfig.py").read_text())
    assert any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) for node in ast.walk(tree))
