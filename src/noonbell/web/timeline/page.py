"""The timeline: what ran and what is planned on one axis, as bars, as a table, as the load of each minute, as a month.

What is planned comes from the cursors of the tasks and the schedules' own code, what ran from the runs. Every choice is in
the address. A page shows so many tasks, the nearest first, and says of how many.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.model.request import TaskQuery
from noonbell.service.timeline import Lane, Timelines
from noonbell.web.lists import pager_by_number
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.timeline import lanes as drawing
from noonbell.web.timeline import month
from noonbell.web.timeline.axis import Axis
from noonbell.web.timeline.window import Window, frame, read_window, take_zone
from noonbell.web.visit import Visit

_ROWS: Final = 40
_COLUMNS: Final = 120
_MOST_LINES: Final = 600
"""Of the table."""


async def show(visit: Visit) -> Response:
    take_zone(visit)
    if visit.query.get("view") == "calendar":
        return await month.show(visit)
    window = read_window(visit)
    if visit.query.get("view") == "load":
        return await _show_load(visit, window)
    return await _show_lanes(visit, window)


def query_of(visit: Visit, size: int = _ROWS) -> TaskQuery:
    text = visit.query.get("page", "1")
    label = visit.query.get("label", "").partition("=")
    return TaskQuery(
        name=visit.query.get("name"),
        label=(label[0], label[2]) if label[1] else None,
        sort="next_fire_at",
        page=int(text) if text.isdecimal() and int(text[:7]) > 0 else 1,
        page_size=size,
    )


async def _show_lanes(visit: Visit, window: Window) -> Response:
    timelines = Timelines(visit.site.services.store)
    query = query_of(visit)
    found, total = await timelines.lanes(query, window.since, window.until, visit.now)
    axis = Axis(window.since, window.until, visit.zone)
    teller = drawing.Teller(visit.words, axis, visit.now)
    group = visit.query.get("group", "")
    rows = [row for lane in found if not (row := drawing.row_of(lane, teller, group)).is_empty]
    if group:
        rows.sort(key=lambda row: (row.group == "", row.group))
    step = max(60, axis.length // SECOND // _COLUMNS // 60 * 60)
    is_table = visit.query.get("view") == "table"
    return visit.page(
        "timeline.html",
        **frame(visit, window, axis),
        rows=rows,
        lines=lines_of(found, teller, visit.now) if is_table else [],
        is_table=is_table,
        labels=sorted({name for lane in found for name in lane.task.spec.labels}),
        columns=drawing.columns(drawing.starts(found, visit.now, window.until, step), step, axis, visit.now),
        crowds=await crowds(visit, timelines, window),
        total=total or 0,
        pager=pager_by_number(visit.query, query.page, total or 0, _ROWS),
    )


def lines_of(found: list[Lane], teller: drawing.Teller, now: Instant) -> list[tuple[Lane, drawing.Happening]]:
    """The same as text, in the order of time."""
    told = [(lane, one) for lane in found for one in (*drawing.happenings(lane, now), *drawing.to_come(lane))]
    within = [pair for pair in told if teller.axis.since <= pair[1].end and pair[1].at <= teller.axis.until]
    within.sort(key=lambda pair: (abs(pair[1].at - now), pair[0].task.id))
    return sorted(within[:_MOST_LINES], key=lambda pair: (pair[1].at, pair[0].task.id))


async def crowds(visit: Visit, timelines: Timelines, window: Window) -> list[drawing.Crowd]:
    if window.until <= visit.now:
        return []
    return drawing.crowds(await timelines.load(Instant(max(window.since, visit.now)), window.until))


async def _show_load(visit: Visit, window: Window) -> Response:
    timelines = Timelines(visit.site.services.store)
    axis = Axis(window.since, window.until, visit.zone)
    step = max(60, -(-axis.length // SECOND // 240 // 60) * 60)
    counts: Counter[int] = Counter()
    load = None
    if window.since < visit.now:
        past = await timelines.started(window.since, Instant(min(window.until, visit.now)), step)
        counts.update({at // SECOND: count for at, count in past.items()})
    if window.until > visit.now:
        load = await timelines.load(Instant(max(window.since, visit.now)), window.until, step)
        counts.update(load.counts)
    found = drawing.columns(dict(counts), step, axis, visit.now)
    return visit.page(
        "timeline_load.html",
        **frame(visit, window, axis),
        columns=found,
        step=step,
        peak=max(found, key=lambda column: column.count, default=None),
        crowds=drawing.crowds(load, 12) if load is not None else [],
        counted=load.counted if load is not None else 0,
        total=load.total if load is not None else 0,
    )


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/timeline", show)]
