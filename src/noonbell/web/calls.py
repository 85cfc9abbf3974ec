"""The page of calls: HTTP requests without a task, the newest first, with a form that makes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.run import Origin
from noonbell.model.target_kind import Method
from noonbell.web import lists
from noonbell.web.context import PageContext
from noonbell.web.forms import number_or_text
from noonbell.web.page import get, post
from noonbell.web.run_list import GROUPS, read

FILTERS: Final = ("status", "queue", "key", "label")
_BOXES: Final = (
    *("url", "method", "headers", "body", "delay_seconds", "run_at", "expires_at", "key", "queue", "priority"),
    *("timeout_seconds", "max_retries", "concurrency_key", "max_per_key", "rate_key", "success_url", "failure_url"),
    "labels",
)
_NUMBERS: Final = ("delay_seconds", "priority", "timeout_seconds", "max_retries", "max_per_key")


async def show_calls(ctx: PageContext) -> Response:
    return await _page(ctx, {}, {})


async def make_call(ctx: PageContext) -> Response:
    sent = await ctx.fields()
    try:
        made = await ctx.services.calls.call(_given(sent))
    except InvalidArgument as error:
        return await _page(ctx, sent, {_box_of(name): said for name, said in error.sentences.items()}, 400)
    ctx.subject = f"/runs/{made.run_id}"
    return ctx.done(ctx.words("call.made", id=made.run_id), go=f"/runs/{made.run_id}")


async def _page(ctx: PageContext, sent: Mapping[str, str], problems: Mapping[str, str], status: int = 200) -> Response:
    filters, query = await read(ctx, known=FILTERS, origin=str(Origin.CALL))
    page = None if query is None else await ctx.services.runs.page(query)
    runs = [] if page is None else page.items
    return ctx.page(
        "calls.html",
        status,
        runs=runs,
        calls=await ctx.services.calls.shown([run.id for run in runs]),
        filters=filters,
        groups={name: ",".join(statuses) for name, statuses in GROUPS.items()},
        group_words={",".join(statuses): ctx.words(f"group.{name}") for name, statuses in GROUPS.items()},
        pager=lists.pager_by_cursor(filters.query, None if page is None else page.next_cursor),
        is_first="cursor" not in ctx.query,
        sort=lists.NEWEST_FIRST if query is None else query.sort,
        sent={name: sent.get(name, "") for name in _BOXES},
        problems=problems,
        methods=["POST", *(each for each in Method if each != Method.POST)],
    )


def _given(sent: Mapping[str, str]) -> dict[str, Any]:
    """The boxes as the API would have them; an empty one is left out."""
    given: dict[str, Any] = {name: sent[name].strip() for name in _BOXES if sent.get(name, "").strip()}
    for name, mark in (("headers", ":"), ("labels", "=")):
        if name in given:
            given[name] = _pairs(given[name], mark)
    if "body" in given:
        given["body"] = sent["body"]
    for name in _NUMBERS:
        if name in given:
            given[name] = number_or_text(given[name])
    if "max_retries" in given:
        given["retry_policy"] = {"max_retries": given.pop("max_retries")}
    return given


def _pairs(text: str, mark: str) -> dict[str, str | None]:
    """A line for each, as `Name: value` or `name=value`. One without the mark has no value, and is refused."""
    lines = [line.partition(mark) for line in text.splitlines() if line.strip()]
    return {name.strip(): value.strip() if parted else None for name, parted, value in lines}


def _box_of(name: str) -> str:
    """Where the problem of a field is shown."""
    return name.partition(".")[2 if name.startswith("retry_policy.") else 0]


PAGES: Final = [get("/calls", show_calls), post("/calls", make_call, "make_call")]
