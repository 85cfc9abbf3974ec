"""Tasks and runs in the words of a cronjob service (document 002), for scripts that were written for one.

A translation and nothing more: requests have its fields, answers its names (`ID`, `CronExpr`), and each call becomes one of the
services. Only tasks that call a URL are shown: that service knows no others.

Ids. A task that was imported keeps the id that it had there, as `external_id`: `cronjob:17`. Scripts go on calling it 17:

    task                                             its `ID`
    `external_id` is cronjob:17                      17
    made here, its id is no imported task's          its id
    made here, and an imported task had that id      its id + 1,000,000,000
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from noonbell.errors import InvalidArgument, NotFound, ScheduleError
from noonbell.fields import Moment, filled, meta, plain
from noonbell.model.account import Activity
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import Run, RunId, RunStatus, trace_id_of
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import PageNumber, RunList, TaskRef, Word, every
from noonbell.service.task_fields import TaskPatch, TaskWrite
from noonbell.service.tasks import shown as shown_task
from noonbell.when.cron_fields import CronDialect
from noonbell.when.zones import find

OLD_ID: Final = "cronjob:"
"""How the `external_id` of an imported task begins; the id that it had there follows."""
SHIFT: Final = 1_000_000_000
MOST_TASKS: Final = 10_000
"""In one list, which has no pages unless they are asked for."""
USUAL_RUNS: Final = 50

FIELDS: Final = (
    *("name", "description", "cron_expr", "timezone", "exec_type", "http_method", "target_url", "headers"),
    *("body_template", "timeout_seconds", "retry_policy", "max_concurrency", "concurrency_policy", "overlap_action"),
    *("failure_action", "misfire_policy", "catchup_limit", "callback_method", "callback_timeout_sec", "status"),
)
"""Of a task there, by the names that its requests have."""
AS_THERE: Final = {"follow_redirects": True}
"""What its tasks do without saying so."""
_REQUIRED: Final = {"name": "its name", "cron_expr": "when it runs", "target_url": "the URL that it calls"}
_HTTP: Final = (ExecType.SYNC, ExecType.ASYNC)
_OFFSET: Final = re.compile(r"(?:(?:UTC|GMT)/?)?([+-])(\d{1,2})(?::?(\d\d))?")
_UPPER: Final = {"id": "ID", "url": "URL", "http": "HTTP", "json": "JSON"}


def pascal(name: str) -> str:
    """`http_method` as that service writes it: `HTTPMethod`."""
    return "".join(_UPPER.get(part, part.capitalize()) for part in name.split("_"))


def zone_of(name: str) -> str:
    """Its words for a time zone in ours: `UTC/+08`, its default, is an offset. ScheduleError for what is neither."""
    try:
        return find(name).name
    except ScheduleError:
        offset = _OFFSET.fullmatch(name.strip())
        if offset is None:
            raise
    sign, hours, minutes = offset.groups("00")
    return find(f"{sign}{int(hours):02d}:{minutes}").name


class LegacyTaskBody(TaskWrite, frozen=True, kw_only=True):
    """Other fields are passed over, as they were there."""

    component: ClassVar[str] = "LegacyTaskWrite"
    takes_more: ClassVar[bool] = True
    without: ClassVar[tuple[str, ...]] = tuple(set(TaskWrite.__struct_fields__) - set(FIELDS))


class LegacyTaskPatch(TaskPatch, frozen=True, kw_only=True):
    """What is left out stays; other fields are passed over."""

    component: ClassVar[str] = "LegacyTaskPatch"
    takes_more: ClassVar[bool] = True
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = ()
    without: ClassVar[tuple[str, ...]] = tuple(set(TaskPatch.__struct_fields__) - set(FIELDS))


class LegacyTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A body that is no object is passed over."""

    takes_more: ClassVar[bool] = True

    override_body: Annotated[str | None, meta("The body, instead of the task's template.", lines=True)] = None
    force_async: Annotated[bool, meta("Expect a callback, even if the task is SYNC.")] = False


