"""One task, in six parts with an address each: overview, runs, schedule, configuration, versions, activity.

Work grows with what is shown: a page looks at the newest runs, however many there were.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import Instant, instant_of
from noonbell.errors import InvalidArgument
from noonbell.model.account import Pause, Turn
from noonbell.model.run import Run
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.service.filters import from_the_top, read_run_query
from noonbell.service.reader import Problems, Reader
from noonbell.web import charts, explained, schedules
from noonbell.web.lately import DAY, FAILURES, newest_runs
from noonbell.web.lists import pager_by_cursor, reader_of
from noonbell.web.page import Handler, Page
from noonbell.web.site import Site
from noonbell.web.tasks import versions
from noonbell.web.tasks.acts import found
from noonbell.web.tasks.coming import ahead
from noonbell.web.tasks.health import Health, health, reasons
from noonbell.web.visit import Visit, as_json

TABS: Final = ("overview", "runs", "schedule", "configuration", "versions", "activity")
SAMPLE: Final = 500
"""The newest runs, which all that is told of a task's health rests on."""
DAYS: Final = 30
_SHOWN: Final = 12
_SLOTS: Final = 5
_MORE_SLOTS: Final = 20
_VERSIONS: Final = 50
_LINES: Final = 50
"""Of the audit log."""

Part = Callable[[Visit, Task], Awaitable[dict[str, Any]]]


def tab(name: str, part: Part) -> Handler:
    """A part of the page in the frame that all have: name, state, buttons, the other parts."""

    async def show(visit: Visit) -> Response:
        task = await found(visit, deleted=True)
        shown, view = await asyncio.gather(visit.site.services.tasks.show(task), part(visit, task))
        return visit.page(
            "task.html" if name == "overview" else f"task_{name}.html",
            task=shown,
            tab=name,
            tabs=TABS,
            is_deleted=task.deleted_at is not None,
            is_on=task.status == "ENABLED" and task.deleted_at is None,
            is_managed=versions.is_managed(task),
            **view,
        )

    return show


async def overview(visit: Visit, task: Task) -> dict[str, Any]:
    services = visit.site.services
    runs, every, why, planned = await asyncio.gather(
        newest_runs(services, task.id, SAMPLE),
        services.tasks.versions(task),
        answer(visit, task),
        plan(visit, task, _SLOTS),
    )
    lately = recent(runs, visit.now)
    figures = health(lately)
    return {
        **planned,
        "runs": runs[:_SHOWN],
        "strip": charts.strip(runs, 60, width=8, gap=2),
        "health": figures,
        "sample": len(lately) if len(lately) == SAMPLE else 0,
        "days": DAYS,
        "dots": charts.dots(lately, [(each.version, each.valid_from) for each in every[1:]], figures.p95_ms),
        "heat": charts.heat(lately, visit.zone) if lately else [],
        "reasons": reasons(lately, every),
        **why,
    }


def recent(runs: Sequence[Run], now: int) -> list[Run]:
    """Those of the last thirty days. Not asked for so: a store would look through all that is older for nothing."""
    return [run for run in runs if run.scheduled_time >= now - DAYS * DAY]


async def plan(visit: Visit, task: Task, count: int) -> dict[str, Any]:
    """What comes next, and what stands in its way."""
    services = visit.site.services
    told = await services.previews.next(task, 1, visit.words.lang)
    return {
        "next": told,
        "written": schedules.written(task.spec.schedule),
        "ahead": ahead(task, visit.now, count),
        "off_since": await _off_since(visit, task),
        "queue_pause": await _queue_pause(visit, task),
    }


async def _off_since(visit: Visit, task: Task) -> Turn | None:
    """Who put it off, and when."""
    if task.status is TaskStatus.ENABLED or task.deleted_at is not None:
        return None
    return (await visit.site.services.store.turns([task.id])).get(task.id)


async def _queue_pause(visit: Visit, task: Task) -> Pause | None:
    """Slots of a task whose queue is paused are planned, and their runs wait."""
    pauses = await visit.site.services.store.pauses(task.spec.queue, visit.now, visit.now)
    return next((pause for pause in pauses if pause.until is None), None)


async def answer(visit: Visit, task: Task) -> dict[str, Any]:
    """Why did, or didn't, it run: at the moment that was asked for, or lately."""
    text = visit.query.get("at")
    try:
        told = await visit.site.services.explain.about_task(task, _moment(visit, text))
    except InvalidArgument as error:
        return {"explained": explained.unclear(error.message), "at": text or ""}
    return {"explained": explained.of(visit, told), "at": text or ""}


