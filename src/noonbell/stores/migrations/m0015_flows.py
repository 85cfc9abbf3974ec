"""Step 15: flows. The steps of a task; which step and item a run carries out; the state of each run of a flow.

`flows` has a row for each run of a flow that has started, `flow_steps` one for each step of it. `flow_items` has what is left
to do of a `foreach`, a hundred items to a row, so that taking the next ones costs the same however many there are.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "flows": """
        run_id {id} primary key,
        version {int} not null,
        steps_open {int} not null,
        steps_failed {int} not null""",
    "flow_steps": """
        id {id} primary key,
        run_id {id} not null,
        step_id {key} not null,
        position {int} not null,
        status {key} not null,
        reason {key},
        message {long},
        needs_open {int} not null,
        needs_failed {int} not null,
        needs_skipped {int} not null,
        total {int} not null,
        succeeded {int} not null,
        failed {int} not null,
        next_item {int} not null,
        step_run_id {id},
        copied_from {id},
        started_at {id},
        ended_at {id}""",
    "flow_items": """
        run_id {id} not null,
        step_id {key} not null,
        first {int} not null,
        items {long} not null,
        primary key (run_id, step_id, first)""",
}


_INDEXES = {
    "sqlite": ("live_parents", "live"),
    "postgres": ("live_rest_parents", "live_rest"),
}
"""PARENT (6): runs of flows that have a deadline. MariaDB's index of `at` has every place."""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"alter table tasks add column steps {types['long']}",
        f"alter table runs add column step_id {types['key']}",
        f"alter table runs add column item_index {types['int']}",
        *(f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()),
        "create unique index flow_steps_of on flow_steps (run_id, step_id)",
        *(
            [f"create index {_INDEXES[dialect][0]} on {_INDEXES[dialect][1]} (at) where place = 6 and at is not null"]
            if dialect in _INDEXES
            else []
        ),
    ]


def down(dialect: str) -> list[str]:
    return [
        *([f"drop index {_INDEXES[dialect][0]}"] if dialect in _INDEXES else []),
        *(f"drop table {table}" for table in reversed(_TABLES)),
        "alter table runs drop column item_index",
        "alter table runs drop column step_id",
        "alter table tasks drop column steps",
    ]
