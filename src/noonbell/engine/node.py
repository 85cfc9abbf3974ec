"""A node: planner, sweeper and workers of one process, kept going together.

Any of them may be left out, and any number of nodes may share a store: none of them is the leader. Killed, a node leaves
nothing behind but leases, and those run out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from noonbell.clock import Clock, rfc3339
from noonbell.engine.keep import Keeper, Loop
from noonbell.engine.plan import Planner
from noonbell.engine.progress import Watch, note_stretches
from noonbell.engine.sweep import Sweeper
from noonbell.engine.work import Worker
from noonbell.errors import NoonbellError

logger = logging.getLogger("noonbell.engine")

_LOOK = 0.25
"""Seconds between two looks at the progress of the loops."""

NoteOutage: TypeAlias = Callable[[float, str], Awaitable[object]]
"""Is given how many seconds ago an outage began that is over now, and its reason."""


def node_name() -> str:
    """What this process is called in the account: host and process number."""
    return f"{socket.gethostname()}-{os.getpid()}"


class Node:
    def __init__(
        self,
        *,
        planner: Planner | None = None,
        sweeper: Sweeper | None = None,
        workers: Sequence[Worker] = (),
        others: Mapping[str, Loop] | None = None,
        clock: Clock | None = None,
        note_outage: NoteOutage | None = None,
        waits_for: Callable[[], str] | None = None,
    ) -> None:
        """`clock` is only for what `health` says; the store's rules everything else.

        `note_outage` is told of each stretch in which the node was not ready, when it is over. `waits_for` says which lock
        the store waits for.
        """
        self.planner, self.sweeper, self.workers = planner, sweeper, tuple(workers)
        self._others = dict(others or {})
        self.watch = Watch(clock, waits_for=waits_for)
        self._note_outage = note_outage
        self._looking: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
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
            self._keepers.append(Keeper("planner", self.planner, self.watch, kind="planner"))
        if self.sweeper is not None:
            self._keepers.append(Keeper("sweeper", self.sweeper, self.watch, kind="sweeper"))
        self._keepers += [Keeper(name, loop, self.watch) for name, loop in self._others.items()]
        for keeper in self._keepers:
            keeper.start()
        self._looking = asyncio.create_task(self._look(), name="noonbell progress")
        self._running = True

    async def stop(self, graceful_timeout: float = 10.0) -> None:
        """Plan no more, let the workers stop gracefully, all at the same time. The store is the caller's to close."""
        self._running = False
        watchers = [task for task in (*self._stop_watchers, self._looking, self._noting) if task is not None]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        self._stop_watchers.clear()
        self._looking = self._noting = None
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers))
        self._keepers.clear()
        await asyncio.gather(*(worker.stop(graceful_timeout) for worker in self.workers if not worker.has_stopped))

    def health(self) -> dict[str, Any]:
        """For readiness: `ok` is False while the node does not run, the store does not answer or a loop is stalled."""
        watch, planner = self.watch, self.planner
        stalls = watch.stalls()
        planned_at = None if planner is None or planner.last_at is None else rfc3339(planner.last_at)
        return {
            "ok": self._running and watch.is_ok and all(worker.is_well for worker in self.workers),
            "reason": self._reason(),
            "store": {"ok": watch.store_ok, "since": rfc3339(watch.since), "error": watch.store_error},
            "planner": None if planner is None else {"last_at": planned_at, "lag_seconds": planner.lag_seconds},
            "workers": [worker.health() for worker in self.workers],
            "stalled": [
                {"loop": stall.loop, "kind": stall.kind, "since": rfc3339(stall.since), "error": stall.error}
                for stall in stalls
            ],
            "errors": dict(watch.errors),
        }

    def _reason(self) -> str | None:
        if not self._running:
            return "it has not started, or is stopping"
        lost = (f"the thread of worker {one.id}'s heartbeats died" for one in self.workers if not one.is_well)
        return self.watch.reason or next(lost, None)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self.watch.look()
            if self.watch.over and self.watch.is_ok and (self._noting is None or self._noting.done()):
                self._noting = asyncio.create_task(self._note(), name="noonbell outage")

    async def _note(self) -> None:
        """What the store does not take now is noted at the next look."""
        if self._note_outage is None:
            self.watch.over.clear()
            return
        try:
            await note_stretches(self.watch, self._note_outage, time.monotonic())
        except NoonbellError as error:
            logger.debug("an outage could not be noted yet: %s", error)

    async def _stop_when_wanted(self, worker: Worker, graceful_timeout: float) -> None:
        await worker.stop_wanted.wait()
        logger.info("worker %s was told to stop", worker.id)
        await worker.stop(graceful_timeout)
        if all(one.has_stopped for one in self.workers):
            self.is_idle.set()
