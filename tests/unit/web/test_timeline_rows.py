"""From what is known of tasks to what the timeline draws: places, bars, months, calendar files. Without a server."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise

import msgspec
import pytest

from noonbell.clock import SECOND, Instant, from_datetime
from noonbell.model.account import SlotRun
from noonbell.model.rollup import Figures
from noonbell.model.run import DroppedRange, DropReason, Origin, Run, RunId, RunStatus
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.service.timeline import Lane, Off, coming
from noonbell.service.translation import Translator
from noonbell.web import timeline, timeline_rows
from noonbell.web.timeline_rows import WIDTH, Axis
from noonbell.when import zones

NOON = from_datetime(datetime(2026, 11, 15, 12, tzinfo=UTC))
HOUR = 3_600 * SECOND


def axis(since: int = NOON - 12 * HOUR, until: int = NOON + 12 * HOUR, zone: str = "UTC") -> Axis:
    return Axis(Instant(since), Instant(until), zones.find(zone))


def teller(**more) -> timeline_rows.Teller:
    return timeline_rows.Teller(Translator("en"), axis(**more), NOON)


def task(schedule: dict | None = None, **more) -> Task:
    spec = TaskSpec(
        name="t", schedule=schedule, **{key: more.pop(key) for key in ("end_at", "start_at") if key in more}
    )
    state = {"next_fire_at": Instant(NOON + 300 * SECOND), "status": TaskStatus.ENABLED, **more}
    return Task(id=TaskId(7), version=1, spec=spec, created_at=Instant(0), updated_at=Instant(0), **state)


def run(hours: float, status: str = "SUCCESS", minutes: float = 1, **more) -> Run:
    start = Instant(round(NOON + hours * HOUR))
    return Run(
        id=RunId(round(10_000 + hours * 100)),
        task_id=TaskId(7),
        task_name="t",
        task_version=1,
        origin=Origin.SCHEDULE,
        status=RunStatus(status),
        scheduled_time=start,
        run_at=start,
        created_at=start,
        updated_at=start,
        queue="http",
        start_time=start,
        end_time=Instant(round(start + minutes * 60 * SECOND)),
        **more,
    )


EVERY_5 = {"type": "interval", "every": 5, "unit": "minute", "anchor": "2026-11-15T00:00:00Z"}


# The axis


def test_ticks_stay_on_whole_hours_when_the_clock_goes_back_and_the_change_is_marked():
    change = from_datetime(datetime(2026, 10, 25, 1, tzinfo=UTC))
    berlin = axis(change - 12 * HOUR, change + 12 * HOUR, "Europe/Berlin")
    (marked,) = berlin.changes()
    assert (marked.x, marked.was, marked.will) == (WIDTH / 2, "+02:00", "+01:00")
    texts = [tick.text for tick in berlin.ticks()]
    assert all(text.endswith(":00") or text == "10-25" for text in texts)
    assert len(set(texts)) == len(texts)
    places = [tick.x for tick in berlin.ticks()]
    assert places == sorted(places)


def test_a_zone_without_daylight_saving_has_no_mark_and_nothing_leaves_the_axis():
    shanghai = axis(zone="Asia/Shanghai")
    assert shanghai.changes() == []
    assert shanghai.x(0) == 0
    assert shanghai.x(NOON * 2) == WIDTH


# Bars


def test_a_bar_is_as_long_as_the_run_took_and_leads_to_it():
    row = timeline_rows.row_of(Lane(task(), runs=[run(-6, minutes=144)]), teller())
    (bar,) = row.past
    assert (bar.x, bar.width, bar.mark, bar.run_id) == (250.0, 100.0, "ok", 9_400)
    assert "Succeeded" in bar.title
    assert "2 h 24 m" in bar.title


def test_runs_too_close_to_tell_apart_are_one_bar_as_bad_as_the_worst_that_leads_to_all_of_them():
    crowded = [run(-6), run(-5.99, "FAILED"), run(-5.98)]
    (bar,) = timeline_rows.row_of(Lane(task(), runs=crowded[::-1]), teller()).past
    assert (bar.mark, bar.run_id) == ("bad", None)
    assert "Failed 1" in bar.title
    assert bar.since < "2026-11-15T06:00:00Z" < bar.until


def test_slots_that_were_missed_are_a_mark_of_their_own_with_their_number():
    gone = DroppedRange(
        task_id=TaskId(7),
        first=Instant(NOON - 2 * HOUR),
        last=Instant(NOON - HOUR),
        count=12,
        reason=DropReason.MISFIRE,
        at=NOON,
    )
    (bar,) = timeline_rows.row_of(Lane(task(), dropped=[gone]), teller()).past
    assert (bar.mark, bar.run_id) == ("missed", None)
    assert "12 slots" in bar.title


def test_what_lies_before_the_newest_runs_is_drawn_from_the_slots():
    slot = Instant(NOON - 10 * HOUR)
    before = SlotRun(slot=slot, run_id=RunId(3), status=RunStatus.FAILED, created_at=slot, end_time=slot)
    row = timeline_rows.row_of(Lane(task(), runs=[run(-1)], before=[before]), teller())
    assert [(bar.mark, bar.run_id) for bar in row.past] == [("bad", 3), ("ok", 9_900)]
    assert row.ran == 2


def test_planned_slots_are_as_long_as_usual_and_those_to_be_skipped_are_told_apart():
    lane = Lane(task(skip_next=1), planned=[NOON // SECOND + 3600, NOON // SECOND + 7200], usual=HOUR // 2)
    row = timeline_rows.row_of(lane, teller())
    assert [bar.mark for bar in row.planned] == ["skipping", "planned"]
    assert row.planned[1].width == pytest.approx(WIDTH / 48, abs=0.01)
    assert row.risk == ""


def test_a_task_whose_runs_take_longer_than_its_interval_is_a_risk():
    lane = Lane(task(), planned=[NOON // SECOND + 300 * step for step in range(1, 9)], usual=6 * 60 * SECOND)
    assert "6 m" in timeline_rows.row_of(lane, teller()).risk


def test_a_task_that_fires_all_the_time_is_a_band():
    lane = Lane(task(), planned=[NOON // SECOND + 60 * step for step in range(301)])
    row = timeline_rows.row_of(lane, teller())
    assert row.planned == []
    assert row.band is not None
    assert row.band.x + row.band.width == WIDTH


def test_a_pause_shades_the_lane_and_says_who():
    lane = Lane(task(), runs=[run(-6)], off=[Off(Instant(NOON - 6 * HOUR), None, "disabled", "li")])
    (shade,) = timeline_rows.row_of(lane, teller()).off
    assert (shade.x, shade.width) == (250.0, 750.0)
    assert "li" in shade.title


# What is to come


def test_what_is_to_come_ends_with_the_repeat_count_and_the_bounds():
    begin, end = NOON, Instant(NOON + HOUR)
    assert len(coming(task(EVERY_5), begin, end, 100)) == 12
    assert len(coming(task({**EVERY_5, "repeat": 10}, fired=7), begin, end, 100)) == 3
    assert len(coming(task(EVERY_5, end_at=Instant(NOON + HOUR // 2)), begin, end, 100)) == 6
    assert len(coming(task(EVERY_5), begin, end, 5)) == 5
    assert coming(task({**EVERY_5, "mode": "fixed_delay"}), begin, end, 100) == [NOON // SECOND + 300]
    assert coming(task(EVERY_5, next_fire_at=None), begin, end, 100) == []
    later = coming(task({**EVERY_5, "repeat": 24}), Instant(NOON + HOUR), Instant(NOON + 9 * HOUR), 100)
    assert len(later) == 13, "eleven of the 24 lie before the stretch"


# The month


def test_a_month_is_whole_weeks_of_days_that_are_as_long_as_they_are():
    days = timeline.days_of(date(2026, 10, 1), zones.find("Europe/Berlin"), NOON)
    assert (len(days) % 7, days[0].date.isoweekday()) == (0, 1)
    assert [day.date.isoformat() for day in days if day.stop - day.start != 24 * HOUR] == ["2026-10-25"]
    assert all(before.stop == after.start for before, after in pairwise(days))


def test_a_run_counts_on_the_day_it_ended_and_one_that_was_skipped_on_none():
    days = timeline.days_of(date(2026, 11, 1), zones.find("Asia/Shanghai"), NOON)
    by_date = {day.date.day: day for day in days if day.in_month}
    start = by_date[10].start
    first = Figures(counts={"SUCCESS": 3_000, "FAILED": 1_500, "TIMEOUT": 2, "CANCELED": 1, "SKIPPED": 7, "DROPPED": 9})
    timeline.tell_past(days, [(start, first), (Instant(start - HOUR), Figures(counts={"SUCCESS": 2}))])
    assert (by_date[10].ran, by_date[10].failed) == (4_503, 1_502)
    assert (by_date[9].ran, by_date[9].failed) == (2, 0)
    assert (by_date[11].ran, by_date[11].failed) == (0, 0)


# The calendar file


def test_an_event_of_the_calendar_file_is_escaped_folded_and_as_long_as_usual():
    spec = TaskSpec(name="a;b,c " + "长" * 60)
    lane = Lane(msgspec.structs.replace(task(), spec=spec), planned=[NOON // SECOND], usual=90 * SECOND)
    text = timeline.calendar([lane], NOON)
    assert text.startswith("BEGIN:VCALENDAR\r\n")
    assert text.endswith("END:VCALENDAR\r\n")
    assert "DTSTART:20261115T120000Z\r\nDURATION:PT90S\r\n" in text
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    assert "SUMMARY:a\\;b\\,c " + "长" * 60 in text.replace("\r\n ", "")


def test_a_task_too_dense_to_be_listed_is_counted_to_the_end_of_the_axis():
    often = task({"type": "cron", "expr": "*/5 * * * *"})
    until = Instant(NOON + 7 * 24 * HOUR)
    lane = Lane(often, planned=coming(often, NOON, until, 126))
    assert lane.is_dense
    found = timeline_rows.starts([lane], NOON, until, 3_600)
    assert sum(found.values()) == 7 * 24 * 12 - 1, "the first of them is in five minutes"
    assert {count for at, count in found.items() if at > NOON // SECOND} == {12}
