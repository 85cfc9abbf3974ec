"""What handlers report while they run: log lines and progress are written in batches, a request for more time at once.

A report waits in memory and is written a moment later, at most a few times a second for each run: lines in their order, of
progress the newest. What is left when the handler ends is written before its run is settled. The store refuses reports of
a lease that is no longer held; they are dropped then.

    died with unwritten reports    they are gone, and nothing else: the run is swept when its lease runs out
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import Deadline
from noonbell.engine.loop_runner import Backoff
from noonbell.errors import Fail, InvalidState, LeaseLost, StoreUnavailable
from noonbell.model.run import ChildRequest, ChildState, Lease
from noonbell.ports import Store
from noonbell.targets.jobs.handler import ReadyResult
from noonbell.targets.jobs.outcome import clean

T = TypeVar("T")

logger = logging.getLogger("noonbell.targets.jobs")

EVERY = 0.25
"""Seconds that words wait for others to go with."""
_MOST_LINES = 10_000
"""Lines of one run that may wait to be written. A handler that is faster than the store loses those beyond; a line in
the log says so.
"""
_LONGEST_LINE = 16_384
_LAST_WORDS = 5.0
"""Seconds that a run which has ended waits for a store that does not answer. Its outcome is worth more than its log."""

DONE: ReadyResult[None] = ReadyResult(None)


class AttemptReports:
    """Reports of one attempt that are not written yet. It is the `ReportChannel` of a handler in the event loop.

    Handlers put in at one end, the event loop takes out at the other: of a deque, that is safe from any thread.
    """

    __slots__ = (
        "_asked",
        "_lease",
        "_lines",
        "_lost",
        "_progress",
        "_writing",
        "cancelled",
        "deadline",
        "is_parked",
        "scribe",
    )

    def __init__(self, scribe: ReportWriter, lease: Lease) -> None:
        self.scribe, self._lease = scribe, lease
        self.cancelled = False
        self.deadline: Deadline | None = None
        """The target's own, to be loosened when there is more time."""
        self._lines: deque[tuple[str, str]] | None = None
        self._progress: deque[dict[str, Any]] | None = None
        self._lost = 0
        self._writing: asyncio.Lock | None = None
        self._asked: asyncio.Task[bool] | None = None
        self.is_parked = False
        """The handler waits for its children: nothing that it does after that counts."""

    # As a Line

    def log(self, level: str, message: str) -> None:
        self.put_line(level, message)
        self._tell()

    def progress(self, progress: dict[str, Any]) -> Awaitable[None]:
        self.put_progress(progress)
        self._tell()
        return DONE

    def extend(self, seconds: float) -> Awaitable[bool]:
        """A task, so that it is done even if it is not awaited."""
        self._asked = asyncio.get_running_loop().create_task(self.more_time(seconds))
        return self._asked

    def spawn(self, requests: Sequence[ChildRequest]) -> Awaitable[list[int]]:
        return self._answer(self.spawned(requests))

    def children(self, positions: Sequence[int]) -> Awaitable[list[ChildState]]:
        return self._answer(self.scribe.insist(lambda: self.scribe.store.children(self._lease.run_id, positions)))

    def park(self) -> None:
        self.is_parked = True

    def _tell(self) -> None:
        self.scribe.expect(self)

    def _answer(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return work

    async def spawned(self, requests: Sequence[ChildRequest]) -> list[int]:
        """Fail where the store has other children than the handler asks for now."""
        lease, scribe = self._lease, self.scribe
        try:
            run_ids = await scribe.insist(lambda: scribe.store.spawn(lease.run_id, lease.token, requests))
        except InvalidState as error:
            raise Fail(error.message) from None
        failpoint.hit("K31")
        return [*run_ids]

    # Put down

    def put_line(self, level: str, message: str) -> None:
        if self._lines is None:
            self._lines = deque()
        if len(self._lines) >= _MOST_LINES:
            self._lost += 1
            return
        text = clean(message)
        self._lines.append((level, text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}… (cut)"))

    def put_progress(self, progress: dict[str, Any]) -> None:
        if self._progress is None:
            self._progress = deque(maxlen=1)
        self._progress.append({**progress, "message": clean(str(progress["message"]))[:_LONGEST_LINE]})

    @property
    def are_unsaid(self) -> bool:
        return self._lines is not None or self._progress is not None

    # Written, in the event loop

    async def more_time(self, seconds: float) -> bool:
        """Ask the store for more time; if the run is still held, the attempt's deadline moves."""
        lease, scribe = self._lease, self.scribe
        is_ours = await scribe.insist(lambda: scribe.store.extend(lease.run_id, lease.token, seconds))
        if is_ours and self.deadline is not None:
            self.deadline.extend(seconds)
        return is_ours

    async def write(self) -> None:
        """StoreUnavailable leaves what was not written in its place."""
        if self._writing is None:
            self._writing = asyncio.Lock()
        async with self._writing:
            if self._lines:
                await self._write_lines(self._lines)
            if self._progress:
                await self._write_progress(self._progress)

    async def _write_lines(self, said: deque[tuple[str, str]]) -> None:
        lines, lost = [said.popleft() for _ in range(len(said))], self._lost
        told = [*lines, ("warning", f"{lost} lines were dropped: they came faster than they could be written")]
        try:
            await self.scribe.store.log(self._lease.run_id, self._lease.token, told if lost else lines)
        except StoreUnavailable:
            said.extendleft(reversed(lines))
            raise
        self._lost -= lost

    async def _write_progress(self, said: deque[dict[str, Any]]) -> None:
        progress = said.popleft()
        try:
            await self.scribe.store.progress(self._lease.run_id, self._lease.token, progress)
        except StoreUnavailable:
            if not said:
                said.append(progress)
            raise


class ThreadReports(AttemptReports):
    """The `Line` of a handler in a thread: it puts words down there, and the event loop hears of them."""

    __slots__ = ("_loop",)

    def __init__(self, scribe: ReportWriter, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(scribe, lease)
        self._loop = loop

    def extend(self, seconds: float) -> Awaitable[bool]:
        """Done when it returns."""
        try:
            return self._answer(self.more_time(seconds))
        except LeaseLost:
            return ReadyResult(False)

    def _answer(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """There when it returns."""
        try:
            return ReadyResult(asyncio.run_coroutine_threadsafe(work, self._loop).result())
        except RuntimeError:  # the loop is closed: the worker has gone, and this thread is what is left of it
            work.close()
            raise LeaseLost("the worker has gone") from None

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.scribe.expect, self)


class ReportWriter:
    """Writes the words of all attempts of a target."""

    def __init__(self, store: Store, every: float = EVERY) -> None:
        self.store, self._every = store, every
        self._unsaid: dict[AttemptReports, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store until it answers; the end of the attempt interrupts the wait."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(backoff.pause())

    def expect(self, words: AttemptReports) -> None:
        """In the event loop: these have something to be written."""
        self._unsaid[words] = None
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        unsaid, self._unsaid = list(self._unsaid), {}
        away: list[AttemptReports] = []
        for words in unsaid:
            try:
                await words.write()
            except StoreUnavailable:
                away.append(words)
            except Exception:
                logger.exception("what a handler said could not be written")
        self._writing = None
        for words in (*away, *self._unsaid):
            self.expect(words)

    async def last_words(self, words: AttemptReports) -> None:
        """What is unsaid is written before the run is settled. Does not wait for ever: the outcome is worth more."""
        self._unsaid.pop(words, None)
        until, backoff = time.monotonic() + _LAST_WORDS, Backoff(0.1, 1.0)
        while True:
            try:
                return await words.write()
            except StoreUnavailable:
                if time.monotonic() > until:
                    logger.warning("the store did not take the last words of a handler; its outcome goes without them")
                    return None
                await asyncio.sleep(backoff.pause())
            except Exception:
                logger.exception("what a handler said could not be written")
                return None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
