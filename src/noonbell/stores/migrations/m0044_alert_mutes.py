"""Step 44: alerts that are muted for a while, and alerts that were acknowledged.

A row of `alert_acks` stands beside one of `alert_states` and goes with it. Code from before this step sends what is muted, and leaves
rows of `alert_acks` behind, which would silence a later alert about the same subject. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_MUTES = """
        id {id} primary key,
        until {id} not null,
        spec {long} not null"""
_ACKS = """
        rule {key} not null,
        subject {key} not null,
        at {id} not null,
        by_whom {key},
        note {text} not null,
        primary key (rule, subject)"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table alert_mutes ({_MUTES.format(**types)}){types['end']}",
        "create index alert_mutes_until on alert_mutes (until)",
        f"create table alert_acks ({_ACKS.format(**types)}){types['end']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table alert_acks", "drop table alert_mutes"]
