"""PostgreSQL's fast path for steps of flows: settled, their flows moved on, and the next steps claimed, in one transaction.

Settled are leases of ordinary runs and of steps from whose end nothing follows but in their flow: by one statement, which also
holds the rows of the flows' runs. Then `flows.go_on` reads and writes the states of the steps by sets of rows. Claimed are READY runs
and steps, in the order of both, while nothing waits that is neither; else the claim answers None, and its caller takes the long way
in a transaction of its own. As in `postgres_fast`, each statement has one plan only, which can be kept.

died before the commit   nothing is written; the worker tries again, or the leases run out and the sweep settles
died after it            the flows have moved on, and the steps that were claimed with it are swept when their leases run out
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.attempt import Settlement
from noonbell.model.call import NAMED_TYPES, spec_of
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Lease, Origin, RunId, RunStatus
from noonbell.model.task import Task, TaskId, TaskSpec
from noonbell.stores import postgres_fast as hot
from noonbell.stores.sql import flows
from noonbell.stores.sql.active_runs import COLUMNS, Live, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.fast_path import decode, event_facts
from noonbell.stores.sql.finish import finish, flow_ending
from noonbell.stores.sql.insert_runs import NewRun
from noonbell.stores.sql.pausing import PAUSED
from noonbell.stores.sql.rows import TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import Fetch, InsertEvents, InsertMany, NewIds, Row, Work

_NOW = "coalesce(:now::bigint, (extract(epoch from {clock}()) * 1000000)::bigint)"

# Settle

_SETTLED = hot.settled_by(
    ends=f"(l.flags + 0 = {RunFlag.STEP} or l.flags + 0 = 0 and l.gate is null and {hot.NO_EDGE})",
    of_ended=", l.parent_id",
    of_written=", e.run_id, e.parent_id, r.step_id, (e.parent_id is not null)::int as nested",
    nested="nested",
    fact=f"""case when parent_id is null then {hot.PLAIN_FACT} else '[' || task_id || ',' || run_id
                || ',{{"status":"' || status || '","parent_id":' || parent_id || '}}]' end""",
)
_NAMED = re.sub(r"\$\{(\d+)\}", r":p\1", _SETTLED)
# Parameters are p0 to p16, as `postgres_fast.settle_arguments` has them. First a row for each run that was settled, then one for
# each run of a flow that is held now.
_SETTLE = f"""with now as (select {_NOW.format(clock="statement_timestamp")} as at),{_NAMED},
held as materialized (
    select {COLUMNS} from live_rest
    where run_id = any(array(select distinct parent_id from ended where parent_id is not null))
      and place + 0 = {int(Place.PARENT)}
    order by run_id for update
)
select run_id, status, step_id, parent_id, (select at from now), null from written
union all select null, null, null, null, null, json_build_array({COLUMNS})::text from held"""


def settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement], now: Instant | None) -> Work[set[RunId]]:
    """The runs that it has settled; what is not as its settlement says is left as it is. `now`: None for the database's clock."""
    rows = yield from _settle(settlements, now)
    return (yield from _go_on(q, cache, rows, None))


def _settle(settlements: Sequence[Settlement], now: Instant | None) -> Work[Sequence[Row]]:
    events = yield NewIds(hot.EVENTS_PER_SETTLE)
    values = hot.settle_arguments(settlements, events[0])
    named = {f"p{place}": value for place, value in enumerate(values)}
    rows: Sequence[Row] = yield Fetch(_SETTLE, {"now": now, **named})
    return rows


def _go_on(q: Dialect, cache: TaskView, rows: Sequence[Row], take: flows.Take | None) -> Work[set[RunId]]:
    """What follows in the flows of these steps, which are settled; all runs that are."""
    parents = [msgspec.json.decode(row[5], type=Live) for row in rows if row[0] is None]
    written = [row for row in rows if row[0] is not None]
    if parents:
        ended: dict[int, dict[int, RunStatus]] = defaultdict(dict)
        names: dict[int, str] = {}
        for run_id, status, step_id, parent_id, _, _ in written:
            if parent_id is not None:
                ended[parent_id][run_id] = RunStatus(status)
                names[run_id] = step_id
        at = Instant(written[0][4])
        over = yield from flows.go_on(q, cache, at, parents, ended, names, take)
        yield from finish(q, cache, at, [flow_ending(end) for end in over])
    return {row[0] for row in written}


