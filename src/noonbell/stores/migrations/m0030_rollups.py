"""Step 30: roll-ups. How many runs ended in each minute, hour and day, how, and how long they took and waited.

`rollup_deltas` gets a row from each transaction that ends runs: what they add, not yet added. `rollups` has the sums, of all runs
together, of each task, queue and worker, for each minute, hour and day (`seconds`). The figures of a store are both tables together.
`rollup_state` has one row. Whoever adds deltas to the sums holds it; nobody else does. It says how far a count from history has
come: a store that has runs when this step is taken begins one.

Code from before this step would end runs that nobody counts. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "rollup_deltas": """
        id {id} primary key,
        at {id} not null,
        data {long} not null""",
    "rollups": """
        id {id} primary key,
        kind {key} not null,
        name {key} not null,
        seconds {int} not null,
        at {id} not null,
        runs {id} not null,
        data {long} not null""",
    "rollup_state": """
        one {small} primary key,
        phase {small} not null,
        since {id} not null,
        until {id},
        position {id} not null,
        cleaned_to {id} not null""",
}
_INDEXES = (
    "create unique index rollups_of on rollups (kind, name, seconds, at)",
    "create index rollups_at on rollups (seconds, at)",
)
_FIRST = "select 1, case when exists (select 1 from runs) then 1 else 0 end, 0, null, 0, 0"


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    # Where a step is not one transaction, this may be met a second time.
    insert = "insert" if dialect in ("sqlite", "postgres") else "insert ignore"
    return [
        *(f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()),
        *_INDEXES,
        f"{insert} into rollup_state (one, phase, since, until, position, cleaned_to) {_FIRST}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]
