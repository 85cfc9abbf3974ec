"""A handler: the function that carries out the runs of a job type, the context that it sees, and the table of a worker's handlers.

`find_app` imports an App by "module:attribute", "module", "path/to/file.py" or "path/to/file.py:attribute".
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import importlib
import importlib.util
import queue
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar, overload

from noonbell.clock import to_datetime
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound
from noonbell.model.attempt import Assignment
from noonbell.model.run import execution_id_of, idempotency_key_of, trace_id_of

T = TypeVar("T")

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


class Context:
    """One attempt of a run, as its handler sees it."""

    __slots__ = ("_assignment", "_line", "_resources")

    def __init__(self, assignment: Assignment, line: ReportChannel, resources: Resources | None = None) -> None:
        self._assignment, self._line, self._resources = assignment, line, resources

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

    @overload
    def resource(self, wanted: type[T]) -> T: ...
    @overload
    def resource(self, wanted: str) -> Any: ...

    def resource(self, wanted: Any) -> Any:
        """What `app.provide` gave under this type or name."""
        if self._resources is None:
            raise NotFound(f"nothing was provided as {wanted!r}; app.provide does that")
        return self._resources(wanted)


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
            raise AlreadyExists(f"there are two handlers for job type {handler.job_type!r}; name one of them otherwise")
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
    def __init__(self, idle_seconds: float = _IDLE) -> None:
        self._idle_seconds = idle_seconds
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
                loop.call_soon_threadsafe(_answer, future, value, error)
            except RuntimeError:
                return  # the loop has closed: no caller waits

        self._put(work)
        return future

    def close(self) -> None:
        """Threads that wait end; those that work end when they have done so."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)

    def _put(self, work: Work) -> None:
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
            return self._work.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if self._free > 0:
                    self._free -= 1
                    return None
            return self._work.get()  # a caller counted on this thread at this very moment


def _answer(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
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
            raise InvalidArgument.field(field, f"is {location!r}, but {place} has no App called {attribute!r}")
        return found
    if _is_app(getattr(module, "app", None)):
        return module.app
    apps = {name: value for name, value in vars(module).items() if _is_app(value)}
    if len({id(app) for app in apps.values()}) != 1:
        some = f"has several: {', '.join(apps)}" if apps else "has none"
        raise InvalidArgument.field(field, f"is {location!r}, and {place} {some}; name an App as {place}:NAME")
    return next(iter(apps.values()))


def split(location: str) -> tuple[str, str]:
    """The module or file, and the attribute or nothing."""
    place, _, attribute = location.rpartition(":")
    return (place, attribute) if place else (attribute, "")


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
                field, f"is {name!r}, and there is no such module here; write MODULE:APP or a file's path"
            ) from None
        raise


def _from_file(path: Path, field: str) -> ModuleType:
    """As a module of its own name, with its folder to import from: as if Python had been started with it."""
    path = path.resolve()
    if not path.is_file():
        raise InvalidArgument.field(field, f"is {str(path)!r}, and there is no such file")
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
