"""Service levels: what a task promises of its runs, the runs that may still break it, and the breaches."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import Moment, meta
from noonbell.model.calendar import ClockTime

_LONGEST: Final = 30 * 86_400.0
_UNITS: Final = {"h": 3_600, "d": 86_400}


class SlaRule(enum.StrEnum):
    """The levels of a task. A run breaks each of the first three at most once; the last one is broken by the task."""

    START_WITHIN = "start_within_seconds"
    FINISH_WITHIN = "finish_within_seconds"
    FINISH_BY = "finish_by"
    SUCCESS_RATIO = "success_ratio"


class OnBreach(enum.StrEnum):
    ALERT = "alert"
    """The events only: alert rules and webhook subscriptions listen to them."""
    RAISE_PRIORITY = "raise_priority"
    """A run that waits when its breach is foreseen, or has come, goes before all others of its queue."""
    SKIP_NEXT = "skip_next"
    """The next slot of the task is skipped."""


class Sla(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a service level"

    start_within_seconds: Annotated[
        float | None, meta("A run starts at most this long after it was due.", ge=0, le=_LONGEST, examples=[60])
    ] = None
    finish_within_seconds: Annotated[
        float | None, meta("A run ends at most this long after it was due.", ge=0, le=_LONGEST, examples=[3600])
    ] = None
    finish_by: Annotated[
        ClockTime | None,
        meta(
            "A run ends by this time of day, HH:MM in the task's time zone: the first such moment after it was due.",
            examples=["06:00"],
        ),
    ] = None
    success_ratio: Annotated[
        float | None,
        meta(
            "The ratio of runs that succeed to those that succeed or fail, over `window`.", ge=0, le=1, examples=[0.99]
        ),
    ] = None
    window: Annotated[
        str,
        meta(
            "How far back `success_ratio` and the error budget look: days (`28d`) or hours (`12h`), at most 90 days.",
            pattern=r"([1-9]|[1-8][0-9]|90)d|([1-9][0-9]{0,2}|1[0-9]{3}|20[0-9]{2}|21[0-5][0-9]|2160)h",
            expected="days such as 28d or hours such as 12h, at most 90d",
            examples=["28d"],
        ),
    ] = "28d"
    on_breach: Annotated[OnBreach, meta("What Noonbell does about a breach, besides the event.")] = OnBreach.ALERT

    @property
    def window_length(self) -> int:
        """Microseconds."""
        return int(self.window[:-1]) * _UNITS[self.window[-1]] * SECOND

    @property
    def is_of_runs(self) -> bool:
        """Whether a run can break it."""
        return (
            self.start_within_seconds is not None
            or self.finish_within_seconds is not None
            or self.finish_by is not None
        )


class SlaWatch(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may still break a level: when each has to be kept by. Fixed when the run is made."""

    run_id: int
    task_id: int
    due_at: Instant
    start_by: Instant | None
    finish_within: Instant | None
    finish_by: Instant | None
    on_breach: OnBreach = OnBreach.ALERT

    @property
    def deadlines(self) -> list[tuple[SlaRule, Instant]]:
        each = (
            (SlaRule.START_WITHIN, self.start_by),
            (SlaRule.FINISH_WITHIN, self.finish_within),
            (SlaRule.FINISH_BY, self.finish_by),
        )
        return [(rule, at) for rule, at in each if at is not None]


class SlaBreach(msgspec.Struct, frozen=True, kw_only=True):
    """A level that a run, or a task, has broken, or is expected to break."""

    id: Annotated[int, meta(examples=[7340051])]
    task_id: Annotated[int, meta(examples=[1])]
    run_id: Annotated[int | None, meta("Null: `success_ratio`, which is of the task.", examples=[7340033])]
    rule: Annotated[SlaRule, meta(examples=["finish_by"])]
    deadline: Annotated[Moment, meta("The deadline.")]
    foreseen_at: Annotated[Moment | None, meta("When Noonbell warned of the breach.")] = None
    expected_at: Annotated[Moment | None, meta("When the run was then expected to start, or to end.")] = None
    usual_ms: Annotated[int | None, meta("How long its runs usually take.", examples=[2_520_000])] = None
    breached_at: Annotated[Moment | None, meta("Null: it was expected, but has not happened.")] = None
    resolved_at: Annotated[Moment | None, meta("`success_ratio`: when it was met again.")] = None


class SlaSwept(NamedTuple):
    """What one sweep of runs with a service level came to."""

    looked_at: int = 0
    breached: int = 0
    foreseen: int = 0
    raised: tuple[str, ...] = ()
    """Queues in which a run has been put first."""


class BreachCount(NamedTuple):
    task_id: int
    rule: str
    at: Instant
    """Where the hour or day begins; the beginning of the stretch, if it was not parted."""
    breached: int
