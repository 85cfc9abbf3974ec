"""Endpoints of calendars."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import read_object
from noonbell.api.responses import json_response
from noonbell.fields import plain
from noonbell.model.access import Role
from noonbell.service import Services
from noonbell.service.calendars import (
    AllCalendars,
    CalendarAnswer,
    CalendarBody,
    CalendarDays,
    CalendarPreview,
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
    async def all(self, request: Request) -> Response:
        del request
        return json_response({"items": [shown(one) for one in await self._calendars.all()]})

    @call("GET", "/calendars/{calendar}", "get_calendar", "Read a calendar", Role.VIEWER, answer=ShownCalendar)
    async def get(self, request: Request) -> Response:
        return json_response(shown(await self._calendars.get(params.piece(request, "calendar"))))

    @call(
        "PUT", "/calendars/{calendar}", "save_calendar", "Create or replace a calendar", Role.OPERATOR,
        body=CalendarBody, body_required=True, most_bytes=MOST_BYTES, answer=CalendarAnswer, errors=("VERSION_CONFLICT",),
        versioned=True,
    )  # fmt: skip
    async def save(self, request: Request) -> Response:
        """A field that is left out gets its default. Each task that uses the calendar gets a version with the new
        days: slots up to now are accounted for as before, and a slot that the change moves into the past is due
        at once, late. `If-Match` takes the revision.
        """
        given = await read_object(request, required=True)
        saved = await self._calendars.save(
            params.piece(request, "calendar"),
            given,
            by=params.actor(request),
            expect_revision=params.expected_version(request),
        )
        return json_response(saved_answer(saved))

    @call(
        "DELETE", "/calendars/{calendar}", "delete_calendar", "Delete a calendar", Role.OPERATOR,
        answer=ShownCalendar, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def delete(self, request: Request) -> Response:
        """Rejected while tasks use the calendar."""
        return json_response(
            shown(await self._calendars.delete(params.piece(request, "calendar"), by=params.actor(request)))
        )

    @call(
        "POST", "/calendars/{calendar}/preview", "preview_calendar", "Which slots a change would move", Role.OPERATOR,
        body=CalendarBody, body_required=True, most_bytes=MOST_BYTES, query=PreviewAsked, answer=CalendarPreview,
        is_audited=False,
    )  # fmt: skip
    async def preview(self, request: Request) -> Response:
        """Nothing is saved."""
        asked = params.read_query(request, PreviewAsked)
        given = await read_object(request, required=True)
        return json_response(plain(await self._calendars.preview(params.piece(request, "calendar"), given, asked.days)))

    @call(
        "POST", "/calendars/{calendar}/refresh", "refresh_calendar", "Fetch the iCal source of a calendar now", Role.OPERATOR,
        answer=CalendarAnswer, errors=("INVALID_STATE", "VERSION_CONFLICT"),
    )  # fmt: skip
    async def refresh(self, request: Request) -> Response:
        """If the source cannot be fetched or read, the last good copy is kept."""
        saved = await self._calendars.refresh(params.piece(request, "calendar"), by=params.actor(request))
        return json_response(saved_answer(saved))

    @call(
        "GET", "/calendars/{calendar}/days", "list_calendar_days", "Which days of a calendar are open", Role.VIEWER,
        query=DaysAsked, answer=CalendarDays,
    )  # fmt: skip
    async def days(self, request: Request) -> Response:
        asked = params.read_query(request, DaysAsked)
        return json_response(plain(await self._calendars.days(params.piece(request, "calendar"), asked)))


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(CalendarCalls(services), "calendars")
