"""Step 14: tasks that run after other tasks.

`edges` has one row for each upstream of a task: which endings of its runs count (`outcome`), and the version of the task that
follows with which they were saved. `joins` has the state of each wait for upstreams, `join_runs` the runs that have arrived
for it. `due_at` is null where a join is over, so the index has the open ones alone. `unfollowed` has the runs whose end is
too much for one transaction: their followers up to `done_to` are written, the sweep does the rest.

`runs.root` is the slot or the run that a run goes back to, where that is not plain from the run itself. `upstream_run_ids` are the
upstream runs of a run that a join has made, as JSON.

Code from before this step would let runs end without looking for what follows them. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "edges": """
        upstream_id {id} not null,
        task_id {id} not null,
        outcome {key} not null,
        version {int} not null,
        saved_at {id} not null,
        primary key (upstream_id, task_id)""",
    "joins": """
        id {id} primary key,
        task_id {id} not null,
        root {key} not null,
        edge_version {int} not null,
        redrive {int} not null,
        state {key} not null,
        first_at {id} not null,
        due_at {id},
        scheduled_time {id} not null,
        run_id {id}""",
    "join_runs": """
        join_id {id} not null,
        upstream_id {id} not null,
        run_id {id} not null,
        status {key} not null,
        fills {small} not null,
        primary key (join_id, upstream_id)""",
    "unfollowed": """
        run_id {id} primary key,
        done_to {id} not null,
        replaced {small} not null,
        at {id} not null""",
}
_INDEXES = (
    "create index edges_task on edges (task_id)",
    "create unique index joins_root on joins (task_id, root, edge_version, redrive)",
    "create index joins_due on joins (due_at)",
    "create index joins_run on joins (run_id)",
)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    tables = [f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()]
    return [
        *tables,
        *_INDEXES,
        f"alter table tasks add column after {types['long']}",
        f"alter table runs add column root {types['key']}",
        f"alter table runs add column upstream_run_ids {types['long']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "alter table runs drop column upstream_run_ids",
        "alter table runs drop column root",
        "alter table tasks drop column after",
        *(f"drop table {table}" for table in reversed(_TABLES)),
    ]
