"""An event loop that owns time and order: no thread, no socket, no clock of the machine.

Each `Process` (a node, the database, the network) has a queue of its own that is served first in, first out, as asyncio serves
the one queue of a real process. Which process takes the next step is drawn. When no process has anything to do, time jumps to
the next timer.

    killed    nothing of the process runs any more, not even what `finally` would do
    frozen    what is due for it waits until it goes on, as after SIGSTOP
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

_STEP = 0.00001
"""Seconds that one step of a process takes."""


class _Handle:
    """A callback that waits for its turn, or for its time: what asyncio's own handles can, without what no simulation
    asks for.
    """

    __slots__ = ("args", "at", "callback", "context", "is_canceled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, at: float = 0.0
    ) -> None:
        self.callback, self.args, self.context, self.at = callback, args, context, at
        self.is_canceled = False

    def cancel(self) -> None:
        self.is_canceled = True

    def cancelled(self) -> bool:
        return self.is_canceled

    def when(self) -> float:
        return self.at


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("noonbell_simulated_process")


class Process:
    """One process of the simulated world."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.frozen_until = 0.0
        """In the loop's time."""
        self.ready: deque[_Handle] = deque()
        self.context = contextvars.Context()
        """Of what happens in it from outside: callbacks share it, tasks get copies."""
        self.context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name}>"


class Deadlock(Exception):
    """Nothing is ready and no timer is set: the simulation itself is wrong."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._now = 1_000.0
        self._timers: list[tuple[float, int, _Handle, Process]] = []
        self._numbers = itertools.count()
        self._processes: list[Process] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._is_over = False
        self.steps = 0
        self._failure: Exception | None = None
        self.errors: list[str] = []
        """What callbacks raised, and tasks that no one looked at: defects."""

    # What asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_over

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **more: Any,
    ) -> asyncio.Task[T]:
        if self._is_over:
            coro.close()
            raise RuntimeError("the history is over")
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context, **more)
        self._tasks.append(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        context = contextvars.copy_context() if context is None else context
        handle = _Handle(callback, args, context)
        process = context[_process]
        if process.is_alive and not self._is_over:
            process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        context = contextvars.copy_context() if context is None else context
        handle = _Handle(callback, args, context, when)
        process = context[_process]
        if process.is_alive and not self._is_over:
            heapq.heappush(self._timers, (when, next(self._numbers), handle, process))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {type(error).__name__}: {error}")

    # Processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin this in a process."""
        if process not in self._processes:
            self._processes.append(process)
        return self.create_task(work, name=name, context=process.context.copy())

    def at(self, process: Process, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call this in a process, at that time; never if it is dead by then."""
        if process.is_alive and not self._is_over:
            handle = _Handle(callback, args, process.context, when)
            heapq.heappush(self._timers, (when, next(self._numbers), handle, process))

    def kill(self, process: Process) -> None:
        process.is_alive = False
        process.ready.clear()
        if process in self._processes:
            self._processes.remove(process)

    # Running

    def fail(self, error: Exception) -> None:
        """From any process: the run ends with this."""
        self._failure = self._failure or error

    def run(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Until `work`, in that process, is done."""
        asyncio._set_running_loop(self)
        try:
            task = self.spawn(process, work, "history")
            while not task.done():
                self._step()
                if self._failure is not None:
                    raise self._failure
            return task.result()
        finally:
            self._abandon()
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            _, _, handle, process = heapq.heappop(timers)
            if process.is_alive and not handle.is_canceled:
                process.ready.append(handle)
        able = [one for one in self._processes if one.ready and one.frozen_until <= now]
        if not able:
            self._jump()
            return
        chosen = able[0] if len(able) == 1 else able[int(self._draw.random() * len(able))]
        taken = chosen.ready.popleft()
        self.steps += 1
        self._now = now + _STEP
        if not taken.is_canceled:
            try:
                taken.context.run(taken.callback, *taken.args)
            except Exception as error:  # as asyncio's handles: it is reported, and the loop goes on
                self.call_exception_handler({"message": f"exception in {taken.callback}", "exception": error})

    def _jump(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].is_canceled or not timers[0][3].is_alive):
            heapq.heappop(timers)
        moments = [one.frozen_until for one in self._processes if one.ready and one.frozen_until > self._now]
        if timers:
            moments.append(timers[0][0])
        if not moments:
            raise Deadlock
        self._now = max(self._now, min(moments))

    def _abandon(self) -> None:
        """What is still under way ends without a further step of the world: its `finally` blocks find everything closed."""
        self._is_over = True
        self._timers.clear()
        for process in self._processes:
            process.ready.clear()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # of what a `finally` block begins and cannot await any more
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
            self._tasks.clear()


def new_loop(draw: random.Random) -> SimulatedLoop:
    return SimulatedLoop(draw)  # type: ignore[abstract]  # sockets, signals and subprocesses do not exist in it
