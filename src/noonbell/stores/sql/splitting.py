"""Parents of a fan-out that start now: which workers are there, and the parts for them."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.clock import Instant
from noonbell.model.request import ClaimRequest
from noonbell.model.worker import WorkerState
from noonbell.stores.sql import fanout, rounds
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.known import known_tasks
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.place import Flag, Place
from noonbell.stores.sql.registry import is_alive, load_workers
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import UpdateMany, Work

_COLUMNS = ("place", "at", "token", "claimed_at", "attempt", "flags")


def split_parents(
    q: Dialect, cache: TaskView, now: Instant, request: ClaimRequest, parents: Sequence[Live]
) -> Work[None]:
    """Each parent is RUNNING from now on, without a lease of its own, and its parts wait for their workers."""
    tasks = yield from known_tasks(q, cache, [parent.task_id for parent in parents])
    workers = yield from load_workers()
    started: list[Live] = []
    for parent in parents:
        spec = tasks[parent.task_id].task.spec
        alive = {
            worker.id
            for worker in workers
            if is_alive(worker, now)
            and worker.state is WorkerState.RUNNING
            and parent.queue in worker.queues
            and (worker.job_types is None or parent.job_type is None or parent.job_type in worker.job_types)
            and worker.version >= spec.min_worker_version
        } | {request.worker_id}
        if spec.specific_worker_ids:
            alive &= set(spec.specific_worker_ids)
        started.append(
            parent._replace(
                place=int(Place.PARENT),
                at=None,
                token=max(parent.token + 1, now),
                claimed_at=now,
                attempt=parent.attempt + 1,
                flags=parent.flags & ~Flag.RETRIED,
            )
        )
        yield from fanout.split(q, cache, now, parent, sorted(alive))
    rows = [(row.run_id, *(getattr(row, column) for column in _COLUMNS)) for row in started]
    yield UpdateMany("live", "run_id", _COLUMNS, rows)
    tracked = [row for row in started if row.flags & Flag.ROUND]
    if tracked:
        yield from rounds.start(q, tracked)
    yield from tell(now, "run.started", [(row.task_id, row.run_id, {"parts": True}) for row in started])
