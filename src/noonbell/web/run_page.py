"""The page of one run: explanation, attempts with request and response, callbacks, log, downloads; of a flow, its steps;
cancel, retry, promote, replay.

Bodies are read for the chosen attempt only, and a log is shown from its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from markupsafe import Markup, escape
from starlette.responses import Response

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, InvalidId, InvalidJson, InvalidState, NotFound
from noonbell.model.access import Role
from noonbell.model.event import Callback, LogLine
from noonbell.model.request import RunInput, RunQuery
from noonbell.model.run import FINAL, Attempt, Run, RunBodies, RunId, RunStatus, idempotency_key_of
from noonbell.model.service_url import UnknownService, resolve_service
from noonbell.model.target_kind import FLOWS, HTTP, ExecType
from noonbell.model.task import SYSTEM_TASK_IDS, TaskSpec
from noonbell.service import filters, scope
from noonbell.service.filters import cursor_at
from noonbell.service.runs import shown, shown_bodies, shown_callback
from noonbell.service.scope import ScopeRule
from noonbell.service.translation import failure_words
from noonbell.service.workers import Level, from_level
from noonbell.web import charts, explanation, flow_view, following, run_timeline
from noonbell.web.context import PageContext, as_json, pretty
from noonbell.web.error_text import ErrorText, error_text, headline
from noonbell.web.explanation import Refusal, advice, refusal
from noonbell.web.flow_view import FlowView
from noonbell.web.forms import read_json
from noonbell.web.page import get, post
from noonbell.web.queues import start_command
from noonbell.web.recent import FAILURES, start_delay

LINES: Final = 1_000
"""Of a log, on one page."""
_ABOVE: Final = 5
"""Lines that are shown above the one that is jumped to."""


@dataclass(frozen=True, slots=True)
class LogPage:
    lines: Sequence[LogLine]
    before: int | None = None
    """Where the page of lines before these begins; None: these are the first."""
    after: int | None = None
    """Where the next page begins; None: these are the last."""
    level: str = ""
    text: str = ""
    is_cut: bool = False
    """Of the narrowed lines there are more, before these."""
    first_error: int | None = None

    @property
    def is_narrowed(self) -> bool:
        return bool(self.level or self.text)

    @property
    def begin_of_error(self) -> int | None:
        """Where the page with the first error begins; None: it is on this one."""
        seq = self.first_error
        is_here = seq is None or any(line.seq == seq for line in self.lines)
        return None if is_here or seq is None else max(0, seq - 1 - _ABOVE)


async def log_page(ctx: PageContext, run_id: RunId) -> LogPage:
    """From the line that the address names, else the end of the log; or the newest lines of a level or with a text."""
    store = ctx.services.store
    level, text = ctx.query.get("level", ""), ctx.wanted("find", 200)
    level = level if level in (*Level,) else ""
    errors = await store.log_lines(run_id, limit=1, levels=from_level(Level.ERROR)) if _is_shown(ctx) else []
    first = errors[0].seq if errors else None
    if level or text:
        levels = from_level(Level(level)) if level else ()
        lines = await store.log_lines(run_id, limit=LINES + 1, levels=levels, text=text or None, newest=True)
        return LogPage(lines[-LINES:], level=level, text=text, is_cut=len(lines) > LINES, first_error=first)
    begin = ctx.number("line")
    if begin is None:
        last = await store.log_lines(run_id, limit=1, newest=True)
        begin = max(0, last[0].seq - LINES) if last else 0
    lines = await store.log_lines(run_id, begin, LINES + 1)
    more = lines[LINES - 1].seq if len(lines) > LINES else None
    return LogPage(lines[:LINES], max(0, begin - LINES) if begin else None, more, first_error=first)


def _is_shown(ctx: PageContext) -> bool:
    """Only then the log is searched for its first error."""
    return ctx.query.get("show", "log") == "log"


PANES: Final = ("request", "response", "callback", "log", "raw")
_JOB_PANES: Final = {"request": "field.payload", "response": "run.result"}
"""What a job and a flow have in place of a request and a response."""
_PARTS: Final = 200
_UNKNOWN_CALLBACKS: Final = 20
_MOST_ATTEMPTS: Final = 100


async def show_run(ctx: PageContext) -> Response:
    services = ctx.services
    run = await run_of(ctx)
    attempts, callbacks, log, parts, spec, told, payload = await asyncio.gather(
        _attempts(ctx, run),
        services.callbacks.of_run(run.id),
        log_page(ctx, run.id),
        services.runs.page(RunQuery(parent_id=run.id, page_size=_PARTS, scope=scope.current())),
        spec_of(ctx, run),
        services.explain.about_run(run.id),
        payload_of(ctx, run),
    )
    chosen, kept = await _chosen_with_bodies(ctx, run, attempts)
    calls = [_callback(callback) for callback in callbacks]
    reason = explanation.explained(ctx, told[1], here=run.id)
    exchange = ShownExchange.of(ctx, kept, chosen, payload)
    is_flow = spec is not None and spec.target_kind is FLOWS
    flow, steps = await flow_of(ctx, run) if is_flow else (None, [])
    return ctx.page(
        "run.html",
        run=run,
        is_final=run.status in FINAL,
        is_failed=run.status in FAILURES,
        can_promote=waits_for_its_time(run, ctx.now),
        spec=spec,
        call=await services.runs.call_of(run),
        explained=reason,
        advice=advice(run, spec, reason.cause, key=reason.key, refused=_newest_refusal(calls)),
        start_worker=start_command(ctx, run.queue),
        delay_ms=start_delay(run),
        total_ms=in_all(run, attempts),
        **_timeline(ctx, run, attempts, callbacks, spec),
        attempts=attempts[::-1],
        chosen=chosen,
        exchange=exchange,
        error=error_in(ctx, run),
        callbacks=calls,
        unknown_callbacks=await unknown_callbacks(ctx, run, spec),
        log=log,
        panes=panes_of(ctx, spec, bool(calls)),
        pane_words=_JOB_PANES if spec is not None and (spec.job_type or is_flow) else {},
        pane=pane_of(
            ctx, exchange, spec, run.status, has_log=bool(log.lines or log.is_narrowed), has_callbacks=bool(calls)
        ),
        fan_out=parts if parts.items and not is_flow else None,
        flow=flow,
        newest_version=await newer_version(ctx, run) if is_flow else None,
        errors=_errors(ctx, [*parts.items, *steps]),
        icon_path=charts.PATHS.__getitem__,
        raw=value(shown(run)),
        idempotency_key=idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key),
        curl=None
        if spec is None or spec.target_kind is not HTTP
        else curl(spec, kept, ctx.deps.settings.executor.services),
        exact=exact,
        around=await following.of_run(ctx, run),
        previous=await neighbours(ctx, run, "-id"),
        next=await neighbours(ctx, run, "id"),
    )


def _errors(ctx: PageContext, runs: Sequence[Run]) -> dict[RunId, str]:
    """What went wrong with each, in one line."""
    return {run.id: headline(error_in(ctx, run).headline) for run in runs if run.error_message}


async def _chosen_with_bodies(
    ctx: PageContext, run: Run, attempts: Sequence[Attempt]
) -> tuple[Attempt | None, RunBodies]:
    chosen = chosen_attempt(ctx, attempts)
    if chosen is None:
        return None, RunBodies()
    kept = await ctx.services.runs.bodies(run.id, chosen.attempt)
    if chosen.omitted:  # the list was too long for it; by itself it is whole
        (chosen,) = await ctx.services.store.attempts(run.id, chosen.attempt - 1, 1) or (chosen,)
    return chosen, kept


def _timeline(
    ctx: PageContext, run: Run, attempts: Sequence[Attempt], callbacks: Sequence[Callback], spec: TaskSpec | None
) -> dict[str, Any]:
    """The bars of the run, and what the template draws them with."""
    bars = run_timeline.bars(run, attempts, callbacks, ctx.now, 0 if spec is None else spec.callback_seconds)
    return {
        "progress": run_timeline.progress(run, ctx.now),
        "bars": bars,
        "ends": run_timeline.ends(bars),
        "axis": run_timeline.WIDTH,
        "left_out": run_timeline.left_out(bars),
        "axis_break": run_timeline.BREAK,
    }


async def run_of(ctx: PageContext, text: str | None = None) -> Run:
    """The run that the address names, or `text`."""
    try:
        run = await ctx.services.runs.get(filters.run_id(text or ctx.piece("run_id")))
    except (NotFound, InvalidId):
        raise NotFound(ctx.words("run.unknown")) from None
    ctx.subject = f"/runs/{run.id}"
    return run


def error_in(ctx: PageContext, ended: Run | Attempt) -> ErrorText:
    """What went wrong, in the reader's language as far as Noonbell says it."""
    said = failure_words(ended.error_message, ended.error_details, ctx.words)
    return error_text(said, ended.error_details)


