"""Step 6: which versions of Noonbell may work on the store.

Each step says the oldest code that can work with what it leaves behind, as the newest step which that code knows. A step
of which this is not said can be worked with by code that knows it, and by no older.
"""

from __future__ import annotations


def up(dialect: str) -> list[str]:
    del dialect
    return ["alter table schema_steps add column oldest_code integer"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table schema_steps drop column oldest_code"]