class LegacyTask(msgspec.Struct, frozen=True, kw_only=True, rename=pascal):
    id: Annotated[int, meta("For an imported task, the id that it had there; for any other, its own.", examples=[1])]
    name: Annotated[str, meta(examples=["demo_task"])]
    description: Annotated[str, meta(examples=["示例任务"])]
    cron_expr: Annotated[
        str, meta("In six fields; empty if its schedule is not a cron expression.", examples=["0 */5 * * * *"])
    ]
    timezone: Annotated[str, meta(examples=["UTC"])]
    exec_type: Annotated[Literal["SYNC", "ASYNC"], meta(examples=["SYNC"])]
    http_method: Annotated[str, meta(examples=["GET"])]
    target_url: Annotated[str, meta(examples=["http://127.0.0.1:9000/get"])]
    headers_json: Annotated[str, meta("JSON in a string; empty if there are none.", examples=[""])]
    body_template: Annotated[str, meta(examples=[""])]
    timeout_seconds: Annotated[int, meta("Rounded up.", examples=[5])]
    retry_policy_json: Annotated[str, meta("JSON in a string; empty if nothing is retried.", examples=[""])]
    max_concurrency: Annotated[int, meta("0 if it has no limit; then the policy is PARALLEL.", examples=[1])]
    concurrency_policy: Annotated[str, meta(examples=["QUEUE"])]
    misfire_policy: Annotated[str, meta(examples=["FIRE_NOW"])]
    catchup_limit: Annotated[int, meta(examples=[0])]
    callback_method: Annotated[str, meta(examples=["POST"])]
    callback_timeout_sec: Annotated[int, meta(examples=[300])]
    status: Annotated[TaskStatus, meta(examples=["ENABLED"])]
    version: Annotated[int, meta(examples=[1])]
    created_at: Annotated[Moment, meta(examples=["2025-10-14T10:00:00Z"])]
    updated_at: Annotated[Moment, meta(examples=["2025-10-14T10:00:00Z"])]


class LegacyRun(msgspec.Struct, frozen=True, kw_only=True, rename=pascal):
    id: Annotated[RunId, meta("A large number, below 2^53.", examples=[7340033])]
    task_id: Annotated[int, meta(examples=[1])]
    scheduled_time: Annotated[Moment, meta(examples=["2025-10-14T10:05:00Z"])]
    start_time: Annotated[Moment | None, meta(examples=["2025-10-14T10:05:00Z"])]
    end_time: Annotated[Moment | None, meta(examples=["2025-10-14T10:05:00Z"])]
    status: Annotated[RunStatus, meta(examples=["SUCCESS"])]
    attempt: Annotated[int, meta(examples=[1])]
    request_headers: Annotated[str, meta("JSON in a string. Empty in a list.", examples=[""])]
    request_body: Annotated[str, meta("Empty in a list.", examples=[""])]
    response_code: Annotated[int, meta("0 if there was no response.", examples=[200])]
    response_body: Annotated[str, meta("Empty in a list.", examples=["{...}"])]
    error_message: Annotated[str, meta(examples=[""])]
    next_retry_time: Annotated[Moment | None, meta(examples=[None])]
    callback_token: Annotated[str, meta("Always empty: only its hash is stored.", examples=[""])]
    callback_deadline: Annotated[Moment | None, meta(examples=[None])]
    trace_id: Annotated[str, meta("Of the run.", examples=["4bf92f3577b34da6a3ce929d0e0e4736"])]
    created_at: Annotated[Moment, meta(examples=["2025-10-14T10:05:00Z"])]
    updated_at: Annotated[Moment, meta(examples=["2025-10-14T10:05:00Z"])]


class LegacyTaskList(msgspec.Struct, frozen=True, kw_only=True):
    status: Annotated[TaskStatus, meta("Tasks of this status.", examples=["ENABLED"])] = TaskStatus.ENABLED
    name: Annotated[Word | None, meta("A part of the name.", examples=["demo"])] = None
    page: PageNumber = 1
    page_size: Annotated[int, meta("How many tasks.", ge=1, le=MOST_TASKS)] = MOST_TASKS


