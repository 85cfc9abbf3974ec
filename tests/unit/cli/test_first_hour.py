"""What somebody tries who has never seen the command line: near misses are answered with what was probably meant."""

from __future__ import annotations

import pytest
from tests.unit.cli.test_slips import answering

from noonbell.cli.options import zone_hint


def test_help_of_a_command_is_what_its_option_prints(noonbell):
    assert noonbell("help", "serve") == noonbell("serve", "--help")
    assert noonbell("help", "task", "create") == noonbell("task", "create", "--help")
    assert noonbell("help") == noonbell("--help")
    assert "130  interrupted" in noonbell("help", "exit-codes")[1]


def test_help_of_what_is_no_command_proposes_one(noonbell):
    code, out, err = noonbell("help", "serv")
    assert (code, out, "did you mean serve?" in err) == (2, "", True)
    code, out, err = noonbell("help", "task", "creat")
    assert (code, out, "did you mean task create?" in err) == (2, "", True)
    code, out, err = noonbell("help", "serve", "now")
    assert (code, out) == (2, "")
    assert "noonbell serve has no commands; see noonbell serve --help" in err


@pytest.mark.parametrize("group", ["run", "stats", "config", "task", "worker", "token"])
def test_the_list_of_a_groups_commands_has_whole_sentences(noonbell, group):
    _, out, _ = noonbell(group, "--help")
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.parametrize("noun", ["run", "task", "worker", "queue", "token", "alert"])
def test_many_of_a_noun_are_its_list(noonbell, noun):
    code, _, err = noonbell(f"{noun}s")
    assert (code, f"did you mean {noun} list?" in err) == (2, True)


def test_files_of_tasks_that_hold_say_that_they_are_valid(noonbell, tmp_path):
    (tmp_path / "a.yaml").write_text("tasks:\n- name: a\n  job_type: x\n")
    assert noonbell("validate", "a.yaml") == (0, "", "1 task is valid\n")


def test_a_variable_that_is_nowhere_says_how_it_gets_there(noonbell, monkeypatch, tmp_path):
    monkeypatch.delenv("REPORTS_TOKEN", raising=False)
    (tmp_path / "a.yaml").write_text("tasks:\n- name: a\n  target_url: http://a/\n  headers: {A: '${REPORTS_TOKEN}'}\n")
    code, _, err = noonbell("validate", "a.yaml")
    assert code == 1
    assert "is not set in the environment; set it, and allow it with --env REPORTS_TOKEN\n" in err


@pytest.mark.parametrize("command", ["validate", "diff", "apply"])
def test_without_a_file_the_argument_is_named(noonbell, command):
    code, _, err = noonbell(command)
    assert (code, f"Missing argument 'FILE': noonbell {command} FILE, or -f FILE; a folder works too" in err) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("http://127.0.0.1:8080", "this looks like the address of a server: give the address of its store"),
        ("/srv/noonbell.db", "did you mean sqlite:////srv/noonbell.db?"),
        ("noonbell.db", "did you mean sqlite:///noonbell.db?"),
    ],
)
def test_a_store_that_is_none_is_answered_with_what_it_looks_like(noonbell, store, told):
    code, out, err = noonbell("audit", "--store", store)
    assert (code, out) == (2, "")
    assert told in err


def test_a_store_with_a_password_is_not_said_again(noonbell):
    _, _, err = noonbell("audit", "--store", "ann:secret@db/noonbell")
    assert "secret" not in err


def test_what_hangs_up_is_not_called_absent(noonbell, monkeypatch):
    with answering(b"") as port:
        monkeypatch.setenv("NOONBELL_URL", f"http://127.0.0.1:{port}")
        code, out, err = noonbell("task", "list")
    assert (code, out) == (8, "")
    assert "closed the connection without an answer; is it a Noonbell server? NOONBELL_URL is" in err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("Asia/Shangai", "; did you mean Asia/Shanghai?"),
        ("Europe/Shanghai", "; did you mean Asia/Shanghai?"),
        ("Europe/Berln", "; did you mean Europe/Berlin?"),
    ],
)
def test_a_city_that_is_near_is_proposed_alone(given, told):
    assert zone_hint(given) == told
