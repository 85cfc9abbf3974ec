"""An App's way to a store: opened from an address, publishing, looking after what was published; its jobs written as tasks.

It lives in one event loop. Other loops and threads may publish too: their call is carried out in that loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import logging
import os
import shlex
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from noonbell.app.job import Published
from noonbell.app.listening import CompletionWatcher
from noonbell.engine import publish as engine
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.event_hub import Hub, signal_events
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound, StoreUnavailable
from noonbell.model import request as model
from noonbell.model.request import Publication
from noonbell.model.run import FINAL, Run, RunId
from noonbell.model.task import Task, TaskId
from noonbell.ports import EVENTS
from noonbell.service import Rules, Services
from noonbell.service.publishing import MOST_RUNS
from noonbell.service.task_files import ReconcileReport, reconcile
from noonbell.settings import Settings, load
from noonbell.stores import store_of, wakeup_of
from noonbell.targets.http import template
from noonbell.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonbell.app.app import App
    from noonbell.app.flow import Flow
    from noonbell.app.job import Job, PublishRequest


Enter = Callable[[bool], AbstractAsyncContextManager[None]]


_AT_EXIT: Final = 15.0
"""Seconds that an exiting interpreter waits for an Opening that was never left."""


class Opening:
    """Entered with `async with` in an application's own event loop, or with `with` where there is none.

    The latter runs an event loop in a thread of its own until it is left, or until the interpreter exits.

    A child process after `fork()` has neither that thread nor connections that it may use. What was entered by `with` and
    only publishes is opened again in the child when it is first used; anything else says what to do instead.
    """

    def __init__(self, app: App, enter: Enter, *, publishes_only: bool = False) -> None:
        """`enter` gets whether it is for the first time, or again in a child process."""
        self._app, self._enter, self._publishes_only = app, enter, publishes_only
        self._inside: AbstractAsyncContextManager[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._left_behind: list[object] = []
        """In a child process, what is the parent's: never closed here, because the parent goes on with it."""

    @property
    def is_in_thread(self) -> bool:
        """Entered by `with`."""
        return self._thread is not None

    async def __aenter__(self) -> App:
        await self._open(first=True)
        return self._app

    async def _open(self, *, first: bool) -> None:
        self._inside = self._enter(first)
        await self._inside.__aenter__()
        self._app.opening = self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._app.opening = None
        inside, self._inside = self._inside, None
        if inside is not None:
            await inside.__aexit__(kind, error, trace)

    def __enter__(self) -> App:
        self._open_in_thread(first=True)
        return self._app

    def _open_in_thread(self, *, first: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="noonbell app", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(first=first), self._loop).result()
        except BaseException:
            self._end_loop()
            raise
        # A script that ends without leaving it has published all the same: its last signals are sent.
        atexit.register(self._leave_at_exit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        atexit.unregister(self._leave_at_exit)
        self._leave(None)

    def _leave_at_exit(self) -> None:
        # RuntimeError: what closes by way of a pool of threads cannot any longer. Signals need none.
        with contextlib.suppress(RuntimeError, TimeoutError):
            self._leave(_AT_EXIT)

    def _leave(self, patience: float | None) -> None:
        if self._loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.__aexit__(None, None, None), self._loop).result(patience)
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def forked(self) -> Callable[[], None] | None:
        """In a child process: nothing of the parent's is used or closed here. What opens it again, where that may be."""
        is_by_thread = self._loop is not None
        self._left_behind += [self._inside, self._loop, self._thread]
        self._inside = self._loop = self._thread = None
        return functools.partial(self._open_in_thread, first=False) if is_by_thread and self._publishes_only else None


def settings_for(url: str | None, *, schema: str | None = None, table_prefix: str | None = None) -> Settings:
    """As a server in this environment would have them, on that store."""
    given = {"store.url": url, "store.schema": schema, "store.table_prefix": table_prefix}
    return load((), os.environ, given).settings


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Services]:
    """The services over the store, open; closed again in the opposite order."""
    async with contextlib.AsyncExitStack() as parts:
        store = store_of(settings)
        parts.push_async_callback(store.close)
        await store.open()
        wakeup = wakeup_of(settings)
        parts.push_async_callback(wakeup.close)
        await wakeup.open()
        parts.callback(signal_events(store, wakeup))
        yield Services(store, wakeup, Rules.of(settings, template.check))


