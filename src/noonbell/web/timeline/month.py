"""The timeline as a month: how much ran on each day and how it went, and how much is planned."""

from __future__ import annotations

import re
from calendar import Calendar
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from starlette.responses import Response

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument
from noonbell.ports import Store
from noonbell.service.timeline import MOST_FAILURES, Timelines
from noonbell.web.timeline.window import frame
from noonbell.web.visit import Visit
from noonbell.when.zones import Zone

_STEP: Final = 900
"""Seconds: every zone's day begins at a multiple of it."""
_FRESH: Final = 600 * SECOND
_MONTHS: Final = 24
_KEPT: WeakKeyDictionary[Store, dict[tuple[int, int], tuple[Instant, dict[Instant, int]]]] = WeakKeyDictionary()
"""Counts of days that were over, by store and by stretch, with when they were made."""
_MONTH = re.compile(r"(2\d\d\d)-(0[1-9]|1[0-2])")


@dataclass(slots=True)
class Day:
    date: date
    start: Instant
    stop: Instant
    in_month: bool
    is_today: bool
    ran: int = 0
    planned: int = 0
    failed: int | None = 0
    """None: there were more failures than were looked at."""

    @property
    def mark(self) -> str:
        """The worst that happened."""
        if self.failed:
            return "bad"
        return "ok" if self.ran else ""

    @property
    def ends(self) -> dict[str, str]:
        return {"from": rfc3339(self.start), "to": rfc3339(self.stop)}


async def show(visit: Visit) -> Response:
    first = read_month(visit)
    days = days_of(first, visit.zone, visit.now)
    timelines = Timelines(visit.site.services.store)
    counted, total = await _count(visit, timelines, days)
    weeks = [days[place : place + 7] for place in range(0, len(days), 7)]
    return visit.page(
        "timeline_month.html",
        **frame(visit),
        first=first,
        weeks=weeks,
        earlier=f"{first - timedelta(days=1):%Y-%m}",
        later=f"{first + timedelta(days=31):%Y-%m}",
        counted=counted,
        total=total,
        most=max((day.ran + day.planned for day in days), default=0),
    )


def read_month(visit: Visit) -> date:
    text = visit.query.get("month")
    if text is None:
        return visit.zone.local(int(visit.now // SECOND)).date().replace(day=1)
    found = _MONTH.fullmatch(text)
    if found is None:
        raise InvalidArgument.field("month", f"is {text[:20]!r}; expected a month such as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def days_of(first: date, zone: Zone, now: int) -> list[Day]:
    """Whole weeks from Monday on, each day from midnight to midnight on the zone's clock."""
    today = zone.local(int(now // SECOND)).date()
    found = []
    for day in Calendar().itermonthdates(first.year, first.month):
        start, stop = (_midnight(each, zone) for each in (day, day + timedelta(days=1)))
        found.append(Day(day, start, stop, day.month == first.month, day == today))
    return found


def _midnight(day: date, zone: Zone) -> Instant:
    return Instant(zone.first_showing(datetime(day.year, day.month, day.day)) * SECOND)  # noqa: DTZ001 a reading


async def _count(visit: Visit, timelines: Timelines, days: list[Day]) -> tuple[int, int]:
    """Fill in the days; how many tasks the plan was counted of, and how many are on."""
    begin, end, now = days[0].start, days[-1].stop, visit.now
    if begin < now:
        by_step = await _started(visit, timelines, days)
        failed = await timelines.failures(begin, min(end, now))
        tell_past(days, by_step, Counter(run.scheduled_time for run in failed), _known_from(failed))
    if end <= now:
        return 0, 0
    ahead = [day for day in days if day.stop > now]
    edges = [max(ahead[0].start, now), *(day.stop for day in ahead)]
    sums, counted, total = await timelines.planned_by_day([-(-edge // SECOND) for edge in edges])
    for day, planned in zip(ahead, sums, strict=True):
        day.planned = planned
    return counted, total


async def _started(visit: Visit, timelines: Timelines, days: list[Day]) -> dict[Instant, int]:
    """Days that are over hardly change, and to count them again takes long where a million slots are to be counted."""
    today = next((day.start for day in days if day.start <= visit.now < day.stop), days[-1].stop)
    kept = _KEPT.setdefault(visit.site.services.store, {})
    key = (days[0].start, today)
    made_at, past = kept.get(key, (Instant(0), {}))
    if visit.now - made_at > _FRESH:
        past = await timelines.started(days[0].start, today, _STEP)
        if len(kept) > _MONTHS:
            kept.clear()
        kept[key] = (visit.now, past)
    if today >= visit.now:
        return past
    return {**past, **await timelines.started(today, Instant(min(days[-1].stop, visit.now)), _STEP)}


def _known_from(failed: list[Any]) -> int:
    """Failures before this were not looked at."""
    return min(run.scheduled_time for run in failed) if len(failed) == MOST_FAILURES else 0


def tell_past(days: list[Day], by_step: dict[Instant, int], failed: Counter[Instant], known_from: int) -> None:
    for day in days:
        day.ran = sum(count for at, count in by_step.items() if day.start <= at < day.stop)
        bad = sum(count for at, count in failed.items() if day.start <= at < day.stop)
        day.failed = bad if bad or day.start >= known_from else None
