"""The API over real HTTP, inside the test's own process: a free port of loopback, any store, no node unless asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvicorn

from noonbell.model.request import ClaimRequest
from noonbell.model.run import Lease, RunStatus, Settlement, Transition
from noonbell.ports import Store
from noonbell.service import Services
from noonbell.settings import Settings, StoreSettings
from noonbell.wiring import NodeParts, assembled
from noonbell.wiring.application import application

HTTP = {"name": "a", "target_url": "http://127.0.0.1:9/x"}
JOB = {"name": "a", "job_type": "resize"}


@dataclass
class Told:
    """An answer."""

    status: int
    body: Any
    headers: dict[str, str]
    text: str

    @property
    def code(self) -> str:
        return str(self.body["code"])


class Api:
    """A client that says what it expects, so that a test reads as a list of calls and answers."""

    def __init__(self, session: aiohttp.ClientSession, parts: NodeParts, port: int) -> None:
        self.session, self.parts, self.port = session, parts, port
        self.root = f"http://127.0.0.1:{port}"
        self.health: dict[str, Any] = {"ok": True, "workers": []}
        """What the node says of itself; there is none, so tests may say it."""

    @property
    def services(self) -> Services:
        return self.parts.services

    @property
    def store(self) -> Store:
        return self.parts.services.store

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Told:
        """`path` is under the base, unless it begins with two slashes."""
        url = self.root + (path[1:] if path.startswith("//") else f"/api/v1{path}")
        if body is not None:
            more["json"] = body
        async with self.session.request(method, url, **more) as response:
            text = await response.text()
            parsed = json.loads(text) if response.content_type == "application/json" else text
            return Told(response.status, parsed, {k.lower(): v for k, v in response.headers.items()}, text)

    async def good(self, method: str, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        told = await self.call(method, path, body, **more)
        assert told.status == status, told.text
        return told.body

    async def bad(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """Status and code; the body has the shape of every error."""
        told = await self.call(method, path, body, **more)
        assert set(told.body) == {"code", "message", "request_id", "details", "error"}, told.text
        assert told.body["error"] == told.body["code"]
        assert told.body["request_id"] == told.headers["x-request-id"]
        assert "Traceback" not in told.text
        return told.status, told.code

    async def create(self, **fields: Any) -> int:
        return int((await self.good("POST", "/tasks", {**HTTP, **fields}, 201))["id"])

    async def trigger(self, task: Any, **fields: Any) -> int:
        return int((await self.good("POST", f"/tasks/{task}/trigger", fields or None))["run_id"])

    async def claim(self, queue: str = "http") -> Lease:
        """Be the worker that takes the next run."""
        claimed = await self.store.claim(ClaimRequest(worker_id="w1", queues=(queue,), max=1))
        (lease,) = claimed.leases
        return lease

    async def park(self, lease: Lease, seconds: float = 300) -> None:
        """The target has accepted it; the callback is to follow."""
        await self._settle(lease, Transition.PARK, seconds)

    async def retry(self, lease: Lease, seconds: float = 60, **more: Any) -> None:
        """The attempt failed, and there will be another."""
        await self._settle(lease, Transition.RETRY, seconds, status=RunStatus.FAILED, **more)

    async def finish(self, lease: Lease, status: Any, **more: Any) -> None:
        await self._settle(lease, Transition.FINISH, 0, status=status, **more)

    async def _settle(self, lease: Lease, transition: Transition, seconds: float, **more: Any) -> None:
        await self.store.settle(
            [
                Settlement(
                    run_id=lease.run_id,
                    token=lease.token,
                    worker_id=lease.worker_id,
                    transition=transition,
                    delay_seconds=seconds,
                    **more,
                )
            ]
        )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self):
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it, without its pauses of a tenth of a second, which hundreds of tests would wait for."""
        for listener in (*self.servers, *(sockets or [])):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn signals neither
                    await asyncio.sleep(0.001)
        for task in self.server_state.tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def serving(url: str, **sections: Any) -> AsyncIterator[Api]:
    settings = Settings(store=StoreSettings(url=url), **sections)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    async with contextlib.AsyncExitStack() as going:
        going.callback(listener.close)
        parts = await going.enter_async_context(assembled(settings, port))
        session = await going.enter_async_context(aiohttp.ClientSession())
        api = Api(session, parts, port)
        app = await going.enter_async_context(application(parts, settings, lambda: api.health))
        await going.enter_async_context(running(app, listener))
        going.push_async_callback(parts.hub.close)
        yield api


@contextlib.asynccontextmanager
async def running(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await server.ready.wait()
    try:
        yield
    finally:
        server.leaving.set()
        await task
