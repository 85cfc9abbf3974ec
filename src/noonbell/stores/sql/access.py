"""Tokens, the audit log, and secrets that are sealed again with another key.

The counter `audit` is locked while an entry is written: entries follow each other without a gap. Sealing again writes the
secret fields alone: no version, cursor or time moves, and no event is written. Its update names the row as it was read; a
row that changed meanwhile is left to the next pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import AlreadyExists, NotFound, Sentence
from noonbell.model.access import AuditAction, AuditEnd, AuditEntry, Head, Role, Token, chained
from noonbell.model.target_kind import MESSAGE_FIELDS
from noonbell.ports import Reseal, Sign, unsigned
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.reading import like
from noonbell.stores.sql.rows import Record, from_json, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertMany,
    NewNumbers,
    Now,
    Row,
    Work,
    insert,
    matching,
    update,
)

_TOKEN = Record(Token)
_SELECT = f"select {_TOKEN.select()} from tokens"
_BOUNDS = ("queues", "labels", "job_types")
"""Null where the token is for all."""
_USED = 60 * SECOND
_ENTRY = Record(AuditEntry)
_NOTHING = AuditAction(actor=None, action="")


def create_token(
    name: str,
    role: Role,
    hashed: str,
    *,
    shown: str,
    by: str | None = None,
    seconds: float | None = None,
    queues: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    job_types: Sequence[str] = (),
) -> Work[Token]:
    taken = yield Fetch("select 1 from tokens where live_name = :name", {"name": name})
    if taken:
        raise AlreadyExists(
            Sentence("a token named {name} already exists; revoke it first, or choose another name", name=repr(name))
        )
    now = yield Now()
    (number,) = yield NewNumbers("tokens", 1)
    token = Token(
        id=number,
        name=name,
        role=role,
        shown=shown,
        queues=tuple(queues),
        labels=dict(labels or {}),
        job_types=tuple(job_types),
        created_at=now,
        created_by=by,
        expires_at=None if seconds is None else Instant(now + round(seconds * SECOND)),
    )
    row = dict(zip(_TOKEN.columns, _TOKEN.row(token), strict=True)) | {"live_name": name, "hash": hashed}
    row = {name: value for name, value in row.items() if name not in _BOUNDS or getattr(token, name)}
    yield insert("tokens", **row)
    return token


def tokens() -> Work[list[Token]]:
    rows = yield Fetch(f"{_SELECT} order by id")
    return [_TOKEN.read(row) for row in rows]


def token_of(hashed: str) -> Work[Token | None]:
    rows = yield Fetch(f"{_SELECT} where hash = :hash", {"hash": hashed})
    return _TOKEN.read(rows[0]) if rows else None


def note_token_use(token_id: int) -> Work[None]:
    now = yield Now()
    yield Execute(
        "update tokens set used_at = :now where id = :id and (used_at is null or used_at < :before)",
        {"now": now, "id": token_id, "before": now - _USED},
    )


def revoke_token(q: Dialect, name: str) -> Work[Token]:
    rows = yield Fetch(f"{_SELECT} where live_name = :name{q.lock}", {"name": name})
    if not rows:
        raise NotFound(Sentence("there is no active token named {name}", name=repr(name)))
    now = yield Now()
    yield update("tokens", {"id": rows[0][0]}, revoked_at=now, live_name=None)
    return msgspec.structs.replace(_TOKEN.read(rows[0]), revoked_at=now)


def write_audit(q: Dialect, deeds: Sequence[AuditAction], sign: Sign = unsigned) -> Work[list[AuditEntry]]:
    last = yield Fetch(f"select value from counters where name = 'audit'{q.lock}")
    number = int(last[0][0])
    rows = yield Fetch("select hash from audit where id = :id", {"id": number})
    before = Head(number, rows[0][0] if rows else "")
    entries = audit_entries_after(before, (yield Now()), deeds, sign)
    yield insert_audit(entries)
    yield update("counters", {"name": "audit"}, value=entries[-1].id if entries else number)
    return entries


def audit_entries_after(before: Head, now: Instant, deeds: Sequence[AuditAction], sign: Sign) -> list[AuditEntry]:
    number, hashed = before
    entries: list[AuditEntry] = []
    for deed in deeds:
        number += 1
        hashed = chained(hashed, number, now, deed)
        entries.append(AuditEntry(id=number, at=now, deed=deed, hash=hashed, signature=sign(hashed)))
    return entries


def insert_audit(entries: Sequence[AuditEntry]) -> InsertMany:
    rows = [(*_ENTRY.row(entry), entry.deed.actor, entry.deed.action) for entry in entries]
    return InsertMany("audit", (*_ENTRY.columns, "actor", "action"), rows)


def audit_log(
    q: Dialect,
    before: int | None = None,
    limit: int = 100,
    *,
    actor: str | None = None,
    actions: Collection[str] = (),
    about: Collection[str] = (),
    text: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Work[list[AuditEntry]]:
    which, params = matching(
        before=("id < :before", before),
        actor=("actor = :actor", actor),
        since=("at >= :since", since),
        until=("at <= :until", until),
        actions=(q.names("action", "actions"), q.pack(sorted(actions)) if actions else None),
        text=("lower(deed) like :text escape '!'", None if text is None else f"%{_written(text)}%"),
    )
    ways = []
    for place, path in enumerate(about):
        # The subject as it stands in the record: the path to its end, or on from there.
        for name, end in ((f"whole_{place}", '"'), (f"within_{place}", "/")):
            ways.append(f"lower(deed) like :{name} escape '!'")
            params[name] = f'%"subject":"%{_written(path)}{end}%'
    if ways:
        which += f" and ({' or '.join(ways)})"
    sql = f"select {_ENTRY.select()} from audit where {which} order by id desc limit :limit"
    rows = yield Fetch(sql, {**params, "limit": limit})
    return [_ENTRY.read(row) for row in rows]


def _written(text: str) -> str:
    """The text as it stands in JSON, for `like`."""
    return like(to_json(text)[1:-1])[1:-1]


def audit_entries(since: int, limit: int) -> Work[list[AuditEntry]]:
    rows = yield Fetch(
        f"select {_ENTRY.select()}, actor, action from audit where id >= :since order by id limit :limit",
        {"since": since, "limit": limit},
    )
    return [_as_it_lies(row) for row in rows]


def _as_it_lies(row: Row) -> AuditEntry:
    """Where it cannot be read, or the columns that filters look at say something else, a deed that nothing was written of."""
    (number, at, deed, hashed, signature), (actor, action) = row[:5], row[5:]
    try:
        decoded = msgspec.convert(from_json(deed), AuditAction)
    except (msgspec.DecodeError, msgspec.ValidationError):
        decoded = _NOTHING
    if (decoded.actor, decoded.action) != (actor, action):
        decoded = _NOTHING
    return AuditEntry(id=number, at=Instant(at), deed=decoded, hash=hashed, signature=signature)


def audit_end() -> Work[AuditEnd]:
    # In one statement, which sees one moment: an entry and its number are written together.
    rows = yield Fetch(
        f"select c.value, {_ENTRY.select('a.')}, a.actor, a.action from counters c"
        " left join audit a on a.id = (select max(id) from audit) where c.name = 'audit'"
    )
    counted, *newest = rows[0]
    return AuditEnd(None if newest[0] is None else _as_it_lies(tuple(newest)), int(counted))


After = tuple[int, int]
"""How far a walk has come: task and version."""


_CALL_FIELDS = ("grpc", *MESSAGE_FIELDS)
"""Objects that say what a task calls, with secrets among their fields."""


def reseal_tasks(after: int, limit: int, reseal: Reseal) -> Work[tuple[int | None, int]]:
    columns = ("headers", "steps", "env", *_CALL_FIELDS)
    rows = yield Fetch(
        f"select id, version, secret, {', '.join(columns)} from tasks where id > :after order by id limit :limit",
        {"after": after, "limit": limit},
    )
    written = 0
    for task_id, version, secret, *texts in rows:
        named = zip(columns, texts, strict=True)
        there = {name: from_json(text) for name, text in named if text not in (None, "{}", "[]")}
        found = reseal({"secret": secret, **there})
        if found != {"secret": secret, **there}:
            sealed = {name: to_json(found[name]) for name in there}
            written += yield update("tasks", {"id": task_id, "version": version}, secret=found["secret"], **sealed)
    return (rows[-1][0] if len(rows) == limit else None), written


def reseal_versions(after: After, limit: int, reseal: Reseal) -> Work[tuple[After | None, int]]:
    rows = yield Fetch(
        "select task_id, version, spec from task_versions"
        " where task_id > :task or (task_id = :task and version > :version) order by task_id, version limit :limit",
        {"task": after[0], "version": after[1], "limit": limit},
    )
    written = 0
    for task_id, version, text in rows:
        spec = from_json(text)
        found = reseal(_secrets_of(spec))
        if {**spec, **found} != spec:
            here = {"task_id": task_id, "version": version}
            written += yield update("task_versions", here, spec=to_json({**spec, **found}))
    return ((rows[-1][0], rows[-1][1]) if len(rows) == limit else None), written


def reseal_channels(reseal: Reseal) -> Work[int]:
    return _reseal_specs("alert_channels", reseal)


def reseal_subscriptions(reseal: Reseal) -> Work[int]:
    return _reseal_specs("subscriptions", reseal)


def _reseal_specs(table: str, reseal: Reseal) -> Work[int]:
    rows = yield Fetch(f"select name, updated_at, spec from {table} order by name")
    written = 0
    for name, updated_at, text in rows:
        spec = from_json(text)
        found = {**spec, **reseal(_secrets_of(spec))}
        if found != spec:
            written += yield update(table, {"name": name, "updated_at": updated_at}, spec=to_json(found))
    return written


def _secrets_of(spec: dict[str, Any]) -> dict[str, Any]:
    named = ("headers", "env", "secret", "url", "steps", *_CALL_FIELDS)
    return {name: spec[name] for name in named if name in spec}
