"""Business calendars and quiet hours: when tasks do not run.

Business calendars: which days are closed, what a task does with a slot on such a day, and what a task's use of one remembers.

A calendar changes by revisions. A revision never changes, and is kept as long as a version of a task names it.

Quiet hours: stretches of the day in which runs do not start, or alerts are not sent.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Final

import msgspec

from noonbell.clock import Instant
from noonbell.fields import meta
from noonbell.fields import meta as described

FURTHEST_DAYS: Final = 14
"""How far a slot is moved at most. Where no open day is that near, the day counts as closed."""
MOST_DAYS: Final = 5_000
"""Entries of a list of days."""
LONGEST_RANGE: Final = 3_660
"""Days of one entry."""

DAY_PATTERN: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?|[0-9]{2}-[0-9]{2}"

DayText = Annotated[
    str,
    meta(
        max_length=21,
        pattern=DAY_PATTERN,
        expected="a day 2026-10-01, a range 2026-10-01/2026-10-07, or a day of every year 12-25",
    ),
]


class WhenClosed(enum.StrEnum):
    """What becomes of a slot whose day is closed."""

    SKIP = "skip"
    NEXT_OPEN_DAY = "next_open_day"
    PREVIOUS_OPEN_DAY = "previous_open_day"
    RUN = "run"
    """It runs all the same."""


class TaskCalendar(msgspec.Struct, frozen=True, kw_only=True):
    """Which calendar a task keeps to, and how."""

    noun: ClassVar[str] = "the calendar of a task"

    name: Annotated[
        str,
        meta("Of a calendar.", min_length=1, max_length=100, missing="the name of a calendar", examples=["china"]),
    ]
    when_closed: Annotated[WhenClosed, meta("What happens to a slot on a closed day.")] = WhenClosed.SKIP
    invert: Annotated[bool, meta("Open days count as closed, and closed days as open.")] = False


class CalendarRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What decides whether a day is open: one revision of a calendar."""

    timezone: str | None = None
    """Whose days they are; None: those of each task's own zone."""
    closed_weekdays: tuple[int, ...] = ()
    """Sunday is 0."""
    closed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    """Open, even where another entry closes them."""
    from_ical: tuple[str, ...] = ()
    """Closed days out of the copy of its iCal source."""


class IcalSource(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "an iCal source"

    url: Annotated[
        str,
        meta(
            "The URL of the file.",
            min_length=1,
            max_length=2_000,
            missing="an http or https address",
            examples=["https://example.com/holidays.ics"],
        ),
    ]
    refresh_seconds: Annotated[
        int, meta("How often it is fetched again.", ge=300, le=31_536_000, examples=[86_400])
    ] = 86_400


class CalendarSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a user writes of a calendar; its name is in the address."""

    component: ClassVar[str] = "CalendarWrite"
    noun: ClassVar[str] = "a calendar"

    description: Annotated[str, meta("A description for people.", max_length=4_000, lines=True)] = ""
    timezone: Annotated[
        str | None,
        meta(
            "The time zone of the days: an IANA name or an offset such as +08:00. Null: each task's own zone.",
            max_length=100,
            examples=["Asia/Shanghai"],
        ),
    ] = None
    closed_weekdays: Annotated[
        tuple[Annotated[int, meta(ge=0, le=6)], ...],
        meta("Days of the week that are closed; Sunday is 0, Saturday 6.", max_length=7, examples=[[0, 6]]),
    ] = ()
    closed: Annotated[
        tuple[DayText, ...],
        meta(
            "Closed days, ranges of days, and days of every year.",
            max_length=MOST_DAYS,
            examples=[["2026-10-01/2026-10-07"]],
        ),
    ] = ()
    open: Annotated[
        tuple[DayText, ...],
        meta(
            "Make-up days: open even if another rule closes them.",
            max_length=MOST_DAYS,
            examples=[["2026-10-10"]],
        ),
    ] = ()
    ical: Annotated[IcalSource | None, meta("Each all-day event of this file closes its days.", examples=[None])] = None


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar as it stands."""

    name: Annotated[str, meta(examples=["china"])]
    revision: Annotated[int, meta("From 1, one more with each change.", examples=[1])]
    spec: CalendarSpec
    ical_days: tuple[str, ...] = ()
    """Out of the last good copy of its source, or of a file that was imported."""
    ical_checked_at: Instant | None = None
    """When its source was last asked."""
    ical_fetched_at: Instant | None = None
    """When the last good copy was made."""
    ical_error: str | None = None
    """Why the last attempt to fetch it made no copy."""
    tasks: int = 0
    """How many use it."""
    created_at: Instant
    updated_at: Instant
    changed_by: str | None = None

    @property
    def rules(self) -> CalendarRules:
        return rules_of(self.spec, self.ical_days)


def rules_of(spec: CalendarSpec, ical_days: tuple[str, ...] = ()) -> CalendarRules:
    return CalendarRules(
        timezone=spec.timezone,
        closed_weekdays=spec.closed_weekdays,
        closed=spec.closed,
        open=spec.open,
        from_ical=ical_days,
    )


class CalendarUse(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a task and a calendar: which revision it keeps to, where it began, and what it leaves out."""

    name: str | None
    """None: the version has no calendar, and remembers what an earlier one with a calendar has done ahead of time."""
    revision: int
    rules: CalendarRules
    since: int
    """Its slots are those whose effective time is not before this, in epoch seconds. Of a version that is off: slots that are due
    before this have been accounted for."""
    left_out: tuple[tuple[int, int], ...] = ()
    """Stretches of nominal time, both ends included, whose slots are not its own: they are accounted for already, or lie
    before its beginning. Sorted; only those with an effective time that is still to come are kept."""


class CalendarChange(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar is saved: what it says now, and the copy of its source."""

    name: str
    spec: CalendarSpec
    ical_days: tuple[str, ...] = ()
    ical_fetched_at: Instant | None = None
    expect_revision: int | None = None
    """None: any revision. 0: there must be none."""

    @property
    def rules(self) -> CalendarRules:
        return rules_of(self.spec, self.ical_days)


class CalendarSaved(msgspec.Struct, frozen=True, kw_only=True):
    calendar: Calendar
    is_new: bool
    is_changed: bool
    """False: it says what it said, and nothing was written."""
    tasks: tuple[int, ...] = ()
    """That were changed with it."""


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""In the order of Python's weekdays."""
ClockTime = Annotated[str, meta(pattern=r"([01][0-9]|2[0-3]):[0-5][0-9]", expected="a time of day, HH:MM")]


class QuietAction(enum.StrEnum):
    HOLD = "hold"
    """Until they end."""
    SKIP = "skip"


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "quiet hours"

    from_: Annotated[
        ClockTime,
        described("When they begin, HH:MM.", missing="the start time, HH:MM", examples=["22:00"]),
    ] = msgspec.field(name="from")
    to: Annotated[
        ClockTime,
        described(
            "When they end, HH:MM; not after `from`: on the next day.",
            missing="the end time, HH:MM",
            examples=["06:00"],
        ),
    ]
    days: Annotated[
        tuple[Annotated[str, described(choices=DAYS)], ...],
        described("The days on which they begin; empty: every day.", max_length=7, examples=[["sat", "sun"]]),
    ] = ()
    timezone: Annotated[str | None, described("An IANA name or an offset. Null: that of the task; elsewhere UTC.")] = (
        None
    )
    what: Annotated[QuietAction, described("Hold until they end, or skip.")] = QuietAction.HOLD


MOST_QUIET = 20
"""Stretches of one task, queue or channel."""
LONGEST_SPREAD = 86_400
