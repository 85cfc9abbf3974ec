"""Workers and queues; and what a worker writes while it holds a run: heartbeats, extensions, log, progress.

Runs that are due and that no worker alive could take are found, told of once by task, and told again when it is over.

What no worker can take stays at the head of its line, so only heads are looked at: the work grows with the number of queues
and of workers that runs name, never with what waits. Queues are found by stepping from one to the next in an index.

A task that was told of has a mark, a row `no_worker:TASK` in `counters` whose value is one run that waits. The situation
is over when that run is taken or gone and no other is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, InvalidState, NotFound, Sentence
from noonbell.model.account import Pause
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import HeartbeatAnswer, UnclaimableRuns, UnservedTask
from noonbell.model.run import Lease, RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.model.worker import Attendance, Lack, LeaseOrder, Order, Queue, WorkerInfo, WorkerState
from noonbell.policy.workers import WorkerNeeds, lack, takes_runs
from noonbell.stores.sql import limits, resting
from noonbell.stores.sql.active_runs import COLUMNS, DUE, WAITING, Live, Place, RunFlag, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.limits import installation_pause
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
            raise AlreadyExists(f"another process works as {worker.id!r}; give this one a different ID")
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
                "worker {worker} is connected; only lost workers can be removed: stop it instead",
                worker=repr(worker_id),
            )
        )
    leases = yield from held(q, [worker_id])
    if leases:
        raise InvalidState(
            Sentence(
                "worker {worker} still holds runs ({count}); remove it once their leases have expired",
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
    # A row that says nothing is left of a pause or a limit that has ended: it does not keep the queue in the list.
    found = {queue.name: queue for queue in map(_QUEUE.read, rows) if queue != Queue(name=queue.name)}
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
    q: Dialect,
    cache: TaskView,
    name: str,
    change: Callable[[Queue], Queue],
    *,
    by: str | None = None,
    reason: str | None = None,
) -> Work[Queue]:
    rows = yield Fetch(f"select {_QUEUE.select()} from queues where name = :name{q.lock}", {"name": name})
    there = _QUEUE.read(rows[0]) if rows else Queue(name=name)
    wanted = change(there)
    if rows:
        yield delete("queues", name=name)
    yield InsertMany("queues", _QUEUE.columns, [(name, *_QUEUE.row(wanted)[1:])])
    now = yield Now()
    is_said_anew = wanted.paused and there.paused and reason is not None
    if wanted.paused is not there.paused:
        yield from _note_pause(name, now, by, reason or "", paused=wanted.paused)
    elif is_said_anew:
        is_said_anew = yield from _say_anew(name, by, reason or "")
    data = {"queue": name, "paused": wanted.paused, "concurrency": wanted.concurrency, "by": by}
    if wanted.quiet:
        data["quiet"] = msgspec.to_builtins(wanted.quiet)
    if wanted.rate_limit is not None:
        data["rate_limit"] = msgspec.to_builtins(wanted.rate_limit)
    if wanted.paused and reason:
        data["reason"] = reason
    if wanted.paused is not there.paused or is_said_anew:
        yield from tell("queue.paused" if wanted.paused else "queue.resumed", [(None, None, data)])
    is_quieter = (wanted.quiet, wanted.spread_seconds) != (there.quiet, there.spread_seconds)
    if is_quieter or (wanted.concurrency, wanted.rate_limit) != (there.concurrency, there.rate_limit):
        yield from tell("queue.limited", [(None, None, data)])
    if wanted.rate_limit != there.rate_limit:
        yield from limits.look_anew(now, name)
    if wanted.quiet != there.quiet:
        yield from resting.rest_queue_anew(q, cache, now, name, wanted.quiet)
    return wanted


def _say_anew(name: str, by: str | None, reason: str) -> Work[bool]:
    """Give a pause that lasts another reason; False where it has that one."""
    changed = yield Execute(
        "update queue_pauses set reason = :reason, paused_by = :by where name = :name and until is null"
        " and coalesce(reason, '') <> :reason",
        {"name": name, "by": by, "reason": reason},
    )
    return bool(changed)


def _note_pause(name: str, now: Instant, by: str | None, reason: str, *, paused: bool) -> Work[None]:
    yield Execute(
        "update queue_pauses set until = :now where name = :name and until is null", {"now": now, "name": name}
    )
    if paused:
        # Twice in the same moment, by a clock that stands still or was set back, is one pause.
        yield Execute("delete from queue_pauses where name = :name and since >= :now", {"name": name, "now": now})
        yield insert("queue_pauses", name=name, since=now, until=None, paused_by=by, reason=reason)


def pauses(queue: str, since: Instant, until: Instant) -> Work[list[Pause]]:
    rows = yield Fetch(
        "select since, until, paused_by, reason from queue_pauses where name = :queue and since <= :until"
        " and (until is null or until >= :since) order by since",
        {"queue": queue, "since": since, "until": until},
    )
    return [Pause(queue=queue, since=row[0], until=row[1], by=row[2], reason=row[3] or "") for row in rows]


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


_MARK = "no_worker:"
_STEPS = 1_000
"""Queues, and workers that are named, in one look."""
_HEADS = 50
"""Rows of a line that are looked at; of one whose workers take some job types only, ten times as many."""
_MARKS = 1_000


@dataclass(slots=True)
class _Crew:
    """The workers that take runs now, and what is known of the rows that only some of them may have."""

    workers: Sequence[WorkerInfo]
    pins: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    labels: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By task: what it asks for."""
    had: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By parent: who has had a part of it."""

    def on(self, queue: str) -> list[WorkerInfo]:
        return [worker for worker in self.workers if queue in worker.queues]

    @property
    def makes_calls(self) -> bool:
        """Whether one of the workers carries out calls, from every queue. A worker of any job type carries out none."""
        return any(CALL_TYPE in (worker.job_types or ()) for worker in self.workers)

    def lacks(self, row: Live) -> Lack | None:
        """What the workers lack; None: one of them could take it."""
        wanted = WorkerNeeds(
            queue=row.queue,
            job_type=row.job_type,
            min_version=row.min_version,
            workers=frozenset(self.pins[row.run_id]) if row.flags & RunFlag.PINNED else None,
            labels=frozenset(self.labels[row.task_id]) if row.flags & RunFlag.LABELED else frozenset(),
            had=frozenset(self.had[row.parent_id]) if row.parent_id and row.flags & RunFlag.PART else frozenset(),
        )
        return lack(self.workers, wanted)


def unserved(q: Dialect, grace_seconds: float) -> Work[list[UnservedTask]]:
    """Mark and tell what is new, unmark and tell what is over. Nothing, while everything is paused."""
    if (yield from installation_pause()) is not None:
        return []
    now = yield Now()
    crew = yield from _crew(now)
    rows, _ = yield from _heads(q, crew)
    marks = yield from _marks(q)
    rows += yield from _read(q, [witness for witness in marks.values() if witness not in {row.run_id for row in rows}])
    yield from _learn(q, crew, rows)
    paused = yield from _paused()
    since = now - round(grace_seconds * SECOND)
    waiting: dict[int, Live] = {}
    for row in sorted(rows, key=lambda row: (row.run_at, row.run_id)):
        if row.run_at <= since and row.queue not in paused and crew.lacks(row) is not None:
            waiting.setdefault(row.task_id, row)
    return (yield from _tell(q, marks, waiting))


def stranded(q: Dialect) -> Work[list[UnclaimableRuns]]:
    """The runs that no worker can take now, by queue, job type and what is lacking."""
    now = yield Now()
    crew = yield from _crew(now)
    rows, cut = yield from _heads(q, crew)
    yield from _learn(q, crew, rows)
    paused = yield from _paused()
    found: dict[tuple[str, str, Lack], list[Live]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.run_at, row.run_id)):
        if row.queue not in paused and (missing := crew.lacks(row)) is not None:
            found[row.queue, row.job_type or "", missing].append(row)
    gates = {row.task_id for waiting in found.values() for row in waiting if row.place == Place.GATED}
    at_gates = f" and place = {int(Place.GATED)} group by gate"
    counted = yield from q.fetch_by("select gate, count(*) from live", "gate", gates, at_gates)
    behind = {int(gate): int(count) for gate, count in counted}
    return [_stranded(key[2], found[key], behind, is_least=key[0] in cut) for key in sorted(found)]


def _stranded(missing: Lack, waiting: Sequence[Live], behind: Mapping[int, int], *, is_least: bool) -> UnclaimableRuns:
    """`behind`: how many wait at each gate; the first of them is in `waiting`."""
    oldest = waiting[0]
    return UnclaimableRuns(
        queue=oldest.queue,
        job_type=oldest.job_type,
        lack=missing,
        count=sum(behind.get(row.task_id, 1) if row.place == Place.GATED else 1 for row in waiting),
        is_least=is_least,
        run_id=RunId(oldest.run_id),
        task_id=TaskId(oldest.task_id),
        since=Instant(oldest.run_at),
    )


def _crew(now: Instant) -> Work[_Crew]:
    workers = yield from load_workers()
    return _Crew([worker for worker in workers if is_alive(worker, now) and takes_runs(worker)])


def _paused() -> Work[set[str]]:
    return {row[0] for row in (yield Fetch("select name from queues where paused = 1"))}


def _tell(q: Dialect, marks: dict[int, int], waiting: dict[int, Live]) -> Work[list[UnservedTask]]:
    fresh = [row for task_id, row in waiting.items() if task_id not in marks]
    over = sorted(task_id for task_id in marks if task_id not in waiting)
    moved = [row for task_id, row in waiting.items() if marks.get(task_id, row.run_id) != row.run_id]
    gone = [_name(task_id) for task_id in (*over, *(row.task_id for row in moved))]
    if gone:
        yield Execute(f"delete from counters where {q.names('name', 'names')}", {"names": q.pack(gone)})
    if fresh or moved:
        yield InsertMany("counters", ("name", "value"), [(_name(row.task_id), row.run_id) for row in (*fresh, *moved)])
    facts = [(row.task_id, row.run_id, {"queue": row.queue, "job_type": row.job_type}) for row in fresh]
    yield from tell("task.no_worker", facts)
    yield from tell("task.has_worker", [(task_id, None, {}) for task_id in over])
    found = [UnservedTask(task_id=TaskId(row.task_id), queue=row.queue, job_type=row.job_type) for row in fresh]
    return found + [UnservedTask(task_id=TaskId(task_id), is_over=True) for task_id in over]


def _name(task_id: int) -> str:
    return f"{_MARK}{task_id}"


def _marks(q: Dialect) -> Work[dict[int, int]]:
    """By task, the run that waits; held, so that one node alone tells that it is over."""
    # The names follow each other in the key: from `no_worker:` to `no_worker;`.
    rows = yield Fetch(
        "select name from counters where name > :first and name < :last order by name limit :limit",
        {"first": _MARK, "last": _MARK[:-1] + ";", "limit": _MARKS},
    )
    if not rows:
        return {}
    rows = yield Fetch(
        f"select name, value from counters where {q.names('name', 'names')} order by name{q.lock}",
        {"names": q.pack([row[0] for row in rows])},
    )
    return {int(name.removeprefix(_MARK)): value for name, value in rows}


def _heads(q: Dialect, crew: _Crew) -> Work[tuple[list[Live], set[str]]]:
    """The first in each line, and the queues that have a line which is longer than what was looked at."""
    found: list[Live] = []
    cut: set[str] = set()
    for place in (Place.READY, Place.CAREFUL):
        queues = yield from _steps("live", "queue", f"place = {int(place)}")
        for queue in queues:
            line, most = yield from _line(place, queue, crew)
            found += line
            cut |= {queue} if line and len(line) == most else set()
    for queue in (yield from _steps("gates", "queue", "open = 1")):
        line = yield from _gated(q, queue)
        found += line
        cut |= {queue} if len(line) == _HEADS else set()
    for worker_id in (yield from _steps("pins", "worker_id", "1 = 1")):
        rows = yield Fetch(
            f"select {', '.join(f'l.{column}' for column in Live._fields)} from pins p"
            f" join live l on l.run_id = p.run_id where p.worker_id = :worker and l.place = {int(Place.PINNED)}"
            " order by p.run_id limit :limit",
            {"worker": worker_id, "limit": _HEADS},
        )
        line = [Live(*row) for row in rows]
        found += line
        cut |= {row.queue for row in line} if len(line) == _HEADS else set()
    return list({row.run_id: row for row in found}.values()), cut


def _steps(table: str, column: str, condition: str) -> Work[list[str]]:
    """The values of a column, each found by one step in its index."""
    found: list[str] = []
    while len(found) < _STEPS:
        rows = yield Fetch(
            f"select min({column}) from {table} where {condition} and {column} > :last",
            {"last": found[-1] if found else ""},
        )
        if rows[0][0] is None:
            break
        found.append(rows[0][0])
    return found


def _line(place: Place, queue: str, crew: _Crew) -> Work[tuple[list[Live], int]]:
    """The head of a line, and how many it may have; of a READY one only what no worker of the queue knows how to do."""
    plain, workers = place is Place.READY, crew.on(queue)
    if plain and crew.makes_calls and any(worker.job_types is None for worker in workers):
        return [], 0
    most = _HEADS * 10 if plain and workers else _HEADS
    rows = yield Fetch(
        f"select {COLUMNS} from live where place = {int(place)} and queue = :queue"
        " order by turn, run_at, run_id limit :limit",
        {"queue": queue, "limit": most},
    )
    return [Live(*row) for row in rows], most


def _gated(q: Dialect, queue: str) -> Work[list[Live]]:
    """The first in line at each open gate."""
    gates = yield Fetch(
        "select task_id from gates where open = 1 and queue = :queue order by top limit :limit",
        {"queue": queue, "limit": _HEADS},
    )
    ids: list[int] = []
    for gate in gates:
        rows = yield Fetch(
            f"select run_id from live where place = {int(Place.GATED)} and gate = :gate"
            " order by turn, run_at, run_id limit 1",
            {"gate": gate[0]},
        )
        ids += [row[0] for row in rows]
    return (yield from _read(q, ids))


def _read(q: Dialect, run_ids: Sequence[int]) -> Work[list[Live]]:
    """Those of them that are due still."""
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", run_ids)
    return [live for live in (Live(*row) for row in rows) if live.place in DUE]


def _learn(q: Dialect, crew: _Crew, rows: Iterable[Live]) -> Work[None]:
    """Whom the rows name, and who has had another part of the same fan-out."""
    listed = list(rows)
    pinned = [row.run_id for row in listed if row.flags & RunFlag.PINNED]
    for run_id, worker_id in (yield from q.fetch_by("select run_id, worker_id from pins", "run_id", pinned)):
        crew.pins[run_id].add(worker_id)
    labeled = {row.task_id for row in listed if row.flags & RunFlag.LABELED}
    for task_id, pair in (yield from q.fetch_by("select task_id, pair from needed_labels", "task_id", labeled)):
        crew.labels[task_id].add(pair)
    parents = {row.parent_id for row in listed if row.parent_id is not None and row.flags & RunFlag.PART}
    for table in ("runs", "live"):
        select = f"select parent_id, worker_id from {table}"
        had = yield from q.fetch_by(select, "parent_id", parents, " and worker_id is not null")
        for parent_id, worker_id in had:
            crew.had[parent_id].add(worker_id)
