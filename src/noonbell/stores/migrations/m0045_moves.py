"""Step 45: what a store needs to be moved to another database while its nodes work (`stores.moving`).

`installation` says how far a move has come, of the source and of the destination, and where a source has gone. `move_log` gets the key
of every row that changes in a source during the copy; `move_gate` has one row, which everything that writes there has to find;
`move_progress` is the destination's: how far each table is copied.

Older code never moves a store. It stops at one that has moved by the oldest code that its schema then asks for.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 29

_NUMBERED = {
    "sqlite": "integer primary key autoincrement",
    "postgres": "bigint generated always as identity primary key",
}
GATE = "one {small} not null primary key"
_LOG = """
        seq {numbered},
        name {key} not null,
        row_key {text} not null"""
_PROGRESS = """
        name {key} primary key,
        after_key {text},
        is_done {small} not null,
        copied {id} not null"""


def up(dialect: str) -> list[str]:
    types = {**_TYPES[dialect], "numbered": _NUMBERED.get(dialect, "bigint auto_increment primary key")}
    # Where a step is not one transaction, this may be met a second time.
    insert = "insert" if dialect in ("sqlite", "postgres") else "insert ignore"
    return [
        f"alter table installation add column move_phase {types['key']}",
        f"alter table installation add column move_token {types['key']}",
        f"alter table installation add column moved_to {types['text']}",
        f"create table move_log ({_LOG.format(**types)}){types['end']}",
        f"create table move_gate ({GATE.format(**types)}){types['end']}",
        f"create table move_progress ({_PROGRESS.format(**types)}){types['end']}",
        f"{insert} into move_gate (one) values (1)",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "drop table move_progress",
        "drop table move_gate",
        "drop table move_log",
        "alter table installation drop column moved_to",
        "alter table installation drop column move_token",
        "alter table installation drop column move_phase",
    ]
