"""Finished plans fall to retention: a publisher makes a plan for each message, and nobody removes them one by one."""

from __future__ import annotations

import msgspec

from noonbell.clock import Instant
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.task import Task, TaskStatus
from noonbell.ports import Store
from noonbell.service import plan_json
from noonbell.service.plan_fields import LABEL, PlanType


async def forget_finished(store: Store, before: Instant) -> int:
    """Remove the plans that ended before, once the last of their runs is gone too; how many it was."""
    types = tuple(str(kind) for kind in PlanType)
    query = TaskQuery(label_in=(LABEL, types), status_in=(TaskStatus.COMPLETED,), page_size=500)
    removed = 0
    while True:
        page = await store.tasks(query)
        for task in page.items:
            if task.updated_at < before and plan_json.written(task) is not None and not await _has_runs(store, task):
                await store.delete_task(task.id, by="noonbell", purge=True)
                removed += 1
        if page.next_cursor is None:
            return removed
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


async def _has_runs(store: Store, task: Task) -> bool:
    return bool((await store.runs(RunQuery(task_id=task.id, page_size=1))).items)
