"""A plan as its publisher reads it: what was written, and what has become of it. The inverse of `plan_fields`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noonbell.clock import Instant, rfc3339
from noonbell.model.plan import MARK
from noonbell.model.run import FINAL, Run, RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.service.plan_fields import ONE_SHOT, PlanType

WRITTEN: Final = (
    *("plan_id", "request_id", "station", "caller", "description", "plan_type", "plan_value", "plan_repet"),
    *("no_keep", "target", "plan_time"),
)


class PlanState(enum.StrEnum):
    """Where a plan stands."""

    QUEUE = "queue"
    """Its next slot is to come, or its run waits for a worker."""
    EXECUTE = "execute"
    RETRY = "retry"
    """Its run erred, and waits for another attempt at the same slot."""
    SKIP = "skip"
    """An operator wants the coming slots skipped."""
    PAUSE = "pause"
    ERROR = "error"
    """It has lost its right to run, until it is reset."""
    CLOSE = "close"
    """It names no further slot, or somebody closed it."""


class LastState(enum.StrEnum):
    """How its newest run stands."""

    NONE = "none"
    """There was none yet."""
    QUEUE = "queue"
    NOT_WORKER = "not_worker"
    """It waits, and no worker is there that could take it."""
    RUNNING = "running"
    RETRY = "retry"
    OK = "ok"
    FAILED = "failed"
    """The worker said `fail`: trying again would not help."""
    ERROR = "error"
    """Every attempt erred, or the worker was lost too often."""
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the runs of a plan say, since it was published or reset."""

    last: Run | None = None
    unbegun: int = 0
    """Runs that wait, or were canceled while they did."""
    skipped: int = 0
    """Slots that became SKIPPED runs, or none at all because they were late."""
    is_unattended: bool = False
    """Its newest run waits, and no worker alive could take it."""


_STATE_OF: Final = {
    RunStatus.SCHEDULED: PlanState.QUEUE,
    RunStatus.RUNNING: PlanState.EXECUTE,
    RunStatus.CALLBACK_PENDING: PlanState.EXECUTE,
    RunStatus.RETRYING: PlanState.RETRY,
}
_LAST_OF: Final = {
    RunStatus.SCHEDULED: LastState.QUEUE,
    RunStatus.RUNNING: LastState.RUNNING,
    RunStatus.CALLBACK_PENDING: LastState.RUNNING,
    RunStatus.RETRYING: LastState.RETRY,
    RunStatus.SUCCESS: LastState.OK,
    RunStatus.CALLBACK_SUCCESS: LastState.OK,
    RunStatus.FAILED: LastState.ERROR,
    RunStatus.TIMEOUT: LastState.TIMEOUT,
    RunStatus.FAILED_TIMEOUT: LastState.TIMEOUT,
    RunStatus.CANCELED: LastState.CANCELED,
    RunStatus.SKIPPED: LastState.SKIP,
}


def written(task: Task) -> Mapping[str, Any] | None:
    """What the publisher wrote; None if the task is no plan, or somebody has made something else of it."""
    payload = task.spec.payload
    plan = payload.get("plan") if MARK in task.spec.meta and isinstance(payload, dict) else None
    whole = isinstance(plan, dict) and all(name in plan for name in WRITTEN) and plan["plan_type"] in set(PlanType)
    return plan if whole else None


def shown(task: Task, plan: Mapping[str, Any], facts: PlanFacts) -> dict[str, Any]:
    return {
        **{name: plan[name] for name in WRITTEN},
        "real_repet": real_repet(task, facts),
        "exec_time": None if task.next_fire_at is None else rfc3339(task.next_fire_at),
        "plan_state": plan_state(task, facts),
        "last_state": last_state(facts),
        "skip_set": task.skip_next,
        "skip_num": passed(task) + facts.skipped,
        "messages": task.spec.payload["messages"],
        "delete_on_complete": task.spec.delete_on_complete,
        "note": note(task, plan, facts),
        "task_id": task.id,
        "task_name": task.name,
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
    }


def passed(task: Task) -> int:
    """Slots that lay in the past when the plan came in."""
    found = task.spec.meta[MARK].get("passed", 0)
    return found if isinstance(found, int) else 0


def counted_from(task: Task) -> Instant:
    """Since when its slots count: it was published, or reset."""
    found = task.spec.meta[MARK].get("reset_at")
    return Instant(found) if isinstance(found, int) else Instant(0)


def real_repet(task: Task, facts: PlanFacts) -> int:
    """How often it was carried out. Counted from what is used up, so that it outlives the history of its runs."""
    return max(0, task.fired - facts.skipped - facts.unbegun)


def plan_state(task: Task, facts: PlanFacts) -> PlanState:
    if task.status is TaskStatus.ERROR:
        return PlanState.ERROR
    if task.status is TaskStatus.DISABLED:
        return PlanState.PAUSE
    if facts.last is not None and facts.last.status not in FINAL:
        return _STATE_OF[facts.last.status]
    if task.status is TaskStatus.COMPLETED:
        return PlanState.CLOSE
    return PlanState.SKIP if task.skip_next else PlanState.QUEUE


def last_state(facts: PlanFacts) -> LastState:
    run = facts.last
    if run is None:
        return LastState.NONE
    if facts.is_unattended:
        return LastState.NOT_WORKER
    return LastState.FAILED if _said_fail(run) else _LAST_OF[run.status]


def _said_fail(run: Run) -> bool:
    return run.status is RunStatus.FAILED and (run.error_details or {}).get("kind") == "fail"


def note(task: Task, plan: Mapping[str, Any], facts: PlanFacts) -> str | None:
    """What its publisher should know and no other field says."""
    if plan_state(task, facts) is PlanState.CLOSE and real_repet(task, facts) == 0:
        past = passed(task) + facts.skipped
        if plan["plan_type"] in ONE_SHOT and past:
            return "ended without having run: its time had passed, and no_keep is false"
        return "ended without having run" + (f": {past} of its slots were skipped" if past else "")
    if passed(task):
        return f"{passed(task)} slots lay in the past when it was published; they are skipped and used up"
    return None


def shown_result(run: Run, parts: Sequence[Run]) -> dict[str, Any]:
    """One run of a plan: who took part, and what came of it."""
    return {
        "run_id": run.id,
        "exec_time": rfc3339(run.scheduled_time),
        "state": last_state(PlanFacts(last=run)),
        "attempt": run.attempt,
        "participants": [_participant(part) for part in (parts or [run]) if part.worker_id is not None],
        "result": run.result,
        "error_message": run.error_message,
        "start_time": None if run.start_time is None else rfc3339(run.start_time),
        "end_time": None if run.end_time is None else rfc3339(run.end_time),
    }


def _participant(run: Run) -> dict[str, Any]:
    return {
        "worker_id": run.worker_id,
        "state": last_state(PlanFacts(last=run)),
        "result": run.result,
        "error_message": run.error_message,
    }
