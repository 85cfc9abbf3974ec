"""What time has run out on: attempts, for the sweep to decide about, and which of its other steps have anything to do.

Both only read. Most sweeps find nothing, and then cost no more than these two.
"""

from __future__ import annotations

from noonbell.model.attempt import Precondition
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import DueSweeps, ExpiredRun
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.stores.sql.active_runs import Place, RunFlag
from noonbell.stores.sql.statement import Fetch, Now, Work

_DUE = (
    "select exists (select 1 from expiries where at <= :now), exists (select 1 from task_pauses where due_at <= :now),"
    " exists (select 1 from joins where due_at <= :now) or exists (select 1 from unfollowed),"
    " exists (select 1 from run_keys where open = 1), exists (select 1 from sla_watches where at <= :now)"
)


def due_sweeps() -> Work[DueSweeps]:
    rows = yield Fetch(_DUE, {"now": (yield Now())})
    return DueSweeps(*map(bool, rows[0]))


def overdue(limit: int) -> Work[list[ExpiredRun]]:
    now = yield Now()
    found = []
    for place in (Place.LEASED, Place.PARKED, Place.PARENT):
        rows = yield Fetch(
            "select run_id, task_id, token, attempt, retry_count, lost_count, worker_id, flags, deadline_at, at,"
            " job_type from live"
            f" where place = {int(place)} and at <= :now order by at limit :limit",
            {"now": now, "limit": limit},
        )
        for (
            run_id,
            task_id,
            token,
            attempt,
            retry_count,
            lost_count,
            worker_id,
            flags,
            deadline_at,
            at,
            job_type,
        ) in rows:
            precondition = Precondition.UNANSWERED
            if place is not Place.PARKED:
                precondition = Precondition.OVERTIME if deadline_at <= now else Precondition.EXPIRED
            late = ExpiredRun(
                run_id=RunId(run_id),
                task_id=TaskId(task_id),
                token=token,
                precondition=precondition,
                attempt=attempt,
                retry_count=retry_count,
                lost_count=lost_count,
                worker_id=worker_id,
                begun=bool(flags & RunFlag.BEGUN),
                is_step=bool(flags & RunFlag.STEP) or job_type == CALL_TYPE,
            )
            found.append((at, late))
    found.sort(key=lambda entry: entry[0])
    return [late for _, late in found[:limit]]
