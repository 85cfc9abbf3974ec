"""The narrow rows: reading, moving and removing them, with the counts at the gates kept in step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from noonbell.clock import Instant
from noonbell.stores.sql.births import count_at_gates
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.place import STANDING, STARTED, Flag, Place, due_place
from noonbell.stores.sql.statement import Execute, Fetch, UpdateMany, Work


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
        """An attempt is under way, or its callback is awaited: it holds a place."""
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


def load(q: Dialect, run_ids: Iterable[int]) -> Work[dict[int, Live]]:
    """The rows of these runs, held until the end of the transaction."""
    ids = sorted(set(run_ids))
    if not ids:
        return {}
    sql = f"select {COLUMNS} from live where {q.ids('run_id', 'ids')} order by run_id{q.lock}"
    rows = yield Fetch(sql, {"ids": q.pack(ids)})
    found = {row[0]: Live(*row) for row in rows}
    missing = [run_id for run_id in ids if run_id not in found] if q.rows_move else []
    if missing:
        rows = yield Fetch(sql, {"ids": q.pack(missing)})
        found.update({row[0]: Live(*row) for row in rows})
    return found


def load_where(q: Dialect, condition: str, **params: object) -> Work[list[Live]]:
    rows = yield Fetch(f"select {COLUMNS} from live where {condition} order by run_id{q.lock}", params)
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


def move(pairs: Sequence[tuple[Live, Live]]) -> Work[None]:
    """From each first row to its second. Places at gates are given up and taken accordingly."""
    if not pairs:
        return
    rows = [(after.run_id, *(getattr(after, column) for column in MOVED)) for _, after in pairs]
    yield UpdateMany("live", "run_id", MOVED, rows)
    yield from _recount([before for before, _ in pairs], [after for _, after in pairs])


def remove(q: Dialect, rows: Sequence[Live]) -> Work[None]:
    """These runs are final: their rows go, their places are free, nothing pins them any longer."""
    if not rows:
        return
    yield Execute(f"delete from live where {q.ids('run_id', 'ids')}", {"ids": q.pack([row.run_id for row in rows])})
    pinned = [row.run_id for row in rows if row.flags & Flag.PINNED]
    if pinned:
        yield Execute(f"delete from pins where {q.ids('run_id', 'ids')}", {"ids": q.pack(pinned)})
    yield from _recount(rows, ())


def _recount(before: Sequence[Live], after: Sequence[Live]) -> Work[None]:
    used: dict[int, int] = defaultdict(int)
    waiting: dict[int, int] = defaultdict(int)
    passed: dict[int, int] = defaultdict(int)
    for rows, sign in ((before, -1), (after, 1)):
        for row in rows:
            if row.gate is None:
                continue
            if row.started:
                used[row.gate] += sign
            elif row.place == Place.GATED:
                waiting[row.gate] += sign
            elif row.place != Place.LATER:
                passed[row.gate] += sign
    yield from count_at_gates(used=used, waiting=waiting, passed=passed)
