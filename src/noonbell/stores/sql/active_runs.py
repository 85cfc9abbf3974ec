"""Active runs: the narrow row that a run has in `live` until it is final, its `place` and its `flags`.

    LATER ──promote──▶ READY | GATED | CAREFUL | PINNED ──claim──▶ LEASED ──settle──▶ final (the row is deleted)
                 └▶ HELD ──let in──▲ (with a key)
      ▲                     ▲                               │ ├─park──▶ PARKED ──callback, sweep──▶ final or LATER
      └──────retry──────────┼───────────────────────────────┤ └─(fan-out, flow)──▶ PARENT
                            ├──release, lose────────────────┤
                            └──last child ends── GATHERING ◀┘ gather

READY needs nothing but a worker of its queue: the hot claim walks these rows and no others. GATED waits behind the
gate of its task (a concurrency or rate limit). CAREFUL is due, but the claim must check it: a policy follows the run, it
asks for a newer worker, or it is a part of a fan-out or a step of a flow. PINNED names its workers, and only they look for it.
GATHERING waits for the children that it has spawned: RUNNING, but without a lease and without a place at its gate.
HELD is due, but as many runs of its key as may be are let in already (`keys`): no claim looks at it.
Rows change their place by `keys.move`, which keeps the counts at gates and keys in step.

`rounds` has the last run of a task whose policies ask for it: its status, and the failures in a row.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from noonbell.clock import Instant
from noonbell.model.event import is_event_only, target_of
from noonbell.model.run import FAILURES, SUCCEEDED, Origin, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery, LastRun, OnExhausted, TaskSpec
from noonbell.policy.account import needs
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import Record
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, UpdateMany, Work


class Place(enum.IntEnum):
    LATER = 0
    READY = 1
    GATED = 2
    CAREFUL = 3
    LEASED = 4
    PARKED = 5
    PARENT = 6
    PINNED = 7
    GATHERING = 8
    HELD = 9


DUE = (Place.READY, Place.GATED, Place.CAREFUL, Place.PINNED)
"""What a claim may take, if limits let it."""
WAITING = (*DUE, Place.HELD)
"""What has its time behind it."""
STARTED = (Place.LEASED, Place.PARKED, Place.PARENT, Place.GATHERING)
HOLDING = (Place.LEASED, Place.PARKED, Place.PARENT)
"""What has a place at its task's gate."""


class RunFlag:
    """Bits of `flags`. Plain integers: drivers would take a set of members for a list."""

    FOLLOW = 1
    """Its end touches more than itself: fixed delay, ERROR, deletion on completion, a result that is published."""
    ROUND = 2
    """Its start and end are kept as the task's previous round."""
    PINNED = 4
    """Only the workers in `pins` may have it."""
    FANOUT = 8
    """To be split into parts when it starts."""
    PART = 16
    """A part of a fan-out."""
    CALLBACK = 32
    """Its claim makes a callback token."""
    ONCE = 64
    """At most once: its attempt is marked as begun."""
    BEGUN = 128
    STOP = 256
    """Its worker may not have it any longer, and gets that order by its next heartbeat."""
    PASSED = 512
    """Counts for its task's gate without having waited behind it."""
    RETRIED = 1024
    """Waits as RETRYING: it has started before."""
    EVENT_ONLY = 2048
    """Needs no worker: when it is due, it is published as an event, and done."""
    FLOW = 4096
    """Its claim starts the steps of a flow."""
    STEP = 8192
    """A step of a flow."""
    CHILD = 16384
    """Spawned by a running job, which may wait for its end."""
    SPAWNER = 32768
    """It has spawned children."""
    TELLS = 65536
    """A call whose outcome is posted to a URL when it ends."""
    KEYED = 131072
    """It has a row in `keyed_runs`: the limit of its key holds for it."""
    LABELED = 524288
    """Only a worker that has the labels of its task may have it."""
    QUIET = 1 << 22
    """Its task has quiet hours, which hold for it: the claim asks for them."""
    AT_REST = 1 << 23
    """LATER, until quiet hours end: those of its task or of its queue."""
    RATED = 1 << 24
    """A call with a `rate_key`: the rate limit of its queue counts it under that key."""
    EXPIRES = 262144
    """It has a row in `expiries`: no worker has claimed it yet, and by then one must."""


