"""Endpoints of tasks, and of files of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Described, Given, call
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.api.responses import Deleted, etag, json_response, page_answer
from noonbell.clock import rfc3339_or_none
from noonbell.errors import InvalidArgument
from noonbell.fields import Moment, meta, plain, read, read_into
from noonbell.fields.problems import Problems, ReadContext, shown
from noonbell.model.access import Role
from noonbell.model.account import KeyLine
from noonbell.model.request import PublishResult, TaskQuery
from noonbell.model.task import Task, TaskId, TaskPause, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import (
    PageNumbers,
    TaskFilter,
    TaskList,
    TaskRef,
    check_bulk,
    read_run_query,
    read_task_query,
    task_query,
)
from noonbell.service.pauses import TaskPauseWrite
from noonbell.service.preview import Fire, PreviewAnswer, ShownNote
from noonbell.service.publishing import Triggered, TriggerWrite
from noonbell.service.runs import RunPage
from noonbell.service.runs import shown as shown_run
from noonbell.service.scope import ScopeRule
from noonbell.service.task_fields import ShownTask, TaskPatch, TaskReplace, TaskWrite
from noonbell.service.task_files import Applied, Apply, Applying
from noonbell.service.tasks import (
    BulkTasks,
    NextList,
    Removal,
    RunsOfTask,
    SkipWrite,
    TaskBatch,
    TaskBatchDelete,
    TaskBatchPatch,
)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    next_fires: list[Fire]
    notes: Annotated[list[ShownNote], meta(examples=[[]])]


class TaskCreated(Saved, frozen=True, kw_only=True):
    id: Annotated[TaskId, meta(examples=[1])]
    name: Annotated[str, meta(examples=["sync_stats"])]


class TaskUpdated(Saved, frozen=True, kw_only=True):
    updated: Annotated[bool, meta(examples=[True])]
    version: Annotated[int, meta(examples=[2])]


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (PageNumbers,)

    items: list[ShownTask]


class StatusOfTask(msgspec.Struct, frozen=True):
    status: TaskStatus


class TaskPaused(msgspec.Struct, frozen=True):
    status: TaskStatus
    pause: Annotated[TaskPause | msgspec.UnsetType, meta("Left out: no reason and no end were given.")] = msgspec.UNSET


class SkipAnswer(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Skip"

    skip_next: Annotated[int, meta(examples=[2])]


class CreatedInBatch(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[TaskId, meta(examples=[1])]
    name: Annotated[str, meta(examples=["report-1"])]
    next_fire_at: Annotated[Moment | None, meta("The first slot.", examples=["2026-11-15T02:35:00Z"])]


class TasksCreated(msgspec.Struct, frozen=True):
    tasks: list[CreatedInBatch]


class ChangedInBatch(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[TaskId, meta(examples=[1])]
    version: Annotated[int, meta(examples=[2])]


class TasksPatched(msgspec.Struct, frozen=True):
    tasks: list[ChangedInBatch]


class TasksDeleted(msgspec.Struct, frozen=True):
    deleted: Annotated[int, meta("How many.", examples=[2])]


class KeyLines(msgspec.Struct, frozen=True):
    items: Annotated[list[KeyLine], meta("The keys that runs wait for, longest queue first.")]


class TasksChanged(msgspec.Struct, frozen=True):
    status: TaskStatus
    changed: Annotated[int, meta(examples=[3])]


_CHANGED: Final = ("ALREADY_EXISTS", "INVALID_STATE", "VERSION_CONFLICT")
_TURNED: Final[Described] = {
    "scope": ScopeRule.TASK,
    "answer": StatusOfTask,
    "errors": ("INVALID_STATE", "VERSION_CONFLICT"),
    "versioned": True,
}


_PAUSED: Final[Described] = {**_TURNED, "body": TaskPauseWrite, "answer": TaskPaused}
_MOST_KEYS: Final = 100


def shown_line(line: KeyLine) -> dict[str, Any]:
    return {**msgspec.structs.asdict(line), "oldest_at": rfc3339_or_none(line.oldest_at)}


class TaskCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks = services.tasks
        self._applying = Applying(services)

    @call(
        "POST", "/tasks/apply", "apply_tasks", "Apply the tasks of a file for one"
        " owner", Role.OPERATOR, scope=ScopeRule.BODY,
        body=Apply, body_required=True, most_bytes=MOST_BYTES, answer=Applied,
        errors=("ALREADY_EXISTS", "VERSION_CONFLICT"),
    )  # fmt: skip
    async def apply(self, request: Request, given: Given, by: str | None) -> object:
        """Everything is checked before anything is written. If a task has a `version` that is no longer current, the
        response is 412; if it belongs to another owner, 409, unless `adopt`. `prune` deletes the owner's tasks
        that are no longer listed.
        """
        asked = read(Apply, given)
        for index, task in enumerate(given["tasks"]):
            if not isinstance(task, dict):
                raise InvalidArgument.field(f"tasks[{index}]", f"is {shown(task)}; expected an object")
        done = await self._applying.apply(
            f"file:{asked.owner}",
            given["tasks"],
            by=by,
            prune=asked.prune,
            adopt=asked.adopt,
            dry_run=asked.dry_run,
        )
        if asked.dry_run:
            params.nothing_changed(request)
        else:
            params.add_to_audit(request, owner=f"file:{asked.owner}", **_applied(done))
        return done

    @call(
        "POST", "/tasks", "create_task", "Create a task", Role.OPERATOR, scope=ScopeRule.BODY,
        status=201, body=TaskWrite, body_required=True, most_bytes=MOST_BYTES, answer=TaskCreated,
        errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def create(self, request: Request, given: Given, language: str, by: str | None) -> object:
        """Give `schedule` or its short form `cron_expr`, not both; without either, the task runs on demand only.
        `details` names every wrong field; unknown fields are rejected.
        """
        task = await self._tasks.create(given, by=by)
        saved = self._services.previews.on_save(task, language)
        headers = {"location": f"{request.scope['path']}/{task.id}", **etag(task.version)}
        return json_response({"id": task.id, "name": task.name, **saved}, 201, headers)

    @call(
        "POST", "/tasks/batch", "create_tasks", "Create up to 10,000 tasks in one transaction", Role.OPERATOR, scope=ScopeRule.BODY,
        status=201, body=TaskBatch, body_required=True, most_bytes=MOST_BYTES, answer=TasksCreated,
        errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def create_many(self, request: Request, by: str | None) -> object:
        """All or nothing, results in the order of the requests. Each problem is named by its place:
        `tasks[7].cron_expr`.
        """
        made = await self._tasks.create_many(*await _listed(request), by=by)
        answer = [
            {"id": task.id, "name": task.name, "next_fire_at": rfc3339_or_none(task.next_fire_at)} for task in made
        ]
        return {"tasks": answer}

    @call(
        "PATCH", "/tasks/batch", "patch_tasks", "Change up to 10,000 tasks in one transaction", Role.OPERATOR, scope=ScopeRule.BODY,
        body=TaskBatchPatch, body_required=True, most_bytes=MOST_BYTES, answer=TasksPatched,
        errors=("NOT_FOUND", *_CHANGED),
    )  # fmt: skip
    async def patch_many(self, request: Request, by: str | None) -> object:
        """All or nothing, results in the order of the requests. Each names its task by `id`; fields left out are
        kept.
        """
        changed = await self._tasks.change_many(*await _listed(request), by=by)
        return {"tasks": [{"id": task.id, "version": task.version} for task in changed]}

    @call(
        "DELETE", "/tasks/batch", "delete_tasks", "Delete up to 10,000 tasks in one transaction", Role.OPERATOR, scope=ScopeRule.BODY,
        query=Removal, body=TaskBatchDelete, body_required=True, answer=TasksDeleted,
        errors=("NOT_FOUND", "INVALID_STATE", "VERSION_CONFLICT"),
    )  # fmt: skip
    async def delete_many(self, request: Request, asked: Removal, by: str | None) -> object:
        """All or nothing. Their history is kept and their names become free. Waiting runs are canceled."""
        named, problems = await _listed(request)
        deleted = await self._tasks.delete_many(named, asked, problems, by=by)
        return {"deleted": len(deleted)}

    @call(
        "GET", "/tasks", "list_tasks", "List tasks", Role.VIEWER, scope=ScopeRule.LIST, query=TaskList, answer=TaskPage
    )
    async def page(self, query: Given) -> object:
        wanted = read_task_query(query)
        page = await self._tasks.page(wanted)
        return page_answer(page.items, page, wanted)

    @call(
        "POST", "/tasks/enable", "enable_tasks", "Enable all tasks that match a"
        " filter", Role.OPERATOR, scope=ScopeRule.LIST,
        body=BulkTasks, body_required=True, answer=TasksChanged,
    )  # fmt: skip
    async def enable_where(self, given: Given, by: str | None) -> object:
        return await self._set_where(given, TaskStatus.ENABLED, by)

    @call(
        "POST", "/tasks/disable", "disable_tasks", "Disable all tasks that match a"
        " filter", Role.OPERATOR, scope=ScopeRule.LIST,
        body=BulkTasks, body_required=True, answer=TasksChanged,
    )  # fmt: skip
    async def disable_where(self, given: Given, by: str | None) -> object:
        return await self._set_where(given, TaskStatus.DISABLED, by)

    @call("GET", "/tasks/{id}", "get_task", "Read a task", Role.VIEWER, scope=ScopeRule.TASK, answer=ShownTask)
    async def get(self, ref: TaskRef) -> object:
        """Its `ETag` is its version, for `If-Match`. Secrets are shown as `"***"`; writing that back keeps them."""
        task = await self._tasks.get(ref)
        return json_response(await self._tasks.show(task), headers=etag(task.version))

    @call(
        "PUT", "/tasks/{id}", "replace_task", "Replace a task: fields left out get their"
        " defaults", Role.OPERATOR, scope=ScopeRule.TASK,
        body=TaskReplace, body_required=True, most_bytes=MOST_BYTES, answer=TaskUpdated, errors=_CHANGED,
        versioned=True,
    )  # fmt: skip
    async def replace(self, ref: TaskRef, version: int | None, given: Given, language: str, by: str | None) -> object:
        task = await self._tasks.change(ref, given, partial=False, expect_version=version, by=by)
        return self._changed(task, language)

    @call(
        "PATCH", "/tasks/{id}", "patch_task", "Change some fields of a task", Role.OPERATOR, scope=ScopeRule.TASK,
        body=TaskPatch, body_required=True, most_bytes=MOST_BYTES, answer=TaskUpdated, errors=_CHANGED, versioned=True,
    )  # fmt: skip
    async def patch(self, ref: TaskRef, version: int | None, given: Given, language: str, by: str | None) -> object:
        """`retry_policy`, `circuit`, `rate_limit` and `fanout` are changed field by field; any other field is
        replaced as a whole. `null` sets a field to its default.
        """
        task = await self._tasks.change(ref, given, partial=True, expect_version=version, by=by)
        return self._changed(task, language)

    @call(
        "DELETE", "/tasks/{id}", "delete_task", "Delete a task", Role.OPERATOR, scope=ScopeRule.TASK,
        query=Removal, answer=Deleted, errors=("INVALID_STATE", "VERSION_CONFLICT"), versioned=True,
    )  # fmt: skip
    async def delete(self, ref: TaskRef, asked: Removal, version: int | None, by: str | None) -> object:
        """Its history is kept and its name becomes free. Waiting runs are canceled."""
        await self._tasks.delete(ref, asked, by=by, expect_version=version)
        return {"deleted": True}

    @call("PATCH POST", "/tasks/{id}/enable", "enable_task", "Enable a task", Role.OPERATOR, **_TURNED)
    @call("POST", "/tasks/{id}/resume", "resume_task", "Same as enable", Role.OPERATOR, **_TURNED)
    async def enable(self, request: Request, ref: TaskRef, version: int | None, by: str | None) -> object:
        """The schedule continues from now: what was missed while the task was disabled is not made up."""
        await read_object(request)
        task = await self._tasks.enable(ref, by=by, expect_version=version)
        return {"status": task.status}

    @call("PATCH POST", "/tasks/{id}/disable", "disable_task", "Disable a task", Role.OPERATOR, **_PAUSED)
    @call("POST", "/tasks/{id}/pause", "pause_task", "Same as disable", Role.OPERATOR, **_PAUSED)
    async def disable(
        self, request: Request, ref: TaskRef, given: Given, by: str | None, version: int | None
    ) -> object:
        """The task has no more slots until it is enabled, or until the given end; running runs finish. If the task
        is already disabled, this replaces its reason and its end.
        """
        task = await self._tasks.disable(ref, given, by=by, expect_version=version)
        said = {} if task.pause is None else {"pause": plain(task.pause)}
        if task.pause is not None:
            params.add_to_audit(request, reason=task.pause.reason, until=said["pause"]["until"])
        return {"status": task.status, **said}

    @call(
        "POST", "/tasks/{id}/reset", "reset_task", "Reset a task in ERROR or"
        " COMPLETED", Role.OPERATOR, scope=ScopeRule.TASK,
        answer=StatusOfTask,
    )  # fmt: skip
    async def reset(self, ref: TaskRef, by: str | None) -> object:
        task = await self._tasks.reset(ref, by=by)
        return {"status": task.status}

    @call(
        "POST", "/tasks/{id}/skip", "skip_slots", "Skip the next slots of a task", Role.OPERATOR, scope=ScopeRule.TASK,
        body=SkipWrite, answer=SkipAnswer,
    )  # fmt: skip
    async def skip(self, body: SkipWrite, ref: TaskRef, by: str | None) -> object:
        """Each skipped slot becomes a SKIPPED run with the reason `operator`. 0 undoes it, -1 skips until it is
        undone.
        """
        task = await self._tasks.skip(ref, body.count, by=by)
        return {"skip_next": task.skip_next}

    @call(
        "GET", "/tasks/{id}/next", "next_slots", "The next slots of a task", Role.VIEWER, scope=ScopeRule.TASK,
        query=NextList, answer=PreviewAnswer,
    )  # fmt: skip
    async def next(self, asked: NextList, ref: TaskRef, language: str) -> object:
        task = await self._tasks.get(ref)
        return await self._services.previews.next(task, asked.count, language)

    @call(
        "POST", "/tasks/{id}/trigger", "trigger_task", "Run a task now", Role.OPERATOR, scope=ScopeRule.TASK,
        body=TriggerWrite, most_bytes=MOST_BYTES, answer=Triggered, errors=("CONCURRENCY_LIMIT", "INVALID_STATE"),
    )  # fmt: skip
    async def trigger(self, ref: TaskRef, given: Given, trace_id: str) -> object:
        """A disabled task can be triggered too. Without a `key`, this always creates a run; with one, `outcome` says
        whether it did.
        """
        published = await self._services.publishing.trigger(ref, given, trace_id=trace_id)
        return _published(published, with_outcome=any(given.get(name) is not None for name in ("key", "dedupe")))

    @call(
        "GET", "/tasks/{id}/runs", "list_runs_of_task", "The runs of a task", Role.VIEWER, scope=ScopeRule.TASK,
        query=RunsOfTask, answer=RunPage,
    )  # fmt: skip
    async def runs(self, ref: TaskRef, query: Given) -> object:
        # The history of a deleted task stays.
        task = await self._tasks.get(ref, deleted=True)
        wanted = await read_run_query(query, self._services.store, task.id, struct=RunsOfTask)
        page = await self._services.runs.page(wanted)
        return page_answer([shown_run(run) for run in page.items], page, wanted)

    @call(
        "GET", "/tasks/{id}/keys", "list_keys_of_task", "The keys of a task that runs wait"
        " for", Role.VIEWER, scope=ScopeRule.TASK,
        answer=KeyLines,
    )  # fmt: skip
    async def keys(self, ref: TaskRef) -> object:
        """At most 100 keys. A key is listed as long as runs wait for it (`concurrency_key`, `max_per_key`)."""
        task = await self._tasks.get(ref)
        lines = await self._services.store.key_lines(task.id, _MOST_KEYS)
        return {"items": [shown_line(line) for line in lines]}

    def _changed(self, task: Task, language: str) -> Response:
        saved = self._services.previews.on_save(task, language)
        body = {"updated": True, "version": task.version, **saved}
        return json_response(body, headers=etag(task.version))

    async def _set_where(self, given: Given, status: TaskStatus, by: str | None) -> object:
        changed = await self._tasks.set_status_where(_bulk_query(given), status, by=by)
        return {"status": status, "changed": changed}


def _published(published: PublishResult, *, with_outcome: bool) -> dict[str, object]:
    """A trigger without a key always makes a run: there is nothing more to say of it."""
    if with_outcome:
        return {"run_id": published.run_id, "outcome": published.outcome}
    return {"run_id": published.run_id}


def _bulk_query(given: dict[str, object]) -> TaskQuery:
    at = ReadContext(Problems())
    asked = read_into(BulkTasks, given, at)
    if not at.problems.found:
        check_bulk(given, everything=asked.all, what="task")
    at.problems.finish()
    return task_query(asked.filter or TaskFilter(), at)


async def _listed(request: Request) -> tuple[list[Any], Problems]:
    return await params.read_list(request, "tasks", "a list of tasks", "a batch")


_MOST_NAMED: Final = 20


def _applied(done: Mapping[str, Any]) -> dict[str, Any]:
    """What the audit log says of an apply: names of the tasks, up to a number, and how many there are."""
    names = {
        "created": done["created"],
        "changed": [each["name"] for each in done["changed"]],
        "pruned": done["pruned"],
    }
    told: dict[str, Any] = {what: named[:_MOST_NAMED] for what, named in names.items() if named}
    counts = {f"{what}_count": len(named) for what, named in names.items() if len(named) > _MOST_NAMED}
    return {**told, **counts, "unchanged": len(done["unchanged"])}