def waits_for_its_time(run: Run, now: Instant) -> bool:
    """Whether it can be told to start now: what is due already waits for a worker, a limit or a pause instead."""
    if run.status is RunStatus.RETRYING:
        return run.next_retry_time is not None and run.next_retry_time > now
    return run.status is RunStatus.SCHEDULED and run.run_at > now


async def _attempts(ctx: PageContext, run: Run) -> list[Attempt]:
    """The newest; before them the one that the address names, where that is older, and the first, where time is reckoned from."""
    store = ctx.services.store
    newest = await store.attempts(run.id, max(0, run.attempt - _MOST_ATTEMPTS), _MOST_ATTEMPTS)
    if not newest or newest[0].attempt <= 1:
        return newest
    numbers = {1, ctx.number("attempt") or 1}
    older = [await store.attempts(run.id, number - 1, 1) for number in sorted(numbers) if number < newest[0].attempt]
    return [*(each for found in older for each in found if each.attempt < newest[0].attempt), *newest]


async def flow_of(ctx: PageContext, run: Run) -> tuple[FlowView | None, list[Run]]:
    """And the runs of the steps that are shown. None: the version whose steps they were is gone."""
    try:
        graph = await ctx.services.runs.graph(run.id)
    except InvalidState:
        return None, []
    begin, shown_here = flow_view.shown_steps(graph.steps, ctx.number("step"))
    runs = await ctx.services.store.runs_by_id([step.run_id for step in shown_here if step.run_id is not None])
    begun = {step.id: step.start_time for step in runs if step.start_time is not None}
    return flow_view.view(graph.steps, run.start_time, run.end_time, ctx.now, begun, begin), runs


