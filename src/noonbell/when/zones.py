"""Time zones, as stretches of constant offset.

A zone is cut into *stretches*: spans of UTC during which the local clock runs evenly. Inside one, everything is
integer arithmetic; daylight saving happens only where two of them meet. `zoneinfo` does not tell where that is, so the
cuts are found by asking it for the offset of each day, a year at a time and once only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from noonbell.clock import EARLIEST, LATEST
from noonbell.errors import ScheduleError, Sentence
from noonbell.fields.problems import shown

DAY = 86_400
YEAR = 31_556_952
"""The mean Gregorian year: stretches are cached by slices of this many seconds."""
CYCLE_YEARS = 400
CYCLE = CYCLE_YEARS * YEAR
"""After this many seconds the calendar is the same again: 146,097 days, which are whole weeks."""
SETTLED = (2200 - 1970) * YEAR
"""From here on a zone's clock changes by one rule, and so repeats with the calendar: the years whose changes the time zone
database lists one by one are over (Morocco's are the last, in 2087)."""

_FIRST_SLICE = 1800 - 1970
"""Before this slice the clocks of all zones go evenly: the first change of any zone was in 1835."""
_SETTLED_SLICE = SETTLED // YEAR
_KEPT = _SETTLED_SLICE + CYCLE_YEARS
"""Slices of one zone: all from 1970 on, so that a walk to the end of the calendar cuts each of them once."""
_SETTLED_PROBE = 16 * DAY
"""The two changes of a year are further apart than this where a rule makes them."""

_FAR = 10**15
_OFFSET = re.compile(r"([+-])([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_OFFSET_LIKE = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII | re.IGNORECASE)
_MACHINE_NAMES = ("localtime", "posixrules", "Factory")
_OTHER_TREES = ("posix/", "right/")


class OffsetSpan(NamedTuple):
    """Constant offset in start <= t < stop (UTC seconds)."""

    start: int
    stop: int
    offset: int
    seen: int
    """The local second that the clock would have shown next, had the offset not changed: greater than start + offset
    after a clock went back (those local times have been seen before), less after it went forward (the gap)."""


class Zone:
    """A zone and its stretches. One object per name: compare by identity or by `name`."""

    def __init__(self, name: str, tz: tzinfo) -> None:
        self.name = name
        self.tzinfo = tz
        self.constant: int | None = None
        """The offset in seconds of a zone that has only one."""
        fixed = tz.utcoffset(None)
        if fixed is not None:
            self.constant = int(fixed.total_seconds())
            self._whole = OffsetSpan(-_FAR, _FAR, self.constant, -_FAR + self.constant)
        self._slices: dict[int, tuple[list[int], list[OffsetSpan]]] = {}

    def stretch(self, at: int) -> OffsetSpan:
        """The stretch that holds the instant `at`; cut short where the cached slices meet."""
        if self.constant is not None:
            return self._whole
        index = at // YEAR
        if index >= _SETTLED_SLICE + CYCLE_YEARS:
            later = (index - _SETTLED_SLICE) // CYCLE_YEARS * CYCLE
            start, stop, offset, seen = self.stretch(at - later)
            return OffsetSpan(start + later, stop + later, offset, seen + later)
        held = self._slices.get(max(index, _FIRST_SLICE - 1))
        if held is None:
            held = self._cut(index) if index >= _FIRST_SLICE else self._keep(_FIRST_SLICE - 1, [self._before_all()])
        starts, stretches = held
        return stretches[bisect_right(starts, at) - 1]

    def local(self, slot: int) -> datetime:
        return datetime.fromtimestamp(slot, self.tzinfo)

    def first_showing(self, wall: datetime) -> int:
        """The slot at which the zone's clock first shows a naive `wall`, or passes it by in a gap."""
        return self.first_second(int((wall - datetime(1970, 1, 1)).total_seconds() // 1))  # noqa: DTZ001 a reading, not an instant

    def first_second(self, local: int) -> int:
        """The same for a local second, counted from 1970-01-01 00:00 on the zone's own clock."""
        held = self.stretch(local - 2 * DAY)
        while local >= held.stop + held.offset:
            held = self.stretch(held.stop)
        return max(local - held.offset, held.start)

    def offset(self, at: int) -> int:
        held = min(max(at, EARLIEST), LATEST)
        offset = datetime.fromtimestamp(held, self.tzinfo).utcoffset()
        return int(offset.total_seconds()) if offset is not None else 0

    def _cut(self, index: int) -> tuple[list[int], list[OffsetSpan]]:
        first, last = index * YEAR, (index + 1) * YEAR
        # Start some days early: a clock that went back just before the slice has still to catch up inside it.
        start = first - 3 * DAY
        offset = self.offset(start)
        seen = start + offset
        stretches: list[OffsetSpan] = []
        step = DAY if index < _SETTLED_SLICE else _SETTLED_PROBE
        for probe in range(start, last, step):
            end = min(probe + step, last)
            while self.offset(end) != offset:
                change = self._change(max(probe, start), end, offset)
                stretches.append(OffsetSpan(start, change, offset, seen))
                seen = max(seen, change + offset)
                start, offset = change, self.offset(change)
        stretches.append(OffsetSpan(start, last, offset, seen))
        return self._keep(index, [self._clipped(held, first) for held in stretches if held.stop > first])

    def _before_all(self) -> OffsetSpan:
        """The whole time before the first slice."""
        offset = self.offset(EARLIEST)
        return OffsetSpan(-_FAR, _FIRST_SLICE * YEAR, offset, -_FAR + offset)

    def _keep(self, index: int, stretches: list[OffsetSpan]) -> tuple[list[int], list[OffsetSpan]]:
        held = ([held.start for held in stretches], stretches)
        if len(self._slices) >= _KEPT:
            self._slices.clear()
        self._slices[index] = held
        return held

    def _change(self, low: int, high: int, offset: int) -> int:
        """The first second in low < t <= high that no longer has `offset`."""
        later = range(low + 1, high)
        return low + 1 + bisect_left(later, True, key=lambda at: self.offset(at) != offset)

    @staticmethod
    def _clipped(held: OffsetSpan, first: int) -> OffsetSpan:
        if held.start >= first:
            return held
        return held._replace(start=first, seen=max(held.seen, first + held.offset))


def zone(name: str) -> tzinfo:
    """The tzinfo of an IANA name, "UTC" or a fixed offset such as "+08:00"; ScheduleError names the field `timezone`."""
    return find(name).tzinfo


def find(name: object) -> Zone:
    """Like `zone`, with its stretches."""
    if not isinstance(name, str):
        raise _refused(name)
    return _find(name)


@lru_cache(maxsize=1024)
def _find(name: str) -> Zone:
    if name == "UTC":
        return Zone(name, UTC)
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return Zone(name, _fixed(*offset.groups()))
    almost = _OFFSET_LIKE.fullmatch(name)
    if almost is not None:
        sign, hours, minutes = almost.groups("00")
        written = f"{sign}{int(hours):02d}:{minutes}"
        raise _refused(name, written if _OFFSET.fullmatch(written) else "")
    if name in _MACHINE_NAMES or name.startswith(_OTHER_TREES):
        raise _refused(name)
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise _refused(name) from None


def _fixed(sign: str, hours: str, minutes: str) -> timezone:
    span = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-span if sign == "-" else span)


_A_ZONE: Final = "an IANA name such as Europe/Berlin, UTC, or an offset such as +08:00"


def _refused(name: object, written: str = "") -> ScheduleError:
    """`written`: the same offset, as it would have been taken."""
    template = (
        "is {value}; expected {what}; for that offset write {written}" if written else "is {value}; expected {what}"
    )
    problem = Sentence(template, value=shown(name), what=_A_ZONE, written=written)
    return ScheduleError(f"timezone {problem}", details={"timezone": problem})
