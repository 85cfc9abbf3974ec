"""Quiet hours: whether they hold at a moment, since when and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from noonbell import when
from noonbell.clock import SECOND, Instant, from_datetime, to_datetime
from noonbell.errors import ScheduleError, Sentence
from noonbell.model.calendar import DAYS, QuietAction, QuietHours

_MOST_JOINED = 64
"""Stretches that follow each other without a gap and are taken as one. What is quiet for longer is looked at again."""


@dataclass(frozen=True, slots=True)
class Quiet:
    since: Instant
    until: Instant
    """The first moment that is not quiet."""
    action: QuietAction
    """Skip, if one of the stretches that hold at the moment says so."""


def quiet_at(hours: Sequence[QuietHours], zone: str, at: Instant) -> Quiet | None:
    """None where it is not quiet. `zone`: of stretches that name none. Stretches that follow each other are one."""
    here = list(_covering(hours, zone, at))
    if not here:
        return None
    until = max(end for _, end, _ in here)
    for _ in range(_MOST_JOINED):
        later = max((end for _, end, _ in _covering(hours, zone, until)), default=until)
        if later <= until:
            break
        until = later
    skips = any(each.what is QuietAction.SKIP for _, _, each in here)
    since = min(start for start, _, _ in here)
    return Quiet(since, until, QuietAction.SKIP if skips else QuietAction.HOLD)


def spread_over(base: Instant, seconds: float, count: int) -> list[Instant]:
    """When each of `count` runs goes on, in order: the first at `base`, the others evenly within `seconds`."""
    return [Instant(base + round(seconds * SECOND) * index // count) for index in range(count)]


def let_go_at(quiet: Quiet, seconds: float, came_at: Instant) -> Instant:
    """When one goes on that came while it was quiet, where the others are not counted: who came earlier goes earlier,
    within `seconds`.
    """
    share = (min(max(came_at, quiet.since), quiet.until) - quiet.since) / (quiet.until - quiet.since)
    return Instant(quiet.until + round(seconds * SECOND * share))


def _covering(hours: Sequence[QuietHours], zone: str, at: Instant) -> Iterator[tuple[Instant, Instant, QuietHours]]:
    for each in hours:
        own = when.zone(each.timezone or zone)
        today = to_datetime(at).astimezone(own).date()
        for day in (today - timedelta(days=1), today):
            if each.days and DAYS[day.weekday()] not in each.days:
                continue
            begin, end = _clock(each.from_), _clock(each.to)
            start = _instant(datetime.combine(day, begin), own)
            stop = _instant(datetime.combine(day + timedelta(days=end <= begin), end), own)
            if start <= at < stop:
                yield start, stop, each


def _clock(text: str) -> time:
    return time(int(text[:2]), int(text[3:]))


def _instant(local: datetime, zone: tzinfo) -> Instant:
    """A time that a change of the clocks leaves out is the moment of the change, or as much later as it is past it."""
    return from_datetime(local.replace(tzinfo=zone))


def hours_problems(name: str, hours: Sequence[QuietHours]) -> dict[str, str]:
    """What the declaration cannot say of quiet hours, by the names of their fields; `name` is that of the list."""
    found: dict[str, str] = {}
    for index, each in enumerate(hours):
        if each.from_ == each.to:
            found[f"{name}[{index}].to"] = Sentence("is {time}, as `from` is; expected another time", time=each.to)
        if each.timezone is not None:
            try:
                when.zone(each.timezone)
            except ScheduleError as error:
                found[f"{name}[{index}].timezone"] = next(iter(error.sentences.values()), error.sentence)
    return found
