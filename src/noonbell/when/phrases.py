"""What a schedule says, before it is put into words: the shapes of time that both languages have a phrase for.

Shapes are found from the bit masks, never from the text, so a sentence cannot claim what the schedule does not do. What
fits no shape is described field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from noonbell.when.cron_fields import CronField

MOST_TIMES = 6
"""More times of day than this are described by fields, not as a list."""


@dataclass(frozen=True, slots=True)
class Times:
    """A few times of day, as seconds since midnight."""

    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """Every `step` units; between two hours of the day (inclusive) if `hours` is set."""

    step: int
    unit: str
    hours: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Hourly:
    """At one minute (and second) of every `step` hours."""

    step: int
    minute: int
    second: int
    hours: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Anything else: the values of each field; None where every value matches."""

    second: tuple[int, ...] | None
    minute: tuple[int, ...] | None
    hour: tuple[int, ...] | None


Shape = Times | Every | Hourly | TimeParts


def time_shape(fields: Sequence[CronField]) -> Shape:
    """What the second, minute and hour fields amount to."""
    second, minute, hour = fields[:3]
    seconds, minutes, hours = (values(each) for each in (second, minute, hour))
    if len(seconds) * len(minutes) * len(hours) <= MOST_TIMES:
        return Times(tuple(h * 3600 + m * 60 + s for h, m, s in product(hours, minutes, seconds)))
    found = _regular(second, minute, hour)
    if found is not None:
        return found
    listed = [None if each.is_any else values(each) for each in (second, minute, hour)]
    return TimeParts(*listed)


def _regular(second: CronField, minute: CronField, hour: CronField) -> Shape | None:
    """A regular beat, all day or between two hours."""
    span = _span(hour)
    if len(values(second)) == 1:
        if len(values(minute)) == 1:
            step = _even_step(hour)
            if step is not None or span is not None:
                return Hourly(step or 1, values(minute)[0], values(second)[0], None if step else span)
        step = _even_step(minute)
        if step is not None and second.mask == 1 and (hour.is_any or span):
            return Every(step, "minute", span)
        return None
    step = _even_step(second)
    if step is not None and minute.is_any and (hour.is_any or span):
        return Every(step, "second", span)
    return None


def values(field: CronField) -> tuple[int, ...]:
    return _bits(field.mask)


@lru_cache(maxsize=1024)
def _bits(mask: int) -> tuple[int, ...]:
    return tuple(n for n in range(mask.bit_length()) if mask >> n & 1)


def _even_step(field: CronField) -> int | None:
    """n, if the values are 0, n, 2n … and go round without a shorter last step."""
    found = values(field)
    size = field.kind.size
    step = size // len(found)
    return step if found == tuple(range(0, size, step)) else None


def _span(hour: CronField) -> tuple[int, int] | None:
    """First and last hour, if the hours are one unbroken row that is not the whole day."""
    found = values(hour)
    if hour.is_any or found[-1] - found[0] + 1 != len(found):
        return None
    return found[0], found[-1]


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours joined: 1 2 3 7 becomes (1, 3) (7, 7)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def progression(numbers: Sequence[int]) -> int | None:
    """The step of four or more evenly spaced numbers that are not neighbours."""
    if len(numbers) < 4 or numbers[1] - numbers[0] < 2:
        return None
    step = numbers[1] - numbers[0]
    return step if tuple(numbers) == tuple(range(numbers[0], numbers[-1] + 1, step)) else None


def clock(time: int) -> str:
    """HH:MM, with seconds where there are any."""
    text = f"{time // 3600:02d}:{time // 60 % 60:02d}"
    return f"{text}:{time % 60:02d}" if time % 60 else text
