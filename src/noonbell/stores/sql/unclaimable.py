"""Runs that are due and that no worker alive could take: found, told of once by task, and told again when it is over.

What no worker can take stays at the head of its line, so only heads are looked at: the work grows with the number of queues
and of workers that runs name, never with what waits. Queues are found by stepping from one to the next in an index.

A task that was told of has a mark, a row `no_worker:TASK` in `counters` whose value is one run that waits. The situation
is over when that run is taken or gone and no other is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from noonbell.clock import SECOND, Instant
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import UnclaimableRuns, UnservedTask
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.model.worker import Lack, WorkerInfo
from noonbell.policy.workers import WorkerNeeds, lack, takes_runs
from noonbell.stores.sql.active_runs import COLUMNS, DUE, Live, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.pausing import installation_pause
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, Work
from noonbell.stores.sql.workers import is_alive, load_workers

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
