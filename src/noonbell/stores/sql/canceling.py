"""Cancel, from any status that is not final; and making a delayed run due now."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.model.request import Canceled, Promoted
from noonbell.model.run import RunId, RunStatus
from noonbell.stores.sql.births import count_at_gates
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.endings import canceled, finish, finish_family
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.live import load, load_where, move
from noonbell.stores.sql.place import Flag, Place, due_place
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Fetch, Now, UpdateMany, Work
from noonbell.stores.sql.told import finish_told


def cancel(q: Dialect, cache: TaskView, run_ids: Sequence[RunId], by: str | None, reason: str) -> Work[list[Canceled]]:
    rows = yield from load(q, run_ids)
    now = yield Now()
    message = reason or (f"canceled by {by}" if by else "canceled")
    details = {"kind": "canceled"} | ({"by": by} if by else {})
    note = {"by": by, "reason": reason}
    listed = yield from canceled(q, rows.values(), message, details, note=note)
    endings = {ending.live.run_id: ending for ending in listed}
    for row in rows.values():
        if row.place == Place.PARENT:
            parts = yield from load_where(q, "parent_id = :parent", parent=row.run_id)
            family = yield from canceled(q, parts, message, details, note=note)
            yield from finish_family(q, cache, now, family, endings.pop(row.run_id))
            for part in parts:
                endings.pop(part.run_id, None)
    yield from finish(q, cache, now, list(endings.values()))
    found = yield Fetch(
        f"select id, status, task_id from runs where {q.ids('id', 'ids')}", {"ids": q.pack(sorted(set(run_ids)))}
    )
    standing = {row[0]: (RunStatus(row[1]), row[2]) for row in found}
    late = [(task_id, run_id, {"move": "cancel"}) for run_id, (_, task_id) in standing.items() if run_id not in rows]
    yield from tell(now, "run.ignored", late)
    return [
        Canceled(run_id, standing[run_id][0], run_id in rows) for run_id in dict.fromkeys(run_ids) if run_id in standing
    ]


def promote(q: Dialect, cache: TaskView, limit: int) -> Work[Promoted]:
    now = yield Now()
    rows = yield Fetch(
        f"select run_id, flags, gate, min_version from live where place = {int(Place.LATER)} and at <= :now"
        f" order by at limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    moved = []
    waiting: dict[int, int] = {}
    passed: dict[int, int] = {}
    for run_id, flags, gate, min_version in rows:
        place = due_place(flags, gate, min_version)
        moved.append((run_id, int(place), None))
        if gate is not None:
            count = waiting if place is Place.GATED else passed
            count[gate] = count.get(gate, 0) + 1
    if moved:
        yield UpdateMany("live", "run_id", ("place", "at"), moved)
        yield from count_at_gates(waiting=waiting, passed=passed)
        yield from finish_told(q, cache, now, [row[0] for row in rows if row[1] & Flag.TOLD])
    following = yield Fetch(f"select min(at) from live where place = {int(Place.LATER)} and at > :now", {"now": now})
    return Promoted(count=len(moved), next_at=following[0][0])


def promote_run(q: Dialect, cache: TaskView, run_id: RunId) -> Work[bool]:
    rows = yield from load(q, [run_id])
    live = rows.get(run_id)
    if live is None or live.place != Place.LATER:
        return False
    now = yield Now()
    yield from move([(live, live._replace(place=int(live.due_place), at=None))])
    yield UpdateMany("runs", "id", ("run_at", "updated_at"), [(run_id, now, now)])
    yield UpdateMany("live", "run_id", ("run_at",), [(run_id, now)])
    yield from tell(now, "run.promoted", [(live.task_id, run_id, {})])
    yield from finish_told(q, cache, now, [run_id] if live.flags & Flag.TOLD else [])
    return True
