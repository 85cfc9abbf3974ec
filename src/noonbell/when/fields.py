"""Reading the JSON of a schedule: each field checked, every problem of a spec collected before any is raised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from noonbell.clock import from_datetime, slot_of
from noonbell.errors import ScheduleError
from noonbell.when.schedule import EARLIEST, LATEST, SHOWN, shown
from noonbell.when.zones import Zone

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE)
_CLOCK_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)


class Fields:
    """The fields of one schedule spec.

    Each reader returns a usable value even after a problem, so that reading goes on; nobody sees it, because `finish`
    raises.
    """

    def __init__(self, spec: Mapping[str, Any], problems: dict[str, str]) -> None:
        self._spec = spec
        self._known = {"type"}
        self.problems = problems

    def wrong(self, name: str, problem: str) -> None:
        self.problems.setdefault(f"schedule.{name}", problem)

    def given(self, name: str) -> bool:
        """Whether the field is there and not null."""
        self._known.add(name)
        return self._spec.get(name) is not None

    def integer(self, name: str, low: int, high: int, what: str) -> int:
        """`what` completes the sentence "… ; expected "."""
        if not self.given(name):
            self.wrong(name, f"is missing; expected {what}")
            return low
        value = self._spec[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(name, f"is {shown(value)}; expected {what}")
            return low
        return value

    def choice(self, name: str, options: Sequence[str], default: str | None = None) -> str:
        if not self.given(name):
            if default is None:
                self.wrong(name, f"is missing; expected one of {', '.join(options)}")
            return default or options[0]
        value = self._spec[name]
        if not isinstance(value, str) or value not in options:
            self.wrong(name, f"is {shown(value)}; expected one of {', '.join(options)}")
            return options[0]
        return value

    def flag(self, name: str, default: bool) -> bool:
        if not self.given(name):
            return default
        value = self._spec[name]
        if not isinstance(value, bool):
            self.wrong(name, f"is {shown(value)}; expected true or false")
            return default
        return value

    def text(self, name: str, what: str) -> str:
        if not self.given(name):
            self.wrong(name, f"is missing; expected {what}")
            return ""
        value = self._spec[name]
        if not isinstance(value, str):
            self.wrong(name, f"is {shown(value)}; expected {what}")
            return ""
        return value

    def clock_time(self, name: str = "time") -> int:
        """A time of day as seconds since midnight."""
        what = 'a time of day "HH:MM:SS" or "HH:MM", from 00:00:00 to 23:59:59'
        value = self.text(name, what)
        found = _CLOCK_TIME.fullmatch(value)
        if found is None:
            self.wrong(name, f"is {shown(value)}; expected {what}")
            return 0
        hours, minutes, seconds = found.groups("0")
        return int(hours) * 3600 + int(minutes) * 60 + int(seconds)

    def moment(self, name: str, zone: Zone) -> int | None:
        """The slot of an RFC 3339 time; local time in `zone` if it names no offset. None if absent or null."""
        if not self.given(name):
            return None
        value = self._spec[name]
        try:
            moment = value if isinstance(value, datetime) else _iso_moment(value)
            slot = zone.first_showing(moment) if moment.tzinfo is None else int(slot_of(from_datetime(moment)))
        except (OverflowError, TypeError, ValueError):
            self.wrong(name, f'is {shown(value)}; expected an RFC 3339 time such as "2026-11-15T02:30:00Z"')
            return None
        if not EARLIEST <= slot <= LATEST:
            self.wrong(name, f"is {shown(value)}; expected a time from the year 2 to the year 9998")
            return None
        return slot

    def repeat(self) -> int | None:
        """None = for ever, which null and -1 both say."""
        if not self.given("repeat"):
            return None
        value = self._spec["repeat"]
        if isinstance(value, bool) or not isinstance(value, int) or value == 0 or value < -1:
            self.wrong("repeat", f"is {shown(value)}; expected the number of slots, 1 or more, or null or -1 for ever")
            return None
        return None if value == -1 else value

    def finish(self, kind: str) -> None:
        """Refuse what nobody read, then raise all problems at once."""
        for name in self._spec:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                self.wrong(str(name)[:SHOWN], f"is not a field of a {kind} schedule; it has {known}")
        if self.problems:
            raise refusal(self.problems)


def refusal(problems: Mapping[str, str]) -> ScheduleError:
    text = "; ".join(f"{name} {problem}" for name, problem in problems.items())
    return ScheduleError(text, details=problems)


def _iso_moment(value: object) -> datetime:
    # fromisoformat reads far more than RFC 3339: bare dates, week dates, times without seconds.
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        raise ValueError
    return datetime.fromisoformat(value.upper())


def clock_text(time: int) -> str:
    return f"{time // 3600:02d}:{time // 60 % 60:02d}:{time % 60:02d}"


def rfc3339(slot: int) -> str:
    return datetime.fromtimestamp(slot, UTC).isoformat().replace("+00:00", "Z")
