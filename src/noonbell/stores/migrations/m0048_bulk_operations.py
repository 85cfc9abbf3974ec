"""Step 48: bulk operations, which the nodes carry out batch by batch.

A row of `bulk_operations` says what is to be done (`spec`: the kind's filter as it was read at the start, or a list of ids), how far it
has come (`place` and the counts, moved on in the transaction that makes the changes of a batch), and which node is at it: a lease with a
token. `bulk_items` has those that were skipped, with the reason, and of operations that can be undone those that were changed.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 46
"""Earlier code starts no operation and carries none out: they stand until a node that does is there."""

_OPERATIONS = """
        id {id} primary key,
        kind {key} not null,
        status {key} not null,
        spec {long} not null,
        created_at {id} not null,
        created_by {key},
        ended_at {id},
        canceled_by {key},
        total {id} not null,
        total_is_least {small} not null,
        done {id} not null,
        skipped {id} not null,
        reasons {text} not null,
        error {long},
        place {text},
        holder {key} not null,
        token {id} not null,
        expires_at {id} not null"""
_ITEMS = """
        operation_id {id} not null,
        item_id {id} not null,
        name {key} not null,
        why {key} not null,
        primary key (operation_id, item_id)"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table bulk_operations ({_OPERATIONS.format(**types)}){types['end']}",
        "create index bulk_operations_status on bulk_operations (status, id)",
        f"create table bulk_items ({_ITEMS.format(**types)}){types['end']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table bulk_items", "drop table bulk_operations"]
