"""Bulk changes in steps: one page of what a filter finds, changed, with what became of each; and where to go on.

The caller keeps the place and comes again until there is none, so a change of many thousands can be watched and stopped,
needs no row of its own, and goes on at any node. Steps follow the ids: what a step makes or changes is not found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from noonbell.errors import ConcurrencyLimit, InvalidState, NotFound
from noonbell.model.request import PublishOutcome, RunQuery, TaskQuery
from noonbell.model.run import Run, RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.service.filters import cursor_at, from_the_top
from noonbell.service.queues import DEAD
from noonbell.service.runs import cancelable, retryable
from noonbell.service.tasks import Removal

if TYPE_CHECKING:
    from noonbell.service import Services

SIZE: Final = 200
TASK_ACTS: Final = ("enable", "disable", "trigger", "delete")
RUN_ACTS: Final = ("retry", "redrive", "cancel")


@dataclass(frozen=True, slots=True)
class Left:
    """One that was left as it was."""

    id: int
    name: str
    why: str
    """`already`, `error`, `limit`, `gone`, `refused`, `exists`, `final`."""


@dataclass(slots=True)
class BulkStep:
    done: list[tuple[int, str]] = field(default_factory=list)
    """Id and name of each that was changed."""
    left: list[Left] = field(default_factory=list)
    next: str | None = None
    """Where to go on; None when there is nothing more."""


async def tasks_step(
    services: Services, act: str, query: TaskQuery, place: str | None, *, by: str | None = None, size: int = SIZE
) -> BulkStep:
    cursor = place or cursor_at("id", 0, 0)
    wanted = msgspec.structs.replace(query, sort="id", page=1, page_size=size, cursor=cursor)
    page = await services.store.tasks(wanted)
    step = await change_tasks(services, act, page.items, by=by)
    step.next = page.next_cursor
    return step


async def change_tasks(services: Services, act: str, tasks: Sequence[Task], *, by: str | None = None) -> BulkStep:
    if act in ("enable", "disable"):
        return await _turn(services, TaskStatus.ENABLED if act == "enable" else TaskStatus.DISABLED, tasks, by)
    if act == "delete" and await _delete_together(services, tasks, by):
        return BulkStep(done=[(task.id, task.name) for task in tasks])
    step = BulkStep()
    for task in tasks:
        why = await (_delete if act == "delete" else _trigger)(services, task, by)
        if why:
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


async def _delete_together(services: Services, tasks: Sequence[Task], by: str | None) -> bool:
    """In one transaction. False: one of them is gone or cannot be deleted, and none was."""
    if not tasks:
        return True
    try:
        await services.tasks.delete_many([{"id": task.id} for task in tasks], by=by)
    except (NotFound, InvalidState):
        return False
    return True


async def _delete(services: Services, task: Task, by: str | None) -> str:
    try:
        await services.tasks.delete(task.id, Removal(), by=by)
    except NotFound:
        return "gone"
    except InvalidState:
        return "refused"
    return ""


async def _trigger(services: Services, task: Task, by: str | None) -> str:
    del by  # the audit log has it
    try:
        await services.publishing.trigger(task.id, {})
    except NotFound:
        return "gone"
    except InvalidState:
        return "error"
    except ConcurrencyLimit:
        return "limit"
    return ""


async def runs_step(
    services: Services, act: str, query: RunQuery, place: str | None, *, by: str | None = None, size: int = SIZE
) -> BulkStep:
    statuses = statuses_of(act, query)
    if not statuses:
        return BulkStep()
    cursor = place or from_the_top("-id")
    wanted = msgspec.structs.replace(query, status=statuses, sort="-id", page=1, page_size=size, cursor=cursor)
    page = await services.store.runs(wanted)
    step = await change_runs(services, act, page.items, by=by)
    step.next = page.next_cursor
    return step


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
