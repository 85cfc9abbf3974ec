"""Step 24: `tasks.amqp`, `nats`, `redis`, `mqtt`: what a task publishes to a broker. Null for all others.

Code from before this step knows no task of these kinds, and could not read one. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_COLUMNS = ("amqp", "nats", "redis", "mqtt")


def up(dialect: str) -> list[str]:
    return [f"alter table tasks add column {column} {_TYPES[dialect]['long']}" for column in _COLUMNS]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"alter table tasks drop column {column}" for column in reversed(_COLUMNS)]
