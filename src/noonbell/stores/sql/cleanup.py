"""Cleanup in small batches: old history, what belongs to no run any more; checking counters; counting rows.

Tasks that are deleted: their runs are canceled, and with `purge` every row of theirs is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.engine import failpoint
from noonbell.errors import InvalidState, NoonbellError, Sentence, both
from noonbell.model.call import CALL_TYPE
from noonbell.model.failure_text import TEXTS
from noonbell.model.request import KeptReason
from noonbell.model.rollup import Scope
from noonbell.model.run import FINAL, RunId, RunStatus
from noonbell.model.task import SYSTEM_TASK_IDS, Task, TaskId
from noonbell.stores.sql import active_runs as narrow
from noonbell.stores.sql import bulk, joins, keys, limits, rollups, sla_sweep
from noonbell.stores.sql import ids as run_ids
from noonbell.stores.sql.active_runs import HOLDING, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import canceled, end_held, finish
from noonbell.stores.sql.ids import floor_at
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Execute, Fetch, Now, UpdateMany, Work, insert, matching
from noonbell.stores.sql.statement import delete as delete_rows
from noonbell.stores.sql.tasks import AT_ONCE, accounted, existing, hold, load, refuse_all

_MANY = 100_000
"""From here on, a server's own idea of how many rows a table has will do."""
_LOOKS = 20
"""How many batches one call looks through when most of what it finds must stay."""


def clean(
    q: Dialect,
    before: Instant,
    limit: int,
    *,
    task_id: TaskId | None = None,
    queue: str | None = None,
    status: Sequence[RunStatus] = (),
    keep: int | None = None,
    besides: Sequence[TaskId] = (),
) -> Work[int]:
    ids = yield from _old(q, before, limit, task_id, keep, queue, status, besides)
    return len((yield from _remove(q, ids, before)))


def clean_runs(q: Dialect, run_ids: Sequence[RunId]) -> Work[dict[RunId, KeptReason]]:
    rows = yield from q.fetch_by("select id, status, parent_id, end_time from runs", "id", run_ids)
    kept = dict.fromkeys(run_ids, KeptReason.NOT_FOUND)
    ends: dict[int, int] = {}
    for run_id, status, parent_id, end_time in rows:
        if status not in FINAL or end_time is None:
            kept[run_id] = KeptReason.NOT_FINAL
        elif parent_id is not None:
            kept[run_id] = KeptReason.PART
        else:
            kept[run_id], ends[run_id] = KeptReason.ACTIVE_PARTS, end_time
    gone = yield from _remove(q, sorted(ends), Instant(1 + max(ends.values(), default=0)))
    return {run_id: reason for run_id, reason in kept.items() if run_id not in gone}


def _remove(q: Dialect, ids: Sequence[int], before: Instant) -> Work[set[int]]:
    """Those of these final runs, all of which ended before, that are gone: the others have active runs below them.

    They are locked first, so that no slot is counted by two cleanings at once.
    """
    locked = yield from q.fetch_by("select id from runs", "id", ids, f" order by id{q.lock}")
    if not locked:
        return set()
    roots, whole = yield from _families(q, [row[0] for row in locked])
    for table in BELONGINGS:
        yield from q.delete_by(table, "run_id", whole)
    yield from _forget_joins(q, "run_id", roots)
    yield from _note_cleaned(q, roots)
    if roots:
        yield from rollups.note_cleaned(before)
    yield from run_ids.forget(q, whole)
    failpoint.hit("K14")
    yield from q.delete_by("runs", "id", whole)
    return set(roots)


def _forget_joins(q: Dialect, column: str, ids: Sequence[int]) -> Work[None]:
    rows = yield from q.fetch_by("select id from joins", column, ids)
    found = [row[0] for row in rows]
    yield from q.delete_by("join_runs", "join_id", found)
    yield from q.delete_by("joins", "id", found)


def _families(q: Dialect, ids: list[int]) -> Work[tuple[list[int], list[int]]]:
    """Those of these runs below which no run is active; and the same with all their parts, steps and children."""
    root_of = {run_id: run_id for run_id in ids}
    level: Sequence[int] = ids
    while level:
        below = yield from q.fetch_by("select id, parent_id from runs", "parent_id", level)
        level = [run_id for run_id, _ in below]
        root_of.update({run_id: root_of[parent_id] for run_id, parent_id in below})
    active = yield from q.fetch_by(
        "select run_id from live", "run_id", [run_id for run_id in root_of if run_id not in ids]
    )
    kept = {root_of[row[0]] for row in active}
    whole = [run_id for run_id, root in root_of.items() if root not in kept]
    return [run_id for run_id in ids if run_id not in kept], whole


