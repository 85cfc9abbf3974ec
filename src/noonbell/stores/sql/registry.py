"""Workers and queues: who is there, and what operators have set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, NotFound
from noonbell.model.account import Pause
from noonbell.model.task import RateLimit
from noonbell.model.worker import Attendance, Queue, Worker, WorkerState
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.place import DUE, Place
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, Row, Work

SILENCE = 15 * SECOND
"""Three heartbeats of the default interval: a worker that has been silent for longer counts as lost."""

_COLUMNS = (
    "id",
    "incarnation",
    "version",
    "queues",
    "job_types",
    "concurrency",
    "state",
    "started_at",
    "heartbeat_at",
    "meta",
)
_SELECT = f"select {', '.join(_COLUMNS)} from workers"


def is_alive(worker: Worker, now: Instant) -> bool:
    return worker.heartbeat_at > now - SILENCE


def register(q: Dialect, worker: Worker) -> Work[Worker]:
    rows = yield Fetch(f"{_SELECT} where id = :id{q.lock}", {"id": worker.id})
    now = yield Now()
    fresh = msgspec.structs.replace(worker, started_at=now, heartbeat_at=now)
    again = False
    if rows:
        there = _worker(rows[0])
        again = there.incarnation == worker.incarnation and is_alive(there, now)
        if again:
            fresh = msgspec.structs.replace(fresh, state=there.state, started_at=there.started_at)
        elif is_alive(there, now):
            raise AlreadyExists(f"another process works as {worker.id!r}; give this one an id of its own")
        yield Execute("delete from workers where id = :id", {"id": worker.id})
    yield InsertMany("workers", _COLUMNS, [_worker_row(fresh)])
    what = "worker.changed" if again else "worker.started"
    yield from tell(now, what, [(None, None, {"worker_id": worker.id, "state": fresh.state})])
    return fresh


def attend(q: Dialect, worker_ids: Sequence[str], incarnation: str) -> Work[dict[str, Attendance]]:
    """One statement for all of them: they wait at one node's door."""
    if not worker_ids:
        return {}
    now = yield Now()
    params = {"ids": q.pack(sorted(set(worker_ids))), "incarnation": incarnation}
    mine = f"{q.names('id', 'ids')} and incarnation = :incarnation"
    yield Execute(f"update workers set heartbeat_at = :now where {mine}", {**params, "now": now})
    rows = yield Fetch(f"select id, state, concurrency from workers where {mine}", params)
    return {row[0]: Attendance(WorkerState(row[1]), row[2]) for row in rows}


def held(q: Dialect, worker_ids: Sequence[str] | None) -> Work[Mapping[str, int]]:
    mine = "" if worker_ids is None else f" and {q.names('worker_id', 'ids')}"
    params = {} if worker_ids is None else {"ids": q.pack(sorted(set(worker_ids)))}
    rows = yield Fetch(
        f"select worker_id, count(*) from live where place = {int(Place.LEASED)}{mine} group by worker_id", params
    )
    return {row[0]: int(row[1]) for row in rows}


def pinned(q: Dialect, worker_ids: Sequence[str]) -> Work[set[str]]:
    """By the index of pins: the work grows with what is pinned to these workers, and with nothing else."""
    if not worker_ids:
        return set()
    places = f"{int(Place.PINNED)}, {int(Place.GATED)}"
    rows = yield Fetch(
        "select distinct p.worker_id from pins p join live l on l.run_id = p.run_id"
        f" where {q.names('p.worker_id', 'ids')} and l.place in ({places})",
        {"ids": q.pack(sorted(set(worker_ids)))},
    )
    return {row[0] for row in rows}


def set_worker(q: Dialect, worker_id: str, state: WorkerState | None, concurrency: int | None) -> Work[Worker]:
    rows = yield Fetch(f"{_SELECT} where id = :id{q.lock}", {"id": worker_id})
    if not rows:
        raise NotFound(f"there is no worker {worker_id!r}")
    there = _worker(rows[0])
    now = yield Now()
    wanted = msgspec.structs.replace(
        there,
        state=there.state if state is None else state,
        concurrency=there.concurrency if concurrency is None else concurrency,
    )
    yield Execute(
        "update workers set state = :state, concurrency = :concurrency where id = :id",
        {"state": wanted.state, "concurrency": wanted.concurrency, "id": worker_id},
    )
    data = {"worker_id": worker_id, "state": wanted.state, "concurrency": wanted.concurrency}
    is_told = wanted.state is not there.state and wanted.state in (WorkerState.DRAINING, WorkerState.STOPPING)
    yield from tell(now, f"worker.{wanted.state}" if is_told else "worker.changed", [(None, None, data)])
    return wanted


