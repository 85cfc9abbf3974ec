"""Limits as a claim sees them: gates of limited tasks, queues, the state of rate limits, and the pause of everything.

A gate is the row of a limited task behind which its runs wait. It is open while a run waits and there is room. A claim
reads only open gates, so a task with a million waiting runs and no room costs a claim nothing.

While the installation is paused, nothing is planned, made ready or claimed. The switch is the row of `installation_pauses` whose `standing` is 1; at most one row has it. Claims, planning and
promotion look at it inside the statement with which they look for work, so it costs none of them a round trip. What
executes goes on, and so do callbacks; what is published waits.

    K22  died before the commit   nothing is paused, or the pause stands as before; the caller has no answer, and asks again
    K23  died after it            the pause or its end is in the store; only the signals are missing, and polls find it

A claim that looked before the pause was committed may commit after it. `engine.attempt_runner.PauseCheck` bounds that:
a worker starts nothing on the word of a claim that it sent off more than a second ago, without asking again.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.model.account import InstallationPause
from noonbell.model.calendar import QuietHours
from noonbell.model.request import ClaimRequest
from noonbell.model.task import RateLimit
from noonbell.model.worker import knows_type
from noonbell.policy import rate
from noonbell.policy.rate import RateState
from noonbell.stores.sql.active_runs import NOT_EXPIRED, Live, Place, RunFlag, count_at_gates, load_active, waits
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.keys import move
from noonbell.stores.sql.rows import TaskView, from_json, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertMany,
    NewIds,
    Now,
    Row,
    UpdateMany,
    Work,
    delete,
    insert,
    update,
)

_UNLIMITED = 1 << 30
_SHORT = 32
"""Gates with at most this many waiting are read together, by rank; a longer line is read from its head alone."""
_LOOK_PAST = 200
"""How far a claim looks past heads that it may not have: pinned to others, or held back by the rate of their key."""

_COUNTED_FOR = 3_600 * SECOND
"""Microseconds after which the row of a queue that gave nothing since may be removed."""
_A_MOMENT = 5_000
"""Microseconds until a gate that another claim holds is worth another look."""
_LOOKS = 20
"""How often it does so in one claim."""
_LONGEST_ASIDE = 300 * SECOND
"""How much later than the first of its key a call is looked at again, at most: its line may be shorter by then."""


@dataclass(slots=True)
class Gate:
    task_id: int
    limit: int | None
    used: int
    waiting: int
    top: int
    rate_limit: RateLimit | None = None
    states: dict[str, rate.RateState] = field(default_factory=dict)
    """By scope: one for the task, or one for each value of the key."""
    granted: int = _UNLIMITED
    blocked_until: int | None = None

    @property
    def places(self) -> int:
        return _UNLIMITED if self.limit is None else max(0, self.limit - self.used)

    @property
    def room(self) -> int:
        return min(self.places, self.granted)

    def scope(self, row: Live) -> str:
        return f"task:{self.task_id}" if row.rate_key is None else f"task:{self.task_id}:{row.rate_key}"


class Gates:
    def __init__(self, gates: Sequence[Gate], next_at: Instant | None) -> None:
        self._gates = {gate.task_id: gate for gate in gates}
        self.next_at = next_at
        self.aside_until: Instant | None = None

    def get(self, row: Live) -> Gate | None:
        """The gate that this row waits behind; None for one that passed."""
        return self._gates.get(row.task_id) if row.place == Place.GATED else None

    def heads(self, q: Dialect, cache: TaskView, now: Instant, request: ClaimRequest) -> Work[list[Live]]:
        """What may be taken from the open gates, in order within each."""
        if not self._gates:
            return []
        listed = yield from self._listed(q, now, list(self._gates.values()), request.max)
        allowed = yield from _allowed(q, request, listed)
        found: list[Live] = []
        for gate in self._gates.values():
            rows = allowed.get(gate.task_id, [])
            if gate.rate_limit is not None:
                rows = yield from self._rated_heads(q, cache, now, gate, rows, request)
            found += rows[: min(gate.room, request.max)]
        return found

    def _rated_heads(
        self, q: Dialect, cache: TaskView, now: Instant, gate: Gate, rows: list[Live], request: ClaimRequest
    ) -> Work[list[Live]]:
        """With a key: as long as whole heads of the line step aside, what stands behind them is looked at too."""
        kept = yield from self._within_rate(q, cache, now, gate, rows)
        for _ in range(_LOOKS):
            if kept or not rows or gate.rate_limit is None or gate.rate_limit.key is None:
                break
            listed = yield from self._listed(q, now, [gate], request.max)
            allowed = yield from _allowed(q, request, listed)
            rows = allowed.get(gate.task_id, [])
            kept = yield from self._within_rate(q, cache, now, gate, rows)
        return kept

    def write(self, now: Instant, taken: Sequence[Live]) -> Work[None]:
        """Count what was taken at the gates, the rates and the priorities of what is next in line."""
        used: dict[int, int] = defaultdict(int)
        waiting: dict[int, int] = defaultdict(int)
        passed: dict[int, int] = defaultdict(int)
        for row in taken:
            if row.gate is not None:
                used[row.gate] += 1
                (waiting if row.place == Place.GATED else passed)[row.gate] -= 1
        yield from count_at_gates(used=used, waiting=waiting, passed=passed)
        yield from self._write_rates(now, taken)
        blocked = [(gate.task_id, gate.blocked_until) for gate in self._gates.values() if gate.blocked_until]
        if blocked:
            yield UpdateMany("gates", "task_id", ("blocked_until",), blocked)
        yield from self._write_tops(taken)

    def _listed(self, q: Dialect, now: Instant, gates: Sequence[Gate], limit: int) -> Work[dict[int, list[Live]]]:
        """The heads of each line without what has expired, held, so that a cancel waits for us or we for it."""
        short = [gate.task_id for gate in gates if gate.waiting <= _SHORT]
        ids: list[int] = []
        if short:
            rows = yield Fetch(
                "select run_id from (select run_id, row_number() over (partition by gate order by turn, run_at, run_id)"
                f" as line from live l where place = {int(Place.GATED)} and {q.ids('gate', 'gates')}{NOT_EXPIRED}) heads"
                " where line <= :limit",
                {"gates": q.pack(sorted(short)), "limit": min(limit, _SHORT), "now": now},
            )
            ids += [row[0] for row in rows]
        for gate in gates:
            if gate.waiting > _SHORT:
                rows = yield Fetch(
                    f"select run_id from live l where place = {int(Place.GATED)} and gate = :gate{NOT_EXPIRED}"
                    " order by turn, run_at, run_id limit :limit",
                    {"gate": gate.task_id, "limit": min(limit, gate.room) + _LOOK_PAST, "now": now},
                )
                ids += [row[0] for row in rows]
        rows_by_id = yield from load_active(q, ids)
        listed: dict[int, list[Live]] = defaultdict(list)
        for row in sorted(rows_by_id.values(), key=lambda row: (row.turn, row.run_at, row.run_id)):
            if row.place == Place.GATED:
                listed[row.task_id].append(row)
        return listed

    def _within_rate(self, q: Dialect, cache: TaskView, now: Instant, gate: Gate, rows: list[Live]) -> Work[list[Live]]:
        """Those that the rate lets start now. Of a rate with a key, the others step aside until their key has room
        again.
        """
        limit = gate.rate_limit
        if limit is None or not rows:
            return rows
        by_scope: dict[str, list[Live]] = defaultdict(list)
        for row in rows:
            by_scope[gate.scope(row)].append(row)
        kept: list[Live] = []
        aside: list[tuple[Live, Live]] = []
        for scope, line in sorted(by_scope.items()):
            state = yield from load(q, scope)
            gate.states[scope] = state
            granted = rate.grant(limit, state, now, len(line))
            kept += line[: granted.count]
            if limit.key is not None and granted.next_at is not None:
                self.next_at = min(self.next_at or granted.next_at, granted.next_at)
                self.aside_until = min(self.aside_until or granted.next_at, granted.next_at)
                aside += [(row, _aside(row, granted.next_at)) for row in line[granted.count :]]
        yield from move(q, cache, aside)
        gate.granted = len(kept)
        return sorted(kept, key=lambda row: (row.turn, row.run_at, row.run_id))

    def _write_rates(self, now: Instant, taken: Sequence[Live]) -> Work[None]:
        for gate in self._gates.values():
            if gate.rate_limit is None:
                continue
            counts = Counter(gate.scope(row) for row in taken if row.gate == gate.task_id)
            for scope, state in sorted(gate.states.items()):
                granted = rate.grant(gate.rate_limit, state, now, counts[scope])
                if counts[scope]:
                    yield from save(scope, granted.state, gate.rate_limit)
                if gate.rate_limit.key is None and gate.waiting > counts[scope]:
                    self._shut(gate, rate.grant(gate.rate_limit, granted.state, now, gate.waiting - counts[scope]))

    def _shut(self, gate: Gate, more: rate.Grant) -> None:
        """Keep the gate shut until its rate lets the next run start."""
        if more.count == 0 and more.next_at is not None:
            gate.blocked_until = more.next_at
            self.next_at = min(self.next_at or more.next_at, more.next_at)

    def _write_tops(self, taken: Sequence[Live]) -> Work[None]:
        """A gate that promised a more urgent head than it now has is put back in its place."""
        for gate_id in sorted({row.gate for row in taken if row.gate is not None}):
            gate = self._gates.get(gate_id)
            if gate is None or gate.top >= min(row.turn for row in taken if row.gate == gate_id):
                continue
            rows = yield Fetch(
                f"select turn from live where place = {int(Place.GATED)} and gate = :gate"
                " order by turn, run_at, run_id limit 2",
                {"gate": gate_id},
            )
            if rows:
                yield update("gates", {"task_id": gate_id}, top=rows[-1][0])


def open_gates(q: Dialect, queues: Sequence[str], limit: int) -> Work[Gates]:
    """The gates of these queues at which a run waits and a place is free, the most urgent first, locked.

    A gate that another claim holds is left to that claim. One that its rate has shut is looked at again when it opens.
    """
    if not queues:
        return Gates([], None)
    now = yield Now()
    here = {"queues": q.pack(list(queues)), "now": now}
    found = yield Fetch(
        f"select task_id from gates where open = 1 and {q.names('queue', 'queues')} and blocked_until <= :now"
        " order by top, task_id limit :limit",
        {**here, "limit": max(limit, 64)},
    )
    wanted = [row[0] for row in found]
    # By primary key: a claim that only passes over a gate must leave no lock on the index that others find it by.
    columns = "task_id, lim, used, waiting, top, rated"
    more = f" and open + 0 = 1 order by task_id{q.skip_locked}"
    rows = yield from q.fetch_by(f"select {columns} from gates", "task_id", wanted, more)
    shut = yield Fetch(
        f"select min(blocked_until) from gates where open = 1 and {q.names('queue', 'queues')} and blocked_until > :now",
        here,
    )
    next_at = shut[0][0]
    if len(rows) < len(wanted):  # another claim holds a gate: it will be free in a moment
        soon = Instant(now + _A_MOMENT)
        next_at = soon if next_at is None else min(next_at, soon)
    texts = yield from q.fetch_by("select id, rate_limit from tasks", "id", [row[0] for row in rows if row[5]])
    limits = {row[0]: msgspec.convert(from_json(row[1]), RateLimit) for row in texts if row[1] is not None}
    gates = [Gate(row[0], row[1], row[2], row[3], row[4], limits.get(row[0])) for row in rows]
    gates.sort(key=lambda gate: (gate.top, gate.task_id))
    return Gates(gates, next_at)


def _aside(row: Live, at: Instant) -> Live:
    """The row of a run that steps aside until then; one that is to be retried stays so."""
    return waits(row, at=at, flags=row.flags & RunFlag.RETRIED)


def _allowed(q: Dialect, request: ClaimRequest, listed: dict[int, list[Live]]) -> Work[dict[int, list[Live]]]:
    """The listed rows without those of another job type, for a newer version, or pinned to other workers."""
    pinned = [row.run_id for rows in listed.values() for row in rows if row.flags & RunFlag.PINNED]
    more = " and worker_id = :worker"
    found = yield from q.fetch_by("select run_id from pins", "run_id", pinned, more, worker=request.worker_id)
    mine = {row[0] for row in found}
    lacking = yield from _lacking_labels(q, request, listed)

    def fits(row: Live) -> bool:
        if row.flags & RunFlag.PINNED and row.run_id not in mine:
            return False
        if row.flags & RunFlag.LABELED and row.task_id in lacking:
            return False
        if row.job_type is not None and not knows_type(request.job_types, row.job_type):
            return False
        return row.min_version <= request.version

    return {task_id: [row for row in rows if fits(row)] for task_id, rows in listed.items()}


def _lacking_labels(q: Dialect, request: ClaimRequest, listed: Mapping[int, Sequence[Live]]) -> Work[set[int]]:
    """The tasks that ask for a label which this worker does not have."""
    tasks = {row.task_id for rows in listed.values() for row in rows if row.flags & RunFlag.LABELED}
    found = yield from q.fetch_by("select task_id, pair from needed_labels", "task_id", tasks)
    return {task_id for task_id, pair in found if pair not in request.labels}


class OpenQueues:
    def __init__(
        self, names: Sequence[str], limits: dict[str, tuple[int | None, RateLimit | None]], *, all_paused: bool = False
    ) -> None:
        self.names = list(dict.fromkeys(names))
        self.all_paused = all_paused
        self.next_at: Instant | None = None
        self.aside_until: Instant | None = None
        self.quiet: dict[str, tuple[QuietHours, ...]] = {}
        """By queue: its quiet hours, of those that have any."""
        self.quiet_now: set[str] = set()
        self._limits = limits
        self._room: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        """By scope: how many more its rate lets start now."""
        self._states: dict[str, rate.RateState] = {}
        """By scope: that of a queue, and of each key among its calls that this claim has met."""
        self._queue_of: dict[str, str] = {}
        self._new: set[str] = set()
        """Scopes that have no row yet."""
        self._stepped: Counter[str] = Counter()
        """By scope: how many of its calls have stepped aside in this claim."""

    def room(self, name: str) -> int:
        """Places of the queue that are free."""
        return self._room.get(name, _UNLIMITED)

    def starts(self, scope: str) -> int:
        """How many of this scope may start now, by the rate limit of its queue."""
        return self._starts.get(scope, _UNLIMITED)

    def gives_only_keyed(self, name: str) -> bool:
        """The rate has nothing left for runs without a key of their own."""
        return self.starts(queue_scope(name)) <= 0

    def weigh(self, q: Dialect, now: Instant) -> Work[None]:
        """How much each limited queue may give now. Its row is locked, so no other claim adds to it meanwhile."""
        for name, (concurrency, limit) in self._limits.items():
            if concurrency is not None:
                rows = yield Fetch(
                    f"select count(*) from live where place in ({int(Place.LEASED)}, {int(Place.PARKED)})"
                    f" and queue = :queue and (parent_id is null or (flags & {RunFlag.STEP | RunFlag.CHILD}) <> 0)",
                    {"queue": name},
                )
                self._room[name] = max(0, concurrency - int(rows[0][0]))
            if limit is not None:
                state = yield from load(q, queue_scope(name))
                self._weigh(now, queue_scope(name), name, limit, state)

    def _weigh(self, now: Instant, scope: str, name: str, limit: RateLimit, state: RateState) -> None:
        self._states[scope], self._queue_of[scope] = state, name
        self._starts[scope] = rate.grant(limit, state, now, limit.max).count

    def within_rates(
        self, q: Dialect, cache: TaskView, now: Instant, rows: list[Live]
    ) -> Work[tuple[list[Live], bool]]:
        """The rows without calls whose key may not start now, and whether there were such calls. They step aside until it is
        their turn.

        So a key with a long line is not looked at by every claim, and does not hide what stands behind it.
        """
        by_scope: dict[str, list[Live]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row.turn, row.run_at, row.run_id)):
            if row.flags & RunFlag.RATED and self._limits.get(row.queue, (None, None))[1] is not None:
                by_scope[rate_scope(row)].append(row)
        unknown = sorted(by_scope.keys() - self._states.keys())
        states = yield from _load_many(q, unknown)
        self._new |= set(unknown) - states.keys()
        aside: list[tuple[Live, Live]] = []
        for scope, line in sorted(by_scope.items()):
            limit = self._limits[line[0].queue][1]
            if limit is None:
                continue
            if scope not in self._states:
                self._weigh(now, scope, line[0].queue, limit, states.get(scope, RateState()))
            granted = rate.grant(limit, self._states[scope], now, len(line))
            if granted.next_at is None:
                continue
            for row in line[granted.count :]:
                turn = self._stepped[scope] // limit.max
                self._stepped[scope] += 1
                later = min(round(turn * limit.per_seconds * SECOND), _LONGEST_ASIDE)
                aside.append((row, _aside(row, Instant(granted.next_at + later))))
            self.next_at = min(self.next_at or granted.next_at, granted.next_at)
            self.aside_until = min(self.aside_until or granted.next_at, granted.next_at)
        if not aside:
            return rows, False
        yield from move(q, cache, aside)
        gone = {before.run_id for before, _ in aside}
        return [row for row in rows if row.run_id not in gone], True

    def ask_again(self, now: Instant) -> None:
        """There may be more behind what has stepped aside."""
        soon = Instant(now + _A_MOMENT)
        self.next_at = min(self.next_at or soon, soon)

    def write(self, q: Dialect, now: Instant, chosen: Sequence[Live]) -> Work[None]:
        if q.locks_end_at_server:
            yield from self._mark_counted(q, now, Counter(row.queue for row in chosen))
        taken = Counter(rate_scope(row) for row in chosen)
        changed: list[tuple[Any, ...]] = []
        for scope, state in sorted(self._states.items()):
            limit = self._limits[self._queue_of[scope]][1]
            if limit is None:
                continue
            granted = rate.grant(limit, state, now, taken[scope])
            if taken[scope]:
                changed.append((scope, *_row_of(granted.state, limit)))
            if taken[scope] >= self.starts(scope):  # it may hold more: say when to ask again
                again = rate.grant(limit, granted.state, now, 1).next_at
                if again is not None:
                    self.next_at = min(self.next_at or again, again)
        fresh = [row for row in changed if row[0] in self._new]
        known = [row for row in changed if row[0] not in self._new]
        if fresh:
            yield InsertMany("rates", ("scope", *_RATE_COLUMNS), fresh)
        if known:
            yield UpdateMany("rates", "scope", _RATE_COLUMNS, known)

    def _mark_counted(self, q: Dialect, now: Instant, taken: Mapping[str, int]) -> Work[None]:
        """Change a row for each queue whose runs were counted: of two claims that counted at once, one commit is refused."""
        for name, (concurrency, _) in self._limits.items():
            if concurrency is not None and taken.get(name):
                scope = f"claims:{name}"
                yield from load(q, scope)
                yield Execute(
                    "update rates set tat = tat + 1, idle_at = :idle where scope = :scope",
                    {"scope": scope, "idle": now + _COUNTED_FOR},
                )


def open_queues(q: Dialect, names: Sequence[str]) -> Work[OpenQueues]:
    """The queues that are not paused. Those with a limit are held until the end of the transaction. While all is paused, none
    is open.
    """
    sql = f"select name, paused, concurrency, rate_limit, quiet from queues where {q.names('name', 'names')}"
    params = {"names": q.pack(list(names))}
    rows = yield Fetch(
        f"{sql} union all select null, 1, null, null, null from installation_pauses where standing = 1", params
    )
    if any(row[0] is None for row in rows):
        return OpenQueues([], {}, all_paused=True)
    if any(row[2] is not None or row[3] is not None for row in rows):
        rows = yield Fetch(f"{sql} order by name{q.lock}", params)
    paused = {row[0] for row in rows if row[1]}
    limits = {
        name: (concurrency, None if limit is None else msgspec.convert(from_json(limit), RateLimit))
        for name, _, concurrency, limit, _ in rows
        if name not in paused and (concurrency is not None or limit is not None)
    }
    found = OpenQueues([name for name in dict.fromkeys(names) if name not in paused], limits)
    for name, _, _, _, quiet in rows:
        if name not in paused and quiet not in (None, "[]"):
            found.quiet[name] = msgspec.convert(from_json(quiet), tuple[QuietHours, ...])
    return found


def queue_scope(name: str) -> str:
    return f"queue:{name}"


def rate_scope(row: Live) -> str:
    """The name under which the rate limit of its queue counts a run. A queue has one task of calls, so the task
    stands for it.
    """
    return f"call:{row.task_id}:{row.rate_key}" if row.flags & RunFlag.RATED else queue_scope(row.queue)


def look_anew(now: Instant, queue: str) -> Work[None]:
    """The rate limit of the queue has changed: calls that have stepped aside are looked at now."""
    yield Execute(
        f"update live set at = :now where place = {int(Place.LATER)} and queue = :queue and run_at <= :now and at > :now"
        f" and (flags & {RunFlag.RATED}) <> 0 and (flags & {RunFlag.RETRIED | RunFlag.AT_REST}) = 0",
        {"now": now, "queue": queue},
    )


_RATE_COLUMNS = ("tat", "log", "idle_at")


def load(q: Dialect, scope: str) -> Work[RateState]:
    """Held until the end of the transaction. A new limit gets its row here, so that there is something to hold."""
    states = yield from _load_many(q, [scope])
    if scope not in states:
        now = yield Now()
        yield insert("rates", scope=scope, tat=0, log="[]", idle_at=now)
    return states.get(scope, RateState())


def _load_many(q: Dialect, scopes: Sequence[str]) -> Work[dict[str, RateState]]:
    """Those that have a row, held until the end of the transaction."""
    if not scopes:
        return {}
    rows = yield Fetch(
        f"select scope, tat, log from rates where {q.names('scope', 'scopes')} order by scope{q.lock}",
        {"scopes": q.pack(list(scopes))},
    )
    return {scope: RateState(tat, tuple((at, count) for at, count in from_json(log))) for scope, tat, log in rows}


def _row_of(state: RateState, limit: RateLimit) -> tuple[int, str, int]:
    """`idle_at`: from then on the row says no more than a new one would."""
    last = max(state.tat, state.log[-1][0] if state.log else 0)
    return state.tat, to_json(state.log), last + math.ceil(limit.per_seconds * SECOND) + 1


def save(scope: str, state: RateState, limit: RateLimit) -> Work[None]:
    yield update("rates", {"scope": scope}, **dict(zip(_RATE_COLUMNS, _row_of(state, limit), strict=True)))


def forget_idle(q: Dialect, now: Instant, most: int) -> Work[int]:
    """Remove the rows of rate limits under which nothing has started for so long that they hold nothing back any more.

    A row that a claim holds, or makes anew, is passed over: this does not wait for the claim.
    """
    rows = yield Fetch(
        f"select scope from rates where idle_at < :now order by idle_at limit :most{q.skip_locked}",
        {"now": now, "most": most},
    )
    for (scope,) in rows:
        yield delete("rates", scope=scope)
    return len(rows)


PAUSED = "exists (select 1 from installation_pauses where standing = 1)"
"""For a statement: whether everything is paused."""

_COLUMNS = "since, until, paused_by, resumed_by, reason"


def installation_pause() -> Work[InstallationPause | None]:
    rows = yield Fetch(f"select {_COLUMNS} from installation_pauses where standing = 1")
    return _pause(rows[0]) if rows else None


def installation_pauses(since: Instant, until: Instant) -> Work[list[InstallationPause]]:
    rows = yield Fetch(
        f"select {_COLUMNS} from installation_pauses where since <= :until and (until is null or until >= :since)"
        " order by since limit 1000",
        {"since": since, "until": until},
    )
    return [_pause(row) for row in rows]


def pause_installation(reason: str, *, by: str | None = None) -> Work[tuple[InstallationPause, bool]]:
    standing = yield from installation_pause()
    if standing is not None:
        return standing, False
    now = yield Now()
    ids = yield NewIds(1)
    yield insert(
        "installation_pauses",
        id=ids[0],
        standing=1,
        since=now,
        until=None,
        paused_by=by,
        resumed_by=None,
        reason=reason,
    )
    yield from tell("installation.paused", [(None, None, {"by": by, "reason": reason, "since": now})])
    failpoint.hit("K22")
    return InstallationPause(since=now, by=by, reason=reason), True


def resume_installation(*, by: str | None = None) -> Work[InstallationPause | None]:
    standing = yield from installation_pause()
    if standing is None:
        return None
    now = yield Now()
    changed = yield Execute(
        "update installation_pauses set standing = null, until = :now, resumed_by = :by where standing = 1",
        {"now": now, "by": by},
    )
    if changed != 1:
        return None  # another call has ended it meanwhile
    facts: dict[str, Any] = {"by": by, "reason": standing.reason, "since": standing.since, "until": now}
    yield from tell("installation.resumed", [(None, None, facts)])
    failpoint.hit("K22")
    return InstallationPause(since=standing.since, until=now, by=standing.by, resumed_by=by, reason=standing.reason)


def _pause(row: Row | Sequence[Any]) -> InstallationPause:
    since, until, by, resumed_by, reason = row
    return InstallationPause(since=since, until=until, by=by, resumed_by=resumed_by, reason=reason)
