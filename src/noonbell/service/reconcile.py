"""Bring the tasks of one owner to what is declared for them: by a settings file, by code, by a folder of files.

An owner is what `managed_by` says: `file:NAME`, `code:NAME`. Owners never touch each other's tasks, nor those that
somebody made by the API: such a name is told as foreign and left alone, unless the caller adopts it.

All declarations are read before anything is written, so a slip in one of them changes nothing. Each task is then its
own transaction: whoever dies half way through is finished by the next one, and a second node that does the same at the
same time finds nothing left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.errors import AlreadyExists, InvalidArgument, NotFound, VersionConflict
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskStatus
from noonbell.service.reader import MOST_PROBLEMS
from noonbell.service.task_fields import Draft
from noonbell.service.tasks import SYSTEM

if TYPE_CHECKING:
    from noonbell.service import Services

_TRIES: Final = 5
"""How often a task that others create or delete at the same moment is looked at again."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of each name, in the order of the declarations."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Names that belong to somebody else, with that owner: left as they were."""


class _Foreign(Exception):
    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


async def check(services: Services, declared: Sequence[Mapping[str, Any]], *, path: str = "tasks") -> None:
    """Read every declaration. InvalidArgument names each problem as `tasks[NAME].field`; nothing is written."""
    problems: dict[str, str] = {}
    seen: dict[str, dict[str, Any]] = {"name": {}, "external_id": {}}
    for number, fields in enumerate(declared):
        if len(problems) >= MOST_PROBLEMS:
            break
        await asyncio.sleep(0)  # others have their turn: thousands of tasks take a good part of a second
        name = fields.get("name")
        place = f"{path}[{name if isinstance(name, str) and name else number}]"
        try:
            await services.tasks.check(_new(fields, "api"))
        except InvalidArgument as error:
            problems.update({f"{place}.{key}": str(problem) for key, problem in error.details.items()})
        for key, taken in seen.items():
            value = fields.get(key)
            if isinstance(value, str) and value in taken:
                problems[f"{place}.{key}"] = f"is {value!r} a second time; expected one task for each {key}"
            elif isinstance(value, str):
                taken[value] = True
    if problems:
        raise InvalidArgument.fields(problems)


async def reconcile(
    services: Services,
    owner: str,
    declared: Sequence[Mapping[str, Any]],
    *,
    by: str,
    prune: bool = False,
    adopt: bool | Collection[str] = False,
    dry_run: bool = False,
    path: str = "tasks",
    versions: Mapping[str, int] | None = None,
) -> Report:
    """Create what is missing, change what differs, with `prune` delete what `owner` has and no longer declares.

    A field that a declaration leaves out has its default. The status is an exception: somebody's pause stays, unless
    the declaration names a status, and COMPLETED and ERROR are not undone. A task that is as declared is not written to.
    `adopt` takes over tasks of other owners: of all of them, or of those it names. With `dry_run` the report says what
    would be done. `path` is what problems are named under. `versions` are those that the caller has seen: a task of
    another version raises VersionConflict, and is left as it is.
    """
    await check(services, declared, path=path)
    names = {str(fields["name"]) for fields in declared}
    found: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
    foreign: dict[str, str] = {}
    # First, so that a task that was renamed can keep its external id.
    pruned = await _prune(services, owner, names, by=by, dry_run=dry_run) if prune else []
    for fields in declared:
        await asyncio.sleep(0)
        name = str(fields["name"])
        seen = (versions or {}).get(name)
        one = _One(services, owner, _new(fields, owner), by, adopt, dry_run=dry_run, seen=seen)
        try:
            found[await one.settle()].append(name)
        except _Foreign as other:
            foreign[name] = other.owner
        except AlreadyExists as error:
            # The name was looked at, so it is the external id that another task has.
            raise AlreadyExists(
                f"{path}[{name}].{error.message}",
                details={f"{path}[{name}].{key}": value for key, value in error.details.items()},
            ) from None
    return Report(**{kind: tuple(each) for kind, each in found.items()}, pruned=tuple(pruned), foreign=foreign)


def _new(fields: Mapping[str, Any], owner: str) -> dict[str, Any]:
    return {**fields, "managed_by": owner}


class _One:
    """One declaration on its way into the store."""

    def __init__(
        self,
        services: Services,
        owner: str,
        fields: dict[str, Any],
        by: str,
        adopt: bool | Collection[str],
        *,
        dry_run: bool,
        seen: int | None = None,
    ) -> None:
        self._services = services
        self._owner = owner
        self._fields = fields
        self._by = by
        self._adopt = adopt
        self._dry_run = dry_run
        self._seen = seen

    async def settle(self) -> str:
        """`created`, `changed` or `unchanged`; raises _Foreign. Another node may do the same meanwhile."""
        for left in reversed(range(_TRIES)):
            task = await self._services.store.task_named(self._fields["name"])
            try:
                return await (self._create() if task is None else self._change(task))
            except NotFound:
                if not left:
                    raise
            except AlreadyExists as error:
                if not left or "name" not in error.details:
                    raise
        raise NotFound("there is no such task")  # pragma: no cover - the last try raises

    async def _create(self) -> str:
        if not self._dry_run:
            await self._services.tasks.create(self._fields, by=self._by)
        return "created"

    async def _change(self, task: Task) -> str:
        self._refuse(task)
        fields = {**self._fields, **await self._status(task)}
        draft = await self._services.tasks.draft_of_change(task, fields)
        if _is_as_drafted(task, draft):
            return "unchanged"
        if self._dry_run:
            return "changed"
        changed = await self._services.tasks.change(task.id, fields, partial=False, by=self._by, inspect=self._refuse)
        return "unchanged" if changed.version == task.version else "changed"

    def _refuse(self, task: Task) -> None:
        """What is not ours, and what is not as the caller has seen it."""
        owner = task.spec.managed_by
        if owner != self._owner and (owner == SYSTEM or not self._may_adopt(owner)):
            raise _Foreign(owner)
        if self._seen is not None and task.version != self._seen:
            raise VersionConflict(
                f"{task.name} is at version {task.version}, not {self._seen}; somebody changed it, look again",
                details={"name": task.name, "version": task.version},
            )

    def _may_adopt(self, owner: str) -> bool:
        return self._adopt if isinstance(self._adopt, bool) else owner in self._adopt

    async def _status(self, task: Task) -> dict[str, Any]:
        """What becomes of the status, and of an operator's wish to skip slots, which is no part of a declaration."""
        asked = self._fields.get("status")
        kept: dict[str, Any] = {"skip_next": None, "status": asked}
        if asked == TaskStatus.ENABLED and task.status in (TaskStatus.COMPLETED, TaskStatus.ERROR):
            kept["status"] = None
        elif asked is None and task.status is TaskStatus.DISABLED and await self._disabled_by_owner(task):
            kept["status"] = str(TaskStatus.ENABLED)
        return kept

    async def _disabled_by_owner(self, task: Task) -> bool:
        """Whether an earlier declaration switched it off, and no person: the one that says nothing switches it on."""
        who: str | None = None
        before: TaskStatus | None = None
        for version in await self._services.store.task_versions(task.id):
            if version.status is TaskStatus.DISABLED and before is not TaskStatus.DISABLED:
                who = version.changed_by
            before = version.status
        return who == self._owner


def _is_as_drafted(task: Task, draft: Draft) -> bool:
    return draft.spec == task.spec and draft.status in (None, task.status)


async def _prune(services: Services, owner: str, names: Collection[str], *, by: str, dry_run: bool) -> list[str]:
    gone: list[Task] = []
    query = TaskQuery(managed_by=owner, include_system=True, page_size=500)
    while True:
        page = await services.store.tasks(query)
        gone += [task for task in page.items if task.name not in names and task.spec.managed_by == owner]
        if page.next_cursor is None:
            break
        query = msgspec.structs.replace(query, cursor=page.next_cursor)
    for task in gone:
        if not dry_run:
            try:
                await services.tasks.delete(task.id, by=by)
            except NotFound:
                continue  # another node was quicker
    return [task.name for task in gone]
