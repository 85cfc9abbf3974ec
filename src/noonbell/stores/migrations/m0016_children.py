"""Step 16: children of jobs. Which run a job spawned at which position; how long its parked attempts executed."""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "children": """
        run_id {id} not null,
        position {int} not null,
        child_id {id} not null,
        retry_count {int} not null,
        primary key (run_id, position)""",
    "gathers": """
        run_id {id} primary key,
        executed {id} not null""",
}


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]
