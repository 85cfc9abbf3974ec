"""One cron field: its text, read into a bit mask.

    field = item {"," item}
    item  = ("*" | "?" | value | value "-" value) ["/" step]
    day of month also:  L   L-n   LW   nW
    day of week also:   n#k   nL

A value is a number or, for months and weekdays, a name in any case. A range may wrap (22-2, DEC-FEB).

A mask is the same in every dialect: bit 0 of the weekdays is Sunday, however the text counts them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from noonbell.errors import Sentence

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DIGITS = 4
_WEEKS = range(1, 6)
_LAST_OFFSETS = range(31)


class CronDialect(StrEnum):
    STANDARD = "standard"
    """Debian's cron: Sunday is 0 or 7; with two day fields either is enough."""
    CRONJOB = "cronjob"
    """`*/N` is a value that N divides; both day fields must match."""
    QUARTZ = "quartz"
    """Sunday is 1 and Saturday 7; both day fields must match; a seventh field is the year. The Rust crate `cron`, too."""


@dataclass(frozen=True, slots=True, eq=False)
class CronFieldKind:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    syntax: str = "a list, a range or a step"

    @property
    def size(self) -> int:
        """How many different values there are. Sunday is one, though it is written 0 or 7."""
        return 7 if self.name == "day of week" else self.high - self.low + 1


SECOND = CronFieldKind("second", 0, 59)
MINUTE = CronFieldKind("minute", 0, 59)
HOUR = CronFieldKind("hour", 0, 23)
DAY = CronFieldKind("day of month", 1, 31, syntax="a list, a range, a step, L, L-n, LW or nW")
MONTH = CronFieldKind("month", 1, 12, _MONTHS, "JAN-DEC, a list, a range or a step")
WEEKDAY = CronFieldKind("day of week", 0, 7, _WEEKDAYS, "SUN-SAT, a list, a range, a step, n#k or nL")
KINDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
QUARTZ_WEEKDAY = CronFieldKind(
    "day of week", 1, 7, _WEEKDAYS, "1 for Sunday, SUN-SAT, a list, a range, a step, n#k or nL"
)
LONG_NAMES = {
    name: name[:3]
    for name in (
        *("SUNDAY", "MONDAY", "TUES", "TUESDAY", "WEDNESDAY", "THURS", "THURSDAY", "FRIDAY", "SATURDAY"),
        *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "JUNE", "JULY"),
        *("AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
    )
}
"""What the Rust crate `cron` takes besides the names of three letters."""


def kinds_of(dialect: CronDialect) -> tuple[CronFieldKind, ...]:
    return (*KINDS[:-1], QUARTZ_WEEKDAY) if dialect is CronDialect.QUARTZ else KINDS


class BadField(Exception):
    """The text is no such field. The message says which item is wrong and what was expected."""

    def __init__(self, kind: CronFieldKind, item: str, hint: str = "") -> None:
        shown = item if len(item) <= 40 else item[:39] + "…"
        template = "{field} {value} is wrong; expected {low}-{high}, {what}"
        facts = {"field": kind.name, "value": repr(shown), "low": kind.low, "high": kind.high, "what": kind.syntax}
        self.problem = Sentence(template + hint, **facts)
        super().__init__(self.problem)


@dataclass(frozen=True, slots=True, eq=False)
class CronField:
    """A field that was read. The sets after `mask` hold what depends on the month.

    Compared by identity, because `read` gives the same object for the same text.
    """

    kind: CronFieldKind
    text: str
    mask: int
    steps: tuple[int, ...] = ()
    """The steps that begin at the field's lowest value: the ones that people expect to go round evenly."""
    from_last: frozenset[int] = frozenset()
    """L-n: days before the last day of the month; 0 for L."""
    last_workday: bool = False
    nearest: frozenset[int] = frozenset()
    """nW: the Monday to Friday nearest to day n, in the same month."""
    nth: frozenset[tuple[int, int]] = frozenset()
    """n#k: (weekday, k)."""
    last_of: frozenset[int] = frozenset()
    """nL: the last such weekday of the month."""

    @property
    def starts_with_star(self) -> bool:
        return self.text[0] in "*?"

    @property
    def is_any(self) -> bool:
        """Every value matches."""
        return self.mask.bit_count() == self.kind.size

    @property
    def is_plain(self) -> bool:
        """Nothing depends on the month: `mask` says it all."""
        return not (self.from_last or self.last_workday or self.nearest or self.nth or self.last_of)


