"""The timeline: past runs and planned slots on one axis, as bars, as a table, as load per minute, as a month; backfills
of a stretch, and the plan as a calendar file.

Planned slots come from the tasks' cursors and schedules, past ones from the runs. Every choice is in the address. A
page shows a limited number of tasks, the nearest first, and says of how many.
"""

from __future__ import annotations

import contextlib
import re
from calendar import Calendar
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, InvalidId, InvalidState, NotFound, ScheduleError
from noonbell.fields import FROM_TO, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.rollup import DAY, HOUR, Figures, Scope, Stretch
from noonbell.model.task import Task
from noonbell.ports import Store
from noonbell.service import filters
from noonbell.service.timeline import LONGEST, Lane, Load, Timelines
from noonbell.service.translation import error_words
from noonbell.web import timeline_rows as drawing
from noonbell.web.context import PageContext, merged, one_of
from noonbell.web.forms import TypedMoment
from noonbell.web.lists import pager_by_number
from noonbell.web.page import get, post
from noonbell.web.timeline_rows import WIDTH, Axis
from noonbell.when import zones
from noonbell.when.zones import Zone

_ROWS: Final = 40
_COLUMNS: Final = 120
_MOST_LINES: Final = 600
"""Of the table."""


async def show(ctx: PageContext) -> Response:
    take_zone(ctx)
    if ctx.query.get("view") == "calendar":
        return await show_month(ctx)
    window = read_window(ctx)
    if ctx.query.get("view") == "load":
        return await _show_load(ctx, window)
    return await _show_lanes(ctx, window)


def query_of(ctx: PageContext, size: int = _ROWS) -> TaskQuery:
    label = ctx.query.get("label", "").partition("=")
    return TaskQuery(
        name=ctx.query.get("name"),
        label=(label[0], label[2]) if label[1] else None,
        sort="next_fire_at",
        page=ctx.number("page") or 1,
        page_size=size,
    )


