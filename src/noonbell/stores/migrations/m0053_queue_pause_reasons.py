"""Step 53: why a queue was paused.

Code from before this step pauses queues without a reason, and shows none.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES

OLDEST_CODE = 46


def up(dialect: str) -> list[str]:
    return [f"alter table queue_pauses add column reason {_TYPES[dialect]['text']}"]


def down(dialect: str) -> list[str]:
    del dialect
    return ["alter table queue_pauses drop column reason"]