@dataclass(slots=True)
class _Gathered:
    mask: int = 0
    last_workday: bool = False
    steps: list[int] = field(default_factory=list)
    from_last: set[int] = field(default_factory=set)
    nearest: set[int] = field(default_factory=set)
    nth: set[tuple[int, int]] = field(default_factory=set)
    last_of: set[int] = field(default_factory=set)


@lru_cache(maxsize=8192)
def read(kind: CronFieldKind, text: str, dialect: CronDialect = CronDialect.STANDARD) -> CronField:
    """The field that `text`, in capitals, stands for; raises BadField."""
    found = _Gathered()
    for item in text.split(","):
        if not _read_special(kind, item, found):
            found.mask |= _read_item(kind, item, dialect, found)
    if kind is WEEKDAY:
        found.mask = (found.mask | found.mask >> 7) & 0x7F
    elif kind is QUARTZ_WEEKDAY:
        found.mask >>= 1
    return CronField(
        kind,
        text,
        found.mask,
        tuple(found.steps),
        frozenset(found.from_last),
        found.last_workday,
        frozenset(found.nearest),
        frozenset(found.nth),
        frozenset(found.last_of),
    )


def _read_special(kind: CronFieldKind, item: str, found: _Gathered) -> bool:
    """Whether the item is one that depends on the month; if so it is now in `found`."""
    if kind is DAY:
        if item == "LW":
            found.last_workday = True
        elif item == "L":
            found.from_last.add(0)
        elif item.startswith("L-"):
            found.from_last.add(_number(kind, item[2:], item, _LAST_OFFSETS))
        elif item.endswith("W"):
            found.nearest.add(_number(kind, item[:-1], item, range(1, 32)))
        else:
            return False
        return True
    if kind in (WEEKDAY, QUARTZ_WEEKDAY):
        if "#" in item:
            day, _, nth = item.partition("#")
            if len(nth) > 1:
                raise BadField(kind, item)
            found.nth.add((_weekday(kind, day, item), _number(kind, nth, item, _WEEKS)))
        elif item == "L" and kind is QUARTZ_WEEKDAY:
            found.mask |= 1 << kind.high
        elif item.endswith("L") and len(item) > 1:
            found.last_of.add(_weekday(kind, item[:-1], item))
        else:
            return False
        return True
    return False


def _weekday(kind: CronFieldKind, text: str, item: str) -> int:
    """0 for Sunday to 6."""
    value = _value(kind, text, item)
    return value - 1 if kind is QUARTZ_WEEKDAY else value % 7


def _read_item(kind: CronFieldKind, item: str, dialect: CronDialect, found: _Gathered) -> int:
    span, slash, step_text = item.partition("/")
    step = 1
    if slash:
        step = _number(kind, step_text, item, range(1, 10**_DIGITS))
    if span == "*" or (span == "?" and kind in (DAY, WEEKDAY, QUARTZ_WEEKDAY)):
        if step > 1:
            found.steps.append(step)
        return _every(kind, step, dialect)
    if span == "?":
        raise BadField(kind, item, "; '?' is for the day fields only")
    first, dash, last = span.partition("-")
    low = _value(kind, first, item)
    if dash:
        return _range(kind, low, _value(kind, last, item), step)
    if not slash:
        return 1 << low
    if step > 1 and low == kind.low:
        found.steps.append(step)
    return _range(kind, low, kind.high, step)


def _every(kind: CronFieldKind, step: int, dialect: CronDialect) -> int:
    start = kind.low
    if dialect is CronDialect.CRONJOB and start % step:
        start = step
    return _bits(range(start, kind.high + 1, step))


def _range(kind: CronFieldKind, low: int, high: int, step: int) -> int:
    if low <= high:
        return _bits(range(low, high + 1, step))
    # The range wraps: count on past the end and come back in at the start. A week wraps from Saturday to Sunday.
    return _bits((value - kind.low) % kind.size + kind.low for value in range(low, high + kind.size + 1, step))


def _bits(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def _value(kind: CronFieldKind, text: str, item: str) -> int:
    if text in kind.names:
        return kind.names.index(text) + kind.low
    return _number(kind, text, item, range(kind.low, kind.high + 1))


def _number(kind: CronFieldKind, text: str, item: str, allowed: range) -> int:
    # str.isdigit alone would let ¹ and ٣ through.
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS) or int(text) not in allowed:
        raise BadField(kind, item)
    return int(text)
