"""Tasks as files: what applying them would change, applying them, and a task written as a file (`noonbell export`).

`reconcile` brings the tasks of one owner to what is declared for them: by a settings file, by code, by a folder of
files. An owner is what `managed_by` says: `file:NAME`, `code:NAME`. Owners never touch each other's tasks, nor those
made by the API: such a name is reported as foreign and left alone, unless the caller adopts it.

All declarations are read before anything is written, so a slip in one of them changes nothing. Tasks that are pruned
are then deleted in one transaction, new ones are created in one, and those that differ are changed in one: what a
process that dies between them has left is done by the next one, and a second node that does the same at the same time
finds nothing left to do. Where a name or external id stands in the way, or another node was faster, each task is looked
at by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from noonbell import when
from noonbell.clock import instant_of, rfc3339_or_none, slot_of
from noonbell.errors import (
    AlreadyExists,
    Forbidden,
    InvalidArgument,
    InvalidState,
    NoonbellError,
    NotFound,
    ScheduleError,
    VersionConflict,
)
from noonbell.fields import Moment, brief, meta, table
from noonbell.fields.problems import MOST_PROBLEMS
from noonbell.model.account import Activity
from noonbell.model.request import TaskQuery
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.task_schedule import WHEN_FIELDS
from noonbell.policy.joins import closed_path
from noonbell.service import scope, secrets, tasks
from noonbell.service.filters import every
from noonbell.service.task_fields import READ_ONLY, VERSION, Draft, TaskWrite
from noonbell.service.tasks import SYSTEM, Replacement
from noonbell.service.tasks import written as whole
from noonbell.when import due
from noonbell.when.cron import Cron
from noonbell.when.cron_fields import CronDialect

if TYPE_CHECKING:
    from noonbell.service import Services


MOST_TASKS = 5_000


class TaskInFile(TaskWrite, frozen=True, kw_only=True):
    """A task of a file: as for `POST /tasks`, with the version that its writer has seen."""

    managed_by: Annotated[str, meta("The same as `owner`.", read_only=True)] = "api"
    version: Annotated[Any, VERSION] = msgspec.UNSET


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one owner, as a file has them."""

    noun: ClassVar[str] = "an apply"
    example: ClassVar[dict[str, Any]] = {
        "owner": "billing",
        "tasks": [{"name": "nightly-report", "cron_expr": "0 2 * * *", "target_url": "http://reports.internal/run"}],
        "dry_run": True,
    }

    owner: Annotated[
        str,
        meta(
            "A name for this set of tasks.",
            min_length=1,
            max_length=200,
            pattern=r"[\w./ -]{1,200}",
            expected="a name for this set of tasks, such as billing",
            missing="a name for this set of tasks, such as billing",
        ),
    ]
    tasks: Annotated[
        list[Annotated[TaskInFile, meta(anything=True, expected="a task")]],
        meta(
            "Each as for `POST /tasks`.",
            max_length=MOST_TASKS,
            expected=f"a list of at most {MOST_TASKS} tasks",
        ),
    ]
    prune: Annotated[bool, meta("Delete the owner's tasks that are no longer listed.")] = False
    adopt: Annotated[bool, meta("Take over tasks of another owner.")] = False
    dry_run: Annotated[bool, meta("Only report what would change.")] = False


class ChangedTask(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, meta(examples=["sync_stats"])]
    version: Annotated[int, meta(examples=[3])]
    fields: Annotated[
        dict[str, list[Any]], meta("Before and after, by field.", examples=[{"timeout_seconds": [10, 30]}])
    ]
    next_before: Moment | None
    next_after: Moment | None
    running: Annotated[int, meta(examples=[1])]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: Annotated[bool, meta(examples=[True])]
    created: Annotated[list[str], meta(examples=[["nightly-report"]])]
    changed: list[ChangedTask]
    unchanged: list[str]
    pruned: list[str]


_MOST_NAMED = 5
"""Tasks of other owners that the message names; its details have all."""


def _taken(foreign: Mapping[str, str]) -> AlreadyExists:
    taken = {f"tasks[{name}]": f"belongs to {owner}" for name, owner in foreign.items()}
    told = [f"{place} {said}" for place, said in list(taken.items())[:_MOST_NAMED]]
    if len(taken) > _MOST_NAMED:
        told.append(f"{len(taken) - _MOST_NAMED} more")
    told.append('a file changes only its own tasks: --adopt makes these its own ("adopt": true over HTTP)')
    return AlreadyExists("; ".join(told), details=taken)


