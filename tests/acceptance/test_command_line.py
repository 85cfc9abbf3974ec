"""The remote commands as a user has them: real processes, a real server, exit codes that scripts rely on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from acceptance.harness import COMMAND, PATIENCE, ServerNode, until
from services import forked


@dataclass(frozen=True)
class Told:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


Noonbell = Callable[..., Told]


@pytest.fixture
def server(nodes, sqlite_url) -> ServerNode:
    return nodes.start(sqlite_url)


@pytest.fixture
def noonbell(server, tmp_path) -> Noonbell:
    def run(*arguments: str, given: str = "") -> Told:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        env = clean | {"NOONBELL_URL": f"http://127.0.0.1:{server.port}", "NOONBELL_FILE_ENV": "REPORTS_*"}
        done = forked.run(*arguments, env=env, cwd=tmp_path, given=given, seconds=PATIENCE)
        return Told(done.returncode, done.stdout, done.stderr)

    return run


def test_from_nothing_to_a_green_run(noonbell, target):
    made = noonbell("task", "create", "hello", "--every", "1h", "--url", target.url("/ok"))
    assert (made.code, made.out.splitlines()[0]) == (0, "created hello, id 1; the next slots:")
    ran = noonbell("trigger", "hello", "--wait")
    assert ran.code == 0
    assert "SUCCESS" in ran.out
    assert "HTTP 200" in ran.out
    assert len(target.at("/ok")) == 1


def test_spans_of_time_are_said_back_as_they_were_understood(noonbell, target):
    made = noonbell("task", "create", "often", "--every", "300", "--timeout", "90", "--url", target.url("/ok"))
    assert made.err.splitlines() == ["fires every 300 seconds", "each attempt may take 1 m 30 s"]
    assert noonbell("task", "edit", "often", "--every", "1h30m").err == ""
    later = noonbell("trigger", "often", "--delay", "2", "--expires", "3600")
    assert later.err.splitlines() == ["starts in 2 s", "is skipped if no worker has claimed it after 1 h"]
    assert noonbell("call", target.url("/ok"), "--delay", "90").err == "starts in 1 m 30 s\n"
    assert noonbell("trigger", "often").err == ""


def test_a_task_that_calls_its_own_server_is_told_to_bring_a_token(noonbell, server):
    noonbell("task", "create", "itself", "--url", f"http://127.0.0.1:{server.port}/api/v1/tasks")
    ran = noonbell("trigger", "itself", "--wait")
    assert ran.code == 6
    assert "403" in ran.out
    assert "noonbell token create --role operator" in ran.out
    assert "--header 'Authorization: Bearer TOKEN'" in ran.out
    (run,) = server.ask("GET", "/runs")["items"]
    assert "Authorization: Bearer TOKEN" in noonbell("run", "explain", str(run["id"])).out.splitlines()[0]


def test_a_run_that_fails_is_exit_6_and_says_why(noonbell, target):
    noonbell("task", "create", "broken", "--url", target.url("/status/500"))
    ran = noonbell("trigger", "broken", "--wait")
    assert ran.code == 6
    assert "FAILED" in ran.out
    assert "500" in ran.out


def test_waiting_no_longer_than_asked_is_exit_7(noonbell, target):
    noonbell("task", "create", "slow", "--url", target.url("/hold/on"))
    ran = noonbell("trigger", "slow", "--wait", "--timeout", "0.2")
    assert (ran.code, ran.out) == (7, "")
    assert "still RUNNING" in ran.err


def test_who_stops_waiting_hears_that_the_run_goes_on(noonbell, server, target):
    noonbell("task", "create", "slow", "--url", target.url("/hold/on"), "--timeout", "10m")
    env = dict(os.environ) | {"NOONBELL_URL": f"http://127.0.0.1:{server.port}"}
    waiting = subprocess.Popen(
        [COMMAND, "trigger", "slow", "--wait"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs these tests in the background of a shell ignores Ctrl-C, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    target.wait_for("/hold/on")
    (run,) = server.ask("GET", "/runs")["items"]
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130
    assert f"run {run['id']} continues;" in said
    assert f"noonbell run cancel {run['id']}" in said


def test_a_run_that_was_tried_again_says_at_which_attempt_it_ended_and_how_long_it_took_in_all(noonbell, target):
    retry = 'retry_policy={"max_retries": 2, "initial_delay": 0.05}'
    noonbell("task", "create", "broken", "--url", target.url("/status/500"), "--set", retry)
    ran = noonbell("trigger", "broken", "--wait")
    assert ran.code == 6
    assert re.search(r"run \d+ FAILED in \d+ m?s at attempt 3, \d+ m?s in all  HTTP 500", ran.out)
    (run_id,) = noonbell("run", "list", "-o", "name").out.split()
    assert re.search(r" at attempt 3, \d+ m?s in all", noonbell("run", "get", run_id).out.splitlines()[0])
    assert "attempts" not in noonbell("trigger", "broken", "--wait", "-o", "json").json


def test_who_waits_for_a_run_that_is_tried_again_hears_of_each_attempt(noonbell, target):
    retry = 'retry_policy={"max_retries": 2, "initial_delay": 0.5, "strategy": "fixed"}'
    noonbell("task", "create", "broken", "--url", target.url("/status/500"), "--set", retry)
    ran = noonbell("trigger", "broken", "--wait")
    assert ran.code == 6
    assert [attempt for attempt in (1, 2, 3) if f"Attempt {attempt} of run" in ran.err] == [1, 2]
    assert "500" in ran.err
    assert len(ran.err.splitlines()) == 2


def test_a_key_that_has_a_run_already_is_said(noonbell, target):
    noonbell("task", "create", "once", "--url", target.url("/ok"))
    for words in (("trigger", "once"), ("call", target.url("/ok"))):
        first, second = (noonbell(*words, "--key", "a", "--wait") for _ in range(2))
        assert (first.code, first.err) == (0, "")
        assert (second.code, second.err) == (0, "note: there is a run of this key already; no new one was made\n")


def test_the_traceback_of_a_run_stands_in_lines(noonbell, server):
    made = server.create(name="mail", job_type="mail", queue="mail", retry_policy={"max_retries": 0})
    run_id = server.trigger(made)
    (claim,) = server.ask("POST", "/workers/w1/claim", {"queues": ["mail"], "max": 1})["runs"]
    trace = '  File "app.py", line 1, in mail\n    raise ValueError\n'
    details = {"kind": "error", "type": "ValueError", "traceback": trace}
    told = {"outcome": "fail", "error_message": "ValueError: no", "error_details": details}
    server.ask("POST", f"/runs/{run_id}/settle", {"worker_id": "w1", "token": claim["token"], **told})
    shown = noonbell("run", "get", str(run_id))
    assert '\n  File "app.py", line 1, in mail\n    raise ValueError\n' in shown.out
    assert '"type": "ValueError"}' in shown.out
    assert noonbell("run", "get", str(run_id), "-o", "json").json["error_details"]["traceback"] == trace


def test_a_task_is_explained_with_its_last_run_and_at_a_time_without_seconds(noonbell, target):
    noonbell("task", "create", "yearly", "--cron", "30 2 1 1 *", "--url", target.url("/status/500"))
    assert "last_run" not in noonbell("task", "explain", "yearly").out
    run_id = noonbell("trigger", "yearly", "--wait", "-o", "name").out.strip()
    told = noonbell("task", "explain", "yearly").out
    assert told.startswith("waiting: ")
    assert re.search(rf"\nlast_run +{run_id} FAILED .+: .*500", told)
    assert "last_run" not in noonbell("task", "explain", "yearly", "-o", "json").json
    for at in ("2090-01-01T02:30", "2090-01-01T02:30:00", "2090-01-01T02:30Z", "2090-01-01T02:30:00Z"):
        answer = noonbell("task", "explain", "yearly", "--at", at, "-o", "json")
        assert (answer.code, answer.json["slot"]) == (0, "2090-01-01T02:30:00Z")
    refused = noonbell("task", "explain", "yearly", "--at", "soon")
    assert refused.code != 0
    assert "RFC 3339" in refused.err


def test_a_run_that_no_worker_can_take_is_explained(noonbell, server):
    run_id = server.trigger(server.create(name="mail", job_type="send_mial"))
    told = noonbell("run", "explain", str(run_id))
    assert told.code == 0
    assert told.out.startswith(
        f"no_worker: Run {run_id} waits: no connected worker of queue default supports job type send_mial."
    )
    assert noonbell("run", "explain", str(run_id), "-o", "json").json["cause"] == "no_worker"
    assert noonbell("task", "explain", "mail").out.startswith(f"no_worker: Run {run_id} waits: no connected worker")
    assert noonbell("run", "explain", "1").code == 3


def test_a_task_without_a_target_is_answered_with_the_options_for_one(noonbell):
    made = noonbell("task", "create", "x")
    assert (made.code, made.out) == (1, "")
    assert made.err.endswith("(--url URL, or --job TYPE)\n")


def test_a_new_task_whose_job_type_no_worker_knows_says_so(noonbell):
    made = noonbell("task", "create", "mail", "--every", "1h", "--job", "send_mial")
    assert (made.code, made.out.splitlines()[0]) == (0, "created mail, id 1; the next slots:")
    assert made.err.splitlines() == [
        "no connected worker of queue default supports job type send_mial: its runs wait for one",
        "  start one: noonbell worker --app MODULE:APP --queues default --store URL, the same as the server's",
    ]
    known = noonbell("task", "create", "tidy", "--every", "1h", "--job", "data_cleanup", "--set", "queue=system")
    assert (known.code, known.err) == (0, "")
    assert noonbell("task", "create", "call", "--url", "http://127.0.0.1:9/").err == ""


def test_waiting_for_a_run_that_no_worker_can_take_says_so(noonbell, server):
    server.create(name="mail", job_type="send_mial")
    ran = noonbell("trigger", "mail", "--wait", "--timeout", "3")
    assert (ran.code, ran.out) == (7, "")
    assert (
        ran.err.count("no connected worker of queue default supports job type send_mial. They support data_cleanup.")
        == 1
    )
    assert ran.err.count("  noonbell doctor shows how to start one; Ctrl-C ends this wait") == 1
    assert "still SCHEDULED after 3 s" in ran.err


def test_workers_are_listed_with_the_job_types_that_they_know(noonbell):
    http, jobs = sorted(line.split() for line in noonbell("worker", "list").out.splitlines()[1:])
    known = {line[3]: line[4] for line in (http, jobs)}
    called = "target:amqp,target:nats,target:redis,target:mqtt,target:grpc,http"
    assert known == {called: "–", "default,system": "data_cleanup"}


def test_tasks_are_listed_for_people_and_for_programs(noonbell, target):
    assert noonbell("task", "list", "-o", "json").json == []
    noonbell("task", "create", "夜间报表", "--cron", "0 2 * * *", "--tz", "Asia/Shanghai", "--url", target.url("/ok"))
    noonbell("task", "create", "plain", "--url", target.url("/ok"))
    head, first, second = noonbell("task", "list").out.splitlines()
    assert head.split() == ["ID", "NAME", "STATUS", "SCHEDULE", "NEXT", "LAST", "RUN"]
    assert "0 2 * * * Asia/Shanghai" in first
    assert "on demand" in second
    # Chinese characters are two columns wide, so that the columns stay straight.
    assert len(first[: first.index("ENABLED")]) + 4 == len(second[: second.index("ENABLED")])
    assert noonbell("task", "list", "-o", "name").out.split() == ["夜间报表", "plain"]
    lines = noonbell("task", "list", "-o", "ndjson").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["夜间报表", "plain"]
    assert "name: plain" in noonbell("task", "get", "plain", "-o", "yaml").out


def test_a_long_list_comes_page_by_page(noonbell, server, target):
    for number in range(205):
        server.create(name=f"task {number:03}", target_url=target.url("/ok"))
    assert len(noonbell("task", "list", "-o", "name", "--all").out.splitlines()) == 205
    assert len(noonbell("task", "list", "-o", "name", "--limit", "3").out.splitlines()) == 3


def test_a_task_is_edited_enabled_disabled_and_deleted(noonbell, target):
    noonbell("task", "create", "t", "--cron", "@daily", "--url", target.url("/ok"))
    assert noonbell("task", "edit", "t", "--set", "timeout_seconds=3", "--set", "description=a text").code == 0
    task = noonbell("task", "get", "t", "-o", "json").json
    assert (task["timeout_seconds"], task["description"], task["version"]) == (3, "a text", 2)
    assert noonbell("task", "disable", "t").out.split() == ["t", "DISABLED"]
    assert noonbell("task", "enable", "t").out.split() == ["t", "ENABLED"]
    assert noonbell("task", "delete", "t", given="n\n").code == 1
    assert noonbell("task", "get", "t").code == 0
    assert noonbell("task", "delete", "t", "--yes").code == 0
    gone = noonbell("task", "get", "t")
    assert (gone.code, gone.err) == (3, "error: there is no task 't'\n")


def test_a_task_is_made_to_run_after_others(noonbell):
    for name in ("extract", "a:b"):
        assert noonbell("task", "create", name, "--job", "x").code == 0
    made = noonbell("task", "create", "load", "--job", "x", "--after", "extract:failure", "--after", "a:b")
    assert made.code == 0, made.err
    assert "on demand" not in made.out
    task = noonbell("task", "get", "load", "-o", "json").json
    assert task["after"]["tasks"] == [{"task": "extract", "on": "failure"}, {"task": "a:b", "on": "success"}]
    assert "after extract (failure) and a:b" in noonbell("task", "list").out
    told = noonbell("task", "create", "bad", "--job", "x", "--after", "nowhere")
    assert told.code == 1
    assert "after.tasks[0].task" in told.err
    refused = noonbell("task", "delete", "extract", "--yes")
    assert refused.code != 0
    assert "'load'" in refused.err
    assert noonbell("task", "delete", "extract", "--yes", "--force").code == 0


def test_a_task_can_be_written_in_a_file(noonbell, target, tmp_path):
    (tmp_path / "task.yaml").write_text(f"name: from a file\ntarget_url: {target.url('/ok')}\npriority: 7\n")
    assert noonbell("task", "create", "-f", "task.yaml").code == 0
    assert noonbell("task", "get", "from a file", "-o", "json").json["priority"] == 7
    given = json.dumps({"name": "from stdin", "target_url": target.url("/ok")})
    assert noonbell("task", "create", "-f", "-", given=given).code == 0
    assert noonbell("task", "create", "-f", "missing.yaml").code == 2


def test_a_wrong_field_is_named_and_nothing_is_made(noonbell):
    told = noonbell("task", "create", "bad", "--cron", "61 * * * *", "--url", "ftp://x")
    assert told.code == 1
    assert any(line.startswith("error: cron_expr") for line in told.err.splitlines())
    assert any(line.startswith("error: target_url") for line in told.err.splitlines())
    assert noonbell("task", "list", "-o", "json").json == []


def test_a_name_that_is_taken_is_exit_5(noonbell, target):
    noonbell("task", "create", "twin", "--url", target.url("/ok"))
    assert noonbell("task", "create", "twin", "--url", target.url("/ok")).code == 5


def test_runs_are_listed_read_canceled_and_retried(noonbell, target):
    noonbell("task", "create", "t", "--url", target.url("/status/500"))
    noonbell("trigger", "t", "--wait")
    (run_id,) = noonbell("run", "list", "--task", "t", "--status", "failed", "-o", "name").out.split()
    shown = noonbell("run", "get", run_id).out
    assert "attempt 1  FAILED" in shown
    assert noonbell("run", "retry", run_id, "--wait").code == 6
    assert "(it was already final)" in noonbell("run", "cancel", run_id).out
    assert len(noonbell("run", "list", "--since", "1h", "-o", "json").json) == 2
    noonbell("task", "create", "slow", "--url", target.url("/hold/on"))
    held = noonbell("trigger", "slow", "-o", "name").out.strip()
    target.wait_for("/hold/on")
    assert noonbell("run", "cancel", held).out.split() == [held, "CANCELED"]
    assert noonbell("run", "tail", held).code == 6


def test_a_log_of_several_pages_is_printed_whole(noonbell, server):
    server.trigger(server.create(name="talks", job_type="talk"))
    asked = {"queues": ["default"], "job_types": ["talk"], "max": 1, "wait_seconds": 20, "version": 0}
    (run,) = server.ask("POST", "/workers/w1/claim", asked)["runs"]
    held = {"worker_id": "w1", "token": run["token"]}
    for page in range(3):
        lines = [{"message": f"line {page * 500 + number}"} for number in range(500)]
        server.ask("POST", f"/runs/{run['run_id']}/log", {**held, "lines": lines})
    server.ask("POST", f"/runs/{run['run_id']}/settle", {**held, "outcome": "success"})
    told = noonbell("run", "log", str(run["run_id"]))
    assert told.code == 0
    printed = told.out.splitlines()
    assert [line.partition("line ")[2] for line in printed[:-1]] == [str(number) for number in range(1_500)]


def test_the_payload_is_given_whole_or_by_field(noonbell, server, target):
    noonbell("task", "create", "t", "--url", target.url("/ok"), "--method", "POST", "--data", "{{payload.who}}")
    assert noonbell("trigger", "t", "--data", '{"who": "Ada"}', "--wait").code == 0
    assert noonbell("trigger", "t", "--arg", "who=Grace", "--wait").code == 0
    assert [arrival.body for arrival in target.at("/ok")] == ["Ada", "Grace"]
    keyed = noonbell("trigger", "t", "--arg", "who=x", "--key", "k", "-o", "json").json
    again = noonbell("trigger", "t", "--arg", "who=x", "--key", "k", "-o", "json").json
    assert again["run_id"] == keyed["run_id"]


def test_any_call_of_the_api_can_be_made(noonbell, server):
    assert noonbell("api", "get", "/version").out == "v0.1.0\n"
    assert noonbell("api", "GET", "tasks/9").code == 3
    until(lambda: noonbell("api", "GET", "/stats").code == 0, "stats")


def test_names_of_tasks_complete_from_the_server(noonbell, server, target, tmp_path):
    noonbell("task", "create", "nightly", "--url", target.url("/ok"))
    done = subprocess.run(
        [COMMAND],
        env=os.environ
        | {
            "NOONBELL_URL": f"http://127.0.0.1:{server.port}",
            "_NOONBELL_COMPLETE": "bash_complete",
            "COMP_WORDS": "noonbell trigger ni",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout.split(",")[-1].strip() == "nightly"
    assert "_NOONBELL_COMPLETE" in noonbell("completion", "bash").out


def test_without_a_server_the_exit_code_is_8_and_says_what_to_do(server, noonbell):
    server.kill()
    told = noonbell("task", "list")
    assert told.code == 8
    assert "noonbell serve" in told.err


def test_a_task_is_made_with_its_timeout_retries_and_headers(noonbell):
    made = noonbell(
        *("task", "create", "call", "--url", "http://127.0.0.1:9/", "--timeout", "7.5", "--retries", "3"),
        *("--header", "X-Team: billing", "--header", "Accept:text/plain"),
    )
    assert made.code == 0, made.err
    task = noonbell("task", "get", "call", "-o", "json").json
    assert (task["timeout_seconds"], task["retry_policy"]["max_retries"]) == (7.5, 3)
    assert task["headers"] == {"X-Team": "***", "Accept": "text/plain"}
    assert noonbell("task", "create", "bad", "--url", "http://127.0.0.1:9/", "--header", "X-Team").code == 2


def test_a_field_of_an_object_is_set_and_the_others_stay(noonbell):
    call = ("task", "create", "call", "--url", "http://127.0.0.1:9/", "--retries", "2")
    made = noonbell(*call, "--set", 'retry_policy={"initial_delay": 1}', "--set", "labels.team=billing")
    assert made.code == 0, made.err
    policy = noonbell("task", "get", "call", "-o", "json").json["retry_policy"]
    assert (policy["max_retries"], policy["initial_delay"]) == (2, 1)
    assert noonbell("task", "edit", "call", "--set", "retry_policy.max_retries=3", "--set", "labels.a.b=x").code == 0
    task = noonbell("task", "get", "call", "-o", "json").json
    assert (task["retry_policy"]["max_retries"], task["retry_policy"]["initial_delay"]) == (3, 1)
    assert task["labels"] == {"team": "billing", "a.b": "x"}


def test_a_call_is_made_with_its_keys(noonbell, target):
    keys = ("--concurrency-key", "acme", "--max-per-key", "2", "--rate-key", "of acme")
    made = noonbell("call", target.url("/ok"), "--queue", "partners", "--delay", "10m", *keys, "-o", "json")
    assert made.code == 0, made.err
    run = noonbell("run", "get", str(made.json["run_id"]), "-o", "json").json
    call = run["call"]
    assert (call["concurrency_key"], call["max_per_key"], call["rate_key"]) == ("acme", 2, "of acme")
    assert noonbell("call", target.url("/ok"), "--rate-key", "").code != 0
    for _ in range(2):
        noonbell("call", target.url("/hold/on"), "--concurrency-key", "acme")
    (line,) = noonbell("task", "keys", "calls:http", "-o", "json").json
    assert (line["key"], line["waiting"], line["running"]) == ("acme", 1, 1)
    head, row = noonbell("task", "keys", "calls:http").out.splitlines()
    assert head.split() == ["KEY", "WAITING", "OLDEST", "BLOCKED", "BY", "RUN", "NEXT", "RUN"]
    assert (row.split()[:2], row.split()[-1]) == (["acme", "1"], str(line["next_run_id"]))


def test_a_task_is_made_with_the_body_as_it_is_given(noonbell):
    call = ("task", "create", "call", "--url", "http://127.0.0.1:9/", "--method", "POST")
    assert noonbell(*call, "--body", '{"run": "{{run_id}}"}').code == 0
    assert noonbell("task", "get", "call", "-o", "json").json["body_template"] == '{"run": "{{run_id}}"}'
    assert noonbell(*call, "--body", "x", "--data", "y").code == 2


def test_spans_are_taken_where_seconds_are(noonbell, target):
    noonbell("task", "create", "t", "--url", target.url("/ok"), "--timeout", "1m30s")
    assert noonbell("task", "get", "t", "-o", "json").json["timeout_seconds"] == 90
    assert noonbell("task", "edit", "t", "--timeout", "45").code == 0
    assert noonbell("task", "get", "t", "-o", "json").json["timeout_seconds"] == 45
    later = noonbell("trigger", "t", "--delay", "10m", "-o", "json").json["run_id"]
    assert noonbell("run", "get", str(later), "-o", "json").json["status"] == "SCHEDULED"
    assert noonbell("trigger", "t", "--wait", "--timeout", "1m").code == 0


def test_a_time_zone_that_the_server_does_not_know_is_answered_with_the_nearest(noonbell):
    told = noonbell("task", "create", "t", "--cron", "@daily", "--url", "http://a.test/", "--tz", "Europe/Berln")
    assert told.code == 1
    assert "timezone" in told.err
    assert "did you mean Europe/Berlin" in told.err


def test_several_runs_are_retried_at_once(noonbell, target):
    noonbell("task", "create", "bad", "--url", target.url("/status/500"))
    noonbell("task", "create", "good", "--url", target.url("/ok"))
    ids = [noonbell("trigger", name, "--wait", "-o", "name").out.strip() for name in ("bad", "good")]
    told = noonbell("run", "retry", *ids, "--wait")
    assert told.code == 6
    assert ["SUCCESS" in line for line in told.out.splitlines()] == [False, True]
    assert len(noonbell("run", "retry", *ids, "-o", "name").out.split()) == 2


def test_the_runs_of_a_task_are_listed_with_the_task(noonbell, target):
    for name in ("a", "b"):
        noonbell("task", "create", name, "--url", target.url("/ok"))
        noonbell("trigger", name, "--wait")
    told = noonbell("task", "runs", "a", "--status", "success", "-o", "json")
    assert [run["task_name"] for run in told.json] == ["a"]
    assert noonbell("task", "runs", "c").code == 3


def test_queues_that_a_worker_listens_to_are_listed_while_they_are_empty(noonbell):
    assert {"default", "http"} <= set(noonbell("queue", "list", "-o", "name").out.split())


def test_how_much_is_logged_is_an_option(nodes, sqlite_url):
    node = nodes.launch("--store", sqlite_url, "--port", "0", "--no-scheduler", "--log-level", "warning")
    until(lambda: "no scheduler is running" in node.log, "a warning")
    assert "is ready" not in node.log


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_editing_without_a_terminal_names_the_option_and_starts_no_editor(noonbell, target, tmp_path, monkeypatch):
    monkeypatch.setenv("EDITOR", f"touch {tmp_path}/edited")
    noonbell("task", "create", "t", "--url", target.url("/ok"))
    told = noonbell("task", "edit", "t")
    assert (told.code, told.out) == (2, "")
    assert "--set FIELD=VALUE" in told.err
    assert not (tmp_path / "edited").exists()


def test_a_task_is_edited_with_the_options_that_made_it(noonbell, target):
    noonbell("task", "create", "t", "--every", "1h", "--url", target.url("/ok"), "--header", "X-Team: billing")
    changed = noonbell(
        *("task", "edit", "t", "--cron", "0 2 * * *", "--tz", "Asia/Shanghai", "--method", "POST", "--timeout", "7"),
        *("--retries", "3", "--body", "hello", "--payload", '{"n": 1}', "--header", "x-team: sales"),
        *("--header", "Accept: text/plain", "--set", "priority=7"),
    )
    assert changed.code == 0, changed.err
    task = noonbell("task", "get", "t", "-o", "json").json
    assert (task["cron_expr"], task["timezone"], task["http_method"]) == ("0 0 2 * * *", "Asia/Shanghai", "POST")
    assert (task["timeout_seconds"], task["retry_policy"]["max_retries"], task["priority"]) == (7, 3, 7)
    assert (task["body_template"], task["payload"]) == ("hello", {"n": 1})
    assert task["headers"] == {"x-team": "***", "Accept": "text/plain"}
    noonbell("trigger", "t", "--wait")
    assert lower(target.at("/ok")[0].headers)["x-team"] == "sales"


def test_a_header_that_is_added_leaves_the_others_as_they_are(noonbell, target):
    noonbell("task", "create", "t", "--url", target.url("/ok"), "--header", "X-Team: billing")
    assert noonbell("task", "edit", "t", "--header", "Accept: text/plain").code == 0
    noonbell("trigger", "t", "--wait")
    assert lower(target.at("/ok")[0].headers)["x-team"] == "billing"


def test_a_task_is_shown_by_what_differs_from_the_defaults_and_agrees_with_the_list(noonbell, target):
    noonbell("task", "create", "t", "--cron", "*/5 * * * *", "--tz", "Europe/Berlin", "--url", target.url("/ok"))
    noonbell("task", "edit", "t", "--timeout", "45")
    (_, listed) = noonbell("task", "list").out.splitlines()
    shown = noonbell("task", "get", "t")
    head, own, state = (part.splitlines() for part in shown.out.split("\n\n"))
    assert head[:2] == ["t  ENABLED", "schedule   */5 * * * * Europe/Berlin"]
    assert "*/5 * * * * Europe/Berlin" in listed
    assert [line.split()[0] for line in own] == ["target_url", "timeout_seconds"]
    assert [line.split()[0] for line in state] == ["id", "version", "managed_by", "created_at", "updated_at"]
    assert shown.err == "the other fields have their defaults: noonbell task get t --all\n"
    whole = noonbell("task", "get", "t", "--all")
    assert (whole.err, whole.out.splitlines()[1]) == ("", head[1])
    assert "misfire_policy" in whole.out
    assert "0 */5" not in whole.out + shown.out, "the seconds that nobody wrote"
    complete = noonbell("task", "get", "t", "-o", "json").json
    assert (complete["cron_expr"], complete["misfire_policy"]) == ("0 */5 * * * *", "FIRE_NOW")
    assert noonbell("task", "get", "t", "-o", "json").err == ""


def test_the_data_of_a_job_that_is_edited_is_its_payload(noonbell):
    noonbell("task", "create", "mail", "--job", "send", "--data", '{"to": "Ada"}')
    assert noonbell("task", "edit", "mail", "--data", '{"to": "Grace"}').code == 0
    assert noonbell("task", "get", "mail", "-o", "json").json["payload"] == {"to": "Grace"}


def test_a_task_is_paused_with_a_reason_and_an_end_and_resumed_by_the_server(noonbell, server, target):
    noonbell("task", "create", "t", "--cron", "0 2 * * *", "--url", target.url("/ok"))
    told = noonbell("task", "pause", "t", "--reason", "the vendor is down", "--for", "2h").out
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"
    assert re.fullmatch(rf"t  DISABLED  until {moment}: the vendor is down\n", told), told
    assert noonbell("task", "get", "t").out.splitlines()[0] == told.strip()
    end = (datetime.now(UTC) + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = datetime.fromisoformat(end).astimezone().isoformat(" ")
    assert noonbell("task", "disable", "t", "--until", end).out == f"t  DISABLED  until {said}\n"
    both = noonbell("task", "pause", "t", "--until", end, "--for", "1h")
    assert (both.code, "use only one" in both.err) == (2, True), both.err
    past = noonbell("task", "pause", "t", "--until", "2020-01-01T00:00:00Z")
    assert past.code != 0
    assert "is not within the next 366 days" in past.err
    assert noonbell("task", "pause", "t", "--for", "1s").code == 0
    until(lambda: server.ask("GET", "/tasks/name:t")["status"] == "ENABLED", "the pause to end")
    assert server.ask("GET", "/audit")["items"][0]["actor"] == "scheduler"


def test_pause_and_resume_are_other_words_for_disable_and_enable(noonbell, target):
    noonbell("task", "create", "t", "--cron", "@daily", "--url", target.url("/ok"))
    assert noonbell("task", "pause", "t").out.split() == ["t", "DISABLED"]
    assert noonbell("task", "resume", "t").out.split() == ["t", "ENABLED"]
    assert noonbell("task", "show", "t", "-o", "name").out == "t\n"


def test_a_task_without_a_schedule_says_how_it_is_started(noonbell, target):
    made = noonbell("task", "create", "two words", "--url", target.url("/ok"))
    assert "runs only on demand: noonbell trigger 'two words'" in made.out
    timed = noonbell("task", "create", "timed", "--every", "1h", "--url", target.url("/ok"))
    assert "on demand" not in timed.out + timed.err


def test_what_is_not_there_is_named_with_what_is_near(noonbell, target):
    noonbell("task", "create", "nightly", "--url", target.url("/ok"))
    for words in (("task", "get"), ("task", "edit", "--set", "priority=1"), ("trigger",), ("run", "list", "--task")):
        told = noonbell(*words, "nigtly")
        assert (told.code, told.out) == (3, "")
        assert told.err == "error: there is no task 'nigtly'; did you mean 'nightly'?\n"
    assert noonbell("task", "get", "a/b 50%").err == "error: there is no task 'a/b 50%'\n"
    assert noonbell("task", "get", "99").err.startswith("error: there is no task 99; noonbell task list")
    assert noonbell("run", "get", "99").err.startswith("error: there is no run 99; noonbell run list")
    assert "noonbell run list --task nightly" in noonbell("run", "get", "nightly").err
    assert noonbell("run", "list", "--task", "nightly").code == 0


def test_a_backfill_is_made_in_parts_and_shows_how_far_it_is(noonbell):
    noonbell("task", "create", "nightly", "--job", "report", "--cron", "* * * * *")
    stretch = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T23:59:00Z")
    shown = noonbell("task", "backfill", "nightly", *stretch, "--dry-run")
    assert (shown.code, len(shown.out.splitlines())) == (0, 2881)
    assert shown.out.splitlines()[-1] == "2880 slots (nothing was written)"
    made = noonbell("task", "backfill", "nightly", *stretch)
    assert (made.code, made.out) == (0, "2880 runs created, 0 slots already had one\n")
    assert made.err.split("\n")[0].endswith(" 25 %"), "a line for each quarter where there is no terminal"
    again = json.loads(noonbell("task", "backfill", "nightly", *stretch, "-o", "json").out)
    assert (again["count"], again["created"], again["existing"]) == (2880, 0, 2880)
    refused = noonbell("task", "backfill", "nightly", "--from", "yesterday")
    assert (refused.code, "from" in refused.err) == (1, True)


def test_the_depth_of_a_queue_is_printed_with_a_dash_where_nothing_was_counted(noonbell):
    def is_counted() -> bool:
        return any(each["samples"] for each in noonbell("queue", "depth", "http", "-o", "json").json["items"])

    until(is_counted, "a sample")
    told = noonbell("queue", "depth", "http").out.splitlines()
    assert told[0].split() == ["FROM", "WAITING", "MOST", "LONGEST", "WAIT", "SAMPLES"]
    assert told[1].split()[2:] == ["–", "–", "–", "0"]
    assert any(line.split()[2:4] == ["0", "0"] for line in told[1:])


def test_figures_of_a_queue_and_of_its_worker_are_printed_hour_by_hour(noonbell, target):
    noonbell("task", "create", "hello", "--every", "1h", "--url", target.url("/ok"))
    noonbell("trigger", "hello", "--wait")
    told = noonbell("stats", "queue", "http", "-o", "json").json
    assert told["total"]["runs"] == 1
    lines = noonbell("stats", "queue", "http").out.splitlines()
    assert lines[0].split() == ["FROM", "ENDED", "FAILED", "QUEUE", "TIME", "DURATION"]
    assert any(line.split()[2:4] == ["1", "0"] for line in lines[1:])
    worker = noonbell("run", "list", "-o", "json").json[0]["worker_id"]
    told = noonbell("stats", "worker", worker, "-o", "json").json
    assert (told["worker_id"], told["total"]["runs"]) == (worker, 1)
    assert noonbell("stats", "worker", worker).out.splitlines()[0].split()[:2] == ["FROM", "BUSY"]
    assert noonbell("stats", "worker", "nobody").code != 0


def test_a_queue_that_nothing_is_on_is_noted_with_what_is_near(noonbell):
    assert "'htp'; did you mean 'http'?" in noonbell("queue", "pause", "htp").err
    assert noonbell("queue", "pause", "http").err == "paused http\n"
    assert "'htp'; did you mean 'http'?" in noonbell("queue", "drain", "htp", "-y").err


def test_a_slip_in_the_name_of_a_queue_changes_none(noonbell, server):
    for words in (("pause", "http", "htpt"), ("limit", "htpt", "--concurrency", "1"), ("quiet", "htpt", "--none")):
        refused = noonbell("queue", *words)
        assert (refused.code, refused.out) == (3, "")
        assert "there is no queue 'htpt'; did you mean 'http'? To set it before it is used, add --new" in refused.err
    queues = {each["name"]: each["paused"] for each in server.ask("GET", "/queues")["items"]}
    assert ("htpt" in queues, queues["http"]) == (False, False)
    assert noonbell("queue", "pause", "htpt", "--new").err == "paused htpt\n"
    assert "htpt" in noonbell("queue", "list", "-o", "name").out.split()
    assert noonbell("queue", "resume", "htpt").err == "resumed htpt\n"
    assert "htpt" not in noonbell("queue", "list", "-o", "name").out.split()
    far = noonbell("queue", "pause", "letters")
    assert (far.code, far.err.splitlines()[-1]) == (0, "paused letters")


def test_a_queue_is_paused_with_a_reason_that_the_list_shows(noonbell, server):
    assert (
        noonbell("queue", "pause", "http", "--reason", "the vendor is down").err == "paused http: the vendor is down\n"
    )
    assert re.search(r"^http +paused: the vendor is down ", noonbell("queue", "list").out, re.MULTILINE)
    assert noonbell("queue", "pause", "http").code == 0
    assert noonbell("queue", "limit", "http", "--rate", "10/m").out == "http  10 starts per 60 s\n"
    shown = noonbell("queue", "show", "http").out.splitlines()
    assert re.fullmatch(r"http  paused: the vendor is down  (now|\d+ s ago) \(.*\)", shown[0])
    assert shown[1] == "http  10 starts per 60 s"
    assert noonbell("queue", "get", "htpt").err.endswith("'htpt'; did you mean 'http'?\n")
    assert server.ask("GET", "/queues/http")["pause"]["reason"] == "the vendor is down"


def test_a_calendar_that_is_not_there_is_answered_with_what_is_near(noonbell):
    assert noonbell("api", "PUT", "/calendars/china", "-d", '{"closed_weekdays": [0, 6]}').code == 0
    told = noonbell("calendar", "show", "chna")
    assert (told.code, told.err) == (3, "error: there is no calendar 'chna'; did you mean 'china'?\n")


def test_a_channel_whose_name_is_taken_is_answered_with_what_changes_it(noonbell):
    words = ("api", "POST", "/alerts/channels", "-d", '{"name": "ops", "url": "http://127.0.0.1:9/"}')
    assert noonbell(*words).code == 0
    told = noonbell(*words)
    assert (told.code, "noonbell api PUT /alerts/channels/NAME changes it" in told.err) == (5, True)


def test_calendars_come_from_files_and_say_what_they_move(noonbell, target, tmp_path):
    file = tmp_path / "days.yaml"
    file.write_text(
        "calendars:\n  - {name: c, closed_weekdays: [0, 6], closed: ['2030-10-01/2030-10-07']}\n"
        f"tasks:\n  - {{name: t, cron_expr: '0 9 * * *', target_url: '{target.url('/ok')}',\n"
        "      calendar: {name: c, when_closed: next_open_day}}\n"
    )
    assert noonbell("validate", str(file)).code == 0
    assert noonbell("diff", str(file)).code == 1
    assert noonbell("apply", str(file)).code == 0
    assert noonbell("diff", str(file)).code == 0
    assert noonbell("calendar", "list", "-o", "name").out.split() == ["c"]
    assert "closed  weekday" in noonbell("calendar", "show", "c", "--days", "31").out
    holidays = tmp_path / "holidays.ics"
    day = json.loads(noonbell("task", "list", "-o", "json").out)[0]["next_fire_at"][:10].replace("-", "")
    holidays.write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:t\nBEGIN:VEVENT\nUID:1\nDTSTAMP:20260101T000000Z\n"
        f"DTSTART;VALUE=DATE:{day}\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    found = noonbell("calendar", "diff", str(holidays), "--name", "c")
    assert found.code == 1
    assert "t: slot " in found.out
    written = tmp_path / "written.yaml"
    assert noonbell("export", "-o", str(written)).err == f"1 task and 1 calendar written to {written}\n"
    assert noonbell("validate", str(written)).err == "1 task is valid, 1 calendar too\n"
    assert noonbell("diff", str(written), "--set", "days").code == 0
    assert "closed_weekdays" in written.read_text()
    assert noonbell("calendar", "import", str(holidays), "--name", "c").code == 2
    assert (
        noonbell("calendar", "import", str(holidays), "--name", "c", "--yes").out
        == "c: saved, revision 2; 1 task changed\n"
    )
    assert noonbell("calendar", "delete", "c", "--yes").code == 5
    assert noonbell("task", "delete", "t", "--yes").code == 0
    assert noonbell("calendar", "delete", "c", "--yes").code == 0


def test_a_file_with_a_task_that_is_refused_changes_no_calendar(noonbell, target, tmp_path):
    file = tmp_path / "days.yaml"
    task = f"{{name: t, cron_expr: '0 9 * * *', target_url: '{target.url('/ok')}', calendar: {{name: c}}}}"
    file.write_text(f"calendars: [{{name: c}}]\ntasks: [{task}]\n")
    assert noonbell("apply", str(file), "--set", "mine").code == 0
    file.write_text(f"calendars: [{{name: c, closed_weekdays: [0]}}, {{name: d}}]\ntasks: [{task}]\n")
    assert noonbell("apply", str(file), "--set", "yours").code == 5
    assert noonbell("calendar", "list", "-o", "name").out.split() == ["c"]
    assert json.loads(noonbell("calendar", "show", "c", "-o", "json").out)["revision"] == 1
    assert noonbell("apply", str(file), "--set", "mine").code == 0
    assert noonbell("calendar", "list", "-o", "name").out.split() == ["c", "d"]


def test_what_is_wrong_with_calendars_of_a_file_names_each(noonbell, tmp_path):
    file, other = tmp_path / "days.yaml", tmp_path / "other.yaml"
    file.write_text("calendars:\n  - {name: c}\n  - {closed: []}\n  - 5\n  - {name: c}\ntasks: []\n")
    for words in (("validate", "-f"), ("diff", "-f"), ("calendar", "diff"), ("calendar", "import")):
        told = noonbell(*words, str(file)).err
        assert f"{file}: calendars[1]: is not an object with a name" in told
        assert f"{file}: calendars[2]: is not an object with a name" in told
        assert f"{file}: calendars[c]: is listed twice" in told
    file.write_text("calendars:\n  - {name: c}\n  - {name: d, closed: ['2026-02-30']}\ntasks:\n  - {name: t, sla: 7}\n")
    told = noonbell("validate", str(file)).err
    assert "calendars[d].closed[0]: is '2026-02-30'" in told
    assert "tasks[t].sla: is 7; expected an object" in told
    for words in (("calendar", "diff"), ("calendar", "import")):
        assert "calendars[d].closed[0]: is '2026-02-30'" in noonbell(*words, str(file)).err
    file.write_text("calendars: [{name: e}, {name: f}]\ntasks: []\n")
    other.write_text("calendars: [{name: e}]\n")
    assert "calendars[e]: is there twice" in noonbell("validate", str(file), str(other)).err
    named = noonbell("calendar", "diff", str(file)).out
    assert named.startswith("calendar e:\n    0 slots move")
    assert "calendar f:\n    0 slots move" in named
    assert named.count("0 tasks use it; the calendar is new\n") == 2
    assert noonbell("apply", str(file)).err.count("; the calendar is new\n") == 2
    file.write_text("calendars: [{name: e, closed: ['2026-12-24']}]\ntasks: []\n")
    assert "0 slots move; 0 tasks use it\n" in noonbell("apply", str(file)).err


def test_the_payload_is_also_called_payload(noonbell, target):
    noonbell("task", "create", "t", "--url", target.url("/ok"), "--method", "POST", "--data", "{{payload.who}}")
    assert noonbell("trigger", "t", "--payload", '{"who": "Ada"}', "--wait").code == 0
    assert noonbell("task", "edit", "t", "--payload", '{"who": "Grace"}').code == 0
    assert noonbell("trigger", "t", "--wait").code == 0
    assert [arrival.body for arrival in target.at("/ok")] == ["Ada", "Grace"]


def test_several_tasks_are_deleted_at_once_or_none(noonbell, target):
    for name in ("a", "b", "c"):
        noonbell("task", "create", name, "--url", target.url("/ok"))
    assert noonbell("task", "delete", "a", "missing", "--yes").code == 3
    assert noonbell("task", "list", "-o", "name").out.split() == ["a", "b", "c"]
    assert noonbell("task", "delete", "a", "c", "a", "--yes").err == "deleted a\ndeleted c\n"
    assert noonbell("task", "list", "-o", "name").out.split() == ["b"]


@pytest.mark.parametrize(
    "words",
    [
        ("task", "delete", "t"),
        ("queue", "drain", "http"),
        ("queue", "clean", "http"),
        ("run", "clean", "1"),
        ("task", "clean", "t"),
    ],
    ids=" ".join,
)
def test_a_question_that_nobody_can_answer_names_the_option(noonbell, target, words):
    noonbell("task", "create", "t", "--url", target.url("/ok"))
    told = noonbell(*words)
    assert (told.code, told.out) == (2, "")
    assert "--yes" in told.err
    assert noonbell("task", "get", "t").code == 0


def test_who_answers_no_hears_that_nothing_was_deleted(noonbell, server, target):
    noonbell("task", "create", "kept", "--url", target.url("/ok"))
    told = noonbell("task", "delete", "kept", given="n\n")
    assert (told.code, told.out, told.err.splitlines()[-1].rpartition(": ")[2]) == (1, "", "nothing deleted")
    told = noonbell("queue", "drain", "default", given="n\n")
    assert (told.code, told.err.splitlines()[-1].rpartition(": ")[2]) == (1, "nothing canceled")
    assert [task["name"] for task in server.ask("GET", "/tasks")["items"]] == ["kept"]


def test_a_name_where_a_schedule_is_wanted_leads_to_the_task(noonbell, target):
    noonbell("task", "create", "hello", "--url", target.url("/ok"))
    told = noonbell("next", "hello")
    assert told.code == 1
    assert told.err.startswith("error: EXPR is 'hello', 1 field; expected a cron expression")
    assert "noonbell task get hello" in told.err
    assert "noonbell task get" not in noonbell("next", "hullo").err


def test_a_run_that_ran_is_explained_without_saying_so_twice(noonbell, target):
    noonbell("task", "create", "t", "--url", target.url("/ok"))
    run_id = noonbell("trigger", "t", "-o", "name", "--wait").out.strip()
    assert noonbell("run", "explain", run_id).out.startswith(f"It ran: run {run_id} ")


def test_a_server_on_another_port_says_how_commands_find_it(server):
    assert f"NOONBELL_URL=http://127.0.0.1:{server.port}; tokens: not asked for on this machine\n" in server.log


def test_alerts_are_listed_acknowledged_and_muted(noonbell, server, target):
    server.ask("POST", "/alerts/channels", {"name": "cli", "url": target.url("/alerts")}, expect=201)
    server.ask("POST", "/alerts/rules", {"name": "cli-fails", "kind": "failed", "tasks": ["cli-*"]}, expect=201)
    assert noonbell("alert", "test", "cli").err.splitlines() == ["delivered to cli"]
    made = noonbell("alert", "mute", "--for", "2h", "--task", "cli-*", "--label", "team=x", "--reason", "it moves")
    mute_id = made.out.split()[0]
    head, line = noonbell("alert", "mutes").out.splitlines()
    assert head.split() == ["ID", "RULE", "TASKS", "LABELS", "UNTIL", "BY", "REASON"]
    assert line.split()[:5] == [mute_id, "every", "rule", "cli-*", "team=x"]
    assert noonbell("alert", "mute", "--for", "0s").code == 2
    assert noonbell("alert", "unmute", mute_id).err.splitlines() == [f"ended mute {mute_id}"]
    assert noonbell("alert", "unmute", mute_id).code != 0
    task = server.create(name="cli-bad", target_url=target.url("/status/400"))
    server.ask("POST", f"/tasks/{task}/trigger")
    until(lambda: noonbell("alert", "list", "-o", "json").json, "the alert")
    assert noonbell("alert", "ack", "cli-fails", f"task:{task}", "--note", "we look").code == 0
    [shown] = noonbell("alert", "list", "-o", "json").json
    assert (shown["note"], shown["acknowledged_at"] is None) == ("we look", False)
    assert "acknowledged by" in noonbell("alert", "list").out
    assert noonbell("alert", "ack", "cli-fails", f"task:{task}", "--withdraw").code == 0
    assert noonbell("alert", "ack", "cli-fails", "task:0").code != 0


def test_what_alerts_sent_is_listed_with_what_came_of_it(noonbell, server, target):
    for name, url in (("up", target.url("/alerts")), ("down", "http://127.0.0.1:9/")):
        server.ask("POST", "/alerts/channels", {"name": name, "url": url}, expect=201)
        noonbell("alert", "test", name)
    head, newest, oldest = noonbell("alert", "deliveries").out.splitlines()
    assert head.split() == ["ID", "CHANNEL", "ALERT", "STATUS", "ATTEMPTS", "CODE", "CREATED", "ERROR"]
    assert newest.split()[1:8] == ["down", "Noonbell:", "test", "alert", "FAILED", "1", "–"]
    assert "port 9 belongs to another protocol" in newest
    assert oldest.split()[1:8] == ["up", "Noonbell:", "test", "alert", "DELIVERED", "1", "200"]
    assert len(noonbell("alert", "deliveries", "--limit", "1").out.splitlines()) == 2
    (only,) = noonbell("alert", "deliveries", "--channel", "up", "-o", "json").json
    assert (only["channel"], only["status"]) == ("up", "DELIVERED")
    assert noonbell("alert", "deliveries", "-o", "name").out.split()[1] == str(only["id"])
    older = noonbell("alert", "deliveries", "--before", newest.split()[0], "-o", "json").json
    assert older == [only]


def test_a_subscription_from_its_making_to_its_removal(noonbell, server, target):
    made = noonbell("subscription", "create", "billing", target.url("/hook"), "--type", "task.created", "-o", "json")
    assert (made.code, made.json["secret"][:6], made.json["types"]) == (0, "whsec_", ["task.created"])
    assert "shown only once" in made.err
    assert "billing" in noonbell("subscription", "create", "billing", target.url("/hook")).err
    head, line = noonbell("subscription", "list").out.splitlines()
    assert head.split() == ["NAME", "STATE", "URL", "TYPES", "BEHIND", "WAITING", "DELIVERED"]
    assert line.split()[:2] == ["billing", "active"]
    assert "hook" not in line, "an address may hold a secret"

    def arrived(task_id: int) -> list[dict]:
        bodies = [json.loads(arrival.body) for arrival in target.at("/hook")]
        return [body for body in bodies if body["data"]["task_id"] == task_id]

    assert noonbell("subscription", "test", "billing").code == 0
    assert [json.loads(arrival.body)["type"] for arrival in target.at("/hook")] == ["subscription.test"]
    first = server.create(name="first", target_url=target.url("/ok"))
    (created,) = until(lambda: arrived(first), "the event")
    assert created["type"] == "task.created"

    def noted() -> list[dict]:
        listed = noonbell("subscription", "deliveries", "billing", "--status", "DELIVERED", "-o", "json").json
        return [one for one in listed if one["event_id"] == created["id"]]

    (once,) = until(noted, "the delivery to be noted")
    assert once["response_code"] == 200
    shown = noonbell("subscription", "delivery", "billing", str(once["id"]), "-o", "json").json
    assert shown["id"] == once["id"]
    assert noonbell("subscription", "replay", "billing", str(once["id"])).code == 0
    until(lambda: len(arrived(first)) == 2, "the replay of one delivery")
    assert noonbell("subscription", "replay", "billing", "--from", "oldest").code == 0
    until(lambda: len(arrived(first)) == 3, "everything from the oldest event on")
    assert {body["id"] for body in arrived(first)} == {created["id"]}
    assert noonbell("subscription", "replay", "billing").code == 2

    assert noonbell("subscription", "disable", "billing").err.splitlines() == ["disabled billing"]
    assert noonbell("subscription", "list").out.splitlines()[1].split()[1] == "off"
    second = server.create(name="second", target_url=target.url("/ok"))
    assert noonbell("subscription", "enable", "billing").err.splitlines() == ["enabled billing"]
    until(lambda: arrived(second), "the event of the time in which it was off")

    assert noonbell("subscription", "remove", "billing", "--yes").err.splitlines() == ["removed billing"]
    assert noonbell("subscription", "show", "billing").code == 3
    assert noonbell("subscription", "list", "-o", "json").json == []


def test_a_subscription_whose_receiver_refuses_is_named(noonbell, server, target):
    noonbell("subscription", "create", "broken", target.url("/status/500"), "--type", "task")
    tried = noonbell("subscription", "test", "broken", "-o", "json")
    assert (tried.code, tried.json["delivered"]) == (1, False)
    server.create(name="first", target_url=target.url("/ok"))
    until(lambda: noonbell("subscription", "list").out.splitlines()[1].split()[1] == "failing", "it to be failing")
    (waits, *_) = noonbell("subscription", "deliveries", "broken", "--status", "PENDING", "-o", "json").json
    assert (waits["type"], waits["response_code"]) == ("task.created", 500)


def test_a_queue_gets_quiet_hours_and_keeps_its_limits(noonbell, server):
    server.ask("PUT", "/queues/mail", {"concurrency": 3, "rate_limit": {"max": 10, "per_seconds": 60}})
    before = server.ask("GET", "/queues/mail")
    given = ("--quiet", "22:00-06:00", "--quiet", "sat,sun 06:00-12:00", "--tz", "Europe/Berlin", "--spread", "5m")
    told = noonbell("queue", "quiet", "mail", *given)
    assert (told.code, told.err.splitlines()[-1]) == (0, "mail has quiet hours")
    night = {"from": "22:00", "to": "06:00", "days": [], "timezone": "Europe/Berlin", "what": "hold"}
    morning = {**night, "from": "06:00", "to": "12:00", "days": ["sat", "sun"]}
    there = server.ask("GET", "/queues/mail")
    assert there == {**before, "quiet": [night, morning], "spread_seconds": 300}
    assert noonbell("queue", "quiet", "mail", "--quiet", "22:00-06:00", "--skip").code == 0
    there = server.ask("GET", "/queues/mail")
    assert there["quiet"] == [{**night, "timezone": None, "what": "skip"}]
    assert (there["concurrency"], there["spread_seconds"]) == (3, 300)
    wrong = noonbell("queue", "quiet", "mail", "--quiet", "22:00-25:00")
    assert (wrong.code != 0, "quiet[0].to" in wrong.err) == (True, True)
    assert noonbell("queue", "quiet", "mail").code == 2
    assert server.ask("GET", "/queues/mail") == there
    assert noonbell("queue", "quiet", "mail", "--none").err.splitlines()[-1] == "mail has no quiet hours"
    assert server.ask("GET", "/queues/mail")["quiet"] == []


def test_a_queue_is_limited_and_what_is_not_named_stays(noonbell, server):
    server.ask("PUT", "/queues/mail", {"quiet": [{"from": "22:00", "to": "06:00"}]})
    before = server.ask("GET", "/queues/mail")
    assert noonbell("queue", "limit", "mail").out == "mail  no limit\n"
    assert noonbell("queue", "limit", "mail", "--concurrency", "3").out == "mail  3 at a time\n"
    told = noonbell("queue", "limit", "mail", "--rate", "100/1m")
    assert told.out == "mail  3 at a time, 100 starts per 60 s\n"
    rate = {"max": 100, "per_seconds": 60, "key": None}
    assert server.ask("GET", "/queues/mail") == {**before, "concurrency": 3, "rate_limit": rate}
    for option, value in (("rate", "100"), ("rate", "x/1m"), ("rate", "0/1m"), ("concurrency", "-1")):
        assert noonbell("queue", "limit", "mail", f"--{option}", value).code != 0, value
    assert noonbell("queue", "limit", "mail", "--rate", "none").out == "mail  3 at a time\n"
    assert noonbell("queue", "limit", "mail", "--concurrency", "none", "-o", "json").json == before


def test_all_that_a_filter_finds_is_changed_on_the_server(noonbell, server, target):
    for number in range(3):
        server.create(name=f"b-{number}", target_url=target.url("/status/500"))
    server.ask("POST", "/tasks/name:b-1/disable")
    paused = noonbell("bulk", "start", "disable-tasks", "--name", "b-", "--wait")
    assert paused.code == 0, paused.err
    assert "2 of 3, 1 skipped: already (1)" in paused.out
    operation = json.loads(noonbell("bulk", "list", "-o", "json").out)[0]
    assert (operation["kind"], operation["filter"]) == ("disable_tasks", {"name": "b-"})
    number = str(operation["id"])
    assert noonbell("bulk", "skipped", number, "-o", "json").json[0]["why"] == "already"
    assert noonbell("bulk", "undo", number, "--wait").code == 0
    assert server.ask("GET", "/tasks?status=DISABLED")["total"] == 1
    for number in range(2):
        server.wait_for_run(server.trigger(server.ask("GET", f"/tasks/name:b-{number}")["id"]))
    retried = noonbell("bulk", "start", "retry-runs", "--status", "failed", "--since", "1h", "--wait", "-o", "json")
    assert (retried.json["status"], retried.json["done"]) == ("DONE", 2)
    changed = noonbell("bulk", "start", "change-tasks", "--name", "b-", "--set", "jitter_seconds=30", "--wait")
    assert "3 of 3" in changed.out
    for wrong in (("retry-runs",), ("retry-runs", "--name", "x"), ("change-tasks", "--all"), ("nonsense", "--all")):
        assert noonbell("bulk", "start", *wrong).code != 0
    assert noonbell("bulk", "start", "delete-tasks", "--name", "b-", given="n\n").code == 1
    assert noonbell("bulk", "start", "delete-tasks", "--name", "b-", "--yes", "--wait").code == 0
    assert server.ask("GET", "/tasks?name=b-")["total"] == 0
