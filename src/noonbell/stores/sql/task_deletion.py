"""Tasks that are deleted: their runs are canceled, and with `purge` every row of theirs is removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noonbell.clock import Instant
from noonbell.errors import InvalidState, NoonbellError
from noonbell.model.call import CALL_TYPE
from noonbell.model.rollup import Scope
from noonbell.model.task import SYSTEM_TASK_IDS, Task, TaskId
from noonbell.stores.sql import active_runs as narrow
from noonbell.stores.sql import edges, unique_runs
from noonbell.stores.sql.active_runs import RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import canceled, end_held, finish
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.statement import delete as delete_rows
from noonbell.stores.sql.tasks import AT_ONCE, accounted, existing, hold, load, refuse_all


def delete(
    q: Dialect,
    cache: TaskView,
    task_id: TaskId,
    *,
    by: str | None = None,
    cancel_running: bool = False,
    purge: bool = False,
    force: bool = False,
    expect_version: int | None = None,
) -> Work[Task]:
    now, task = yield from accounted(q, cache, task_id, expect_version)
    _check_deletable(task)
    for followed in ({} if force else (yield from edges.refuse_followed(q, [task]))).values():
        raise followed
    (ended,) = yield from _delete(q, cache, now, [task], by, cancel_running=cancel_running, purge=purge)
    return ended


def delete_all(
    q: Dialect,
    cache: TaskView,
    versions: Mapping[TaskId, int | None],
    *,
    by: str | None = None,
    cancel_running: bool = False,
    purge: bool = False,
    force: bool = False,
) -> Work[list[Task]]:
    ids = list(versions)
    now = yield from hold(q, cache, ids)
    tasks: list[Task] = []
    refused: dict[int, NoonbellError] = {}
    for start in range(0, len(ids), AT_ONCE):
        found = yield from load(q, ids[start : start + AT_ONCE])
        for index, task_id in enumerate(ids[start : start + AT_ONCE], start):
            try:
                tasks.append(existing(found.get(task_id), task_id, versions[task_id]))
                _check_deletable(tasks[-1])
            except NoonbellError as error:
                refused[index] = error
    refuse_all(refused)
    if not force:
        refuse_all((yield from edges.refuse_followed(q, tasks)))
    ended: list[Task] = []
    for start in range(0, len(tasks), AT_ONCE):
        part = tasks[start : start + AT_ONCE]
        ended += yield from _delete(q, cache, now, part, by, cancel_running=cancel_running, purge=purge)
    return ended


def _check_deletable(task: Task) -> None:
    if task.id > SYSTEM_TASK_IDS:
        more = "" if task.spec.job_type == CALL_TYPE else "; disable it instead"
        raise InvalidState(f"task {task.name!r} is built in and cannot be deleted{more}")


def _delete(
    q: Dialect,
    cache: TaskView,
    now: Instant,
    tasks: Sequence[Task],
    by: str | None,
    *,
    cancel_running: bool,
    purge: bool,
) -> Work[list[Task]]:
    """Of tasks that are held and accounted for."""
    rows = yield from narrow.load_of_tasks(q, [task.id for task in tasks])
    if not (cancel_running or purge):
        rows = [row for row in rows if not row.started and (row.parent_id is None or row.flags & RunFlag.CHILD)]
    ordered = sorted(rows, key=lambda row: row.parent_id is None)
    details = {"kind": "canceled", "why": "deleted", "by": by}
    endings = yield from canceled(q, ordered, "its task was deleted", details)
    parts = {row.run_id for row in rows if row.parent_id is not None}
    yield from finish(q, cache, now, [e for e in endings if e.live.run_id not in parts])
    if parts:
        left = yield from narrow.load_active(q, parts)
        yield from finish(q, cache, now, [e for e in endings if e.live.run_id in left])
    # A run that ended may have been its task's last one: its task is then at another version, or deleted already.
    current = yield from load(q, [task.id for task in tasks])
    standing = [task for task in current.values() if task.deleted_at is None]
    ended = {task.id: task for task in (yield from end_held(q, cache, now, standing, by=by))}
    if purge:
        for task in tasks:
            yield from purge_rows(q, task.id)
    return [ended.get(task.id, current[task.id]) for task in tasks]


BELONGINGS = (
    *("inputs", "bodies", "attempts", "callback_tokens", "callbacks", "progress", "run_log", "pins", "expiries"),
    "sla_watches",
    *("flow_items", "flow_steps", "flows", "children", "gathers"),
)


_OF_A_TASK = (
    *("runs", "task_versions", "version_marks", "task_labels", "dropped", "cleaned", "skip_orders", "rounds", "gates"),
    *("edges", "joins", "cursors", "run_keys", "needed_labels", "task_calendars", "task_pauses"),
    *("sla_breaches", "sla_ratios"),
)


def purge_rows(q: Dialect, task_id: TaskId) -> Work[None]:
    """Remove every row of a task."""
    here = {"task": task_id}
    yield from unique_runs.forget_task(q, task_id)
    for table in BELONGINGS:
        yield Execute(f"delete from {table} where run_id in (select id from runs where task_id = :task)", here)
    yield Execute("delete from join_runs where join_id in (select id from joins where task_id = :task)", here)
    for table in _OF_A_TASK:
        yield delete_rows(table, task_id=task_id)
    yield delete_rows("edges", upstream_id=task_id)
    yield delete_rows("tasks", id=task_id)
    yield delete_rows("rollups", kind=str(Scope.TASK), name=str(task_id))
    scope = f"task:{task_id}"
    yield Execute(
        "delete from rates where scope = :scope or scope like :keyed", {"scope": scope, "keyed": f"{scope}:%"}
    )
