"""Pulses: how a node notices that the store went back to an earlier state, by a fail-over to a standby that was behind,
or a restore.

    every second        a node that plans writes a pulse, and remembers the highest that it knows to be committed; a worker only reads
    a new connection    looks for that pulse before it is used: a fail-over ends the connections that were there before
    it is not there     the store went back. In one transaction the stretch is noted, and what may have been delivered in it, and must
                        not be delivered twice, is skipped as `store_went_back`: slots of at-most-once tasks that are due, and
                        at-most-once runs that wait. Leases of such runs count as begun

A lease from before the stretch is its worker's, who settles it; or it is lost, which no at-most-once run outlives that
has begun. It may have begun in the time that is gone. Runs that may be repeated are repeated, under the key that they
had before.

    died before the commit   the next connection, of any node that remembers, notes it
    two nodes at once        both hold the cursors and runs that they skip; the second finds nothing left, and notes the same stretch
    no node remembers        all nodes are new, or the store went back by less than a pulse: then it is not noticed
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noonbell.clock import Instant
from noonbell.model.account import StoreReturn
from noonbell.model.failure_text import TEXTS
from noonbell.model.run import RunStatus, SkipReason
from noonbell.model.task import Delivery
from noonbell.stores.sql import planning
from noonbell.stores.sql.active_runs import COLUMNS, WAITING, Live, Place, RunFlag, forget_expiries
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.finish import Ending, canceled, finish
from noonbell.stores.sql.rows import Record, TaskView, known_tasks
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Now, UpdateMany, Work

_RETURN = Record(StoreReturn)


class Pulse(NamedTuple):
    """What a node knows to be in the store."""

    at: int
    """The highest pulse."""
    returns: int
    """The last time that it went back, by its id; 0 if it never has."""

    def is_missing_in(self, found: Pulse) -> bool:
        return found.at < self.at


def look() -> Work[Pulse]:
    rows = yield Fetch("select (select max(at) from pulses), (select max(id) from store_returns)")
    return Pulse(int(rows[0][0] or 0), int(rows[0][1] or 0))


def beat(q: Dialect, cache: TaskView, node: str, remembered: Pulse | None) -> Work[tuple[Pulse, StoreReturn | None]]:
    """Write a pulse that is higher than all before it, though the clock may have been set back."""
    found = yield from look()
    noted = None
    if remembered is not None and remembered.is_missing_in(found):
        found, noted = yield from note(q, cache, node, remembered)
    now = yield Now()
    at = max(int(now), found.at + 1)
    yield Execute(
        f"insert into pulses (node, at) values (:node, :at){q.upsert('node', ('at',))}", {"node": node, "at": at}
    )
    return found._replace(at=at), noted


def note(q: Dialect, cache: TaskView, node: str, remembered: Pulse) -> Work[tuple[Pulse, StoreReturn | None]]:
    """Note that the store went back, if it did. None, and nothing is written, where another node was faster."""
    found = yield from look()
    if not remembered.is_missing_in(found):
        return found, None
    now = yield Now()
    since = Instant(min(found.at or remembered.at, now))
    skipped = yield from _skip_waiting(q, cache, now)
    skipped += yield from _skip_due(q, cache, now)
    found = yield from look()  # another node may have had what we waited for
    if not remembered.is_missing_in(found):
        return found, None
    ids = yield NewIds(1)
    noted = StoreReturn(since=since, until=now, node=node, skipped=skipped)
    yield InsertMany("store_returns", ("id", *_RETURN.columns), [(ids[0], *_RETURN.row(noted))])
    data = {"node": node, "since": since, "until": now, "skipped": skipped}
    yield from tell("store.went_back", [(None, None, data)])
    # What was remembered is a pulse again, of this node: the others need not look for theirs any more.
    at = max(int(now), remembered.at) + 1
    yield Execute(
        f"insert into pulses (node, at) values (:node, :at){q.upsert('node', ('at',))}", {"node": node, "at": at}
    )
    return Pulse(at, ids[0]), noted


def _skip_waiting(q: Dialect, cache: TaskView, now: Instant) -> Work[int]:
    """Runs that a worker may have had in the time that is gone. How many of them are over."""
    places = ", ".join(str(int(place)) for place in (*WAITING, Place.LATER))
    may_have_run = f"(place in ({places}) and run_at <= :now)"
    may_have_begun = f"(place = {int(Place.LEASED)} and (flags & {RunFlag.BEGUN}) = 0)"
    rows = yield Fetch(
        f"select {COLUMNS} from live where (flags & {RunFlag.ONCE}) <> 0 and ({may_have_run} or {may_have_begun})"
        f" order by run_id{q.lock}",
        {"now": now},
    )
    found = [Live(*row) for row in rows]
    leased = [row for row in found if row.place == Place.LEASED]
    if leased:
        yield UpdateMany("live", "run_id", ("flags",), [(row.run_id, row.flags | RunFlag.BEGUN) for row in leased])
    retried = [row for row in found if row.place != Place.LEASED and row.flags & RunFlag.RETRIED]
    waiting = [row for row in found if row.place != Place.LEASED and not row.flags & RunFlag.RETRIED]
    reason = SkipReason.STORE_WENT_BACK
    yield from forget_expiries(q, [row.run_id for row in waiting])
    if waiting:
        yield UpdateMany("runs", "id", ("skip_reason",), [(row.run_id, reason) for row in waiting])
    endings = [Ending(live=row, status=RunStatus.SKIPPED, start_time=None, note={"reason": reason}) for row in waiting]
    message = TEXTS["canceled_store_went_back"]
    endings += yield from canceled(q, retried, message, {"kind": "canceled", "why": reason})
    yield from finish(q, cache, now, endings)
    return len(endings)


def _skip_due(q: Dialect, cache: TaskView, now: Instant) -> Work[int]:
    rows = yield Fetch(
        "select c.task_id, c.next_fire_at, c.fired, c.skip_next, c.accounted_to from cursors c join tasks t on t.id = c.task_id"
        f" where c.next_fire_at <= :now and t.delivery = :once order by c.task_id{q.lock}",
        {"now": now, "once": str(Delivery.AT_MOST_ONCE)},
    )
    tasks = yield from known_tasks(q, cache, [row[0] for row in rows])
    due = []
    for task_id, next_fire_at, fired, skip_next, accounted_to in rows:
        cursor = {"next_fire_at": next_fire_at, "fired": fired, "skip_next": skip_next, "accounted_to": accounted_to}
        due.append((tasks[task_id], msgspec.structs.replace(tasks[task_id].task, **cursor)))
    done = yield from planning.account_for(q, cache, now, due, cap=_CAP, withheld=SkipReason.STORE_WENT_BACK)
    return sum(new_run.skip_reason == SkipReason.STORE_WENT_BACK for new_run in done.new_runs)


_CAP = 1_000
"""Slots of one task that get a skip each; those before are dropped."""


def returns(since: Instant, until: Instant) -> Work[list[StoreReturn]]:
    rows = yield Fetch(
        f"select {_RETURN.select()} from store_returns where until >= :since and since <= :until order by id limit 1000",
        {"since": since, "until": until},
    )
    return [_RETURN.read(row) for row in rows]
