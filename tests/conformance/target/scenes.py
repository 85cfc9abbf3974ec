"""For each kind of target: something real that it calls, which succeeds, fails, hangs or is not there.

A new kind needs a `Scene` and a line in `SCENES`; the suite beside this file then runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from integration.targets.sink import Asked, Line, http, listening
from noonbell.errors import Fail
from noonbell.model.task import HTTP, JOBS
from noonbell.ports import Store
from noonbell.settings import Settings
from noonbell.targets import OpenableTarget, TargetParts, make_target
from noonbell.targets.jobs.handler import Context, Handler, HandlerKind, Handlers
from services.ports import reserved_port


class Scene(Protocol):
    target: OpenableTarget
    """Open."""
    reached: asyncio.Event
    """Set when a call has arrived that hangs."""
    released: asyncio.Event
    """Set when a call that hung was let go of."""

    def task(self, way: str) -> dict[str, Any]:
        """The fields of a task whose call `succeeds`, `fails`, `hangs`, or which is `absent`: nothing answers it."""


class HttpScene:
    def __init__(self, target: OpenableTarget, absent: str) -> None:
        self.target, self.url, self._absent = target, "", absent
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    def task(self, way: str) -> dict[str, Any]:
        return {"target_url": self._absent if way == "absent" else f"{self.url}{way}"}

    async def answer(self, asked: Asked, line: Line) -> None:
        if asked.path == "/hangs":
            self.reached.set()
            await line.until_dropped()
            self.released.set()
            return
        await line.say(http(200 if asked.path == "/succeeds" else 500, b"ok"))


@contextlib.asynccontextmanager
async def http_scene(store: Store) -> AsyncIterator[Scene]:
    target = make_target(HTTP, TargetParts(Settings(), store))
    await target.open()
    with reserved_port() as port:
        scene = HttpScene(target, f"http://127.0.0.1:{port}/")
        async with listening(scene.answer) as sink:
            scene.url = sink.url("/")
            try:
                yield scene
            finally:
                await target.close()


class JobScene:
    def __init__(self, store: Store) -> None:
        handlers = Handlers(
            Handler(job_type=name, kind=HandlerKind.ASYNC, call=call, read=lambda payload: payload)
            for name, call in (("succeeds", self._succeed), ("fails", self._fail), ("hangs", self._hang))
        )
        self.target = make_target(JOBS, TargetParts(Settings(), store, handlers=handlers))
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    def task(self, way: str) -> dict[str, Any]:
        return {"job_type": way}

    async def _succeed(self, _context: Context, _payload: Any) -> str:
        return "ok"

    async def _fail(self, _context: Context, _payload: Any) -> None:
        raise Fail("it broke")

    async def _hang(self, _context: Context, _payload: Any) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.released.set()


@contextlib.asynccontextmanager
async def job_scene(store: Store) -> AsyncIterator[Scene]:
    scene = JobScene(store)
    await scene.target.open()
    try:
        yield scene
    finally:
        await scene.target.close()


SCENES: dict[str, Callable[[Store], AbstractAsyncContextManager[Scene]]] = {HTTP.name: http_scene, JOBS.name: job_scene}
