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
from typing import Any, Final

from noonbell.clock import rfc3339
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound
from noonbell.model.request import Page, RunQuery, TaskQuery
from noonbell.model.run import Run, RunStatus, execution_id_of
from noonbell.model.task import ExecType, RetryStrategy, Task, TaskSpec, TaskStatus
from noonbell.model.worker import WorkerState
from noonbell.ports import Store
from noonbell.service.activity import Activity, activities
from noonbell.service.naming import TaskRef, is_name
from noonbell.service.policy_fields import LONGEST_DELAY
from noonbell.service.preview import Previews
from noonbell.service.reader import Problems, Reader
from noonbell.service.rules import Rules
from noonbell.service.task_json import cron_dialect
from noonbell.service.tasks import Removal, Tasks
from noonbell.when.cron_fields import Dialect

READ_ONLY: Final = frozenset(
    {
        *("id", "last_run_at", "last_run_status", "next_run_at", "created_at", "updated_at", "created_by"),
        "notes",
    }
)
LONGEST_TYPE: Final = 100
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

STATUSES: Final[Mapping[RunStatus, str]] = {
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


class Jobs:
    def __init__(self, store: Store, tasks: Tasks, previews: Previews, rules: Rules) -> None:
        self._store = store
        self._tasks = tasks
        self._previews = previews
        self._rules = rules

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
        """What `given` does not name stays, and what it says as the job says it already is no change."""
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
        found = await activities(self._store, [task.id])
        return shown(task, found.get(task.id, Activity()))

    async def page(self, query: TaskQuery) -> Page[dict[str, Any]]:
        page = await self._store.tasks(query)
        found = await activities(self._store, [task.id for task in page.items])
        items = [shown(task, found.get(task.id, Activity())) for task in page.items]
        return Page(items, page.total, page.next_cursor)

    async def executions(self, query: RunQuery) -> Page[dict[str, Any]]:
        page = await self._store.runs(query)
        return Page([shown_execution(run) for run in page.items], page.total, page.next_cursor)

    async def notes(self, task: Task, given: Mapping[str, Any], language: str) -> list[dict[str, str]]:
        """What is allowed and may not be meant, for whoever saves a job."""
        found: list[dict[str, str]] = list((await self._previews.on_save(task, language))["notes"])
        if given.get("allow_concurrent") is False and given.get("max_concurrent") is not None:
            message = "max_concurrent has no meaning while allow_concurrent is false: one execution at a time"
            found.append({"code": "max_concurrent_unused", "message": message})
        if not await self._is_known(task.spec):
            message = f"no worker that is alive knows the job type {task.spec.job_type!r}; its executions wait for one that does"
            found.append({"code": "unknown_job_type", "message": message})
        return found

    async def _is_known(self, spec: TaskSpec) -> bool:
        return any(
            worker.state is not WorkerState.LOST
            and spec.queue in worker.queues
            and (worker.job_types is None or spec.job_type in worker.job_types)
            for worker in await self._store.workers()
        )


def new_task(given: Mapping[str, Any], rules: Rules, *, names_status: bool = True) -> dict[str, Any]:
    """The fields of a task for a new job. Raises InvalidArgument in the words of jobs."""
    problems = Problems()
    reader = Reader(given, problems)
    for name in ("job_name", "job_type"):
        if reader.get(name) is None:
            reader.wrong(name, "is missing; expected a text")
    for name in READ_ONLY & given.keys():
        reader.get(name)
        reader.wrong(name, "is read only; leave it out of a new job")
    fields: dict[str, Any] = {
        "name": reader.get("job_name"),
        **_read_cron(reader, rules),
        "max_concurrency": _read_limit(reader, reader.flag("allow_concurrent", default=False)),
        "concurrency_policy": "SKIP",
        "retry_policy": {
            "max_retries": reader.integer("max_retries", rules.job_retry.max_retries, 0, 100_000),
            "strategy": RetryStrategy.FIXED,
            "initial_delay": reader.number("retry_delay_seconds", rules.job_retry_delay, 0, LONGEST_DELAY),
        },
        **_read_alike(reader),
    }
    enabled = reader.flag("enabled", default=True)
    if names_status:
        fields["status"] = TaskStatus.ENABLED if enabled else TaskStatus.DISABLED
    reader.finish("a job")
    problems.finish()
    return fields


def changed_task(given: Mapping[str, Any], task: Task, rules: Rules) -> dict[str, Any]:
    """The fields of its task that a change of a job changes."""
    now = shown(task, Activity())
    differs = {name: value for name, value in given.items() if name not in READ_ONLY and not _same(name, value, now)}
    problems = Problems()
    reader = Reader(differs, problems)
    fields = _read_alike(reader)
    if "job_name" in differs:
        fields["name"] = reader.get("job_name")
    if {"cron_expression", "cron_dialect"} & differs.keys():
        # Who sends a job back as it was read, with another expression, names its dialect; who names none means ours.
        said = {"cron_expression": now["cron_expression"], "cron_dialect": None}
        fields |= _read_cron(Reader({name: given.get(name, said[name]) for name in said}, problems), rules)
        reader.know(said)
    if "enabled" in differs:
        fields["status"] = TaskStatus.ENABLED if reader.flag("enabled", default=True) else TaskStatus.DISABLED
    if reader.has("allow_concurrent") | reader.has("max_concurrent"):
        whole = Reader({**now, **differs}, problems)
        fields["max_concurrency"] = _read_limit(whole, whole.flag("allow_concurrent", default=False))
        fields["concurrency_policy"] = "SKIP"
    retry: dict[str, Any] = {}
    if "max_retries" in differs:
        retry["max_retries"] = reader.integer("max_retries", 0, 0, 100_000)
    if "retry_delay_seconds" in differs:
        retry["initial_delay"] = reader.number("retry_delay_seconds", 0, 0, LONGEST_DELAY)
        retry["strategy"] = RetryStrategy.FIXED
    if retry:
        fields["retry_policy"] = retry
    reader.finish("a job")
    problems.finish()
    return fields


def _same(name: str, value: Any, now: Mapping[str, Any]) -> bool:
    return name in now and type(value) is type(now[name]) and value == now[name]


def _read_alike(reader: Reader) -> dict[str, Any]:
    if isinstance(job_type := reader.get("job_type"), str) and len(job_type) > LONGEST_TYPE:
        reader.expected("job_type", f"a text of 1 to {LONGEST_TYPE} characters")
    return {name: reader.get(name) for name in LIKE_THE_TASK if reader.has(name)}


def _read_cron(reader: Reader, rules: Rules) -> dict[str, Any]:
    """The expression and its dialect. Six or seven fields are read as the Rust crate `cron` does, whose jobs these are;
    five, which it does not know, as everywhere else.
    """
    value, dialect = reader.get("cron_expression"), reader.get("cron_dialect")
    if value is not None and not isinstance(value, str):
        reader.expected("cron_expression", "a cron expression, or null for a job on demand")
    if dialect is None and isinstance(value, str):
        dialect = str(Dialect.QUARTZ if len(value.split()) >= _CRATE_FIELDS else rules.cron_dialect)
    return {"cron_expr": value, "cron_dialect": dialect}


def _read_limit(reader: Reader, allow: bool) -> int | None:
    most = reader.integer("max_concurrent", None, 1, 1_000_000, "1 to 1000000, or null for no limit")
    return most if allow else 1


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
        "last_run_at": None if activity.last_run_at is None else rfc3339(activity.last_run_at),
        "last_run_status": None if status is None else STATUSES[status],
        "next_run_at": None if task.next_fire_at is None else rfc3339(task.next_fire_at),
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
    return {
        "id": run.id,
        "job_id": run.task_id,
        "job_name": run.task_name,
        "execution_id": str(execution_id_of(run.id)),
        "worker_id": run.worker_id,
        "started_at": None if run.start_time is None else rfc3339(run.start_time),
        "completed_at": None if run.end_time is None else rfc3339(run.end_time),
        "duration_ms": run.duration_ms,
        "status": STATUSES[run.status],
        "retry_count": run.retry_count,
        "error_message": run.error_message,
        "error_details": run.error_details,
        "result": run.result,
    }
