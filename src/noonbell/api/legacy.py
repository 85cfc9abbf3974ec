"""The endpoints of a cronjob service (document 002) under `/legacy`, for scripts that were written for one: their base address
becomes `http://HOST:PORT/legacy`, and the rest of it stays. `server.legacy_api` switches them on.

Its statuses and error codes are ours as well. Bodies may have fields that it did not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import LEGACY, Endpoint, Given, call, endpoints_of
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.api.responses import Deleted, json_response
from noonbell.api.runs import CallbackCalls, read_callback
from noonbell.api.system import Health, MetricsCalls, MetricsRender, SystemCalls
from noonbell.api.tasks import StatusOfTask
from noonbell.dialects.cronjob import (
    CronjobDialect,
    LegacyRun,
    LegacyRunList,
    LegacyTask,
    LegacyTaskBody,
    LegacyTaskList,
    LegacyTaskPatch,
    LegacyTrigger,
)
from noonbell.errors import InvalidJson
from noonbell.fields import meta
from noonbell.json_text import decoded
from noonbell.model.access import Role
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskId
from noonbell.service import Services
from noonbell.service.callbacks import CallbackAnswer, CallbackByIdsWrite, CallbackWrite
from noonbell.service.filters import read_run_query
from noonbell.service.scope import ScopeRule
from noonbell.service.tasks import Removal

ROOT: Final = "/legacy"
BASE: Final = f"{ROOT}/api/v1"


class LegacyCreated(msgspec.Struct, frozen=True):
    id: Annotated[int, meta(examples=[1])]
    name: Annotated[str, meta(examples=["demo_task"])]


class LegacyUpdated(msgspec.Struct, frozen=True):
    updated: Annotated[bool, meta(examples=[True])]


class LegacyTriggered(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]


class LegacyCanceled(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    status: Annotated[
        Literal["CANCELED"],
        meta("Always this, even if the run ended otherwise: read the run.", examples=["CANCELED"]),
    ]


class LegacyCalls:
    def __init__(self, services: Services) -> None:
        self._services, self._dialect = services, CronjobDialect(services)
        self._callbacks = CallbackCalls(services)

    @call(
        "POST", "/tasks", "legacy_create_task", "Create a task", Role.OPERATOR,
        status=201, body=LegacyTaskBody, body_required=True, most_bytes=MOST_BYTES, answer=LegacyCreated,
        errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def create(self, given: Given, by: str | None) -> object:
        """`name`, `cron_expr` and `target_url` are required. `cron_expr` is read as that service reads it: `*/N`
        matches multiples of N, and both day fields must match.
        """
        task = await self._dialect.create(given, by=by)
        answer = LegacyCreated(await self._dialect.id_of(task), task.name)
        return json_response(answer, 201, {"location": f"/api/v1/tasks/{task.id}"})

    @call(
        "GET", "/tasks", "legacy_list_tasks", "List tasks; only enabled ones, unless `status` is given",
        Role.VIEWER, query=LegacyTaskList, answer=LegacyTask, answer_is_list=True,
    )  # fmt: skip
    async def page(self, asked: LegacyTaskList) -> object:
        return await self._dialect.page(asked)

    @call("GET", "/tasks/{id}", "legacy_get_task", "Read a task", Role.VIEWER, answer=LegacyTask)
    async def get(self, request: Request) -> object:
        return await self._dialect.show(await self._task(request))

    @call(
        "PATCH PUT", "/tasks/{id}", "legacy_patch_task", "Change some fields of a task", Role.OPERATOR,
        body=LegacyTaskPatch, body_required=True, most_bytes=MOST_BYTES, answer=LegacyUpdated,
        errors=("ALREADY_EXISTS", "INVALID_STATE"),
    )  # fmt: skip
    async def change(self, request: Request, by: str | None) -> object:
        task, given = await self._task(request), await read_object(request, required=True)
        await self._dialect.change(task, given, by=by)
        return LegacyUpdated(True)

    @call(
        "PATCH", "/tasks/{id}/enable", "legacy_enable_task", "Enable a task", Role.OPERATOR,
        answer=StatusOfTask, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def enable(self, request: Request, by: str | None) -> object:
        task = await self._services.tasks.enable((await self._task(request)).id, by=by)
        return {"status": task.status}

    @call(
        "PATCH", "/tasks/{id}/disable", "legacy_disable_task", "Disable a task", Role.OPERATOR,
        answer=StatusOfTask, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def disable(self, request: Request, by: str | None) -> object:
        task = await self._services.tasks.disable((await self._task(request)).id, by=by)
        return {"status": task.status}

    @call(
        "DELETE", "/tasks/{id}", "legacy_delete_task", "Delete a task; its history is kept", Role.OPERATOR,
        answer=Deleted, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def delete(self, request: Request, by: str | None) -> object:
        await self._services.tasks.delete((await self._task(request)).id, Removal(), by=by)
        return {"deleted": True}

    @call(
        "POST", "/tasks/{id}/trigger", "legacy_trigger_task", "Run a task now", Role.OPERATOR,
        body=LegacyTrigger, most_bytes=MOST_BYTES, answer=LegacyTriggered, errors=("CONCURRENCY_LIMIT", "INVALID_STATE"),
    )  # fmt: skip
    async def trigger(self, request: Request, trace_id: str) -> object:
        """For a task at its limit whose policy is SKIP: 409, and no run."""
        task, given = await self._task(request), await _trigger_fields(request)
        made = await self._services.publishing.trigger(task.id, given, trace_id=trace_id)
        return {"run_id": made.run_id}

    @call(
        "GET", "/tasks/{id}/runs", "legacy_list_runs_of_task", "The newest 50 runs of a task", Role.VIEWER,
        query=LegacyRunList, answer=LegacyRun, answer_is_list=True,
    )  # fmt: skip
    async def runs(self, request: Request, query: Given) -> object:
        """Newest first, without headers and bodies."""
        task = await self._task(request, deleted=True)
        wanted = await read_run_query(query, self._services.store, task.id, struct=LegacyRunList)
        return await self._dialect.runs(task, wanted)

    @call("GET", "/runs/{run_id}", "legacy_get_run", "Read a run", Role.VIEWER, answer=LegacyRun)
    async def run(self, run_id: RunId) -> object:
        return await self._dialect.run(run_id)

    @call("POST", "/runs/{run_id}/cancel", "legacy_cancel_run", "Cancel a run", Role.OPERATOR, answer=LegacyCanceled)
    async def cancel(self, request: Request, run_id: RunId, by: str | None) -> object:
        """For a run that is already final, the response says CANCELED too, and nothing is changed."""
        canceled = await self._services.runs.cancel(run_id, by=by)
        if not canceled.canceled:
            params.nothing_changed(request)
        return LegacyCanceled(canceled.run_id, "CANCELED")

    @call(
        "POST", "/callbacks/{callback_token}", "legacy_callback", "Report how a run ended (for targets)", None,
        body=CallbackWrite, body_required=True, answer=CallbackAnswer, errors=("INVALID_STATE",), is_audited=False,
    )  # fmt: skip
    async def callback(self, request: Request, callback_token: str) -> object:
        return await self._callbacks.by_token(request, callback_token)

    @call(
        "POST", "/callbacks", "legacy_callback_by_ids", "Report how a run ended, without a token (for"
        " targets)", Role.OPERATOR,
        body=CallbackByIdsWrite, body_required=True, answer=CallbackAnswer,
        errors=("FORBIDDEN", "NOT_FOUND", "INVALID_STATE"), is_audited=False,
    )  # fmt: skip
    async def callback_by_ids(self, request: Request) -> object:
        """`task_id` is the task's `ID`."""
        given, source = await read_callback(request)
        number = given.get("task_id")
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            given = {**given, "task_id": (await self._dialect.task(TaskId(number), deleted=True)).id}
        return await self._services.callbacks.by_ids(given, source)

    async def _task(self, request: Request, *, deleted: bool = False) -> Task:
        """The task that the path names. From here on its own id stands there: the audit log goes by that."""
        task = await self._dialect.task(params.task_ref(request), deleted=deleted)
        request.path_params["id"] = str(task.id)
        return task


async def _trigger_fields(request: Request) -> dict[str, Any]:
    """The service did not read this body: what is not meant for us is passed over."""
    sent = await params.read_bytes(request)
    try:
        given = await decoded(sent) if sent.strip() else None
    except InvalidJson:
        given = None
    if not isinstance(given, dict):
        return {}
    return {name: given[name] for name in LegacyTrigger.__struct_fields__ if given.get(name) is not None}


def endpoints(services: Services, health: Health, metrics_render: MetricsRender | None) -> list[Endpoint]:
    system = endpoints_of(SystemCalls(health, None), "legacy", base=BASE)
    same = [
        *(each for each in system if each.name in ("healthz", "version")),
        *endpoints_of(MetricsCalls(metrics_render), "legacy", base=ROOT),
    ]
    return [
        *endpoints_of(LegacyCalls(services), "legacy", base=BASE),
        *(replace(each, name=LEGACY + each.name, scope=ScopeRule.NOTHING) for each in same),
    ]
