"""Endpoints of schedules and of figures: preview, stats."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import system_papers as papers
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.service import Services
from noonbell.service.filters import read_run_query


class ScheduleCalls:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def preview(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        language = request.headers.get("accept-language", "en")[:100]
        return json_answer(await self._services.previews.of(given, language))

    async def stats(self, request: Request) -> Response:
        reader = params.query(request)
        query = await read_run_query(reader, self._services.store)
        reader.problems.finish()
        return json_answer(await self._services.stats.over(query.since, query.until, query.task_id))


def endpoints(services: Services) -> list[Endpoint]:
    calls = ScheduleCalls(services)
    return [
        Endpoint(("POST",), "/schedules/preview", calls.preview, **papers.PREVIEW),
        Endpoint(("GET",), "/stats", calls.stats, **papers.STATS),
    ]
