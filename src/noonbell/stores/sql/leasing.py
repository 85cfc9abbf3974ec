"""Leases as a worker gets them, and the callback tokens that go with some."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

from noonbell.clock import Instant
from noonbell.model.run import Lease, Origin, RunId
from noonbell.model.task import TaskId
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.rows import Known, from_json
from noonbell.stores.sql.statement import Fetch, InsertMany, Work

_SELECT = (
    'select r.id, r.origin, r.scheduled_time, r.priority, r."key", r.shard_index, r.shard_total, r.trace_id,'
    " r.idempotency_key, i.payload, i.overrides from runs r left join inputs i on i.run_id = r.id"
)


def token_hash(token: str) -> str:
    """What the store keeps of a callback token. 256 random bits need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_callback_tokens(rows: Sequence[Live]) -> Work[dict[int, str]]:
    """A fresh token for each attempt that will be answered by a callback; its hash is written with the claim.

    It says when it was made, in hexadecimal microseconds before the dot. Nobody can change that: the hash is of it all.
    """
    tokens = {row.run_id: f"{row.claimed_at or 0:x}.{secrets.token_urlsafe(32)}" for row in rows}
    if tokens:
        hashes = [(token_hash(token), run_id) for run_id, token in tokens.items()]
        yield InsertMany("callback_tokens", ("hash", "run_id"), hashes)
    return tokens


def made_at(token: str) -> Instant | None:
    """When a callback token that is known to be ours was made; None if it does not say."""
    moment, dot, _ = token.partition(".")
    try:
        return Instant(int(moment, 16)) if dot else None
    except ValueError:
        return None


def leases_of(
    q: Dialect, tasks: Mapping[int, Known], leased: Sequence[Live], tokens: Mapping[int, str]
) -> Work[list[Lease]]:
    """In the order of the rows."""
    rows = yield Fetch(f"{_SELECT} where {q.ids('r.id', 'ids')}", {"ids": q.pack([row.run_id for row in leased])})
    wide = {row[0]: row for row in rows}
    leases = []
    for live in leased:
        known = tasks[live.task_id]
        run_id, origin, scheduled_time, priority, key, index, total, trace_id, idempotency_key = wide[live.run_id][:9]
        payload, overrides = wide[live.run_id][9:]
        leases.append(
            Lease(
                run_id=RunId(run_id),
                task_id=TaskId(live.task_id),
                task_version=known.task.version,
                worker_id=live.worker_id or "",
                token=live.token,
                attempt=live.attempt,
                retry_count=live.retry_count,
                lost_count=live.lost_count,
                queue=live.queue,
                priority=priority,
                origin=Origin(origin),
                scheduled_time=Instant(scheduled_time),
                claimed_at=Instant(live.claimed_at or 0),
                expires_at=Instant(live.expires_at or 0),
                deadline_at=Instant(live.deadline_at or 0),
                key=key,
                payload=known.task.spec.payload if payload is None else from_json(payload),
                overrides=from_json(overrides),
                callback_token=tokens.get(run_id),
                parent_id=None if live.parent_id is None else RunId(live.parent_id),
                shard_index=index,
                shard_total=total,
                trace_id=trace_id,
                idempotency_key=idempotency_key,
                plain=live.gate is None and live.flags == 0,
                counted=live.gate is not None and live.flags == 0,
            )
        )
    return leases
