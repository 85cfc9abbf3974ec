"""Knowing tasks: a small cache over the store, by id and version, so that a claimed run costs no question."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from noonbell.model.run import Lease
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store


class Tasks:
    def __init__(self, store: Store, size: int = 20_000, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._size, self._monotonic = store, size, monotonic
        self._known: dict[tuple[TaskId, int], Task] = {}
        self._newest: dict[TaskId, tuple[float, Task]] = {}

    def of(self, lease: Lease) -> Task | None:
        """The task of a lease, if it is known here: after `learn`, None means that it was purged."""
        return self._known.get((lease.task_id, lease.task_version))

    async def learn(self, leases: Iterable[Lease]) -> None:
        """Read the tasks of these leases that are not known yet, each of them once."""
        wanted: dict[TaskId, list[int]] = {}
        for lease in leases:
            if (lease.task_id, lease.task_version) not in self._known:
                wanted.setdefault(lease.task_id, []).append(lease.task_version)
        if not wanted:
            return
        for task in await self._store.tasks_by_id(list(wanted)):
            for version in wanted[task.id]:
                self._put(task, version)  # a newer version, if the task was edited since: the attempt uses that one

    async def newest(self, task_id: TaskId, max_age: float = 0.0) -> Task | None:
        """The task as it is now, or was not more than `max_age` seconds ago."""
        found = self.recent(task_id, max_age) if max_age > 0 else None
        if found is not None:
            return found
        task = await self._store.task(task_id)
        if task is not None:
            self._put(task, task.version)
        return task

    def recent(self, task_id: TaskId, max_age: float) -> Task | None:
        """The newest version that was seen here, if that was not more than `max_age` seconds ago. Asks nobody."""
        found = self._newest.get(task_id)
        return None if found is None or self._monotonic() - found[0] > max_age else found[1]

    def _put(self, task: Task, version: int) -> None:
        self._known[task.id, version] = task
        self._newest[task.id] = (self._monotonic(), task)
        while len(self._known) > self._size:
            del self._known[next(iter(self._known))]
        while len(self._newest) > self._size:
            del self._newest[next(iter(self._newest))]
