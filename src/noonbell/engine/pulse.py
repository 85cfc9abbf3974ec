"""Pulse: the thread in which the workers of a process renew their leases, with an event loop and a store of its own.

A handler that blocks its worker's event loop (an `async def` that calls `time.sleep`, a slow parser) stops the lanes, the
timers and the orders of that worker. It does not stop this thread, so its lease does not run out while it works.

    the loop is blocked            its leases are renewed; the block is logged with its stack, and told in the run's log;
                                   runs that have not begun are handed back, so that other workers can take them
    for longer than the timeout    no retry left: the sweep ends the run as TIMEOUT. Else the run stays with this worker: when
                                   the handler returns it is settled as `timeout` and retried, never before
    the process dies               its leases run out, and the sweep gives the runs to others
    this thread dies               its workers claim nothing more and are not ready; their own loops renew what is in hand
    the interpreter's lock is held by an extension module: nothing here can run. As if the process had died

`answers` asks the loop for a turn before each heartbeat. Nothing else here is done while all is well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, TypeVar

from noonbell.engine.progress import Watch
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model.run import Lease
from noonbell.ports import Store

logger = logging.getLogger("noonbell.engine")

T = TypeVar("T")

_MOMENT = 0.25
"""Seconds in which a loop that turns has answered."""
_BLOCKED = 1.0
"""Seconds without an answer after which a loop counts as blocked."""
_FRAMES = 12
"""Of the blocked stack, the innermost ones."""
_OURS = str(Path(__file__).parents[1])
_PATIENCE = 15.0
"""Seconds that a closing process gives this thread."""


class Beating(Protocol):
    """A heart that beats here."""

    def executed_by(self, task: asyncio.Task[Any]) -> tuple[Lease, str] | None:
        """The lease and the job of the attempt that this asyncio task carries out; None if it is not one of this heart."""

    async def loop_is_blocked(self) -> None:
        """The loop has been found to be blocked."""

    def thread_died(self) -> None:
        """Called in the worker's loop: from now on the heart beats there."""


