"""The short way in for the ordinary run: no limit, no key, no follow-up. Sets of rows instead of rows.

It does what the shared transitions do, for runs on which nothing else hangs (READY, flags 0, no gate), in fewer and
larger statements; `finishing` is the way out. Where something does hang on a run, the answer is None and the store takes the long way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.idempotency import key_of_asked
from noonbell.model.request import Claimed, ClaimRequest, Outcome, Publication, Published
from noonbell.model.run import Lease, Origin, RunId, RunStatus
from noonbell.model.task import TaskStatus
from noonbell.stores.sql import claiming
from noonbell.stores.sql.births import gate_limit
from noonbell.stores.sql.claiming import Special
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import COLUMNS as EVENT_COLUMNS
from noonbell.stores.sql.known import known_tasks
from noonbell.stores.sql.place import Place, flags_for
from noonbell.stores.sql.rows import Known, TaskCache, TaskView, from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, Gather, InsertMany, NewIds, Now, Work, numbered

_ORIGINS = {str(origin): origin for origin in Origin}


# Publish


def plain_tasks(publications: Sequence[Publication], cache: TaskCache) -> dict[int, Known] | None:
    """The tasks of a batch if all of it can take the short way, as far as this node knows; else None."""
    tasks: dict[int, Known] = {}
    origin = publications[0].origin
    for publication in publications:
        if publication.origin is not origin or not _is_plain_publication(publication):
            return None
        if publication.task_id not in tasks:
            known = cache.newest(publication.task_id)
            if known is None or not _is_plain_task(known, origin):
                return None
            tasks[publication.task_id] = known
    return tasks


def _is_plain_publication(publication: Publication) -> bool:
    return (
        publication.key is None
        and publication.run_at is None
        and publication.delay_seconds <= 0
        and publication.overrides is None
        and publication.specific_worker_ids is None
        and publication.scheduled_time is None
        and publication.retry_of_run_id is None
    )


def _is_plain_task(known: Known, origin: Origin) -> bool:
    spec = known.task.spec
    return (
        known.task.deleted_at is None
        and known.task.status is not TaskStatus.ERROR
        and gate_limit(spec) is None
        and spec.max_concurrency is None
        and spec.min_worker_version == 0
        and not flags_for(spec, origin, pinned=bool(spec.specific_worker_ids))
    )


_RUN_COLUMNS = (
    "id",
    "task_id",
    "task_version",
    "origin",
    "status",
    "scheduled_time",
    "run_at",
    "created_at",
    "updated_at",
    "queue",
    "priority",
    "attempt",
    "retry_count",
    "lost_count",
    "trace_id",
    "idempotency_key",
)


def publish(
    q: Dialect, cache: TaskView, publications: Sequence[Publication], tasks: dict[int, Known]
) -> Work[list[Published] | None]:
    rows = yield Fetch(f"select id, version from tasks where {q.ids('id', 'ids')}", {"ids": q.pack(sorted(tasks))})
    versions = {row[0]: row[1] for row in rows}
    if any(versions.get(task_id) != known.task.version for task_id, known in tasks.items()):
        return None  # changed since this node last saw it
    now = yield Now()
    ids = yield NewIds(len(publications) + 1)
    origin, key = publications[0].origin, key_of_asked(cache.installation)
    common = {
        task_id: (known.task.version, origin, "SCHEDULED", now, now, now, now, known.task.spec.queue)
        for task_id, known in tasks.items()
    }
    runs, inputs = [], []
    for run_id, publication in zip(ids[1:], publications, strict=True):
        task_id, priority = publication.task_id, publication.priority
        if priority is None:
            priority = tasks[task_id].task.spec.priority
        runs.append((run_id, task_id, *common[task_id], priority, 0, 0, 0, publication.trace_id, key))
        if publication.payload is not msgspec.UNSET:
            inputs.append((run_id, to_json(publication.payload)))
    yield InsertMany("runs", _RUN_COLUMNS, runs)
    yield Execute(
        "insert into live (run_id, place, task_id, queue, turn, run_at, job_type, flags, min_version, attempt,"
        " retry_count, lost_count, token)"
        f" select r.id, {int(Place.READY)}, r.task_id, r.queue, -r.priority, r.run_at, t.job_type, 0, 0, 0, 0, 0, 0"
        " from runs r join tasks t on t.id = r.task_id where r.id between :first and :last",
        {"first": ids[1], "last": ids[-1]},
    )
    if inputs:
        yield InsertMany("inputs", ("run_id", "payload"), inputs)
    told = facts(((row[1], row[0]) for row in runs), RunStatus.SCHEDULED)
    yield InsertMany("events", EVENT_COLUMNS, [(ids[0], now, "run.scheduled", told)])
    return [Published(RunId(run_id), Outcome.CREATED) for run_id in ids[1:]]


def facts(pairs: Any, status: str) -> str:
    """The data of an event of runs that changed alike: what `events.expand` reads, without an encoder for each."""
    return "[" + ",".join([f'[{task_id},{run_id},"{status}"]' for task_id, run_id in pairs]) + "]"


# Claim


def something_special(q: Dialect, request: ClaimRequest) -> Work[Special]:
    """Whether anything waits in these queues that only the long way can give out, or a queue has a setting."""
    queues = q.names("queue", "queues")
    rows = yield Fetch(
        f"select exists (select 1 from gates where open = 1 and {queues}),"
        f" exists (select 1 from live where place = {int(Place.CAREFUL)} and {queues}),"
        " exists (select 1 from pins p join live l on l.run_id = p.run_id where p.worker_id = :worker"
        f" and l.place = {int(Place.PINNED)} and {q.names('l.queue', 'queues')}),"
        f" exists (select 1 from queues where {q.names('name', 'queues')}"
        " and (paused = 1 or concurrency is not null or rate_limit is not null))",
        {"queues": q.pack(list(request.queues)), "worker": request.worker_id},
    )
    return Special(*map(bool, rows[0]))


_COLUMNS = (
    *(
        "l.turn",
        "l.run_at",
        "l.run_id",
        "l.task_id",
        "l.token",
        "l.attempt",
        "l.retry_count",
        "l.lost_count",
        "l.queue",
    ),
    *("r.origin", "r.scheduled_time", 'r."key"', "i.payload", "i.overrides", "r.trace_id", "r.idempotency_key"),
)
_SELECT = (
    f"select {numbered(*_COLUMNS)} from live l join runs r on r.id = l.run_id left join inputs i on i.run_id = l.run_id"
)


def claim(q: Dialect, cache: TaskView, request: ClaimRequest) -> Work[Claimed]:
    """What waits, the short way; or the long way, if anything special is there."""
    if request.max <= 0 or not request.queues:
        return Claimed([])
    special = yield from something_special(q, request)
    if any(special):
        return (yield from claiming.claim(q, cache, request, special))
    params: dict[str, Any] = {"limit": request.max}
    fits = ""
    if request.job_types is not None:
        params["types"] = q.pack(list(request.job_types))
        fits = f" and (l.job_type is null or {q.names('l.job_type', 'types')})"
    rows: list[Any] = []
    for queue in dict.fromkeys(request.queues):
        rows += yield Gather(
            f"{_SELECT} where l.place = {int(Place.READY)} and l.queue = :queue{fits}"
            f" order by l.turn, l.run_at, l.run_id limit :limit{q.skip_locked_l}",
            {**params, "queue": queue},
            len(_COLUMNS),
        )
    if not rows:
        return Claimed([])
    if len(request.queues) > 1:
        rows = sorted(rows, key=lambda row: (row[0], row[1], row[2]))[: request.max]
    tasks = yield from known_tasks(q, cache, {row[3] for row in rows})
    now = yield Now()
    times = {task_id: _times(known, now) for task_id, known in tasks.items()}
    yield from _lease(q, now, request.worker_id, times, rows)
    ids = yield NewIds(1)
    told = facts(((row[3], row[2]) for row in rows), RunStatus.RUNNING)
    yield InsertMany("events", EVENT_COLUMNS, [(ids[0], now, "run.started", told)])
    return Claimed([_lease_of(row, tasks[row[3]], times[row[3]], request.worker_id, now) for row in rows])


_Times = tuple[Instant, Instant]


def _times(known: Known, now: Instant) -> _Times:
    """When the lease runs out, and when the attempt must be over."""
    spec = known.task.spec
    return Instant(now + spec.worker_timeout_ms * 1000), Instant(now + round(spec.timeout_seconds * SECOND))


def _lease(q: Dialect, now: Instant, worker_id: str, times: dict[int, _Times], rows: Sequence[Any]) -> Work[None]:
    alike: dict[_Times, list[int]] = defaultdict(list)
    for row in rows:
        alike[times[row[3]]].append(row[2])
    for (expires_at, deadline_at), run_ids in alike.items():
        yield Execute(
            f"update live set place = {int(Place.LEASED)}, at = :at,"
            " token = case when token < :now then :now else token + 1 end, worker_id = :worker, claimed_at = :now,"
            f" expires_at = :expires, deadline_at = :deadline, attempt = attempt + 1 where {q.ids('run_id', 'ids')}",
            {
                "at": min(expires_at, deadline_at),
                "now": now,
                "worker": worker_id,
                "expires": expires_at,
                "deadline": deadline_at,
                "ids": q.pack(run_ids),
            },
        )


def _lease_of(row: Any, known: Known, times: _Times, worker_id: str, now: Instant) -> Lease:
    turn, _, run_id, task_id, token, attempt, retry_count, lost_count, queue = row[:9]
    origin, scheduled_time, key, payload, overrides, trace_id, idempotency_key = row[9:]
    expires_at, deadline_at = times
    return Lease(
        run_id=run_id,
        task_id=task_id,
        task_version=known.task.version,
        worker_id=worker_id,
        token=now if token < now else token + 1,
        attempt=attempt + 1,
        retry_count=retry_count,
        lost_count=lost_count,
        queue=queue,
        priority=-turn,
        origin=_ORIGINS[origin],
        scheduled_time=scheduled_time,
        claimed_at=now,
        expires_at=expires_at,
        deadline_at=deadline_at,
        key=key,
        payload=known.task.spec.payload if payload is None else decode(payload),
        overrides=None if overrides is None else from_json(overrides),
        trace_id=trace_id,
        idempotency_key=idempotency_key,
        plain=True,
    )


decode = msgspec.json.Decoder().decode
