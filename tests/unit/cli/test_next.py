"""`noonbell next`: the slots, the words, the marks, and errors that say what to do."""

from __future__ import annotations

import json

import pytest

SPRING = ("--tz", "Europe/Berlin", "--from", "2026-03-26T12:00")


def test_the_slots_and_the_mark_of_a_clock_change(noonbell):
    code, out, err = noonbell("next", "30 2 * * 1-5", "-n", "3", *SPRING)
    assert (code, err) == (0, "")
    assert out.splitlines()[1:4] == [
        "  2026-03-27 Fri 02:30:00 +01:00",
        "  2026-03-30 Mon 02:30:00 +02:00   ← clocks went forward on 29 Mar",
        "  2026-03-31 Tue 02:30:00 +02:00",
    ]
    assert "Monday to Friday" in out.splitlines()[0]
    assert "UTC+01:00" in out.splitlines()[0]


def test_clocks_that_go_back_are_marked(noonbell):
    _, out, _ = noonbell("next", "@daily", "-n", "2", "--tz", "Europe/Berlin", "--from", "2026-10-24T12:00")
    assert "clocks went back" not in out.splitlines()[1]
    assert "clocks went back on 25 Oct" in out.splitlines()[2]


def test_in_chinese(noonbell):
    code, out, _ = noonbell("next", "30 2 * * 1-5", "-n", "2", "--lang", "zh-CN", *SPRING)
    assert code == 0
    assert "周五" in out
    assert "后" not in out
    assert "← 3 月 29 日 时钟拨快" in out


def test_the_language_of_the_terminal_is_taken(noonbell, monkeypatch):
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert "后" in noonbell("next", "@daily")[1]
    monkeypatch.setenv("NOONBELL_LANG", "en")
    assert " in " in noonbell("next", "@daily")[1]


def test_json_is_the_answer_of_the_preview(noonbell):
    _, out, _ = noonbell("next", "*/7 * * * *", "-n", "2", "-o", "json", "--from", "2026-01-01T00:00Z")
    answer = json.loads(out)
    assert answer["next_fires"] == [
        {"utc": "2026-01-01T00:07:00Z", "local": "2026-01-01T00:07:00+00:00"},
        {"utc": "2026-01-01T00:14:00Z", "local": "2026-01-01T00:14:00+00:00"},
    ]
    assert answer["description"]
    assert [note["code"] for note in answer["notes"]] == ["uneven_step"]


def test_notes_are_shown(noonbell):
    assert "note: " in noonbell("next", "*/7 * * * *")[1]


def test_any_schedule_is_taken_as_json(noonbell):
    spec = '{"type": "monthly", "day": 0, "time": "23:00:00"}'
    _, out, _ = noonbell("next", spec, "-n", "1", "--from", "2026-02-01T00:00")
    assert "2026-02-28 Sat 23:00:00" in out


def test_a_moment_with_a_zone_of_its_own_is_that_moment(noonbell):
    _, out, _ = noonbell("next", "@hourly", "-n", "1", "--tz", "+08:00", "--from", "2026-01-01T00:30:00Z")
    assert "2026-01-01 Thu 09:00:00 +08:00\n" in out


def test_a_moment_that_has_passed_is_told_so(noonbell):
    spec = '{"type": "once", "at": "2025-01-01T00:00:00Z", "run_if_late": false}'
    code, out, _ = noonbell("next", spec)
    assert code == 0
    assert "2025-01-01 Wed 00:00:00 +00:00   " in out
    assert out.splitlines()[1].endswith(" ago")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("0 0 31 2 *",), 1, "never fires"),
        (("61 * * * *",), 1, "61"),
        (("@daily", "--tz", "Mars/Base"), 1, "Mars/Base"),
        (("{",), 2, "is not JSON"),
        (("@daily", "--from", "soon"), 2, "2026-03-26T12:00"),
        (("@daily", "--lang", "fr"), 2, "en or zh"),
        (("@daily", "-n", "0"), 2, "0 is not in the range"),
        ((), 2, "Missing argument 'EXPR'"),
    ],
)
def test_what_cannot_be_is_one_line_on_stderr(noonbell, arguments, code, says):
    ended, out, err = noonbell("next", *arguments)
    assert (ended, out) == (code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err


def test_the_dialect_decides_which_weekday_a_number_is(noonbell):
    for dialect, day in (("standard", "Tue"), ("quartz", "Mon")):
        code, out, _ = noonbell("next", "0 0 9 * * 2", "-n", "1", "--dialect", dialect, *SPRING)
        assert (code, out.splitlines()[1].split()[1]) == (0, day)
    assert "Sunday is 1" in out


def test_an_interval_is_given_as_for_a_task(noonbell):
    code, out, err = noonbell("next", "--every", "90m", "-n", "2", "--from", "2026-03-26T12:00")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [
        "  2026-03-26 Thu 13:30:00 +00:00",
        "  2026-03-26 Thu 15:00:00 +00:00",
    ]
    assert noonbell("next", "--every", "soon")[0] == 2
    assert noonbell("next")[0] == 2
    assert noonbell("next", "@daily", "--every", "5m")[0] == 2


def test_how_far_away_a_slot_is_is_told_where_it_counts_from_now(noonbell):
    ninety_minutes = ("next", "--every", "90m", "-n", "2")
    assert [line.partition("   ")[2] for line in noonbell(*ninety_minutes)[1].splitlines()[1:]] == [
        "in 1 h 30 m",
        "in 3 h",
    ]
    assert noonbell(*ninety_minutes, "--lang", "zh")[1].splitlines()[1].endswith("   1 小时 30 分后")
    assert " in " not in noonbell(*ninety_minutes, "--from", "2026-03-26T12:00")[1]


def test_slots_in_quiet_hours_are_marked(noonbell):
    night = ("--quiet", "22:00-06:00", "--quiet", '{"from": "12:00", "to": "13:00", "days": ["fri"], "what": "skip"}')
    code, out, err = noonbell("next", "0 0,12,18 * * *", "-n", "4", *night, *SPRING)
    assert (code, err) == (0, "")
    assert [line.partition("←")[2] for line in out.splitlines()[1:5]] == [
        "",
        " quiet hours: held until 2026-03-27 06:00",
        " quiet hours: skipped",
        "",
    ]
    assert (
        "静默时段：推迟到 2026-03-27 06:00" in noonbell("next", "@daily", "-n", "1", "--lang", "zh", *night, *SPRING)[1]
    )
    _, out, _ = noonbell("next", "0 0,18 * * *", "-n", "2", "-o", "json", *night, *SPRING)
    evening, midnight = json.loads(out)["next_fires"]
    assert evening == {"utc": "2026-03-26T17:00:00Z", "local": "2026-03-26T18:00:00+01:00"}
    assert (midnight["quiet"], midnight["quiet_until"]) == ("hold", "2026-03-27T05:00:00Z")


@pytest.mark.parametrize(
    ("hours", "says"),
    [
        ("night", "expected 22:00-06:00"),
        ("22:00-25:00", "quiet[0].to"),
        ("22:00-22:00", "quiet[0].to"),
        ("someday 22:00-06:00", "quiet[0].days[0]"),
        ("{", "is not JSON"),
    ],
)
def test_quiet_hours_that_cannot_be_are_told(noonbell, hours, says):
    code, out, err = noonbell("next", "@daily", "--quiet", hours)
    assert (code != 0, out) == (True, "")
    assert says in err