def _note_cleaned(q: Dialect, ids: list[int]) -> Work[None]:
    """How many slots lose their run, and up to where: so that the account can tell these from holes."""
    more = " and slot is not null group by task_id"
    rows = yield from q.fetch_by("select task_id, max(slot), count(*) from runs", "id", ids, more)
    for task_id, last, count in sorted(rows, key=lambda row: row[0]):  # every cleanup locks in this order
        yield from _count(q, task_id, last, count)


def _old(
    q: Dialect,
    before: Instant,
    limit: int,
    task_id: TaskId | None,
    keep: int | None,
    queue: str | None,
    status: Sequence[RunStatus],
    besides: Sequence[TaskId],
) -> Work[list[int]]:
    found: list[int] = []
    after, thresholds = 0, dict[int, int]()
    kept: int | None = None  # so that the scan ends where what is kept begins
    if keep is not None and queue is not None:
        kept, keep = (yield from _oldest_kept("queue", queue, keep)), None
    elif keep is not None and task_id is not None:
        kept = yield from _oldest_kept("task_id", task_id, keep)
    which, params = matching(
        final=(q.names("status", "final"), q.pack(sorted(FINAL.intersection(status) if status else FINAL))),
        before=("end_time < :before", before),
        task=("task_id = :task", task_id),
        queue=("queue = :queue", queue),
        kept=("id < :kept", kept),
        besides=_besides(q, besides),
    )
    for _ in range(_LOOKS):
        rows = yield Fetch(
            f"select id, task_id from runs where id > :after and {which} and parent_id is null order by id limit :limit",
            {**params, "after": after, "limit": limit},
        )
        # What a run has spawned may outlive it: those runs are passed over, so that others behind them are reached.
        more = f" and place <> {int(Place.READY)}"
        busy = yield from q.fetch_by("select distinct parent_id from live", "parent_id", [row[0] for row in rows], more)
        waits = {row[0] for row in busy}
        for run_id, of_task in rows:
            if run_id in waits:
                continue
            if keep is not None and of_task not in thresholds:
                thresholds[of_task] = yield from _oldest_kept("task_id", of_task, keep)
            if keep is None or run_id < thresholds[of_task]:
                found.append(run_id)
        if len(found) >= limit or len(rows) < limit:
            break
        after = rows[-1][0]
    return found[:limit]


def _besides(q: Dialect, task_ids: Sequence[TaskId]) -> tuple[str, Any]:
    return f"not ({q.ids('task_id', 'besides')})", q.pack(list(task_ids)) if task_ids else None


def _oldest_kept(column: str, value: int | str, keep: int) -> Work[int]:
    """The id of the oldest run among the newest `keep` of a task or queue; all are kept if there are not more."""
    if keep <= 0:
        return 1 << 62
    rows = yield Fetch(
        f"select id from runs where {column} = :value and parent_id is null order by id desc limit 1 offset :skip",
        {"value": value, "skip": keep - 1},
    )
    return int(rows[0][0]) if rows else 0


def recount(q: Dialect) -> Work[int]:
    gates = yield Fetch(f"select task_id, used, waiting, passed from gates order by task_id{q.lock}")
    rows = yield Fetch("select gate, place, count(*) from live where gate is not null group by gate, place")
    real: dict[int, list[int]] = {row[0]: [0, 0, 0] for row in gates}
    for gate, place, count in rows:
        counts = real.get(gate)
        if counts is None:
            continue
        if place in HOLDING:
            counts[0] += count
        elif place == Place.GATED:
            counts[1] += count
        elif place not in (Place.LATER, Place.GATHERING, Place.HELD):
            counts[2] += count
    wrong = [(gate, *real[gate]) for gate, *counted in gates if list(counted) != real[gate]]
    if wrong:
        yield UpdateMany("gates", "task_id", ("used", "waiting", "passed"), wrong)
    return len(wrong) + (yield from keys.recount(q))


def counts(q: Dialect) -> Work[Mapping[str, int]]:
    found: dict[str, int] = {}
    unique = tuple(run_ids.TABLES.values()) if q.has_partitions else ()
    for table in (
        "tasks",
        "runs",
        "attempts",
        "bodies",
        "callbacks",
        "run_log",
        "events",
        "dropped",
        "workers",
        *unique,
    ):
        rows = (yield Fetch(q.rough_count, {"name": q.naming.table(table)})) if q.rough_count else []
        if not rows or (rows[0][0] or 0) < _MANY:
            rows = yield Fetch(f"select count(*) from {table}")
        found[table] = int(rows[0][0])
    rows = yield Fetch("select count(*) from joins where due_at is not null")
    found["joins.open"] = int(rows[0][0])
    for place in Place:
        found[f"live.{place.name.lower()}"] = 0
    for place, count in (yield Fetch("select place, count(*) from live group by place")):
        found[f"live.{Place(place).name.lower()}"] = count
    return found


