"""Tasks as the store keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from noonbell.clock import Instant
from noonbell.model.account import Label, Turn
from noonbell.model.request import (
    Page,
    TaskChange,
    TaskQuery,
)
from noonbell.model.run import DroppedRange
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus, TaskVersion


class TaskStore(Protocol):
    async def create_task(
        self,
        spec: TaskSpec,
        *,
        status: TaskStatus = TaskStatus.ENABLED,
        by: str | None = None,
        system: bool = False,
        skip_next: int = 0,
    ) -> Task:
        """A new task, version 1, with its cursor at the first slot after now. `skip_next` holds from its first slot on.

        A name or external id that a task not deleted has already raises AlreadyExists, and nothing is written.
        The first task that is not a system task has id 1. A task whose schedule names no slot is COMPLETED.
        """

    async def change_task(
        self,
        task_id: TaskId,
        edit: Callable[[Task], TaskChange],
        *,
        by: str | None = None,
        expect_version: int | None = None,
    ) -> Task:
        """Apply `edit`, after every slot up to now has been accounted for under the old version.

        The version rises by one, the old version stays readable. With another `expect_version`: VersionConflict and
        nothing is written. A change of schedule, zone or bounds, and enabling, put the cursor at the first slot after
        now; the former, a return from COMPLETED or ERROR, and `recount`, start the repeat count anew. Other edits keep
        both. The cursor never moves back, not even when the clock does. An edit that changes nothing writes nothing;
        one of `skip_next` alone makes no version. A raised `max_concurrency` lets waiting runs be claimed at once. A
        worker that is no longer in `specific_worker_ids` gets the order to cancel at its next heartbeat, and a new
        `ping_interval_ms` with it; other changes touch no run that is executing, and are used at the next claim.
        """

    async def set_status(self, task_ids: Sequence[TaskId], status: TaskStatus, *, by: str | None = None) -> list[Task]:
        """Enable or disable many in one transaction, each as `change_task` does it; those that were changed.

        Unknown and deleted tasks, those in ERROR, and those that have the status already, stay as they are and are not
        in the answer.
        """

    async def delete_task(
        self,
        task_id: TaskId,
        *,
        by: str | None = None,
        cancel_running: bool = False,
        purge: bool = False,
        expect_version: int | None = None,
    ) -> Task:
        """Account for every slot up to now, then end the task: no further slot, its name is free again.

        Waiting runs are CANCELED; executing ones finish, unless `cancel_running`. History stays, unless `purge`, which
        removes every row of the task. A system task is refused with InvalidState. With another `expect_version`:
        VersionConflict and nothing is written.
        """

    async def skip_next(self, task_id: TaskId, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots become SKIPPED runs with reason `operator`. 0 takes it back, -1 is until then."""

    async def task(self, task_id: TaskId) -> Task | None:
        """The task, deleted ones too; None if there never was one or it was purged."""

    async def tasks_by_id(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Those of them that there are, deleted ones too, each once. Their cursors may be out of date."""

    async def task_named(self, name: str) -> Task | None:
        """The task of that name that is not deleted."""

    async def tasks(self, query: TaskQuery) -> Page[Task]: ...

    async def task_versions(self, task_id: TaskId) -> list[TaskVersion]:
        """Oldest first. Every change of status, schedule or policy is there, with its moment and who made it."""

    async def turns(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Turn]:
        """Since when each of them has the status that it has, and who gave it. One question, however many they are."""

    async def labels(self, text: str = "", limit: int = 20) -> list[Label]:
        """Labels of tasks that are not deleted, the most used first, at most `limit`.

        `text` is a part of the name or of the value; with `=`, a part of the name before it and of the value after it.
        """

    async def dropped(self, task_id: TaskId, since: Instant, until: Instant) -> list[DroppedRange]:
        """The ranges of dropped slots that touch the stretch, oldest first."""
