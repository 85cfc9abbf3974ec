"""The quartz dialect: Quartz's expressions, and those of the Rust crate `cron`. Sunday is 1."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice, permutations, product

import pytest

from noonbell import when
from noonbell.errors import ScheduleError
from noonbell.when.cron import Cron
from noonbell.when.cron_fields import CronDialect

SUNDAY = int(datetime(2026, 11, 15, tzinfo=UTC).timestamp())
DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def cron(expr: str, dialect: str = "quartz") -> Cron:
    found = when.parse({"type": "cron", "expr": expr, "dialect": dialect})
    assert isinstance(found, Cron)
    return found


def slots(expr: str, dialect: str = "quartz"):
    slot = SUNDAY - 1
    schedule = cron(expr, dialect)
    while (slot := schedule.next(slot)) is not None:
        yield datetime.fromtimestamp(slot, UTC)


def weekdays(expr: str, dialect: str = "quartz") -> list[str]:
    found = {f"{slot:%a}" for slot in islice(slots(expr, dialect), 14)}
    return [day for day in DAYS if day in found]


def problem(expr: str, dialect: str = "quartz") -> str:
    with pytest.raises(ScheduleError) as refused:
        cron(expr, dialect)
    return str(refused.value.details["schedule.expr"])


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("1", ["Sun"]),
        ("2", ["Mon"]),
        ("7", ["Sat"]),
        ("2-6", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("1,7", ["Sun", "Sat"]),
        ("6-2", ["Sun", "Mon", "Fri", "Sat"]),
        ("*/2", ["Sun", "Tue", "Thu", "Sat"]),
        ("2/2", ["Mon", "Wed", "Fri"]),
        ("1-4/2", ["Sun", "Tue"]),
        ("?", list(DAYS)),
        ("L", ["Sat"]),
        ("mon-fri", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("Monday,Tues,Thurs,Saturday", ["Mon", "Tue", "Thu", "Sat"]),
    ],
)
def test_weekdays_are_counted_from_sunday_as_one(field, days):
    assert weekdays(f"0 0 9 * * {field}") == days


def test_a_month_may_be_written_out():
    assert [f"{slot:%m-%d}" for slot in islice(slots("0 0 0 1 January-March *"), 3)] == ["01-01", "02-01", "03-01"]


def test_both_day_fields_must_match():
    assert [f"{slot:%a %d}" for slot in islice(slots("0 0 9 13 * 6"), 3)] == ["Fri 13"] * 3


def test_the_last_and_the_nth_weekday_count_from_one_too():
    assert [f"{slot:%a %d}" for slot in islice(slots("0 0 9 ? * 6L"), 2)] == ["Fri 27", "Fri 25"]
    assert [f"{slot:%a %d}" for slot in islice(slots("0 0 9 ? * 6#3"), 2)] == ["Fri 20", "Fri 18"]


def test_a_seventh_field_is_the_year_and_must_be_any():
    assert weekdays("0 0 9 * * 2 *") == ["Mon"]
    assert problem("0 0 9 * * 2 2027") == "names the year '2027'; expected * there: start_at and end_at limit the years"
    assert "7 with a year in the quartz dialect" in problem("0 0 9 * * 2 *", "standard")
    assert "8 fields" in problem("0 0 9 * * 2 * *")


@pytest.mark.parametrize("field", ["0", "8", "0-6", "NODAY", "1#6"])
def test_what_is_no_weekday_is_refused(field):
    assert "expected 1-7, 1 for Sunday" in problem(f"0 0 9 * * {field}")


@pytest.mark.parametrize("nickname", ["@weekly", "@daily", "@hourly", "@monthly", "@yearly"])
def test_a_nickname_means_the_same_in_every_dialect(nickname):
    assert list(islice(slots(nickname), 5)) == list(islice(slots(nickname, "standard"), 5))


@pytest.mark.parametrize("expr", ["0 0 9 * * 2", "0 9 * * 2", "0 0 9 ? * MON *", "@weekly", "0 0 9 1 January Thurs"])
def test_the_stored_form_is_a_fixed_point_and_keeps_what_was_written(expr):
    stored = when.normalise({"type": "cron", "expr": expr, "dialect": "quartz"})
    assert when.normalise(stored) == stored
    assert stored["dialect"] == "quartz"
    assert stored.get("source", stored["expr"]) == expr


def test_words_tell_the_days_that_are_meant():
    assert cron("0 0 9 * * 2").describe() == "At 09:00 on Monday, UTC"
    assert cron("0 0 9 * * 2").describe("zh") == "每周一 09:00（UTC）"
    assert cron("0 0 9 13 * 6").describe() == "At 09:00 on day 13 of the month if also on Friday, UTC"


def notes(expr: str, dialect: str, lang: str = "en") -> dict[str, str]:
    return {note.code: note.message for note in cron(expr, dialect).notes(lang, SUNDAY)}


@pytest.mark.parametrize(
    ("expr", "dialect", "differs"),
    [
        ("0 0 9 * * 2", "quartz", True),
        ("0 0 9 * * MON", "quartz", False),
        ("0 0 9 * * *", "quartz", False),
        ("0 0 9 13 * FRI", "quartz", True),
        ("0 0 9 ? * L", "quartz", False),
        ("@weekly", "quartz", False),
        ("0 0 0 */2 * *", "cronjob", True),
        ("0 0 0 1/2 * *", "cronjob", False),
        ("0 0 0 * * */2", "cronjob", False),
        ("0 0 2 1 * 1", "cronjob", True),
        ("0 9 1-31 * MON", "cronjob", True),
        ("0 9 1-31 * MON", "quartz", True),
        ("0 9 1 * SUN-SAT", "cronjob", True),
        ("0 9 1-31 * SUN-SAT", "cronjob", False),
        ("0 0 9 * * 2", "standard", False),
        ("0 0 2 1 * 1", "standard", False),
    ],
)
def test_a_note_says_where_the_dialect_changes_the_meaning(expr, dialect, differs):
    assert ("dialect_differs" in notes(expr, dialect)) is differs


def test_the_note_names_the_rules_of_its_dialect_in_both_languages():
    assert "Sunday is 1" in notes("0 0 9 * * 2", "quartz")["dialect_differs"]
    assert "1 是周日" in notes("0 0 9 * * 2", "quartz", "zh")["dialect_differs"]
    assert "a value that N divides" in notes("0 0 0 */2 * *", "cronjob")["dialect_differs"]


def test_a_text_that_another_dialect_cannot_read_differs_from_nothing():
    assert not cron("0 0 9 * * 0", "standard").reads_otherwise(CronDialect.QUARTZ)
    assert cron("0 0 9 * * 1", "standard").reads_otherwise(CronDialect.QUARTZ)
    assert not cron("0 0 9 * * 1", "standard").reads_otherwise(CronDialect.CRONJOB)


def test_dialects_are_said_to_differ_exactly_where_the_slots_of_a_year_do():
    days = ("*", "?", "*/1", "*/2", "1-31", "1-31/2", "1,15", "L", "15W")
    weekdays = ("*", "?", "*/2", "1-7", "SUN-SAT", "MON", "2", "MON-FRI", "6L", "2#1")
    for day, weekday in product(days, weekdays):
        read = {}
        for dialect in CronDialect:
            with suppress(ScheduleError):
                read[dialect] = cron(f"0 0 9 {day} * {weekday}", dialect)
        year = {dialect: slots_of_a_year(each) for dialect, each in read.items()}
        for one, other in permutations(read, 2):
            differs = year[one] != year[other]
            assert read[one].reads_otherwise(other) is differs, (day, weekday, one, other)


def slots_of_a_year(schedule: Cron) -> list[int]:
    found = [SUNDAY]
    while (slot := schedule.next(found[-1])) is not None and slot < SUNDAY + 366 * 86_400:
        found.append(slot)
    return found
