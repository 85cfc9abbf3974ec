"""Heartbeats: renew the leases that a worker holds, and carry out the orders that come back: cancel, stop, drain, resize.

    K11  died while holding leases   they run out; the sweep gives the runs to others

A heartbeat that the store does not answer is tried again soon. Attempts go on meanwhile: if a lease runs out, the store
refuses the outcome, and nothing is written twice.

The workers of a process share one `HeartbeatThread` with an event loop and a store of its own. A handler that blocks its
worker's event loop (an `async def` that calls `time.sleep`, a slow parser) stops claims, timers and orders of that worker. It
does not stop this thread, so the lease does not run out while the handler works. Orders are carried out in the worker's loop.

    the loop is blocked            the thread renews its leases, writes the stack to the log and to the run's log, and hands
                                   back the runs that have not begun, so that other workers can take them
    for longer than the timeout    no retry left: the sweep ends the run as TIMEOUT. Else the run stays with this worker: when
                                   the handler returns it is settled as `timeout` and retried, never before
    the process dies               its leases run out, and the sweep gives the runs to others
    this thread dies               its workers claim nothing more and are not ready; their own loops renew what they hold
    the interpreter's lock is held by an extension module: nothing here can run. As if the process had died

`answers` asks the loop for a turn before each heartbeat. Without a thread (simulations, the store in memory) the heartbeat
runs in the worker's loop.

`LoopWatch` measures the stalls of an event loop that are too short for all that; `loop_watched` writes them to the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never

import msgspec

from noonbell.clock import read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import TaskCache, attempt_of
from noonbell.engine.in_flight import InFlight, LeaseState, StopReason, renewal_seconds
from noonbell.engine.loop_runner import LoopHealth, LoopRunner, Report, Signal, report_now
from noonbell.engine.settle import released, subject_of
from noonbell.errors import NoonbellError
from noonbell.fields import counted
from noonbell.model.request import HeartbeatAnswer
from noonbell.model.run import Lease
from noonbell.model.worker import LeaseOrder, Order, WorkerInfo, WorkerState
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


INTERVAL = 5.0
"""Seconds between heartbeats of a worker that holds nothing."""


class Heartbeat:
    """Keeps a worker registered and its leases renewed, and carries out the orders that come back."""

    def __init__(
        self,
        store: Store,
        in_flight: InFlight,
        tasks: TaskCache,
        worker: WorkerInfo,
        *,
        on_state: Callable[[WorkerState], None],
        thread: HeartbeatThread | None = None,
    ) -> None:
        """`worker`: as it registers. `on_state` gets the state that an operator wants, with each heartbeat.

        `thread`: runs the heartbeats; None: the worker's loop does.
        """
        self._store, self._in_flight, self._tasks, self._worker = store, in_flight, tasks, worker
        self._on_state, self._thread = on_state, thread
        self._health: LoopHealth | None = None
        self._runner: LoopRunner | None = None
        self._due = Signal()
        self._next_at = 0.0
        self._has_left = False
        self.is_well = True
        """False: the thread has died. The worker's loop renews what is held, and the worker claims nothing more."""

    # Life, in the worker's loop

    async def register(self, store: Store | None = None) -> None:
        """By way of this store, where the caller has one of its own. AlreadyExists if another process has this id."""
        if not self._has_left:
            worker = msgspec.structs.replace(self._worker, concurrency=self._in_flight.concurrency)
            await (store or self._store).register_worker(worker)

    async def unregister(self) -> None:
        self._has_left = True
        await self._store.remove_worker(self._worker.id, self._worker.incarnation)

    def start(self, health: LoopHealth) -> None:
        self._health, thread = health, self._thread
        if thread is None:
            self._runner = self._new_runner(health)
            self._runner.start()
        else:
            self._runner = self._new_runner(health, thread.tell)
            thread.join(self)
            thread.call(self._runner.start)

    async def stop(self) -> None:
        if self._runner is None:
            return
        if self._thread is None:
            await self._runner.stop()
        elif self._thread.is_alive:
            self._thread.leave(self)
            await self._thread.do(self._runner.stop())

    def _new_runner(self, health: LoopHealth, report: Report = report_now) -> LoopRunner:
        name = f"heartbeat of {self._worker.id}"
        return LoopRunner(name, self, health, 0.1, 1.0, kind="heartbeat", report=report)

    def expect(self, seconds: float) -> None:
        """A lease wants a heartbeat within this many seconds: if the next one is later, it comes now."""
        if read_monotonic() + seconds < self._next_at:
            self._next_at = 0.0
            self.notify()

    def notify(self) -> None:
        """Beat now."""
        if self._thread is None:
            self._due.notify()
        else:
            self._thread.call(self._due.notify)

    # The loop, in the thread where there is one

    async def tick(self) -> float:
        thread = self._thread
        # A settlement under way in a loop that stands still may hold the rows of its runs: they are left out then.
        all_of_them = thread is None or await thread.answers(self._in_flight.ping_seconds(INTERVAL) / 2)
        states = [
            one
            for one in list(self._in_flight.leases.values())
            if one.is_renewed and (all_of_them or not one.is_settling)
        ]
        if states:
            failpoint.hit("K11")
        store = self._store if thread is None else thread.store
        keys = [one.key for one in states]
        answer = await store.heartbeat(self._worker.id, keys, incarnation=self._worker.incarnation)
        if answer.concurrency is None:  # the store has forgotten this worker
            await self.register(store)
        if thread is None:
            self._obey(states, answer)
        else:
            thread.tell(self._obey, states, answer)
        # First of all, so that a lease that is added between the next two lines notifies the signal.
        self._next_at = read_monotonic() + INTERVAL
        pause = min(INTERVAL, self._in_flight.ping_seconds(INTERVAL))
        self._next_at = read_monotonic() + pause
        return pause

    async def wait(self, seconds: float) -> None:
        await self._due.wait(seconds)

    # Orders, in the worker's loop

    def _obey(self, states: Sequence[LeaseState], answer: HeartbeatAnswer) -> None:
        for state, order in zip(states, answer.orders, strict=True):
            self._obey_order(state, order)
        if answer.concurrency is not None:
            self._in_flight.resize(answer.concurrency)
        self._on_state(answer.state)

    def _obey_order(self, state: LeaseState, order: LeaseOrder) -> None:
        if order.ping_interval_ms is not None:
            state.ping_seconds = min(renewal_seconds(state.lease), order.ping_interval_ms / 1000)
        match order.order:
            case Order.CONTINUE:
                return
            case Order.CANCEL:
                # With an expiry the lease is still ours: this worker may not have the run any longer.
                reason = StopReason.CANCELED if order.lease_expires_at is None else StopReason.STOPPED
            case Order.LOST:
                reason = StopReason.LOST
            case _:
                assert_never(order.order)
        self._in_flight.interrupt(state, reason)

    # Called by the thread

    def executed_by(self, task: asyncio.Task[Any]) -> tuple[Lease, str] | None:
        """The lease and the job of the attempt that this asyncio task carries out; None if it is not this worker's."""
        attempt = attempt_of(task)
        state = next((one for one in list(self._in_flight.leases.values()) if one.task is attempt), None)
        if state is None:
            return None
        found = self._tasks.get(state.lease)
        return state.lease, "?" if found is None else found.spec.job_type or found.spec.name

    async def loop_is_blocked(self) -> None:
        """What has not begun would wait for as long as the block lasts: hand it back."""
        if self._thread is None:
            return
        idle = self._in_flight.abandon_idle()
        if not idle:
            return
        try:
            await self._thread.store.settle([released(subject_of(one.lease), begun=False) for one in idle])
        except NoonbellError as error:
            logger.warning(
                "%s could not be handed back (%s): expiry takes over", counted(len(idle), "run"), error.message
            )
        else:
            logger.info("worker %s handed back %d runs that had not begun", self._worker.id, len(idle))
        self._thread.tell(self._in_flight.forget, idle)

    def thread_died(self) -> None:
        """Called in the worker's loop, which renews what is held from now on. The worker claims nothing more."""
        self._thread, self._due = None, Signal()
        self.is_well = self._in_flight.is_open = False
        logger.error(
            "worker %s claims nothing more: the thread of its heartbeats died. Restart the process", self._worker.id
        )
        if self._health is not None:
            self.start(self._health)


