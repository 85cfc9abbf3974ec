"""Step 34: service levels.

`sla_watches` has the runs that may still break a level, with the deadlines that were theirs when they were made; `at` is when the sweep
looks at one next. `sla_breaches` has what was broken, or foreseen: one row for each run and level. `sla_ratios` has the tasks whose
`success_ratio` is broken now. `sla_defaults` has one row: the levels of labels, as the settings of the last server say.

Code from before this step would make runs that no sweep watches. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "sla_watches": """
        run_id {id} primary key,
        task_id {id} not null,
        at {id} not null,
        due_at {id} not null,
        start_by {id},
        finish_within {id},
        finish_by {id},
        on_breach {key} not null""",
    "sla_breaches": """
        id {id} primary key,
        task_id {id} not null,
        run_id {id},
        rule {key} not null,
        deadline {id} not null,
        foreseen_at {id},
        expected_at {id},
        usual_ms {id},
        breached_at {id},
        resolved_at {id}""",
    "sla_ratios": """
        task_id {id} primary key,
        breach_id {id} not null""",
    "sla_defaults": """
        one {small} primary key,
        data {long} not null""",
}
_INDEXES = (
    "create index sla_watches_at on sla_watches (at)",
    "create unique index sla_breaches_run on sla_breaches (run_id, rule)",
    "create index sla_breaches_task on sla_breaches (task_id, breached_at)",
    "create index sla_breaches_at on sla_breaches (deadline)",
)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        *(f"create table {table} ({columns.format(**types)}){types['end']}" for table, columns in _TABLES.items()),
        *_INDEXES,
        f"alter table tasks add column sla {types['text']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table tasks drop column sla", *(f"drop table {table}" for table in reversed(_TABLES))]
