"""Keeping a loop going: tick, wait, and what to do when a tick fails. Nothing dies silently.

    the store is away    growing pauses with jitter, told in `Watch`, until a tick succeeds
    anything else        logged with its traceback, then on after a second
    stop                 a tick under way is finished, a wait is cut short

The pauses grow from 0.2 to 10 s for planner and sweeper; a worker's lanes and heart come back sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from noonbell.clock import Clock, Instant, SystemClock
from noonbell.errors import StoreUnavailable

logger = logging.getLogger("noonbell.engine")

AFTER_ERROR = 1.0


class Loop(Protocol):
    """All behaviour is in `tick`; `wait` only passes the time."""

    async def tick(self) -> float:
        """Do what there is to do. Returns how many seconds to wait, at most, before the next tick."""

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds, or earlier if there may be something to do."""


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


class Watch:
    """What the loops of a node say of themselves: which of them the store has failed, and since when."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._away: dict[str, str] = {}
        self._since: Instant = self._clock.now()
        self.errors: dict[str, str] = {}
        """By loop: the last tick's error that was not the store's absence; gone after a good tick."""

    def well(self, name: str) -> None:
        self.errors.pop(name, None)
        if self._away.pop(name, None) is not None and not self._away:
            self._since = self._clock.now()
            logger.info("the store is back")

    def away(self, name: str, error: StoreUnavailable) -> None:
        if not self._away:
            self._since = self._clock.now()
            logger.warning("the store does not answer: %s", error.message)
        self._away[name] = error.message

    def failed(self, name: str, error: BaseException) -> None:
        self.errors[name] = f"{type(error).__name__}: {error}"

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


class Keeper:
    """One loop as a task of its own."""

    def __init__(self, name: str, loop: Loop, watch: Watch, first: float = 0.2, last: float = 10.0) -> None:
        self.name, self._loop, self._watch = name, loop, watch
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
        """One tick; how long to pause after it, and how."""
        try:
            seconds = await self._loop.tick()
        except StoreUnavailable as error:
            self._watch.away(self.name, error)
            return self._backoff.pause(), asyncio.sleep
        except Exception as error:  # whatever it was, the next tick may go well
            self._log(error)
            return AFTER_ERROR, asyncio.sleep
        self._watch.well(self.name)
        self._backoff.reset()
        return seconds, self._loop.wait

    async def _note(self, error: Exception) -> None:
        self._log(error)
        await asyncio.sleep(AFTER_ERROR)

    def _log(self, error: Exception) -> None:
        self._watch.failed(self.name, error)
        logger.error("the %s loop failed; it goes on in %g s", self.name, AFTER_ERROR, exc_info=error)
