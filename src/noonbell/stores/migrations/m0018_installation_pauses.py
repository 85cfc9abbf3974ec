"""Step 18: one switch that stops every start.

`installation_pauses` has a row for each time that everything was paused. `standing` is 1 in the row of the pause that lasts, and
null in all others: the index over it lets one pause stand at a time, and every claim looks there.

Code from before this step would go on starting runs while everything is paused. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_COLUMNS = """
        id {id} primary key,
        standing {small} unique,
        since {id} not null,
        until {id},
        paused_by {key},
        resumed_by {key},
        reason {text} not null"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [f"create table installation_pauses ({_COLUMNS.format(**types)}){types['end']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table installation_pauses"]
