"""What people get wrong on the command line: one line that names what they wrote and what to write instead."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from noonbell.cli.root import _ELSEWHERE


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port on which each caller gets these bytes, whatever it says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller, contextlib.suppress(OSError):
                    caller.recv(65_536)
                    caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("text", ["hello", "{'a': 1}", "{a: 1}", ""])
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("trigger", "t"), "--data"),
        (("task", "trigger", "t"), "--data"),
        (("task", "create", "t", "--job", "j"), "--data"),
        (("task", "create", "t", "--job", "j"), "--payload"),
    ],
)
def test_data_that_is_no_json_is_refused_with_the_way_to_send_text(noonbell, monkeypatch, words, option, text):
    monkeypatch.setenv("NOONBELL_URL", "http://127.0.0.1:9")
    code, out, err = noonbell(*words, option, text)
    assert (code, out) == (2, "")
    assert f"{option}" in err
    assert "not JSON" in err
    assert f"to send it as text: {option} " in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("task", "create", "t", "--cron", "*/5", "*", "*", "*", "*", "--url", "http://a/"), "--cron '*/5 * * * *'"),
        (("task", "create", "t", "--cron=0", "2", "*", "*", "MON-FRI"), "--cron '0 2 * * MON-FRI'"),
        (("task", "create", "--cron", "0", "2", "a.txt", "b.txt", "c.txt", "d.txt"), "--cron '*/5 * * * *'"),
        (("task", "edit", "t", "--cron", "0", "2", "*", "*", "1,3"), "--cron '0 2 * * 1,3'"),
        (("next", "0", "2", "*", "*", "*", "-n", "3"), "noonbell next '0 2 * * *'"),
    ],
)
def test_a_cron_expression_without_quotes_is_answered_with_quotes(noonbell, words, told):
    code, out, err = noonbell(*words)
    assert (code, out) == (2, "")
    assert "quote the cron expression" in err
    assert err.rstrip().endswith(told)


@pytest.mark.parametrize("words", [("task", "get", "a", "b"), ("next", "@daily", "b"), ("run", "list", "0", "2")])
def test_other_words_too_many_are_no_cron_expression(noonbell, words):
    code, _, err = noonbell(*words)
    assert (code, "unexpected extra argument" in err) == (2, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api/v1", "http://127.0.0.1:9/api/v1/", "127.0.0.1:9/api/v1"])
def test_the_path_of_the_api_does_not_belong_into_the_setting(noonbell, monkeypatch, url):
    monkeypatch.setenv("NOONBELL_URL", url)
    code, out, err = noonbell("task", "list")
    assert (code, out) == (2, "")
    assert "leave /api/v1 out: NOONBELL_URL=http://127.0.0.1:9\n" in err


def test_https_where_no_tls_is_spoken_names_the_setting_and_http(noonbell, monkeypatch):
    with answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as port:
        monkeypatch.setenv("NOONBELL_URL", f"https://127.0.0.1:{port}")
        code, out, err = noonbell("task", "list")
    assert (code, out) == (8, "")
    assert f"is it http://127.0.0.1:{port}?" in err
    assert f"NOONBELL_URL is https://127.0.0.1:{port}\n" in err
    assert "SSL:" not in err


def test_http_where_tls_is_spoken_names_the_setting_and_https(noonbell, monkeypatch):
    with answering(b"\x15\x03\x01\x00\x02\x02\x46") as port:
        monkeypatch.setenv("NOONBELL_URL", f"http://127.0.0.1:{port}")
        code, out, err = noonbell("task", "list")
    assert (code, out) == (8, "")
    assert f"is it https://127.0.0.1:{port}?" in err
    assert f"NOONBELL_URL is http://127.0.0.1:{port}\n" in err


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found"])
def test_a_page_of_another_server_names_the_setting(noonbell, monkeypatch, status):
    page = b"HTTP/1.1 " + status + b"\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
    with answering(page) as port:
        monkeypatch.setenv("NOONBELL_URL", f"http://127.0.0.1:{port}")
        code, out, err = noonbell("task", "list")
    assert (code, out) == (8, "")
    assert "not as Noonbell does" in err
    assert f"NOONBELL_URL is http://127.0.0.1:{port}\n" in err


@pytest.mark.parametrize(
    "told", [b"text/plain\r\n\r\nhello", b"application/json\r\n\r\nhello", b"application/json\r\n\r\n[1]"]
)
@pytest.mark.parametrize("words", [("task", "list"), ("run", "list")])
def test_another_server_that_answers_is_no_noonbell(noonbell, monkeypatch, words, told):
    with answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: " + told) as port:
        monkeypatch.setenv("NOONBELL_URL", f"http://127.0.0.1:{port}")
        code, out, err = noonbell(*words)
    assert (code, out) == (8, "")
    assert f"http://127.0.0.1:{port} responds, but is not a Noonbell server; NOONBELL_URL is" in err


def test_the_body_of_a_call_in_data_is_json(noonbell, monkeypatch):
    monkeypatch.setenv("NOONBELL_URL", "http://127.0.0.1:9")
    call = ("task", "create", "t", "--url", "http://a/", "--data")
    code, out, err = noonbell(*call, "{a:1}")
    assert (code, out) == (2, "")
    assert "--data: is '{a:1}', which is not JSON" in err
    assert "--body sends a text as is" in err
    assert [noonbell(*call, body)[0] for body in ('{"a": 1}', '{"a": {{slot}}}')] == [8, 8], "there is no server"


def test_a_file_of_one_task_and_a_file_of_many_lead_to_each_other(noonbell, tmp_path):
    (tmp_path / "one.yaml").write_text("name: a\njob_type: x\n")
    (tmp_path / "many.yaml").write_text("tasks:\n- name: a\n  job_type: x\n")
    code, _, err = noonbell("apply", "one.yaml")
    assert (code, "noonbell task create -f one.yaml" in err) == (1, True)
    code, _, err = noonbell("task", "create", "-f", "many.yaml")
    assert (code, "noonbell apply many.yaml" in err) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("version",), ("--help",), ("next", "@daily"), ("help", "exit-codes")], ids=" ".join)
def test_a_disk_that_is_full_is_one_line(words):
    script = "from noonbell.cli import main; main()"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", script, *words], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("task", "rm", "x"), "there is no command 'task rm'; did you mean task delete?"),
        (("task", "ls"), "there is no command 'task ls'; did you mean task list?"),
        (("task", "lsit"), "there is no command 'task lsit'; did you mean task list?"),
        (("run", "stop", "1"), "there is no command 'run stop'; did you mean run cancel?"),
        (("token", "rm", "x"), "there is no command 'token rm'; did you mean token revoke?"),
        (("dump",), "there is no command 'dump'; noonbell backup FILE writes a whole store to a file: docs/how-to/"),
        (("flow", "list"), "there is no command 'flow'; a flow is a task with steps: noonbell apply FILE creates it"),
        (("alert", "channel"), "there is no command 'alert channel'; noonbell api GET /alerts/channels lists channels"),
        (("rules",), "there is no command 'rules'; noonbell api GET /alerts/channels lists channels"),
    ],
)
def test_words_of_other_tools_lead_to_ours(noonbell, words, told):
    code, out, err = noonbell(*words)
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_name_after_the_pause_of_everything_leads_to_the_pause_of_one(noonbell, verb):
    code, out, err = noonbell(verb, "nightly")
    assert (code, out) == (2, "")
    assert f"noonbell {verb} is about everything; of one: noonbell task {verb} NAME, noonbell queue {verb} NAME" in err


@pytest.mark.parametrize("text", ["5m", "every 5m", "@every 5m"])
def test_an_interval_in_the_place_of_a_cron_expression_leads_to_the_option(noonbell, text):
    code, out, err = noonbell("next", text)
    assert (code, out, "noonbell next --every 5m" in err) == (2, "", True)


def test_a_schedule_in_set_leads_to_its_option(noonbell):
    code, out, err = noonbell("task", "create", "t", "--url", "http://a/", "--set", "every=20s")
    assert (code, out, "use the option: --every 20s" in err) == (2, "", True)


def test_an_option_of_several_words_that_is_missing_names_them_in_one_line(noonbell):
    code, _, err = noonbell("token", "create", "--name", "ada")
    assert code == 2
    assert "Missing option '--role'. Choose from: viewer, worker, operator, admin; see noonbell" in err


def test_pages_that_a_hint_names_are_there():
    named = {page for text in _ELSEWHERE.values() for page in re.findall(r"docs/\S+\.md", text)}
    assert named
    assert [page for page in named if not (Path(__file__).parents[3] / page).is_file()] == []


@pytest.mark.parametrize("pair", [("--cron", "--every"), ("--every", "--at"), ("--cron", "--at")])
def test_a_task_has_one_schedule(noonbell, pair):
    values = {"--cron": "@daily", "--every": "5m", "--at": "2030-01-01T00:00:00Z"}
    words = [word for option in pair for word in (option, values[option])]
    code, out, err = noonbell("task", "create", "t", "--url", "http://a.test/", *words)
    assert (code, out) == (2, "")
    assert f"{pair[0]} and {pair[1]} each set the schedule; use only one" in err


@pytest.mark.parametrize("text", ["soon", "-5s", "0", "5 apples", "nan", "inf"])
def test_a_timeout_that_is_no_span_is_refused(noonbell, text):
    code, out, err = noonbell("task", "create", "t", "--url", "http://a.test/", f"--timeout={text}")
    assert (code, out) == (2, "")
    assert "--timeout" in err
    assert "30s, 5m" in err


@pytest.mark.parametrize(
    ("zone", "near"),
    [("Europe/Berln", "Europe/Berlin"), ("berlin", "Europe/Berlin"), ("Asia/Shanhai", "Asia/Shanghai")],
)
def test_a_time_zone_that_is_misspelt_is_answered_with_the_nearest(noonbell, zone, near):
    code, out, err = noonbell("next", "@daily", "--tz", zone)
    assert (code, out) == (1, "")
    assert f"did you mean {near}" in err
    assert "did you mean" not in noonbell("next", "@daily", "--tz", "xyzzy")[2]
