"""The App: jobs declared in code, what they are given, and how the application runs or only publishes them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from noonbell.app import listening
from noonbell.app.connection import AppConnection, Opening, check_owner, declare_jobs, opened, settings_for
from noonbell.app.flow import Flow, FlowBuilder
from noonbell.app.job import OPTIONS, Job, JobOptions, Published, PublishRequest, declared, handler_of
from noonbell.app.listening import EventStream
from noonbell.app.middleware import AsyncMiddleware, Middleware, checked
from noonbell.app.signature import Provided, signature_of
from noonbell.errors import InvalidArgument, InvalidState
from noonbell.model.event import Position
from noonbell.model.run import Run, RunId
from noonbell.service import Services
from noonbell.settings.kinds import sqlite_file
from noonbell.targets.jobs.handler import Context, Handlers

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Middleware)
AM = TypeVar("AM", bound=AsyncMiddleware)

Lifespan = Callable[[], AsyncIterator[None]]

ANY_NAME: Final = "app"
"""Of an App that was given none. Several programs on a store may have one, so none of them may prune."""


FORKED: Final = (
    "the app was connected before fork(), and a child process cannot use what its parent has open:"
    " call app.connect_sync(URL), or enter app.running(URL), in each child, after the fork"
)
FORKED_SQLITE: Final = (
    "the app was connected before fork(), and SQLite does not allow that a child process opens a file again that its"
    " parent has open: call app.connect_sync(URL) in each child, after the fork, and not in the parent"
)


class Decorator(Protocol):
    """`@app.job(…)`: what makes a job of a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


class ConnectOptions(TypedDict, total=False):
    """Those of `App.connected`, which says what they mean."""

    declare: bool
    prune: bool
    schema: str | None
    table_prefix: str | None


