"""Events of the store for the application, and waiting for a run to end.

    EventStream         an application's own stream, as `GET /api/v1/events`: it resumes where it was and reports a gap
    CompletionWatcher   one listener for all callers that wait for a run, so that a thousand of them cost no more than one

A hub reads only while there are listeners. A completion is a hint, never the truth: the caller reads the run again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from noonbell.clock import Instant
from noonbell.engine.event_hub import EventBatch, Hub, Listener
from noonbell.errors import InvalidState, StoreUnavailable
from noonbell.model.event import Event, Filter, Position
from noonbell.model.run import RunId
from noonbell.service.filters import read_filter

if TYPE_CHECKING:
    from noonbell.app.connection import AppConnection
    from noonbell.app.job import Job

RESET: Final = "reset"
"""The type of what stands in for events that are no longer kept: read the state anew."""
_ENDS: Final = Filter(types=("run.succeeded", "run.failed", "run.canceled", "run.skipped"))
_AGAIN: Final = 1.0
"""Seconds after which a store that did not answer is asked again."""


class EventStream:
    """`async for` over it; entered with `async with` first, it begins there, and nothing after that is missed.

    It ends when the App is no longer connected.
    """

    def __init__(self, connection: AppConnection, wanted: Filter, after: Position | None) -> None:
        self._connection, self._wanted, self._after = connection, wanted, after
        self._inside: AbstractAsyncContextManager[Listener] | None = None
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        if self._inside is not None:
            raise InvalidState("this app is already listening; use app.events(…) for another listener")
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def __aiter__(self) -> AsyncIterator[Event]:
        async with self if self._inside is None else contextlib.nullcontext():
            while (batch := await self._next()) is not None:
                if batch.has_gap:
                    yield _reset(batch)
                for event in batch.chosen(self._wanted):
                    yield event

    async def _next(self) -> EventBatch | None:
        """None when there will be no more."""
        while self._listener is not None and self._connection.is_open:
            listener = self._listener
            try:
                batch = await self._connection.on_its_loop(listener.next())
            except InvalidState:
                return None  # the App has left its store in this very moment
            if batch is not None:
                self._after = batch.end
                return batch
            if listener.is_cut and self._connection.is_open:
                # It was slow, or the store was away: what it has not got yet is still kept.
                await self._end()
                await asyncio.sleep(_AGAIN)
                await self._begin()
        return None

    async def _begin(self) -> None:
        while self._connection.is_open:
            inside = self._connection.hub.listen(self._wanted, self._after)
            try:
                self._listener = await self._connection.on_its_loop(inside.__aenter__())
            except StoreUnavailable:
                if self._after is None:
                    raise  # it would begin later than the caller believes
                await asyncio.sleep(_AGAIN)
            else:
                self._inside = inside
                self._after = self._listener.after
                return

    async def _end(self) -> None:
        inside, self._inside, self._listener = self._inside, None, None
        if inside is not None and self._connection.is_open:
            await self._connection.on_its_loop(inside.__aexit__(None, None, None))


class CompletionWatcher:
    """Lives in the event loop of the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._waiting: dict[RunId, set[asyncio.Event]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._is_heard = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, run_id: RunId) -> AsyncIterator[asyncio.Event]:
        """Set when the run may have ended. What ends after this is entered is heard of, while the store answers."""
        ended = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(ended)
        if self._listening is None or self._listening.done():
            self._is_heard.clear()
            self._listening = asyncio.create_task(self._listen(), name="noonbell endings")
        try:
            await self._is_heard.wait()
            yield ended
        finally:
            waiting = self._waiting[run_id]
            waiting.discard(ended)
            if not waiting:
                del self._waiting[run_id]
            if not self._waiting:
                self._listening.cancel()
                self._listening = None

    async def _listen(self) -> None:
        try:
            async with self._hub.listen(_ENDS) as listener:
                self._is_heard.set()
                while not listener.is_cut:
                    batch = await listener.next()
                    for event in [] if batch is None else batch.chosen(_ENDS):
                        self._tell(event)
        except StoreUnavailable:
            pass  # those who wait look by themselves, and the next one to wait listens anew
        finally:
            self._is_heard.set()

    def _tell(self, event: Event) -> None:
        if event.run_id is not None:
            for ended in self._waiting.get(event.run_id, ()):
                ended.set()


def wanted(
    types: str | Sequence[str], job: Job[..., object] | str | None, run_id: int | None, queue: str | None
) -> Filter:
    """InvalidArgument names what cannot be asked for."""
    name = job if job is None or isinstance(job, str) else job.name
    given = {
        "type": types if isinstance(types, str) else ",".join(types),
        "task": None if name is None else f"name:{name}",
        "run": run_id,
        "queue": queue,
    }
    return read_filter({field: value for field, value in given.items() if value is not None})


def _reset(batch: EventBatch) -> Event:
    """Its id is right before the first event of the batch: a listener that goes on after it misses none of those."""
    message = "the stream does not reach back so far; read the state anew"
    seq, at = (batch.events[0].seq - 1, batch.events[0].at) if batch.events else (batch.end.seq, Instant(0))
    return Event(seq=seq, index=0, at=at, type=RESET, data={"message": message})
