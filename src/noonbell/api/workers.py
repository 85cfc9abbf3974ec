"""Endpoints of workers, for operators."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import worker_papers as papers
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.model.worker import WorkerState
from noonbell.service import Services


class WorkerCalls:
    def __init__(self, services: Services) -> None:
        self._workers = services.workers

    async def all(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._workers.all()})

    async def get(self, request: Request) -> Response:
        return json_answer(await self._workers.get(params.piece(request, "worker_id")))

    async def change(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        return json_answer(await self._workers.change(params.piece(request, "worker_id"), given))

    async def drain(self, request: Request) -> Response:
        return await self._set(request, WorkerState.DRAINING)

    async def stop(self, request: Request) -> Response:
        return await self._set(request, WorkerState.STOPPING)

    async def resume(self, request: Request) -> Response:
        return await self._set(request, WorkerState.RUNNING)

    async def _set(self, request: Request, state: WorkerState) -> Response:
        await read_object(request)
        return json_answer(await self._workers.set_state(params.piece(request, "worker_id"), state))


def endpoints(services: Services) -> list[Endpoint]:
    calls = WorkerCalls(services)
    return [
        Endpoint(("GET",), "/workers", calls.all, **papers.LIST),
        Endpoint(("GET",), "/workers/{worker_id}", calls.get, **papers.GET),
        Endpoint(("PATCH",), "/workers/{worker_id}", calls.change, **papers.CHANGE),
        Endpoint(("POST",), "/workers/{worker_id}/drain", calls.drain, **papers.DRAIN),
        Endpoint(("POST",), "/workers/{worker_id}/stop", calls.stop, **papers.STOP),
        Endpoint(("POST",), "/workers/{worker_id}/resume", calls.resume, **papers.RESUME),
    ]
