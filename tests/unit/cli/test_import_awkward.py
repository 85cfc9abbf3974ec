"""What is no text, is nested without end, or says a thing twice: one line that says so, and never a wrong moment."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from noonbell import when
from noonbell.cli.importers import celery_beat, systemd
from noonbell.cli.importers.crontab import read_crontab
from noonbell.cli.importers.programs import ProgramOptions
from noonbell.cli.importers.report import Refused
from noonbell.clock import Instant
from noonbell.service.task_fields import Rules, read_task
from noonbell.when.cron import CronDialect
from unit.cli.entries import FROM, moments, only

DEEP = 100_000


@pytest.mark.parametrize("kind", ["cronjob", "jobs", "plans", "xxl-job", "mscheduler", "kubernetes"])
def test_a_text_that_is_nested_too_deep_is_one_line(noonbell, tmp_path, kind):
    (tmp_path / "deep.json").write_text("[" * DEEP + "]" * DEEP)
    more = ("--job-type", "x") if kind == "mscheduler" else ()
    code, _, told = noonbell("import", kind, "deep.json", *more)
    assert code == 2
    assert "deep.json" in told
    assert "nested too deep" in told
    assert told.count("\n") == 1


def test_a_number_of_five_thousand_digits_is_one_line(noonbell, tmp_path):
    (tmp_path / "long.json").write_text('[{"id": ' + "1" * 5_000 + "}]")
    code, _, told = noonbell("import", "cronjob", "long.json")
    assert (code, told.count("\n")) == (2, 1)
    assert "long.json is no JSON" in told


@pytest.mark.parametrize("text", ["[" * DEEP + "]" * DEEP, "- " * DEEP, "{a: " * DEEP + "}" * DEEP])
def test_a_file_of_tasks_that_is_nested_too_deep_is_one_line(noonbell, tmp_path, text):
    (tmp_path / "deep.yaml").write_text(text)
    code, _, told = noonbell("validate", "deep.yaml")
    assert code != 0
    assert "nested too deep" in told


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_says_how_to_convert_it(noonbell, tmp_path, monkeypatch, encoding):
    content = "*/5 * * * * echo café\n".encode(encoding)
    (tmp_path / "other").write_bytes(content)
    _, _, of_file = noonbell("import", "crontab", "other")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), errors="surrogateescape"))
    code, _, of_stdin = noonbell("import", "crontab", "-")
    assert code == 2
    for told, name in ((of_file, "other"), (of_stdin, "stdin")):
        assert f"cannot read {name}: it is not UTF-8" in told
        assert "iconv" in told


def test_lines_below_a_zone_that_is_none_are_refused():
    text = "CRON_TZ=Asia/Shanghai\n0 3 * * * curl http://h/a\nCRON_TZ=No/Where\n0 3 * * * curl http://h/b\nTZ=UTC\n0 3 * * * curl http://h/c"
    *_, zone, below, _, after = read_crontab(text)
    assert zone.refused is not None
    assert below.refused == "is below CRON_TZ=No/Where, which is no time zone"
    assert after.task is not None
    assert after.task["timezone"] == "UTC"


@pytest.mark.parametrize(
    ("calendar", "like"),
    [
        ("monthly Europe/Berlin", "*-*-01 Europe/Berlin"),
        ("hourly UTC", "*:00 UTC"),
        ("Weekly Asia/Tokyo", "Mon Asia/Tokyo"),
        ("*-*-01 03:00 CET", "*-*-01 03:00:00 CET"),
    ],
)
def test_a_calendar_event_of_one_word_may_name_its_zone(calendar, like):
    found = systemd.cron_of_calendar(calendar, "UTC")
    assert found == systemd.cron_of_calendar(like, "UTC")
    assert moments(found, 2)


@pytest.mark.parametrize("calendar", ["Mondays 10:00", "Sunset 10:00", "satanic", "now"])
def test_what_only_begins_like_a_weekday_is_none(calendar):
    with pytest.raises(Refused, match="is not known"):
        systemd.cron_of_calendar(calendar, "UTC")


def test_a_timer_of_a_template_finds_its_service_and_says_what_to_write_out():
    service = "[Service]\nExecStart=/bin/echo %i"
    found = systemd.read_timers(
        [("tick@a.timer", "[Timer]\nOnCalendar=daily")],
        {"tick@.service": service},
        "UTC",
        ProgramOptions(commands=True),
    )
    assert "specifier such as %i" in (only(found).refused or "")


def test_a_command_before_the_command_is_named():
    service = "[Service]\nExecStartPre=/bin/true\nExecStart=/bin/echo"
    found = systemd.read_timers(
        [("a.timer", "[Timer]\nOnCalendar=daily")], {"a.service": service}, "UTC", ProgramOptions(commands=True)
    )
    assert only(found).refused == "its service has ExecStartPre; a flow has several steps"


def test_of_a_key_that_stands_twice_python_keeps_the_last():
    module = (
        "from celery.schedules import crontab\n"
        "beat_schedule = {'a': {'task': 't', 'schedule': 5}, 'b': {'task': 't', 'schedule': 6}, 'a': {'task': 't', 'schedule': 7}}\n"
        "beat_schedule['b'] = {'task': 't', 'schedule': 8}"
    )
    entries = list(celery_beat.read_module(module, None))
    assert [entry.outcome for entry in entries] == ["left out", "left out", "changed", "changed"]
    assert {entry.task["name"]: entry.task["schedule"]["every"] for entry in entries if entry.task} == {"a": 7, "b": 8}


def test_runs_that_the_nightly_cleaning_would_remove_are_counted(noonbell, tmp_path):
    task = {"id": 1, "name": "a", "target_url": "http://h/a", "cron_expr": "0 * * * * *"}
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    runs = [
        {"id": number, "task_id": 1, "status": "SUCCESS", "scheduled_time": at, "end_time": at}
        for number, at in enumerate(("2019-01-01T00:00:00Z", "2020-01-01T00:00:00Z", hour_ago), 1)
    ]
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    code, _, told = noonbell("import", "cronjob", "tasks.json", "--runs", "runs.json", "--dry-run")
    assert code == 0
    assert "2 runs ended more than 30 days ago: the nightly cleaning here removes them" in told
    assert "jobs.history_retention_days" in told


def test_a_module_that_raises_is_one_line(noonbell, tmp_path):
    (tmp_path / "raises_when_imported.py").write_text("raise RuntimeError('no broker')")
    code, _, told = noonbell("import", "apscheduler", "raises_when_imported:scheduler")
    assert (code, told.count("\n")) == (2, 1)
    assert "importing raises_when_imported raised RuntimeError: no broker" in told


def test_a_command_of_cron_runs_in_the_home_that_the_crontab_names_or_the_report_says_so():
    before, _, after = read_crontab("0 1 * * * ./run.sh\nHOME=/srv/app\n0 2 * * * ./run.sh", commands=True)
    assert before.task is not None
    assert "cwd" not in before.task
    assert "ran in its user's home directory; here it runs in /: cwd" in before.changes
    assert after.task is not None
    assert after.task["cwd"] == "/srv/app"
    assert not [change for change in after.changes if "home directory" in change]


@pytest.mark.parametrize("line", ["0 1 * * * %only its input", "0 1 * * *  % "])
def test_a_line_whose_command_is_all_input_is_refused(line):
    (read,) = read_crontab(line, commands=True)
    assert read.refused == "has no command"


def test_a_line_with_a_user_that_nobody_asked_for_is_named():
    line = "17 * * * * root run-parts /etc/cron.hourly"
    (plain,), (read,) = read_crontab(line, commands=True), read_crontab(line, commands=True, system=True)
    assert any("give --system" in change for change in plain.changes)
    assert read.task is not None
    assert (read.task["command"], read.task["user"]) == ("run-parts /etc/cron.hourly", "root")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("mysql://me@h:abc/d", "cannot be read"),
        ("mysql:d", "cannot be read"),
        ("postgresql://me:hunter2@h:99999/d", "has port 99999"),
        ("mysql://me:hunter2@h/d?ssl-mod=VERIFY_CA", "has 'ssl-mod' after the ?"),
    ],
)
def test_an_address_that_is_wrong_is_one_line_without_its_password(noonbell, address, problem):
    code, _, told = noonbell("import", "cronjob", address)
    assert (code, told.count("\n")) == (2, 1)
    assert problem in told
    assert "hunter2" not in told


@pytest.mark.parametrize("place", ["no/such/folder/report.json", "."])
def test_a_report_that_cannot_be_written_is_said_before_anything_is_done(noonbell, tmp_path, place):
    (tmp_path / "crontab").write_text("0 1 * * * curl http://h/a")
    code, out, told = noonbell("import", "crontab", "crontab", "--report", place)
    assert (code, out, told.count("\n")) == (2, "", 1)
    assert f"cannot write {place}" in told


def test_the_report_may_go_to_stdout(noonbell, tmp_path):
    (tmp_path / "crontab").write_text("0 1 * * * curl http://h/a")
    code, out, _ = noonbell("import", "crontab", "crontab", "--dry-run", "--report", "-")
    assert (code, json.loads(out)["counts"]["changed"]) == (0, 1)


@pytest.mark.parametrize("expr", ["0 9 * * 0", "0 9 * * 0-6", "@weekly", "0 9 * * 1-5", "0 9 * * sun", "*/5 * * * *"])
@pytest.mark.parametrize("dialect", list(CronDialect))
def test_a_cron_of_an_import_is_taken_as_it_is_whatever_dialect_the_server_is_set_to(expr, dialect):
    entry = only(read_crontab(f"{expr} curl http://h/a"))
    spec = read_task(entry.task, Instant(0), Rules(cron_dialect=dialect)).spec
    read, meant = when.of_task(spec), when.parse({"type": "cron", "expr": expr})
    assert read is not None
    assert read.mask(FROM, FROM + 7 * 86_400) == meant.mask(FROM, FROM + 7 * 86_400)
