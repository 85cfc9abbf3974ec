"""What a worker's token may touch: its queues, the workers that work on them alone, and their runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from noonbell.errors import Forbidden
from noonbell.model.run import Run, RunId
from noonbell.model.worker import Worker

_FRESH: Final = 10.0
"""Seconds that a worker's name is known to be fine without asking the store."""
_MOST_KNOWN: Final = 10_000


class _Store(Protocol):
    async def run(self, run_id: RunId) -> Run | None: ...

    async def workers(self) -> list[Worker]: ...


class WorkerBounds:
    def __init__(self, store: _Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._known: dict[tuple[str, tuple[str, ...]], float] = {}

    async def claim(self, queues: tuple[str, ...], worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the claim asks for; without `queues`, all of the token's. Forbidden where it asks for others."""
        asked = given.get("queues")
        if asked is None:
            asked = list(queues)
        if isinstance(asked, list):
            others = [str(name) for name in asked if name not in queues]
            if others:
                raise Forbidden(f"this token is for {_named(queues)}, and not for {_named(others[:5])}")
        await self.worker(queues, worker_id)
        return {**given, "queues": asked}

    async def worker(self, queues: tuple[str, ...], worker_id: Any) -> None:
        """Forbidden for the name of a worker that works on other queues too: its leases are not this token's."""
        if not isinstance(worker_id, str):
            return  # no name: whoever reads the call refuses it
        known = (worker_id, queues)
        now = self._monotonic()
        if now - self._known.get(known, -_FRESH) < _FRESH:
            return
        there = next((one for one in await self._store.workers() if one.id == worker_id), None)
        if there is not None and not set(there.queues) <= set(queues):
            raise Forbidden(f"there is a worker {worker_id!r} on other queues; this token is for {_named(queues)}")
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[known] = now

    async def run(self, queues: tuple[str, ...], run_id: RunId, worker_id: Any) -> None:
        """Forbidden for a run of another queue, whoever holds it."""
        run = await self._store.run(run_id)
        if run is not None and run.queue not in queues:
            raise Forbidden(f"this token is for {_named(queues)}, and the run is in another")
        await self.worker(queues, worker_id)


def _named(queues: tuple[str, ...] | list[str]) -> str:
    return f"queue{'s' if len(queues) > 1 else ''} {', '.join(map(repr, queues))}"
