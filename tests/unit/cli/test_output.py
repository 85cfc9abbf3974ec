"""What strangers wrote cannot make a terminal do anything but show it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from noonbell.cli.output import ago, fields, moment_text, next_fire, show_list, show_one
from noonbell.cli.run import COLUMNS, ended
from noonbell.cli.task import schedule_words

ESCAPES = "\x1b[2J \x9b31m \x1b]0;title\x07 \u202e"


@pytest.mark.parametrize("lines", [None, lambda run: [f"run of {run['task']}"]])
def test_one_thing_is_shown_without_control_characters(capsys, lines):
    show_one({"task": f"名 {ESCAPES}", "response": [f"a\n{ESCAPES}"]}, "table", lines=lines)
    shown = capsys.readouterr().out
    assert "名" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_a_table_is_shown_without_control_characters_and_line_breaks(capsys):
    show_list([{"name": f"a\nb {ESCAPES}"}], {"name": lambda row: row["name"]}, "table")
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 2
    assert all(line.isprintable() for line in shown.splitlines())


@pytest.mark.parametrize(
    ("second", "was", "fires"), [("00", "5 s ago", "due 5 s ago"), ("05", "now", "now"), ("08", "in 3 s", "in 3 s")]
)
def test_a_moment_is_near_to_now_or_is_now(second, was, fires):
    now = datetime(2026, 11, 16, 12, 0, 5, tzinfo=UTC)
    moment = f"2026-11-16T12:00:{second}Z"
    assert ago(moment, now).startswith(f"{was} (")
    assert next_fire(moment, now).startswith(f"{fires} (")


def test_a_moment_has_one_form_with_how_far_away_it_is_where_it_stands_alone(monkeypatch):
    monkeypatch.setenv("NOONBELL_TZ", "Asia/Shanghai")
    now, moment = datetime(2026, 11, 16, 12, 0, 5, tzinfo=UTC), "2026-11-16T12:00:00.123456Z"
    assert moment_text(moment) == "2026-11-16 20:00:00+08:00"
    assert ago(moment, now) == "4 s ago (2026-11-16 20:00:00+08:00)"
    (_, created, name) = fields({"id": 7, "created_at": moment, "name": moment})
    assert re.fullmatch(r"created_at  (in )?\d+ d( ago)? \(2026-11-16 20:00:00\+08:00\)", created)
    assert name == f"name        {moment}"


def test_an_error_that_is_cut_ends_in_an_ellipsis():
    assert COLUMNS["error"]({"error_message": "x" * 60}) == "x" * 60
    assert COLUMNS["error"]({"error_message": "x" * 61}) == "x" * 59 + "…"
    assert COLUMNS["error"]({"error_message": None}) == ""


def test_a_result_that_is_cut_ends_in_an_ellipsis():
    run = {"id": 1, "status": "SUCCESS", "final_status": "SUCCESS", "duration_ms": 1, "response_code": None}
    assert ended({**run, "result": "x" * 300, "error_message": None, "skip_reason": None}).endswith("x…")


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"type": "weekly", "weekday": 0, "time": "09:00:00", "repeat": None}, "weekly 0 09:00:00"),
        ({"type": "monthly", "day": -1, "time": "09:00:00", "repeat": 3}, "monthly -1 09:00:00"),
        ({"type": "once", "at": "2026-11-20T09:00:00Z", "run_if_late": True}, "once 2026-11-20T09:00:00Z"),
        ({"type": "yearly", "month": 2, "day": 29, "time": "09:00:00", "repeat": None}, "yearly 2 29 09:00:00"),
    ],
)
def test_a_schedule_is_said_with_each_of_its_fields_also_one_of_a_kind_that_this_version_does_not_know(schedule, words):
    assert schedule_words(schedule, "UTC") == words
    assert schedule_words(schedule, "Asia/Shanghai") == f"{words} Asia/Shanghai"
