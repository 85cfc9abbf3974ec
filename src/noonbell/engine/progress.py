"""Progress: which loops of a node are stalled, since when and why. Readiness, metrics and outages are read from it.

A loop is stalled when its ticks have failed, or one of them has run, for more than five seconds; each batch of a long tick
counts as progress. A loop that sleeps until something is due, or a worker that has no room, is healthy. While the store does
not answer, a node is not ready from the first tick that was told so.

The log has one line when trouble begins and one when it ends. An error that comes back with each tick is logged once, and
counted until it changes or the loop goes again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from noonbell.clock import SECOND, Clock, Instant, SystemClock
from noonbell.errors import StoreUnavailable

logger = logging.getLogger("noonbell.engine")

STALLED_AFTER = 5.0
"""Seconds without a tick that succeeds."""

_WORTH_NOTING = 1.0
"""Seconds: a shorter stretch makes no slot late."""

_report: ContextVar[Callable[[], None] | None] = ContextVar("report", default=None)


def batch_done() -> None:
    """Called by loops after each part of a long tick. Outside of a kept loop it does nothing."""
    report = _report.get()
    if report is not None:
        report()


@contextlib.contextmanager
def reporting(watch: Watch, name: str) -> Iterator[None]:
    """Whatever calls `batch_done` inside speaks for this loop."""
    token = _report.set(lambda: watch.progress(name))
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
class Stall:
    """A loop that does not get on."""

    loop: str
    kind: str
    since: Instant
    """By the clock of this machine."""
    seconds: float
    error: str | None
    """The last one; None while a tick has not ended yet and nothing is known of its reason."""

    def told(self) -> str:
        why = self.error or "its tick has not ended"
        return f"the {self.loop} loop has made no progress for {self.seconds:.0f} s: {why}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """The node was not ready for a while, and is again."""

    began: float
    """Monotonic, as `ended`."""
    ended: float
    reason: str


class Watch:
    """What the loops of a node say of themselves."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        waits_for: Callable[[], str] | None = None,
    ) -> None:
        """`waits_for`: which lock the store's calls are waiting for at the moment; empty if none."""
        self._clock, self._monotonic, self._waits_for = clock or SystemClock(), monotonic, waits_for
        self._loops: dict[str, _Loop] = {}
        self._away: dict[str, str] = {}
        self._since: Instant = self._clock.now()
        self._trouble: tuple[float, str, bool] | None = None
        """Since when (monotonic) the node is not ready, why, and whether the store did not answer."""
        self.over: list[Stretch] = []
        """Stretches that have ended; whoever notes them takes them out."""
        self.errors: dict[str, str] = {}
        """By loop: the last tick's error that was not the store's absence; gone after a good tick."""

    # What loops say

    def begins(self, name: str, kind: str | None = None) -> None:
        """A tick begins."""
        loop = self._loops.get(name)
        if loop is None:
            loop = self._loops[name] = _Loop(kind)
        loop.tick_began = self._monotonic()

    def progress(self, name: str) -> None:
        """The tick under way has finished a batch."""
        loop = self._loops.get(name)
        if loop is not None and loop.tick_began is not None:
            loop.tick_began = self._monotonic()

    def well(self, name: str) -> None:
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
            self.look()

    def away(self, name: str, error: StoreUnavailable) -> None:
        """The tick under way was told that the store does not answer."""
        if not self._away:
            self._since = self._clock.now()
        self._away[name] = error.message
        self._fails(name)
        self.look()

    def failed(self, name: str, error: BaseException) -> None:
        """The tick under way has failed for another reason."""
        loop = self._fails(name)
        said = self.errors[name] = f"{type(error).__name__}: {error}"
        if loop.error == said:
            loop.repeats += 1
        else:
            self._count(name, loop)
            loop.error = said
            logger.error("the %s loop failed; it goes on, and the same error is not logged again", name, exc_info=error)
        self.look()

    def gone(self, name: str) -> None:
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
            return f"the store does not answer: {self.store_error}"
        return next((stall.told() for stall in self.stalls()), None)

    def stalled_kinds(self) -> dict[str, bool]:
        """By kind of loop, of those that count for readiness: whether one is stalled."""
        stalled = {stall.kind for stall in self.stalls()}
        return {loop.kind: loop.kind in stalled for loop in self._loops.values() if loop.kind is not None}

    def stalls(self) -> list[Stall]:
        """The loops that are stalled, the longest first."""
        now = self._monotonic()
        found = []
        for name, loop in self._loops.items():
            since = loop.since()
            if loop.kind is not None and since is not None and now - since > STALLED_AFTER:
                seconds = now - since
                began = Instant(self._clock.now() - round(seconds * SECOND))
                found.append(Stall(name, loop.kind, began, seconds, self._reason(name, loop)))
        return sorted(found, key=lambda stall: -stall.seconds)

    def _reason(self, name: str, loop: _Loop) -> str | None:
        said = self._away.get(name) or loop.error
        if said is None and self._waits_for is not None and (holder := self._waits_for()):
            said = f"it waits for a lock that is held by {holder}"
        return said

    def look(self) -> None:
        """See whether the node has become ready or is ready no longer, and log that. A node calls it now and then."""
        stalls = self.stalls()
        if self._away or stalls:
            if self._trouble is None:
                self._turn_bad(stalls)
            elif self._away and not self._trouble[2]:
                self._trouble = (self._trouble[0], self.store_error or "", True)
        elif self._trouble is not None:
            self._turn_good()

    def _turn_bad(self, stalls: list[Stall]) -> None:
        reason = self.store_error or stalls[0].told()
        logger.warning("not ready: %s", self.reason)
        troubled = {*self._away, *(stall.loop for stall in stalls)}
        starts = [self._loops[name].since() or self._monotonic() for name in troubled if name in self._loops]
        self._trouble = (min(starts, default=self._monotonic()), reason, bool(self._away))

    def _turn_good(self) -> None:
        assert self._trouble is not None  # noqa: S101 - asked by the caller
        (began, reason, was_away), self._trouble = self._trouble, None
        ended = self._monotonic()
        self.over.append(Stretch(began, ended, reason))
        what = "the store is back" if was_away else "all loops go again"
        logger.info("ready again after %.1f s: %s", ended - began, what)


async def note_stretches(watch: Watch, note: Callable[[float, str], Awaitable[object]], now: float) -> None:
    """Tell the store how long the node was not ready, now that it takes writes again; what it refuses is kept.

    `note` is given the seconds since the stretch began and its reason.
    """
    while watch.over:
        stretch = watch.over[0]
        if stretch.ended - stretch.began >= _WORTH_NOTING:
            await note(now - stretch.began, stretch.reason)
        watch.over.pop(0)
