"""Webhook subscriptions: what a receiver wants to hear of, how far it has been told, and each delivery to it."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from noonbell.clock import Instant
from noonbell.fields import meta
from noonbell.model.alert import MOST_NAMES, Name, ReadOnlyMoment
from noonbell.model.event import Position

MOST_SUBSCRIPTIONS = 100
"""All are read every second, and each reads the stream of events."""
WINDOW = 1_000
"""Deliveries of one subscription that may wait for a receiver: with more, it reads no further events."""
KEPT = 10_000
"""Deliveries of one subscription that have ended and are kept, at most."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a subscription"

    name: Annotated[Name, meta(examples=["billing"])]
    url: Annotated[
        str,
        meta(
            "The URL that events are posted to. Shown without its secrets; what was shown may be written back.",
            min_length=1,
            max_length=4_000,
            examples=["https://hooks.example.com/noonbell"],
        ),
    ]
    types: Annotated[
        tuple[Annotated[str, meta(min_length=1, max_length=60)], ...],
        meta(
            "Event types or their first words: `run` matches every `run.…`. None: every type.",
            max_length=100,
            examples=[["run.failed", "task"]],
        ),
    ] = ()
    tasks: Annotated[
        tuple[Annotated[str, meta(min_length=1, max_length=200)], ...],
        meta(
            "Names of tasks; `*` and `?` are wildcards, in at most 100 names. None: every task.", max_length=MOST_NAMES
        ),
    ] = ()
    labels: Annotated[
        dict[str, Annotated[str, meta(max_length=200)]],
        meta("Events of tasks that have all of these labels.", max_length=50, examples=[{"team": "billing"}]),
    ] = {}
    queues: Annotated[
        tuple[Annotated[str, meta(min_length=1, max_length=200)], ...],
        meta("Events of these queues. None: every queue.", max_length=100),
    ] = ()
    secret: Annotated[
        str | None,
        meta(
            "Signs deliveries as Standard Webhooks specifies. If none is given, one is generated and shown once.",
            min_length=1,
            max_length=1_000,
            examples=["***"],
        ),
    ] = None
    active: Annotated[bool, meta("False: nothing is sent, and its position is kept.")] = True
    created_at: ReadOnlyMoment = Instant(0)
    updated_at: ReadOnlyMoment = Instant(0)


class SubscriptionState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a subscription has come. All of it is in its row."""

    position: int
    """Every event up to this number has been delivered, or waits as a delivery of its own."""
    position_index: int
    """Of the events of that number, those up to this index."""
    token: int = 0
    """Rises with each holder, and with each change of the subscription: what an earlier holder writes is refused."""
    failures: int = 0
    """Passes in a row in which every attempt failed: the receiver is taken to be down."""
    pending: int = 0
    """Deliveries that wait."""
    next_at: Instant | None = None
    """When to look at those; None: there are none."""
    delivered_at: Instant | None = None
    failing_since: Instant | None = None
    """The first failure of the delivery that has been failing the longest."""
    disabled_at: Instant | None = None
    """When it was disabled because its receiver failed for too long."""
    disabled_reason: str | None = None
    missed: int = 0
    """Entries of the log of events that were removed before they could be delivered."""

    @property
    def read_to(self) -> Position:
        return Position(self.position, self.position_index)


class HeldSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription with its state. As an answer of `take_subscriptions` it is a lease with the token of the state."""

    subscription: Subscription
    state: SubscriptionState


class WebhookStatus(enum.StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    """It was given up: by an operator who moved the position past it. A test that failed is FAILED too."""


class WebhookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event to one subscription."""

    id: int = 0
    """0: it is not written yet."""
    subscription: str
    event_seq: int
    event_index: int
    type: str
    order_key: str
    """Deliveries with the same key are made one after the other, in the order of events: `run:8123`, `task:1`."""
    status: WebhookStatus = WebhookStatus.PENDING
    attempts: int = 0
    next_at: Instant | None = None
    first_failed_at: Instant | None = None
    created_at: Instant = Instant(0)
    ended_at: Instant | None = None
    response_code: int | None = None
    error: str | None = None
    request_headers: dict[str, str] = {}
    body: str = ""
    response: str | None = None
    """The beginning of what was answered."""
    replay_of: int | None = None

    @property
    def event_id(self) -> str:
        return f"{self.event_seq}.{self.event_index}"

    @property
    def message_id(self) -> str:
        """`webhook-id`: the same for every attempt and every replay, so that a receiver can drop a second copy."""
        return f"evt_{self.event_seq}_{self.event_index}"


class WebhookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt. `error` is None where the receiver answered 2xx."""

    error: str | None = None
    response_code: int | None = None
    response: str | None = None
    request_headers: dict[str, str] = {}


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery of a pass, and what came of it; None: it was held back, and is to be written down as waiting."""

    delivery: WebhookDelivery
    answer: WebhookAnswer | None


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    window: float = 86_400.0
    """Seconds for which a delivery may fail before its subscription is disabled."""
    first_pause: float = 5.0
    longest_pause: float = 600.0


class DeliveryStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass of a subscription comes to; all of it is written together."""

    read_to: Position
    attempts: tuple[DeliveryAttempt, ...] = ()
    missed: int = 0
