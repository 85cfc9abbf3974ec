"""The list of runs with its filters, and bulk actions on runs: retry, redrive, cancel."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, Run, RunId, RunStatus
from noonbell.service.bulk import RUN_ACTS, BulkStep, Left, change_runs, runs_step, statuses_of
from noonbell.service.filters import RunList, from_the_top, read_run_query
from noonbell.service.runs import BULK_LIMIT
from noonbell.web import lists
from noonbell.web.context import PageContext
from noonbell.web.page import get, post

FILTERS: Final = (
    "text",
    "status",
    "task",
    "label",
    "queue",
    "worker",
    "key",
    "origin",
    "from",
    "to",
    "parent_id",
    "step",
)
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "failed": ("FAILED", "TIMEOUT", "FAILED_TIMEOUT"),
    "active": ("RUNNING", "RETRYING"),
    "callback": ("CALLBACK_PENDING",),
    "waiting": ("SCHEDULED",),
    "succeeded": ("SUCCESS", "CALLBACK_SUCCESS"),
    "skipped": ("SKIPPED", "CANCELED"),
}
"""What people ask for, and the statuses that it stands for."""
_FIELDS: Final = {"task": "task_id", "worker": "worker_id", "from": "since", "to": "until", "step": "step_id"}
"""What a filter is called in the query, where it is not the same."""
_COUNTED: Final = 100
"""How far the rows without one of the filters are counted: a store may hold millions."""


async def show_runs(ctx: PageContext) -> Response:
    groups = {name: ",".join(statuses) for name, statuses in GROUPS.items()}
    if (moved := lists.typed(ctx, "/runs", FILTERS, lists.status_aliases(RunStatus, ctx.words, groups))) is not None:
        return moved
    filters, query = await read(ctx)
    page = None if query is None else await ctx.services.runs.page(query)
    runs = [] if page is None else page.items
    is_over = page is None or page.looked_to is None
    return ctx.page(
        "runs.html",
        runs=runs,
        filters=filters,
        groups=groups,
        group_words={statuses: ctx.words(f"group.{name}") for name, statuses in groups.items()},
        pager=lists.pager_by_cursor(filters.query, None if page is None else page.next_cursor),
        is_first="cursor" not in ctx.query,
        looked_to=None if page is None else page.looked_to,
        density=lists.density(ctx),
        copies=lists.copies(ctx, "runs", filters.active),
        elsewhere=await _elsewhere(ctx, filters, query) if not runs and is_over else [],
        waiting=await _waiting(ctx, filters, query) if not runs else None,
    )


async def read(ctx: PageContext) -> tuple[lists.Filters, RunQuery | None]:
    given = dict(ctx.query)
    try:
        at = ReadContext(Problems())
        wanted = lists.given_of(given, RunList, FILTERS, cursor=from_the_top("-id"))
        query = await read_run_query(wanted, ctx.services.store, at=at)
        if query.sort != "-id":
            at.wrong("sort", "is always by id here, newest first")
        at.problems.finish()
    except InvalidArgument as error:
        return lists.Filters(given, FILTERS, error.message, lists.RUN_GRAMMAR), None
    return lists.Filters(given, FILTERS, grammar=lists.RUN_GRAMMAR), query


async def _elsewhere(ctx: PageContext, filters: lists.Filters, query: RunQuery | None) -> list[lists.Elsewhere]:
    """What there would be without each of the filters, as far as it is worth counting."""
    found: list[lists.Elsewhere] = []
    if query is None or "cursor" in ctx.query:
        return found
    for name, token in filters.tokens.items():
        field = _FIELDS.get(name, name)
        wider = msgspec.structs.replace(query, **{field: () if field == "status" else None}, page_size=_COUNTED)
        page = await ctx.services.runs.page(wider)
        if page.items:
            found.append(lists.Elsewhere(name, token, len(page.items), is_more=page.next_cursor is not None))
    return found


async def _waiting(ctx: PageContext, filters: lists.Filters, query: RunQuery | None) -> dict[str, Any] | None:
    """The task that the list is of and that has no run yet: it says when its first is."""
    if query is None or query.task_id is None or set(filters.active) != {"task"}:
        return None
    task = await ctx.services.store.task(query.task_id)
    return None if task is None or task.deleted_at is not None else await ctx.services.tasks.show(task)


_AUDIT_ACTIONS: Final = {"retry": "retry_runs", "redrive": "retry_runs", "cancel": "cancel_runs"}
_BATCH: Final = 1_000


async def ask(ctx: PageContext) -> Response:
    act = lists.act_of(ctx, RUN_ACTS)
    found, is_more = await _count(ctx, act, await _query(ctx))
    kept = {name: value for name, value in ctx.query.items() if name != "act"}
    return ctx.page(
        "run_bulk.html", act=act, found=found, is_more=is_more, query=ctx.query, back=ctx.url("/runs", **kept)
    )


async def _count(ctx: PageContext, act: str, query: RunQuery) -> tuple[int, bool]:
    """As many as there are, up to a limit: counting millions would take longer than it is worth."""
    statuses, count, cursor = statuses_of(act, query), 0, from_the_top("-id")
    if not statuses:
        return 0, False
    while count < BULK_LIMIT:
        wanted = msgspec.structs.replace(query, status=statuses, page_size=_BATCH, cursor=cursor)
        page = await ctx.services.runs.page(wanted)
        count += len(page.items)
        if page.next_cursor is None:
            return count, False
        cursor = page.next_cursor
    return count, True


async def carry_out(ctx: PageContext) -> Response:
    act, query, given = lists.act_of(ctx, RUN_ACTS), await _query(ctx), await ctx.fields()
    ctx.action, ctx.subject = _AUDIT_ACTIONS[act], f"/runs?{ctx.request.url.query}"[:500]
    services = ctx.services

    async def take(place: str | None) -> BulkStep:
        return await runs_step(services, act, query, place, by=ctx.actor)

    kept = {name: value for name, value in ctx.query.items() if name not in ("act", "status")}
    return await lists.take_steps(ctx, given, take, f"bulk.done_{act}", ctx.link("/runs", **kept))


async def ticked(ctx: PageContext) -> Response:
    form = await ctx.form()
    act = dict(form).get("act", "")
    ids = lists.ids_of([value for name, value in form if name == "id"])
    if act not in ("retry", "cancel") or not ids:
        raise InvalidArgument(ctx.words("bulk.nothing"))
    ctx.action, ctx.subject = _AUDIT_ACTIONS[act], f"/runs?ids={','.join(str(number) for number in ids[:50])}"
    runs = [run for number in ids if (run := await ctx.services.store.run(RunId(number))) is not None]
    fit = [run for run in runs if (run.status in FINAL) == (act == "retry")]
    step = await change_runs(ctx.services, act, fit, by=ctx.actor)
    step.left += [_unfit(run) for run in runs if run not in fit]
    return ctx.done(lists.bulk_text(ctx, f"bulk.done_{act}", step), "/runs")


def _unfit(run: Run) -> Left:
    return Left(run.id, run.task_name, "final" if run.status in FINAL else "going")


async def _query(ctx: PageContext) -> RunQuery:
    filters, query = await read(ctx)
    if query is None:
        raise InvalidArgument(filters.problem)
    return query


PAGES: Final = [
    get("/runs", show_runs),
    get("/runs/bulk", ask, role=Role.OPERATOR),
    post("/runs/bulk", carry_out, "retry_runs"),
    post("/runs/ticked", ticked, "retry_runs"),
]
