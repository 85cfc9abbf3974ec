"""Claim: give a worker what is due, in order, within every limit.

Candidates come from four places (READY, CAREFUL, PINNED to this worker, the heads of open gates), each already in order;
they are merged, cut to what the limits of queues and gates leave, and leased. The stores have a shorter way for the
ordinary case, where only READY rows of unlimited queues are waiting; this is the way that handles everything.

A limit is decided under a lock: the row of a limited queue, the row of a gate, the row of a rate. So over all nodes one
claim at a time takes from it, and a count can only be too high, never too low.

A run that fans out is claimed as a parent: it has no lease, and keeps one place at its task's gate. It is split into parts
for the workers that are alive then; each part is a run of its own, for another worker. A run of a flow is claimed so too, and
its first steps become runs (`flows`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.call import NAMED_TYPES, spec_of
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import FlowStep, Lease, Origin, RunId, idempotency_key_of
from noonbell.model.task import Step, Task, TaskId, TaskSpec
from noonbell.model.worker import WorkerState, knows_type, label_pairs
from noonbell.policy.quiet import quiet_at
from noonbell.stores.sql import children, flows, resting
from noonbell.stores.sql.active_runs import NOT_EXPIRED, Live, Place, RunFlag, forget_expiries, note_started
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.finish import Ending, finish, flow_ending
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.limits import Gates, OpenQueues, open_gates, open_queues, rate_scope
from noonbell.stores.sql.rows import Known, TaskView, from_json, known_tasks
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work
from noonbell.stores.sql.workers import is_alive, load_workers

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
"""For a caller that has not looked, or not in this transaction."""


def claim(q: Dialect, cache: TaskView, request: ClaimRequest, special: Special = EVERYTHING) -> Work[Claimed]:
    queues = (yield from open_queues(q, request.queues)) if special.settings else OpenQueues(request.queues, {})
    if queues.all_paused:
        return Claimed([], is_paused=True)
    yield from _rest_queues(q, cache, queues)
    gates = (yield from open_gates(q, queues.names, request.max)) if special.gates else Gates([], None)
    now = yield Now()
    yield from queues.weigh(q, now)
    candidates = yield from _awake(q, cache, request, queues, gates, special, now)
    chosen = choose(candidates, request.max, queues, gates)
    if any(row.flags & RunFlag.KEYED for row in chosen.rows):
        now = yield Now()  # the run before it in its line may have ended since the look began
    if expiring := [row.run_id for row in chosen.rows + chosen.parents if row.flags & RunFlag.EXPIRES]:
        yield from forget_expiries(q, expiring)
    taken = yield from _lease(q, cache, now, request, chosen.rows)
    yield from gates.write(now, chosen.rows + chosen.parents)
    started = chosen.rows
    woken: set[str] = set()
    if chosen.parents:
        woken = yield from start_parents(q, cache, now, request, chosen.parents)
        parts = yield from _candidates(q, request, queues, EVERYTHING, now, [row.run_id for row in chosen.parents])
        picked = choose(parts, request.max - len(taken), queues, gates, chosen.rows)
        taken += yield from _lease(q, cache, now, request, picked.rows)
        started = chosen.rows + picked.rows
    yield from queues.write(q, now, started)
    next_at = min(filter(None, (gates.next_at, queues.next_at)), default=None)
    aside_until = min(filter(None, (gates.aside_until, queues.aside_until)), default=None)
    return Claimed(taken, next_at, tuple(sorted(woken)), aside_until=aside_until)


def _rest_queues(q: Dialect, cache: TaskView, queues: OpenQueues) -> Work[None]:
    """Of the queues that are quiet now, only runs that were triggered by hand are left. One with too many others gives
    nothing yet.
    """
    if not queues.quiet:
        return
    now = yield Now()
    for name, hours in sorted(queues.quiet.items()):
        quiet = quiet_at(hours, "UTC", now)
        if quiet is None:
            continue
        queues.quiet_now.add(name)
        if not (yield from resting.rest_queue(q, cache, now, name, quiet)):
            queues.names.remove(name)


_MOST_RESTS = 8
"""Times that a claim looks again after it has put runs of quiet tasks aside; the rest is for the next claim."""


def _awake(
    q: Dialect,
    cache: TaskView,
    request: ClaimRequest,
    queues: OpenQueues,
    gates: Gates,
    special: Special,
    now: Instant,
) -> Work[list[Live]]:
    """The candidates, none of which is of a task that is quiet now."""
    for _ in range(_MOST_RESTS):
        candidates = yield from _within_rates(q, cache, request, queues, special, now)
        candidates += yield from gates.heads(q, cache, now, request)
        if queues.quiet_now:
            candidates = yield from resting.by_hand(q, candidates, queues.quiet_now)
        asking = {row.task_id for row in candidates if row.flags & RunFlag.QUIET}
        if not asking or not (yield from resting.rest_tasks(q, cache, now, asking)):
            return candidates
    return []


_LOOKS = 20
"""Times that a claim looks again where calls have stepped aside because the rate of their key lets none start."""
_LOOK_PAST = 200
"""How many more it looks at, each time after the first."""


def _within_rates(
    q: Dialect, cache: TaskView, request: ClaimRequest, queues: OpenQueues, special: Special, now: Instant
) -> Work[list[Live]]:
    """The candidates that are behind no gate, without calls that the rate of their key holds back."""
    found: list[Live] = []
    for look in range(_LOOKS):
        found = yield from _candidates(q, request, queues, special, now, past=_LOOK_PAST if look else 0)
        found, is_any_aside = yield from queues.within_rates(q, cache, now, found)
        if not is_any_aside or len(found) >= request.max:
            return found
    queues.ask_again(now)
    return found


def choose(
    candidates: Sequence[Live], limit: int, queues: OpenQueues, gates: Gates, before: Sequence[Live] = ()
) -> _Chosen:
    """The first `limit` in order of priority, then pinned ones, then time, then id, within every limit.

    `before`: what the same claim has chosen already. Limits of queues count it.
    """
    chosen = _Chosen()
    by_queue = Counter(row.queue for row in before)
    by_scope = Counter(rate_scope(row) for row in before)
    by_gate: Counter[int] = Counter()
    split: set[int] = set()
    for row in sorted(candidates, key=_order):
        if len(chosen.rows) + len(chosen.parents) >= limit:
            break
        scope = rate_scope(row)
        if by_queue[row.queue] >= queues.room(row.queue) or by_scope[scope] >= queues.starts(scope):
            continue
        gate = gates.get(row)
        if gate is not None and by_gate[gate.task_id] >= gate.room:
            continue
        if row.parent_id is not None and row.flags & RunFlag.PART:
            if row.parent_id in split:
                continue  # one part of a fan-out to a worker
            split.add(row.parent_id)
        by_queue[row.queue] += 1
        by_scope[scope] += 1
        if gate is not None:
            by_gate[gate.task_id] += 1
        (chosen.parents if row.flags & (RunFlag.FANOUT | RunFlag.FLOW) else chosen.rows).append(row)
    return chosen


def _order(row: Live) -> tuple[int, bool, int, int]:
    return (row.turn, not row.flags & RunFlag.PINNED, row.run_at, row.run_id)


# Of a fan-out, a worker gets no part after another one, and none that it has lost. Asked before the limit and the locks:
# parts that wait for other workers must neither fill this worker's batch nor be held while those look for them. No part is
# ever READY; saying so keeps PostgreSQL out of that partition.
_NOT_HAD = f""" and (l.parent_id is null or (l.flags & {RunFlag.STEP | RunFlag.CHILD}) <> 0 or not (
    exists (select 1 from runs s where s.parent_id = l.parent_id and s.worker_id = :worker and s.id <> l.run_id)
    or exists (select 1 from live s where s.parent_id = l.parent_id and s.worker_id = :worker and s.run_id <> l.run_id
               and s.place <> {int(Place.READY)})
    or exists (select 1 from attempts a where a.run_id = l.run_id and a.worker_id = :worker and a.status = 'LOST')))"""


def types_fit(q: Dialect, request: ClaimRequest, params: dict[str, Any]) -> str:
    """The condition on the job types that the worker can carry out. Calls and commands are for those that name them."""
    if request.job_types is None:
        named = {f"named_{number}": name for number, name in enumerate(NAMED_TYPES)}
        params |= named
        return f" and (l.job_type is null or l.job_type not in ({', '.join(f':{name}' for name in named)}))"
    params["types"] = q.pack(list(request.job_types))
    return f" and (l.job_type is null or {q.names('l.job_type', 'types')})"


def labels_fit(request: ClaimRequest, params: dict[str, Any]) -> str:
    """For a claim: of runs `l`, those whose task asks for no label that the worker does not have.

    Each label is a value of its own: MariaDB finds nothing at all where a list of them, as a table, is empty.
    """
    names = [f"label_{number}" for number in range(len(request.labels))]
    params |= dict(zip(names, request.labels, strict=True))
    lacks = f" and n.pair not in ({', '.join(f':{name}' for name in names)})" if names else ""
    return (
        f" and ((l.flags & {RunFlag.LABELED}) = 0"
        f" or not exists (select 1 from needed_labels n where n.task_id = l.task_id{lacks}))"
    )


def _candidates(
    q: Dialect,
    request: ClaimRequest,
    queues: OpenQueues,
    special: Special,
    now: Instant,
    parents: Sequence[int] = (),
    past: int = 0,
) -> Work[list[Live]]:
    """What is due and behind no gate, the first of each kind and queue, held; with `parents`, only parts of those."""
    params: dict[str, Any] = {
        "limit": request.max + past,
        "version": request.version,
        "worker": request.worker_id,
        "now": now,
    }
    labels = labels_fit(request, params)
    fits = types_fit(q, request, params)
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
            keyed = f" and (l.flags & {RunFlag.RATED}) <> 0" if queues.gives_only_keyed(name) else ""
            places[Place.CAREFUL] = f" and l.min_version <= :version{keyed}{NOT_EXPIRED}{labels}{_NOT_HAD}"
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
            f" and l.place = {int(Place.PINNED)} and l.queue = :queue and l.min_version <= :version{NOT_EXPIRED}{labels}{_NOT_HAD}{fits}"
            f" {order}{q.skip_locked_l}",
            here,
        )
        found += [Live(*row) for row in rows]
    return found


def _lease(q: Dialect, cache: TaskView, now: Instant, request: ClaimRequest, rows: Sequence[Live]) -> Work[list[Lease]]:
    if not rows:
        return []
    tasks = yield from known_tasks(q, cache, [row.task_id for row in rows])
    in_flows = [row.run_id for row in rows if row.flags & RunFlag.STEP]
    steps = (yield from flows.steps_of(q, cache, in_flows)) if in_flows else {}
    spawners = [row.run_id for row in rows if row.flags & RunFlag.SPAWNER]
    executed = (yield from children.executed(q, spawners)) if spawners else {}
    leased: list[Live] = []
    for row in rows:
        spec = tasks[row.task_id].task.spec
        if row.run_id in steps:
            spec = steps[row.run_id][1] or spec
        expires = now + spec.worker_timeout_ms * 1000
        deadline = now + max(round(spec.timeout_seconds * SECOND) - executed.get(row.run_id, 0), 0)
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
                flags=row.flags & _STAYS_LEASED,
            )
        )
    yield from _write_leases(q, now, request.worker_id, leased)
    tracked = [row for row in leased if row.flags & RunFlag.ROUND]
    if tracked:
        yield from note_started(q, sorted(tracked, key=lambda row: row.run_id))
    tokens = yield from make_callback_tokens([row for row in leased if row.flags & RunFlag.CALLBACK])
    yield from tell("run.started", [(row.task_id, row.run_id, {"worker_id": request.worker_id}) for row in leased])
    leases = yield from leases_of(q, tasks, leased, tokens, steps)
    if not executed:
        return leases
    return [msgspec.structs.replace(lease, executed_us=executed.get(lease.run_id, 0)) for lease in leases]


def _write_leases(q: Dialect, now: Instant, worker_id: str, leased: Sequence[Live]) -> Work[None]:
    """By sets of rows where many have the same times; else row by row."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in leased:
        alike[row.expires_at or 0, row.deadline_at or 0].append(row.run_id)
    if len(alike) > 1 and len(alike) * _WORTH_A_STATEMENT > len(leased):
        rows = [(row.run_id, *(getattr(row, column) for column in LEASED_COLUMNS)) for row in leased]
        yield UpdateMany("live", "run_id", LEASED_COLUMNS, rows)
        return
    for (expires_at, deadline_at), run_ids in alike.items():
        yield lease_alike(q, now, worker_id, expires_at, deadline_at, run_ids, f", flags = flags & {_STAYS_LEASED}")


