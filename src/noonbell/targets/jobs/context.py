"""What a handler knows of its run, and how it speaks while it runs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, overload

from noonbell.clock import to_datetime
from noonbell.errors import InvalidArgument, NotFound
from noonbell.model.attempt import Assignment
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.run import execution_id_of, trace_id_of

T = TypeVar("T")

LEVELS = ("debug", "info", "warning", "error")

Resources = Callable[[Any], Any]
"""From a type or a name to what was provided under it. Raises NotFound."""


class Answer(Generic[T]):
    """An answer that is there already: to be awaited, as in async handlers, or taken as it is."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield

    def __bool__(self) -> bool:
        return bool(self.value)


class Line(Protocol):
    """Where the words of a handler go: to the worker that holds its run."""

    @property
    def cancelled(self) -> bool: ...

    def log(self, level: str, message: str) -> None: ...

    def progress(self, progress: dict[str, Any]) -> Awaitable[None]: ...

    def extend(self, seconds: float) -> Awaitable[bool]: ...


class Context:
    """One attempt of a run, as its handler sees it."""

    __slots__ = ("_assignment", "_line", "_resources")

    def __init__(self, assignment: Assignment, line: Line, resources: Resources | None = None) -> None:
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
        """Whether nobody waits for this attempt any more: canceled, timed out, lost, or the worker stops.

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
        """The attempt has `seconds` from now, whatever its timeout was. False: the run is not this worker's any more.

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