STANDING = ~(RunFlag.BEGUN | RunFlag.STOP | RunFlag.RETRIED | RunFlag.AT_REST)
"""What stays with a run from attempt to attempt."""


def flags_for(spec: TaskSpec, origin: Origin, *, pinned: bool, force_async: bool = False) -> int:
    flags = 0
    is_round = origin in (Origin.SCHEDULE, Origin.TRIGGER, Origin.UPSTREAM)
    fixed_delay = (spec.schedule or {}).get("mode") == "fixed_delay"
    if spec.on_exhausted is OnExhausted.ERROR or spec.delete_on_complete or (fixed_delay and is_round):
        flags |= RunFlag.FOLLOW
    if spec.meta and target_of(spec) is not None:
        flags |= RunFlag.FOLLOW | (RunFlag.EVENT_ONLY if is_event_only(spec) else 0)
    if is_round and needs(spec).round:
        flags |= RunFlag.ROUND
    if pinned:
        flags |= RunFlag.PINNED
    if spec.worker_labels:
        flags |= RunFlag.LABELED
    if spec.quiet and origin is not Origin.TRIGGER and not is_event_only(spec):
        flags |= RunFlag.QUIET
    if spec.fanout is not None:
        flags |= RunFlag.FANOUT
    if spec.exec_type is ExecType.FLOW:
        flags |= RunFlag.FLOW
    if spec.awaits_callback or (force_async and spec.target_kind.takes_overrides):
        flags |= RunFlag.CALLBACK
    if spec.delivery is Delivery.AT_MOST_ONCE:
        flags |= RunFlag.ONCE
    return flags


def due_place(flags: int, gate: int | None, min_version: int) -> Place:
    """Where a run waits once its time has come. One with a key is held until it is let in."""
    return Place.HELD if flags & RunFlag.KEYED else claimable_place(flags, gate, min_version)


def claimable_place(flags: int, gate: int | None, min_version: int) -> Place:
    """Where a claim finds it."""
    if gate is not None and not flags & RunFlag.PASSED:
        return Place.GATED
    if flags & RunFlag.PINNED:
        return Place.PINNED
    return Place.CAREFUL if flags & STANDING or min_version else Place.READY


class Live(NamedTuple):
    run_id: int
    place: int
    task_id: int
    queue: str
    turn: int
    run_at: int
    at: int | None
    job_type: str | None
    gate: int | None
    round_of: int | None
    rate_key: str | None
    flags: int
    min_version: int
    parent_id: int | None
    attempt: int
    retry_count: int
    lost_count: int
    token: int
    worker_id: str | None
    claimed_at: int | None
    expires_at: int | None
    deadline_at: int | None

    @property
    def started(self) -> bool:
        """An attempt is under way, or was and the run waits for a callback, its parts or its children."""
        return self.place in STARTED

    @property
    def was_claimed(self) -> bool:
        return self.token > 0

    @property
    def due_place(self) -> Place:
        return due_place(self.flags, self.gate, self.min_version)


COLUMNS = ", ".join(Live._fields)
MOVED = (
    "place",
    "at",
    "flags",
    "attempt",
    "retry_count",
    "lost_count",
    "worker_id",
    "claimed_at",
    "expires_at",
    "deadline_at",
)


def load_active(q: Dialect, run_ids: Iterable[int]) -> Work[dict[int, Live]]:
    """The rows of these runs, held until the end of the transaction."""
    wanted = set(run_ids)
    held = f" order by run_id{q.lock}"
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", wanted, held)
    found = {row[0]: Live(*row) for row in rows}
    if q.rows_move:
        rows = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", wanted - set(found), held)
        found.update({row[0]: Live(*row) for row in rows})
    return found


NOT_EXPIRED = (
    f" and ((l.flags & {RunFlag.EXPIRES}) = 0"
    " or not exists (select 1 from expiries e where e.run_id = l.run_id and e.at <= :now))"
)
"""For a claim: of runs `l`, those that may still start at `:now`."""


