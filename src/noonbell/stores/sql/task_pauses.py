"""Pauses of tasks that end by themselves.

What was said of a pause belongs to each version of the task in which it lasts (`task_pauses`, written by
`record_versions`). A version of another status has no row, so other code that ends a pause need not know of this table:
the sweep finds that the row is not of the newest version, and takes it off its list.

A pause that lasts until a moment leaves out the slots before it, and none from it on: the version that is enabled holds
from that moment, also where the sweep comes later. What has become due in between is late, as after a downtime, and the
misfire policy decides about it.

Died before the commit: the task is paused, and the next sweep, on any node, resumes it. Died after it: all is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.errors import ScheduleError
from noonbell.model.access import AuditAction
from noonbell.model.request import ResumedTasks, TaskChange
from noonbell.model.task import SCHEDULER_ACTOR, Task, TaskId, TaskStatus
from noonbell.ports import Sign, unsigned
from noonbell.stores.sql import access
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import turn_status
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Execute, Fetch, Now, Work
from noonbell.stores.sql.tasks import changed_by, hold, load, revisions_under, write_versions

ENDED = "pause_ended"
"""Why, in the event and in the audit log."""


def resume_due(q: Dialect, cache: TaskView, limit: int, sign: Sign = unsigned) -> Work[ResumedTasks]:
    now = yield Now()
    due = yield Fetch(
        "select p.task_id, t.id from task_pauses p left join tasks t on t.id = p.task_id and t.version = p.version"
        " where p.due_at <= :now order by p.due_at, p.task_id limit :limit",
        {"now": now, "limit": limit},
    )
    if not due:
        return ResumedTasks()
    paused = sorted({TaskId(task_id) for _, task_id in due if task_id is not None})
    resumed: list[Task] = []
    if paused:
        now = yield from hold(q, cache, paused)
        tasks = (yield from load(q, paused)).values()
        resumed = yield from _resume(q, cache, now, [task for task in tasks if _is_over(task, now)])
    yield Execute(
        f"update task_pauses set due_at = null where due_at <= :now and {q.ids('task_id', 'ids')}"
        " and version < (select t.version from tasks t where t.id = task_id)",
        {"now": now, "ids": q.pack(sorted({task_id for task_id, _ in due}))},
    )
    if resumed:
        yield from access.write_audit(q, [_audited(task) for task in resumed], sign)
    return ResumedTasks(looked_at=len(due), tasks=tuple(resumed))


def _is_over(task: Task, now: Instant) -> bool:
    """Whether this sweep ends the pause: False where another one was quicker, or an operator has changed the task
    meanwhile.
    """
    is_paused = task.status is TaskStatus.DISABLED and task.deleted_at is None and task.pause is not None
    return is_paused and task.pause.until is not None and task.pause.until <= now  # type: ignore[union-attr]


def _resume(q: Dialect, cache: TaskView, now: Instant, tasks: Sequence[Task]) -> Work[list[Task]]:
    """Those of the same end together, each from its end on."""
    resumed: list[Task] = []
    for begin in sorted({_from(task) for task in tasks}):
        wanted = [
            (task, TaskChange(spec=task.spec, status=TaskStatus.ENABLED)) for task in tasks if _from(task) == begin
        ]
        revisions = yield from revisions_under(q, wanted)
        turned: list[tuple[Task, Task]] = []
        for (task, change), revision in zip(wanted, revisions, strict=True):
            try:
                enabled = changed_by(task, change, begin, revision)
            except ScheduleError:
                # It could be read when it was saved. One such task must not stop the others, nor be tried for ever.
                yield from turn_status(q, cache, now, task, TaskStatus.ERROR, by=SCHEDULER_ACTOR)
                continue
            turned.append((task, msgspec.structs.replace(enabled, updated_at=now)))
        yield from write_versions(q, cache, now, turned, SCHEDULER_ACTOR, valid_from=begin, why=ENDED)
        resumed += [task for _, task in turned]
    return resumed


def _from(task: Task) -> Instant:
    """The last moment of the pause: a slot at its end is no longer left out. Not before the version that is paused."""
    until = task.updated_at if task.pause is None or task.pause.until is None else Instant(task.pause.until - 1)
    return max(until, task.updated_at)


def _audited(task: Task) -> AuditAction:
    return AuditAction(
        actor=SCHEDULER_ACTOR,
        action="resume_task",
        subject=f"/tasks/{task.id}",
        details={"why": ENDED, "version": task.version},
    )
