"""Endpoints of runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params, queue_papers
from noonbell.api import run_papers as papers
from noonbell.api.answers import json_answer, page_answer, request_id
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.clock import rfc3339
from noonbell.errors import InvalidArgument
from noonbell.model.request import RunQuery
from noonbell.service import Services
from noonbell.service.filters import PAGING, RUN_FILTERS, read_run_query
from noonbell.service.reader import Problems, Reader
from noonbell.service.run_json import shown, shown_attempt, shown_callback
from noonbell.service.runs import Bulk


class RunCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def page(self, request: Request) -> Response:
        reader = params.query(request)
        query = await read_run_query(reader, self._services.store)
        reader.problems.finish()
        page = await self._runs.page(query)
        return page_answer([shown(run) for run in page.items], page, query.page, query.page_size)

    async def get(self, request: Request) -> Response:
        return json_answer(await self._runs.show(params.run_id(request)))

    async def cancel(self, request: Request) -> Response:
        run_id = params.run_id(request)
        problems = Problems()
        reader = Reader(await read_object(request), problems)
        reason = reader.text("reason", "", most=1_000)
        reader.finish("a cancel")
        problems.finish()
        answer = await self._runs.cancel(run_id, by=params.actor(request), reason=reason)
        return json_answer({"run_id": answer.run_id, "status": answer.status, "canceled": answer.canceled})

    async def retry(self, request: Request) -> Response:
        run_id = params.run_id(request)
        fresh = await self._runs.retry(run_id, by=params.actor(request))
        return json_answer({"run_id": fresh, "retry_of_run_id": run_id})

    async def promote(self, request: Request) -> Response:
        run = await self._runs.promote(params.run_id(request))
        return json_answer({"run_id": run.id, "status": run.status, "run_at": rfc3339(run.run_at)})

    async def attempts(self, request: Request) -> Response:
        found = await self._runs.attempts(params.run_id(request))
        return json_answer({"items": [shown_attempt(attempt) for attempt in found]})

    async def log(self, request: Request) -> Response:
        reader = params.query(request)
        after = reader.integer("after", 0, 0, 2**53 - 1)
        limit = reader.integer("limit", 1_000, 1, 10_000)
        reader.problems.finish()
        lines = await self._runs.log(params.run_id(request), after, limit)
        items = [
            {"seq": line.seq, "at": rfc3339(line.at), "level": line.level, "message": line.message} for line in lines
        ]
        return json_answer({"items": items, "next_after": lines[-1].seq if lines else after})

    async def callbacks(self, request: Request) -> Response:
        reader = params.query(request)
        limit = reader.integer("limit", 100, 1, 1_000)
        reader.problems.finish()
        found = await self._services.callbacks.of_run(params.run_id(request), limit)
        return json_answer({"items": [shown_callback(callback) for callback in found]})

    async def batch(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        problems = Problems()
        outer = Reader(given, problems)
        wanted = outer.get("runs")
        outer.finish("a batch")
        if not isinstance(wanted, list):
            outer.expected("runs", "a list of runs to publish")
            wanted = []
        problems.finish()
        published = await self._services.publishing.publish_batch(wanted, trace_id=request_id(request.scope))
        return json_answer({"runs": [_outcome(each) for each in published]})

    async def cancel_where(self, request: Request) -> Response:
        query, dry_run = await self._bulk(request)
        done = await self._runs.cancel_where(query, by=params.actor(request), dry_run=dry_run)
        return json_answer(_told(done, "canceled"))

    async def retry_where(self, request: Request) -> Response:
        query, dry_run = await self._bulk(request)
        done = await self._runs.retry_where(query, by=params.actor(request), dry_run=dry_run)
        return json_answer(_told(done, "retried"))

    async def backfill(self, request: Request) -> Response:
        ref, given = params.task_ref(request), await read_object(request, required=True)
        return json_answer(await self._services.backfills.fill(ref, given, trace_id=request_id(request.scope)))

    async def _bulk(self, request: Request) -> tuple[RunQuery, bool]:
        problems = Problems()
        outer = Reader(await read_object(request, required=True), problems)
        inner = outer.object("filter")
        everything, dry_run = outer.flag("all", default=False), outer.flag("dry_run", default=False)
        outer.finish("a bulk change")
        if not everything and (inner is None or not inner.given):
            raise InvalidArgument.field("filter", 'is missing; expected a filter, or "all": true for every run')
        reader = inner or Reader({}, problems, "filter")
        query = await read_run_query(reader, self._services.store)
        for name in PAGING:
            if name in reader.given:
                reader.wrong(name, f"is not a filter; there are {', '.join(RUN_FILTERS)}")
        reader.finish("a filter of runs")
        problems.finish()
        return query, dry_run


def _outcome(published: Any) -> dict[str, Any]:
    answer = {"run_id": published.run_id, "outcome": published.outcome}
    return answer if published.reason is None else {**answer, "reason": published.reason}


def _told(done: Bulk, what: str) -> dict[str, Any]:
    return {"matched": done.matched, what: done.changed, "more": done.more}


def endpoints(services: Services) -> list[Endpoint]:
    calls = RunCalls(services)
    return [
        Endpoint(("GET",), "/runs", calls.page, **papers.LIST),
        Endpoint(("POST",), "/runs/batch", calls.batch, **papers.BATCH),
        Endpoint(("POST",), "/runs/cancel", calls.cancel_where, **papers.CANCEL_WHERE),
        Endpoint(("POST",), "/runs/retry", calls.retry_where, **papers.RETRY_WHERE),
        Endpoint(("GET",), "/runs/{run_id}", calls.get, **papers.GET),
        Endpoint(("POST",), "/runs/{run_id}/cancel", calls.cancel, **papers.CANCEL),
        Endpoint(("POST",), "/runs/{run_id}/retry", calls.retry, **papers.RETRY),
        Endpoint(("POST",), "/runs/{run_id}/promote", calls.promote, **papers.PROMOTE),
        Endpoint(("GET",), "/runs/{run_id}/attempts", calls.attempts, **papers.ATTEMPTS),
        Endpoint(("GET",), "/runs/{run_id}/log", calls.log, **papers.LOG),
        Endpoint(("GET",), "/runs/{run_id}/callbacks", calls.callbacks, **papers.CALLBACKS),
        Endpoint(("POST",), "/tasks/{id}/backfill", calls.backfill, **queue_papers.BACKFILL),
    ]
