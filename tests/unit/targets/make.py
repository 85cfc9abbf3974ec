"""Assignments for the tests of targets, with no more said than a case needs."""

from __future__ import annotations

from typing import Any

from noonbell.clock import SECOND, Instant
from noonbell.model.run import Assignment, Lease, Origin, RunId
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus

TEN = Instant(1_767_348_000 * SECOND)
"""2026-01-02T10:00:00Z."""

TOKEN = "tok_Zm9yLXRoZS1jYWxsYmFjaw-and-more"

LEASE_FIELDS = frozenset(Lease.__struct_fields__)


def assignment(url: str = "http://target.test/", **fields: Any) -> Assignment:
    """Fields of the lease, of the assignment and of the spec are told apart by their names."""
    lease = {
        name: fields.pop(name) for name in list(fields) if name in LEASE_FIELDS and name not in {"queue", "priority"}
    }
    given = {name: fields.pop(name) for name in ("previous_scheduled_time", "callback_url") if name in fields}
    fields.setdefault("name", "greet")
    return Assignment(lease=_lease(**lease), task=_task(TaskSpec(target_url=url, **fields)), **given)


def _task(spec: TaskSpec) -> Task:
    status = TaskStatus.ENABLED
    return Task(id=TaskId(7), version=1, status=status, spec=spec, created_at=Instant(0), updated_at=Instant(0))


def _lease(**fields: Any) -> Lease:
    known: dict[str, Any] = {
        "run_id": RunId(42),
        "task_id": TaskId(7),
        "task_version": 1,
        "worker_id": "w",
        "token": 1,
        "attempt": 1,
        "retry_count": 0,
        "lost_count": 0,
        "queue": "http",
        "priority": 0,
        "origin": Origin.SCHEDULE,
        "scheduled_time": TEN,
        "claimed_at": TEN,
        "expires_at": Instant(TEN + 15 * SECOND),
        "deadline_at": Instant(TEN + 10 * SECOND),
    }
    return Lease(**(known | fields))
