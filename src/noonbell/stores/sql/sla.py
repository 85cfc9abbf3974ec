"""Service levels: the rows of runs that may break one, written with the run, and what is known of breaches.

A task without a service level has no such rows. The transition that ends a run does not touch them: the sweep finds in
history when a run started and ended, and judges by that (`sla_sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.model.rollup import Span
from noonbell.model.run import Origin
from noonbell.model.sla import BreachCount, Sla, SlaBreach, SlaWatch
from noonbell.model.task import Task
from noonbell.policy.sla import first_look, watch_of
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TASK_SELECT, Record, TaskView, task_from, to_json
from noonbell.stores.sql.statement import Fetch, InsertMany, Work, delete, insert, matching

WATCH = Record(SlaWatch)
BREACH = Record(SlaBreach)
_SELECT_BREACH = f"select {BREACH.select()} from sla_breaches"


def watch(task: Task, sla: Sla, run_id: int, origin: Origin, run_at: Instant, now: Instant) -> SlaWatch | None:
    """A run that was triggered is not due before it was triggered."""
    due_at = run_at if origin is Origin.SCHEDULE else Instant(max(run_at, now))
    return watch_of(sla, run_id, task.id, task.spec.timezone, due_at)


def insert_watches(watches: Sequence[SlaWatch]) -> Work[None]:
    yield InsertMany("sla_watches", ("at", *WATCH.columns), [(first_look(each), *WATCH.row(each)) for each in watches])


def watch_anew(cache: TaskView, task: Task, run_id: int, origin: Origin, run_at: Instant, now: Instant) -> Work[None]:
    """The run is due at another time."""
    sla = cache.sla_of(task.spec)
    if sla is not None:
        yield delete("sla_watches", run_id=run_id)
        found = watch(task, sla, run_id, origin, run_at, now)
        if found is not None:
            yield from insert_watches([found])


# Levels by label


def sla_defaults() -> Work[dict[str, Sla]]:
    rows = yield Fetch("select data from sla_defaults where one = 1")
    return msgspec.json.decode(rows[0][0], type=dict[str, Sla]) if rows else {}


def put_sla_defaults(defaults: dict[str, Sla]) -> Work[None]:
    rows = yield Fetch("select data from sla_defaults where one = 1")
    data = to_json(defaults)
    if [row[0] for row in rows] != [data]:
        yield delete("sla_defaults", one=1)
        yield insert("sla_defaults", one=1, data=data)


# Reading


def sla_tasks() -> Work[list[Task]]:
    rows = yield Fetch(f"{TASK_SELECT} where t.sla is not null and t.deleted_at is null order by t.name")
    return [task_from(row) for row in rows]


def sla_breaches(
    q: Dialect,
    limit: int,
    *,
    task_ids: Sequence[int] | None = None,
    run_id: int | None = None,
    since: Instant | None = None,
) -> Work[list[SlaBreach]]:
    """The newest first: all, those of these tasks, or those of a run."""
    which, params = matching(
        run=("run_id = :run", run_id),
        tasks=(q.ids("task_id", "tasks"), None if task_ids is None else q.pack(list(task_ids))),
        since=("deadline >= :since", since),
    )
    sql = f"{_SELECT_BREACH} where {which} order by deadline desc, id desc limit :limit"
    rows = yield Fetch(sql, {**params, "limit": limit})
    return [BREACH.read(row) for row in rows]


def breach_counts(
    q: Dialect, task_ids: Sequence[int], since: Instant, until: Instant, step: Span | None = None
) -> Work[list[BreachCount]]:
    """How many breaches came in the stretch, of each task and level, for each `step` or all of it."""
    at = f"{int(since)}" if step is None else f"breached_at - breached_at % {step.length}"
    group = "task_id, rule" if step is None else f"task_id, rule, {at}"
    rows = yield from q.fetch_by(
        f"select task_id, rule, {at}, count(*) from sla_breaches",
        "task_id",
        task_ids,
        f" and breached_at >= :since and breached_at < :until group by {group}",
        since=since,
        until=until,
    )
    return [BreachCount(task_id, rule, Instant(int(begin)), int(count)) for task_id, rule, begin, count in rows]
