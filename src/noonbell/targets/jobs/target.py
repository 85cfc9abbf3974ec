"""The target for jobs: carries out a run by calling its handler, wherever that runs, and says how it ended.

    in the loop        canceled as any coroutine is: CancelledError is raised where it waits
    in a thread        told by `ctx.cancelled`; a stray until it returns, and what it returns then is dropped
    in a sandbox       told, and killed with its process group a moment later

A handler that ends without waiting costs no task, no timer and no question to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from noonbell.engine.execute import Belts, wearer
from noonbell.engine.stray import Strays
from noonbell.errors import InvalidArgument
from noonbell.model.attempt import Assignment, Outcome
from noonbell.ports import Store
from noonbell.targets.jobs import outcome
from noonbell.targets.jobs.context import Context
from noonbell.targets.jobs.handler import Handler, HandlerKind, Handlers
from noonbell.targets.jobs.sandboxes import Sandboxes
from noonbell.targets.jobs.speak import Scribe, ThreadWords, Words
from noonbell.targets.jobs.threads import Threads


class JobTarget:
    def __init__(
        self,
        handlers: Handlers,
        store: Store,
        *,
        strays: Strays | None = None,
        location: str | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        """`strays` is shared with the worker, so that it counts them. `location` is for handlers that name none."""
        self._handlers, self._strays, self._location = handlers, strays or Strays(), location
        self._scribe, self._threads, self._sandboxes = Scribe(store), Threads(), sandboxes or Sandboxes()
        self._belts = Belts()
        self._ways: dict[HandlerKind, Callable[[Handler, Assignment, Any, Words], Awaitable[Outcome]]] = {
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
            words: Words = ThreadWords(self._scribe, assignment.lease, asyncio.get_running_loop())
        else:
            words = Words(self._scribe, assignment.lease)
        ended = await self._in_time(handler, assignment, arguments, words)
        if words.are_unsaid:
            await self._last_words(words)
        return ended

    async def _in_time(self, handler: Handler, assignment: Assignment, arguments: Any, words: Words) -> Outcome:
        """Ends by the task's timeout, or by what the handler has extended it to."""
        seconds = assignment.task.spec.timeout_seconds
        words.belt = belt = self._belts.put_on(wearer(), seconds)
        try:
            ended = await self._ways[handler.kind](handler, assignment, arguments, words)
        except asyncio.CancelledError:
            words.cancelled = True
            if belt.was_it():
                return outcome.timed_out(seconds)
            if words.are_unsaid:
                await self._scribe.last_words(words)
            raise
        finally:
            self._belts.take_off(belt)
            words.belt = None
        # One that went on when its time was over, and returned in the end, was late all the same.
        if belt.is_pulled:
            belt.take_back()
            return outcome.timed_out(seconds)
        if handler.kind is HandlerKind.ASYNC and (late := belt.late_by):
            return outcome.timed_out(seconds, late)
        return ended

    async def _in_loop(self, handler: Handler, assignment: Assignment, arguments: Any, words: Words) -> Outcome:
        try:
            return outcome.returned(await handler.call(Context(assignment, words, handler.resources), arguments))
        except asyncio.CancelledError as error:
            if words.belt is None or words.belt.is_canceled:
                raise
            return outcome.raised(error)  # nobody asked for it: what the handler waited for was canceled
        except (Exception, SystemExit) as error:
            return outcome.raised(error)

    async def _in_thread(self, handler: Handler, assignment: Assignment, arguments: Any, words: Words) -> Outcome:
        future = self._threads.call(_called, handler, Context(assignment, words, handler.resources), arguments)
        try:
            # Shielded: it is what tells when the thread is free, whoever waits for it.
            ended: Outcome = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                words.cancelled = True
                self._strays.add()
                future.add_done_callback(lambda _: self._strays.remove())
            raise
        return ended

    async def _in_sandbox(self, handler: Handler, assignment: Assignment, _arguments: Any, words: Words) -> Outcome:
        """The sandbox reads the payload once more: arguments may be what no message can carry."""
        location = handler.location or self._location
        if location is None:
            return outcome.unready("it does not know where its App is; start it with --app, or define it in a module")
        return await self._sandboxes.execute(location, handler.memory_mb, assignment, words)

    async def _last_words(self, words: Words) -> None:
        """The outcome is there: whoever interrupts now only ends the wait for the store, and the store decides."""
        task = asyncio.current_task()
        try:
            await self._scribe.last_words(words)
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()


def _called(handler: Handler, context: Context, arguments: Any) -> Outcome:
    """In the thread, the making of the outcome included: a large result must not stop the loop."""
    try:
        return outcome.returned(handler.call(context, arguments))
    except BaseException as error:  # also SystemExit: a handler does not end the worker
        return outcome.raised(error)