async def newer_version(ctx: PageContext, run: Run) -> int | None:
    """Of its task, where that has been changed since the run was planned."""
    task = await ctx.services.store.task(run.task_id)
    return None if task is None or task.version == run.task_version else task.version


async def spec_of(ctx: PageContext, run: Run) -> TaskSpec | None:
    """The task as it was when the run was planned; as it is now, where that version is gone. Of a step or a call, what
    it does.
    """
    if run.step_id is not None or run.task_id > SYSTEM_TASK_IDS:
        found = await ctx.services.store.run_task(run.id)
        return None if found is None else found.spec
    task = await ctx.services.store.task(run.task_id)
    if task is None:
        return None
    if task.version == run.task_version:
        return task.spec
    versions = await ctx.services.tasks.versions(task)
    return next((version.spec for version in versions if version.version == run.task_version), task.spec)


async def payload_of(ctx: PageContext, run: Run) -> Any:
    return (await input_of(ctx, run)).payload


async def input_of(ctx: PageContext, run: Run) -> RunInput:
    """What the run carries of its own."""
    return (await ctx.services.store.inputs([run.id])).get(run.id) or RunInput(None, None)


def chosen_attempt(ctx: PageContext, attempts: Sequence[Attempt]) -> Attempt | None:
    """The one that the address names, else the newest."""
    wanted = ctx.query.get("attempt", "")
    return next((each for each in attempts if str(each.attempt) == wanted), attempts[-1] if attempts else None)


@dataclass(frozen=True, slots=True)
class ShownExchange:
    """What went out in an attempt, and what came back; for a job, its payload and its result."""

    request_headers: Mapping[str, str]
    request: Body | None
    payload: Body | None
    response_headers: Mapping[str, str]
    response: Body | None
    result: Body | None
    error: ErrorText
    details: Body | None
    """Of the error, but for its traceback."""
    is_truncated: bool
    """What was kept is not all that came."""

    @classmethod
    def of(cls, ctx: PageContext, kept: RunBodies, attempt: Attempt | None, payload: Any) -> ShownExchange:
        told = shown_bodies(kept)
        error = error_text(None, None) if attempt is None else error_in(ctx, attempt)
        return cls(
            told["request_headers"] or {},
            body(told["request_body"]),
            value(payload),
            told["response_headers"] or {},
            body(told["response_body"]),
            None if attempt is None else value(attempt.result),
            error,
            value(error.details),
            kept.truncated,
        )

    @property
    def has_answer(self) -> bool:
        return bool(self.response_headers or self.response or self.result or self.details or self.error.parts)


def in_all(run: Run, attempts: Sequence[Attempt]) -> int | None:
    """Milliseconds from the start of the first attempt to the end, where there were several: a run's own time is its last's."""
    starts = [attempt.start_time for attempt in attempts if attempt.start_time is not None]
    return None if run.end_time is None or len(starts) < 2 else (run.end_time - min(starts)) // 1000