log = logging.getLogger("noonbell.app")


async def declare_jobs(
    services: Services, owner: str, jobs: Collection[Job[..., Any] | Flow[..., Any]], *, prune: bool = False
) -> ReconcileReport:
    """Bring the tasks of `owner` to what the code says. With `prune`, those that it no longer says are deleted.

    A task of the same name that another owner manages is used as it is, if it runs this job; otherwise AlreadyExists, and
    nothing is written.
    """
    by_name = {job.name: job for job in jobs}
    for task in (await services.store.tasks_named(by_name)).values():
        if task.spec.managed_by != owner:
            _check_carries_out(by_name[task.name], task)
    for job in jobs:
        missing = sorted(job.signature.required)
        if job.declared.has_schedule and job.declared.task.get("payload") is None and missing:
            log.warning(
                "job %s has a schedule but no payload=; its scheduled runs will fail, because they lack %s",
                *(job.name, ", ".join(missing)),
            )
    report = await reconcile(services, owner, [job.declared.task for job in jobs], by=owner, prune=prune, path="jobs")
    for name, other in report.foreign.items():
        _check_carries_out(by_name[name], await services.tasks.get(name))  # made by another meanwhile
        log.warning("task %s is managed by %s, not by %s: it is used as it is", name, other, owner)
    return report


def _check_carries_out(job: Job[..., Any] | Flow[..., Any], task: Task) -> None:
    if not job.is_carried_out_by(task.spec):
        raise AlreadyExists(
            f"a task {task.name!r} already exists and does something else; it is managed by {task.spec.managed_by};"
            f" give the job or flow another name, or delete that task: noonbell task delete {shlex.quote(task.name)}",
            details={"name": task.name},
        )


def check_owner(name: str) -> str:
    """What `managed_by` says of the tasks of an App with this name."""
    if not 1 <= len(name) <= 200 or not name.isprintable() or name != name.strip():
        raise InvalidArgument.field("name", f"is {name!r}; expected 1 to 200 printable characters")
    return f"code:{name}"


T = TypeVar("T")
R = TypeVar("R")

_GONE: Final = "the app is no longer connected to the store that this was published to"
_QUICK_LOOKS: Final = 3
"""Looks at a run before its end is listened for: many end within a few milliseconds, and listening has its price."""
_FIRST_LOOK: Final = 0.01
_FIRST_LOOK_FOR_COMMIT: Final = 0.002
_LONGEST_TRANSACTION: Final = 60.0
"""Seconds that a transaction of the caller is followed for, so that its commit can be signalled. After that a poll finds it."""
_CLOSE_AT_MOST: Final = 1.0
_LAST_LOOK: Final = 2.0
"""Seconds between two looks at a run that a caller waits for, growing. An event brings its end sooner; this is the net."""


