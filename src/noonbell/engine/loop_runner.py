"""Loops: `LoopRunner` runs one, `Signal` wakes one, `LoopHealth` knows which are stalled and why, `StoreClock` says how
long to sleep.

A loop is `tick; wait`. What its runner does when a tick fails:

    the store is away    growing pauses with jitter until a tick succeeds: 0.2 to 10 s for planner and sweeper, less in workers
    anything else        logged once with its traceback, counted while it is the same, then on after a second
    a tick hangs         after five seconds the loop counts as stalled
    stop                 a tick under way is finished, a wait is cut short

A loop is stalled when its ticks have failed, or one of them has run, for more than five seconds; each batch of a long
tick counts as progress. A loop that sleeps until something is due, or a worker that has no room, is healthy. While the
store does not answer, a node is not ready from the first tick that failed so. Readiness, metrics and outages are read
from `LoopHealth`.

The log has one line when trouble begins and one when it ends.

A signal says only that there may be something to do; what it is, the loop finds in the store. A signal that gets lost
costs a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from noonbell.clock import SECOND, Clock, Instant, SystemClock, read_monotonic
from noonbell.errors import StoreUnavailable
from noonbell.ports import PLAN, Store, Wakeup

logger = logging.getLogger("noonbell.engine")

STALLED_AFTER = 5.0
"""Seconds without a tick that succeeds."""

_WORTH_NOTING = 1.0
"""Seconds: a shorter stretch makes no slot late."""

_report: ContextVar[Callable[[], object] | None] = ContextVar("report", default=None)


def batch_done() -> None:
    """Called by loops after each part of a long tick. Outside of a kept loop it does nothing."""
    report = _report.get()
    if report is not None:
        report()


@contextlib.contextmanager
def reporting(report: Callable[[], object]) -> Iterator[None]:
    """`batch_done`, called inside, calls `report`."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


@dataclass(slots=True)
class _Loop:
    """Times are monotonic."""

    kind: str | None
    tick_began: float | None = None
    """When the tick under way began, or last finished a batch."""
    failing_since: float | None = None
    """When the first of the ticks began that have failed since the last good one."""
    error: str | None = None
    repeats: int = 0
    """How often `error` came after it was logged."""

    def since(self) -> float | None:
        """Since when nothing has succeeded; None for a loop that sleeps."""
        return self.failing_since if self.failing_since is not None else self.tick_began


@dataclass(frozen=True, slots=True)
class StalledLoop:
    """A loop that does not get on."""

    loop: str
    kind: str
    since: Instant
    """By the clock of this machine."""
    seconds: float
    error: str | None
    """The last one; None while a tick has not ended yet and nothing is known of its reason."""

    def describe(self) -> str:
        why = self.error or "its tick has not ended"
        return f"the {self.loop} loop has made no progress for {self.seconds:.0f} s: {why}"


@dataclass(frozen=True, slots=True)
class NotReadyPeriod:
    """The node was not ready for a while, and is again."""

    began: float
    """Monotonic, as `ended`."""
    ended: float
    reason: str


