"""Step 50: samples of how many runs wait in each queue, by minute, hour and day.

A row with an empty name says that all queues were looked at in that minute, and how often in that hour and day (`samples`). A queue has a row only
where something waited in it: without one it was empty, if there is the row with the empty name, and nothing is known of it if there is none.

Code from before this step takes no samples: nothing is known of the minutes in which only such nodes live.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 46

_TABLE = """
        name {key} not null,
        seconds {int} not null,
        at {id} not null,
        samples {id} not null,
        waiting {id} not null,
        most {id} not null,
        longest_wait {id} not null,
        primary key (name, seconds, at)"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table queue_depths ({_TABLE.format(**types)}){types['end']}",
        "create index queue_depths_at on queue_depths (seconds, at)",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table queue_depths"]
