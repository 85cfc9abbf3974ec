"""PostgreSQL's fast path for steps of flows and runs with a key: settled, what follows them let in, and the next
claimed, in one transaction.

Settled are leases of ordinary runs, of steps from whose end nothing follows but in their flow, and of runs from whose
end nothing follows but in the line of their key: by one statement, which also holds the rows of the flows' runs. Then
`keys.end` lets the next runs of the keys in, and `flows.go_on` reads and writes the states of the steps by sets of
rows. Claimed are READY runs, steps and runs with a key, in the order of all, while nothing else waits; else the claim
answers None, and its caller takes the long way in a transaction of its own. As in `postgres_fast`, each statement has
one plan only, which can be kept.

died before the commit   nothing is written; the worker tries again, or the leases run out and the sweep settles died
after it            flows and lines have moved on, and the runs that were claimed with it are swept when their leases
run out
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noonbell.clock import SECOND, Instant
from noonbell.model.call import NAMED_TYPES, spec_of
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import FlowStep, Lease, Origin, RunId, RunStatus, Settlement
from noonbell.model.task import Task, TaskId, TaskSpec
from noonbell.policy.flows import RESERVE
from noonbell.stores import postgres_fast as hot
from noonbell.stores.sql import flows, keys
from noonbell.stores.sql.active_runs import Live, Place, RunFlag, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.fast_path import decode, event_facts
from noonbell.stores.sql.finish import finish, flow_ending
from noonbell.stores.sql.flow_states import STATE, state_of
from noonbell.stores.sql.insert_runs import NewRun
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.rows import TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import Columns, Fetch, InsertEvents, InsertMany, NewIds, Row, Work, arrays_of

_NOW = "coalesce(:now::bigint, (extract(epoch from {clock}()) * 1000000)::bigint)"

# Settle

_SETTLED = hot.settled_by(
    ends=f"(l.flags + 0 = {RunFlag.STEP} or l.flags + 0 in (0, {RunFlag.KEYED}) and l.gate is null and {hot.NO_EDGE})",
    of_ended=", l.parent_id",
    of_written=", e.run_id, (e.parent_id is not null)::int as nested",
    nested="nested",
    fact=f"""case when parent_id is null then {hot.PLAIN_FACT} else '[' || task_id || ',' || run_id
                || ',{{"status":"' || status || '","parent_id":' || parent_id || '}}]' end""",
)
_NAMED = re.sub(r"\$\{(\d+)\}", r":p\1", _SETTLED)
_STATES = STATE.columns
_FACTS = "task_version, scheduled_time, priority, idempotency_key, trace_id"
# Parameters are p0 to p16, as `postgres_fast.settle_arguments` has them; `parent_ids` and `step_ids` are the pairs to read, and `counts` how
# many runs of each have ended. Another settlement of the same flow may have been waited for: rows that it may have changed are
# locked as they are read, and so read as they are now, and not as they were when the statement began. `is true` keeps a set of
# the flows that are held, in place of a join. Items of a `foreach` never change.
_MOVING = f"""with now as (select {_NOW.format(clock="statement_timestamp")} as at),{_NAMED},
over as materialized (
    select (select count(*) from written) + (select count(*) from counted_up) + (select count(*) from told) as rows
),
held as materialized (
    select run_id, task_id from live_rest
    where run_id = any(array(select distinct parent_id from ended where parent_id is not null and (select rows from over) >= 0))
      and place + 0 = {int(Place.PARENT)}
    order by run_id for update
),
facts as materialized (
    select h.run_id, h.task_id, r.*, f.* from held h
    cross join lateral (select {_FACTS} from runs r where r.id = h.run_id and r.task_id = h.task_id offset 0) r
    cross join lateral (select steps_open, steps_failed from flows f where f.run_id = h.run_id offset 0 for update) f
),
states as materialized (
    select s.*, pair.ended from unnest(:parent_ids::bigint[], :step_ids::text[], :counts::int[]) as pair(run_id, step_id, ended)
    cross join lateral (
        select {", ".join(f"s.{name}" for name in _STATES)} from flow_steps s
        where s.run_id = pair.run_id and s.step_id = pair.step_id offset 0 for update
    ) s
    where (pair.run_id in (select run_id from held)) is true
),
listed as materialized (
    select s.run_id, s.step_id, i.first, i.items from states s
    cross join lateral (
        select i.first, i.items from flow_items i
        where i.run_id = s.run_id and i.step_id = s.step_id and i.first > s.next_item - {flows.ITEMS_AT_ONCE}
          and i.first < s.next_item + s.ended + {RESERVE}
        order by i.first offset 0
    ) i
    where s.ended > 0 and s.next_item < s.total
)"""
_FACT_COLUMNS = ("run_id", "task_id", *_FACTS.split(", "), "steps_open", "steps_failed")
_LISTED = ("run_id", "step_id", "first", "items")
_NARROW = 3 + len(_FACT_COLUMNS) + len(_STATES) + len(_LISTED)
"""Columns of the row that tells what was settled and read."""


def _arrays(source: str, columns: Sequence[str]) -> str:
    return f"(select {', '.join(f'array_agg({name}) as {name}' for name in columns)} from {source}) {source}_read"


_MOVED = f"""select (select at from now), (select count(*) from written),
    case when (select count(*) from written) < cardinality(:p0::bigint[]) then (select array_agg(run_id) from written) end,
    facts_read.*, states_read.*, listed_read.*
