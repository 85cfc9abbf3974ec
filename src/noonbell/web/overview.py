"""The overview: what is wrong, what fires next, what runs now, and the figures of the last two days."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.model.account import Outage
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import SUCCEEDED, Run, RunStatus
from noonbell.model.task import HTTP_QUEUE, TaskStatus
from noonbell.service import Services
from noonbell.service.doctor import Finding
from noonbell.service.filters import LARGEST_PAGE, from_the_top
from noonbell.web import charts, i18n, run_timeline
from noonbell.web.charts import HOUR, by_hour
from noonbell.web.context import PageContext
from noonbell.web.login import begins_elsewhere
from noonbell.web.page import get
from noonbell.web.queues import queue_path, start_command
from noonbell.web.recent import DAY, FAILURES, newest_runs, rules_by_task, share, trouble

_SAMPLE: Final = 2_500
_GOING: Final = (RunStatus.RUNNING, RunStatus.RETRYING)
"""What is found without looking through the history, however long that is."""
_MOST_GOING: Final = 8
_KEYS: Final = {
    "ok": "group.succeeded",
    "bad": "group.failed",
    "active": "group.active",
    "waiting": "group.waiting",
    "idle": "group.skipped",
}
"""The fills of the chart, and their words."""


async def show(ctx: PageContext) -> Response:
    if (elsewhere := begins_elsewhere(ctx)) is not None:
        return ctx.redirect(elsewhere)
    services = ctx.services
    yesterday = Instant(ctx.now - DAY)
    recent, going, soon, queues, troubles, outages = await asyncio.gather(
        _sample(services, Instant(yesterday - DAY)),
        newest_runs(services, None, _MOST_GOING, status=_GOING),
        services.tasks.page(TaskQuery(status=TaskStatus.ENABLED, sort="next_fire_at", page_size=10)),
        services.queues.all(),
        trouble(services, ctx.now),
        services.store.outages(yesterday, ctx.now),
    )
    is_sample = len(recent) == _SAMPLE
    standing = await of_standing_tasks(services, recent)
    alerts = [] if ctx.deps.alerts is None else await ctx.deps.alerts.open_alerts()
    rules = rules_by_task(troubles.failing, alerts)
    return ctx.page(
        "overview.html",
        figures=figures(standing, ctx.now, is_whole=not is_sample),
        aim_ms=AIM_MS,
        is_sample=is_sample and recent[-1].scheduled_time > yesterday,
        sample=_SAMPLE,
        chart=charts.bars(charts.hours(standing, ctx.now)),
        unplanned=unplanned(outages, ctx.now),
        keys=_KEYS,
        clock_of=lambda at: f"{ctx.zone.local(at // SECOND):%H:%M}",
        ago=lambda at: i18n.relative(i18n.instant_from(at) - ctx.now, ctx.words),
        going=[*going, *(run for run in recent if run.status is RunStatus.CALLBACK_PENDING)][:_MOST_GOING],
        progress_of=lambda run: run_timeline.progress(run, ctx.now),
        going_total=sum(queue["running"] for queue in queues),
        soon=together(soon.items),
        waiting=sum(queue["waiting"] for queue in queues),
        oldest=min((queue["oldest_at"] for queue in queues if queue["oldest_at"] and queue["waiting"]), default=None),
        tasks_total=soon.total or 0,
        trouble=troubles,
        remedy_of=lambda finding: remedy(ctx, finding),
        rules=rules,
        alerts=[alert for alert in alerts if alert["rule"] not in rules.get(alert["task_id"], ())],
        has_tasks=bool(soon.total or recent or (await services.tasks.found(TaskQuery(page_size=1))).items),
    )


@dataclass(frozen=True, slots=True)
class Remedy:
    """What can be done about a finding from here."""

    path: str
    """The page that shows more of it."""
    command: str = ""
    """What starts the process that is missing."""
    resume: str = ""
    """Where a form ends the pause."""


_PLACES: Final = {"workers": "/workers", "pause": "/activity?view=system"}


def remedy(ctx: PageContext, finding: Finding) -> Remedy:
    """Where nothing else fits, the page of all findings."""
    name = str(finding.facts.get("name", ""))
    match finding.code:
        case "queue_paused":
            return Remedy(queue_path(name), resume=queue_path(name, "/resume"))
        case "queue_unserved" | "lacks_job_type" | "lacks_part":
            return Remedy(queue_path(name), start_command(ctx, name))
        case code if code.startswith("lacks_"):
            return Remedy(queue_path(name))
        case "scheduler_none" | "planner_late":
            return Remedy("/settings/diagnostics", start_command(ctx, HTTP_QUEUE))
        case _:
            return Remedy(_PLACES.get(finding.check, "/settings/diagnostics"))


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


async def of_standing_tasks(services: Services, runs: Sequence[Run]) -> list[Run]:
    """Without those of tasks that are deleted: how those went asks nothing of anybody any more."""
    tasks = await services.store.tasks_by_id(sorted({run.task_id for run in runs})) if runs else []
    standing = {task.id for task in tasks if task.deleted_at is None}
    return [run for run in runs if run.task_id in standing]


def unplanned(outages: Sequence[Outage], now: Instant) -> set[int]:
    """The hours, by their beginning, in which a node could not reach the store: slots in them may have been missed."""
    first = now - DAY
    return {
        hour * HOUR
        for outage in outages
        for hour in range(max(outage.since, first) // HOUR, min(outage.until, now) // HOUR + 1)
    }


def together(tasks: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What fires next, by its moment."""
    found: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        if task["next_fire_at"] is not None:
            found.setdefault(task["next_fire_at"], []).append(task)
    return list(found.items())


