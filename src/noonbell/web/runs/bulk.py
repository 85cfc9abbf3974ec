"""Many runs at once: those that were ticked, or all that a filter finds, retried, driven once more, or canceled."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, Run, RunId
from noonbell.service.filters import from_the_top
from noonbell.service.runs import BULK_LIMIT
from noonbell.service.steps import RUN_ACTS, Left, Step, change_runs, runs_step, statuses_of
from noonbell.web import bulk
from noonbell.web.page import Page
from noonbell.web.runs.index import read
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_DEEDS: Final = {"retry": "retry_runs", "redrive": "retry_runs", "cancel": "cancel_runs"}
_BATCH: Final = 1_000


async def ask(visit: Visit) -> Response:
    act = bulk.act_of(visit, RUN_ACTS)
    found, is_more = await _count(visit, act, await _query(visit))
    kept = {name: value for name, value in visit.query.items() if name != "act"}
    return visit.page(
        "run_bulk.html", act=act, found=found, is_more=is_more, query=visit.query, back=visit.url("/runs", **kept)
    )


async def _count(visit: Visit, act: str, query: RunQuery) -> tuple[int, bool]:
    """As many as there are, up to a limit: counting millions would take longer than it is worth."""
    statuses, count, cursor = statuses_of(act, query), 0, from_the_top("-id")
    if not statuses:
        return 0, False
    while count < BULK_LIMIT:
        wanted = msgspec.structs.replace(query, status=statuses, page_size=_BATCH, cursor=cursor)
        page = await visit.site.services.store.runs(wanted)
        count += len(page.items)
        if page.next_cursor is None:
            return count, False
        cursor = page.next_cursor
    return count, True


async def carry_out(visit: Visit) -> Response:
    act, query, given = bulk.act_of(visit, RUN_ACTS), await _query(visit), await visit.fields()
    visit.deed, visit.subject = _DEEDS[act], f"/runs?{visit.request.url.query}"[:500]
    services = visit.site.services

    async def take(place: str | None) -> Step:
        return await runs_step(services, act, query, place, by=visit.actor)

    kept = {name: value for name, value in visit.query.items() if name not in ("act", "status")}
    return await bulk.taken(visit, given, take, f"bulk.done_{act}", visit.url("/runs", **kept).removeprefix(visit.root))


async def ticked(visit: Visit) -> Response:
    form = await visit.form()
    act = dict(form).get("act", "")
    ids = bulk.ids_of([value for name, value in form if name == "id"])
    if act not in ("retry", "cancel") or not ids:
        raise InvalidArgument(visit.words("bulk.nothing"))
    visit.deed, visit.subject = _DEEDS[act], f"/runs?ids={','.join(str(number) for number in ids[:50])}"
    runs = [run for number in ids if (run := await visit.site.services.store.run(RunId(number))) is not None]
    fit = [run for run in runs if (run.status in FINAL) == (act == "retry")]
    step = await change_runs(visit.site.services, act, fit, by=visit.actor)
    step.left += [_unfit(run) for run in runs if run not in fit]
    return visit.done(bulk.told(visit, f"bulk.done_{act}", step), "/runs")


def _unfit(run: Run) -> Left:
    return Left(run.id, run.task_name, "final" if run.status in FINAL else "going")


async def _query(visit: Visit) -> RunQuery:
    filters, query = await read(visit)
    if query is None:
        raise InvalidArgument(filters.problem)
    return query


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/runs/bulk", ask, role=Role.OPERATOR),
        Page("/runs/bulk", carry_out, "POST", Role.OPERATOR, deed="retry_runs"),
        Page("/runs/ticked", ticked, "POST", Role.OPERATOR, deed="retry_runs"),
    ]
