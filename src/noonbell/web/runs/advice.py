"""What somebody can do about a run: from the cause to a sentence, and where to go for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.model.run import FINAL, SUCCEEDED, Run, RunStatus
from noonbell.model.task import ExecType, TaskSpec

BY_CODE: Final = {401: "credentials", 403: "credentials", 404: "not_there", 410: "not_there", 429: "too_many"}
"""Answers that say more than the hundred they belong to."""

BY_KIND: Final = {
    "dns": "dns",
    "connection_refused": "refused",
    "connect_timeout": "unreachable",
    "connection_lost": "connection_lost",
    "tls": "tls",
    "timeout": "timeout",
    "http_3xx": "redirect",
    "http_4xx": "refuses",
    "http_5xx": "target_failed",
    "too_large": "too_large",
    "blocked_address": "blocked",
    "protocol_error": "protocol",
    "error": "handler",
    "fail": "said_so",
    "invalid_payload": "payload",
    "invalid_result": "result",
    "crash": "crash",
    "lost": "lost",
    "unknown": "unknown",
    "callback_failed": "callback_failed",
    "callback_timeout": "no_callback",
}
"""By `error_details.kind` of a run that failed."""

BY_CAUSE: Final = {
    "no_worker": "no_worker",
    "queue_paused": "queue_paused",
    "circuit_open": "circuit",
    "overlap": "overlap",
    "failure": "after_failure",
    "backoff": "after_failure",
    "concurrency": "concurrency",
    "queue_full": "queue_full",
    "rate_limited": "rate_limited",
    "error": "task_error",
    "planner_late": "planner_late",
    "store_down": "store_down",
    "lost": "lost",
    "canceled": "canceled",
}
"""By what `explain` found, for a run that has not failed."""

TASK: Final = frozenset(
    {
        *("credentials", "not_there", "too_many", "timeout", "redirect", "no_callback", "circuit", "overlap"),
        *("concurrency", "queue_full", "rate_limited", "task_error", "refuses", "after_failure", "tls", "dns"),
    }
)
"""What is set right in the task."""
PLACES: Final = {"no_worker": "/workers", "queue_paused": "/queues", "lost": "/workers", "store_down": "/settings"}
"""Where the rest is."""


@dataclass(frozen=True, slots=True)
class Advice:
    key: str
    """Of `advice.…`."""
    facts: dict[str, Any] = field(default_factory=dict)
    place: str = ""
    """The address of the page where it is done; empty: here."""


def advice(run: Run, spec: TaskSpec | None, cause: str, *, refused: str = "") -> Advice | None:
    """None: there is nothing to do. `refused` is why the newest callback was, where one was and the run still lacks it."""
    key = _key(run, spec, cause, refused)
    if key is None:
        return None
    facts = {
        "queue": run.queue,
        "seconds": f"{spec.timeout_seconds:g}" if spec is not None else "–",
        "wait": spec.callback_timeout_sec if spec is not None else "–",
        "code": run.response_code or "–",
        "address": (run.error_details or {}).get("address") or "–",
        "worker": run.worker_id or "–",
    }
    place = f"/tasks/{run.task_id}/edit" if key in TASK else PLACES.get(key, "")
    return Advice(key, facts, place)


def _key(run: Run, spec: TaskSpec | None, cause: str, refused: str) -> str | None:
    if run.status in SUCCEEDED:
        return None
    if refused in ("signature", "unsigned", "clock", "stale") and run.status is not RunStatus.CANCELED:
        return f"callback_{refused}"
    if run.status in FINAL and run.status not in (RunStatus.SKIPPED, RunStatus.CANCELED):
        kind = str((run.error_details or {}).get("kind") or "")
        if kind == "http_4xx":
            return BY_CODE.get(run.response_code or 0, "refuses")
        if kind == "error" and spec is not None and spec.exec_type is not ExecType.JOB:
            return "protocol"
        return BY_KIND.get(kind) or ("no_callback" if run.status is RunStatus.FAILED_TIMEOUT else "other")
    return BY_CAUSE.get(cause)