class HeartbeatThread:
    """Runs the heartbeats of all workers of a process, and watches their event loop."""

    def __init__(self, store: Store) -> None:
        """`store` is not opened yet: that is done in the thread, and so is all that it is asked."""
        self.store = store
        self._heartbeats: list[Heartbeat] = []
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
        """Called in the loop that is watched: the one of the workers."""
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

    def join(self, heartbeat: Heartbeat) -> None:
        self._heartbeats.append(heartbeat)

    def leave(self, heartbeat: Heartbeat) -> None:
        if heartbeat in self._heartbeats:
            self._heartbeats.remove(heartbeat)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaited in the worker's loop, carried out in the thread."""
        return await asyncio.wrap_future(self._do(work))

    def _do(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._own_loop)

    def call(self, function: Callable[..., object], *given: Any) -> None:
        """Called in the worker's loop: run this in the thread, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: the thread has died
            self._own_loop.call_soon_threadsafe(function, *given)

    def tell(self, function: Callable[..., object], *given: Any) -> None:
        """Called in the thread: run this in the worker's loop, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the process is ending
            self._loop.call_soon_threadsafe(function, *given)

    # In the thread

    def _live(self) -> None:
        try:
            self._own_loop.run_forever()
        except BaseException:  # also SystemExit: the workers have to know
            logger.exception("the thread of the heartbeats died")
        finally:
            self._cancel_what_is_left()
            self._own_loop.close()
            if not self._is_closing:
                self.tell(self._died)

    def _cancel_what_is_left(self) -> None:
        """A task that is pending when its loop closes would never end."""
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
        for heartbeat in self._heartbeats:
            heartbeat.thread_died()

    async def answers(self, seconds: float = _MOMENT) -> bool:
        """Whether the loop turns. One that does not is looked at, once for each block, while the caller goes on.

        The caller waits for `seconds` at most, and not at all while a block that is known goes on.
        """
        question = self._question
        if question is None or question.done():
            question = self._question = asyncio.get_running_loop().create_future()
            self._asked_at = read_monotonic()
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
        """Runs in the worker's loop."""
        self.call(_resolve, question)

    async def _follow(self, question: asyncio.Future[None], since: float) -> None:
        try:
            await asyncio.wait([question], timeout=max(0.0, since + _BLOCKED - read_monotonic()))
            if question.done():
                return
            by = await self._report(since)
            for heartbeat in list(self._heartbeats):
                await heartbeat.loop_is_blocked()
            await question
            logger.warning(
                "the event loop is running again; it was blocked for over %.1f s%s", read_monotonic() - since, by
            )
        except Exception:
            logger.exception("a blocked event loop could not be inspected")
        finally:
            self._block = None

    async def _report(self, since: float) -> str:
        """Write the block to the log, and to the log of the run whose handler it is; return which handler that is, in
        words.
        """
        task = asyncio.current_task(self._loop)
        stack = _stack_of(self._loop_thread)
        found = None
        if task is not None:
            found = next(filter(None, (heartbeat.executed_by(task) for heartbeat in self._heartbeats)), None)
        by = "" if found is None else f" by the handler of job {found[1]!r}, run {found[0].run_id}"
        seconds = read_monotonic() - since
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


