"""Endpoints of queues."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import queue_papers as papers
from noonbell.api.answers import json_answer, page_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.service import Services
from noonbell.service.filters import PAGING, RUN_FILTERS, read_run_query
from noonbell.service.reader import Problems, Reader
from noonbell.service.run_json import shown


class QueueCalls:
    def __init__(self, services: Services) -> None:
        self._services, self._queues = services, services.queues

    async def all(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._queues.all()})

    async def get(self, request: Request) -> Response:
        return json_answer(await self._queues.get(params.piece(request, "name")))

    async def limit(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        return json_answer(await self._queues.limit(params.piece(request, "name"), given, by=params.actor(request)))

    async def pause(self, request: Request) -> Response:
        await read_object(request)
        return json_answer(await self._queues.pause(params.piece(request, "name"), by=params.actor(request)))

    async def resume(self, request: Request) -> Response:
        await read_object(request)
        return json_answer(await self._queues.resume(params.piece(request, "name"), by=params.actor(request)))

    async def drain(self, request: Request) -> Response:
        await read_object(request)
        done = await self._queues.drain(params.piece(request, "name"), by=params.actor(request))
        return json_answer({"matched": done.matched, "canceled": done.changed, "more": done.more})

    async def clean(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        return json_answer(await self._queues.clean(params.piece(request, "name"), given))

    async def dead(self, request: Request) -> Response:
        reader = params.query(request)
        asked = await read_run_query(reader, self._services.store)
        reader.problems.finish()
        query = self._queues.dead(params.piece(request, "name"), asked)
        page = await self._services.runs.page(query)
        return page_answer([shown(run) for run in page.items], page, query.page, query.page_size)

    async def redrive(self, request: Request) -> Response:
        problems = Problems()
        outer = Reader(await read_object(request), problems)
        reader = outer.object("filter") or Reader({}, problems, "filter")
        dry_run = outer.flag("dry_run", default=False)
        outer.finish("a redrive")
        asked = await read_run_query(reader, self._services.store)
        for name in (*PAGING, "queue"):
            if name in reader.given:
                others = (each for each in RUN_FILTERS if each != "queue")
                reader.wrong(name, f"is not a filter here; there are {', '.join(others)}")
        reader.finish("a filter of runs")
        problems.finish()
        done = await self._queues.redrive(
            params.piece(request, "name"), asked, by=params.actor(request), dry_run=dry_run
        )
        return json_answer({"matched": done.matched, "retried": done.changed, "more": done.more})


def endpoints(services: Services) -> list[Endpoint]:
    calls = QueueCalls(services)
    return [
        Endpoint(("GET",), "/queues", calls.all, **papers.LIST),
        Endpoint(("GET",), "/queues/{name}", calls.get, **papers.GET),
        Endpoint(("PUT",), "/queues/{name}", calls.limit, **papers.LIMIT),
        Endpoint(("POST",), "/queues/{name}/pause", calls.pause, **papers.PAUSE),
        Endpoint(("POST",), "/queues/{name}/resume", calls.resume, **papers.RESUME),
        Endpoint(("POST",), "/queues/{name}/drain", calls.drain, **papers.DRAIN),
        Endpoint(("POST",), "/queues/{name}/clean", calls.clean, **papers.CLEAN),
        Endpoint(("GET",), "/queues/{name}/dead", calls.dead, **papers.DEAD),
        Endpoint(("POST",), "/queues/{name}/redrive", calls.redrive, **papers.REDRIVE),
    ]
