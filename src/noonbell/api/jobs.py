"""Endpoints of jobs: tasks in the words of a jobs table, under an address of their own.

An error also carries the name that such services know it by, as `details.error`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import jobs_papers as papers
from noonbell.api import params
from noonbell.api.answers import json_answer, page_answer
from noonbell.api.endpoint import Endpoint, Handler
from noonbell.api.limits import read_object
from noonbell.errors import InvalidArgument, NoonbellError
from noonbell.model.request import Page, RunQuery, TaskQuery
from noonbell.model.run import run_of_execution
from noonbell.model.task import ExecType, Task, TaskId, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import read_run_query, read_task_query
from noonbell.service.jobs import STATUSES, shown_execution
from noonbell.service.reader import Reader
from noonbell.service.tasks import Removal

BASE: Final = "/api/jobs"

NAMES: Final[Mapping[str, str]] = {
    "NOT_FOUND": "JobNotFound",
    "INVALID_ARGUMENT": "InvalidConfig",
    "INVALID_ID": "InvalidConfig",
    "INVALID_JSON": "SerializationError",
    "ALREADY_EXISTS": "AlreadyExists",
    "UNAVAILABLE": "DatabaseError",
}
"""By code; a cron expression that cannot be read is InvalidCronExpression."""


class JobCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._jobs = services.jobs

    async def create(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        job = await self._jobs.create(given, by=params.actor(request))
        return await self._saved(request, job, given, 201, {"location": f"{BASE}/{job.id}"})

    async def page(self, request: Request) -> Response:
        reader = params.query(request)
        query = _job_query(reader)
        reader.problems.finish()
        page = await self._jobs.page(query)
        return page_answer(page.items, page, query.page, query.page_size)

    async def get(self, request: Request) -> Response:
        job = await self._jobs.get(params.task_ref(request))
        return json_answer(await self._jobs.show(job), headers=_etag(job))

    async def replace(self, request: Request) -> Response:
        ref, version = params.task_ref(request), params.expected_version(request)
        given = await read_object(request, required=True)
        job = await self._jobs.change(ref, given, by=params.actor(request), expect_version=version)
        return await self._saved(request, job, given, 200, {})

    async def delete(self, request: Request) -> Response:
        reader = params.query(request)
        removal = Removal(
            cancel_running=reader.flag("cancel_running", default=False), purge=reader.flag("purge", default=False)
        )
        reader.problems.finish()
        await self._jobs.delete(params.task_ref(request), removal, by=params.actor(request))
        return json_answer({"deleted": True})

    async def pause(self, request: Request) -> Response:
        return await self._show(await self._jobs.pause(params.task_ref(request), by=params.actor(request)))

    async def resume(self, request: Request) -> Response:
        return await self._show(await self._jobs.resume(params.task_ref(request), by=params.actor(request)))

    async def executions(self, request: Request) -> Response:
        # The history of a deleted job stays.
        job = await self._jobs.get(params.task_ref(request), deleted=True)
        reader = params.query(request)
        wanted = _execution_asked_for(reader)
        query = await _execution_query(reader, self._services, job.id)
        reader.problems.finish()
        if wanted is not None:
            run_id = run_of_execution(wanted)
            run = None if run_id is None else await self._services.store.run(run_id)
            items = [] if run is None or run.task_id != job.id else [shown_execution(run)]
            return page_answer(items, Page(items, len(items), None), 1, query.page_size)
        page = await self._jobs.executions(query)
        return page_answer(page.items, page, query.page, query.page_size)

    async def _show(self, job: Task) -> Response:
        return json_answer(await self._jobs.show(job), headers=_etag(job))

    async def _saved(
        self, request: Request, job: Task, given: Mapping[str, Any], status: int, headers: Mapping[str, str]
    ) -> Response:
        language = request.headers.get("accept-language", "en")[:100]
        notes = await self._jobs.notes(job, given, language)
        return json_answer({**await self._jobs.show(job), "notes": notes}, status, {**headers, **_etag(job)})


def _etag(job: Task) -> dict[str, str]:
    return {"etag": f'"{job.version}"'}


def _job_query(reader: Reader) -> TaskQuery:
    enabled = reader.flag("enabled", default=False) if reader.get("enabled") is not None else None
    job_type = reader.text("job_type", None, least=1)
    given = {**reader.given, "name": reader.get("job_name")}
    query = read_task_query(Reader(given, reader.problems))
    wanted = () if enabled is None else tuple(each for each in TaskStatus if (each is TaskStatus.ENABLED) is enabled)
    return msgspec.structs.replace(query, exec_type=ExecType.JOB, status_in=wanted, job_type=job_type)


def _execution_asked_for(reader: Reader) -> uuid.UUID | None:
    text = reader.text("execution_id", None, least=1)
    if text is None:
        return None
    try:
        return uuid.UUID(text)
    except ValueError:
        reader.expected("execution_id", "a UUID")
        return None


async def _execution_query(reader: Reader, services: Services, job_id: TaskId) -> RunQuery:
    words = reader.given.get("status") or []
    if any(word not in STATUSES.values() for word in words):
        reader.expected("status", f"one or more of {', '.join(dict.fromkeys(STATUSES.values()))}")
        words = []
    statuses = [str(status) for status, word in STATUSES.items() if word in words]
    rest = {name: value for name, value in reader.given.items() if name != "status"}
    return await read_run_query(Reader({**rest, "status": statuses}, reader.problems), services.store, job_id)


def _named(handler: Handler) -> Handler:
    """The handler, whose errors carry their name among jobs."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except NoonbellError as error:
            name = NAMES.get(error.code)
            if isinstance(error, InvalidArgument) and "cron_expression" in error.details:
                name = "InvalidCronExpression"
            if name is not None:
                error.details["error"] = name
            raise

    return handle


def endpoints(services: Services) -> list[Endpoint]:
    calls = JobCalls(services)
    table = (
        ("POST", "", calls.create, papers.CREATE),
        ("GET", "", calls.page, papers.LIST),
        ("GET", "/{id}", calls.get, papers.GET),
        ("PUT", "/{id}", calls.replace, papers.REPLACE),
        ("DELETE", "/{id}", calls.delete, papers.DELETE),
        ("POST", "/{id}/pause", calls.pause, papers.PAUSE),
        ("POST", "/{id}/resume", calls.resume, papers.RESUME),
        ("GET", "/{id}/executions", calls.executions, papers.EXECUTIONS),
    )
    return [Endpoint((method,), path, _named(call), base=BASE, **paper) for method, path, call, paper in table]
