"""Keeping a loop going: tick, wait, and what to do when a tick fails. Nothing dies silently.

    the store is away    growing pauses with jitter, told in `Watch`, until a tick succeeds
    anything else        logged once with its traceback, counted while it is the same, then on after a second
    a tick hangs         told in `Watch`: a loop is stalled when its ticks have not succeeded for five seconds
    stop                 a tick under way is finished, a wait is cut short

The pauses grow from 0.2 to 10 s for planner and sweeper; a worker's lanes and heart come back sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from noonbell.engine.progress import Watch, reporting
from noonbell.errors import StoreUnavailable

AFTER_ERROR = 1.0
"""Seconds from a tick that failed for another reason than the store's absence to the next."""


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


class Keeper:
    """One loop as a task of its own."""

    def __init__(
        self, name: str, loop: Loop, watch: Watch, first: float = 0.2, last: float = 10.0, *, kind: str | None = None
    ) -> None:
        """`kind`: what readiness calls the loop. Without one, the node is ready whatever becomes of the loop."""
        self.name, self._loop, self._watch = name, loop, watch
        self._kind = kind
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
        with reporting(self._watch, self.name):
            try:
                await self._run()
            finally:
                self._watch.gone(self.name)

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
        """One tick; how long to pause after it, and how."""
        self._watch.begins(self.name, self._kind)
        try:
            seconds = await self._loop.tick()
        except StoreUnavailable as error:
            self._watch.away(self.name, error)
            return self._backoff.pause(), asyncio.sleep
        except Exception as error:  # whatever it was, the next tick may go well
            self._watch.failed(self.name, error)
            return AFTER_ERROR, asyncio.sleep
        self._watch.well(self.name)
        self._backoff.reset()
        return seconds, self._loop.wait

    async def _note(self, error: Exception) -> None:
        self._watch.failed(self.name, error)
        await asyncio.sleep(AFTER_ERROR)
