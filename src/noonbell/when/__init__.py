"""When things happen: the table of schedule kinds, and how a spec becomes a schedule.

Pure: nothing here does I/O or reads a clock. A new kind is one file and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from noonbell.clock import EARLIEST, LATEST
from noonbell.errors import ScheduleError, Sentence
from noonbell.fields import read_into
from noonbell.fields.problems import Problems, ReadContext, shown
from noonbell.model.task import TaskSpec
from noonbell.model.task_schedule import ClockChanges
from noonbell.when.composed import Composed
from noonbell.when.cron import Cron, CronSpec
from noonbell.when.interval import Interval, IntervalSpec
from noonbell.when.monthly import Monthly, MonthlySpec
from noonbell.when.once import Once, OnceSpec
from noonbell.when.schedule import Note, Reading, Schedule, refusal
from noonbell.when.weekly import Weekly, WeeklySpec
from noonbell.when.zones import Zone, find, zone

__all__ = [
    "EARLIEST",
    "KINDS",
    "LATEST",
    "Composed",
    "Note",
    "Schedule",
    "ScheduleSpec",
    "compose",
    "normalise",
    "of_task",
    "parse",
    "zone",
]


class ScheduleKind(Protocol):
    """What the table holds: the class of a kind, with the Struct that its spec is read into."""

    @property
    def Spec(self) -> type[msgspec.Struct]: ...  # noqa: N802 - a class

    def of(self, spec: Any, at: ReadContext, zone: Zone, reading: Reading) -> Schedule | None:
        """The schedule that a spec stands for. Problems are left with `at`; after one, it may be None."""
        ...


KINDS: Final[Mapping[str, ScheduleKind]] = MappingProxyType(
    {"cron": Cron, "once": Once, "interval": Interval, "weekly": Weekly, "monthly": Monthly}
)
ScheduleSpec: TypeAlias = CronSpec | OnceSpec | IntervalSpec | WeeklySpec | MonthlySpec
"""A schedule as JSON has it: an object whose `type` is one of KINDS."""


def parse(
    spec: Mapping[str, Any],
    timezone: str = "UTC",
    *,
    seconds_field: bool = True,
    changes: ClockChanges | None = None,
) -> Schedule:
    """The schedule that a spec stands for; cached.

    Raises ScheduleError, whose details name every wrong field: "timezone", "schedule", "schedule.type",
    "schedule.expr" and so on. `seconds_field` False refuses cron expressions of six fields; `changes` is `dst` of the task.

    A `once` at null or an `interval` with anchor null waits for `normalise` to know the time of creation: until then
    the one has no slot and the other counts from 1970.
    """
    try:
        # The class is in the key because True == 1 == 1.0.
        key = tuple((name, value.__class__, value) for name, value in spec.items())
        return _parse_cached(key, timezone, seconds_field, changes)
    except (AttributeError, TypeError):
        # Not a mapping, or with a value that cannot be hashed: reading it says what is wrong.
        return _read(spec, timezone, Reading(None, seconds_field, changes))


def of_task(spec: TaskSpec) -> Schedule | None:
    """The one schedule that all the fields of a task stand for; None on demand. Raises like `parse`."""
    if spec.schedule is None and not spec.schedules:
        return None
    bases = spec.schedules if spec.schedule is None else (spec.schedule,)
    return compose(bases, spec.exclude, spec.timezone, spec.dst)


def compose(
    bases: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
    timezone: str = "UTC",
    changes: ClockChanges | None = None,
) -> Schedule:
    """One schedule of all the slots that one of `bases` names and none of `exclude`; there is one base at least."""
    parts = tuple(parse(spec, timezone, changes=changes) for spec in bases)
    if len(parts) == 1 and not exclude:
        return parts[0]
    return Composed(parts, tuple(parse(spec, timezone, changes=changes) for spec in exclude))


def normalise(
    spec: Mapping[str, Any],
    timezone: str = "UTC",
    now: int | None = None,
    *,
    seconds_field: bool = True,
    changes: ClockChanges | None = None,
) -> dict[str, Any]:
    """The canonical JSON form, to be stored: every default filled in, cron as six fields.

    `now` is the slot of creation: what "at": null and "anchor": null stand for. What a cron expression was written as is
    kept as "source" where it differs. Raises like `parse`; what it returns is a fixed point of itself.
    """
    if _is_cron(spec):
        # The same at any time, and often asked for.
        return parse(spec, timezone, seconds_field=seconds_field, changes=changes).spec()
    return _read(spec, timezone, Reading(now, seconds_field, changes)).spec()


def _is_cron(spec: object) -> bool:
    return isinstance(spec, Mapping) and spec.get("type") == Cron.kind


@lru_cache(maxsize=16_384)
def _parse_cached(
    key: tuple[tuple[str, type, Any], ...], timezone: str, seconds_field: bool, changes: ClockChanges | None
) -> Schedule:
    return _read({name: value for name, _, value in key}, timezone, Reading(None, seconds_field, changes))


def _read(spec: object, timezone: object, reading: Reading) -> Schedule:
    problems = Problems()
    held = _zone_or_utc(timezone, problems)
    at = ReadContext(problems, "schedule", held)
    if not isinstance(spec, Mapping):
        like = '{"type": "cron", "expr": "@daily"}'
        problems.add(
            "schedule", Sentence("is {value}; expected an object such as {like}", value=shown(spec), like=like)
        )
        raise refusal(problems.found)
    name = spec.get("type")
    if not isinstance(name, str) or name not in KINDS:
        kinds = ", ".join(KINDS)
        if name is None:
            at.wrong("type", Sentence("is missing; expected one of {kinds}", kinds=kinds))
        else:
            at.wrong("type", Sentence("is {value}; expected one of {kinds}", value=shown(name), kinds=kinds))
        raise refusal(problems.found)
    rest = {field: value for field, value in spec.items() if field != "type"}
    schedule = KINDS[name].of(read_into(KINDS[name].Spec, rest, at), at, held, reading)
    if problems.found or schedule is None:
        raise refusal(problems.found)
    return schedule


def _zone_or_utc(timezone: object, problems: Problems) -> Zone:
    try:
        return find(timezone)
    except ScheduleError as bad:
        problems.take(bad)
        return find("UTC")