_WORTH_A_STATEMENT = 8
"""Rows with the same times that are leased by a statement of their own."""
_STAYS_LEASED = 0x7FFFFFFF & ~(RunFlag.RETRIED | RunFlag.STOP | RunFlag.BEGUN | RunFlag.EXPIRES)
"""Bits of `flags` that a claim leaves as they are; positive, because MySQL counts bits without a sign."""


def lease_alike(
    q: Dialect, now: Instant, worker_id: str, expires_at: int, deadline_at: int, run_ids: Sequence[int], more: str = ""
) -> Execute:
    """Lease rows that get the same times. `more`: further columns, each after a comma."""
    return Execute(
        f"update live{q.by_key} set place = {int(Place.LEASED)}, at = :at,"
        " token = case when token < :now then :now else token + 1 end, worker_id = :worker, claimed_at = :now,"
        f" expires_at = :expires, deadline_at = :deadline, attempt = attempt + 1{more} where {q.ids('run_id', 'ids')}",
        {
            "at": min(expires_at, deadline_at),
            "now": now,
            "worker": worker_id,
            "expires": expires_at,
            "deadline": deadline_at,
            "ids": q.pack(run_ids),
        },
    )


_SELECT = (
    'select r.id, r.origin, r.scheduled_time, r.priority, r."key", r.shard_index, r.shard_total, r.trace_id,'
    " r.idempotency_key, i.payload, i.overrides from runs r left join inputs i on i.run_id = r.id"
)


