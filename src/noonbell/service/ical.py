"""The closed days of an iCal file: each all-day event closes its days. Events with a time of day close none.

Repeated events are followed for some years. What would take long to expand is refused: a file is not trusted.
Needs the extra `noonbell[ical]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any, Final

from noonbell.errors import InvalidArgument
from noonbell.model.calendar import MOST_DAYS

MOST_BYTES: Final = 1 << 20
_MOST_EVENTS: Final = 5_000
_MOST_REPEATED: Final = 200
_YEARS_BACK, _YEARS_AHEAD = 1, 5
_FREQUENCIES: Final = frozenset({"DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_FINER_THAN_DAYS: Final = ("BYHOUR", "BYMINUTE", "BYSECOND")
INSTALL: Final = "pip install 'noonbell[ical]'"


def days_of_file(text: bytes, today: date, field: str = "ics") -> tuple[str, ...]:
    """Sorted, each day or range as a list of days has it. Raises InvalidArgument, naming `field`."""
    try:
        import icalendar
        import recurring_ical_events
    except ModuleNotFoundError:
        raise InvalidArgument.field(
            field, f"needs the extra for iCal files, which is not installed: {INSTALL}"
        ) from None
    if len(text) > MOST_BYTES:
        raise InvalidArgument.field(field, f"has {len(text)} bytes; expected {MOST_BYTES} at most")
    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = [event for event in calendar.walk("VEVENT") if _is_all_day(event)]
        _check(events, field)
        kept = icalendar.Calendar()
        for event in events:
            kept.add_component(event)
        begin, end = today.replace(month=1, day=1), date(today.year + _YEARS_AHEAD, 12, 31)
        begin = begin.replace(year=begin.year - _YEARS_BACK)
        found = recurring_ical_events.of(kept).between(begin, end + timedelta(days=1))
        days = {day for event in found for day in _days(event)}
    except InvalidArgument:
        raise
    except Exception as error:
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InvalidArgument.field(field, f"is no iCal file that can be read: {said}") from None
    return in_ranges(days, field)


def in_ranges(days: Iterable[date], field: str = "ics") -> tuple[str, ...]:
    """Days on end as one range."""
    ranges: list[list[date]] = []
    for day in sorted(days):
        if ranges and day - ranges[-1][1] == timedelta(days=1):
            ranges[-1][1] = day
        else:
            ranges.append([day, day])
    if len(ranges) > MOST_DAYS:
        raise InvalidArgument.field(field, f"closes {len(ranges)} stretches of days; expected {MOST_DAYS} at most")
    return tuple(str(first) if first == last else f"{first}/{last}" for first, last in ranges)


def _is_all_day(event: Any) -> bool:
    begin = event.get("DTSTART")
    is_day = begin is not None and isinstance(begin.dt, date) and not isinstance(begin.dt, datetime)
    return is_day and str(event.get("STATUS", "")).upper() != "CANCELLED"


def _check(events: list[Any], field: str) -> None:
    if len(events) > _MOST_EVENTS:
        raise InvalidArgument.field(field, f"has {len(events)} events; expected {_MOST_EVENTS} at most")
    rules: list[Any] = []
    for event in events:
        found = event.get("RRULE")
        rules += found if isinstance(found, list) else [] if found is None else [found]
    if len(rules) > _MOST_REPEATED:
        raise InvalidArgument.field(field, f"has {len(rules)} repeated events; expected {_MOST_REPEATED} at most")
    for rule in rules:
        often = {str(one).upper() for one in rule.get("FREQ", [])}
        if not often <= _FREQUENCIES or any(name in rule for name in _FINER_THAN_DAYS):
            raise InvalidArgument.field(field, "has an all-day event that repeats within a day")


def _days(event: Any) -> list[date]:
    begin = event["DTSTART"].dt
    begin = begin.date() if isinstance(begin, datetime) else begin
    end = event["DTEND"].dt if "DTEND" in event else begin + timedelta(days=1)
    end = end.date() if isinstance(end, datetime) else end
    length = min(max(1, (end - begin).days), 3_660)
    return [begin + timedelta(days=number) for number in range(length)]
