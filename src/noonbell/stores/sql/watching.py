"""What somebody sees who only looks: slots nobody has planned, runs nobody has taken, runs that take long, silent workers."""

from __future__ import annotations

from statistics import median

from noonbell.clock import SECOND, Instant
from noonbell.model.alert import Late
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.place import DUE, Place
from noonbell.stores.sql.registry import SILENCE
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, Work

_PLACES = ", ".join(str(int(place)) for place in sorted(DUE))
_ENOUGH = 5
"""Fewer runs than this do not say what is usual."""
_LOOKED_AT = 20
_TASKS = 50
"""Tasks whose history is looked into in one reading."""


def overdue_tasks(seconds: float, limit: int) -> Work[list[Late]]:
    now = yield Now()
    rows = yield Fetch(
        "select c.task_id, t.name, c.next_fire_at from cursors c join tasks t on t.id = c.task_id"
        " where c.next_fire_at <= :before order by c.next_fire_at limit :limit",
        {"before": now - round(seconds * SECOND), "limit": limit},
    )
    return [Late(task_id=TaskId(row[0]), task_name=row[1], since=Instant(row[2])) for row in rows]


def waiting_tasks(seconds: float, limit: int) -> Work[list[Late]]:
    now = yield Now()
    rows = yield Fetch(
        "select l.task_id, t.name, min(l.run_at), min(l.run_id), count(*) from live l join tasks t on t.id = l.task_id"
        f" where l.place in ({_PLACES}) and l.run_at <= :before"
        " and l.queue not in (select name from queues where paused = 1)"
        " group by l.task_id, t.name order by 3 limit :limit",
        {"before": now - round(seconds * SECOND), "limit": limit},
    )
    return [
        Late(task_id=TaskId(row[0]), task_name=row[1], since=Instant(row[2]), run_id=RunId(row[3]), count=row[4])
        for row in rows
    ]


def slow_tasks(seconds: float, factor: float, limit: int) -> Work[list[Late]]:
    """Runs under way for longer than `seconds`, and `factor` times as long as the median of the last successes."""
    now = yield Now()
    rows = yield Fetch(
        "select l.task_id, t.name, min(l.claimed_at), min(l.run_id) from live l join tasks t on t.id = l.task_id"
        f" where l.place = {int(Place.LEASED)} and l.claimed_at <= :before and l.parent_id is null"
        " group by l.task_id, t.name order by 3 limit :limit",
        {"before": now - round(seconds * SECOND), "limit": min(limit, _TASKS)},
    )
    found = []
    for task_id, name, claimed_at, run_id in rows:
        usual = yield from _usual(task_id)
        if usual is not None and now - claimed_at > factor * usual:
            late = Late(
                task_id=TaskId(task_id),
                task_name=name,
                since=Instant(claimed_at),
                run_id=RunId(run_id),
                usual_seconds=usual / SECOND,
            )
            found.append(late)
    return found


def _usual(task_id: int) -> Work[float | None]:
    rows = yield Fetch(
        "select end_time - start_time from (select status, start_time, end_time from runs where task_id = :task"
        " order by id desc limit 100) newest where status = 'SUCCESS' and start_time is not null limit :limit",
        {"task": task_id, "limit": _LOOKED_AT},
    )
    return median(row[0] for row in rows) if len(rows) >= _ENOUGH else None


def notice_workers() -> Work[int]:
    """Tell of workers that have fallen silent, and of those that are back, each once; how many of both."""
    now = yield Now()
    silent = yield Fetch(
        "select w.id, w.incarnation, w.heartbeat_at from workers w left join worker_losses l on l.worker_id = w.id"
        " where w.heartbeat_at <= :before and l.worker_id is null",
        {"before": now - SILENCE},
    )
    back = yield Fetch(
        "select l.worker_id, w.id from worker_losses l left join workers w on w.id = l.worker_id"
        " where w.id is null or w.heartbeat_at > :before",
        {"before": now - SILENCE},
    )
    for worker_id, incarnation, heartbeat_at in silent:
        yield InsertMany("worker_losses", ("worker_id", "incarnation", "at"), [(worker_id, incarnation, now)])
        data = {"worker_id": worker_id, "heartbeat_at": heartbeat_at}
        yield from tell(now, "worker.lost", [(None, None, data)])
    for worker_id, is_there in back:
        gone = yield Execute("delete from worker_losses where worker_id = :id", {"id": worker_id})
        if gone and is_there is not None:
            yield from tell(now, "worker.returned", [(None, None, {"worker_id": worker_id})])
    return len(silent) + len(back)
