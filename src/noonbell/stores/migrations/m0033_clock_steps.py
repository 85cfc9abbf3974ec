"""Step 33: when the store's clock was set, by how much, and which node saw it.

`since` and `until` are what the clock showed before and after, the smaller one first; `step` is the difference in microseconds, below zero
where the clock went back. Older code notes no steps and needs none.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 29

_COLUMNS = """
        id {id} primary key,
        since {id} not null,
        until {id} not null,
        step {id} not null,
        node {key} not null"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table clock_steps ({_COLUMNS.format(**types)}){types['end']}",
        "create index clock_steps_until on clock_steps (until)",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table clock_steps"]
