"""Calendar vectors, written by hand: where each slot of a stretch goes. 2026-01-01 is a Thursday.

A line of `expected` is `slot -> effective time`, `slot` alone where it stays, `slot closed` where it is skipped; in local time of the task's zone,
in the order of effective times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell import when
from noonbell.model.calendar import CalendarRules, WhenClosed
from noonbell.when.calendar import MOST_DAYS, DayMap, Placement, carried, day_map, read_day
from noonbell.when.due import Bounds

SKIP, NEXT, PREVIOUS, RUN = WhenClosed
WEEKEND: dict[str, Any] = {"closed_weekdays": (0, 6)}
NINE = "0 0 9 * * *"


@dataclass(frozen=True)
class Vector:
    mode: WhenClosed
    rules: dict[str, Any]
    since: str
    until: str
    expected: list[str]
    cron: str = NINE
    zone: str = "UTC"
    invert: bool = False
    schedule: dict[str, Any] = field(default_factory=dict)
    bounds: tuple[str | None, str | None] = (None, None)
    remaining: int | None = None


VECTORS = {
    "open days stay": Vector(SKIP, WEEKEND, "2026-01-05 00:00", "2026-01-07 00:00", ["01-05 09:00", "01-06 09:00"]),
    "a weekend is skipped": Vector(
        SKIP, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00",
        ["01-02 09:00", "01-03 09:00 closed", "01-04 09:00 closed", "01-05 09:00"],
    ),
    "a weekend moves to Monday, and all three are there": Vector(
        NEXT, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00",
        ["01-02 09:00", "01-03 09:00 -> 01-05 09:00", "01-04 09:00 -> 01-05 09:00", "01-05 09:00"],
    ),
    "a weekend moves to Friday": Vector(
        PREVIOUS, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00",
        ["01-02 09:00", "01-03 09:00 -> 01-02 09:00", "01-04 09:00 -> 01-02 09:00", "01-05 09:00"],
    ),
    "run minds no closed day": Vector(RUN, WEEKEND, "2026-01-03 00:00", "2026-01-05 00:00", ["01-03 09:00", "01-04 09:00"]),
    "a make-up Saturday is open": Vector(
        SKIP, {**WEEKEND, "open": ("2026-01-03",)}, "2026-01-03 00:00", "2026-01-05 00:00",
        ["01-03 09:00", "01-04 09:00 closed"],
    ),
    "Sunday moves back onto a make-up Saturday": Vector(
        PREVIOUS, {**WEEKEND, "open": ("2026-01-03",)}, "2026-01-03 00:00", "2026-01-05 00:00",
        ["01-03 09:00", "01-04 09:00 -> 01-03 09:00"],
    ),
    "open wins over a closed range": Vector(
        SKIP, {"closed": ("2026-10-01/2026-10-07",), "open": ("2026-10-03",)}, "2026-10-02 00:00", "2026-10-05 00:00",
        ["10-02 09:00 closed", "10-03 09:00", "10-04 09:00 closed"],
    ),
    "a golden week moves to the day after it": Vector(
        NEXT, {"closed": ("2026-10-01/2026-10-07",)}, "2026-10-01 00:00", "2026-10-09 00:00",
        [*(f"10-0{day} 09:00 -> 10-08 09:00" for day in range(1, 8)), "10-08 09:00"],
    ),
    "a golden week moves to the day before it": Vector(
        PREVIOUS, {"closed": ("2026-10-01/2026-10-07",)}, "2026-09-30 00:00", "2026-10-09 00:00",
        ["09-30 09:00", *(f"10-0{day} 09:00 -> 09-30 09:00" for day in range(1, 8)), "10-08 09:00"],
    ),
    "the first of a month moves back over its start": Vector(
        PREVIOUS, WEEKEND, "2026-01-25 00:00", "2026-02-05 00:00", ["02-01 09:00 -> 01-30 09:00"], cron="0 0 9 1 * *",
    ),
    "the first of a year moves back into the year before": Vector(
        PREVIOUS, {**WEEKEND, "closed": ("01-01",)}, "2025-12-30 00:00", "2026-01-03 00:00",
        ["01-01 09:00 -> 12-31 09:00"], cron="0 0 9 1 * *",
    ),
    "a month's end moves forward over its end": Vector(
        NEXT, WEEKEND, "2026-01-30 00:00", "2026-02-04 00:00", ["01-31 18:00 -> 02-02 18:00"], cron="0 0 18 L * *",
    ),
    "fourteen closed days are moved over": Vector(
        NEXT, {"closed": ("2026-03-01/2026-03-14",)}, "2026-03-01 00:00", "2026-03-16 00:00",
        ["03-01 09:00 -> 03-15 09:00"], cron="0 0 9 1 3 *",
    ),
    "fifteen closed days are too many": Vector(
        NEXT, {"closed": ("2026-03-01/2026-03-15",)}, "2026-03-01 00:00", "2026-03-17 00:00",
        ["03-01 09:00 closed"], cron="0 0 9 1 3 *",
    ),
    "of fifteen closed days the second is moved": Vector(
        NEXT, {"closed": ("2026-03-01/2026-03-15",)}, "2026-03-01 00:00", "2026-03-17 00:00",
        ["03-01 09:00 closed", "03-02 09:00 -> 03-16 09:00"], cron="0 0 9 1,2 3 *",
    ),
    "fifteen closed days before are too many": Vector(
        PREVIOUS, {"closed": ("2026-03-01/2026-03-15",)}, "2026-02-27 00:00", "2026-03-16 00:00",
        ["03-14 09:00 -> 02-28 09:00", "03-15 09:00 closed"], cron="0 0 9 14,15 3 *",
    ),
    "a calendar that is always closed closes every slot": Vector(
        NEXT, {"closed_weekdays": tuple(range(7))}, "2026-01-01 00:00", "2026-01-03 00:00",
        ["01-01 09:00 closed", "01-02 09:00 closed"],
    ),
    "inverted, only the weekend runs": Vector(
        SKIP, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00",
        ["01-02 09:00 closed", "01-03 09:00", "01-04 09:00", "01-05 09:00 closed"], invert=True,
    ),
    "inverted, a working day moves to Saturday": Vector(
        NEXT, WEEKEND, "2026-01-08 00:00", "2026-01-11 00:00",
        [*(f"01-0{day} 09:00 -> 01-10 09:00" for day in range(5, 10)), "01-10 09:00"], invert=True,
    ),
    "inverted, a make-up Saturday is closed": Vector(
        SKIP, {**WEEKEND, "open": ("2026-01-03",)}, "2026-01-03 00:00", "2026-01-05 00:00",
        ["01-03 09:00 closed", "01-04 09:00"], invert=True,
    ),
    "a day of every year": Vector(
        SKIP, {"closed": ("12-25",)}, "2026-12-24 00:00", "2026-12-27 00:00",
        ["12-24 09:00", "12-25 09:00 closed", "12-26 09:00"],
    ),
    "the leap day is closed in leap years": Vector(
        SKIP, {"closed": ("02-29",)}, "2028-02-28 00:00", "2028-03-02 00:00",
        ["02-28 09:00", "02-29 09:00 closed", "03-01 09:00"],
    ),
    "a leap day's slot moves to 1 March": Vector(
        NEXT, {"closed": ("02-29",)}, "2028-02-01 00:00", "2028-03-02 00:00", ["02-29 09:00 -> 03-01 09:00"], cron="0 0 9 29 2 *",
    ),
    "a leap day's slot moves back to 28 February": Vector(
        PREVIOUS, {"closed": ("2028-02-29",)}, "2028-02-01 00:00", "2028-03-02 00:00",
        ["02-29 09:00 -> 02-28 09:00"], cron="0 0 9 29 2 *",
    ),
    "without a zone, days are those of the task": Vector(
        SKIP, WEEKEND, "2026-01-02 00:00", "2026-01-04 00:00",
        ["01-02 01:00", "01-03 01:00 closed"], cron="0 0 1 * * *", zone="Asia/Shanghai",
    ),
    "a calendar's zone decides what day it is: New York's Friday evening is Saturday in Shanghai": Vector(
        SKIP, {**WEEKEND, "timezone": "Asia/Shanghai"}, "2026-01-02 00:00", "2026-01-05 12:00",
        ["01-02 20:00 closed", "01-03 20:00 closed", "01-04 20:00"], cron="0 0 20 * * *", zone="America/New_York",
    ),
    "and slots are moved by days of that zone": Vector(
        NEXT, {**WEEKEND, "timezone": "Asia/Shanghai"}, "2026-01-02 00:00", "2026-01-05 12:00",
        ["01-02 20:00 -> 01-04 20:00", "01-03 20:00 -> 01-04 20:00", "01-04 20:00"],
        cron="0 0 20 * * *", zone="America/New_York",
    ),
    "over a clock change the calendar's clock is kept: New York springs forward, Shanghai does not": Vector(
        NEXT, {**WEEKEND, "timezone": "Asia/Shanghai"}, "2026-03-06 12:00", "2026-03-09 00:00",
        ["03-08 20:00", "03-06 20:00 -> 03-08 21:00", "03-07 20:00 -> 03-08 21:00"],
        cron="0 0 20 * * *", zone="America/New_York",
    ),
    "a slot that is moved into a gap is due when the gap ends": Vector(
        NEXT, {"closed": ("2026-03-28",)}, "2026-03-28 00:00", "2026-03-29 04:00",
        ["03-28 02:30 -> 03-29 03:00"], cron="0 30 2 28 * *", zone="Europe/Berlin",
    ),
    "a slot that is moved onto a repeated hour is due at its first showing": Vector(
        NEXT, {"closed": ("2026-10-24",)}, "2026-10-24 00:00", "2026-10-25 05:00",
        ["10-24 02:30 -> 10-25 02:30"], cron="0 30 2 24 * *", zone="Europe/Berlin",
    ),
    "both showings of a repeated hour move to the same time": Vector(
        NEXT, {"closed": ("2026-10-25",)}, "2026-10-25 02:00", "2026-10-26 02:40",
        ["10-26 00:30", "10-26 01:30", "10-25 02:30 -> 10-26 02:30", "10-25 02:30 -> 10-26 02:30", "10-26 02:30"],
        schedule={"type": "interval", "every": 3600, "unit": "second", "anchor": "2026-10-24T23:30:00Z"}, zone="Europe/Berlin",
        bounds=("2026-10-25 02:30", None),
    ),
    "the time of day survives a clock change": Vector(
        PREVIOUS, WEEKEND, "2026-03-27 00:00", "2026-03-31 00:00",
        ["03-27 12:00", "03-28 12:00 -> 03-27 12:00", "03-29 12:00 -> 03-27 12:00", "03-30 12:00"],
        cron="0 0 12 * * *", zone="Europe/Berlin",
    ),
    "several slots of one day keep their order among those of the day they move to": Vector(
        NEXT, {"closed": ("2026-01-05",)}, "2026-01-05 00:00", "2026-01-07 00:00",
        ["01-05 06:00 -> 01-06 06:00", "01-06 06:00", "01-05 18:00 -> 01-06 18:00", "01-06 18:00"], cron="0 0 6,18 * * *",
    ),
    "start_at is nominal: a slot before it that would move behind it is none": Vector(
        NEXT, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00", ["01-04 09:00 -> 01-05 09:00", "01-05 09:00"],
        bounds=("2026-01-04 00:00", None),
    ),
    "end_at is nominal: a slot before it is moved behind it": Vector(
        NEXT, WEEKEND, "2026-01-02 00:00", "2026-01-06 00:00", ["01-02 09:00", "01-03 09:00 -> 01-05 09:00"],
        bounds=(None, "2026-01-03 12:00"),
    ),
    "repeat counts nominal slots, closed ones too": Vector(
        SKIP, WEEKEND, "2026-01-02 00:00", "2026-01-20 00:00",
        ["01-02 09:00", "01-03 09:00 closed", "01-04 09:00 closed"], remaining=3,
    ),
    "repeat takes the first slots by name, though later ones are due before them": Vector(
        PREVIOUS, {"closed": ("2026-01-07",)}, "2026-01-05 00:00", "2026-01-20 00:00",
        ["01-05 09:00", "01-06 09:00", "01-07 09:00 -> 01-06 09:00"], remaining=3,
    ),
    "days out of an iCal file are closed": Vector(
        SKIP, {"from_ical": ("2026-12-25/2026-12-26",)}, "2026-12-25 00:00", "2026-12-28 00:00",
        ["12-25 09:00 closed", "12-26 09:00 closed", "12-27 09:00"],
    ),
    "open wins over an iCal file": Vector(
        SKIP, {"from_ical": ("2026-12-25/2026-12-26",), "open": ("2026-12-26",)}, "2026-12-25 00:00", "2026-12-27 00:00",
        ["12-25 09:00 closed", "12-26 09:00"],
    ),
    "a weekly slot on a closed weekday always moves": Vector(
        NEXT, WEEKEND, "2026-01-01 00:00", "2026-01-13 00:00", ["01-03 09:00 -> 01-05 09:00", "01-10 09:00 -> 01-12 09:00"],
        schedule={"type": "weekly", "weekday": 6, "time": "09:00:00"},
    ),
    "a moment of once moves too": Vector(
        PREVIOUS, WEEKEND, "2026-01-01 00:00", "2026-01-13 00:00", ["01-10 08:00 -> 01-09 08:00"],
        schedule={"type": "once", "at": "2026-01-10T08:00:00Z"},
    ),
}  # fmt: skip


def at(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def shown(slot: int, zone: str) -> str:
    return datetime.fromtimestamp(slot, ZoneInfo(zone)).strftime("%m-%d %H:%M")


def placement(vector: Vector) -> Placement:
    spec = vector.schedule or {"type": "cron", "expr": vector.cron}
    schedule = when.parse(when.normalise(spec, vector.zone, 0), vector.zone)
    low, high = (None if edge is None else at(edge, vector.zone) for edge in vector.bounds)
    days = day_map(CalendarRules(**vector.rules), vector.mode, vector.invert, vector.zone)
    return Placement(schedule, days, Bounds(low, high))


@pytest.mark.parametrize("name", VECTORS)
def test_slots_go_where_the_calendar_says(name: str) -> None:
    vector = VECTORS[name]
    placed, since, until = placement(vector), at(vector.since, vector.zone), at(vector.until, vector.zone)
    found = []
    for one in placed.coming(since, vector.remaining):
        if one.at > until:
            break
        slot, due = shown(one.slot, vector.zone), shown(one.at, vector.zone)
        found.append(
            f"{slot} closed" if one.is_closed else slot if slot == due and one.at == one.slot else f"{slot} -> {due}"
        )
    assert found == vector.expected
    accounted = placed.due(since, until, 1_000, 1_000, vector.remaining)
    assert sorted((*accounted.newest, *accounted.closed)) == sorted(
        one for one in (placed.place(each.slot) for each in (*accounted.newest, *accounted.closed))
    )
    assert accounted.used == len(vector.expected)
    is_open = takewhile(lambda one: one.at <= until, placed.open_from(since, vector.remaining))
    listed = takewhile(lambda one: one.at <= until, placed.coming(since, vector.remaining))
    assert list(is_open) == [one for one in listed if not one.is_closed]


def test_there_are_at_least_forty_vectors() -> None:
    assert len(VECTORS) >= 40


def test_a_change_while_slots_wait_leaves_out_what_is_done() -> None:
    """Monday 09:00 ran; at noon Monday is declared closed, and would move to Tuesday."""
    schedule = when.parse({"type": "cron", "expr": NINE})
    old = Placement(schedule, day_map(CalendarRules(**WEEKEND), NEXT, False, "UTC"), Bounds())
    rules = CalendarRules(**WEEKEND, closed=("2026-01-05",))
    new = Placement(schedule, day_map(rules, NEXT, False, "UTC"), Bounds())
    cursor = at("2026-01-06 09:00", "UTC")
    found = carried(old, cursor, new)
    assert found.cursor == cursor
    changed = Placement(schedule, new.days, Bounds(), found.left_out)
    due = changed.due(cursor, cursor, 10, 10)
    assert [shown(one.slot, "UTC") for one in due.newest] == ["01-06 09:00"]


def test_a_change_that_moves_a_slot_into_the_past_makes_it_due_at_once() -> None:
    schedule = when.parse({"type": "cron", "expr": NINE})
    old = Placement(schedule, day_map(CalendarRules(), PREVIOUS, False, "UTC"), Bounds())
    new = Placement(schedule, day_map(CalendarRules(closed=("2026-01-06",)), PREVIOUS, False, "UTC"), Bounds())
    found = carried(old, at("2026-01-06 09:00", "UTC"), new)
    assert found.cursor == at("2026-01-05 09:00", "UTC")
    changed = Placement(schedule, new.days, Bounds(), found.left_out)
    due = changed.due(found.cursor, at("2026-01-05 12:00", "UTC"), 10, 10)
    assert [(shown(one.slot, "UTC"), shown(one.at, "UTC")) for one in due.newest] == [("01-06 09:00", "01-05 09:00")]


def test_an_every_second_task_is_counted_and_not_listed() -> None:
    vector = Vector(SKIP, WEEKEND, "2026-01-01 00:00", "2026-12-31 23:59", [], cron="* * * * * *")
    due = placement(vector).due(at("2026-01-01 00:00", "UTC"), at("2026-12-31 23:59", "UTC") + 59, 5, 7)
    assert (len(due.newest), len(due.closed), due.used) == (5, 7, 365 * 86_400)


def test_open_slots_are_found_behind_any_number_of_closed_ones() -> None:
    """Two days of every second are closed: 172,800 slots before the first that is not."""
    placed = placement(Vector(SKIP, WEEKEND, "", "", [], cron="* * * * * *"))
    first, second = islice(placed.open_from(at("2026-01-03 00:00", "UTC")), 2)
    assert (shown(first.slot, "UTC"), second.slot - first.slot) == ("01-05 00:00", 1)


def test_where_no_day_is_open_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = placement(Vector(SKIP, {"closed_weekdays": tuple(range(7))}, "", "", [], cron="* * * * * *"))
    looked: list[int] = []
    piece = DayMap.piece
    monkeypatch.setattr(DayMap, "piece", lambda days, slot: looked.append(slot) or piece(days, slot))
    assert list(placed.open_from(at("2026-01-03 00:00", "UTC"))) == []
    assert len(looked) == MOST_DAYS


@pytest.mark.parametrize("text", ["2026-02-30", "2026-10-07/2026-10-01", "13-01", "2026-01-01/2050-01-01", "02-30"])
def test_a_day_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_day(text)
