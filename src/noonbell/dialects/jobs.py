"""Tasks and runs in the words of a jobs table: a job is a task whose target is a handler, an execution is a run.

A translation and nothing more: each call becomes one of the tasks service, and problems come back under the names that
the caller used. What a job cannot say (labels, overlap, a schedule that is no cron) its task keeps through a change.

    allow_concurrent  max_concurrent      max_concurrency  concurrency_policy
    false             any                 1                SKIP
    true              n                   n                SKIP
    true              null                null             SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from noonbell.clock import rfc3339, rfc3339_or_none
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound
from noonbell.fields import Moment, filled, list_of, meta, plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.account import Activity
from noonbell.model.request import Page, RunQuery, TaskQuery
from noonbell.model.run import Omitted, Run, RunId, RunStatus, execution_id_of
from noonbell.model.target_kind import ExecType
from noonbell.model.task import RetryStrategy, Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.task_schedule import YEAR
from noonbell.model.worker import WorkerState
from noonbell.service import Services
from noonbell.service.filters import PageNumbers, RunList, TaskList, TaskRef, Word, is_name
from noonbell.service.preview import ShownNote
from noonbell.service.task_fields import Rules
from noonbell.service.tasks import Removal, cron_dialect
from noonbell.when.cron_fields import CronDialect

READ_ONLY: Final = frozenset(
    ("id", "last_run_at", "last_run_status", "next_run_at", "created_at", "updated_at", "created_by", "notes")
)
_CRATE_FIELDS: Final = 6
LIKE_THE_TASK: Final = ("job_type", "payload", "description", "timeout_seconds")
"""Fields that a task has under the same name."""

_WORDS: Final = {
    "name": "job_name",
    "cron_expr": "cron_expression",
    "schedule": "cron_expression",
    "schedule.expr": "cron_expression",
    "schedule.dialect": "cron_dialect",
    "max_concurrency": "max_concurrent",
    "retry_policy.max_retries": "max_retries",
    "retry_policy.initial_delay": "retry_delay_seconds",
    "status": "enabled",
}
"""What a field of a task is called here, where the two differ."""

ExecutionStatus = Literal["pending", "running", "success", "failed", "timeout", "cancelled", "skipped"]

STATUSES: Final[Mapping[RunStatus, ExecutionStatus]] = {
    RunStatus.SCHEDULED: "pending",
    RunStatus.RUNNING: "running",
    RunStatus.RETRYING: "pending",
    RunStatus.CALLBACK_PENDING: "running",
    RunStatus.SUCCESS: "success",
    RunStatus.CALLBACK_SUCCESS: "success",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "timeout",
    RunStatus.FAILED_TIMEOUT: "timeout",
    RunStatus.CANCELED: "cancelled",
    RunStatus.SKIPPED: "skipped",
}


class JobBody(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "JobWrite"
    noun: ClassVar[str] = "a job"
    example: ClassVar[dict[str, Any]] = {
        "job_name": "daily_cleanup",
        "job_type": "data_cleanup",
        "cron_expression": "0 2 * * *",
        "max_retries": 3,
        "retry_delay_seconds": 60,
        "timeout_seconds": 300,
        "payload": {"retention_days": 30},
        "description": "Old executions go",
    }

    job_name: Annotated[str, meta("Unique.", min_length=1, missing="a text", examples=["daily_cleanup"])]
    job_type: Annotated[
        str,
        meta(
            "The handler that executes it.", min_length=1, max_length=100, missing="a text", examples=["data_cleanup"]
        ),
    ]
    cron_expression: Annotated[
        str | None,
        meta(
            "Five, six or seven fields. Null: on demand only.",
            max_length=1_000,
            expected="a cron expression, or null for a job on demand",
            examples=["0 2 * * *"],
        ),
    ] = None
    cron_dialect: Annotated[
        CronDialect | None,
        meta(
            "How it is read. Default: six or seven fields as the Rust crate `cron` does (`quartz`: Sunday is 1), five by"
            " `scheduler.cron_dialect`.",
            default=None,
            examples=["standard"],
        ),
    ] = None
    enabled: Annotated[bool, meta("Whether its schedule is active.")] = True
    allow_concurrent: Annotated[bool, meta("False: one execution at a time.")] = False
    max_concurrent: Annotated[
        int | None,
        meta("Null: no limit.", ge=1, le=1_000_000, expected="1 to 1000000, or null for no limit"),
    ] = None
    max_retries: Annotated[int | UnsetType, meta("Default `jobs.max_retries` (3).", ge=0, le=100_000, examples=[3])] = (
        UNSET
    )
    retry_delay_seconds: Annotated[
        float | UnsetType,
        meta("The delay before each retry. Default `jobs.retry_delay` (60).", ge=0, le=YEAR, examples=[60]),
    ] = UNSET
    timeout_seconds: Annotated[
        float | UnsetType,
        meta(
            "Timeout of one attempt; 0 and below: the default, `jobs.job_timeout` (300).",
            ge=-YEAR,
            le=2_592_000,
            expected="seconds, at most 2592000 (30 days)",
            examples=[300],
        ),
    ] = UNSET
    payload: Annotated[Any, meta("Any JSON, passed to the handler.", examples=[{"retention_days": 30}])] = UNSET
    description: Annotated[
        str | None, meta("A description for people.", max_length=4_000, lines=True, examples=["Old executions go"])
    ] = None


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """What a job shows and no caller writes."""

    last_run_at: Annotated[Moment | None, meta(read_only=True)] = None
    last_run_status: Annotated[ExecutionStatus | None, meta(read_only=True, examples=["success"])] = None
    next_run_at: Annotated[Moment | None, meta(read_only=True, examples=["2026-11-16T02:00:00Z"])] = None
    created_at: Annotated[Moment | None, meta(read_only=True, examples=["2026-11-14T09:12:31.5Z"])] = None
    updated_at: Annotated[Moment | None, meta(read_only=True, examples=["2026-11-14T09:12:31.5Z"])] = None
    created_by: Annotated[str | None, meta(read_only=True)] = None


class JobChange(JobBody, frozen=True, kw_only=True):
    """What is left out stays. A job can be sent back as it was read."""

    component: ClassVar[str] = "JobChange"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (JobState,)
    example: ClassVar[dict[str, Any]] = {"max_retries": 5, "allow_concurrent": True, "max_concurrent": 3}

    job_name: Annotated[str | UnsetType, meta("Unique.", min_length=1)] = UNSET  # type: ignore[assignment]
    job_type: Annotated[str | UnsetType, meta("The handler that executes it.", min_length=1, max_length=100)] = UNSET  # type: ignore[assignment]


class ShownJob(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Job"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (JobBody, JobState)

    id: Annotated[TaskId, meta("The id of its task.", examples=[1])]


class SavedJob(ShownJob, frozen=True, kw_only=True):
    component: ClassVar[str] = "JobSaved"

    notes: Annotated[list[ShownNote], meta("Warnings: what is allowed but may be unintended.", examples=[[]])]


JobPage = list_of("JobPage", ShownJob, PageNumbers)


class JobList(TaskList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = ("status", "name", "label", "queue", "managed_by", "sort")

    enabled: Annotated[bool | None, meta("True: only enabled ones. False: only others.")] = None
    job_name: Annotated[Word | None, meta("A part of the name.", examples=["cleanup"])] = None
    job_type: Annotated[Word | None, meta("Jobs of this type.", examples=["data_cleanup"])] = None


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[RunId, meta("The run's id.", examples=[7340033])]
    job_id: Annotated[TaskId, meta(examples=[1])]
    job_name: Annotated[str, meta(examples=["daily_cleanup"])]
    execution_id: Annotated[
        str, meta("Made from the run's id.", examples=[str(execution_id_of(7340033))], schema={"format": "uuid"})
    ]
    worker_id: Annotated[str | None, meta(examples=["host-1-4711-a3f0"])]
    started_at: Moment | None
    completed_at: Moment | None
    duration_ms: Annotated[int | None, meta(examples=[180])]
    status: Annotated[ExecutionStatus, meta(examples=["success"])]
    retry_count: int
    error_message: Annotated[str | None, meta(examples=[None])]
    error_details: Annotated[dict[str, Any] | None, meta(examples=[None])]
    result: Annotated[Any, meta(examples=[{"deleted_count": 42}])]
    omitted: Omitted = msgspec.UNSET


ExecutionPage = list_of("ExecutionPage", Execution, PageNumbers)


class ExecutionList(RunList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = (
        *("task", "from", "to", "queue", "worker", "key", "origin", "label", "text", "search", "parent_id", "sort"),
    )

    status: Annotated[
        tuple[ExecutionStatus, ...], meta("One or more statuses.", is_one=True, examples=[["failed", "timeout"]])
    ] = ()  # type: ignore[assignment]
    execution_id: Annotated[
        str | None, meta("This one alone.", min_length=1, expected="a UUID", schema={"format": "uuid"})
    ] = None


class JobsDialect:
    def __init__(self, services: Services) -> None:
        self._store, self._tasks, self._previews = services.store, services.tasks, services.previews
        self._rules = services.rules

    async def create(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        fields = new_task(given, self._rules)
        try:
            return await self._tasks.create(fields, by=by)
        except (InvalidArgument, AlreadyExists) as error:
            raise _in_job_words(error) from None

    async def declaration(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A job of a settings file as the fields of a task, checked. There `cron` is short for `cron_expression`,
        and a job that names no `job_type` is of the type that it is called after.
        """
        fields = dict(given)
        if "cron" in fields:
            if fields.get("cron_expression") is not None:
                raise InvalidArgument.field("cron", "is short for cron_expression; expected one of the two, not both")
            fields["cron_expression"] = fields.pop("cron")
        if fields.get("job_type") is None:
            fields["job_type"] = fields.get("job_name")
        task = new_task(fields, self._rules, names_status="enabled" in given)
        try:
            if given.get("cron_dialect") is None:
                await self._keep_dialect(task)
            await self._tasks.check(task)
        except (InvalidArgument, AlreadyExists) as error:
            raise _in_job_words(error) from None
        return task

    async def _keep_dialect(self, fields: dict[str, Any]) -> None:
        """A job that is declared as it was before stays in the dialect that it was saved in."""
        name, text = fields["name"], fields["cron_expr"]
        stored = await self._store.task_named(name) if isinstance(name, str) and is_name(name) else None
        if stored is not None and text is not None and text == _cron(stored.spec):
            fields["cron_dialect"] = cron_dialect(stored.spec)

    async def get(self, ref: TaskRef, *, deleted: bool = False) -> Task:
        """NotFound for a task that is no job, too."""
        try:
            task = await self._tasks.get(ref, deleted=deleted)
        except NotFound:
            task = None
        if task is None or task.spec.exec_type is not ExecType.JOB:
            raise NotFound("there is no such job")
        return task

    async def change(
        self,
        ref: TaskRef,
        given: Mapping[str, Any],
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        """Change a job. Fields that `given` does not name stay; one with the value that the job has already is no change."""
        task = await self.get(ref)
        fields = changed_task(given, task, self._rules)
        try:
            return await self._tasks.change(task.id, fields, partial=True, by=by, expect_version=expect_version)
        except (InvalidArgument, AlreadyExists) as error:
            raise _in_job_words(error) from None

    async def pause(self, ref: TaskRef, *, by: str | None = None) -> Task:
        return await self._tasks.disable((await self.get(ref)).id, by=by)

    async def resume(self, ref: TaskRef, *, by: str | None = None) -> Task:
        return await self._tasks.enable((await self.get(ref)).id, by=by)

    async def delete(self, ref: TaskRef, removal: Removal, *, by: str | None = None) -> None:
        await self._tasks.delete((await self.get(ref)).id, removal, by=by)

    async def show(self, task: Task) -> dict[str, Any]:
        found = await self._store.activity([task.id])
        return shown(task, found.get(task.id, Activity()))

    async def page(self, query: TaskQuery) -> Page[dict[str, Any]]:
        page = await self._store.tasks(query)
        found = await self._store.activity([task.id for task in page.items])
        items = [shown(task, found.get(task.id, Activity())) for task in page.items]
        return Page(items, page.total, page.next_cursor)

    async def executions(self, query: RunQuery) -> Page[dict[str, Any]]:
        page = await self._store.runs(query)
        return Page([shown_execution(run) for run in page.items], page.total, page.next_cursor)

    async def notes(self, task: Task, given: Mapping[str, Any], language: str) -> list[dict[str, str]]:
        """Warnings about a job that is saved: what is allowed and may not be meant."""
        found: list[dict[str, str]] = list(self._previews.on_save(task, language)["notes"])
        if given.get("allow_concurrent") is False and given.get("max_concurrent") is not None:
            message = "max_concurrent has no meaning while allow_concurrent is false: one execution at a time"
            found.append({"code": "max_concurrent_unused", "message": message})
        alive = [worker for worker in await self._store.workers() if worker.state is not WorkerState.LOST]
        if not any(worker.serves(task.spec.queue, task.spec.job_type) for worker in alive):
            message = f"no worker that is alive knows the job type {task.spec.job_type!r}; its executions wait for one that does"
            found.append({"code": "unknown_job_type", "message": message})
        return found


def new_task(given: Mapping[str, Any], rules: Rules, *, names_status: bool = True) -> dict[str, Any]:
    """The fields of a task for a new job. Raises InvalidArgument in the words of jobs."""
    at = ReadContext(Problems())
    asked = read_into(JobBody, given, at, besides=READ_ONLY)
    for name in sorted(READ_ONLY & given.keys()):
        at.wrong(name, "is read only; leave it out of a new job")
    at.problems.finish()
    fields: dict[str, Any] = {
        "name": asked.job_name,
        **_cron_of(asked.cron_expression, asked.cron_dialect, rules),
        "max_concurrency": asked.max_concurrent if asked.allow_concurrent else 1,
        "concurrency_policy": "SKIP",
        "retry_policy": {
            "max_retries": rules.job_retry.max_retries if asked.max_retries is UNSET else asked.max_retries,
            "strategy": RetryStrategy.FIXED,
            "initial_delay": rules.job_retry_delay if asked.retry_delay_seconds is UNSET else asked.retry_delay_seconds,
        },
        **{name: given[name] for name in LIKE_THE_TASK if name in given},
    }
    if names_status:
        fields["status"] = TaskStatus.ENABLED if asked.enabled else TaskStatus.DISABLED
    return fields


def changed_task(given: Mapping[str, Any], task: Task, rules: Rules) -> dict[str, Any]:
    """The fields of its task that a change of a job changes."""
    now = shown(task, Activity())
    differs = {name: value for name, value in given.items() if name not in READ_ONLY and not _same(name, value, now)}
    at = ReadContext(Problems())
    asked = read_into(JobChange, differs, at)
    at.problems.finish()
    fields: dict[str, Any] = {name: differs[name] for name in LIKE_THE_TASK if name in differs}
    if "job_name" in differs:
        fields["name"] = differs["job_name"]
    if {"cron_expression", "cron_dialect"} & differs.keys():
        # Who sends a job back as it was read, with another expression, names its dialect; who names none means ours.
        text = given.get("cron_expression", now["cron_expression"])
        fields |= _cron_of(text, given.get("cron_dialect"), rules)
    if "enabled" in differs:
        fields["status"] = TaskStatus.ENABLED if asked.enabled else TaskStatus.DISABLED
    if {"allow_concurrent", "max_concurrent"} & differs.keys():
        allow = asked.allow_concurrent if "allow_concurrent" in differs else now["allow_concurrent"]
        most = asked.max_concurrent if "max_concurrent" in differs else now["max_concurrent"]
        fields |= {"max_concurrency": most if allow else 1, "concurrency_policy": "SKIP"}
    retry: dict[str, Any] = {}
    if "max_retries" in differs:
        retry["max_retries"] = asked.max_retries
    if "retry_delay_seconds" in differs:
        retry |= {"initial_delay": asked.retry_delay_seconds, "strategy": RetryStrategy.FIXED}
    if retry:
        fields["retry_policy"] = retry
    return fields


def _same(name: str, value: Any, now: Mapping[str, Any]) -> bool:
    return name in now and type(value) is type(now[name]) and value == now[name]


def _cron_of(text: str | None, dialect: str | None, rules: Rules) -> dict[str, Any]:
    """The expression and its dialect. Six or seven fields are read as the Rust crate `cron` does, whose jobs these are;
    five, which it does not know, as everywhere else.
    """
    if dialect is None and text is not None:
        dialect = CronDialect.QUARTZ if len(text.split()) >= _CRATE_FIELDS else rules.cron_dialect
    return {"cron_expr": text, "cron_dialect": None if dialect is None else str(dialect)}


def _in_job_words(error: InvalidArgument | AlreadyExists) -> InvalidArgument | AlreadyExists:
    details = {_WORDS.get(name, name): value for name, value in error.details.items()}
    if isinstance(error, AlreadyExists):
        return AlreadyExists(error.message, details=details)
    return InvalidArgument.fields({name: str(text) for name, text in details.items()})


def shown(task: Task, activity: Activity) -> dict[str, Any]:
    spec = task.spec
    limit, retries = spec.max_concurrency, spec.retries
    status = activity.last_run_status
    return {
        "id": task.id,
        "job_name": spec.name,
        "job_type": spec.job_type,
        "cron_expression": _cron(spec),
        "cron_dialect": cron_dialect(spec),
        "enabled": task.status is TaskStatus.ENABLED,
        "allow_concurrent": limit != 1,
        "max_concurrent": None if limit == 1 else limit,
        "max_retries": retries.max_retries,
        "retry_delay_seconds": _whole(retries.initial_delay),
        "timeout_seconds": _whole(spec.timeout_seconds),
        "payload": spec.payload,
        "description": spec.description or None,
        "last_run_at": rfc3339_or_none(activity.last_run_at),
        "last_run_status": None if status is None else STATUSES[status],
        "next_run_at": rfc3339_or_none(task.next_fire_at),
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
        "created_by": task.created_by,
    }


def _cron(spec: TaskSpec) -> str | None:
    """The expression as it was written; None for a job on demand, and for one whose schedule is no cron."""
    if spec.schedule is None or spec.schedule["type"] != "cron":
        return None
    return str(spec.schedule.get("source") or spec.schedule["expr"])


def _whole(seconds: float) -> int | float:
    return int(seconds) if float(seconds).is_integer() else seconds


def shown_execution(run: Run) -> dict[str, Any]:
    return plain(
        filled(
            Execution,
            run,
            job_id=run.task_id,
            job_name=run.task_name,
            execution_id=str(execution_id_of(run.id)),
            started_at=run.start_time,
            completed_at=run.end_time,
            status=STATUSES[run.status],
        )
    )
