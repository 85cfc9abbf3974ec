"""Claim: give a worker what is due, in order, within every limit.

Candidates come from four places (READY, CAREFUL, PINNED to this worker, the heads of open gates), each already in order;
they are merged, cut to what the limits of queues and gates leave, and leased. The stores have a shorter way for the
ordinary case, where only READY rows of unlimited queues are waiting; this is the way that handles everything.

A limit is decided under a lock: the row of a limited queue, the row of a gate, the row of a rate. So over all nodes one
claim at a time takes from it, and a count can only be too high, never too low.
"""

from __future__ import annotations

from collections import Counter
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
        parts = yield from _candidates(q, request, queues, EVERYTHING, [row.run_id for row in chosen.parents])
        picked = choose(parts, request.max - len(taken), queues, gates)
        taken += yield from _lease(q, cache, now, request, picked.rows)
    next_at = min(filter(None, (gates.next_at, queues.next_at)), default=None)
    return Claimed(taken, next_at, tuple(sorted({row.queue for row in chosen.parents})))


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


# Of a fan-out, a worker gets no part after another one, and none that it has lost. Asked before the limit and the locks:
# parts that wait for other workers must neither fill this worker's batch nor be held while those look for them. No part is
# ever READY; saying so keeps PostgreSQL out of that partition.
_NOT_HAD = f""" and (l.parent_id is null or not (
    exists (select 1 from runs s where s.parent_id = l.parent_id and s.worker_id = :worker and s.id <> l.run_id)
    or exists (select 1 from live s where s.parent_id = l.parent_id and s.worker_id = :worker and s.run_id <> l.run_id
               and s.place <> {int(Place.READY)})
    or exists (select 1 from attempts a where a.run_id = l.run_id and a.worker_id = :worker and a.status = 'LOST')))"""


def _candidates(
    q: Dialect, request: ClaimRequest, queues: OpenQueues, special: Special, parents: Sequence[int] = ()
) -> Work[list[Live]]:
    """What is due and behind no gate, the first of each kind and queue, held; with `parents`, only parts of those."""
    params: dict[str, object] = {"limit": request.max, "version": request.version, "worker": request.worker_id}
    fits = ""
    if request.job_types is not None:
        params["types"] = q.pack(list(request.job_types))
        fits = f" and (l.job_type is null or {q.names('l.job_type', 'types')})"
    if parents:
        params["parents"] = q.pack(list(parents))
        fits += f" and {q.ids('l.parent_id', 'parents')}"
    columns = ", ".join(f"l.{column}" for column in Live._fields)
    order = "order by l.turn, l.run_at, l.run_id limit :limit"
    found: list[Live] = []
    for name in queues.names:
        here = {**params, "queue": name}
        places = {Place.READY: ""}
        if special.careful:
            places[Place.CAREFUL] = f" and l.min_version <= :version{_NOT_HAD}"
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
            f" and l.place = {int(Place.PINNED)} and l.queue = :queue and l.min_version <= :version{_NOT_HAD}{fits}"
            f" {order}{q.skip_locked_l}",
            here,
        )
        found += [Live(*row) for row in rows]
    return found


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
