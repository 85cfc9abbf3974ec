"""Expiry: a run that no worker has claimed by its time ends as a skip, `expired`.

The time stands in `expiries` until the run is claimed, or over. A claim passes over what has expired and deletes the
row of what it takes; the sweep ends the rest, through the one function by which runs become final. Both hold the run's
row, so one of them has it. A run that was claimed once does not expire any more, even if its attempts fail.

    K24  died before the commit   the run still waits and no claim takes it; the next sweep, on any node, ends it
    K25  died after it            it is over, and what follows was in the same commit
"""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.engine import failpoint
from noonbell.model.request import ExpiredSkips
from noonbell.model.run import RunStatus, SkipReason
from noonbell.model.task import TaskId
from noonbell.stores.sql.active_runs import RunFlag, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import Ending, finish
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Fetch, Now, UpdateMany, Work

NOT_EXPIRED = (
    f" and ((l.flags & {RunFlag.EXPIRES}) = 0"
    " or not exists (select 1 from expiries e where e.run_id = l.run_id and e.at <= :now))"
)
"""For a claim: of runs `l`, those that may still start at `:now`."""


def expire(q: Dialect, cache: TaskView, limit: int) -> Work[ExpiredSkips]:
    now = yield Now()
    due = yield Fetch(
        "select run_id from expiries where at <= :now order by at limit :limit", {"now": now, "limit": limit}
    )
    if not due:
        return ExpiredSkips()
    ids = [row[0] for row in due]
    rows = yield from load_active(q, ids)
    waiting = [row for row in rows.values() if not row.was_claimed]
    yield from forget(q, ids)
    yield UpdateMany("runs", "id", ("skip_reason",), [(row.run_id, SkipReason.EXPIRED) for row in waiting])
    note = {"reason": SkipReason.EXPIRED}
    endings = [Ending(live=row, status=RunStatus.SKIPPED, start_time=None, note=note) for row in waiting]
    yield from finish(q, cache, now, endings)
    if waiting:
        failpoint.hit("K24")
    return ExpiredSkips(looked_at=len(ids), tasks=tuple(TaskId(row.task_id) for row in waiting))


def forget(q: Dialect, run_ids: Sequence[int]) -> Work[None]:
    """These have been claimed, or are over."""
    yield from q.delete_by("expiries", "run_id", run_ids)