from {_arrays("facts", _FACT_COLUMNS)} cross join {_arrays("states", _STATES)} cross join {_arrays("listed", _LISTED)}"""
_SETTLE = f"{_MOVING} {_MOVED}"


@dataclass(frozen=True, slots=True)
class _Settled:
    """What the statement that settles steps has found."""

    at: Instant
    settlements: Sequence[Settlement]
    """Those that it has settled."""
    parents: Sequence[Live]
    """The runs of their flows, as far as these are needed to move on."""
    ahead: flows.ReadAhead


def settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement], now: Instant | None) -> Work[set[RunId]]:
    """The runs that it has settled; what is not as its settlement says is left as it is. `now`: None for the database's clock."""
    settled = yield from _settle(q, cache, settlements, now)
    return (yield from _go_on(q, cache, settled))


def _settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement], now: Instant | None) -> Work[_Settled]:
    """The keys of these runs have let their next ones in; the flows of these steps have not moved on yet."""
    params = yield from _settling(cache, settlements, now)
    rows = yield Fetch(_SETTLE, params)
    settled = _settled(settlements, rows[0])
    if keyed := [settlement.run_id for settlement in settled.settlements if settlement.keyed]:
        yield from keys.end(q, cache, keyed)
    return settled


def _settling(cache: TaskView, settlements: Sequence[Settlement], now: Instant | None) -> Work[dict[str, Any]]:
    """The parameters of the statement that settles them."""
    events = yield NewIds(hot.EVENTS_PER_SETTLE)
    values = hot.settle_arguments(settlements, events[0])
    ended = Counter((s.in_flow, s.task_version) for s in settlements if s.in_flow is not None)
    pairs: dict[tuple[int, str], int] = {}
    for (step, version), count in ended.items():
        pairs[step.run_id, step.step_id] = count
        known = None if version is None else cache.flow(step.task_id, version)
        planned = None if known is None else known.plan.steps.get(step.step_id)
        for follower in () if planned is None else planned.followers:
            pairs.setdefault((step.run_id, follower), 0)
    listed = sorted(pairs.items())
    return {
        **{f"p{place}": value for place, value in enumerate(values)},
        "now": now,
        "parent_ids": [run_id for (run_id, _), _ in listed],
        "step_ids": [step_id for (_, step_id), _ in listed],
        "counts": [count for _, count in listed],
    }