def _moment(visit: Visit, text: str | None) -> Instant | None:
    """RFC 3339, or what a browser's field for date and time says, on the clock of the chosen zone."""
    if text is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text):
        try:
            return instant_of(visit.zone.first_showing(datetime.fromisoformat(text)))
        except (ValueError, OverflowError):
            pass  # a day that is none: let the reader say it
    problems = Problems()
    moment = Reader({"at": text}, problems).moment("at")
    problems.finish()
    return moment


async def runs_of(visit: Visit, task: Task) -> dict[str, Any]:
    """All of them, the failed ones, or the slow ones among the newest."""
    wanted = visit.query.get("show", "all")
    services = visit.site.services
    if wanted == "slow":
        sample = await newest_runs(services, task.id, SAMPLE)
        figures = health(sample)
        slow = [run for run in sample if is_slow(run, figures)]
        return {
            "show": wanted,
            "runs": slow[:50],
            "health": figures,
            "sample": SAMPLE,
            "pager": pager_by_cursor({}, None),
        }
    reader = reader_of(visit.query, (), page_size=50, cursor=visit.query.get("cursor") or from_the_top("-id"))
    query = await read_run_query(reader, services.store, task.id)
    reader.problems.finish()
    if wanted == "failed":
        page = await services.runs.page(msgspec.structs.replace(query, status=FAILURES))
    else:
        wanted, page = "all", await services.runs.page(query)
    kept = {name: value for name, value in visit.query.items() if name in ("show", "cursor")}
    return {
        "show": wanted,
        "runs": page.items,
        "health": None,
        "sample": SAMPLE,
        "pager": pager_by_cursor(kept, page.next_cursor),
    }


def is_slow(run: Run, figures: Health) -> bool:
    """Slower than nineteen in twenty, and twice as slow as usual: where all take the same, none is slow."""
    if run.duration_ms is None or figures.p95_ms is None or figures.median_ms is None:
        return False
    return run.duration_ms >= figures.p95_ms and run.duration_ms > 2 * figures.median_ms


async def schedule(visit: Visit, task: Task) -> dict[str, Any]:
    planned, why = await asyncio.gather(plan(visit, task, _MORE_SLOTS), answer(visit, task))
    return {**planned, **why, "spec": task.spec}


async def configuration(visit: Visit, task: Task) -> dict[str, Any]:
    shown = await visit.site.services.tasks.show(task)
    return {"definition": as_json(definition(shown)), "whole": as_json(shown)}


async def history(visit: Visit, task: Task) -> dict[str, Any]:
    every = versions.changes(await visit.site.services.tasks.versions(task))
    text = visit.query.get("before", "")
    before = int(text) if text.isdecimal() and len(text) < 10 else None
    shown = [change for change in every if before is None or change.version.version < before]
    return {
        "changes": shown[:_VERSIONS],
        "older": shown[_VERSIONS - 1].version.version if len(shown) > _VERSIONS else None,
        "newest": before is not None,
        "open": visit.query.get("v", ""),
        "newest_version": task.version,
    }


async def activity(visit: Visit, task: Task) -> dict[str, Any]:
    """Who did what to the task: told by its versions; for admins also what the audit log has of it."""
    every = versions.changes(await visit.site.services.tasks.versions(task))
    access = visit.site.access
    entries: list[dict[str, Any]] = []
    if access is not None and visit.may("admin"):
        entries = await access.log(None, _LINES, about=(f"/tasks/{task.id}",))
    return {"changes": every[:_VERSIONS], "entries": entries, "lines": _LINES, "is_kept": access is not None}


def definition(task: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something: those that are not what they would be anyway."""
    plain = versions.told(TaskSpec(name="x", exec_type=task["exec_type"], job_type=task["job_type"]))
    kept = {name: task[name] for name in plain if name in task and task[name] != plain[name]}
    return {"name": task["name"], "exec_type": task["exec_type"], **kept}


PARTS: Final[dict[str, Part]] = {
    "overview": overview,
    "runs": runs_of,
    "schedule": schedule,
    "configuration": configuration,
    "versions": history,
    "activity": activity,
}


def pages(site: Site) -> list[Page]:
    return [
        *(
            Page("/tasks/{id}" if name == "overview" else f"/tasks/{{id}}/{name}", tab(name, PARTS[name]))
            for name in TABS
        ),
        *versions.pages(site),
    ]
