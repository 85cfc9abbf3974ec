"""The timeline: what ran and what is planned on one axis, the load of each minute, and where many start together.

What is planned comes from the cursors of the tasks and the schedules' own code; what ran comes from the runs. Both are cut
where there are more than a page can show, and the page says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from noonbell import when
from noonbell.clock import SECOND, Instant, slot_of
from noonbell.errors import InvalidArgument, ScheduleError
from noonbell.model.request import TaskQuery
from noonbell.model.run import Run
from noonbell.model.task import TaskStatus
from noonbell.web.badges import mark_of
from noonbell.web.lately import newest_runs
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit

SPANS: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""How much of the past and of the future is shown, in seconds: a half of each."""
WIDTH: Final = 1_000.0
_TASKS: Final = 60
_RUNS: Final = 1_000
_SLOTS: Final = 400
"""Of one task: one that fires more often is drawn as a band."""
_CROWD: Final = 3
"""So many tasks in one minute are worth a word."""
_OFTEN: Final = 600
"""Seconds: who fires more often meets everybody."""


@dataclass(slots=True)
class Row:
    task_id: int
    name: str
    past: list[tuple[float, float, str, int]] = field(default_factory=list)
    """Start, width, mark, run."""
    planned: list[float] = field(default_factory=list)
    is_dense: bool = False
    """It fires so often that single slots would not be seen."""
    usual: float = 0.0
    """The width of its median duration."""


async def show(visit: Visit) -> Response:
    span = visit.query.get("span", "24h")
    if span not in SPANS:
        raise InvalidArgument.field("span", f"is {span[:20]!r}; expected {', '.join(SPANS)}")
    half = SPANS[span] * SECOND // 2
    services = visit.site.services
    since, until = Instant(visit.now - half), Instant(visit.now + half)
    runs = await newest_runs(services, None, _RUNS, since=since, until=until)
    page = await services.tasks.page(
        TaskQuery(status=TaskStatus.ENABLED, sort="next_fire_at", page_size=_TASKS, name=visit.query.get("name"))
    )
    slots = {task["id"]: coming(task, visit.now, until) for task in page.items}
    rows = lay_out(page.items, runs, slots, since, until)
    load = loads(slots, visit.now, until)
    return visit.page(
        "timeline.html",
        rows=rows,
        spans=list(SPANS),
        span=span,
        name=visit.query.get("name", ""),
        width=WIDTH,
        now_x=WIDTH / 2,
        ticks=ticks(visit, since, until),
        load=load,
        crowds=crowds(slots, page.items),
        is_cut=len(runs) == _RUNS or (page.total or 0) > _TASKS,
        total=page.total or 0,
    )


def coming(task: dict[str, Any], now: int, until: int) -> list[int]:
    """The slots of a task from its cursor on, in seconds; one more than is shown where there are too many."""
    if task["next_fire_at"] is None or task["schedule"] is None:
        return []
    try:
        schedule = when.parse(task["schedule"], task["timezone"])
    except ScheduleError:
        return []
    found: list[int] = []
    slot: int | None = schedule.next(int(slot_of(now)))
    while slot is not None and slot * SECOND <= until and len(found) <= _SLOTS:
        found.append(slot)
        slot = schedule.next(slot)
    return found


def lay_out(
    tasks: Sequence[dict[str, Any]], runs: Sequence[Run], slots: dict[int, list[int]], since: int, until: int
) -> list[Row]:
    """One row for each task that ran or will: those that fire next first."""
    scale = WIDTH / max(1, until - since)
    rows = {task["id"]: Row(task["id"], task["name"]) for task in tasks}
    durations: dict[int, list[int]] = {}
    for run in runs:
        row = rows.setdefault(run.task_id, Row(run.task_id, run.task_name))
        start = run.start_time or run.scheduled_time
        end = run.end_time or start
        row.past.append(((start - since) * scale, max((end - start) * scale, 2.0), mark_of(run.status), run.id))
        durations.setdefault(run.task_id, []).append(end - start)
    for task_id, row in rows.items():
        found = slots.get(task_id, [])
        row.is_dense = len(found) > _SLOTS or len(found) * 4 > WIDTH / 2
        if len(found) > _SLOTS:
            found = [*found, until // SECOND]
        row.planned = [(slot * SECOND - since) * scale for slot in found]
        times = sorted(durations.get(task_id, []))
        row.usual = times[len(times) // 2] * scale if times else 0.0
    return [row for row in rows.values() if row.past or row.planned]


def loads(slots: dict[int, list[int]], now: int, until: int, steps: int = 100) -> list[tuple[float, float, int]]:
    """Planned starts over the future half of the axis: x, height from 0 to 1, count."""
    step = max(1, (until - now) // SECOND // steps)
    start = now // SECOND
    counted: Counter[int] = Counter()
    for found in slots.values():
        if len(found) > _SLOTS:  # as often as it has fired so far
            each = max(1, round(step * len(found) / max(1, found[-1] - found[0])))
            counted.update(dict.fromkeys(range(steps), each))
        else:
            counted.update((slot - start) // step for slot in found)
    most = max(counted.values(), default=0)
    room = WIDTH / 2 / steps
    return [
        (WIDTH / 2 + place * room, count / most, count) for place, count in sorted(counted.items()) if place <= steps
    ]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Tasks that start in the same minute."""

    minute: Instant
    names: list[tuple[int, str]]


def crowds(slots: dict[int, list[int]], tasks: Sequence[dict[str, Any]], most: int = 5) -> list[Crowd]:
    """The fullest minutes to come; those who meet in several of them are told once, for the first.

    Tasks that fire every few minutes are left out: they meet everybody.
    """
    names = {task["id"]: task["name"] for task in tasks}
    by_minute: dict[int, list[int]] = {}
    for task_id, found in slots.items():
        if len(found) > 1 and found[1] - found[0] < _OFTEN:
            continue
        for minute in {slot // 60 for slot in found}:
            by_minute.setdefault(minute, []).append(task_id)
    told: dict[tuple[int, ...], int] = {}
    for minute, met in sorted(by_minute.items()):
        if len(met) >= _CROWD:
            told.setdefault(tuple(met), minute)
    full = sorted(told.items(), key=lambda item: (-len(item[0]), item[1]))
    return [
        Crowd(Instant(minute * 60 * SECOND), [(task_id, names[task_id]) for task_id in met])
        for met, minute in full[:most]
    ]


def ticks(visit: Visit, since: int, until: int) -> list[tuple[float, str]]:
    """Whole hours, or days, of the chosen zone's clock: eight at most."""
    length = (until - since) // SECOND
    step = next(size for size in (300, 900, 3_600, 10_800, 21_600, 86_400, 172_800) if length / size <= 9)
    offset = visit.zone.offset(since // SECOND)
    first = -(-(since // SECOND + offset) // step) * step - offset
    found = []
    for at in range(first, until // SECOND, step):
        local = visit.zone.local(at)
        text = f"{local:%H:%M}" if step < 86_400 else f"{local:%m-%d}"
        found.append(((at * SECOND - since) * WIDTH / (until - since), text))
    return found


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/timeline", show)]
