"""What strangers wrote cannot make a terminal do anything but show it."""

from __future__ import annotations

import pytest

from noonbell.cli.output import show_list, show_one

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
