"""What a task is called, and when it runs: the first fields of every task; and joins.

A join: a task that runs after other tasks (`after`), and how far one wait for them has come.

A final run of an upstream arrives at the join of its root: the slot that the run belongs to, or the run that it goes back to.
The join fills one place for each upstream, and is over when it has made a run, when its time has run out, or when the task
that follows was switched off.

    OPEN ──every place filled──▶ DONE      one run of origin `upstream`
      ├────within_seconds─────▶ MISSING    one SKIPPED run, `upstream_missing`
      └────switched off───────▶ DISABLED   no run
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment, meta
from noonbell.fields import meta as described
from noonbell.model.calendar import TaskCalendar

NEVER = Instant(0)

YEAR = 31_536_000

Labels = dict[str, Annotated[str, meta(max_length=255)]]


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
    description: Annotated[str, described("A description for people.", max_length=4_000, lines=True)] = ""
    labels: Annotated[Labels, described("Names and values for finding tasks.", examples=[{"team": "billing"}])] = {}
    managed_by: Annotated[
        str,
        described(
            "Who manages it: api, file:NAME or code:NAME.",
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
            " which fields the form for a run has."
        ),
    ] = {}

    schedule: Annotated[dict[str, Any] | None, described("When. Null: on demand only.")] = None
    """In the normal form of `when.normalise`."""
    schedules: Annotated[
        tuple[dict[str, Any], ...],
        described("Several schedules instead of `schedule`; a time matched by two of them is one slot.", max_length=20),
    ] = ()
    exclude: Annotated[
        tuple[dict[str, Any], ...],
        described("Schedules whose slots are left out.", max_length=20),
    ] = ()
    dst: Annotated[
        ClockChanges | None,
        described(
            "What clock changes do to times of day. Null: a skipped time runs right after the gap, a repeated one the first time."
        ),
    ] = None
    timezone: Annotated[
        str, described("An IANA name or an offset such as +08:00.", anything=True, examples=["Asia/Shanghai"])
    ] = "UTC"
    start_at: Annotated[Moment | None, described("No slots before this.")] = None
    end_at: Annotated[Moment | None, described("No slots after this.")] = None
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
            "A calendar, and what happens to slots on its closed days.",
            examples=[{"name": "china", "when_closed": "next_open_day"}],
        ),
    ] = None

    after: Annotated[After | None, described("Run when other tasks end, instead of or in addition to a schedule.")] = (
        None
    )
    """Upstreams are stored by id: the store puts the ids in the place of names."""


WHEN_FIELDS: Final = ("schedule", "schedules", "exclude", "dst", "timezone", "start_at", "end_at")
"""The fields of a task that say which slots it has: a change of one of them is a change of its schedule."""


MOST_UPSTREAMS = 100


class UpstreamOutcome(enum.StrEnum):
    """Which endings of an upstream's run count."""

    SUCCESS = "success"
    FAILURE = "failure"
    """It failed, ran out of time, or was canceled."""
    SKIPPED = "skipped"
    ANY = "any"


class JoinMode(enum.StrEnum):
    ALL = "all"
    ANY = "any"


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "an upstream"

    task: Annotated[
        Annotated[int, meta(ge=1, le=2**53 - 1)] | Annotated[str, meta(min_length=1, max_length=255)],
        meta(
            "The task to run after, by its name or id.",
            expected="the name or the id of a task",
            missing="the name or the id of a task",
            examples=["extract"],
        ),
    ]
    """By its id where it is stored."""
    on: Annotated[UpstreamOutcome, meta("Which outcomes of its runs count.")] = UpstreamOutcome.SUCCESS


class After(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a task runs after, and how their runs are brought together."""

    noun: ClassVar[str] = "after"

    tasks: Annotated[
        tuple[Upstream, ...],
        meta(
            "The tasks to run after.",
            min_length=1,
            max_length=MOST_UPSTREAMS,
            expected=f"a list of 1 to {MOST_UPSTREAMS} tasks",
            missing="the tasks to run after",
            examples=[[{"task": "extract", "on": "success"}]],
        ),
    ]
    join: Annotated[JoinMode, meta("Wait for all of them, or for the first.")] = JoinMode.ALL
    same_slot: Annotated[bool, meta("Match runs of the same slot; else one of each since the last run.")] = True
    within_seconds: Annotated[
        int, meta("How long to wait for the others after the first has ended.", ge=1, le=YEAR)
    ] = 86_400

    @property
    def upstream_ids(self) -> tuple[int, ...]:
        """Of a stored task, where each is named by its id."""
        return tuple(upstream.task for upstream in self.tasks if isinstance(upstream.task, int))


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """A task that runs after another one."""

    task_id: int
    name: str
    on: UpstreamOutcome


class JoinState(enum.StrEnum):
    OPEN = "open"
    DONE = "done"
    MISSING = "missing"
    DISABLED = "disabled"


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """The run of an upstream that a join knows of: the one that fills its place, else the newest."""

    upstream_id: int
    run_id: int
    status: str
    fills: bool = False


class Join(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    task_id: int
    """The task that follows."""
    root: str
    """`slot:MICROSECONDS` or `run:ID`; empty while a join without `same_slot` is open."""
    edge_version: int
    """The version of the task with which `after` last changed."""
    redrive: int
    """How often the root was joined before: a redrive makes a new join."""
    state: JoinState
    first_at: Instant
    due_at: Instant | None
    """Null where it is over."""
    scheduled_time: Instant
    run_id: int | None = None
    arrivals: tuple[Arrival, ...] = ()