class LoopHealth:
    """What the loops of a node say of themselves."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        monotonic: Callable[[], float] = read_monotonic,
        waits_for: Callable[[], str] | None = None,
    ) -> None:
        """`waits_for`: which lock the store's calls are waiting for at the moment; empty if none."""
        self._clock, self._monotonic, self._waits_for = clock or SystemClock(), monotonic, waits_for
        self._loops: dict[str, _Loop] = {}
        self._away: dict[str, str] = {}
        self._since: Instant = self._clock.now()
        self._trouble: tuple[float, str, bool] | None = None
        """Since when (monotonic) the node is not ready, why, and whether the store did not answer."""
        self.ended_periods: list[NotReadyPeriod] = []
        """Periods that have ended; `note_not_ready_periods` takes them out."""
        self.errors: dict[str, str] = {}
        """By loop: the last tick's error that was not the store's absence; gone after a good tick."""

    def now(self) -> Instant:
        """By the clock of this machine."""
        return self._clock.now()

    # What loops say

    def tick_began(self, name: str, kind: str | None = None) -> None:
        """A tick begins."""
        loop = self._loops.get(name)
        if loop is None:
            loop = self._loops[name] = _Loop(kind)
        loop.tick_began = self._monotonic()

    def progressed(self, name: str) -> None:
        """The tick under way has finished a batch."""
        loop = self._loops.get(name)
        if loop is not None and loop.tick_began is not None:
            loop.tick_began = self._monotonic()

    def tick_succeeded(self, name: str) -> None:
        """The tick under way has succeeded."""
        loop = self._loops.get(name)
        if loop is not None:
            loop.tick_began = loop.failing_since = None
            if loop.error is not None:
                self._count(name, loop)
                loop.error = None
        self.errors.pop(name, None)
        if self._away.pop(name, None) is not None and not self._away:
            self._since = self._clock.now()
        if self._trouble is not None:
            self.check()

    def store_unavailable(self, name: str, error: StoreUnavailable) -> None:
        """The tick under way failed because the store does not answer."""
        if not self._away:
            self._since = self._clock.now()
        self._away[name] = error.message
        self._fails(name)
        self.check()

    def tick_failed(self, name: str, error: BaseException) -> None:
        """The tick under way has failed for another reason."""
        loop = self._fails(name)
        said = self.errors[name] = f"{type(error).__name__}: {error}"
        if loop.error == said:
            loop.repeats += 1
        else:
            self._count(name, loop)
            loop.error = said
            logger.error(
                "the %s loop failed; it continues, and the same error is not logged again", name, exc_info=error
            )
        self.check()

    def loop_ended(self, name: str) -> None:
        """The loop was stopped: it does not count any longer."""
        self._loops.pop(name, None)
        self._away.pop(name, None)
        self.errors.pop(name, None)

    def _fails(self, name: str) -> _Loop:
        loop = self._loops.setdefault(name, _Loop(None))
        if loop.failing_since is None:
            loop.failing_since = loop.tick_began if loop.tick_began is not None else self._monotonic()
        loop.tick_began = None
        return loop

    def _count(self, name: str, loop: _Loop) -> None:
        if loop.repeats:
            logger.warning("the %s loop failed %d more times: %s", name, loop.repeats, loop.error)
        loop.repeats = 0

    # What is known of them

    @property
    def store_ok(self) -> bool:
        return not self._away

    @property
    def since(self) -> Instant:
        """Since when the store has been as it is now."""
        return self._since

    @property
    def store_error(self) -> str | None:
        return next(iter(self._away.values()), None)

    @property
    def is_ok(self) -> bool:
        return self.store_ok and not self.stalls()

    @property
    def reason(self) -> str | None:
        """Why the node is not ready, in one line; None while it is."""
        if self._away:
            return f"the store is not responding: {self.store_error}"
        return next((stall.describe() for stall in self.stalls()), None)

    def stalled_kinds(self) -> dict[str, bool]:
        """By kind of loop, of those that count for readiness: whether one of the kind is stalled."""
        stalled = {stall.kind for stall in self.stalls()}
        return {loop.kind: loop.kind in stalled for loop in self._loops.values() if loop.kind is not None}

    def stalls(self) -> list[StalledLoop]:
        """The loops that are stalled, the longest first."""
        now = self._monotonic()
        found = []
        for name, loop in self._loops.items():
            since = loop.since()
            if loop.kind is not None and since is not None and now - since > STALLED_AFTER:
                seconds = now - since
                began = Instant(self._clock.now() - round(seconds * SECOND))
                found.append(StalledLoop(name, loop.kind, began, seconds, self._reason(name, loop)))
        return sorted(found, key=lambda stall: -stall.seconds)

    def _reason(self, name: str, loop: _Loop) -> str | None:
        said = self._away.get(name) or loop.error
        if said is None and self._waits_for is not None and (holder := self._waits_for()):
            said = f"it waits for a lock that is held by {holder}"
        return said

    def check(self) -> None:
        """See whether the node has become ready or is ready no longer, and log that. A node calls it now and then."""
        stalls = self.stalls()
        if self._away or stalls:
            if self._trouble is None:
                self._turn_bad(stalls)
            elif self._away and not self._trouble[2]:
                self._trouble = (self._trouble[0], self.store_error or "", True)
        elif self._trouble is not None:
            self._turn_good()

    def _turn_bad(self, stalls: list[StalledLoop]) -> None:
        reason = self.store_error or stalls[0].describe()
        logger.warning("not ready: %s", self.reason)
        troubled = {*self._away, *(stall.loop for stall in stalls)}
        starts = [self._loops[name].since() or self._monotonic() for name in troubled if name in self._loops]
        self._trouble = (min(starts, default=self._monotonic()), reason, bool(self._away))

    def _turn_good(self) -> None:
        assert self._trouble is not None  # noqa: S101 - asked by the caller
        (began, reason, was_away), self._trouble = self._trouble, None
        ended = self._monotonic()
        self.ended_periods.append(NotReadyPeriod(began, ended, reason))
        what = "the store is back" if was_away else "all loops go again"
        logger.info("ready again after %.1f s: %s", ended - began, what)


