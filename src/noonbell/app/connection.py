"""An App's way to a store while it has one: publishing, and looking after what was published.

It lives in one event loop. Other loops and threads may publish too: their call is carried out in that loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from noonbell.app.listening import Endings
from noonbell.app.published import Published
from noonbell.engine import publish as engine
from noonbell.engine.know import Tasks
from noonbell.engine.listen import Hub
from noonbell.engine.tell import EVENTS
from noonbell.errors import InvalidArgument, InvalidState, NotFound, StoreUnavailable
from noonbell.model import request as model
from noonbell.model.request import Publication
from noonbell.model.run import FINAL, Run, RunId
from noonbell.model.task import TaskId
from noonbell.ports import EventStore
from noonbell.service import Services
from noonbell.service.publishing import MOST_RUNS
from noonbell.sinks import traces

if TYPE_CHECKING:
    from noonbell.app.job import Job
    from noonbell.app.request import Request

T = TypeVar("T")
R = TypeVar("R")

_GONE: Final = "the app is no longer connected to the store that this was published to"
_QUICK_LOOKS: Final = 3
"""Looks at a run before its end is listened for: many end within a few milliseconds, and listening has its price."""
_FIRST_LOOK: Final = 0.01
_LAST_LOOK: Final = 2.0
"""Seconds between two looks at a run that somebody waits for, growing. Its end is told sooner; this is the net."""


class Connection:
    def __init__(self, services: Services) -> None:
        """Made in the event loop that `services` were opened in."""
        self._services = services
        self._store = services.store
        self._known = Tasks(services.store)
        self._loop = asyncio.get_running_loop()
        self._task_ids: dict[str, TaskId] = {}
        self.hub: Final = Hub(cast("EventStore", services.store), services.wakeup)
        self._endings = Endings(self.hub)
        self._caller = traces.caller()
        self.is_open = True

    # Publishing

    async def publish(self, request: Request[R]) -> Published[R]:
        """ConcurrencyLimit if the task is at its limit and does not queue: then there is no run."""
        (published,) = await self.publish_many([request], request.transaction, alone=True)
        return _not_refused(published)

    def publish_sync(self, request: Request[R]) -> Published[R]:
        (published,) = self.publish_many_sync([request], request.transaction, alone=True)
        return _not_refused(published)

    async def publish_many(
        self, requests: Iterable[Request[Any]], transaction: Any = None, *, alone: bool = False
    ) -> list[Published[Any]]:
        listed = _listed(requests, alone=alone)
        if not listed:
            return []
        if transaction is None:
            answers = await self.on_its_loop(self._publish(listed))
        else:
            self._check_loop(transaction)
            answers = await self._publish_within(listed, transaction)
        return self._published(listed, answers)

    def publish_many_sync(
        self, requests: Iterable[Request[Any]], transaction: Any = None, *, alone: bool = False
    ) -> list[Published[Any]]:
        listed = _listed(requests, alone=alone)
        if not listed:
            return []
        if transaction is None:
            answers = self.from_thread(self._publish(listed))
        else:
            self._refuse_own_loop("publish")
            self._check_loop(transaction)
            # A sqlite3 connection belongs to this thread, and so the work is done in it.
            answers = asyncio.run(self._publish_within(listed, transaction))
        return self._published(listed, answers)

    async def _publish(self, requests: Sequence[Request[Any]]) -> list[model.Published]:
        publications = await self._publications(requests)
        try:
            return await engine.publish(self._store, self._services.wakeup, publications, self._known)
        except NotFound:
            # A task was deleted since it was looked up. Somebody may have made it anew.
            for request in requests:
                self._task_ids.pop(request.job.name, None)
            publications = await self._publications(requests)
            return await engine.publish(self._store, self._services.wakeup, publications, self._known)

    async def _publish_within(self, requests: Sequence[Request[Any]], transaction: Any) -> list[model.Published]:
        """In the caller's thread or loop; the tasks are looked up in ours."""
        publications = await self.on_its_loop(self._publications(requests))
        topics = await self.on_its_loop(engine.topics_of(publications, self._known))
        return await self._store.publish_within(transaction, publications, [*topics, EVENTS])

    async def _publications(self, requests: Sequence[Request[Any]]) -> list[Publication]:
        made = [request.publication(await self._task_id(request.job)) for request in requests]
        span = None if self._caller is None else self._caller()
        return made if span is None else [msgspec.structs.replace(each, trace_id=span) for each in made]

    async def _task_id(self, job: Job[..., Any]) -> TaskId:
        found = self._task_ids.get(job.name)
        if found is None:
            task = await self._store.task_named(job.name)
            if task is None or task.spec.job_type != job.name:
                raise NotFound(
                    f"job {job.name!r} has no task; it is declared when the app connects, unless declare=False says not to"
                )
            found = self._task_ids[job.name] = task.id
        return found

    def _published(self, requests: Sequence[Request[Any]], answers: Sequence[model.Published]) -> list[Published[Any]]:
        return [Published(request.job, answer, self) for request, answer in zip(requests, answers, strict=True)]

    # Runs

    async def run(self, run_id: RunId) -> Run:
        return await self._services.runs.get(run_id)

    async def cancel(self, run_id: RunId) -> bool:
        return (await self._services.runs.cancel(run_id)).canceled

    async def wait(self, run_id: RunId, timeout: float | None, *, must_exist: bool) -> Run:  # noqa: ASYNC109 - its meaning
        """The run, as soon as it is final. TimeoutError says how it stands; NotFound if it must exist and does not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, ended, standing = _FIRST_LOOK, asyncio.Event(), ""
        async with contextlib.AsyncExitStack() as listening:
            for looks in itertools.count():
                if looks == _QUICK_LOOKS:
                    ended = await listening.enter_async_context(self._endings.of(run_id))
                ended.clear()
                run, standing = await self._look(run_id, must_exist=must_exist)
                if run is not None and run.status in FINAL:
                    return run
                left = pause if deadline is None else min(pause, deadline - time.monotonic())
                if left <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), left)
                pause = min(pause * 2, _LAST_LOOK)
        raise TimeoutError(f"run {run_id} {standing} after {timeout:g} s")

    async def _look(self, run_id: RunId, *, must_exist: bool) -> tuple[Run | None, str]:
        """The run, and how it stands in words."""
        if not self.is_open:
            raise InvalidState(_GONE)
        try:
            run = await self.run(run_id)
        except NotFound:
            if must_exist:
                raise
            return None, "is not committed"
        except StoreUnavailable as error:
            return None, f"cannot be read ({error.message})"  # the store may be back before the time is up
        return run, f"is {run.status}"

    # Loops and threads

    async def on_its_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaited here, carried out where the store lives."""
        self._check_open(work)
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """For code without a loop: waits, so it must not be called in the loop that it waits for."""
        self._check_open(work)
        try:
            self._refuse_own_loop("the sync form")
        except InvalidState:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def close(self) -> None:
        """The store is about to be closed: listeners end, and whoever still holds something published is told so."""
        self.is_open = False
        await self.hub.close()

    def _check_open(self, work: Coroutine[Any, Any, Any]) -> None:
        if not self.is_open:
            work.close()
            raise InvalidState(_GONE)

    def _refuse_own_loop(self, what: str) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            raise InvalidState(f"{what} would block the event loop here; await the async form instead")

    def _check_loop(self, transaction: Any) -> None:
        """An asyncpg connection lives in the caller's loop and needs ids from ours: they have to be the same."""
        if not type(transaction).__module__.startswith("asyncpg"):
            return
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise InvalidArgument.field(
                "transaction", "is a connection of another event loop than the one that the app is connected in"
            )


def _listed(requests: Iterable[Request[Any]], *, alone: bool) -> list[Request[Any]]:
    listed = list(requests)
    if len(listed) > MOST_RUNS:
        raise InvalidArgument.field("requests", f"are {len(listed)}; expected at most {MOST_RUNS} in one transaction")
    if not alone and any(request.transaction is not None for request in listed):
        raise InvalidArgument.field("transaction", "belongs to the whole batch: give it to publish_many")
    return listed


def _not_refused(published: Published[R]) -> Published[R]:
    _ = published.run_id  # raises where there is none
    return published
