"""Tasks from elsewhere: a crontab with forty odd lines, each with its right answer or a refusal that says why."""

from __future__ import annotations

import json

import pytest
import yaml

from noonbell.cli.importers import cronjob, crontab
from noonbell.cli.task_files import check_tasks

CALL = {"http_method": "GET", "target_url": "http://h/a"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# A line; then the fields that its task must have, or a part of the refusal.
LINES = [
    ("*/5 * * * * curl http://h/a", {"cron_expr": "*/5 * * * *", **CALL}),
    ("0 2 * * * curl -s http://h/a > /dev/null 2>&1", {"cron_expr": "0 2 * * *", **CALL}),
    ("0 2 * * * /usr/bin/curl -fsS -m 10 --retry 5 http://h/a", {**CALL, "timeout_seconds": 10.0}),
    ("0 2 * * * curl --retry=5 http://h/a", {"retry_policy": {"max_retries": 5}}),
    ("@daily curl http://h/a", {"cron_expr": "@daily"}),
    ("@HOURLY curl http://h/a", {"cron_expr": "@hourly"}),
    ("@daily\tcurl http://h/a", {"cron_expr": "@daily", **CALL}),
    ("0\t2 * * *\tcurl http://h/a", {"cron_expr": "0 2 * * *", **CALL}),
    (
        "0 2 * * * curl --retry 3 --retry-delay 7 http://h/a",
        {"retry_policy": {"max_retries": 3, "strategy": "fixed", "initial_delay": 7.0}},
    ),
    (
        "0 2 * * * curl --data-urlencode 'a=b c&d' --data-urlencode '=x y' http://h/a",
        {"http_method": "POST", "body_template": "a=b%20c%26d&x%20y"},
    ),
    ("0 2 * * * curl --data-urlencode a@/etc/passwd http://h/a", "sends a file"),
    ("@reboot curl http://h/a", "names no moment"),
    ("@fortnightly curl http://h/a", "@fortnightly is unknown"),
    ("0 9-17/2 * * MON-FRI curl http://h/a", {"cron_expr": "0 9-17/2 * * MON-FRI"}),
    ("0 0 1,15 * 5 curl http://h/a", {"cron_expr": "0 0 1,15 * 5", "cron_dialect": "standard"}),
    ("0 0 * * 7 curl http://h/a", {"cron_expr": "0 0 * * 7", "cron_dialect": "standard"}),
    ("61 * * * * curl http://h/a", "61"),
    ("0 0 31 2 * curl http://h/a", "never"),
    ("* * * curl", "has 4 of the five fields"),
    ("0 0 * * *", "has no command"),
    ("0 0 * * * curl -XPOST http://h/a", {"http_method": "POST", "target_url": "http://h/a"}),
    ("0 0 * * * curl -X DELETE http://h/a", {"http_method": "DELETE"}),
    ("0 0 * * * curl -d 'x=1' -d y=2 http://h/a", {"http_method": "POST", "body_template": "x=1&y=2", "headers": FORM}),
    (
        """0 0 * * * curl -H 'Content-Type: application/json' --data '{"a": "b c"}' http://h/a""",
        {"body_template": '{"a": "b c"}', "headers": {"Content-Type": "application/json"}},
    ),
    ("""0 0 * * * curl --json '{}' http://h/a""", {"headers": {"Content-Type": "application/json"}}),
    ("0 0 * * * curl -u me:secret http://h/a", {"headers": {"Authorization": "Basic bWU6c2VjcmV0"}}),
    ("0 0 * * * curl -fsSL http://h/a", {**CALL, "follow_redirects": True}),
    ("0 0 * * * curl -fsSLo /dev/null http://h/a", {**CALL, "follow_redirects": True}),
    ("0 0 * * * curl -I http://h/a", {"http_method": "HEAD"}),
    ("0 0 * * * curl h/a", {"target_url": "http://h/a"}),
    ("0 0 * * * curl 'http://h/a?x=1&y=2'", {"target_url": "http://h/a?x=1&y=2"}),
    ("0 0 * * * curl http://h/a?d=\\%Y", {"target_url": "http://h/a?d=%Y"}),
    ("0 0 * * * curl -d @- http://h/a%line one%line two", {"body_template": "line one\nline two"}),
    ("0 0 * * * curl -d @/etc/passwd http://h/a", "sends a file"),
    ("0 0 * * * curl -k https://h/a", "certificate"),
    ("0 0 * * * curl http://h/a http://h/b", "more than one address"),
    ("0 0 * * * curl --frobnicate http://h/a", "--frobnicate"),
    ("0 0 * * * curl ftp://h/a", "only http and https"),
    ("0 0 * * * curl", "has no address"),
    ("0 0 * * * curl http://h/a && curl http://h/b", "several commands"),
    ("0 0 * * * curl http://h/a>/dev/null 2>&1", CALL),
    ("0 0 * * * curl http://h/a &>/dev/null", CALL),
    ("0 0 * * * curl http://h/a 2>/dev/null # nightly", CALL),
    ("0 0 * * * curl http://h/a?x=1&y=2", "several commands"),
    ("0 0 * * * curl http://h/a|grep ok", "several commands"),
    ("0 0 * * * curl http://h/a&", "several commands"),
    ("0 0 * * * (curl http://h/a)", "several commands"),
    ("0 0 * * * >/tmp/out curl http://h/a", "several commands"),
    ("0 0 * * * /opt/{/", "runs a program ()"),
    ("0 0 * * * curl http://[", "cannot be parsed"),
    ("0 0 * * * curl http://h/a </tmp/in", "reads a file"),
    ("0 0 * * * curl 'http://h/{a,b}'", "more than one address"),
    ("0 0 * * * curl http://h/[1-3]", "more than one address"),
    ("0 0 * * * curl -d '{{run_id}}' http://h/a", "braces that a task would fill in"),
    ("0 0 * * * curl http://h/a#b", {"target_url": "http://h/a#b"}),
    ("0 0 * * * curl http://me:s%40@h/a".replace("%", "\\%"), {**CALL, "headers": {"Authorization": "Basic bWU6c0A="}}),
    ("0 0 * * * wget -qO- http://me:secret@h/a", {"headers": {"Authorization": "Basic bWU6c2VjcmV0"}}),
    ("0 0 * * * curl http://h/$(date +\\%F)", "several commands"),
    ("0 0 * * * curl $UNKNOWN", "variable of the shell"),
    ("0 0 * * * wget -qO- http://h/a", {**CALL, "follow_redirects": True}),
    ("0 0 * * * wget -q -O /dev/null --tries=3 -T 5 http://h/a", {"retry_policy": {"max_retries": 2}}),
    ("0 0 * * * wget --post-data=x=1 http://h/a", {"http_method": "POST", "body_template": "x=1"}),
    ("0 0 * * * wget --spider http://h/a", {"http_method": "HEAD"}),
    ("0 0 * * * wget --no-check-certificate https://h/a", "certificate"),
    ("0 0 * * * /opt/backup.sh --full", "runs a program (backup.sh)"),
    ("0 0 * * * cd /srv && php artisan schedule:run", "runs a program (cd)"),
    ("0 0 * * * echo 'unfinished", "cannot be read"),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_each_line_has_its_right_answer_or_a_named_refusal(line, expected):
    (entry,) = crontab.read_crontab(line)
    if isinstance(expected, str):
        assert entry.task is None
        assert expected in entry.refused
    else:
        assert entry.refused is None
        assert {name: entry.task[name] for name in expected} == expected


def test_every_task_of_a_crontab_is_one_that_a_server_takes():
    tasks = [entry.task for entry in crontab.read_crontab("\n".join(line for line, _ in LINES)) if entry.task]
    assert len(tasks) == sum(not isinstance(expected, str) for _, expected in LINES)
    check_tasks(tasks)


def test_zones_and_variables_hold_for_the_lines_below_them():
    text = """
    # a comment
    0 1 * * * curl http://h/a
    CRON_TZ=Asia/Shanghai
    BASE = "http://internal"
    MAILTO=ops@example.com
    0 1 * * * curl ${BASE}/b
    CRON_TZ=Nowhere/Land
    """
    entries = list(crontab.read_crontab(text, zone="Europe/Berlin"))
    tasks = [entry.task for entry in entries if entry.task]
    assert [task["timezone"] for task in tasks] == ["Europe/Berlin", "Asia/Shanghai"]
    assert tasks[1]["target_url"] == "http://internal/b"
    assert [entry.where for entry in entries if entry.refused] == ["line 8"]
    assert any("alerts" in note for entry in entries for note in entry.notes)


def test_what_is_no_call_becomes_a_job_where_a_type_is_given():
    (entry,) = crontab.read_crontab("0 1 * * * /opt/backup.sh --full%yes", job_type="shell")
    assert entry.task["job_type"] == "shell"
    assert entry.task["payload"] == {"command": "/opt/backup.sh --full", "stdin": "yes"}


def test_what_is_no_call_becomes_a_command_where_that_is_asked_for():
    text = "MAILTO=ops\nSHELL=/bin/bash\nPATH=/opt/bin\nTOKEN=x\n0 1 * * * root /opt/backup.sh --full >/dev/null%yes%no"
    *_, entry = crontab.read_crontab(text, system=True, commands=True)
    assert entry.task == {
        "name": "backup.sh",
        "cron_expr": "0 1 * * *",
        "timezone": "UTC",
        "misfire_policy": "SKIP",
        "max_concurrency": None,
        "command": "/opt/backup.sh --full >/dev/null",
        "shell": True,
        "payload": "yes\nno",
        "env": {"PATH": "/opt/bin", "TOKEN": "x"},
        "user": "root",
    }
    assert entry.changes == [
        "ran in its user's home directory; here it runs in /: cwd",
        "SHELL=/bin/bash is left out: /bin/sh reads the command",
        "names no time limit; here an attempt ends after 3600 seconds: timeout_seconds",
    ]
    assert entry.notes == [
        "ran as user root",
        "the worker's file has to name PATH under `env`",
        "a worker executes it whose file allows /bin/sh: noonbell worker --commands FILE",
    ]


def test_a_line_keeps_what_cron_does_when_it_is_late_when_it_overlaps_and_when_it_fails():
    call, job = crontab.read_crontab("* * * * * curl http://h/a\n* * * * * /opt/backup.sh", job_type="shell")
    assert (call.task["misfire_policy"], call.task["max_concurrency"]) == ("SKIP", None)
    assert (job.task["misfire_policy"], job.task["max_concurrency"]) == ("SKIP", None)
    assert job.task["retry_policy"] == {"max_retries": 0}


def test_a_call_without_a_time_limit_gets_one_by_name_and_one_with_it_keeps_its_own():
    without, own = crontab.read_crontab("0 0 * * * curl http://h/a\n0 0 * * * curl -m 60 http://h/b")
    assert without.changes == ["names no time limit; here an attempt ends after 10 seconds: timeout_seconds"]
    assert (own.task["timeout_seconds"], own.changes) == (60, [])


def test_a_limit_of_0_is_none_and_so_it_is_named():
    for command in ("curl -m 0 http://h/", "wget -T 0 http://h/"):
        (entry,) = crontab.read_crontab(f"0 1 * * * {command}")
        assert "timeout_seconds" not in entry.task
        assert any("names no time limit" in change for change in entry.changes), command


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("-t 1", ["names no time limit"]),
        ("-t 1 -T 5", ["-T 5 held for each step"]),
        ("-t 3 -T 5", ["-T 5 held for each step", "-t 3 tried again only where"]),
        ("-T 5", ["-T 5 held for each step", "was tried up to 20 times"]),
        ("--tries=0 -T 5", ["-T 5 held for each step", "was tried for ever"]),
    ],
)
def test_what_the_options_of_wget_mean_otherwise_is_a_named_change(options, changes):
    (entry,) = crontab.read_crontab(f"0 1 * * * wget -qO- {options} http://h/")
    assert [found for found, said in zip(entry.changes, changes, strict=True) if not found.startswith(said)] == []


