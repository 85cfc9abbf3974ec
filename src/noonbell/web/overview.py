"""The overview: is everything all right, what needs somebody, what fires next, what is going on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.model.account import Outage
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import Run, RunStatus
from noonbell.model.task import TaskStatus
from noonbell.service import Services
from noonbell.service.filters import LARGEST_PAGE, from_the_top
from noonbell.web import charts, times, trends
from noonbell.web.lately import DAY, newest_runs, trouble
from noonbell.web.page import Page
from noonbell.web.preferences import begins_elsewhere
from noonbell.web.runs import over_time as run_time
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_SAMPLE: Final = 2_500
_GOING: Final = (RunStatus.RUNNING, RunStatus.RETRYING)
"""What is found without looking through the history, however long that is."""
_MOST_GOING: Final = 8
_KEYS: Final = {"ok": "group.succeeded", "bad": "group.failed", "active": "group.active", "idle": "group.skipped"}
"""The fills of the chart, and their words."""


async def show(visit: Visit) -> Response:
    if (elsewhere := begins_elsewhere(visit)) is not None:
        return visit.redirect(elsewhere)
    services = visit.site.services
    yesterday = Instant(visit.now - DAY)
    recent, going, soon, queues, troubles, outages = await asyncio.gather(
        _sample(services, Instant(yesterday - DAY)),
        newest_runs(services, None, _MOST_GOING, status=_GOING),
        services.tasks.page(TaskQuery(status=TaskStatus.ENABLED, sort="next_fire_at", page_size=10)),
        services.queues.all(),
        trouble(services, visit.now),
        services.store.outages(yesterday, visit.now),
    )
    is_sample = len(recent) == _SAMPLE
    return visit.page(
        "overview.html",
        figures=trends.figures(recent, visit.now, is_whole=not is_sample),
        aim_ms=trends.AIM_MS,
        is_sample=is_sample and recent[-1].scheduled_time > yesterday,
        sample=_SAMPLE,
        chart=charts.bars(charts.hours(recent, visit.now)),
        unplanned=unplanned(outages, visit.now),
        keys=_KEYS,
        clock_of=lambda at: f"{visit.zone.local(at // SECOND):%H:%M}",
        ago=lambda at: times.relative(times.instant_from(at) - visit.now, visit.words),
        going=[*going, *(run for run in recent if run.status is RunStatus.CALLBACK_PENDING)][:_MOST_GOING],
        progress_of=lambda run: run_time.progress(run, visit.now),
        going_total=sum(queue["running"] for queue in queues),
        soon=together(soon.items),
        waiting=sum(queue["waiting"] for queue in queues),
        oldest=min((queue["oldest_at"] for queue in queues if queue["oldest_at"] and queue["waiting"]), default=None),
        tasks_total=soon.total or 0,
        trouble=troubles,
        alerts=[] if visit.site.alerts is None else await visit.site.alerts.open_alerts(),
        has_tasks=bool(soon.total) or bool(recent) or await _has_tasks(visit),
    )


async def _sample(services: Services, since: Instant) -> list[Run]:
    """The runs since then, newest first; no more than a sample of them."""
    query = RunQuery(since=since, page_size=LARGEST_PAGE, cursor=from_the_top("-id"))
    found: list[Run] = []
    while True:
        page = await services.runs.page(query)
        found += page.items
        if page.next_cursor is None or len(found) >= _SAMPLE:
            return found[:_SAMPLE]
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


async def _has_tasks(visit: Visit) -> bool:
    return bool((await visit.site.services.tasks.page(TaskQuery(page_size=1))).items)


def unplanned(outages: Sequence[Outage], now: Instant) -> set[int]:
    """The hours, by their beginning, in which a node could not reach the store: slots in them may have been missed."""
    first = now - DAY
    return {
        hour * trends.HOUR
        for outage in outages
        for hour in range(max(outage.since, first) // trends.HOUR, min(outage.until, now) // trends.HOUR + 1)
    }


def together(tasks: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What fires next, by its moment."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        if task["next_fire_at"] is not None:
            found.setdefault(task["next_fire_at"], []).append(task)
    return list(found.items())


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/", show)]
