"""A node: planner, sweeper and workers of one process, started and stopped together; and what a process watches in its store.

Any of them may be left out, and any number of nodes may share a store: none of them is the leader. Killed, a node leaves
nothing behind but leases, and those run out.

    SchemaWatch       stops a process whose store another node has upgraded past it, or which was moved elsewhere
    AuditWatch        writes the head of the audit log to the server's own log: at the start, every hour in which it moved, and
                      at the stop. Kept outside the store, it is what `noonbell audit --expect-head` compares the log with
    PauseWatch        says in the log of each process that everything is paused, by whom and why, and that it goes on
    SchedulerWatch    warns in processes that execute and do not plan, while no scheduler runs: slots, delayed runs and
                      retries wait then
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from noonbell.clock import Clock, read_monotonic, rfc3339
from noonbell.engine.loop_runner import Loop, LoopHealth, LoopRunner, TimedLoop, note_not_ready_periods
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.errors import NoonbellError, SchemaMismatch
from noonbell.model.access import AuditEnd, AuditEntry
from noonbell.model.account import InstallationPause
from noonbell.model.worker import is_scheduler_alive
from noonbell.policy.audit_chain import LogFlaw, LogState
from noonbell.ports import PAUSE, Store, Wakeup

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

        `note_outage` is called for each period in which the node was not ready, when it has ended. `waits_for` says which lock
        the store waits for.
        """
        self.planner, self.sweeper, self.workers = planner, sweeper, tuple(workers)
        self._others = dict(others or {})
        self.loops = LoopHealth(clock, waits_for=waits_for)
        self._note_outage = note_outage
        self._looking: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._runners: list[LoopRunner] = []
        self._stop_watchers: list[asyncio.Task[None]] = []
        self._running = False
        self.is_idle = asyncio.Event()
        """Set when operators have stopped every worker that it had."""

    async def start(self, graceful_timeout: float = 10.0) -> None:
        """Begin. The store and the wake-up are open. `graceful_timeout` is for workers that an operator stops."""
        try:
            for worker in self.workers:
                await worker.start(self.loops)
                self._stop_watchers.append(asyncio.create_task(self._stop_when_wanted(worker, graceful_timeout)))
        except BaseException:
            await self.stop(0)
            raise
        if self.planner is not None:
            self._runners.append(LoopRunner("planner", self.planner, self.loops, kind="planner"))
        if self.sweeper is not None:
            self._runners.append(LoopRunner("sweeper", self.sweeper, self.loops, kind="sweeper", yields=True))
        self._runners += [LoopRunner(name, loop, self.loops, yields=True) for name, loop in self._others.items()]
        for runner in self._runners:
            runner.start()
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
        await asyncio.gather(*(runner.stop() for runner in self._runners))
        self._runners.clear()
        await asyncio.gather(*(worker.stop(graceful_timeout) for worker in self.workers if not worker.has_stopped))

    def health(self) -> dict[str, Any]:
        """What readiness is about: `ok` is False while the node does not run, the store does not answer or a loop is
        stalled.
        """
        loops, planner = self.loops, self.planner
        stalls = loops.stalls()
        planned_at = None if planner is None or planner.last_at is None else rfc3339(planner.last_at)
        return {
            "ok": self._running and loops.is_ok and all(worker.is_well for worker in self.workers),
            "reason": self._reason(),
            "store": {"ok": loops.store_ok, "since": rfc3339(loops.since), "error": loops.store_error},
            "planner": None if planner is None else {"last_at": planned_at, "lag_seconds": planner.lag_seconds},
            "workers": [worker.health() for worker in self.workers],
            "stalled": [
                {"loop": stall.loop, "kind": stall.kind, "since": rfc3339(stall.since), "error": stall.error}
                for stall in stalls
            ],
            "errors": dict(loops.errors),
        }

    def _reason(self) -> str | None:
        if not self._running:
            return "it has not started, or is stopping"
        lost = (f"the thread of worker {one.id}'s heartbeats died" for one in self.workers if not one.is_well)
        return self.loops.reason or next(lost, None)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self.loops.check()
            if self.loops.ended_periods and self.loops.is_ok and (self._noting is None or self._noting.done()):
                self._noting = asyncio.create_task(self._note(), name="noonbell outage")

    async def _note(self) -> None:
        """What the store does not take now is noted at the next look."""
        if self._note_outage is None:
            self.loops.ended_periods.clear()
            return
        try:
            await note_not_ready_periods(self.loops, self._note_outage, read_monotonic())
        except NoonbellError as error:
            logger.debug("an outage could not be recorded yet: %s", error)

    async def _stop_when_wanted(self, worker: Worker, graceful_timeout: float) -> None:
        await worker.stop_wanted.wait()
        logger.info("worker %s stops: an operator asked for it", worker.id)
        await worker.stop(graceful_timeout)
        if all(one.has_stopped for one in self.workers):
            self.is_idle.set()


