"""Step 35: the labels and the job types that a token is for, as JSON; null: all. Tokens of every role may have queues.

Code that does not know this step would take a token with a scope for one without: it must not go on beside it.
"""

from __future__ import annotations


def up(dialect: str) -> list[str]:
    kind = "text" if dialect in ("sqlite", "postgres") else "longtext"
    return [
        f"alter table tokens add column labels {kind}",
        f"alter table tokens add column job_types {kind}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "delete from tokens where labels is not null or job_types is not null or (queues is not null and role <> 'worker')",
        "alter table tokens drop column job_types",
        "alter table tokens drop column labels",
    ]
