"""`dst` of a task: every rule for skipped and repeated times, against slots that were worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noonbell.errors import ScheduleError
from noonbell.model.task_schedule import ClockChanges, GapRule, RepeatedTimeRule
from noonbell.when import normalise, parse
from noonbell.when.due import preview_of, shortest_gap

GAPS = tuple(GapRule)
REPEATS = tuple(RepeatedTimeRule)
DAILY = {"type": "cron", "expr": "30 2 * * *"}
WEEKLY = {"type": "weekly", "weekday": 0, "time": "02:30:00"}


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def slots(spec: dict[str, Any], zone: str, changes: ClockChanges | None, since: str, until: str) -> list[str]:
    """As `MM-DD HH:MM` in UTC, in since <= slot < until: found by walking forward, and found the same going back and counting."""
    schedule = parse(normalise(spec, zone, at(since), changes=changes), zone, changes=changes)
    start, stop = at(since), at(until)
    found: list[int] = []
    slot = schedule.next(start - 1)
    while slot is not None and slot < stop:
        found.append(slot)
        slot = schedule.next(slot)
    back: list[int] = []
    slot = schedule.previous(stop)
    while slot is not None and slot >= start:
        back.append(slot)
        slot = schedule.previous(slot)
    assert back[::-1] == found
    assert schedule.count(start, stop) == len(found)  # type: ignore[attr-defined]
    bits = f"{schedule.mask(start, stop):b}"[::-1]
    assert [start + n for n, bit in enumerate(bits) if bit == "1"] == found
    return [datetime.fromtimestamp(slot, UTC).strftime("%m-%d %H:%M") for slot in found]


# Europe/Berlin skips 02:00 to 03:00 on 2026-03-29 at 01:00 UTC, and shows it twice on 2026-10-25 (00:00 and 01:00 UTC).

BERLIN_GAP = {
    None: ["03-28 01:30", "03-29 01:00", "03-30 00:30"],
    "next": ["03-28 01:30", "03-29 01:00", "03-30 00:30"],
    "skip": ["03-28 01:30", "03-30 00:30"],
    "earlier": ["03-28 01:30", "03-29 00:30", "03-30 00:30"],
}
BERLIN_REPEAT = {
    None: ["10-24 00:30", "10-25 00:30", "10-26 01:30"],
    "first": ["10-24 00:30", "10-25 00:30", "10-26 01:30"],
    "both": ["10-24 00:30", "10-25 00:30", "10-25 01:30", "10-26 01:30"],
    "last": ["10-24 00:30", "10-25 01:30", "10-26 01:30"],
}


@pytest.mark.parametrize("repeat", [None, *REPEATS])
@pytest.mark.parametrize("gap", [None, *GAPS])
def test_a_daily_time_in_berlin(gap: GapRule | None, repeat: RepeatedTimeRule | None) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    assert slots(DAILY, "Europe/Berlin", changes, "2026-03-28", "2026-03-31") == BERLIN_GAP[gap]
    assert slots(DAILY, "Europe/Berlin", changes, "2026-10-24", "2026-10-27") == BERLIN_REPEAT[repeat]


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
def test_a_weekly_and_a_monthly_time_in_berlin(gap: GapRule, repeat: RepeatedTimeRule) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    spring = {"next": ["03-29 01:00"], "skip": [], "earlier": ["03-29 00:30"]}[gap]
    autumn = {"first": ["10-25 00:30"], "both": ["10-25 00:30", "10-25 01:30"], "last": ["10-25 01:30"]}[repeat]
    for spec in (WEEKLY, {"type": "monthly", "day": 29, "time": "02:30"}):
        assert slots(spec, "Europe/Berlin", changes, "2026-03-29", "2026-03-30") == spring
    for spec in (WEEKLY, {"type": "monthly", "day": 25, "time": "02:30"}):
        assert slots(spec, "Europe/Berlin", changes, "2026-10-25", "2026-10-26") == autumn


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
def test_an_hourly_and_a_minutely_cron_in_berlin_obey_what_is_said(gap: GapRule, repeat: RepeatedTimeRule) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    # 00:20 and 01:20 (+1), then 03:20 (+2): with `next` 02:20 is done at 03:00, with `earlier` at 01:20, where a slot is.
    spring = ["03-28 23:20", "03-29 00:20", "03-29 01:20"]
    if gap is GapRule.NEXT:
        spring.insert(2, "03-29 01:00")
    hourly = {"type": "cron", "expr": "20 * * * *"}
    assert slots(hourly, "Europe/Berlin", changes, "2026-03-28T23:00", "2026-03-29T02:00") == spring
    autumn = {"first": ["10-25 00:20"], "both": ["10-25 00:20", "10-25 01:20"], "last": ["10-25 01:20"]}[repeat]
    assert slots(hourly, "Europe/Berlin", changes, "2026-10-25T00:00", "2026-10-25T02:00") == autumn
    minutely = {"type": "cron", "expr": "* * * * *"}
    assert len(slots(minutely, "Europe/Berlin", changes, "2026-03-29", "2026-03-30")) == 24 * 60
    many = 24 * 60 if repeat is RepeatedTimeRule.BOTH else 23 * 60
    assert len(slots(minutely, "Europe/Berlin", changes, "2026-10-25", "2026-10-26")) == many


def test_what_runs_every_so_often_follows_elapsed_time_where_nothing_is_said() -> None:
    hourly = {"type": "cron", "expr": "20 * * * *"}
    for changes in (None, ClockChanges()):
        spring = slots(hourly, "Europe/Berlin", changes, "2026-03-28T23:00", "2026-03-29T02:00")
        assert spring == ["03-28 23:20", "03-29 00:20", "03-29 01:20"]
        autumn = slots(hourly, "Europe/Berlin", changes, "2026-10-25T00:00", "2026-10-25T02:00")
        assert autumn == ["10-25 00:20", "10-25 01:20"]


# America/New_York skips 02:00 to 03:00 on 2026-03-08 at 07:00 UTC, and shows 01:00 to 02:00 twice on 2026-11-01 (05:00 and 06:00 UTC).


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
def test_times_in_new_york(gap: GapRule, repeat: RepeatedTimeRule) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    spec = {"type": "cron", "expr": "0,40 1,2 * * *"}
    # 01:00 (06:00 UTC) and 01:40; then 02:00 and 02:40 are skipped. Earlier by an hour they meet 01:00 and 01:40.
    spring = ["03-08 06:00", "03-08 06:40", *(["03-08 07:00"] if gap is GapRule.NEXT else [])]
    assert slots(spec, "America/New_York", changes, "2026-03-08", "2026-03-09T05:00") == spring
    autumn = {
        "first": ["11-01 05:00", "11-01 05:40"],
        "both": ["11-01 05:00", "11-01 05:40", "11-01 06:00", "11-01 06:40"],
        "last": ["11-01 06:00", "11-01 06:40"],
    }[repeat]
    later = ["11-01 07:00", "11-01 07:40"]
    assert slots(spec, "America/New_York", changes, "2026-11-01", "2026-11-02T05:00") == [*autumn, *later]


# Australia/Lord_Howe changes by half an hour: 02:00 to 02:30 is skipped on 2026-10-04 at 2026-10-03 15:30 UTC (+10:30 to +11),
# 01:30 to 02:00 is shown twice on 2026-04-05 (at 2026-04-04 14:30 and 15:00 UTC).


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
def test_half_an_hour_on_lord_howe(gap: GapRule, repeat: RepeatedTimeRule) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    daily = {"type": "cron", "expr": "10 2 * * *"}
    spring = {"next": ["10-03 15:30"], "skip": [], "earlier": ["10-03 15:10"]}[gap]
    assert slots(daily, "Australia/Lord_Howe", changes, "2026-10-03", "2026-10-04") == spring
    daily = {"type": "cron", "expr": "45 1 * * *"}
    autumn = {"first": ["04-04 14:45"], "both": ["04-04 14:45", "04-04 15:15"], "last": ["04-04 15:15"]}[repeat]
    assert slots(daily, "Australia/Lord_Howe", changes, "2026-04-04", "2026-04-05") == autumn


# Pacific/Apia had no 2011-12-30: after 2011-12-29 23:59:59 (-10) came 2011-12-31 00:00:00 (+14), at 2011-12-30 10:00 UTC.


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
def test_the_day_that_apia_did_not_have(gap: GapRule, repeat: RepeatedTimeRule) -> None:
    changes = ClockChanges(gap=gap, repeat=repeat)
    days = ("2011-12-29T10:00", "2011-12-31T10:00")
    noon = {"type": "cron", "expr": "0 12 * * *"}
    # Noon of the 29th is 22:00 UTC. A whole day earlier, noon of the 30th is that same moment: one slot.
    on_time = ["12-29 22:00", "12-30 22:00"]
    moved = ["12-29 22:00", "12-30 10:00", "12-30 22:00"]
    assert slots(noon, "Pacific/Apia", changes, *days) == (moved if gap is GapRule.NEXT else on_time)
    the_30th = {"type": "monthly", "day": 30, "time": "12:00"}
    once = {"next": ["12-30 10:00"], "skip": [], "earlier": ["12-29 22:00"]}[gap]
    assert slots(the_30th, "Pacific/Apia", changes, *days) == once
    friday = {"type": "weekly", "weekday": 5, "time": "12:00"}
    assert slots(friday, "Pacific/Apia", changes, *days) == once


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
def test_an_interval_is_not_touched(zone: str, gap: GapRule, repeat: RepeatedTimeRule) -> None:
    spec = {"type": "interval", "every": 50, "unit": "minute", "anchor": "2026-01-01T00:00:00Z"}
    told = ClockChanges(gap=gap, repeat=repeat)
    span = ("2026-03-28", "2026-04-06")
    assert slots(spec, zone, told, *span) == slots(spec, zone, None, *span)


def test_moments_of_one_gap_are_one_slot_or_each_for_itself() -> None:
    spec = {"type": "cron", "expr": "15,45 2 * * *"}
    day = ("2026-03-29", "2026-03-30")
    assert slots(spec, "Europe/Berlin", ClockChanges(gap=GapRule.NEXT), *day) == ["03-29 01:00"]
    assert slots(spec, "Europe/Berlin", ClockChanges(gap=GapRule.EARLIER), *day) == ["03-29 00:15", "03-29 00:45"]


def test_wall_of_a_cron_and_dst_of_its_task_contradict_each_other() -> None:
    with pytest.raises(ScheduleError, match=r"schedule\.dst is wall, but the task has its own dst"):
        parse({**DAILY, "dst": "wall"}, "Europe/Berlin", changes=ClockChanges(gap=GapRule.SKIP))


@pytest.mark.parametrize(
    ("changes", "gap", "overlap"),
    [
        (ClockChanges(gap=GapRule.NEXT), "it fires once, at 03:00", "the first time only"),
        (ClockChanges(gap=GapRule.EARLIER), "it fires once, at 01:30", "the first time only"),
        (ClockChanges(gap=GapRule.SKIP), "slots in that time do not happen", "the first time only"),
        (ClockChanges(repeat=RepeatedTimeRule.BOTH), "it fires once, at 03:00", "both times"),
        (ClockChanges(repeat=RepeatedTimeRule.LAST), "it fires once, at 03:00", "the last time only"),
    ],
)
def test_the_notes_say_what_a_clock_change_does(changes: ClockChanges, gap: str, overlap: str) -> None:
    schedule = parse(DAILY, "Europe/Berlin", changes=changes)
    notes = preview_of(schedule, "Europe/Berlin", 1, at("2026-01-01")).notes
    assert [note.code for note in notes] == ["dst_gap", "dst_overlap"]
    assert gap in notes[0].message
    assert overlap in notes[1].message


def test_two_schedules_that_differ_in_dst_are_not_equal() -> None:
    for spec in (DAILY, WEEKLY, {"type": "monthly", "day": 1, "time": "02:30"}):
        usual = parse(spec, "Europe/Berlin")
        assert usual != parse(spec, "Europe/Berlin", changes=ClockChanges(gap=GapRule.SKIP))
        assert usual == parse(spec, "Europe/Berlin")


def test_a_repeated_hour_brings_the_last_slot_near_to_the_first() -> None:
    schedule = parse(
        {"type": "cron", "expr": "0,59 2 * * *"}, "Europe/Berlin", changes=ClockChanges(repeat=RepeatedTimeRule.BOTH)
    )
    assert shortest_gap(schedule, at("2026-01-01")) == 60