_UNSENT: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.RETRYING)
"""Its attempt went wrong before a callback could be waited for."""


def panes_of(ctx: PageContext, spec: TaskSpec | None, has_callbacks: bool) -> list[str]:
    """None for callbacks where none is awaited and none has come, unless the address asks for it."""
    may_call = has_callbacks or spec is None or spec.awaits_callback or ctx.query.get("show") == "callback"
    return [name for name in PANES if name != "callback" or may_call]


def pane_of(
    ctx: PageContext,
    exchange: ShownExchange,
    spec: TaskSpec | None,
    status: RunStatus,
    *,
    has_log: bool,
    has_callbacks: bool,
) -> str:
    """The one that the address names, else the one that says most."""
    wanted = ctx.query.get("show", "")
    if wanted in PANES:
        return wanted
    if has_callbacks or (spec is not None and spec.awaits_callback and status not in _UNSENT):
        return "callback"
    if has_log and spec is not None and spec.exec_type is ExecType.COMMAND:
        return "log"  # what a command says is there, and its answer is an exit code
    if exchange.has_answer:
        return "response"
    return "log" if has_log else "request"


def _callback(callback: Callback) -> dict[str, Any]:
    """A callback as the page shows it: secrets masked, its body laid out, and why it was refused."""
    headers = shown_callback(callback)["headers"]
    return {
        **msgspec.structs.asdict(callback),
        "headers": headers,
        "body": body(callback.body),
        "refusal": refusal(callback.reason),
        "says": run_timeline.says(callback),
        "peer": headers.get("x-forwarded-for", ""),
        "omitted": (callback.omitted or {}).get("body", 0),
    }


def _newest_refusal(calls: Sequence[dict[str, Any]]) -> str:
    """Why the newest callback was refused; nothing where it was not."""
    refused: Refusal | None = calls[0]["refusal"] if calls else None
    return "" if refused is None else refused.key


async def unknown_callbacks(ctx: PageContext, run: Run, spec: TaskSpec | None) -> list[dict[str, Any]]:
    """Callbacks that found no run and came while this one waited: a wrong token may have been meant for it."""
    if spec is None or not spec.awaits_callback or run.start_time is None or not ctx.sees_all:
        return []  # with a scope: those of others are not for its eyes
    until = run.end_time or ctx.now
    found = await ctx.services.callbacks.rejected(_UNKNOWN_CALLBACKS)
    return [_callback(each) for each in found if run.start_time <= each.received_at <= until]


def curl(spec: TaskSpec, kept: RunBodies, services: Mapping[str, str]) -> str:
    """The request as a line for a shell, to where it would go today; secrets stay masked."""
    told = shown_bodies(kept)
    url = spec.target_url or ""
    with contextlib.suppress(UnknownService):
        url = resolve_service(url, services)
    words = ["curl", "-i", "-X", spec.http_method, url]
    for name, value in (told["request_headers"] or {}).items():
        if name.lower() not in ("host", "content-length", "connection"):
            words += ["-H", f"{name}: {value}"]
    if (body := told["request_body"]) and len(body) <= MOST_SHOWN:
        words += ["--data-raw", body]
    return " ".join(shlex.quote(word) for word in words)


async def neighbours(ctx: PageContext, run: Run, sort: str, count: int = 1) -> list[Run]:
    """The runs of the same task before (`-id`) or after (`id`) this one, the nearest first."""
    query = RunQuery(
        task_id=run.task_id,
        sort=sort,
        page_size=count,
        cursor=cursor_at(sort, run.id, run.id),
        scope=scope.current(),
    )
    return (await ctx.services.runs.page(query)).items


MOST_SHOWN: Final = 64 * 1024
"""Characters of a body on a page; the whole can be downloaded."""


@dataclass(frozen=True, slots=True)
class Body:
    shown: str
    """At most MOST_SHOWN of it, JSON laid out."""
    whole: str
    """As it is kept, to be copied; empty where it is too long for that."""
    size: int
    """Of the whole, in bytes."""
    is_cut: bool


def body(text: str | None) -> Body | None:
    """None for no body."""
    if not text:
        return None
    size, laid_out = len(text.encode("utf-8", "surrogatepass")), pretty(text[: 4 * MOST_SHOWN])
    is_long = len(text) > MOST_SHOWN
    return Body(laid_out[:MOST_SHOWN], "" if is_long else text, size, is_long or len(laid_out) > MOST_SHOWN)


