"""The sweep of joins: those whose time has run out end as a recorded skip, and what was too much for one transaction goes on.

Died before the commit: nothing is written, and the next sweep, on any node, finds the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.join import After, Join, JoinState
from noonbell.model.request import JoinsSwept
from noonbell.model.run import Origin, SkipReason
from noonbell.model.task import Task
from noonbell.policy import joins as policy
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import follow
from noonbell.stores.sql.flows import task_as_of
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.joins import FOLLOWS, JustEnded, load_joins, tell_births, write_joins
from noonbell.stores.sql.rows import TaskView, known_tasks, to_json
from noonbell.stores.sql.statement import Fetch, Now, UpdateMany, Work

_RUNS_AT_ONCE = 20
"""Runs whose followers are too many for one transaction, and that are gone on with in one sweep."""


def sweep_joins(q: Dialect, cache: TaskView, limit: int) -> Work[JoinsSwept]:
    now = yield Now()
    resumed = yield from _resume(q, cache, now)
    rows = yield Fetch(
        "select id, task_id from joins where due_at <= :now order by due_at limit :limit", {"now": now, "limit": limit}
    )
    if not rows:
        return JoinsSwept(resumed=resumed)
    ids = q.pack(sorted(row[0] for row in rows))
    task_ids = {row[1] for row in rows}
    yield from q.fetch_by("select task_id from cursors", "task_id", task_ids, f" order by task_id{q.lock}")
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
    new_runs = yield from _skip(q, cache, now, late)
    ended += [msgspec.structs.replace(join, run_id=n.id) for (join, _), n in zip(late, new_runs, strict=True)]
    yield from write_joins(q, ended, is_new=False)
    yield from follow(q, cache, now, [JustEnded(new_run.id, new_run.task.id) for new_run in new_runs])
    return JoinsSwept(
        looked_at=len(rows),
        resumed=resumed,
        missing=tuple(task.id for _, task in late),
        disabled=len(joins) - len(late),
    )


def _skip(q: Dialect, cache: TaskView, now: Instant, late: Sequence[tuple[Join, Task]]) -> Work[list[NewRun]]:
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
    details = yield from _details(q, cache, late)
    rows = [(new_run.id, to_json(said)) for new_run, said in zip(new_runs, details, strict=True)]
    if rows:
        yield UpdateMany("runs", "id", ("error_details",), rows)
    for new_run, said in zip(new_runs, details, strict=True):
        yield from tell_births([new_run], missing=list(said["missing"]))
    return new_runs


def _details(q: Dialect, cache: TaskView, late: Sequence[tuple[Join, Task]]) -> Work[list[dict[str, Any]]]:
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
        told: dict[str, Any] = {"missing": named, "since": join.first_at}
        said.append(told if after == task.spec.after else {**told, "changed": True})
    return said


def _after_of(q: Dialect, cache: TaskView, join: Join, task: Task) -> Work[After | None]:
    """What the task followed when the join was opened."""
    if join.edge_version == task.version:
        return task.spec.after
    then = yield from task_as_of(q, cache, task.id, join.edge_version)
    return task.spec.after if then is None else then.spec.after


def _resume(q: Dialect, cache: TaskView, now: Instant) -> Work[int]:
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
