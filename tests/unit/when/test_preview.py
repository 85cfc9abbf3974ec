"""What people see before they save: slots, sentence, and notes where they go wrong."""

from __future__ import annotations

import pytest

from noonbell.errors import ScheduleError
from noonbell.when.due import preview

NOW = 1_794_733_200  # 2026-11-15T09:00:00Z


def codes(spec, tz="UTC", after=NOW):
    if isinstance(spec, str):
        spec = {"type": "cron", "expr": spec}
    english, chinese = (preview(spec, tz, 1, after, lang).notes for lang in ("en", "zh"))
    assert [note.code for note in english] == [note.code for note in chinese]
    return [note.code for note in english]


def message(spec, tz="UTC", lang="en"):
    (note,) = preview(spec if isinstance(spec, dict) else {"type": "cron", "expr": spec}, tz, 1, NOW, lang).notes
    return note.message


def test_slots_are_shown_in_utc_and_in_the_zone():
    shown = preview({"type": "cron", "expr": "30 2 * * 1-5"}, "Asia/Shanghai", 2, NOW)
    assert shown.next_fires == (
        ("2026-11-15T18:30:00Z", "2026-11-16T02:30:00+08:00"),
        ("2026-11-16T18:30:00Z", "2026-11-17T02:30:00+08:00"),
    )
    assert shown.description == "At 02:30, Monday to Friday, Asia/Shanghai"
    assert shown.notes == ()


def test_no_more_slots_are_shown_than_there_are():
    assert len(preview({"type": "cron", "expr": "@daily", "repeat": 2}, "UTC", 10, NOW).next_fires) == 2
    assert len(preview({"type": "once"}, "UTC", 10, NOW).next_fires) == 1
    assert preview({"type": "cron", "expr": "@daily"}, "UTC", 0, NOW).next_fires == ()


def test_once_now_is_now():
    shown = preview({"type": "once"}, "UTC", 1, NOW)
    assert shown.next_fires[0][0] == "2026-11-15T09:00:00Z"
    assert shown.notes == ()


def test_an_expression_that_never_fires_is_refused():
    with pytest.raises(ScheduleError, match="never fires"):
        preview({"type": "cron", "expr": "0 0 30 2 *"}, "UTC", 1, NOW)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("30 2 * * *", []),
        ("*/15 * * * *", []),
        ("0 */6 * * *", []),
        ("0 0 13 * 5", ["both_day_fields"]),
        ("0 0 13 * *", []),
        ("0 0 1-31 * MON", []),
        ("0 0 */2 * 5", ["both_day_fields", "uneven_step"]),
        ("*/7 * * * *", ["uneven_step"]),
        ("*/90 * * * *", ["uneven_step"]),
        ("0 0 1 */5 *", ["uneven_step"]),
        ("0 0 * * */2", ["uneven_step"]),
        ("0/7 * * * *", ["uneven_step"]),
        ("3/7 * * * *", []),
        ("0 */5 * * *", ["uneven_step", "looks_like_six_fields"]),
        ("0 */30 * * *", ["uneven_step", "looks_like_six_fields"]),
        ("0 0 */5 * * *", ["uneven_step"]),
        ("0 */5 * * * *", []),
        ("* 30 2 * * *", ["every_second"]),
        ("* * * * * *", []),
        ("0 0 31 * *", ["missing_days"]),
        ("0 0 31 1,3 *", []),
        ("0 0 29 2 *", ["missing_days"]),
    ],
)
def test_notes_stand_where_people_go_wrong(expr, expected):
    assert codes(expr) == expected