def remove_worker(worker_id: str, incarnation: str) -> Work[None]:
    changed = yield Execute(
        "delete from workers where id = :id and incarnation = :incarnation",
        {"id": worker_id, "incarnation": incarnation},
    )
    if changed:
        now = yield Now()
        yield from tell(now, "worker.stopped", [(None, None, {"worker_id": worker_id})])


def workers() -> Work[list[Worker]]:
    now = yield Now()
    found = yield from load_workers()
    return [
        worker if is_alive(worker, now) else msgspec.structs.replace(worker, state=WorkerState.LOST) for worker in found
    ]


def load_workers() -> Work[list[Worker]]:
    rows = yield Fetch(f"{_SELECT} order by id")
    return [_worker(row) for row in rows]


def _worker(row: Row) -> Worker:
    fields = dict(zip(_COLUMNS, row, strict=True))
    fields["queues"] = tuple(from_json(fields["queues"]))
    types = from_json(fields["job_types"])
    fields["job_types"] = None if types is None else tuple(types)
    fields["state"] = WorkerState(fields["state"])
    fields["meta"] = from_json(fields["meta"])
    return Worker(**fields)


def _worker_row(worker: Worker) -> tuple[object, ...]:
    return (
        worker.id,
        worker.incarnation,
        worker.version,
        to_json(worker.queues),
        None if worker.job_types is None else to_json(worker.job_types),
        worker.concurrency,
        worker.state,
        worker.started_at,
        worker.heartbeat_at,
        to_json(worker.meta),
    )


def queues() -> Work[list[Queue]]:
    found: dict[str, Queue] = {}
    for row in (yield Fetch("select name, paused, concurrency, rate_limit from queues")):
        found[row[0]] = _queue(row)
    counted = yield Fetch("select queue, place, count(*), min(run_at) from live group by queue, place")
    for name, place, count, oldest in counted:
        queue = found.get(name, Queue(name=name))
        if place in DUE:
            oldest_at = oldest if queue.oldest_at is None else min(queue.oldest_at, oldest)
            queue = msgspec.structs.replace(queue, waiting=queue.waiting + count, oldest_at=oldest_at)
        elif place == Place.LATER:
            queue = msgspec.structs.replace(queue, delayed=count)
        else:
            queue = msgspec.structs.replace(queue, running=queue.running + count)
        found[name] = queue
    return [found[name] for name in sorted(found)]


def set_queue(q: Dialect, name: str, change: Callable[[Queue], Queue], by: str | None) -> Work[Queue]:
    rows = yield Fetch(
        f"select name, paused, concurrency, rate_limit from queues where name = :name{q.lock}", {"name": name}
    )
    there = _queue(rows[0]) if rows else Queue(name=name)
    wanted = change(there)
    if rows:
        yield Execute("delete from queues where name = :name", {"name": name})
    limit = None if wanted.rate_limit is None else to_json(wanted.rate_limit)
    yield InsertMany(
        "queues",
        ("name", "paused", "concurrency", "rate_limit"),
        [(name, int(wanted.paused), wanted.concurrency, limit)],
    )
    now = yield Now()
    if wanted.paused is not there.paused:
        yield from _note_pause(name, now, by, paused=wanted.paused)
    data = {"queue": name, "paused": wanted.paused, "concurrency": wanted.concurrency, "by": by}
    if wanted.rate_limit is not None:
        data["rate_limit"] = msgspec.to_builtins(wanted.rate_limit)
    if wanted.paused is not there.paused:
        yield from tell(now, "queue.paused" if wanted.paused else "queue.resumed", [(None, None, data)])
    if (wanted.concurrency, wanted.rate_limit) != (there.concurrency, there.rate_limit):
        yield from tell(now, "queue.limited", [(None, None, data)])
    return wanted


def _note_pause(name: str, now: Instant, by: str | None, *, paused: bool) -> Work[None]:
    yield Execute(
        "update queue_pauses set until = :now where name = :name and until is null", {"now": now, "name": name}
    )
    if paused:
        # Twice in the same moment, by a clock that stands still or was set back, is one pause.
        yield Execute("delete from queue_pauses where name = :name and since >= :now", {"name": name, "now": now})
        yield InsertMany("queue_pauses", ("name", "since", "until", "paused_by"), [(name, now, None, by)])


def pauses(name: str, since: Instant, until: Instant) -> Work[list[Pause]]:
    rows = yield Fetch(
        "select since, until, paused_by from queue_pauses where name = :name and since <= :until"
        " and (until is null or until >= :since) order by since",
        {"name": name, "since": since, "until": until},
    )
    return [Pause(queue=name, since=row[0], until=row[1], by=row[2]) for row in rows]


def _queue(row: Row) -> Queue:
    name, paused, concurrency, limit = row
    return Queue(
        name=name,
        paused=bool(paused),
        concurrency=concurrency,
        rate_limit=None if limit is None else msgspec.convert(from_json(limit), RateLimit),
    )
