"""Workers and queues; and what a worker writes while it holds a run: heartbeats, extensions, log, progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, InvalidState, NotFound, Sentence
from noonbell.model.account import Pause
from noonbell.model.request import HeartbeatAnswer
from noonbell.model.run import Lease, RunId, RunStatus
from noonbell.model.worker import Attendance, LeaseOrder, Order, Queue, WorkerInfo, WorkerState
from noonbell.stores.sql import limits, resting
from noonbell.stores.sql.active_runs import WAITING, Live, Place, RunFlag, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.rows import Record, TaskView, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work, delete, insert, update

SILENCE = 15 * SECOND
"""Three heartbeats of the default interval: a worker that has been silent for longer counts as lost."""

_WORKER = Record(WorkerInfo)
_QUEUE = Record(Queue, without=("waiting", "held", "delayed", "running", "oldest_at"))

SCHEDULER = "scheduler_seen_at"
"""The row of `counters` that holds when a node last said that it plans."""


def note_scheduler(q: Dialect) -> Work[None]:
    now = yield Now()
    sql = "insert into counters (name, value) values (:name, :now)" + q.upsert("name", ("value",))
    yield Execute(sql, {"name": SCHEDULER, "now": now})


def scheduler_seen_at() -> Work[Instant | None]:
    rows = yield Fetch("select value from counters where name = :name", {"name": SCHEDULER})
    return Instant(rows[0][0]) if rows else None


def is_alive(worker: WorkerInfo, now: Instant) -> bool:
    return worker.heartbeat_at > now - SILENCE


def register_worker(q: Dialect, worker: WorkerInfo) -> Work[WorkerInfo]:
    rows = yield Fetch(f"select {_WORKER.select()} from workers where id = :id{q.lock}", {"id": worker.id})
    now = yield Now()
    fresh = msgspec.structs.replace(worker, started_at=now, heartbeat_at=now)
    again = False
    if rows:
        there = _WORKER.read(rows[0])
        again = there.incarnation == worker.incarnation and is_alive(there, now)
        if again:
            fresh = msgspec.structs.replace(fresh, state=there.state, started_at=there.started_at)
        elif is_alive(there, now):
            raise AlreadyExists(f"another process works as {worker.id!r}; give this one an id of its own")
        yield delete("workers", id=worker.id)
    yield InsertMany("workers", _WORKER.columns, [_WORKER.row(fresh)])
    what = "worker.changed" if again else "worker.started"
    yield from tell(what, [(None, None, {"worker_id": worker.id, "state": fresh.state})])
    return fresh


def attend(q: Dialect, worker_ids: Sequence[str], incarnation: str) -> Work[dict[str, Attendance]]:
    """Record in one statement that these workers are there: they wait at one node for work."""
    if not worker_ids:
        return {}
    now = yield Now()
    params = {"ids": q.pack(sorted(set(worker_ids))), "incarnation": incarnation}
    mine = f"{q.names('id', 'ids')} and incarnation = :incarnation"
    yield Execute(f"update workers set heartbeat_at = :now where {mine}", {**params, "now": now})
    rows = yield Fetch(f"select id, state, concurrency from workers where {mine}", params)
    return {row[0]: Attendance(WorkerState(row[1]), row[2]) for row in rows}


def held(q: Dialect, worker_ids: Sequence[str] | None = None) -> Work[Mapping[str, int]]:
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


def set_worker(
    q: Dialect, worker_id: str, *, state: WorkerState | None = None, concurrency: int | None = None
) -> Work[WorkerInfo]:
    rows = yield Fetch(f"select {_WORKER.select()} from workers where id = :id{q.lock}", {"id": worker_id})
    if not rows:
        raise NotFound(Sentence("there is no worker {worker}", worker=repr(worker_id)))
    there = _WORKER.read(rows[0])
    wanted = msgspec.structs.replace(
        there,
        state=there.state if state is None else state,
        concurrency=there.concurrency if concurrency is None else concurrency,
    )
    yield update("workers", {"id": worker_id}, state=wanted.state, concurrency=wanted.concurrency)
    data = {"worker_id": worker_id, "state": wanted.state, "concurrency": wanted.concurrency}
    is_told = wanted.state is not there.state and wanted.state in (WorkerState.DRAINING, WorkerState.STOPPING)
    yield from tell(f"worker.{wanted.state}" if is_told else "worker.changed", [(None, None, data)])
    return wanted


def remove_worker(worker_id: str, incarnation: str) -> Work[None]:
    changed = yield delete("workers", id=worker_id, incarnation=incarnation)
    if changed:
        yield from tell("worker.stopped", [(None, None, {"worker_id": worker_id})])


def forget_worker(q: Dialect, worker_id: str) -> Work[None]:
    rows = yield Fetch(f"select {_WORKER.select()} from workers where id = :id{q.lock}", {"id": worker_id})
    now = yield Now()
    if not rows:
        raise NotFound(Sentence("there is no worker {worker}", worker=repr(worker_id)))
    if is_alive(_WORKER.read(rows[0]), now):
        raise InvalidState(
            Sentence(
                "worker {worker} is connected; only a lost worker is forgotten: stop it instead", worker=repr(worker_id)
            )
        )
    leases = yield from held(q, [worker_id])
    if leases:
        raise InvalidState(
            Sentence(
                "worker {worker} still holds runs ({count}); forget it once their leases have run out",
                worker=repr(worker_id),
                count=leases[worker_id],
            )
        )
    yield delete("workers", id=worker_id)
    yield from tell("worker.stopped", [(None, None, {"worker_id": worker_id})])


def workers() -> Work[list[WorkerInfo]]:
    now = yield Now()
    found = yield from load_workers()
    return [
        worker if is_alive(worker, now) else msgspec.structs.replace(worker, state=WorkerState.LOST) for worker in found
    ]


def load_workers() -> Work[list[WorkerInfo]]:
    rows = yield Fetch(f"select {_WORKER.select()} from workers order by id")
    return [_WORKER.read(row) for row in rows]


def queues() -> Work[list[Queue]]:
    rows = yield Fetch(f"select {_QUEUE.select()} from queues")
    found = {queue.name: queue for queue in map(_QUEUE.read, rows)}
    counted = yield Fetch("select queue, place, count(*), min(run_at) from live group by queue, place")
    for name, place, count, oldest in counted:
        queue = found.get(name, Queue(name=name))
        if place in WAITING:
            oldest_at = oldest if queue.oldest_at is None else min(queue.oldest_at, oldest)
            held = queue.held + count * (place == Place.HELD)
            queue = msgspec.structs.replace(queue, waiting=queue.waiting + count, held=held, oldest_at=oldest_at)
        elif place == Place.LATER:
            queue = msgspec.structs.replace(queue, delayed=count)
        else:
            queue = msgspec.structs.replace(queue, running=queue.running + count)
        found[name] = queue
    return [found[name] for name in sorted(found)]


def task_queues() -> Work[list[str]]:
    rows = yield Fetch("select distinct queue from tasks where live_name is not null and queue is not null")
    return [row[0] for row in rows]


def set_queue(
    q: Dialect, cache: TaskView, name: str, change: Callable[[Queue], Queue], *, by: str | None = None
) -> Work[Queue]:
    rows = yield Fetch(f"select {_QUEUE.select()} from queues where name = :name{q.lock}", {"name": name})
    there = _QUEUE.read(rows[0]) if rows else Queue(name=name)
    wanted = change(there)
    if rows:
        yield delete("queues", name=name)
    yield InsertMany("queues", _QUEUE.columns, [(name, *_QUEUE.row(wanted)[1:])])
    now = yield Now()
    if wanted.paused is not there.paused:
        yield from _note_pause(name, now, by, paused=wanted.paused)
    data = {"queue": name, "paused": wanted.paused, "concurrency": wanted.concurrency, "by": by}
    if wanted.quiet:
        data["quiet"] = msgspec.to_builtins(wanted.quiet)
    if wanted.rate_limit is not None:
        data["rate_limit"] = msgspec.to_builtins(wanted.rate_limit)
    if wanted.paused is not there.paused:
        yield from tell("queue.paused" if wanted.paused else "queue.resumed", [(None, None, data)])
    is_quieter = (wanted.quiet, wanted.spread_seconds) != (there.quiet, there.spread_seconds)
    if is_quieter or (wanted.concurrency, wanted.rate_limit) != (there.concurrency, there.rate_limit):
        yield from tell("queue.limited", [(None, None, data)])
    if wanted.rate_limit != there.rate_limit:
        yield from limits.look_anew(now, name)
    if wanted.quiet != there.quiet:
        yield from resting.rest_queue_anew(q, cache, now, name, wanted.quiet)
    return wanted


def _note_pause(name: str, now: Instant, by: str | None, *, paused: bool) -> Work[None]:
    yield Execute(
        "update queue_pauses set until = :now where name = :name and until is null", {"now": now, "name": name}
    )
    if paused:
        # Twice in the same moment, by a clock that stands still or was set back, is one pause.
        yield Execute("delete from queue_pauses where name = :name and since >= :now", {"name": name, "now": now})
        yield insert("queue_pauses", name=name, since=now, until=None, paused_by=by)


def pauses(queue: str, since: Instant, until: Instant) -> Work[list[Pause]]:
    rows = yield Fetch(
        "select since, until, paused_by from queue_pauses where name = :queue and since <= :until"
        " and (until is null or until >= :since) order by since",
        {"queue": queue, "since": since, "until": until},
    )
    return [Pause(queue=queue, since=row[0], until=row[1], by=row[2]) for row in rows]


def heartbeat(
    q: Dialect, worker_id: str, held: Sequence[tuple[RunId, int]], *, incarnation: str = "", renew: bool = True
) -> Work[HeartbeatAnswer]:
    rows = yield from load_active(q, [run_id for run_id, _ in held])
    settings = yield from _settings(q, rows)
    now = yield Now()
    orders: list[LeaseOrder | None] = []
    renewed: list[tuple[int, int, int]] = []
    for run_id, token in held:
        live = rows.get(run_id)
        if live is None or live.place != Place.LEASED or live.token != token or live.worker_id != worker_id:
            orders.append(None)
            continue
        lease_ms, ping_ms = settings[live.task_id]
        expires = Instant(now + lease_ms * 1000)
        if renew:
            renewed.append((run_id, expires, min(expires, live.deadline_at or expires)))
        until = expires if renew else Instant(live.expires_at or 0)
        order = Order.CANCEL if live.flags & RunFlag.STOP else Order.CONTINUE
        orders.append(LeaseOrder(run_id=run_id, order=order, lease_expires_at=until, ping_interval_ms=ping_ms))
    if renewed:
        yield UpdateMany("live", "run_id", ("expires_at", "at"), renewed)
    gone = [run_id for (run_id, _), order in zip(held, orders, strict=True) if order is None]
    canceled = yield from _canceled(q, gone)
    state, concurrency = yield from _alive(now, worker_id, incarnation)
    told = [
        order or LeaseOrder(run_id=run_id, order=Order.CANCEL if run_id in canceled else Order.LOST)
        for (run_id, _), order in zip(held, orders, strict=True)
    ]
    return HeartbeatAnswer(told, state, concurrency)


def _canceled(q: Dialect, run_ids: Sequence[RunId]) -> Work[set[int]]:
    rows = yield from q.fetch_by("select id, status from runs", "id", run_ids)
    return {row[0] for row in rows if row[1] == RunStatus.CANCELED}


def _settings(q: Dialect, rows: Mapping[int, Live]) -> Work[dict[int, tuple[int, int]]]:
    tasks = {live.task_id for live in rows.values()}
    found = yield from q.fetch_by("select id, worker_timeout_ms, ping_interval_ms from tasks", "id", tasks)
    return {row[0]: (row[1], row[2]) for row in found}


def _alive(now: Instant, worker_id: str, incarnation: str) -> Work[tuple[WorkerState, int | None]]:
    here = {"id": worker_id, "incarnation": incarnation} if incarnation else {"id": worker_id}
    yield update("workers", here, heartbeat_at=now)
    rows = yield Fetch("select state, concurrency, incarnation from workers where id = :id", {"id": worker_id})
    if not rows:
        return WorkerState.RUNNING, None
    if incarnation and rows[0][2] != incarnation:
        return WorkerState.STOPPING, 0  # another process is this worker now
    return WorkerState(rows[0][0]), rows[0][1]


def begin(q: Dialect, leases: Sequence[Lease]) -> Work[set[RunId]]:
    rows = yield from load_active(q, [lease.run_id for lease in leases])
    begun: list[tuple[int, int]] = []
    for lease in leases:
        live = rows.get(lease.run_id)
        if live is not None and live.place == Place.LEASED and live.token == lease.token:
            begun.append((live.run_id, live.flags | RunFlag.BEGUN))
    if begun:
        yield UpdateMany("live", "run_id", ("flags",), begun)
    return {RunId(run_id) for run_id, _ in begun}


def extend(q: Dialect, run_id: RunId, token: int, seconds: float) -> Work[bool]:
    live = yield from _held(q, run_id, token)
    if live is None:
        return False
    now = yield Now()
    until = now + round(seconds * SECOND)
    yield UpdateMany("live", "run_id", ("expires_at", "deadline_at", "at"), [(run_id, until, until, until)])
    return True


def _held(q: Dialect, run_id: RunId, token: int, *places: Place) -> Work[Live | None]:
    rows = yield from load_active(q, [run_id])
    live = rows.get(run_id)
    return live if live is not None and live.place in (Place.LEASED, *places) and live.token == token else None


def log(q: Dialect, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> Work[bool]:
    live = yield from _held(q, run_id, token)
    if live is None:
        return False
    now = yield Now()
    rows = yield Fetch("select coalesce(max(seq), 0) from run_log where run_id = :id", {"id": run_id})
    last = int(rows[0][0])
    yield InsertMany(
        "run_log",
        ("run_id", "seq", "at", "level", "message"),
        [(run_id, last + index, now, level, message) for index, (level, message) in enumerate(lines, 1)],
    )
    return True


def progress(q: Dialect, run_id: RunId, token: int, progress: Mapping[str, Any]) -> Work[bool]:
    live = yield from _held(q, run_id, token, Place.PARKED)
    if live is None:
        return False
    now = yield Now()
    yield Execute(
        "insert into progress (run_id, data, at) values (:id, :data, :now)" + q.upsert("run_id", ("data", "at")),
        {"id": run_id, "data": to_json(progress), "now": now},
    )
    return True
