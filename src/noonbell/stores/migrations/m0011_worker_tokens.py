"""Step 11: the queues that a worker's token is bound to, as JSON; null for tokens of other roles."""

from __future__ import annotations


def up(dialect: str) -> list[str]:
    kind = "text" if dialect in ("sqlite", "postgres") else "longtext"
    return [f"alter table tokens add column queues {kind}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["delete from tokens where role = 'worker'", "alter table tokens drop column queues"]
