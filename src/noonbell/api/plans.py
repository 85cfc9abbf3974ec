"""Endpoints of plans."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import plan_papers as papers
from noonbell.api.answers import json_answer, page_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import read_task_query
from noonbell.service.plan_fields import INTERVALS, PlanType
from noonbell.service.reader import Problems, Reader

DELAY: Final = "delay"
"""Not a type of its own: the four that are intervals."""


class View(enum.StrEnum):
    ACTIVE = "active"
    HISTORY = "history"
    PAUSE = "pause"
    ERROR = "error"


_STATUSES: Final = {
    View.ACTIVE: (TaskStatus.ENABLED, TaskStatus.DISABLED, TaskStatus.ERROR),
    View.HISTORY: (TaskStatus.COMPLETED,),
    View.PAUSE: (TaskStatus.DISABLED,),
    View.ERROR: (TaskStatus.ERROR,),
}


class PlanCalls:
    def __init__(self, services: Services) -> None:
        self._plans = services.plans

    async def publish(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        task = await self._plans.publish(given, by=params.actor(request))
        headers = {"location": f"{request.url.path}/{task.spec.external_id}"}
        return json_answer(await self._plans.show(task), 201, headers)

    async def page(self, request: Request) -> Response:
        reader = params.query(request)
        query, types = _read_query(reader)
        reader.problems.finish()
        page = await self._plans.page(query, types)
        return page_answer(page.items, page, query.page, query.page_size)

    async def get(self, request: Request) -> Response:
        return json_answer(await self._plans.show_whole(await self._plans.get(_plan_id(request))))

    async def remove(self, request: Request) -> Response:
        plan_id = _plan_id(request)
        await self._plans.remove(plan_id, by=params.actor(request))
        return json_answer({"plan_id": plan_id.lower(), "deleted": True})

    async def pause(self, request: Request) -> Response:
        await read_object(request)
        return await self._shown(await self._plans.pause(_plan_id(request), by=params.actor(request)))

    async def resume(self, request: Request) -> Response:
        await read_object(request)
        return await self._shown(await self._plans.resume(_plan_id(request), by=params.actor(request)))

    async def reset(self, request: Request) -> Response:
        await read_object(request)
        return await self._shown(await self._plans.reset(_plan_id(request), by=params.actor(request)))

    async def close(self, request: Request) -> Response:
        await read_object(request)
        return await self._shown(await self._plans.close(_plan_id(request), by=params.actor(request)))

    async def skip(self, request: Request) -> Response:
        problems = Problems()
        reader = Reader(await read_object(request), problems)
        count = reader.integer("count", 1, -1, 1_000_000)
        reader.finish("a skip")
        problems.finish()
        return await self._shown(await self._plans.skip(_plan_id(request), count, by=params.actor(request)))

    async def _shown(self, task: Task) -> Response:
        return json_answer(await self._plans.show(task))


def _plan_id(request: Request) -> str:
    return params.piece(request, "plan_id")


def _read_query(reader: Reader) -> tuple[TaskQuery, tuple[PlanType, ...]]:
    view = reader.choice("state", View, View.ACTIVE) if reader.get("state") else None
    types: tuple[PlanType, ...] = ()
    if reader.get("plan_type") == DELAY:
        types = INTERVALS
    elif reader.get("plan_type") is not None:
        types = (reader.choice("plan_type", PlanType, PlanType.NONE),)
    paging: dict[str, Any] = {
        name: reader.given[name] for name in ("page", "page_size", "cursor", "sort") if name in reader.given
    }
    if reader.get("station") is not None:
        paging["queue"] = reader.text("station", None, least=1)
    base = read_task_query(Reader(paging, reader.problems))
    return (base if view is None else msgspec.structs.replace(base, status_in=_STATUSES[view])), types


def endpoints(services: Services) -> list[Endpoint]:
    calls = PlanCalls(services)
    return [
        Endpoint(("POST",), "/plans", calls.publish, **papers.PUBLISH),
        Endpoint(("GET",), "/plans", calls.page, **papers.LIST),
        Endpoint(("GET",), "/plans/{plan_id}", calls.get, **papers.GET),
        Endpoint(("DELETE",), "/plans/{plan_id}", calls.remove, **papers.REMOVE),
        Endpoint(("POST",), "/plans/{plan_id}/pause", calls.pause, **papers.PAUSE),
        Endpoint(("POST",), "/plans/{plan_id}/resume", calls.resume, **papers.RESUME),
        Endpoint(("POST",), "/plans/{plan_id}/skip", calls.skip, **papers.SKIP),
        Endpoint(("POST",), "/plans/{plan_id}/reset", calls.reset, **papers.RESET),
        Endpoint(("POST",), "/plans/{plan_id}/close", calls.close, **papers.CLOSE),
    ]
