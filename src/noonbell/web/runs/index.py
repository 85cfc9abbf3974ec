"""The list of runs of all tasks: every filter in the address, newest first; and why it is empty where it is."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.request import RunQuery
from noonbell.model.run import RunStatus
from noonbell.service.filters import from_the_top, read_run_query
from noonbell.web.lists import Elsewhere, Filters, copies, density, pager_by_cursor, reader_of, status_aliases, typed
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tokens import RUNS
from noonbell.web.visit import Visit

FILTERS: Final = ("text", "status", "task", "label", "queue", "worker", "key", "origin", "from", "to", "parent_id")
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "failed": ("FAILED", "TIMEOUT", "FAILED_TIMEOUT"),
    "active": ("RUNNING", "RETRYING"),
    "callback": ("CALLBACK_PENDING",),
    "waiting": ("SCHEDULED",),
    "succeeded": ("SUCCESS", "CALLBACK_SUCCESS"),
    "skipped": ("SKIPPED", "CANCELED"),
}
"""What people ask for, and the statuses that it stands for."""
_FIELDS: Final = {"task": "task_id", "worker": "worker_id", "from": "since", "to": "until"}
"""What a filter is called in the query, where it is not the same."""
_COUNTED: Final = 100
"""So many are counted of what would be there without a filter: a store may hold millions."""


async def show(visit: Visit) -> Response:
    groups = {name: ",".join(statuses) for name, statuses in GROUPS.items()}
    if (moved := typed(visit, "/runs", FILTERS, status_aliases(RunStatus, visit.words, groups))) is not None:
        return moved
    filters, query = await read(visit)
    page = None if query is None else await visit.site.services.runs.page(query)
    runs = [] if page is None else page.items
    is_over = page is None or page.looked_to is None
    return visit.page(
        "runs.html",
        runs=runs,
        filters=filters,
        groups=groups,
        group_words={statuses: visit.words(f"group.{name}") for name, statuses in groups.items()},
        pager=pager_by_cursor(filters.query, None if page is None else page.next_cursor),
        is_first="cursor" not in visit.query,
        looked_to=None if page is None else page.looked_to,
        density=density(visit),
        copies=copies(visit, "runs", filters.active),
        elsewhere=await _elsewhere(visit, filters, query) if not runs and is_over else [],
        waiting=await _waiting(visit, filters, query) if not runs else None,
    )


async def read(visit: Visit) -> tuple[Filters, RunQuery | None]:
    given = dict(visit.query)
    try:
        reader = reader_of(given, FILTERS, cursor=from_the_top("-id"))
        if status := given.get("status"):
            reader = reader_of({**given, "status": ""}, FILTERS, cursor=from_the_top("-id"), status=status.split(","))
        query = await read_run_query(reader, visit.site.services.store)
        if query.sort != "-id":
            reader.wrong("sort", "is always by id here, newest first")
        reader.problems.finish()
    except InvalidArgument as error:
        return Filters(given, FILTERS, error.message, RUNS), None
    return Filters(given, FILTERS, grammar=RUNS), query


async def _elsewhere(visit: Visit, filters: Filters, query: RunQuery | None) -> list[Elsewhere]:
    """What there would be without each of the filters, as far as it is worth counting."""
    found: list[Elsewhere] = []
    if query is None or "cursor" in visit.query:
        return found
    for name, token in filters.tokens.items():
        field = _FIELDS.get(name, name)
        wider = msgspec.structs.replace(query, **{field: () if field == "status" else None}, page_size=_COUNTED)
        page = await visit.site.services.store.runs(wider)
        if page.items:
            found.append(Elsewhere(name, token, len(page.items), is_more=page.next_cursor is not None))
    return found


async def _waiting(visit: Visit, filters: Filters, query: RunQuery | None) -> dict[str, Any] | None:
    """The task that the list is of and that has no run yet: it says when its first is."""
    if query is None or query.task_id is None or set(filters.active) != {"task"}:
        return None
    task = await visit.site.services.store.task(query.task_id)
    return None if task is None or task.deleted_at is not None else await visit.site.services.tasks.show(task)


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/runs", show)]
