"""Step 5: the index of runs that were born at another time than they are scheduled for.

The id of a run tells when it was born. For most runs that is when they are scheduled, so a list of a stretch of time walks
a stretch of ids and needs no index. Those it would miss (backfills, retries by hand, what was caught up on) are in this
one. It is partial: an ordinary run costs nothing but the comparison. MariaDB and MySQL have no partial indexes; there, a
stretch of time is looked for among all runs.
"""

from __future__ import annotations

APART_MS = 60_000
IS_STRAY = "abs({0}id / 4096 + 1735689600000 - {0}scheduled_time / 1000) > 60000"
"""More than a minute apart, by the way that `stores.sql.ids` makes ids. The index and whoever looks in it say it in the
same words, or no database would see that they mean the same."""


def up(dialect: str) -> list[str]:
    if dialect not in ("sqlite", "postgres"):
        return []
    return [f"create index runs_stray on runs (scheduled_time, id) where {IS_STRAY.format('')}"]


def down(dialect: str) -> list[str]:
    return ["drop index runs_stray"] if dialect in ("sqlite", "postgres") else []
