"""Step 51: filters of a list that are saved under a name, for everyone.

Code from before this step neither reads nor writes them.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 46

_VIEWS = """
        room {key} not null,
        name {key} not null,
        query {text} not null,
        saved_by {key},
        saved_at {id} not null,
        primary key (room, name)"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [f"create table saved_views ({_VIEWS.format(**types)}){types['end']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table saved_views"]
