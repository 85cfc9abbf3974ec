"""Step 26: webhook subscriptions, and their deliveries.

A subscription is a name, what was said of it as JSON, and its state in columns: how far it has read the events, who delivers
for it (a lease with a token), and how its receiver does. A delivery is one event to one subscription. It waits (PENDING) or
has ended; those that wait are few, and are found by `webhook_deliveries_waiting`.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_TABLES = {
    "subscriptions": """
        name {key} primary key,
        created_at {id} not null,
        updated_at {id} not null,
        active {small} not null,
        spec {long} not null,
        position {id} not null,
        position_index {id} not null,
        holder {key} not null,
        token {id} not null,
        expires_at {id} not null,
        failures {int} not null,
        pending {int} not null,
        next_at {id},
        delivered_at {id},
        failing_since {id},
        disabled_at {id},
        disabled_reason {text},
        missed {id} not null""",
    "webhook_deliveries": """
        id {id} primary key,
        subscription {key} not null,
        event_seq {id} not null,
        event_index {id} not null,
        type {key} not null,
        order_key {key} not null,
        status {key} not null,
        attempts {int} not null,
        next_at {id},
        first_failed_at {id},
        created_at {id} not null,
        ended_at {id},
        response_code {int},
        error {long},
        request_headers {long} not null,
        body {long} not null,
        response {long},
        replay_of {id}""",
}

_INDEXES = (
    "create index webhook_deliveries_waiting on webhook_deliveries (subscription, status, event_seq, event_index)",
    "create index webhook_deliveries_newest on webhook_deliveries (subscription, id)",
)


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    tables = [f"create table {name} ({columns.format(**types)}){types['end']}" for name, columns in _TABLES.items()]
    return [*tables, *_INDEXES]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"drop table {table}" for table in reversed(_TABLES)]


OLDEST_CODE = 21
"""Earlier code knows of no subscription: it delivers nothing, and the positions stand until a node that does is there."""
