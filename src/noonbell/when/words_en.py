"""Schedules in English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noonbell.fields import counted
from noonbell.when.cron_fields import CronField
from noonbell.when.phrases import Every, Hourly, Shape, TimeParts, Times, clock, progression, runs, time_shape, values

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")

NOTES: Mapping[str, str] = {
    "both_day_fields": "Day of month ({day}) and day of week ({weekday}) are both set: it fires when EITHER matches.",
    "both_day_fields_and": "Day of month ({day}) and day of week ({weekday}) are both set: it fires only when BOTH "
    "match.",
    "uneven_step": "{item} in the {field} field does not divide {size}: the count starts again {again}, so the last step "
    "is shorter.",
    "uneven_step_days": "{item} in the day-of-month field starts again on the 1st, so the step over the end of a month "
    "differs.",
    "single_step": "{item} in the {field} field is longer than the field: it matches only {first}.",
    "looks_like_six_fields": "Five fields have no seconds: this means every {step} hours, not every {step} minutes. For "
    "minutes write {instead}.",
    "every_second": "The seconds field is {item}: it fires {count} times in each matching minute. For once a minute write "
    "0 there.",
    "missing_days": "Months without day {day} have no slot. For the last day of every month write L.",
    "clamped_day": "In months without day {day} it is the last day.",
    "dst_gap": "On {date} the clock skips {time}: it fires once, at {instead}.",
    "dst_gap_skipped": "On {date} the clock skips {time}: what falls there does not happen.",
    "dst_overlap": "On {date} the clock shows {time} twice: it fires the first time only.",
    "dst_overlap_both": "On {date} the clock shows {time} twice: it fires both times.",
    "dialect_differs_cronjob": "In the cronjob dialect */N means a value that N divides, and both day fields must match; standard "
    "cron would fire at other times.",
    "dialect_differs_quartz": "In the quartz dialect Sunday is 1 and Saturday is 7, and both day fields must match; "
    "standard cron would fire at other times.",
    "fixed_delay": "Each slot is counted from the end of the run before it, so only the first one is certain.",
    "elapsed_days": "A day is 86,400 seconds here: when the clocks change, the local time of day moves. To keep it, use "
    "cron, weekly or monthly.",
    "in_the_past": "This moment has already passed.",
}

FIELDS: Mapping[str, str] = {
    "second": "second",
    "minute": "minute",
    "hour": "hour",
    "day of month": "day-of-month",
    "month": "month",
    "day of week": "day-of-week",
}
AGAIN: Mapping[str, str] = {
    "second": "every minute",
    "minute": "every hour",
    "hour": "every day",
    "month": "every year",
    "day of week": "every week",
}


def cron(fields: Sequence[CronField], both_days: bool) -> str:
    shape = time_shape(fields)
    when = [_time(shape), *_days(fields, both_days, isinstance(shape, Times))]
    return " ".join(when)


def in_zone(sentence: str, zone: str, *, wall: bool = False) -> str:
    return ", ".join(filter(None, (sentence, zone, "by the wall clock alone" if wall else "")))


def _time(shape: Shape) -> str:
    match shape:
        case Times(times):
            return f"At {_and([clock(time) for time in times])}"
        case Every(step, unit, hours):
            return f"Every {span(step, unit)}{_between(hours)}"
        case Hourly():
            return _hourly(shape)
        case TimeParts(second, minute, hour):
            return _parts(second, minute, hour)


def _hourly(shape: Hourly) -> str:
    past = shape.minute * 60 + shape.second
    if shape.hours is not None:
        first, last = (clock(hour * 3600 + past) for hour in shape.hours)
        return f"Every hour from {first} to {last}"
    place = f" at minute {shape.minute}" if past else ""
    place += f", second {shape.second}" if shape.second else ""
    return f"Every {span(shape.step, 'hour')}{place}"


def _parts(second: tuple[int, ...] | None, minute: tuple[int, ...] | None, hour: tuple[int, ...] | None) -> str:
    phrases = []
    if second is None:
        phrases.append("every second")
    elif second != (0,):
        phrases.append(_numbers("second", second))
    phrases.append("every minute" if minute is None else _numbers("minute", minute))
    if hour is not None:
        phrases.append(_numbers("hour", hour))
    return "At " + " of ".join(phrases)


def _numbers(unit: str, numbers: tuple[int, ...]) -> str:
    step = progression(numbers)
    if step is not None:
        return f"every {_ordinal(step)} {unit} from {numbers[0]} to {numbers[-1]}"
    pieces = [f"{low}" if low == high else f"{low} to {high}" for low, high in _shown_runs(numbers)]
    return f"{unit}{'s' if len(numbers) > 1 else ''} {_and(pieces)}"


def _shown_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Two neighbours read better apart: 5 and 6, but 5 to 7."""
    shown: list[tuple[int, int]] = []
    for low, high in runs(numbers):
        shown += [(low, low), (high, high)] if high == low + 1 else [(low, high)]
    return shown


def _days(fields: Sequence[CronField], both_days: bool, daily: bool) -> list[str]:
    day, month, weekday = fields[3:]
    told = [f"on {tell(field)}" for field, tell in ((day, _dates), (weekday, _weekdays)) if not field.is_any]
    # Where either is enough, a field that matches every day leaves nothing to say.
    phrases = [(" if also " if both_days else " or ").join(told)] if len(told) == 2 or (told and both_days) else []
    if not phrases and daily:
        phrases = ["every day"]
    if not month.is_any:
        phrases.append(f"in {_names(MONTHS, [n - 1 for n in values(month)])}")
    return phrases


def _dates(day: CronField) -> str:
    pieces = []
    if day.mask:
        pieces.append(f"{_numbers('day', values(day))} of the month")
    for back in sorted(day.from_last):
        last = "the last day of the month"
        pieces.append(last if back == 0 else f"the day {counted(back, 'day')} before {last}")
    if day.last_workday:
        pieces.append("the last Monday-to-Friday day of the month")
    pieces += [f"the Monday-to-Friday day nearest day {n} of the month" for n in sorted(day.nearest)]
    return _and(pieces)


def _weekdays(weekday: CronField) -> str:
    pieces = []
    if weekday.mask:
        # A week is read from Monday, so that Saturday and Sunday are neighbours.
        order = [n for n in (1, 2, 3, 4, 5, 6, 7) if weekday.mask >> n % 7 & 1]
        pieces.append(_names((*WEEKDAYS, "Sunday"), order))
    pieces += [f"the {_ORDINALS[nth]} {WEEKDAYS[n]} of the month" for n, nth in sorted(weekday.nth)]
    pieces += [f"the last {WEEKDAYS[n]} of the month" for n in sorted(weekday.last_of)]
    return _and(pieces)


def _names(names: Sequence[str], numbers: Sequence[int]) -> str:
    return _and([names[low] if low == high else f"{names[low]} to {names[high]}" for low, high in _shown_runs(numbers)])


def _between(hours: tuple[int, int] | None) -> str:
    return f" from {hours[0]:02d}:00 to {hours[1]:02d}:59" if hours else ""


def span(number: int, unit: str) -> str:
    return unit if number == 1 else f"{number:,} {unit}s"


def _ordinal(number: int) -> str:
    suffix = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _and(pieces: Sequence[str]) -> str:
    return pieces[0] if len(pieces) == 1 else f"{', '.join(pieces[:-1])} and {pieces[-1]}"