class Applying:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def apply(
        self,
        owner: str,
        declared: Sequence[Mapping[str, Any]],
        *,
        by: str | None = None,
        prune: bool = False,
        adopt: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """All of it, or nothing: a problem in one task, another owner's task, or one that has changed, stops the whole.

        A `version` in a task is the one that its writer has seen. With `dry_run` nothing is written. The answer says for
        each changed task what was and what is, and what that does to its next slot.
        """
        if len(declared) > MOST_TASKS:
            raise InvalidArgument.field("tasks", f"has {len(declared)} tasks; expected at most {MOST_TASKS}")
        versions = {str(task.get("name")): task["version"] for task in declared if isinstance(task.get("version"), int)}
        plain = [await self._plain(task) for task in declared]
        reconciled = partial(reconcile, self._services, owner, plain, by=by or owner, prune=prune, adopt=adopt)
        planned = await reconciled(dry_run=True, versions=versions)
        if planned.foreign:
            raise _taken(planned.foreign)
        changes = [await self._change(owner, fields) for fields in plain if fields["name"] in planned.changed]
        report = planned
        if not dry_run:
            # As planned, or not at all: what was changed in between is not overwritten.
            seen = {change["name"]: change["version"] for change in changes} | versions
            report = await reconciled(versions=seen)
        return {
            "dry_run": dry_run,
            "created": list(report.created),
            "changed": [change for change in changes if change["name"] in report.changed],
            "unchanged": list(report.unchanged),
            "pruned": list(report.pruned),
        }

    async def _plain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The task without its version, and with the secrets that an export shows as masked."""
        plain = {name: value for name, value in fields.items() if name != "version"}
        if not secrets.hides_secrets(fields) or not isinstance(fields.get("name"), str):
            return plain
        found = await self._services.store.task_named(str(fields["name"]))
        if found is None:
            return plain
        task = self._services.tasks.opened(found)
        plain = secrets.unmasked_fields(plain, task.spec)
        if fields.get("secret") == secrets.MASK:
            plain["secret"] = task.spec.secret
        secrets.refuse_carried(task.spec, fields, plain)
        return plain

    async def _change(self, owner: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        task = await self._services.tasks.get(str(fields["name"]))
        draft = await self._services.tasks.draft_of_change(task, fields)
        doing = (await self._services.store.activity([task.id])).get(task.id, Activity())
        differences = _differences(task, draft)
        if "after" in differences:
            both = [task, msgspec.structs.replace(task, spec=draft.spec)]
            names = await self._services.tasks.upstream_names(both)
            differences["after"] = [tasks.named_upstreams(each, names) for each in differences["after"]]
        return {
            "name": task.name,
            "version": task.version,
            "fields": {**_adoption(task, owner), **differences},
            "next_before": rfc3339_or_none(task.next_fire_at),
            "next_after": rfc3339_or_none(await self._next_after(task, draft)),
            "running": doing.active_runs,
        }

    async def _next_after(self, task: Task, draft: Draft) -> int | None:
        """The cursor that the change leads to: kept, unless it is about when."""
        spec, was = draft.spec, task.spec
        schedule = when.of_task(spec)
        if schedule is None:
            return None
        is_same = all(getattr(spec, name) == getattr(was, name) for name in WHEN_FIELDS)
        if is_same and draft.status in (None, task.status):
            return task.next_fire_at
        from noonbell.policy.account import bounds_of

        now = await self._services.store.now()
        slot = due.initial(schedule, bounds_of(spec), slot_of(now))
        return None if slot is None or (draft.status or task.status) != "ENABLED" else instant_of(slot)


def _adoption(task: Task, owner: str) -> dict[str, list[Any]]:
    return {} if task.spec.managed_by == owner else {"managed_by": [task.spec.managed_by, owner]}


def _differences(task: Task, draft: Draft) -> dict[str, list[Any]]:
    before, after = tasks.written(task.spec), tasks.written(draft.spec)
    found = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    if draft.status is not None and draft.status is not task.status:
        found["status"] = [task.status, draft.status]
    return {name: [secrets.masked_value(name, each) for each in both] for name, both in found.items()}


_TRIES: Final = 5
"""How often a task that others create or delete at the same moment is looked at again."""
_NAMED: Final = 5
"""Followers that an error names."""


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What became of each name, in the order of the declarations."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Names that belong to another owner, with that owner: left as they were."""


class _Foreign(Exception):
    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def places_of(declared: Sequence[Mapping[str, Any]], path: str = "tasks") -> list[str]:
    """Where each one is: `tasks[NAME]`, by its number without a name, and `tasks[NUMBER] NAME` where several have that name."""
    times = Counter(name for fields in declared if isinstance(name := fields.get("name"), str))
    found: list[str] = []
    for number, fields in enumerate(declared):
        name = fields.get("name")
        is_named = isinstance(name, str) and name
        several = is_named and times[str(name)] > 1
        found.append(f"{path}[{number}] {name}" if several else f"{path}[{name if is_named else number}]")
    return found


async def check(services: Services, declared: Sequence[Mapping[str, Any]], *, path: str = "tasks") -> None:
    """Read every declaration. InvalidArgument names each problem by `places_of` and field; nothing is written."""
    problems: dict[str, str] = {}
    seen: dict[str, dict[str, Any]] = {"name": {}, "external_id": {}}
    for place, fields in zip(places_of(declared, path), declared, strict=True):
        if len(problems) >= MOST_PROBLEMS:
            break
        await asyncio.sleep(0)  # others have their turn: thousands of tasks take a good part of a second
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
    problems.update(await _upstream_problems(services, declared, path))
    if problems:
        raise InvalidArgument.fields(problems)


async def _upstream_problems(services: Services, declared: Sequence[Mapping[str, Any]], path: str) -> dict[str, str]:
    """Tasks to run after that are neither declared nor there, and a cycle, also over tasks that are not declared."""
    before = {str(fields.get("name")): _upstreams_in(fields) for fields in declared}
    ids = sorted({TaskId(each) for listed in before.values() for each in listed if isinstance(each, int)})
    named = {task.id: task.name for task in scope.held(await services.store.tasks_by_id(ids))} if ids else {}
    graph = {
        name: [str(named.get(TaskId(each), each)) if isinstance(each, int) else each for each in listed]
        for name, listed in before.items()
    }
    problems: dict[str, str] = {}
    layer = {each for listed in graph.values() for each in listed} - graph.keys()
    first = True
    while layer:
        found = {task.name: task for task in scope.held((await services.store.tasks_named(layer)).values())}
        if first:
            problems = {
                f"{path}[{name}].after.tasks[{number}].task": f"is {each!r}; there is no such task"
                for name, listed in graph.items()
                for number, each in enumerate(listed)
                if each not in graph and each not in found
            }
        names = await services.tasks.upstream_names(found.values())
        for name, task in found.items():
            ids_of = () if task.spec.after is None else task.spec.after.upstream_ids
            graph[name] = [names[id_] for id_ in ids_of if id_ in names]
        layer, first = {each for name in found for each in graph[name]} - graph.keys(), False
    cycle = closed_path(graph, list(before))
    if cycle:
        name = next(each for each in cycle if each in before)
        problems[f"{path}[{name}].after"] = f"makes a cycle: {' → '.join(cycle)}"
    return problems


def declared_cycle(declared: Sequence[Mapping[str, Any]]) -> list[str]:
    """A cycle among these tasks alone, by their names, the first again at the end; empty if there is none."""
    before = {
        str(fields.get("name")): [each for each in _upstreams_in(fields) if isinstance(each, str)]
        for fields in declared
    }
    return closed_path(before, list(before))


def _upstreams_in(fields: Mapping[str, Any]) -> list[str | int]:
    after = fields.get("after")
    listed = after.get("tasks") if isinstance(after, Mapping) else None
    found = [each.get("task") for each in listed if isinstance(each, Mapping)] if isinstance(listed, Sequence) else []
    return [each for each in found if isinstance(each, str | int)]


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
) -> ReconcileReport:
    """Create what is missing, change what differs, with `prune` delete what `owner` has and no longer declares.

    A field that a declaration leaves out has its default. The status is an exception: an operator's pause stays, unless
    the declaration names a status; one with an end stays in any case; COMPLETED and ERROR are not undone. A task that
    is as declared is not written to. `adopt` takes over tasks of other owners: of all of them, or of those it names.
    With `dry_run` the report says what would be done. `path` is what problems are named under. `versions` are those
    that the caller has seen: a task of another version raises VersionConflict, and is left as it is.
    """
    await check(services, declared, path=path)
    names = {str(fields["name"]) for fields in declared}
    found: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
    foreign: dict[str, str] = {}
    gone = await _undeclared(services, owner, names) if prune else []
    # First, so that a task that was renamed can keep its external id.
    is_pruned = await _prune(services, gone, declared, by=by, dry_run=dry_run)
    standing = await services.store.tasks_named(names)
    missing = [fields for fields in declared if fields["name"] not in standing]
    created = set() if dry_run else await _create_together(services, owner, missing, by=by)
    seen = versions or {}
    ones = {
        name: _One(services, owner, _new(fields, owner), by, adopt, standing.get(name), dry_run, seen.get(name))
        for fields in declared
        if (name := str(fields["name"])) not in created
    }
    known = {name: one for name, one in ones.items() if name in standing}
    settled = {} if dry_run else await _change_together(services, known, by=by, path=path)
    for fields in sorted(declared, key=lambda each: bool(each.get("after"))):  # one that follows no longer makes room
        await asyncio.sleep(0)
        name = str(fields["name"])
        if name in created or name in settled:
            found[settled.get(name, "created")].append(name)
            continue
        one = ones[name]
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
    if not is_pruned:
        await _delete(services, gone, by=by)
    place = {str(fields["name"]): number for number, fields in enumerate(declared)}
    ordered = {kind: tuple(sorted(each, key=place.__getitem__)) for kind, each in found.items()}
    return ReconcileReport(**ordered, pruned=tuple(task.name for task in gone), foreign=foreign)


