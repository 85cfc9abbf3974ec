"""The switch that stops every start: its button and its confirmation. The banner is in `base.html`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from noonbell.service.pauses import MOST_REASON
from noonbell.web.context import PageContext
from noonbell.web.page import post


async def pause(ctx: PageContext) -> Response:
    given = await ctx.fields()
    reason = given.get("reason", "").strip()[:MOST_REASON]
    await ctx.services.pauses.pause({"reason": reason}, by=ctx.actor)
    ctx.subject, ctx.details = "/pause", {"reason": reason} if reason else {}
    return ctx.done(ctx.words("pause.done"), "/", undo="/resume")


async def resume(ctx: PageContext) -> Response:
    await ctx.services.pauses.resume(by=ctx.actor)
    ctx.subject = "/resume"
    return ctx.done(ctx.words("pause.over"), "/")


PAGES: Final = [
    post("/pause", pause, "pause_all"),
    post("/resume", resume, "resume_all"),
]
