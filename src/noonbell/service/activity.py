"""What a task's runs are doing: the read-only fields of a task that come from its runs, not from its own row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from noonbell.clock import Instant
from noonbell.model.request import RunQuery
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.service.filters import from_the_top

ACTIVE = (RunStatus.RUNNING, RunStatus.CALLBACK_PENDING)
_AT_ONCE = 8
"""Tasks that are looked into side by side."""

QUEUED = (RunStatus.SCHEDULED, RunStatus.RETRYING)


@dataclass(frozen=True, slots=True)
class Activity:
    last_run_id: RunId | None = None
    last_run_at: Instant | None = None
    """When it started; its slot while it has not."""
    last_run_status: RunStatus | None = None
    active_runs: int = 0
    queued_runs: int = 0


async def activities(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
    found: dict[TaskId, Activity] = {}
    for start in range(0, len(task_ids), _AT_ONCE):
        part = task_ids[start : start + _AT_ONCE]
        read = await asyncio.gather(*(_activity(store, task_id) for task_id in part))
        found.update(zip(part, read, strict=True))
    return found


async def _activity(store: Store, task_id: TaskId) -> Activity:
    # By cursor, so that a long history is not counted for the sake of its newest run.
    newest = await store.runs(RunQuery(task_id=task_id, page_size=1, cursor=from_the_top("-id")))
    if not newest.items:
        return Activity()
    last = newest.items[0]
    active = await store.runs(RunQuery(task_id=task_id, status=ACTIVE, page_size=1))
    queued = await store.runs(RunQuery(task_id=task_id, status=QUEUED, page_size=1))
    return Activity(
        last_run_id=last.id,
        last_run_at=last.scheduled_time if last.start_time is None else last.start_time,
        last_run_status=last.status,
        active_runs=active.total or 0,
        queued_runs=queued.total or 0,
    )
