"""What belongs to no run and is as old as the history that retention removes: it goes in small batches too."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.clock import Instant
from noonbell.model.task import TaskId
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Work
from noonbell.stores.sql.tasks import purge_rows


def clean(q: Dialect, before: Instant, limit: int, task_id: TaskId | None, besides: Sequence[TaskId]) -> Work[int]:
    dropped = yield from _dropped(q, before, limit, task_id, besides)
    if task_id is not None:
        return dropped
    tasks = yield from _deleted_tasks(before, limit)
    workers = yield from _silent_workers(q, before, limit)
    past = yield from _outages_and_pauses(before)
    return dropped + tasks + workers + past


def _dropped(q: Dialect, before: Instant, limit: int, task_id: TaskId | None, besides: Sequence[TaskId]) -> Work[int]:
    """Slots that the misfire policy left out. They stay counted: the account must not take them for holes."""
    params: dict[str, object] = {"before": before, "limit": limit}
    which = ""
    if task_id is not None:
        which, params["task"] = " and task_id = :task", task_id
    if besides:
        which, params["besides"] = f"{which} and not ({q.ids('task_id', 'besides')})", q.pack(list(besides))
    rows = yield Fetch(
        f"select task_id, first, last, count from dropped where last < :before{which}"
        " order by task_id, first limit :limit",
        params,
    )
    for of_task, first, last, count in rows:
        yield Execute("delete from dropped where task_id = :task and first = :first", {"task": of_task, "first": first})
        yield from _count(q, of_task, last, count)
    return len(rows)


def _outages_and_pauses(before: Instant) -> Work[int]:
    """They are few, and explain nothing whose runs are gone."""
    removed = 0
    for table in ("outages", "queue_pauses"):
        removed += yield Execute(f"delete from {table} where until < :before", {"before": before})
    return removed


def _count(q: Dialect, task_id: int, last: int, count: int) -> Work[None]:
    noted = yield Fetch(f"select last from cleaned where task_id = :task{q.lock}", {"task": task_id})
    if not noted:
        yield InsertMany("cleaned", ("task_id", "last", "count"), [(task_id, last, count)])
        return
    yield Execute(
        "update cleaned set last = :last, count = count + :count where task_id = :task",
        {"last": max(last, noted[0][0]), "count": count, "task": task_id},
    )


def _deleted_tasks(before: Instant, limit: int) -> Work[int]:
    """Tasks that were deleted long ago and have no run left that would name them."""
    rows = yield Fetch(
        "select id from tasks where deleted_at < :before"
        " and not exists (select 1 from runs where runs.task_id = tasks.id) order by id limit :limit",
        {"before": before, "limit": limit},
    )
    for row in rows:
        yield from purge_rows(TaskId(row[0]))
    return len(rows)


def _silent_workers(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Workers that never said goodbye."""
    rows = yield Fetch(
        "select id from workers where heartbeat_at < :before order by id limit :limit",
        {"before": before, "limit": limit},
    )
    if rows:
        yield Execute(
            f"delete from workers where {q.names('id', 'ids')} and heartbeat_at < :before",
            {"ids": q.pack([row[0] for row in rows]), "before": before},
        )
    return len(rows)
