"""Tasks as files against a real server: what is exported can be applied, owners keep to their own, nobody is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.test_command_line import Noonbell, noonbell, server

__all__ = ["noonbell", "server"]

FILE = """
tasks:
  - name: nightly-report
    cron_expr: "0 2 * * *"
    timezone: Asia/Shanghai
    target_url: http://127.0.0.1:9/run
    headers: {{Authorization: "${{REPORTS_TOKEN}}"}}
    timeout_seconds: {timeout}
  - name: hourly
    schedule: {{type: interval, every: 1, unit: hour}}
    target_url: http://127.0.0.1:9/hour
    labels: {{team: billing}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REPORTS_TOKEN", "canary")
    (tmp_path / "billing.yaml").write_text(FILE.format(timeout=30))
    return tmp_path


def test_apply_makes_tasks_and_a_second_time_nothing(noonbell: Noonbell, folder):
    assert noonbell("diff", "-f", "billing.yaml").out.splitlines() == ["+ nightly-report", "+ hourly"]
    assert noonbell("task", "list", "-o", "json").json == []
    assert noonbell("apply", "-f", "billing.yaml").code == 0
    task = noonbell("task", "get", "nightly-report", "-o", "json").json
    assert (task["managed_by"], task["timeout_seconds"], task["version"]) == ("file:billing", 30, 1)
    again = noonbell("apply", "-f", "billing.yaml", "-o", "json").json
    assert again["unchanged"] == ["nightly-report", "hourly"]
    assert noonbell("task", "get", "nightly-report", "-o", "json").json["version"] == 1
    assert noonbell("diff", "-f", "billing.yaml").code == 0


def test_a_task_that_was_deleted_is_made_anew_from_its_file(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    old = noonbell("task", "get", "hourly", "-o", "json").json["id"]
    assert noonbell("task", "delete", "hourly", "--yes").code == 0
    assert noonbell("diff", "-f", "billing.yaml").out.splitlines() == ["+ hourly"]
    told = noonbell("apply", "-f", "billing.yaml", "-o", "json").json
    assert (told["created"], told["unchanged"]) == (["hourly"], ["nightly-report"])
    task = noonbell("task", "get", "hourly", "-o", "json").json
    assert (task["status"], task["id"] > old) == ("ENABLED", True)


def test_what_is_exported_and_applied_again_differs_in_nothing(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    assert noonbell("export", "--owner", "file:billing", "-f", "exported.yaml").code == 0
    assert "canary" not in (folder / "exported.yaml").read_text()
    assert noonbell("export", "--owner", "file:billing", "--out", "again.yaml").code == 0
    assert (folder / "again.yaml").read_text() == (folder / "exported.yaml").read_text()
    told = noonbell("diff", "-f", "exported.yaml", "--set", "billing")
    assert (told.code, told.out) == (0, "")
    assert noonbell("apply", "-f", "exported.yaml", "--set", "billing", "-o", "json").json["changed"] == []


def test_a_format_in_the_place_of_the_file_is_no_file(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    (folder / "as.json").write_text(noonbell("export", "--owner", "file:billing", "-o", "json").out)
    assert noonbell("diff", "-f", "as.json", "--set", "billing").code == 0
    assert noonbell("export", "-o", "yaml").out == noonbell("export").out
    told = noonbell("export", "-o", "table")
    assert (told.code, "./table" in told.err) == (2, True)
    assert not {"json", "yaml", "table"} & {each.name for each in folder.iterdir()}


def test_diff_shows_the_effect_before_anything_changes(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    text = FILE.format(timeout=5).replace("0 2 * * *", "0 3 * * *")
    (folder / "billing.yaml").write_text(text)
    told = noonbell("diff", "-f", "billing.yaml")
    assert told.code == 1
    assert "~ nightly-report" in told.out
    assert "timeout_seconds: 30 → 5" in told.out
    assert "    schedule: 0 2 * * * → 0 3 * * *\n" in told.out
    assert "next fire moves from" in told.out
    assert "canary" not in told.out
    assert noonbell("task", "get", "nightly-report", "-o", "json").json["version"] == 1
    assert noonbell("apply", "-f", "billing.yaml").code == 0
    assert noonbell("task", "get", "nightly-report", "-o", "json").json["version"] == 2


def test_diff_names_what_differs_inside_a_field_and_no_number_that_is_the_same(noonbell: Noonbell, folder):
    task = "tasks: [{name: a, target_url: 'http://127.0.0.1:9/', retry_policy: {max_retries: %d, initial_delay: %s}}]\n"
    (folder / "retries.yaml").write_text(task % (1, "5.0"))
    noonbell("apply", "-f", "retries.yaml")
    (folder / "retries.yaml").write_text(task % (2, "5"))
    assert noonbell("diff", "-f", "retries.yaml").out.splitlines() == ["~ a", "    retry_policy.max_retries: 1 → 2"]


def test_the_exit_code_of_diff_tells_differences_from_files_that_cannot_be_used(noonbell: Noonbell, folder):
    assert noonbell("diff", "-f", "billing.yaml").code == 1
    for text in ("tasks: [", "tasks: [{name: a, cron_expr: 'never'}]", "tasks: [{name: a, colour: red}]"):
        (folder / "bad.yaml").write_text(text)
        told = noonbell("diff", "-f", "bad.yaml")
        assert (told.code, told.out) == (2, ""), text
        assert told.err.startswith("error: ")
    assert noonbell("diff", "-f", "none.yaml").code == 2


def test_two_owners_never_touch_each_others_tasks(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    (folder / "other.yaml").write_text("tasks: [{name: hourly, target_url: 'http://127.0.0.1:9/x'}]\n")
    refused = noonbell("apply", "-f", "other.yaml")
    assert refused.code == 5
    assert "tasks[hourly] belongs to file:billing" in refused.err
    assert "a file changes only its own tasks: --adopt makes these its own" in refused.err
    (folder / "other.yaml").write_text("tasks: [{name: mine, target_url: 'http://127.0.0.1:9/x'}]\n")
    assert noonbell("apply", "-f", "other.yaml", "--prune", "--yes").code == 0
    assert noonbell("task", "list", "-o", "name").out.split() == ["nightly-report", "hourly", "mine"]
    (folder / "other.yaml").write_text("tasks: []\n")
    assert noonbell("apply", "-f", "other.yaml", "--prune", "--yes", "-o", "json").json["pruned"] == ["mine"]
    assert noonbell("task", "list", "-o", "name").out.split() == ["nightly-report", "hourly"]


def test_diff_says_an_interval_in_good_english(noonbell: Noonbell, folder):
    task = (
        "tasks: [{name: a, target_url: 'http://127.0.0.1:9/', schedule: {type: interval, every: %d, unit: minute}}]\n"
    )
    (folder / "every.yaml").write_text(task % 1)
    noonbell("apply", "-f", "every.yaml")
    (folder / "every.yaml").write_text(task % 5)
    assert "    schedule: every minute → every 5 minutes" in noonbell("diff", "-f", "every.yaml").out.splitlines()


def test_of_many_tasks_of_other_owners_a_few_are_named(noonbell: Noonbell, folder):
    for number in range(8):
        noonbell("task", "create", f"t{number}", "--url", "http://127.0.0.1:9/")
    (folder / "all.yaml").write_text(noonbell("export").out)
    refused = noonbell("apply", "-f", "all.yaml")
    assert refused.code == 5
    assert "tasks[t4] belongs to api; 3 more; a file changes only its own tasks" in refused.err
    assert "t5" not in refused.err
    adopted = noonbell("apply", "-f", "all.yaml", "--adopt")
    assert adopted.out.splitlines()[:2] == ["~ t0", '    managed_by: "api" → "file:all"']
    assert "8 unchanged" in noonbell("apply", "-f", "all.yaml").err


def test_a_task_of_somebody_else_is_taken_over_only_when_asked(noonbell: Noonbell, folder):
    noonbell("task", "create", "hourly", "--url", "http://127.0.0.1:9/by-hand")
    assert noonbell("apply", "-f", "billing.yaml").code == 5
    assert noonbell("task", "list", "-o", "name").out.split() == ["hourly"]  # nothing of the file was made
    assert noonbell("apply", "-f", "billing.yaml", "--adopt").code == 0
    assert noonbell("task", "get", "hourly", "-o", "json").json["managed_by"] == "file:billing"


def test_a_stale_apply_fails_with_5_and_changes_nothing(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    noonbell("export", "--versions", "--owner", "file:billing", "-o", "planned.yaml")
    noonbell("task", "edit", "hourly", "--set", "priority=9")
    planned = (folder / "planned.yaml").read_text().replace("timeout_seconds: 30", "timeout_seconds: 31")
    (folder / "planned.yaml").write_text(planned)
    stale = noonbell("apply", "-f", "planned.yaml", "--set", "billing")
    assert stale.code == 5
    assert "hourly is at version 2, not 1" in stale.err
    assert noonbell("task", "get", "nightly-report", "-o", "json").json["timeout_seconds"] == 30
    assert noonbell("task", "get", "hourly", "-o", "json").json["priority"] == 9


def test_pruning_asks_first(noonbell: Noonbell, folder):
    noonbell("apply", "-f", "billing.yaml")
    (folder / "billing.yaml").write_text("tasks: []\n")
    assert noonbell("apply", "-f", "billing.yaml", "--prune", given="n\n").code == 1
    assert len(noonbell("task", "list", "-o", "name").out.split()) == 2
    assert noonbell("apply", "-f", "billing.yaml", "--prune", given="y\n").code == 0
    assert noonbell("task", "list", "-o", "name").out == ""


def test_one_bad_task_keeps_the_whole_file_out(noonbell: Noonbell, folder):
    (folder / "bad.yaml").write_text(
        "tasks: [{name: good, target_url: 'http://127.0.0.1:9/'}, {name: bad, cron_expr: '99 * * * *', target_url: x}]\n"
    )
    told = noonbell("apply", "-f", "bad.yaml")
    assert told.code == 1
    assert "tasks[bad].cron_expr" in told.err
    assert noonbell("task", "list", "-o", "json").json == []


def test_a_folder_is_one_set(noonbell: Noonbell, tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("a", "b"):
        (tmp_path / "set" / f"{name}.yaml").write_text(
            f"tasks: [{{name: {name}, target_url: 'http://127.0.0.1:9/'}}]\n"
        )
    assert noonbell("apply", "-f", "set").code == 0
    assert {task["managed_by"] for task in noonbell("task", "list", "-o", "json").json} == {"file:set"}


def test_a_crontab_becomes_tasks_on_the_server(noonbell: Noonbell, tmp_path):
    (tmp_path / "crontab").write_text("*/5 * * * * curl -s http://127.0.0.1:9/ping\n")
    (tmp_path / "tasks.yaml").write_text(noonbell("import", "crontab", "crontab").out)
    assert noonbell("apply", "-f", "tasks.yaml").code == 0
    assert noonbell("task", "list", "-o", "name").out.split() == ["127.0.0.1:9/ping"]


def test_files_are_named_with_the_option_or_without(noonbell: Noonbell, folder):
    assert noonbell("validate", "billing.yaml").code == 0
    assert noonbell("diff", "billing.yaml").code == 1
    assert noonbell("apply", "billing.yaml", "-o", "json").json["created"] == ["nightly-report", "hourly"]
    assert noonbell("task", "get", "hourly", "-o", "json").json["managed_by"] == "file:billing"
    assert noonbell("diff", "-f", "billing.yaml").code == 0
    for command in ("validate", "diff", "apply"):
        told = noonbell(command)
        assert (told.code, "-f FILE" in told.err) == (2, True)
    (folder / "billing.yaml").write_text("tasks: []")
    unanswered = noonbell("apply", "billing.yaml", "--prune")
    assert (unanswered.code, "--yes" in unanswered.err) == (2, True)
    assert noonbell("task", "get", "hourly").code == 0


def test_an_edit_of_a_declared_task_says_who_will_undo_it(noonbell: Noonbell, folder):
    assert noonbell("apply", "-f", "billing.yaml").code == 0
    edited = noonbell("task", "edit", "hourly", "--timeout", "9")
    assert edited.code == 0
    assert "\nnote: file:billing declares this task and will undo the change" in edited.err
    detached = noonbell("task", "edit", "hourly", "--set", "managed_by=api")
    assert (detached.code, detached.err) == (0, "")
    assert noonbell("task", "edit", "hourly", "--timeout", "8").err == "each attempt may take 8 s\n"


def test_a_cycle_is_named_with_the_file_and_the_task(noonbell: Noonbell, tmp_path: Path):
    folder = tmp_path / "nightly"
    folder.mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        text = f"tasks:\n  - {{name: {name}, job_type: j, after: {{tasks: [{{task: {other}}}]}}}}\n"
        (folder / f"{name}.yaml").write_text(text)
    for command in (("apply", "-f", "nightly"), ("diff", "-f", "nightly"), ("validate", "nightly")):
        told = noonbell(*command)
        assert told.code != 0, told
        assert "nightly/a.yaml: tasks[a].after: makes a cycle: a → b → a" in told.err, told
    (folder / "b.yaml").write_text("tasks:\n  - {name: b, job_type: j, timeout_seconds: soon}\n")
    assert "nightly/b.yaml: tasks[b].timeout_seconds" in noonbell("apply", "-f", "nightly").err
    assert noonbell("task", "list", "-o", "json").json == []


def test_an_empty_file_has_no_tasks_and_is_refused(noonbell: Noonbell, folder):
    (folder / "empty.yaml").write_text("# nothing yet\n")
    (folder / "empty").mkdir()
    for command, code in (("validate", 1), ("diff", 2), ("apply", 1)):
        told = noonbell(command, "empty.yaml")
        assert (told.code, "empty.yaml: is empty: write `tasks: []`" in told.err) == (code, True), told
    told = noonbell("validate", "empty")
    assert (told.code, "there is no file of tasks in empty" in told.err) == (2, True), told
    (folder / "empty.yaml").write_text("tasks: []\n")
    assert noonbell("validate", "empty.yaml").code == 0


def test_tasks_of_one_name_are_told_apart_by_their_numbers(noonbell: Noonbell, folder):
    (folder / "two").mkdir()
    (folder / "two" / "a.yaml").write_text("tasks:\n  - {name: sound, job_type: j}\n  - {name: typo, job_type: j}\n")
    (folder / "two" / "b.yaml").write_text(
        "tasks:\n  - {name: typo, job_type: j, timeout_seconds: soon}\n  - {job_type: j, timeout_seconds: late}\n"
    )
    told = noonbell("validate", "two").err
    assert "two/a.yaml: tasks[1] typo.name: is listed twice" in told
    assert "two/b.yaml: tasks[0] typo.name: is listed twice" in told
    assert "two/b.yaml: tasks[0] typo.timeout_seconds" in told
    assert "two/b.yaml: tasks[1].timeout_seconds" in told
    applied = noonbell("apply", "two").err
    assert "two/b.yaml: tasks[0] typo.name: is 'typo' a second time" in applied
    assert "two/b.yaml: tasks[0] typo.timeout_seconds" in applied


def test_what_is_imported_can_be_applied_in_batches_and_again(noonbell: Noonbell, folder):
    lines = "".join(f"{number % 60} 3 * * * curl http://127.0.0.1:9/{number}\n" for number in range(450))
    (folder / "crontab").write_text(f"{lines}@reboot curl http://127.0.0.1:9/no\n")
    told = noonbell("import", "crontab", "crontab", "--apply", "--dry-run", "--set", "moved")
    assert (told.code, told.out) == (1, "")
    assert "450 created, 0 changed, 0 unchanged (nothing was written)" in told.err
    assert noonbell("task", "list", "-o", "json").json == []
    told = noonbell("import", "crontab", "crontab", "--apply", "--set", "moved")
    assert "100 %" in told.err
    assert "450 created, 0 changed, 0 unchanged as file:moved" in told.err
    again = noonbell("import", "crontab", "crontab", "--apply", "--set", "moved")
    assert "0 created, 0 changed, 450 unchanged" in again.err
