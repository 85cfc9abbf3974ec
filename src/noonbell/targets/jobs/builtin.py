"""Job types that every installation has. A new one is a line in `handlers`.

`data_cleanup`: old history goes. Payload: `retention_days`, `retention_runs`; what it leaves out the settings say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noonbell.errors import InvalidArgument
from noonbell.fields import read
from noonbell.ports import Store
from noonbell.service.retention import Forget, Keep, KeepFields, Retention
from noonbell.settings import Settings
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind

DATA_CLEANUP: Final = "data_cleanup"
QUEUE: Final = "system"
"""Of the task below: workers from elsewhere that take any job of `default` must not get it."""

_CLEANING: Final[Mapping[str, Any]] = {
    "name": "noonbell-data-cleanup",
    "description": "Removes history that is older than jobs.history_retention_days, or than its payload says",
    "job_type": DATA_CLEANUP,
    "queue": QUEUE,
    "cron_expr": "30 3 * * *",
    "timeout_seconds": 14_400,
    "max_concurrency": 1,
    "concurrency_policy": "SKIP",
    "misfire_policy": "FIRE_ONCE",
}
TASKS: Final[Sequence[Mapping[str, Any]]] = (_CLEANING,)
"""What is scheduled without anybody asking for it: made when a node starts for the first time."""

log = logging.getLogger("noonbell.jobs")


def handlers(store: Store, settings: Settings, forget: Sequence[Forget] = ()) -> list[Handler]:
    return [_data_cleanup(store, settings.jobs.history_retention_days, forget)]


def _data_cleanup(store: Store, retention_days: int, forget: Sequence[Forget]) -> Handler:
    default = Keep(days=retention_days)

    async def clean(context: Context, keep: Keep) -> dict[str, Any]:
        _tell(context, keep.describe(), job_name=context.task_name, retention_days=keep.days)

        async def between(removed: int) -> None:
            context.progress(removed, None, "runs removed")
            await asyncio.sleep(0)

        deleted = await Retention(store, forget).clean(keep, between)
        _tell(context, f"removed {deleted} runs", deleted_count=deleted)
        return {"deleted_count": deleted, "retention_days": keep.days, "retention_runs": keep.runs}

    return Handler(DATA_CLEANUP, HandlerKind.ASYNC, lambda payload: _kept(payload, default), clean, queue=QUEUE)


def _kept(payload: Any, default: Keep) -> Keep:
    if payload is None:
        return default
    if not isinstance(payload, Mapping):
        raise InvalidArgument.field(
            "payload", "is not an object; expected retention_days and retention_runs, or nothing"
        )
    return read(KeepFields, payload).over(default)


def _tell(context: Context, message: str, **facts: Any) -> None:
    """In the run's own log, and in the node's."""
    context.log(message)
    words = " ".join(f"{name}={value}" for name, value in facts.items())
    log.info("%s (execution_id=%s %s)", message, context.execution_id, words)
