"""Step 12: the signature of an entry of the audit log, `KEYID:HEX`; null where a process without a key wrote it."""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    return [f"alter table audit add column signature {_TYPES[dialect]['key']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table audit drop column signature"]
