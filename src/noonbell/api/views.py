"""Endpoints of saved views."""

from __future__ import annotations

from noonbell.api.endpoint import Given, call
from noonbell.api.responses import Deleted
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.model.view import SavedView
from noonbell.service import Services
from noonbell.service.views import AllViews, ViewsAsked, ViewWrite


class ViewCalls:
    def __init__(self, services: Services) -> None:
        self._views = services.views

    @call("GET", "/views", "list_views", "Saved views of a list", Role.VIEWER, query=ViewsAsked, answer=AllViews)
    async def all(self, asked: ViewsAsked) -> object:
        return {"items": [plain(view) for view in await self._views.all(asked.list)]}

    @call(
        "PUT", "/views/{of}/{view}", "save_view", "Save or replace a view", Role.OPERATOR,
        body=ViewWrite, body_required=True, answer=SavedView, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def save(self, given: Given, of: str, view: str, by: str | None) -> object:
        """Everyone who sees the list can use it."""
        return plain(await self._views.save(of, view, given, by=by))

    @call("DELETE", "/views/{of}/{view}", "remove_view", "Remove a saved view", Role.OPERATOR, answer=Deleted)
    async def remove(self, of: str, view: str) -> object:
        await self._views.remove(of, view)
        return {"deleted": True}