def test_a_step_of_a_single_number_is_read_otherwise_by_cron_and_named():
    (entry,) = crontab.read_crontab("5/15 * * * * curl -m 5 http://h/")
    assert entry.changes == ["5/15 is 5 alone to cron; here it goes on to the end, in such steps"]
    (usual,) = crontab.read_crontab("5-59/15,*/7 1-9/2 * * * curl -m 5 http://h/")
    assert not usual.changes


def test_the_mark_that_windows_puts_before_a_text_is_passed_over(noonbell, tmp_path):
    (tmp_path / "crontab").write_bytes(b"\xef\xbb\xbf5 4 * * * curl -m 5 http://h/\r\n")
    code, out, err = noonbell("import", "crontab", "crontab")
    assert (code, "1 translated" in err) == (0, True)
    assert "5 4 * * *" in out


@pytest.mark.parametrize(("more", "is_said"), [((), True), (("--tz", "Europe/Berlin"), False)])
def test_a_crontab_whose_zone_nobody_named_says_which_one_was_taken(noonbell, tmp_path, more, is_said):
    (tmp_path / "crontab").write_text("0 1 * * * curl -m 5 http://h/a\n")
    code, _, err = noonbell("import", "crontab", "crontab", *more)
    assert code == 0
    assert ("lines without one are in UTC" in err) is is_said
    (tmp_path / "crontab").write_text("CRON_TZ=Asia/Shanghai\n0 1 * * * curl -m 5 http://h/a\n")
    assert "no time zone was named" not in noonbell("import", "crontab", "crontab", *more)[2]