# Claim

_TYPE_FITS = hot.TYPE_FITS.replace("$5", ":types")
_LIMITED = f"{hot.LIMITED} or {hot.GATES_OPEN}".replace("$1", ":queues").replace("$3", ":worker")
_FOUND = ", ".join(f"r.{name}" for name in Live._fields)


def _waiting(table: str, more: str) -> str:
    return f"""select w.* from unnest(:queues::text[]) as wanted(queue)
    cross join lateral (
        select {_FOUND} from {table} r
        where r.queue = wanted.queue{more} and (select what from special) = 0 and {_TYPE_FITS}
        order by r.turn, r.run_at, r.run_id limit :most::bigint for update skip locked
    ) w"""


# Of the two indexes of `runs` that have the id, each finds a row by id and task: which one a plan takes does not matter.
_PICK = f"""with special as materialized (
    select case when {PAUSED} then {hot.ALL_PAUSED} when {_LIMITED} then 2 else 0 end as what
),
careful as materialized ({_waiting("live_rest", f" and r.place = {int(Place.CAREFUL)}")}),
ready as materialized ({_waiting("live_ready", "")}),
now as materialized (select {_NOW.format(clock="clock_timestamp")} as at from (select count(*) from careful) as rows_are_held),
picked as materialized (
    select * from (select * from careful union all select * from ready) both_kinds
    order by turn, run_at, run_id limit :most::bigint
)
select case when exists (select 1 from careful where flags & ~{RunFlag.RETRIED} <> {RunFlag.STEP} or min_version > 0)
        then 2 else (select what from special) end,
    (select at from now), r.task_version, r.step_id, r.item_index, r.origin, r.scheduled_time, r.priority,
    r."key", r.trace_id, r.idempotency_key, i.payload, i.overrides, {", ".join(f"l.{name}" for name in Live._fields)}
from (values (1)) one(row)
left join (
    picked l
    cross join lateral (
        select r.task_version, r.step_id, r.item_index, r.origin, r.scheduled_time, r.priority, r."key", r.trace_id,
            r.idempotency_key
        from runs r where r.id = l.run_id and r.task_id = l.task_id offset 0
    ) r
    left join lateral (select i.payload, i.overrides from inputs i where i.run_id = l.run_id offset 0) i on true
) on true
order by l.turn, l.run_at, l.run_id"""
_WIDE = 13
"""Columns before those of the narrow row."""

# Those that get the same times, by one statement.
_LEASE = f"""with careful as (
    delete from live_rest l where l.run_id = any(:ids::bigint[]) and l.place + 0 = {int(Place.CAREFUL)} returning l.*
),
ready as (
    delete from live_ready l where l.run_id = any(:ids::bigint[]) returning l.*
),
taken as (select * from careful union all select * from ready),
leased as (
    insert into live_leased (run_id, place, task_id, queue, turn, run_at, at, job_type, flags, min_version, parent_id, attempt,
        retry_count, lost_count, token, worker_id, claimed_at, expires_at, deadline_at)
    select run_id, {int(Place.LEASED)}, task_id, queue, turn, run_at, least(:expires::bigint, :deadline::bigint), job_type,
        flags & {RunFlag.STEP}, 0, parent_id, attempt + 1, retry_count, lost_count, greatest(token + 1, :now::bigint),
        :worker::text, :now::bigint, :expires::bigint, :deadline::bigint
    from taken returning 1
),
started as (
    insert into events (id, at, type, data) select :event::bigint, :now::bigint, 'run.started', :facts::text
)
select count(*) from leased"""


def claim(q: Dialect, cache: TaskView, request: ClaimRequest, now: Instant | None) -> Work[Claimed | None]:
    """What waits, in order; None if something waits that only the long way can give out. `now` as for `settle`."""
    rows = yield from _pick(request, now)
    return (yield from _lease_picked(q, cache, request, rows))


def _pick(request: ClaimRequest, now: Instant | None) -> Work[Sequence[Row]]:
    """What waits, held; one row at least, the first value of which says whether something special waits."""
    rows: Sequence[Row] = yield Fetch(
        _PICK,
        {
            "queues": list(request.queues),
            "worker": request.worker_id,
            "types": None if request.job_types is None else list(request.job_types),
            "most": request.max,
            "now": now,
        },
    )
    return rows


