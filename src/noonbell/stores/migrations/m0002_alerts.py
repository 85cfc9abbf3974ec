"""Step 2: alerts, and who was noticed to be gone.

A rule and a channel are a name and what was said of them, as JSON: nothing asks for their fields but their reader. A
state is what a rule remembers of one subject, so that it alerts once. A delivery is one notice to one channel, with its
own attempts. A duty is work that one node does for all, held by a lease with a token.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "alert_rules": """
        name {key} primary key,
        managed_by {key} not null,
        created_at {id} not null,
        updated_at {id} not null,
        spec {long} not null""",
    "alert_channels": """
        name {key} primary key,
        managed_by {key} not null,
        created_at {id} not null,
        updated_at {id} not null,
        spec {long} not null""",
    "alert_states": """
        rule {key} not null,
        subject {key} not null,
        state {long} not null,
        primary key (rule, subject)""",
    "alert_deliveries": """
        id {id} primary key,
        channel {key} not null,
        rule {key} not null,
        what {key} not null,
        subject {key} not null,
        status {key} not null,
        attempts {int} not null,
        next_at {id},
        created_at {id} not null,
        ended_at {id},
        response_code {int},
        error {long},
        notice {long} not null""",
    "duties": """
        name {key} primary key,
        holder {key} not null,
        token {id} not null,
        expires_at {id} not null,
        position {id} not null""",
    "worker_losses": """
        worker_id {key} primary key,
        incarnation {key} not null,
        at {id} not null""",
}

_INDEXES = ("create index alert_deliveries_due on alert_deliveries (next_at)",)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    tables = [f"create table {name} ({columns.format(**types)}){types['end']}" for name, columns in _TABLES.items()]
    return [*tables, *_INDEXES]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]
