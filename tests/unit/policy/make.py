"""Tasks, rounds and moments for the policy tests, with no more said than a case needs."""

from __future__ import annotations

from typing import Any

from noonbell import when
from noonbell.clock import Instant, instant_of
from noonbell.model.run import RunStatus
from noonbell.model.task import LastRun, Task, TaskId, TaskSpec, TaskStatus
from noonbell.policy.account import Account, DueRun, Facts, Skip, account

TEN = 1_767_348_000
"""2026-01-02 10:00:00 UTC, as a slot."""

EVERY_SECOND = {"type": "cron", "expr": "* * * * * *"}


def spec(**fields: Any) -> TaskSpec:
    fields.setdefault("target_url", "http://target.test/")
    fields.setdefault("max_concurrency", None)
    return TaskSpec(name="task", **fields)


def task(task_spec: TaskSpec, *, cursor: int | None, fired: int = 0, skip_next: int = 0) -> Task:
    return Task(
        id=TaskId(7),
        version=1,
        status=TaskStatus.ENABLED,
        spec=task_spec,
        created_at=Instant(0),
        updated_at=Instant(0),
        next_fire_at=None if cursor is None else instant_of(cursor),
        fired=fired,
        skip_next=skip_next,
    )


def previous(status: RunStatus, **fields: Any) -> LastRun:
    fields.setdefault("run_id", 41)
    fields.setdefault("attempt", 1)
    return LastRun(task_id=TaskId(7), status=status, **fields)


def accounted(
    *,
    now: int,
    cursor: int | None = TEN + 1,
    facts: Facts | None = None,
    schedule: dict[str, Any] = EVERY_SECOND,
    fired: int = 0,
    skip_next: int = 0,
    cap: int = 100,
    budget: int = 100_000,
    **fields: Any,
) -> Account:
    """The account of an every-second task, unless the case says otherwise. `now` and `cursor` are slots."""
    held = task(spec(schedule=schedule, **fields), cursor=cursor, fired=fired, skip_next=skip_next)
    return account(held, when.parse(schedule, "UTC"), facts or Facts(), instant_of(now), cap, budget)


def told(answer: Account) -> list[str]:
    """The outcomes in words, by seconds after ten: "1 born", "2 skipped: overlap"."""
    return [f"{outcome.slot - TEN} {in_words(outcome)}" for outcome in answer.outcomes]


def in_words(outcome: DueRun | Skip) -> str:
    return "born" if isinstance(outcome, DueRun) else f"skipped: {outcome.reason}"
