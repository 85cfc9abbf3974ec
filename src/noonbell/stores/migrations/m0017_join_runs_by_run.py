"""Step 17: which joins a run has arrived at, by the run: the page of a run shows what followed it. Older code does not ask."""

from __future__ import annotations

OLDEST_CODE = 16


def up(dialect: str) -> list[str]:
    del dialect
    return ["create index join_runs_run on join_runs (run_id)"]


def down(dialect: str) -> list[str]:
    return [f"drop index join_runs_run{' on join_runs' if dialect == 'mysql' else ''}"]