class LegacyRunList(RunList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = (
        *("task", "queue", "worker", "key", "origin", "label", "text", "search", "parent_id", "step", "sort", "cursor"),
    )

    page_size: Annotated[int, meta("How many runs.", ge=1, le=1_000)] = USUAL_RUNS


class CronjobDialect:
    def __init__(self, services: Services) -> None:
        self._store, self._tasks, self._runs = services.store, services.tasks, services.runs

    async def task(self, ref: TaskRef, *, deleted: bool = False) -> Task:
        """By the `ID` that answers show, or by its name. NotFound for a task that calls no URL, too."""
        found = await self._find(ref, deleted=deleted)
        if found is None or found.spec.exec_type not in _HTTP:
            raise NotFound("there is no such task")
        return found

    async def _find(self, ref: TaskRef, *, deleted: bool) -> Task | None:
        if isinstance(ref, int):
            imported = await self._imported(ref, deleted=deleted)
            if imported is not None:
                return imported
            ref = TaskId(ref - SHIFT if ref > SHIFT else ref)
        try:
            found = await self._tasks.get(ref, deleted=deleted)
        except NotFound:
            return None
        return found if isinstance(ref, str) or old_id(found) is None else None

    async def _imported(self, number: int, *, deleted: bool = False) -> Task | None:
        """The one that is there comes before those that were deleted."""
        external_id = f"{OLD_ID}{number}"
        for query in (
            TaskQuery(external_id=external_id, page_size=1),
            *([TaskQuery(external_id=external_id, page_size=1, sort="-id", include_deleted=True)] if deleted else []),
        ):
            page = await self._store.tasks(query)
            if page.items:
                return page.items[0]
        return None

    async def id_of(self, task: Task) -> int:
        """Its `ID`."""
        known = old_id(task)
        if known is not None:
            return known
        return task.id if await self._imported(task.id) is None else task.id + SHIFT

    async def create(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        missing = {
            name: f"is missing; expected {what}" for name, what in _REQUIRED.items() if given.get(name) in (None, "")
        }
        if missing:
            raise InvalidArgument.fields(missing)
        return await self._tasks.create({**_fields(given), **AS_THERE}, by=by)

    async def change(self, task: Task, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        return await self._tasks.change(task.id, _fields(given), partial=True, by=by)

    async def page(self, asked: LegacyTaskList) -> list[dict[str, Any]]:
        found, imported = [], set[int]()
        async for task in every(self._store.tasks, TaskQuery()):
            number = old_id(task)
            if number is not None:
                imported.add(number)
            is_wanted = task.status is asked.status and (asked.name or "").lower() in task.name.lower()
            if is_wanted and task.spec.exec_type in _HTTP:
                found.append(task)
        first = (asked.page - 1) * asked.page_size
        return [
            self._shown(task, old_id(task) or task.id + (SHIFT if task.id in imported else 0))
            for task in found[first : first + asked.page_size]
        ]

    async def show(self, task: Task) -> dict[str, Any]:
        return self._shown(task, await self.id_of(task))

    def _shown(self, task: Task, number: int) -> dict[str, Any]:
        spec, fields, retry = task.spec, shown_task(task, Activity()), task.spec.retries
        policy = {name: getattr(retry, name) for name in ("max_retries", "initial_delay", "strategy", "max_delay")}
        answer = filled(
            LegacyTask,
            spec,
            id=number,
            cron_expr=fields["cron_expr"] or "",
            exec_type="ASYNC" if spec.exec_type is ExecType.ASYNC else "SYNC",
            target_url=fields["target_url"] or "",
            headers_json=_json(fields["headers"]),
            body_template=spec.body_template or "",
            timeout_seconds=math.ceil(spec.timeout_seconds),
            retry_policy_json=_json(policy) if retry.max_retries else "",
            max_concurrency=spec.max_concurrency or 0,
            catchup_limit=spec.catchup_limit or 0,
            status=task.status,
            version=task.version,
            created_at=task.created_at,
            updated_at=task.updated_at,
        )
        return plain(answer)

    async def runs(self, task: Task, query: RunQuery) -> list[dict[str, Any]]:
        page, number = await self._store.runs(query), await self.id_of(task)
        return [shown_run(run, number) for run in page.items]

    async def run(self, run_id: RunId) -> dict[str, Any]:
        """With the bodies of its newest attempt."""
        whole = await self._runs.show(run_id)
        run = await self._runs.get(run_id)
        task = await self._tasks.get(run.task_id, deleted=True)
        return {
            **shown_run(run, await self.id_of(task)),
            "RequestHeaders": _json(whole["request_headers"]),
            "RequestBody": whole["request_body"] or "",
            "ResponseBody": whole["response_body"] or "",
        }


def old_id(task: Task) -> int | None:
    """The id that an imported task had there."""
    number = (task.spec.external_id or "").removeprefix(OLD_ID)
    is_ours = (task.spec.external_id or "").startswith(OLD_ID) and number.isascii() and number.isdigit()
    return int(number) if is_ours and len(number) <= 15 else None


def shown_run(run: Run, task_id: int) -> dict[str, Any]:
    """Without its bodies, which lists do not read."""
    answer = filled(
        LegacyRun,
        run,
        task_id=task_id,
        request_headers="",
        request_body="",
        response_code=run.response_code or 0,
        response_body="",
        error_message=run.error_message or "",
        callback_token="",
        trace_id=trace_id_of(run.id, run.scheduled_time, run.trace_id),
    )
    return plain(answer)


def _json(value: Mapping[str, Any] | None) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task of ours. Its cron expressions are read as that service reads them."""
    fields = {name: given[name] for name in FIELDS if given.get(name) is not None}
    if "exec_type" in fields and fields["exec_type"] not in _HTTP:
        raise InvalidArgument.field("exec_type", "is neither SYNC nor ASYNC")
    if "cron_expr" in fields:
        fields["cron_dialect"] = str(CronDialect.CRONJOB)
    if isinstance(fields.get("timezone"), str):
        try:
            fields["timezone"] = zone_of(fields["timezone"])
        except ScheduleError as error:
            raise InvalidArgument.field("timezone", error.message) from None
    seconds = fields.get("timeout_seconds")
    if isinstance(seconds, int) and seconds <= 0:
        del fields["timeout_seconds"]
    return fields
