"""Workers and queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from noonbell.model.request import (
    Unserved,
)
from noonbell.model.worker import Attendance, Queue, Worker, WorkerState


class WorkerStore(Protocol):
    async def register_worker(self, worker: Worker) -> Worker:
        """A worker says who it is. One with the same id, another incarnation and a fresh heartbeat: AlreadyExists.

        Saying it again while it is alive changes what it says of itself; the state that an operator has set stays.
        """

    async def set_worker(
        self, worker_id: str, *, state: WorkerState | None = None, concurrency: int | None = None
    ) -> Worker:
        """An operator's wish, brought to the worker by its next heartbeat. Unknown: NotFound."""

    async def workers(self) -> list[Worker]:
        """All, by id. One whose heartbeat is older than three of its intervals is `lost`."""

    async def remove_worker(self, worker_id: str, incarnation: str) -> None:
        """A worker says goodbye. Another incarnation's row is left alone."""

    async def attend(self, worker_ids: Sequence[str], incarnation: str) -> dict[str, Attendance]:
        """These workers wait for runs and are alive; what an operator wants of each. One write for all of them.

        Those that are not registered with this incarnation are left out.
        """

    async def held(self, worker_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """How many runs each worker holds now, of these workers or of all. Who holds none is left out."""

    async def pinned(self, worker_ids: Sequence[str]) -> set[str]:
        """Those of these workers that a run which is due names."""

    async def unserved(self, grace_seconds: float) -> list[Unserved]:
        """Tasks with a run that has been due for so long and that no worker alive could take, found since the last call.

        Could: it is running and takes more than nothing, has the queue, knows the job type, is new enough, is named if
        the run names workers, and has had no other part of the same fan-out. Runs of a paused queue, or held back by a
        limit, are not meant. Each situation is told once, on whichever node, by the event `task.no_worker`; when no such
        run is left, `task.has_worker` tells that, and the task comes back with `is_over`. The work grows with queues and
        with workers that are named, never with what waits: so only the heads of lines are looked at.
        """

    async def queues(self) -> list[Queue]:
        """Every queue that has a setting or a run that is not final, by name, with its depth."""

    async def set_queue(self, name: str, change: Callable[[Queue], Queue], *, by: str | None = None) -> Queue:
        """Pause, resume or limit a queue; it takes effect with the next claim, on every node."""
