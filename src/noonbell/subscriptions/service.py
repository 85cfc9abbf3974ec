"""What the API and the pages do with webhook subscriptions: they are read, kept and shown, with secrets masked."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import Instant
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, NotFound
from noonbell.fields import Moment, filled, list_of, meta, plain, read, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.masking import origin_alone
from noonbell.model.alert import MOST_PATTERNS
from noonbell.model.event import Event, Position
from noonbell.model.subscription import (
    MOST_SUBSCRIPTIONS,
    WINDOW,
    HeldSubscription,
    Subscription,
    WebhookDelivery,
    WebhookStatus,
)
from noonbell.policy.alerts import is_pattern
from noonbell.ports import Store
from noonbell.sealing import Sealer, is_sealed
from noonbell.service.filters import check_type
from noonbell.service.secrets import MASK, opened_where_possible, sealed
from noonbell.service.target_fields import is_web_address
from noonbell.subscriptions.sender import WebhookPoster, cloud_event
from noonbell.targets.http import signing

_SEALED: Final = "is encrypted, and no key in secrets.key_file decrypts it; expected the value itself"
_TEST: Final = "subscription.test"

From = Annotated[
    str | None,
    meta(
        "Where it continues: `now`, `oldest`, the id of an event (after it), or a time.",
        min_length=1,
        max_length=60,
        examples=["now"],
    ),
]


# Answers and bodies


class ShownSubscription(Subscription, frozen=True, kw_only=True):
    component: ClassVar[str] = "Subscription"

    position: Annotated[str, meta("The last event that was delivered or waits.", read_only=True, examples=["17.0"])] = (
        ""
    )
    pending: Annotated[int, meta("Deliveries that wait to be tried again.", read_only=True)] = 0
    behind: Annotated[int, meta("Entries of the event log after the position.", read_only=True)] = 0
    delivered_at: Annotated[Moment | None, meta("The last delivery.", read_only=True)] = None
    failing_since: Annotated[Moment | None, meta("Since when a delivery has been failing.", read_only=True)] = None
    next_attempt_at: Annotated[Moment | None, meta(read_only=True)] = None
    disabled_at: Annotated[
        Moment | None, meta("When it was disabled because deliveries failed for too long.", read_only=True)
    ] = None
    disabled_reason: Annotated[str | None, meta(read_only=True)] = None
    missed: Annotated[
        int, meta("Entries of the event log that were removed before they could be delivered.", read_only=True)
    ] = 0


AllSubscriptions = list_of("Subscriptions", ShownSubscription)


class SubscriptionWrite(Subscription, frozen=True, kw_only=True):
    example: ClassVar[dict[str, Any]] = {
        "name": "billing",
        "url": "https://hooks.example.com/noonbell",
        "types": ["run.failed"],
        "labels": {"team": "billing"},
    }


class SubscriptionChange(SubscriptionWrite, frozen=True, kw_only=True, rename={"goes_on": "from"}):
    example: ClassVar[dict[str, Any]] = {"active": True, "from": "now"}

    name: Annotated[str, meta("The name in the path.", read_only=True, default=None)] = ""
    url: Annotated[str, meta("The URL that events are posted to.", max_length=4_000, default=None)] = ""
    goes_on: From = None


class SubscriptionMove(msgspec.Struct, frozen=True, kw_only=True, rename={"goes_on": "from"}):
    example: ClassVar[dict[str, Any]] = {"from": "2026-11-15T12:00:00Z"}

    goes_on: Annotated[
        str,
        meta(
            "Where it continues: `now`, `oldest`, the id of an event (after it), or a time.",
            min_length=1,
            max_length=60,
            examples=["2026-11-15T12:00:00Z"],
        ),
    ]


class WebhookDeliveryListed(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[int, meta(examples=[7340099])]
    subscription: Annotated[str, meta(examples=["billing"])]
    event_id: Annotated[str, meta("The event, as `GET /events` has it.", examples=["17.0"])]
    type: Annotated[str, meta(examples=["run.failed"])]
    status: Annotated[WebhookStatus, meta(examples=["DELIVERED"])]
    attempts: Annotated[int, meta(examples=[1])]
    next_attempt_at: Annotated[Moment | None, meta(examples=[None])]
    created_at: Moment
    ended_at: Moment | None
    response_code: Annotated[int | None, meta(examples=[200])]
    error: Annotated[str | None, meta(examples=[None])]
    replay_of: Annotated[int | None, meta("The delivery that this one repeats.", examples=[None])]


class ShownWebhook(WebhookDeliveryListed, frozen=True, kw_only=True):
    component: ClassVar[str] = "WebhookDelivery"

    request_headers: Annotated[
        dict[str, str],
        meta("The headers of the last attempt, without its signature.", examples=[{"webhook-id": "evt_17_0"}]),
    ]
    body: Annotated[str, meta("The body, as sent.", examples=['{"specversion":"1.0","id":"17.0"}'])]
    response: Annotated[str | None, meta("The first 2,000 characters of the response.", examples=["ok"])]


AllWebhooks = list_of("WebhookDeliveries", WebhookDeliveryListed)


class WebhookList(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("The most to return, newest first.", ge=1, le=1_000)] = 100
    before: Annotated[
        int | None, meta("Only those before this id.", ge=0, le=2**53 - 1, expected="the id of a delivery")
    ] = None
    status: Annotated[WebhookStatus | None, meta("Only those with this status.")] = None


class SubscriptionTested(msgspec.Struct, frozen=True):
    delivered: Annotated[bool, meta(examples=[True])]
    delivery_id: Annotated[int, meta("Where it is in the log.", examples=[7340099])]
    response_code: Annotated[int | None, meta(examples=[200])]
    error: Annotated[str | None, meta(examples=[None])]


def delivery_json(delivery: WebhookDelivery, kind: type[WebhookDeliveryListed] = ShownWebhook) -> dict[str, Any]:
    return plain(filled(kind, delivery, next_attempt_at=delivery.next_at))


# Reading


def read_subscription(
    given: Mapping[str, Any], there: Subscription | None, url_problem: Callable[[str], str | None] | None = None
) -> tuple[Subscription, str | None]:
    """A new one; or `there` with what is given, where MASK and the url as it was shown stand for what it has.

    And where it is to go on, where that is said. InvalidArgument names every problem.
    """
    at = ReadContext(Problems())
    goes_on: str | None = None
    if there is None:
        made = filled(Subscription, read_into(SubscriptionWrite, given, at))
    else:
        changed = read_into(SubscriptionChange, given, at)
        goes_on = changed.goes_on
        fields = {name: getattr(changed, name) for name in given if name in Subscription.__struct_fields__}
        for name in ("name", "created_at", "updated_at"):
            fields.pop(name, None)
        if fields.get("url") == shown_url(there.url):
            del fields["url"]
        if fields.get("secret") == MASK:
            del fields["secret"]
        elif "secret" in fields and fields["secret"] is None:
            at.wrong("secret", "is null; expected a secret: every delivery is signed")
        made = msgspec.structs.replace(there, **fields)
    _check(made, at, url_problem)
    at.problems.finish()
    return made, goes_on


def _check(made: Subscription, at: ReadContext, url_problem: Callable[[str], str | None] | None) -> None:
    if is_sealed(made.url):
        at.wrong("url", _SEALED)
    elif not (is_web_address(made.url) and made.url.isprintable() and " " not in made.url):
        at.wrong("url", "is missing or wrong; expected http://HOST/… or https://HOST/…, without a user name")
    elif url_problem is not None and (problem := url_problem(made.url)):
        at.wrong("url", "is denied: {denied}", denied=problem)
    if made.secret is not None and is_sealed(made.secret):
        at.wrong("secret", _SEALED)
    elif made.secret is not None:
        try:
            signing.keys(made.secret)
        except InvalidArgument as error:
            at.wrong("secret", f"cannot sign: {error.message}")
    for word in made.types:
        check_type(word, at, "types")
    patterns = sum(is_pattern(each) for each in made.tasks)
    if patterns > MOST_PATTERNS:
        at.wrong(
            "tasks",
            "has {count} patterns; expected at most {most} texts with *, ? or [ in them",
            count=patterns,
            most=MOST_PATTERNS,
        )


def shown_url(url: str) -> str:
    return MASK if is_sealed(url) else origin_alone(url)


def read_place(text: str) -> Position | Instant | None:
    """None is now. InvalidArgument names `from`."""
    if text == "now":
        return None
    if text == "oldest":
        return Position(0)
    if ":" in text or "-" in text:
        return read(_Place, {"from": text}).at
    return Position.read(text, "from")


class _Place(msgspec.Struct, frozen=True, kw_only=True, rename={"at": "from"}):
    at: Annotated[
        Moment,
        meta(expected="`now`, `oldest`, the ID of an event such as 17.0, or a time such as 2026-11-15T12:00:00Z"),
    ]


def new_secret() -> str:
    return signing.PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


# Use cases


class Subscriptions:
    def __init__(
        self,
        store: Store,
        poster: WebhookPoster,
        sealer: Sealer | None = None,
        *,
        url_problem: Callable[[str], str | None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`url_problem`: why an address is denied for certain. `on_change` is called after each change: look at once."""
        self._store, self._poster, self._sealer = store, poster, sealer or Sealer()
        self._url_problem, self._on_change = url_problem, on_change

    async def all(self) -> list[dict[str, Any]]:
        newest = await self._store.last_event()
        return [self._shown(held, newest) for held in await self._store.subscriptions()]

    async def get(self, name: str) -> dict[str, Any]:
        return self._shown(await self._held(name), await self._store.last_event())

    async def create(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer has the secret, where it was made here: it is shown now and never again."""
        made, _ = read_subscription(given, None, self._url_problem)
        known = await self._store.subscriptions()
        if any(each.subscription.name == made.name for each in known):
            raise AlreadyExists(
                "a subscription named {name} already exists", name=repr(made.name), details={"name": "is taken"}
            )
        if len(known) >= MOST_SUBSCRIPTIONS:
            raise InvalidState(
                f"there are {len(known)} subscriptions, the maximum is {MOST_SUBSCRIPTIONS}; remove one first"
            )
        secret = made.secret or new_secret()
        is_ours = made.secret is None
        kept = await self._store.put_subscription(sealed(msgspec.structs.replace(made, secret=secret), self._sealer))
        self._changed()
        shown = self._shown(kept, await self._store.last_event())
        return {**shown, "secret": secret} if is_ours else shown

    async def change(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given fields anew, the others as they are; `from` moves its position."""
        there = (await self._held(name)).subscription
        made, goes_on = read_subscription(given, self._opened(there), self._url_problem)
        place = None if goes_on is None else read_place(goes_on)
        kept = await self._store.put_subscription(sealed(made, self._sealer, there))
        if goes_on is not None:
            await self._store.move_subscription(name, place)
            kept = await self._held(name)
        self._changed()
        return self._shown(kept, await self._store.last_event())

    async def remove(self, name: str) -> None:
        if not await self._store.remove_subscription(name):
            raise NotFound("there is no subscription {name}", name=repr(name))
        self._changed()

    async def test(self, name: str) -> dict[str, Any]:
        """Post an event that says that it is a test, now and once; what came of it is answered and logged."""
        subscription = (await self._held(name)).subscription
        now = await self._store.now()
        event = Event(seq=0, index=0, at=now, type=_TEST, data={"subscription": name})
        message_id = f"test_{secrets.token_hex(8)}"
        body = cloud_event(event, "/test")
        answer = await self._poster.post(subscription, message_id, body)
        noted = await self._store.note_webhook(
            WebhookDelivery(
                subscription=name,
                event_seq=0,
                event_index=0,
                type=_TEST,
                order_key=message_id,
                status=WebhookStatus.DELIVERED if answer.error is None else WebhookStatus.FAILED,
                attempts=1,
                body=body.decode(),
                **msgspec.structs.asdict(answer),
            )
        )
        told = SubscriptionTested(answer.error is None, noted.id, answer.response_code, answer.error)
        return msgspec.to_builtins(told)  # type: ignore[no-any-return]

    async def deliveries(
        self, name: str, *, limit: int = 100, before: int | None = None, status: WebhookStatus | None = None
    ) -> list[dict[str, Any]]:
        await self._held(name)
        found = await self._store.webhook_deliveries(name, limit, before=before, status=status)
        return [delivery_json(each, WebhookDeliveryListed) for each in found]

    async def delivery(self, name: str, delivery_id: int) -> dict[str, Any]:
        await self._held(name)
        found = await self._store.webhook_delivery(name, delivery_id)
        if found is None:
            raise NotFound(f"subscription {name!r} has no delivery {delivery_id}")
        return delivery_json(found)

    async def replay(self, name: str, delivery_id: int) -> dict[str, Any]:
        """The same body once more, as a new delivery that waits for no other."""
        held = await self._held(name)
        if not held.subscription.active:
            raise InvalidState("subscription {name} is not active; activate it first", name=repr(name))
        if held.state.pending >= 2 * WINDOW:
            raise InvalidState(
                "{count} deliveries are already waiting; try again when some of them have been made",
                count=held.state.pending,
            )
        made = await self._store.replay_delivery(name, delivery_id)
        if made is None:
            raise NotFound(f"subscription {name!r} has no delivery {delivery_id}")
        self._changed()
        return delivery_json(made)

    async def move(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Go on at another place: everything after it is delivered, again where it was before."""
        place = read_place(read(SubscriptionMove, given).goes_on)
        if await self._store.move_subscription(name, place) is None:
            raise NotFound("there is no subscription {name}", name=repr(name))
        self._changed()
        return await self.get(name)

    async def _held(self, name: str) -> HeldSubscription:
        for held in await self._store.subscriptions():
            if held.subscription.name == name:
                return held
        raise NotFound("there is no subscription {name}", name=repr(name))

    def _opened(self, subscription: Subscription) -> Subscription:
        return opened_where_possible(subscription, self._sealer)

    def _shown(self, held: HeldSubscription, newest: int) -> dict[str, Any]:
        state, subscription = held.state, self._opened(held.subscription)
        where = state.read_to
        shown = filled(
            ShownSubscription,
            subscription,
            url=shown_url(subscription.url),
            secret=MASK,
            position=f"{where.seq}" if where.index >= 10**9 else f"{where.seq}.{where.index}",
            behind=max(0, newest - where.seq),
            next_attempt_at=state.next_at,
            **{name: getattr(state, name) for name in _OF_STATE},
        )
        return plain(shown)

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


_OF_STATE: Final = ("pending", "delivered_at", "failing_since", "disabled_at", "disabled_reason", "missed")
