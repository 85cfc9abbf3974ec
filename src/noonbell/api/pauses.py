"""Endpoints of the switch that stops every start."""

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
from noonbell.service.pauses import PauseChanged, PauseState, PauseWrite


class PauseCalls:
    def __init__(self, services: Services) -> None:
        self._pauses = services.pauses

    @call("GET", "/pause", "get_pause", "Whether everything is paused", Role.VIEWER, answer=PauseState)
    async def state(self, request: Request) -> Response:
        del request
        return json_response(plain(await self._pauses.state()))

    @call(
        "POST", "/pause", "pause_all", "Let nothing start, on any node", Role.OPERATOR,
        body=PauseWrite, answer=PauseChanged,
    )  # fmt: skip
    async def pause(self, request: Request) -> Response:
        """No attempt starts later than two seconds after the answer. Planning stops; runs that are published are accepted and
        wait; attempts under way go on, and callbacks are accepted. A pause that stands already stays as it is.
        """
        given = await read_object(request)
        return json_response(plain(await self._pauses.pause(given, by=params.actor(request))))

    @call("POST", "/resume", "resume_all", "Let everything start again", Role.OPERATOR, answer=PauseChanged)
    async def resume(self, request: Request) -> Response:
        """What became due during the pause is late, as after a downtime: the misfire policy of each task decides about it."""
        return json_response(plain(await self._pauses.resume(by=params.actor(request))))


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(PauseCalls(services), "system")
