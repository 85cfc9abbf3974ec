"""Tasks: create, read, change, enable, disable, delete, skip, reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from noonbell.clock import Instant
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound
from noonbell.model.request import Page, TaskChange, TaskQuery
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.ports import Store, Wakeup
from noonbell.service import secrets, task_json
from noonbell.service.activity import Activity, activities
from noonbell.service.naming import TaskRef
from noonbell.service.rules import Rules
from noonbell.service.task_fields import Draft, read_task

SYSTEM: Final = "system"
"""Who manages a task that is built in."""

_BATCH: Final = 200
"""Tasks that one transaction enables or disables."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How a task is deleted: see `Store.delete_task`."""

    cancel_running: bool = False
    purge: bool = False


class Tasks:
    def __init__(self, store: Store, wakeup: Wakeup, rules: Rules) -> None:
        self._store = store
        self._wakeup = wakeup
        self._rules = rules

    async def create(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        """Raises InvalidArgument with every wrong field, AlreadyExists for a name that is taken."""
        task_json.check_new(given)
        draft = self._sealed(read_task(given, await self._store.now(), self._rules))
        status = draft.status or TaskStatus.ENABLED
        task = await self._store.create_task(draft.spec, status=status, by=by, skip_next=draft.skip_next or 0)
        self._wakeup.signal("plan")
        return task

    async def check(self, given: Mapping[str, Any]) -> TaskSpec:
        """What `create` would make of it; nothing is written."""
        task_json.check_new(given)
        return self._sealed(read_task(given, await self._store.now(), self._rules)).spec

    async def draft_of_change(self, task: Task, given: Mapping[str, Any]) -> Draft:
        """What a full `change` would make of the task; nothing is written."""
        return self._drafted(task, task_json.replaced(self.opened(task), given), await self._store.now())

    def opened(self, task: Task) -> Task:
        """The task with its secrets as they are: for whoever reads its fields anew. Not for answers."""
        return msgspec.structs.replace(task, spec=secrets.opened_where_possible(task.spec, self._rules.sealer))

    def _sealed(self, draft: Draft, kept: TaskSpec | None = None) -> Draft:
        return replace(draft, spec=secrets.sealed(draft.spec, self._rules.sealer, kept))

    async def get(self, ref: TaskRef, *, deleted: bool = False) -> Task:
        """The task; with `deleted`, one that is deleted too, by its id. NotFound else."""
        task = await (self._store.task_named(ref) if isinstance(ref, str) else self._store.task(ref))
        if task is None or (task.deleted_at is not None and not deleted):
            raise NotFound("there is no such task")
        return task

    async def show(self, task: Task, doing: Activity | None = None) -> dict[str, Any]:
        """The task as an answer shows it; what its runs are `doing` is asked for, unless it is known already."""
        if doing is None:
            doing = (await activities(self._store, [task.id])).get(task.id, Activity())
        return task_json.shown(task, doing)

    async def versions(self, task: Task) -> list[TaskVersion]:
        """Every version that it had, oldest first, secrets included. Not for answers as it is."""
        return await self._store.task_versions(task.id)

    async def page(self, query: TaskQuery) -> Page[dict[str, Any]]:
        page = await self._store.tasks(query)
        found = await activities(self._store, [task.id for task in page.items])
        items = [task_json.shown(task, found.get(task.id, Activity())) for task in page.items]
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
        expect_version = _expected(given, expect_version)

        def edit(task: Task) -> TaskChange:
            if inspect is not None:
                inspect(task)
            plain = self.opened(task)
            fields = task_json.merged(plain, given) if partial else task_json.replaced(plain, given)
            draft = self._drafted(task, fields, now)
            return TaskChange(spec=draft.spec, status=_turned(task, draft.status), skip_next=draft.skip_next)

        task = await self._store.change_task(task_id, edit, by=by, expect_version=expect_version)
        self._wake(task)
        return task

    def _drafted(self, task: Task, fields: dict[str, Any], now: Instant) -> Draft:
        """The fields of a change, read. A built-in task keeps its name and stays built in."""
        if task.spec.managed_by != SYSTEM:
            return self._sealed(read_task(fields, now, self._rules, kept=task.spec.schedule), task.spec)
        for name, kept in (("managed_by", SYSTEM), ("name", task.name)):
            if fields.get(name) not in (None, kept):
                raise InvalidArgument.field(name, f"is {kept!r} for this task, which is built in; leave it as it is")
        draft = read_task({**fields, "name": task.name, "managed_by": None}, now, self._rules, kept=task.spec.schedule)
        return self._sealed(replace(draft, spec=msgspec.structs.replace(draft.spec, managed_by=SYSTEM)), task.spec)

    async def create_built_in(self, given: Mapping[str, Any]) -> Task | None:
        """Make a task that every installation has, unless it is there. None: somebody else has a task of that name.

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
            self._wakeup.signal("plan")
        return task if task.spec.managed_by == SYSTEM else None

    async def enable(self, ref: TaskRef, *, by: str | None = None, expect_version: int | None = None) -> Task:
        """From now on, with no catch-up. Enabling what is enabled changes nothing."""
        return await self._set_status(ref, TaskStatus.ENABLED, by, expect_version)

    async def disable(self, ref: TaskRef, *, by: str | None = None, expect_version: int | None = None) -> Task:
        return await self._set_status(ref, TaskStatus.DISABLED, by, expect_version)

    async def reset(self, ref: TaskRef, *, by: str | None = None) -> Task:
        """Back to ENABLED with a fresh repeat count, from ERROR or COMPLETED too."""

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=task.spec, status=TaskStatus.ENABLED, recount=task.fired > 0)

        task = await self._store.change_task((await self.get(ref)).id, edit, by=by)
        self._wake(task)
        return task

    async def delete(
        self,
        ref: TaskRef,
        removal: Removal = Removal(),  # noqa: B008 - frozen
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        task = await self._store.delete_task(
            (await self.get(ref)).id,
            by=by,
            cancel_running=removal.cancel_running,
            purge=removal.purge,
            expect_version=expect_version,
        )
        self._wake(task)
        return task

    async def skip(self, ref: TaskRef, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots are skipped; 0 takes it back, -1 skips until it is taken back."""
        if not -1 <= count <= 1_000_000:
            raise InvalidArgument.field("count", f"is {count}; expected -1 to 1000000")
        return await self._store.skip_next((await self.get(ref)).id, count, by=by)

    async def set_status_where(self, query: TaskQuery, status: TaskStatus, *, by: str | None = None) -> int:
        """Enable or disable every task that the query finds, but those in ERROR; how many were changed."""
        ids: list[TaskId] = []
        cursor: str | None = None
        while True:
            page = await self._store.tasks(msgspec.structs.replace(query, page=1, page_size=500, cursor=cursor))
            ids += [task.id for task in page.items if task.status not in (status, TaskStatus.ERROR)]
            cursor = page.next_cursor
            if cursor is None:
                break
        return len(await self.set_status(ids, status, by=by))

    async def set_status(self, ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        """Enable or disable these, but those in ERROR; those that were changed.

        In batches, so that nobody waits long for one of them. One that is deleted or errs meanwhile does not keep the
        others as they were.
        """
        changed: list[Task] = []
        for start in range(0, len(ids), _BATCH):
            changed += await self._store.set_status(ids[start : start + _BATCH], status, by=by)
        if changed:
            self._wakeup.signal("plan")
            self._wakeup.signal("orders")
            self._wakeup.signal("queue:*")
        return changed

    async def _set_status(self, ref: TaskRef, status: TaskStatus, by: str | None, expect_version: int | None) -> Task:
        task_id = (await self.get(ref)).id

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=task.spec, status=_turned(task, status))

        task = await self._store.change_task(task_id, edit, by=by, expect_version=expect_version)
        self._wake(task)
        return task

    def _wake(self, task: Task) -> None:
        """Its cursor may be nearer, a limit that was raised lets runs go, and a worker may have lost its right to one."""
        self._wakeup.signal("plan")
        self._wakeup.signal("orders")
        self._wakeup.signal(f"queue:{task.spec.queue}")


def _turned(task: Task, status: TaskStatus | None) -> TaskStatus:
    """The status that a task gets. One that has lost its right to run gets it back by a reset, and by nothing else."""
    if status is None:
        return task.status
    if task.status is TaskStatus.ERROR:
        raise InvalidState(
            f"task {task.name!r} is in ERROR: it has lost its right to run; reset it first",
            details={"status": task.status},
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
