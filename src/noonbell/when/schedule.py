"""What every schedule kind is: the protocol that the rest of Noonbell sees, and the fields that several kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Protocol

from noonbell.errors import ScheduleError
from noonbell.fields import Moment, meta
from noonbell.fields.problems import ReadContext
from noonbell.model.task_schedule import ClockChanges

Repeat = Annotated[
    int | None,
    meta(
        "The total number of slots; null or -1 for no limit.",
        ge=-1,
        le=2**53 - 1,
        exact=True,
        expected="the number of slots, 1 or more; null or -1 for no limit",
    ),
]
ScheduleMoment = Annotated[Moment | None, meta(minutes=True)]
ClockTime = Annotated[
    str,
    meta(
        "In the task's zone.",
        min_length=5,
        max_length=8,
        pattern="([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?",
        expected='a time of day "HH:MM:SS" or "HH:MM", from 00:00:00 to 23:59:59',
        examples=["09:00:00"],
    ),
]


def repeat_of(repeat: int | None, at: ReadContext) -> int | None:
    """None = for ever, which null and -1 both say."""
    if repeat == 0:
        at.expected("repeat", 0, "the number of slots, 1 or more; null or -1 for no limit")
    return None if repeat == -1 else repeat


def seconds_of(time: str) -> int:
    """A time of day as seconds since midnight; 0 for what is none."""
    parts = [int(part) if part.isdigit() else 0 for part in time.split(":")]
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def refusal(problems: Mapping[str, str]) -> ScheduleError:
    text = "; ".join(f"{name} {problem}" for name, problem in problems.items())
    return ScheduleError(text, details=problems)


def clock_text(time: int) -> str:
    return f"{time // 3600:02d}:{time // 60 % 60:02d}:{time % 60:02d}"


def rfc3339(slot: int) -> str:
    return datetime.fromtimestamp(slot, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a spec is read with, besides its zone."""

    now: int | None = None
    """Stands in for a moment left null."""
    seconds_field: bool = True
    """False refuses cron expressions of six fields."""
    changes: ClockChanges | None = None
    """What the task says of clock changes."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing about a schedule that people get wrong. `code` is stable, `message` is a sentence in their language."""

    code: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


class Schedule(Protocol):
    """The rule that names slots: whole epoch seconds, UTC.

    Immutable, hashable, and pure: the same question always has the same answer. `repeat`, `start_at` and `end_at` limit
    a task, not its rule: they are applied in `when.due`.

    A kind may also have `count(start, stop)`, the number of slots in start <= slot < stop without listing them; without
    it, `when.due` counts step by step within its budget.
    """

    @property
    def kind(self) -> str: ...

    @property
    def repeat(self) -> int | None:
        """How many slots there are in all; None = for ever."""
        ...

    @property
    def is_single(self) -> bool:
        """It has one slot, which counts even if it has passed when the task is made: misfire policies do not ask about it."""
        ...

    @property
    def is_fixed_delay(self) -> bool:
        """Each slot depends on the end of the run before it: ask `after_run`, not `next`."""
        ...

    @property
    def run_if_late(self) -> bool:
        """False only for a single slot that would rather not run than run late."""
        ...

    def next(self, after: int) -> int | None:
        """The first slot strictly later than `after`; None if there is no further slot before the year 9999."""
        ...

    def previous(self, before: int) -> int | None:
        """The last slot strictly earlier than `before`."""
        ...

    def mask(self, start: int, stop: int) -> int:
        """The slots in start <= slot < stop as bits, bit n for start + n. For stretches of some days, however dense."""
        ...

    def after_run(self, end: int) -> int:
        """The slot that follows a run which ended at `end`. Only where `is_fixed_delay`; ValueError elsewhere."""
        ...

    def spec(self) -> dict[str, Any]:
        """The canonical JSON form: every default filled in. Reading it again gives an equal schedule."""
        ...

    def describe(self, lang: str = "en") -> str:
        """One sentence for people, in English ("en") or Chinese ("zh")."""
        ...

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        """The traps in this schedule. Those that depend on the date look at the year after `after`, if it is given."""
        ...


class CalendarKind:
    """What all kinds but interval share."""

    __slots__ = ()

    is_single: ClassVar[bool] = False
    is_fixed_delay: ClassVar[bool] = False

    @property
    def run_if_late(self) -> bool:
        return True

    def after_run(self, end: int) -> int:
        raise ValueError(f"only a fixed_delay interval depends on the end of a run (asked for {end})")
