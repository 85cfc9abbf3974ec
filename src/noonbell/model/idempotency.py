"""Idempotency keys: what a target knows one piece of work by, whatever becomes of the store in between.

The key of a run is settled when the run is created, is stored with it, and is the same for all its attempts. That of a run
which was born of a slot depends on nothing but the installation, the task and the slot: a slot that is run again, because
the store was restored or a replica without the newest writes took over, reaches its target under the key it had before.

The key of a run that was asked for is the installation's id and the run's. Its row holds the first half, which is the same
for all of them and costs nothing to make; the second is the run's id, which is in the row already.

What is hashed here, and how, never changes: a key must be the same in every version.
"""

from __future__ import annotations

import hashlib

from noonbell.clock import SECOND


def key_of_slot(installation: str, task_uid: str, slot: int) -> str:
    """Of the run that a slot makes; `slot` in microseconds since 1970."""
    return _digest(f"slot {installation} {task_uid} {slot}")


def key_of_part(parent_key: str, shard_index: int, shard_total: int) -> str:
    """Of one part of a fan-out. The parent's key stands for all that the parent's is made of."""
    return _digest(f"part {parent_key} {shard_index} {shard_total}")


def key_of_asked(installation: str) -> str:
    """Of a run that was asked for (a trigger, a publish, a backfill, a run done again), as far as it is stored."""
    return f"{installation}-"


def idempotency_key_of(run_id: int, scheduled_time: int, stored: str | None) -> str:
    """The key of a run, from what is stored of it.

    A run from before keys were stored keeps the form that its target may have seen already.
    """
    if not stored:
        return f"noonbell-{run_id}-{scheduled_time // SECOND}"
    return f"{stored}{run_id}" if stored.endswith("-") else stored


def _digest(text: str) -> str:
    """32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