def token_hash(token: str) -> str:
    """What the store keeps of a callback token. 256 random bits need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_callback_tokens(rows: Sequence[Live]) -> Work[dict[int, str]]:
    """A fresh token for each attempt that will be answered by a callback; its hash is written with the claim.

    It says when it was made, in hexadecimal microseconds before the dot. A caller cannot change that: the hash is of it all.
    """
    tokens = {row.run_id: f"{row.claimed_at or 0:x}.{secrets.token_urlsafe(32)}" for row in rows}
    if tokens:
        hashes = [(token_hash(token), run_id) for run_id, token in tokens.items()]
        yield InsertMany("callback_tokens", ("hash", "run_id"), hashes)
    return tokens


def made_at(token: str) -> Instant | None:
    """When a callback token that is known to be ours was made; None if it does not say."""
    moment, dot, _ = token.partition(".")
    try:
        return Instant(int(moment, 16)) if dot else None
    except ValueError:
        return None


def leases_of(
    q: Dialect,
    tasks: Mapping[int, Known],
    leased: Sequence[Live],
    tokens: Mapping[int, str],
    steps: Mapping[int, tuple[Task, Step | None, int | None]],
) -> Work[list[Lease]]:
    """In the order of the rows. `steps`: of those that are steps of a flow, what they carry out."""
    rows = yield from q.fetch_by(_SELECT, "r.id", [row.run_id for row in leased])
    wide = {row[0]: row for row in rows}
    leases = []
    for live in leased:
        task, step, item = steps.get(live.run_id, (tasks[live.task_id].task, None, None))
        run_id, origin, scheduled_time, priority, key, index, total, trace_id, idempotency_key = wide[live.run_id][:9]
        payload, overrides = wide[live.run_id][9], from_json(wide[live.run_id][10])
        leases.append(
            Lease(
                run_id=RunId(run_id),
                task_id=TaskId(live.task_id),
                task_version=task.version,
                worker_id=live.worker_id or "",
                token=live.token,
                attempt=live.attempt,
                retry_count=live.retry_count,
                lost_count=live.lost_count,
                queue=live.queue,
                priority=priority,
                origin=Origin(origin),
                scheduled_time=Instant(scheduled_time),
                claimed_at=Instant(live.claimed_at or 0),
                expires_at=Instant(live.expires_at or 0),
                deadline_at=Instant(live.deadline_at or 0),
                run_at=Instant(live.run_at),
                key=key,
                payload=task.spec.payload if payload is None else from_json(payload),
                overrides=overrides,
                callback_token=tokens.get(run_id),
                parent_id=None if live.parent_id is None else RunId(live.parent_id),
                shard_index=index,
                shard_total=total,
                step=step or (None if overrides is None else spec_of(live.queue, overrides)),
                item_index=item,
                trace_id=trace_id,
                idempotency_key=idempotency_key,
                plain=live.gate is None and live.flags == 0,
                counted=live.gate is not None and live.flags == 0,
                in_flow=_in_flow(live, step),
                keyed=live.gate is None and live.flags == RunFlag.KEYED,
            )
        )
    return leases


def _in_flow(live: Live, step: Step | None) -> FlowStep | None:
    if step is None or live.parent_id is None or live.gate is not None or live.flags != RunFlag.STEP:
        return None
    return FlowStep(RunId(live.parent_id), TaskId(live.task_id), step.id)


def split(q: Dialect, cache: TaskView, now: Instant, parent: Live, workers: Sequence[str]) -> Work[list[int] | None]:
    """Make the parts of a parent that starts now, for the `workers` alive on its queue and allowed; the parts' ids.

    None if it must wait: "all" while no worker is there. The parent's row is taken to PARENT; its attempt is counted by
    the caller.
    """
    tasks = yield from known_tasks(q, cache, [parent.task_id])
    task = tasks[parent.task_id].task
    if task.spec.fanout is None:
        return None
    chosen: Sequence[str | None]
    if task.spec.fanout.workers == "all":
        chosen = list(workers)
        if not chosen:
            return None
    else:
        chosen = [None] * int(task.spec.fanout.workers)
    rows = yield Fetch(
        "select r.scheduled_time, r.priority, r.idempotency_key, i.payload, i.overrides from runs r"
        " left join inputs i on i.run_id = r.id where r.id = :id",
        {"id": parent.run_id},
    )
    scheduled_time, priority, stored_key, payload, overrides = rows[0]
    parent_key = idempotency_key_of(parent.run_id, scheduled_time, stored_key)
    parts = []
    for index, worker in enumerate(chosen):
        part = NewRun(
            task=task,
            origin=Origin.PUBLISH,
            scheduled_time=scheduled_time,
            run_at=now,
            priority=priority,
            parent_id=parent.run_id,
            shard=(index, len(chosen)),
            parent_key=parent_key,
            workers=task.spec.specific_worker_ids if worker is None else (worker,),
            overrides=from_json(overrides),
        )
        if payload is not None:
            part.payload = from_json(payload)
        parts.append(part)
    yield from insert_runs(q, cache, now, parts)
    return [part.id for part in parts]


_PARENT_COLUMNS = ("place", "at", "token", "claimed_at", "deadline_at", "attempt", "flags")


def start_parents(
    q: Dialect, cache: TaskView, now: Instant, request: ClaimRequest, parents: Sequence[Live]
) -> Work[set[str]]:
    """Each is RUNNING from now on, without a lease of its own, and its parts or first steps wait for their workers.

    The queues where they do.
    """
    tasks = yield from known_tasks(q, cache, [parent.task_id for parent in parents])
    workers = yield from load_workers()
    started: list[Live] = []
    over: list[Ending] = []
    woken: set[str] = set()
    in_flows = [
        _parent_started(parent, now, tasks[parent.task_id].task.spec)
        for parent in parents
        if parent.flags & RunFlag.FLOW
    ]
    if in_flows:
        started += in_flows
        ends, woken = yield from flows.start(q, cache, now, in_flows)
        over = [flow_ending(end) for end in ends]
    for parent in parents:
        if parent.flags & RunFlag.FLOW:
            continue
        spec = tasks[parent.task_id].task.spec
        woken.add(parent.queue)
        alive = {
            worker.id
            for worker in workers
            if is_alive(worker, now)
            and worker.state is WorkerState.RUNNING
            and parent.queue in worker.queues
            and knows_type(worker.job_types, parent.job_type)
            and worker.version >= spec.min_worker_version
            and set(label_pairs(spec.worker_labels)) <= set(label_pairs(worker.labels))
        } | {request.worker_id}
        if spec.specific_worker_ids:
            alive &= set(spec.specific_worker_ids)
        started.append(_parent_started(parent, now, None))
        yield from split(q, cache, now, parent, sorted(alive))
    rows = [(row.run_id, *(getattr(row, column) for column in _PARENT_COLUMNS)) for row in started]
    yield UpdateMany("live", "run_id", _PARENT_COLUMNS, rows)
    tracked = [row for row in started if row.flags & RunFlag.ROUND]
    if tracked:
        yield from note_started(q, tracked)
    yield from tell("run.started", [(row.task_id, row.run_id, {"parts": True}) for row in started])
    yield from finish(q, cache, now, over)
    return woken


def _parent_started(parent: Live, now: Instant, spec: TaskSpec | None) -> Live:
    """`spec`: of a flow, which may have a deadline."""
    deadline = None if spec is None or spec.timeout_seconds <= 0 else now + round(spec.timeout_seconds * SECOND)
    return parent._replace(
        place=int(Place.PARENT),
        at=deadline,
        token=max(parent.token + 1, now),
        claimed_at=now,
        deadline_at=deadline,
        attempt=parent.attempt + 1,
        flags=parent.flags & ~RunFlag.RETRIED,
    )
