"""A run as JSON: times as RFC 3339, secrets masked, callback tokens nowhere."""

from __future__ import annotations

from typing import Any, Final

from noonbell.clock import rfc3339
from noonbell.model.event import Callback
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.run import Attempt, Run, RunBodies, trace_id_of
from noonbell.service.secrets import masked

_TIMES: Final = frozenset(
    {
        *("scheduled_time", "run_at", "start_time", "end_time", "next_retry_time", "lease_expires_at"),
        *("callback_deadline", "created_at", "updated_at"),
    }
)
_FIELDS: Final = Run.__struct_fields__


def shown(run: Run) -> dict[str, Any]:
    """Every field but the bodies, which lists do not read."""
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(run, name)
        fields[name] = rfc3339(value) if value is not None and name in _TIMES else value
    fields["trace_id"] = trace_id_of(run.id, run.scheduled_time, run.trace_id)
    fields["idempotency_key"] = idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key)
    fields["duration_ms"] = run.duration_ms
    fields["final_status"] = run.final_status
    return fields


def shown_bodies(bodies: RunBodies | None) -> dict[str, Any]:
    bodies = bodies or RunBodies()
    return {
        "request_headers": None if bodies.request_headers is None else masked(bodies.request_headers),
        "request_body": bodies.request_body,
        "response_headers": None if bodies.response_headers is None else masked(bodies.response_headers),
        "response_body": bodies.response_body,
        "truncated": bodies.truncated,
    }


def shown_attempt(attempt: Attempt) -> dict[str, Any]:
    start, end = attempt.start_time, attempt.end_time
    return {
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "status": attempt.status,
        "worker_id": attempt.worker_id,
        "start_time": None if start is None else rfc3339(start),
        "end_time": None if end is None else rfc3339(end),
        "duration_ms": None if start is None or end is None else (end - start) // 1000,
        "resent": attempt.is_resent,
        "response_code": attempt.response_code,
        "result": attempt.result,
        "error_message": attempt.error_message,
        "error_details": attempt.error_details,
        **shown_bodies(attempt.bodies),
    }


def shown_callback(callback: Callback) -> dict[str, Any]:
    return {
        "id": callback.id,
        "run_id": callback.run_id,
        "task_id": callback.task_id,
        "received_at": rfc3339(callback.received_at),
        "status": callback.status,
        "reason": callback.reason,
        "headers": masked(callback.headers),
        "body": callback.body,
    }
