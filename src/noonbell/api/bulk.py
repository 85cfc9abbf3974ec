"""Endpoints of bulk operations, which the nodes carry out batch by batch."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.api.responses import json_response
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.model.bulk import BulkOperation, BulkStatus
from noonbell.service import Services
from noonbell.service.bulk_operations import BulkList, BulkOperations, BulkStart, SkippedItems, SkippedList
from noonbell.service.filters import operation_id


class BulkCalls:
    def __init__(self, services: Services) -> None:
        self._bulk = services.bulk

    @call(
        "GET", "/bulk", "list_bulk", "Bulk operations, newest first", Role.VIEWER, query=BulkList, answer=BulkOperations
    )
    async def page(self, request: Request) -> Response:
        found = await self._bulk.page(params.read_query(request, BulkList))
        return json_response({"items": [plain(each) for each in found]})

    @call(
        "POST", "/bulk", "start_bulk", "Change all runs or tasks that match a filter, on the server", Role.OPERATOR,
        body=BulkStart, body_required=True, most_bytes=MOST_BYTES, answer=BulkOperation,
    )  # fmt: skip
    async def start(self, request: Request) -> Response:
        """Returns at once; the nodes carry out the operation in batches. The filter applies to what exists now: runs
        and tasks that are created or end later are not touched. `GET /bulk/{bulk_id}` shows the progress.
        """
        started = await self._bulk.start(await read_object(request, required=True), by=params.actor(request))
        which = {"ids": started.listed} if started.listed is not None else {"filter": started.filter}
        params.add_to_audit(request, bulk=started.id, kind=started.kind, **which, change=started.change)
        return json_response(plain(started))

    @call("GET", "/bulk/{bulk_id}", "get_bulk", "Read a bulk operation", Role.VIEWER, answer=BulkOperation)
    async def get(self, request: Request) -> Response:
        return json_response(plain(await self._bulk.get(_id(request))))

    @call(
        "GET", "/bulk/{bulk_id}/skipped", "list_skipped", "What a bulk operation skipped, and why", Role.VIEWER,
        query=SkippedList, answer=SkippedItems,
    )  # fmt: skip
    async def skipped(self, request: Request) -> Response:
        found = await self._bulk.skipped(_id(request), params.read_query(request, SkippedList))
        return json_response({"items": [plain(each) for each in found]})

    @call("POST", "/bulk/{bulk_id}/cancel", "cancel_bulk", "Stop a bulk operation", Role.OPERATOR, answer=BulkOperation)
    async def cancel(self, request: Request) -> Response:
        """What the operation has already changed is kept. An operation that has ended is not changed."""
        was = await self._bulk.get(_id(request))
        if was.status is not BulkStatus.RUNNING:
            params.nothing_changed(request)
        return json_response(plain(await self._bulk.cancel(was.id, by=params.actor(request))))

    @call(
        "POST", "/bulk/{bulk_id}/undo", "undo_bulk", "Undo a bulk operation", Role.OPERATOR,
        answer=BulkOperation, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def undo(self, request: Request) -> Response:
        """For `enable_tasks` and `disable_tasks`: starts an operation that undoes what this one changed."""
        started = await self._bulk.undo(_id(request), by=params.actor(request))
        params.add_to_audit(request, bulk=started.id, kind=started.kind)
        return json_response(plain(started))


def _id(request: Request) -> int:
    return operation_id(request.path_params["bulk_id"])


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(BulkCalls(services), "bulk")
