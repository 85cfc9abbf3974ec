"""Endpoints of webhook subscriptions: subscriptions, tests, deliveries and their replay."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import read_object
from noonbell.api.responses import Deleted, json_response
from noonbell.errors import InvalidId
from noonbell.model.access import Role
from noonbell.subscriptions.service import (
    AllSubscriptions,
    AllWebhooks,
    ShownSubscription,
    ShownWebhook,
    SubscriptionBody,
    SubscriptionChange,
    SubscriptionMove,
    Subscriptions,
    SubscriptionTested,
    WebhookList,
)


class SubscriptionCalls:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    @call("GET", "/subscriptions", "subscriptions", "All webhook subscriptions", Role.VIEWER, answer=AllSubscriptions)
    async def all(self, request: Request) -> Response:
        del request
        return json_response({"items": await self._subscriptions.all()})

    @call(
        "POST", "/subscriptions", "create_subscription", "Create a subscription", Role.ADMIN,
        status=201, body=SubscriptionBody, body_required=True, answer=ShownSubscription,
        errors=("ALREADY_EXISTS", "INVALID_STATE"),
    )  # fmt: skip
    async def create(self, request: Request) -> Response:
        """The subscription starts with the next event. A secret that the server generates is in this response, and
        never shown again.
        """
        made = await self._subscriptions.create(await read_object(request, required=True))
        params.name_in_audit(request, made["name"])
        return json_response(made, 201)

    @call(
        "GET", "/subscriptions/{subscription}", "subscription", "One subscription, with its position", Role.VIEWER,
        answer=ShownSubscription,
    )  # fmt: skip
    async def get(self, request: Request) -> Response:
        return json_response(await self._subscriptions.get(params.piece(request, "subscription")))

    @call(
        "PATCH", "/subscriptions/{subscription}", "change_subscription", "Change fields of a subscription", Role.ADMIN,
        body=SubscriptionChange, body_required=True, answer=ShownSubscription,
    )  # fmt: skip
    async def change(self, request: Request) -> Response:
        """With `active: true`, deliveries continue from its position; with `from: now` as well, pending events are
        dropped.
        """
        given = await read_object(request, required=True)
        return json_response(await self._subscriptions.change(params.piece(request, "subscription"), given))

    @call(
        "DELETE", "/subscriptions/{subscription}", "remove_subscription", "Remove a subscription and its deliveries",
        Role.ADMIN, answer=Deleted,
    )  # fmt: skip
    async def remove(self, request: Request) -> Response:
        await self._subscriptions.remove(params.piece(request, "subscription"))
        return json_response({"deleted": True})

    @call(
        "POST", "/subscriptions/{subscription}/test", "test_subscription", "Post a test event", Role.ADMIN,
        answer=SubscriptionTested,
    )  # fmt: skip
    async def test(self, request: Request) -> Response:
        return json_response(await self._subscriptions.test(params.piece(request, "subscription")))

    @call(
        "POST", "/subscriptions/{subscription}/replay", "replay_subscription", "Continue at another position of the"
        " stream",
        Role.ADMIN, body=SubscriptionMove, body_required=True, answer=ShownSubscription,
    )  # fmt: skip
    async def move(self, request: Request) -> Response:
        """Every event after the position is delivered, including those delivered before, as far back as the stream
        reaches.
        """
        given = await read_object(request, required=True)
        return json_response(await self._subscriptions.move(params.piece(request, "subscription"), given))

    @call(
        "GET", "/subscriptions/{subscription}/deliveries", "subscription_deliveries", "The deliveries of a"
        " subscription, newest first",
        Role.VIEWER, query=WebhookList, answer=AllWebhooks,
    )  # fmt: skip
    async def deliveries(self, request: Request) -> Response:
        asked = params.read_query(request, WebhookList)
        name = params.piece(request, "subscription")
        items = await self._subscriptions.deliveries(name, limit=asked.limit, before=asked.before, status=asked.status)
        return json_response({"items": items})

    @call(
        "GET", "/subscriptions/{subscription}/deliveries/{delivery_id}", "subscription_delivery",
        "One delivery, with its request and response", Role.VIEWER, answer=ShownWebhook,
    )  # fmt: skip
    async def delivery(self, request: Request) -> Response:
        name = params.piece(request, "subscription")
        return json_response(await self._subscriptions.delivery(name, _delivery_id(request)))

    @call(
        "POST", "/subscriptions/{subscription}/deliveries/{delivery_id}/replay", "replay_delivery",
        "Deliver one event again", Role.ADMIN, status=201, answer=ShownWebhook, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def replay(self, request: Request) -> Response:
        """The event is sent as a new delivery with the same body and `webhook-id`, in no order relative to others."""
        name = params.piece(request, "subscription")
        made = await self._subscriptions.replay(name, _delivery_id(request))
        return json_response(made, 201)


def _delivery_id(request: Request) -> int:
    text = params.piece(request, "delivery_id")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidId(f"{text[:60]!r} is not the id of a delivery; expected a number")
    return int(text)


def endpoints(subscriptions: Subscriptions) -> list[Endpoint]:
    return endpoints_of(SubscriptionCalls(subscriptions), "subscriptions")
