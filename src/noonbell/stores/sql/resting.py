"""Quiet hours: due runs are put aside until they end, and let go then, in order, spread over the time that was asked
for.

A run of a task with quiet hours is flagged (QUIET), so that no short way of a claim takes it. One that is inserted in
quiet hours waits as LATER from the beginning (`insert_runs`). What is due already when they begin, comes back from an
attempt, or waits on a queue that has quiet hours is put aside by the claim that meets it, all of the task or queue at
once. `promote` lets go what has rested: the first pass after the end gives each run its moment, the next ones make it
claimable.

Rows that another transaction holds are left to it: a claim waits for no other one.

died before the commit   nothing is written, and nothing was started; the next claim or pass does it died after it
the runs rest, or have their moments; any node goes on with them
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from noonbell.clock import Instant
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.model.run import Origin, RunStatus, SkipReason
from noonbell.policy.quiet import Quiet, quiet_at, spread_over
from noonbell.stores.sql.active_runs import DUE, Live, Place, RunFlag, load_active, load_where
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.finish import Ending, finish
from noonbell.stores.sql.keys import move
from noonbell.stores.sql.rows import TaskView, known_tasks
from noonbell.stores.sql.statement import Fetch, UpdateMany, Work

AT_ONCE = 1_000
"""Runs that one claim puts aside."""
_DUE = ", ".join(str(int(place)) for place in DUE)


def rest_tasks(q: Dialect, cache: TaskView, now: Instant, task_ids: Collection[int]) -> Work[bool]:
    """Put aside what is due of those of these tasks, all with quiet hours, that are quiet now. Whether there was any."""
    tasks = yield from known_tasks(q, cache, task_ids)
    is_any = False
    for task_id in sorted(task_ids):
        spec = tasks[task_id].task.spec
        quiet = quiet_at(spec.quiet, spec.timezone, now)
        if quiet is None:
            continue
        found = yield Fetch(
            f"select run_id from live where task_id = :task and place in ({_DUE}) and (flags & {RunFlag.QUIET}) <> 0"
            f" order by run_id limit :most{q.skip_locked}",
            {"task": task_id, "most": AT_ONCE},
        )
        is_any = (yield from _rest(q, cache, now, [row[0] for row in found], quiet)) or is_any
    return is_any


def rest_queue(q: Dialect, cache: TaskView, now: Instant, queue: str, quiet: Quiet) -> Work[bool]:
    """Put aside what is due on a queue that is quiet now, but for runs that were triggered by hand. False: there may be more."""
    found = yield Fetch(
        f"select l.run_id from live l join runs r on r.id = l.run_id where l.queue = :queue and l.place in ({_DUE})"
        f" and r.origin <> :trigger order by l.run_id limit :most{q.skip_locked_l}",
        {"queue": queue, "trigger": Origin.TRIGGER, "most": AT_ONCE},
    )
    yield from _rest(q, cache, now, [row[0] for row in found], quiet)
    return len(found) < AT_ONCE


def by_hand(q: Dialect, candidates: list[Live], quiet: Collection[str]) -> Work[list[Live]]:
    """Without those of quiet queues that were not triggered by hand: another transaction held them when the rest was
    put aside.
    """
    asked = [row.run_id for row in candidates if row.queue in quiet]
    if not asked:
        return candidates
    found = yield from q.fetch_by("select id from runs", "id", asked, " and origin = :trigger", trigger=Origin.TRIGGER)
    triggered = {row[0] for row in found}
    return [row for row in candidates if row.queue not in quiet or row.run_id in triggered]


def _rest(q: Dialect, cache: TaskView, now: Instant, run_ids: Sequence[int], quiet: Quiet) -> Work[bool]:
    rows = yield from load_active(q, run_ids)
    due = [row for row in rows.values() if row.place in DUE]
    skipped = [row for row in due if quiet.action is QuietAction.SKIP and not row.was_claimed]
    held = [row for row in due if quiet.action is QuietAction.HOLD or row.was_claimed]
    rested = [row._replace(place=int(Place.LATER), at=quiet.until, flags=row.flags | RunFlag.AT_REST) for row in held]
    yield from move(q, cache, list(zip(held, rested, strict=True)))
    yield from _skip(q, cache, now, skipped)
    return bool(due)


def _skip(q: Dialect, cache: TaskView, now: Instant, rows: Sequence[Live]) -> Work[None]:
    if not rows:
        return
    yield UpdateMany("runs", "id", ("skip_reason",), [(row.run_id, SkipReason.QUIET) for row in rows])
    note = {"reason": SkipReason.QUIET}
    endings = [Ending(live=row, status=RunStatus.SKIPPED, start_time=None, note=note) for row in rows]
    yield from finish(q, cache, now, endings)


def let_go(q: Dialect, cache: TaskView, now: Instant, run_ids: Sequence[int]) -> Work[None]:
    """The rest of these runs is over: each gets the moment from which on it is claimable, in order within its queue or task.

    All that rest until the same moment, on the queue or of the task, share the time; also those that are not among these.
    """
    rows = yield from load_active(q, run_ids)
    resting = [row for row in rows.values() if row.place == Place.LATER and row.flags & RunFlag.AT_REST]
    if not resting:
        return
    tasks = yield from known_tasks(q, cache, {row.task_id for row in resting})
    names = {"names": q.pack(sorted({row.queue for row in resting}))}
    settings = yield Fetch(f"select name, spread_seconds from queues where {q.names('name', 'names')}", names)
    spreads = {row[0]: row[1] for row in settings}
    lines: dict[tuple[str, object, int], float] = {}
    for row in resting:
        of_queue, of_task = spreads.get(row.queue, 0), tasks[row.task_id].task.spec.spread_seconds
        key = ("queue", row.queue) if of_queue else ("task_id", row.task_id)
        lines[(*key, row.at or now)] = float(of_queue or of_task)
    moments: dict[int, Instant] = {}
    flags: dict[int, int] = {}
    for (column, value, at), seconds in sorted(lines.items(), key=str):
        found = yield Fetch(
            f"select run_id, flags from live where place = {int(Place.LATER)} and at = :at and {column} = :value"
            f" and (flags & {RunFlag.AT_REST}) <> 0 order by turn, run_at, run_id{q.skip_locked}",
            {"at": at, "value": value},
        )
        for (run_id, held), moment in zip(found, spread_over(now, seconds, len(found)), strict=True):
            moments[run_id], flags[run_id] = moment, held & ~RunFlag.AT_REST
    yield UpdateMany(
        "live", "run_id", ("at", "flags"), [(run_id, moments[run_id], flags[run_id]) for run_id in sorted(moments)]
    )


def rest_anew(
    q: Dialect, cache: TaskView, now: Instant, rows: Sequence[Live], hours: Sequence[QuietHours], zone: str
) -> Work[None]:
    """The quiet hours have changed: what rests does so until their end now, or no longer. A claim holds what is quiet
    for another reason.
    """
    moved = []
    for row in rows:
        if row.place == Place.LATER and row.flags & RunFlag.AT_REST:
            quiet = quiet_at(hours, zone, Instant(max(now, row.run_at)))
            at = max(now, row.run_at) if quiet is None else quiet.until
            flags = row.flags & ~RunFlag.AT_REST if quiet is None else row.flags
            moved.append((row, row._replace(at=at, flags=flags)))
    yield from move(q, cache, moved)


def rest_queue_anew(q: Dialect, cache: TaskView, now: Instant, queue: str, hours: Sequence[QuietHours]) -> Work[None]:
    rows = yield from load_where(
        q, f"place = {int(Place.LATER)} and queue = :queue and (flags & {RunFlag.AT_REST}) <> 0", queue=queue
    )
    yield from rest_anew(q, cache, now, rows, hours, "UTC")
