"""What happened lately: the newest runs of tasks, and what of it needs somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from noonbell.clock import SECOND, Instant, SystemClock
from noonbell.model.request import RunQuery
from noonbell.model.run import Run, RunStatus
from noonbell.model.task import TaskId
from noonbell.service import Services
from noonbell.service.activity import activities
from noonbell.service.doctor import Finding, Mark, Patient, look_at_store
from noonbell.service.filters import from_the_top

FAILURES: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT)
DAY: Final = 86_400 * SECOND
_LOOKED_AT: Final = 200
_MOST: Final = 10


async def newest_runs(
    services: Services,
    task_id: TaskId | None,
    count: int,
    *,
    status: tuple[RunStatus, ...] = (),
    since: Instant | None = None,
    until: Instant | None = None,
) -> list[Run]:
    """Newest first, and nobody counts them."""
    query = RunQuery(
        task_id=task_id, status=status, since=since, until=until, page_size=count, cursor=from_the_top("-id")
    )
    return (await services.runs.page(query)).items


@dataclass(frozen=True, slots=True)
class Failing:
    """A task whose newest run has failed."""

    task_id: TaskId
    task_name: str
    run: Run
    """The newest that failed."""
    count: int
    """Failures of the last day, as far as they were looked at."""


@dataclass(frozen=True, slots=True)
class Trouble:
    failing: list[Failing] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.failing) + len(self.findings)


async def failing(services: Services, now: Instant) -> list[Failing]:
    """The tasks that failed within a day and have not run well since, the one that failed last first."""
    failed = await newest_runs(services, None, _LOOKED_AT, status=FAILURES, since=Instant(now - DAY))
    found = await activities(services.store, list({run.task_id for run in failed})[:500])
    still = {task_id for task_id, activity in found.items() if activity.last_run_status in FAILURES}
    return grouped([run for run in failed if run.task_id in still])[:_MOST]


async def trouble(services: Services, now: Instant) -> Trouble:
    looked_at = look_at_store(patient(services), SystemClock().now, sizes=False)
    findings = [each async for each in looked_at if each.mark is not Mark.WELL]
    return Trouble(await failing(services, now), findings)


def grouped(failed: Sequence[Run]) -> list[Failing]:
    """By task, the one that failed last first."""
    by_task: dict[TaskId, list[Run]] = {}
    for run in failed:
        by_task.setdefault(run.task_id, []).append(run)
    return [Failing(task_id, runs[0].task_name, runs[0], len(runs)) for task_id, runs in by_task.items()]


def patient(services: Services) -> Patient:
    """Every store has what the doctor looks at."""
    return cast("Patient", services.store)
