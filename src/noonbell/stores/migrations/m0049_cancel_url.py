"""Step 49: the URL that is called when a run of a task is canceled while it is under way.

Code from before this step makes tasks without one, and tells no target of a cancel.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 46


def up(dialect: str) -> list[str]:
    return [f"alter table tasks add column cancel_url {_TYPES[dialect]['text']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table tasks drop column cancel_url"]
