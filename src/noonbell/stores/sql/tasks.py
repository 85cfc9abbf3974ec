"""Tasks: create, change, skip, set the status of one or of many. `cleanup` deletes them.

A transition that changes a task first accounts for the task's slots under the old version.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, rfc3339_or_none, slot_of
from noonbell.errors import (
    AlreadyExists,
    InvalidArgument,
    InvalidState,
    NoonbellError,
    NotFound,
    Sentence,
    VersionConflict,
)
from noonbell.model.account import Label, StatusChange
from noonbell.model.call import CALL_TYPE, task_spec
from noonbell.model.request import NewTask, TaskChange, TaskEdit
from noonbell.model.run import Origin
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import Task, TaskId, TaskPause, TaskSpec, TaskStatus
from noonbell.model.task_schedule import NEVER, WHEN_FIELDS, After
from noonbell.model.worker import label_pairs
from noonbell.policy.account import bounds_of
from noonbell.policy.calendar import NO_REVISION, Beginning, Revision, begin, carry, keeps_map, stopped
from noonbell.policy.slot_history import schedule_of
from noonbell.stores.sql import active_runs as narrow
from noonbell.stores.sql import calendars, joins, keys, reading, resting
from noonbell.stores.sql.active_runs import DUE, HOLDING, Place, RunFlag, claimable_place
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell, tell_all
from noonbell.stores.sql.finish import record_versions
from noonbell.stores.sql.insert_runs import gate_limit
from noonbell.stores.sql.planning import account_for
from noonbell.stores.sql.rows import SPEC, TASK_SELECT, TaskView, load_task, lock_task, task_from
from noonbell.stores.sql.statement import (
    Fetch,
    InsertMany,
    NewNumbers,
    Now,
    UpdateMany,
    Work,
    WriteAll,
    insert,
    inserts_of,
    update,
)
from noonbell.stores.sql.statement import delete as delete_rows
from noonbell.when import due

_TASK_COLUMNS = (
    *SPEC.columns,
    "id",
    "version",
    "status",
    "live_name",
    "live_external_id",
    "created_by",
    "created_at",
    "updated_at",
    "uid",
)
CURSOR_COLUMNS = ("task_id", "version", "next_fire_at", "fired", "skip_next", "accounted_to")
_GATE_COLUMNS = ("task_id", "queue", "lim", "rated", "used", "waiting", "passed", "top", "blocked_until")
COUNTER = "tasks"
"""Whose numbers are the ids of tasks, but for those that are built in."""
AT_ONCE = 250
"""Tasks that are prepared without a pause, and inserted in one statement."""
MOST_NAMED = 100
"""Of the problems of a list, those that an error names."""
_STATE = ("version", "status", "updated_at")
_LIMITS = ("max_concurrency", "concurrency_policy", "rate_limit", "queue")
"""What the gate of a task follows."""


def first_slot(spec: TaskSpec, now: Instant, accounted_to: Instant = NEVER) -> Instant | None:
    """Where the cursor of a task starts that is created, rescheduled or enabled now.

    Never at or before a slot that is accounted for already: the clock may have been set back.
    """
    schedule, bounds, moment = when.of_task(spec), bounds_of(spec), slot_of(now)
    if schedule is None:
        return None
    slot = due.initial(schedule, bounds, moment)
    if slot is not None and instant_of(slot) <= accounted_to:
        slot = due.first(schedule, bounds, max(moment, slot_of(accounted_to)))
    return None if slot is None else instant_of(slot)


def create_each(q: Dialect, cache: TaskView, new: Sequence[NewTask]) -> Work[list[Task | NoonbellError]]:
    """Create the tasks of several callers in one transaction: each caller gets its task, or why there is none."""
    taken = yield from _taken(q, [(each.spec, None) for each in new])
    specs = yield from joins.resolve(q, [(each.spec, None) for each in new], {})
    wrong = {index: spec for index, spec in enumerate(specs) if isinstance(spec, InvalidArgument)}
    revisions = yield from calendars.revisions(q, [each.spec for each in new])
    wrong |= calendars.unknown([each.spec for each in new], revisions)
    right = [index for index in range(len(new)) if index not in taken and index not in wrong]
    made = iter((yield from _create(q, cache, [_with_spec(new[index], specs[index]) for index in right], revisions)))
    answers: list[Any] = [taken.get(index) or wrong.get(index) or next(made) for index in range(len(new))]
    for index, found in taken.items():
        answers[index] = _already_exists(found, found.task_id or answers[found.earlier or 0].id)
    return answers


def create_all(q: Dialect, cache: TaskView, new: Sequence[NewTask]) -> Work[list[Task]]:
    _refuse_taken((yield from _taken(q, [(each.spec, None) for each in new])))
    revisions = yield from calendars.revisions(q, [each.spec for each in new])
    refuse_all(calendars.unknown([each.spec for each in new], revisions))
    return (yield from _create(q, cache, new, revisions))


def _with_spec(new: NewTask, spec: TaskSpec | InvalidArgument) -> NewTask:
    return new if isinstance(spec, InvalidArgument) else msgspec.structs.replace(new, spec=spec)


def _refuse_taken(taken: Mapping[int, Taken]) -> None:
    """Raises AlreadyExists that names each, by its place in the list."""
    if taken:
        named = islice(sorted(taken.items()), MOST_NAMED)
        details = {f"tasks[{index}].{found.column}": str(found) for index, found in named}
        place, said = next(iter(details.items()))
        more = f"; {len(taken) - 1} more are taken" if len(taken) > 1 else ""
        raise AlreadyExists(f"{place} {said}{more}", details=details)


def _ensure_calls(q: Dialect, cache: TaskView, specs: Iterable[TaskSpec]) -> Work[None]:
    """Make the built-in task of calls, if a task names a `cancel_url`: a call tells that address of each cancel."""
    if all(spec.cancel_url is None for spec in specs):
        return
    spec = task_spec(HTTP_QUEUE)
    found = yield Fetch("select id from tasks where live_name = :name", {"name": spec.name})
    if not found:
        yield from _create(q, cache, [NewTask(spec=spec, by="system", system=True)], {})


def _create(q: Dialect, cache: TaskView, new: Sequence[NewTask], revisions: Mapping[str, Revision]) -> Work[list[Task]]:
    yield from _ensure_calls(q, cache, [each.spec for each in new])
    numbers = {}
    for counter in (COUNTER, "system_tasks"):
        count = sum(each.system == (counter == "system_tasks") for each in new)
        numbers[counter] = iter((yield NewNumbers(counter, count)) if count else ())
    ids = [TaskId(next(numbers["system_tasks" if each.system else COUNTER])) for each in new]
    if any(each.spec.after is not None for each in new):
        new = yield from _connected(q, new, ids)
    now = yield Now()
    made: list[Task] = []
    for start in range(0, len(new), AT_ONCE):
        part = new[start : start + AT_ONCE]
        tasks = [
            new_task(each, id_, now, calendars.revision_for(each.spec, revisions))
            for each, id_ in zip(part, ids[start : start + AT_ONCE], strict=True)
        ]
        yield WriteAll((yield from inserts_of(insert_new(tasks, now))))
        yield from joins.save(q, now, [(None, task) for task in tasks if task.spec.after is not None])
        for each, task in zip(part, tasks, strict=True):
            cache.put(task)
            made.append((yield from _order_skips(now, task, each.skip_next, each.by)))
    return made


def _connected(q: Dialect, new: Sequence[NewTask], ids: Sequence[TaskId]) -> Work[list[NewTask]]:
    """With the ids of the tasks that they follow, which may be of the same list. Only among those can there be a cycle."""
    own = {each.spec.name: id_ for each, id_ in zip(new, ids, strict=True)}
    specs = yield from joins.resolve(q, [(each.spec, None) for each in new], own)
    refuse_all({index: spec for index, spec in enumerate(specs) if isinstance(spec, InvalidArgument)})
    made = [_with_spec(each, spec) for each, spec in zip(new, specs, strict=True)]
    saved: dict[int, After | None] = {id_: each.spec.after for id_, each in zip(ids, made, strict=True)}
    places: dict[int, str] = {id_: f"tasks[{index}]" for index, id_ in enumerate(ids)}
    yield from joins.refuse_cycles(q, saved, {id_: name for name, id_ in own.items()}, places)
    return made


def new_task(new: NewTask, task_id: TaskId, now: Instant, revision: Revision = NO_REVISION) -> Task:
    status, cursor = new.status, None
    begun = _beginning(new.spec, revision, now)
    if status is TaskStatus.ENABLED:
        cursor = first_slot(new.spec, now) if begun is None else begun.cursor
        if new.spec.is_scheduled and cursor is None:
            status = TaskStatus.COMPLETED
    return Task(
        id=task_id,
        version=1,
        status=status,
        spec=new.spec,
        created_at=now,
        updated_at=now,
        created_by=new.by,
        uid=secrets.token_hex(16),
        next_fire_at=cursor,
        calendar_use=None if begun is None else begun.use,
    )


def _beginning(
    spec: TaskSpec, revision: Revision, now: Instant, before: Task | None = None, fired: int = 0
) -> Beginning | None:
    """Where a task under a calendar begins that is created, rescheduled or enabled now. None: no calendar has to do with it."""
    if spec.calendar is None and (before is None or before.calendar_use is None):
        return None
    schedule = schedule_of(spec)
    if schedule is None or schedule.is_fixed_delay:
        return None
    old = None if before is None else schedule_of(before.spec)
    return begin(spec, revision, schedule, bounds_of(spec), now, before, old, fired)


def under_revision(task: Task, wanted: TaskChange, revision: Revision, now: Instant, *, is_on: bool) -> Beginning:
    """The use and the cursor of a task whose schedule stays: as they were, if its calendar says what it said."""
    if keeps_map(task.spec.calendar, wanted.spec.calendar, task.calendar_use, revision):
        return Beginning(task.next_fire_at, task.calendar_use)
    schedule = schedule_of(wanted.spec)
    if schedule is None or schedule.is_fixed_delay:
        return Beginning(task.next_fire_at, None)
    return carry(task, wanted.spec, revision, schedule, bounds_of(wanted.spec), now, is_on=is_on)


def insert_new(tasks: Sequence[Task], now: Instant) -> Work[None]:
    """Insert the rows of new tasks."""
    rows = []
    for task in tasks:
        names = (task.spec.name, task.spec.external_id)
        rows.append((*SPEC.row(task.spec), task.id, 1, task.status, *names, task.created_by, now, now, task.uid))
    yield InsertMany("tasks", _TASK_COLUMNS, rows)
    yield InsertMany("cursors", CURSOR_COLUMNS, [(task.id, 1, task.next_fire_at, 0, 0, NEVER) for task in tasks])
    yield from _insert_labels(tasks)
    yield from _insert_needed_labels(tasks)
    gates = [(task, limit) for task in tasks if (limit := gate_limit(task.spec)) is not None]
    if gates:
        yield InsertMany("gates", _GATE_COLUMNS, [_gate_row(task, limit) for task, limit in gates])
    yield from record_versions(tasks, now)
    yield from tell(
        "task.created", [(task.id, None, {"by": task.created_by, "name": task.spec.name}) for task in tasks]
    )


def change(
    q: Dialect,
    cache: TaskView,
    task_id: TaskId,
    edit: Callable[[Task], TaskChange],
    *,
    by: str | None = None,
    expect_version: int | None = None,
) -> Work[Task]:
    now, task = yield from accounted(q, cache, task_id, expect_version)
    wanted = edit(task)
    for found in (yield from _taken(q, [(wanted.spec, task)])).values():
        raise _already_exists(found, found.task_id)
    (spec,) = yield from joins.resolve(q, [(wanted.spec, task.spec)], {wanted.spec.name: task.id})
    if isinstance(spec, InvalidArgument):
        raise spec
    wanted = msgspec.structs.replace(wanted, spec=spec)
    yield from _refuse_cycles(q, [(task, wanted)])
    (changed,) = yield from _change(q, cache, now, [(task, wanted)], by)
    return changed


def change_all(q: Dialect, cache: TaskView, edits: Sequence[TaskEdit], *, by: str | None = None) -> Work[list[Task]]:
    now = yield from hold(q, cache, [edit.task_id for edit in edits])
    wanted: list[tuple[Task, TaskChange]] = []
    refused: dict[int, NoonbellError] = {}
    for start in range(0, len(edits), AT_ONCE):
        part = edits[start : start + AT_ONCE]
        tasks = yield from load(q, [edit.task_id for edit in part])
        for index, edit in enumerate(part, start):
            try:
                task = existing(tasks.get(edit.task_id), edit.task_id, edit.expect_version)
                wanted.append((task, edit.change(task)))
            except NoonbellError as error:
                refused[index] = error
    refuse_all(refused)
    _refuse_taken((yield from _taken(q, [(change.spec, task) for task, change in wanted])))
    own = {change.spec.name: task.id for task, change in wanted}
    specs = yield from joins.resolve(q, [(change.spec, task.spec) for task, change in wanted], own)
    refuse_all({index: spec for index, spec in enumerate(specs) if isinstance(spec, InvalidArgument)})
    wanted = [
        (task, msgspec.structs.replace(change, spec=spec))
        for (task, change), spec in zip(wanted, specs, strict=True)
        if isinstance(spec, TaskSpec)
    ]
    yield from _refuse_cycles(q, wanted, {task.id: f"tasks[{index}]" for index, (task, _) in enumerate(wanted)})
    changed: list[Task] = []
    for start in range(0, len(wanted), AT_ONCE):
        changed += yield from _change(q, cache, now, wanted[start : start + AT_ONCE], by)
    return changed


def _refuse_cycles(
    q: Dialect, wanted: Sequence[tuple[Task, TaskChange]], places: Mapping[int, str] | None = None
) -> Work[None]:
    saved: dict[int, After | None] = {
        task.id: change.spec.after for task, change in wanted if task.spec.after != change.spec.after
    }
    if any(after is not None for after in saved.values()):
        names: dict[int, str] = {task.id: change.spec.name for task, change in wanted}
        yield from joins.refuse_cycles(q, saved, names, places)


def refuse_all(refused: Mapping[int, NoonbellError]) -> None:
    """Raise an error of the kind of the first one, which names all of them by their places in the list."""
    if not refused:
        return
    details: dict[str, str] = {}
    for index, error in islice(refused.items(), MOST_NAMED):
        if isinstance(error, InvalidArgument):
            details |= {f"tasks[{index}].{name}": str(problem) for name, problem in error.details.items()}
        else:
            details[f"tasks[{index}]"] = error.message
    first = next(iter(refused.values()))
    raise type(first)("; ".join(f"{name}: {problem}" for name, problem in details.items()), details=details)


def _change(
    q: Dialect, cache: TaskView, now: Instant, wanted: Sequence[tuple[Task, TaskChange]], by: str | None
) -> Work[list[Task]]:
    """Of tasks that are held and accounted for. What asks for nothing new writes nothing."""
    for task, _ in wanted:
        if task.spec.job_type == CALL_TYPE:
            raise InvalidState(
                Sentence(
                    "task {task} is built in (for calls) and cannot be changed; pause its queue instead",
                    task=repr(task.name),
                )
            )
    changed: list[Task] = []
    turned: list[tuple[Task, Task]] = []
    yield from _ensure_calls(q, cache, [change.spec for _, change in wanted])
    revisions = yield from revisions_under(q, wanted)
    for place, (task, change) in enumerate(wanted):
        is_same = change.spec == task.spec and change.status is task.status and not change.recount
        is_same = is_same and _pause_after(task, change, change.status) == task.pause
        changed.append(task if is_same else changed_by(task, change, now, revisions[place]))
        if not is_same:
            turned.append((task, changed[-1]))
    yield from write_versions(q, cache, now, turned, by)
    for index, (_, change) in enumerate(wanted):
        changed[index] = yield from _order_skips(now, changed[index], change.skip_next, by)
    return changed


def write_versions(
    q: Dialect,
    cache: TaskView,
    now: Instant,
    turned: Sequence[tuple[Task, Task]],
    by: str | None,
    *,
    valid_from: Instant | None = None,
    why: str | None = None,
) -> Work[None]:
    """From each first version to its second, which holds from now on, or from `valid_from`. Events say `why`, if that is said."""
    if not turned:
        return
    after = [task for _, task in turned]
    edited = [(old, new) for old, new in turned if old.spec != new.spec]
    states = {task.id: (task.id, task.version, str(task.status), now) for task in after}
    if edited:
        names = {new.id: (new.spec.name, new.spec.external_id) for _, new in edited}
        specs = [(*states.pop(new.id), *names[new.id], *SPEC.row(new.spec)) for _, new in edited]
        yield UpdateMany("tasks", "id", (*_STATE, "live_name", "live_external_id", *SPEC.columns), specs)
    if states:
        yield UpdateMany("tasks", "id", _STATE, list(states.values()))
    yield from _write_cursors(after)
    labelled = [new for old, new in edited if old.spec.labels != new.spec.labels]
    yield from q.delete_by("task_labels", "task_id", [task.id for task in labelled])
    yield from _insert_labels(labelled)
    asking = [new for old, new in edited if old.spec.worker_labels != new.spec.worker_labels]
    yield from q.delete_by("needed_labels", "task_id", [task.id for task in asking])
    yield from _insert_needed_labels(asking)
    for old, new in edited:
        if any(getattr(old.spec, name) != getattr(new.spec, name) for name in _LIMITS):
            yield from _write_gate(q, old, new)
        yield from _touch_live(q, cache, now, old, new)
        if old.spec.max_per_key != new.spec.max_per_key:
            yield from keys.change_limit(q, cache, new.id, new.spec.max_per_key)
    yield from record_versions(after, now if valid_from is None else valid_from, by)
    yield from joins.save(q, now, turned)
    facts: dict[str, list[tuple[Any, ...]]] = {}
    for old, new in turned:
        data = {"by": by, "version": new.version, **({} if why is None else {"why": why}), **_said(new.pause)}
        facts.setdefault(event_of(old, new), []).append((new.id, None, data))
        cache.put(new)
    yield from tell_all(facts)


def _said(pause: TaskPause | None) -> dict[str, Any]:
    """The facts of a pause, for an event."""
    if pause is None:
        return {}
    until = rfc3339_or_none(pause.until)
    return {name: value for name, value in (("reason", pause.reason), ("until", until)) if value}


def _pause_after(task: Task, wanted: TaskChange, status: TaskStatus) -> TaskPause | None:
    if status is not TaskStatus.DISABLED:
        return None
    return task.pause if wanted.pause is msgspec.UNSET else wanted.pause


def revisions_under(q: Dialect, wanted: Sequence[tuple[Task, TaskChange]]) -> Work[list[Revision]]:
    """What the calendar of each says. One that a task has already stays at its revision: a change of the calendar that is under
    way brings that task along, and waits for it.
    """
    found: list[Revision | None] = []
    for task, change in wanted:
        use, asked = task.calendar_use, change.spec.calendar
        is_known = asked is not None and use is not None and use.name == asked.name
        found.append(Revision(use.revision, use.rules) if is_known and use is not None else None)
    others = [change.spec for (_, change), known in zip(wanted, found, strict=True) if known is None]
    revisions = yield from calendars.revisions(q, others)
    specs = [change.spec for _, change in wanted]
    missing = {place: error for place, error in calendars.unknown(specs, revisions).items() if found[place] is None}
    if len(wanted) == 1:
        for error in missing.values():
            raise error
    refuse_all(missing)
    return [
        calendars.revision_for(spec, revisions) if known is None else known
        for spec, known in zip(specs, found, strict=True)
    ]


def event_of(task: Task, changed: Task) -> str:
    if changed.status is task.status:
        return "task.changed"
    return {TaskStatus.ENABLED: "task.enabled", TaskStatus.DISABLED: "task.disabled"}.get(
        changed.status, f"task.{changed.status.lower()}"
    )


def accounted(
    q: Dialect, cache: TaskView, task_id: TaskId, expect_version: int | None = None
) -> Work[tuple[Instant, Task]]:
    """The task, held, with every slot up to now accounted for."""
    task = existing((yield from lock_task(q, task_id)), task_id, expect_version)
    now = yield Now()
    while task.next_fire_at is not None and task.next_fire_at <= now:
        yield from account_for(q, cache, now, [(cache.put(task), task)], cap=100)
        task = existing((yield from load_task(task_id)), task_id)
    return now, task


def existing(task: Task | None, task_id: TaskId, expect_version: int | None = None) -> Task:
    """The task, if it is there and of the version that the caller has seen."""
    if task is None or task.deleted_at is not None:
        raise NotFound(Sentence("there is no task {task}", task=task_id))
    if expect_version is not None and task.version != expect_version:
        raise VersionConflict(
            f"task {task_id} is at version {task.version}, not {expect_version}; read it again and repeat the change",
            details={"version": task.version},
        )
    return task


def changed_by(task: Task, wanted: TaskChange, now: Instant, revision: Revision = NO_REVISION) -> Task:
    """The next version: a change of schedule, or being enabled, starts from now; anything else keeps the cursor."""
    rescheduled = any(getattr(task.spec, name) != getattr(wanted.spec, name) for name in WHEN_FIELDS)
    status, cursor, fired, skip_next = wanted.status, task.next_fire_at, task.fired, task.skip_next
    was_off = task.status is not TaskStatus.ENABLED
    if rescheduled and status is TaskStatus.COMPLETED and task.status is TaskStatus.COMPLETED:
        status = TaskStatus.ENABLED  # a finished task that gets a new schedule has slots again
    use = task.calendar_use
    if status is not TaskStatus.ENABLED:
        cursor = None
        use = under_revision(task, wanted, revision, now, is_on=False).use
        if use is task.calendar_use:
            use = stopped(task, now)
    elif not (rescheduled or was_off):
        cursor, use = under_revision(task, wanted, revision, now, is_on=True)
        if cursor is None and task.next_fire_at is not None:
            status = TaskStatus.COMPLETED
    else:
        is_anew = rescheduled or task.status in (TaskStatus.COMPLETED, TaskStatus.ERROR)
        begun = _beginning(wanted.spec, revision, now, task, 0 if is_anew or wanted.recount else task.fired)
        cursor = first_slot(wanted.spec, now, task.accounted_to) if begun is None else begun.cursor
        use = None if begun is None else begun.use
        if is_anew:
            fired, skip_next = 0, max(skip_next, 0)
        if cursor is None and wanted.spec.is_scheduled:
            status = TaskStatus.COMPLETED
    if wanted.recount:
        fired = 0
    return msgspec.structs.replace(
        task,
        version=task.version + 1,
        status=status,
        spec=wanted.spec,
        updated_at=now,
        next_fire_at=cursor,
        fired=fired,
        skip_next=skip_next,
        calendar_use=use,
        pause=_pause_after(task, wanted, status),
    )


def skip_next(q: Dialect, cache: TaskView, task_id: TaskId, count: int, *, by: str | None = None) -> Work[Task]:
    now, task = yield from accounted(q, cache, task_id)
    return (yield from _skip(now, task, count, by))


def _order_skips(now: Instant, task: Task, count: int | None, by: str | None) -> Work[Task]:
    """What an edit says of `skip_next`, as far as it says anything new."""
    return task if count is None or count == task.skip_next else (yield from _skip(now, task, count, by))


def _skip(now: Instant, task: Task, count: int, by: str | None) -> Work[Task]:
    yield update("cursors", {"task_id": task.id}, skip_next=count)
    yield delete_rows("skip_orders", task_id=task.id)
    if count:
        yield insert("skip_orders", task_id=task.id, asked_by=by, at=now)
    yield from tell("task.skip_next", [(task.id, None, {"count": count, "by": by})])
    return msgspec.structs.replace(task, skip_next=count)


@dataclass(frozen=True, slots=True)
class Taken:
    """A name or external id that is not free."""

    column: str
    value: str
    task_id: int | None
    """Who has it."""
    earlier: int | None = None
    """The one of the same list that asks for it too, and comes first."""

    def __str__(self) -> str:
        if self.task_id is not None:
            return f"is {self.value!r}, which task {self.task_id} has already"
        return f"is {self.value!r}, as that of tasks[{self.earlier}]; expected one task for each {self.column}"


def _taken(q: Dialect, wanted: Sequence[tuple[TaskSpec, Task | None]]) -> Work[dict[int, Taken]]:
    """By place in the list, those that cannot have their name or external id. Each comes with the task that it changes."""
    asked: list[list[tuple[str, str]]] = []
    for spec, before in wanted:
        values = {column: getattr(spec, column) for column in ("name", "external_id")}
        if before is not None:
            values = {column: value for column, value in values.items() if getattr(before.spec, column) != value}
        asked.append([(column, value) for column, value in values.items() if value is not None])
    holders: dict[tuple[str, str], int] = {}
    for column in ("name", "external_id"):
        listed = sorted({value for each in asked for name, value in each if name == column})
        if listed:
            sql = f"select live_{column}, id from tasks where {q.names(f'live_{column}', 'listed')}"
            rows = yield Fetch(sql, {"listed": q.pack(listed)})
            holders.update({(column, row[0]): row[1] for row in rows})
    taken: dict[int, Taken] = {}
    first: dict[tuple[str, str], int] = {}
    for index, each in enumerate(asked):
        for key in each:
            if key in holders or key in first:
                taken[index] = Taken(*key, holders.get(key), first.get(key))
                break
        else:
            first.update(dict.fromkeys(each, index))
    return taken


def _already_exists(found: Taken, task_id: int | None) -> AlreadyExists:
    return AlreadyExists(
        f"{found.column}: task {task_id} has the {found.column} {found.value!r} already",
        details={found.column: "is taken", "id": task_id},
    )


def _write_cursors(tasks: Sequence[Task]) -> Work[None]:
    rows = [(task.id, *(getattr(task, column) for column in CURSOR_COLUMNS[1:])) for task in tasks]
    yield UpdateMany("cursors", "task_id", CURSOR_COLUMNS[1:], rows)


def _insert_needed_labels(tasks: Sequence[Task]) -> Work[None]:
    rows = [(task.id, pair) for task in tasks for pair in label_pairs(task.spec.worker_labels)]
    if rows:
        yield InsertMany("needed_labels", ("task_id", "pair"), rows)


def _insert_labels(tasks: Sequence[Task]) -> Work[None]:
    rows = [(task.id, name, value) for task in tasks for name, value in sorted(task.spec.labels.items())]
    if rows:
        yield InsertMany("task_labels", ("task_id", "name", "value"), rows)


def _write_gate(q: Dialect, old: Task, new: Task) -> Work[None]:
    """The gate of a task follows its limits. Where one appears or goes, the runs under way are counted into or out."""
    before, after = gate_limit(old.spec), gate_limit(new.spec)
    if before is not None and after is not None:
        limits = {"lim": after[0], "rated": int(after[1])}
        yield update("gates", {"task_id": new.id}, queue=new.spec.queue, blocked_until=0, **limits)
        return
    if before is None and after is None:
        return
    rows = yield from narrow.load_where(q, narrow.OF_TASK, task=new.id)
    gate = new.id if after is not None else None
    moved = []
    for row in rows:
        flags = row.flags & ~RunFlag.PASSED
        place = claimable_place(flags, gate, row.min_version) if row.place in DUE else row.place
        moved.append((row.run_id, int(place), gate, flags))
    if moved:
        yield UpdateMany("live", "run_id", ("place", "gate", "flags"), moved)
    if after is None:
        yield delete_rows("gates", task_id=new.id)
        return
    used = sum(row.place in HOLDING for row in rows)
    waiting = sum(row.place in DUE for row in rows)
    yield InsertMany("gates", _GATE_COLUMNS, [_gate_row(new, after, used, waiting)])


def _gate_row(task: Task, limit: tuple[int | None, bool], used: int = 0, waiting: int = 0) -> tuple[Any, ...]:
    return (task.id, task.spec.queue, limit[0], int(limit[1]), used, waiting, 0, -task.spec.priority, 0)


def _touch_live(q: Dialect, cache: TaskView, now: Instant, old: Task, new: Task) -> Work[None]:
    """A change of who may carry runs out acts on those that wait, and stops those under way in the wrong hands."""
    allowed, version = new.spec.specific_worker_ids, new.spec.min_worker_version
    are_others = old.spec.specific_worker_ids != allowed
    is_labeled = bool(new.spec.worker_labels)
    is_quiet = bool(new.spec.quiet)
    is_as_quiet = (old.spec.quiet, old.spec.timezone) == (new.spec.quiet, new.spec.timezone)
    if (
        is_as_quiet
        and not are_others
        and old.spec.min_worker_version == version
        and bool(old.spec.worker_labels) == is_labeled
    ):
        return
    rows = yield from narrow.load_where(q, narrow.OF_TASK, task=new.id)
    if not rows:
        return
    by_hand = set[int]()
    if not is_as_quiet:
        yield from resting.rest_anew(q, cache, now, rows, new.spec.quiet, new.spec.timezone)
        rows = yield from narrow.load_where(q, narrow.OF_TASK, task=new.id)
        found = yield from q.fetch_by(
            "select id from runs", "id", [row.run_id for row in rows], " and origin = :trigger", trigger=Origin.TRIGGER
        )
        by_hand = {row[0] for row in found}
    if are_others:
        yield from _pin_anew(q, rows, allowed)
    moved = []
    for row in rows:
        flags = _flags_under(row, allowed) if are_others else row.flags
        flags = flags & ~RunFlag.LABELED | (RunFlag.LABELED if is_labeled else 0)
        if not is_as_quiet:
            flags = flags & ~RunFlag.QUIET | (RunFlag.QUIET if is_quiet and row.run_id not in by_hand else 0)
        place = claimable_place(flags, row.gate, version) if row.place in DUE else row.place
        moved.append((row.run_id, int(place), flags, version))
    yield UpdateMany("live", "run_id", ("place", "flags", "min_version"), moved)


def _pin_anew(q: Dialect, rows: Sequence[narrow.Live], allowed: Sequence[str]) -> Work[None]:
    yield from q.delete_by("pins", "run_id", [row.run_id for row in rows])
    if allowed:
        pins = [(row.run_id, worker) for row in rows for worker in allowed]
        yield InsertMany("pins", ("run_id", "worker_id"), pins)


def _flags_under(row: narrow.Live, allowed: Sequence[str]) -> int:
    flags = row.flags & ~(RunFlag.PINNED | RunFlag.STOP)
    if not allowed:
        return flags
    is_wrong = row.place == Place.LEASED and row.worker_id not in allowed
    return flags | RunFlag.PINNED | (RunFlag.STOP if is_wrong else 0)


def set_status(
    q: Dialect, cache: TaskView, task_ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None
) -> Work[list[Task]]:
    now = yield from hold(q, cache, task_ids)
    found = (yield from load(q, task_ids)).values()
    tasks = [task for task in found if task.deleted_at is None and task.status not in (status, TaskStatus.ERROR)]
    return (
        yield from _change(q, cache, now, [(task, TaskChange(spec=task.spec, status=status)) for task in tasks], by)
    )


def hold(q: Dialect, cache: TaskView, task_ids: Sequence[TaskId]) -> Work[Instant]:
    """Hold these tasks, and account for each of their slots up to now, which is the answer.

    Their cursors are taken in the order of their ids, so two of these never wait for each other.
    """
    yield from joins.hold_cursors(q, task_ids)
    now: Instant = yield Now()
    while True:
        due = yield from q.fetch_by(
            "select task_id from cursors", "task_id", task_ids, " and next_fire_at <= :now", now=now
        )
        if not due:
            return now
        tasks = yield from load(q, [row[0] for row in due[:AT_ONCE]])
        yield from account_for(q, cache, now, [(cache.put(task), task) for task in tasks.values()], cap=100)


def load(q: Dialect, task_ids: Sequence[TaskId]) -> Work[dict[TaskId, Task]]:
    """The tasks with their cursors, deleted ones too."""
    rows = yield from q.fetch_by(TASK_SELECT, "t.id", task_ids, " order by t.id")
    return {task.id: task for task in map(task_from, rows)}


def turns(q: Dialect, task_ids: Sequence[TaskId]) -> Work[dict[TaskId, StatusChange]]:
    """The version with which the status came that each task has: the one after the last that had another."""
    rows = yield from q.fetch_by(
        "select v.task_id, v.valid_from, v.changed_by from task_versions v join tasks t on t.id = v.task_id",
        "v.task_id",
        task_ids,
        " and v.version = 1 + coalesce("
        "(select max(w.version) from task_versions w where w.task_id = v.task_id and w.status <> t.status), 0)",
    )
    return {TaskId(task_id): StatusChange(at=at, by=by) for task_id, at, by in rows}


def labels(text: str = "", limit: int = 20) -> Work[list[Label]]:
    name, has_both, value = text.partition("=")
    params: dict[str, Any] = {"name": reading.like(name), "value": reading.like(value if has_both else name)}
    within = "lower(l.name) like :name escape '!'", "lower(l.value) like :value escape '!'"
    rows = yield Fetch(
        "select l.name, l.value, count(*) from task_labels l join tasks t on t.id = l.task_id"
        f" where t.deleted_at is null and ({(' and ' if has_both else ' or ').join(within)})"
        " group by l.name, l.value order by count(*) desc, l.name, l.value limit :limit",
        {**params, "limit": limit},
    )
    return [Label(name=name, value=value, tasks=count) for name, value, count in rows]
