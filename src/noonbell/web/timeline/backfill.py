"""What is done with a stretch of the timeline: runs for slots of the past, and the plan as a calendar file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, InvalidId, InvalidState, NotFound
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task
from noonbell.service import naming
from noonbell.service.timeline import Lane, Timelines
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.timeline.page import query_of
from noonbell.web.timeline.window import read_ends, read_window, take_zone
from noonbell.web.visit import Visit

_NAMES: Final = 200
"""Tasks that are offered to choose from; any other may be typed."""
_EVENTS: Final = 2_000
_LINE: Final = 73
"""Bytes of a line in a calendar file, with room for its end."""


async def ask(visit: Visit) -> Response:
    take_zone(visit)
    given = {name: visit.query.get(name, "") for name in ("task", "from", "to")}
    return await _form(visit, given)


async def fill(visit: Visit) -> Response:
    """The second step: what was seen is done. A slot that has been filled before is not filled again."""
    given = await visit.fields()
    task = await visit.site.services.tasks.get(naming.task_ref(given.get("task_id", "")))
    visit.subject = f"/tasks/{task.id}"
    asked = {name: given.get(name, "") for name in ("from", "to")}
    try:
        told = await visit.site.services.backfills.fill(task.id, asked, trace_id=visit.request_id)
    except (InvalidArgument, InvalidState) as error:
        return await _form(visit, {**given, "task": task.name}, error.message)
    text = visit.words("backfill.done", n=told["created"], existing=told["existing"], name=task.name)
    return visit.done(text, go=f"/runs?task={task.id}&origin=backfill")


async def _form(visit: Visit, given: Mapping[str, str], problem: str = "") -> Response:
    services = visit.site.services
    listed = await services.store.tasks(TaskQuery(sort="name", page_size=_NAMES))
    view: dict[str, Any] = {"task": None, "told": None}
    if given.get("task") and given.get("from") and not problem:
        try:
            view = await _looked(visit, given)
        except (InvalidArgument, InvalidId, InvalidState, NotFound) as error:
            problem = "; ".join(f"{name}: {said}" for name, said in error.details.items()) or error.message
    return visit.page(
        "timeline_backfill.html",
        400 if problem else 200,
        given=given,
        names=[each.name for each in listed.items if each.spec.schedule is not None],
        problem=problem,
        **view,
    )


async def _looked(visit: Visit, given: Mapping[str, str]) -> dict[str, Any]:
    """What the backfill would do, without doing it."""
    services = visit.site.services
    task = await _named(visit, given["task"])
    since, until = read_ends(given, visit.zone.name)
    asked = {"from": None if since is None else rfc3339(since), "to": None if until is None else rfc3339(until)}
    told = await services.backfills.fill(task.id, {**asked, "dry_run": True})
    return {"task": task, "told": told, "asked": asked}


async def _named(visit: Visit, text: str) -> Task:
    """By its name; a link may have its number."""
    tasks = visit.site.services.tasks
    try:
        return await tasks.get(text)
    except NotFound:
        return await tasks.get(naming.task_ref(text))


# The plan for other calendars


async def export(visit: Visit) -> Response:
    """What is planned in the stretch, as events of iCalendar (RFC 5545)."""
    take_zone(visit)
    window = read_window(visit)
    begin = Instant(max(window.since, visit.now))
    lanes, _ = await Timelines(visit.site.services.store).lanes(
        query_of(visit, 200), begin, Instant(max(begin, window.until)), visit.now
    )
    headers = {"content-disposition": 'attachment; filename="noonbell.ics"'}
    return Response(calendar(lanes, visit.now), media_type="text/calendar; charset=utf-8", headers=headers)


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
    pieces, piece = [], ""
    for letter in line:
        if len((piece + letter).encode()) > _LINE:
            pieces.append(piece)
            piece = ""
        piece += letter
    return "\r\n ".join([*pieces, piece])


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/timeline/backfill", ask, role=Role.OPERATOR),
        Page("/timeline/backfill", fill, "POST", Role.OPERATOR, deed="backfill_task"),
        Page("/timeline.ics", export),
    ]
