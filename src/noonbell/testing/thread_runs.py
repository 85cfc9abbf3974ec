"""Runs of plain functions in a trial: one after another in a thread of handlers, while the event loop stands still.

To hand a run to a thread and its outcome back costs three times what the rest of a plain run does. So the fast path itself goes
over to a thread, for a stretch of runs. A handler sees there what it sees on a worker: a thread of the pool, no event loop, a
context of its own. Only one of the two threads works at a time, as if there had been a handover for each run:

    something was put down for the loop    the stretch ends after that run; the loop gets its turn first
    a run lasts longer than a look         the loop takes it over: from there on it is an attempt as any other, with its deadline,
                                           its reports and its cancellation, of a handler that was called a little earlier
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

from noonbell.engine import attempt_runner
from noonbell.engine.in_flight import AbandonedThreads
from noonbell.errors import InvalidArgument
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.ports import Store
from noonbell.targets.jobs import outcome
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind, Handlers, Threads, answer
from noonbell.targets.jobs.reporting import ThreadReports
from noonbell.targets.jobs.target import JobTarget, called

_LOOK = 0.0002
"""Seconds between two looks of the loop, which stands still, at what the thread does."""


def has_work(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether something waits for a turn of the loop. Other loops than asyncio's do not say."""
    return bool(getattr(loop, "_ready", True))


class BegunCall:
    """One run of a plain function, called outside of the loop. As a target, it is the rest of that attempt."""

    __slots__ = ("_jobs", "assignment", "began_at", "error", "future", "handler", "words")

    def __init__(self, jobs: TrialJobs, handler: Handler, assignment: Assignment, words: ThreadReports) -> None:
        self._jobs, self.handler, self.assignment, self.words = jobs, handler, assignment, words
        self.error: BaseException | None = None
        self.future: asyncio.Future[Outcome] | None = None
        """Where the loop has taken it over: it waits for this."""
        self.began_at = time.monotonic()

    def run(self, variables: contextvars.Context) -> Outcome | None:
        """In the thread. None: there is an `error`, which is no handler's."""
        handler, assignment = self.handler, self.assignment
        try:
            arguments = handler.read(assignment.lease.payload)
            context = Context(assignment, self.words, handler.resources)
            ended: Outcome = variables.copy().run(called, handler, context, arguments)
        except InvalidArgument as error:
            return outcome.unfit(error)
        except BaseException as error:  # a thread has no caller to raise it to
            self.error = error
            return None
        return ended

    @property
    def seconds_left(self) -> float:
        return self.assignment.timeout_seconds - (time.monotonic() - self.began_at)

    def is_simple(self, ended: Outcome | None) -> bool:
        """A success, with nothing left to be said."""
        is_success = ended is not None and ended.kind is OutcomeKind.SUCCESS and ended.bodies is None
        return is_success and not self.words.are_unsaid and not self.words.is_parked

    async def execute(self, _assignment: Assignment) -> Outcome:
        attempt_runner.extend(self.seconds_left)
        return await self._jobs.finish(self)


class TrialThreads(Threads):
    def call(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Of a `BegunCall` in place of a handler's arguments: it was called before."""
        begun = arguments[-1]
        return begun.future if isinstance(begun, BegunCall) and begun.future else super().call(function, *arguments)


class TrialJobs(JobTarget):
    """The job target, which finishes what was called outside of the loop, too."""

    def __init__(self, handlers: Handlers, store: Store, abandoned: AbandonedThreads) -> None:
        self.threads = TrialThreads()
        super().__init__(handlers, store, abandoned=abandoned, threads=self.threads)

    def plain_handler(self, job_type: str | None) -> Handler | None:
        """If it runs in a thread."""
        handler = self._handlers.get(job_type)
        return handler if handler is not None and handler.kind is HandlerKind.THREAD else None

    def call_of(self, handler: Handler, assignment: Assignment, loop: asyncio.AbstractEventLoop) -> BegunCall:
        return BegunCall(self, handler, assignment, ThreadReports(self._scribe, assignment.lease, loop))

    async def finish(self, call: BegunCall) -> Outcome:
        """As `execute`, from where the handler is called."""
        words = call.words
        ended = await self._in_time(call.handler, call.assignment, call, words)
        if words.is_parked and ended.failure != "timeout":
            ended = outcome.gathering()
        if words.are_unsaid:
            await self._last_words(words)
        return ended


class Handover:
    """The handover between the loop, which stands still, and the thread that carries out one run after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._variables = loop, contextvars.copy_context()
        self._baton, self._done = threading.Lock(), threading.Lock()
        """Who holds the baton may touch what the fast path knows: the thread, except while a handler runs."""
        self._is_over = False
        self._error: BaseException | None = None
        self.call: BegunCall | None = None
        """Under way, or not simply ended: the loop waits for the rest of it."""

    def carry_out(self, threads: Threads, work: Callable[[], None]) -> None:
        """Blocks the loop until the thread has ended its work, or the loop has taken over the call that is under way."""
        self._done.acquire()
        threads.put(lambda: self._go(work))
        seen: BegunCall | None = None
        try:
            while not self._done.acquire(timeout=_LOOK):
                with self._baton:
                    if self.call is not None and (self.call is seen or has_work(self._loop)):
                        break
                    seen = self.call
        finally:
            with self._baton:
                self._is_over = True
                if self.call is not None and self.call.future is None:
                    self.call.future = self._loop.create_future()
        if self._error is not None:
            raise self._error

    def run(self, call: BegunCall) -> Outcome | None:
        """In the thread. None: the loop finishes it."""
        self.call = call
        self._baton.release()
        try:
            ended = call.run(self._variables)
        finally:
            self._baton.acquire()
        if self._is_over:
            if call.future is not None:
                self._tell(call.future, ended, call.error)
            return None
        if call.seconds_left < 0:
            ended = outcome.timed_out(call.assignment.timeout_seconds)
        if call.is_simple(ended):
            self.call = None
            return ended
        call.future = self._loop.create_future()
        answer(call.future, ended, call.error)
        return None

    def _tell(self, future: asyncio.Future[Outcome], ended: Outcome | None, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(answer, future, ended, error)
        except RuntimeError:
            return  # the loop has closed: no caller waits

    def _go(self, work: Callable[[], None]) -> None:
        with self._baton:
            try:
                if not self._is_over:
                    work()
            except BaseException as error:  # the loop raises it
                self._error = error
        self._done.release()