def forget_expiries(q: Dialect, run_ids: Sequence[int]) -> Work[None]:
    """These have been claimed, or are over: they do not expire any more."""
    yield from q.delete_by("expiries", "run_id", run_ids)


def load_where(q: Dialect, condition: str, **params: object) -> Work[list[Live]]:
    rows = yield Fetch(f"select {COLUMNS} from live where {condition} order by run_id{q.lock}", params)
    return [Live(*row) for row in rows]


def load_children(q: Dialect, run_ids: Iterable[int]) -> Work[list[Live]]:
    """The parts, steps and children of these runs that are not final."""
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "parent_id", run_ids, f" order by run_id{q.lock}")
    return [Live(*row) for row in rows]


OF_TASK = f"task_id = :task and (parent_id is null or (flags & {RunFlag.CHILD}) <> 0)"
"""For `load_where`: the runs of a task, without parts and steps, which have no place at its gate."""


def load_of_tasks(q: Dialect, task_ids: Iterable[int]) -> Work[list[Live]]:
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "task_id", task_ids, f" order by run_id{q.lock}")
    return [Live(*row) for row in rows]


def waits(live: Live, *, at: Instant | None = None, flags: int = 0) -> Live:
    """The row, back among those that wait: for their time if `at` is given, else for a worker."""
    place = Place.LATER if at is not None else live.due_place
    return live._replace(
        place=int(place),
        at=at,
        flags=(live.flags & STANDING) | flags,
        worker_id=None,
        claimed_at=None,
        expires_at=None,
        deadline_at=None,
    )


class Earlier(NamedTuple):
    start_time: Instant | None
    """When its last attempt started: the wide row has it, or that attempt's record."""
    response_code: int | None
    """How its target accepted a run that awaits its callback. It stays the run's answer, however the run ends."""


def earlier(q: Dialect, rows: Collection[Live]) -> Work[dict[int, Earlier]]:
    """Of each of these runs. One that is leased, or was never claimed, costs no query."""
    known = {row.run_id: Earlier(None if row.claimed_at is None else Instant(row.claimed_at), None) for row in rows}
    parted = {row.run_id: row for row in rows if row.was_claimed and row.claimed_at is None}
    found = yield from q.fetch_by(
        "select r.id, coalesce(r.start_time, max(a.start_time)), r.response_code"
        " from runs r left join attempts a on a.run_id = r.id",
        "r.id",
        parted,
        " group by r.id, r.start_time, r.response_code",
    )
    for run_id, start, code in found:
        known[run_id] = Earlier(start, code if parted[run_id].place == Place.PARKED else None)
    return known


def gate_counts(q: Dialect, task_ids: Iterable[int]) -> Work[dict[int, tuple[int, int]]]:
    """By task: the runs that have a place at its gate, and those that wait for one, passed, or are held by their key.

    The gates are held. Keys are read after them: a run that another transaction has just published is counted.
    """
    rows = yield from q.fetch_by(
        "select task_id, used, waiting, passed from gates", "task_id", task_ids, f" order by task_id{q.lock}"
    )
    held = yield from q.fetch_by(
        "select task_id, sum(waiting) from run_keys",
        "task_id",
        [row[0] for row in rows],
        " and waiting > 0 group by task_id",
    )
    by_keys = {task_id: int(count) for task_id, count in held}
    return {task_id: (used, waiting + passed + by_keys.get(task_id, 0)) for task_id, used, waiting, passed in rows}


def count_at_gates(
    *, used: dict[int, int] | None = None, waiting: dict[int, int] | None = None, passed: dict[int, int] | None = None
) -> Work[None]:
    """Add to the counters of gates, in the order of their ids, so that two transactions cannot wait for each other."""
    used, waiting, passed = used or {}, waiting or {}, passed or {}
    rows = [
        (gate, used.get(gate, 0), waiting.get(gate, 0), passed.get(gate, 0))
        for gate in sorted({*used, *waiting, *passed})
    ]
    rows = [row for row in rows if any(row[1:])]
    if rows:
        yield UpdateMany("gates", "task_id", ("used", "waiting", "passed"), rows, add=True)


