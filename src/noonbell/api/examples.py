"""Examples for the description: one task and one run, as they go in and as they come out."""

from __future__ import annotations

from typing import Any, Final

from noonbell.clock import Instant
from noonbell.model.event import Callback
from noonbell.model.run import Attempt, Origin, Run, RunBodies, RunId, RunStatus
from noonbell.model.task import RetryPolicy, Task, TaskId, TaskSpec, TaskStatus
from noonbell.service.activity import Activity
from noonbell.service.reader import read_moment
from noonbell.service.run_json import shown, shown_attempt, shown_bodies, shown_callback
from noonbell.service.task_json import shown as shown_task


def _at(text: str) -> Instant:
    return read_moment(f"2026-11-15T{text}Z")


BODY: Final[dict[str, Any]] = {
    "name": "sync_stats",
    "description": "Collect the figures",
    "cron_expr": "*/5 * * * *",
    "exec_type": "SYNC",
    "http_method": "POST",
    "target_url": "http://svc.internal/api/sync",
    "headers": {"Content-Type": "application/json"},
    "body_template": '{"run_id": "{{run_id}}"}',
    "timeout_seconds": 10,
    "retry_policy": {"max_retries": 3, "initial_delay": 5, "strategy": "exponential", "max_delay": 60},
    "max_concurrency": 1,
    "concurrency_policy": "QUEUE",
    "misfire_policy": "FIRE_NOW",
}

_TASK: Final = Task(
    id=TaskId(1),
    version=1,
    status=TaskStatus.ENABLED,
    spec=TaskSpec(
        name="sync_stats",
        description="Collect the figures",
        schedule={
            "type": "cron",
            "expr": "0 */5 * * * *",
            "dialect": "standard",
            "repeat": None,
            "source": "*/5 * * * *",
        },
        http_method="POST",
        target_url="http://svc.internal/api/sync",
        headers={"Content-Type": "application/json", "Authorization": "Bearer x"},
        body_template='{"run_id": "{{run_id}}"}',
        retry_policy=RetryPolicy(max_retries=3, max_delay=60),
    ),
    created_at=_at("02:28:10"),
    updated_at=_at("02:28:10"),
    next_fire_at=_at("02:35:00"),
)
_RUN: Final = Run(
    id=RunId(7340033),
    task_id=TaskId(1),
    task_name="sync_stats",
    task_version=1,
    origin=Origin.SCHEDULE,
    status=RunStatus.SUCCESS,
    scheduled_time=_at("02:30:00"),
    run_at=_at("02:30:00"),
    created_at=_at("02:30:00.002"),
    updated_at=_at("02:30:00.184"),
    queue="http",
    attempt=1,
    start_time=_at("02:30:00.004"),
    end_time=_at("02:30:00.184"),
    worker_id="host-1-4711-a3f0",
    response_code=200,
    trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
    idempotency_key="5f0c1d7ab3e94c28a6d1e0f27b84c935",
)
_BODIES: Final = RunBodies(
    request_headers={"Content-Type": "application/json", "Authorization": "Bearer x", "X-Noonbell-Run": "7340033"},
    request_body='{"run_id": "7340033"}',
    response_headers={"Content-Type": "application/json"},
    response_body='{"rows": 42}',
)

TASK: Final = shown_task(
    _TASK, Activity(RunId(7340033), _at("02:30:00.004"), RunStatus.SUCCESS, active_runs=0, queued_runs=0)
)
FIRES: Final[dict[str, Any]] = {
    "next_fires": [{"utc": "2026-11-15T02:35:00Z", "local": "2026-11-15T10:35:00+08:00"}],
    "notes": [],
}
RUN_IN_LIST: Final = shown(_RUN)
RUN: Final = {**shown(_RUN), **shown_bodies(_BODIES), "payload": None}
ATTEMPT: Final = shown_attempt(
    Attempt(
        run_id=RunId(7340033),
        attempt=1,
        status=RunStatus.SUCCESS,
        worker_id="host-1-4711-a3f0",
        start_time=_at("02:30:00.004"),
        end_time=_at("02:30:00.184"),
        response_code=200,
        bodies=_BODIES,
    )
)
CALLBACK_RECORD: Final = shown_callback(
    Callback(
        id=7340044,
        run_id=RunId(7340033),
        task_id=TaskId(1),
        received_at=_at("02:31:12.5"),
        status="RECEIVED",
        reason=None,
        headers={"content-type": "application/json"},
        body='{"status": "SUCCESS", "data": {"rows": 42}}',
    )
)
REJECTED_RECORD: Final = {
    **CALLBACK_RECORD,
    "run_id": None,
    "task_id": None,
    "status": "IGNORED",
    "reason": "unknown token",
}
