"""Step 22: `runs.dedupe_until`, how long a run of a leading debounce holds others of its key off. Null for all others."""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    return [f"alter table runs add column dedupe_until {_TYPES[dialect]['id']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table runs drop column dedupe_until"]


OLDEST_CODE = 21
"""Earlier code makes no such run, and leaves the column as it is."""
