"""Endpoints of the worker protocol: claim, heartbeat, settle, progress, log, extend."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import worker_papers as papers
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.model.run import RunId
from noonbell.service.protocol import Claim, WorkerProtocol
from noonbell.service.worker_bounds import WorkerBounds


class ProtocolCalls:
    def __init__(self, protocol: WorkerProtocol, bounds: WorkerBounds) -> None:
        self._protocol, self._bounds = protocol, bounds

    async def claim(self, request: Request) -> Response:
        """The worker may hang up while it waits: then nothing is claimed for it, or what was is handed back."""
        worker_id, given = params.piece(request, "worker_id"), await read_object(request)
        if (queues := params.queues(request)) is not None:
            given = await self._bounds.claim(queues, worker_id, given)
        claiming = asyncio.create_task(self._protocol.claim(worker_id, given))
        leaving = asyncio.create_task(_hung_up(request))
        try:
            await asyncio.wait((claiming, leaving), return_when=asyncio.FIRST_COMPLETED)
            if claiming.done() and not leaving.done():
                return json_answer(claiming.result().shown())
            return json_answer({"runs": []})  # nobody reads it
        finally:
            leaving.cancel()
            if leaving.done() or not claiming.done():
                await _let_go(claiming)

    async def heartbeat(self, request: Request) -> Response:
        worker_id, given = params.piece(request, "worker_id"), await read_object(request)
        if (queues := params.queues(request)) is not None:
            await self._bounds.worker(queues, worker_id)
        return json_answer(await self._protocol.heartbeat(worker_id, given))

    async def settle(self, request: Request) -> Response:
        return json_answer(await self._protocol.settle(*await self._told(request)))

    async def progress(self, request: Request) -> Response:
        return json_answer(await self._protocol.progress(*await self._told(request)))

    async def log(self, request: Request) -> Response:
        return json_answer(await self._protocol.log(*await self._told(request)))

    async def extend(self, request: Request) -> Response:
        return json_answer(await self._protocol.extend(*await self._told(request)))

    async def _told(self, request: Request) -> tuple[RunId, dict[str, Any]]:
        """The run, and what the worker says of it. A worker's token speaks of runs of its queues alone."""
        run_id, given = params.run_id(request), await read_object(request, required=True)
        if (queues := params.queues(request)) is not None:
            await self._bounds.run(queues, run_id, given.get("worker_id"))
        return run_id, given


async def _hung_up(request: Request) -> None:
    """Returns when the caller has gone. Its body has been read: nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _let_go(claiming: asyncio.Task[Claim]) -> None:
    claiming.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        (await claiming).hand_back()


def endpoints(protocol: WorkerProtocol, bounds: WorkerBounds) -> list[Endpoint]:
    calls = ProtocolCalls(protocol, bounds)
    return [
        Endpoint(("POST",), "/workers/{worker_id}/claim", calls.claim, **papers.CLAIM),
        Endpoint(("POST",), "/workers/{worker_id}/heartbeat", calls.heartbeat, **papers.HEARTBEAT),
        Endpoint(("POST",), "/runs/{run_id}/settle", calls.settle, **papers.SETTLE),
        Endpoint(("POST",), "/runs/{run_id}/progress", calls.progress, **papers.PROGRESS),
        Endpoint(("POST",), "/runs/{run_id}/log", calls.log, **papers.LOG),
        Endpoint(("POST",), "/runs/{run_id}/extend", calls.extend, **papers.EXTEND),
    ]
