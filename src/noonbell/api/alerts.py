"""Endpoints of alerts: what is raised, rules, channels, and the log of deliveries."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import alert_papers as papers
from noonbell.api import params
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.api.limits import read_object
from noonbell.service.alerts import Alerts


class AlertCalls:
    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts

    async def open_alerts(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._alerts.open_alerts()})

    async def rules(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._alerts.rules()})

    async def create_rule(self, request: Request) -> Response:
        return json_answer(await self._alerts.create_rule(await read_object(request, required=True)), 201)

    async def rule(self, request: Request) -> Response:
        return json_answer(await self._alerts.rule(params.piece(request, "rule")))

    async def change_rule(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        return json_answer(await self._alerts.change_rule(params.piece(request, "rule"), given))

    async def remove_rule(self, request: Request) -> Response:
        await self._alerts.remove_rule(params.piece(request, "rule"))
        return json_answer({"deleted": True})

    async def channels(self, request: Request) -> Response:
        del request
        return json_answer({"items": await self._alerts.channels()})

    async def create_channel(self, request: Request) -> Response:
        return json_answer(await self._alerts.create_channel(await read_object(request, required=True)), 201)

    async def channel(self, request: Request) -> Response:
        return json_answer(await self._alerts.channel(params.piece(request, "channel")))

    async def change_channel(self, request: Request) -> Response:
        given = await read_object(request, required=True)
        return json_answer(await self._alerts.change_channel(params.piece(request, "channel"), given))

    async def remove_channel(self, request: Request) -> Response:
        await self._alerts.remove_channel(params.piece(request, "channel"))
        return json_answer({"deleted": True})

    async def test_channel(self, request: Request) -> Response:
        return json_answer(await self._alerts.test_channel(params.piece(request, "channel")))

    async def deliveries(self, request: Request) -> Response:
        reader = params.query(request)
        limit = reader.integer("limit", 100, 1, 1_000)
        before = reader.text("before", None, least=1, most=16)
        if before is not None and not (before.isascii() and before.isdigit()):
            reader.expected("before", "the id of a delivery")
        channel = reader.text("channel", None, least=1, most=100)
        reader.problems.finish()
        items = await self._alerts.deliveries(
            limit=limit, before=None if before is None else int(before), channel=channel
        )
        return json_answer({"items": items})


def endpoints(alerts: Alerts) -> list[Endpoint]:
    calls = AlertCalls(alerts)
    rules, channels = "/alerts/rules", "/alerts/channels"
    return [
        Endpoint(("GET",), "/alerts", calls.open_alerts, **papers.OPEN),
        Endpoint(("GET",), rules, calls.rules, **papers.RULES),
        Endpoint(("POST",), rules, calls.create_rule, **papers.CREATE_RULE),
        Endpoint(("GET",), f"{rules}/{{rule}}", calls.rule, **papers.RULE),
        Endpoint(("PUT",), f"{rules}/{{rule}}", calls.change_rule, **papers.CHANGE_RULE),
        Endpoint(("DELETE",), f"{rules}/{{rule}}", calls.remove_rule, **papers.REMOVE_RULE),
        Endpoint(("GET",), channels, calls.channels, **papers.CHANNELS),
        Endpoint(("POST",), channels, calls.create_channel, **papers.CREATE_CHANNEL),
        Endpoint(("GET",), f"{channels}/{{channel}}", calls.channel, **papers.CHANNEL),
        Endpoint(("PUT",), f"{channels}/{{channel}}", calls.change_channel, **papers.CHANGE_CHANNEL),
        Endpoint(("DELETE",), f"{channels}/{{channel}}", calls.remove_channel, **papers.REMOVE_CHANNEL),
        Endpoint(("POST",), f"{channels}/{{channel}}/test", calls.test_channel, **papers.TEST_CHANNEL),
        Endpoint(("GET",), "/alerts/deliveries", calls.deliveries, **papers.DELIVERIES),
    ]
