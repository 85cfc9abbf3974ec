"""`data_cleanup`: old history goes. Payload: `retention_days`, `retention_runs`; what it leaves out the settings say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from noonbell.errors import InvalidArgument
from noonbell.ports import Store
from noonbell.service.reader import Problems, Reader
from noonbell.service.retention import Keep, Retention, read_keep
from noonbell.targets.jobs.context import Context
from noonbell.targets.jobs.handler import Handler, HandlerKind

JOB_TYPE: Final = "data_cleanup"
QUEUE: Final = "system"
"""Of the task below: workers from elsewhere that take any job of `default` must not get it."""

TASK: Final[Mapping[str, Any]] = {
    "name": "noonbell-data-cleanup",
    "description": "Removes history that is older than jobs.history_retention_days, or than its payload says",
    "job_type": JOB_TYPE,
    "queue": QUEUE,
    "cron_expr": "30 3 * * *",
    "timeout_seconds": 14_400,
    "max_concurrency": 1,
    "concurrency_policy": "SKIP",
    "misfire_policy": "FIRE_ONCE",
}
"""The task that every installation has."""

log = logging.getLogger("noonbell.jobs")


def handler(store: Store, retention_days: int) -> Handler:
    default = Keep(days=retention_days)

    async def clean(context: Context, keep: Keep) -> dict[str, Any]:
        _tell(context, keep.describe(), job_name=context.task_name, retention_days=keep.days)

        async def between(removed: int) -> None:
            context.progress(removed, None, "runs removed")
            await asyncio.sleep(0)

        deleted = await Retention(store).clean(keep, between)
        _tell(context, f"removed {deleted} runs", deleted_count=deleted)
        return {"deleted_count": deleted, "retention_days": keep.days, "retention_runs": keep.runs}

    return Handler(JOB_TYPE, HandlerKind.ASYNC, lambda payload: read(payload, default), clean, queue=QUEUE)


def read(payload: Any, default: Keep) -> Keep:
    if payload is None:
        return default
    if not isinstance(payload, Mapping):
        raise InvalidArgument.field("payload", "is no object; expected retention_days and retention_runs, or nothing")
    problems = Problems()
    reader = Reader(payload, problems)
    keep = read_keep(reader, default)
    reader.finish(f"the payload of {JOB_TYPE}")
    problems.finish()
    return keep


def _tell(context: Context, message: str, **facts: Any) -> None:
    """In the run's own log, and in the node's."""
    context.log(message)
    words = " ".join(f"{name}={value}" for name, value in facts.items())
    log.info("%s (execution_id=%s %s)", message, context.execution_id, words)
