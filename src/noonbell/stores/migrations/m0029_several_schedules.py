"""Step 29: `tasks.schedules`, `tasks.exclude` and `tasks.dst`: several schedules of one task, schedules whose slots are left
out, and what a clock change does to times of day. Null for every task that says nothing of the kind.

Code from before this step would plan slots that are left out, and none of several schedules. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

_COLUMNS = ("schedules", "exclude", "dst")


def up(dialect: str) -> list[str]:
    long = _TYPES[dialect]["long"]
    return [f"alter table tasks add column {name} {long}" for name in _COLUMNS]


def down(dialect: str) -> list[str]:
    del dialect
    return [f"alter table tasks drop column {name}" for name in reversed(_COLUMNS)]
