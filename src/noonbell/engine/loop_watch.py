"""A thread that measures how long the event loop leaves its callers waiting.

It asks the loop for a sign of life and waits for it. If the sign is late by more than `over` seconds, the loop was held
by something that does not give way: the thread keeps the stack that the loop's thread shows at that moment, and reports
the stall when the loop answers again. A C function that holds the interpreter's lock stops this thread too: then the
stall is measured all the same, but its stack may be that of what came after.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("noonbell.loop")

STALLED_OVER: Final = 0.25
"""Seconds without a turn of the event loop that are worth a log line."""
_PAUSE: Final = 0.1
_FRAMES: Final = 12


@dataclass(frozen=True, slots=True)
class Stall:
    seconds: float
    """For how long the loop did not answer."""
    cpu_seconds: float
    """Processor time that this process used meanwhile. Much less than `seconds`: the machine was busy with others."""
    stack: str
    """What the loop's thread did when the stall was noticed, innermost call first; empty if it was over by then."""


class LoopWatch:
    """Watches one event loop from a thread of its own, between `start` and `stop`.

    `on_stall` is called in that thread, once for each stall, when it is over.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_stall: Callable[[Stall], None], *, over: float = STALLED_OVER
    ) -> None:
        self._loop, self._on_stall, self._over = loop, on_stall, over
        self._loop_thread = threading.get_ident()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="noonbell loop watch", daemon=True)

    def start(self) -> None:
        """Call it in the loop's thread."""
        self._loop_thread = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE):
            try:
                stall = self._next_stall()
            except RuntimeError:  # the loop is closed
                return
            if stall is not None and not self._stopping.is_set():
                self._on_stall(stall)

    def _next_stall(self) -> Stall | None:
        """Ask the loop once. None if it answered in time."""
        answered = threading.Event()
        began, cpu = time.monotonic(), time.process_time()
        self._loop.call_soon_threadsafe(answered.set)
        answered.wait(self._over)
        stack = "" if answered.is_set() else self._stack()
        while not answered.wait(1.0):
            if self._stopping.is_set():
                return None
        seconds = time.monotonic() - began
        if seconds <= self._over:
            return None
        return Stall(seconds, time.process_time() - cpu, stack)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return ""
        frames = traceback.extract_stack(frame)[-_FRAMES:]
        return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(frames))


@contextmanager
def loop_watched(observe: Callable[[float], None] | None = None) -> Iterator[None]:
    """Log every stall of the running event loop while the block is open, and hand its seconds to `observe`."""

    def tell(stall: Stall) -> None:
        log.warning(
            "the event loop stood still for %.2f s (%.2f s of processor time by this process): %s",
            stall.seconds,
            stall.cpu_seconds,
            stall.stack or "over before its stack could be read",
        )
        if observe is not None:
            observe(stall.seconds)

    watch = LoopWatch(asyncio.get_running_loop(), tell)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
