"""What keeps a planned run from starting: one reason, the one that somebody would have to remove first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from noonbell.clock import Instant
from noonbell.model.account import Wait
from noonbell.model.run import Run
from noonbell.model.worker import Worker, WorkerState


@dataclass(frozen=True, slots=True)
class Hindrance:
    cause: str
    key: str = ""
    actor: str | None = None
    since: Instant | None = None
    blocking_run_id: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def hindrance(wait: Wait, run: Run, workers: Sequence[Worker], now: Instant) -> Hindrance:
    """A pause first, then a worker that is missing: while these last, no limit matters."""
    if wait.until is not None and wait.rated_until is None:
        return Hindrance("waiting", "waiting_until", facts={"until": wait.until})
    if wait.paused is not None:
        pause = wait.paused
        facts = {"queue": pause.queue, "actor": pause.by, "since": pause.since}
        return Hindrance("queue_paused", actor=pause.by, since=pause.since, facts=facts)
    if not any(may_take(worker, wait, run.queue) for worker in workers):
        return Hindrance("no_worker", facts={"queue": run.queue, "wanted": _wanted(wait)})
    if wait.limit is not None:
        key = "concurrency_wait" if wait.limit else "concurrency_shut"
        taken: dict[str, Any] = {"limit": wait.limit, "blocking": wait.blocking_run_id}
        return Hindrance("concurrency", key, blocking_run_id=wait.blocking_run_id, facts=taken)
    if wait.rated_until is not None and wait.rated_until > now:
        return Hindrance("rate_limited", since=None, facts={"until": wait.rated_until})
    return Hindrance("waiting")


def may_take(worker: Worker, wait: Wait, queue: str) -> bool:
    """Whether this worker would take the run if it had a hand free."""
    if worker.state is not WorkerState.RUNNING or worker.concurrency <= 0 or queue not in worker.queues:
        return False
    if worker.job_types is not None and wait.job_type is not None and wait.job_type not in worker.job_types:
        return False
    return worker.version >= wait.min_version and (not wait.workers or worker.id in wait.workers)


def _wanted(wait: Wait) -> str:
    parts = [wait.job_type or "HTTP"]
    if wait.min_version:
        parts.append(f"version>={wait.min_version}")
    if wait.workers:
        parts.append(f"({', '.join(wait.workers[:5])})")
    return " ".join(parts)
