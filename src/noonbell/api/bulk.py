"""Endpoints of bulk operations, which the nodes carry out batch by batch."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.params import MOST_BYTES
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.model.bulk import BulkOperation, BulkStatus
from noonbell.service import Services
from noonbell.service.bulk_operations import BulkList, BulkOperations, BulkStart, SkippedItems, SkippedList


class BulkCalls:
    def __init__(self, services: Services) -> None:
        self._bulk = services.bulk

    @call(
        "GET", "/bulk", "list_bulk", "Bulk operations, newest first", Role.VIEWER, query=BulkList, answer=BulkOperations
    )
    async def page(self, asked: BulkList) -> object:
        found = await self._bulk.page(asked)
        return {"items": [plain(each) for each in found]}

    @call(
        "POST", "/bulk", "start_bulk", "Change all runs or tasks that match a filter, on the server", Role.OPERATOR,
        body=BulkStart, body_required=True, most_bytes=MOST_BYTES, answer=BulkOperation,
    )  # fmt: skip
    async def start(self, request: Request, given: Given, by: str | None) -> object:
        """Returns at once; the nodes carry out the operation in batches. The filter applies to what exists now: runs
        and tasks that are created or end later are not touched. `GET /bulk/{bulk_id}` shows the progress.
        """
        started = await self._bulk.start(given, by=by)
        which = {"ids": started.listed} if started.listed is not None else {"filter": started.filter}
        params.add_to_audit(request, bulk=started.id, kind=started.kind, **which, change=started.change)
        return plain(started)

    @call("GET", "/bulk/{bulk_id}", "get_bulk", "Read a bulk operation", Role.VIEWER, answer=BulkOperation)
    async def get(self, bulk_id: int) -> object:
        return plain(await self._bulk.get(bulk_id))

    @call(
        "GET", "/bulk/{bulk_id}/skipped", "list_skipped", "What a bulk operation skipped, and why", Role.VIEWER,
        query=SkippedList, answer=SkippedItems,
    )  # fmt: skip
    async def skipped(self, bulk_id: int, asked: SkippedList) -> object:
        found = await self._bulk.skipped(bulk_id, asked)
        return {"items": [plain(each) for each in found]}

    @call("POST", "/bulk/{bulk_id}/cancel", "cancel_bulk", "Stop a bulk operation", Role.OPERATOR, answer=BulkOperation)
    async def cancel(self, request: Request, bulk_id: int, by: str | None) -> object:
        """What the operation has already changed is kept. An operation that has ended is not changed."""
        was = await self._bulk.get(bulk_id)
        if was.status is not BulkStatus.RUNNING:
            params.nothing_changed(request)
        return plain(await self._bulk.cancel(was.id, by=by))

    @call(
        "POST", "/bulk/{bulk_id}/undo", "undo_bulk", "Undo a bulk operation", Role.OPERATOR,
        answer=BulkOperation, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def undo(self, request: Request, bulk_id: int, by: str | None) -> object:
        """For `enable_tasks` and `disable_tasks`: starts an operation that undoes what this one changed."""
        started = await self._bulk.undo(bulk_id, by=by)
        params.add_to_audit(request, bulk=started.id, kind=started.kind)
        return plain(started)
