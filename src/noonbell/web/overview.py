"""The overview: is everything all right, what needs somebody, what fires next, what is going on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import Instant
from noonbell.model.request import TaskQuery
from noonbell.model.run import SUCCEEDED, Run, RunStatus
from noonbell.model.task import TaskStatus
from noonbell.web import charts
from noonbell.web.lately import DAY, FAILURES, newest_runs, trouble
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_SAMPLE: Final = 1_000
_GOING: Final = (RunStatus.RUNNING, RunStatus.RETRYING)
"""What is found without looking through the history, however long that is."""
_MOST_GOING: Final = 8


async def show(visit: Visit) -> Response:
    services = visit.site.services
    recent, going, soon, queues, troubles = await asyncio.gather(
        newest_runs(services, None, _SAMPLE, since=Instant(visit.now - DAY)),
        newest_runs(services, None, _MOST_GOING, status=_GOING),
        services.tasks.page(TaskQuery(status=TaskStatus.ENABLED, sort="next_fire_at", page_size=10)),
        services.queues.all(),
        trouble(services, visit.now),
    )
    return visit.page(
        "overview.html",
        figures=figures(recent),
        is_sample=len(recent) == _SAMPLE,
        sample=_SAMPLE,
        chart=charts.bars(charts.hours(recent, visit.now)),
        going=[*going, *(run for run in recent if run.status is RunStatus.CALLBACK_PENDING)][:_MOST_GOING],
        going_total=sum(queue["running"] for queue in queues),
        soon=together(soon.items),
        waiting=sum(queue["waiting"] for queue in queues),
        oldest=min((queue["oldest_at"] for queue in queues if queue["oldest_at"] and queue["waiting"]), default=None),
        tasks_total=soon.total or 0,
        trouble=troubles,
        alerts=[] if visit.site.alerts is None else await visit.site.alerts.open_alerts(),
        has_tasks=bool(soon.total) or bool(recent) or await _has_tasks(visit),
    )


async def _has_tasks(visit: Visit) -> bool:
    return bool((await visit.site.services.tasks.page(TaskQuery(page_size=1))).items)


@dataclass(frozen=True, slots=True)
class Figures:
    runs: int
    success: float | None
    """In per cent of what succeeded or failed."""
    failed: int
    lag_p95_ms: int | None
    """From when a run was due to its start."""
    callbacks: int
    last_failed: Run | None


def figures(runs: Sequence[Run]) -> Figures:
    good, bad = sum(run.status in SUCCEEDED for run in runs), sum(run.status in FAILURES for run in runs)
    lags = sorted(
        max(0, run.start_time - run.run_at) // 1000 for run in runs if run.start_time is not None and run.attempt <= 1
    )
    return Figures(
        runs=len(runs),
        success=round(100 * good / (good + bad), 1) if good + bad else None,
        failed=bad,
        lag_p95_ms=lags[min(len(lags) - 1, int(len(lags) * 0.95))] if lags else None,
        callbacks=sum(run.status is RunStatus.CALLBACK_PENDING for run in runs),
        last_failed=next((run for run in runs if run.status in FAILURES), None),
    )


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
