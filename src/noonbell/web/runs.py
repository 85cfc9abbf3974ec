"""The list of runs of all tasks: every filter in the address, newest first, and what a filter finds retried or canceled."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.run import Origin, RunStatus
from noonbell.service.filters import from_the_top, read_run_query
from noonbell.web.lists import Filters, pager_by_cursor, reader_of
from noonbell.web.page import Page
from noonbell.web.site import Site
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
ACTS: Final = ("retry", "cancel")


async def show(visit: Visit) -> Response:
    filters, query = await read(visit)
    page = None if query is None else await visit.site.services.runs.page(query)
    return visit.page(
        "runs.html",
        runs=[] if page is None else page.items,
        filters=filters,
        groups={name: ",".join(statuses) for name, statuses in GROUPS.items()},
        statuses=list(RunStatus),
        origins=list(Origin),
        pager=pager_by_cursor(filters.query, None if page is None else page.next_cursor),
        is_first="cursor" not in visit.query,
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
        return Filters(given, FILTERS, error.message), None
    return Filters(given, FILTERS), query


async def ask(visit: Visit) -> Response:
    act, query = await _asked(visit)
    runs = visit.site.services.runs
    found = await (runs.retry_where if act == "retry" else runs.cancel_where)(query, dry_run=True)
    kept = {name: value for name, value in visit.query.items() if name != "act"}
    return visit.page("run_bulk.html", act=act, found=found, query=visit.query, back=visit.url("/runs", **kept))


async def carry_out(visit: Visit) -> Response:
    act, query = await _asked(visit)
    runs = visit.site.services.runs
    done = await (runs.retry_where if act == "retry" else runs.cancel_where)(query, by=visit.actor)
    visit.deed, visit.subject = f"{act}_runs", f"/runs?{visit.request.url.query}"
    kept = {name: value for name, value in visit.query.items() if name not in ("act", "status")}
    text = visit.words(f"bulk.{act}", n=done.changed, matched=done.matched)
    return visit.done(text, go=visit.url("/runs", **kept).removeprefix(visit.root))


async def _asked(visit: Visit) -> tuple[str, RunQuery]:
    act = visit.query.get("act", "")
    if act not in ACTS:
        raise InvalidArgument.field("act", f"is {act[:40]!r}; expected {' or '.join(ACTS)}")
    filters, query = await read(visit)
    if query is None:
        raise InvalidArgument(filters.problem)
    return act, query


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/runs", show),
        Page("/runs/bulk", ask, role=Role.OPERATOR),
        Page("/runs/bulk", carry_out, "POST", Role.OPERATOR, deed="retry_runs"),
    ]
