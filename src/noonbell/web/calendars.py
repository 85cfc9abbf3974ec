"""The pages of calendars: the list; one with its months, and its form, which shows what a change moves before it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from noonbell.clock import SECOND
from noonbell.errors import InvalidArgument
from noonbell.model.calendar import Calendar
from noonbell.service.calendars import CalendarDay, CalendarPreview, days_from
from noonbell.web.context import PageContext
from noonbell.web.page import get, post

MONTHS: Final = 3
_LISTED: Final = 200
"""Moves that the page lists."""
_NOTHING: Final[dict[str, Any]] = {
    **dict.fromkeys(("name", "description", "timezone", "closed", "open", "ical_days", "url"), ""),
    "refresh_seconds": "86400",
    "weekdays": [],
}


@dataclass(frozen=True, slots=True)
class Month:
    first: date
    weeks: list[list[CalendarDay | None]]
    """From Monday to Sunday; None where a day is of another month."""


def months_of(calendar: Calendar, since: date) -> list[Month]:
    found: list[Month] = []
    first = since.replace(day=1)
    for _ in range(MONTHS):
        following = (first + timedelta(days=32)).replace(day=1)
        days: list[CalendarDay | None] = [None] * first.weekday()
        days += days_from(calendar.rules, first, (following - first).days)
        days += [None] * (-len(days) % 7)
        found.append(Month(first, [days[start : start + 7] for start in range(0, len(days), 7)]))
        first = following
    return found


def calendar_path(name: str) -> str:
    return f"/calendars/{quote(name, safe='')}"


async def show_calendars(
    ctx: PageContext, problems: dict[str, str] | None = None, given: dict[str, Any] | None = None
) -> Response:
    found = await ctx.services.calendars.all()
    return ctx.page(
        "calendars.html",
        400 if problems else 200,
        calendars=found,
        path_of=calendar_path,
        problems=problems or {},
        given=given or _NOTHING,
        is_new=True,
    )


async def show_calendar(
    ctx: PageContext,
    problems: dict[str, str] | None = None,
    given: dict[str, Any] | None = None,
    preview: CalendarPreview | None = None,
) -> Response:
    """`problems` and `given`: of a form that was refused. `preview`: of one that would move slots."""
    calendar = await ctx.services.calendars.get(ctx.piece("name"))
    today = datetime.fromtimestamp(ctx.now / SECOND, UTC).date()
    since = _month(ctx.query.get("from"), today)
    return ctx.page(
        "calendar.html",
        400 if problems else 200 if preview is None else 409,  # nothing is saved yet
        calendar=calendar,
        path=calendar_path(calendar.name),
        months=months_of(calendar, since),
        earlier=_shifted(since, -MONTHS),
        later=_shifted(since, MONTHS),
        users=(await ctx.services.calendars.users(calendar.name))[:_LISTED],
        problems=problems or {},
        given=given or _written(calendar),
        preview=preview,
        moves=[] if preview is None else preview.moves[:_LISTED],
        is_new=False,
    )


def _month(text: str | None, today: date) -> date:
    try:
        return date.fromisoformat(text or "").replace(day=1)
    except ValueError:
        return today.replace(day=1)


def _shifted(first: date, months: int) -> date:
    number = first.year * 12 + first.month - 1 + months
    return date(max(2, min(9990, number // 12)), number % 12 + 1, 1)


def _written(calendar: Calendar) -> dict[str, Any]:
    spec = calendar.spec
    return {
        "name": calendar.name,
        "description": spec.description,
        "timezone": spec.timezone or "",
        "closed": "\n".join(spec.closed),
        "open": "\n".join(spec.open),
        "ical_days": "" if spec.ical is not None else "\n".join(calendar.ical_days),
        "url": "" if spec.ical is None else spec.ical.url,
        "refresh_seconds": "86400" if spec.ical is None else str(spec.ical.refresh_seconds),
        "weekdays": [str(day) for day in spec.closed_weekdays],
    }


def body_of(given: dict[str, Any]) -> dict[str, Any]:
    """What a form says, as the API takes it."""
    seconds = given["refresh_seconds"].strip()
    body: dict[str, Any] = {
        "description": given["description"].replace("\r\n", "\n"),
        "timezone": given["timezone"].strip() or None,
        "closed": given["closed"].split(),
        "open": given["open"].split(),
        "closed_weekdays": sorted({int(day) for day in given["weekdays"] if day in "0123456" and day}),
    }
    if given["url"].strip():
        body["ical"] = {
            "url": given["url"].strip(),
            "refresh_seconds": int(seconds) if seconds.isascii() and seconds.isdigit() else seconds,
        }
    else:
        body["ical_days"] = given["ical_days"].split()
    return body


async def _given(ctx: PageContext) -> dict[str, Any]:
    pairs = await ctx.form()
    fields = dict(pairs)
    found = {name: fields.get(name, "") for name in _NOTHING if name != "weekdays"}
    return {
        **found,
        "weekdays": [value for name, value in pairs if name == "weekday"],
        "confirmed": fields.get("confirmed", ""),
    }


async def create(ctx: PageContext) -> Response:
    given = await _given(ctx)
    name = given["name"].strip()
    try:
        if await ctx.services.store.calendar(name) is not None:
            raise InvalidArgument.field("name", ctx.words("calendar.taken"))
        await ctx.services.calendars.save(name, body_of(given), by=ctx.actor, expect_revision=0)
    except InvalidArgument as error:
        return await show_calendars(ctx, _problems(error), given)
    ctx.subject = calendar_path(name)
    return ctx.done(ctx.words("calendar.saved", name=name), go=calendar_path(name))


async def save(ctx: PageContext) -> Response:
    given, name = await _given(ctx), ctx.piece("name")
    calendar = await ctx.services.calendars.get(name)
    body = body_of(given)
    try:
        if given["confirmed"] != "yes":
            preview = await ctx.services.calendars.preview(name, body)
            if preview.moves:
                return await show_calendar(ctx, None, given, preview)
        await ctx.services.calendars.save(name, body, by=ctx.actor, expect_revision=calendar.revision)
    except InvalidArgument as error:
        return await show_calendar(ctx, _problems(error), given)
    ctx.subject = calendar_path(name)
    return ctx.done(ctx.words("calendar.saved", name=name), go=calendar_path(name))


def _problems(error: InvalidArgument) -> dict[str, str]:
    """By box: `closed[3]` belongs to `closed`, `ical.url` to `url`."""
    boxes = {"ical.url": "url", "ical.refresh_seconds": "refresh_seconds"}
    return {boxes.get(name, name.partition("[")[0]): problem for name, problem in error.sentences.items()} or {
        "name": error.sentence
    }


async def delete(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    await ctx.services.calendars.delete(name, by=ctx.actor)
    ctx.subject = calendar_path(name)
    return ctx.done(ctx.words("calendar.deleted", name=name), go="/calendars")


async def refresh(ctx: PageContext) -> Response:
    name = ctx.piece("name")
    await ctx.services.calendars.refresh(name, by=ctx.actor)
    ctx.subject = calendar_path(name)
    return ctx.done(ctx.words("calendar.refreshed", name=name), calendar_path(name))


PAGES: Final = [
    get("/calendars", show_calendars),
    post("/calendars", create, "save_calendar"),
    get("/calendars/{name}", show_calendar),
    post("/calendars/{name}", save, "save_calendar"),
    post("/calendars/{name}/delete", delete, "delete_calendar"),
    post("/calendars/{name}/refresh", refresh, "refresh_calendar"),
]
