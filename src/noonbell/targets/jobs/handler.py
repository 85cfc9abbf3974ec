"""A handler: the function that carries out the runs of a job type, the context that it sees, and the table of a
worker's handlers.

`find_app` imports an App by "module:attribute", "module", "path/to/file.py" or "path/to/file.py:attribute".
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import importlib
import importlib.util
import inspect
import queue
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar, overload

from noonbell.clock import to_datetime
from noonbell.errors import AlreadyExists, Fail, InvalidArgument, InvalidState, NotFound, Parked, RunFailed
from noonbell.model.run import (
    FINAL,
    SUCCEEDED,
    Assignment,
    ChildRequest,
    ChildState,
    execution_id_of,
    idempotency_key_of,
    trace_id_of,
)
from noonbell.model.task import Delivery

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

LEVELS = ("debug", "info", "warning", "error")

Resources = Callable[[Any], Any]
"""From a type or a name to what was provided under it. Raises NotFound."""


class ReadyResult(Generic[T]):
    """An answer that is there already: to be awaited, as in async handlers, or taken as it is."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield

    def __bool__(self) -> bool:
        return bool(self.value)


class ReportChannel(Protocol):
    """Where the words of a handler go: to the worker that holds its run."""

    @property
    def cancelled(self) -> bool: ...

    def log(self, level: str, message: str) -> None: ...

    def progress(self, progress: dict[str, Any]) -> Awaitable[None]: ...

    def extend(self, seconds: float) -> Awaitable[bool]: ...

    def spawn(self, requests: Sequence[ChildRequest]) -> Awaitable[list[int]]:
        """The runs of these children."""

    def children(self, positions: Sequence[int]) -> Awaitable[list[ChildState]]: ...

    def park(self) -> None:
        """However the attempt ends, the run waits for its children."""


class SpawnRequest(Protocol[R_co]):
    """What `job.request(…)` gives: one run of a job."""

    def as_child(self, position: int) -> ChildRequest:
        """InvalidArgument for an option that a child cannot have."""

    def read_result(self, value: Any) -> R_co:
        """What was stored as its result, in the type that the job returns."""


class Child(Generic[R]):
    """A run that a job has spawned. `ctx.gather` waits for its result."""

    __slots__ = ("position", "request", "run_id")

    def __init__(self, position: int, run_id: int, request: SpawnRequest[R]) -> None:
        self.position, self.run_id, self.request = position, run_id, request

    def __repr__(self) -> str:
        return f"<Child {self.position}, run {self.run_id}>"


