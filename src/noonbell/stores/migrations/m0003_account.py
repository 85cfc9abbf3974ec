"""Step 3: what the account of past slots rests on, apart from runs and dropped ranges.

Tables of their own rather than columns: they are written rarely, and a step that was cut off passes over what is there.

version_marks   where the account of a task stood when a version of it began
skip_orders     who asked for slots to be skipped
cleaned         how many runs of slots retention has removed, and up to where
queue_pauses    when a queue was paused, by whom, and until when
outages         when a node could not reach the store
"""

from __future__ import annotations

_TYPES = {
    "sqlite": {"id": "integer", "key": "text", "end": ""},
    "postgres": {"id": "bigint", "key": "text", "end": ""},
    "mysql": {
        "id": "bigint",
        "key": "varchar(255)",
        "end": " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_0900_bin",
    },
}
_TYPES["mariadb"] = {**_TYPES["mysql"], "end": " engine=InnoDB default charset=utf8mb4 collate=utf8mb4_nopad_bin"}

_TABLES = {
    "version_marks": """
        task_id {id} not null,
        version {id} not null,
        accounted_to {id} not null,
        fired {id} not null,
        primary key (task_id, version)""",
    "skip_orders": """
        task_id {id} primary key,
        asked_by {key},
        at {id} not null""",
    "cleaned": """
        task_id {id} primary key,
        last {id} not null,
        count {id} not null""",
    "queue_pauses": """
        name {key} not null,
        since {id} not null,
        until {id},
        paused_by {key},
        primary key (name, since)""",
    "outages": """
        id {id} primary key,
        since {id} not null,
        until {id} not null,
        node {key} not null""",
}

_INDEXES = ("create index outages_until on outages (until)",)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    tables = [f"create table {table} ({body.format(**types)}){types['end']}" for table, body in _TABLES.items()]
    return [*tables, *_INDEXES]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]
