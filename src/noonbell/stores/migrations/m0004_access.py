"""Step 4: tokens, kept as hashes, and the audit log, each entry chained to the one before it."""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "tokens": """
        id {id} primary key,
        name {key} not null,
        live_name {key} unique,
        role {key} not null,
        hash {key} not null unique,
        shown {key} not null,
        created_at {id} not null,
        created_by {key},
        expires_at {id},
        revoked_at {id},
        used_at {id}""",
    "audit": """
        id {id} primary key,
        at {id} not null,
        actor {key},
        action {key} not null,
        deed {long} not null,
        hash {key} not null""",
}

_INDEXES = ("create index audit_actor on audit (actor, id)",)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    tables = [f"create table {name} ({columns.format(**types)}){types['end']}" for name, columns in _TABLES.items()]
    insert = "insert" if dialect in ("sqlite", "postgres") else "insert ignore"
    return [*tables, *_INDEXES, f"{insert} into counters (name, value) values ('audit', 0), ('tokens', 0)"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["delete from counters where name in ('audit', 'tokens')", "drop table audit", "drop table tokens"]
