"""The list of runs with its filters, and bulk actions on runs: retry, redrive, cancel, delete. The list of calls, which are
HTTP requests without a task, with a form that makes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from noonbell.errors import InvalidArgument
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.request import KeptReason, Page, RunQuery
from noonbell.model.run import FINAL, Origin, Run, RunId, RunStatus
from noonbell.model.target_kind import Method
from noonbell.model.view import ViewedList
from noonbell.service import scope
from noonbell.service.bulk_operations import RUN_ACTS, BulkStep, Left, change_runs, statuses_of
from noonbell.service.filters import RunFilter, RunList, from_the_top, read_run_query
from noonbell.service.runs import EXPORT_FORMATS, exported
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import error_words
from noonbell.web import bulk, lists
from noonbell.web.context import PageContext, one_of
from noonbell.web.forms import number_or_text
from noonbell.web.page import get, post

FILTERS: Final = (
    *("search", "text", "status", "task", "label", "queue", "worker", "key", "origin", "from", "to"),
    *("parent_id", "step"),
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
_GROUPS: Final = {name: ",".join(statuses) for name, statuses in GROUPS.items()}
"""As a filter has them."""
_FIELDS: Final = {"task": "task_id", "worker": "worker_id", "from": "since", "to": "until", "step": "step_id"}
"""What a filter is called in the query, where it is not the same."""
_INDEXED: Final = frozenset({"status", "task", "label", "from", "to", "parent_id"})
_SAMPLE: Final = 5
_COUNTED: Final = 100
"""How far the rows without one of the filters are counted: a store may hold millions."""
_TOTAL: Final = 1_000
"""How far the runs of a list are counted for its heading, so that a page costs the same whatever the history."""


async def show_runs(ctx: PageContext) -> Response:
    aliases = lists.status_aliases(RunStatus, ctx.words, _GROUPS)
    if (moved := lists.typed(ctx, "/runs", FILTERS, aliases, lists.NEWEST_FIRST)) is not None:
        return moved
    filters, query = await read(ctx)
    page = None if query is None else await ctx.services.runs.page(_counting(query, filters))
    view = _listed(ctx, filters, query, page)
    is_over = page is None or page.looked_to is None
    return ctx.page(
        "runs.html",
        **view,
        total=None if page is None else page.total,
        is_least=page is not None and page.is_least,
        looked_to=None if page is None else page.looked_to,
        under_way=await ctx.services.store.bulk_under_way() if ctx.sees_all else 0,
        density=lists.density(ctx),
        views=await lists.shared_views(ctx, ViewedList.RUNS),
        copies=lists.copies(ctx, "runs", {**filters.active, **_sorted(query)}),
        elsewhere=await _elsewhere(ctx, filters, query) if not view["runs"] and is_over else [],
        waiting=await _waiting(ctx, filters, query) if not view["runs"] else None,
    )


def _listed(ctx: PageContext, filters: lists.Filters, query: RunQuery | None, page: Page[Run] | None) -> dict[str, Any]:
    """What the lists of runs and of calls have in common."""
    return {
        "runs": [] if page is None else page.items,
        "filters": filters,
        "groups": _GROUPS,
        "group_words": {statuses: ctx.words(f"group.{name}") for name, statuses in _GROUPS.items()},
        "pager": lists.pager_by_cursor(filters.query, None if page is None else page.next_cursor),
        "is_first": "cursor" not in ctx.query,
        "sort": lists.NEWEST_FIRST if query is None else query.sort,
    }


def _sorted(query: RunQuery | None) -> dict[str, str]:
    """The order, where it is not the usual one."""
    return {} if query is None or query.sort == lists.NEWEST_FIRST else {"sort": query.sort}


def _counting(query: RunQuery, filters: lists.Filters) -> RunQuery:
    """With how many there are, as far as it is worth counting; not where no index leads to them, and only on the first page."""
    if "cursor" in filters.query or set(filters.active) - _INDEXED:
        return query
    return msgspec.structs.replace(query, cursor=None, count_to=_TOTAL)


async def read(
    ctx: PageContext, orders: Sequence[str] = lists.RUN_ORDERS, known: tuple[str, ...] = FILTERS, **more: str
) -> tuple[lists.Filters, RunQuery | None]:
    """The filters of the address, and what they and `more` ask for; no query where one of them makes no sense."""
    given = dict(ctx.query)
    try:
        at = ReadContext(Problems())
        sort = lists.run_sort(given, at, orders)
        wanted = lists.given_of({**given, "sort": sort}, RunList, known, cursor=from_the_top(sort))
        query = await read_run_query({**wanted, **more}, ctx.services.store, at=at)
        at.problems.finish()
    except InvalidArgument as error:
        return lists.Filters(given, known, error_words(error, ctx.words), lists.RUN_GRAMMAR), None
    return lists.Filters(given, known, grammar=lists.RUN_GRAMMAR), query


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
    if task is None or task.deleted_at is not None or not scope.held([task]):
        return None
    return await ctx.services.tasks.show(task)


async def export(ctx: PageContext) -> Response:
    """All that the filter of the list finds, as CSV or NDJSON (`format`)."""
    form = one_of("format", ctx.query.get("format", "csv"), EXPORT_FORMATS)
    text = exported(ctx.services.runs.page, await _query(ctx), form)
    headers = {"content-disposition": f'attachment; filename="noonbell-runs.{form}"'}
    return StreamingResponse(text, headers=headers, media_type=EXPORT_FORMATS[form])


_AUDIT_ACTIONS: Final = {
    "retry": "retry_runs",
    "redrive": "retry_runs",
    "cancel": "cancel_runs",
    "delete": "clean_runs",
}


async def ask(ctx: PageContext) -> Response:
    act, (filters, _) = lists.act_of(ctx, RUN_ACTS), await read(ctx)
    query = await _query(ctx)
    statuses = statuses_of(act, query)
    wanted = msgspec.structs.replace(query, status=statuses)
    found = await ctx.services.runs.sample(wanted, _SAMPLE) if statuses else Page[Run]([], 0, None)
    kept = {name: value for name, value in ctx.query.items() if name != "act"}
    return ctx.page(
        "run_bulk.html",
        act=act,
        found=found.total or 0,
        is_least=found.is_least,
        filters=filters,
        sample=found.items,
        query=ctx.query,
        back=ctx.url("/runs", **kept),
    )


async def carry_out(ctx: PageContext) -> Response:
    act, (filters, _) = lists.act_of(ctx, RUN_ACTS), await read(ctx)
    await _query(ctx)
    ctx.action, ctx.subject = _AUDIT_ACTIONS[act], f"/runs?{ctx.request.url.query}"[:500]
    return await bulk.start(ctx, lists.bulk_start(f"{act}_runs", filters.active, RunFilter))


async def ticked(ctx: PageContext) -> Response:
    form = await ctx.form()
    act = dict(form).get("act", "")
    ids = lists.ids_of([value for name, value in form if name == "id"])
    if act not in ("retry", "cancel", "delete") or not ids:
        raise InvalidArgument(ctx.words("bulk.nothing"))
    ctx.action, ctx.subject = _AUDIT_ACTIONS[act], f"/runs?ids={','.join(str(number) for number in ids[:50])}"
    runs = [run for number in ids if (run := await ctx.services.store.run(RunId(number))) is not None]
    if act == "delete":
        step = await _delete(ctx, runs)
    else:
        fit = [run for run in runs if (run.status in FINAL) == (act == "retry")]
        step = await change_runs(ctx.services, act, fit, by=ctx.actor)
        step.left += [_unfit(run) for run in runs if run not in fit]
    return ctx.done(lists.bulk_text(ctx, f"bulk.done_{act}", step), "/runs")


_WHY_KEPT: Final = {KeptReason.NOT_FOUND: "gone", KeptReason.NOT_FINAL: "going"}


async def _delete(ctx: PageContext, runs: list[Run]) -> BulkStep:
    if not runs:
        return BulkStep()
    done = await ctx.services.cleanings.clean_runs({"run_ids": [run.id for run in runs]})
    ctx.details = {"removed": done.removed, "kept": len(done.kept)}
    kept = {each.run_id: each.reason for each in done.kept}
    return BulkStep(
        done=[(run.id, run.task_name) for run in runs if run.id not in kept],
        left=[Left(run.id, run.task_name, _WHY_KEPT.get(kept[run.id], kept[run.id])) for run in runs if run.id in kept],
    )


def _unfit(run: Run) -> Left:
    return Left(run.id, run.task_name, "final" if run.status in FINAL else "going")


async def _query(ctx: PageContext) -> RunQuery:
    """What is exported or changed; that is done from the newest on."""
    filters, query = await read(ctx, (lists.NEWEST_FIRST,))
    if query is None:
        raise InvalidArgument(filters.problem)
    return query


CALL_FILTERS: Final = ("status", "queue", "key", "label")
_CALL_BOXES: Final = (
    *("url", "method", "headers", "body", "delay_seconds", "run_at", "expires_at", "key", "queue", "priority"),
    *("timeout_seconds", "max_retries", "concurrency_key", "max_per_key", "rate_key", "success_url", "failure_url"),
    "labels",
)
_CALL_NUMBERS: Final = ("delay_seconds", "priority", "timeout_seconds", "max_retries", "max_per_key")


async def show_calls(ctx: PageContext) -> Response:
    return await _call_page(ctx, {}, {})


async def make_call(ctx: PageContext) -> Response:
    sent = await ctx.fields()
    try:
        made = await ctx.services.calls.call(_call_of(sent))
    except InvalidArgument as error:
        return await _call_page(ctx, sent, {_call_box_of(name): said for name, said in error.sentences.items()}, 400)
    ctx.subject = f"/runs/{made.run_id}"
    return ctx.done(ctx.words("call.made", id=made.run_id), go=f"/runs/{made.run_id}")


async def _call_page(
    ctx: PageContext, sent: Mapping[str, str], problems: Mapping[str, str], status: int = 200
) -> Response:
    filters, query = await read(ctx, known=CALL_FILTERS, origin=str(Origin.CALL))
    page = None if query is None else await ctx.services.runs.page(query)
    view = _listed(ctx, filters, query, page)
    return ctx.page(
        "calls.html",
        status,
        **view,
        calls=await ctx.services.calls.shown([run.id for run in view["runs"]]),
        sent={name: sent.get(name, "") for name in _CALL_BOXES},
        problems=problems,
        methods=["POST", *(each for each in Method if each != Method.POST)],
    )


def _call_of(sent: Mapping[str, str]) -> dict[str, Any]:
    """The boxes as the API would have them; an empty one is left out."""
    given: dict[str, Any] = {name: sent[name].strip() for name in _CALL_BOXES if sent.get(name, "").strip()}
    for name, mark in (("headers", ":"), ("labels", "=")):
        if name in given:
            given[name] = _pairs(given[name], mark)
    if "body" in given:
        given["body"] = sent["body"]
    for name in _CALL_NUMBERS:
        if name in given:
            given[name] = number_or_text(given[name])
    if "max_retries" in given:
        given["retry_policy"] = {"max_retries": given.pop("max_retries")}
    return given


def _pairs(text: str, mark: str) -> dict[str, str | None]:
    """A line for each, as `Name: value` or `name=value`. One without the mark has no value, and is refused."""
    lines = [line.partition(mark) for line in text.splitlines() if line.strip()]
    return {name.strip(): value.strip() if parted else None for name, parted, value in lines}


def _call_box_of(name: str) -> str:
    """Where the problem of a field is shown."""
    return name.partition(".")[2 if name.startswith("retry_policy.") else 0]


PAGES: Final = [
    get("/runs", show_runs, scope=ScopeRule.LIST),
    get("/runs/export", export, scope=ScopeRule.LIST),
    get("/runs/bulk", ask, role=Role.OPERATOR),
    post("/runs/bulk", carry_out, "retry_runs"),
    post("/runs/ticked", ticked, "retry_runs"),
    get("/calls", show_calls),
    post("/calls", make_call, "make_call"),
]
