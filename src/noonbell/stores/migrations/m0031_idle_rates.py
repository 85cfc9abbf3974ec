"""Step 31: `rates.idle_at`, from when on a rate limit's row says no more than a new one would, so that it can be removed. A call
names its own key of a rate limit, so there may be as many rows as there were callers. Null for rows that nothing has started
under since.

Code from before this step would write such a row and leave its `idle_at` as it was; the row would be removed too early. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    return [
        f"alter table rates add column idle_at {_TYPES[dialect]['id']}",
        "create index rates_idle on rates (idle_at)",
    ]


def down(dialect: str) -> list[str]:
    return [
        f"drop index rates_idle{' on rates' if dialect in ('mysql', 'mariadb') else ''}",
        "alter table rates drop column idle_at",
    ]
