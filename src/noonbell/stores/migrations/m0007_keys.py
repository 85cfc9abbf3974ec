"""Step 7: the idempotency keys of runs, and what they are made of.

`installation` has one row: the id that tells this installation from every other. It is written when a store is opened that
has none, not here, because it is random. Runs from before this step have no key, and keep the form their targets know.
Tasks from before it get a name made of their id: the same one, however often a backup from before is brought up to date.
"""

from __future__ import annotations

EARLIER_UID = "task-"
"""Begins the `uid` of a task from before this step; its id follows."""

_TEXT = {"sqlite": "text", "postgres": "text"}
_NAMED = {"sqlite": f"'{EARLIER_UID}' || id", "postgres": f"'{EARLIER_UID}' || id"}


def up(dialect: str) -> list[str]:
    text = _TEXT.get(dialect, "varchar(64)")
    named = _NAMED.get(dialect, f"concat('{EARLIER_UID}', id)")
    return [
        f"create table installation (one smallint primary key, id {text} not null, made_at bigint not null)",
        f"alter table tasks add column uid {text}",
        f"alter table runs add column idempotency_key {text}",
        f"update tasks set uid = {named} where uid is null",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "alter table runs drop column idempotency_key",
        "alter table tasks drop column uid",
        "drop table installation",
    ]
