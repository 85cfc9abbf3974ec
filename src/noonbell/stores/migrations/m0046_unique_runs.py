"""Step 46: what is unique among all runs is kept apart from them, on PostgreSQL.

There the history of runs is in partitions (`stores.postgres_partitions`), and an index is unique within one partition only.
`run_slots` has a row for each run of a slot, `live_keys` one for each run that holds a key: written in the transaction that makes the
run, removed with the run or when the key is free. Runs from before this step have none: they are in the oldest partition, whose
own indexes are unique and stay.

Code from before this step would make runs without these rows. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.postgres_partitions import merge_all
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Work

_TABLES = {
    "run_slots": """
        task_id bigint not null,
        slot bigint not null,
        run_id bigint not null,
        primary key (task_id, slot)""",
    "live_keys": """
        task_id bigint not null,
        live_key text not null,
        run_id bigint not null,
        primary key (task_id, live_key)""",
}


def up(dialect: str) -> list[str]:
    return [f"create table {name} ({columns})" for name, columns in _TABLES.items()] if dialect == "postgres" else []


def down(dialect: str) -> list[str]:
    return [f"drop table {name}" for name in reversed(_TABLES)] if dialect == "postgres" else []


def before_down(q: Dialect) -> Work[None]:
    if q.name == "postgres":
        yield from merge_all(q)
