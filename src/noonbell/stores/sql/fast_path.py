"""The fast path of the ordinary run (no limit, no key, no follow-up): publish, claim and settle by sets of rows.

These functions do what the shared transitions do for runs that nothing else depends on (READY, flags 0), in fewer and
larger statements. A run that turns out to be otherwise takes the shared transition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.call import NAMED_TYPES, spec_of
from noonbell.model.request import Claimed, ClaimRequest, Publication, PublishOutcome, PublishResult
from noonbell.model.run import (
    FINAL,
    TRANSITIONS,
    Lease,
    Origin,
    Precondition,
    RunId,
    RunStatus,
    Settlement,
    SettleResult,
    Transition,
    key_of_asked,
)
from noonbell.model.task import TaskStatus
from noonbell.stores.sql import claim, rollups, settle
from noonbell.stores.sql.active_runs import Place, count_at_gates, flags_for
from noonbell.stores.sql.claim import Special
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import (
    BODIES_AT_ONCE,
    EVENT_OF,
    REPORTED,
    report_of,
    texts_of,
    write_alike,
    write_texts,
)
from noonbell.stores.sql.insert_runs import gate_limit
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.rows import Known, KnownTasks, TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    Gather,
    InsertEvents,
    InsertMany,
    NewIds,
    Now,
    UpdateMany,
    Work,
    numbered,
)

_ORIGINS = {str(origin): origin for origin in Origin}


# Publish


def plain_tasks(publications: Sequence[Publication], cache: KnownTasks) -> dict[int, Known] | None:
    """The tasks of a batch if all of it can take the short way, as far as this node knows; else None."""
    tasks: dict[int, Known] = {}
    origin = publications[0].origin
    for publication in publications:
        if publication.origin is not origin or not _is_plain_publication(publication):
            return None
        if publication.task_id not in tasks:
            known = cache.newest(publication.task_id)
            if known is None or not is_plain_task(known, origin) or cache.sla_of(known.task.spec) is not None:
                return None
            tasks[publication.task_id] = known
    return tasks


def _is_plain_publication(publication: Publication) -> bool:
    return (
        publication.unique_key is None
        and publication.run_at is None
        and publication.delay_seconds <= 0
        and publication.overrides is None
        and publication.specific_worker_ids is None
        and publication.expires_in_seconds is None
        and publication.expires_at is None
        and publication.scheduled_time is None
        and publication.retry_of_run_id is None
    )


def is_plain_task(known: Known, origin: Origin) -> bool:
    spec = known.task.spec
    return (
        known.task.deleted_at is None
        and known.task.status is not TaskStatus.ERROR
        and gate_limit(spec) is None
        and spec.max_concurrency is None
        and spec.claim_type not in NAMED_TYPES
        and spec.concurrency_key is None
        and spec.min_worker_version == 0
        and spec.expires_in_seconds is None
        and not flags_for(spec, origin, pinned=bool(spec.specific_worker_ids))
    )


def publish_plain(
    q: Dialect, cache: TaskView, publications: Sequence[Publication], tasks: dict[int, Known]
) -> Work[list[PublishResult] | None]:
    rows = yield from q.fetch_by("select id, version from tasks", "id", tasks)
    versions = {row[0]: row[1] for row in rows}
    if any(versions.get(task_id) != known.task.version for task_id, known in tasks.items()):
        return None  # changed since this node last saw it
    now = yield Now()
    ids = yield NewIds(len(publications) + 1)
    alike = {
        "origin": publications[0].origin,
        "status": str(RunStatus.SCHEDULED),  # drivers bind a plain text faster than a member
        "idempotency_key": key_of_asked(cache.installation),
        **dict.fromkeys(("scheduled_time", "run_at", "created_at", "updated_at"), now),
        **dict.fromkeys(("attempt", "retry_count", "lost_count"), 0),
    }
    common = {
        task_id: (task_id, known.task.version, known.task.spec.queue, *alike.values())
        for task_id, known in tasks.items()
    }
    runs, inputs = [], []
    for run_id, publication in zip(ids[1:], publications, strict=True):
        task_id, priority = publication.task_id, publication.priority
        if priority is None:
            priority = tasks[task_id].task.spec.priority
        runs.append((run_id, priority, publication.trace_id, *common[task_id]))
        if publication.payload is not msgspec.UNSET:
            inputs.append((run_id, to_json(publication.payload)))
    yield InsertMany("runs", ("id", "priority", "trace_id", "task_id", "task_version", "queue", *alike), runs)
    yield Execute(
        "insert into live (run_id, place, task_id, queue, turn, run_at, job_type, flags, min_version, attempt,"
        " retry_count, lost_count, token)"
        f" select r.id, {int(Place.READY)}, r.task_id, r.queue, -r.priority, r.run_at, t.job_type, 0, 0, 0, 0, 0, 0"
        " from runs r join tasks t on t.id = r.task_id where r.id between :first and :last",
        {"first": ids[1], "last": ids[-1]},
    )
    if inputs:
        yield InsertMany("inputs", ("run_id", "payload"), inputs)
    told = event_facts(((row[3], row[0]) for row in runs), RunStatus.SCHEDULED)
    yield InsertEvents([(ids[0], "run.scheduled", told)])
    return [PublishResult(RunId(run_id), PublishOutcome.CREATED) for run_id in ids[1:]]


def event_facts(pairs: Any, status: str) -> str:
    """The data of an event of runs that changed alike: what `events.expand` reads, without an encoder for each."""
    return "[" + ",".join([f'[{task_id},{run_id},"{status}"]' for task_id, run_id in pairs]) + "]"


# Claim


def something_special(q: Dialect, request: ClaimRequest) -> Work[Special | None]:
    """Whether anything waits in these queues that only the long way can give out, or a queue has a setting.

    None: everything is paused.
    """
    queues = q.names("queue", "queues")
    rows = yield Fetch(
        f"select exists (select 1 from gates where open = 1 and {queues}),"
        f" exists (select 1 from live where place = {int(Place.CAREFUL)} and {queues}),"
        " exists (select 1 from pins p join live l on l.run_id = p.run_id where p.worker_id = :worker"
        f" and l.place = {int(Place.PINNED)} and {q.names('l.queue', 'queues')}),"
        f" exists (select 1 from queues where {q.names('name', 'queues')}"
        f" and (paused = 1 or concurrency is not null or rate_limit is not null or quiet <> '[]')), {PAUSED}",
        {"queues": q.pack(list(request.queues)), "worker": request.worker_id},
    )
    *special, is_paused = rows[0]
    return None if is_paused else Special(*map(bool, special))


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
    "r.created_at",
)
_SELECT = (
    f"select {numbered(*_COLUMNS)} from live l join runs r on r.id = l.run_id left join inputs i on i.run_id = l.run_id"
)


def claim_plain(q: Dialect, cache: TaskView, request: ClaimRequest) -> Work[Claimed]:
    """What waits, the short way; or the long way, if anything special is there."""
    if request.max <= 0 or not request.queues:
        return Claimed([])
    special = yield from something_special(q, request)
    if special is None:
        return Claimed([], is_paused=True)
    if any(special):
        return (yield from claim.claim(q, cache, request, special))
    params: dict[str, Any] = {"limit": request.max}
    fits = claim.types_fit(q, request, params)
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
    told = event_facts(((row[3], row[2]) for row in rows), RunStatus.RUNNING)
    yield InsertEvents([(ids[0], "run.started", told)])
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
        yield claim.lease_alike(q, now, worker_id, expires_at, deadline_at, run_ids)


def _lease_of(row: Any, known: Known, times: _Times, worker_id: str, now: Instant) -> Lease:
    turn, run_at, run_id, task_id, token, attempt, retry_count, lost_count, queue = row[:9]
    origin, scheduled_time, key, payload, overrides, trace_id, idempotency_key, created_at = row[9:]
    expires_at, deadline_at = times
    given = None if overrides is None else from_json(overrides)
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
        run_at=run_at,
        created_at=created_at,
        key=key,
        payload=known.task.spec.payload if payload is None else decode(payload),
        overrides=given,
        step=None if given is None else spec_of(queue, given),
        trace_id=trace_id,
        idempotency_key=idempotency_key,
        plain=True,
    )


decode = msgspec.json.Decoder().decode


UNFOLLOWED = "not exists (select 1 from edges e where e.upstream_id = {}.task_id)"
"""No task follows that of a run: nothing else is to be written when it ends."""
_HELD = ("run_id", "token", "task_id", "attempt", "gate", "claimed_at")
_HELD_COLUMNS = numbered(*_HELD)
_ENDINGS = TRANSITIONS[RunStatus.RUNNING] & FINAL


def all_plain(settlements: Sequence[Settlement]) -> bool:
    """Whether they are leases of one worker, without limits or follow-ups, that end for good."""
    return all([s.plain for s in settlements]) and _all_end(settlements)  # noqa: C419 - a list is built faster than asked


def all_short(settlements: Sequence[Settlement]) -> bool:
    """The same, but limits may count some of them: what the short way can settle."""
    return all([s.plain or s.counted for s in settlements]) and _all_end(settlements)  # noqa: C419 - as above


def all_in_lines(settlements: Sequence[Settlement]) -> bool:
    """The same as `all_plain`, but steps of flows and runs with a key may be among them."""
    return all([s.plain or s.in_flow or s.keyed for s in settlements]) and _all_end(settlements)  # noqa: C419 - as above


def _all_end(settlements: Sequence[Settlement]) -> bool:
    """Whether all are leases of one worker that end for good."""
    worker_id, finish, held = settlements[0].worker_id, Transition.FINISH, Precondition.HELD
    for s in settlements:
        if s.transition is not finish or s.status not in _ENDINGS or s.precondition is not held:
            return False
        if s.worker_id != worker_id or s.task_version is None:
            return False
    return True


def fit_together(settlements: Sequence[Settlement]) -> bool:
    """Whether one statement can take them: each is of another run, and their bodies are small enough."""
    if len({settlement.run_id for settlement in settlements}) < len(settlements):
        return False
    size = 0
    for settlement in settlements:
        bodies = settlement.bodies
        if bodies is not None:
            size += len(bodies.request_body or "") + len(bodies.response_body or "")
    return size <= BODIES_AT_ONCE


def settle_plain(q: Dialect, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[SettleResult]]:
    """Settle the ordinary runs of a batch. One that is not as its settlement says goes the long way, which says and
    records why.
    """
    params: dict[str, Any] = {"ids": q.pack([settlement.run_id for settlement in settlements])}
    mine = ""
    if settlements[0].worker_id is not None:
        mine, params["worker"] = " and worker_id = :worker", settlements[0].worker_id
    rows = yield Gather(
        f"select {_HELD_COLUMNS} from live where {q.ids('run_id', 'ids')}"
        f" and place + 0 = {int(Place.LEASED)} and flags = 0 and {UNFOLLOWED.format('live')}{mine}{q.lock}",
        params,
        len(_HELD),
    )
    now = yield Now()
    held = {row[0]: row[1:] for row in rows}
    alike: dict[tuple[RunStatus | None, int | None, int | None], list[Settlement]] = defaultdict(list)
    rest: list[Settlement] = []
    done: dict[RunId, int] = {}
    settled: list[tuple[Settlement, int, int, int]] = []
    bodies: list[tuple[Any, ...]] = []
    freed: dict[int, int] = defaultdict(int)
    for settlement in settlements:
        # A second one of the same run finds nothing.
        token, task_id, attempt, gate, claimed_at = held.pop(settlement.run_id, (None, 0, 0, None, 0))
        if token != settlement.token:
            rest.append(settlement)
        else:
            done[settlement.run_id] = task_id
            alike[settlement.status, settlement.task_version, settlement.response_code].append(settlement)
            settled.append((settlement, task_id, attempt, claimed_at))
            if gate is not None:
                freed[gate] -= 1
            if settlement.bodies is not None:
                bodies.append((settlement.run_id, attempt, *texts_of(settlement.bodies)))
    for (status, version, code), ended in alike.items():
        yield from _finish_alike(q, now, status or RunStatus.FAILED, version, code, ended, done)
    yield from rollups.note_settled(q, now, settled)
    yield from write_texts(bodies)
    yield from count_at_gates(used=freed)
    late: list[SettleResult] = []
    if rest:
        late = yield from settle.settle(q, cache, rest)
    return settle_answers(settlements, set(done), rest, late)


def settle_answers(
    settlements: Sequence[Settlement], done: set[RunId], rest: Sequence[Settlement], late: Sequence[SettleResult]
) -> list[SettleResult]:
    """In the order of the requests. The same run twice in a batch: the first one counts."""
    by_run = {settlement.run_id: answer for settlement, answer in zip(rest, late, strict=True)}
    found: list[SettleResult] = []
    seen: set[RunId] = set()
    for settlement in settlements:
        run_id = settlement.run_id
        first = run_id in done and run_id not in seen
        seen.add(run_id)
        found.append(SettleResult.DONE if first else by_run.get(run_id, SettleResult.LOST))
    return found


def _finish_alike(
    q: Dialect,
    now: Instant,
    status: RunStatus,
    version: int | None,
    code: int | None,
    ended: Sequence[Settlement],
    tasks: dict[RunId, int],
) -> Work[None]:
    """Runs that ended with the same status and code under the same version, by sets; then what else each has to report."""
    ids = q.pack([settlement.run_id for settlement in ended])
    yield write_alike(q, now, status, version, code, ids)
    yield q.delete_active(ids)
    reports = [
        (s.run_id, *report_of(s.response_code, s.result, s.error_message, s.error_details))
        for s in ended
        if s.result is not None or s.error_message is not None or s.error_details is not None
    ]
    if reports:
        yield UpdateMany("runs", "id", REPORTED, reports)
    new = yield NewIds(1)
    told = event_facts(((tasks[s.run_id], s.run_id) for s in ended), status)
    yield InsertEvents([(new[0], EVENT_OF[status], told)])