log = logging.getLogger("noonbell")

SCHEMA_EVERY = 30.0
"""Seconds between two looks."""


class SchemaWatch:
    def __init__(self, store: Store, on_mismatch: Callable[[], object], *, every: float | None = None) -> None:
        """`on_mismatch` is called once, when the store has moved past this code."""
        self._store, self._on_mismatch = store, on_mismatch
        self._every = SCHEMA_EVERY if every is None else every
        self.mismatch: SchemaMismatch | None = None

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look now and then, until this is left."""
        task = asyncio.create_task(self._look(), name="noonbell schema watch")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        looked_at = read_monotonic()
        while self.mismatch is None:
            await asyncio.sleep(min(self._every, _LOOK_PAUSE))
            try:
                if read_monotonic() - looked_at >= self._every or await self._may_be_moved():
                    looked_at = read_monotonic()
                    await self._store.check_schema()
            except SchemaMismatch as error:
                self.mismatch = error
            except Exception as error:  # the loops that need the store report that it does not answer
                log.debug("the schema could not be checked: %s", error)
        log.error("stopping: %s", self.mismatch.message)
        self._on_mismatch()

    async def _may_be_moved(self) -> bool:
        """A store is paused before it is moved."""
        return await self._store.installation_pause() is not None


audit_log = logging.getLogger("noonbell.audit")

AUDIT_EVERY: Final = 3_600.0
_MOST_TOLD: Final = 10


class AuditLogReader(Protocol):
    async def end(self) -> AuditEnd: ...

    async def check_since(self, seen: AuditEntry) -> LogState:
        """Whether an entry that was seen is still there, and what came after it is as it was written."""


class AuditWatch(TimedLoop):
    def __init__(self, log: AuditLogReader, in_words: Callable[[LogFlaw], str]) -> None:
        self._log, self._in_words = log, in_words
        self._seen: AuditEntry | None = None

    async def tick(self) -> float:
        """Look, and write the head down if it moved."""
        end = await self._log.end()  # first: what is written while we check is checked the next time
        if self._seen is not None:
            state = await self._log.check_since(self._seen)
            for flaw in state.flaws[:_MOST_TOLD]:
                audit_log.error("%s; noonbell audit checks all of it", self._in_words(flaw))
        if end.entry is not None and end.entry != self._seen:
            audit_log.info("audit log head %s", end.head)
        self._seen = end.entry
        return AUDIT_EVERY


_LOOK_PAUSE = 5.0
"""Seconds between two looks where no signal comes."""


class PauseWatch:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store, self._wakeup = store, wakeup
        self._known: InstallationPause | None = None

    async def tick(self) -> float:
        """Look, and say what has changed."""
        found = await self._store.installation_pause()
        if found != self._known:
            if found is not None:
                why = f": {found.reason}" if found.reason else ""
                log.warning(
                    "everything is paused since %s by %s%s", rfc3339(found.since), found.by or "an unnamed caller", why
                )
            else:
                log.info("everything has been resumed: the pause is over")
            self._known = found
        return _LOOK_PAUSE

    async def wait(self, seconds: float) -> None:
        await self._wakeup.wait((PAUSE,), seconds)


_PULSE = 1.0
"""Seconds between two pulses."""


class PulseLoop(TimedLoop):
    """Lets the store say that it went back: by a fail-over to a standby that was behind, or a restore."""

    def __init__(self, store: Store, node: str, *, writes: bool) -> None:
        """`writes`: it moves the pulse on. A process that only works looks how far it has come."""
        self._store, self._node, self._writes = store, node, writes

    async def tick(self) -> float:
        await self._store.pulse(self._node, writes=self._writes)
        return _PULSE


_LOOK_ABSENT = 5.0
"""Seconds between two looks while there is none."""
_LOOK_ALIVE = 30.0
_AGAIN = 600.0
"""Seconds after which a situation that goes on is said again."""


class SchedulerWatch(TimedLoop):
    def __init__(self, store: Store, *, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._warned_at: float | None = None

    async def tick(self) -> float:
        """Look, and say so if none is running; again while that goes on, and once when it is over."""
        seen_at = await self._store.scheduler_seen_at()
        if is_scheduler_alive(seen_at, await self._store.now()):
            if self._warned_at is not None:
                log.info("a scheduler is running on this store now")
                self._warned_at = None
            return _LOOK_ALIVE
        now = self._monotonic()
        if self._warned_at is None or now - self._warned_at >= _AGAIN:
            self._warned_at = now
            log.warning(
                "no scheduler is running on this store: schedules do not fire, and delayed runs and retries wait;"
                " start one with `noonbell serve` and the same store"
            )
        return _LOOK_ABSENT
