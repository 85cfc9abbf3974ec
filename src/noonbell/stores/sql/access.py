"""Tokens and the audit log. The counter `audit` is held while an entry is written: one after the other, without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, NotFound
from noonbell.model.access import AuditEntry, Deed, Role, Token, chained
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.paging import like
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, Row, Work

_COLUMNS = (
    *("id", "name", "role", "shown", "created_at", "created_by", "expires_at", "revoked_at", "used_at", "queues"),
)
_SELECT = f"select {', '.join(_COLUMNS)} from tokens"
_USED = 60 * SECOND


def create(
    q: Dialect,
    name: str,
    role: Role,
    hashed: str,
    shown: str,
    by: str | None,
    seconds: float | None,
    queues: tuple[str, ...],
) -> Work[Token]:
    taken = yield Fetch("select 1 from tokens where live_name = :name", {"name": name})
    if taken:
        raise AlreadyExists(f"there is a token named {name!r} already; revoke it first, or choose another name")
    now = yield Now()
    number = yield from _next(q, "tokens")
    expires = None if seconds is None else Instant(now + round(seconds * SECOND))
    columns = (*_COLUMNS, "live_name", "hash")
    row = (number, name, role, shown, now, by, expires, None, None, to_json(list(queues)) if queues else None)
    yield InsertMany("tokens", columns, [(*row, name, hashed)])
    return Token(
        id=number,
        name=name,
        role=role,
        shown=shown,
        queues=queues,
        created_at=now,
        created_by=by,
        expires_at=expires,
    )


def all_tokens() -> Work[list[Token]]:
    rows = yield Fetch(f"{_SELECT} order by id")
    return [_token(row) for row in rows]


def by_hash(hashed: str) -> Work[Token | None]:
    rows = yield Fetch(f"{_SELECT} where hash = :hash", {"hash": hashed})
    return _token(rows[0]) if rows else None


def used(token_id: int) -> Work[None]:
    now = yield Now()
    yield Execute(
        "update tokens set used_at = :now where id = :id and (used_at is null or used_at < :before)",
        {"now": now, "id": token_id, "before": now - _USED},
    )


def revoke(q: Dialect, name: str) -> Work[Token]:
    rows = yield Fetch(f"{_SELECT} where live_name = :name{q.lock}", {"name": name})
    if not rows:
        raise NotFound(f"there is no token named {name!r} that is not revoked")
    now = yield Now()
    yield Execute(
        "update tokens set revoked_at = :now, live_name = null where id = :id", {"now": now, "id": rows[0][0]}
    )
    return msgspec.structs.replace(_token(rows[0]), revoked_at=now)


def write(q: Dialect, deeds: Sequence[Deed]) -> Work[list[AuditEntry]]:
    last = yield Fetch(f"select value from counters where name = 'audit'{q.lock}")
    number = int(last[0][0])
    rows = yield Fetch("select hash from audit where id = :id", {"id": number})
    before = rows[0][0] if rows else ""
    now = yield Now()
    entries: list[AuditEntry] = []
    for deed in deeds:
        number += 1
        before = chained(before, number, now, deed)
        entries.append(AuditEntry(id=number, at=now, deed=deed, hash=before))
    yield InsertMany(
        "audit",
        ("id", "at", "actor", "action", "deed", "hash"),
        [(e.id, e.at, e.deed.actor, e.deed.action, to_json(msgspec.to_builtins(e.deed)), e.hash) for e in entries],
    )
    yield Execute("update counters set value = :value where name = 'audit'", {"value": number})
    return entries


class Which(NamedTuple):
    """The entries that are asked for; see `AccessStore.audit_log`."""

    actor: str | None = None
    actions: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    text: str | None = None
    since: Instant | None = None
    until: Instant | None = None


def page(q: Dialect, before: int | None, limit: int, which: Which) -> Work[list[AuditEntry]]:
    params: dict[str, Any] = {"limit": limit}
    conditions = ["1 = 1"]
    for name, value, condition in (
        ("before", before, "id < :before"),
        ("actor", which.actor, "actor = :actor"),
        ("since", which.since, "at >= :since"),
        ("until", which.until, "at <= :until"),
    ):
        if value is not None:
            conditions.append(condition)
            params[name] = value
    if which.actions:
        conditions.append(q.names("action", "actions"))
        params["actions"] = q.pack(sorted(which.actions))
    ways = []
    for place, path in enumerate(which.about):
        # The subject as it stands in the record: the path to its end, or on from there.
        for name, end in ((f"whole_{place}", '"'), (f"within_{place}", "/")):
            ways.append(f"lower(deed) like :{name} escape '!'")
            params[name] = f'%"subject":"%{_written(path)}{end}%'
    if ways:
        conditions.append(f"({' or '.join(ways)})")
    if which.text is not None:
        conditions.append("lower(deed) like :text escape '!'")
        params["text"] = f"%{_written(which.text)}%"
    rows = yield Fetch(
        f"select id, at, deed, hash from audit where {' and '.join(conditions)} order by id desc limit :limit", params
    )
    return [_entry(row) for row in rows]


def _written(text: str) -> str:
    """As it stands in JSON, for `like`."""
    return like(to_json(text)[1:-1])[1:-1]


def broken(since: int, limit: int) -> Work[tuple[int | None, int]]:
    """The first entry from `since` on that does not follow from the one before it; and how far it was looked."""
    rows = yield Fetch(
        "select id, at, deed, hash from audit where id >= :since order by id limit :limit",
        {"since": max(0, since - 1), "limit": limit + 1},
    )
    before, number = "", 0
    for row in rows:
        entry = _entry(row)
        if entry.id < since:
            before, number = entry.hash, entry.id
            continue
        if entry.id != max(number, since - 1) + 1 or entry.hash != chained(before, entry.id, entry.at, entry.deed):
            return entry.id, entry.id
        before, number = entry.hash, entry.id
    return None, number


def _next(q: Dialect, counter: str) -> Work[int]:
    rows = yield Fetch(f"select value from counters where name = :name{q.lock}", {"name": counter})
    number = int(rows[0][0]) + 1
    yield Execute("update counters set value = :value where name = :name", {"value": number, "name": counter})
    return number


def _token(row: Row) -> Token:
    fields = dict(zip(_COLUMNS, row, strict=True))
    fields["role"] = Role(fields["role"])
    fields["queues"] = tuple(from_json(fields["queues"]) if fields["queues"] else ())
    return Token(**fields)


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(id=row[0], at=Instant(row[1]), deed=msgspec.convert(from_json(row[2]), Deed), hash=row[3])
