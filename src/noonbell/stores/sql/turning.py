"""Many tasks at once: enabled or disabled in one transaction; and what a list of tasks wants to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.model.account import Label, Turn
from noonbell.model.request import TaskChange
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.stores.sql import paging
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.known import record_versions
from noonbell.stores.sql.planning import account_for
from noonbell.stores.sql.rows import TASK_SELECT, TaskView, task_from
from noonbell.stores.sql.statement import Fetch, Now, UpdateMany, Work
from noonbell.stores.sql.tasks import CURSOR_COLUMNS, changed_by, event_of


def set_status(
    q: Dialect, cache: TaskView, task_ids: Sequence[TaskId], status: TaskStatus, by: str | None
) -> Work[list[Task]]:
    now, tasks = yield from _accounted(q, cache, task_ids, status)
    turned = [(task, changed_by(task, TaskChange(spec=task.spec, status=status), now)) for task in tasks]
    if not turned:
        return []
    after = [task for _, task in turned]
    yield UpdateMany(
        "tasks",
        "id",
        ("version", "status", "updated_at"),
        [(task.id, task.version, str(task.status), now) for task in after],
    )
    yield UpdateMany(
        "cursors",
        "task_id",
        CURSOR_COLUMNS[1:],
        [(task.id, task.version, task.next_fire_at, task.fired, task.skip_next, task.accounted_to) for task in after],
    )
    yield from record_versions(after, now, by)
    facts: dict[str, list[tuple[Any, ...]]] = {}
    for before, task in turned:
        facts.setdefault(event_of(before, task), []).append((task.id, None, {"by": by, "version": task.version}))
        cache.put(task)
    yield from tell_all(now, facts)
    return after


def _accounted(
    q: Dialect, cache: TaskView, task_ids: Sequence[TaskId], status: TaskStatus
) -> Work[tuple[Instant, list[Task]]]:
    """Those that the change is for, held, with every slot up to now accounted for.

    Their cursors are taken in the order of their ids, so two of these never wait for each other.
    """
    ids = sorted(set(task_ids))
    yield Fetch(
        f"select task_id from cursors where {q.ids('task_id', 'ids')} order by task_id" + q.lock, {"ids": q.pack(ids)}
    )
    now = yield Now()
    while True:
        rows = yield Fetch(f"{TASK_SELECT} where {q.ids('t.id', 'ids')} order by t.id", {"ids": q.pack(ids)})
        found = [task_from(row) for row in rows]
        found = [task for task in found if task.deleted_at is None and task.status not in (status, TaskStatus.ERROR)]
        due = [task for task in found if task.next_fire_at is not None and task.next_fire_at <= now]
        if not due:
            return now, found
        yield from account_for(q, cache, now, [(cache.put(task), task) for task in due], cap=100)


def turns(q: Dialect, task_ids: Sequence[TaskId]) -> Work[dict[TaskId, Turn]]:
    """The version with which the status came that each task has: the one after the last that had another."""
    rows = yield Fetch(
        "select v.task_id, v.valid_from, v.changed_by from task_versions v join tasks t on t.id = v.task_id"
        f" where {q.ids('v.task_id', 'ids')} and v.version = 1 + coalesce("
        "(select max(w.version) from task_versions w where w.task_id = v.task_id and w.status <> t.status), 0)",
        {"ids": q.pack(sorted(set(task_ids)))},
    )
    return {TaskId(task_id): Turn(at=at, by=by) for task_id, at, by in rows}


def labels(text: str, limit: int) -> Work[list[Label]]:
    name, has_both, value = text.partition("=")
    params: dict[str, Any] = {"name": paging.like(name), "value": paging.like(value if has_both else name)}
    within = "lower(l.name) like :name escape '!'", "lower(l.value) like :value escape '!'"
    rows = yield Fetch(
        "select l.name, l.value, count(*) from task_labels l join tasks t on t.id = l.task_id"
        f" where t.deleted_at is null and ({(' and ' if has_both else ' or ').join(within)})"
        " group by l.name, l.value order by count(*) desc, l.name, l.value limit :limit",
        {**params, "limit": limit},
    )
    return [Label(name=name, value=value, tasks=count) for name, value, count in rows]