def _lease_picked(q: Dialect, cache: TaskView, request: ClaimRequest, rows: Sequence[Row]) -> Work[Claimed | None]:
    if rows[0][0] == hot.ALL_PAUSED:
        return Claimed([], is_paused=True)
    if rows[0][0]:
        return None
    picked = [row for row in rows if row[_WIDE] is not None]
    if not picked:
        return Claimed([])
    found = yield from _specs(q, cache, picked)
    if found is None:
        return None
    leases = [_lease(row, *each, request.worker_id) for row, each in zip(picked, found, strict=True)]
    alike: dict[tuple[Instant, Instant], list[Lease]] = defaultdict(list)
    for lease in leases:
        alike[lease.expires_at, lease.deadline_at].append(lease)
    ids = yield NewIds(len(alike))
    for event, ((expires_at, deadline_at), listed) in zip(ids, alike.items(), strict=True):
        params = {
            "ids": [lease.run_id for lease in listed],
            "expires": expires_at,
            "deadline": deadline_at,
            "now": listed[0].claimed_at,
            "worker": request.worker_id,
            "event": event,
            "facts": event_facts(((lease.task_id, lease.run_id) for lease in listed), RunStatus.RUNNING),
        }
        yield Fetch(_LEASE, params)
    cache.claimed_here |= {lease.run_id for lease in leases}
    return Claimed(leases)


def _specs(q: Dialect, cache: TaskView, picked: Sequence[Row]) -> Work[list[tuple[Task, TaskSpec | None]] | None]:
    """Of each run its task, and of a step what it does; None if one of them is not known any longer."""
    plain = {row[_WIDE + 2] for row in picked if row[3] is None}
    tasks = (yield from known_tasks(q, cache, plain)) if plain else {}
    versions = {}
    for row in picked:
        which = row[_WIDE + 2], row[2]
        if row[3] is not None and which not in versions:
            versions[which] = yield from flows.version_of(q, cache, *which)
    found: list[tuple[Task, TaskSpec | None]] = []
    for row in picked:
        task_id = row[_WIDE + 2]
        if row[3] is None:
            found.append((tasks[task_id].task, None))
            continue
        version = versions[task_id, row[2]]
        planned = None if version is None else version.plan.steps.get(row[3])
        if version is None or planned is None:
            return None
        found.append((version.task, version.task_of(planned)[1]))
    return found


_ORIGINS = {str(origin): origin for origin in Origin}


def _lease(row: Row, task: Task, step: TaskSpec | None, worker_id: str) -> Lease:
    _, now, _, _, item, origin, scheduled_time, priority, key, trace_id, idempotency_key, payload, overrides = row[
        :_WIDE
    ]
    live = Live(*row[_WIDE:])
    spec = step or task.spec
    given = None if overrides is None else from_json(overrides)
    return Lease(
        run_id=RunId(live.run_id),
        task_id=TaskId(live.task_id),
        task_version=task.version,
        worker_id=worker_id,
        token=max(live.token + 1, now),
        attempt=live.attempt + 1,
        retry_count=live.retry_count,
        lost_count=live.lost_count,
        queue=live.queue,
        priority=priority,
        origin=_ORIGINS[origin],
        scheduled_time=scheduled_time,
        claimed_at=now,
        expires_at=Instant(now + spec.worker_timeout_ms * 1000),
        deadline_at=Instant(now + round(spec.timeout_seconds * SECOND)),
        run_at=Instant(live.run_at),
        key=key,
        payload=task.spec.payload if payload is None else decode(payload),
        overrides=given,
        parent_id=None if live.parent_id is None else RunId(live.parent_id),
        step=step or (None if given is None else spec_of(live.queue, given)),
        item_index=item,
        trace_id=trace_id,
        idempotency_key=idempotency_key,
        plain=step is None,
        in_flow=step is not None,
    )


def settle_and_claim(
    q: Dialect, cache: TaskView, settlements: Sequence[Settlement], request: ClaimRequest, now: Instant | None
) -> Work[tuple[set[RunId], Claimed | None]]:
    """What waits is claimed first; then, as far as there is room, the steps that the settlements bring: they are leased at once."""
    settled = yield from _settle(settlements, now)
    picked = yield from _pick(request, now)
    claimed = yield from _lease_picked(q, cache, request, picked)
    if claimed is None or claimed.is_paused:
        return (yield from _go_on(q, cache, settled, None)), claimed
    taking = _Taking(request, request.max - len(claimed.leases), Instant(picked[0][1]))
    done = yield from _go_on(q, cache, settled, taking.take)
    cache.claimed_here |= {lease.run_id for lease in taking.leases}
    return done, Claimed([*claimed.leases, *taking.leases])


