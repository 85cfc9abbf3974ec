"""Step 38: by what nodes notice that the store went back to an earlier state, and when it did.

`pulses` has a row for each node that plans: `at` grows with each second. `store_returns` has the stretch of which nothing is known: from
the last pulse that the store still has to the moment when a node missed those after it. Older code writes no pulses and needs none.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 29

_PULSES = """
        node {key} not null primary key,
        at {id} not null"""
_RETURNS = """
        id {id} primary key,
        since {id} not null,
        until {id} not null,
        node {key} not null,
        skipped {id} not null"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table pulses ({_PULSES.format(**types)}){types['end']}",
        "create index pulses_at on pulses (at)",
        f"create table store_returns ({_RETURNS.format(**types)}){types['end']}",
        "create index store_returns_until on store_returns (until)",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table store_returns", "drop table pulses"]
