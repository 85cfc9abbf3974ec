"""Step 8: why a node could not reach the store, or could not get on, beside when. Older code leaves it empty."""

from __future__ import annotations


def up(dialect: str) -> list[str]:
    del dialect
    return ["alter table outages add column reason text"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table outages drop column reason"]