@dataclass(slots=True)
class _Taking:
    """Leases new steps for a worker that has room for so many."""

    request: ClaimRequest
    room: int
    now: Instant
    leases: list[Lease] = field(default_factory=list)

    def take(self, new_runs: Sequence[NewRun], inserts: flows.Inserts) -> Work[flows.Inserts]:
        by_table = {each.table: each for each in inserts if isinstance(each, InsertMany)}
        live, runs = by_table["live"], by_table["runs"]
        key = runs.columns.index("idempotency_key")
        keys = {row[0]: row[key] for row in runs.rows}
        known = {new_run.id: new_run for new_run in new_runs}
        columns = {name: place for place, name in enumerate(live.columns)}
        fitting = sorted((row[columns["turn"]], row[0]) for row in live.rows if self._fits(row, columns))
        taken = {run_id for _, run_id in fitting[: self.room]}
        if not taken:
            return inserts
        self.leases = [self._lease(known[run_id], keys[run_id]) for _, run_id in fitting[: self.room]]
        by_run = {lease.run_id: lease for lease in self.leases}
        kept = [(name, place) for name, place in columns.items() if name not in _OF_LEASE]
        places = [place for _, place in kept]
        leased = [
            (*[row[place] for place in places], *_of_lease(by_run[row[0]])) for row in live.rows if row[0] in taken
        ]
        others = [row for row in live.rows if row[0] not in taken]
        written: list[InsertMany | InsertEvents] = [each for each in inserts if each is not live]
        written.append(InsertMany("live", (*[name for name, _ in kept], *_OF_LEASE), leased))
        if others:
            written.append(InsertMany("live", live.columns, others))
        ids = yield NewIds(1)
        facts = event_facts(((lease.task_id, lease.run_id) for lease in self.leases), RunStatus.RUNNING)
        written.append(InsertEvents([(ids[0], "run.started", facts)]))
        return written

    def _fits(self, row: Row, columns: Mapping[str, int]) -> bool:
        """Whether the worker may have it, as `_PICK` says."""
        if row[columns["place"]] != Place.CAREFUL or row[columns["flags"]] != RunFlag.STEP:
            return False
        if row[columns["min_version"]] or row[columns["queue"]] not in self.request.queues:
            return False
        job_type = row[columns["job_type"]] if "job_type" in columns else None
        types = self.request.job_types
        return job_type is None or (job_type not in NAMED_TYPES if types is None else job_type in types)

    def _lease(self, new_run: NewRun, key: str) -> Lease:
        task, spec, now = new_run.task, new_run.task.spec, self.now
        return Lease(
            run_id=new_run.id,
            task_id=task.id,
            task_version=task.version,
            worker_id=self.request.worker_id,
            token=now,
            attempt=1,
            retry_count=0,
            lost_count=0,
            queue=spec.queue,
            priority=spec.priority if new_run.priority is None else new_run.priority,
            origin=new_run.origin,
            scheduled_time=new_run.scheduled_time,
            claimed_at=now,
            expires_at=Instant(now + spec.worker_timeout_ms * 1000),
            deadline_at=Instant(now + round(spec.timeout_seconds * SECOND)),
            run_at=new_run.run_at,
            # As another worker would read it: a handler may change what it is given.
            payload=decode(to_json(new_run.payload)),
            overrides=None if new_run.overrides is None else from_json(to_json(new_run.overrides)),
            parent_id=None if new_run.parent_id is None else RunId(new_run.parent_id),
            step=spec,
            item_index=None if new_run.step is None else new_run.step[1],
            trace_id=new_run.trace_id,
            idempotency_key=key,
            in_flow=True,
        )


_OF_LEASE = ("place", "at", "token", "attempt", "worker_id", "claimed_at", "expires_at", "deadline_at")


def _of_lease(lease: Lease) -> tuple[Any, ...]:
    """What its narrow row has under those names."""
    until = min(lease.expires_at, lease.deadline_at)
    times = (lease.claimed_at, lease.expires_at, lease.deadline_at)
    return (int(Place.LEASED), until, lease.token, lease.attempt, lease.worker_id, *times)
