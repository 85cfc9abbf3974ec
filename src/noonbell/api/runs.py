"""Endpoints of runs, of the callbacks by which a target reports how a run ended, and of calls, which are runs without a task."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.params import MOST_BYTES, as_object, discard_body, read_bytes, read_object
from noonbell.api.responses import page_answer
from noonbell.clock import rfc3339
from noonbell.fields import plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.json_text import decoded
from noonbell.model.access import Role
from noonbell.model.flow import FlowGraph
from noonbell.model.request import RunQuery
from noonbell.model.run import RunId
from noonbell.service import Services
from noonbell.service.callbacks import (
    CallbackAnswer,
    CallbackByIdsWrite,
    CallbackList,
    CallbackRecords,
    CallbackSource,
    CallbackWrite,
)
from noonbell.service.calls import CallBatchAnswer, CallBatchWrite, CallWrite
from noonbell.service.cleaning import Cleaned, CleanRunsWrite, CleanWrite, RunsCleaned
from noonbell.service.filters import RunFilter, RunList, TaskRef, check_bulk, read_run_query, run_query
from noonbell.service.history import HistoryImported, RunRecords
from noonbell.service.publishing import Backfilled, BackfillWrite, BatchAnswer, PublishBatch, ShownPublished
from noonbell.service.runs import (
    EXPORT_FORMATS,
    AttemptList,
    Attempts,
    BulkRuns,
    CancelWrite,
    LogLines,
    LogList,
    Retried,
    RetryWrite,
    RunExport,
    RunPage,
    RunsCanceled,
    RunsRetried,
    ShownCancel,
    ShownPromotion,
    WholeRun,
    exported,
    shown,
    shown_attempt,
    shown_callback,
)
from noonbell.service.scope import ScopeRule
from noonbell.service.secrets import masked
from noonbell.service.task_fields import Proof


class RunCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    @call(
        "GET", "/runs", "list_runs", "The runs of all tasks", Role.VIEWER, scope=ScopeRule.LIST,
        query=RunList, answer=RunPage,
    )  # fmt: skip
    async def page(self, query: Given) -> object:
        """On a page of n runs, a `result` or `error_details` of more than 4 MiB / n is null, and `omitted` has its
        size: `GET /runs/{run_id}` returns it.
        """
        wanted = await read_run_query(query, self._services.store)
        page = await self._runs.page(wanted)
        return page_answer([shown(run) for run in page.items], page, wanted)

    @call(
        "GET", "/runs/export", "export_runs", "All runs that match a filter, as CSV or"
        " NDJSON", Role.VIEWER, scope=ScopeRule.LIST,
        query=RunExport, answer_example="id,task_id,task_name,status\n",
    )  # fmt: skip
    async def export(self, asked: RunExport) -> object:
        """Newest first, sent while it is read. A line of NDJSON is a run as `GET /runs` returns it."""
        at = ReadContext(Problems())
        query = await run_query(asked, self._services.store, at)
        at.problems.finish()
        text = exported(self._runs.page, query, asked.format)
        return StreamingResponse(text, media_type=EXPORT_FORMATS[asked.format])

    @call(
        "POST", "/runs/batch", "publish_runs", "Publish up to 10,000 runs in one transaction", Role.OPERATOR, scope=ScopeRule.BODY,
        body=PublishBatch, body_required=True, most_bytes=MOST_BYTES, answer=BatchAnswer,
        errors=("NOT_FOUND", "INVALID_STATE"),
    )  # fmt: skip
    async def batch(self, request: Request, trace_id: str) -> object:
        """All or nothing; results in the order of the requests. A task at its limit that does not queue gives
        `refused` and no run.
        """
        wanted, problems = await params.read_list(request, "runs", "a list of runs to publish", "a batch")
        published = await self._services.publishing.publish_batch(wanted, problems, trace_id=trace_id)
        params.add_to_audit(request, runs=len(published))
        return {"runs": [_outcome(each) for each in published]}

    @call(
        "POST", "/runs/import", "import_runs", "Import final runs of another system", Role.ADMIN,
        body=RunRecords, body_required=True, most_bytes=MOST_BYTES, answer=HistoryImported, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def import_runs(self, request: Request, given: Given) -> object:
        """Up to 1,000 in one transaction, with `origin` import and their own times. They belong to no slot and start
        nothing. Importing the same runs again changes nothing: `known` counts them.
        """
        done = await self._services.history.import_runs(given)
        params.add_to_audit(request, runs=done.imported)
        return done

    @call(
        "POST", "/runs/cancel", "cancel_runs", "Cancel all runs that match a"
        " filter", Role.OPERATOR, scope=ScopeRule.LIST,
        body=BulkRuns, body_required=True, answer=RunsCanceled,
    )  # fmt: skip
    async def cancel_where(self, request: Request, by: str | None) -> object:
        """At most 10,000 per call; `more` says that there are others. `dry_run` only counts."""
        query, dry_run = await self._bulk(request)
        return await self._runs.cancel_where(query, by=by, dry_run=dry_run)

    @call(
        "POST", "/runs/retry", "retry_runs", "Retry all runs that match a filter", Role.OPERATOR, scope=ScopeRule.LIST,
        body=BulkRuns, body_required=True, answer=RunsRetried,
    )  # fmt: skip
    async def retry_where(self, request: Request, by: str | None) -> object:
        """Retries runs that failed or were canceled, unless `status` selects others."""
        query, dry_run = await self._bulk(request)
        return await self._runs.retry_where(query, by=by, dry_run=dry_run)

    @call(
        "POST", "/runs/clean", "clean_runs", "Remove final runs from history", Role.OPERATOR, scope=ScopeRule.BODY,
        body=CleanRunsWrite, body_required=True, answer=RunsCleaned,
    )  # fmt: skip
    async def clean(self, request: Request, given: Given) -> object:
        """With their attempts, bodies, logs, parts, steps and children. Up to 1,000, in one transaction; runs that
        cannot be removed are in `kept` with the reason, and do not prevent the others from being removed.
        """
        done = await self._services.cleanings.clean_runs(given)
        params.add_to_audit(request, removed=done.removed, kept=len(done.kept))
        return done

    @call("GET", "/runs/{run_id}", "get_run", "Read a run", Role.VIEWER, scope=ScopeRule.RUN, answer=WholeRun)
    async def get(self, run_id: RunId) -> object:
        """Includes the request and the response of its newest attempt, and its payload."""
        return await self._runs.show(run_id)

    @call(
        "POST", "/runs/{run_id}/cancel", "cancel_run", "Cancel a run", Role.OPERATOR, scope=ScopeRule.RUN,
        body=CancelWrite, answer=ShownCancel,
    )  # fmt: skip
    async def cancel(self, request: Request, run_id: RunId, body: CancelWrite, by: str | None) -> object:
        """A run can be canceled in any status that is not final. A final run is not changed: `canceled` is false,
        and `status` is its status.
        """
        answer = await self._runs.cancel(run_id, by=by, reason=body.reason)
        if not answer.canceled:
            params.nothing_changed(request)
        return ShownCancel(answer.run_id, answer.status, answer.canceled)

    @call(
        "POST", "/runs/{run_id}/retry", "retry_run", "Retry a final run", Role.OPERATOR, scope=ScopeRule.RUN,
        body=RetryWrite, answer=Retried, errors=("INVALID_STATE", "CONCURRENCY_LIMIT"),
    )  # fmt: skip
    async def retry(self, run_id: RunId, body: RetryWrite, by: str | None) -> object:
        """Creates a new run with the same payload. The new run of a flow that failed or was canceled keeps the steps
        that succeeded.
        """
        made = await self._runs.retry(run_id, by=by, from_step=body.from_step)
        return Retried(made, run_id)

    @call(
        "GET", "/runs/{run_id}/graph", "get_graph", "The steps of a run of a flow", Role.VIEWER, scope=ScopeRule.RUN,
        answer=FlowGraph, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def graph(self, run_id: RunId) -> object:
        """The steps are in the order in which the task lists them. `GET /runs?parent_id=RUN` lists the runs of a
        step.
        """
        return plain(await self._runs.graph(run_id))

    @call(
        "POST", "/runs/{run_id}/promote", "promote_run", "Start a delayed or retrying run"
        " now", Role.OPERATOR, scope=ScopeRule.RUN,
        answer=ShownPromotion, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def promote(self, run_id: RunId) -> object:
        run = await self._runs.promote(run_id)
        return {"run_id": run.id, "status": run.status, "run_at": rfc3339(run.run_at)}

    @call(
        "GET", "/runs/{run_id}/attempts", "list_attempts", "The attempts of a run, oldest first", Role.VIEWER, scope=ScopeRule.RUN,
        query=AttemptList, answer=Attempts,
    )  # fmt: skip
    async def attempts(self, asked: AttemptList, run_id: RunId) -> object:
        """In a list of n attempts, a result, error details, headers or a body of more than 4 MiB / n is null, and
        `omitted` has its size. To get one attempt in full, use `limit=1` and `after` one less than its number.
        """
        found, next_after = await self._runs.attempts(run_id, asked.after, asked.limit)
        answer = {"items": [shown_attempt(attempt) for attempt in found]}
        return answer if next_after is None else {**answer, "next_after": next_after}

    @call(
        "GET", "/runs/{run_id}/log", "read_log", "The log lines of a run", Role.VIEWER, scope=ScopeRule.RUN,
        query=LogList, answer=LogLines,
    )  # fmt: skip
    async def log(self, asked: LogList, run_id: RunId) -> object:
        lines = await self._runs.log(run_id, asked)
        items = [
            {"seq": line.seq, "at": rfc3339(line.at), "level": line.level, "message": line.message} for line in lines
        ]
        return {"items": items, "next_after": lines[-1].seq if lines else asked.after}

    @call(
        "GET", "/runs/{run_id}/callbacks", "list_callbacks_of_run", "The callbacks of a run, newest first", Role.VIEWER, scope=ScopeRule.RUN,
        query=CallbackList, answer=CallbackRecords,
    )  # fmt: skip
    async def callbacks(self, asked: CallbackList, run_id: RunId) -> object:
        """Ignored callbacks are listed too, each with its reason. In a list of n callbacks, headers or a body of
        more than 4 MiB / n are empty, and `omitted` has their size. To get one callback in full, use `limit=1`
        and `before` one more than its id.
        """
        found = await self._services.callbacks.of_run(run_id, asked.limit, asked.before)
        return {"items": [shown_callback(callback) for callback in found]}

    async def _bulk(self, request: Request) -> tuple[RunQuery, bool]:
        given = await read_object(request, required=True)
        problems = Problems()
        asked = read_into(BulkRuns, given, ReadContext(problems))
        if not problems.found:
            check_bulk(given, everything=asked.all, what="run")
        query = await run_query(asked.filter or RunFilter(), self._services.store, ReadContext(problems, "filter"))
        problems.finish()
        if asked.dry_run:
            params.nothing_changed(request)
        return query, asked.dry_run

    @call(
        "POST", "/tasks/{id}/backfill", "backfill_task", "Backfill a task", Role.OPERATOR, scope=ScopeRule.TASK,
        body=BackfillWrite, body_required=True, answer=Backfilled, errors=("INVALID_STATE",), tag="tasks",
    )  # fmt: skip
    async def backfill(self, request: Request, ref: TaskRef, given: Given, trace_id: str) -> object:
        """One run for each slot from `from` to `to`, both included, in addition to whatever ran then. A slot that
        was already backfilled is not filled again, unless `if_finished` says so. At most 10,000 slots per call.
        """
        done = await self._services.backfills.fill(ref, given, trace_id=trace_id)
        if given.get("dry_run"):
            params.nothing_changed(request)
        return done

    @call(
        "POST", "/tasks/{id}/clean", "clean_task", "Remove the final runs of a task", Role.OPERATOR, scope=ScopeRule.TASK,
        body=CleanWrite, body_required=True, answer=Cleaned, tag="tasks",
    )  # fmt: skip
    async def clean_task(self, request: Request, ref: TaskRef, given: Given) -> object:
        """With their attempts, bodies, logs, parts, steps and children. Up to 1,000, in one transaction; runs that
        cannot be removed are in `kept` with the reason, and do not prevent the others from being removed.
        """
        task = await self._services.tasks.get(ref, deleted=True)
        done = await self._services.cleanings.clean_task(task.id, given)
        params.add_to_audit(request, removed=done.removed)
        return done


def _outcome(published: Any) -> dict[str, Any]:
    answer = {"run_id": published.run_id, "outcome": published.outcome}
    return answer if published.reason is None else {**answer, "reason": published.reason}


_LONGEST_TOKEN = 256


class CallbackCalls:
    def __init__(self, services: Services) -> None:
        self._callbacks = services.callbacks

    @call(
        "POST PUT PATCH", "/callbacks/{callback_token}", "callback", "Report how a run ended (for targets)", None,
        body=CallbackWrite, body_required=True, answer=CallbackAnswer, errors=("INVALID_STATE",), is_audited=False,
    )  # fmt: skip
    async def by_token(self, request: Request, callback_token: str) -> object:
        """The path is the `X-Callback-Url` that came with the request. A repeat for a final run returns the final
        status and is recorded as IGNORED. `{"status": "RUNNING"}` moves the deadline.
        """
        # A token that belongs to no run is refused before its body is read: anyone can send one.
        token = callback_token[:_LONGEST_TOKEN]
        if not await self._callbacks.knows(token):
            await discard_body(request)
            await self._callbacks.refuse(token, CallbackSource(*_sender(request)))
        return await self._callbacks.by_token(token, *await read_callback(request))

    @call(
        "POST PUT PATCH", "/callbacks", "callback_by_ids", "Report how a run ended, without a token (for targets)",
        Role.OPERATOR, body=CallbackByIdsWrite, body_required=True, answer=CallbackAnswer,
        errors=("FORBIDDEN", "NOT_FOUND", "INVALID_STATE"), is_audited=False,
    )  # fmt: skip
    async def by_ids(self, request: Request) -> object:
        """Can be turned off with `callback.allow_id_mode`."""
        return await self._callbacks.by_ids(*await read_callback(request))

    @call(
        "GET", "/callbacks", "list_rejected_callbacks", "Callbacks that found no run, newest first", Role.VIEWER,
        query=CallbackList, answer=CallbackRecords,
    )  # fmt: skip
    async def rejected(self, asked: CallbackList) -> object:
        """Long headers and bodies are left out as in the list of a run."""
        found = await self._callbacks.rejected(asked.limit, asked.before)
        return {"items": [shown_callback(callback) for callback in found]}


async def read_callback(request: Request) -> tuple[dict[str, Any], CallbackSource]:
    """What it says, and where it comes from."""
    sent = await read_bytes(request)
    given = as_object(await decoded(sent) if sent.strip() else None, required=True)
    body = sent.decode("utf-8", "replace").replace("\x00", "")
    return given, CallbackSource(*_sender(request), body, Proof(request.headers, sent))


def _sender(request: Request) -> tuple[dict[str, str], str]:
    """The headers that are recorded, and the address that the callback came from."""
    headers = masked({name: value.replace("\x00", "") for name, value in request.headers.items()})
    peer = "" if request.client is None else request.client.host
    if peer:  # as a proxy would: the sender of a refused one is recorded like all others
        headers["x-forwarded-for"] = ", ".join(filter(None, (headers.get("x-forwarded-for"), peer)))
    return headers, peer


class CallCalls:
    def __init__(self, services: Services) -> None:
        self._calls = services.calls

    @call(
        "POST", "/calls", "make_call", "Call a URL, now or later, without a task", Role.OPERATOR,
        body=CallWrite, body_required=True, most_bytes=MOST_BYTES, answer=ShownPublished, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def one(self, request: Request, given: Given, trace_id: str) -> object:
        """Once this returns, the call is stored: it is made at least once, and retried according to its policy. It
        is a run of a built-in task: `GET /runs/{run_id}` shows it, `POST /runs/{run_id}/cancel` cancels it, `GET
        /runs?origin=call` lists all calls. The outcome is sent to `success_url` or `failure_url`, as a call of
        its own.
        """
        made = await self._calls.call(given, trace_id=trace_id)
        params.add_to_audit(request, run_id=made.run_id)
        return ShownPublished(made.run_id, made.outcome)

    @call(
        "POST", "/calls/batch", "make_calls", "Create up to 10,000 calls in one transaction", Role.OPERATOR,
        body=CallBatchWrite, body_required=True, most_bytes=MOST_BYTES, answer=CallBatchAnswer, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def batch(self, request: Request, trace_id: str) -> object:
        """All calls are stored, or none. The results are in the order of the calls."""
        wanted, problems = await params.read_list(request, "calls", "a list of calls", "a batch of calls")
        made = await self._calls.call_batch(wanted, problems, trace_id=trace_id)
        params.add_to_audit(request, calls=len(made))
        return {"calls": [ShownPublished(each.run_id, each.outcome) for each in made]}