def test_a_line_that_runs_a_program_is_refused_with_the_option_that_takes_it():
    (entry,) = crontab.read_crontab("0 1 * * * /opt/backup.sh")
    assert "--commands" in entry.refused


def test_a_system_crontab_has_a_user_in_each_line():
    (entry,) = crontab.read_crontab("17 * * * * www-data curl http://h/a", system=True)
    assert entry.task["target_url"] == "http://h/a"
    assert entry.notes == ["ran as user www-data"]
    (tabbed,) = crontab.read_crontab("17 *\t* * *\troot\tcurl http://h/a", system=True)
    assert (tabbed.task["target_url"], tabbed.notes) == ("http://h/a", ["ran as user root"])


def test_two_lines_that_call_the_same_get_two_names():
    first, second = crontab.read_crontab("0 1 * * * curl http://h/a\n0 2 * * * curl http://h/a")
    assert (first.task["name"], second.task["name"]) == ("h/a", "h/a-2")


# A cronjob service


ROW = {
    "id": 7,
    "name": "sync_stats",
    "cron_expr": "0 0 2 * * *",
    "timezone": "Asia/Shanghai",
    "exec_type": "SYNC",
    "http_method": "POST",
    "target_url": "http://svc/api",
    "headers_json": '{"A": "b"}',
    "retry_policy_json": '{"max_retries": 3}',
    "max_concurrency": 1,
    "concurrency_policy": "QUEUE",
    "status": "DISABLED",
    "version": 4,
    "deleted": 0,
}


