"""Two runs side by side: what they were given, what came of it, how long each part took."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidId, NotFound
from noonbell.model.request import RunQuery
from noonbell.model.run import SUCCEEDED, Run, RunBodies, RunId
from noonbell.service import naming
from noonbell.service.filters import cursor_at
from noonbell.service.run_json import shown_bodies
from noonbell.web.page import Page
from noonbell.web.runs import bodies
from noonbell.web.runs.run import found, payload_of
from noonbell.web.site import Site
from noonbell.web.tasks.health import start_delay
from noonbell.web.visit import Visit, as_json, pretty

LOOKED_AT: Final = 200
"""Runs before this one, among which the last success is looked for."""
_MOST_LINES: Final = 400
"""Of a text, compared line by line; what follows is left out."""
_LONGEST_LINE: Final = 500


@dataclass(frozen=True, slots=True)
class Side:
    run: Run
    payload: Any
    bodies: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One fact of both. `kind` says how it is shown: `status`, `time`, `took`, `text`."""

    name: str
    kind: str
    left: Any
    right: Any

    @property
    def differs(self) -> bool:
        return bool(self.left != self.right)


@dataclass(frozen=True, slots=True)
class Lines:
    """A text of both, line by line: `same`, `gone` (only at the left), `came` (only at the right), `changed`."""

    name: str
    rows: list[tuple[str, str, str]]
    is_cut: bool

    @property
    def differs(self) -> bool:
        return any(kind != "same" for kind, _, _ in self.rows)


async def show(visit: Visit) -> Response:
    run = await found(visit)
    wanted = visit.request.path_params.get("other") or visit.query.get("with")
    other = await (_last_success(visit, run) if wanted is None else _other(visit, str(wanted)))
    if other is None:
        return visit.page("run_compare.html", run=run, other=None, rows=[], texts=[], looked_at=LOOKED_AT)
    left, right = await asyncio.gather(_side(visit, other), _side(visit, run))
    return visit.page(
        "run_compare.html", run=run, other=other, rows=facts(other, run), texts=texts(left, right), looked_at=LOOKED_AT
    )


async def _last_success(visit: Visit, run: Run) -> Run | None:
    """Among the runs of the task right before this one: a task that never succeeds has a long history to look through."""
    query = RunQuery(task_id=run.task_id, sort="-id", page_size=LOOKED_AT, cursor=cursor_at("-id", run.id, run.id))
    before = (await visit.site.services.runs.page(query)).items
    return next((each for each in before if each.status in SUCCEEDED), None)


async def _other(visit: Visit, text: str) -> Run:
    try:
        return await visit.site.services.runs.get(naming.run_id(text))
    except (NotFound, InvalidId):
        raise NotFound(visit.words("run.unknown")) from None


async def _side(visit: Visit, run: Run) -> Side:
    kept = await visit.site.services.store.bodies(RunId(run.id)) or RunBodies()
    return Side(run, await payload_of(visit, run), shown_bodies(kept))


def facts(left: Run, right: Run) -> list[Row]:
    def row(name: str, kind: str, left: Any, right: Any) -> Row:
        return Row(name, kind, left, right)

    return [
        row("col.status", "status", left.status, right.status),
        row("col.version", "text", f"v{left.task_version}", f"v{right.task_version}"),
        row("filter.origin", "origin", left.origin, right.origin),
        row("run.planned", "time", left.scheduled_time, right.scheduled_time),
        row("run.started", "time", left.start_time, right.start_time),
        row("figure.start_delay", "took", start_delay(left), start_delay(right)),
        row("col.took", "took", left.duration_ms, right.duration_ms),
        row("run.attempts", "text", left.attempt, right.attempt),
        row("compare.code", "text", left.response_code, right.response_code),
        row("run.worker", "text", left.worker_id, right.worker_id),
        row("compare.error", "text", left.error_message, right.error_message),
    ]


def texts(left: Side, right: Side) -> list[Lines]:
    """Only those that one of them has."""
    found = [
        lines("field.payload", _json(left.payload), _json(right.payload)),
        lines("compare.request_headers", _headers(left, "request"), _headers(right, "request")),
        lines("compare.request_body", _body(left, "request"), _body(right, "request")),
        lines("compare.response_headers", _headers(left, "response"), _headers(right, "response")),
        lines("compare.response_body", _body(left, "response"), _body(right, "response")),
        lines("run.result", _json(left.run.result), _json(right.run.result)),
    ]
    return [each for each in found if each.rows]


def _json(value: Any) -> str:
    return "" if value is None else as_json(value)


def _body(side: Side, what: str) -> str:
    return pretty((side.bodies[f"{what}_body"] or "")[: bodies.MOST_SHOWN])


def _headers(side: Side, what: str) -> str:
    return "\n".join(f"{name}: {value}" for name, value in sorted((side.bodies[f"{what}_headers"] or {}).items()))


def lines(name: str, left: str, right: str) -> Lines:
    """Line by line, those that belong together side by side."""
    one, two = _cut(left), _cut(right)
    rows: list[tuple[str, str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        rows += _side_by_side(kind, one[a:b], two[c:d])
    is_cut = max(left.count("\n"), right.count("\n")) >= _MOST_LINES
    return Lines(name, rows, is_cut)


def _cut(text: str) -> list[str]:
    return [line[:_LONGEST_LINE] for line in text.splitlines()[:_MOST_LINES]]


def _side_by_side(kind: str, one: Sequence[str], two: Sequence[str]) -> list[tuple[str, str, str]]:
    if kind == "equal":
        return [("same", line, line) for line in one]
    both = min(len(one), len(two))
    return [
        *(("changed", left, right) for left, right in zip(one, two, strict=False)),
        *(("gone", line, "") for line in one[both:]),
        *(("came", "", line) for line in two[both:]),
    ]


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/runs/{run_id}/compare", show), Page("/runs/{run_id}/compare/{other}", show)]