def _settled(settlements: Sequence[Settlement], row: Row) -> _Settled:
    at, count, some, *arrays = row
    if count < len(settlements):
        done = set(some or ())
        settlements = [settlement for settlement in settlements if settlement.run_id in done]
    columns = [array or () for array in arrays]
    facts, states, listed = (
        columns[: len(_FACT_COLUMNS)],
        columns[len(_FACT_COLUMNS) : -len(_LISTED)],
        columns[-len(_LISTED) :],
    )
    items: dict[tuple[int, str], tuple[int, list[Any]]] = {}
    for run_id, step_id, first, some_items in sorted(zip(*listed, strict=True), key=lambda one: one[:3]):
        items.setdefault((run_id, step_id), (first, []))[1].extend(from_json(some_items))
    ahead = flows.ReadAhead(
        facts=list(zip(facts[0], *facts[2:], strict=True)),
        states=[state_of(state) for state in zip(*states, strict=True)],
        items=items,
    )
    parents = [Live(run_id, Place.PARENT, task_id, *_REST) for run_id, task_id in zip(*facts[:2], strict=True)]
    return _Settled(Instant(at), settlements, sorted(parents), ahead)


_REST: tuple[Any, ...] = ("", 0, 0, *(None,) * 5, 0, 0, None, 0, 0, 0, 0, *(None,) * 4)
"""Of the row of a flow's run: what moving it on does not ask for."""


def _go_on(q: Dialect, cache: TaskView, settled: _Settled, taking: _Taking | None = None) -> Work[set[RunId]]:
    """What follows in the flows of these steps; all runs that are settled."""
    if settled.parents:
        statuses: dict[int, dict[str, list[RunStatus]]] = {}
        for settlement in settled.settlements:
            if settlement.in_flow is not None and settlement.status is not None:
                by_step = statuses.setdefault(settlement.in_flow.run_id, {})
                by_step.setdefault(settlement.in_flow.step_id, []).append(settlement.status)
        at = settled.at
        take, room = (None, None) if taking is None else (taking.take, taking.room)
        over = yield from flows.go_on(q, cache, at, settled.parents, statuses, take, settled.ahead, room)
        if over:
            whole = yield from load_active(q, [end.parent.run_id for end in over])
            endings = [flow_ending(end._replace(parent=whole[end.parent.run_id])) for end in over]
            yield from finish(q, cache, at, endings)
    return {settlement.run_id for settlement in settled.settlements}


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
_PICKING = f"""special as materialized (
    select case when {PAUSED} then {hot.ALL_PAUSED} when {_LIMITED} then 2 else 0 end as what
),
careful as materialized ({_waiting("live_rest", f" and r.place = {int(Place.CAREFUL)}")}),
ready as materialized ({_waiting("live_ready", "")}),
claimed as materialized (select {_NOW.format(clock="clock_timestamp")} as at from (select count(*) from careful) as rows_are_held),
picked as materialized (
    select * from (select * from careful union all select * from ready) both_kinds
    order by turn, run_at, run_id limit :most::bigint
)"""
_PICKED = f"""select case when exists (select 1 from careful where flags & ~{RunFlag.RETRIED} not in ({RunFlag.STEP}, {RunFlag.KEYED})
            or min_version > 0 or gate is not null)
        then 2 else (select what from special) end,
    (select at from claimed), r.task_version, r.step_id, r.item_index, r.origin, r.scheduled_time, r.priority,
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
) on true"""
_WIDE = 13
"""Columns before those of the narrow row."""
_PICK = f"with {_PICKING} {_PICKED} order by l.turn, l.run_at, l.run_id"
_PICKED_COLUMNS = _WIDE + len(Live._fields)
# The row of what was settled is the first. What waits is looked for when the flows are held.
_SETTLE_AND_PICK = f"""{_MOVING},{_PICKING},
moved as materialized ({_MOVED})
select {", ".join(["null"] * _PICKED_COLUMNS)}, moved.* from moved
union all select picks.*, {", ".join(["null"] * _NARROW)} from ({_PICKED}) picks"""

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
        flags & {RunFlag.STEP | RunFlag.KEYED}, 0, parent_id, attempt + 1, retry_count, lost_count, greatest(token + 1, :now::bigint),
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
    rows: Sequence[Row] = yield Fetch(_PICK, {**_wanted(request), "now": now})
    return rows


