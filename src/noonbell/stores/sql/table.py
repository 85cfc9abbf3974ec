"""The table of a store's methods: `read(f)` and `write(f)` make one of a transition, in one transaction.

A transition that begins with a dialect, or with a dialect and a view of the task cache, gets those of the store; its other
parameters are the method's. `observed` does the rest for a method that is written out. Each call is shown to the store's
`observer`; after a transition that wrote events, `on_events` is called, in the store's event loop.

Died between the commit and `on_events`: the events are in the store, and a reader's poll finds them.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine
from time import perf_counter
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from noonbell.ports import StoreObserver
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work


class TransitionRunner(ABC):
    """Runs transitions against a database."""

    dialect: Dialect
    on_events: Callable[[], None] | None = None
    on_fed: Callable[[Collection[str]], None] | None = None
    observer: StoreObserver | None = None

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T:
        """Run a transition in a transaction of its own, again if the database breaks a deadlock. Raises Conflict.

        Each time with a view of the cache of its own, which is kept after the commit.
        """

    @abstractmethod
    async def _write_past_conflicts(self, work: Callable[[TaskView], Work[T]]) -> T:
        """As `_write`, again after a Conflict: the transition then finds the key that another one has inserted."""

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T:
        """Run a transition that only reads."""


S = TypeVar("S", bound=TransitionRunner)
C = TypeVar("C", bound=type[TransitionRunner])
P = ParamSpec("P")
T = TypeVar("T")
_Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
_Entry = Callable[Concatenate[TransitionRunner, P], Coroutine[Any, Any, T]]


def always(_: object) -> bool:
    return True


def observed(events: Callable[[Any], object] | None = None) -> Callable[[_Method[S, P, T]], _Method[S, P, T]]:
    """For a method of the port. `events`: from its answer to whether it has written some; None: it never does."""

    def decorate(method: _Method[S, P, T]) -> _Method[S, P, T]:
        @functools.wraps(method)
        async def call(store: S, /, *given: P.args, **named: P.kwargs) -> T:
            observer = store.observer
            if observer is None:
                answer = await method(store, *given, **named)
            else:
                name, began = call.__name__, perf_counter()
                observer.called(name)
                try:
                    answer = await method(store, *given, **named)
                except BaseException as error:
                    observer.failed(name, perf_counter() - began, error)
                    raise
                observer.answered(name, perf_counter() - began, answer, given)
            if events is not None and store.on_events is not None and events(answer):
                store.on_events()
            return answer

        return call

    return decorate


@overload
def read(transition: Callable[Concatenate[Dialect, P], Work[T]]) -> _Entry[P, T]: ...
@overload
def read(transition: Callable[P, Work[T]]) -> _Entry[P, T]: ...
def read(transition: Callable[..., Work[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """A method that runs a transition which only reads."""
    takes_dialect = bool(_given_by_the_store(transition))

    @observed()
    @functools.wraps(transition)
    async def call(store: TransitionRunner, /, *given: Any, **named: Any) -> T:
        own = (store.dialect,) if takes_dialect else ()
        return await store._read(lambda: transition(*own, *given, **named))

    return call


_Events = Callable[[T], object] | None


@overload
def write(
    transition: Callable[Concatenate[Dialect, TaskView, P], Work[T]], *, events: _Events[T] = ..., retry: bool = ...
) -> _Entry[P, T]: ...
@overload
def write(
    transition: Callable[Concatenate[Dialect, P], Work[T]], *, events: _Events[T] = ..., retry: bool = ...
) -> _Entry[P, T]: ...
@overload
def write(transition: Callable[P, Work[T]], *, events: _Events[T] = ..., retry: bool = ...) -> _Entry[P, T]: ...
def write(
    transition: Callable[..., Work[T]], *, events: _Events[T] = None, retry: bool = False
) -> Callable[..., Coroutine[Any, Any, T]]:
    """A method that runs a transition in a transaction of its own. `retry`: again where it meets a key just inserted."""
    own = _given_by_the_store(transition)

    @observed(events)
    @functools.wraps(transition)
    async def call(store: TransitionRunner, /, *given: Any, **named: Any) -> T:
        def work(cache: TaskView) -> Work[T]:
            return transition(*(store.dialect, cache)[:own], *given, **named)

        return await (store._write_past_conflicts(work) if retry else store._write(work))

    return call


def _given_by_the_store(transition: Callable[..., object]) -> int:
    """How many of (dialect, view of the cache) the transition begins with."""
    leading = list(transition.__annotations__.values())[:2]
    if leading == ["Dialect", "TaskView"]:
        return 2
    return int(leading[:1] == ["Dialect"])


def name_entries(store: C) -> C:
    """Each entry of the table is known by its name in the class."""
    for name, entry in vars(store).items():
        if isinstance(entry, FunctionType) and not name.startswith("_"):
            entry.__name__, entry.__qualname__ = name, f"{store.__qualname__}.{name}"
    return store
