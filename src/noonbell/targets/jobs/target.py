"""The job target: carries out a run by calling its handler, wherever that runs, and returns how it ended.

    in the loop        canceled as any coroutine is: CancelledError is raised where it waits
    in a thread        sees `ctx.cancelled`; abandoned until it returns, and what it returns then is dropped
    in a sandbox       sees it, too, and is killed with its process group a moment later

A handler that ends without waiting costs no task, no timer and no question to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from noonbell.engine.attempt_runner import Deadlines
from noonbell.engine.in_flight import AbandonedThreads
from noonbell.errors import InvalidArgument, Parked
from noonbell.model.run import Assignment, Outcome
from noonbell.ports import Store
from noonbell.targets.jobs import outcome
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind, Handlers, Threads
from noonbell.targets.jobs.reporting import AttemptReports, ReportWriter, ThreadReports
from noonbell.targets.jobs.sandbox_pool import Sandboxes


class JobTarget:
    def __init__(
        self,
        handlers: Handlers,
        store: Store,
        *,
        abandoned: AbandonedThreads | None = None,
        threads: Threads | None = None,
    ) -> None:
        """`abandoned` is shared with the worker, so that it counts them."""
        self._handlers, self._abandoned = handlers, abandoned or AbandonedThreads()
        self._scribe, self._threads, self._sandboxes = ReportWriter(store), threads or Threads(), Sandboxes()
        self._deadlines = Deadlines()
        self._ways: dict[HandlerKind, Callable[[Handler, Assignment, Any, AttemptReports], Awaitable[Outcome]]] = {
            HandlerKind.ASYNC: self._in_loop,
            HandlerKind.THREAD: self._in_thread,
            HandlerKind.SANDBOX: self._in_sandbox,
        }

    async def open(self) -> None:
        """Nothing is made before it is needed."""

    async def close(self) -> None:
        self._threads.close()
        await self._sandboxes.close()
        await self._scribe.close()

    async def execute(self, assignment: Assignment) -> Outcome:
        handler = self._handlers.get(assignment.task.spec.job_type)
        if handler is None:
            return outcome.unknown(assignment.task.spec.job_type)
        try:
            arguments = handler.read(assignment.lease.payload)
        except InvalidArgument as error:
            return outcome.unfit(error)
        if handler.kind is HandlerKind.THREAD:
            words: AttemptReports = ThreadReports(self._scribe, assignment.lease, asyncio.get_running_loop())
        else:
            words = AttemptReports(self._scribe, assignment.lease)
        ended = await self._in_time(handler, assignment, arguments, words)
        if words.is_parked and ended.failure != "timeout":
            ended = outcome.gathering()
        if words.are_unsaid:
            await self._last_words(words)
        return ended

    async def _in_time(
        self, handler: Handler, assignment: Assignment, arguments: Any, words: AttemptReports
    ) -> Outcome:
        """The attempt's deadline, which the handler may have extended, ends it; the words of that are chosen here."""
        seconds = assignment.task.spec.timeout_seconds
        words.deadline = deadline = self._deadlines.of_attempt(assignment.timeout_seconds)
        try:
            ended = await self._ways[handler.kind](handler, assignment, arguments, words)
        except asyncio.CancelledError:
            words.cancelled = True
            if deadline.expired_alone():
                return outcome.timed_out(seconds)
            if words.are_unsaid:
                await self._scribe.last_words(words)
            raise
        finally:
            self._deadlines.remove(deadline)
            words.deadline = None
        # One that went on when its time was over, and returned in the end, was late all the same.
        if deadline.has_expired:
            deadline.withdraw()
            return outcome.timed_out(seconds)
        if handler.kind is HandlerKind.ASYNC and (late := deadline.late_by):
            return outcome.timed_out(seconds, late)
        return ended

    async def _in_loop(
        self, handler: Handler, assignment: Assignment, arguments: Any, words: AttemptReports
    ) -> Outcome:
        try:
            return outcome.returned(await handler.call(Context(assignment, words, handler.resources), arguments))
        except asyncio.CancelledError as error:
            if words.deadline is None or words.deadline.is_canceled:
                raise
            return outcome.raised(error)  # not asked for: what the handler waited for was canceled
        except Parked:
            return outcome.gathering()
        except (Exception, SystemExit) as error:
            return outcome.raised(error)

    async def _in_thread(
        self, handler: Handler, assignment: Assignment, arguments: Any, words: AttemptReports
    ) -> Outcome:
        future = self._threads.call(called, handler, Context(assignment, words, handler.resources), arguments)
        try:
            # Shielded: it is what tells when the thread is free, also after the attempt was canceled.
            ended: Outcome = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                words.cancelled = True
                self._abandoned.add()
                future.add_done_callback(lambda _: self._abandoned.remove())
            raise
        return ended

    async def _in_sandbox(
        self, handler: Handler, assignment: Assignment, _arguments: Any, words: AttemptReports
    ) -> Outcome:
        """The sandbox reads the payload once more: arguments may be what no message can carry."""
        if handler.location is None:
            return outcome.unready("it does not know where its App is; start it with --app, or define it in a module")
        return await self._sandboxes.execute(handler.location, handler.memory_mb, assignment, words)

    async def _last_words(self, words: AttemptReports) -> None:
        """The outcome is there: an interruption now only ends the wait for the store, and the store decides."""
        task = asyncio.current_task()
        try:
            await self._scribe.last_words(words)
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()


def called(handler: Handler, context: Context, arguments: Any) -> Outcome:
    """In the thread, the making of the outcome included: a large result must not stop the loop."""
    try:
        return outcome.returned(handler.call(context, arguments))
    except Parked:
        return outcome.gathering()
    except BaseException as error:  # also SystemExit: a handler does not end the worker
        return outcome.raised(error)
