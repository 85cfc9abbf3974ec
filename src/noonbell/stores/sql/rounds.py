"""The previous round of a task, kept for those whose policies ask for it: how it stands, and the failures in a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.model.run import FAILURES, SUCCEEDED, RunStatus
from noonbell.model.task import Round, TaskId
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, UpdateMany, Work

_COLUMNS = ("task_id", "run_id", "status", "attempt", "end_time", "failures", "replaced", "skipped_run_id")
_SELECT = f"select {', '.join(_COLUMNS)} from rounds"


def load(q: Dialect, task_ids: Iterable[int], *, lock: bool = True) -> Work[dict[int, Round]]:
    ids = sorted(set(task_ids))
    if not ids:
        return {}
    rows = yield Fetch(
        f"{_SELECT} where {q.ids('task_id', 'ids')} order by task_id{q.lock if lock else ''}", {"ids": q.pack(ids)}
    )
    return {
        row[0]: Round(
            task_id=TaskId(row[0]),
            run_id=row[1],
            status=row[2],
            attempt=row[3],
            end_time=row[4],
            failures=row[5],
            replaced=bool(row[6]),
            skipped_run_id=row[7],
        )
        for row in rows
    }


def start(q: Dialect, claimed: Sequence[Live]) -> Work[None]:
    """These runs start. Each is its task's round now, unless a newer one has started already."""
    known = yield from load(q, [live.task_id for live in claimed])
    fresh: dict[int, tuple[object, ...]] = {}
    updates: dict[int, tuple[object, ...]] = {}
    newest: dict[int, int] = {task_id: found.run_id for task_id, found in known.items()}
    for live in claimed:
        if live.run_id < newest.get(live.task_id, 0):
            continue
        newest[live.task_id] = live.run_id
        if live.task_id in known:
            updates[live.task_id] = (live.task_id, live.run_id, RunStatus.RUNNING, live.attempt, None, 0)
        else:
            fresh[live.task_id] = (live.task_id, live.run_id, RunStatus.RUNNING, live.attempt, None, 0, 0, None)
    if fresh:
        yield InsertMany("rounds", _COLUMNS, list(fresh.values()))
    if updates:
        columns = ("run_id", "status", "attempt", "end_time", "replaced")
        yield UpdateMany("rounds", "task_id", columns, list(updates.values()))


def end(q: Dialect, now: Instant, ended: Sequence[tuple[Live, RunStatus, bool]]) -> Work[None]:
    """These runs are over. A failure adds to the row, a success ends it, a round that was replaced does neither."""
    known = yield from load(q, [live.task_id for live, _, _ in ended])
    rows: dict[int, tuple[object, ...]] = {}
    for live, status, replaced in ended:
        found = known.get(live.task_id)
        if found is None:
            continue
        failures = found.failures
        if status in SUCCEEDED:
            failures = 0
        elif status in FAILURES and not replaced:
            failures += 1
        state: tuple[Any, ...]
        if found.run_id == live.run_id:
            state = (live.task_id, status, live.attempt, now, failures, int(replaced))
        else:
            state = (live.task_id, found.status, found.attempt, found.end_time, failures, int(found.replaced))
        rows[live.task_id] = state
        known[live.task_id] = Round(
            task_id=TaskId(live.task_id),
            run_id=found.run_id,
            status=str(state[1]),
            attempt=live.attempt if found.run_id == live.run_id else found.attempt,
            end_time=now if found.run_id == live.run_id else found.end_time,
            failures=failures,
            replaced=bool(state[5]),
            skipped_run_id=found.skipped_run_id,
        )
    if rows:
        columns = ("status", "attempt", "end_time", "failures", "replaced")
        yield UpdateMany("rounds", "task_id", columns, list(rows.values()))


def give_back(handed: Sequence[Live]) -> Work[None]:
    """These runs wait again: while they do, they are nobody's previous round."""
    for live in handed:
        yield Execute(
            "update rounds set status = 'SCHEDULED' where task_id = :task and run_id = :run",
            {"task": live.task_id, "run": live.run_id},
        )


def answer(answers: dict[int, int]) -> Work[None]:
    """Task → the failed round that a skip has answered."""
    if answers:
        yield UpdateMany("rounds", "task_id", ("skipped_run_id",), sorted(answers.items()))
