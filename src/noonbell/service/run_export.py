"""Runs as a file: every run that a filter finds, as CSV or as one line of JSON each, made page by page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from noonbell.fields import meta
from noonbell.model.request import Page, RunQuery
from noonbell.model.run import Run
from noonbell.service.filters import RunFilter, from_the_top
from noonbell.service.runs import shown

FORMATS: Final = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson; charset=utf-8"}
"""Each with its media type."""
COLUMNS: Final = (
    *("id", "task_id", "task_name", "status", "origin", "key", "queue", "worker_id", "attempt"),
    *("scheduled_time", "start_time", "end_time", "duration_ms"),
    *("response_code", "skip_reason", "error_message", "result"),
)
"""Of the CSV."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_PAGE: Final = 500


class RunExport(RunFilter, frozen=True, kw_only=True):
    format: Annotated[
        str, meta("CSV with a header line, or one line of JSON for each run.", choices=tuple(FORMATS))
    ] = "csv"


async def exported(find: Callable[[RunQuery], Awaitable[Page[Run]]], query: RunQuery, form: str) -> AsyncIterator[str]:
    """The text, newest run first. Only a page of runs is in memory at a time."""
    query = msgspec.structs.replace(query, sort="-id", page=1, page_size=_PAGE, cursor=from_the_top("-id"))
    yield csv_lines([COLUMNS]) if form == "csv" else ""
    while True:
        page = await find(query)
        yield written((shown(run) for run in page.items), form)
        if page.next_cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def written(runs: Iterable[Mapping[str, Any]], form: str) -> str:
    """`runs` are as the API shows them."""
    if form == "csv":
        return csv_lines([run[name] for name in COLUMNS] for run in runs)
    return "".join(f"{json.dumps(run, ensure_ascii=False, separators=(',', ':'), default=str)}\n" for run in runs)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    lines = io.StringIO()
    csv.writer(lines).writerows([csv_cell(value) for value in row] for row in rows)
    return lines.getvalue()


def csv_cell(value: Any) -> str:
    """Marked so that no spreadsheet takes it for a formula."""
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