def test_a_row_of_its_table_becomes_the_task_that_it_was():
    (entry,) = cronjob.read_cronjob_rows([ROW])
    assert entry.task["schedule"] == {"type": "cron", "expr": "0 0 2 * * *", "dialect": "cronjob"}
    assert entry.task["headers"] == {"A": "b"}
    assert entry.task["retry_policy"] == {"max_retries": 3}
    assert entry.task["status"] == "DISABLED"
    assert entry.task["follow_redirects"], "as Go's client does"
    assert not {"id", "version", "deleted", "cron_expr"} & set(entry.task)
    check_tasks([entry.task])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "has no name"),
        ({"cron_expr": "99 * * * * *"}, "99"),
        ({"headers_json": "{"}, "headers_json is not JSON"),
    ],
)
def test_what_cannot_be_carried_over_is_named(change, reason):
    (entry,) = cronjob.read_cronjob_rows([ROW | change])
    assert entry.task is None
    assert reason in entry.refused


def test_a_task_that_is_deleted_there_is_passed_over_and_named():
    (entry,) = cronjob.read_cronjob_rows([ROW | {"deleted": 1}])
    assert (entry.task, entry.refused) == (None, None)
    assert entry.notes == ["is deleted there, and left out"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/backup >/dev/null 2>&1", "backup"),
        ("/opt/backup > /dev/null", "backup"),
        ("/opt/backup full 2>/tmp/log", "backup-full"),
        ("/opt/backup /srv/data", "backup-/srv/data"),
        ("/opt/backup && /opt/mail", "backup"),
        ("/opt/backup>/dev/null", "backup"),
        ("cd /srv && /opt/backup full", "backup-full"),
        ("LANG=C /opt/backup", "backup"),
        ("(/opt/backup; /opt/mail)", "backup"),
    ],
)
def test_where_output_goes_is_no_part_of_a_name(command, name):
    (entry,) = crontab.read_crontab(f"0 1 * * * {command}", job_type="shell")
    assert entry.task["name"] == name


