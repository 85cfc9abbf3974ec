"""Endpoints of saved views."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import read_object
from noonbell.api.responses import Deleted, json_response
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.model.view import SavedView
from noonbell.service import Services
from noonbell.service.views import AllViews, ViewsAsked, ViewWrite


class ViewCalls:
    def __init__(self, services: Services) -> None:
        self._views = services.views

    @call("GET", "/views", "list_views", "Saved views of a list", Role.VIEWER, query=ViewsAsked, answer=AllViews)
    async def all(self, request: Request) -> Response:
        found = await self._views.all(params.read_query(request, ViewsAsked).list)
        return json_response({"items": [plain(view) for view in found]})

    @call(
        "PUT", "/views/{of}/{view}", "save_view", "Save or replace a view", Role.OPERATOR,
        body=ViewWrite, body_required=True, answer=SavedView, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def save(self, request: Request) -> Response:
        """Everyone who sees the list can use it."""
        given = await read_object(request, required=True)
        room, name = params.piece(request, "of"), params.piece(request, "view")
        return json_response(plain(await self._views.save(room, name, given, by=params.actor(request))))

    @call("DELETE", "/views/{of}/{view}", "remove_view", "Remove a saved view", Role.OPERATOR, answer=Deleted)
    async def remove(self, request: Request) -> Response:
        await self._views.remove(params.piece(request, "of"), params.piece(request, "view"))
        return json_response({"deleted": True})


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(ViewCalls(services), "views")