async def _create_together(
    services: Services, owner: str, declared: Sequence[Mapping[str, Any]], *, by: str
) -> set[str]:
    """The names of those that were created. None, where a name or external id is taken: by what another node has just made, or
    by a task that the same declarations change. Each is then looked at by itself.
    """
    made: set[str] = set()
    with contextlib.suppress(AlreadyExists):
        for start in range(0, len(declared), tasks.MOST_TASKS):
            part = [_new(fields, owner) for fields in declared[start : start + tasks.MOST_TASKS]]
            made |= {task.name for task in await services.tasks.create_many(part, by=by)}
    return made


async def _change_together(services: Services, known: Mapping[str, _One], *, by: str, path: str) -> dict[str, str]:
    """`changed` or `unchanged` by name, of all that were changed in one transaction, and of those that need no change."""
    settled: dict[str, str] = {}
    wanted: dict[str, Replacement] = {}
    for name, one in known.items():
        await asyncio.sleep(0)
        with contextlib.suppress(_Foreign):  # is left out: it is refused when it is looked at by itself
            change = await one.wanted()
            if change is None:
                settled[name] = "unchanged"
            else:
                wanted[name] = change
    names = list(wanted)
    if len(names) < 2:
        return settled
    try:
        for start in range(0, len(names), tasks.MOST_TASKS):
            part = names[start : start + tasks.MOST_TASKS]
            changed = await services.tasks.replace_many([wanted[name] for name in part], by=by)
            for name, task in zip(part, changed, strict=True):
                settled[name] = "unchanged" if known[name].is_as_known(task) else "changed"
    except (AlreadyExists, NotFound, _Foreign):
        return settled
    except NoonbellError as error:
        raise _renamed(error, {f"tasks[{place}]": f"{path}[{name}]" for place, name in enumerate(part)}) from None
    return settled


