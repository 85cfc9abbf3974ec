"""Step 28: quiet hours, as JSON, and over how many seconds what they held is spread, of tasks and of queues.

Code from before this step would start what is to be held. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        statement
        for table in ("tasks", "queues")
        for statement in (
            f"alter table {table} add column quiet {types['long']}",
            f"alter table {table} add column spread_seconds {types['int']} not null default 0",
        )
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        f"alter table {table} drop column {column}"
        for table in ("queues", "tasks")
        for column in ("spread_seconds", "quiet")
    ]
