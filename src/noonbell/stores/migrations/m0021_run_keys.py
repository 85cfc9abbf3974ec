"""Step 21: limits per key. A task says which field of the payload is the key, and how many runs of one key may be under way.

`run_keys` has a row for each key of a task that has an active run: how many of its runs may be claimed or are under way
(`used`), how many it holds back (`waiting`), and how many are active at all (`active`; the row goes with the last of them).
`keyed_runs` has a row for each active run with a key: its order in the line of its key, and whether it is idle (0), held
back (1) or let in (2). Runs without a key have neither, and no index of theirs has changed.

Code from before this step would end runs without letting the next one of their key in. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "run_keys": """
        id {id} primary key,
        task_id {id} not null,
        limit_key {key} not null,
        lim {int} not null,
        used {int} not null,
        waiting {int} not null,
        active {int} not null,
        open {small} generated always as (case when waiting > 0 and used < lim then 1 else 0 end) stored
        """,
    "keyed_runs": """
        run_id {id} primary key,
        key_id {id} not null,
        state {small} not null,
        turn {int} not null,
        run_at {id} not null""",
}
_INDEXES = (
    "create unique index run_keys_key on run_keys (task_id, limit_key)",
    "create index run_keys_waiting on run_keys (task_id, waiting)",
    "create index keyed_runs_line on keyed_runs (key_id, state, turn, run_at, run_id)",
)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    is_partial = dialect in ("sqlite", "postgres")
    return [
        f"alter table tasks add column concurrency_key {types['key']}",
        f"alter table tasks add column max_per_key {types['int']}",
        *(f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()),
        *_INDEXES,
        f"create index run_keys_open on run_keys (open, id){' where open = 1' if is_partial else ''}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        *(f"drop table {table}" for table in reversed(_TABLES)),
        "alter table tasks drop column max_per_key",
        "alter table tasks drop column concurrency_key",
    ]
