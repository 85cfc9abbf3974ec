"""PostgreSQL's fast path: a batch is published, claimed or settled in one statement and one round trip.

Ordinary runs (READY, flags 0, no limit, no key, no follow-up): these statements do what the shared transitions do. Each
says by its answer whether it applied; where it did not, the store runs the shared transition. A run moves from
`live_ready` to `live_leased` by delete and insert, which is what an update of its place would do. The rows that were picked
are deleted by their physical place: they are locked, so it cannot change, and no join has to be planned. A join would be
planned by statistics from when the table was empty, its usual state, and compare every row of the batch with every other.

Each statement is written so that PostgreSQL has one way to carry it out under all statistics, and its plan can be kept:
rows of other tables are found one by one by their key. `lateral (… offset 0)` cannot be turned into another join;
`id = any(array[…])` serves an index, and neither a hash nor a merge join, where rows are changed. Indexes of
`runs` have the id behind something else too: see `postgres_partitions` for why the primary key is taken in an empty partition.

Runs behind a limit: one statement claims from open gates that have no rate, together with READY runs and in the order of
both; another settles what came from there. A claim locks the row of each gate that it takes from. It sees the runs behind
the gate as they were when the statement began, which may be before it got the lock: a run that another claim has taken
since is gone when it is to be locked, and is passed over. So a claim may take too few, never too many, and the gate stays
open for the next. The clock is read when the gates are locked: no run starts, by the store's clock, before the run whose
place it takes has ended. Settling frees places and claiming fills them, and no statement may change a row twice: so they
are two statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.call import NAMED_TYPES, spec_of
from noonbell.model.request import Claimed, ClaimRequest, Publication, PublishOutcome, PublishResult
from noonbell.model.run import Lease, Origin, RunId, Settlement
from noonbell.model.task import TaskId
from noonbell.stores.sql.active_runs import STANDING, Place
from noonbell.stores.sql.fast_path import decode
from noonbell.stores.sql.finish import texts_of
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.rows import Known, KnownTasks, from_json, to_json

NOW = "coalesce({now}::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)"

GATED = 1
"""What waits is behind gates and nothing else: `postgres_gated` may give it out."""
ALL_PAUSED = 3
"""Everything is paused: nothing is given out."""
CAREFUL = 4
"""What waits has to be checked, but has no limits: `postgres_steps` may give it out."""

# $1 queues, $2 most, $3 worker, $4 now or null, $5 job types or null, $6 id of the event
_CAREFUL_WAIT = "exists (select 1 from live_rest where place = 3 and queue = any($1::text[]))"
LIMITED = """exists (select 1 from pins p join live_rest l on l.run_id = p.run_id
                   where p.worker_id = $3 and l.place = 7 and l.queue = any($1::text[]))
        or exists (select 1 from queues where name = any($1::text[])
                   and (paused = 1 or concurrency is not null or rate_limit is not null or quiet <> '[]'))"""
"""Runs wait that name this worker, or a queue has settings."""
OTHERS_WAIT = f"{_CAREFUL_WAIT} or {LIMITED}"
GATES_OPEN = "exists (select 1 from gates where open = 1 and queue = any($1::text[]))"
_NAMED = ", ".join(f"'{name}'" for name in NAMED_TYPES)
TYPE_FITS = f"""(r.job_type is null or case when $5::text[] is null then r.job_type not in ({_NAMED})
               else r.job_type = any($5::text[]) end)"""
"""Whether the worker can carry a run out; calls and commands are for workers that name them."""
_PICKED = f"""
special as materialized (
    select case when {PAUSED} then {ALL_PAUSED} when {LIMITED} then 2
        when {GATES_OPEN} then case when {_CAREFUL_WAIT} then 2 else {GATED} end
        when {_CAREFUL_WAIT} then {CAREFUL} else 0 end as what
),
picked as materialized (
    select l.row from unnest($1::text[]) as wanted(queue)
    cross join lateral (
        select r.ctid as row, r.run_id, r.turn, r.run_at from live_ready r
        where r.queue = wanted.queue and (select what from special) = 0
          and {TYPE_FITS}
        order by r.turn, r.run_at, r.run_id limit $2 for update skip locked
    ) l
    order by l.turn, l.run_at, l.run_id limit $2
),
taken as (
    delete from live_ready r where r.ctid = any(array(select row from picked)) returning r.*
)"""
LEASED = """
claimed as materialized (
    select r.run_id, r.task_id, r.queue, r.turn, r.run_at, r.job_type, r.gate, r.attempt + 1 as attempt, r.retry_count,
        r.lost_count, greatest(r.token + 1, now.at) as token, now.at as claimed_at, now.at + t.held as expires_at,
        now.at + t.allowed as deadline_at, t.version
    from taken r cross join now cross join lateral (
        select t.version, t.worker_timeout_ms * 1000 as held, (t.timeout_seconds * 1000000)::bigint as allowed
        from tasks t where t.id = r.task_id offset 0
    ) t
),
leased as (
    insert into live_leased (run_id, place, task_id, queue, turn, run_at, at, job_type, gate, flags, min_version, attempt,
        retry_count, lost_count, token, worker_id, claimed_at, expires_at, deadline_at)
    select run_id, 4, task_id, queue, turn, run_at, least(expires_at, deadline_at), job_type, gate, 0, 0, attempt,
        retry_count, lost_count, token, $3, claimed_at, expires_at, deadline_at
    from claimed
),
started as (
    insert into events (id, at, type, data)
    select $6, (select at from now), 'run.started',
        '[[' || string_agg(task_id || ',' || run_id, ',"RUNNING"],[') || ',"RUNNING"]]'
    from claimed having count(*) > 0
)"""
_CLAIM = f"{_PICKED},{LEASED}"
LEASES = """
    select (select what from special), l.run_id, l.task_id, l.version, l.token, l.attempt, l.retry_count, l.lost_count,
        l.queue, -l.turn, r.origin, r.scheduled_time, l.claimed_at, l.expires_at, l.deadline_at, r."key", i.payload,
        i.overrides, r.trace_id, l.gate, r.idempotency_key, l.run_at{more}
    from (values (1)) one(row)
    left join (
        claimed l
        cross join lateral (
            select r.origin, r.scheduled_time, r."key", r.trace_id, r.idempotency_key
            from runs r where r.id = l.run_id offset 0
        ) r
        left join lateral (select i.payload, i.overrides from inputs i where i.run_id = l.run_id offset 0) i on true
    ) on true
    order by l.turn, l.run_at, l.run_id"""

CLAIM = f"with now as (select {NOW.format(now='$4')} as at),{_CLAIM}{LEASES.format(more='')}"

# from ${0}: run ids, tokens, then statuses, codes, results, messages, details, versions (each empty if all are alike),
# the id of the event, the worker, the status and version that all have in common, and the five columns of bodies.
# What stands in <> is put in by `settled_by`.
_SETTLED = """
reported as (
    select s.run_id, s.token, coalesce(s.status, ${10}) as status, s.code, s.result, s.message, s.details,
        coalesce(s.version, ${11}) as version, s.sent, s.asked, s.received, s.said, s.cut
    from unnest(${0}::bigint[], ${1}::bigint[], ${2}::text[], ${3}::int[], ${4}::text[], ${5}::text[], ${6}::text[],
        ${7}::int[], ${12}::text[], ${13}::text[], ${14}::text[], ${15}::text[], ${16}::int[])
        as s(run_id, token, status, code, result, message, details, version, sent, asked, received, said, cut)
),
ended as (
    delete from live_leased l using reported s
    where l.run_id = any(array[s.run_id]) and l.token + 0 = s.token and <ends>
      and (${9}::text is null or l.worker_id = ${9})
    returning s.*, l.task_id, l.attempt, l.lost_count, l.worker_id, l.claimed_at, l.gate<of_ended>
),
written as (
    update runs r set status = e.status,
        trouble = case when e.status in ('SUCCESS', 'CALLBACK_SUCCESS') then r.trouble else e.status end,
        start_time = e.claimed_at, end_time = now.at, updated_at = now.at, attempt = e.attempt,
        lost_count = e.lost_count, worker_id = e.worker_id, next_retry_time = null, response_code = e.code,
        result = e.result, error_message = e.message, error_details = e.details, task_version = e.version
    from ended e cross join now where r.id = any(array[e.run_id])
    returning e.task_id, r.queue, e.worker_id, e.status, greatest(0, now.at - e.claimed_at) as duration,
        case when e.attempt = 1 then greatest(0, e.claimed_at - case when r.origin = 'schedule' then r.run_at
             else greatest(r.run_at, r.created_at) end) end as delay,
        case when e.attempt = 1 then greatest(0, e.claimed_at - greatest(r.run_at, r.created_at)) end as waited<of_written>
),
counted_up as (
    insert into rollup_deltas (id, at, data)
    select ${8}, (select at from now), '[' || string_agg('[' || task_id || ',' || to_json(queue)
        || ',' || coalesce(to_json(worker_id)::text, 'null') || ',"' || status || '",<nested>,' || (select at from now)
        || ',' || runs || ',' || duration || ',' || coalesce(delay::text, 'null') || ',' || coalesce(waited::text, 'null')
        || ']', ',') || ']'
    from (select task_id, queue, worker_id, status, duration, delay, waited, count(*) as runs<by_nested>
          from written group by 1, 2, 3, 4, 5, 6, 7<by_nested>) alike
    having count(*) > 0 returning 1
),
kept as (
    insert into bodies (run_id, attempt, request_headers, request_body, response_headers, response_body, truncated)
    select run_id, attempt, sent, asked, received, said, cut from ended where cut is not null
),
told as (
    insert into events (id, at, type, data)
    select ${8} + row_number() over () - 1, (select at from now), kind, '[' || facts || ']' from (
        select case when status in ('SUCCESS', 'CALLBACK_SUCCESS') then 'run.succeeded'
                    when status = 'CANCELED' then 'run.canceled' else 'run.failed' end as kind,
            string_agg(<fact>, ',') as facts
        from ended group by 1) by_kind
    returning 1
)"""


def numbered(text: str, first: int) -> str:
    return re.sub(r"\$\{(\d+)\}", lambda match: f"${first + int(match[1])}", text)


NO_EDGE = """(not (select exists (select 1 from edges))
           or not exists (select 1 from edges e where e.upstream_id = l.task_id offset 0))"""
"""No task follows that of a lease: nothing else is to be written when it ends."""
PLAIN_FACT = """'[' || task_id || ',' || run_id || ',"' || status || '"]'"""
"""Of a run that has ended, for its event."""


def settled_by(ends: str, fact: str = PLAIN_FACT, of_ended: str = "", of_written: str = "", nested: str = "0") -> str:
    """The parts of a statement that settle leases for which `ends` holds. `of_ended` and `of_written` are further columns.

    `nested` is 1 for runs that the figures of their task do not count; where it is a column, `of_written` has it.
    """
    parts = {
        "ends": ends,
        "fact": fact,
        "of_ended": of_ended,
        "of_written": of_written,
        "nested": nested if nested == "0" else f"' || {nested} || '",
        "by_nested": "" if nested == "0" else f", {nested}",
    }
    return re.sub(r"<(\w+)>", lambda match: parts[match[1]], _SETTLED)


_SETTLE = settled_by(f"l.flags + 0 = 0 and l.gate is null and {NO_EDGE}")

_ARE_ALL_SETTLED = "(select count(*) from ended) = cardinality($7::bigint[])"
_SETTLED_IDS = f"""case when not ({_ARE_ALL_SETTLED})
            and l.run_id is not distinct from (select run_id from claimed order by turn, run_at, run_id limit 1)
        then (select array_agg(run_id) from ended) end"""
"""On the first row, and only where it is not known already: the list is as long as the batch."""

SETTLE = f"with now as (select {NOW.format(now='$18')} as at),{numbered(_SETTLE, 1)} select run_id from ended"
SETTLE_AND_CLAIM = f"with now as (select {NOW.format(now='$4')} as at),{numbered(_SETTLE, 7)},{_CLAIM}" + LEASES.format(
    more=f",\n        {_ARE_ALL_SETTLED}, {_SETTLED_IDS}"
)
EVENTS_PER_SETTLE = 3
"""Ids to keep ready for the events of a settle: one for each kind of ending."""

# $1 the first id, $2 tasks, $3 versions, $4 priorities or null, $5 payloads or null, $6 origin, $7 now or null, $8 event, $9 count,
# $10 traces or null, $11 idempotency key. One task for all is an array of one, and so is its version; null for all is an empty array
PUBLISH = f"""
with now as (select {NOW.format(now="$7")} as at),
given as materialized (
    select $1::bigint + v.place as id, t.id as task_id, t.version, t.queue, t.job_type,
        coalesce(v.priority, t.priority) as priority, v.payload, v.trace_id
    from rows from (
        generate_series(0, $9::bigint - 1), unnest($2::bigint[]), unnest($3::int[]), unnest($4::int[]), unnest($5::text[]),
        unnest($10::text[])
    ) as v(place, task_id, version, priority, payload, trace_id)
    cross join lateral (
        select t.id, t.version, t.queue, t.job_type, t.priority from tasks t
        where t.id = coalesce(v.task_id, ($2::bigint[])[1]) and t.version = coalesce(v.version, ($3::int[])[1]) offset 0
    ) t
),
fits as (select count(*) = $9::bigint as yes from given),
born as (
    insert into runs (id, task_id, task_version, origin, status, scheduled_time, run_at, created_at, updated_at, queue,
        priority, attempt, retry_count, lost_count, trace_id, idempotency_key)
    select g.id, g.task_id, g.version, $6, 'SCHEDULED', now.at, now.at, now.at, now.at, g.queue, g.priority, 0, 0, 0,
        g.trace_id, $11
    from given g cross join now where (select yes from fits)
),
waiting as (
    insert into live_ready (run_id, place, task_id, queue, turn, run_at, job_type, flags, min_version, attempt,
        retry_count, lost_count, token)
    select g.id, 1, g.task_id, g.queue, -g.priority, now.at, g.job_type, 0, 0, 0, 0, 0, 0
    from given g cross join now where (select yes from fits)
),
carried as (
    insert into inputs (run_id, payload)
    select g.id, g.payload from given g where g.payload is not null and (select yes from fits)
),
told as (
    insert into events (id, at, type, data)
    select $8, (select at from now), 'run.scheduled',
        '[[' || string_agg(task_id || ',' || id, ',"SCHEDULED"],[') || ',"SCHEDULED"]]'
    from given where (select yes from fits) having count(*) > 0
)
select yes from fits"""


# $1 id, $2 task, $3 version, $4 priority or null, $5 payload or null, $6 origin, $7 now or null, $8 event, $9 trace, $10 idempotency key
PUBLISH_ONE = f"""
with given as (
    select id as task_id, version, queue, job_type, coalesce($4::int, priority) as priority, {NOW.format(now="$7")} as at
    from tasks where id = $2 and version = $3
),
born as (
    insert into runs (id, task_id, task_version, origin, status, scheduled_time, run_at, created_at, updated_at, queue,
        priority, attempt, retry_count, lost_count, trace_id, idempotency_key)
    select $1, task_id, version, $6, 'SCHEDULED', at, at, at, at, queue, priority, 0, 0, 0, $9, $10 from given
),
waiting as (
    insert into live_ready (run_id, place, task_id, queue, turn, run_at, job_type, flags, min_version, attempt,
        retry_count, lost_count, token)
    select $1, 1, task_id, queue, -priority, at, job_type, 0, 0, 0, 0, 0, 0 from given
),
carried as (
    insert into inputs (run_id, payload) select $1, $5 from given where $5::text is not null
),
told as (
    insert into events (id, at, type, data)
    select $8, at, 'run.scheduled', '[[' || task_id || ',' || $1::bigint || ',"SCHEDULED"]]' from given
)
select count(*) = 1 from given"""
"""The same for one run: it takes half the time to plan, which is most of what a single publish costs."""


def settle_arguments(settlements: Sequence[Settlement], event: int) -> tuple[Any, ...]:
    first = settlements[0]
    statuses = [s.status for s in settlements if s.status is not first.status]
    versions = [s.task_version for s in settlements if s.task_version != first.task_version]
    return (
        [s.run_id for s in settlements],
        [s.token for s in settlements],
        [s.status for s in settlements] if statuses else [],
        _column([s.response_code for s in settlements]),
        _column([None if s.result is None else to_json(s.result) for s in settlements]),
        _column([s.error_message for s in settlements]),
        _column([None if s.error_details is None else to_json(s.error_details) for s in settlements]),
        [s.task_version for s in settlements] if versions else [],
        event,
        first.worker_id,
        first.status,
        first.task_version,
        *_body_columns(settlements),
    )


def _body_columns(settlements: Sequence[Settlement]) -> Sequence[list[Any]]:
    if all(s.bodies is None for s in settlements):
        return _NO_BODIES
    texts = [_NO_TEXTS if s.bodies is None else texts_of(s.bodies) for s in settlements]
    return [_column(list(column)) for column in zip(*texts, strict=True)]


_NO_TEXTS = (None, None, None, None, None)
_NO_BODIES: tuple[list[Any], ...] = ([], [], [], [], [])


def _column(values: list[Any]) -> list[Any]:
    """Nothing at all where every value is null: a missing element of an array reads as null, and costs nothing."""
    return [] if values.count(None) == len(values) else values


def claimed_from(rows: Sequence[Any], request: ClaimRequest, cache: KnownTasks) -> Claimed | None:
    """The leases of a claim; None if something special waits that only the long way can give out."""
    if rows[0][0] == ALL_PAUSED:
        return Claimed([], is_paused=True)
    if rows[0][0]:
        return None
    if rows[0][1] is None:
        return Claimed([])
    worker_id, leases = request.worker_id, []
    for row in rows:
        _, run_id, task_id, version, token, attempt, retry_count, lost_count, queue, priority = row[:10]
        origin, scheduled_time, claimed_at, expires_at, deadline_at = row[10:15]
        key, payload, overrides, trace_id, gate, idempotency_key, run_at = row[15:22]
        given = None if overrides is None else from_json(overrides)
        leases.append(
            Lease(
                run_id=run_id,
                task_id=task_id,
                task_version=version,
                worker_id=worker_id,
                token=token,
                attempt=attempt,
                retry_count=retry_count,
                lost_count=lost_count,
                queue=queue,
                priority=priority,
                origin=_ORIGINS[origin],
                scheduled_time=scheduled_time,
                claimed_at=claimed_at,
                expires_at=expires_at,
                deadline_at=deadline_at,
                run_at=run_at,
                key=key,
                payload=_own_payload(cache, task_id, version) if payload is None else decode(payload),
                overrides=given,
                step=None if given is None else spec_of(queue, given),
                trace_id=trace_id,
                idempotency_key=idempotency_key,
                plain=gate is None,
                counted=gate is not None,
            )
        )
    return Claimed(leases)


_ORIGINS = {str(origin): origin for origin in Origin}


def _own_payload(cache: KnownTasks, task_id: TaskId, version: int) -> Any:
    known = cache.get(task_id, version)
    return MISSING if known is None else known.task.spec.payload


class _Missing:
    """A payload that has to be fetched: its task is not known here yet."""


MISSING = _Missing()


def publish_arguments(
    first: int, publications: Sequence[Publication], tasks: dict[int, Known], event: int, now: Instant | None, key: str
) -> tuple[Any, ...]:
    """Of PUBLISH. The driver pays for each element of an array, and most of what is published together is of one task."""
    if len(tasks) == 1:
        ((task_id, known),) = tasks.items()
        task_ids, versions = [task_id], [known.task.version]
    else:
        task_ids = [publication.task_id for publication in publications]
        versions = [tasks[task_id].task.version for task_id in task_ids]
    return (
        first,
        task_ids,
        versions,
        _column([publication.priority for publication in publications]),
        _column([None if p.payload is msgspec.UNSET else to_json(p.payload) for p in publications]),
        publications[0].origin,
        now,
        event,
        len(publications),
        _column([publication.trace_id for publication in publications]),
        key,
    )


def publish_one_arguments(
    id_: int, publication: Publication, known: Known, event: int, now: Instant | None, key: str
) -> tuple[Any, ...]:
    """Of PUBLISH_ONE."""
    payload = None if publication.payload is msgspec.UNSET else to_json(publication.payload)
    given = id_, publication.task_id, known.task.version, publication.priority, payload
    return (*given, publication.origin, now, event, publication.trace_id, key)


def published(ids: Sequence[int]) -> list[PublishResult]:
    return [PublishResult(RunId(run_id), PublishOutcome.CREATED) for run_id in ids]


_A_MOMENT = 5_000
"""Microseconds until a gate that another claim holds is worth another look."""

_MOST = 30_000
"""Runs that are looked at and locked in one claim. Where long lines stand before many places, there would be more."""

# As postgres_hot's claim: $1 queues, $2 most, $3 worker, $4 now or null, $5 job types or null, $6 id of the event
_PICKED_AT_GATES = f"""
wanted as materialized (
    select task_id from gates
    where open = 1 and queue = any($1::text[]) and blocked_until <= (select at from begun)
    order by top, task_id limit greatest($2::bigint, 64)
),
held as materialized (
    select task_id, lim - used as free, waiting, top, rated from gates
    where task_id = any(array(select task_id from wanted)) and open + 0 = 1
    order by task_id for update skip locked
),
now as materialized (
    select coalesce($4::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as at
    from (select count(*) from held) as gates_are_held
),
heads as materialized (
    select h.*, g.top from held g
    cross join lateral (
        select r.ctid as row, r.run_id, r.turn, r.run_at, r.gate, r.flags, r.min_version, r.job_type from live_rest r
        where r.place = {int(Place.GATED)} and r.gate = g.task_id
        order by r.turn, r.run_at, r.run_id limit least(g.free, $2::bigint) for update skip locked
    ) h
    where g.rated = 0
),
special as materialized (
    select case when {PAUSED} then {ALL_PAUSED} when exists (select 1 from held where rated <> 0)
        or (select sum(least(free, waiting, $2::bigint)) from held) > {_MOST}
        or exists (select 1 from heads where flags & {STANDING} <> 0 or min_version > 0
                   or not {TYPE_FITS.replace("r.", "")})
        or exists (select 1 from heads group by gate having min(turn) > min(top))
        or {OTHERS_WAIT} then 2 else 0 end as what
),
ready as materialized (
    select l.* from unnest($1::text[]) as wanted(queue)
    cross join lateral (
        select r.ctid as row, r.run_id, r.turn, r.run_at from live_ready r
        where r.queue = wanted.queue and (select what from special) = 0
          and {TYPE_FITS}
        order by r.turn, r.run_at, r.run_id limit $2::bigint for update skip locked
    ) l
),
picked as materialized (
    select row, is_gated from (
        select row, turn, run_at, run_id, false as is_gated from ready
        union all
        select row, turn, run_at, run_id, true from heads where (select what from special) = 0
    ) both_kinds
    order by turn, run_at, run_id limit $2::bigint
),
let_in as (
    delete from live_rest r where r.ctid = any(array(select row from picked where is_gated)) returning r.*
),
called as (
    delete from live_ready r where r.ctid = any(array(select row from picked where not is_gated)) returning r.*
),
taken as (
    select * from let_in union all select * from called
),
counted as (
    update gates g set used = g.used + c.places, waiting = g.waiting - c.places
    from (select gate, count(*)::int as places from let_in group by gate) c
    where g.task_id = c.gate
)"""
_AGAIN = """,
        (select count(*) from wanted) > (select count(*) from held),
        (select min(blocked_until) from gates
         where open = 1 and queue = any($1::text[]) and blocked_until > (select at from now)),
        (select at from now)"""

CLAIM_AT_GATES = (
    f"with begun as (select {NOW.format(now='$4')} as at),{_PICKED_AT_GATES},{LEASED}{LEASES.format(more=_AGAIN)}"
)

# As postgres_hot's settle. The gates are changed in the order of their ids, as everybody does.
_FREED = """,
freed as (
    update gates g set used = g.used - c.places
    from (select gate, count(*)::int as places from ended where gate is not null group by gate order by gate) c
    where g.task_id = c.gate
)"""

_SETTLE_COUNTED = settled_by(f"l.flags + 0 = 0 and {NO_EDGE}")
SETTLE_AT_GATES = f"with now as (select {NOW.format(now='$18')} as at),{numbered(_SETTLE_COUNTED, 1)}{_FREED} select run_id from ended"


def claimed_at_gates(rows: Sequence[Any], request: ClaimRequest, cache: KnownTasks) -> Claimed | None:
    """The leases of a claim, and when to ask again; None if something waits that only the long way can give out."""
    claimed = claimed_from(rows, request, cache)
    if claimed is None or claimed.is_paused:
        return claimed
    is_contended, shut_until, now = rows[0][-3:]
    soon = now + _A_MOMENT if is_contended else None
    return Claimed(claimed.leases, min((Instant(at) for at in (soon, shut_until) if at is not None), default=None))