class AppConnection:
    def __init__(self, services: Services) -> None:
        """Made in the event loop that `services` were opened in."""
        self._services = services
        self._store = services.store
        self._known = TaskCache(services.store)
        self._loop = asyncio.get_running_loop()
        self._task_ids: dict[str, TaskId] = {}
        self.hub: Final = Hub(services.store, services.wakeup)
        self._endings = CompletionWatcher(self.hub)
        self._caller = traces.caller()
        self._uncommitted: set[asyncio.Task[None]] = set()
        """Each waits for a transaction of a caller to commit, and then signals."""
        self._closing = asyncio.Event()
        self.is_open = True

    # Publishing

    async def publish(self, request: PublishRequest[R]) -> Published[R]:
        """ConcurrencyLimit if the task is at its limit and does not queue: then there is no run."""
        (published,) = await self.publish_many([request], request.transaction, alone=True)
        return _not_refused(published)

    def publish_sync(self, request: PublishRequest[R]) -> Published[R]:
        (published,) = self.publish_many_sync([request], request.transaction, alone=True)
        return _not_refused(published)

    async def publish_many(
        self, requests: Iterable[PublishRequest[Any]], transaction: Any = None, *, alone: bool = False
    ) -> list[Published[Any]]:
        listed = _listed(requests, alone=alone)
        if not listed:
            return []
        if transaction is None:
            answers = await self.on_its_loop(self._publish(listed))
        else:
            connection = await awaited_driver_connection(transaction)
            self._check_loop(connection)
            answers = await self._publish_within(listed, connection)
        return self._published(listed, answers)

    def publish_many_sync(
        self, requests: Iterable[PublishRequest[Any]], transaction: Any = None, *, alone: bool = False
    ) -> list[Published[Any]]:
        listed = _listed(requests, alone=alone)
        if not listed:
            return []
        if transaction is None:
            answers = self.from_thread(self._publish(listed))
        else:
            self._refuse_own_loop("publish")
            connection = driver_connection(transaction)
            self._check_loop(connection)
            # A sqlite3 connection belongs to this thread, and so the work is done in it.
            answers = asyncio.run(self._publish_within(listed, connection))
        return self._published(listed, answers)

    async def _publish(self, requests: Sequence[PublishRequest[Any]]) -> list[model.PublishResult]:
        publications = await self._publications(requests)
        try:
            return await engine.publish(self._store, self._services.wakeup, publications, self._known)
        except NotFound:
            # A task was deleted since it was looked up. It may have been made anew.
            for request in requests:
                self._task_ids.pop(request.job.name, None)
            publications = await self._publications(requests)
            return await engine.publish(self._store, self._services.wakeup, publications, self._known)

    async def _publish_within(
        self, requests: Sequence[PublishRequest[Any]], transaction: Any
    ) -> list[model.PublishResult]:
        """In the caller's thread or loop; the tasks are looked up in ours."""
        publications = await self.on_its_loop(self._publications(requests))
        topics = [*await self.on_its_loop(engine.topics_of(publications, self._known)), EVENTS]
        writing = self._store.publish_within(transaction, publications, topics)
        # Ids come from our own connections, and those live in our loop.
        answers = await (self.on_its_loop(writing) if is_of_any_thread(transaction) else writing)
        born = next((answer.run_id for answer in answers if answer.outcome is model.PublishOutcome.CREATED), None)
        if born is not None and not self._services.wakeup.hears_commits:
            self._loop.call_soon_threadsafe(self._signal_after_commit, born, topics)
        return answers

    def _signal_after_commit(self, run_id: RunId, topics: Sequence[str]) -> None:
        following = self._loop.create_task(self._follow(run_id, topics), name=f"noonbell commit of run {run_id}")
        self._uncommitted.add(following)
        following.add_done_callback(self._uncommitted.discard)

    async def _follow(self, run_id: RunId, topics: Sequence[str]) -> None:
        """Signal when the caller's transaction has committed: when the run is there. Not if it takes too long."""
        pause, give_up_at = _FIRST_LOOK_FOR_COMMIT, time.monotonic() + _LONGEST_TRANSACTION
        while time.monotonic() < give_up_at:
            is_last = self._closing.is_set()
            with contextlib.suppress(StoreUnavailable):
                if await self._store.run(run_id) is not None:
                    for topic in topics:
                        self._services.wakeup.signal(topic)
                    return
            if is_last:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
            pause = min(pause * 1.5, _LAST_LOOK)

    async def _publications(self, requests: Sequence[PublishRequest[Any]]) -> list[Publication]:
        known = {job: await self._task_id(job) for job in dict.fromkeys(request.job for request in requests)}
        made = [request.publication(known[request.job]) for request in requests]
        span = None if self._caller is None else self._caller()
        return made if span is None else [msgspec.structs.replace(each, trace_id=span) for each in made]

    async def _task_id(self, job: Job[..., Any]) -> TaskId:
        found = self._task_ids.get(job.name)
        if found is None:
            task = await self._store.task_named(job.name)
            if task is None or not job.is_carried_out_by(task.spec):
                noun = "job" if "job_type" in job.declared.task else "flow"
                raise NotFound(
                    f"{noun} {job.name!r} has no task; it is declared when the app connects, unless declare=False says not to"
                )
            self._known.note(task)
            found = self._task_ids[job.name] = task.id
        return found

    def _published(
        self, requests: Sequence[PublishRequest[Any]], answers: Sequence[model.PublishResult]
    ) -> list[Published[Any]]:
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
        """The store is about to be closed: listeners end, and callers that still hold something published get an error."""
        self.is_open = False
        self._closing.set()
        if self._uncommitted:
            await asyncio.wait(self._uncommitted, timeout=_CLOSE_AT_MOST)
            for following in self._uncommitted:
                following.cancel()
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
        """A connection with asyncio lives in the caller's loop and needs ids from ours: they have to be the same."""
        if not is_bound_to_a_loop(transaction):
            return
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise InvalidArgument.field("transaction", "is a connection of a different event loop than the app's")