def _renamed(error: NoonbellError, places: Mapping[str, str]) -> NoonbellError:
    """The same error, with problems named by tasks and not by their places in a batch."""
    details: dict[str, Any] = {}
    for key, problem in error.details.items():
        place, bracket, rest = key.partition("]")
        details[places.get(place + bracket, place + bracket) + rest] = problem
    return type(error)("; ".join(f"{key}: {problem}" for key, problem in details.items()), details=details)


def _new(fields: Mapping[str, Any], owner: str) -> dict[str, Any]:
    return {**fields, "managed_by": owner}


@dataclass(frozen=True, slots=True)
class _One:
    """One declaration on its way into the store."""

    services: Services
    owner: str
    fields: dict[str, Any]
    by: str
    adopt: bool | Collection[str]
    known: Task | None
    """The task as it was found, if it was."""
    dry_run: bool
    seen: int | None
    """The version that the caller has seen."""

    async def settle(self) -> str:
        """`created`, `changed` or `unchanged`; raises _Foreign. Another node may do the same meanwhile."""
        for left in reversed(range(_TRIES)):
            is_first = left == _TRIES - 1
            task = self.known if is_first else await self.services.store.task_named(self.fields["name"])
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
        if not self.dry_run:
            await self.services.tasks.create(self.fields, by=self.by)
        return "created"

    async def _change(self, task: Task) -> str:
        wanted = await self._wanted(task)
        if wanted is None:
            return "unchanged"
        if self.dry_run:
            return "changed"
        changed = await self.services.tasks.change(
            task.id, wanted.given, partial=False, by=self.by, inspect=wanted.inspect
        )
        return "unchanged" if changed.version == task.version else "changed"

    async def wanted(self) -> Replacement | None:
        """What makes the task as it was found like the declaration; None: it is. Raises as `settle`."""
        return None if self.known is None else await self._wanted(self.known)

    def is_as_known(self, task: Task) -> bool:
        return self.known is not None and task.version == self.known.version

    async def _wanted(self, task: Task) -> Replacement | None:
        self._refuse(task)
        fields = {**self.fields, **await self._status(task)}
        draft = await self.services.tasks.draft_of_change(task, fields)
        is_same = draft.spec == task.spec and draft.status in (None, task.status)
        return None if is_same else Replacement(task.id, fields, self._refuse)

    def _refuse(self, task: Task) -> None:
        """What is not ours, what is outside the scope of the request, and what is not as the caller has seen it."""
        if not scope.held([task]):
            raise Forbidden(f"task {task.name!r} is outside the scope of this token: {scope.current()}")
        owner = task.spec.managed_by
        if owner != self.owner and (owner == SYSTEM or not self._may_adopt(owner)):
            raise _Foreign(owner)
        if self.seen is not None and task.version != self.seen:
            raise VersionConflict(
                f"{task.name} is at version {task.version}, not {self.seen}; someone else changed it first; read it"
                " again",
                details={"name": task.name, "version": task.version},
            )

    def _may_adopt(self, owner: str) -> bool:
        return self.adopt if isinstance(self.adopt, bool) else owner in self.adopt

    async def _status(self, task: Task) -> dict[str, Any]:
        """What becomes of the status, and of an operator's wish to skip slots, which is no part of a declaration."""
        asked = self.fields.get("status")
        kept: dict[str, Any] = {"skip_next": None, "status": asked}
        ends = task.pause is not None and task.pause.until is not None
        if asked == TaskStatus.ENABLED and (ends or task.status in (TaskStatus.COMPLETED, TaskStatus.ERROR)):
            kept["status"] = None  # a pause with an end leaves what the file asks for, when it is over
        elif asked is None and task.status is TaskStatus.DISABLED and await self._disabled_by_owner(task):
            kept["status"] = str(TaskStatus.ENABLED)
        return kept

    async def _disabled_by_owner(self, task: Task) -> bool:
        """Whether an earlier declaration switched it off, and no person: the one that says nothing switches it on."""
        who: str | None = None
        before: TaskStatus | None = None
        for version in await self.services.store.task_versions(task.id):
            if version.status is TaskStatus.DISABLED and before is not TaskStatus.DISABLED:
                who = version.changed_by
            before = version.status
        return who == self.owner


