"""Tasks as a transition sees them: by id, through the cache; and the changes of status that the store makes itself.

Whoever changes a task holds the row of its cursor first. So planning, editing and the follow-ups of a run take turns, and
a version that was read under that lock is the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.rows import TASK_SELECT, Known, TaskView, spec_from, task_from, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Work

VERSION_COLUMNS = ("task_id", "version", "valid_from", "status", "deleted", "changed_by", "spec")
MARK_COLUMNS = ("task_id", "version", "accounted_to", "fired")

__all__ = [
    "known_tasks",
    "load_task",
    "lock_task",
    "record_version",
    "record_versions",
    "soft_delete",
    "spec_from",
    "turn_status",
]


def known_tasks(q: Dialect, cache: TaskView, task_ids: Iterable[int]) -> Work[dict[int, Known]]:
    """The newest version of each, deleted ones too. Its cursor may be out of date: ask `load_task` for that."""
    ids = sorted(set(task_ids))
    found: dict[int, Known] = {}
    missing: list[int] = []
    rows = yield Fetch(f"select id, version from tasks where {q.ids('id', 'ids')}", {"ids": q.pack(ids)})
    for task_id, version in rows:
        known = cache.get(task_id, version)
        if known is None:
            missing.append(task_id)
        else:
            found[task_id] = known
    if missing:
        full = yield Fetch(f"{TASK_SELECT} where {q.ids('t.id', 'ids')}", {"ids": q.pack(missing)})
        for row in full:
            task = task_from(row)
            found[task.id] = cache.put(task)
    return found


def load_task(task_id: int) -> Work[Task | None]:
    rows = yield Fetch(f"{TASK_SELECT} where t.id = :id", {"id": task_id})
    return task_from(rows[0]) if rows else None


def lock_task(q: Dialect, task_id: int) -> Work[Task | None]:
    """The task with its cursor, held until the end of the transaction."""
    rows = yield Fetch("select version from cursors where task_id = :id" + q.lock, {"id": task_id})
    if not rows:
        return None
    return (yield from load_task(task_id))


def record_version(task: Task, now: Instant, by: str | None) -> Work[None]:
    yield from record_versions([task], now, by)


def record_versions(tasks: Sequence[Task], now: Instant, by: str | None) -> Work[None]:
    rows = [
        (task.id, task.version, now, task.status, int(task.deleted_at is not None), by, to_json(task.spec))
        for task in tasks
    ]
    yield InsertMany("task_versions", VERSION_COLUMNS, rows)
    marks = [(task.id, task.version, task.accounted_to, task.fired) for task in tasks]
    yield InsertMany("version_marks", MARK_COLUMNS, marks)


def turn_status(
    q: Dialect, cache: TaskView, now: Instant, task: Task, status: TaskStatus, *, by: str | None
) -> Work[Task | None]:
    """COMPLETED or ERROR: no further slot. None if the task has been changed since; then nothing is written."""
    current = yield from lock_task(q, task.id)
    if current is None or current.version != task.version:
        return None
    turned = msgspec.structs.replace(
        current, status=status, version=current.version + 1, updated_at=now, next_fire_at=None
    )
    yield Execute(
        "update tasks set status = :status, version = :version, updated_at = :now where id = :id",
        {"status": status, "version": turned.version, "now": now, "id": task.id},
    )
    yield Execute(
        "update cursors set version = :version, next_fire_at = null where task_id = :id",
        {"version": turned.version, "id": task.id},
    )
    yield from record_version(turned, now, by)
    yield from tell(now, f"task.{status.lower()}", [(task.id, None, {"by": by})])
    cache.put(turned)
    return turned


def soft_delete(q: Dialect, cache: TaskView, now: Instant, task: Task, *, by: str | None) -> Work[Task]:
    """The task ends: no further slot, and its name is free. Its runs are the caller's business."""
    current = yield from lock_task(q, task.id)
    base = current or task
    ended = msgspec.structs.replace(base, version=base.version + 1, updated_at=now, deleted_at=now, next_fire_at=None)
    yield Execute(
        "update tasks set deleted_at = :now, live_name = null, live_external_id = null, version = :version,"
        " updated_at = :now where id = :id",
        {"now": now, "version": ended.version, "id": task.id},
    )
    yield Execute(
        "update cursors set version = :version, next_fire_at = null where task_id = :id",
        {"version": ended.version, "id": task.id},
    )
    yield from record_version(ended, now, by)
    yield from tell(now, "task.deleted", [(task.id, None, {"by": by, "name": task.name})])
    cache.put(ended)
    return ended


def task_ids_of(names: Iterable[int]) -> list[TaskId]:
    return [TaskId(value) for value in names]
