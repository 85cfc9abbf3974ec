"""`cron`: five fields, six with seconds first, or a nickname such as @daily; seven with the year in the quartz dialect.

Stored as six fields, in the numbers of its dialect. Daylight saving depends on the rule and on `dst`, never on how many fields it was written with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from noonbell.when import describe, notes
from noonbell.when.cron_days import days_of, ever
from noonbell.when.cron_fields import KINDS, LONG_NAMES, BadField, Dialect, Field, kinds_of, read
from noonbell.when.fields import Fields
from noonbell.when.local import LocalSlots
from noonbell.when.schedule import CalendarKind, Note, shown
from noonbell.when.wall import Days, Wall
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


@dataclass(frozen=True, slots=True)
class Cron(CalendarKind):
    kind: ClassVar[str] = "cron"

    expr: str
    """Six fields, in capitals."""
    dialect: Dialect
    dst: Dst
    timezone: str
    repeat: int | None
    source: str
    """What was written; decides nothing, but the notes look at it."""
    fields: tuple[Field, ...] = field(compare=False, repr=False)
    slots: LocalSlots = field(compare=False, repr=False)

    @classmethod
    def read(cls, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Cron:
        del now
        dialect = Dialect(given.choice("dialect", tuple(Dialect), Dialect.STANDARD))
        dst = Dst(given.choice("dst", tuple(Dst), Dst.DEBIAN))
        source = _source(given, given.text("expr", _WHAT), dialect)
        expr = _six_fields(given, source, seconds_field, dialect)
        fields = _read_fields(given, expr, dialect)
        repeat = given.repeat()
        _check_some_day(given, fields, dialect)
        given.finish(cls.kind)
        wall = Wall(fields[0].mask, fields[1].mask, fields[2].mask, _days(fields, dialect))
        slots = LocalSlots(wall, zone, fixed=dst is Dst.DEBIAN and names_times(fields))
        return cls(expr, dialect, dst, zone.name, repeat, source.strip(), fields, slots)

    def next(self, after: int) -> int | None:
        return self.slots.next(after)

    def previous(self, before: int) -> int | None:
        return self.slots.previous(before)

    def count(self, start: int, stop: int) -> int:
        return self.slots.count(start, stop)

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
        found = notes.of_cron(self.fields, self.source, both_days(self.fields, self.dialect))
        if self.reads_otherwise(Dialect.STANDARD):
            found.append((f"dialect_differs_{self.dialect}", {}))
        if not self.fields[2].is_any:
            found += notes.of_clock_changes(self.slots, after, wall=self._wall_decides)
        return notes.worded(found, lang)

    def reads_otherwise(self, other: Dialect) -> bool:
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


def with_dialect(spec: Any, dialect: Dialect) -> Any:
    """The spec, in that dialect if it is a cron that names none. What is no spec at all comes back as it is."""
    if not isinstance(spec, Mapping) or spec.get("type") != Cron.kind or spec.get("dialect") is not None:
        return spec
    return {**spec, "dialect": str(dialect)}


def _source(given: Fields, expr: str, dialect: Dialect) -> str:
    """What the expression was written as: kept beside the stored form, which may come back without being touched."""
    if not given.given("source"):
        return expr
    source = given.text("source", "the text that the expression was written as")
    # A schedule that was edited and sent back carries the source of its former expression.
    return source if len(source) <= MAX_LENGTH and _expanded(source, dialect) == _expanded(expr, dialect) else expr


def _expanded(text: str, dialect: Dialect) -> str:
    """Six fields if there are five or six or a nickname; else whatever there is, its spaces evened out."""
    parts = text.upper().split()
    if len(parts) == 1 and parts[0] in NICKNAMES:
        return NICKNAMES[parts[0]] if dialect is not Dialect.QUARTZ else _in_quartz(NICKNAMES[parts[0]])
    if len(parts) == len(KINDS) - 1:
        parts.insert(0, "0")
    if dialect is Dialect.QUARTZ:
        if len(parts) == len(KINDS) + 1 and parts[-1] in ("*", "?"):
            parts.pop()
        parts = [re.sub(r"[A-Z]{3,}", lambda name: LONG_NAMES.get(name[0], name[0]), part) for part in parts]
    return " ".join(parts)


def _in_quartz(nickname: str) -> str:
    """Six fields of a nickname, whose weekday, if it has one, is Sunday."""
    return f"{nickname.removesuffix(' 0')} 1" if nickname.endswith(" 0") else nickname


def _six_fields(given: Fields, source: str, seconds_field: bool, dialect: Dialect) -> str:
    """The six fields of the source, or "" after a problem."""
    count = len(source.split())
    if not source:
        given.wrong("expr", f"is empty; expected {_WHAT}")
    elif len(source) > MAX_LENGTH:
        given.wrong("expr", f"has {len(source):,} characters; expected at most {MAX_LENGTH:,}")
    elif source.strip().startswith("@"):
        return _nickname(given, source, dialect)
    elif count == len(KINDS) + 1 and dialect is Dialect.QUARTZ and source.rsplit(maxsplit=1)[-1] not in ("*", "?"):
        year = source.rsplit(maxsplit=1)[-1]
        given.wrong("expr", f"names the year {shown(year)}; expected * there: start_at and end_at say it")
    elif count not in (5, 6) and not (count == len(KINDS) + 1 and dialect is Dialect.QUARTZ):
        hint = ", or 7 with a year in the quartz dialect" if count == len(KINDS) + 1 else ""
        given.wrong("expr", f"is {shown(source)}, {count} fields; expected {_WHAT}{hint}")
    elif count >= len(KINDS) and not seconds_field:
        given.wrong(
            "expr", f"is {shown(source)}, {count} fields; expected 5, because scheduler.enable_seconds_field is off"
        )
    else:
        return _expanded(source, dialect)
    return ""


def _nickname(given: Fields, source: str, dialect: Dialect) -> str:
    expr = _expanded(source, dialect)
    if "@" not in expr:
        return expr
    if expr == "@REBOOT":
        hint = "a scheduler of many nodes has no moment of reboot: use a once schedule, or trigger the task"
    elif expr.startswith("@EVERY"):
        hint = 'use a schedule of type interval: {"type": "interval", "every": 5, "unit": "minute"}'
    else:
        hint = "expected " + ", ".join(name.lower() for name in NICKNAMES)
    given.wrong("expr", f"is {shown(source)}; {hint}")
    return ""


def _read_fields(given: Fields, expr: str, dialect: Dialect) -> tuple[Field, ...]:
    """The six fields, or none after a problem. All bad fields are named."""
    if not expr:
        return ()
    found: list[Field] = []
    problems: list[str] = []
    for kind, text in zip(kinds_of(dialect), expr.split(), strict=True):
        try:
            found.append(read(kind, text, dialect))
        except BadField as bad:
            problems.append(str(bad))
    if problems:
        given.wrong("expr", "; ".join(problems))
        return ()
    return tuple(found)


def _fields_of(expr: str, dialect: Dialect) -> tuple[Field, ...]:
    """Raises BadField for the first field that cannot be read."""
    return tuple(read(kind, text, dialect) for kind, text in zip(kinds_of(dialect), expr.split(), strict=True))


def _meaning(fields: tuple[Field, ...], dialect: Dialect) -> tuple[object, ...]:
    """Equal for two readings that name the same moments."""
    told = tuple(
        (each.mask, each.from_last, each.last_workday, each.nearest, each.nth, each.last_of) for each in fields
    )
    day, weekday = fields[3], fields[5]
    is_every_day = day.is_any and weekday.is_any
    return (told, None if is_every_day else both_days(fields, dialect))


def both_days(fields: tuple[Field, ...], dialect: Dialect) -> bool:
    """Debian cron: either day field is enough, unless one of them starts with a star."""
    return dialect is not Dialect.STANDARD or fields[3].starts_with_star or fields[5].starts_with_star


def _days(fields: tuple[Field, ...], dialect: Dialect) -> Days:
    return days_of(fields[3], fields[4], fields[5], both_days(fields, dialect))


def _check_some_day(given: Fields, fields: tuple[Field, ...], dialect: Dialect) -> None:
    if fields and not ever(_days(fields, dialect)):
        texts = " ".join(each.text for each in fields[3:])
        given.wrong("expr", f"never fires: no day matches {shown(texts)} (day of month, month, day of week)")


def names_times(fields: tuple[Field, ...]) -> bool:
    """Debian cron: a rule names times of day, unless its minute or its hour starts with a star."""
    return not (fields[1].starts_with_star or fields[2].starts_with_star)
