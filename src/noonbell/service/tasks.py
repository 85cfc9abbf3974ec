"""Tasks: create, read, change, enable, disable, delete, skip, reset; and a task as JSON.

`shown` is for answers, with secrets masked; `written` is what a change is laid over, the inverse of `task_fields.read_task`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant, rfc3339, rfc3339_or_none
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound
from noonbell.fields import meta, plain
from noonbell.fields.problems import Problems
from noonbell.fields.problems import shown as quoted
from noonbell.model.account import Activity
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import NewTask, Page, TaskChange, TaskEdit, TaskQuery
from noonbell.model.target_kind import MESSAGE_FIELDS, TARGET_KINDS, target_kind
from noonbell.model.task import Task, TaskId, TaskPause, TaskSpec, TaskStatus, TaskVersion
from noonbell.ports import ANY_QUEUE, ORDERS, PLAN, Store, Wakeup, queue_topic
from noonbell.service import scope, secrets
from noonbell.service.audit_log import note_commands
from noonbell.service.filters import RunList, TaskFilter, TaskRef, every
from noonbell.service.pauses import read_pause
from noonbell.service.secrets import refuse_carried
from noonbell.service.task_fields import READ_ONLY, VERSION, Draft, Rules, TaskPatch, TaskWrite, read_task
from noonbell.when.cron_fields import CronDialect

MOST_SKIPPED: Final = 1_000_000
SYSTEM: Final = "system"
"""Who manages a task that is built in."""

MOST_TASKS: Final = 10_000
"""In one call that creates, changes or deletes many."""
_AT_ONCE: Final = 20
"""Tasks that are read without a pause: a few milliseconds."""
_NEAR: Final = 60 * SECOND
"""Several times as long as a planner rests."""
_BATCH: Final = 200
"""Tasks that one transaction enables or disables."""


_LISTED: Final[dict[str, Any]] = {
    "min_length": 1,
    "max_length": MOST_TASKS,
    "expected": f"a list of 1 to {MOST_TASKS} tasks",
    "missing": "a list of tasks",
}


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is deleted: see `Store.delete_task`."""

    cancel_running: Annotated[bool, meta("Cancel the runs that are executing; otherwise they finish.")] = False
    purge: Annotated[bool, meta("Also delete its history, for good.")] = False
    force: Annotated[bool, meta("Delete it even if other tasks run after it.")] = False


class SkipWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a skip"

    count: Annotated[
        int,
        meta("How many of the next slots; 0: none, -1: all, until it is undone.", ge=-1, le=MOST_SKIPPED, examples=[2]),
    ] = 1


class NextList(msgspec.Struct, frozen=True, kw_only=True):
    count: Annotated[int, meta("How many.", ge=1, le=1_000)] = 5


class BulkTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a bulk change is about: those of a filter, or all."""

    noun: ClassVar[str] = "a bulk change"
    example: ClassVar[dict[str, Any]] = {"filter": {"label": "team=billing"}}

    filter: TaskFilter | None = None
    all: Annotated[bool, meta("All tasks, instead of a filter.")] = False


class TaskBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks to be created together."""

    noun: ClassVar[str] = "a batch of tasks"
    example: ClassVar[dict[str, Any]] = {
        "tasks": [
            {"name": "report-1", "cron_expr": "0 2 * * *", "target_url": "http://reports.internal/run"},
            {"name": "report-2", "cron_expr": "0 3 * * *", "target_url": "http://reports.internal/run"},
        ]
    }

    tasks: Annotated[list[Annotated[TaskWrite, meta(anything=True)]], meta("Each as for `POST /tasks`.", **_LISTED)]


class TaskBatchChange(TaskPatch, frozen=True, kw_only=True):
    id: Annotated[TaskId, meta("Which task.", ge=1, examples=[1])]


class TaskBatchPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks to be changed together."""

    noun: ClassVar[str] = "a batch of changes"
    example: ClassVar[dict[str, Any]] = {
        "tasks": [{"id": 1, "priority": 5}, {"id": 2, "version": 3, "timeout_seconds": 30}]
    }

    tasks: Annotated[
        list[Annotated[TaskBatchChange, meta(anything=True)]],
        meta("Each an `id`, and what changes as for `PATCH /tasks/{id}`.", **_LISTED),
    ]


class TaskBatchDeletion(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[TaskId, meta("Which task.", ge=1, examples=[1])]
    version: Annotated[Any, VERSION] = msgspec.UNSET


class TaskBatchDelete(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks to be deleted together."""

    noun: ClassVar[str] = "a batch of deletions"
    example: ClassVar[dict[str, Any]] = {"tasks": [{"id": 1}, {"id": 2, "version": 3}]}

    tasks: Annotated[list[Annotated[TaskBatchDeletion, meta(anything=True)]], meta("Each by its `id`.", **_LISTED)]


class RunsOfTask(RunList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = ("task",)


class Replacement(NamedTuple):
    """A full change of one task."""

    task_id: TaskId
    given: Mapping[str, Any]
    inspect: Callable[[Task], None]
    """Sees the task when it is held for the change, and refuses by raising."""


class Tasks:
    def __init__(self, store: Store, wakeup: Wakeup, rules: Rules) -> None:
        self._store = store
        self._wakeup = wakeup
        self._rules = rules

    async def create(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        """Raises InvalidArgument with every wrong field, AlreadyExists for a name that is taken."""
        draft = self._read_new(given, await self._store.about_now())
        await self._admit([draft.spec])
        status = draft.status or TaskStatus.ENABLED
        task = await self._store.create_task(draft.spec, status=status, by=by, skip_next=draft.skip_next or 0)
        self._created([task])
        return task

    async def create_many(
        self, given: Sequence[Any], problems: Problems | None = None, *, by: str | None = None
    ) -> list[Task]:
        """Up to 10,000 in one transaction, or none: every problem is named as `tasks[INDEX].FIELD`. `problems`: what was found wrong
        around them.
        """
        now, problems = await self._store.now(), problems or Problems()
        new: list[NewTask] = []
        async for index, fields in _each_of(given, problems):
            try:
                draft = self._read_new(fields, now)
            except InvalidArgument as error:
                problems.take(error, under=f"tasks[{index}]")
                continue
            status = draft.status or TaskStatus.ENABLED
            new.append(NewTask(spec=draft.spec, status=status, by=by, skip_next=draft.skip_next or 0))
        problems.finish()
        await self._admit([one.spec for one in new])
        made = await self._store.create_tasks(new)
        self._created(made)
        return made

    async def check(self, given: Mapping[str, Any]) -> TaskSpec:
        """What `create` would make of it; nothing is written."""
        spec = self._read_new(given, await self._store.now()).spec
        scope.check_spec(spec)
        return spec

    def _read_new(self, given: Mapping[str, Any], now: Instant) -> Draft:
        check_new(given)
        return self._sealed(read_task(given, now, self._rules))

    async def _admit(self, specs: Sequence[TaskSpec]) -> None:
        """Raises Forbidden if the scope of the request does not hold one of these new tasks, or one that it is to run
        after.
        """
        if scope.current() is None:
            return
        for spec in specs:
            scope.check_spec(spec)
        together = {spec.name for spec in specs}
        for spec in specs:
            if spec.after is not None:
                others = tuple(each for each in spec.after.tasks if each.task not in together)
                await scope.check_upstreams(self._store, msgspec.structs.replace(spec.after, tasks=others))

    async def _admit_changes(
        self, changes: Iterable[tuple[TaskId, Mapping[str, Any]]], now: Instant, *, partial: bool
    ) -> None:
        """Before tasks are held: NotFound for one outside the scope of the request, Forbidden for new upstreams outside.

        What a task must be before and after the change, `_edited` checks while it is held.
        """
        if scope.current() is None:
            return
        wanted = dict(changes)
        await scope.check_tasks(self._store, list(wanted))
        for task in await self._store.tasks_by_id(sorted(wanted)):
            after = self._edited(task, wanted[task.id], now, partial=partial).spec.after
            await scope.check_upstreams(self._store, after, task.spec.after)

    async def draft_of_change(self, task: Task, given: Mapping[str, Any]) -> Draft:
        """What a full `change` would make of the task; nothing is written. Upstreams that are there are named by id."""
        draft = self._drafted(task, replaced(self.opened(task), given), await self._store.now())
        after = draft.spec.after
        names = [] if after is None else [each.task for each in after.tasks if isinstance(each.task, str)]
        if after is None or not names:
            return draft
        found = {name: one.id for name, one in (await self._store.tasks_named(names)).items()}
        upstreams = tuple(
            msgspec.structs.replace(each, task=found.get(str(each.task), each.task)) for each in after.tasks
        )
        spec = msgspec.structs.replace(draft.spec, after=msgspec.structs.replace(after, tasks=upstreams))
        return replace(draft, spec=spec)

    async def upstream_names(self, tasks: Iterable[Task | TaskVersion]) -> dict[int, str]:
        """The names, by id, of the tasks that these run after; without those that are deleted."""
        ids = {id_ for task in tasks if task.spec.after is not None for id_ in task.spec.after.upstream_ids}
        found = await self._store.tasks_by_id([TaskId(id_) for id_ in sorted(ids)]) if ids else []
        return {task.id: task.name for task in scope.held(found) if task.deleted_at is None}

    def opened(self, task: Task) -> Task:
        """The task with its secrets opened: for a caller that reads its fields anew. Not for answers."""
        return msgspec.structs.replace(task, spec=secrets.opened_where_possible(task.spec, self._rules.sealer))

    def _sealed(self, draft: Draft, kept: TaskSpec | None = None) -> Draft:
        return replace(draft, spec=secrets.sealed(draft.spec, self._rules.sealer, kept))

    async def get(self, ref: TaskRef, *, deleted: bool = False) -> Task:
        """The task; with `deleted`, one that is deleted too, by its id. NotFound else."""
        task = await (self._store.task_named(ref) if isinstance(ref, str) else self._store.task(ref))
        if task is None or (task.deleted_at is not None and not deleted):
            raise NotFound("there is no such task")
        scope.check_task(task)
        return task

    async def show(self, task: Task) -> dict[str, Any]:
        """The task as an answer shows it, with what its runs are doing."""
        doing = (await self._store.activity([task.id])).get(task.id, Activity())
        return shown(task, doing, await self.upstream_names([task]))

    async def versions(self, task: Task) -> list[TaskVersion]:
        """Every version that it had, oldest first, secrets included. Not for answers as it is."""
        return await self._store.task_versions(task.id)

    async def found(self, query: TaskQuery) -> Page[Task]:
        """The tasks as the store has them: for a caller that does not ask what their runs are doing."""
        return await self._store.tasks(query)

    async def page(self, query: TaskQuery) -> Page[dict[str, Any]]:
        page = await self._store.tasks(query)
        found = await self._store.activity([task.id for task in page.items])
        names = await self.upstream_names(page.items)
        items = [shown(task, found.get(task.id, Activity()), names) for task in page.items]
        return Page(items, page.total, page.next_cursor)

    async def change(
        self,
        ref: TaskRef,
        given: Mapping[str, Any],
        *,
        partial: bool,
        expect_version: int | None = None,
        by: str | None = None,
        inspect: Callable[[Task], None] | None = None,
    ) -> Task:
        """A partial change keeps what it does not name; a full one sets that to its default.

        With another `expect_version`: VersionConflict, and nothing is written. `inspect` sees the task as it stands
        when it is held for the change, and refuses by raising.
        """
        task_id = (await self.get(ref)).id
        now = await self._store.now()
        await self._admit_changes([(task_id, given)], now, partial=partial)
        expect_version = _expected(given, expect_version)

        def edit(task: Task) -> TaskChange:
            if inspect is not None:
                inspect(task)
            return self._edited(task, given, now, partial=partial)

        task = await self._store.change_task(task_id, edit, by=by, expect_version=expect_version)
        self._changed([task])
        return task

    async def replace_many(self, wanted: Sequence[Replacement], *, by: str | None = None) -> list[Task]:
        """Full changes in one transaction, or none: see `change`. Errors name each by its place, `tasks[INDEX]`."""
        now = await self._store.now()

        def edit(task: Task, one: Replacement) -> TaskChange:
            one.inspect(task)
            return self._edited(task, one.given, now, partial=False)

        await self._admit_changes([(one.task_id, one.given) for one in wanted], now, partial=False)
        edits = [TaskEdit(one.task_id, functools.partial(edit, one=one)) for one in wanted]
        changed = await self._store.change_tasks(edits, by=by)
        self._changed(changed)
        return changed

    async def change_many(
        self, given: Sequence[Any], problems: Problems | None = None, *, by: str | None = None
    ) -> list[Task]:
        """Up to 10,000 partial changes in one transaction, or none; each names its task by `id`. `problems`: as of `create_many`."""
        now, problems = await self._store.now(), problems or Problems()
        edits: list[TaskEdit] = []
        wanted: list[tuple[TaskId, Mapping[str, Any]]] = []
        places = _Places(problems)
        async for index, fields in _each_of(given, problems):
            task_id, version = places.read(index, fields)
            wanted.append((task_id, fields))
            edits.append(
                TaskEdit(task_id, functools.partial(self._edited, given=fields, now=now, partial=True), version)
            )
        problems.finish()
        await self._admit_changes(wanted, now, partial=True)
        changed = await self._store.change_tasks(edits, by=by)
        self._changed(changed)
        return changed

    async def delete_many(
        self,
        given: Sequence[Any],
        removal: Removal = Removal(),  # noqa: B008 - frozen
        problems: Problems | None = None,
        *,
        by: str | None = None,
    ) -> list[Task]:
        """Up to 10,000 in one transaction, or none; each is named by `id`, with the `version` that the caller has seen if any."""
        problems = problems or Problems()
        versions: dict[TaskId, int | None] = {}
        places = _Places(problems)
        async for index, fields in _each_of(given, problems):
            for name in fields.keys() - {"id", "version"}:
                problems.add(
                    f"tasks[{index}].{str(name)[:60]}", "is not a field here; expected id, and version if it matters"
                )
            task_id, version = places.read(index, fields)
            versions[task_id] = version
        problems.finish()
        scope.check_force(force=removal.force)
        await scope.check_tasks(self._store, list(versions))
        try:
            deleted = await self._store.delete_tasks(versions, by=by, **msgspec.structs.asdict(removal))
        except InvalidState as error:
            raise scope.without_names(error) from None
        self._wake(deleted)
        return deleted

    def editing(self, change_of: Callable[[Task], Mapping[str, Any]], now: Instant) -> Callable[[Task], TaskChange]:
        """A partial change for a store to make, of the task as it stands when it is held."""
        return lambda task: self._edited(task, change_of(task), now, partial=True)

    def _edited(self, task: Task, given: Mapping[str, Any], now: Instant, *, partial: bool) -> TaskChange:
        scope.check_task(task)
        plain = self.opened(task)
        fields = merged(plain, given) if partial else replaced(plain, given)
        draft = self._drafted(task, fields, now)
        scope.check_spec(draft.spec)
        return TaskChange(spec=draft.spec, status=_turned(task, draft.status), skip_next=draft.skip_next)

    def _drafted(self, task: Task, fields: dict[str, Any], now: Instant) -> Draft:
        """The fields of a change, read. A built-in task keeps its name and stays built in."""
        if task.spec.job_type == CALL_TYPE:
            raise InvalidState(
                "task {task} is built in (for calls) and cannot be changed; pause its queue instead",
                task=repr(task.name),
            )
        if task.spec.managed_by != SYSTEM:
            return self._sealed(read_task(fields, now, self._rules, kept=task.spec), task.spec)
        for name, kept in (("managed_by", SYSTEM), ("name", task.name)):
            if fields.get(name) not in (None, kept):
                raise InvalidArgument.field(name, f"is {kept!r} for this task, which is built in and cannot be changed")
        draft = read_task({**fields, "name": task.name, "managed_by": None}, now, self._rules, kept=task.spec)
        return self._sealed(replace(draft, spec=msgspec.structs.replace(draft.spec, managed_by=SYSTEM)), task.spec)

    async def create_built_in(self, given: Mapping[str, Any]) -> Task | None:
        """Make a task that every installation has, unless it is there. None: an operator has a task of that name.

        Nodes that start at the same time make it once. What an operator has changed of it stays.
        """
        name = str(given["name"])
        spec = msgspec.structs.replace(await self.check(given), managed_by=SYSTEM)
        task = await self._store.task_named(name)
        if task is None:
            try:
                task = await self._store.create_task(spec, by=SYSTEM, system=True)
            except AlreadyExists:
                task = await self.get(name)
            self._wakeup.signal(PLAN)
        return task if task.spec.managed_by == SYSTEM else None

    async def enable(self, ref: TaskRef, *, by: str | None = None, expect_version: int | None = None) -> Task:
        """Enable the task from now on, with no catch-up. Enabling what is enabled changes nothing."""
        return await self._set_status(ref, TaskStatus.ENABLED, by, expect_version)

    async def disable(
        self,
        ref: TaskRef,
        given: Mapping[str, Any] | None = None,
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        """Pause it. `given` is a `TaskPauseWrite`: what it says of the pause stands in place of what was said before."""
        pause = read_pause(given or {}, await self._store.now(), by=by) if given else None
        return await self._set_status(ref, TaskStatus.DISABLED, by, expect_version, pause)

    async def reset(self, ref: TaskRef, *, by: str | None = None) -> Task:
        """Back to ENABLED with a fresh repeat count, from ERROR or COMPLETED too."""

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=task.spec, status=TaskStatus.ENABLED, recount=task.fired > 0)

        task = await self._store.change_task((await self.get(ref)).id, edit, by=by)
        self._wake([task])
        return task

    async def delete(
        self,
        ref: TaskRef,
        removal: Removal = Removal(),  # noqa: B008 - frozen
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        scope.check_force(force=removal.force)
        try:
            task_id = (await self.get(ref)).id
            task = await self._store.delete_task(
                task_id, by=by, expect_version=expect_version, **msgspec.structs.asdict(removal)
            )
        except InvalidState as error:
            raise scope.without_names(error) from None
        self._wake([task])
        return task

    async def skip(self, ref: TaskRef, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots are skipped; 0 takes it back, -1 skips until it is taken back."""
        if not -1 <= count <= 1_000_000:
            raise InvalidArgument.field("count", f"is {count}; expected -1 to 1000000")
        return await self._store.skip_next((await self.get(ref)).id, count, by=by)

    async def set_status_where(self, query: TaskQuery, status: TaskStatus, *, by: str | None = None) -> int:
        """Enable or disable every task that the query finds, but those in ERROR; how many were changed."""
        unlike = (status, TaskStatus.ERROR)
        ids = [task.id async for task in every(self._store.tasks, query) if task.status not in unlike]
        return len(await self.set_status(ids, status, by=by))

    async def set_status(self, ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        """Enable or disable these, but those in ERROR; those that were changed.

        In batches, so that other transactions do not wait long. One that is deleted or errs meanwhile does not keep the
        others as they were.
        """
        changed: list[Task] = []
        for start in range(0, len(ids), _BATCH):
            changed += await self._store.set_status(ids[start : start + _BATCH], status, by=by)
        if changed:
            for topic in (PLAN, ORDERS, ANY_QUEUE):
                self._wakeup.signal(topic)
        return changed

    async def _set_status(
        self,
        ref: TaskRef,
        status: TaskStatus,
        by: str | None,
        expect_version: int | None,
        pause: TaskPause | None = None,
    ) -> Task:
        task_id = (await self.get(ref)).id

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=task.spec, status=_turned(task, status), pause=pause)

        task = await self._store.change_task(task_id, edit, by=by, expect_version=expect_version)
        self._wake([task])
        return task

    def _created(self, created: Sequence[Task]) -> None:
        """Signal the planner where the first slot is near. Before one that is further away, every planner looks by
        itself.
        """
        if any(task.next_fire_at is not None and task.next_fire_at - task.created_at < _NEAR for task in created):
            self._wakeup.signal(PLAN)
        note_commands(created)

    def _changed(self, changed: Sequence[Task]) -> None:
        self._wake(changed)
        note_commands(changed)

    def _wake(self, changed: Sequence[Task]) -> None:
        """A cursor may be nearer, a limit that was raised lets runs go, and a worker may have lost its right to one."""
        for topic in (PLAN, ORDERS, *sorted({queue_topic(task.spec.queue) for task in changed})):
            self._wakeup.signal(topic)


async def _each_of(given: Sequence[Any], problems: Problems) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
    """Each of a list with its place, until no further problem could be named. Others have their turn meanwhile."""
    if not 1 <= len(given) <= MOST_TASKS:
        problems.add("tasks", f"are {len(given)}; expected 1 to {MOST_TASKS}")
        return
    for index, fields in enumerate(given):
        if problems.are_enough:
            return
        if index % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if isinstance(fields, Mapping):
            yield index, fields
        else:
            problems.add(f"tasks[{index}]", f"is {quoted(fields)}; expected an object")


class _Places:
    """Which task each of a list is about: one place for each task."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._first: dict[TaskId, int] = {}

    def read(self, index: int, fields: Mapping[str, Any]) -> tuple[TaskId, int | None]:
        given, version = fields.get("id"), None
        is_id = isinstance(given, int) and not isinstance(given, bool) and 0 < given < 2**53
        task_id = TaskId(given if is_id and isinstance(given, int) else 0)
        if not is_id:
            self._problems.add(f"tasks[{index}].id", f"is {quoted(given)}; expected the id of a task")
        elif (first := self._first.setdefault(task_id, index)) != index:
            self._problems.add(
                f"tasks[{index}].id", f"is {task_id}, as that of tasks[{first}]; expected each task once"
            )
        try:
            version = _expected(fields, None)
        except InvalidArgument as error:
            self._problems.take(error, under=f"tasks[{index}]")
        return task_id, version


def _turned(task: Task, status: TaskStatus | None) -> TaskStatus:
    """The status that a task gets. One that has lost its right to run gets it back by a reset, and by nothing else."""
    if status is None:
        return task.status
    if task.status is TaskStatus.ERROR:
        raise InvalidState(
            "task {task} is in ERROR; reset it first", task=repr(task.name), details={"status": task.status}
        )
    return status


def _expected(given: Mapping[str, Any], expect_version: int | None) -> int | None:
    """The version that the caller has seen: from `If-Match`, or from the body."""
    said = given.get("version")
    if said is None:
        return expect_version
    if isinstance(said, bool) or not isinstance(said, int):
        raise InvalidArgument.field("version", f"is {said!r}; expected the version that was read, a number")
    if expect_version is not None and expect_version != said:
        raise InvalidArgument.field("version", f"is {said}, but If-Match says {expect_version}")
    return said


_MERGED: Final = ("retry_policy", "circuit", "rate_limit", "fanout", "after", "dst", *MESSAGE_FIELDS)
"""A partial change of these names single fields; any other field is replaced as a whole."""

_BY_KIND: Final = ("timeout_seconds", "retry_policy", "max_concurrency")
"""Their default depends on the kind of target."""


def written(spec: TaskSpec) -> dict[str, Any]:
    """The fields as a caller would write them, secrets included. Not for answers."""
    fields: dict[str, Any] = msgspec.to_builtins(spec)
    for name in ("start_at", "end_at"):
        fields[name] = rfc3339_or_none(fields[name])
    return fields


def named_upstreams(after: dict[str, Any] | None, names: Mapping[int, str] | None) -> dict[str, Any] | None:
    """`after` of a stored task, with the names of the tasks where they have one."""
    if after is None or not names:
        return after
    return {**after, "tasks": [{**each, "task": names.get(each["task"], each["task"])} for each in after["tasks"]]}


def masked_fields(spec: TaskSpec, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """The fields as a caller would write them, secrets masked. `names` of the tasks that it runs after."""
    fields = secrets.masked_fields(written(spec))
    return {**fields, "after": named_upstreams(fields["after"], names)}


def shown(task: Task, activity: Activity, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Every field of a task, for answers: times as RFC 3339, secrets masked. `names` of the tasks that it runs after."""
    fields = masked_fields(task.spec, names)
    return {
        "id": task.id,
        "name": fields.pop("name"),
        "status": task.status,
        "version": task.version,
        **fields,
        "cron_expr": cron_expr(task.spec),
        "cron_dialect": cron_dialect(task.spec),
        "skip_next": task.skip_next,
        "pause": None if task.pause is None else plain(task.pause),
        "created_by": task.created_by,
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
        "next_fire_at": rfc3339_or_none(task.next_fire_at),
        "last_run_id": activity.last_run_id,
        "last_run_at": rfc3339_or_none(activity.last_run_at),
        "last_run_status": activity.last_run_status,
        "active_runs": activity.active_runs,
        "queued_runs": activity.queued_runs,
    }


def cron_expr(spec: TaskSpec) -> str | None:
    """The short form of a cron schedule, in six fields; None for any other."""
    schedule = spec.schedule
    return str(schedule["expr"]) if schedule is not None and schedule["type"] == "cron" else None


def cron_dialect(spec: TaskSpec) -> str | None:
    """How `cron_expr` is to be read; None where there is none."""
    schedule = spec.schedule
    if schedule is None or schedule["type"] != "cron":
        return None
    return str(schedule.get("dialect", CronDialect.STANDARD))


def replaced(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a full change asks for: `given` alone, with the secrets that it shows as masked."""
    fields = _without_echo(task, given)
    fields.setdefault("managed_by", task.spec.managed_by)
    refuse_carried(task.spec, given, fields)
    return fields


def merged(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a partial change asks for: `given` laid over what the task says now."""
    fields = _without_echo(task, given)
    base = _base_for(task.spec, fields)
    for name in _MERGED:
        if isinstance(fields.get(name), Mapping) and base.get(name) is not None:
            fields[name] = {**base[name], **fields[name]}
    if fields.get("schedules"):
        base.pop("schedule", None)
    elif fields.get("schedule") is not None or fields.get("cron_expr") is not None:
        base.pop("schedules", None)
    kept: dict[str, Any] = base.get("schedule") or {}
    is_cron = kept.get("type") == "cron"
    if fields.get("cron_dialect") is not None and is_cron and not {"cron_expr", "schedule"} & fields.keys():
        fields["cron_expr"] = kept.get("source") or kept["expr"]
    if "cron_expr" in fields:
        base.pop("schedule", None)
        if fields["cron_expr"] is not None and is_cron:
            # The rest of a cron schedule (dialect, repeat) stays when its expression changes.
            rest = {name: value for name, value in kept.items() if name != "source"}
            dialect = fields.pop("cron_dialect", None) or rest.get("dialect")
            fields["schedule"] = {**rest, "dialect": dialect, "expr": fields.pop("cron_expr")}
    made = {**base, **fields}
    refuse_carried(task.spec, given, made)
    return made


def _without_echo(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` without what is only an answer sent back: read-only fields, masks, the schedule in both its forms."""
    fields = secrets.unmasked_fields({name: value for name, value in given.items() if name not in READ_ONLY}, task.spec)
    if fields.get("status") == task.status:
        del fields["status"]
    is_same_dialect = fields.get("cron_dialect") in (None, cron_dialect(task.spec))
    if "schedule" in fields and "cron_expr" in fields:
        # An answer has both. The one that was not touched is an echo; with both changed, the caller has to choose.
        if fields["cron_expr"] == cron_expr(task.spec) and (
            is_same_dialect or fields["schedule"] != task.spec.schedule
        ):
            del fields["cron_expr"]
        elif fields["schedule"] == task.spec.schedule:
            del fields["schedule"]
    if is_same_dialect and fields.get("cron_expr") is None:
        fields.pop("cron_dialect", None)
    _drop_echo_of_schedules(task.spec, fields)
    return fields


def _drop_echo_of_schedules(spec: TaskSpec, fields: dict[str, Any]) -> None:
    """An answer has `schedule` and `schedules`, one of them empty. Where the other one was filled in, the first is an echo."""
    several = fields.get("schedules")
    if not several or not isinstance(several, list | tuple):
        return
    if fields.get("schedule") is not None or fields.get("cron_expr") is not None:
        if list(several) == list(spec.schedules):
            fields["schedules"] = []
        elif fields.get("cron_expr") in (None, cron_expr(spec)) and fields.get("schedule") in (None, spec.schedule):
            fields |= {"schedule": None, "cron_expr": None}


def _base_for(spec: TaskSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What the task says now, as far as it survives a change of the kind of its target."""
    base = written(spec)
    kind = spec.target_kind
    named = (each for each in TARGET_KINDS[:-1] if changes.get(each.named_by))
    wanted = target_kind(changes["exec_type"], {}) if changes.get("exec_type") else next(named, kind)
    if wanted is kind:
        return base
    plain = TaskSpec(name="x", exec_type=spec.exec_type)
    gone = {"exec_type", "queue", *kind.fields}
    gone.update(name for name in _BY_KIND if getattr(spec, name) == getattr(plain, name))
    return {name: value for name, value in base.items() if name not in gone}


def check_new(given: Mapping[str, Any]) -> None:
    """A task that is made anew has no history to name."""
    problems = Problems()
    for name in given:
        if name in READ_ONLY:
            problems.add(name, "is read-only; leave it out of a new task")
    problems.finish()
