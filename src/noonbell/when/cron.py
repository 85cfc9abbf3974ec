"""`cron`: five fields, six with seconds first, or a nickname such as @daily; seven with the year in the quartz dialect.

Stored as six fields, in the numbers of its dialect. Daylight saving depends on the rule and on `dst`, never on how many
fields it was written with.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, reduce
from typing import Annotated, Any, ClassVar

import msgspec

from noonbell.errors import Sentence, both
from noonbell.fields import meta
from noonbell.fields.problems import ReadContext, shown
from noonbell.model.task_schedule import ClockChanges
from noonbell.when import describe
from noonbell.when.cron_fields import KINDS, LONG_NAMES, BadField, CronDialect, CronField, kinds_of, read
from noonbell.when.schedule import Note, Reading, Repeat, repeat_of
from noonbell.when.wall_clock import Days, LocalKind, LocalSlots, Wall
from noonbell.when.zones import Zone

MAX_LENGTH = 1024
"""Enough to list every second and every minute, and little enough to read in no time."""

NICKNAMES = {
    "@YEARLY": "0 0 0 1 1 *",
    "@ANNUALLY": "0 0 0 1 1 *",
    "@MONTHLY": "0 0 0 1 * *",
    "@WEEKLY": "0 0 0 * * 0",
    "@DAILY": "0 0 0 * * *",
    "@MIDNIGHT": "0 0 0 * * *",
    "@HOURLY": "0 0 * * * *",
}

_WHAT = "a cron expression of 5 fields, 6 with seconds first, or a nickname such as @daily"


class Dst(StrEnum):
    DEBIAN = "debian"
    """A fixed time in the gap is done right after it; a repeated one counts the first time only."""
    WALL = "wall"
    """Whenever the clock on the wall shows it: never in a gap, both times in an overlap."""


class CronSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    noun: ClassVar[str] = "a cron schedule"

    expr: Annotated[
        str,
        meta(
            "Five fields, or six with seconds first; @daily and friends. Quartz: a seventh, `*`.",
            min_length=1,
            max_length=MAX_LENGTH,
            lines=True,
            expected=_WHAT,
            examples=["*/5 * * * *"],
        ),
    ]
    dialect: Annotated[
        CronDialect, meta("The dialect. Default `scheduler.cron_dialect` of the settings.", default=None)
    ] = CronDialect.STANDARD
    dst: Annotated[Dst, meta("What clock changes do to it.")] = Dst.DEBIAN
    repeat: Repeat = None
    source: Annotated[
        str | None,
        meta(
            "How `expr` was originally written; shown, and ignored if it means something else.",
            max_length=1_048_576,
            lines=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Cron(LocalKind):
    kind: ClassVar[str] = "cron"
    Spec: ClassVar = CronSpec

    expr: str
    """Six fields, in capitals."""
    dialect: CronDialect
    dst: Dst
    timezone: str
    repeat: int | None
    source: str
    """What was written; decides nothing, but the notes look at it."""
    changes: ClockChanges | None
    fields: tuple[CronField, ...] = field(compare=False, repr=False)
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def of(cls, spec: CronSpec, at: ReadContext, zone: Zone, reading: Reading) -> Cron | None:
        seconds_field = reading.seconds_field
        if spec.dst is Dst.WALL and reading.changes is not None:
            at.wrong("dst", "is wall, but the task has its own dst; expected one of the two")
        dialect, dst, repeat = spec.dialect, spec.dst, repeat_of(spec.repeat, at)
        source = _source(spec, dialect)
        expr = "" if at.name_of("expr") in at.problems.found else _six_fields(at, source, seconds_field, dialect)
        fields = _read_fields(at, expr, dialect)
        _check_some_day(at, fields, dialect)
        if not fields:
            return None
        wall = Wall(fields[0].mask, fields[1].mask, fields[2].mask, _days(fields, dialect))
        slots = LocalSlots(wall, zone, dst is Dst.DEBIAN and names_times(fields), reading.changes)
        return cls(expr, dialect, dst, zone.name, repeat, source.strip(), reading.changes, fields, slots)

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"type": "cron", "expr": self.expr, "dialect": str(self.dialect), "repeat": self.repeat}
        if self.dst is not Dst.DEBIAN:
            spec["dst"] = str(self.dst)
        if self.source != self.expr:
            spec["source"] = self.source
        return spec

    def describe(self, lang: str = "en") -> str:
        words = describe.words(lang)
        said = words.cron(self.fields, both_days(self.fields, self.dialect))
        return words.in_zone(said, self._shown_zone(), wall=self._wall_decides and self.slots.zone.constant is None)

    def notes(self, lang: str = "en", after: int | None = None) -> tuple[Note, ...]:
        found = describe.of_cron(self.fields, self.source, both_days(self.fields, self.dialect))
        if self.reads_otherwise(CronDialect.STANDARD):
            found.append((f"dialect_differs_{self.dialect}", {}))
        if not self.fields[2].is_any:
            found += describe.of_clock_changes(self.slots, after, wall=self._wall_decides)
        return describe.worded(found, lang)

    def reads_otherwise(self, other: CronDialect) -> bool:
        """Whether the same text, read in the other dialect, would name other moments. False where it cannot be read."""
        if other is self.dialect:
            return False
        is_nickname = self.source.startswith("@")
        try:
            theirs = _fields_of(_expanded(self.source, other) if is_nickname else self.expr, other)
        except BadField:
            return False
        return _meaning(self.fields, self.dialect) != _meaning(theirs, other)

    @property
    def _wall_decides(self) -> bool:
        """Whether `dst` makes a difference: a rule that names no times of day goes by the wall clock anyway."""
        return self.dst is Dst.WALL and names_times(self.fields)

    def _shown_zone(self) -> str:
        """Empty where the zone makes no difference that people would look for."""
        return "" if all(each.is_any for each in self.fields[2:]) else self.timezone


def with_dialect(spec: Any, dialect: CronDialect) -> Any:
    """The spec, in that dialect if it is a cron that names none. What is no spec at all comes back as it is."""
    if not isinstance(spec, Mapping) or spec.get("type") != Cron.kind or spec.get("dialect") is not None:
        return spec
    return {**spec, "dialect": str(dialect)}


def _source(spec: CronSpec, dialect: CronDialect) -> str:
    """What the expression was written as: kept beside the stored form, which may come back without being touched."""
    source, expr = spec.source, spec.expr
    # A schedule that was edited and sent back carries the source of its former expression.
    if source is None or len(source) > MAX_LENGTH or _expanded(source, dialect) != _expanded(expr, dialect):
        return expr
    return source


def _expanded(text: str, dialect: CronDialect) -> str:
    """Six fields if there are five or six or a nickname; else the text as it is, its spaces evened out."""
    parts = text.upper().split()
    if len(parts) == 1 and parts[0] in NICKNAMES:
        return NICKNAMES[parts[0]] if dialect is not CronDialect.QUARTZ else _in_quartz(NICKNAMES[parts[0]])
    if len(parts) == len(KINDS) - 1:
        parts.insert(0, "0")
    if dialect is CronDialect.QUARTZ:
        if len(parts) == len(KINDS) + 1 and parts[-1] in ("*", "?"):
            parts.pop()
        parts = [re.sub(r"[A-Z]{3,}", lambda name: LONG_NAMES.get(name[0], name[0]), part) for part in parts]
    return " ".join(parts)


def _in_quartz(nickname: str) -> str:
    """Six fields of a nickname, whose weekday, if it has one, is Sunday."""
    return f"{nickname.removesuffix(' 0')} 1" if nickname.endswith(" 0") else nickname


def _six_fields(at: ReadContext, source: str, seconds_field: bool, dialect: CronDialect) -> str:
    """The six fields of the source, or "" after a problem."""
    count = len(source.split())
    if source.strip().startswith("@"):
        return _nickname(at, source, dialect)
    if count == len(KINDS) + 1 and dialect is CronDialect.QUARTZ and source.rsplit(maxsplit=1)[-1] not in ("*", "?"):
        year = source.rsplit(maxsplit=1)[-1]
        template = "names the year {value}; expected * there: start_at and end_at limit the years"
        at.wrong("expr", Sentence(template, value=shown(year)))
    elif count not in (5, 6) and not (count == len(KINDS) + 1 and dialect is CronDialect.QUARTZ):
        what = f"{_WHAT}, or 7 with a year in the quartz dialect" if count == len(KINDS) + 1 else _WHAT
        at.wrong("expr", _of_fields(source, count, what))
    elif count >= len(KINDS) and not seconds_field:
        at.wrong("expr", _of_fields(source, count, "5, because scheduler.enable_seconds_field is off"))
    else:
        return _expanded(source, dialect)
    return ""


def _of_fields(source: str, count: int, what: str) -> Sentence:
    template = "is {value}, 1 field; expected {what}" if count == 1 else "is {value}, {count} fields; expected {what}"
    return Sentence(template, value=shown(source), count=count, what=what)


def _nickname(at: ReadContext, source: str, dialect: CronDialect) -> str:
    expr = _expanded(source, dialect)
    if "@" not in expr:
        return expr
    if expr == "@REBOOT":
        hint = "a scheduler with several nodes has no single moment of reboot: use a once schedule, or trigger the task"
    elif expr.startswith("@EVERY"):
        hint = 'use a schedule of type interval: {"type": "interval", "every": 5, "unit": "minute"}'
    else:
        hint = Sentence("expected one of {words}", words=", ".join(name.lower() for name in NICKNAMES))
    at.wrong("expr", Sentence("is {value}; {what}", value=shown(source), what=hint))
    return ""


def _read_fields(at: ReadContext, expr: str, dialect: CronDialect) -> tuple[CronField, ...]:
    """The six fields, or none after a problem. All bad fields are named."""
    if not expr:
        return ()
    found: list[CronField] = []
    problems: list[Sentence] = []
    for kind, text in zip(kinds_of(dialect), expr.split(), strict=True):
        try:
            found.append(read(kind, text, dialect))
        except BadField as bad:
            problems.append(bad.problem)
    if problems:
        at.wrong("expr", reduce(both, problems))
        return ()
    return tuple(found)


def _fields_of(expr: str, dialect: CronDialect) -> tuple[CronField, ...]:
    """Raises BadField for the first field that cannot be read."""
    return tuple(read(kind, text, dialect) for kind, text in zip(kinds_of(dialect), expr.split(), strict=True))


def _meaning(fields: tuple[CronField, ...], dialect: CronDialect) -> tuple[object, ...]:
    """Equal for two readings that name the same moments."""
    told = tuple(
        (each.mask, each.from_last, each.last_workday, each.nearest, each.nth, each.last_of) for each in fields
    )
    day, weekday = fields[3], fields[5]
    is_every_day = day.is_any and weekday.is_any
    return (told, None if is_every_day else both_days(fields, dialect))


def both_days(fields: tuple[CronField, ...], dialect: CronDialect) -> bool:
    """Debian cron: either day field is enough, unless one of them starts with a star."""
    return dialect is not CronDialect.STANDARD or fields[3].starts_with_star or fields[5].starts_with_star


def _days(fields: tuple[CronField, ...], dialect: CronDialect) -> Days:
    return days_of(fields[3], fields[4], fields[5], both_days(fields, dialect))


def _check_some_day(at: ReadContext, fields: tuple[CronField, ...], dialect: CronDialect) -> None:
    if fields and not ever(_days(fields, dialect)):
        texts = " ".join(each.text for each in fields[3:])
        template = "never fires: no day matches {value} (day of month, month, day of week)"
        at.wrong("expr", Sentence(template, value=shown(texts)))


def names_times(fields: tuple[CronField, ...]) -> bool:
    """Debian cron: a rule names times of day, unless its minute or its hour starts with a star."""
    return not (fields[1].starts_with_star or fields[2].starts_with_star)


_PROBE_YEARS = range(2000, 2028)
"""28 years without a missing leap day: each kind of year (leap or not, times the weekday it begins with) is there."""


@lru_cache(maxsize=4096)
def days_of(day: CronField, month: CronField, weekday: CronField, both: bool) -> Days:
    """`both`: a day must match both day fields; else either is enough."""

    def mask(year: int, number: int) -> int:
        if not month.mask >> number & 1:
            return 0
        # monthrange counts Monday as 0, cron Sunday.
        first, length = monthrange(year, number)
        by_date = _by_date(day, (first + 1) % 7, length)
        by_weekday = _by_weekday(weekday, (first + 1) % 7, length)
        return by_date & by_weekday if both else by_date | by_weekday

    return Days(mask)


def ever(days: Days) -> bool:
    """Whether there is any day at all. Looks at 336 months at most."""
    months = range(_PROBE_YEARS.start * 12, _PROBE_YEARS.stop * 12)
    return any(days.month(index)[0] for index in months)


def _by_date(field: CronField, first: int, length: int) -> int:
    """`first` is the weekday of the 1st, Sunday 0."""
    mask = field.mask
    for back in field.from_last:
        if back < length:
            mask |= 1 << length - back
    if field.last_workday:
        mask |= 1 << _nearest_workday(length, first, length)
    for day in field.nearest:
        if day <= length:
            mask |= 1 << _nearest_workday(day, first, length)
    return mask & ((2 << length) - 2)


def _nearest_workday(day: int, first: int, length: int) -> int:
    """The Monday to Friday nearest to `day`, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(field: CronField, first: int, length: int) -> int:
    mask = 0
    for weekday in range(7):
        earliest = (weekday - first) % 7 + 1
        if field.mask >> weekday & 1:
            mask |= _each_week(earliest, length)
        if weekday in field.last_of:
            mask |= 1 << earliest + (length - earliest) // 7 * 7
    for weekday, nth in field.nth:
        day = (weekday - first) % 7 + 1 + (nth - 1) * 7
        if day <= length:
            mask |= 1 << day
    return mask


def _each_week(first: int, length: int) -> int:
    return sum(1 << day for day in range(first, length + 1, 7))


def weekday_mask(weekday: int, year: int, month: int) -> int:
    """All the days of a month that are this weekday, Sunday 0."""
    first, length = monthrange(year, month)
    return _each_week((weekday - first - 1) % 7 + 1, length)
