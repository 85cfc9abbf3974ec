"""While a worker holds a run: heartbeats, extensions, log, progress; and what has run out of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.clock import SECOND, Instant
from noonbell.model.request import Heartbeat, Overdue
from noonbell.model.run import Lease, RunId, RunStatus
from noonbell.model.settlement import Expect
from noonbell.model.task import TaskId
from noonbell.model.worker import LeaseOrder, Order, WorkerState
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.live import Live, load
from noonbell.stores.sql.place import Flag, Place
from noonbell.stores.sql.rows import to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work


def heartbeat(
    q: Dialect, worker_id: str, held: Sequence[tuple[RunId, int]], incarnation: str, *, renew: bool = True
) -> Work[Heartbeat]:
    rows = yield from load(q, [run_id for run_id, _ in held])
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
        order = Order.CANCEL if live.flags & Flag.STOP else Order.CONTINUE
        orders.append(LeaseOrder(run_id=run_id, order=order, lease_expires_at=until, ping_interval_ms=ping_ms))
    if renewed:
        yield UpdateMany("live", "run_id", ("expires_at", "at"), renewed)
    gone = [run_id for (run_id, _), order in zip(held, orders, strict=True) if order is None]
    canceled = (yield from _canceled(q, gone)) if gone else set()
    state, concurrency = yield from _alive(now, worker_id, incarnation)
    told = [
        order or LeaseOrder(run_id=run_id, order=Order.CANCEL if run_id in canceled else Order.LOST)
        for (run_id, _), order in zip(held, orders, strict=True)
    ]
    return Heartbeat(told, state, concurrency)


def _canceled(q: Dialect, run_ids: Sequence[RunId]) -> Work[set[int]]:
    rows = yield Fetch(f"select id, status from runs where {q.ids('id', 'ids')}", {"ids": q.pack(sorted(set(run_ids)))})
    return {row[0] for row in rows if row[1] == RunStatus.CANCELED}


def _settings(q: Dialect, rows: Mapping[int, Live]) -> Work[dict[int, tuple[int, int]]]:
    tasks = sorted({live.task_id for live in rows.values()})
    if not tasks:
        return {}
    found = yield Fetch(
        f"select id, worker_timeout_ms, ping_interval_ms from tasks where {q.ids('id', 'ids')}", {"ids": q.pack(tasks)}
    )
    return {row[0]: (row[1], row[2]) for row in found}


def _alive(now: Instant, worker_id: str, incarnation: str) -> Work[tuple[WorkerState, int | None]]:
    mine = " and incarnation = :incarnation" if incarnation else ""
    here = {"id": worker_id, "now": now, "incarnation": incarnation} if incarnation else {"id": worker_id, "now": now}
    yield Execute(f"update workers set heartbeat_at = :now where id = :id{mine}", here)
    rows = yield Fetch("select state, concurrency, incarnation from workers where id = :id", {"id": worker_id})
    if not rows:
        return WorkerState.RUNNING, None
    if incarnation and rows[0][2] != incarnation:
        return WorkerState.STOPPING, 0  # somebody else is this worker now
    return WorkerState(rows[0][0]), rows[0][1]


def begin(q: Dialect, leases: Sequence[Lease]) -> Work[set[RunId]]:
    rows = yield from load(q, [lease.run_id for lease in leases])
    begun: list[tuple[int, int]] = []
    for lease in leases:
        live = rows.get(lease.run_id)
        if live is not None and live.place == Place.LEASED and live.token == lease.token:
            begun.append((live.run_id, live.flags | Flag.BEGUN))
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
    rows = yield from load(q, [run_id])
    live = rows.get(run_id)
    return live if live is not None and live.place in (Place.LEASED, *places) and live.token == token else None


def overdue(limit: int) -> Work[list[Overdue]]:
    now = yield Now()
    found = []
    for place in (Place.LEASED, Place.PARKED):
        rows = yield Fetch(
            "select run_id, task_id, token, attempt, retry_count, lost_count, worker_id, flags, deadline_at, at from live"
            f" where place = {int(place)} and at <= :now order by at limit :limit",
            {"now": now, "limit": limit},
        )
        for run_id, task_id, token, attempt, retry_count, lost_count, worker_id, flags, deadline_at, at in rows:
            expect = Expect.UNANSWERED
            if place is Place.LEASED:
                expect = Expect.OVERTIME if deadline_at <= now else Expect.EXPIRED
            late = Overdue(
                run_id=RunId(run_id),
                task_id=TaskId(task_id),
                token=token,
                expect=expect,
                attempt=attempt,
                retry_count=retry_count,
                lost_count=lost_count,
                worker_id=worker_id,
                begun=bool(flags & Flag.BEGUN),
            )
            found.append((at, late))
    found.sort(key=lambda entry: entry[0])
    return [late for _, late in found[:limit]]


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


def progress(q: Dialect, run_id: RunId, token: int, data: Mapping[str, Any]) -> Work[bool]:
    live = yield from _held(q, run_id, token, Place.PARKED)
    if live is None:
        return False
    now = yield Now()
    yield Execute(
        "insert into progress (run_id, data, at) values (:id, :data, :now)" + q.upsert("run_id", ("data", "at")),
        {"id": run_id, "data": to_json(data), "now": now},
    )
    return True
