"""Endpoints of webhook subscriptions: subscriptions, tests, deliveries and their replay."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.responses import Deleted
from noonbell.errors import InvalidId
from noonbell.model.access import Role
from noonbell.subscriptions.service import (
    AllSubscriptions,
    AllWebhooks,
    ShownSubscription,
    ShownWebhook,
    SubscriptionChange,
    SubscriptionMove,
    Subscriptions,
    SubscriptionTested,
    SubscriptionWrite,
    WebhookList,
)


class SubscriptionCalls:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    @call("GET", "/subscriptions", "subscriptions", "All webhook subscriptions", Role.VIEWER, answer=AllSubscriptions)
    async def all(self) -> object:
        return {"items": await self._subscriptions.all()}

    @call(
        "POST", "/subscriptions", "create_subscription", "Create a subscription", Role.ADMIN,
        status=201, body=SubscriptionWrite, body_required=True, answer=ShownSubscription,
        errors=("ALREADY_EXISTS", "INVALID_STATE"),
    )  # fmt: skip
    async def create(self, request: Request, given: Given) -> object:
        """The subscription starts with the next event. A secret that the server generates is in this response, and
        never shown again.
        """
        made = await self._subscriptions.create(given)
        params.name_in_audit(request, made["name"])
        return made

    @call(
        "GET", "/subscriptions/{subscription}", "subscription", "One subscription, with its position", Role.VIEWER,
        answer=ShownSubscription,
    )  # fmt: skip
    async def get(self, subscription: str) -> object:
        return await self._subscriptions.get(subscription)

    @call(
        "PATCH", "/subscriptions/{subscription}", "change_subscription", "Change fields of a subscription", Role.ADMIN,
        body=SubscriptionChange, body_required=True, answer=ShownSubscription,
    )  # fmt: skip
    async def change(self, given: Given, subscription: str) -> object:
        """With `active: true`, deliveries continue from its position; with `from: now` as well, pending events are
        dropped.
        """
        return await self._subscriptions.change(subscription, given)

    @call(
        "DELETE", "/subscriptions/{subscription}", "remove_subscription", "Remove a subscription and its deliveries",
        Role.ADMIN, answer=Deleted,
    )  # fmt: skip
    async def remove(self, subscription: str) -> object:
        await self._subscriptions.remove(subscription)
        return {"deleted": True}

    @call(
        "POST", "/subscriptions/{subscription}/test", "test_subscription", "Post a test event", Role.ADMIN,
        answer=SubscriptionTested,
    )  # fmt: skip
    async def test(self, subscription: str) -> object:
        return await self._subscriptions.test(subscription)

    @call(
        "POST", "/subscriptions/{subscription}/replay", "replay_subscription", "Continue at another position of the"
        " stream",
        Role.ADMIN, body=SubscriptionMove, body_required=True, answer=ShownSubscription,
    )  # fmt: skip
    async def move(self, given: Given, subscription: str) -> object:
        """Every event after the position is delivered, including those delivered before, as far back as the stream
        reaches.
        """
        return await self._subscriptions.move(subscription, given)

    @call(
        "GET", "/subscriptions/{subscription}/deliveries", "subscription_deliveries", "The deliveries of a"
        " subscription, newest first",
        Role.VIEWER, query=WebhookList, answer=AllWebhooks,
    )  # fmt: skip
    async def deliveries(self, asked: WebhookList, subscription: str) -> object:
        items = await self._subscriptions.deliveries(
            subscription, limit=asked.limit, before=asked.before, status=asked.status
        )
        return {"items": items}

    @call(
        "GET", "/subscriptions/{subscription}/deliveries/{delivery_id}", "subscription_delivery",
        "One delivery, with its request and response", Role.VIEWER, answer=ShownWebhook,
    )  # fmt: skip
    async def delivery(self, subscription: str, delivery_id: str) -> object:
        return await self._subscriptions.delivery(subscription, _delivery_id(delivery_id))

    @call(
        "POST", "/subscriptions/{subscription}/deliveries/{delivery_id}/replay", "replay_delivery",
        "Deliver one event again", Role.ADMIN, status=201, answer=ShownWebhook, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def replay(self, subscription: str, delivery_id: str) -> object:
        """The event is sent as a new delivery with the same body and `webhook-id`, in no order relative to others."""
        return await self._subscriptions.replay(subscription, _delivery_id(delivery_id))


def _delivery_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidId(f"{text[:60]!r} is not the id of a delivery; expected a number")
    return int(text)
