"""What a worker holds: runs that wait to be started, runs that execute, outcomes that wait to be settled.

    claim ──▶ waiting ──▶ running ──▶ ended ──▶ settled: removed
                 └── handed back ───────▲

`InFlight` is memory only. Claim loops add leases and take outcomes out, the attempts' own tasks move a lease from running to
ended, the heartbeat interrupts and resizes; all of them in the worker's event loop. From the heartbeat thread come reads of
`leases` and `abandon_idle`, which a lock guards. Heartbeats renew the leases until the store has taken the outcome.

    the process dies   this memory is gone; the leases run out, and the sweep gives the runs to others
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from noonbell.clock import SECOND, read_monotonic
from noonbell.engine.loop_runner import Signal
from noonbell.engine.settle import released, subject_of
from noonbell.model.run import Lease, RunId, Settlement

logger = logging.getLogger("noonbell.engine")

_AHEAD_SECONDS = 0.25
"""The seconds of work that a worker claims ahead, at the pace of its last attempts."""
_SHORT = 0.05
"""A worker claims ahead only while an attempt takes less than this, in seconds."""
_AT_ONCE = 0.0005
"""Attempts that take less, in seconds, are taken to wait for nothing."""
_IN_A_ROW = 0.002
"""Seconds that one task carries out attempts before the event loop gets its turn, if none of them waits for anything."""
STALE = 1.0
"""A run that was claimed ahead and is not started after this many seconds is handed back."""


class StopReason(enum.Enum):
    """Why a run was interrupted."""

    CANCELED = enum.auto()
    LOST = enum.auto()
    STOPPED = enum.auto()
    """The lease is still this worker's, which must not go on with the run: it hands the run back."""


class LeaseState:
    """One lease and how far this worker has got with it."""

    __slots__ = (
        *("begun", "is_settling", "is_under_way", "key", "latency_seconds", "lease", "ping_seconds", "stop_reason"),
        *("taken_at", "task"),
    )

    def __init__(self, lease: Lease, taken_at: float, ping_seconds: float) -> None:
        self.lease = lease
        self.key: tuple[RunId, int] = (lease.run_id, lease.token)
        self.taken_at = taken_at
        """Monotonic."""
        self.ping_seconds = ping_seconds
        """How often a heartbeat has to renew it."""
        self.task: asyncio.Task[None] | None = None
        """The asyncio task that carries out the attempt; None while it waits, and when it has ended."""
        self.stop_reason: StopReason | None = None
        self.is_under_way = False
        """Its attempt has begun: it is too late to hand it back as if nothing had happened."""
        self.is_settling = False
        """A claim loop is writing its outcome to the store."""
        self.begun = False
        """Delivered at most once and marked so in the store: it cannot be handed back."""
        self.latency_seconds: float | None = None
        """How long the target took; None if it did not end by itself."""

    @property
    def is_renewed(self) -> bool:
        return self.stop_reason is None or self.stop_reason is StopReason.STOPPED


def renewal_seconds(lease: Lease) -> float:
    """A heartbeat that fails twice must not cost the lease: a third of its length."""
    return (lease.expires_at - lease.claimed_at) / SECOND / 3


def _cancel(state: LeaseState) -> None:
    """If its attempt has ended meanwhile, its task may carry out another one."""
    if state.task is not None:
        state.task.cancel()


EndedAttempt = tuple[LeaseState, Settlement]
RunAttempt = Callable[[LeaseState], Coroutine[Any, Any, Settlement | None]]
"""Carries out an attempt. None: there is nothing to settle, because the run is another worker's or over."""