def clean_rest(
    q: Dialect, before: Instant, limit: int, *, task_id: TaskId | None = None, besides: Sequence[TaskId] = ()
) -> Work[int]:
    dropped = yield from _dropped(q, before, limit, task_id, besides)
    if task_id is not None:
        return dropped
    tasks = yield from _deleted_tasks(q, before, limit)
    workers = yield from _silent_workers(q, before, limit)
    past = yield from _outages_and_pauses(before)
    alone = yield from _joins_without_a_run(q, before, limit)
    now = yield Now()
    rates = yield from limits.forget_idle(q, now, limit)
    breaches = yield from sla_sweep.forget_breaches(q, now, limit)
    operations = yield from bulk.forget(q, before, limit)
    return dropped + tasks + workers + past + alone + rates + breaches + operations


def _joins_without_a_run(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Remove joins that ended because their task was off. The others go with the run that they made."""
    rows = yield Fetch(
        "select id from joins where run_id is null and due_at is null and id < :before order by id limit :limit",
        {"before": floor_at(before), "limit": limit},
    )
    yield from _forget_joins(q, "id", [row[0] for row in rows])
    return len(rows)


def _dropped(q: Dialect, before: Instant, limit: int, task_id: TaskId | None, besides: Sequence[TaskId]) -> Work[int]:
    """Slots that the misfire policy left out. They stay counted: the account must not take them for holes."""
    which, params = matching(
        before=("last < :before", before), task=("task_id = :task", task_id), besides=_besides(q, besides)
    )
    rows = yield Fetch(
        f"select task_id, first, last, count from dropped where {which} order by task_id, first limit :limit",
        {**params, "limit": limit},
    )
    for of_task, first, last, count in rows:
        yield delete_rows("dropped", task_id=of_task, first=first)
        yield from _count(q, of_task, last, count)
    return len(rows)


def _outages_and_pauses(before: Instant) -> Work[int]:
    """They are few, and explain nothing whose runs are gone."""
    removed = 0
    for table in ("outages", "clock_steps", "store_returns", "queue_pauses", "installation_pauses"):
        removed += yield Execute(f"delete from {table} where until < :before", {"before": before})
    yield Execute("delete from pulses where at < :before", {"before": before})
    return removed


def _count(q: Dialect, task_id: int, last: int, count: int) -> Work[None]:
    noted = yield Fetch(f"select last from cleaned where task_id = :task{q.lock}", {"task": task_id})
    if not noted:
        yield insert("cleaned", task_id=task_id, last=last, count=count)
        return
    yield Execute(
        "update cleaned set last = :last, count = count + :count where task_id = :task",
        {"last": max(last, noted[0][0]), "count": count, "task": task_id},
    )


def _deleted_tasks(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Tasks that were deleted long ago and have no run left that would name them."""
    rows = yield Fetch(
        "select id from tasks where deleted_at < :before"
        " and not exists (select 1 from runs where runs.task_id = tasks.id) order by id limit :limit",
        {"before": before, "limit": limit},
    )
    for row in rows:
        yield from purge_rows(q, TaskId(row[0]))
    return len(rows)


def _silent_workers(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Remove workers that never said that they stop."""
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


def delete_task(
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
    for followed in ({} if force else (yield from joins.refuse_followed(q, [task]))).values():
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
        refuse_all((yield from joins.refuse_followed(q, tasks)))
    ended: list[Task] = []
    for start in range(0, len(tasks), AT_ONCE):
        part = tasks[start : start + AT_ONCE]
        ended += yield from _delete(q, cache, now, part, by, cancel_running=cancel_running, purge=purge)
    return ended


def _check_deletable(task: Task) -> None:
    if task.id > SYSTEM_TASK_IDS:
        said = Sentence("task {task} is built in and cannot be deleted", task=repr(task.name))
        raise InvalidState(said if task.spec.job_type == CALL_TYPE else both(said, "disable it instead"))


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
    endings = yield from canceled(q, ordered, TEXTS["canceled_deleted"], details)
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
    yield from run_ids.forget_task(q, task_id)
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
