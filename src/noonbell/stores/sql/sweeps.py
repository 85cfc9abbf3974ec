"""The steps of the sweep: what time has run out on is found, and ended where nothing has to be decided.

`overdue` (attempts, about which the engine decides) and `due_sweeps` (which other steps have anything to do) only read.
Most sweeps find nothing, and then cost no more than these two.

Expiry: a run that no worker has claimed by its time ends as a skip, `expired`.

The time stands in `expiries` until the run is claimed, or over. A claim passes over what has expired and deletes the
row of what it takes; the sweep ends the rest, through the one function by which runs become final. Both hold the run's
row, so one of them has it. A run that was claimed once does not expire any more, even if its attempts fail.

    K24  died before the commit   the run still waits and no claim takes it; the next sweep, on any node, ends it
    K25  died after it            it is over, and what follows was in the same commit

Joins: those whose time has run out end as a recorded skip, and what was too much for one transaction goes on.

Died before the commit: nothing is written, and the next sweep, on any node, finds the same rows.

Pauses of tasks that end by themselves. What was said of a pause belongs to each version of the task in which it lasts (`task_pauses`, written by
`record_versions`). A version of another status has no row, so other code that ends a pause need not know of this table:
the sweep finds that the row is not of the newest version, and takes it off its list.

A pause that lasts until a moment leaves out the slots before it, and none from it on: the version that is enabled holds
from that moment, also where the sweep comes later. What has become due in between is late, as after a downtime, and the
misfire policy decides about it.

Died before the commit: the task is paused, and the next sweep, on any node, resumes it. Died after it: all is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.errors import ScheduleError
from noonbell.model.access import AuditAction
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import DueSweeps, ExpiredRun, ExpiredSkips, JoinsSwept, ResumedTasks, TaskChange
from noonbell.model.run import Origin, Precondition, RunId, RunStatus, SkipReason
from noonbell.model.task import SCHEDULER_ACTOR, Task, TaskId, TaskStatus
from noonbell.model.task_schedule import After, Join, JoinState
from noonbell.policy import joins as policy
from noonbell.ports import Sign, unsigned
from noonbell.stores.sql import access
from noonbell.stores.sql.active_runs import Place, RunFlag, forget_expiries, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import Ending, finish, follow, turn_status
from noonbell.stores.sql.flows import task_as_of
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.joins import FOLLOWS, JustEnded, hold_cursors, load_joins, tell_births, write_joins
from noonbell.stores.sql.rows import TaskView, known_tasks, to_json
from noonbell.stores.sql.statement import Execute, Fetch, Now, UpdateMany, Work
from noonbell.stores.sql.tasks import changed_by, hold, load, revisions_under, write_versions

_DUE = (
    "select exists (select 1 from expiries where at <= :now), exists (select 1 from task_pauses where due_at <= :now),"
    " exists (select 1 from joins where due_at <= :now) or exists (select 1 from unfollowed),"
    " exists (select 1 from run_keys where open = 1), exists (select 1 from sla_watches where at <= :now)"
)


def due_sweeps() -> Work[DueSweeps]:
    rows = yield Fetch(_DUE, {"now": (yield Now())})
    return DueSweeps(*map(bool, rows[0]))


def overdue(limit: int) -> Work[list[ExpiredRun]]:
    now = yield Now()
    found = []
    for place in (Place.LEASED, Place.PARKED, Place.PARENT):
        rows = yield Fetch(
            "select run_id, task_id, token, attempt, retry_count, lost_count, worker_id, flags, deadline_at, at,"
            " job_type from live"
            f" where place = {int(place)} and at <= :now order by at limit :limit",
            {"now": now, "limit": limit},
        )
        for (
            run_id,
            task_id,
            token,
            attempt,
            retry_count,
            lost_count,
            worker_id,
            flags,
            deadline_at,
            at,
            job_type,
        ) in rows:
            precondition = Precondition.UNANSWERED
            if place is not Place.PARKED:
                precondition = Precondition.OVERTIME if deadline_at <= now else Precondition.EXPIRED
            late = ExpiredRun(
                run_id=RunId(run_id),
                task_id=TaskId(task_id),
                token=token,
                precondition=precondition,
                attempt=attempt,
                retry_count=retry_count,
                lost_count=lost_count,
                worker_id=worker_id,
                begun=bool(flags & RunFlag.BEGUN),
                is_step=bool(flags & RunFlag.STEP) or job_type == CALL_TYPE,
            )
            found.append((at, late))
    found.sort(key=lambda entry: entry[0])
    return [late for _, late in found[:limit]]


def expire(q: Dialect, cache: TaskView, limit: int) -> Work[ExpiredSkips]:
    now = yield Now()
    due = yield Fetch(
        "select run_id from expiries where at <= :now order by at limit :limit", {"now": now, "limit": limit}
    )
    if not due:
        return ExpiredSkips()
    ids = [row[0] for row in due]
    rows = yield from load_active(q, ids)
    waiting = [row for row in rows.values() if not row.was_claimed]
    yield from forget_expiries(q, ids)
    yield UpdateMany("runs", "id", ("skip_reason",), [(row.run_id, SkipReason.EXPIRED) for row in waiting])
    note = {"reason": SkipReason.EXPIRED}
    endings = [Ending(live=row, status=RunStatus.SKIPPED, start_time=None, note=note) for row in waiting]
    yield from finish(q, cache, now, endings)
    if waiting:
        failpoint.hit("K24")
    return ExpiredSkips(looked_at=len(ids), tasks=tuple(TaskId(row.task_id) for row in waiting))


_RUNS_AT_ONCE = 20
"""Runs whose followers are too many for one transaction, and that are gone on with in one sweep."""


def sweep_joins(q: Dialect, cache: TaskView, limit: int) -> Work[JoinsSwept]:
    now = yield Now()
    resumed = yield from _go_on_following(q, cache, now)
    rows = yield Fetch(
        "select id, task_id from joins where due_at <= :now order by due_at limit :limit", {"now": now, "limit": limit}
    )
    if not rows:
        return JoinsSwept(resumed=resumed)
    ids = q.pack(sorted(row[0] for row in rows))
    task_ids = {row[1] for row in rows}
    yield from hold_cursors(q, task_ids)
    joins = yield from load_joins(q, f"{q.ids('id', 'ids')} and due_at <= :now order by id", ids=ids, now=now)
    tasks = yield from known_tasks(q, cache, task_ids)
    late: list[tuple[Join, Task]] = []
    ended: list[Join] = []
    for join in joins:
        known = tasks.get(join.task_id)
        over = msgspec.structs.replace(join, due_at=None, root=policy.root_when_over(join.id, join.root, None))
        if known is None or known.task.deleted_at is not None or known.task.status not in FOLLOWS:
            ended.append(msgspec.structs.replace(over, state=JoinState.DISABLED))
        else:
            late.append((msgspec.structs.replace(over, state=JoinState.MISSING), known.task))
    new_runs = yield from _skip_joins(q, cache, now, late)
    ended += [msgspec.structs.replace(join, run_id=n.id) for (join, _), n in zip(late, new_runs, strict=True)]
    yield from write_joins(q, ended, is_new=False)
    yield from follow(q, cache, now, [JustEnded(new_run.id, new_run.task.id) for new_run in new_runs])
    return JoinsSwept(
        looked_at=len(rows),
        resumed=resumed,
        missing=tuple(task.id for _, task in late),
        disabled=len(joins) - len(late),
    )


def _skip_joins(q: Dialect, cache: TaskView, now: Instant, late: Sequence[tuple[Join, Task]]) -> Work[list[NewRun]]:
    new_runs = [
        NewRun(
            task=task,
            origin=Origin.UPSTREAM,
            scheduled_time=join.scheduled_time,
            run_at=now,
            skip_reason=SkipReason.UPSTREAM_MISSING,
            root=join.root,
            upstream_run_ids=tuple(arrival.run_id for arrival in join.arrivals),
            join=(join.root, join.edge_version, join.redrive),
        )
        for join, task in late
    ]
    yield from insert_runs(q, cache, now, new_runs)
    details = yield from _join_details(q, cache, late)
    rows = [(new_run.id, to_json(said)) for new_run, said in zip(new_runs, details, strict=True)]
    if rows:
        yield UpdateMany("runs", "id", ("error_details",), rows)
    for new_run, said in zip(new_runs, details, strict=True):
        yield from tell_births([new_run], missing=list(said["missing"]))
    return new_runs


def _join_details(q: Dialect, cache: TaskView, late: Sequence[tuple[Join, Task]]) -> Work[list[dict[str, Any]]]:
    """Which upstreams were missing, by name, each with how its run ended, if one did; and whether a change of `after`
    ended the wait.
    """
    waited: list[After | None] = []
    for join, task in late:
        waited.append((yield from _after_of(q, cache, join, task)))
    wanted = {id_ for after in waited if after is not None for id_ in after.upstream_ids}
    names = yield from known_tasks(q, cache, wanted)
    said: list[dict[str, Any]] = []
    for (join, task), after in zip(late, waited, strict=True):
        left = {} if after is None else policy.missing(after, join.arrivals)
        named = {names[id_].task.name if id_ in names else str(id_): status for id_, status in left.items()}
        told: dict[str, Any] = {"missing": named, "since": rfc3339(join.first_at)}
        said.append(told if after == task.spec.after else {**told, "changed": True})
    return said


def _after_of(q: Dialect, cache: TaskView, join: Join, task: Task) -> Work[After | None]:
    """What the task followed when the join was opened."""
    if join.edge_version == task.version:
        return task.spec.after
    then = yield from task_as_of(q, cache, task.id, join.edge_version)
    return task.spec.after if then is None else then.spec.after


def _go_on_following(q: Dialect, cache: TaskView, now: Instant) -> Work[int]:
    rows = yield Fetch(
        f"select run_id, done_to, replaced, at from unfollowed order by run_id limit :limit{q.skip_locked}",
        {"limit": _RUNS_AT_ONCE},
    )
    if not rows:
        return 0
    yield from q.delete_by("unfollowed", "run_id", [row[0] for row in rows])
    found = yield from q.fetch_by("select id, task_id from runs", "id", [row[0] for row in rows])
    tasks = {row[0]: row[1] for row in found}
    yield from follow(
        q,
        cache,
        now,
        [
            JustEnded(run_id, tasks[run_id], bool(replaced), done_to, Instant(at))
            for run_id, done_to, replaced, at in rows
            if run_id in tasks
        ],
    )
    return len(rows)


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
        resumed = yield from _resume_tasks(q, cache, now, [task for task in tasks if _pause_is_over(task, now)])
    yield Execute(
        f"update task_pauses set due_at = null where due_at <= :now and {q.ids('task_id', 'ids')}"
        " and version < (select t.version from tasks t where t.id = task_id)",
        {"now": now, "ids": q.pack(sorted({task_id for task_id, _ in due}))},
    )
    if resumed:
        yield from access.write_audit(q, [_audited(task) for task in resumed], sign)
    return ResumedTasks(looked_at=len(due), tasks=tuple(resumed))


def _pause_is_over(task: Task, now: Instant) -> bool:
    """Whether this sweep ends the pause: False where another one was quicker, or an operator has changed the task
    meanwhile.
    """
    is_paused = task.status is TaskStatus.DISABLED and task.deleted_at is None and task.pause is not None
    return is_paused and task.pause.until is not None and task.pause.until <= now  # type: ignore[union-attr]


def _resume_tasks(q: Dialect, cache: TaskView, now: Instant, tasks: Sequence[Task]) -> Work[list[Task]]:
    """Those of the same end together, each from its end on."""
    resumed: list[Task] = []
    for begin in sorted({_resumed_from(task) for task in tasks}):
        wanted = [
            (task, TaskChange(spec=task.spec, status=TaskStatus.ENABLED))
            for task in tasks
            if _resumed_from(task) == begin
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


def _resumed_from(task: Task) -> Instant:
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
