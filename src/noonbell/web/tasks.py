"""The list of tasks: found by name, label, status or queue; each with its newest runs; and the search box of all pages."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.errors import InvalidArgument, InvalidId
from noonbell.model.request import Page as Found
from noonbell.model.request import TaskQuery
from noonbell.model.task import TaskStatus
from noonbell.service import naming
from noonbell.service.filters import read_task_query
from noonbell.web import charts, schedules
from noonbell.web.lately import newest_runs, trouble
from noonbell.web.lists import PAGE_SIZE, Filters, pager_by_number, reader_of
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit

FILTERS: Final = ("name", "status", "label", "queue", "managed_by")
ORDERS: Final = ("name", "-name", "next_fire_at", "-updated_at", "-created_at")
_STRIP: Final = 30


async def show(visit: Visit) -> Response:
    services = visit.site.services
    filters, query = read(visit)
    page: Found[dict[str, Any]] = Found([], 0, None) if query is None else await services.tasks.page(query)
    rows = [await row(visit, task) for task in page.items]
    is_plain = not filters.active and (query is None or query.page == 1)
    return visit.page(
        "tasks.html",
        rows=rows,
        filters=filters,
        statuses=list(TaskStatus),
        orders=ORDERS,
        sort=visit.query.get("sort", "name"),
        pager=pager_by_number(filters.query, query.page if query else 1, page.total),
        total=page.total or 0,
        trouble=await trouble(services, visit.now) if is_plain and rows else None,
        all_tasks=await count_all(visit) if filters.active and not rows else None,
        server=server_address(visit),
    )


def read(visit: Visit) -> tuple[Filters, TaskQuery | None]:
    """The filters of the address; no query where one of them makes no sense."""
    given = dict(visit.query)
    try:
        reader = reader_of(given, FILTERS, sort="name")
        query = read_task_query(reader)
        if query.sort not in ORDERS:
            reader.wrong("sort", f"is {query.sort!r}; expected one of {', '.join(ORDERS)}")
        reader.problems.finish()
    except InvalidArgument as error:
        return Filters(given, FILTERS, error.message), None
    return Filters(given, FILTERS), query


async def row(visit: Visit, task: dict[str, Any]) -> dict[str, Any]:
    runs = await newest_runs(visit.site.services, task["id"], _STRIP)
    return {
        "task": task,
        "strip": charts.strip(runs, _STRIP),
        "last": runs[0] if runs else None,
        "sentence": schedules.sentence(task["schedule"], task["timezone"], visit.words.lang),
        "written": schedules.written(task["schedule"]),
    }


async def count_all(visit: Visit) -> int:
    return (await visit.site.services.tasks.page(TaskQuery(page_size=1))).total or 0


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
