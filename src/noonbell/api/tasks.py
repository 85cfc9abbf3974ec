"""Endpoints of tasks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import task_papers as papers
from noonbell.api.answers import json_answer, page_answer, request_id
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.errors import InvalidArgument
from noonbell.model.request import Published, TaskQuery
from noonbell.model.task import TaskStatus
from noonbell.service import Services
from noonbell.service.filters import PAGING, TASK_FILTERS, read_run_query, read_task_query
from noonbell.service.reader import Problems, Reader
from noonbell.service.run_json import shown as shown_run
from noonbell.service.tasks import Removal


class TaskCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks = services.tasks

    async def create(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        task = await self._tasks.create(given, by=params.actor(request))
        saved = await self._services.previews.on_save(task, _language(request))
        headers = {"location": f"{request.url.path}/{task.id}", "etag": _etag(task.version)}
        return json_answer({"id": task.id, "name": task.name, **saved}, 201, headers)

    async def page(self, request: Request) -> Response:
        reader = params.query(request)
        statuses = reader.given.get("status")
        if statuses is not None:
            if len(statuses) > 1:
                raise InvalidArgument.field("status", "is there twice; a task has one status")
            reader = Reader({**reader.given, "status": statuses[0] if statuses else None}, reader.problems)
        query = read_task_query(reader)
        reader.problems.finish()
        page = await self._tasks.page(query)
        return page_answer(page.items, page, query.page, query.page_size)

    async def get(self, request: Request) -> Response:
        task = await self._tasks.get(params.task_ref(request))
        return json_answer(await self._tasks.show(task), headers={"etag": _etag(task.version)})

    async def replace(self, request: Request) -> Response:
        return await self._change(request, partial=False)

    async def patch(self, request: Request) -> Response:
        return await self._change(request, partial=True)

    async def _change(self, request: Request, *, partial: bool) -> Response:
        ref, version = params.task_ref(request), params.expected_version(request)
        given = await read_object(request, required=True)
        task = await self._tasks.change(ref, given, partial=partial, expect_version=version, by=params.actor(request))
        saved = await self._services.previews.on_save(task, _language(request))
        body = {"updated": True, "version": task.version, **saved}
        return json_answer(body, headers={"etag": _etag(task.version)})

    async def delete(self, request: Request) -> Response:
        reader = params.query(request)
        removal = Removal(
            cancel_running=reader.flag("cancel_running", default=False), purge=reader.flag("purge", default=False)
        )
        reader.problems.finish()
        await self._tasks.delete(
            params.task_ref(request),
            removal,
            by=params.actor(request),
            expect_version=params.expected_version(request),
        )
        return json_answer({"deleted": True})

    async def enable(self, request: Request) -> Response:
        await read_object(request)
        task = await self._tasks.enable(
            params.task_ref(request), by=params.actor(request), expect_version=params.expected_version(request)
        )
        return json_answer({"status": task.status})

    async def disable(self, request: Request) -> Response:
        await read_object(request)
        task = await self._tasks.disable(
            params.task_ref(request), by=params.actor(request), expect_version=params.expected_version(request)
        )
        return json_answer({"status": task.status})

    async def reset(self, request: Request) -> Response:
        task = await self._tasks.reset(params.task_ref(request), by=params.actor(request))
        return json_answer({"status": task.status})

    async def skip(self, request: Request) -> Response:
        problems = Problems()
        reader = Reader(await read_object(request), problems)
        count = reader.integer("count", 1, -1, 1_000_000)
        reader.finish("a skip")
        problems.finish()
        task = await self._tasks.skip(params.task_ref(request), count, by=params.actor(request))
        return json_answer({"skip_next": task.skip_next})

    async def next(self, request: Request) -> Response:
        reader = params.query(request)
        count = reader.integer("count", 5, 1, 1_000)
        reader.problems.finish()
        task = await self._tasks.get(params.task_ref(request))
        return json_answer(await self._services.previews.next(task, count, _language(request)))

    async def trigger(self, request: Request) -> Response:
        ref = params.task_ref(request)
        given = await read_object(request)
        published = await self._services.publishing.trigger(ref, given, trace_id=request_id(request.scope))
        return json_answer(_published(published, with_outcome=given.get("key") is not None))

    async def runs(self, request: Request) -> Response:
        # The history of a deleted task stays.
        task = await self._tasks.get(params.task_ref(request), deleted=True)
        reader = params.query(request)
        query = await read_run_query(reader, self._services.store, task.id)
        reader.problems.finish()
        page = await self._services.runs.page(query)
        return page_answer([shown_run(run) for run in page.items], page, query.page, query.page_size)

    async def enable_where(self, request: Request) -> Response:
        return await self._set_where(request, TaskStatus.ENABLED)

    async def disable_where(self, request: Request) -> Response:
        return await self._set_where(request, TaskStatus.DISABLED)

    async def _set_where(self, request: Request, status: TaskStatus) -> Response:
        query = _bulk_query(await read_object(request, required=True))
        changed = await self._tasks.set_status_where(query, status, by=params.actor(request))
        return json_answer({"status": status, "changed": changed})


def _published(published: Published, *, with_outcome: bool) -> dict[str, object]:
    """A trigger without a key always makes a run: there is nothing more to say of it."""
    if with_outcome:
        return {"run_id": published.run_id, "outcome": published.outcome}
    return {"run_id": published.run_id}


def _bulk_query(given: dict[str, object]) -> TaskQuery:
    problems = Problems()
    outer = Reader(given, problems)
    inner = outer.object("filter")
    everything = outer.flag("all", default=False)
    outer.finish("a bulk change")
    if not everything and (inner is None or not inner.given):
        outer.wrong("filter", 'is missing; expected a filter, or "all": true for every task')
    reader = inner or Reader({}, problems, "filter")
    query = read_task_query(reader)
    for name in PAGING:
        if name in reader.given:
            reader.wrong(name, f"is not a filter; there are {', '.join(TASK_FILTERS)}")
    reader.finish("a filter of tasks")
    problems.finish()
    return query


def _etag(version: int) -> str:
    return f'"{version}"'


def _language(request: Request) -> str:
    return request.headers.get("accept-language", "en")[:100]


def endpoints(services: Services) -> list[Endpoint]:
    calls = TaskCalls(services)
    return [
        Endpoint(("POST",), "/tasks", calls.create, **papers.CREATE),
        Endpoint(("GET",), "/tasks", calls.page, **papers.LIST),
        Endpoint(("POST",), "/tasks/enable", calls.enable_where, **papers.ENABLE_WHERE),
        Endpoint(("POST",), "/tasks/disable", calls.disable_where, **papers.DISABLE_WHERE),
        Endpoint(("GET",), "/tasks/{id}", calls.get, **papers.GET),
        Endpoint(("PUT",), "/tasks/{id}", calls.replace, **papers.REPLACE),
        Endpoint(("PATCH",), "/tasks/{id}", calls.patch, **papers.PATCH),
        Endpoint(("DELETE",), "/tasks/{id}", calls.delete, **papers.DELETE),
        Endpoint(("PATCH", "POST"), "/tasks/{id}/enable", calls.enable, **papers.ENABLE),
        Endpoint(("PATCH", "POST"), "/tasks/{id}/disable", calls.disable, **papers.DISABLE),
        Endpoint(("POST",), "/tasks/{id}/resume", calls.enable, **papers.RESUME),
        Endpoint(("POST",), "/tasks/{id}/pause", calls.disable, **papers.PAUSE),
        Endpoint(("POST",), "/tasks/{id}/reset", calls.reset, **papers.RESET),
        Endpoint(("POST",), "/tasks/{id}/skip", calls.skip, **papers.SKIP),
        Endpoint(("GET",), "/tasks/{id}/next", calls.next, **papers.NEXT),
        Endpoint(("POST",), "/tasks/{id}/trigger", calls.trigger, **papers.TRIGGER),
        Endpoint(("GET",), "/tasks/{id}/runs", calls.runs, **papers.RUNS),
    ]