class Context:
    """One attempt of a run, as its handler sees it."""

    __slots__ = ("_assignment", "_line", "_resources", "_spawned")

    def __init__(self, assignment: Assignment, line: ReportChannel, resources: Resources | None = None) -> None:
        self._assignment, self._line, self._resources = assignment, line, resources
        self._spawned = 0

    def __repr__(self) -> str:
        return f"<Context of run {self.run_id}, {self.job_type}, attempt {self.attempt}>"

    # The run

    @property
    def run_id(self) -> int:
        return self._assignment.lease.run_id

    @property
    def execution_id(self) -> uuid.UUID:
        """The run's id as a UUID; the same for every attempt."""
        return execution_id_of(self._assignment.lease.run_id)

    @property
    def task_id(self) -> int:
        return self._assignment.task.id

    @property
    def task_name(self) -> str:
        return self._assignment.task.spec.name

    @property
    def task_version(self) -> int:
        return self._assignment.task.version

    @property
    def job_type(self) -> str:
        return self._assignment.task.spec.job_type or ""

    @property
    def payload(self) -> Any:
        """As it was published, before the handler's signature made arguments of it."""
        return self._assignment.lease.payload

    @property
    def key(self) -> str | None:
        return self._assignment.lease.key

    @property
    def queue(self) -> str:
        return self._assignment.lease.queue

    @property
    def priority(self) -> int:
        return self._assignment.lease.priority

    @property
    def attempt(self) -> int:
        """From 1; every claim counts one."""
        return self._assignment.lease.attempt

    @property
    def retry_count(self) -> int:
        return self._assignment.lease.retry_count

    @property
    def scheduled_time(self) -> datetime:
        """The slot that the run was born from, or when it was asked for."""
        return to_datetime(self._assignment.lease.scheduled_time)

    @property
    def previous_scheduled_time(self) -> datetime | None:
        """The slot before: from there to `scheduled_time` is the data interval. None for the first, and without one."""
        previous = self._assignment.previous_scheduled_time
        return None if previous is None else to_datetime(previous)

    @property
    def worker_id(self) -> str:
        return self._assignment.lease.worker_id

    @property
    def shard_index(self) -> int | None:
        """Which part of a fan-out this is, from 0. None: the run is not a part."""
        return self._assignment.lease.shard_index

    @property
    def shard_total(self) -> int | None:
        return self._assignment.lease.shard_total

    @property
    def trace_id(self) -> str:
        lease = self._assignment.lease
        return trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id)

    @property
    def idempotency_key(self) -> str:
        """To hand on to a service that is to do this piece of work once: the same for every attempt of the run."""
        lease = self._assignment.lease
        return idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key)

    # Speaking

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is no longer wanted: canceled, timed out, lost, or the worker stops.

        For loops of sync handlers: what they return after that is refused.
        """
        return self._line.cancelled

    def log(self, message: object, level: str = "info") -> None:
        """A line in the run's log. Written together with others, a moment later; at the latest before the run ends."""
        if level not in LEVELS:
            raise InvalidArgument.field("level", f"is {level!r}; expected one of {', '.join(LEVELS)}")
        self._line.log(level, str(message))

    def progress(self, current: float, total: float | None = None, message: str = "") -> Awaitable[None]:
        """How far it is. The newest counts; a handler may call this as often as it likes, with or without `await`."""
        return self._line.progress({"current": current, "total": total, "message": message})

    def extend(self, seconds: float) -> Awaitable[bool]:
        """The attempt has `seconds` from now, in place of its timeout. False: the run is not this worker's any more.

        In async handlers it is awaited; elsewhere it returns when it is done, and the answer is true or false as it is.
        """
        if not seconds > 0:
            raise InvalidArgument.field("seconds", f"is {seconds!r}; expected more than 0")
        return self._line.extend(seconds)

    # Children

    async def spawn(self, request: SpawnRequest[R]) -> Child[R]:
        """A run of another job, `job.request(…)`, as a child of this one.

        An attempt that follows one which was parked or lost gets the child that is there: the n-th call is always the n-th
        child. So a handler must spawn the same in the same order each time; otherwise its run fails.
        """
        (child,) = await self.spawn_many([request])
        return child

    async def spawn_many(self, requests: Iterable[SpawnRequest[R]]) -> list[Child[R]]:
        """The same for many, in one transaction."""
        listed = list(requests)
        return self._children(listed, await self._line.spawn(self._asked(listed))) if listed else []

    def spawn_sync(self, request: SpawnRequest[R]) -> Child[R]:
        """As `spawn`, for sync handlers."""
        (child,) = self.spawn_many_sync([request])
        return child

    def spawn_many_sync(self, requests: Iterable[SpawnRequest[R]]) -> list[Child[R]]:
        listed = list(requests)
        return self._children(listed, _ready(self._line.spawn(self._asked(listed)))) if listed else []

    @overload
    async def gather(self, a: Child[A], /) -> tuple[A]: ...
    @overload
    async def gather(self, a: Child[A], b: Child[B], /) -> tuple[A, B]: ...
    @overload
    async def gather(self, a: Child[A], b: Child[B], c: Child[C], /) -> tuple[A, B, C]: ...
    @overload
    async def gather(self, a: Child[A], b: Child[B], c: Child[C], d: Child[D], /) -> tuple[A, B, C, D]: ...
    @overload
    async def gather(self, *children: Child[R]) -> tuple[R, ...]: ...

    async def gather(self, *children: Child[Any]) -> Any:
        """What the children return, in the order of the arguments. RunFailed for the first of them that ended in another way.

        Where one of them is not final, the attempt ends here: the run is parked, without a worker's place, until all its
        children have ended. Then the handler is called again from its beginning, and comes to this line with the results there.
        """
        return self._gathered(children, await self._line.children([child.position for child in children]))

    @overload
    def gather_sync(self, a: Child[A], /) -> tuple[A]: ...
    @overload
    def gather_sync(self, a: Child[A], b: Child[B], /) -> tuple[A, B]: ...
    @overload
    def gather_sync(self, a: Child[A], b: Child[B], c: Child[C], /) -> tuple[A, B, C]: ...
    @overload
    def gather_sync(self, a: Child[A], b: Child[B], c: Child[C], d: Child[D], /) -> tuple[A, B, C, D]: ...
    @overload
    def gather_sync(self, *children: Child[R]) -> tuple[R, ...]: ...

    def gather_sync(self, *children: Child[Any]) -> Any:
        """As `gather`, for sync handlers."""
        return self._gathered(children, _ready(self._line.children([child.position for child in children])))

    def _asked(self, requests: Sequence[SpawnRequest[Any]]) -> list[ChildRequest]:
        if self._assignment.task.spec.delivery is Delivery.AT_MOST_ONCE:
            raise Fail(
                "a job with delivery at_most_once cannot spawn: it would have to be attempted again to get the results"
            )
        return [request.as_child(position) for position, request in enumerate(requests, self._spawned)]

    def _children(self, requests: Sequence[SpawnRequest[R]], run_ids: Sequence[int]) -> list[Child[R]]:
        first, self._spawned = self._spawned, self._spawned + len(requests)
        made = zip(run_ids, requests, strict=True)
        return [Child(position, run_id, request) for position, (run_id, request) in enumerate(made, first)]

    def _gathered(self, children: Sequence[Child[Any]], states: Sequence[ChildState]) -> tuple[Any, ...]:
        known = {state.position: state for state in states}
        missing = [child.run_id for child in children if child.position not in known]
        if missing:
            raise Fail(f"run {missing[0]}, a child of this one, is no longer kept")
        if any(state.status not in FINAL for state in states):
            self._line.park()
            raise Parked
        for child in children:
            state = known[child.position]
            if state.status not in SUCCEEDED:
                raise RunFailed(state.run_id, state.status, state.error_message or "", state.error_details)
        return tuple(child.request.read_result(known[child.position].result) for child in children)

    @overload
    def resource(self, wanted: type[T]) -> T: ...
    @overload
    def resource(self, wanted: str) -> Any: ...

    def resource(self, wanted: Any) -> Any:
        """What `app.provide` gave under this type or name."""
        if self._resources is None:
            raise NotFound(f"nothing was provided as {wanted!r}; app.provide does that")
        return self._resources(wanted)


