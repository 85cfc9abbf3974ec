"""Bulk operations: the list of them, and the page of one, which shows how far it is and what it has skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from noonbell.model.bulk import OPPOSITES, BulkOperation, BulkStatus
from noonbell.service.bulk_operations import SkippedList
from noonbell.service.filters import operation_id
from noonbell.service.runs import csv_lines
from noonbell.web import lists
from noonbell.web.context import PageContext
from noonbell.web.page import get, post

_LISTED: Final = 10
"""Of those that were skipped, on the page; the file has all."""
_PIECE: Final = 1_000


async def start(ctx: PageContext, given: Mapping[str, Any]) -> Response:
    """Start an operation, and go to its page."""
    started = await ctx.services.bulk.start(given, by=ctx.actor)
    ctx.details |= {"bulk": started.id, "kind": started.kind}
    return ctx.done("", go=f"/bulk/{started.id}")


async def show_all(ctx: PageContext) -> Response:
    found = await ctx.services.bulk.page()
    return ctx.page("bulk_list.html", operations=[view(ctx, each) for each in found])


async def show_one(ctx: PageContext) -> Response:
    operation = await ctx.services.bulk.get(_id(ctx))
    asked = SkippedList(limit=_LISTED)
    skipped = await ctx.services.bulk.skipped(operation.id, asked) if operation.skipped else []
    return ctx.page("bulk.html", skipped=skipped, **view(ctx, operation))


def view(ctx: PageContext, operation: BulkOperation) -> dict[str, Any]:
    act, _, noun = operation.kind.rpartition("_")
    grammar = lists.RUN_GRAMMAR if operation.kind.is_of_runs else lists.TASK_GRAMMAR
    query = {name: _text(value) for name, value in operation.filter.items()}
    known = {*grammar.keys.values(), grammar.rest}
    is_over = operation.status is not BulkStatus.RUNNING
    made = {**{name: value for name, value in query.items() if name != "status"}, "origin": "retry"}
    return {
        "operation": operation,
        "act": act,
        "room": noun,
        "is_over": is_over,
        "title": ctx.words(f"bulk.kind_{operation.kind}"),
        "said": said(ctx, operation, act),
        "tokens": [grammar.token(name, value) if name in known else f"{name}:{value}" for name, value in query.items()],
        "changes": [f"{name}={_text(value)}" for name, value in operation.change.items()],
        "handled": operation.done + operation.skipped,
        "total": max(operation.total, operation.done + operation.skipped),
        "back": ctx.url(f"/{noun}", **query),
        "made": ctx.url("/runs", **made) if act in ("retry", "redrive") and operation.done else None,
        "can_undo": is_over and operation.done > 0 and operation.kind in OPPOSITES,
    }


def said(ctx: PageContext, operation: BulkOperation, act: str) -> str:
    """`209 of 210 paused, 1 skipped: already in that state (1)`; while it is under way, without the verb."""
    total = f"{max(operation.total, operation.done + operation.skipped)}{'+' if operation.total_is_least else ''}"
    is_over, marks = operation.status is not BulkStatus.RUNNING, ctx.words.marks
    text = ctx.words(f"bulk.end_{act}" if is_over else "bulk.so_far", n=operation.done, total=total)
    if operation.skipped:
        whys = sorted(operation.reasons.items(), key=lambda each: -each[1])
        listed = marks.item.join(ctx.words(f"bulk.why_{why}") + marks.aside.format(count) for why, count in whys)
        text += marks.comma + ctx.words("bulk.left_some", n=operation.skipped, why=listed)
    if operation.status is BulkStatus.CANCELED:
        return f"{ctx.words('bulk.stopped')}{marks.stop}{text}"
    return text if operation.error is None else f"{text}{marks.stop}{ctx.words('bulk.broke', why=operation.error)}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(str(each) for each in value) if isinstance(value, list) else str(value)


async def download(ctx: PageContext) -> Response:
    """All that were skipped, as CSV."""
    bulk, number = ctx.services.bulk, _id(ctx)
    first = await bulk.skipped(number, SkippedList(limit=_PIECE))

    async def pieces() -> AsyncIterator[str]:
        yield csv_lines([("id", "name", "why")])
        items = first
        while items:
            yield csv_lines((each.id, each.name, ctx.words(f"bulk.why_{each.why}")) for each in items)
            items = await bulk.skipped(number, SkippedList(limit=_PIECE, after=items[-1].id))

    headers = {"content-disposition": 'attachment; filename="skipped.csv"'}
    return StreamingResponse(pieces(), headers=headers, media_type="text/csv; charset=utf-8")


async def cancel(ctx: PageContext) -> Response:
    was = await ctx.services.bulk.get(_id(ctx))
    ctx.nothing_changed = was.status is not BulkStatus.RUNNING
    operation = await ctx.services.bulk.cancel(was.id, by=ctx.actor)
    return ctx.done("", go=f"/bulk/{operation.id}")


async def undo(ctx: PageContext) -> Response:
    operation = await ctx.services.bulk.undo(_id(ctx), by=ctx.actor)
    ctx.details |= {"bulk": operation.id}
    return ctx.done("", go=f"/bulk/{operation.id}")


def _id(ctx: PageContext) -> int:
    return operation_id(ctx.piece("bulk_id"))


PAGES: Final = [
    get("/bulk", show_all),
    get("/bulk/{bulk_id}", show_one),
    get("/bulk/{bulk_id}/skipped", download),
    post("/bulk/{bulk_id}/cancel", cancel, "cancel_bulk"),
    post("/bulk/{bulk_id}/undo", undo, "undo_bulk"),
]