class Pulse:
    def __init__(self, store: Store) -> None:
        """`store` is not opened yet: that is done in the thread, and so is all that it is asked."""
        self.store = store
        self._hearts: list[Beating] = []
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._question: asyncio.Future[None] | None = None
        self._late_question: asyncio.Future[None] | None = None
        self._asked_at = 0.0
        self._block: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    async def open(self) -> None:
        """In the loop that is watched: the one of the workers."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._own_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="noonbell-heartbeats", daemon=True)
        self._thread.start()
        await self.do(self.store.open())

    async def close(self) -> None:
        self._is_closing = True
        if self.is_alive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self.do(self._shut())
            self._own_loop.call_soon_threadsafe(self._own_loop.stop)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _PATIENCE)

    def join(self, heart: Beating) -> None:
        self._hearts.append(heart)

    def leave(self, heart: Beating) -> None:
        if heart in self._hearts:
            self._hearts.remove(heart)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaited in the worker's loop, carried out in the thread."""
        return await asyncio.wrap_future(self._do(work))

    def _do(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._own_loop)

    def call(self, function: Callable[..., object], *given: Any) -> None:
        """From the worker's loop into the thread, without waiting."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: the thread has died
            self._own_loop.call_soon_threadsafe(function, *given)

    def tell(self, function: Callable[..., object], *given: Any) -> None:
        """From the thread into the worker's loop, without waiting."""
        with contextlib.suppress(RuntimeError):  # the process is ending
            self._loop.call_soon_threadsafe(function, *given)

    # In the thread

    def _live(self) -> None:
        try:
            self._own_loop.run_forever()
        except BaseException:  # also SystemExit: whatever it is, the workers have to know
            logger.exception("the thread of the heartbeats died")
        finally:
            self._cancel_what_is_left()
            self._own_loop.close()
            if not self._is_closing:
                self.tell(self._died)

    def _cancel_what_is_left(self) -> None:
        """A task that is pending when its loop closes would never be told that it is over."""
        left = asyncio.all_tasks(self._own_loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(Exception):
            self._own_loop.run_until_complete(asyncio.wait_for(asyncio.gather(*left, return_exceptions=True), 1.0))

    async def _shut(self) -> None:
        if self._block is not None:
            self._block.cancel()
        await self.store.close()

    def _died(self) -> None:
        for heart in self._hearts:
            heart.thread_died()

    async def answers(self, seconds: float = _MOMENT) -> bool:
        """Whether the loop turns. One that does not is looked at, once for each block, while the caller goes on.

        The caller waits for `seconds` at most, and not at all while a block that is known goes on.
        """
        question = self._question
        if question is None or question.done():
            question = self._question = asyncio.get_running_loop().create_future()
            self._asked_at = time.monotonic()
            self.tell(self._answer, question)
        elif question is self._late_question and self._block is not None:
            return False
        await asyncio.wait([question], timeout=min(seconds, _MOMENT))
        if question.done():
            return True
        self._late_question = question
        if self._block is None:
            self._block = asyncio.create_task(self._follow(question, self._asked_at))
        return False

    def _answer(self, question: asyncio.Future[None]) -> None:
        """In the worker's loop."""
        self.call(_resolve, question)

    async def _follow(self, question: asyncio.Future[None], since: float) -> None:
        try:
            await asyncio.wait([question], timeout=max(0.0, since + _BLOCKED - time.monotonic()))
            if question.done():
                return
            by = await self._report(since)
            for heart in list(self._hearts):
                await heart.loop_is_blocked()
            await question
            logger.warning("the event loop turns again; it was blocked for over %.1f s%s", time.monotonic() - since, by)
        except Exception:
            logger.exception("a blocked event loop could not be looked at")
        finally:
            self._block = None

    async def _report(self, since: float) -> str:
        """To the log, and to the log of the run whose handler it is; who it is, in words."""
        task = asyncio.current_task(self._loop)
        stack = _stack_of(self._loop_thread)
        found = None
        if task is not None:
            found = next(filter(None, (heart.executed_by(task) for heart in self._hearts)), None)
        by = "" if found is None else f" by the handler of job {found[1]!r}, run {found[0].run_id}"
        seconds = time.monotonic() - since
        logger.warning(
            "the event loop has been blocked for over %.1f s%s; leases are renewed, everything else here waits:\n%s",
            *(seconds, by, stack),
        )
        if found is not None:
            line = f"the handler has blocked the event loop for over {seconds:.1f} s:\n{stack}"
            try:
                await self.store.log(found[0].run_id, found[0].token, [("warning", line)])
            except NoonbellError as error:
                logger.warning("the log of run %d could not be written: %s", found[0].run_id, error.message)
        return by


def relayed(watch: Watch, pulse: Pulse) -> Watch:
    """For a loop that is kept in the thread: what it says is told to the watch in the worker's loop, where it is read."""
    return _RelayedWatch(watch, pulse)


class _RelayedWatch(Watch):
    def __init__(self, watch: Watch, pulse: Pulse) -> None:
        super().__init__()
        self._to, self._pulse = watch, pulse

    def begins(self, name: str, kind: str | None = None) -> None:
        self._pulse.tell(self._to.begins, name, kind)

    def progress(self, name: str) -> None:
        self._pulse.tell(self._to.progress, name)

    def well(self, name: str) -> None:
        self._pulse.tell(self._to.well, name)

    def away(self, name: str, error: StoreUnavailable) -> None:
        self._pulse.tell(self._to.away, name, error)

    def failed(self, name: str, error: BaseException) -> None:
        self._pulse.tell(self._to.failed, name, error)

    def gone(self, name: str) -> None:
        self._pulse.tell(self._to.gone, name)


def _stack_of(thread: int) -> str:
    """Where a thread is: what it has been called from us for, or the innermost frames."""
    frame = sys._current_frames().get(thread)
    frames = [] if frame is None else list(traceback.extract_stack(frame))
    ours = [number for number, one in enumerate(frames) if one.filename.startswith(_OURS)]
    theirs = frames[ours[-1] + 1 :] if ours else []
    return "".join(traceback.format_list((theirs or frames)[-_FRAMES:])).rstrip()


def _resolve(question: asyncio.Future[None]) -> None:
    if not question.done():
        question.set_result(None)