async def _show_lanes(ctx: PageContext, window: Window) -> Response:
    timelines = ctx.services.timelines
    query = query_of(ctx)
    found, total = await timelines.lanes(query, window.since, window.until, ctx.now)
    axis = Axis(window.since, window.until, ctx.zone)
    teller = drawing.Teller(ctx.words, axis, ctx.now)
    group = ctx.query.get("group", "")
    rows = [row for lane in found if not (row := drawing.row_of(lane, teller, group)).is_empty]
    if group:
        rows.sort(key=lambda row: (row.group == "", row.group))
    step = max(60, axis.length // SECOND // _COLUMNS // 60 * 60)
    is_table = ctx.query.get("view") == "table"
    lines, lines_total = lines_of(found, teller, ctx.now) if is_table else ([], 0)
    return ctx.page(
        "timeline.html",
        **frame(ctx, window, axis),
        rows=rows,
        lines=lines,
        lines_total=lines_total,
        is_table=is_table,
        labels=sorted({name for lane in found for name in lane.task.spec.labels}),
        columns=drawing.columns(drawing.starts(found, ctx.now, window.until, step), step, axis, ctx.now),
        **await crowds(ctx, timelines, window),
        total=total or 0,
        pager=pager_by_number(ctx.query, query.page, total or 0, _ROWS),
    )


def lines_of(
    found: list[Lane], teller: drawing.Teller, now: Instant
) -> tuple[list[tuple[Lane, drawing.Happening]], int]:
    """The same as text, in the order of time: the nearest to now, and how many there are."""
    told = [(lane, one) for lane in found for one in (*drawing.happenings(lane, now), *drawing.to_come(lane))]
    within = [pair for pair in told if teller.axis.since <= pair[1].end and pair[1].at <= teller.axis.until]
    within.sort(key=lambda pair: (abs(pair[1].at - now), pair[0].task.id))
    return sorted(within[:_MOST_LINES], key=lambda pair: (pair[1].at, pair[0].task.id)), len(within)


CROWDS_WITHIN: Final = 12 * 3_600 * SECOND


async def crowds(
    ctx: PageContext, timelines: Timelines, window: Window, most: int = 5, load: Load | None = None
) -> dict[str, Any]:
    """The fullest minutes of the next hours: over a longer stretch, what fires every ten minutes is not listed slot by slot."""
    since = Instant(max(window.since, ctx.now))
    until = Instant(min(window.until, since + CROWDS_WITHIN))
    if since >= until:
        return {"crowds": [], "crowds_cut": False}
    if load is None or until < window.until:
        load = await timelines.load(since, until)
    return {"crowds": drawing.crowds(load, most), "crowds_cut": until < window.until}


async def _show_load(ctx: PageContext, window: Window) -> Response:
    timelines = ctx.services.timelines
    axis = Axis(window.since, window.until, ctx.zone)
    step = max(60, -(-axis.length // SECOND // 240 // 60) * 60)
    counts: Counter[int] = Counter()
    load = None
    if window.since < ctx.now:
        past = await timelines.started(window.since, Instant(min(window.until, ctx.now)), step)
        counts.update({at // SECOND: count for at, count in past.items()})
    if window.until > ctx.now:
        load = await timelines.load(Instant(max(window.since, ctx.now)), window.until, step)
        counts.update(load.counts)
    found = drawing.columns(dict(counts), step, axis, ctx.now)
    return ctx.page(
        "timeline_load.html",
        **frame(ctx, window, axis),
        columns=found,
        step=step,
        peak=max(found, key=lambda column: column.count, default=None),
        **await crowds(ctx, timelines, window, 12, load),
        counted=load.counted if load is not None else 0,
        total=load.total if load is not None else 0,
    )


SPANS: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""How much is shown, in seconds: a half of it past, a half to come, unless the address says from when to when."""
VIEWS: Final = ("lanes", "table", "load", "calendar")
_SHORTEST: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Window:
    since: Instant
    until: Instant
    span: str
    """The zoom level; empty where both ends were chosen."""
    is_now: bool

    def moved(self, parts: int) -> dict[str, str]:
        """Both ends, moved by `parts` halves of the length."""
        by = parts * (self.until - self.since) // 2
        return {"from": rfc3339(Instant(self.since + by)), "to": rfc3339(Instant(self.until + by))}


def take_zone(ctx: PageContext) -> None:
    """A link may say on which clock it is to be read."""
    if name := ctx.query.get("zone"):
        try:
            ctx.zone = zones.find(name)
        except ScheduleError as error:
            raise InvalidArgument.fields({"zone": error.details["timezone"]}) from None


def read_window(ctx: PageContext) -> Window:
    span = one_of("span", ctx.query.get("span", "24h"), SPANS)
    one_of("view", ctx.query.get("view", "lanes"), VIEWS)
    since, until = read_ends(ctx.query, ctx.zone.name)
    half = SPANS[span] * SECOND // 2
    if since is None and until is None:
        return Window(Instant(ctx.now - half), Instant(ctx.now + half), span, is_now=True)
    since = Instant((until or ctx.now) - 2 * half) if since is None else since
    until = Instant(since + 2 * half) if until is None else until
    if not _SHORTEST <= until - since <= LONGEST:
        raise InvalidArgument.field("to", "expected a time from one minute to 32 days after from")
    return Window(since, until, span if until - since == 2 * half else "", is_now=False)


class Ends(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: TypedMoment | None = None
    until: TypedMoment | None = None


def read_ends(given: Mapping[str, str], zone: str) -> tuple[Instant | None, Instant | None]:
    at = ReadContext(Problems(), zone=zones.find(zone))
    ends = read_into(Ends, {name: given[name].strip() for name in ("from", "to") if given.get(name)}, at)
    at.problems.finish()
    return ends.since, ends.until


def frame(ctx: PageContext, window: Window | None = None, axis: Axis | None = None) -> dict[str, Any]:
    """What every view has: its tabs, its way back and forth, its axis."""
    kept = {name: ctx.query[name] for name in ("name", "label", "group", "zone") if name in ctx.query}
    view: dict[str, Any] = {"kept": kept, "width": WIDTH, "spans": list(SPANS), "view": _name(ctx, window)}
    if window is None or axis is None:
        return view
    here = {name: ctx.query[name] for name in (*kept, "view", "span") if name in ctx.query}
    view |= {
        "here": here,
        "window": window,
        "since": _local(ctx, window.since),
        "until": _local(ctx, window.until),
        "earlier": merged({**here, **window.moved(-1)}),
        "later": merged({**here, **window.moved(1)}),
        "ticks": axis.ticks(),
        "changes": axis.changes(),
        "now_x": axis.x(ctx.now) if window.since <= ctx.now <= window.until else None,
    }
    return view


def _name(ctx: PageContext, window: Window | None) -> str:
    view = ctx.query.get("view", "lanes")
    if view != "lanes" or window is None:
        return view
    return "week" if window.until - window.since > 3 * 86_400 * SECOND else "day"


def _local(ctx: PageContext, at: Instant) -> str:
    """As the form has it."""
    return f"{ctx.zone.local(int(at // SECOND)):%Y-%m-%d %H:%M}"


_MONTH = re.compile(r"(2\d\d\d)-(0[1-9]|1[0-2])")


@dataclass(slots=True)
class Day:
    date: date
    start: Instant
    stop: Instant
    in_month: bool
    is_today: bool
    ran: int = 0
    """Runs that ended, but for those that were skipped."""
    planned: int = 0
    failed: int = 0

    @property
    def ends(self) -> dict[str, str]:
        return {"from": rfc3339(self.start), "to": rfc3339(self.stop)}


async def show_month(ctx: PageContext) -> Response:
    first = read_month(ctx)
    days = days_of(first, ctx.zone, ctx.now)
    timelines = ctx.services.timelines
    counted, total = await _count(ctx, timelines, days)
    weeks = [days[place : place + 7] for place in range(0, len(days), 7)]
    return ctx.page(
        "timeline_month.html",
        **frame(ctx),
        first=first,
        weeks=weeks,
        earlier=f"{first - timedelta(days=1):%Y-%m}",
        later=f"{first + timedelta(days=31):%Y-%m}",
        counted=counted,
        total=total,
        utc_before=rfc3339(hours_since(ctx.now))[:10] if days[0].start < hours_since(ctx.now) else "",
        most=max((day.ran + day.planned for day in days), default=0),
    )


def read_month(ctx: PageContext) -> date:
    text = ctx.query.get("month")
    if text is None:
        return ctx.zone.local(int(ctx.now // SECOND)).date().replace(day=1)
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


async def _count(ctx: PageContext, timelines: Timelines, days: list[Day]) -> tuple[int, int]:
    """Fill in the days; how many tasks the plan was counted of, and how many are on."""
    begin, end, now = days[0].start, days[-1].stop, ctx.now
    if begin < now:
        tell_past(days, await _ended(ctx.services.store, begin, min(end, Instant(now + 1)), now))
    if end <= now:
        return 0, 0
    ahead = [day for day in days if day.stop > now]
    edges = [max(ahead[0].start, now), *(day.stop for day in ahead)]
    sums, counted, total = await timelines.planned_by_day([-(-edge // SECOND) for edge in edges])
    for day, planned in zip(ahead, sums, strict=True):
        day.planned = planned
    return counted, total


async def _ended(store: Store, begin: Instant, end: Instant, now: Instant) -> list[tuple[Instant, Figures]]:
    """Figures by a moment within their hour: where that begins; or within their day of UTC, which is its noon."""
    edge = hours_since(now)
    found: list[tuple[Instant, Figures]] = []
    if begin < edge:
        whole = Stretch(DAY.begin(begin), min(edge, DAY.end(end)))
        rows = await store.rollups(Scope.ALL, whole, step=DAY)
        found += [(Instant(row.at + DAY.length // 2), row.figures) for row in rows]
    if end > edge:
        stretch = Stretch(HOUR.begin(max(begin, edge)), HOUR.end(end))
        found += [(row.at, row.figures) for row in await store.rollups(Scope.ALL, stretch, step=HOUR)]
    return found


def hours_since(now: Instant) -> Instant:
    """The first day of UTC since which figures are kept by the hour."""
    return DAY.end(now - HOUR.kept)


def tell_past(days: list[Day], ended: Sequence[tuple[Instant, Figures]]) -> None:
    for day in days:
        here = [figures for at, figures in ended if day.start <= at < day.stop]
        day.ran = sum(figures.runs - figures.skipped for figures in here)
        day.failed = sum(figures.failed for figures in here)


_NAMES: Final = 200
"""Tasks that are offered to choose from; any other may be typed."""
_EVENTS: Final = 2_000
_LINE: Final = 73
"""Bytes of a line in a calendar file, with room for its end."""


async def ask(ctx: PageContext) -> Response:
    take_zone(ctx)
    given = {name: ctx.query.get(name, "") for name in ("task", "from", "to")}
    if given["task"].isdecimal():  # a link: the box is for names
        with contextlib.suppress(NotFound, InvalidId):
            given["task"] = (await _named(ctx, given["task"])).name
    return await _form(ctx, given)


async def fill(ctx: PageContext) -> Response:
    """The second step: what was seen is done. A slot that has been filled before is not filled again."""
    given = await ctx.fields()
    task = await ctx.services.tasks.get(filters.task_ref(given.get("task_id", "")))
    ctx.subject = f"/tasks/{task.id}"
    asked = {name: given.get(name, "") for name in ("from", "to")}
    try:
        told = await ctx.services.backfills.fill(task.id, asked, trace_id=ctx.request_id)
    except (InvalidArgument, InvalidState) as error:
        return await _form(ctx, {**given, "task": task.name}, error_words(error, ctx.words))
    text = ctx.words("backfill.done", n=told["created"], existing=told["existing"], name=task.name)
    return ctx.done(text, go=f"/runs?task={task.id}&origin=backfill")


async def _form(ctx: PageContext, given: Mapping[str, str], problem: str = "") -> Response:
    services = ctx.services
    listed = await services.tasks.found(TaskQuery(sort="name", page_size=_NAMES))
    view: dict[str, Any] = {"task": None, "told": None}
    if given.get("task") and given.get("from") and not problem:
        try:
            view = await _looked(ctx, given)
        except (InvalidArgument, InvalidId, InvalidState, NotFound) as error:
            problem = error_words(error, ctx.words)
    return ctx.page(
        "timeline_backfill.html",
        400 if problem else 200,
        given=given,
        names=[each.name for each in listed.items if each.spec.is_scheduled],
        problem=problem,
        **view,
    )


async def _looked(ctx: PageContext, given: Mapping[str, str]) -> dict[str, Any]:
    """What the backfill would do, without doing it."""
    services = ctx.services
    task = await _named(ctx, given["task"])
    since, until = read_ends(given, ctx.zone.name)
    asked = {"from": None if since is None else rfc3339(since), "to": None if until is None else rfc3339(until)}
    told = await services.backfills.fill(task.id, {**asked, "dry_run": True})
    return {"task": task, "told": told, "asked": asked}


async def _named(ctx: PageContext, text: str) -> Task:
    """By its name; a link may have its number."""
    tasks = ctx.services.tasks
    try:
        return await tasks.get(text)
    except NotFound:
        return await tasks.get(filters.task_ref(text))


# The plan for other calendars


async def export(ctx: PageContext) -> Response:
    """What is planned in the stretch, as events of iCalendar (RFC 5545)."""
    take_zone(ctx)
    window = read_window(ctx)
    begin = Instant(max(window.since, ctx.now))
    lanes, _ = await ctx.services.timelines.lanes(query_of(ctx, 200), begin, Instant(max(begin, window.until)), ctx.now)
    headers = {"content-disposition": 'attachment; filename="noonbell.ics"'}
    return Response(calendar(lanes, ctx.now), media_type="text/calendar; charset=utf-8", headers=headers)


def calendar(lanes: list[Lane], now: Instant) -> str:
    """One event for each slot to come, as long as the task's runs usually take, and no shorter than a minute."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Noonbell//timeline//EN", "CALSCALE:GREGORIAN"]
    slots = sorted((slot, place) for place, lane in enumerate(lanes) for slot in lane.planned)
    for slot, place in slots[:_EVENTS]:
        task, usual = lanes[place].task, lanes[place].usual or 0
        lines += [
            "BEGIN:VEVENT",
            f"UID:{task.id}-{slot}@noonbell",
            f"DTSTAMP:{_stamp(int(now // SECOND))}",
            f"DTSTART:{_stamp(slot)}",
            f"DURATION:PT{max(60, -(-usual // SECOND))}S",
            f"SUMMARY:{_escaped(task.name)}",
            "END:VEVENT",
        ]
    return "".join(f"{_folded(line)}\r\n" for line in [*lines, "END:VCALENDAR"])


def _stamp(slot: int) -> str:
    return re.sub(r"[-:]|\.\d+", "", rfc3339(Instant(slot * SECOND)))


def _escaped(text: str) -> str:
    """No line of the text's own making: a CR would begin one for some readers."""
    return re.sub(r"\r\n?|\n", r"\\n", re.sub(r"([\\;,])", r"\\\1", text))


def _folded(line: str) -> str:
    """Long lines go on in the next one, after a blank; no character is cut in two."""
    if len(line.encode()) <= _LINE:
        return line
    pieces, piece = [], ""
    for letter in line:
        if len((piece + letter).encode()) > _LINE:
            pieces.append(piece)
            piece = ""
        piece += letter
    return "\r\n ".join([*pieces, piece])


PAGES: Final = [
    get("/timeline", show),
    get("/timeline/backfill", ask, role=Role.OPERATOR),
    post("/timeline/backfill", fill, "backfill_task"),
    get("/timeline.ics", export),
]
