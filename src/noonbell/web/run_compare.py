"""Two runs side by side: what they were given, what came of it, how long each part took."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from noonbell.model.run import SUCCEEDED, Run
from noonbell.service.runs import shown_bodies
from noonbell.service.translation import failure_words
from noonbell.web.context import PageContext, as_json, pretty
from noonbell.web.page import get
from noonbell.web.recent import start_delay
from noonbell.web.run_page import MOST_SHOWN, neighbours, payload_of, run_of

LOOKED_AT: Final = 200
"""Runs before this one, among which the last success is looked for."""
_MOST_LINES: Final = 400
"""Of a text, compared line by line; what follows is left out."""
_LONGEST_LINE: Final = 500
_OWN: Final = ("date", "age", "traceparent", "tracestate", "idempotency-key", "x-request-id")
_OWN_PREFIX: Final = "x-noonbell-"


@dataclass(frozen=True, slots=True)
class Side:
    run: Run
    payload: Any
    bodies: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedFact:
    """One fact of both. `kind` says how it is shown: `status`, `time`, `took`, `text`."""

    name: str
    kind: str
    left: Any
    right: Any

    @property
    def differs(self) -> bool:
        return bool(self.left != self.right)


@dataclass(frozen=True, slots=True)
class TextDiff:
    """A text of both, line by line: `same`, `own` (each run has its own of it), `gone` (only at the left), `came` (only at the
    right), `changed`.
    """

    name: str
    rows: list[tuple[str, str, str]]
    is_cut: bool

    @property
    def differs(self) -> bool:
        return any(kind not in ("same", "own") for kind, _, _ in self.rows)


async def show(ctx: PageContext) -> Response:
    run = await run_of(ctx)
    wanted = ctx.request.path_params.get("other") or ctx.query.get("with")
    other = await (_last_success(ctx, run) if wanted is None else run_of(ctx, str(wanted)))
    if other is None:
        return ctx.page("run_compare.html", run=run, other=None, rows=[], texts=[], looked_at=LOOKED_AT)
    left, right = await asyncio.gather(_side(ctx, other), _side(ctx, run))
    return ctx.page(
        "run_compare.html",
        run=run,
        other=other,
        rows=facts(other, run, partial(_said, ctx)),
        texts=texts(left, right),
        looked_at=LOOKED_AT,
    )


async def _last_success(ctx: PageContext, run: Run) -> Run | None:
    """Among the runs of the task right before this one: a task that never succeeds has a long history to look through."""
    before = await neighbours(ctx, run, "-id", LOOKED_AT)
    return next((each for each in before if each.status in SUCCEEDED), None)


async def _side(ctx: PageContext, run: Run) -> Side:
    return Side(run, await payload_of(ctx, run), shown_bodies(await ctx.services.runs.bodies(run.id)))


def _said(ctx: PageContext, run: Run) -> str:
    return failure_words(run.error_message, run.error_details, ctx.words)


def facts(left: Run, right: Run, say: Callable[[Run], str]) -> list[ComparedFact]:
    """`say`: what went wrong, in the reader's words."""
    return [
        ComparedFact("col.status", "status", left.status, right.status),
        ComparedFact("col.version", "text", f"v{left.task_version}", f"v{right.task_version}"),
        ComparedFact("filter.origin", "origin", left.origin, right.origin),
        ComparedFact("run.planned", "time", left.scheduled_time, right.scheduled_time),
        ComparedFact("run.started", "time", left.start_time, right.start_time),
        ComparedFact("figure.start_delay", "took", start_delay(left), start_delay(right)),
        ComparedFact("col.took", "took", left.duration_ms, right.duration_ms),
        ComparedFact("run.attempts", "text", left.attempt, right.attempt),
        ComparedFact("compare.code", "text", left.response_code, right.response_code),
        ComparedFact("run.worker", "text", left.worker_id, right.worker_id),
        ComparedFact("compare.error", "text", say(left), say(right)),
    ]


def texts(left: Side, right: Side) -> list[TextDiff]:
    """The texts that at least one of the two runs has."""
    found = [
        text_diff("field.payload", _json(left.payload), _json(right.payload)),
        text_diff("compare.request_headers", _headers(left, "request"), _headers(right, "request"), header_key),
        text_diff("compare.request_body", _body(left, "request"), _body(right, "request")),
        text_diff("compare.response_headers", _headers(left, "response"), _headers(right, "response"), header_key),
        text_diff("compare.response_body", _body(left, "response"), _body(right, "response")),
        text_diff("run.result", _json(left.run.result), _json(right.run.result)),
    ]
    return [each for each in found if each.rows]


def _json(value: Any) -> str:
    return "" if value is None else as_json(value)


def _body(side: Side, what: str) -> str:
    return pretty((side.bodies[f"{what}_body"] or "")[:MOST_SHOWN])


def _headers(side: Side, what: str) -> str:
    return "\n".join(f"{name}: {value}" for name, value in sorted((side.bodies[f"{what}_headers"] or {}).items()))


def header_key(line: str) -> str:
    """What is compared of a header: of one that differs with every request, only that it is there."""
    name = line.partition(":")[0].lower()
    return name if name in _OWN or name.startswith(_OWN_PREFIX) else line


def text_diff(name: str, left: str, right: str, key: Callable[[str], str] = str) -> TextDiff:
    """Line by line, those that belong together side by side. `key` says what of a line counts."""
    one, two = _cut(left), _cut(right)
    rows: list[tuple[str, str, str]] = []
    matcher = difflib.SequenceMatcher(None, [*map(key, one)], [*map(key, two)], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        rows += _side_by_side(kind, one[a:b], two[c:d])
    is_cut = max(left.count("\n"), right.count("\n")) >= _MOST_LINES
    return TextDiff(name, rows, is_cut)


def _cut(text: str) -> list[str]:
    return [line[:_LONGEST_LINE] for line in text.splitlines()[:_MOST_LINES]]


def _side_by_side(kind: str, one: Sequence[str], two: Sequence[str]) -> list[tuple[str, str, str]]:
    if kind == "equal":
        return [("same" if left == right else "own", left, right) for left, right in zip(one, two, strict=True)]
    both = min(len(one), len(two))
    return [
        *(("changed", left, right) for left, right in zip(one, two, strict=False)),
        *(("gone", line, "") for line in one[both:]),
        *(("came", "", line) for line in two[both:]),
    ]


PAGES: Final = [
    get("/runs/{run_id}/compare", show),
    get("/runs/{run_id}/compare/{other}", show),
]
