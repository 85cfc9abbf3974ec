"""Step 43: what is said when a task is paused: why, and until when.

`task_pauses` has a row for each version of a task in which it is paused and something was said of the pause. `until_at` is when the
pause ends by itself. `due_at` says the same to the sweep, and is null once the sweep has looked at it: so what it reads grows with
the pauses that end, and not with those that have ended.

Code from before this step would make versions of a paused task without these rows, and the pause would not end. So it may not go on.
Code that knows later steps and not this one is not told apart from code that knows them all: it goes on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_COLUMNS = """
        task_id {id} not null,
        version {int} not null,
        reason {text} not null,
        until_at {id},
        due_at {id},
        paused_by {text},
        paused_at {id} not null,
        primary key (task_id, version)"""


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"create table task_pauses ({_COLUMNS.format(**types)}){types['end']}",
        "create index task_pauses_due on task_pauses (due_at)",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return ["drop table task_pauses"]
