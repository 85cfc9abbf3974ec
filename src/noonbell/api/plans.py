"""Endpoints of plans."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from starlette.requests import Request

from noonbell.api.endpoint import Given, call
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.api.responses import json_response, page_answer
from noonbell.dialects.plans import INTERVALS, PlanBody, PlanPage, PlansDialect, PlanType, ShownPlan, WholePlan
from noonbell.fields import meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.task import TaskStatus
from noonbell.service import Services
from noonbell.service.filters import TaskList, Word, task_query
from noonbell.service.tasks import SkipWrite

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
    async def publish(self, request: Request, given: Given, by: str | None) -> object:
        """`details` names every wrong field, and nothing is saved then. A `plan_id` that is already in use is
        ALREADY_EXISTS, so a publisher that is not sure may publish again. All times are UTC.
        """
        task = await self._plans.publish(given, by=by)
        headers = {"location": f"{request.url.path}/{task.spec.external_id}"}
        return json_response(await self._plans.show(task), 201, headers)

    @call("GET", "/plans", "list_plans", "List plans", Role.VIEWER, query=PlanList, answer=PlanPage)
    async def page(self, query: Given) -> object:
        at = ReadContext(Problems())
        asked = read_into(PlanList, query, at)
        wanted = msgspec.structs.replace(
            task_query(asked, at), queue=asked.station, status_in=_STATUSES.get(asked.state or "", ())
        )
        at.problems.finish()
        kind = asked.plan_type
        types = () if kind is None else INTERVALS if kind == "delay" else (PlanType(kind),)
        page = await self._plans.page(wanted, types)
        return page_answer(page.items, page, wanted)

    @call("GET", "/plans/{plan_id}", "get_plan", "Read a plan, with its newest results", Role.VIEWER, answer=WholePlan)
    async def get(self, plan_id: str) -> object:
        """`results` has its twenty newest runs, each with its stations. `GET /tasks/{task_id}/runs` has all of them."""
        return await self._plans.show_whole(await self._plans.get(plan_id))

    @call("DELETE", "/plans/{plan_id}", "remove_plan", "Remove a plan", Role.OPERATOR, answer=PlanRemoved)
    async def remove(self, plan_id: str, by: str | None) -> object:
        """Its `plan_id` becomes free. Waiting runs are canceled, running ones may finish; their history is kept."""
        await self._plans.remove(plan_id, by=by)
        return PlanRemoved(plan_id.lower(), True)

    @call(
        "POST", "/plans/{plan_id}/pause", "pause_plan", "Pause a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def pause(self, request: Request, plan_id: str, by: str | None) -> object:
        """The plan has no more slots until it is resumed."""
        await read_object(request)
        return await self._plans.show(await self._plans.pause(plan_id, by=by))

    @call(
        "POST", "/plans/{plan_id}/resume", "resume_plan", "Resume a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def resume(self, request: Request, plan_id: str, by: str | None) -> object:
        """The plan continues from now; slots in between are not caught up."""
        await read_object(request)
        return await self._plans.show(await self._plans.resume(plan_id, by=by))

    @call(
        "POST", "/plans/{plan_id}/skip", "skip_plan", "Skip the next slots of a plan", Role.OPERATOR,
        body=SkipWrite, answer=ShownPlan,
    )  # fmt: skip
    async def skip(self, body: SkipWrite, plan_id: str, by: str | None) -> object:
        """Skipped slots use up the count. 0 undoes it, -1 skips until it is undone or the plan is reset."""
        return await self._plans.show(await self._plans.skip(plan_id, body.count, by=by))

    @call(
        "POST", "/plans/{plan_id}/reset", "reset_plan", "Reset a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def reset(self, request: Request, plan_id: str, by: str | None) -> object:
        """The plan starts over with its whole count, also from error, pause and close. A one-shot plan runs again,
        now.
        """
        await read_object(request)
        return await self._plans.show(await self._plans.reset(plan_id, by=by))

    @call(
        "POST", "/plans/{plan_id}/close", "close_plan", "Close a plan", Role.OPERATOR,
        answer=ShownPlan, errors=_ACTION,
    )  # fmt: skip
    async def close(self, request: Request, plan_id: str, by: str | None) -> object:
        """The plan has no more slots, for good. Waiting runs are canceled, running ones may finish."""
        await read_object(request)
        return await self._plans.show(await self._plans.close(plan_id, by=by))
