"""Step 41: on PostgreSQL, room in the pages of flows and of their steps for the next state of a row.

Each row is changed when its step starts and when it ends. Where its page has room, its indexes are not written again.
"""

from __future__ import annotations

OLDEST_CODE = 29

_TABLES = ("flow_steps", "flows")


def up(dialect: str) -> list[str]:
    return [f"alter table {table} set (fillfactor = 50)" for table in _TABLES] if dialect == "postgres" else []


def down(dialect: str) -> list[str]:
    return [f"alter table {table} reset (fillfactor)" for table in _TABLES] if dialect == "postgres" else []
