"""A handler: the function that carries out the runs of a job type; and the table of those that a worker has."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from noonbell.errors import AlreadyExists
from noonbell.targets.jobs.context import Context, Resources


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