async def _undeclared(services: Services, owner: str, names: Collection[str]) -> list[Task]:
    found = every(services.store.tasks, TaskQuery(managed_by=owner, include_system=True, scope=scope.current()))
    return [task async for task in found if task.name not in names and task.spec.managed_by == owner]


async def _delete(services: Services, gone: Sequence[Task], *, by: str) -> None:
    for start in range(0, len(gone), tasks.MOST_TASKS):
        part = gone[start : start + tasks.MOST_TASKS]
        try:
            await services.tasks.delete_many([{"id": task.id} for task in part], by=by)
        except NotFound:
            for task in part:
                with contextlib.suppress(NotFound):  # another node was quicker
                    await services.tasks.delete(task.id, by=by)


async def _prune(
    services: Services, gone: Sequence[Task], declared: Sequence[Mapping[str, Any]], *, by: str, dry_run: bool
) -> bool:
    """Whether they are deleted. Not yet, where those are followed by declared tasks, none of which follows them any longer."""
    by_name = {str(fields["name"]): fields for fields in declared}
    try:
        if not dry_run:
            await _delete(services, gone, by=by)
    except InvalidState:
        await _refuse_held(services, gone, by_name)
        return False
    if dry_run:
        await _refuse_held(services, gone, by_name)
    return True


async def _refuse_held(services: Services, gone: Sequence[Task], declared: Mapping[str, Mapping[str, Any]]) -> None:
    """InvalidState for what cannot be deleted, because others follow it and go on to do so."""
    ids = {int(task.id) for task in gone}
    told: dict[str, str] = {}
    for task in gone:
        holding = [
            repr(follower.name)
            for follower in await services.store.followers(task.id)
            if follower.task_id not in ids and _follows(declared.get(follower.name), task)
        ]
        if holding:
            more = f" and {len(holding) - _NAMED} more" if len(holding) > _NAMED else ""
            told[task.name] = f"is followed by {', '.join(holding[:_NAMED])}{more}; change those first, or declare it"
    if told:
        message = "; ".join(f"task {name!r} {problem}" for name, problem in told.items())
        raise scope.without_names(InvalidState(message, details=told))