def _ready(answer: Awaitable[T]) -> T:
    """Of a channel that has done it when it returns: in threads and processes of their own."""
    if not isinstance(answer, ReadyResult):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidState("the sync form would block the event loop here; await the async form instead")
    value: T = answer.value
    return value


class HandlerKind(enum.StrEnum):
    """Where a handler runs, and so what can end it early."""

    ASYNC = "async"
    """In the event loop; canceled as any coroutine is."""
    THREAD = "thread"
    """In a thread of the worker. Nothing can end it but itself: it sees `ctx.cancelled`."""
    SANDBOX = "sandbox"
    """In a process of its own, which can be killed."""


@dataclass(frozen=True, slots=True)
class Handler:
    job_type: str
    kind: HandlerKind
    read: Callable[[Any], Any]
    """From a payload to what `call` takes. Raises InvalidArgument; its `details` name each field that does not fit."""
    call: Callable[[Context, Any], Any]
    """Carries the run out, with what `read` gave. Returns the result; ASYNC: an awaitable of it. SANDBOX: either."""
    memory_mb: int | None = None
    """SANDBOX: how much its process may take on top of what it has when it is ready. None: no limit."""
    location: str | None = None
    """SANDBOX: "module:attribute" or "path.py:attribute" of the App, for the process of its own to import."""
    queue: str = "default"
    """Where the runs of its task go unless they say otherwise: what a built-in worker listens to."""
    resources: Resources | None = None
    """What `ctx.resource` asks. None: nothing was provided."""