def _wanted(request: ClaimRequest) -> dict[str, Any]:
    return {
        "queues": list(request.queues),
        "worker": request.worker_id,
        "types": None if request.job_types is None else list(request.job_types),
        "most": request.max,
    }


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
    _, now, _, step_id, item, origin, scheduled_time, priority, key, trace_id, idempotency_key, payload, overrides = (
        row[:_WIDE]
    )
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
        plain=step is None and not live.flags & RunFlag.KEYED,
        keyed=bool(live.flags & RunFlag.KEYED),
        in_flow=None if step is None else FlowStep(RunId(live.parent_id or 0), TaskId(live.task_id), step_id),
    )


def settle_and_claim(
    q: Dialect, cache: TaskView, settlements: Sequence[Settlement], request: ClaimRequest, now: Instant | None
) -> Work[tuple[set[RunId], Callable[[], Claimed | None]]]:
    """What waits is claimed first; then, as far as there is room, the steps that the settlements bring: they are leased at once.

    What is claimed is put together by the second value: once the transaction has committed, and no other waits for these flows.
    """
    if any(settlement.keyed for settlement in settlements):  # what their keys let in is to be found
        settled = yield from _settle(q, cache, settlements, now)
        picked = yield from _pick(request, now)
    else:
        params = yield from _settling(cache, settlements, now)
        first, *rows = yield Fetch(_SETTLE_AND_PICK, {**params, **_wanted(request)})
        settled = _settled(settlements, first[_PICKED_COLUMNS:])
        picked = sorted((row[:_PICKED_COLUMNS] for row in rows), key=_turn)
    claimed = yield from _lease_picked(q, cache, request, picked)
    if claimed is None or claimed.is_paused:
        return (yield from _go_on(q, cache, settled)), lambda: claimed
    taking = _Taking(request, request.max - len(claimed.leases), Instant(picked[0][1]))
    done = yield from _go_on(q, cache, settled, taking)
    cache.claimed_here |= {new_run.id for new_run, _ in taking.taken}
    return done, lambda: Claimed([*claimed.leases, *taking.leases()])


def _turn(row: Row) -> tuple[Any, ...]:
    live = Live(*row[_WIDE:])
    return live.turn, live.run_at, live.run_id


