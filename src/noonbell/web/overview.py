"""The overview: what is wrong, what fires next, what runs now, and the figures of the last two days; and the switch that stops
every start (its banner is in `base.html`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.model import rollup
from noonbell.model.account import Outage, PendingCallbacks
from noonbell.model.request import TaskQuery
from noonbell.model.rollup import Scope
from noonbell.model.run import Run, RunStatus
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import TaskStatus
from noonbell.service import Services
from noonbell.service.doctor import Finding
from noonbell.service.pauses import MOST_REASON
from noonbell.service.scope import ScopeRule
from noonbell.service.stats import milliseconds
from noonbell.web import charts, i18n, run_timeline
from noonbell.web.charts import HOUR
from noonbell.web.context import PageContext
from noonbell.web.login import begins_elsewhere
from noonbell.web.page import get, post
from noonbell.web.queues import queue_path, start_command
from noonbell.web.recent import DAY, FAILURES, newest_runs, rules_by_task, trouble


async def pause(ctx: PageContext) -> Response:
    given = await ctx.fields()
    reason = given.get("reason", "").strip()[:MOST_REASON]
    await ctx.services.pauses.pause({"reason": reason}, by=ctx.actor)
    ctx.subject, ctx.details = "/pause", {"reason": reason} if reason else {}
    return ctx.done(ctx.words("pause.done"), "/", undo="/resume")


async def resume(ctx: PageContext) -> Response:
    await ctx.services.pauses.resume(by=ctx.actor)
    ctx.subject = "/resume"
    return ctx.done(ctx.words("pause.over"), "/")


_GOING: Final = (RunStatus.RUNNING, RunStatus.RETRYING, RunStatus.CALLBACK_PENDING)
"""What executes comes first: many retries do not push it off the list."""
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
    if not ctx.sees_all:
        return ctx.redirect("/tasks")
    if (elsewhere := begins_elsewhere(ctx)) is not None:
        return ctx.redirect(elsewhere)
    services = ctx.services
    yesterday = Instant(ctx.now - DAY)
    ended, going, failed = await asyncio.gather(
        day_of(services, ctx.now),
        _in_progress(services),
        newest_runs(services, None, 1, status=FAILURES),
    )
    soon, queues, troubles, outages, callbacks = await asyncio.gather(
        services.tasks.page(TaskQuery(status=TaskStatus.ENABLED, sort="next_fire_at", page_size=10)),
        services.queues.all(),
        trouble(services, ctx.now),
        services.store.outages(yesterday, ctx.now),
        services.store.pending_callbacks(),
    )
    running, waiting = (sum(queue[name] for queue in queues) for name in ("running", "waiting"))
    alerts = [] if ctx.deps.alerts is None else await ctx.deps.alerts.open_alerts()
    rules = rules_by_task(troubles.failing, alerts)
    return ctx.page(
        "overview.html",
        figures=figures(ended, callbacks, next(iter(failed), None)),
        aim_ms=AIM_MS,
        since=ended.since,
        chart=charts.bars(charts.hours(ended.hours, {"active": running, "waiting": waiting})),
        unplanned=unplanned(outages, ctx.now),
        keys=_KEYS,
        clock_of=lambda at: f"{ctx.zone.local(at // SECOND):%H:%M}",
        ago=lambda at: i18n.relative(i18n.instant_from(at) - ctx.now, ctx.words),
        going=going,
        progress_of=lambda run: run_timeline.progress(run, ctx.now),
        going_total=running,
        soon=together(soon.items),
        waiting=waiting,
        oldest=min((queue["oldest_at"] for queue in queues if queue["oldest_at"] and queue["waiting"]), default=None),
        tasks_total=soon.total or 0,
        trouble=troubles,
        remedy_of=lambda finding: remedy(ctx, finding),
        rules=rules,
        alerts=[alert for alert in alerts if alert["rule"] not in rules.get(alert["task_id"], ())],
        has_tasks=bool(soon.total or ended.today.runs or (await services.tasks.found(TaskQuery(page_size=1))).items),
    )


async def _in_progress(services: Services) -> list[Run]:
    found = await asyncio.gather(*(newest_runs(services, None, _MOST_GOING, status=(each,)) for each in _GOING))
    return [run for runs in found for run in runs][:_MOST_GOING]


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


@dataclass(frozen=True, slots=True)
class LastDay:
    """Runs that ended in the last 24 hours, in each of its hours, and in the 24 hours before."""

    since: Instant
    today: rollup.Figures
    before: rollup.Figures
    hours: list[tuple[int, rollup.Figures]]
    """The oldest hour first, the present one last; by their beginning."""


async def day_of(services: Services, now: Instant) -> LastDay:
    stretch = rollup.stretch_of(now - DAY, now, now)
    earlier = rollup.stretch_of(stretch.since - DAY, stretch.since, now)
    by_hour = rollup.stretch_of(now - 23 * HOUR, now + 1, now, rollup.HOUR)
    today, before, hours = await asyncio.gather(
        services.store.rollups(Scope.ALL, stretch),
        services.store.rollups(Scope.ALL, earlier),
        services.store.rollups(Scope.ALL, by_hour, step=rollup.HOUR),
    )
    found = {each.at: each.figures for each in hours}
    starts = range(by_hour.since, by_hour.until, HOUR)
    return LastDay(
        stretch.since,
        today[0].figures if today else rollup.Figures(),
        before[0].figures if before else rollup.Figures(),
        [(start, found.get(Instant(start)) or rollup.Figures()) for start in starts],
    )


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
class OverviewFigures:
    runs: int
    success: float | None
    """In per cent of what succeeded or failed."""
    change: float | None
    """Of the success, in points against the day before; None where nothing was decided then."""
    failed: int
    lag_p95_ms: int | None
    """From when a run was due to its start."""
    success_line: Spark
    lag_line: Spark
    callbacks: PendingCallbacks
    last_failed: Run | None


def figures(ended: LastDay, callbacks: PendingCallbacks, last_failed: Run | None = None) -> OverviewFigures:
    success, before = success_of(ended.today), success_of(ended.before)
    rates = [success_of(hour) for _, hour in ended.hours]
    lags = [late_p95(hour) for _, hour in ended.hours]
    return OverviewFigures(
        runs=ended.today.runs,
        success=success,
        change=round(success - before, 1) if success is not None and before is not None else None,
        failed=ended.today.failed,
        lag_p95_ms=late_p95(ended.today),
        success_line=spark(rates, min([_LOWEST, *(rate for rate in rates if rate is not None)]), 100),
        lag_line=spark(lags, 0, max([AIM_MS, *(each for each in lags if each is not None)]), AIM_MS),
        callbacks=callbacks,
        last_failed=last_failed,
    )


def success_of(figures: rollup.Figures) -> float | None:
    return None if figures.success is None else round(100 * figures.success, 1)


def late_p95(figures: rollup.Figures) -> int | None:
    return milliseconds(figures.start_delay.percentile(0.95))


PAGES: Final = [
    get("/", show, scope=ScopeRule.ANYTHING),
    post("/pause", pause, "pause_all"),
    post("/resume", resume, "resume_all"),
]
