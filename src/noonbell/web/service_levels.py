"""The page of service levels: how well tasks keep them, what is left of their error budgets, breaches; and the same as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import Instant, rfc3339
from noonbell.fields import read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.rollup import DAY
from noonbell.model.sla import Sla, SlaBreach, SlaRule
from noonbell.model.task import Task
from noonbell.service.filters import run_query
from noonbell.service.runs import csv_cell
from noonbell.service.service_levels import (
    MOST_COUNTED,
    MOST_TASKS,
    FigureStep,
    ServiceLevelFigures,
    SlaAnswer,
    SlaList,
)
from noonbell.service.translation import Translator
from noonbell.web import i18n
from noonbell.web.context import PageContext
from noonbell.web.page import get

PERIODS: Final = (1, 7, 28, 90)
"""Days."""
_SPREADS: Final = ("start_delay_ms", "queue_time_ms", "duration_ms")
_SHARES: Final = ("p50", "p95", "p99")
_RULES: Final = tuple(str(rule) for rule in SlaRule)
_COLUMNS: Final = (
    *("at", "task_id", "task", "runs", "success_ratio", "error_budget_left"),
    *(f"{name.removesuffix('_ms')}_{share}_ms" for name in _SPREADS for share in _SHARES),
    *(f"breaches_{rule}" for rule in _RULES),
)


async def show(ctx: PageContext) -> Response:
    days, _ = _period(ctx)
    found = await _ask(ctx, days)
    names = {task.task_id: task.task_name for task in found.tasks}
    return ctx.page(
        "service_levels.html",
        found=found,
        names=names,
        days=days,
        periods=PERIODS,
        given={name: ctx.query.get(name, "") for name in ("label", "queue")},
        promise=lambda sla: promise(sla, ctx.words),
        breach_said=_teller(ctx),
    )


async def export(ctx: PageContext) -> Response:
    """By hour or by day (`by`), each task in rows of its own; the first 1,000 by name."""
    days, by = _period(ctx)
    found = await _ask(ctx, days, by, MOST_COUNTED)
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(_COLUMNS)
    for task in found.tasks:
        left = None if task.error_budget is None else task.error_budget.left
        for point in task.points:
            writer.writerow(_row(point, task.task_id, task.task_name, left))
    headers = {"content-disposition": 'attachment; filename="noonbell-service-levels.csv"'}
    return Response(written.getvalue(), headers=headers, media_type="text/csv; charset=utf-8")


def _row(point: ServiceLevelFigures, task_id: int, name: str, left: float | None) -> list[str]:
    figures = [getattr(getattr(point, spread), share) for spread in _SPREADS for share in _SHARES]
    breaches = [point.breaches.get(rule, 0) for rule in _RULES]
    row = [rfc3339(point.at), task_id, name, point.runs, point.success_ratio, left, *figures, *breaches]
    return [csv_cell(value) for value in row]


def _period(ctx: PageContext) -> tuple[int, FigureStep]:
    asked = ctx.query.get("days", "")
    days = int(asked) if asked.isdecimal() and int(asked) in PERIODS else 28
    return days, FigureStep.HOUR if ctx.query.get("by") == "hour" else FigureStep.DAY


async def _ask(ctx: PageContext, days: int, by: FigureStep | None = None, most: int = MOST_TASKS) -> SlaAnswer:
    given = {name: value for name in ("task", "label", "queue") if (value := ctx.query.get(name, ""))}
    at = ReadContext(Problems())
    query = await run_query(read_into(SlaList, given, at), ctx.services.store, at)
    at.problems.finish()
    since = Instant(ctx.now - days * DAY.length)
    return await ctx.services.levels.over(
        since, task_id=query.task_id, label=query.label, queue=query.queue, by=by, most=most
    )


def promise(sla: Sla, words: Translator) -> list[str]:
    """What a service level says, each part in words."""
    said = []
    if sla.start_within_seconds is not None:
        said.append(words("sla.start_within", span=i18n.span(sla.start_within_seconds, words)))
    if sla.finish_within_seconds is not None:
        said.append(words("sla.finish_within", span=i18n.span(sla.finish_within_seconds, words)))
    if sla.finish_by is not None:
        said.append(words("sla.finish_by", time=sla.finish_by))
    if sla.success_ratio is not None:
        said.append(
            words("sla.success_ratio", percent=f"{100 * sla.success_ratio:g}", window=_window(sla.window, words))
        )
    return said


def _window(text: str, words: Translator) -> str:
    """`28d` as other spans are told: `28 d`."""
    return f"{text[:-1]} {words(f'unit.{text[-1]}')}"


def breach_words(breach: SlaBreach, words: Translator, local: Callable[[int], str]) -> str:
    """One breach in a sentence; `local` puts a moment into the reader's zone."""
    kind = "breached" if breach.breached_at is not None else "foreseen"
    if breach.rule is SlaRule.SUCCESS_RATIO:
        return words("sla.breached_ratio")
    facts = {"deadline": local(breach.deadline), "rule": words(f"sla.rule.{breach.rule}")}
    if kind == "foreseen" and breach.usual_ms is not None and breach.expected_at is not None:
        usual = i18n.milliseconds(breach.usual_ms, words)
        return words("sla.foreseen_usual", usual=usual, expected=local(breach.expected_at), **facts)
    return words(f"sla.{kind}", **facts)


def _teller(ctx: PageContext) -> Callable[[SlaBreach], str]:
    def local(at: int) -> str:
        return i18n.shown(at, ctx.now, ctx.zone, ctx.words).local

    return lambda breach: breach_words(breach, ctx.words, local)


async def card(ctx: PageContext, task: Task) -> dict[str, Any]:
    """What the page of a task shows of its service level."""
    sla = ctx.services.store.sla_of(task.spec)
    if sla is None:
        return {"level": None}
    found = await ctx.services.levels.over(Instant(ctx.now - 28 * DAY.length), task_id=task.id)
    return {
        "level": found.tasks[0],
        "broken": found.breaches[:5],
        "promised": promise(sla, ctx.words),
        "breach_said": _teller(ctx),
    }


PAGES: Final = [
    get("/sla", show),
    get("/sla.csv", export),
]
