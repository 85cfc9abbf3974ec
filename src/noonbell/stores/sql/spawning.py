"""Spawn: a running attempt asks for children, under its token.

The position says which child it is: the n-th that the attempt asks for. An attempt that asks again, after it was parked or its
worker was lost, gets the child that is there. A retry of the job keeps the children that succeeded or are under way; one that
failed is made anew. A child that a retry kept is that retry's: if it fails afterwards, the attempt that resumes gets it as it is.

    K31  died before the commit   no child was made; the next attempt asks again
    K31  died after it            the next attempt gets the children that were made
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.engine import failpoint
from noonbell.errors import ConcurrencyLimit, InvalidState, LeaseLost, NotFound
from noonbell.model.request import Publication, PublishResult
from noonbell.model.run import (
    FINAL,
    MOST_CHILDREN,
    SUCCEEDED,
    ChildRequest,
    Origin,
    RunId,
    RunStatus,
    idempotency_key_of,
)
from noonbell.stores.sql import publishing
from noonbell.stores.sql.active_runs import Live, Place, RunFlag, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.finish import after_birth
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.rows import Known, TaskView, from_json, known_tasks
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work


def spawn(
    q: Dialect, cache: TaskView, run_id: RunId, token: int, requests: Sequence[ChildRequest]
) -> Work[list[RunId]]:
    """The run of each request."""
    live = (yield from load_active(q, [run_id])).get(run_id)
    if live is None or live.place != Place.LEASED or live.token != token:
        raise LeaseLost(f"run {run_id} is not held with this token any longer")
    _check(live, requests)
    tasks = yield from _tasks(q, cache, requests)
    there = yield from _there(q, run_id, requests)
    made: dict[int, NewRun] = {}
    kept: list[int] = []
    answers: list[RunId | NewRun] = []
    now = yield Now()
    counts = yield from publishing.counts_of(q, {known.task.id: known for known in tasks.values()})
    parent = yield from _parent(run_id)
    for request in requests:
        child = there.get(request.position)
        if child is not None:
            _check_same(request, tasks[request.task], child)
            is_of_before = child.retry_count < live.retry_count
            if not (is_of_before and child.status in FINAL and child.status not in SUCCEEDED):
                answers.append(child.run_id)
                if is_of_before:
                    kept.append(request.position)
                continue
        new_run = _new_run(tasks[request.task], now, request, counts)
        new_run.parent_id, new_run.parent_key = run_id, parent[0]
        new_run.child = (request.position, live.retry_count)
        new_run.trace_id = request.trace_id or parent[1]
        made[request.position] = new_run
        answers.append(new_run)
    if kept:
        yield Execute(
            f"update children set retry_count = :retry_count where run_id = :id and {q.ids('position', 'positions')}",
            {"id": run_id, "retry_count": live.retry_count, "positions": q.pack(sorted(kept))},
        )
    if made:
        yield from _write(q, cache, now, live, made, [position for position in made if position in there])
    return [answer.id if isinstance(answer, NewRun) else answer for answer in answers]


class _Child(msgspec.Struct):
    run_id: RunId
    retry_count: int
    task_id: int | None
    status: RunStatus
    payload: Any


def _check(live: Live, requests: Sequence[ChildRequest]) -> None:
    if live.flags & RunFlag.ONCE:
        raise InvalidState(
            "a job with delivery at_most_once cannot spawn: it would have to be attempted again to get the results"
        )
    if max(request.position for request in requests) >= MOST_CHILDREN:
        raise InvalidState(f"a run spawns at most {MOST_CHILDREN} children")


def _tasks(q: Dialect, cache: TaskView, requests: Sequence[ChildRequest]) -> Work[dict[str, Known]]:
    names = sorted({request.task for request in requests})
    rows = yield Fetch(
        f"select live_name, id from tasks where {q.names('live_name', 'names')}", {"names": q.pack(names)}
    )
    ids = dict(rows)
    missing = [name for name in names if name not in ids]
    if missing:
        raise NotFound(f"there is no task {missing[0]!r} for what the job spawns")
    known = yield from known_tasks(q, cache, list(ids.values()))
    publishing.check(known, [Publication(task_id=task_id) for task_id in ids.values()])
    return {name: known[task_id] for name, task_id in ids.items()}


def _there(q: Dialect, run_id: RunId, requests: Sequence[ChildRequest]) -> Work[dict[int, _Child]]:
    rows = yield Fetch(
        "select c.position, c.child_id, c.retry_count, r.task_id, r.status, i.payload from children c"
        " left join runs r on r.id = c.child_id left join inputs i on i.run_id = c.child_id"
        f" where c.run_id = :id and {q.ids('c.position', 'positions')}",
        {"id": run_id, "positions": q.pack(sorted({request.position for request in requests}))},
    )
    return {
        position: _Child(
            run_id=RunId(child_id),
            retry_count=retry_count,
            task_id=task_id,
            status=RunStatus(status or RunStatus.FAILED),
            payload=msgspec.UNSET if payload is None else from_json(payload),
        )
        for position, child_id, retry_count, task_id, status, payload in rows
    }


def _check_same(request: ChildRequest, known: Known, child: _Child) -> None:
    if child.task_id is None:
        raise InvalidState(f"spawn {request.position + 1} is run {child.run_id}, which is not kept any longer")
    if child.task_id != known.task.id:
        what = f"and was a run of another job (run {child.run_id})"
    elif child.payload != request.payload:
        what = f"with another payload than before (run {child.run_id})"
    else:
        return
    raise InvalidState(
        f"spawn {request.position + 1} is {request.task} now, {what}; a job that is resumed must spawn the same in the same order"
    )


def _new_run(known: Known, now: Instant, request: ChildRequest, counts: dict[int, list[int]]) -> NewRun:
    asked = Publication(
        task_id=known.task.id,
        origin=Origin.SPAWN,
        payload=request.payload,
        delay_seconds=request.delay_seconds,
        run_at=request.run_at,
        priority=request.priority,
        specific_worker_ids=request.specific_worker_ids,
    )
    made = publishing.make(known, now, asked, counts)
    if isinstance(made, PublishResult):
        raise ConcurrencyLimit(f"task {known.task.name!r} is at its limit and takes no further run ({made.reason})")
    return made


def _parent(run_id: RunId) -> Work[tuple[str, str | None]]:
    """Its idempotency key and its trace."""
    rows = yield Fetch("select scheduled_time, idempotency_key, trace_id from runs where id = :id", {"id": run_id})
    scheduled_time, key, trace_id = rows[0]
    return idempotency_key_of(run_id, scheduled_time, key), trace_id


def _write(
    q: Dialect, cache: TaskView, now: Instant, live: Live, made: Mapping[int, NewRun], again: Sequence[int]
) -> Work[None]:
    """`again`: positions whose child is made anew."""
    if not live.flags & RunFlag.SPAWNER:
        yield InsertMany("gathers", ("run_id", "executed"), [(live.run_id, 0)])
        yield UpdateMany("live", "run_id", ("flags",), [(live.run_id, live.flags | RunFlag.SPAWNER)])
    new_runs = list(made.values())
    yield from insert_runs(q, cache, now, new_runs)
    if again:
        yield Execute(
            f"delete from children where run_id = :id and {q.ids('position', 'positions')}",
            {"id": live.run_id, "positions": q.pack(sorted(again))},
        )
    rows = [(live.run_id, position, new_run.id, live.retry_count) for position, new_run in made.items()]
    yield InsertMany("children", ("run_id", "position", "child_id", "retry_count"), rows)
    cache.step_queues |= {new_run.task.spec.queue for new_run in new_runs}
    told = {"status": RunStatus.SCHEDULED, "parent_id": live.run_id}
    yield from tell("run.scheduled", [(new_run.task.id, new_run.id, told) for new_run in new_runs])
    yield from after_birth(q, cache, now, new_runs)
    failpoint.hit("K31")
