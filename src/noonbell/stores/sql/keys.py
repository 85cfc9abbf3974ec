"""Limits per key: how many runs of a task with the same key may be under way at once, over all nodes.

    IDLE ──due──▶ HELD ──let in──▶ LET_IN ──final──▶ (the row is deleted)
      ▲              ▲                │
      │              └─lost, released, or overtaken before its start
      └──retried later, waits for its children

A run of a key that is full is HELD, in a place where no claim looks: however many wait behind one key, a claim reads none
of them. A run that is let in has one of the places of its key, from before its claim until it is final, is retried, or waits
for its children. What gives a place up lets the next run in, in the same transaction: the most urgent, then the oldest. So
at most `max_per_key` runs of each key stand before the workers, and a key with a long line takes no more from the others
than its places. A more urgent run that comes to a full key takes the place of one that was let in and has not started.

Who changes a line holds the row of its key in `run_keys`. The runs at its head are then held where no other transaction
holds them: one that cancels such a run waits for the key. If one was passed over so and its place stays free, the sweep
finds the key open, and lets it in.

died before the commit (K26)   the run that ended is not final, and the next is not let in; it is settled again, or lost
died after it                  the next run stands before the workers; only the signal is missing, and a poll finds it

`move` and `remove` change the place of rows of active runs, or end them: the counts at gates and keys are kept in step in the
same transaction. Locks are taken in this order: the narrow rows that change, keys, the next rows of those keys (none that
another transaction holds), gates.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noonbell.engine import failpoint
from noonbell.model.account import KeyLine
from noonbell.model.task import TaskId, TaskSpec
from noonbell.policy import value_path
from noonbell.stores.sql.active_runs import (
    COLUMNS,
    DUE,
    HOLDING,
    MOVED,
    GateChanges,
    Live,
    Place,
    RunFlag,
    claimable_place,
    count_at_gates,
)
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, UpdateMany, Work

GONE, IDLE, HELD, LET_IN = -1, 0, 1, 2
"""States of `keyed_runs`; the first is that of a run without a row."""
OVERRIDE: Final = "concurrency_key"
"""Under which the overrides of a run have a key that its publisher has named."""
_LONGEST: Final = 200
"""Characters of a key that are stored as they are."""
_SHORT: Final = 32
"""Lines of at most this many runs are read together; the head of a longer one is read alone."""
_AT_ONCE: Final = 1_000
"""Runs that one transaction lets in at one key. The sweep goes on with the rest."""
_KEYS_AT_ONCE: Final = 100
"""Keys that one statement makes."""
_TRIES: Final = 10
_COLUMNS = "id, task_id, limit_key, lim, used, waiting, active"


def key_of(spec: TaskSpec, payload: Any, overrides: dict[str, Any] | None) -> str | None:
    """The key that limits a run; None if none does. Runs whose payload has nothing there share one, the empty key."""
    named = (overrides or {}).get(OVERRIDE)
    if named is not None:
        return stored_key(str(named))
    if spec.concurrency_key is None:
        return None
    found = value_path.read(spec.concurrency_key, dashes=True)
    value = None if found is None else value_path.find(found[0], {"payload": payload})
    if value is None:
        return ""
    return stored_key(value if isinstance(value, str) else to_json(value))


def stored_key(text: str) -> str:
    """As it is where it is short enough and a database takes it; else its beginning and a hash of it all."""
    if len(text) <= _LONGEST and "\0" not in text:
        return text
    return f"{text[:128].replace(chr(0), '␀')}…{hashlib.sha256(text.encode()).hexdigest()}"


class Entry(NamedTuple):
    """A run that joins the line of a key."""

    run_id: int
    task_id: int
    key: str
    limit: int
    turn: int
    run_at: int
    is_due: bool


class _Order(NamedTuple):
    turn: int
    run_at: int
    run_id: int


@dataclass(slots=True)
class _Key:
    """A row of `run_keys`, held. Changed here first, and written once."""

    id: int
    task_id: int
    limit_key: str
    lim: int
    used: int
    waiting: int
    active: int
    came: list[_Order] = field(default_factory=list)
    """What has come to the line in this transaction."""

    @property
    def room(self) -> int:
        return min(self.lim - self.used, self.waiting)


def enter(q: Dialect, cache: TaskView, entries: Sequence[Entry], gates: GateChanges) -> Work[None]:
    """Runs that have just been written, those that are due as HELD: each joins the line of its key, and the first are let in."""
    if not entries:
        return
    held = yield from _held_keys(q, entries)
    rows = []
    for entry in entries:
        key = held[entry.task_id, entry.key]
        key.active += 1
        if entry.is_due:
            key.waiting += 1
            key.came.append(_Order(entry.turn, entry.run_at, entry.run_id))
        rows.append((entry.run_id, key.id, HELD if entry.is_due else IDLE, entry.turn, entry.run_at))
    yield InsertMany("keyed_runs", ("run_id", "key_id", "state", "turn", "run_at"), rows)
    yield from _go_on(q, cache, list(held.values()), gates)


def change(
    q: Dialect, cache: TaskView, before: Iterable[Live], after: Iterable[Live], gates: GateChanges
) -> Work[None]:
    """Rows have been changed from the ones to the others; those without another are gone. Their lines move on."""
    now = {row.run_id: row for row in after}
    keyed = [row for row in before if row.flags & RunFlag.KEYED]
    moved = [row.run_id for row in keyed if row.run_id not in now or _state(row) != _state(now[row.run_id])]
    yield from _change(q, cache, moved, now, gates)


def end(q: Dialect, cache: TaskView, run_ids: Sequence[int]) -> Work[None]:
    """These runs are final, and their rows in `live` are gone. Their lines move on."""
    gates = GateChanges()
    yield from _change(q, cache, run_ids, {}, gates)
    yield from gates.write()


def _change(
    q: Dialect, cache: TaskView, moved: Sequence[int], now: Mapping[int, Live], gates: GateChanges
) -> Work[None]:
    """`now`: the rows of those that are not gone."""
    rows = yield from q.fetch_by("select run_id, key_id, state, turn, run_at from keyed_runs", "run_id", moved)
    if not rows:
        return
    held = yield from _hold(q, {row[1] for row in rows})
    gone: list[int] = []
    changed: list[tuple[int, int]] = []
    for run_id, key_id, state, turn, run_at in rows:
        key, row = held[key_id], now.get(run_id)
        wanted = GONE if row is None else _state(row)
        key.used += (wanted == LET_IN) - (state == LET_IN)
        key.waiting += (wanted == HELD) - (state == HELD)
        if wanted == HELD:
            key.came.append(_Order(turn, run_at, run_id))
        if row is None:
            key.active -= 1
            gone.append(run_id)
        else:
            changed.append((run_id, wanted))
    yield from q.delete_by("keyed_runs", "run_id", gone)
    if changed:
        yield UpdateMany("keyed_runs", "run_id", ("state",), changed)
    yield from _go_on(q, cache, list(held.values()), gates)
    failpoint.hit("K26")


def come_due(q: Dialect, cache: TaskView, run_ids: Sequence[int], gates: GateChanges) -> Work[None]:
    """The time of these runs has come, and their rows are HELD."""
    rows = yield from q.fetch_by("select run_id, key_id, turn, run_at from keyed_runs", "run_id", run_ids)
    if not rows:
        return
    held = yield from _hold(q, {row[1] for row in rows})
    for run_id, key_id, turn, run_at in rows:
        held[key_id].waiting += 1
        held[key_id].came.append(_Order(turn, run_at, run_id))
    yield UpdateMany("keyed_runs", "run_id", ("state",), [(row[0], HELD) for row in rows])
    yield from _go_on(q, cache, list(held.values()), gates)


def leave(q: Dialect, cache: TaskView, row: Live) -> Work[str | None]:
    """A run that waits leaves the line of its key, which it had until now. The caller writes its row."""
    if not row.flags & RunFlag.KEYED:
        return None
    found = yield from q.fetch_by(
        "select r.run_id, k.limit_key from keyed_runs r join run_keys k on k.id = r.key_id", "r.run_id", [row.run_id]
    )
    gates = GateChanges()
    yield from change(q, cache, [row], (), gates)
    yield from gates.write()
    return found[0][1] if found else None


def change_limit(q: Dialect, cache: TaskView, task_id: int, limit: int) -> Work[None]:
    """Of a task whose `max_per_key` is another now. What was let in and is too much is held again, unless it has started."""
    yield Execute("update run_keys set lim = :lim where task_id = :task", {"lim": limit, "task": task_id})
    rows = yield Fetch(
        f"select {_COLUMNS} from run_keys where task_id = :task and used > lim order by id{q.lock}", {"task": task_id}
    )
    gates = GateChanges()
    full = {row[0]: _Key(*row) for row in rows}
    listed = yield from q.fetch_by("select key_id, run_id from keyed_runs", "key_id", full, f" and state = {LET_IN}")
    unstarted = yield from _unstarted(q, {run_id: key_id for key_id, run_id in listed})
    for key_id, found in unstarted.items():
        yield from _hold_again(full[key_id], found[: full[key_id].used - full[key_id].lim], gates)
    yield from _write(q, list(full.values()))
    rows = yield Fetch(
        f"select id from run_keys where task_id = :task and open = 1 order by id limit {_AT_ONCE}", {"task": task_id}
    )
    held = yield from _hold(q, [row[0] for row in rows])
    yield from _go_on(q, cache, list(held.values()), gates)
    yield from gates.write()


def sweep(q: Dialect, cache: TaskView, limit: int) -> Work[int]:
    """Keys that have room and runs that wait: how many were looked at. Most are let in where a place becomes free."""
    rows = yield Fetch("select id from run_keys where open = 1 order by id limit :limit", {"limit": limit})
    if not rows:
        return 0
    held = yield from _hold(q, [row[0] for row in rows])
    gates = GateChanges()
    yield from _go_on(q, cache, list(held.values()), gates)
    yield from gates.write()
    return len(rows)


def lines(q: Dialect, task_id: TaskId, limit: int = 20) -> Work[list[KeyLine]]:
    """The keys of a task behind which runs wait, the longest line first."""
    rows = yield Fetch(
        "select k.id, k.limit_key, k.lim, k.used, k.waiting,"
        f" (select r.run_id from keyed_runs r where r.key_id = k.id and r.state = {HELD}"
        " order by r.turn, r.run_at, r.run_id limit 1),"
        f" (select min(r.run_id) from keyed_runs r where r.key_id = k.id and r.state = {LET_IN}),"
        f" (select max(r.turn) from keyed_runs r where r.key_id = k.id and r.state = {HELD})"
        " from run_keys k where k.task_id = :task and k.waiting > 0 order by k.waiting desc, k.id limit :limit",
        {"task": task_id, "limit": limit},
    )
    heads = yield from q.fetch_by(
        "select run_id, turn, run_at from keyed_runs", "run_id", [row[5] for row in rows if row[5] is not None]
    )
    head_of = {row[0]: row for row in heads}
    since = {row[0]: head_of[row[5]][2] for row in rows if row[5] in head_of}
    # The first in line has waited longest, unless it is more urgent than others: only then is the whole line read.
    mixed = [row[0] for row in rows if row[5] in head_of and head_of[row[5]][1] != row[7]]
    oldest = yield from q.fetch_by(
        "select key_id, min(run_at) from keyed_runs", "key_id", mixed, f" and state = {HELD} group by key_id"
    )
    since.update({row[0]: row[1] for row in oldest})
    return [
        KeyLine(
            key=key,
            max_per_key=limit_,
            running=used,
            waiting=waiting,
            next_run_id=head,
            oldest_at=since.get(key_id),
            blocking_run_id=blocking,
        )
        for key_id, key, limit_, used, waiting, head, blocking, _ in rows
    ]


def held() -> Work[tuple[int, int]]:
    """Keys of all tasks that hold runs back, and the runs that they hold back."""
    rows = yield Fetch("select count(*), coalesce(sum(waiting), 0) from run_keys where waiting > 0")
    return int(rows[0][0]), int(rows[0][1])


class KeyWait(NamedTuple):
    """Why a run is held."""

    key: str
    limit: int
    used: int
    before: int
    """Runs of its key that come before it."""
    blocking_run_id: int | None


def wait_of(run_id: int) -> Work[KeyWait | None]:
    """None for a run that its key does not hold."""
    rows = yield Fetch(
        "select k.id, k.limit_key, k.lim, k.used, r.turn, r.run_at from keyed_runs r join run_keys k on k.id = r.key_id"
        f" where r.run_id = :run and r.state = {HELD}",
        {"run": run_id},
    )
    if not rows:
        return None
    key_id, key, limit, used, turn, run_at = rows[0]
    counted = yield Fetch(
        f"select count(*) from keyed_runs where key_id = :key and state = {HELD} and (turn < :turn or (turn = :turn and"
        " (run_at < :run_at or (run_at = :run_at and run_id < :run))))",
        {"key": key_id, "turn": turn, "run_at": run_at, "run": run_id},
    )
    oldest = yield Fetch(
        f"select min(run_id) from keyed_runs where key_id = :key and state = {LET_IN}", {"key": key_id}
    )
    return KeyWait(key, limit, used, counted[0][0], oldest[0][0])


_CLAIMABLE: Final = ", ".join(str(int(place)) for place in DUE)
_MISCOUNTED: Final = (
    "select k.task_id, k.limit_key, k.id from run_keys k left join keyed_runs r on r.key_id = k.id"
    " group by k.id, k.task_id, k.limit_key, k.used, k.waiting, k.active having k.active <> count(r.run_id)"
    f" or k.used <> coalesce(sum(case when r.state = {LET_IN} then 1 else 0 end), 0)"
    f" or k.waiting <> coalesce(sum(case when r.state = {HELD} then 1 else 0 end), 0)"
)
FLAWS: Final = {
    "key {key} has {number} runs let in, more than its limit allows": (
        f"select k.task_id, k.limit_key, count(*) from run_keys k join keyed_runs r on r.key_id = k.id and r.state = {LET_IN}"
        " join live l on l.run_id = r.run_id group by k.id, k.task_id, k.limit_key, k.lim having count(*) > k.lim"
        f" and sum(case when l.place in ({_CLAIMABLE}) then 1 else 0 end) > 0"
    ),
    "key {key} ({number}) counts other runs than there are": _MISCOUNTED,
    "key {key} has room, and holds run {number} back": (
        "select k.task_id, k.limit_key, min(r.run_id) from run_keys k join keyed_runs r on r.key_id = k.id"
        f" where k.open = 1 and r.state = {HELD} and r.run_at < :before group by k.id, k.task_id, k.limit_key"
    ),
    "run {number} with key {key} is not where the line of its key has it": (
        "select k.task_id, k.limit_key, r.run_id from keyed_runs r left join run_keys k on k.id = r.key_id"
        " left join live l on l.run_id = r.run_id where k.id is null or l.run_id is null or r.state <> case"
        f" when l.place = {int(Place.HELD)} then {HELD}"
        f" when l.place in ({int(Place.LATER)}, {int(Place.GATHERING)}) then {IDLE} else {LET_IN} end"
    ),
    "run {number} waits for its key{key:.0}, and is in no line": (
        "select l.task_id, '', l.run_id from live l left join keyed_runs r on r.run_id = l.run_id"
        f" where l.place = {int(Place.HELD)} and r.run_id is null"
    ),
}
"""What must never be, by the sentence that reports it. Each answers with a task, a key, and a run or a count."""


def recount(q: Dialect) -> Work[int]:
    """Set the counters right that are not what the rows say; how many there were."""
    rows = yield Fetch(_MISCOUNTED)
    held = yield from _hold(q, [row[2] for row in rows])
    counted = yield from q.fetch_by(
        "select key_id, state, count(*) from keyed_runs", "key_id", held, " group by key_id, state"
    )
    real: dict[int, dict[int, int]] = defaultdict(dict)
    for key_id, state, count in counted:
        real[key_id][state] = count
    wrong = []
    for key in held.values():
        states = real[key.id]
        counts = (states.get(LET_IN, 0), states.get(HELD, 0), sum(states.values()))
        if (key.used, key.waiting, key.active) != counts:
            key.used, key.waiting, key.active = counts
            wrong.append(key)
    yield from _write(q, wrong)
    return len(wrong)


def _state(row: Live) -> int:
    if row.place == Place.HELD:
        return HELD
    return IDLE if row.place in (Place.LATER, Place.GATHERING) else LET_IN


# Rows of `run_keys`


def _hold(q: Dialect, ids: Collection[int]) -> Work[dict[int, _Key]]:
    """Lock the rows of these keys until the end of the transaction, in the order of their ids."""
    rows = yield from q.fetch_by(f"select {_COLUMNS} from run_keys", "id", ids, f" order by id{q.lock}")
    return {row[0]: _Key(*row) for row in rows}


def _held_keys(q: Dialect, entries: Sequence[Entry]) -> Work[dict[tuple[int, str], _Key]]:
    """The rows of these keys, made where there are none. One may go while we wait for it; then it is made again."""
    limits = {(entry.task_id, entry.key): entry.limit for entry in entries}
    found: dict[tuple[int, str], _Key] = {}
    for attempt in range(_TRIES):
        missing = sorted(limits.keys() - found.keys())
        if attempt:
            yield from _make(q, [(*name, limits[name]) for name in missing])
        by_task: dict[int, list[str]] = defaultdict(list)
        for task_id, key in missing:
            by_task[task_id].append(key)
        for task_id, listed in by_task.items():
            rows = yield Fetch(
                f"select {_COLUMNS} from run_keys where task_id = :task and {q.names('limit_key', 'keys')}"
                f" order by id{q.lock}",
                {"task": task_id, "keys": q.pack(listed)},
            )
            found.update({(row[1], row[2]): _Key(*row) for row in rows})
        if len(found) == len(limits):
            return found
    raise RuntimeError(f"{len(limits) - len(found)} keys were removed {_TRIES} times while they were looked for")


def _make(q: Dialect, wanted: Sequence[tuple[int, str, int]]) -> Work[None]:
    """Keys that are not there yet. One that another transaction makes at the same moment is left to it."""
    first, last = ("insert ignore", "") if q.name == "mysql" else ("insert", " on conflict do nothing")
    for start in range(0, len(wanted), _KEYS_AT_ONCE):
        part = wanted[start : start + _KEYS_AT_ONCE]
        ids = yield NewIds(len(part))
        params: dict[str, Any] = {}
        values = []
        for number, (id_, (task_id, key, limit)) in enumerate(zip(ids, part, strict=True)):
            params |= {f"id{number}": id_, f"task{number}": task_id, f"key{number}": key, f"lim{number}": limit}
            values.append(f"(:id{number}, :task{number}, :key{number}, :lim{number}, 0, 0, 0)")
        yield Execute(f"{first} into run_keys ({_COLUMNS}) values {', '.join(values)}{last}", params)


def _write(q: Dialect, held: Sequence[_Key]) -> Work[None]:
    """The rows as they are now. A key without a run goes."""
    kept = [(key.id, key.used, key.waiting, key.active) for key in held if key.active > 0]
    if kept:
        yield UpdateMany("run_keys", "id", ("used", "waiting", "active"), kept)
    yield from q.delete_by("run_keys", "id", [key.id for key in held if key.active <= 0])


# Lines


def _go_on(q: Dialect, cache: TaskView, held: Sequence[_Key], gates: GateChanges) -> Work[None]:
    """Let in what there is room for; where there is none, what came may overtake what has not started."""
    yield from _overtake(q, [key for key in held if key.came and key.waiting > key.room], gates)
    cache.new_steps |= yield from _let_in(q, [key for key in held if key.room > 0], gates)
    yield from _write(q, held)


def _let_in(q: Dialect, held: Sequence[_Key], gates: GateChanges) -> Work[dict[int, str]]:
    """Let in the heads of these lines, as many as there is room for; return the queue where each of them stands."""
    if not held:
        return {}
    heads = yield from _heads(q, held)
    sql = f" and place + 0 = {int(Place.HELD)} order by run_id{q.skip_locked}"
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", heads, sql)
    by_id = {key.id: key for key in held}
    moved: list[Live] = []
    for row in sorted((Live(*row) for row in rows), key=_order):
        key = by_id[heads[row.run_id]]
        if key.room > 0:
            key.used, key.waiting = key.used + 1, key.waiting - 1
            moved.append(row._replace(place=int(claimable_place(row.flags, row.gate, row.min_version))))
    yield from _place(moved, LET_IN)
    for row in moved:
        gates.count(row, 1)
    return {row.run_id: row.queue for row in moved}


def _heads(q: Dialect, held: Sequence[_Key]) -> Work[dict[int, int]]:
    """Run → key, of the first in each line; one more than there is room for, as another transaction may hold one."""
    found: dict[int, int] = {}
    short = {key.id: key.room for key in held if key.waiting <= _SHORT}
    if short:
        rows = yield Fetch(
            "select run_id, key_id, line from (select run_id, key_id, row_number() over"
            " (partition by key_id order by turn, run_at, run_id) as line from keyed_runs"
            f" where {q.ids('key_id', 'keys')} and state = {HELD}) heads where line <= :most",
            {"keys": q.pack(sorted(short)), "most": max(short.values()) + 1},
        )
        found |= {run_id: key_id for run_id, key_id, line in rows if line <= short[key_id] + 1}
    for key in held:
        if key.id not in short:
            rows = yield Fetch(
                f"select run_id from keyed_runs where key_id = :key and state = {HELD}"
                " order by turn, run_at, run_id limit :limit",
                {"key": key.id, "limit": min(key.room, _AT_ONCE) + 1},
            )
            found |= {row[0]: key.id for row in rows}
    return found


def _overtake(q: Dialect, full: Sequence[_Key], gates: GateChanges) -> Work[None]:
    """What was let in, has not started and comes after what has just come gives its place back."""
    if not full:
        return
    turn, run_at = min((order.turn, order.run_at) for key in full for order in key.came)
    rows = yield Fetch(
        f"select key_id, run_id from keyed_runs where {q.ids('key_id', 'keys')} and state = {LET_IN}"
        " and (turn > :turn or (turn = :turn and run_at > :run_at))",
        {"keys": q.pack(sorted(key.id for key in full)), "turn": turn, "run_at": run_at},
    )
    unstarted = yield from _unstarted(q, {run_id: key_id for key_id, run_id in rows})
    for key in full:
        came = sorted(key.came)[max(key.room, 0) :]
        later = [row for new, row in zip(came, unstarted[key.id], strict=False) if new < _order(row)]
        yield from _hold_again(key, later, gates)


def _unstarted(q: Dialect, let_in: dict[int, int]) -> Work[dict[int, list[Live]]]:
    """By key, those of these runs that no worker has taken and no other transaction holds; the last in order first."""
    places = ", ".join(str(int(place)) for place in DUE)
    held = f" and place in ({places}) order by run_id{q.skip_locked}"
    rows = yield from q.fetch_by(f"select {COLUMNS} from live", "run_id", let_in, held)
    found: dict[int, list[Live]] = defaultdict(list)
    for row in sorted((Live(*row) for row in rows), key=_order, reverse=True):
        found[let_in[row.run_id]].append(row)
    return found


def _hold_again(key: _Key, rows: Sequence[Live], gates: GateChanges) -> Work[None]:
    for row in rows:
        gates.count(row, -1)
    yield from _place([row._replace(place=int(Place.HELD)) for row in rows], HELD)
    key.used, key.waiting = key.used - len(rows), key.waiting + len(rows)


def _place(rows: Sequence[Live], state: int) -> Work[None]:
    if rows:
        yield UpdateMany("live", "run_id", ("place",), [(row.run_id, row.place) for row in rows])
        yield UpdateMany("keyed_runs", "run_id", ("state",), [(row.run_id, state) for row in rows])


def _order(row: Live) -> _Order:
    return _Order(row.turn, row.run_at, row.run_id)


def move(q: Dialect, cache: TaskView, pairs: Sequence[tuple[Live, Live]]) -> Work[None]:
    """Change each first row to its second. Places at gates and keys are given up and taken accordingly."""
    if not pairs:
        return
    rows = [(after.run_id, *(getattr(after, column) for column in MOVED)) for _, after in pairs]
    yield UpdateMany("live", "run_id", MOVED, rows)
    yield from _recount(q, cache, [before for before, _ in pairs], [after for _, after in pairs])


def remove(q: Dialect, cache: TaskView, rows: Sequence[Live]) -> Work[None]:
    """These runs are final: their rows go, their places are free, nothing pins them any longer."""
    if not rows:
        return
    yield q.delete_active(q.pack([row.run_id for row in rows]))
    yield from q.delete_by("pins", "run_id", [row.run_id for row in rows if row.flags & RunFlag.PINNED])
    yield from q.delete_by("expiries", "run_id", [row.run_id for row in rows if row.flags & RunFlag.EXPIRES])
    yield from _recount(q, cache, rows, ())


def _recount(q: Dialect, cache: TaskView, before: Sequence[Live], after: Sequence[Live]) -> Work[None]:
    gates = GateChanges()
    for rows, sign in ((before, -1), (after, 1)):
        for row in rows:
            if row.gate is None:
                continue
            if row.place in HOLDING:
                gates.used[row.gate] += sign
            elif row.place == Place.GATED:
                gates.waiting[row.gate] += sign
            elif row.place not in (Place.LATER, Place.GATHERING, Place.HELD):
                gates.passed[row.gate] += sign
    if any(row.flags & RunFlag.KEYED for row in before):
        yield from change(q, cache, before, after, gates)
    yield from count_at_gates(used=gates.used, waiting=gates.waiting, passed=gates.passed)
    yield from gates.write_tops()
