"""Children of jobs: a run that waits for them is parked, and the transaction in which the last of them ends wakes it.

`children` has a row for each position at which a run has spawned (`publishing.spawn`), `gathers` one for each run that has spawned at
all: how long its parked attempts executed. The row of the parent in `live` is held before its children are looked at: of two
nodes that settle the last two children, one waits for the other and then finds no child left.

    K19  died before the park commits     the lease runs out; the next attempt finds the children and parks, or goes on
    K19  died after it                    nothing is lost: no worker is needed until the last child ends
    K20  died before the wake commits     the last child is not final either: it is settled again, or its lease runs out
    K21  died after it                    the parent waits for a worker; only the signal is missing, and a poll finds it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from noonbell.clock import Instant
from noonbell.engine import failpoint
from noonbell.model.run import ChildState, RunId, RunStatus
from noonbell.stores.sql.active_runs import (
    STANDING,
    Live,
    Place,
    RunFlag,
    load_active,
    note_given_back,
    waits,
)
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.keys import move
from noonbell.stores.sql.rows import TaskView, from_json
from noonbell.stores.sql.statement import Fetch, UpdateMany, Work

OPEN_CHILDREN: Final = f"parent_id = :parent and (flags & {RunFlag.CHILD}) <> 0 and place <> {int(Place.READY)}"  # its flag keeps it out of READY


def with_open(q: Dialect, parents: Collection[int]) -> Work[set[int]]:
    """Those of these runs that have children which are not final. Their own rows are held."""
    del q
    found: set[int] = set()
    for parent in sorted(parents):
        if (yield Fetch(f"select 1 from live where {OPEN_CHILDREN} limit 1", {"parent": parent})):
            found.add(parent)
    return found


def parked(live: Live) -> Live:
    """The row of a run that waits for its children. When its attempt started stays."""
    return live._replace(
        place=int(Place.GATHERING),
        at=None,
        flags=live.flags & STANDING,
        worker_id=None,
        expires_at=None,
        deadline_at=None,
    )


def wake(q: Dialect, cache: TaskView, now: Instant, parents: Iterable[int]) -> Work[None]:
    """A child of each has become final, in this transaction. Those that wait and have none left wait for a worker now."""
    wanted = set(parents)
    if not wanted:
        return
    rows = yield from load_active(q, wanted)
    gathering = {run_id: live for run_id, live in rows.items() if live.place == Place.GATHERING}
    still = yield from with_open(q, gathering)
    woken = [live for run_id, live in sorted(gathering.items()) if run_id not in still]
    if not woken:
        return
    yield from move(q, cache, [(live, waits(live)) for live in woken])
    states = [(live.run_id, RunStatus.SCHEDULED, now, live.attempt, live.lost_count) for live in woken]
    yield UpdateMany("runs", "id", ("status", "updated_at", "attempt", "lost_count"), states)
    yield from note_given_back([live for live in woken if live.flags & RunFlag.ROUND])
    yield from tell("run.resumed", [(live.task_id, live.run_id, {"status": RunStatus.SCHEDULED}) for live in woken])
    cache.step_queues |= {live.queue for live in woken}
    failpoint.hit("K20")


def note_executed(gathered: Sequence[tuple[Live, Instant]]) -> Work[None]:
    """Add what the attempts that are parked have used up of their runs' timeout."""
    rows = [(live.run_id, max(0, until - (live.claimed_at or until))) for live, until in gathered]
    if rows:
        yield UpdateMany("gathers", "run_id", ("executed",), rows, add=True)


def forget_executed(rows: Sequence[Live]) -> Work[None]:
    """Retried, these runs have their whole timeout again."""
    again = [(live.run_id, 0) for live in rows if live.flags & RunFlag.SPAWNER]
    if again:
        yield UpdateMany("gathers", "run_id", ("executed",), again)


def executed(q: Dialect, run_ids: Sequence[int]) -> Work[dict[int, int]]:
    """Microseconds, of those that are not at their beginning."""
    rows = yield from q.fetch_by("select run_id, executed from gathers", "run_id", run_ids)
    return {run_id: int(spent) for run_id, spent in rows if spent}


def states(q: Dialect, run_id: RunId, positions: Sequence[int]) -> Work[list[ChildState]]:
    """How the children of a run at these positions stand, in that order. One that is no longer kept is left out."""
    if not positions:
        return []
    rows = yield Fetch(
        "select c.position, r.id, r.status, r.result, r.error_message, r.error_details from children c"
        f" join runs r on r.id = c.child_id where c.run_id = :id and {q.ids('c.position', 'positions')}",
        {"id": run_id, "positions": q.pack(list(positions))},
    )
    found = {
        row[0]: ChildState(
            position=row[0],
            run_id=RunId(row[1]),
            status=RunStatus(row[2]),
            result=from_json(row[3]),
            error_message=row[4],
            error_details=from_json(row[5]),
        )
        for row in rows
    }
    return [found[position] for position in positions if position in found]
