"""From an address to the services that an App publishes by, opened in an event loop: the application's, or our own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from noonbell.engine.tell import Nudge, telling
from noonbell.errors import InvalidState
from noonbell.service import Rules, Services, build
from noonbell.settings import Settings, load
from noonbell.stores import store_of
from noonbell.stores.wakeups import wakeup_of
from noonbell.targets import template

if TYPE_CHECKING:
    from noonbell.app.app import App

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
        """`enter` is told whether it is for the first time, or again in a child process."""
        self._app, self._enter, self._publishes_only = app, enter, publishes_only
        self._inside: AbstractAsyncContextManager[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._left_behind: list[object] = []
        """In a child process, what is the parent's: never closed here, because the parent goes on with it."""

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
        nudge = Nudge(wakeup)
        parts.callback(nudge.close)
        yield build(telling(store, nudge), wakeup, Rules.of(settings, template.check), _no_callbacks)


async def _no_callbacks(*_given: Any) -> NoReturn:
    raise InvalidState("an application in library mode has no address for callbacks; `noonbell serve` has one")
