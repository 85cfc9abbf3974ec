"""Cron fields of systems in which both day fields must match, and names of weekdays in place of their many numberings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from noonbell import when
from noonbell.cli.importers.report import Refused
from noonbell.service.task_files import needs_dialect

WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def cron_fields(
    *,
    second: str = "0",
    minute: str = "*",
    hour: str = "*",
    day: str = "*",
    month: str = "*",
    weekday: str = "*",
    zone: str,
) -> dict[str, Any]:
    """`cron_expr`, and its dialect where that matters. Weekdays are given by name. ScheduleError where there is no such
    moment.
    """
    both = day not in ("*", "?") and weekday not in ("*", "?")
    times = (minute, hour) if second == "0" and not both else (second, minute, hour)
    return cron_of(" ".join((*times, day, month, weekday)), "quartz" if both else "standard", zone)


def cron_of(expr: str, dialect: str, zone: str) -> dict[str, Any]:
    """The expression, with its dialect where an installation may be set to read it otherwise."""
    schedule = {"type": "cron", "expr": expr, "dialect": dialect}
    when.parse(schedule, zone)
    clear = dialect == "standard" and not needs_dialect(schedule, zone)
    return {"cron_expr": expr} if clear else {"cron_expr": expr, "cron_dialect": dialect}


def schedule_of_cron(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What `cron_fields` returned, as a schedule of its own."""
    return {"type": "cron", "expr": fields["cron_expr"], "dialect": fields.get("cron_dialect", "standard")}


def weekdays_of(text: str, number_of: Callable[[str], int], *, first: int) -> str:
    """The names of the weekdays in a list of days, ranges and steps. `first`: the day that a week begins with there.

    `number_of` a day, from 0 or 7 for Sunday, raises ValueError for what is none. Names, because the dialect in which both day
    fields must match counts from 1.
    """
    if text.strip() == "*":
        return "*"
    days: set[int] = set()
    for item in text.replace(" ", "").split(","):
        base, _, step = item.partition("/")
        start, dash, end = base.partition("-")
        try:
            low = first if base == "*" else number_of(start)
            high = first + 6 if base == "*" else number_of(end) if dash else low
            every = int(step) if step else 1
        except ValueError:
            raise Refused(f"day_of_week {text!r} is not supported") from None
        if every < 1:
            raise Refused(f"day_of_week {text!r} is not supported")
        days |= {(low + place) % 7 for place in range(0, (high - low) % 7 + 1, every)}
    return "*" if len(days) == 7 else ",".join(WEEKDAYS[day] for day in sorted(days, key=lambda day: (day - first) % 7))


def listed(values: Iterable[int], low: int, high: int) -> str:
    """Numbers as a cron field: `*` for all of them, else a list."""
    found = sorted(set(values))
    return "*" if found == list(range(low, high + 1)) else ",".join(map(str, found))


def interval_of(seconds: float) -> dict[str, Any]:
    """The largest unit that it is a whole number of."""
    whole = int(seconds)
    if whole < 1 or whole != seconds:
        raise Refused(f"runs every {seconds:g} seconds; only whole numbers of seconds, 1 or more, are supported")
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if whole % length == 0:
            return {"type": "interval", "every": whole // length, "unit": unit}
    return {"type": "interval", "every": whole, "unit": "second"}
