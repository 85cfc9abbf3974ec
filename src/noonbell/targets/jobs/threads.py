"""Threads for sync handlers. Nothing can end a thread but itself, and so they are daemons: a process that is told to end
does not wait for a handler that does not.

There are never more of them than handlers that run at the same time, strays included: a worker starts no more than its
concurrency.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

Work = Callable[[], None]

_IDLE = 60.0
"""Seconds that a thread waits for more before it ends."""


class Threads:
    def __init__(self, idle_seconds: float = _IDLE) -> None:
        self._idle_seconds = idle_seconds
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Threads that wait, less the work that is on its way to them."""
        self._count = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What the function returns or raises, from a thread that has the caller's context.

        A future that is canceled meanwhile stays so; the function goes on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value, error = context.run(function, *arguments), None
            except BaseException as caught:  # a thread has nobody else to tell
                value, error = None, caught
            try:
                loop.call_soon_threadsafe(_answer, future, value, error)
            except RuntimeError:
                return  # the loop has closed: nobody waits

        self._put(work)
        return future

    def close(self) -> None:
        """Threads that wait end; those that work end when they have done so."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)

    def _put(self, work: Work) -> None:
        with self._lock:
            is_served = self._free > 0
            if is_served:
                self._free -= 1
            else:
                self._count += 1
        self._work.put(work)
        if not is_served:
            threading.Thread(target=self._go, name="noonbell handler", daemon=True).start()

    def _go(self) -> None:
        while (work := self._next()) is not None:
            work()
            del work  # what it holds must not live as long as the thread waits
            with self._lock:
                self._free += 1
        with self._lock:
            self._count -= 1

    def _next(self) -> Work | None:
        try:
            return self._work.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if self._free > 0:
                    self._free -= 1
                    return None
            return self._work.get()  # somebody counted on this thread at this very moment


def _answer(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future cannot carry one
        error = RuntimeError(f"StopIteration: {error}")
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