def _follows(declared: Mapping[str, Any] | None, task: Task) -> bool:
    """Whether a task that follows this one goes on to do so: it is not declared, or declared so."""
    after = None if declared is None else declared.get("after") or {}
    return after is None or any(each["task"] in (task.name, task.id) for each in after.get("tasks", ()))


_DROPPED: Final = ("managed_by", "created_by", "skip_next", "cron_expr", "cron_dialect")


def written(task: dict[str, Any], *, versions: bool = False) -> dict[str, Any]:
    """What a file has to say to get this task: nothing that is its default anyway."""
    kind = ExecType(task["exec_type"])
    spec = TaskSpec(name="", exec_type=kind, job_type=task["job_type"])
    task, defaults = (msgspec.json.decode(msgspec.json.encode(each)) for each in (task, whole(spec)))  # tuples as lists
    fields, declared = {"name": task["name"]}, table(TaskSpec)
    for name, value in task.items():
        if name in READ_ONLY or name in _DROPPED or name in ("name", "schedule"):
            continue
        if name == "status":
            if value == "DISABLED":
                fields[name] = value
        elif name not in defaults or value != defaults[name] or name == "job_type":
            # What a step has by itself depends on its kind, so its defaults are not those of the Struct.
            fields[name] = brief(declared[name].kind, value) if name in declared and name != "steps" else value
    if kind is ExecType.ASYNC:
        fields["exec_type"] = str(kind)
    fields = {name: value for name, value in fields.items() if value is not None or defaults.get(name) is not None}
    fields.update(_schedule(task["schedule"], task["timezone"]))
    return {**fields, "version": task["version"]} if versions else fields


_VARIABLE: Final = re.compile(r"\$(?P<text>\$\{\w+\})|\$\{(?P<name>\w+)\}")


def filled(value: Any, variable: Callable[[str, str], str], place: str = "") -> Any:
    """What a file says: `${NAME}` is what `variable` says of the name and its place, and `$${NAME}` is the text `${NAME}`."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: found["text"] or variable(found["name"], place), value)
    if isinstance(value, Mapping):
        return {key: filled(each, variable, f"{place}.{key}" if place else key) for key, each in value.items()}
    return [filled(each, variable, place) for each in value] if isinstance(value, list) else value


def escaped(value: Any) -> Any:
    """The value as a file has to say it, so that what looks like a variable is none."""
    if isinstance(value, str):
        return re.sub(r"\$\{\w+\}", r"$\g<0>", value)
    if isinstance(value, Mapping):
        return {key: escaped(each) for key, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list) else value


def _schedule(schedule: dict[str, Any] | None, zone: str) -> dict[str, Any]:
    """The shorthand where it says the same, with its dialect where another installation may read it otherwise."""
    if schedule is None:
        return {}
    if schedule["type"] == "cron":
        short, dialect = schedule.get("source") or schedule["expr"], schedule.get("dialect", CronDialect.STANDARD)
        if when.normalise({"type": "cron", "expr": short, "dialect": dialect}, zone) == schedule:
            is_clear = dialect == CronDialect.STANDARD and not needs_dialect(schedule, zone)
            return {"cron_expr": short} if is_clear else {"cron_expr": short, "cron_dialect": dialect}
    return {"schedule": schedule}


def is_read_otherwise(schedule: dict[str, Any], zone: str, dialects: Iterable[CronDialect] = CronDialect) -> bool:
    """Whether the text of a cron schedule would name other moments in one of the dialects."""
    found = when.parse(schedule, zone)
    return isinstance(found, Cron) and any(found.reads_otherwise(each) for each in dialects)


def needs_dialect(schedule: dict[str, Any], zone: str) -> bool:
    """Whether the text of a cron schedule alone would be refused in one of the dialects, or name other moments."""
    if schedule["type"] != "cron":
        return False
    text = schedule.get("source") or schedule["expr"]
    try:
        for dialect in CronDialect:
            when.parse({"type": "cron", "expr": text, "dialect": dialect}, zone)
    except ScheduleError:
        return True
    return is_read_otherwise(schedule, zone)