class App:
    """`name` is who manages the tasks of its jobs: `managed_by: code:NAME`. Two Apps on one store have two names."""

    def __init__(self, name: str = ANY_NAME) -> None:
        self.name = name
        self.owner: Final = check_owner(name)
        self.handlers: Final = Handlers()
        self._jobs: dict[str, Job[..., Any]] = {}
        self._flows: dict[str, Flow[..., Any]] = {}
        self.flow: Final = FlowBuilder(self)
        """Declares flows of its jobs, and puts jobs together: `app.flow(NAME, app.flow.chain(…))`."""
        self._provided = Provided()
        self._lifespans: list[Lifespan] = []
        self.middlewares: Final[list[Middleware | AsyncMiddleware]] = []
        """In the order of their declaration, the outermost first."""
        self._connection: AppConnection | None = None
        self.opening: Opening | None = None
        """What was entered to connect it; None where that is over services that were open already."""
        self._is_forked = False
        self._open_again: Callable[[], None] | None = None
        self._opening_again = threading.Lock()
        self._left_behind: list[AppConnection] = []

    def __repr__(self) -> str:
        return f"<App {self.name}: {', '.join(self._jobs) or 'no jobs'}>"

    # Declaring

    @overload
    def job(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, **options: Unpack[JobOptions]) -> Decorator: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a job of a function: async, or sync and then run in a thread, or with `sandbox=True` in a process.

        A first parameter of type Context is the run's; the others are the fields of its payload. An option or a
        parameter that cannot work raises InvalidArgument here, which names it.
        """
        caller = sys._getframe(1)
        around = (caller.f_globals, caller.f_locals)
        if function is not None:
            return self._add(function, {}, *around)

        def decorate(function: Callable[..., Any]) -> Job[..., Any]:
            return self._add(function, options, *around)

        return decorate

    def _add(
        self, function: Any, options: Mapping[str, Any], module: Mapping[str, Any], around: Mapping[str, Any]
    ) -> Job[..., Any]:
        """`around`: the names where it was decorated, which its annotations may use if it was written there too."""
        if (
            not inspect.isfunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise InvalidArgument(f"@app.job expects a plain or an async function, not {function!r}")
        names = around if function.__globals__ is module else {}
        name = options.get("name", function.__name__)
        try:
            signature = signature_of(function, names, OPTIONS)
            given = dict(options)
            if given.get("payload") is not None:
                given["payload"] = signature.write(given["payload"])
            if signature.types:
                given["meta"] = {"payload_schema": signature.schema(), **(given.get("meta") or {})}
            job: Job[..., Any] = Job(self, function, signature, declared(name, given))
            if name in self._flows:
                raise InvalidArgument.field("name", f"is {name!r}, which another flow of this App already has")
            self.handlers.add(handler_of(job, self._provided))
        except InvalidArgument as error:
            raise InvalidArgument(f"job {name}: {error.message}", details=error.details) from None
        self._jobs[job.name] = job
        return job

    @property
    def jobs(self) -> Mapping[str, Job[..., Any]]:
        """By name, in the order of their declaration."""
        return self._jobs

    def add_flow(self, flow: Flow[..., Any]) -> None:
        """What `app.flow` has made. InvalidArgument if a job or another flow has its name."""
        if flow.name in self._jobs or flow.name in self._flows:
            raise InvalidArgument.field(
                "name", f"is {flow.name!r}, which a job or another flow of this App already has"
            )
        self._flows[flow.name] = flow

    @property
    def flows(self) -> Mapping[str, Flow[..., Any]]:
        """By name, in the order of their declaration."""
        return self._flows

    def provide(self, value: Any, *, name: str | None = None) -> None:
        """Something that handlers use: a pool, a client. They get it by `ctx.resource(Type)` or `ctx.resource("name")`."""
        self._provided.add(value, name)

    def lifespan(self, opens: Lifespan) -> Lifespan:
        """Decorates an async generator that yields once: before, it opens what handlers need; after, it closes it.

        Entered in the worker's event loop before the first run is claimed, left after the last one has ended.
        """
        if not inspect.isasyncgenfunction(opens):
            raise InvalidArgument(f"@app.lifespan expects an async function with one yield, not {opens!r}")
        self._lifespans.append(opens)
        return opens

    @overload
    def middleware(self, around: M, /) -> M: ...
    @overload
    def middleware(self, around: AM, /) -> AM: ...

    def middleware(self, around: Any, /) -> Any:
        """Decorates a generator function that yields once: the handler is called at the `yield`.

        Its result is sent there, and what it raises is raised there; a middleware that does not raise it again has
        dealt with it. The first that is declared is the outermost. A plain function goes around every handler, an async
        one around async handlers.
        """
        self.middlewares.append(checked(around))
        return around

    # Publishing

    async def publish_many(
        self, requests: Iterable[PublishRequest[Any]], *, transaction: Any = None
    ) -> list[Published[Any]]:
        """Up to 10,000 runs in one transaction, all of them or none; answers in the order of the requests.

        A run that a task at its limit does not take has the outcome `refused`.
        """
        return await self.connection.publish_many(requests, transaction)

    def publish_many_sync(
        self, requests: Iterable[PublishRequest[Any]], *, transaction: Any = None
    ) -> list[Published[Any]]:
        return self.connection.publish_many_sync(requests, transaction)

    # Listening

    def events(
        self,
        types: str | Sequence[str] = (),
        *,
        job: Job[..., Any] | str | None = None,
        run_id: int | None = None,
        queue: str | None = None,
        after: str | None = None,
    ) -> EventStream:
        """What happens on the store, for `async for`: from now on, or after the event whose id is given.

        `types` are such as `run.failed`, or `run` for all of them. Entered with `async with` first, it begins there. One of
        type `reset` says that the stream does not reach back so far.
        """
        position = None if after is None else Position.read(after, "after")
        return EventStream(self.connection, listening.wanted(types, job, run_id, queue), position)

    async def wait_for(self, run_id: int, timeout: float | None = None) -> Run:  # noqa: ASYNC109 - its meaning, not a guard
        """The run, as soon as it is final, however it ended. TimeoutError after `timeout` seconds; NotFound without one."""
        return await self.connection.on_its_loop(self.connection.wait(RunId(run_id), timeout, must_exist=True))

    @property
    def connection(self) -> AppConnection:
        """InvalidState outside of `connected` and `running`."""
        if self._open_again is not None:
            with self._opening_again:
                if self._open_again is not None:
                    self._open_again()
                    self._open_again = None
        if self._connection is None:
            if self._is_forked:
                raise InvalidState(FORKED)
            raise InvalidState(
                f"{self.name} is not connected: publish after `await app.connect(URL)` (`app.connect_sync(URL)` without an event"
                " loop), or inside `app.connected(URL)` or `app.running(URL)`"
            )
        return self._connection

    # Running

    async def connect(self, url: str | None = None, **options: Unpack[ConnectOptions]) -> None:
        """`connected`, entered until `close`: for the start of an application that has no `async with` around its life."""
        await self.connected(url, **options).__aenter__()

    def connect_sync(self, url: str | None = None, **options: Unpack[ConnectOptions]) -> None:
        """The same where there is no event loop: one runs in a thread of its own until `close_sync`, or the interpreter's exit.

        After `fork()`, a child connects again by itself when it first publishes (`connected` says what of that SQLite allows).
        """
        self.connected(url, **options).__enter__()

    async def close(self) -> None:
        """Leave what `connect` or `connect_sync` entered. Without effect on an App that is not connected."""
        opening = self._opening_to_close()
        if opening is not None and opening.is_in_thread:
            await asyncio.to_thread(opening.__exit__, None, None, None)
        elif opening is not None:
            await opening.__aexit__(None, None, None)

    def close_sync(self) -> None:
        """The same where there is no event loop, of what `connect_sync` entered."""
        opening = self._opening_to_close()
        if opening is None:
            return
        if not opening.is_in_thread:
            raise InvalidState(f"{self.name} was connected in an event loop: `await app.close()` there")
        opening.__exit__(None, None, None)

    def _opening_to_close(self) -> Opening | None:
        """None in a child process that has not connected again: what its parent has open is not its to close."""
        with self._opening_again:
            self._open_again = None
        if self.opening is None and self._connection is not None:
            raise InvalidState(
                f"{self.name} was connected by what runs it, such as `noonbell serve`, which also closes it"
            )
        return None if self._connection is None else self.opening

    def connected(
        self,
        url: str | None = None,
        *,
        declare: bool = True,
        prune: bool = False,
        schema: str | None = None,
        table_prefix: str | None = None,
    ) -> Opening:
        """To publish only. `url` is the store's; by default the one of NOONBELL_STORE__URL, then sqlite:///noonbell.db.

        `schema` and `table_prefix` are the settings `store.schema` and `store.table_prefix`; by default those of the environment.
        `declare` makes the tasks of the jobs, or brings them to what the code says now; `prune` deletes those of this App
        that the code no longer has.
        """

        @contextlib.asynccontextmanager
        async def enter(first: bool) -> AsyncIterator[None]:
            settings = settings_for(url, schema=schema, table_prefix=table_prefix)
            if not first and sqlite_file(settings.store.url) is not None:
                raise InvalidState(FORKED_SQLITE)
            async with (
                opened(settings) as services,
                # The parent has declared its jobs: not once more in each of its children.
                self.attached(services, declare=declare and first, prune=prune and first, works=False),
            ):
                yield

        return Opening(self, enter, publishes_only=True)

    def running(
        self,
        url: str | None = None,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        worker_id: str | None = None,
        worker_version: int = 0,
        worker_labels: Mapping[str, str] | None = None,
        scheduler: bool = True,
        graceful_timeout: float = 10.0,
        declare: bool = True,
        prune: bool = False,
        schema: str | None = None,
        table_prefix: str | None = None,
    ) -> Opening:
        """Planner, sweeper and worker in this process, until it is left: then running work may take `graceful_timeout`.

        `queues` are by default those of the jobs, `concurrency` is `jobs.worker_concurrency` of the settings. Without
        `scheduler`, some other node plans. `schema` and `table_prefix` as for `connected`.
        """

        @contextlib.asynccontextmanager
        async def enter(_first: bool) -> AsyncIterator[None]:
            from noonbell.app import embedded

            settings = settings_for(url, schema=schema, table_prefix=table_prefix)
            async with opened(settings) as services, self.attached(services, declare=declare, prune=prune):
                options = embedded.WorkerOptions(
                    worker_id=worker_id,
                    version=worker_version,
                    labels=worker_labels,
                    queues=(self.handlers.queues() if queues is None else queues) or (embedded.DEFAULT_QUEUE,),
                    concurrency=concurrency,
                    poll=settings.scheduler.poll_interval,
                )
                async with embedded.working(
                    settings, services, self.handlers, options, scheduler=scheduler, graceful_timeout=graceful_timeout
                ):
                    yield

        return Opening(self, enter)

    @contextlib.asynccontextmanager
    async def attached(
        self, services: Services, *, declare: bool = True, prune: bool = False, works: bool = True
    ) -> AsyncIterator[None]:
        """The App over services that are open already, as those of `noonbell serve --app`; it closes nothing of theirs.

        `works`: what handlers need is opened as well.
        """
        if self._connection is not None:
            raise InvalidState(f"{self.name} is already connected; close that first")
        if prune and self.name == ANY_NAME:
            raise InvalidArgument.field(
                "prune", 'needs an App with a name, such as App("shop"): others on this store may have none either'
            )
        if declare:
            await declare_jobs(services, self.owner, [*self._jobs.values(), *self._flows.values()], prune=prune)
        self._connection = connection = AppConnection(services)
        self._is_forked = False
        _connected.add(self)
        try:
            async with self.alive() if works else contextlib.nullcontext():
                yield
        finally:
            self._connection = None
            _connected.discard(self)
            await connection.close()

    @contextlib.asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """What handlers need, open: its lifespans, entered in their order. A sandbox does this in its own process."""
        async with contextlib.AsyncExitStack() as opened:
            for lifespan in self._lifespans:
                await opened.enter_async_context(contextlib.asynccontextmanager(lifespan)())
            yield

    def _forked(self) -> None:
        """In a child process: the parent's connection is given up here, and nothing of it is closed."""
        if self._connection is not None:
            self._connection.is_open = False
            self._left_behind.append(self._connection)
        self._connection, self._is_forked, self._opening_again = None, True, threading.Lock()
        self._open_again = None if self.opening is None else self.opening.forked()


_connected: set[App] = set()


def _after_fork() -> None:
    for app in list(_connected):
        _connected.discard(app)
        app._forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