class InFlight:
    def __init__(
        self,
        concurrency: int,
        run_attempt: RunAttempt,
        *,
        ahead: int,
        abandoned: AbandonedThreads | None = None,
        monotonic: Callable[[], float] = read_monotonic,
    ) -> None:
        """`ahead` is the most that is claimed beyond `concurrency` while attempts are short."""
        self.concurrency = concurrency
        self.is_open = True
        """False: the worker claims nothing more."""
        self.changed = Signal()
        """Claim loops wait for it: there is an outcome to settle, or room to claim for."""
        self.leases: dict[tuple[RunId, int], LeaseState] = {}
        """All that is held, by run and token."""
        self.running = 0
        self.abandoned = abandoned or AbandonedThreads()
        """Threads of attempts that are over; each keeps its place until it returns."""
        self.abandoned.on_return = self._thread_returned
        self._run_attempt, self._ahead, self._monotonic = run_attempt, ahead, monotonic
        self._waiting: deque[LeaseState] = deque()
        self._waiting_since = 0.0
        """Monotonic: none of those that wait was taken before this. What has left meanwhile may have been the oldest."""
        self._ended: deque[EndedAttempt] = deque()
        self._reserved = 0
        self._was_refused = False
        self._settling = 0
        self._started = 0
        """Attempts that have begun, ever."""
        self._pace: float | None = None
        self._is_starting = False
        self._context = contextvars.copy_context()
        """What every attempt begins with."""
        self._beginning = threading.Lock()
        """Between an attempt that begins and the heartbeat thread, which hands back those that have not."""

    # Claiming

    def reserve(self, most: int) -> int:
        """How many to claim now. They count as held until `unreserve`, so that two claim loops do not share the same room.

        What is being settled leaves its room to others.
        """
        places = self.concurrency - self.abandoned.count
        if not self.is_open or places <= 0:
            return 0
        room = places + self._allowed_ahead() - len(self.leases) + self._settling - self._reserved
        room = max(0, min(room, most))
        if not room and self._reserved:
            self._was_refused = True
        self._reserved += room
        return room

    def unreserve(self, room: int) -> None:
        self._reserved -= room

    def take_refused(self) -> bool:
        """Whether a claim loop wanted room while another one had reserved all of it. That other one has to look again."""
        refused, self._was_refused = self._was_refused, False
        return refused

    def add(self, leases: Sequence[Lease], ping_seconds: Callable[[Lease], float] = renewal_seconds) -> float:
        """Hold these from now on and start as many as there is room for. Seconds until one of them wants a heartbeat."""
        now, soonest = self._monotonic(), float("inf")
        if not self._waiting:
            self._waiting_since = now
        for lease in leases:
            state = LeaseState(lease, now, ping_seconds(lease))
            soonest = min(soonest, state.ping_seconds)
            self.leases[state.key] = state
            # What a limit counts must not wait for its turn behind what nothing counts.
            (self._waiting.append if lease.plain or lease.in_flow else self._waiting.appendleft)(state)
        self._start_more()
        return soonest

    def resize(self, concurrency: int) -> None:
        """Set the concurrency that an operator wants. What executes beyond a smaller number goes on to its end."""
        if concurrency != self.concurrency:
            self.concurrency = concurrency
            self._start_more()
            self.changed.notify()

    def _thread_returned(self) -> None:
        self._start_more()
        self.changed.notify()

    def _allowed_ahead(self) -> int:
        if self._pace is None or self._pace > _SHORT:
            return 0
        return min(self._ahead, int(self.concurrency * _AHEAD_SECONDS / max(self._pace, 1e-6)))

    # Executing

    def _start_more(self, loop: asyncio.AbstractEventLoop | None = None, most: int = 1) -> None:
        """Start what there is room for. While attempts end at once, `most` now and more in the loop's next turn.

        A task that ends at once takes on what waits: by then there may be nothing left to start another one for.
        """
        if not self._waiting:
            return
        loop = loop or asyncio.get_running_loop()
        if self._pace is None or self._pace > _AT_ONCE:
            most = self.concurrency
        while self._waiting and self.running + self.abandoned.count < self.concurrency:
            if most <= 0:
                if not self._is_starting:
                    self._is_starting = True
                    loop.call_soon(self._go_on_starting, loop)
                return
            most -= 1
            state = self._waiting.popleft()
            self.running += 1
            # A context of its own: `_start_more` is called by tasks that end, and a handler may have changed theirs.
            state.task = loop.create_task(self._run_in_turn(state), context=self._context.copy())

    def _go_on_starting(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_starting = False
        self._start_more(loop, 2 * max(1, self.running))

    async def _run_in_turn(self, state: LeaseState) -> None:
        """Carry out this attempt, and then those that wait for their turn, one after another, all in this task.

        Most attempts end without waiting for anything, and a task costs more than they do. The task goes on only if the last
        attempt left it as it was: nothing canceled it, and its context variables are what they were.
        """
        task, before, since = state.task, contextvars.copy_context(), self._monotonic()
        assert task is not None  # noqa: S101 - `_start_more` has made it
        try:
            while True:
                number = self._started + 1
                ended_at = await self._run(state)
                if self._started != number:  # others have begun meanwhile, in turns of the loop
                    since = ended_at
                elif ended_at - since > _IN_A_ROW:
                    await asyncio.sleep(0)
                    since = self._monotonic()
                if not self._waiting or self.running + self.abandoned.count > self.concurrency:
                    return
                if task.cancelling() or contextvars.copy_context() != before:
                    return
                state = self._waiting.popleft()
                state.task = task
        finally:
            self.running -= 1
            # asyncio.get_running_loop asks the system for the process, each time; the task knows its loop.
            self._start_more(task.get_loop())

    async def _run(self, state: LeaseState) -> float:
        """When it has ended (monotonic)."""
        self._started += 1
        began = self._monotonic()
        settlement: Settlement | None = None
        try:
            if self._begins(state):
                settlement = await self._run_attempt(state)
        except Exception:
            # A defect of ours: the lease runs out, and the sweep decides.
            logger.exception("run %d could not be executed", state.lease.run_id)
        finally:
            state.task = None
            ended_at = self._monotonic()
            if state.is_under_way:  # one that was handed back says nothing about how long attempts take
                self._note_pace(ended_at - began)
            self._end(state, settlement)
        return ended_at

    def _begins(self, state: LeaseState) -> bool:
        """False: `abandon_idle` has handed it back meanwhile."""
        with self._beginning:
            state.is_under_way = state.stop_reason is not StopReason.LOST
        return state.is_under_way

    def _note_pace(self, seconds: float) -> None:
        self._pace = seconds if self._pace is None else self._pace + 0.1 * (seconds - self._pace)

    def _end(self, state: LeaseState, settlement: Settlement | None) -> None:
        if settlement is None:
            self.leases.pop(state.key, None)
        else:
            self._ended.append((state, settlement))
        self.changed.notify()

    # Settling

    def take_ended(self, most: int) -> list[EndedAttempt]:
        """Outcomes to be settled, at most this many: then `remove` them, or `put_back` if the store did not take them."""
        count = min(most, len(self._ended))
        self._settling += count
        ended = [self._ended.popleft() for _ in range(count)]
        for state, _ in ended:
            state.is_settling = True
        return ended

    def put_back(self, ended: Sequence[EndedAttempt]) -> None:
        """The store is away: they stay held. Nothing is claimed meanwhile, so they are never more than were taken."""
        self._settling -= len(ended)
        for state, _ in ended:
            state.is_settling = False
        self._ended.extendleft(reversed(ended))

    def remove(self, ended: Sequence[EndedAttempt]) -> None:
        """The store has taken these outcomes, or refused them for good."""
        self._settling -= len(ended)
        for state, _ in ended:
            self.leases.pop(state.key, None)

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def has_more_soon(self, most: int) -> bool:
        """Whether runs that are claimed ahead are ending so fast that waiting for a moment fills a batch."""
        return bool(self._waiting) and len(self._ended) < most and self._allowed_ahead() > 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # Interrupting

    def interrupt(self, state: LeaseState, reason: StopReason) -> None:
        """Stop it, for that reason. An outcome that is there already is settled all the same: the store decides."""
        if state.stop_reason is not None:
            return
        state.stop_reason = reason
        if state.task is not None:
            # In a turn of its own: a task that is canceled before its first step never takes one, nor gives its place back.
            state.task.get_loop().call_soon(_cancel, state)
        elif state in self._waiting:
            self._waiting.remove(state)
            is_ours = reason is StopReason.STOPPED
            self._end(state, released(subject_of(state.lease), begun=False) if is_ours else None)

    def interrupt_all(self, reason: StopReason) -> None:
        for state in list(self.leases.values()):
            if state.task is not None and not state.task.done():
                self.interrupt(state, reason)

    def hand_back_waiting(self, older_than: float = 0.0) -> int:
        """Hand back what is not started; with `older_than`, only if the oldest of it has waited for that many seconds."""
        now = self._monotonic()
        if not self._waiting or now - self._waiting_since < older_than:
            return 0
        self._waiting_since = min(state.taken_at for state in self._waiting)
        if now - self._waiting_since < older_than:
            return 0
        count = len(self._waiting)
        self._pace = None  # attempts are longer than it seemed
        for state in list(self._waiting):
            self.interrupt(state, StopReason.STOPPED)
        return count

    def abandon_idle(self) -> list[LeaseState]:
        """From any thread: what has not begun, and never will. The caller hands it back, then calls `forget`."""
        with self._beginning:
            idle = [one for one in list(self.leases.values()) if not one.is_under_way and one.stop_reason is None]
            for state in idle:
                state.stop_reason = StopReason.LOST
        return idle

    def forget(self, idle: Sequence[LeaseState]) -> None:
        """Remove those that `abandon_idle` returned and that still wait for their turn."""
        for state in idle:
            if state.task is None and state in self._waiting:
                self._waiting.remove(state)
                self._end(state, None)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing executes. False if something still does after that many seconds."""
        tasks = {state.task for state in self.leases.values() if state.task is not None and not state.task.done()}
        if not tasks:
            return True
        _, left = await asyncio.wait(tasks, timeout=max(0.0, seconds))
        return not left

    def ping_seconds(self, default: float) -> float:
        """How often the leases have to be renewed. From any thread."""
        return min((state.ping_seconds for state in list(self.leases.values())), default=default)


class AbandonedThreads:
    """Counts threads of handlers whose attempt is over. A thread cannot be killed; it ends when its handler returns.

    A worker and its job target share one. The worker starts no more than its concurrency, these threads included.
    """

    def __init__(self) -> None:
        self.count = 0
        self.on_return: Callable[[], None] | None = None

    def add(self) -> None:
        self.count += 1

    def remove(self) -> None:
        self.count -= 1
        if self.on_return is not None:
            self.on_return()
