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

from noonbell.api.endpoint import Endpoint, Given, Handler, call, endpoints_of
from noonbell.api.params import MOST_BYTES
from noonbell.api.responses import Deleted, etag, json_response, page_answer
from noonbell.dialects.jobs import (
    STATUSES,
    ExecutionList,
    ExecutionPage,
    JobBody,
    JobChange,
    JobList,
    JobPage,
    JobsDialect,
    SavedJob,
    ShownJob,
    shown_execution,
)
from noonbell.errors import InvalidArgument, NoonbellError
from noonbell.fields import read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.request import Page, TaskQuery
from noonbell.model.run import run_of_execution
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import TaskRef, run_query, task_query
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
        self._jobs = JobsDialect(services)

    @call(
        "POST", "", "create_job", "Create a job", Role.OPERATOR,
        status=201, body=JobBody, body_required=True, most_bytes=MOST_BYTES, answer=SavedJob,
        errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def create(self, given: Given, language: str, by: str | None) -> object:
        """A job type that no worker supports yet is accepted, and `notes` says so: its executions wait. A job's id
        is its task's id.
        """
        job = await self._jobs.create(given, by=by)
        return await self._saved(job, given, language, 201, {"location": f"{BASE}/{job.id}"})

    @call("GET", "", "list_jobs", "List jobs", Role.VIEWER, query=JobList, answer=JobPage)
    async def page(self, query: Given) -> object:
        at = ReadContext(Problems())
        wanted = _job_query(read_into(JobList, query, at), at)
        at.problems.finish()
        page = await self._jobs.page(wanted)
        return page_answer(page.items, page, wanted)

    @call("GET", "/{id}", "get_job", "Read a job", Role.VIEWER, answer=ShownJob)
    async def get(self, ref: TaskRef) -> object:
        job = await self._jobs.get(ref)
        return json_response(await self._jobs.show(job), headers=etag(job.version))

    @call(
        "PUT", "/{id}", "change_job", "Change a job", Role.OPERATOR,
        body=JobChange, body_required=True, most_bytes=MOST_BYTES, answer=SavedJob,
        errors=("ALREADY_EXISTS", "VERSION_CONFLICT"), versioned=True,
    )  # fmt: skip
    async def replace(self, ref: TaskRef, version: int | None, given: Given, language: str, by: str | None) -> object:
        """Fields that are left out of the body are kept. A job can be sent back as it was read."""
        job = await self._jobs.change(ref, given, by=by, expect_version=version)
        return await self._saved(job, given, language, 200, {})

    @call(
        "DELETE", "/{id}", "delete_job", "Delete a job", Role.OPERATOR,
        query=Removal, answer=Deleted, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def delete(self, asked: Removal, ref: TaskRef, by: str | None) -> object:
        """Its executions stay readable under its id until retention removes them."""
        await self._jobs.delete(ref, asked, by=by)
        return {"deleted": True}

    @call("POST", "/{id}/pause", "pause_job", "Pause a job", Role.OPERATOR, answer=ShownJob)
    async def pause(self, ref: TaskRef, by: str | None) -> object:
        """The schedule creates no more executions; running ones finish."""
        return await self._show(await self._jobs.pause(ref, by=by))

    @call("POST", "/{id}/resume", "resume_job", "Resume a job", Role.OPERATOR, answer=ShownJob)
    async def resume(self, ref: TaskRef, by: str | None) -> object:
        """The schedule continues from now: what was missed during the pause is not made up."""
        return await self._show(await self._jobs.resume(ref, by=by))

    @call(
        "GET", "/{id}/executions", "list_executions", "The executions of a job", Role.VIEWER,
        query=ExecutionList, answer=ExecutionPage,
    )  # fmt: skip
    async def executions(self, ref: TaskRef, query: Given) -> object:
        """Newest first. A retry belongs to the execution that it repeats: `retry_count` says how many there were."""
        # The history of a deleted job stays.
        job = await self._jobs.get(ref, deleted=True)
        at = ReadContext(Problems())
        asked = read_into(ExecutionList, query, at)
        execution = _execution_asked_for(asked.execution_id, at)
        statuses = tuple(status for status, word in STATUSES.items() if word in asked.status)
        wanted = msgspec.structs.replace(await run_query(asked, self._services.store, at, job.id), status=statuses)
        at.problems.finish()
        if execution is not None:
            run_id = run_of_execution(execution)
            run = None if run_id is None else await self._services.store.run(run_id)
            items = [] if run is None or run.task_id != job.id else [shown_execution(run)]
            return page_answer(items, Page(items, len(items), None), msgspec.structs.replace(wanted, page=1))
        page = await self._jobs.executions(wanted)
        return page_answer(page.items, page, wanted)

    async def _show(self, job: Task) -> Response:
        return json_response(await self._jobs.show(job), headers=etag(job.version))

    async def _saved(
        self, job: Task, given: Mapping[str, Any], language: str, status: int, headers: Mapping[str, str]
    ) -> Response:
        notes = await self._jobs.notes(job, given, language)
        return json_response({**await self._jobs.show(job), "notes": notes}, status, {**headers, **etag(job.version)})


def _job_query(asked: JobList, at: ReadContext) -> TaskQuery:
    enabled = asked.enabled
    wanted = () if enabled is None else tuple(each for each in TaskStatus if (each is TaskStatus.ENABLED) is enabled)
    query = msgspec.structs.replace(task_query(asked, at), name=asked.job_name)
    return msgspec.structs.replace(query, exec_type=ExecType.JOB, status_in=wanted, job_type=asked.job_type)


def _execution_asked_for(text: str | None, at: ReadContext) -> uuid.UUID | None:
    try:
        return None if text is None else uuid.UUID(text)
    except ValueError:
        at.expected("execution_id", text, "a UUID")
        return None


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
    return endpoints_of(JobCalls(services), "jobs", base=BASE, wrap=_named)
