"""Claim: give a worker what is due, in order, within every limit.

Candidates come from four places (READY, CAREFUL, PINNED to this worker, the heads of open gates), each already in order;
they are merged, cut to what the limits of queues and gates leave, and leased. The stores have a shorter way for the
ordinary case, where only READY rows of unlimited queues are waiting; this is the way that handles everything.

A limit is decided under a lock: the row of a limited queue, the row of a gate, the row of a rate. So over all nodes one
claim at a time takes from it, and a count can only be too high, never too low.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from noonbell.clock import SECOND, Instant
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Lease
from noonbell.stores.sql import rounds
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.gating import Gates, open_gates
from noonbell.stores.sql.known import known_tasks
from noonbell.stores.sql.leasing import leases_of, make_callback_tokens
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.place import Flag, Place
from noonbell.stores.sql.queueing import OpenQueues, open_queues
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.splitting import split_parents
from noonbell.stores.sql.statement import Fetch, Now, UpdateMany, Work

LEASED_COLUMNS = (
    "place",
    "at",
    "token",
    "worker_id",
    "claimed_at",
    "expires_at",
    "deadline_at",
    "attempt",
    "flags",
)


@dataclass(slots=True)
class _Chosen:
    rows: list[Live] = field(default_factory=list)
    parents: list[Live] = field(default_factory=list)


class Special(NamedTuple):
    """What there is besides READY runs in the queues of a claim. What is not there need not be looked for."""

    gates: bool
    careful: bool
    pinned: bool
    settings: bool


EVERYTHING = Special(True, True, True, True)


def claim(q: Dialect, cache: TaskView, request: ClaimRequest, special: Special = EVERYTHING) -> Work[Claimed]:
    queues = (yield from open_queues(q, request.queues)) if special.settings else OpenQueues(request.queues, {})
    gates = (yield from open_gates(q, queues.names, request.max)) if special.gates else Gates([], None)
    now = yield Now()
    yield from queues.weigh(q, now)
    candidates = yield from _candidates(q, request, queues, special)
    candidates += yield from gates.heads(q, now, request)
    chosen = choose(candidates, request.max, queues, gates)
    taken = yield from _lease(q, cache, now, request, chosen.rows)
    yield from gates.write(q, now, chosen.rows + chosen.parents)
    yield from queues.write(now, chosen.rows)
    if chosen.parents:
        yield from split_parents(q, cache, now, request, chosen.parents)
        split = {row.run_id for row in chosen.parents}
        parts = yield from _candidates(q, request, queues, EVERYTHING)
        picked = choose([row for row in parts if row.parent_id in split], request.max - len(taken), queues, gates)
        taken += yield from _lease(q, cache, now, request, picked.rows)
    return Claimed(taken, min(filter(None, (gates.next_at, queues.next_at)), default=None))


def choose(candidates: Sequence[Live], limit: int, queues: OpenQueues, gates: Gates) -> _Chosen:
    """The first `limit` in order of priority, then pinned ones, then time, then id, within every limit."""
    chosen = _Chosen()
    by_queue: Counter[str] = Counter()
    by_gate: Counter[int] = Counter()
    split: set[int] = set()
    for row in sorted(candidates, key=_order):
        if len(chosen.rows) + len(chosen.parents) >= limit:
            break
        if by_queue[row.queue] >= queues.room(row.queue):
            continue
        gate = gates.get(row)
        if gate is not None and by_gate[gate.task_id] >= gate.room:
            continue
        if row.parent_id is not None:
            if row.parent_id in split:
                continue  # one part of a fan-out to a worker
            split.add(row.parent_id)
        by_queue[row.queue] += 1
        if gate is not None:
            by_gate[gate.task_id] += 1
        (chosen.parents if row.flags & Flag.FANOUT else chosen.rows).append(row)
    return chosen


def _order(row: Live) -> tuple[int, bool, int, int]:
    return (row.turn, not row.flags & Flag.PINNED, row.run_at, row.run_id)


def _candidates(q: Dialect, request: ClaimRequest, queues: OpenQueues, special: Special) -> Work[list[Live]]:
    """What is due and behind no gate, the first of each kind and queue, held."""
    params: dict[str, object] = {"limit": request.max, "version": request.version, "worker": request.worker_id}
    fits = ""
    if request.job_types is not None:
        params["types"] = q.pack(list(request.job_types))
        fits = f" and (l.job_type is null or {q.names('l.job_type', 'types')})"
    columns = ", ".join(f"l.{column}" for column in Live._fields)
    order = "order by l.turn, l.run_at, l.run_id limit :limit"
    found: list[Live] = []
    for name in queues.names:
        here = {**params, "queue": name}
        places = {Place.READY: ""}
        if special.careful:
            places[Place.CAREFUL] = " and l.min_version <= :version"
        for place, condition in places.items():
            rows = yield Fetch(
                f"select {columns} from live l where l.place = {int(place)} and l.queue = :queue{condition}{fits}"
                f" {order}{q.skip_locked_l}",
                here,
            )
            found += [Live(*row) for row in rows]
        if not special.pinned:
            continue
        rows = yield Fetch(
            f"select {columns} from pins p join live l on l.run_id = p.run_id where p.worker_id = :worker"
            f" and l.place = {int(Place.PINNED)} and l.queue = :queue and l.min_version <= :version{fits}"
            f" {order}{q.skip_locked_l}",
            here,
        )
        found += [Live(*row) for row in rows]
    return (yield from _without_siblings(q, request.worker_id, found))


def _without_siblings(q: Dialect, worker_id: str, rows: list[Live]) -> Work[list[Live]]:
    """Without the parts of which this worker has had another already, or lost this one."""
    parents = sorted({row.parent_id for row in rows if row.parent_id is not None})
    if not parents:
        return rows
    params = {"parents": q.pack(parents), "worker": worker_id}
    had: dict[int, set[int]] = defaultdict(set)
    for sql in (
        f"select parent_id, id from runs where {q.ids('parent_id', 'parents')} and worker_id = :worker",
        f"select parent_id, run_id from live where {q.ids('parent_id', 'parents')} and worker_id = :worker",
    ):
        for parent_id, run_id in (yield Fetch(sql, params)):
            had[parent_id].add(run_id)
    lost = yield Fetch(
        "select a.run_id from attempts a join runs r on r.id = a.run_id"
        f" where {q.ids('r.parent_id', 'parents')} and a.worker_id = :worker and a.status = 'LOST'",
        params,
    )
    let_go = {row[0] for row in lost}
    return [
        row
        for row in rows
        if row.parent_id is None or (not had[row.parent_id] - {row.run_id} and row.run_id not in let_go)
    ]


def _lease(q: Dialect, cache: TaskView, now: Instant, request: ClaimRequest, rows: Sequence[Live]) -> Work[list[Lease]]:
    if not rows:
        return []
    tasks = yield from known_tasks(q, cache, [row.task_id for row in rows])
    leased: list[Live] = []
    for row in rows:
        spec = tasks[row.task_id].task.spec
        expires = now + spec.worker_timeout_ms * 1000
        deadline = now + round(spec.timeout_seconds * SECOND)
        leased.append(
            row._replace(
                place=int(Place.LEASED),
                at=min(expires, deadline),
                token=max(row.token + 1, now),
                worker_id=request.worker_id,
                claimed_at=now,
                expires_at=expires,
                deadline_at=deadline,
                attempt=row.attempt + 1,
                flags=row.flags & ~(Flag.RETRIED | Flag.STOP | Flag.BEGUN),
            )
        )
    yield UpdateMany(
        "live",
        "run_id",
        LEASED_COLUMNS,
        [(row.run_id, *(getattr(row, column) for column in LEASED_COLUMNS)) for row in leased],
    )
    tracked = [row for row in leased if row.flags & Flag.ROUND]
    if tracked:
        yield from rounds.start(q, sorted(tracked, key=lambda row: row.run_id))
    tokens = yield from make_callback_tokens([row for row in leased if row.flags & Flag.CALLBACK])
    yield from tell(now, "run.started", [(row.task_id, row.run_id, {"worker_id": request.worker_id}) for row in leased])
    return (yield from leases_of(q, tasks, leased, tokens))