def _listed(requests: Iterable[PublishRequest[Any]], *, alone: bool) -> list[PublishRequest[Any]]:
    listed = list(requests)
    if len(listed) > MOST_RUNS:
        raise InvalidArgument.field("requests", f"are {len(listed)}; expected at most {MOST_RUNS} in one transaction")
    if not alone and any(request.transaction is not None for request in listed):
        raise InvalidArgument.field("transaction", "belongs to the whole batch: give it to publish_many")
    return listed


def _not_refused(published: Published[R]) -> Published[R]:
    _ = published.run_id  # raises where there is none
    return published


_SQLALCHEMY_ASYNC: Final = ("AsyncSession", "AsyncConnection", "async_scoped_session")


def is_from(given: object, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(given).__mro__)


def is_called(given: object, *names: str) -> bool:
    return any(kind.__name__ in names for kind in type(given).__mro__)


def is_bound_to_a_loop(connection: object) -> bool:
    """Of asyncpg or asyncmy, or of psycopg with asyncio: it may be used only in the event loop that it was opened in."""
    return any(is_from(connection, driver) for driver in ("asyncpg", "asyncmy")) or (
        is_from(connection, "psycopg") and is_called(connection, "AsyncConnection")
    )


def is_of_any_thread(connection: object) -> bool:
    """Of psycopg without asyncio: it may be used anywhere, while its caller waits."""
    return is_from(connection, "psycopg") and not is_called(connection, "AsyncConnection")


def driver_connection(given: Any) -> Any:
    """In the caller's thread. What needs an event loop is refused: `awaited_driver_connection` is for that."""
    if is_from(given, "django"):
        return _of_django(given)
    if not is_from(given, "sqlalchemy"):
        return given
    if is_called(given, *_SQLALCHEMY_ASYNC):
        raise InvalidArgument.field("transaction", f"is a {type(given).__name__}; await the async form with it")
    return _of_sqlalchemy(given)


async def awaited_driver_connection(given: Any) -> Any:
    if not (is_from(given, "sqlalchemy") and is_called(given, *_SQLALCHEMY_ASYNC)):
        return driver_connection(given)
    connection = given if is_called(given, "AsyncConnection") else await given.connection()
    if not connection.in_transaction():
        raise InvalidArgument.field("transaction", "is a connection without a transaction; begin one")
    # SQLAlchemy tells its driver of the transaction with the first statement, which this may be.
    await connection.exec_driver_sql("select 1")
    return (await connection.get_raw_connection()).driver_connection


def _of_sqlalchemy(given: Any) -> Any:
    connection = given if is_called(given, "Connection") else given.connection()
    if not connection.in_transaction():
        raise InvalidArgument.field("transaction", "is a connection without a transaction; begin one")
    return connection.connection.driver_connection


def _of_django(given: Any) -> Any:
    """`django.db.connection`, or one of `connections`."""
    if not getattr(given, "in_atomic_block", False):
        raise InvalidArgument.field("transaction", "is a Django connection outside transaction.atomic()")
    given.ensure_connection()
    return given.connection