@pytest.mark.parametrize(
    ("spec", "tz", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", ["dst_gap", "dst_overlap"]),
        ("30 4 * * *", "Europe/Berlin", []),
        ({"type": "cron", "expr": "30 2 * * *", "dst": "wall"}, "Europe/Berlin", ["dst_gap", "dst_overlap"]),
        ({"type": "cron", "expr": "*/30 2 * * *", "dst": "wall"}, "Europe/Berlin", ["dst_gap"]),
        ({"type": "cron", "expr": "30 2 * * *", "dst": "wall"}, "UTC", []),
        ("30 2 * * 1-5", "Europe/Berlin", []),
        ("30 1 * * *", "America/New_York", ["dst_overlap"]),
        ("*/30 2 * * *", "Europe/Berlin", ["dst_gap"]),
        ("*/30 * * * *", "Europe/Berlin", []),
        ({"type": "weekly", "weekday": 0, "time": "02:00"}, "Europe/Berlin", ["dst_gap", "dst_overlap"]),
        ({"type": "monthly", "day": 28, "time": "02:10"}, "Europe/Berlin", ["dst_gap"]),
        ({"type": "monthly", "day": 31, "time": "12:00"}, "Europe/Berlin", ["clamped_day"]),
        ({"type": "interval", "every": 1, "unit": "day"}, "Europe/Berlin", ["elapsed_days"]),
        ({"type": "interval", "every": 1, "unit": "day"}, "+01:00", []),
        ({"type": "interval", "every": 5, "unit": "hour"}, "Europe/Berlin", []),
        ({"type": "interval", "every": 5, "unit": "hour", "mode": "fixed_delay"}, "UTC", ["fixed_delay"]),
        ({"type": "once", "at": "2020-01-01T00:00:00Z"}, "UTC", ["in_the_past"]),
        ({"type": "once", "at": "2020-01-01T00:00:00Z", "run_if_late": False}, "UTC", ["in_the_past"]),
        ({"type": "once", "at": "2030-01-01T00:00:00Z"}, "UTC", []),
        ({"type": "cron", "expr": "0 0 */2 * *", "dialect": "cronjob"}, "UTC", ["uneven_step", "dialect_differs"]),
        ({"type": "cron", "expr": "0 0 1 * 5", "dialect": "cronjob"}, "UTC", ["both_day_fields", "dialect_differs"]),
        ({"type": "cron", "expr": "*/5 * * * *", "dialect": "cronjob"}, "UTC", []),
    ],
)
def test_notes_look_at_the_zone_and_the_kind(spec, tz, expected):
    assert codes(spec, tz) == expected


def test_a_note_says_what_happens():
    past = {"type": "once", "at": "2020-01-01T00:00:00Z"}
    assert message(past) == "This time has already passed: it runs at once."
    assert "does not run" in message({**past, "run_if_late": False})
    assert message("0 0 13 * 5") == (
        "Day of month (13) and day of week (5) are both set: it fires when EITHER matches."
    )
    shifted = preview({"type": "cron", "expr": "0 */5 * * *"}, "UTC", 1, NOW).notes[1]
    assert "every 5 hours, not every 5 minutes" in shifted.message
    gap, overlap = preview({"type": "cron", "expr": "30 2 * * *"}, "Europe/Berlin", 1, NOW).notes
    assert gap.message == "On 2027-03-28 the clock skips 02:30: it fires once, at 03:00."
    assert overlap.message == "On 2027-10-31 the clock shows 02:30 twice: it fires the first time only."
    assert message("*/7 * * * *", lang="zh") == "分字段的 */7 不能整除 60：每小时重新计数，最后一段间隔会更短。"


def test_a_note_says_what_the_wall_clock_does():
    spec = {"type": "cron", "expr": "30 2 * * *", "dst": "wall"}
    assert [note.message for note in preview(spec, "Europe/Berlin", 1, NOW).notes] == [
        "On 2027-03-28 the clock skips 02:30: slots in that time do not happen.",
        "On 2027-10-31 the clock shows 02:30 twice: it fires both times.",
    ]
    assert [note.message for note in preview(spec, "Europe/Berlin", 1, NOW, "zh").notes] == [
        "2027-03-28 时钟会跳过 02:30：该时段不会触发。",
        "2027-10-31 时钟会出现两次 02:30：两次都会触发。",
    ]


def test_the_notes_of_a_stored_schedule_are_those_of_its_source():
    stored = {"type": "cron", "expr": "0 0 */5 * * *", "source": "0 */5 * * *"}
    assert "looks_like_six_fields" in codes(stored)
