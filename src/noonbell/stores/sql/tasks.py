"""Tasks: create, change, delete, skip. Whoever changes one first accounts for its slots under the old version."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, slot_of
from noonbell.errors import AlreadyExists, InvalidState, NotFound, VersionConflict
from noonbell.model.request import TaskChange
from noonbell.model.task import NEVER, SYSTEM_TASK_IDS, Task, TaskId, TaskSpec, TaskStatus
from noonbell.policy.account import bounds_of
from noonbell.stores.sql import live as narrow
from noonbell.stores.sql.births import gate_limit
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.endings import canceled, finish
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.known import load_task, lock_task, record_version, soft_delete
from noonbell.stores.sql.place import STARTED, Flag, Place, due_place
from noonbell.stores.sql.planning import account_for
from noonbell.stores.sql.rows import SPEC_COLUMNS, TaskView, spec_values
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work
from noonbell.when import due

_TASK_COLUMNS = (
    *SPEC_COLUMNS,
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
_WHEN = ("schedule", "timezone", "start_at", "end_at")


def first_slot(spec: TaskSpec, now: Instant, accounted_to: Instant = NEVER) -> Instant | None:
    """Where the cursor of a task starts that is created, rescheduled or enabled now.

    Never at or before a slot that is accounted for already: the clock may have been set back.
    """
    if spec.schedule is None:
        return None
    schedule, bounds, moment = when.parse(spec.schedule, spec.timezone), bounds_of(spec), slot_of(now)
    slot = due.initial(schedule, bounds, moment)
    if slot is not None and instant_of(slot) <= accounted_to:
        slot = due.first(schedule, bounds, max(moment, slot_of(accounted_to)))
    return None if slot is None else instant_of(slot)


def create(
    q: Dialect, cache: TaskView, spec: TaskSpec, status: TaskStatus, by: str | None, *, system: bool, skip_next: int
) -> Work[Task]:
    yield from _check_free(spec)
    name = "system_tasks" if system else "tasks"
    rows = yield Fetch("select value from counters where name = :name" + q.lock, {"name": name})
    task_id = TaskId(int(rows[0][0]) + 1)
    yield Execute("update counters set value = :value where name = :name", {"value": task_id, "name": name})
    now = yield Now()
    cursor = first_slot(spec, now) if status is TaskStatus.ENABLED else None
    if status is TaskStatus.ENABLED and spec.schedule is not None and cursor is None:
        status = TaskStatus.COMPLETED
    task = Task(
        id=task_id,
        version=1,
        status=status,
        spec=spec,
        created_at=now,
        updated_at=now,
        created_by=by,
        uid=secrets.token_hex(16),
        next_fire_at=cursor,
    )
    row = (*spec_values(spec), task_id, 1, status, spec.name, spec.external_id, by, now, now, task.uid)
    yield InsertMany("tasks", _TASK_COLUMNS, [row])
    yield InsertMany("cursors", CURSOR_COLUMNS, [(task_id, 1, cursor, 0, 0, NEVER)])
    yield from _write_labels(task)
    yield from _write_gate(q, cache, None, task)
    yield from record_version(task, now, by)
    yield from tell(now, "task.created", [(task_id, None, {"by": by, "name": spec.name})])
    cache.put(task)
    return (yield from _order_skips(now, task, skip_next, by))


def change(
    q: Dialect,
    cache: TaskView,
    task_id: TaskId,
    edit: Callable[[Task], TaskChange],
    by: str | None,
    expect_version: int | None,
) -> Work[Task]:
    now, task = yield from _accounted(q, cache, task_id, expect_version)
    wanted = edit(task)
    if wanted.spec == task.spec and wanted.status is task.status and not wanted.recount:
        return (yield from _order_skips(now, task, wanted.skip_next, by))
    yield from _check_free(wanted.spec, besides=task)
    changed = changed_by(task, wanted, now)
    sets = ", ".join(f"{column} = :{column}" for column in SPEC_COLUMNS)
    yield Execute(
        f"update tasks set {sets}, version = :version, status = :status, updated_at = :now, live_name = :name,"
        " live_external_id = :external_id where id = :id",
        {
            **dict(zip(SPEC_COLUMNS, spec_values(changed.spec), strict=True)),
            "version": changed.version,
            "status": changed.status,
            "now": now,
            "id": task_id,
        },
    )
    yield from _write_cursor(changed)
    yield from _write_labels(changed)
    yield from _write_gate(q, cache, task, changed)
    yield from _touch_live(q, task, changed)
    yield from record_version(changed, now, by)
    yield from tell(now, event_of(task, changed), [(task_id, None, {"by": by, "version": changed.version})])
    cache.put(changed)
    return (yield from _order_skips(now, changed, wanted.skip_next, by))


def event_of(task: Task, changed: Task) -> str:
    if changed.status is task.status:
        return "task.changed"
    return {TaskStatus.ENABLED: "task.enabled", TaskStatus.DISABLED: "task.disabled"}.get(
        changed.status, f"task.{changed.status.lower()}"
    )


def _accounted(
    q: Dialect, cache: TaskView, task_id: TaskId, expect_version: int | None = None
) -> Work[tuple[Instant, Task]]:
    """The task, held, with every slot up to now accounted for."""
    task = yield from lock_task(q, task_id)
    if task is None or task.deleted_at is not None:
        raise NotFound(f"there is no task {task_id}")
    if expect_version is not None and task.version != expect_version:
        raise VersionConflict(
            f"task {task_id} is at version {task.version}, not {expect_version}; read it again and repeat the change",
            details={"version": task.version},
        )
    now = yield Now()
    while task.next_fire_at is not None and task.next_fire_at <= now:
        yield from account_for(q, cache, now, [(cache.put(task), task)], cap=100)
        reloaded = yield from load_task(task_id)
        if reloaded is None or reloaded.deleted_at is not None:
            raise NotFound(f"there is no task {task_id}")
        task = reloaded
    return now, task


def changed_by(task: Task, wanted: TaskChange, now: Instant) -> Task:
    """The next version: a change of schedule, or being enabled, starts from now; anything else keeps the cursor."""
    rescheduled = any(getattr(task.spec, name) != getattr(wanted.spec, name) for name in _WHEN)
    status, cursor, fired, skip_next = wanted.status, task.next_fire_at, task.fired, task.skip_next
    was_off = task.status is not TaskStatus.ENABLED
    if rescheduled and status is TaskStatus.COMPLETED and task.status is TaskStatus.COMPLETED:
        status = TaskStatus.ENABLED  # a finished task that gets a new schedule has slots again
    if status is not TaskStatus.ENABLED:
        cursor = None
    elif rescheduled or was_off:
        cursor = first_slot(wanted.spec, now, task.accounted_to)
        if rescheduled or task.status in (TaskStatus.COMPLETED, TaskStatus.ERROR):
            fired, skip_next = 0, max(skip_next, 0)
        if cursor is None and wanted.spec.schedule is not None:
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
    )


def delete(
    q: Dialect,
    cache: TaskView,
    task_id: TaskId,
    by: str | None,
    expect_version: int | None,
    *,
    cancel_running: bool,
    purge: bool,
) -> Work[Task]:
    now, task = yield from _accounted(q, cache, task_id, expect_version)
    if task.id > SYSTEM_TASK_IDS:
        raise InvalidState(f"task {task.name!r} is built in and cannot be deleted; disable it instead")
    rows = yield from narrow.load_where(q, "task_id = :task", task=task_id)
    if not (cancel_running or purge):
        rows = [row for row in rows if not row.started and row.parent_id is None]
    ordered = sorted(rows, key=lambda row: row.parent_id is None)
    details = {"kind": "canceled", "why": "deleted", "by": by}
    endings = yield from canceled(q, ordered, "its task was deleted", details)
    parts = {row.run_id for row in rows if row.parent_id is not None}
    yield from finish(q, cache, now, [e for e in endings if e.live.run_id not in parts])
    if parts:
        left = yield from narrow.load(q, parts)
        yield from finish(q, cache, now, [e for e in endings if e.live.run_id in left])
    ended = yield from soft_delete(q, cache, now, task, by=by)
    if purge:
        yield from purge_rows(task_id)
    return ended


_BELONGINGS = ("inputs", "bodies", "attempts", "callback_tokens", "callbacks", "progress", "run_log", "pins")


_OF_A_TASK = (
    *("runs", "task_versions", "version_marks", "task_labels", "dropped", "cleaned", "skip_orders", "rounds", "gates"),
    "cursors",
)


def purge_rows(task_id: TaskId) -> Work[None]:
    """Remove every row of a task."""
    here = {"task": task_id}
    for table in _BELONGINGS:
        yield Execute(f"delete from {table} where run_id in (select id from runs where task_id = :task)", here)
    for table in _OF_A_TASK:
        yield Execute(f"delete from {table} where task_id = :task", here)
    yield Execute("delete from tasks where id = :task", here)
    scope = f"task:{task_id}"
    yield Execute(
        "delete from rates where scope = :scope or scope like :keyed", {"scope": scope, "keyed": f"{scope}:%"}
    )


def skip_next(q: Dialect, cache: TaskView, task_id: TaskId, count: int, by: str | None) -> Work[Task]:
    now, task = yield from _accounted(q, cache, task_id)
    return (yield from _skip(now, task, count, by))


def _order_skips(now: Instant, task: Task, count: int | None, by: str | None) -> Work[Task]:
    """What an edit says of `skip_next`, as far as it says anything new."""
    return task if count is None or count == task.skip_next else (yield from _skip(now, task, count, by))


def _skip(now: Instant, task: Task, count: int, by: str | None) -> Work[Task]:
    yield Execute("update cursors set skip_next = :count where task_id = :id", {"count": count, "id": task.id})
    yield Execute("delete from skip_orders where task_id = :id", {"id": task.id})
    if count:
        yield InsertMany("skip_orders", ("task_id", "asked_by", "at"), [(task.id, by, now)])
    yield from tell(now, "task.skip_next", [(task.id, None, {"count": count, "by": by})])
    return msgspec.structs.replace(task, skip_next=count)


def _check_free(spec: TaskSpec, besides: Task | None = None) -> Work[None]:
    for column, value in (("name", spec.name), ("external_id", spec.external_id)):
        if value is None or (besides is not None and getattr(besides.spec, column) == value):
            continue
        rows = yield Fetch(f"select id from tasks where live_{column} = :value", {"value": value})
        if rows:
            raise AlreadyExists(
                f"{column}: task {rows[0][0]} has the {column} {value!r} already",
                details={column: "is taken", "id": rows[0][0]},
            )


def _write_cursor(task: Task) -> Work[None]:
    yield UpdateMany(
        "cursors",
        "task_id",
        CURSOR_COLUMNS[1:],
        [(task.id, task.version, task.next_fire_at, task.fired, task.skip_next, task.accounted_to)],
    )


def _write_labels(task: Task) -> Work[None]:
    yield Execute("delete from task_labels where task_id = :id", {"id": task.id})
    if task.spec.labels:
        rows = [(task.id, name, value) for name, value in sorted(task.spec.labels.items())]
        yield InsertMany("task_labels", ("task_id", "name", "value"), rows)


def _write_gate(q: Dialect, cache: TaskView, old: Task | None, new: Task) -> Work[None]:
    """The gate of a task follows its limits. Where one appears or goes, the runs under way are counted into or out."""
    del cache
    before = None if old is None else gate_limit(old.spec)
    after = gate_limit(new.spec)
    here = {"task": new.id, "queue": new.spec.queue, "top": -new.spec.priority}
    if before is not None and after is not None:
        yield Execute(
            "update gates set lim = :lim, rated = :rated, queue = :queue, blocked_until = 0 where task_id = :task",
            {"lim": after[0], "rated": int(after[1]), "queue": new.spec.queue, "task": new.id},
        )
        return
    if before is None and after is None:
        return
    rows = (
        [] if old is None else (yield from narrow.load_where(q, "task_id = :task and parent_id is null", task=new.id))
    )
    gate = new.id if after is not None else None
    moved = []
    for row in rows:
        flags = row.flags & ~Flag.PASSED
        place = due_place(flags, gate, row.min_version) if row.place in _LINED_UP else row.place
        moved.append((row.run_id, int(place), gate, flags))
    if moved:
        yield UpdateMany("live", "run_id", ("place", "gate", "flags"), moved)
    if after is None:
        yield Execute("delete from gates where task_id = :task", here)
        return
    used = sum(row.place in STARTED for row in rows)
    waiting = sum(row.place in _LINED_UP for row in rows)
    yield Execute(
        "insert into gates (task_id, queue, lim, rated, used, waiting, passed, top, blocked_until)"
        " values (:task, :queue, :lim, :rated, :used, :waiting, 0, :top, 0)",
        {**here, "lim": after[0], "rated": int(after[1]), "used": used, "waiting": waiting},
    )


_LINED_UP = (Place.READY, Place.GATED, Place.CAREFUL, Place.PINNED)


def _touch_live(q: Dialect, old: Task, new: Task) -> Work[None]:
    """A change of who may carry runs out acts on those that wait, and stops those under way in the wrong hands."""
    allowed, version = new.spec.specific_worker_ids, new.spec.min_worker_version
    are_others = old.spec.specific_worker_ids != allowed
    if not are_others and old.spec.min_worker_version == version:
        return
    rows = yield from narrow.load_where(q, "task_id = :task and parent_id is null", task=new.id)
    if not rows:
        return
    if are_others:
        yield from _pin_anew(q, rows, allowed)
    moved = []
    for row in rows:
        flags = _flags_under(row, allowed) if are_others else row.flags
        place = due_place(flags, row.gate, version) if row.place in _LINED_UP else row.place
        moved.append((row.run_id, int(place), flags, version))
    yield UpdateMany("live", "run_id", ("place", "flags", "min_version"), moved)


def _pin_anew(q: Dialect, rows: Sequence[narrow.Live], allowed: Sequence[str]) -> Work[None]:
    yield Execute(f"delete from pins where {q.ids('run_id', 'ids')}", {"ids": q.pack([row.run_id for row in rows])})
    if allowed:
        pins = [(row.run_id, worker) for row in rows for worker in allowed]
        yield InsertMany("pins", ("run_id", "worker_id"), pins)


def _flags_under(row: narrow.Live, allowed: Sequence[str]) -> int:
    flags = row.flags & ~(Flag.PINNED | Flag.STOP)
    if not allowed:
        return flags
    is_wrong = row.place == Place.LEASED and row.worker_id not in allowed
    return flags | Flag.PINNED | (Flag.STOP if is_wrong else 0)
