"""What a task is called, and when it runs: the first fields of every task."""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment
from noonbell.fields import meta as described
from noonbell.model.calendar import TaskCalendar
from noonbell.model.join import After

NEVER = Instant(0)

YEAR = 31_536_000


class GapRule(enum.StrEnum):
    """Of a local time that the clock skips when it goes forward."""

    NEXT = "next"
    """Done once, right after the gap, however many moments fell into it."""
    SKIP = "skip"
    EARLIER = "earlier"
    """Done as far before the change as the moment is before the end of the gap: 02:30 at 01:30, where 02:00 becomes 03:00."""


class RepeatedTimeRule(enum.StrEnum):
    """Of a local time that the clock shows twice when it goes back."""

    FIRST = "first"
    BOTH = "both"
    LAST = "last"


class ClockChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a clock change does to the times of cron, weekly and monthly schedules. What is None is as Debian cron has it."""

    noun: ClassVar[str] = "a rule for clock changes"

    gap: Annotated[
        GapRule | None,
        described(
            "A time that the clock skips: once right after the gap, not at all, or as much earlier as the clock skips."
            " Null: `next` for times of day, `skip` for intervals of minutes or hours.",
            examples=["skip"],
        ),
    ] = None
    repeat: Annotated[
        RepeatedTimeRule | None,
        described(
            "A time that the clock shows twice: the first time, both times, or the last time. Null: `first` for times of"
            " day, `both` for intervals of minutes or hours.",
            examples=["last"],
        ),
    ] = None


class ScheduledTask(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `TaskSpec` that say what a task is called, and when it runs."""

    name: Annotated[
        str,
        described(
            "1 to 255 characters, unique among tasks that are not deleted.", min_length=1, examples=["sync_stats"]
        ),
    ]
    description: Annotated[str, described("For people.", max_length=4_000, lines=True)] = ""
    labels: Annotated[
        dict[str, Annotated[str, described(max_length=255)]],
        described("Names and values to find tasks by.", examples=[{"team": "billing"}]),
    ] = {}
    managed_by: Annotated[
        str,
        described(
            "Who looks after it: api, file:NAME or code:NAME.",
            min_length=1,
            pattern="api|(file|code):.{1,200}",
            expected="api, file:NAME or code:NAME",
        ),
    ] = "api"
    external_id: Annotated[str | None, described("The caller's own id for it; unique.", min_length=1)] = None
    meta: Annotated[
        dict[str, Any],
        described(
            "Anything; kept and shown. `retention_days` and `retention_runs` say how long its history is kept, `payload_schema`"
            " which fields the form of a run has."
        ),
    ] = {}

    schedule: Annotated[dict[str, Any] | None, described("When. Null: on demand only.")] = None
    """In the normal form of `when.normalise`."""
    schedules: Annotated[
        tuple[dict[str, Any], ...],
        described("Several schedules instead of `schedule`; a slot that two of them name is one slot.", max_length=20),
    ] = ()
    exclude: Annotated[
        tuple[dict[str, Any], ...],
        described("Schedules whose slots are left out.", max_length=20),
    ] = ()
    dst: Annotated[
        ClockChanges | None,
        described(
            "What a clock change does to times of day. Null: a skipped one is done right after the gap, a repeated one the"
            " first time."
        ),
    ] = None
    timezone: Annotated[
        str, described("An IANA name or an offset such as +08:00.", anything=True, examples=["Asia/Shanghai"])
    ] = "UTC"
    start_at: Annotated[Moment | None, described("No slot before this.")] = None
    end_at: Annotated[Moment | None, described("No slot after this.")] = None
    jitter_seconds: Annotated[
        int,
        described(
            "Each run starts up to this many seconds after its slot; the same slot always by the same amount.",
            ge=0,
            le=YEAR,
        ),
    ] = 0

    calendar: Annotated[
        TaskCalendar | None,
        described(
            "A calendar, and what becomes of slots on its closed days.",
            examples=[{"name": "china", "when_closed": "next_open_day"}],
        ),
    ] = None

    after: Annotated[After | None, described("Run when others end, instead of a schedule or beside it.")] = None
    """Upstreams are stored by id: the store puts the ids in the place of names."""


WHEN_FIELDS: Final = ("schedule", "schedules", "exclude", "dst", "timezone", "start_at", "end_at")
"""The fields of a task that say which slots it has: a change of one of them is a change of its schedule."""
