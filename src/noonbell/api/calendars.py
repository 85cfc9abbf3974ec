"""Endpoints of calendars."""

from __future__ import annotations

from noonbell.api.endpoint import Given, call
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.service import Services
from noonbell.service.calendars import (
    AllCalendars,
    CalendarAnswer,
    CalendarDays,
    CalendarPreview,
    CalendarWrite,
    DaysAsked,
    PreviewAsked,
    ShownCalendar,
    saved_answer,
    shown,
)

MOST_BYTES = 3 << 20
"""Of a body: the text of an iCal file may be in it, and JSON makes it longer."""


class CalendarCalls:
    def __init__(self, services: Services) -> None:
        self._calendars = services.calendars

    @call("GET", "/calendars", "list_calendars", "All calendars", Role.VIEWER, answer=AllCalendars)
    async def all(self) -> object:
        return {"items": [shown(one) for one in await self._calendars.all()]}

    @call("GET", "/calendars/{calendar}", "get_calendar", "Read a calendar", Role.VIEWER, answer=ShownCalendar)
    async def get(self, calendar: str) -> object:
        return shown(await self._calendars.get(calendar))

    @call(
        "PUT", "/calendars/{calendar}", "save_calendar", "Create or replace a calendar", Role.OPERATOR,
        body=CalendarWrite, body_required=True, most_bytes=MOST_BYTES, answer=CalendarAnswer, errors=("VERSION_CONFLICT",),
        versioned=True,
    )  # fmt: skip
    async def save(self, given: Given, calendar: str, version: int | None, by: str | None) -> object:
        """A field that is left out gets its default. Each task that uses the calendar gets a version with the new
        days: slots up to now are accounted for as before, and a slot that the change moves into the past is due
        at once, late. `If-Match` takes the revision.
        """
        return saved_answer(await self._calendars.save(calendar, given, by=by, expect_revision=version))

    @call(
        "DELETE", "/calendars/{calendar}", "delete_calendar", "Delete a calendar", Role.OPERATOR,
        answer=ShownCalendar, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def delete(self, calendar: str, by: str | None) -> object:
        """Rejected while tasks use the calendar."""
        return shown(await self._calendars.delete(calendar, by=by))

    @call(
        "POST", "/calendars/{calendar}/preview", "preview_calendar", "Which slots a change would move", Role.OPERATOR,
        body=CalendarWrite, body_required=True, most_bytes=MOST_BYTES, query=PreviewAsked, answer=CalendarPreview,
        is_audited=False,
    )  # fmt: skip
    async def preview(self, asked: PreviewAsked, given: Given, calendar: str) -> object:
        """Nothing is saved."""
        return plain(await self._calendars.preview(calendar, given, asked.days))

    @call(
        "POST", "/calendars/{calendar}/refresh", "refresh_calendar", "Fetch the iCal source of a calendar now", Role.OPERATOR,
        answer=CalendarAnswer, errors=("INVALID_STATE", "VERSION_CONFLICT"),
    )  # fmt: skip
    async def refresh(self, calendar: str, by: str | None) -> object:
        """If the source cannot be fetched or read, the last good copy is kept."""
        return saved_answer(await self._calendars.refresh(calendar, by=by))

    @call(
        "GET", "/calendars/{calendar}/days", "list_calendar_days", "Which days of a calendar are open", Role.VIEWER,
        query=DaysAsked, answer=CalendarDays,
    )  # fmt: skip
    async def days(self, asked: DaysAsked, calendar: str) -> object:
        return plain(await self._calendars.days(calendar, asked))
