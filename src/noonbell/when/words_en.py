"""Schedules in English."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.fields import counted
from noonbell.when.cron_fields import CronField
from noonbell.when.phrases import Every, Hourly, Shape, TimeParts, Times, clock, progression, runs, time_shape, values

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")


def cron(fields: Sequence[CronField], both_days: bool) -> str:
    shape = time_shape(fields)
    return _time(shape) + "".join(_days(fields, both_days, isinstance(shape, Times)))


def in_zone(sentence: str, zone: str, *, wall: bool = False) -> str:
    return ", ".join(filter(None, (sentence, zone, "by the wall clock only" if wall else "")))


def composed(sentences: Sequence[str], excluded: Sequence[str]) -> str:
    first, *others = sentences
    said = "; ".join((first, *(f"also {_within(each)}" for each in others)))
    if not excluded:
        return said
    return f"{said}{'; all' if others else ','} except {'; and except '.join(map(_within, excluded))}"


def _within(sentence: str) -> str:
    """A sentence that stands inside of another one."""
    return sentence[:1].lower() + sentence[1:]


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
    """What comes behind the time, each with what stands before it."""
    day, month, weekday = fields[3:]
    told = [f"on {tell(field)}" for field, tell in ((day, _dates), (weekday, _weekdays)) if not field.is_any]
    # Where either is enough, a field that matches every day leaves nothing to say.
    phrase = (" if also " if both_days else " or ").join(told) if len(told) == 2 or (told and both_days) else ""
    if _is_range(phrase) and day.is_any:
        phrase = f",{phrase.removeprefix('on')}"
    elif phrase or daily:
        phrase = f" {phrase or 'every day'}"
    if month.is_any:
        return [phrase]
    months = _names(MONTHS, [n - 1 for n in values(month)])
    return [phrase, f"{',' * phrase.startswith(',')} {'from' if _is_range(months) else 'in'} {months}"]


def _is_range(names: str) -> bool:
    """`Monday to Friday`, and nothing else."""
    return " to " in names and not any(each in names for each in (" and ", ", ", " of ", " or "))


def _dates(day: CronField) -> str:
    pieces = []
    if day.mask:
        pieces.append(f"{_numbers('day', values(day))} of the month")
    for back in sorted(day.from_last):
        last = "the last day of the month"
        pieces.append(last if back == 0 else f"the day {counted(back, 'day')} before {last}")
    if day.last_workday:
        pieces.append("the last weekday (Monday to Friday) of the month")
    pieces += [f"the weekday (Monday to Friday) nearest day {n} of the month" for n in sorted(day.nearest)]
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