AIM_MS: Final = 2_000
"""How late a start may be and still be called in time."""
_WIDTH, _HEIGHT, _EDGE = 100.0, 28.0, 2.0
_LOWEST: Final = 90.0
"""Where the line of success begins, unless it falls below: one failure in a hundred is to be seen."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A line without axes."""

    path: str
    """As SVG has it; hours without a value are left out of the line."""
    limit: float | None = None
    """The height of the line that it should stay below."""
    width: float = _WIDTH
    height: float = _HEIGHT


def spark(values: Sequence[float | None], low: float, high: float, limit: float | None = None) -> Spark:
    """`values` from the left to the right, each between `low` and `high`."""
    step, scale = _WIDTH / max(1, len(values) - 1), (_HEIGHT - 2 * _EDGE) / ((high - low) or 1)

    def y_of(value: float) -> float:
        return round(_HEIGHT - _EDGE - (value - low) * scale, 1)

    points = [(round(place * step, 1), y_of(value)) for place, value in enumerate(values) if value is not None]
    path = " ".join(f"{'L' if place else 'M'}{x} {y}" for place, (x, y) in enumerate(points)) if len(points) > 1 else ""
    return Spark(path, None if limit is None else y_of(limit))


@dataclass(frozen=True, slots=True)
class Figures:
    runs: int
    success: float | None
    """In per cent of what succeeded or failed."""
    change: float | None
    """Of the success, in points against the day before; None where that day is not known as a whole."""
    failed: int
    lag_p95_ms: int | None
    """From when a run was due to its start."""
    success_line: Spark
    lag_line: Spark
    callbacks: int
    overdue: int
    """Callbacks whose deadline has passed."""
    next_deadline: int | None
    last_failed: Run | None


def figures(runs: Sequence[Run], now: int, *, is_whole: bool) -> Figures:
    """`runs` of two days, newest first. `is_whole`: they are all there were."""
    today = [run for run in runs if run.scheduled_time >= now - DAY]
    before = success_of([run for run in runs if run.scheduled_time < now - DAY])
    success, lag = success_of(today), late_p95(today)
    deadlines = [run.callback_deadline for run in today if run.status is RunStatus.CALLBACK_PENDING]
    known = [deadline for deadline in deadlines if deadline is not None]
    hours = by_hour(today, now)
    rates, lags = [success_of(hour) for hour in hours], [late_p95(hour) for hour in hours]
    return Figures(
        runs=len(today),
        success=success,
        change=round(success - before, 1) if is_whole and success is not None and before is not None else None,
        failed=sum(run.status in FAILURES for run in today),
        lag_p95_ms=lag,
        success_line=spark(rates, min([_LOWEST, *(rate for rate in rates if rate is not None)]), 100),
        lag_line=spark(lags, 0, max([AIM_MS, *(each for each in lags if each is not None)]), AIM_MS),
        callbacks=len(deadlines),
        overdue=sum(deadline < now for deadline in known),
        next_deadline=min((deadline for deadline in known if deadline >= now), default=None),
        last_failed=next((run for run in runs if run.status in FAILURES), None),
    )


def success_of(runs: Sequence[Run]) -> float | None:
    good, bad = sum(run.status in SUCCEEDED for run in runs), sum(run.status in FAILURES for run in runs)
    return round(100 * good / (good + bad), 1) if good + bad else None


def late_p95(runs: Sequence[Run]) -> int | None:
    started = [run for run in runs if run.start_time is not None and run.attempt <= 1]
    return share(sorted(max(0, (run.start_time or 0) - run.run_at) // 1000 for run in started), 0.95)


PAGES: Final = [
    get("/", show),
]
