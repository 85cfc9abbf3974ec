"""Saved views of the lists of tasks and runs that everyone finds there. A browser keeps its own besides (`static/lists.js`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from noonbell.model.view import SavedView, ViewedList
from noonbell.service.views import of_list
from noonbell.web.context import PageContext
from noonbell.web.page import post


@dataclass(frozen=True, slots=True)
class ListViews:
    shared: list[SavedView]
    """Empty for a token with a scope: filters name tasks and labels of others."""
    here: str
    """The query of the list that is shown."""


async def of(ctx: PageContext, room: ViewedList) -> ListViews:
    return ListViews(await ctx.services.views.all(room) if ctx.sees_all else [], of_list(ctx.request.url.query))


async def save(ctx: PageContext) -> Response:
    given = await ctx.fields()
    saved = await ctx.services.views.save(
        given.get("list", ""), given.get("name", "").strip(), {"query": given.get("query", "")}, by=ctx.actor
    )
    ctx.subject, ctx.details = _subject(saved.list, saved.name), {"query": saved.query}
    return ctx.done(ctx.words("views.saved", name=saved.name), go=f"/{saved.list}?{saved.query}")


async def remove(ctx: PageContext) -> Response:
    given = await ctx.fields()
    room, name = given.get("list", ""), given.get("name", "")
    await ctx.services.views.remove(room, name)
    ctx.subject = _subject(room, name)
    return ctx.done(ctx.words("views.removed", name=name), go=f"/{room}?{of_list(given.get('query', ''))}")


def _subject(room: str, name: str) -> str:
    return f"/views/{room}/{name.replace('/', '%2F')}"


PAGES: Final = [post("/views", save, "save_view"), post("/views/remove", remove, "remove_view")]