async def note_not_ready_periods(
    health: LoopHealth, note: Callable[[float, str], Awaitable[object]], now: float
) -> None:
    """Tell the store how long the node was not ready, now that it takes writes again; what it refuses is kept.

    `note` is given the seconds since the stretch began and its reason.
    """
    while health.ended_periods:
        stretch = health.ended_periods[0]
        if stretch.ended - stretch.began >= _WORTH_NOTING:
            await note(now - stretch.began, stretch.reason)
        health.ended_periods.pop(0)


AFTER_ERROR = 1.0
"""Seconds from a tick that failed for another reason than the store's absence to the next."""


class Loop(Protocol):
    """All behaviour is in `tick`; `wait` only passes the time."""

    async def tick(self) -> float:
        """Do what there is to do. Returns how many seconds to wait, at most, before the next tick."""

    async def wait(self, seconds: float) -> None:
        """Return after that many seconds, or earlier if there may be something to do."""


class TimedLoop:
    """A loop that nothing wakes."""

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_EARLY, _LATE = 0.05, 0.2
"""Seconds before and after a whole second in which slots are planned, claimed and carried out."""


def clear_of_slots(seconds: float, now: Instant) -> float:
    """A pause that begins now, made a little longer where it would end at a whole second: schedules name those."""
    into = (now / SECOND + seconds + _EARLY) % 1.0
    return seconds + max(0.0, _EARLY + _LATE - into) if seconds > 0 else seconds


