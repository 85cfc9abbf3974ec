"""Workers: who is there, and what an operator wants of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noonbell.clock import rfc3339
from noonbell.errors import InvalidState, NotFound
from noonbell.model.worker import PART_OF, SERVE, Worker, WorkerState
from noonbell.ports import Store, Wakeup
from noonbell.service.protocol import MOST_CONCURRENCY, checked_id
from noonbell.service.reader import Problems, Reader


class Workers:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store, self._wakeup = store, wakeup

    async def all(self) -> list[dict[str, Any]]:
        """By id, each with how many runs it holds."""
        held = await self._store.held()
        return [shown(worker, held.get(worker.id, 0)) for worker in await self._store.workers()]

    async def get(self, worker_id: str) -> dict[str, Any]:
        worker_id = checked_id(worker_id)
        worker = next((one for one in await self._store.workers() if one.id == worker_id), None)
        if worker is None:
            raise NotFound(f"there is no worker {worker_id!r}")
        held = await self._store.held([worker_id])
        return shown(worker, held.get(worker_id, 0))

    async def change(self, worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Another concurrency; the worker hears of it with its next heartbeat."""
        problems = Problems()
        reader = Reader(given, problems)
        if reader.get("concurrency") is None:
            reader.wrong("concurrency", "is missing; expected how many runs it may hold, 0 for none")
        concurrency = reader.integer("concurrency", 0, 0, MOST_CONCURRENCY)
        reader.finish("a worker that can be changed")
        problems.finish()
        worker = await self._store.set_worker(checked_id(worker_id), concurrency=concurrency)
        self._wake(worker)
        return await self.get(worker.id)

    async def set_state(self, worker_id: str, state: WorkerState) -> dict[str, Any]:
        """DRAINING takes no more runs, STOPPING ends after those it has, RUNNING takes runs again.

        InvalidState: one that is a part of `noonbell serve` would leave a node behind that says it is ready.
        """
        if state is WorkerState.STOPPING:
            worker_id = checked_id(worker_id)
            if any(one.id == worker_id and one.meta.get(PART_OF) == SERVE for one in await self._store.workers()):
                raise InvalidState(
                    f"worker {worker_id!r} is a part of `noonbell serve` and cannot be stopped alone: drain it, or stop the node"
                )
        worker = await self._store.set_worker(checked_id(worker_id), state=state)
        self._wake(worker)
        return {"worker_id": worker.id, "state": worker.state}

    def _wake(self, worker: Worker) -> None:
        self._wakeup.signal("orders")
        for queue in worker.queues:
            self._wakeup.signal(f"queue:{queue}")


def shown(worker: Worker, running: int) -> dict[str, Any]:
    return {
        "id": worker.id,
        "state": worker.state,
        "version": worker.version,
        "queues": list(worker.queues),
        "job_types": None if worker.job_types is None else list(worker.job_types),
        "concurrency": worker.concurrency,
        "running": running,
        "part_of": worker.meta.get(PART_OF),
        "started_at": rfc3339(worker.started_at),
        "last_heartbeat_at": rfc3339(worker.heartbeat_at),
    }
