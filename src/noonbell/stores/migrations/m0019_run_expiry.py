"""Step 19: runs that expire.

`runs.expires_at` is when a run that has not started by then is skipped, for those who read it. `expiries` has the runs for which that
may still happen: a claim deletes the row. So the sweep looks at what has expired, and at nothing else.

Code from before this step would start a run that has expired. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    columns = "run_id {id} primary key, at {id} not null".format(**types)
    return [
        f"create table expiries ({columns}){types['end']}",
        "create index expiries_at on expiries (at)",
        f"alter table tasks add column expires_in_seconds {types['int']}",
        f"alter table runs add column expires_at {types['id']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "alter table runs drop column expires_at",
        "alter table tasks drop column expires_in_seconds",
        "drop table expiries",
    ]