def _frames_of(thread: int) -> list[traceback.FrameSummary]:
    frame = sys._current_frames().get(thread)
    return [] if frame is None else list(traceback.extract_stack(frame))


def _stack_of(thread: int) -> str:
    """The stack of a thread: the frames that our code has called, or the innermost ones."""
    frames = _frames_of(thread)
    ours = [number for number, one in enumerate(frames) if one.filename.startswith(_OURS)]
    theirs = frames[ours[-1] + 1 :] if ours else []
    return "".join(traceback.format_list((theirs or frames)[-_FRAMES:])).rstrip()


def _resolve(question: asyncio.Future[None]) -> None:
    if not question.done():
        question.set_result(None)


loop_logger = logging.getLogger("noonbell.loop")

STALLED_OVER: Final = 0.25
"""Seconds without a turn of the event loop that are worth a log line."""
_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class LoopStall:
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
        self, loop: asyncio.AbstractEventLoop, on_stall: Callable[[LoopStall], None], *, over: float = STALLED_OVER
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

    def _next_stall(self) -> LoopStall | None:
        """Ask the loop once. None if it answered in time."""
        answered = threading.Event()
        began, cpu = read_monotonic(), time.process_time()
        self._loop.call_soon_threadsafe(answered.set)
        answered.wait(self._over)
        stack = "" if answered.is_set() else self._stack()
        while not answered.wait(1.0):
            if self._stopping.is_set():
                return None
        seconds = read_monotonic() - began
        if seconds <= self._over:
            return None
        return LoopStall(seconds, time.process_time() - cpu, stack)

    def _stack(self) -> str:
        frames = _frames_of(self._loop_thread)[-_FRAMES:]
        return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(frames))


@contextmanager
def loop_watched(observe: Callable[[float], None] | None = None) -> Iterator[None]:
    """Log every stall of the running event loop while the block is open, and hand its seconds to `observe`."""

    def tell(stall: LoopStall) -> None:
        loop_logger.warning(
            "the event loop stalled for %.2f s (%.2f s of processor time by this process): %s",
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