class Backoff:
    """Pauses that double from `first` to `last` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float, last: float, draw: Callable[[], float] = random.random) -> None:
        self._first, self._last, self._draw = first, last, draw
        self._next = first

    def pause(self) -> float:
        """The next pause in seconds."""
        seconds, self._next = self._next, min(self._next * 2, self._last)
        return seconds * (0.5 + 0.5 * self._draw())

    def reset(self) -> None:
        self._next = self._first


Report = Callable[..., object]
"""Calls a function with its arguments, now or soon, in the event loop that reads `LoopHealth`."""


def report_now(function: Callable[..., object], *given: object) -> None:
    """For a loop that runs in that event loop itself."""
    function(*given)


class LoopRunner:
    """One loop as a task of its own."""

    def __init__(
        self,
        name: str,
        loop: Loop,
        health: LoopHealth,
        first: float = 0.2,
        last: float = 10.0,
        *,
        kind: str | None = None,
        report: Report = report_now,
        yields: bool = False,
    ) -> None:
        """`kind`: what readiness calls the loop. Without one, the node is ready even if the loop stalls.

        `yields`: slots need nothing of it, so it leaves the store to them at the moments at which they are due.
        `report`: brings what the runner reports to `health`, where the loop runs in another thread.
        """
        self.name, self._loop, self._health, self._report = name, loop, health, report
        self._kind, self._yields = kind, yields
        self._backoff = Backoff(first, last)
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._idle = False

    def start(self) -> None:
        self._stopping = False
        self._task = asyncio.create_task(self._go(), name=f"noonbell {self.name}")

    async def stop(self, patience: float = 5.0) -> None:
        """A tick under way may take `patience` seconds to end; then it is canceled."""
        self._stopping = True
        task, self._task = self._task, None
        if task is None:
            return
        if self._idle:
            task.cancel()
        else:
            await asyncio.wait([task], timeout=patience)
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _go(self) -> None:
        with reporting(lambda: self._report(self._health.progressed, self.name)):
            try:
                await self._run()
            finally:
                self._report(self._health.loop_ended, self.name)

    async def _run(self) -> None:
        while not self._stopping:
            seconds, passing = await self._tick()
            if self._stopping:
                return
            self._idle = True
            try:
                await passing(seconds)
            except Exception as error:  # a wake-up that breaks must not end the loop
                await self._note(error)
            finally:
                self._idle = False

    async def _tick(self) -> tuple[float, Callable[[float], Awaitable[None]]]:
        """Run one tick, and say how long to pause after it, and how."""
        self._report(self._health.tick_began, self.name, self._kind)
        try:
            seconds = await self._loop.tick()
        except StoreUnavailable as error:
            self._report(self._health.store_unavailable, self.name, error)
            return self._backoff.pause(), asyncio.sleep
        except Exception as error:  # any error: the next tick may go well
            self._report(self._health.tick_failed, self.name, error)
            return AFTER_ERROR, asyncio.sleep
        self._report(self._health.tick_succeeded, self.name)
        self._backoff.reset()
        return clear_of_slots(seconds, self._health.now()) if self._yields else seconds, self._loop.wait

    async def _note(self, error: Exception) -> None:
        self._report(self._health.tick_failed, self.name, error)
        await asyncio.sleep(AFTER_ERROR)


class Signal:
    """Wakes one waiter. Notified without a waiter, it is remembered: the next one to wait goes on at once."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._is_notified = False

    def notify(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._is_notified = True

    async def wait(self, seconds: float) -> bool:
        """True if it was notified, False after that many seconds."""
        if self._is_notified:
            self._is_notified = False
            await asyncio.sleep(0)
            return True
        if seconds <= 0:
            await asyncio.sleep(0)
            return False
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.notify()  # it was for a waiter that has left: the next one takes it
            raise
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class SignalListener:
    """Listens to topics of the wake-up and notifies a signal."""

    def __init__(
        self, wakeup: Wakeup, topics: Sequence[str], notify: Callable[[], None], seconds: float = 60.0
    ) -> None:
        self._wakeup, self._topics, self._notify, self._seconds = wakeup, tuple(topics), notify, seconds
        self._heard = False

    async def tick(self) -> float:
        if self._heard:
            self._notify()
        return self._seconds

    async def wait(self, seconds: float) -> None:
        self._heard = await self._wakeup.wait(self._topics, seconds)


_QUESTIONS = 3
_GOOD_FOR = 60.0
"""Seconds after which an offset is measured anew: two quartz clocks drift apart by a few milliseconds in that time."""
_TOLERANCE = 0.005
CLOCK_STEP = 2.0
"""Seconds: what a clock is set by without a word is less."""


class AsideSignal:
    """Tells planners of runs that a claim has put aside. They would find them at their next look, and so let them go too late."""

    def __init__(self, wakeup: Wakeup, clock: StoreClock) -> None:
        self._wakeup, self._clock = wakeup, clock
        self._told: Instant | None = None
        """Planners look then, and see what is due after it."""

    async def tell(self, aside_until: Instant | None) -> None:
        if aside_until is None:
            return
        try:
            await self._clock.refresh()
        except StoreUnavailable:
            return
        if self._told is None or aside_until < self._told or self._clock.until(self._told) <= 0:
            self._told = aside_until
            self._wakeup.signal(PLAN)


class StoreClock:
    def __init__(self, store: Store, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._offset: float | None = None
        self._before: float | None = None
        """The offset until a check threw it away."""
        self._measured_at = 0.0
        self._error = 0.0
        """Seconds by which the offset may be wrong: half the time that the answer took."""
        self._step = 0.0

    def take_step(self) -> float | None:
        """By how many seconds the store's clock was set since the last call, if it was by more than `CLOCK_STEP`.

        A node that was suspended sees the same: its own clock stood still meanwhile.
        """
        step, self._step = self._step, 0.0
        return step if abs(step) > CLOCK_STEP else None

    async def refresh(self) -> None:
        """Measure if the last measurement is old or was thrown away."""
        if self._offset is None or self._monotonic() - self._measured_at > _GOOD_FOR:
            await self._measure()

    async def _measure(self) -> None:
        shortest = float("inf")
        before = self._before if self._offset is None else self._offset
        for _ in range(_QUESTIONS):
            asked = self._monotonic()
            now = await self._store.now()
            answered = self._monotonic()
            if answered - asked < shortest:
                shortest = answered - asked
                self._offset = now / SECOND - (asked + answered) / 2
        self._measured_at = self._monotonic()
        error, self._error = self._error, shortest / 2
        if before is not None and self._offset is not None and abs(self._offset - before) > error + self._error:
            self._step += self._offset - before
        self._before = None

    def check(self, now: Instant, asked: float, answered: float) -> None:
        """The store's clock was at `now` at some moment between `asked` and `answered` (monotonic)."""
        if self._offset is None:
            return
        earliest, latest = asked + self._offset - _TOLERANCE, answered + self._offset + _TOLERANCE
        if not earliest <= now / SECOND <= latest:
            self._before, self._offset = self._offset, None

    def until(self, instant: Instant) -> float:
        """Seconds from now to an instant of the store's clock; below zero if it has passed. Zero if nothing is known."""
        if self._offset is None:
            return 0.0
        return instant / SECOND - (self._monotonic() + self._offset)