@pytest.mark.parametrize("limit", [0, -1, None])
def test_a_catchup_limit_of_0_is_fire_now_and_the_change_is_named(limit):
    row = {"name": "a", "target_url": "http://h/", "cron_expr": "0 0 2 * * *"}
    (entry,) = cronjob.read_cronjob([{**row, "misfire_policy": "CATCH_UP_LIMITED", "catchup_limit": limit}])
    assert entry.task["misfire_policy"] == "FIRE_NOW"
    assert "catchup_limit" not in entry.task
    assert entry.changes == [f"catchup_limit {limit or 0} was no limit there; FIRE_NOW says so here"]


def test_columns_that_a_synchronous_task_never_filled_are_no_reason_to_refuse_it():
    row = {"name": "a", "target_url": "http://h/", "cron_expr": "0 0 2 * * *", "misfire_policy": "SKIP"}
    empty = {"callback_timeout_sec": 0, "callback_method": "", "catchup_limit": -1}
    (entry,) = cronjob.read_cronjob([{**row, **empty}])
    assert (entry.refused, empty.keys() & entry.task.keys()) == (None, set())
    (waiting,) = cronjob.read_cronjob([{**row, **empty, "exec_type": "ASYNC"}])
    assert waiting.notes == ["callback_timeout_sec 0 is its default, 300 seconds"]


def test_a_page_of_its_api_is_read_as_well():
    page = {"items": [{"name": "a", "target_url": "http://h/", "colour": "red"}, "b"], "total": 2}
    first, second = cronjob.read_cronjob(page)
    assert first.task == {"name": "a", "target_url": "http://h/", "follow_redirects": True}
    assert first.notes == ["colour is unknown and was left out"]
    assert second.refused == "is not an object"


# The commands


def test_the_tasks_go_to_stdout_and_the_report_to_stderr(noonbell, tmp_path):
    (tmp_path / "crontab").write_text("0 1 * * * curl -m 5 http://h/a\n@reboot curl http://h/b\n")
    code, out, err = noonbell("import", "crontab", "crontab")
    assert code == 1
    assert [task["name"] for task in yaml.safe_load(out)["tasks"]] == ["h/a"]
    assert "1 translated, 0 of them with a change of meaning, 1 refused, 0 left out" in err
    (tmp_path / "tasks.yaml").write_text(out)
    assert noonbell("validate", "-f", "tasks.yaml")[0] == 0


def test_a_file_with_problems_is_told_line_by_line(noonbell, tmp_path, monkeypatch):
    (tmp_path / "tasks.yaml").write_text(
        "tasks:\n  - {name: a, cron_expr: nonsense, target_url: 'http://h/'}\n  - {name: a, frobnicate: 1}\n"
    )
    code, out, err = noonbell("validate", "-f", "tasks.yaml")
    assert (code, out) == (1, "")
    for place in ("tasks[0] a.cron_expr", "tasks[1] a.frobnicate", "tasks[1] a.name"):
        assert place in err
    (tmp_path / "other.yaml").write_text("- 1\n")
    assert "does not have" in noonbell("validate", "-f", "other.yaml")[2]
    (tmp_path / "secret.yaml").write_text("tasks: [{name: a, target_url: 'http://h/', headers: {A: '${TOKEN}'}}]\n")
    assert "${TOKEN}" in noonbell("validate", "-f", "secret.yaml")[2]
    monkeypatch.setenv("TOKEN", "x")
    code, _, err = noonbell("validate", "-f", "secret.yaml")
    assert (code, "allow it with --env TOKEN" in err) == (1, True)
    assert noonbell("validate", "-f", "secret.yaml", "--env", "OTHER")[0] == 1
    for allowed in ("TOKEN", "TO*"):
        assert noonbell("validate", "-f", "secret.yaml", "--env", allowed)[0] == 0
    monkeypatch.setenv("NOONBELL_FILE_ENV", "OTHER TOKEN")
    assert noonbell("validate", "-f", "secret.yaml")[0] == 0


def test_the_schema_of_a_file_knows_every_field_and_nothing_else(noonbell):
    code, out, _ = noonbell("validate", "--schema")
    assert code == 0
    schema = json.loads(out)
    task = schema["$defs"]["TaskInFile"]
    assert {"name", "cron_expr", "schedule", "target_url", "job_type", "retry_policy", "version"} <= set(
        task["properties"]
    )
    calendar = schema["$defs"]["CalendarInFile"]
    assert {"name", "closed", "open", "ical", "ical_file"} <= set(calendar["properties"])
    assert set(schema["properties"]) == {"tasks", "calendars"}
    assert "#/components" not in out
    assert task["additionalProperties"] is calendar["additionalProperties"] is False
