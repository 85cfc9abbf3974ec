"""Step 52: indexes for the lists of one task: its runs that did not succeed, and its parts.

Without them a list of the failures of a task looks at its runs one by one, and so does the number of its runs, which leaves
out parts. Both indexes are partial: a run that succeeds and is no part enters neither. MariaDB and MySQL have no partial
indexes; there the lists look at runs one by one, as before.
"""

from __future__ import annotations

OLDEST_CODE = 46

_INDEXES = {
    "runs_task_trouble": "runs (task_id, trouble, id) where trouble is not null",
    "runs_task_parts": "runs (task_id, id) where parent_id is not null",
}


def up(dialect: str) -> list[str]:
    if dialect not in ("sqlite", "postgres"):
        return []
    return [f"create index {name} on {columns}" for name, columns in _INDEXES.items()]


def down(dialect: str) -> list[str]:
    return [f"drop index {name}" for name in reversed(_INDEXES)] if dialect in ("sqlite", "postgres") else []
