"""The list of tasks: found by name, label, status or queue; what needs somebody first; and the search box of all pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, InvalidId, NotFound
from noonbell.model.account import Turn
from noonbell.model.request import Page as Found
from noonbell.model.request import TaskQuery
from noonbell.model.run import SUCCEEDED, Run
from noonbell.model.task import TaskId, TaskStatus
from noonbell.service import naming
from noonbell.service.filters import read_task_query
from noonbell.web import charts, schedules, times
from noonbell.web.lately import DAY, FAILURES, grouped, newest_runs
from noonbell.web.lists import (
    PAGE_SIZE,
    Elsewhere,
    Filters,
    copies,
    density,
    pager_by_number,
    reader_of,
    status_aliases,
    typed,
)
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tokens import TASKS
from noonbell.web.visit import Visit

FILTERS: Final = ("name", "status", "label", "queue", "managed_by")
ATTENTION: Final = "attention"
"""The order of the list unless another is asked for: what needs somebody, then by name."""
ORDERS: Final = (ATTENTION, "name", "-name", "next_fire_at", "-updated_at", "-created_at")
_SORT: Final = "noonbell_tasks_sort"
_YEAR: Final = 365 * 86_400
_STRIP: Final = 40
_LOOKED_AT: Final = 200
"""Failures of the last day that are looked at, for tasks on other pages."""
_MOST: Final = 10


async def show(visit: Visit) -> Response:
    aliases = status_aliases(TaskStatus, visit.words, {"on": "ENABLED", "off": "DISABLED", "paused": "DISABLED"})
    if (moved := typed(visit, "/tasks", FILTERS, aliases, kept_order(visit))) is not None:
        return moved
    services = visit.site.services
    filters, query = read(visit)
    page: Found[dict[str, Any]] = Found([], 0, None) if query is None else await services.tasks.page(query)
    sort = order(visit)
    others: list[dict[str, Any]] = []
    if sort == ATTENTION and page.items and not filters.active and query is not None and query.page == 1:
        others = await _failed_elsewhere(visit, {task["id"] for task in page.items})
    tasks = [*others, *page.items]
    turns = await services.store.turns([TaskId(task["id"]) for task in tasks if task["status"] == "DISABLED"])
    lately = await services.store.newest_runs([TaskId(task["id"]) for task in tasks], _STRIP)
    rows = [row(visit, task, lately.get(task["id"], []), turns) for task in tasks]
    first = [each for each in rows if needs(each)] if sort == ATTENTION else []
    answer = visit.page(
        "tasks.html",
        first=sorted(first, key=lambda each: str(each["task"]["name"])),
        rows=[each for each in rows[len(others) :] if each not in first],
        filters=filters,
        statuses=list(TaskStatus),
        orders=ORDERS,
        sort=sort,
        density=density(visit),
        pager=pager_by_number(filters.query, query.page if query else 1, page.total),
        total=page.total or 0,
        elsewhere=await _elsewhere(visit, filters, query) if filters.active and not page.items else [],
        copies=copies(visit, "tasks", filters.active),
        server=server_address(visit),
        exactly=lambda at: exactly(visit, at),
    )
    if "sort" in visit.query and sort == visit.query["sort"]:
        visit.keep(answer, _SORT, sort, _YEAR, secret=False)
    return answer


def order(visit: Visit) -> str:
    return visit.query.get("sort") or kept_order(visit)


def kept_order(visit: Visit) -> str:
    """As the visitor wanted it last."""
    kept = visit.request.cookies.get(_SORT, ATTENTION)
    return kept if kept in ORDERS else ATTENTION


def read(visit: Visit) -> tuple[Filters, TaskQuery | None]:
    """The filters of the address; no query where one of them makes no sense."""
    given = dict(visit.query)
    sort = order(visit)
    try:
        reader = reader_of({**given, "sort": "name" if sort == ATTENTION else sort}, FILTERS)
        query = read_task_query(reader)
        if sort not in ORDERS:
            reader.wrong("sort", f"is {sort!r}; expected one of {', '.join(ORDERS)}")
        reader.problems.finish()
    except InvalidArgument as error:
        return Filters(given, FILTERS, error.message, TASKS), None
    return Filters(given, FILTERS, grammar=TASKS), query


def needs(row: dict[str, Any]) -> bool:
    """Whether somebody should look at it: it lost its right to run, or the last of its runs that ended failed.

    One that is under way again says nothing yet, so a task does not come and go with each try.
    """
    marks = (cell.mark for cell in reversed(row["strip"].cells) if cell.mark in ("ok", "bad"))
    return row["task"]["status"] == "ERROR" or next(marks, "ok") == "bad"


async def _failed_elsewhere(visit: Visit, here: set[int]) -> list[dict[str, Any]]:
    """Tasks of other pages that failed within a day and may not have run well since."""
    services = visit.site.services
    failed = await newest_runs(services, None, _LOOKED_AT, status=FAILURES, since=Instant(visit.now - DAY))
    ids = [each.task_id for each in grouped(failed) if each.task_id not in here]
    doing = await services.store.activity(ids) if ids else {}
    found = []
    for task_id in [each for each in ids if each in doing and doing[each].last_run_status not in SUCCEEDED][:_MOST]:
        try:
            found.append(await services.tasks.show(await services.tasks.get(task_id), doing[task_id]))
        except NotFound:
            continue  # deleted meanwhile
    return found


def row(visit: Visit, task: dict[str, Any], runs: Sequence[Run], turns: Mapping[TaskId, Turn]) -> dict[str, Any]:
    strip = charts.strip(runs, _STRIP)
    return {
        "task": task,
        "strip": strip,
        "last": runs[0] if runs else None,
        "p95": p95(runs),
        "success": strip.succeeded / (strip.succeeded + strip.failed) if strip.succeeded + strip.failed else None,
        "turn": turns.get(task["id"]),
        "sentence": schedules.sentence(task["schedule"], task["timezone"], visit.words.lang),
        "written": schedules.written(task["schedule"]),
    }


def p95(runs: Sequence[Run]) -> int | None:
    """Milliseconds within which 95 of 100 of them ended; None of nothing."""
    took = sorted(run.duration_ms for run in runs if run.duration_ms is not None and run.start_time is not None)
    return took[-(-95 * len(took) // 100) - 1] if took else None


async def _elsewhere(visit: Visit, filters: Filters, query: TaskQuery | None) -> list[Elsewhere]:
    """How many there are without each of the filters; without the only one, that is all."""
    if query is None:
        return []
    found = []
    for name, token in filters.tokens.items():
        wider = msgspec.structs.replace(query, **{name: None}, page=1, page_size=1)
        found.append(Elsewhere(name, token, (await visit.site.services.store.tasks(wider)).total or 0))
    return [each for each in found if each.count]


def exactly(visit: Visit, at: int) -> str:
    """When it was, in a few characters: for what is shown on hovering."""
    shown = times.shown(at, visit.now, visit.zone, visit.words)
    return f"{shown.local} {shown.offset}"


def server_address(visit: Visit) -> str:
    """Where a caller reaches the API, as the visitor's browser does."""
    return str(visit.request.base_url).rstrip("/")


async def search(visit: Visit) -> Response:
    """Straight to what can only be meant: a run by its number, a task by its name or the one that has it in its name."""
    text = visit.query.get("q", "")
    if not text:
        return visit.redirect("/tasks")
    services = visit.site.services
    try:
        if await services.store.run(naming.run_id(text)) is not None:
            return visit.redirect(f"/runs/{text}")
    except InvalidId:
        pass
    exact = await services.store.task_named(text[:255])
    if exact is not None:
        return visit.redirect(f"/tasks/{exact.id}")
    found = await services.tasks.page(msgspec.structs.replace(TaskQuery(name=text[:255]), page_size=2))
    if len(found.items) == 1:
        return visit.redirect(f"/tasks/{found.items[0]['id']}")
    return visit.redirect(visit.url("/tasks", name=text[:255]).removeprefix(visit.root))


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/tasks", show), Page("/search", search)]


__all__ = ["FILTERS", "PAGE_SIZE", "pages", "read"]
