"""A node: planner, sweeper and workers of one process, kept going together.

Any of them may be left out, and any number of nodes may share a store: none of them is the leader. Killed, a node leaves
nothing behind but leases, and those run out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.clock import Clock, rfc3339
from noonbell.engine.keep import Keeper, Loop, Watch
from noonbell.engine.plan import Planner
from noonbell.engine.sweep import Sweeper
from noonbell.engine.work import Worker

logger = logging.getLogger("noonbell.engine")


class Node:
    def __init__(
        self,
        *,
        planner: Planner | None = None,
        sweeper: Sweeper | None = None,
        workers: Sequence[Worker] = (),
        others: Mapping[str, Loop] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`clock` is only for what `health` says; the store's rules everything else."""
        self.planner, self.sweeper, self.workers = planner, sweeper, tuple(workers)
        self._others = dict(others or {})
        self.watch = Watch(clock)
        self._keepers: list[Keeper] = []
        self._stop_watchers: list[asyncio.Task[None]] = []
        self._running = False
        self.is_idle = asyncio.Event()
        """Set when operators have stopped every worker that it had."""

    async def start(self, graceful_timeout: float = 10.0) -> None:
        """Begin. The store and the wake-up are open. `graceful_timeout` is for workers that an operator stops."""
        try:
            for worker in self.workers:
                await worker.start(self.watch)
                self._stop_watchers.append(asyncio.create_task(self._stop_when_wanted(worker, graceful_timeout)))
        except BaseException:
            await self.stop(0)
            raise
        if self.planner is not None:
            self._keepers.append(Keeper("planner", self.planner, self.watch))
        if self.sweeper is not None:
            self._keepers.append(Keeper("sweeper", self.sweeper, self.watch))
        self._keepers += [Keeper(name, loop, self.watch) for name, loop in self._others.items()]
        for keeper in self._keepers:
            keeper.start()
        self._running = True

    async def stop(self, graceful_timeout: float = 10.0) -> None:
        """Plan no more, let the workers stop gracefully, all at the same time. The store is the caller's to close."""
        self._running = False
        for watcher in self._stop_watchers:
            watcher.cancel()
        await asyncio.gather(*self._stop_watchers, return_exceptions=True)
        self._stop_watchers.clear()
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers))
        self._keepers.clear()
        await asyncio.gather(*(worker.stop(graceful_timeout) for worker in self.workers if not worker.has_stopped))

    def health(self) -> dict[str, Any]:
        """For readiness: `ok` is False while the node does not run or the store does not answer."""
        watch, planner = self.watch, self.planner
        planned_at = None if planner is None or planner.last_at is None else rfc3339(planner.last_at)
        return {
            "ok": self._running and watch.store_ok,
            "store": {"ok": watch.store_ok, "since": rfc3339(watch.since), "error": watch.store_error},
            "planner": None if planner is None else {"last_at": planned_at, "lag_seconds": planner.lag_seconds},
            "workers": [worker.health() for worker in self.workers],
            "errors": dict(watch.errors),
        }

    async def _stop_when_wanted(self, worker: Worker, graceful_timeout: float) -> None:
        await worker.stop_wanted.wait()
        logger.info("worker %s was told to stop", worker.id)
        await worker.stop(graceful_timeout)
        if all(one.has_stopped for one in self.workers):
            self.is_idle.set()
