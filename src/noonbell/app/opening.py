"""From an address to the services that an App publishes by, opened in an event loop: the application's, or our own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from noonbell.engine.tell import Nudge, telling
from noonbell.errors import InvalidState
from noonbell.service import Rules, Services, build
from noonbell.settings import Settings, load
from noonbell.stores import open_store
from noonbell.stores.wakeups import make_wakeup
from noonbell.targets import template

if TYPE_CHECKING:
    from noonbell.app.app import App


class Opening:
    """Entered with `async with` in an application's own event loop, or with `with` where there is none.

    The latter runs an event loop in a thread of its own until it is left.
    """

    def __init__(self, app: App, enter: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._app, self._enter = app, enter
        self._inside: AbstractAsyncContextManager[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> App:
        self._inside = self._enter()
        await self._inside.__aenter__()
        return self._app

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            await inside.__aexit__(kind, error, trace)

    def __enter__(self) -> App:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="noonbell app", daemon=True)
        self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self.__aexit__(None, None, None), self._loop).result()
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def settings_for(url: str | None) -> Settings:
    """As a server in this environment would have them, on that store."""
    return load((), os.environ, {"store.url": url}).settings


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Services]:
    """The services over the store, open; closed again in the opposite order."""
    async with contextlib.AsyncExitStack() as parts:
        store = open_store(settings.store.url, connections=settings.store.pool_size)
        parts.push_async_callback(store.close)
        await store.open()
        wakeup = make_wakeup(settings.store.url, settings.wakeup.url)
        parts.push_async_callback(wakeup.close)
        await wakeup.open()
        nudge = Nudge(wakeup)
        parts.callback(nudge.close)
        yield build(telling(store, nudge), wakeup, Rules.of(settings, template.check), _no_callbacks)


async def _no_callbacks(*_given: Any) -> NoReturn:
    raise InvalidState("an application in library mode has no address for callbacks; `noonbell serve` has one")