def value(given: Any) -> Body | None:
    """Of what is kept as JSON: every digit that a number has."""
    return None if given is None else body(as_json(given))


def exact(text: str) -> Markup:
    """For an attribute: a browser makes one character of CR and LF, unless they are written out."""
    return Markup(str(escape(text)).replace("\r", "&#13;").replace("\n", "&#10;"))  # noqa: S704 - escaped right here


async def download(ctx: PageContext) -> Response:
    """A text of the run, whole, as it is kept; never as a page."""
    run, what = await run_of(ctx), ctx.piece("what")
    number = ctx.number("attempt")
    if what in ("request", "response"):
        kept = await ctx.services.runs.bodies(run.id, number)
        text = kept.request_body if what == "request" else kept.response_body
    else:
        values = {"payload": await payload_of(ctx, run), "result": run.result, "raw": shown(run)}
        text = None if values.get(what) is None else as_json(values[what])
    if text is None:
        raise NotFound(ctx.words("run.nothing_kept"))
    name = f"run-{run.id}{f'-attempt-{number}' if number else ''}-{what}.txt"
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Response(text.encode("utf-8", "surrogatepass"), media_type="application/octet-stream", headers=headers)


async def cancel(ctx: PageContext) -> Response:
    run = await run_of(ctx)
    answer = await ctx.services.runs.cancel(run.id, by=ctx.actor)
    ctx.nothing_changed = not answer.canceled
    key = "run.canceled" if answer.canceled else "run.too_late"
    return ctx.done(ctx.words(key, status=answer.status), f"/runs/{run.id}")


async def retry(ctx: PageContext) -> Response:
    run = await run_of(ctx)
    from_step = (await ctx.fields()).get("from_step") or None
    fresh = await ctx.services.runs.retry(run.id, by=ctx.actor, from_step=from_step)
    return ctx.done(ctx.words("run.retried", of=run.id), go=f"/runs/{fresh}")


async def promote(ctx: PageContext) -> Response:
    run = await run_of(ctx)
    await ctx.services.runs.promote(run.id)
    return ctx.done(ctx.words("run.promoted"), f"/runs/{run.id}")


async def _replayable(ctx: PageContext) -> Run:
    run = await run_of(ctx)
    if run.step_id is not None:
        raise InvalidState(ctx.words("run.step_alone", id=run.parent_id))
    return run


async def ask_replay(ctx: PageContext) -> Response:
    """The form, with what the run carried."""
    run = await _replayable(ctx)
    spec = await spec_of(ctx, run)
    carried = await input_of(ctx, run)
    is_job = spec is not None and not spec.target_kind.takes_overrides
    if is_job:
        text = "" if carried.payload is None else as_json(carried.payload)
    else:
        overrides = carried.overrides or {}
        text = str(overrides.get("override_body") or (spec.body_template if spec is not None else "") or "")
    return ctx.page("run_replay.html", run=run, is_job=is_job, text=text, problem=None)


async def replay(ctx: PageContext) -> Response:
    run, given = await _replayable(ctx), await ctx.fields()
    is_job = given.get("is_job") == "1"
    text = given.get("text", "").replace("\r\n", "\n")
    wanted: dict[str, Any] = {}
    try:
        if is_job and text.strip():
            wanted["payload"] = read_json(text)
        elif not is_job and text:
            wanted["override_body"] = text
        published = await ctx.services.publishing.trigger(run.task_id, wanted, trace_id=ctx.request_id)
    except (InvalidArgument, InvalidJson) as error:
        return ctx.page("run_replay.html", 400, run=run, is_job=is_job, text=text, problem=error.sentence)
    return ctx.done(ctx.words("run.replayed", of=run.id), go=f"/runs/{published.run_id}")


PAGES: Final = [
    get("/runs/{run_id}", show_run, scope=ScopeRule.RUN),
    get("/runs/{run_id}/download/{what}", download, scope=ScopeRule.RUN),
    post("/runs/{run_id}/cancel", cancel, "cancel_run", scope=ScopeRule.RUN),
    post("/runs/{run_id}/retry", retry, "retry_run", scope=ScopeRule.RUN),
    post("/runs/{run_id}/promote", promote, "promote_run", scope=ScopeRule.RUN),
    get("/runs/{run_id}/replay", ask_replay, role=Role.OPERATOR),
    post("/runs/{run_id}/replay", replay, "trigger_task"),
]