class Handlers:
    """The handlers of a worker, by job type."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        self._by_type: dict[str, Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        """A second handler for a job type raises AlreadyExists."""
        if handler.job_type in self._by_type:
            raise AlreadyExists(f"there are two handlers for job type {handler.job_type!r}; rename one of them")
        self._by_type[handler.job_type] = handler

    def get(self, job_type: str | None) -> Handler | None:
        return self._by_type.get(job_type or "")

    def names(self) -> tuple[str, ...]:
        """The job types, sorted."""
        return tuple(sorted(self._by_type))

    def queues(self) -> tuple[str, ...]:
        """The queues of all of them, sorted."""
        return tuple(sorted({handler.queue for handler in self._by_type.values()}))

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_type.values())

    def __len__(self) -> int:
        return len(self._by_type)


Work = Callable[[], None]

_IDLE = 60.0
"""Seconds that a thread waits for more before it ends."""


class Threads:
    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        """Threads that wait, less the work that is on its way to them."""
        self._count = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What the function returns or raises, from a thread that has the caller's context.

        A future that is canceled meanwhile stays so; the function goes on.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                value, error = context.run(function, *arguments), None
            except BaseException as caught:  # a thread has no caller to raise it to
                value, error = None, caught
            try:
                loop.call_soon_threadsafe(answer, future, value, error)
            except RuntimeError:
                return  # the loop has closed: no caller waits

        self.put(work)
        return future

    def close(self) -> None:
        """Threads that wait end; those that work end when they have done so."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)

    def put(self, work: Work) -> None:
        with self._lock:
            is_served = self._free > 0
            if is_served:
                self._free -= 1
            else:
                self._count += 1
        self._work.put(work)
        if not is_served:
            threading.Thread(target=self._go, name="noonbell handler", daemon=True).start()

    def _go(self) -> None:
        while (work := self._next()) is not None:
            work()
            del work  # what it holds must not live as long as the thread waits
            with self._lock:
                self._free += 1
        with self._lock:
            self._count -= 1

    def _next(self) -> Work | None:
        try:
            return self._work.get(timeout=_IDLE)
        except queue.Empty:
            with self._lock:
                if self._free > 0:
                    self._free -= 1
                    return None
            return self._work.get()  # a caller counted on this thread at this very moment


def answer(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future cannot carry one
        error = RuntimeError(f"StopIteration: {error}")
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def find_app(location: str, field: str = "--app") -> Any:
    """What has `handlers`: an App. Without an attribute: `app`, or the only one that the module has.

    Raises InvalidArgument for `field` where there is none. What the module itself raises goes through.
    """
    place, attribute = split(location)
    module = _from_file(Path(place), field) if place.endswith(".py") else _from_name(place, field)
    if attribute:
        found: Any = module
        for name in attribute.split("."):
            found = getattr(found, name, None)
        if not _is_app(found):
            names = ", ".join(_apps_of(module))
            there = f"those that it has: {names}" if names else "it has none"
            raise InvalidArgument.field(field, f"is {location!r}, but {place} has no App called {attribute!r}; {there}")
        return found
    if _is_app(getattr(module, "app", None)):
        return module.app
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) != 1:
        some = f"has several: {', '.join(apps)}" if apps else "has none"
        raise InvalidArgument.field(field, f"is {location!r}, and {place} {some}; name an App as {place}:NAME")
    return next(iter(apps.values()))


def split(location: str) -> tuple[str, str]:
    """The module or file, and the attribute or nothing."""
    place, _, attribute = location.rpartition(":")
    return (place, attribute) if place else (attribute, "")


def _apps_of(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if _is_app(value)}


def _is_app(value: object) -> bool:
    return not isinstance(value, type) and isinstance(getattr(value, "handlers", None), Handlers)


def _from_name(name: str, field: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidArgument.field(
                field, f"is {name!r}, and there is no such module in {here}; write MODULE:APP or a file's path"
            ) from None
        raise


def _from_file(path: Path, field: str) -> ModuleType:
    """As a module of its own name, with its folder to import from: as if Python had been started with it."""
    path = path.resolve()
    if not path.is_file():
        raise InvalidArgument.field(field, f"is {str(path)!r}, but there is no such file")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument.field(field, f"is {str(path)!r}, which Python cannot import")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
