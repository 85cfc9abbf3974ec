"""What is done with a handful of tasks or runs in one answer: those that are ticked on a page, each with what became of it.

All that a filter finds is changed by a bulk operation (`service.bulk_operations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from noonbell.errors import ConcurrencyLimit, InvalidState, NotFound
from noonbell.fields import meta, plain
from noonbell.model.request import PublishOutcome, RunQuery
from noonbell.model.run import Run, RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.service.queues import DEAD
from noonbell.service.runs import cancelable, retryable

if TYPE_CHECKING:
    from noonbell.service import Services

TASK_ACTS: Final = ("enable", "disable", "trigger", "delete", "change")
RUN_ACTS: Final = ("retry", "redrive", "cancel")


@dataclass(frozen=True, slots=True)
class Left:
    """A task or run that was left as it was."""

    id: int
    name: str
    why: str
    """`already`, `error`, `limit`, `gone`, `refused`, `exists`, `final`, `managed`, `unfit`, `going`, `part`, `active_parts`."""


class TasksChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of many tasks; what is not named stays as each task has it."""

    noun: ClassVar[str] = "a change of tasks"

    labels: Annotated[dict[str, str], meta("Beside those that a task has; an empty value takes the label away.")] = {}
    queue: Annotated[str | None, meta("Where their next runs wait.", min_length=1, max_length=255)] = None
    timeout_seconds: Annotated[float | None, meta("Of an attempt.", ge=0.001)] = None
    max_retries: Annotated[int | None, meta("Attempts after the first.", ge=0)] = None
    jitter_seconds: Annotated[int | None, meta("Each slot starts up to this many seconds later.", ge=0)] = None

    def of(self, task: Task) -> dict[str, Any]:
        """The fields of a partial change of that task."""
        names = ("queue", "timeout_seconds", "jitter_seconds")
        given: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.labels:
            given["labels"] = {name: value for name, value in {**task.spec.labels, **self.labels}.items() if value}
        if self.max_retries is not None:
            retry = {} if task.spec.retry_policy is None else plain(task.spec.retry_policy)
            given["retry_policy"] = {**retry, "max_retries": self.max_retries}
        return given


@dataclass(slots=True)
class BulkStep:
    done: list[tuple[int, str]] = field(default_factory=list)
    """Id and name of each that was changed."""
    left: list[Left] = field(default_factory=list)


async def change_tasks(services: Services, act: str, tasks: Sequence[Task], *, by: str | None = None) -> BulkStep:
    """Enable, disable or trigger these."""
    if act in ("enable", "disable"):
        return await _turn(services, TaskStatus.ENABLED if act == "enable" else TaskStatus.DISABLED, tasks, by)
    step = BulkStep()
    for task in tasks:
        if why := await _trigger(services, task):
            step.left.append(Left(task.id, task.name, why))
        else:
            step.done.append((task.id, task.name))
    return step


async def _turn(services: Services, status: TaskStatus, tasks: Sequence[Task], by: str | None) -> BulkStep:
    ids = [task.id for task in tasks if task.status not in (status, TaskStatus.ERROR)]
    changed = {task.id for task in await services.tasks.set_status(ids, status, by=by)}
    step = BulkStep()
    for task in tasks:
        if task.id in changed:
            step.done.append((task.id, task.name))
        else:
            why = "already" if task.status is status else "error" if task.status is TaskStatus.ERROR else "gone"
            step.left.append(Left(task.id, task.name, why))
    return step


async def _trigger(services: Services, task: Task) -> str:
    try:
        await services.publishing.trigger(task.id, {})
    except NotFound:
        return "gone"
    except InvalidState:
        return "error"
    except ConcurrencyLimit:
        return "limit"
    return ""


def statuses_of(act: str, query: RunQuery) -> tuple[RunStatus, ...]:
    """What the act is for, as far as the query asks for it."""
    if act == "cancel":
        return cancelable(query)
    if act == "redrive":
        return tuple(status for status in query.status or DEAD if status in DEAD)
    return retryable(query)


async def change_runs(services: Services, act: str, runs: Sequence[Run], *, by: str | None = None) -> BulkStep:
    step = BulkStep()
    whys = await (_cancel(services, runs, by) if act == "cancel" else _retry(services, runs, once=act == "redrive"))
    for run, why in zip(runs, whys, strict=True):
        if why:
            step.left.append(Left(run.id, run.task_name, why))
        else:
            step.done.append((run.id, run.task_name))
    return step


async def _cancel(services: Services, runs: Sequence[Run], by: str | None) -> list[str]:
    answers = await services.runs.cancel_each(list(runs), by=by)
    return ["gone" if (found := answers.get(run.id)) is None else "" if found.canceled else "final" for run in runs]


async def _retry(services: Services, runs: Sequence[Run], *, once: bool) -> list[str]:
    answers = await services.runs.retry_each(list(runs), once=once) if runs else []
    named = {PublishOutcome.REFUSED: "limit", PublishOutcome.EXISTS: "exists", PublishOutcome.RUNNING: "exists"}
    return ["gone" if answer is None else named.get(answer.outcome, "") for answer in answers]
