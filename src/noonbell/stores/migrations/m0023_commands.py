"""Step 23: the fields of a task that runs a command. `run_as` is its field `user`, a word that PostgreSQL keeps for itself."""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    return [
        f"alter table tasks add column command {types['long']}",
        f"alter table tasks add column shell {types['small']} not null default 0",
        f"alter table tasks add column env {types['long']}",
        f"alter table tasks add column cwd {types['text']}",
        f"alter table tasks add column run_as {types['key']}",
        f"alter table tasks add column ok_codes {types['text']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    columns = ("ok_codes", "run_as", "cwd", "env", "shell", "command")
    return [f"alter table tasks drop column {column}" for column in columns]
