"""Endpoints of plans."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.api.responses import json_response, page_response
from noonbell.dialects.plans import INTERVALS, PlanBody, PlanPage, PlansDialect, PlanType, ShownPlan, WholePlan
from noonbell.fields import meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.task import Task, TaskStatus
from noonbell.service import Services
from noonbell.service.filters import TaskList, Word, task_query
from noonbell.service.tasks import SkipBody

_STATUSES: Final = {
    "active": (TaskStatus.ENABLED, TaskStatus.DISABLED, TaskStatus.ERROR),
    "history": (TaskStatus.COMPLETED,),
    "pause": (TaskStatus.DISABLED,),
    "error": (TaskStatus.ERROR,),
}


_ACTION: Final = ("INVALID_JSON", "INVALID_STATE")


class PlanList(TaskList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = ("status", "name", "label", "queue", "managed_by", "include_system")

    station: Annotated[Word | None, meta("Plans for this station.", examples=["billing"])] = None
    plan_type: Annotated[
        Literal["none", "time", "second", "minute", "hour", "day", "week", "month", "delay"] | None,
        meta("Plans of this type; `delay` is all four intervals.", examples=["week"]),
    ] = None
    state: Annotated[
        Literal["active", "history", "pause", "error"] | None,
        meta("`history`: finished or closed. `active`: all others. `pause`, `error`: only those."),
    ] = None


class PlanRemoved(msgspec.Struct, frozen=True):
    plan_id: Annotated[str, meta(examples=["1f4a"])]
    deleted: Annotated[bool, meta(examples=[True])]


class PlanCalls:
    def __init__(self, services: Services) -> None:
        self._plans = PlansDialect(services)

    @call(
        "POST", "/plans", "publish_plan", "Publish a plan", Role.OPERATOR,
        status=201, body=PlanBody, body_required=True, most_bytes=MOST_BYTES, answer=ShownPlan,
        errors=("ALREADY_EXISTS",),
    )  # fmt: skip
    async def publish(self, request: Request) -> Response:
        """`details` names every wrong field, and nothing is saved then. A `plan_id` that is already in use is
        ALREADY_EXISTS, so a publisher that is not sure may publish again. All times are UTC.
        """
        given = await read_object(request, required=True)
        task = await self._plans.publish(given, by=params.actor(request))
        headers = {"location": f"{request.url.path}/{task.spec.external_id}"}
        return json_response(await self._plans.show(task), 201, headers)

    @call("GET", "/plans", "list_plans", "List plans", Role.VIEWER, query=PlanList, answer=PlanPage)
    async def page(self, request: Request) -> Response:
        at = ReadContext(Problems())
        asked = read_into(PlanList, params.query_of(request, PlanList), at)
        query = msgspec.structs.replace(
            task_query(asked, at), queue=asked.station, status_in=_STATUSES.get(asked.state or "", ())
        )
        at.problems.finish()
        kind = asked.plan_type
        types = () if kind is None else INTERVALS if kind == "delay" else (PlanType(kind),)
        page = await self._plans.page(query, types)
        return page_response(page.items, page, query.page, query.page_size)

    @call("GET", "/plans/{plan_id}", "get_plan", "Read a plan, with its newest results", Role.VIEWER, answer=WholePlan)
    async def get(self, request: Request) -> Response:
        """`results` has its twenty newest runs, each with its stations. `GET /tasks/{task_id}/runs` has all of them."""
        return json_response(await self._plans.show_whole(await self._plans.get(_plan_id(request))))

    @call("DELETE", "/plans/{plan_id}", "remove_plan", "Remove a plan", Role.OPERATOR, answer=PlanRemoved)
    async def remove(self, request: Request) -> Response:
        """Its `plan_id` becomes free. Waiting runs are canceled, running ones may finish; their history is kept."""
        plan_id = _plan_id(request)
        await self._plans.remove(plan_id, by=params.actor(request))
        return json_response(PlanRemoved(plan_id.lower(), True))

    @call(
        "POST", "/plans/{plan_id}/pause", "pause_plan", "Pause a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def pause(self, request: Request) -> Response:
        """The plan has no more slots until it is resumed."""
        await read_object(request)
        return await self._shown(await self._plans.pause(_plan_id(request), by=params.actor(request)))

    @call(
        "POST", "/plans/{plan_id}/resume", "resume_plan", "Resume a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def resume(self, request: Request) -> Response:
        """The plan continues from now; slots in between are not caught up."""
        await read_object(request)
        return await self._shown(await self._plans.resume(_plan_id(request), by=params.actor(request)))

    @call(
        "POST", "/plans/{plan_id}/skip", "skip_plan", "Skip the next slots of a plan", Role.OPERATOR,
        body=SkipBody, answer=ShownPlan,
    )  # fmt: skip
    async def skip(self, request: Request) -> Response:
        """Skipped slots use up the count. 0 undoes it, -1 skips until it is undone or the plan is reset."""
        asked = await params.read_body(request, SkipBody)
        return await self._shown(await self._plans.skip(_plan_id(request), asked.count, by=params.actor(request)))

    @call(
        "POST", "/plans/{plan_id}/reset", "reset_plan", "Reset a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def reset(self, request: Request) -> Response:
        """The plan starts over with its whole count, also from error, pause and close. A one-shot plan runs again,
        now.
        """
        await read_object(request)
        return await self._shown(await self._plans.reset(_plan_id(request), by=params.actor(request)))

    @call(
        "POST", "/plans/{plan_id}/close", "close_plan", "Close a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def close(self, request: Request) -> Response:
        """The plan has no more slots, for good. Waiting runs are canceled, running ones may finish."""
        await read_object(request)
        return await self._shown(await self._plans.close(_plan_id(request), by=params.actor(request)))

    async def _shown(self, task: Task) -> Response:
        return json_response(await self._plans.show(task))


def _plan_id(request: Request) -> str:
    return params.piece(request, "plan_id")


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(PlanCalls(services), "plans")