@dataclass(slots=True)
class _Taking:
    """Leases new steps for a worker, as many as it has room for."""

    request: ClaimRequest
    room: int
    now: Instant
    taken: list[tuple[NewRun, str]] = field(default_factory=list)
    """With their idempotency keys."""
    _times: dict[int, tuple[Instant, Instant]] = field(default_factory=dict)

    def take(self, new_runs: Sequence[NewRun], inserts: flows.Inserts) -> Work[flows.Inserts]:
        by_table = {each.table: each for each in inserts if isinstance(each, InsertMany)}
        live, runs = by_table["live"], by_table["runs"]
        columns = dict(zip(live.columns, arrays_of(live.rows), strict=True))
        stored_keys = arrays_of(runs.rows)[runs.columns.index("idempotency_key")]
        # Rows of runs, and of those that are active, are in the order of the new runs.
        fits, turns = _Fits(self.request, columns), columns["turn"]
        fitting = [place for place, new_run in enumerate(new_runs) if fits(new_run, place)]
        if turns.count(turns[0]) < len(turns):
            fitting.sort(key=lambda place: (turns[place], new_runs[place].id))
        del fitting[self.room :]
        if not fitting:
            return inserts
        self.taken = [(new_runs[place], stored_keys[place]) for place in fitting]
        kept = {name: array for name, array in columns.items() if name not in _OF_LEASE}
        leased = [*_at(kept.values(), fitting), *self._of_leases()]
        written: list[InsertMany | InsertEvents] = [each for each in inserts if each is not live]
        written.append(InsertMany("live", (*kept, *_OF_LEASE), Columns(leased)))
        if len(fitting) < len(new_runs):
            others = sorted(set(range(len(new_runs))).difference(fitting))
            written.append(InsertMany("live", live.columns, Columns(_at(columns.values(), others))))
        ids = yield NewIds(1)
        facts = event_facts(((new_run.task.id, new_run.id) for new_run, _ in self.taken), RunStatus.RUNNING)
        written.append(InsertEvents([(ids[0], "run.started", facts)]))
        return written

    def _of_leases(self) -> list[Sequence[Any]]:
        """What the narrow rows have under the names of `_OF_LEASE`. They are given to one worker at one moment, for the
        first time.
        """
        times, count = [self._until(new_run.task) for new_run, _ in self.taken], len(self.taken)
        one = (int(Place.LEASED), self.now, 1, self.request.worker_id, self.now)
        place, token, attempt, worker, claimed_at = ([value] * count for value in one)
        expires, deadlines = [expires for expires, _ in times], [deadline for _, deadline in times]
        return [place, list(map(min, expires, deadlines)), token, attempt, worker, claimed_at, expires, deadlines]

    def _until(self, task: Task) -> tuple[Instant, Instant]:
        """When the lease of a run of this step ends, and when its time is over."""
        found = self._times.get(id(task))
        if found is None:
            expires_at = Instant(self.now + task.spec.worker_timeout_ms * 1000)
            found = self._times[id(task)] = expires_at, Instant(self.now + round(task.spec.timeout_seconds * SECOND))
        return found

    def leases(self) -> list[Lease]:
        return [self._lease(new_run, key) for new_run, key in self.taken]

    def _lease(self, new_run: NewRun, key: str) -> Lease:
        task, spec, now = new_run.task, new_run.task.spec, self.now
        expires_at, deadline_at = self._until(task)
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
            expires_at=expires_at,
            deadline_at=deadline_at,
            run_at=new_run.run_at,
            # As another worker would read it: a handler may change what it is given.
            payload=decode(new_run.payload_json or to_json(new_run.payload)),
            overrides=None if new_run.overrides is None else from_json(to_json(new_run.overrides)),
            parent_id=None if new_run.parent_id is None else RunId(new_run.parent_id),
            step=spec,
            item_index=None if new_run.step is None else new_run.step[1],
            trace_id=new_run.trace_id,
            idempotency_key=key,
            in_flow=FlowStep(RunId(new_run.parent_id or 0), task.id, (new_run.step or ("",))[0]),
        )


class _Fits:
    """Whether the worker may have a new run, as `_PICK` says: the same for all runs of a step that are made together."""

    def __init__(self, request: ClaimRequest, columns: Mapping[str, Sequence[Any]]) -> None:
        self._request, self._columns = request, columns
        self._known: dict[int, bool] = {}

    def __call__(self, new_run: NewRun, place: int) -> bool:
        found = self._known.get(id(new_run.task))
        if found is None:
            found = self._known[id(new_run.task)] = self._find(place)
        return found

    def _find(self, place: int) -> bool:
        row = {name: array[place] for name, array in self._columns.items()}
        if row["place"] != Place.CAREFUL or row["flags"] != RunFlag.STEP:
            return False
        if row["min_version"] or row["queue"] not in self._request.queues:
            return False
        job_type, types = row.get("job_type"), self._request.job_types
        return job_type is None or (job_type not in NAMED_TYPES if types is None else job_type in types)


def _at(arrays: Iterable[Sequence[Any]], places: Sequence[int]) -> list[Sequence[Any]]:
    """Of each array, what stands at these places, in their order."""
    listed = list(arrays)
    if places == list(range(len(listed[0]))):
        return listed
    return [[array[place] for place in places] for array in listed]


_OF_LEASE = ("place", "at", "token", "attempt", "worker_id", "claimed_at", "expires_at", "deadline_at")
