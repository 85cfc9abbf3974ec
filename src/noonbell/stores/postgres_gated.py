"""PostgreSQL's short way for runs behind a limit: one statement claims from open gates, one settles what came from there.

It serves gates without a rate and runs of which nothing else hangs on their end; where there is more, it says so and
changes nothing, and the store takes the long way. READY runs are claimed along with them, in the order of both.

Whoever takes from a gate holds its row. The runs behind it are seen as they were when the statement began, which may be
before the row was had: one that somebody else has taken since is gone when it is to be locked, and is passed over. So a
claim may take too few, never too many, and the gate stays open for the next.

The clock is read when the gates are held: no run starts, by the store's clock, before the one whose place it takes ended.
Settling frees places and claiming fills them, and no statement may change a row twice: they are two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.stores import postgres_hot as hot
from noonbell.stores.sql.place import STANDING, Place
from noonbell.stores.sql.rows import TaskCache

_A_MOMENT = 5_000
"""Microseconds until a gate that another claim holds is worth another look."""

_MOST = 30_000
"""Runs that are looked at and locked in one claim. Where long lines stand before many places, there would be more."""

# As postgres_hot's claim: $1 queues, $2 most, $3 worker, $4 now or null, $5 job types or null, $6 id of the event
_PICKED = f"""
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
    select case when exists (select 1 from held where rated <> 0)
        or (select sum(least(free, waiting, $2::bigint)) from held) > {_MOST}
        or exists (select 1 from heads where flags & {STANDING} <> 0 or min_version > 0
                   or not ($5::text[] is null or job_type is null or job_type = any($5::text[])))
        or exists (select 1 from heads group by gate having min(turn) > min(top))
        or {hot.OTHERS_WAIT} then 2 else 0 end as what
),
ready as materialized (
    select l.* from unnest($1::text[]) as wanted(queue)
    cross join lateral (
        select r.ctid as row, r.run_id, r.turn, r.run_at from live_ready r
        where r.queue = wanted.queue and (select what from special) = 0
          and ($5::text[] is null or r.job_type is null or r.job_type = any($5::text[]))
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

CLAIM = (
    f"with begun as (select {hot.NOW.format(now='$4')} as at),{_PICKED},{hot.LEASED}{hot.LEASES.format(more=_AGAIN)}"
)

# As postgres_hot's settle. The gates are changed in the order of their ids, as everybody does.
_FREED = """,
freed as (
    update gates g set used = g.used - c.places
    from (select gate, count(*)::int as places from ended where gate is not null group by gate order by gate) c
    where g.task_id = c.gate
)"""

SETTLE = (
    f"with now as (select {hot.NOW.format(now='$18')} as at),{hot.numbered(hot.SETTLED, 1)}{_FREED}"
    " select run_id from ended"
)


def claimed_from(rows: Sequence[Any], request: ClaimRequest, cache: TaskCache) -> Claimed | None:
    """The leases of a claim, and when to ask again; None if something waits that only the long way can give out."""
    claimed = hot.claimed_from(rows, request, cache)
    if claimed is None:
        return None
    is_contended, shut_until, now = rows[0][-3:]
    soon = now + _A_MOMENT if is_contended else None
    return Claimed(claimed.leases, min((Instant(at) for at in (soon, shut_until) if at is not None), default=None))
