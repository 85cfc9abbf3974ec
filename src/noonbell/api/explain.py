"""Endpoints of the account: the slots of a task with their outcomes, and why one did or didn't run."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import explain_papers as papers
from noonbell.api import params
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.service import Services
from noonbell.service.preview import language
from noonbell.service.reader import Reader
from noonbell.service.slots import LARGEST_PAGE


class ExplainCalls:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def slots(self, request: Request) -> Response:
        task = await self._services.tasks.get(params.task_ref(request), deleted=True)
        reader = params.query(request)
        since, until = (reader.moment(name, task.spec.timezone) for name in ("from", "to"))
        limit = reader.integer("limit", 100, 1, LARGEST_PAGE)
        if since is not None and until is not None and until < since:
            reader.wrong("to", "is before from")
        reader.problems.finish()
        return json_answer(await self._services.slots.page(task, since, until, limit))

    async def task(self, request: Request) -> Response:
        task = await self._services.tasks.get(params.task_ref(request), deleted=True)
        reader = params.query(request)
        moment = reader.moment("at", task.spec.timezone)
        lang = _language(request, reader)
        reader.problems.finish()
        return json_answer(await self._services.explain.of_task(task, moment, lang))

    async def run(self, request: Request) -> Response:
        reader = params.query(request)
        lang = _language(request, reader)
        reader.problems.finish()
        return json_answer(await self._services.explain.of_run(params.run_id(request), lang))


def _language(request: Request, reader: Reader) -> str:
    """`lang` in the query, else the language that the caller reads."""
    wanted = reader.text("lang", None, least=2, most=20)
    return language(wanted or request.headers.get("accept-language", "en")[:100])


def endpoints(services: Services) -> list[Endpoint]:
    calls = ExplainCalls(services)
    return [
        Endpoint(("GET",), "/tasks/{id}/slots", calls.slots, **papers.SLOTS),
        Endpoint(("GET",), "/tasks/{id}/explain", calls.task, **papers.TASK),
        Endpoint(("GET",), "/runs/{run_id}/explain", calls.run, **papers.RUN),
    ]
