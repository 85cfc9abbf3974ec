"""Step 13: on MySQL and MariaDB, where the processes that wait for work are reached by a datagram.

`host` is null where every host can send to the address; otherwise only processes with the same mark can.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 11

_TABLE = """
        id {key} primary key,
        host {key},
        address {key} not null,
        port {int} not null,
        secret {key} not null,
        seen_at {id} not null"""


def up(dialect: str) -> list[str]:
    if dialect not in ("mysql", "mariadb"):
        return []
    types = _TYPES[dialect]
    return [f"create table wakeup_listeners ({_TABLE.format(**types)}){types['end']}"]


def down(dialect: str) -> list[str]:
    return ["drop table wakeup_listeners"] if dialect in ("mysql", "mariadb") else []
