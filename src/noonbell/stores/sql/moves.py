"""Moves: rows of active runs change their place, or go. The counts at gates and keys are kept in step in the same transaction.

Locks are taken in this order: the narrow rows that change, keys, the next rows of those keys (none that another transaction
holds), gates.
"""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.stores.sql import keys
from noonbell.stores.sql.active_runs import HOLDING, MOVED, GateChanges, Live, Place, RunFlag, count_at_gates
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import UpdateMany, Work


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
        yield from keys.change(q, cache, before, after, gates)
    yield from count_at_gates(used=gates.used, waiting=gates.waiting, passed=gates.passed)
    yield from gates.write_tops()