@dataclass(slots=True)
class GateChanges:
    """What is to be added to the counters of gates."""

    used: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    waiting: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    passed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    tops: dict[int, int] = field(default_factory=dict)
    """The most urgent turn that came to a gate."""

    def count(self, row: Live, sign: int) -> None:
        """A row that a claim may take now, or may not take any longer."""
        if row.gate is None:
            return
        (self.waiting if row.place == Place.GATED else self.passed)[row.gate] += sign
        if sign > 0:
            self._note_top(row.gate, row.turn)

    def arrive(self, gate: int, turn: int, *, is_passed: bool, is_urgent: bool) -> None:
        """A new run. `is_urgent`: more than the other runs of its task."""
        (self.passed if is_passed else self.waiting)[gate] += 1
        if is_urgent:
            self._note_top(gate, turn)

    def _note_top(self, gate: int, turn: int) -> None:
        self.tops[gate] = min(turn, self.tops.get(gate, turn))

    def write(self) -> Work[None]:
        yield from count_at_gates(used=self.used, waiting=self.waiting, passed=self.passed)
        yield from self.write_tops()

    def write_tops(self) -> Work[None]:
        for gate, turn in sorted(self.tops.items()):
            yield Execute(
                "update gates set top = :turn where task_id = :gate and top > :turn", {"turn": turn, "gate": gate}
            )


_LAST_RUN = Record(LastRun)


def load_last_runs(q: Dialect, task_ids: Iterable[int]) -> Work[dict[int, LastRun]]:
    """Of tasks whose policies ask for it, held until the end of the transaction."""
    select = f"select {_LAST_RUN.select()} from rounds"
    rows = yield from q.fetch_by(select, "task_id", task_ids, f" order by task_id{q.lock}")
    return {last.task_id: last for last in map(_LAST_RUN.read, rows)}


def note_started(q: Dialect, claimed: Sequence[Live]) -> Work[None]:
    """These runs start. Each is its task's last run now, unless a newer one has started already."""
    known = yield from load_last_runs(q, [live.task_id for live in claimed])
    started: dict[int, Live] = {}
    newest = {task_id: last.run_id for task_id, last in known.items()}
    for live in claimed:
        if live.run_id >= newest.get(live.task_id, 0):
            newest[live.task_id] = live.run_id
            started[live.task_id] = live
    columns = ("run_id", "status", "attempt", "end_time", "replaced")
    rows = [(task_id, live.run_id, RunStatus.RUNNING, live.attempt, None, 0) for task_id, live in started.items()]
    if fresh := [(*row, 0) for row in rows if row[0] not in known]:
        yield InsertMany("rounds", ("task_id", *columns, "failures"), fresh)
    if again := [row for row in rows if row[0] in known]:
        yield UpdateMany("rounds", "task_id", columns, again)


def note_ended(q: Dialect, now: Instant, ended: Sequence[tuple[Live, RunStatus, bool]]) -> Work[None]:
    """These runs are over. A failure adds to the row, a success ends it, a run that was replaced does neither."""
    known = yield from load_last_runs(q, [live.task_id for live, _, _ in ended])
    for live, status, replaced in ended:
        last = known.get(live.task_id)
        if last is None:
            continue
        failures = 0 if status in SUCCEEDED else last.failures + (status in FAILURES and not replaced)
        if last.run_id == live.run_id:
            last = msgspec.structs.replace(last, status=status, attempt=live.attempt, end_time=now, replaced=replaced)
        known[live.task_id] = msgspec.structs.replace(last, failures=failures)
    if known:
        rows = [(n.task_id, n.status, n.attempt, n.end_time, n.failures, int(n.replaced)) for n in known.values()]
        yield UpdateMany("rounds", "task_id", ("status", "attempt", "end_time", "failures", "replaced"), rows)


def note_given_back(handed: Sequence[Live]) -> Work[None]:
    """Record that these runs wait again: while they do, they count as no task's last run."""
    for live in handed:
        yield Execute(
            "update rounds set status = 'SCHEDULED' where task_id = :task and run_id = :run",
            {"task": live.task_id, "run": live.run_id},
        )


def note_skip_answers(answers: dict[int, int]) -> Work[None]:
    """Task → the failed round that a skip has answered."""
    if answers:
        yield UpdateMany("rounds", "task_id", ("skipped_run_id",), sorted(answers.items()))
