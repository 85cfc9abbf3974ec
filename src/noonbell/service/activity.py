"""What a task's runs are doing: the read-only fields of a task that come from its runs, not from its own row."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.model.account import Activity
from noonbell.model.task import TaskId
from noonbell.ports import Store

__all__ = ["Activity", "activities"]


async def activities(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
    """Those of them that have a run: one question, however many they are."""
    return await store.activity(task_ids)
